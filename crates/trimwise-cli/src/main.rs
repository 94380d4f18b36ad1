//! The `trimwise` command: reads its arguments, runs what they ask for, and shows the result.
//!
//! The work itself is done by the libraries; this crate holds what needs threads, files and a terminal. It meets the
//! models in one place, [`runner`].

mod arguments;
mod command_line;
mod commands;
mod defaults;
mod failure;
mod figures;
mod interrupt;
mod output;
mod pool;
mod progress;
mod report;
mod runner;
mod table;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::CommandLine;

fn main() -> ExitCode {
    let command_line = CommandLine::parse(); // exits with code 2 on wrong arguments
    if command_line.quiet {
        output::be_quiet();
    }
    match commands::run(command_line.command).and_then(|text| output::print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let lines: Vec<String> = failure.to_string().lines().map(table::plain).collect();
            eprintln!("error: {}", lines.join("\n"));
            ExitCode::from(failure.exit_code())
        }
    }
}
