//! The `lycosa` command.
fn main() {}
