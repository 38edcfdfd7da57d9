//! Tests, tidiness and benchmarks of the workspace.
fn main() {}
