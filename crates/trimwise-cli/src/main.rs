//! The `trimwise` command: reads its arguments, runs what they ask for, and shows the result.
//!
//! The work itself is done by the libraries; this crate holds what needs threads, files and a terminal. It meets the
//! models in one place, [`runner`].

mod arguments;
mod bench;
mod command_line;
mod compare;
mod crashtest;
mod daemon;
mod defaults;
mod device;
mod devices;
mod doctor;
mod failure;
mod figures;
mod interrupt;
mod kernel;
mod output;
mod policies;
mod pool;
mod progress;
mod report;
mod reproduce;
mod runner;
mod selftest;
mod table;
mod trim;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Command, CommandLine};
use crate::failure::Failure;
use crate::interrupt::OnInterrupt;
use crate::runner::Linked;

fn main() -> ExitCode {
    let command_line = CommandLine::parse(); // exits with code 2 on wrong arguments
    if command_line.quiet {
        output::be_quiet();
    }
    match run(command_line.command).and_then(|text| output::print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let lines: Vec<String> = failure.to_string().lines().map(table::plain).collect();
            eprintln!("error: {}", lines.join("\n"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Runs the command and returns what is left to print.
fn run(command: Command) -> Result<String, Failure> {
    let models = Linked;
    match command {
        Command::Compare(arguments) => compare::run(&models, &arguments, interrupt::install),
        Command::Reproduce(arguments) => reproduce::run(&models, &arguments, interrupt::install),
        Command::Crashtest(arguments) => {
            crashtest::run(&models, &arguments, || interrupt::install(OnInterrupt::Exit).map(drop))
        }
        Command::Bench(arguments) => bench::run(&models, &arguments, interrupt::install),
        Command::Verify(arguments) => verify::run(&arguments, interrupt::install),
        Command::Trim(arguments) if arguments.now => trim::now::run(&arguments, interrupt::install),
        Command::Trim(arguments) => trim::run(&arguments, interrupt::install),
        Command::Kernel(arguments) => kernel::run(&arguments.command, interrupt::install),
        Command::Policies(arguments) => policies::run(&arguments),
        Command::Selftest(arguments) => {
            selftest::run(&arguments, || interrupt::install(OnInterrupt::Exit).map(drop))
        }
        Command::Status(arguments) => daemon::status(&arguments),
        Command::Explain(arguments) => daemon::explain(&arguments),
        Command::History(arguments) => daemon::history(&arguments),
        Command::Pause(arguments) => daemon::pause(&arguments, true),
        Command::Resume(arguments) => daemon::pause(&arguments, false),
        Command::Config(arguments) => daemon::config(&arguments.command),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Device(arguments) => device::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::GuestInit => {
            trimwise_uml::guest::run_as_init().map(|()| String::new()).map_err(Failure::usage)
        }
    }
}
