//! The `trimwise` command: reads its arguments, runs what they ask for, and shows the result.
//!
//! The work itself is done by the libraries; this crate holds what needs files and a terminal. [`commands`] has a module
//! for each command. The command itself is [`main`]; the Python package takes its tables from [`embed`].

pub mod arguments;
pub mod commands;
mod conclusion;
pub mod embed;
pub mod figures;
pub mod gate;
pub mod interrupt;
pub mod laboratory;
pub mod output;
pub mod progress;
pub mod report;
pub mod table;
pub mod terminal;

use std::io::Write as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use console::Term;
use trimwise::failure::Failure;

use crate::commands::CommandLine;

/// Runs the command given by this process's arguments, and prints its result.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(command) = laboratory::wanted(&words) {
        return ended(Err(laboratory::hand_over(&format!("`trimwise {command}`"))));
    }
    let matches = commands::parsed().get_matches(); // exits with code 2 on wrong arguments
    let command_line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if command_line.quiet {
        output::be_quiet();
    }
    ended(commands::run(command_line.command, &terminal::Terminal))
}

/// Prints the remaining text, or the error, and returns the exit code.
pub fn ended(result: Result<String, Failure>) -> ExitCode {
    match result.and_then(|text| output::print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let lines: Vec<String> = failure.to_string().lines().map(table::plain).collect();
            let message = format!("error: {}\n", lines.join("\n"));
            let message = table::fitted(&message, &Term::stderr());
            // The reader may be gone; that must not change the exit code.
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
