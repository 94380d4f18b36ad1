//! Runs both programs, and checks their output.

#![allow(dead_code)] // each tier uses a part of this

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use trimwise_cli::laboratory::COMMANDS;
pub use trimwise_testing::command_line::*;

/// The program of this crate.
pub const LABORATORY: &str = env!("CARGO_BIN_EXE_trimwise-lab");

/// Returns `trimwise`, which `scripts/build-programs` and tests of the whole workspace build next to this program.
pub fn light() -> PathBuf {
    let program = Path::new(LABORATORY).with_file_name("trimwise");
    assert!(program.is_file(), "{} is missing: scripts/build-programs makes it", program.display());
    program
}

/// Returns a command with its arguments, of this program if it has that command, or else of `trimwise`.
pub fn command(words: &[&str]) -> Command {
    let name = words.iter().find(|word| !word.starts_with('-'));
    let is_own = name.is_some_and(|name| COMMANDS.iter().any(|(own, _)| own == name));
    let mut command = Command::new(if is_own { LABORATORY.into() } else { light() });
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
