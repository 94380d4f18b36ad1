use std::path::PathBuf;

use thiserror::Error;
use trimwise::failure::{Mistake, key};
use trimwise::words;
use trimwise_linux::path_error::PathError;

use super::{NAME_BYTES_MAX, PATIENCE, SOCKET_PATH_BYTES_MAX};

#[derive(Debug, Error)]
pub enum RegistryError {
    #[error(
        "'{name}' is not a device name; expected at most {NAME_BYTES_MAX} letters, digits, '.', '-', '_', '@' or '+', \
         beginning with a letter or a digit"
    )]
    Name { name: String },
    #[error("{}", taken(name))]
    Taken { name: String },
    #[error("{given}: no emulated device here has this name or node{}", known(.there))]
    Unknown { given: String, there: Vec<String> },
    #[error("{device} is {how}; stop using it first")]
    InUse { device: String, how: String },
    #[error("the server of {name} (process {pid}) did not end within {} s: {why}", PATIENCE.as_secs())]
    Lingers { name: String, pid: u32, why: String },
    #[error(
        "{path}: {bytes} bytes are too long for the path of a socket; expected at most {SOCKET_PATH_BYTES_MAX}"
    )]
    LongPath { path: PathBuf, bytes: usize },
    #[error(transparent)]
    Io(#[from] PathError),
}

impl RegistryError {
    /// Returns what is wrong with the request.
    pub fn mistake(&self) -> Mistake {
        match self {
            Self::Taken { name } => taken(name),
            other => Mistake::that(other.to_string()),
        }
    }
}

fn taken(name: &str) -> Mistake {
    let there = format!("a device named {name} already exists; choose another ");
    Mistake::that(words![there, key("name"), ", or detach that device first"])
}

fn known(there: &[String]) -> String {
    match there.join(", ") {
        none if none.is_empty() => "; there are none".to_owned(),
        names => format!("; expected one of {names}"),
    }
}
