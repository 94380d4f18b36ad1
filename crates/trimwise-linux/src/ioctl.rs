//! The ioctl calls of trimwise: FITRIM, FS_IOC_GETFSMAP, FS_IOC_FIEMAP, XFS_IOC_FSGEOMETRY_V1, BLKDISCARD,
//! NVME_IOCTL_ADMIN_CMD and RNDADDTOENTCNT; sched_setscheduler(2); and submodules for io_uring (`ring`), child processes between fork and exec
//! (`child`), inherited signals (`signals`), loop devices (`loop_device`), the chunks of a btrfs (`btrfs`), and several system calls at once (`batch`).
//!
//! The only unsafe code: rustix cannot know which structure an ioctl number takes, nor io_uring how long a buffer
//! lives. Numbers and structures are those of Linux's include/uapi/linux/fs.h, fsmap.h, fiemap.h and nvme_ioctl.h, and
//! of fs/xfs/libxfs/xfs_fs.h.
#![allow(unsafe_code)]

pub(crate) mod batch;
pub(crate) mod btrfs;
pub mod child;
pub mod loop_device;
pub(crate) mod ring;
pub mod signals;

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};

/// `struct fstrim_range`, in bytes. The kernel returns its count in `len`; the meaning of that count differs by file
/// system.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FstrimRange {
    pub start: u64,
    pub len: u64,
    /// Shorter free extents are skipped.
    pub minlen: u64,
}

/// Runs FITRIM over a range of the file system of `file`.
pub fn fitrim(file: BorrowedFd<'_>, range: &mut FstrimRange) -> Result<(), Errno> {
    const FITRIM: Opcode = opcode::read_write::<FstrimRange>(b'X', 121);
    // SAFETY: FITRIM reads and writes one `struct fstrim_range`, which `FstrimRange` is, and keeps no pointer to it.
    unsafe { ioctl(file, Updater::<FITRIM, _>::new(range)) }
}

/// Credits 256 bits of entropy to the kernel, which is as many as it waits for. `file` is `/dev/random`. Needs root.
pub fn credit_randomness(file: BorrowedFd<'_>) -> Result<(), Errno> {
    const RNDADDTOENTCNT: Opcode = opcode::write::<i32>(b'R', 1);
    // SAFETY: RNDADDTOENTCNT reads one `int` and keeps no pointer to it.
    unsafe { ioctl(file, Setter::<RNDADDTOENTCNT, i32>::new(256)) }
}

/// Gives the calling thread a real-time priority, by which it runs as soon as it can, before all threads that have none.
/// Threads and processes that it starts have none. Needs root.
pub fn run_before_others() -> Result<(), Errno> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: sched_setscheduler(2) reads one `struct sched_param` and keeps no pointer to it. musl's function of this
    // name makes no call.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const lowest) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    }
}

/// `struct fsmap`: an extent of a file system, in bytes, and its owner.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fsmap {
    /// The device, as the file system numbers its own.
    pub device: u32,
    /// Flags of the record (`FMR_OF_*`).
    pub flags: u32,
    pub physical: u64,
    /// The inode, or a code with [`Self::SPECIAL_OWNER`].
    pub owner: u64,
    /// Offset of the extent in its owner.
    pub offset: u64,
    pub length: u64,
    reserved: [u64; 3],
}

impl Fsmap {
    /// FMR_OF_SPECIAL_OWNER: `owner` is a code, not an inode.
    pub const SPECIAL_OWNER: u32 = 0x10;
    /// FMR_OF_LAST: no record follows.
    const LAST: u32 = 0x20;
    /// FMR_OWN_FREE: the code of free space as an owner.
    const FREE: u64 = 1;
    const HIGHEST: Self = Self {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        length: 0,
        reserved: [0; 3],
    };

    pub fn is_free(&self) -> bool {
        self.flags & Self::SPECIAL_OWNER != 0 && self.owner == Self::FREE
    }
}

const RECORDS: usize = 1024;

/// `struct fsmap_head`; its size is part of the ioctl number.
#[repr(C)]
struct FsmapHead {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Fsmap; 2],
}

/// The head, followed by room for `count` records.
#[repr(C)]
pub struct FsmapQuery {
    head: FsmapHead,
    records: [Fsmap; RECORDS],
}

impl FsmapQuery {
    pub fn new() -> Box<Self> {
        Self::from(0, 0)
    }

    /// Creates a query that starts at the first record at or after an address of a device. Without the device's number
    /// the kernel treats the address as 0.
    pub fn from(device: u32, physical: u64) -> Box<Self> {
        let keys = [Fsmap { device, physical, ..Fsmap::default() }, Fsmap::HIGHEST];
        let head =
            FsmapHead { iflags: 0, oflags: 0, count: RECORDS as u32, entries: 0, reserved: [0; 6], keys };
        Box::new(Self { head, records: [Fsmap::default(); RECORDS] })
    }

    /// Calls `each` with one record after another, in order of device and address, until it returns something.
    pub fn find<T>(
        mut self: Box<Self>,
        file: BorrowedFd<'_>,
        mut each: impl FnMut(&Fsmap) -> Option<T>,
    ) -> Result<Option<T>, Errno> {
        loop {
            let records = self.next(file)?;
            if let Some(found) = records.iter().find_map(&mut each) {
                return Ok(Some(found));
            }
            if records.last().is_none_or(|last| last.flags & Fsmap::LAST != 0) {
                return Ok(None);
            }
        }
    }

    fn next(&mut self, file: BorrowedFd<'_>) -> Result<&[Fsmap], Errno> {
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

/// `struct xfs_fsop_geom_v1`. Only its first fields are used here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XfsGeometry {
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

pub(crate) fn xfs_geometry(file: BorrowedFd<'_>) -> Result<XfsGeometry, Errno> {
    const FSGEOMETRY_V1: Opcode = opcode::read::<XfsGeometry>(b'X', 100);
    let mut geometry = XfsGeometry::default();
    // SAFETY: the ioctl writes one `struct xfs_fsop_geom_v1`, 112 bytes, the size of `XfsGeometry` (the ioctl number
    // encodes the size, and the kernel accepts no other); any bits make a valid one.
    unsafe { ioctl(file, Updater::<FSGEOMETRY_V1, _>::new(&mut geometry))? };
    Ok(geometry)
}

/// Discards bytes of a block device (BLKDISCARD). Blocks until the device has completed the discard.
pub fn discard(device: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<(), Errno> {
    const BLKDISCARD: Opcode = opcode::none(0x12, 119);
    let mut range = [offset, bytes];
    // SAFETY: BLKDISCARD reads two 64-bit numbers, start and length, and keeps no pointer to them.
    unsafe { ioctl(device, Updater::<BLKDISCARD, _>::new(&mut range)) }
}

/// `struct fiemap_extent`: the location of a file's bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FiemapExtent {
    pub logical: u64,
    pub physical: u64,
    pub length: u64,
    reserved64: [u64; 2],
    /// Flags of the extent (`FIEMAP_EXTENT_*`).
    pub flags: u32,
    reserved32: [u32; 3],
}

const EXTENTS: usize = 512;

/// `struct fiemap` without its extents; its size is part of the ioctl number.
#[repr(C)]
struct FiemapHead {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// The head, followed by room for `count` extents.
#[repr(C)]
struct FiemapQuery {
    head: FiemapHead,
    extents: [FiemapExtent; EXTENTS],
}

/// Returns the extents of a file from byte `start` on, as many as one call returns. Dirty data are written first.
pub(crate) fn fiemap(file: BorrowedFd<'_>, start: u64) -> Result<Vec<FiemapExtent>, Errno> {
    const FIEMAP: Opcode = opcode::read_write::<FiemapHead>(b'f', 11);
    const FIEMAP_FLAG_SYNC: u32 = 1;
    let head = FiemapHead {
        start,
        length: u64::MAX - start,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: EXTENTS as u32,
        reserved: 0,
    };
    let mut query = Box::new(FiemapQuery { head, extents: [FiemapExtent::default(); EXTENTS] });
    // SAFETY: FIEMAP reads a `struct fiemap` and writes at most `count` extents behind it. `FiemapQuery` is that
    // head, followed without padding (both are multiples of 8 bytes) by room for exactly `count` extents; any bits
    // make a valid `FiemapExtent`.
    unsafe { ioctl(file, Updater::<FIEMAP, _>::new(&mut *query))? };
    Ok(query.extents[..(query.head.mapped as usize).min(EXTENTS)].to_vec())
}

/// `struct nvme_admin_cmd` of include/uapi/linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Default)]
struct NvmeAdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2_3: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    cdw10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

pub(crate) const NVME_IDENTIFY_BYTES: usize = 4096;

/// Reads Identify Namespace (CNS 0) of an NVMe namespace's block device.
pub(crate) fn nvme_identify_namespace(
    device: BorrowedFd<'_>,
) -> Result<Box<[u8; NVME_IDENTIFY_BYTES]>, Errno> {
    const NVME_IOCTL_ID: Opcode = opcode::none(b'N', 0x40);
    const NVME_IOCTL_ADMIN_CMD: Opcode = opcode::read_write::<NvmeAdminCommand>(b'N', 0x41);
    const IDENTIFY: u8 = 6;
    // SAFETY: NVME_IOCTL_ID takes no argument and returns the namespace's number.
    let namespace = unsafe { ioctl(device, Number::<NVME_IOCTL_ID>)? };
    let mut data = Box::new([0; NVME_IDENTIFY_BYTES]);
    let mut command = NvmeAdminCommand {
        opcode: IDENTIFY,
        namespace,
        data: data.as_mut_ptr().expose_provenance() as u64,
        data_bytes: NVME_IDENTIFY_BYTES as u32,
        ..NvmeAdminCommand::default()
    };
    // SAFETY: the ioctl reads and writes one `struct nvme_admin_cmd`, and during the call the `data_bytes` bytes at
    // `data`, which `data` owns and which outlive the call. Identify writes no other host memory.
    unsafe { ioctl(device, Updater::<NVME_IOCTL_ADMIN_CMD, _>::new(&mut command))? };
    Ok(data)
}

/// An ioctl without an argument that returns a number.
struct Number<const OPCODE: Opcode>;

// SAFETY: there is no argument, and the return value is the number itself.
unsafe impl<const OPCODE: Opcode> Ioctl for Number<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> Opcode {
        OPCODE
    }
    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }
    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(output.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes are part of the kernel's interface: the ioctl numbers encode them.
    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!(size_of::<FstrimRange>(), 24);
        assert_eq!(size_of::<Fsmap>(), 64);
        assert_eq!(size_of::<FsmapHead>(), 192);
        assert_eq!(size_of::<FsmapQuery>(), 192 + 64 * RECORDS);
        assert_eq!(size_of::<XfsGeometry>(), 112);
        assert_eq!(size_of::<FiemapHead>(), 32);
        assert_eq!(size_of::<FiemapExtent>(), 56);
        assert_eq!(size_of::<FiemapQuery>(), 32 + 56 * EXTENTS);
        assert_eq!(size_of::<NvmeAdminCommand>(), 72);
    }
}
