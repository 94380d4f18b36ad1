//! Errors about devices and their names.

use std::path::PathBuf;

use thiserror::Error;
use trimwise_linux::path_error::PathError;

use super::{NAME_BYTES_MAX, PATIENCE, SOCKET_PATH_BYTES_MAX};

/// Reasons why an operation on a device failed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The name is invalid.
    #[error(
        "'{name}' is not a device name; expected at most {NAME_BYTES_MAX} letters, digits, '.', '-', '_', '@' or '+', \
         beginning with a letter or a digit"
    )]
    Name {
        /// Name that the user gave.
        name: String,
    },
    /// The name is taken.
    #[error("a device named {name} already exists; choose another --name, or detach that device first")]
    Taken {
        /// Name that is taken.
        name: String,
    },
    /// No such device exists.
    #[error("{given}: no emulated device here has this name or node{}", known(.there))]
    Unknown {
        /// The given name or node.
        given: String,
        /// Names of the existing devices.
        there: Vec<String>,
    },
    /// The device is in use.
    #[error("{device} is {how}; stop using it first")]
    InUse {
        /// Node of the device.
        device: String,
        /// Description of the use, such as a mount.
        how: String,
    },
    /// The server did not end in time.
    #[error("the server of {name} (process {pid}) did not end within {} s: {why}", PATIENCE.as_secs())]
    Lingers {
        /// Name of the device.
        name: String,
        /// Process number of the server.
        pid: u32,
        /// Likely reason for the delay.
        why: String,
    },
    /// The path is too long for a socket.
    #[error(
        "{path}: {bytes} bytes are too long for the path of a socket; expected at most {SOCKET_PATH_BYTES_MAX}"
    )]
    LongPath {
        /// Path of the socket.
        path: PathBuf,
        /// Length of the path, in bytes.
        bytes: usize,
    },
    /// A file or folder could not be read or created.
    #[error(transparent)]
    Io(#[from] PathError),
}

fn known(there: &[String]) -> String {
    match there.join(", ") {
        none if none.is_empty() => "; there is none".to_owned(),
        names => format!("; expected one of {names}"),
    }
}
