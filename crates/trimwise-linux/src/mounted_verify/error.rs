//! Errors of the test.

use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::fiemap::FiemapError;
use crate::mount::MountError;
use crate::path_error::PathError;
use crate::trim::TrimError;

/// Reasons why TRIM below a file system could not be tested.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The mount cannot be examined.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The file system is not on a block device, or sysfs does not list the device.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// The file system cannot be trimmed.
    #[error(transparent)]
    Trim(#[from] TrimError),
    /// FIEMAP returns addresses that are not the disk's.
    #[error(
        "{path}: {fs_type} reports only logical addresses of a file's blocks (FIEMAP), not their place on the disk; \
         expected ext4, XFS or another file system with blocks at fixed places. To test the device itself, use an \
         unused one: dev:PATH"
    )]
    Logical {
        /// Mount point of the file system.
        path: String,
        /// Type of the file system.
        fs_type: String,
    },
    /// The file system is encrypted with dm-crypt.
    #[error(
        "{path}: is on {device}, which encrypts (dm-crypt): the disk holds encrypted data, and zeros there read as \
         noise, so neither old data nor zeros could be recognised; expected a file system on a disk, a partition or a \
         linear mapping"
    )]
    Encrypted {
        /// Path of the directory.
        path: String,
        /// Name of the encrypting device.
        device: String,
    },
    /// The file system has too little free space.
    #[error("{path}: the test writes {needed} and must leave as much free, but only {free} are free")]
    TooFull {
        /// Path of the directory.
        path: String,
        /// The size of the test's file.
        needed: Bytes,
        /// Free space of the file system.
        free: Bytes,
    },
    /// A file with the test's name exists.
    #[error("{path}: already exists, perhaps from a run that was killed; remove it")]
    Occupied {
        /// Path of the existing file.
        path: String,
    },
    /// FIEMAP fails, or returns no address.
    #[error("{path}: {source}")]
    Fiemap {
        /// Path of the directory.
        path: String,
        /// Error of the FIEMAP call.
        source: FiemapError,
    },
    /// The file's data are not where FIEMAP says.
    #[error(
        "{path}: {fs_type} says where the file's {units} blocks lie, but only {found} of them hold its data there: \
         the addresses are not the disk's, or data go through the journal first (ext4's data=journal)"
    )]
    NotThere {
        /// Path of the directory.
        path: String,
        /// Type of the file system.
        fs_type: String,
        /// Number of blocks that hold the file's data.
        found: u64,
        /// Number of blocks of the file.
        units: u64,
    },
    /// The user interrupted the test.
    #[error("interrupted; the test's file was removed")]
    Interrupted,
    /// Another error of the operating system.
    #[error(transparent)]
    Io(#[from] PathError),
}
