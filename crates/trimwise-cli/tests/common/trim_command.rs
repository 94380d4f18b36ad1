//! Runs `trimwise trim`.

#![allow(dead_code)] // each tier uses a part of this

use std::process::{Command, Output};

use crate::common::{self, text};

pub fn command(arguments: &[&str]) -> Command {
    let mut command = common::command(&["trim"]);
    command.args(arguments);
    command
}

pub fn trim(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Expects an exit code, nothing on standard output and one message with these words.
#[track_caller]
pub fn refused(code: i32, output: &Output, words: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(message.matches("error:").count(), 1, "{message}");
    for word in words {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
}
