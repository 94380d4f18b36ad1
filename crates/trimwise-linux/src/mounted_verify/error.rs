use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::BlockDeviceError;
use crate::fiemap::FiemapError;
use crate::mount::MountError;
use crate::path_error::PathError;
use crate::trim::TrimError;

#[derive(Debug, Error)]
pub enum VerifyError {
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    #[error(transparent)]
    Trim(#[from] TrimError),
    #[error(
        "{path}: {fs_type} reports only logical addresses of a file's blocks (FIEMAP), not their place on the disk; \
         expected ext4, XFS or another file system with blocks at fixed places. To test the device itself, use an \
         unused one: dev:PATH"
    )]
    Logical { path: String, fs_type: String },
    #[error(
        "{path}: is on {device}, which encrypts (dm-crypt): the disk holds encrypted data, and zeros there read as \
         noise, so neither old data nor zeros could be recognised; expected a file system on a disk, a partition or a \
         linear mapping"
    )]
    Encrypted { path: String, device: String },
    #[error("{path}: the test writes {needed} and must leave as much free, but only {free} are free")]
    TooFull { path: String, needed: Bytes, free: Bytes },
    #[error("{path}: already exists, perhaps from a run that was killed; remove it")]
    Occupied { path: String },
    #[error("{path}: {source}")]
    Fiemap { path: String, source: FiemapError },
    #[error(
        "{path}: {fs_type} says where the file's {units} blocks lie, but only {found} of them hold its data there: \
         the addresses are not the disk's, or data go through the journal first (ext4's data=journal)"
    )]
    NotThere { path: String, fs_type: String, found: u64, units: u64 },
    #[error("interrupted; the test's file was removed")]
    Interrupted,
    #[error(transparent)]
    Io(#[from] PathError),
}
