//! The `trimwise` command: reads its arguments, runs what they ask for, and shows the result.
//!
//! The work itself is done by the libraries; this crate holds what needs files and a terminal. [`commands`] has a module
//! for each command. The command itself is [`main`]; the Python package takes its tables from [`embed`].

mod arguments;
mod commands;
mod conclusion;
pub mod embed;
mod figures;
mod interrupt;
mod output;
mod progress;
mod report;
mod table;
mod terminal;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use console::Term;
use trimwise::failure::Failure;

use crate::commands::CommandLine;

/// Runs the command of this process's arguments, and prints its result.
pub fn main() -> ExitCode {
    let command_line = CommandLine::parse(); // exits with code 2 on wrong arguments
    if command_line.quiet {
        output::be_quiet();
    }
    match commands::run(command_line.command, &terminal::Terminal).and_then(|text| output::print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let lines: Vec<String> = failure.to_string().lines().map(table::plain).collect();
            let message = format!("error: {}\n", lines.join("\n"));
            let message = table::fitted(&message, &Term::stderr());
            // Nobody may be reading, and that must not change the exit code.
            let _ = std::io::stderr().write_all(message.as_bytes());
            ExitCode::from(exit_code(&failure))
        }
    }
}

fn exit_code(failure: &Failure) -> u8 {
    match failure {
        Failure::Run(_) => 1,
        Failure::Usage(_) => 2,
        Failure::Unchecked(_) => 3,
        Failure::Interrupted => interrupt::EXIT_CODE,
    }
}
