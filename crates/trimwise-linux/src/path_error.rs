use std::io;
use std::path::Path;

use thiserror::Error;

/// An error of the operating system, with its path.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct PathError {
    pub path: String,
    pub source: io::Error,
}

/// Returns a function that adds a path to an error, for `map_err`.
pub fn at<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> PathError {
    move |error| PathError { path: path.display().to_string(), source: error.into() }
}
