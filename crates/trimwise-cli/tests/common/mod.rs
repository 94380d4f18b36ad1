//! Runs the command, and checks its output.

#![allow(dead_code)] // each tier uses a part of this

use std::path::Path;
use std::process::{Command, Output, Stdio};

pub use trimwise_testing::command_line::{refused, said, text};

/// Returns true if Python is installed: tests of scripts need it, but README's own command must pass without.
///
/// # Panics
/// If it is not, and `TRIMWISE_REQUIRE_ALL` is set.
pub fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("TRIMWISE_REQUIRE_ALL").is_none(), "python3 is missing");
    found
}

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
