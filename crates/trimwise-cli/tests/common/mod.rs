//! What test programs of guests share.

mod skipped;

pub use skipped::skipped;

use std::path::Path;
use std::process::{Command, Stdio};

/// The command in a folder, which is also where it makes its temporary ones.
pub fn trimwise(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwise"));
    command
        .args(line.split_whitespace())
        .current_dir(folder)
        .env("TMPDIR", folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}
