//! Errors of a trim.

use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::mount::MountError;
use crate::path_error::PathError;
use crate::privilege::advice;

/// Reasons why a mount cannot be trimmed, or a trim ended early.
#[derive(Debug, Error)]
pub enum TrimError {
    /// The mount cannot be examined.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The file system's device cannot be examined.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// The path is inside a file system, not its mount point.
    #[error("{path}: not a mount point; it is on the {fs_type} mounted on {mount_point}: give that path")]
    NotAMountPoint {
        /// The path that the user asked for.
        path: String,
        /// The type of the file system that contains it.
        fs_type: String,
        /// Mount point of that file system.
        mount_point: String,
    },
    /// The device does not accept discards.
    #[error(
        "{path}: its device {device} does not accept discards: {file} is 0. The cause may be a USB adapter, a RAID \
         controller or dm-crypt (without allow-discards)"
    )]
    NoDiscard {
        /// Mount point of the file system.
        path: String,
        /// Name of the device.
        device: String,
        /// The sysfs file that says so.
        file: String,
    },
    /// The range is outside the file system.
    #[error("{path}: the file system ends at {end} ({} bytes); expected a range that begins before that", end.0)]
    BeyondTheEnd {
        /// Mount point of the file system.
        path: String,
        /// End of the file system.
        end: Bytes,
    },
    /// The minimum extent is longer than any free extent can be.
    #[error("{path}: no extent is longer than a group of {group}; expected a minimum extent of at most that")]
    LeastExtent {
        /// Mount point of the file system.
        path: String,
        /// The size of a group.
        group: Bytes,
    },
    /// The mount point cannot be opened.
    #[error(transparent)]
    Open(#[from] PathError),
    /// The file system is no longer mounted there.
    #[error("{path}: the file system was unmounted, or another one was mounted over it")]
    Gone {
        /// Former mount point of the file system.
        path: String,
    },
    /// The user may not trim.
    #[error(
        "{path}: FITRIM is not permitted: it needs the capability CAP_SYS_ADMIN; {}, or use --dry-run",
        advice("run it as root")
    )]
    NotPermitted {
        /// Mount point of the file system.
        path: String,
    },
    /// The file system has no FITRIM.
    #[error("{path}: {fs_type} does not support FITRIM here; ext4, XFS, btrfs, f2fs and vfat do")]
    NoFitrim {
        /// Mount point of the file system.
        path: String,
        /// Type of the file system.
        fs_type: String,
    },
    /// Discards failed without an error from FITRIM, or another program trimmed it at the same time.
    #[error(
        "{path}: discards failed, or something else trims it too, such as fstrim: the device was sent {} bytes, and \
         FITRIM counts {} as done; if they failed, the kernel's log says why",
        sent.0, answered.0
    )]
    Failed {
        /// Mount point of the file system.
        path: String,
        /// Bytes that the kernel counted on the device.
        sent: Bytes,
        /// Sum of FITRIM's return values.
        answered: Bytes,
    },
    /// Another error of an ioctl.
    #[error("{path}: {call}: {source}")]
    Call {
        /// Mount point of the file system.
        path: String,
        /// `FITRIM`, `GETFSMAP` or `BTRFS_IOC_TREE_SEARCH`.
        call: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
}
