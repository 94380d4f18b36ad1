//! The ioctl calls of this crate: FITRIM, FS_IOC_GETFSMAP, XFS_IOC_FSGEOMETRY_V1.
//!
//! The one file with unsafe code: rustix cannot know which structure an ioctl number wants. Numbers and structures are
//! those of Linux's include/uapi/linux/fs.h, include/uapi/linux/fsmap.h and fs/xfs/libxfs/xfs_fs.h.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `struct fstrim_range`, in bytes. The kernel answers in `len`; what it counts differs by file system.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FstrimRange {
    pub start: u64,
    pub len: u64,
    pub minlen: u64,
}

/// FITRIM over a range of the file system that `file` lies on.
pub fn fitrim(file: BorrowedFd<'_>, range: &mut FstrimRange) -> Result<(), Errno> {
    const FITRIM: Opcode = opcode::read_write::<FstrimRange>(b'X', 121);
    // SAFETY: FITRIM reads and writes one `struct fstrim_range`, which `FstrimRange` is, and keeps no pointer to it.
    unsafe { ioctl(file, Updater::<FITRIM, _>::new(range)) }
}

/// `struct fsmap`: an extent of a file system and who owns it, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fsmap {
    pub device: u32,
    pub flags: u32,
    pub physical: u64,
    pub owner: u64,
    pub offset: u64,
    pub length: u64,
    reserved: [u64; 3],
}

impl Fsmap {
    /// FMR_OF_SPECIAL_OWNER: `owner` is a code, not an inode.
    pub const SPECIAL_OWNER: u32 = 0x10;
    /// FMR_OF_LAST: no record follows.
    pub const LAST: u32 = 0x20;
    /// FMR_OWN_FREE: nobody owns it.
    pub const FREE: u64 = 1;
    /// A key above every record.
    const HIGHEST: Self = Self {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        length: 0,
        reserved: [0; 3],
    };
}

/// Records that one call of GETFSMAP may answer: 64 KiB of them.
const RECORDS: usize = 1024;

/// `struct fsmap_head`, of which the size goes into the ioctl number.
#[repr(C)]
struct FsmapHead {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Fsmap; 2],
}

/// The head with the room for records that `count` promises behind it.
#[repr(C)]
pub struct FsmapQuery {
    head: FsmapHead,
    records: [Fsmap; RECORDS],
}

impl FsmapQuery {
    /// A query from the first record on.
    pub fn new() -> Box<Self> {
        let keys = [Fsmap::default(), Fsmap::HIGHEST];
        let head =
            FsmapHead { iflags: 0, oflags: 0, count: RECORDS as u32, entries: 0, reserved: [0; 6], keys };
        Box::new(Self { head, records: [Fsmap::default(); RECORDS] })
    }

    /// The next records in order of device and address; none behind the last one.
    pub fn next(&mut self, file: BorrowedFd<'_>) -> Result<&[Fsmap], Errno> {
        const GETFSMAP: Opcode = opcode::read_write::<FsmapHead>(b'X', 59);
        // SAFETY: GETFSMAP reads a `struct fsmap_head` and writes at most `count` records behind it. `FsmapQuery` is
        // that head, followed without padding (both are multiples of 8 bytes) by room for exactly `count` records;
        // any bits make a valid `Fsmap`.
        unsafe { ioctl(file, Updater::<GETFSMAP, _>::new(self))? };
        let records = &self.records[..(self.head.entries as usize).min(RECORDS)];
        if let Some(last) = records.last() {
            self.head.keys[0] = *last;
        }
        Ok(records)
    }
}

/// `struct xfs_fsop_geom_v1`. Only its first fields are of use here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XfsGeometry {
    pub block_bytes: u32,
    rt_extent_blocks: u32,
    pub group_blocks: u32,
    pub groups: u32,
    log_blocks: u32,
    sector_bytes: u32,
    inode_bytes: u32,
    inode_percent: u32,
    pub data_blocks: u64,
    pub realtime_blocks: u64,
    rest: [u64; 8],
}

/// How an XFS is laid out.
pub fn xfs_geometry(file: BorrowedFd<'_>) -> Result<XfsGeometry, Errno> {
    const FSGEOMETRY_V1: Opcode = opcode::read::<XfsGeometry>(b'X', 100);
    let mut geometry = XfsGeometry::default();
    // SAFETY: the ioctl writes one `struct xfs_fsop_geom_v1`, 112 bytes, which `XfsGeometry` has (the ioctl number says
    // its size, and the kernel knows no other); any bits make a valid one.
    unsafe { ioctl(file, Updater::<FSGEOMETRY_V1, _>::new(&mut geometry))? };
    Ok(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes are part of the kernel's interface: they stand in the ioctl numbers.
    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!(size_of::<FstrimRange>(), 24);
        assert_eq!(size_of::<Fsmap>(), 64);
        assert_eq!(size_of::<FsmapHead>(), 192);
        assert_eq!(size_of::<FsmapQuery>(), 192 + 64 * RECORDS);
        assert_eq!(size_of::<XfsGeometry>(), 112);
    }
}
