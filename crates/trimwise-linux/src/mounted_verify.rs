//! Tests whether TRIM reaches the disk below a mounted file system, without harm to stored data.
//!
//! The test writes a file and looks up its blocks (FIEMAP). It reads them from the disk, past the file system, to check
//! that they hold the file's bytes: only then are they known to be the right places. It empties and removes the file.
//! The journal must commit this before the blocks can be trimmed; syncfs waits for that. The test trims that part of
//! the file system (FITRIM) and reads the same places again. It writes nothing but that file. If the data are gone, it does
//! the same with pieces of a second file ([`pieces`]).
//!
//! **Where it reads.** From the disk itself: partitions and linear mappings of the device mapper are followed down
//! ([`layers`](crate::layers)). A layer that cannot be followed (RAID) is read at that level, and the report says so.
//! dm-crypt is refused: zeros below it would read as noise, and the file's bytes are nowhere on the disk. File systems
//! whose FIEMAP gives addresses of their own (btrfs) are refused by name. The first reading detects any other file
//! system with such addresses.
//!
//! **What it proves.** If the device promises zeros and the old data are gone, TRIM arrived. Zeros without the promise
//! are only consistent with that. Old data without the promise are allowed: then the discards that the kernel counted
//! are the only evidence. Blocks that hold something else have been reused; they are counted separately and not judged.
//! Nor are blocks at an extent's ends that do not fill a whole granule.

mod error;
mod pieces;
mod report;
mod scratch;

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{OFlags, fstatvfs};
use trimwise::content::{Content, Stored, recognise};
use trimwise::units::{Bytes, Lpn, UNIT_BYTES};

use crate::block_device::{BlockDevice, DiscardCounts, devices_of};
use crate::fiemap::{Extent, extents};
use crate::ioctl::ring::Page;
use crate::layers::{Stack, TableError};
use crate::mount::{Mount, mount_of};
use crate::path_error::at;
use crate::raw_device::Promise;
use crate::trim::{self, Ended, Plan, Target};

pub use error::VerifyError;
pub use pieces::{Pieces, ignored_up_to};
pub use report::{Block, Counts, Disk, Found, Report, Verdict};
use scratch::Scratch;

pub const FILE_BYTES: Bytes = Bytes::mib(64);
const TRIMS: u32 = 3;
const REST: Duration = Duration::from_millis(300);

/// File systems with a FIEMAP that does not return addresses on a device.
pub(crate) const LOGICAL: [&str; 4] = ["btrfs", "zfs", "bcachefs", "overlay"];

struct Open {
    device: BlockDevice,
    file: File,
    promise: Promise,
    before: Option<DiscardCounts>,
}

/// Writes a file of `bytes` into `directory`, removes it, trims its blocks, and reports what the disk then holds.
///
/// The file is always removed.
///
/// # Errors
/// If the test cannot work there, or something failed before the trim. Failures after the trim began are part of the
/// report.
pub fn run(directory: &Path, bytes: Bytes, interrupted: &AtomicBool) -> Result<Report, VerifyError> {
    let shown = directory.display().to_string();
    let stop = || if interrupted.load(Ordering::Relaxed) { Err(VerifyError::Interrupted) } else { Ok(()) };
    let mount = mount_of(directory)?;
    refuse_logical(&mount)?;
    let device = devices_of(&mount)?.remove(0);
    let stack = Stack::of(&device)?;
    let (mut disks, mut notes) = open_disks(&stack, &shown)?;
    // Refuses a device without discards before writing anything.
    let target = Target::of(&mount.mount_point)?;
    target.expect_writable()?;

    let units = bytes.units_floor().max(1);
    let root = File::open(directory).map_err(at(directory))?;
    let free = fstatvfs(&root).map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize));
    let needed = Bytes::from_units(units);
    if free < needed.0.saturating_mul(2) {
        return Err(VerifyError::TooFull { path: shown, needed, free: Bytes(free) });
    }
    let mut scratch = Scratch::write(directory, units, interrupted)?;
    let lies =
        extents(scratch.file()).map_err(|source| VerifyError::Fiemap { path: shown.clone(), source })?;
    let mut blocks = blocks_of(&lies, units, &stack, &disks);
    let looked_at = blocks.len();
    blocks.retain(|block| look(block, &disks, scratch.content()) == Found::OldData);
    if blocks.len() * 2 <= units as usize {
        let (fs_type, found) = (mount.fs_type.clone(), blocks.len() as u64);
        return Err(VerifyError::NotThere { path: shown, fs_type, found, units });
    }
    if blocks.len() < looked_at {
        notes.push(format!("{} blocks of the file were not where FIEMAP says", looked_at - blocks.len()));
    }
    stop()?;

    for disk in &mut disks {
        disk.before = disk.device.stat()?.discards;
    }
    scratch.remove()?;
    for block in &mut blocks {
        block.after_delete = look(block, &disks, scratch.content());
    }
    stop()?;

    let (mut answered, mut trims, mut failed) = (Bytes(0), 0, None);
    let plan = plan(&target, &lies)?;
    while trims < TRIMS && failed.is_none() {
        if trims > 0 {
            std::thread::sleep(REST);
        }
        trims += 1;
        match trim::run(&target, &plan, interrupted, |_| ()) {
            Ok(outcome) => {
                answered.0 = answered.0.saturating_add(outcome.answered.0);
                failed = match outcome.ended {
                    Ended::Done => None,
                    Ended::Stopped => Some(VerifyError::Interrupted.to_string()),
                    Ended::Failed(error) => Some(error.to_string()),
                };
            }
            Err(error) => failed = Some(error.to_string()),
        }
        for block in &mut blocks {
            block.after_trim = look(block, &disks, scratch.content());
        }
        if !blocks.iter().any(|block| block.is_whole && block.after_trim == Found::OldData) {
            break;
        }
    }
    let counted: Vec<_> = disks
        .iter()
        .map(|disk| disk.device.stat().ok().and_then(|stat| stat.discards).zip(disk.before))
        .collect();
    let is_gone = failed.is_none() && target.stops.is_empty();
    let is_gone = is_gone && !blocks.iter().any(|block| block.is_whole && block.after_trim == Found::OldData);
    let pieces = match is_gone {
        true => pieces::run(directory, units, &stack, &disks, &target, interrupted),
        false => Ok(Vec::new()),
    };
    let pieces = pieces.unwrap_or_else(|why| {
        notes.push(format!("pieces of a file were not tested: {why}"));
        Vec::new()
    });
    let disks = disks.into_iter().zip(counted).map(|(disk, counted)| {
        let counted = counted.map(|(after, before)| after.since(before));
        Disk { name: disk.device.name.clone(), promise: disk.promise, counted }
    });
    Ok(Report {
        mount_point: mount.mount_point.display().to_string(),
        fs_type: mount.fs_type.clone(),
        device: device.name.clone(),
        file_units: units,
        extents: lies.len(),
        disks: disks.collect(),
        blocks,
        pieces,
        answered,
        trims,
        stops: target.stops,
        failed,
        notes,
    })
}

fn refuse_logical(mount: &Mount) -> Result<(), VerifyError> {
    match LOGICAL.contains(&mount.fs_type.as_str()) {
        true => Err(VerifyError::Logical {
            path: mount.mount_point.display().to_string(),
            fs_type: mount.fs_type.clone(),
        }),
        false => Ok(()),
    }
}

fn open_disks(stack: &Stack, shown: &str) -> Result<(Vec<Open>, Vec<String>), VerifyError> {
    let (mut disks, mut notes) = (Vec::new(), Vec::new());
    for (device, ends) in stack.lowest() {
        match ends {
            Some(TableError::Kind(kind)) if kind == "crypt" => {
                return Err(VerifyError::Encrypted { path: shown.to_owned(), device: device.name.clone() });
            }
            Some(why) => {
                notes.push(format!("reading {}, not the disks below it: {why}", device.name));
            }
            None => {}
        }
        let node = device.sysfs.node();
        let mut options = File::options();
        let direct = options.read(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
        let file = direct.open(&node).map_err(at(&node))?;
        let promise = match ends {
            None => Promise::of(device, &file),
            Some(_) => Promise::Nothing { why: format!("it is unknown what {} passes on", device.name) },
        };
        disks.push(Open { device: device.clone(), file, promise, before: None });
    }
    Ok((disks, notes))
}

/// Returns the units of the file that are contiguous on one disk, at an offset that can be read directly.
fn blocks_of(lies: &[Extent], units: u64, stack: &Stack, disks: &[Open]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for extent in lies {
        let first = Bytes(extent.logical).units_ceil();
        let end = Bytes(extent.logical.saturating_add(extent.bytes)).units_floor().min(units);
        for unit in first..end {
            let at = extent.physical.saturating_add(unit * UNIT_BYTES - extent.logical);
            let Some((numbers, offset)) = stack.place(at, UNIT_BYTES) else { continue };
            let Some(disk) = disks.iter().position(|disk| disk.device.numbers == numbers) else { continue };
            if !offset.is_multiple_of(disks[disk].device.sector().0.max(1)) {
                continue;
            }
            // Only whole granules of the extent, aligned on the disk.
            let granule = disks[disk].device.limits.granularity.0.max(1);
            let begin = offset.saturating_sub(unit * UNIT_BYTES - extent.logical);
            let whole = begin.next_multiple_of(granule)..(begin + extent.bytes) / granule * granule;
            let is_whole = whole.start <= offset && offset + UNIT_BYTES <= whole.end;
            let unread = Found::Unreadable;
            blocks.push(Block { unit, disk, offset, is_whole, after_delete: unread, after_trim: unread });
        }
    }
    blocks
}

fn look(block: &Block, disks: &[Open], content: Content) -> Found {
    let mut page = Box::new(Page([0; UNIT_BYTES as usize]));
    match disks[block.disk].file.read_exact_at(&mut page.0, block.offset) {
        Err(_) => Found::Unreadable,
        Ok(()) => match recognise(Lpn(block.unit), &page.0) {
            Stored::Content(found) if found == content => Found::OldData,
            Stored::Zeros => Found::Zeros,
            _ => Found::Other,
        },
    }
}

/// Plans a trim of the part of the file system that held the file.
fn plan(target: &Target, lies: &[Extent]) -> Result<Plan, VerifyError> {
    let begin = lies.iter().map(|extent| extent.physical).min().unwrap_or(0);
    let end = lies.iter().map(|extent| extent.physical.saturating_add(extent.bytes)).max().unwrap_or(0);
    let span = target.span(Bytes(begin), Some(Bytes(end - begin)))?;
    let slices = target.slices(span, u64::MAX);
    Ok(Plan { slices, min_extent: Bytes(0), pause: Duration::ZERO })
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;
    use crate::block_device::SysBlock;
    use crate::host_root::HostRoot;

    #[test]
    fn only_units_in_whole_granules_of_an_extent_are_judged() {
        const KIB: u64 = 1024;
        let host = Host::new("");
        host.device(SDA, "8:0", GIB);
        let attributes = [
            ("size", 8 * GIB / 512),
            ("queue/discard_granularity", 16 * KIB),
            ("queue/logical_block_size", 512),
        ];
        for (file, number) in attributes {
            host.file(&format!("sys/devices/{SDA}/{file}"), &number.to_string());
        }
        let sysfs = SysBlock::of_numbers(&HostRoot::new(host.0.path()), (8, 0)).unwrap();
        let device = BlockDevice::of(sysfs).unwrap();
        let stack = Stack::of(&device).unwrap();
        let promise = Promise::Nothing { why: "test".to_owned() };
        let disks = [Open { device, file: tempfile::tempfile().unwrap(), promise, before: None }];
        for (start_kib, kib, expected) in [
            (16, 16, "whole whole whole whole"),
            (8, 16, "part part part part"),
            (8, 32, "part part whole whole whole whole part part"),
            (12, 24, "part whole whole whole whole part"),
            (16, 24, "whole whole whole whole part part"),
        ] {
            let extent = Extent { logical: 0, physical: start_kib * KIB, bytes: kib * KIB };
            let blocks = blocks_of(&[extent], 100, &stack, &disks);
            let found: Vec<&str> =
                blocks.iter().map(|block| if block.is_whole { "whole" } else { "part" }).collect();
            assert_eq!(found.join(" "), expected, "{kib} KiB at {start_kib} KiB, granules of 16 KiB");
        }
    }
}
