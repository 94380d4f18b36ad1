//! Where the bytes of a file lie on its file system's device (FIEMAP, Documentation/filesystems/fiemap.rst).

use std::fs::File;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use thiserror::Error;

use crate::ioctl::{FiemapExtent, fiemap};

/// Bytes of a file that lie in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they begin in the file, in bytes.
    pub logical: u64,
    /// Where they begin on the device, in bytes.
    pub physical: u64,
    /// How many they are.
    pub bytes: u64,
}

/// Why it is not known where a file lies.
#[derive(Debug, Error)]
pub enum FiemapError {
    /// The file system cannot tell.
    #[error("its file system does not tell where a file lies (FIEMAP: {0})")]
    Call(std::io::Error),
    /// It tells, but the address is not one of the device.
    #[error("FIEMAP says of the bytes from {logical} on: {what}; expected data with an address of their own")]
    NoAddress {
        /// Where in the file.
        logical: u64,
        /// What it is instead.
        what: &'static str,
    },
}

/// Flags of an extent whose address is of no use, and why.
const USELESS: [(u32, &str); 9] = [
    (0x0002, "they lie nowhere that is known"),
    (0x0004, "they are not written yet"),
    (0x0008, "they are encoded (compressed)"),
    (0x0080, "they are encrypted"),
    (0x0100, "they are not aligned to blocks"),
    (0x0200, "they lie among metadata"),
    (0x0400, "they share a block with other files"),
    (0x0800, "they are allocated and not written"),
    (0x2000, "they are shared with another file or a snapshot"),
];
const LAST: u32 = 0x0001;

/// The extents of a file, in its order. What is dirty is written first.
///
/// # Errors
/// The file system has no FIEMAP, or answers what is no address of its device.
pub fn extents(file: &File) -> Result<Vec<Extent>, FiemapError> {
    let length = file.metadata().map_err(FiemapError::Call)?.len();
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        let found = fiemap(file.as_fd(), at).map_err(|errno: Errno| FiemapError::Call(errno.into()))?;
        // XFS allocates ahead of what is written: that belongs to no data.
        for extent in found.iter().filter(|extent| extent.logical < length) {
            all.push(usable(extent)?);
        }
        let Some(last) = found.last() else { return Ok(all) };
        let next = last.logical.saturating_add(last.length);
        // A file system that answers the same again would keep us here.
        if last.flags & LAST != 0 || next <= at {
            return Ok(all);
        }
        at = next;
    }
}

fn usable(extent: &FiemapExtent) -> Result<Extent, FiemapError> {
    match USELESS.iter().find(|(flag, _)| extent.flags & flag != 0) {
        Some(&(_, what)) => Err(FiemapError::NoAddress { logical: extent.logical, what }),
        None => Ok(Extent { logical: extent.logical, physical: extent.physical, bytes: extent.length }),
    }
}
