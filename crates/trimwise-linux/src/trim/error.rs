//! Why a trim cannot be, or ended early.

use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::mount::MountError;

/// Why a mount cannot be trimmed, or a trim ended early.
#[derive(Debug, Error)]
pub enum TrimError {
    /// Nothing is known of the mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Nothing is known of its device.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// A path inside a file system.
    #[error(
        "{path}: not a mount point; it lies on the {fs_type} that is mounted on {mount_point}: give that"
    )]
    NotAMountPoint {
        /// The path asked for.
        path: String,
        /// What holds it.
        fs_type: String,
        /// Where that is mounted.
        mount_point: String,
    },
    /// A device that takes no discards.
    #[error(
        "{path}: its device {device} takes no discards: {file} says 0. A drive behind a USB adapter, a RAID controller \
         or dm-crypt (without allow-discards) may be the reason"
    )]
    NoDiscard {
        /// The mount point.
        path: String,
        /// The device.
        device: String,
        /// Where that is said.
        file: String,
    },
    /// A range outside the file system.
    #[error("{path}: the file system ends at {end} ({} bytes); expected a range that begins before", end.0)]
    BeyondTheEnd {
        /// The mount point.
        path: String,
        /// Where it ends.
        end: Bytes,
    },
    /// A least extent that no free extent can reach.
    #[error("{path}: no extent is longer than a group of {group}; expected a least extent of at most that")]
    LeastExtent {
        /// The mount point.
        path: String,
        /// The bytes of a group.
        group: Bytes,
    },
    /// The mount point cannot be opened.
    #[error("{path}: {source}")]
    Open {
        /// The mount point.
        path: String,
        /// The operating system's words.
        source: std::io::Error,
    },
    /// Something else is mounted there now, or nothing.
    #[error("{path}: the file system was unmounted, or another one mounted over it")]
    Gone {
        /// The mount point.
        path: String,
    },
    /// Not everybody may trim.
    #[error(
        "{path}: FITRIM is not permitted: it needs the capability CAP_SYS_ADMIN; run it as root, or give --dry-run"
    )]
    NotPermitted {
        /// The mount point.
        path: String,
    },
    /// A file system that cannot trim.
    #[error("{path}: {fs_type} has no FITRIM here; ext4, XFS, btrfs, f2fs and vfat have one")]
    NoFitrim {
        /// The mount point.
        path: String,
        /// What is mounted there.
        fs_type: String,
    },
    /// Discards failed, and FITRIM did not say so.
    #[error(
        "{path}: discards failed: the device was sent {} bytes, and FITRIM counts {} as done; the kernel's log says why",
        sent.0, answered.0
    )]
    Failed {
        /// The mount point.
        path: String,
        /// What the device counted.
        sent: Bytes,
        /// What FITRIM answered.
        answered: Bytes,
    },
    /// Another error of an ioctl.
    #[error("{path}: {call}: {source}")]
    Call {
        /// The mount point.
        path: String,
        /// `FITRIM`, `GETFSMAP` or `BTRFS_IOC_TREE_SEARCH`.
        call: &'static str,
        /// The operating system's words.
        source: std::io::Error,
    },
}
