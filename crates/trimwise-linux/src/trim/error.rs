//! Errors of a trim.

use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::mount::MountError;
use crate::path_error::PathError;
use crate::privilege::advice;

/// Reasons why a mount cannot be trimmed, or a trim ended early.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what is wrong and where")]
pub enum TrimError {
    /// The mount cannot be examined.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The file system's device cannot be examined.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// The path is inside a file system, not its mount point.
    #[error("{path}: not a mount point; it is on the {fs_type} mounted on {mount_point}: give that path")]
    NotAMountPoint { path: String, fs_type: String, mount_point: String },
    #[error(
        "{path}: its device {device} does not accept discards: {file} is 0. The cause may be a USB adapter, a RAID \
         controller or dm-crypt (without allow-discards)"
    )]
    NoDiscard { path: String, device: String, file: String },
    #[error("{path}: the file system ends at {end} ({} bytes); expected a range that begins before that", end.0)]
    BeyondTheEnd { path: String, end: Bytes },
    /// The minimum extent is longer than any free extent can be.
    #[error("{path}: no extent is longer than a group of {group}; expected a minimum extent of at most that")]
    LeastExtent { path: String, group: Bytes },
    /// The mount point cannot be opened.
    #[error(transparent)]
    Open(#[from] PathError),
    #[error("{path}: the file system was unmounted, or another one was mounted over it")]
    Gone { path: String },
    #[error(
        "{path}: FITRIM is not permitted: it needs the capability CAP_SYS_ADMIN; {}, or use --dry-run",
        advice("run it as root")
    )]
    NotPermitted { path: String },
    #[error("{path}: {fs_type} does not support FITRIM here; ext4, XFS, btrfs, f2fs and vfat do")]
    NoFitrim { path: String, fs_type: String },
    /// Discards failed without an error from FITRIM, or another program trimmed it at the same time.
    #[error(
        "{path}: discards failed, or something else trims it too, such as fstrim: the device was sent {} bytes, and \
         FITRIM counts {} as done; if they failed, the kernel's log says why",
        sent.0, answered.0
    )]
    Failed { path: String, sent: Bytes, answered: Bytes },
    /// Another error of an ioctl.
    #[error("{path}: {call}: {source}")]
    Call { path: String, call: &'static str, source: std::io::Error },
}
