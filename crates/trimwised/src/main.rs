//! `trimwised`: TRIM policies on the mounted file systems of this host. See docs/guide.md.

use std::process::ExitCode;

fn main() -> ExitCode {
    trimwised::command::main(std::env::args_os().skip(1))
}
