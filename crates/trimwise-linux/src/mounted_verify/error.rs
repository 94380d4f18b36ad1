//! Why nothing can be found out.

use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::fiemap::FiemapError;
use crate::mount::MountError;
use crate::trim::TrimError;

/// Why nothing is known of TRIM below a file system.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// Nothing is known of the mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// It lies on no block device, or sysfs says nothing of it.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// It cannot be trimmed.
    #[error(transparent)]
    Trim(#[from] TrimError),
    /// FIEMAP answers addresses that are not the disk's.
    #[error(
        "{path}: {fs_type} tells only logical addresses of a file's blocks (FIEMAP), not where they lie on the disk; \
         expected ext4, XFS or another file system with blocks at fixed places. To test the device itself, use an \
         unused one: dev:PATH"
    )]
    Logical {
        /// The mount point.
        path: String,
        /// What is mounted there.
        fs_type: String,
    },
    /// dm-crypt.
    #[error(
        "{path}: lies on {device}, which encrypts (dm-crypt): what lies on the disk is encrypted, and zeros there read \
         as noise, so neither old data nor zeros could be told; expected a file system on a disk, a partition or a \
         linear mapping"
    )]
    Encrypted {
        /// The directory.
        path: String,
        /// The encrypting device.
        device: String,
    },
    /// There is no room.
    #[error("{path}: the test writes {needed} and leaves as much free, and only {free} are free")]
    TooFull {
        /// The directory.
        path: String,
        /// The size of the test's file.
        needed: Bytes,
        /// What is free.
        free: Bytes,
    },
    /// A file with the test's name exists.
    #[error("{path}: exists already, perhaps from a run that was killed; remove it")]
    Occupied {
        /// The file.
        path: String,
    },
    /// FIEMAP fails, or says that there is no address.
    #[error("{path}: {source}")]
    Fiemap {
        /// The directory.
        path: String,
        /// Why.
        source: FiemapError,
    },
    /// The file is not where FIEMAP says.
    #[error(
        "{path}: {fs_type} says where the file's {units} blocks lie, but only {found} of them hold its data there: \
         the addresses are not the disk's, or data go through the journal first (ext4's data=journal)"
    )]
    NotThere {
        /// The directory.
        path: String,
        /// What is mounted there.
        fs_type: String,
        /// Blocks that hold the file's data.
        found: u64,
        /// Blocks of the file.
        units: u64,
    },
    /// The user wants no more of it.
    #[error("interrupted; the test's file is removed")]
    Interrupted,
    /// Another error of the operating system.
    #[error("{path}: {source}")]
    Io {
        /// The file or device.
        path: String,
        /// The operating system's words.
        source: std::io::Error,
    },
}
