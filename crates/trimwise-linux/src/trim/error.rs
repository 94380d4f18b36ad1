use std::fmt;

use rustix::io::Errno;
use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::mount::MountError;
use crate::path_error::PathError;

use super::{Accounts, Meaning};

#[derive(Debug, Error)]
pub enum TrimError {
    Mount(#[from] MountError),
    Device(#[from] BlockDeviceError),
    NotAMountPoint {
        path: String,
        fs_type: String,
        mount_point: String,
    },
    NoDiscard {
        path: String,
        device: String,
        file: String,
    },
    BeyondTheEnd {
        path: String,
        end: Bytes,
    },
    LeastExtent {
        path: String,
        group: Bytes,
    },
    Open(#[from] PathError),
    Gone {
        path: String,
    },
    ReadOnly {
        path: String,
        what: String,
    },
    /// Discards failed without an error from FITRIM, or another program trimmed it at the same time.
    Failed {
        path: String,
        accounts: Accounts,
    },
    Hanging {
        path: String,
        in_flight: u64,
    },
    /// Another error of an ioctl: see [`Meaning`].
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

impl fmt::Display for TrimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::NotAMountPoint { path, .. }
            | Self::NoDiscard { path, .. }
            | Self::BeyondTheEnd { path, .. }
            | Self::LeastExtent { path, .. }
            | Self::Gone { path }
            | Self::ReadOnly { path, .. }
            | Self::Failed { path, .. }
            | Self::Hanging { path, .. }
            | Self::Call { path, .. } => write!(f, "{path}: {}", self.what()),
        }
    }
}

impl TrimError {
    /// Says what is wrong, without the path of the mount.
    pub fn what(&self) -> String {
        match self {
            Self::Mount(error) => error.to_string(),
            Self::Device(error) => error.to_string(),
            Self::Open(PathError { source, .. }) => source.to_string(),
            Self::NotAMountPoint { fs_type, mount_point, .. } => {
                format!("not a mount point; it is on the {fs_type} mounted on {mount_point}: give that path")
            }
            Self::NoDiscard { device, file, .. } => format!(
                "its device {device} does not accept discards: {file} is 0. The cause may be a USB adapter, a RAID \
                 controller or dm-crypt (without allow-discards)"
            ),
            Self::BeyondTheEnd { end, .. } => format!(
                "the file system ends at {end} ({} bytes); expected a range that begins before that",
                end.0
            ),
            Self::LeastExtent { group, .. } => format!(
                "no extent is longer than a group of {group}; expected a minimum extent of at most that"
            ),
            Self::Gone { .. } => {
                "the file system was unmounted, or another one was mounted over it".to_owned()
            }
            Self::ReadOnly { what, .. } => format!("{what} is read-only, so nothing is trimmed there"),
            Self::Failed { accounts, .. } => accounts.failed_words(),
            Self::Hanging { in_flight, .. } => {
                format!("discards hang: {in_flight} writes and discards are still in flight")
            }
            Self::Call { call, means, errno, fs_type, device, .. } => {
                format!("{call}: {}{}", means.words(fs_type, device), errno_words(*errno))
            }
        }
    }

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
