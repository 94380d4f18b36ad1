//! The `trimwise` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    trimwise_cli::main()
}
