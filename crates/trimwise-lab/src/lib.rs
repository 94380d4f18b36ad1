//! The laboratory: real kernels, emulated drives, device tests, attacks on the models, and the published experiments.
//!
//! Crash checker and selftest start no thread, open no file and read no clock, like the library; experiments run on threads
//! and boot kernels, and so does the crash checker for real ones. [`requests`] are what a person or a program asks of all
//! that, as plain data; [`main`] is the program `trimwise-lab`.

mod commands;
pub mod crash;
pub mod experiment;
pub mod fit;
pub mod guests;
pub mod made;
pub mod requests;
pub mod selftest;

pub use trimwise_study::{bench, plot};

use std::process::ExitCode;

use clap::Parser as _;
use trimwise_cli::{ended, output, terminal};

/// Runs the command of this process's arguments, and prints its result.
pub fn main() -> ExitCode {
    let command_line = commands::CommandLine::parse(); // exits with code 2 on wrong arguments
    if command_line.quiet {
        output::be_quiet();
    }
    ended(commands::run(command_line.command, &terminal::Terminal))
}
