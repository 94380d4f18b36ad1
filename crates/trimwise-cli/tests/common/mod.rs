//! Runs the command, and checks its output.

#![allow(dead_code)] // each tier uses a part of this

use std::path::Path;
use std::process::{Command, Output, Stdio};

pub use trimwise_testing::command_line::{refused, said, text};

/// Returns the command with these arguments.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command.args(words).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// Returns the command in a folder, which also holds its temporary files.
pub fn command_in(folder: &Path, line: &str) -> Command {
    let mut command = command(&line.split_whitespace().collect::<Vec<_>>());
    command.current_dir(folder).env("TMPDIR", folder);
    command
}

pub fn trimwise(words: &[&str]) -> Output {
    command(words).output().unwrap()
}
