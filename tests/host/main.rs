//! This machine as the ports: real processes, real files, real git.

mod kit;
