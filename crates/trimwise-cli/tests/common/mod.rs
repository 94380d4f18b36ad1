//! Runs the command, and checks its output.

#![allow(dead_code)] // each tier uses a part of this

use std::path::Path;
use std::process::{Command, Output, Stdio};

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

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Expects success, these words on standard output, and lines that fit.
#[track_caller]
pub fn said(output: &Output, words: &[&str]) {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    words.iter().for_each(|words| assert!(said.contains(words), "'{words}' is not in: {said}"));
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
}

/// Expects an exit code and a message with these words.
#[track_caller]
pub fn refused(code: i32, output: &Output, words: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}{}", text(&output.stdout));
    words.iter().for_each(|words| assert!(message.contains(words), "'{words}' is not in: {message}"));
}
