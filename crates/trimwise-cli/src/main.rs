//! The `trimwise` command.
fn main() {}
