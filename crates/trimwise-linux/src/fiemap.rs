//! Maps the bytes of a file to its file system's device (FIEMAP, Documentation/filesystems/fiemap.rst).

use std::fs::File;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use thiserror::Error;

use crate::ioctl::{FiemapExtent, fiemap};

/// A contiguous run of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub logical: u64,
    pub physical: u64,
    pub bytes: u64,
}

#[derive(Debug, Error)]
pub enum FiemapError {
    #[error("its file system does not report the location of a file (FIEMAP: {0})")]
    Call(std::io::Error),
    /// FIEMAP returns an extent without an address on the device.
    #[error("FIEMAP reports for the bytes from {logical} on: {what}; expected data at their own address")]
    NoAddress { logical: u64, what: &'static str },
}

/// Flags of an extent whose address is not usable, and the reason.
const USELESS: [(u32, &str); 9] = [
    (0x0002, "their location is unknown"),
    (0x0004, "they are not written yet"),
    (0x0008, "they are encoded (compressed)"),
    (0x0080, "they are encrypted"),
    (0x0100, "they are not aligned to blocks"),
    (0x0200, "they are stored among metadata"),
    (0x0400, "they share a block with other files"),
    (0x0800, "they are allocated but not written"),
    (0x2000, "they are shared with another file or a snapshot"),
];
const LAST: u32 = 0x0001;

/// Returns the extents of a file, in file order. Dirty data are written first.
///
/// # Errors
/// If the file system has no FIEMAP, or returns an extent without an address on its device.
pub fn extents(file: &File) -> Result<Vec<Extent>, FiemapError> {
    let length = file.metadata().map_err(FiemapError::Call)?.len();
    let mut all = Vec::new();
    let mut at = 0;
    loop {
        let found = fiemap(file.as_fd(), at).map_err(|errno: Errno| FiemapError::Call(errno.into()))?;
        // XFS allocates ahead of what is written; skip those blocks.
        for extent in found.iter().filter(|extent| extent.logical < length) {
            all.push(usable(extent)?);
        }
        let Some(last) = found.last() else { return Ok(all) };
        let next = last.logical.saturating_add(last.length);
        // Do not loop forever if the file system returns the same extents again.
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
