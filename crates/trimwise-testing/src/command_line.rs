//! Checks of what a command printed.

use std::fs;
use std::path::Path;
use std::process::Output;

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

/// Returns the names and bytes of all files in a folder and below, sorted.
pub fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            match path.is_dir() {
                true => left.push(path),
                false => files.push((name, fs::read(path).unwrap())),
            }
        }
    }
    files.sort();
    files
}
