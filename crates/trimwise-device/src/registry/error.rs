//! What can be wrong with devices and their names.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::{NAME_BYTES_MAX, PATIENCE, SOCKET_PATH_BYTES_MAX};

/// Why something could not be done with a device.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A name that cannot be one.
    #[error(
        "'{name}' is no name of a device; expected at most {NAME_BYTES_MAX} letters, digits, '.', '-', '_', '@' or '+', \
         beginning with a letter or a digit"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// There is one of that name.
    #[error("there is a device named {name} already; expected another --name, or that it is detached first")]
    Taken {
        /// Its name.
        name: String,
    },
    /// There is none.
    #[error("{given}: no emulated device here has this name or node{}", known(.there))]
    Unknown {
        /// What was asked for.
        given: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// Somebody uses it.
    #[error("{device} is {how}; expected that nobody uses it")]
    InUse {
        /// Its node.
        device: String,
        /// By whom.
        how: String,
    },
    /// The server did not end in time.
    #[error("the server of {name} (process {pid}) has not ended within {} s: {why}", PATIENCE.as_secs())]
    Lingers {
        /// The device.
        name: String,
        /// Its server.
        pid: u32,
        /// Why that may be.
        why: String,
    },
    /// A path too long for a socket.
    #[error(
        "{path}: {bytes} bytes are too long for the path of a socket; expected at most {SOCKET_PATH_BYTES_MAX}"
    )]
    LongPath {
        /// It.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// A file or folder could not be read or made.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn known(there: &[String]) -> String {
    match there.join(", ") {
        none if none.is_empty() => "; there is none".to_owned(),
        names => format!("; expected one of {names}"),
    }
}
