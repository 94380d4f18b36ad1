//! Errors of the test.

use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::fiemap::FiemapError;
use crate::mount::MountError;
use crate::path_error::PathError;
use crate::trim::TrimError;

/// Why TRIM below a file system could not be tested.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The mount cannot be examined.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// It is not on a block device, or sysfs does not list it.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// It cannot be trimmed.
    #[error(transparent)]
    Trim(#[from] TrimError),
    /// FIEMAP returns addresses that are not the disk's.
    #[error(
        "{path}: {fs_type} reports only logical addresses of a file's blocks (FIEMAP), not their place on the disk; \
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
        "{path}: is on {device}, which encrypts (dm-crypt): the disk holds encrypted data, and zeros there read as \
         noise, so neither old data nor zeros could be recognised; expected a file system on a disk, a partition or a \
         linear mapping"
    )]
    Encrypted {
        /// The directory.
        path: String,
        /// The encrypting device.
        device: String,
    },
    /// There is not enough free space.
    #[error("{path}: the test writes {needed} and must leave as much free, but only {free} are free")]
    TooFull {
        /// The directory.
        path: String,
        /// The size of the test's file.
        needed: Bytes,
        /// The free space.
        free: Bytes,
    },
    /// A file with the test's name exists.
    #[error("{path}: already exists, perhaps from a run that was killed; remove it")]
    Occupied {
        /// The file.
        path: String,
    },
    /// FIEMAP fails, or returns no address.
    #[error("{path}: {source}")]
    Fiemap {
        /// The directory.
        path: String,
        /// Why.
        source: FiemapError,
    },
    /// The file's data are not where FIEMAP says.
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
    /// The user interrupted it.
    #[error("interrupted; the test's file was removed")]
    Interrupted,
    /// Another error of the operating system.
    #[error(transparent)]
    Io(#[from] PathError),
}
