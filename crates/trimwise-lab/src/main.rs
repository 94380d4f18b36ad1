//! The `trimwise-lab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    trimwise_lab::main()
}
