use rustix::io::Errno;
use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::mount::MountError;
use crate::path_error::PathError;

use super::{Accounts, Meaning};

#[derive(Debug, Error)]
pub enum TrimError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    #[error("{path}: not a mount point; it is on the {fs_type} mounted on {mount_point}: give that path")]
    NotAMountPoint { path: String, fs_type: String, mount_point: String },
    #[error(
        "{path}: its device {device} does not accept discards: {file} is 0. The cause may be a USB adapter, a RAID \
         controller or dm-crypt (without allow-discards)"
    )]
    NoDiscard { path: String, device: String, file: String },
    #[error("{path}: the file system ends at {end} ({} bytes); expected a range that begins before that", end.0)]
    BeyondTheEnd { path: String, end: Bytes },
    #[error("{path}: no extent is longer than a group of {group}; expected a minimum extent of at most that")]
    LeastExtent { path: String, group: Bytes },
    #[error(transparent)]
    Open(#[from] PathError),
    #[error("{path}: the file system was unmounted, or another one was mounted over it")]
    Gone { path: String },
    #[error("{path}: {what} is read-only, so nothing is trimmed there")]
    ReadOnly { path: String, what: String },
    /// Discards failed without an error from FITRIM, or another program trimmed it at the same time.
    #[error("{path}: {}", accounts.failed_words())]
    Failed { path: String, accounts: Accounts },
    #[error("{path}: discards hang: {in_flight} writes and discards are still in flight")]
    Hanging { path: String, in_flight: u64 },
    /// Another error of an ioctl: see [`Meaning`].
    #[error("{path}: {call}: {}{}", means.words(fs_type, device), errno_words(*errno))]
    Call {
        path: String,
        call: &'static str,
        means: Meaning,
        /// `None` if the call itself reported success.
        errno: Option<Errno>,
        fs_type: String,
        device: String,
    },
}

impl TrimError {
    /// Returns the meaning of the ioctl's error, if an ioctl failed.
    pub fn means(&self) -> Option<Meaning> {
        match self {
            Self::Call { means, .. } => Some(*means),
            _ => None,
        }
    }
}

fn errno_words(errno: Option<Errno>) -> String {
    errno.map_or_else(String::new, |errno| format!(" ({errno})"))
}
