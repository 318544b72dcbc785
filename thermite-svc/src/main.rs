//! thermite.
fn main() {}
