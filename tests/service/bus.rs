//! The bus on a real nats-server: rights by JWT, TLS, and what its faults do.

pub(crate) mod nats;
mod rights;
