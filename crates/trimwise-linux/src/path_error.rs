//! An error of the operating system, with the path that it concerns.

use std::io;
use std::path::Path;

use thiserror::Error;

/// What the operating system refuses at a path.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct PathError {
    /// The path.
    pub path: String,
    /// The operating system's error.
    pub source: io::Error,
}

/// Returns a function that adds a path to an error, for `map_err`.
pub fn at<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> PathError {
    move |error| PathError { path: path.display().to_string(), source: error.into() }
}
