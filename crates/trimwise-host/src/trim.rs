//! A manual trim of a mounted file system: what fstrim(8) does, in slices.
//!
//! FITRIM asks a file system to discard its free space in a range. On ext4 a call stops for nothing but a fatal signal,
//! and a discard that is on its way for nothing at all; so the range is cut into slices of whole groups, and between two
//! of them nothing is held: no file of the mount is open, and it can be unmounted. Then a trim can be stopped, and told
//! to rest.
//!
//! Slices must find what one call over everything would find. Two things stand in the way:
//!
//! - ext4 skips groups that it has trimmed, unless it is asked for shorter extents than the last time; and the first
//!   slice is the last time for the second. So what was the last time before the run is put back before each slice
//!   (`last_trim_minblks` in sysfs, Linux 5.17).
//! - XFS walks an allocation group that it is asked to trim whole by the length of its extents, a hundred at a time, and
//!   one that it is asked to trim in part by their place. The former walk loses extents where many have one length: of
//!   205 free extents, 200 of them of 60 KiB, fstrim(8) sent 104 (Linux 6.18). A call that ends with an allocation group
//!   is one for a part of it in this sense. So XFS is called for each group by itself, however long the slice.
//!
//! There are two accounts of what was done. What FITRIM answers means something else on each file system
//! ([`answer_means`]). What the device counted (the discard fields of its `stat`) is the same everywhere, but holds what
//! others sent in that time too.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use thiserror::Error;
use trimwise::units::Bytes;

use crate::block_device::{BlockDevice, BlockDeviceError, DiscardCounts, devices_of, number_in};
use crate::free_space::{self, Estimate};
use crate::ioctl::{FstrimRange, fitrim};
use crate::layout::{Kind, Layout};
use crate::mount::{Mount, MountError, mount_of};

/// Bytes of a file system from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
}

impl Span {
    /// How many bytes it has.
    pub fn bytes(self) -> Bytes {
        Bytes(self.end.saturating_sub(self.start))
    }
}

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
    /// Another error of an ioctl.
    #[error("{path}: {call}: {source}")]
    Call {
        /// The mount point.
        path: String,
        /// `FITRIM` or `GETFSMAP`.
        call: &'static str,
        /// The operating system's words.
        source: std::io::Error,
    },
}

/// What FITRIM's answer counts on a file system.
pub fn answer_means(kind: Kind) -> &'static str {
    match kind {
        Kind::Ext4 => "bytes of the free extents that ext4 submitted",
        Kind::Xfs => "on XFS since Linux 6.11 the bytes of the range asked for, not what was sent",
        Kind::Btrfs => "bytes that btrfs discarded, on all of its devices",
        Kind::Other => "as this file system defines it",
    }
}

/// Whether a trim goes over what was trimmed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimmedGroups {
    /// It does, as XFS and btrfs (inside block groups) always do.
    Again,
    /// It does, since extents are asked for that are shorter than the last time (ext4).
    AgainSince {
        /// The least extent of the last time, in clusters.
        last: u64,
    },
    /// It does not: ext4 skips groups that it remembers as trimmed.
    Skipped,
    /// Nobody knows: ext4 before Linux 5.17 does not tell.
    Unknown,
}

/// A mounted file system that can be trimmed.
#[derive(Debug)]
pub struct Target {
    /// The mount.
    pub mount: Mount,
    /// Which file system it is.
    pub kind: Kind,
    /// Its devices, at least one.
    pub devices: Vec<BlockDevice>,
    /// Its groups, if it has any that are known.
    pub layout: Option<Layout>,
    /// The device number that its files show, by which it is known again.
    identity: (u32, u32),
}

impl Target {
    /// Looks at what is mounted on `path`.
    ///
    /// # Errors
    /// If that is no mount point, or its device takes no discards.
    pub fn of(path: &Path) -> Result<Self, TrimError> {
        let mount = mount_of(path)?;
        let shown = path.display().to_string();
        if path.canonicalize().ok().as_ref() != Some(&mount.mount_point) {
            let mount_point = mount.mount_point.display().to_string();
            return Err(TrimError::NotAMountPoint { path: shown, fs_type: mount.fs_type, mount_point });
        }
        let devices = devices_of(&mount)?;
        if devices.iter().all(|device| device.limits.max.0 == 0) {
            let device = &devices[0];
            let file = format!("/sys/dev/block/{}:{}", device.numbers.0, device.numbers.1);
            let file = format!("{file} (queue/discard_max_bytes)");
            return Err(TrimError::NoDiscard { path: shown, device: device.name.clone(), file });
        }
        let file = open(&mount.mount_point)?;
        let identity = identity(&file, &mount.mount_point)?;
        let kind = Kind::of(&mount.fs_type);
        let layout = Layout::of(kind, file.as_fd(), &devices[0]);
        Ok(Self { mount, kind, devices, layout, identity })
    }

    /// The whole file system, or the part of it that begins at `start` and has `length` bytes, in whole blocks. Btrfs
    /// has no end: its addresses are logical.
    ///
    /// # Errors
    /// If it begins behind the end.
    pub fn span(&self, start: Bytes, length: Option<Bytes>) -> Result<Span, TrimError> {
        let end = match (self.kind, &self.layout) {
            (Kind::Btrfs, _) => u64::MAX,
            (_, Some(layout)) => layout.end.0,
            (_, None) => self.devices[0].size.0,
        };
        if start.0 >= end {
            return Err(TrimError::BeyondTheEnd { path: self.shown(), end: Bytes(end) });
        }
        let asked = length.map_or(u64::MAX, |length| start.0.saturating_add(length.0));
        let block = self.layout.map_or(1, |layout| layout.block.0.max(1));
        let asked = asked.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        Ok(Span { start: start.0 / block * block, end: asked.min(end) })
    }

    /// The shortest extent that is sent if `asked` is what FITRIM is given.
    ///
    /// # Errors
    /// If no extent can be so long.
    pub fn least_extent(&self, asked: Bytes) -> Result<Bytes, TrimError> {
        match &self.layout {
            Some(layout) if asked > layout.group => {
                Err(TrimError::LeastExtent { path: self.shown(), group: layout.group })
            }
            layout => Ok(free_space::least_extent(self.kind, layout.as_ref(), &self.devices, asked)),
        }
    }

    /// What a trim of `span` is expected to send.
    ///
    /// # Errors
    /// If the file system is gone or does not answer.
    pub fn estimate(&self, span: Span, min_extent: Bytes) -> Result<Estimate, TrimError> {
        let file = self.open()?;
        let least = self.least_extent(min_extent)?;
        free_space::estimate(self.kind, self.layout.as_ref(), &file, &self.devices, span, least)
            .map_err(|errno| self.call("GETFSMAP", errno))
    }

    /// Cuts `span` at group boundaries into slices of `groups` groups each; in one where there are no groups.
    pub fn slices(&self, span: Span, groups: u64) -> Vec<Span> {
        let Some(layout) = &self.layout else { return vec![span] };
        let step = groups.max(1).saturating_mul(layout.group.0);
        let mut slices = Vec::new();
        let mut at = span.start;
        while at < span.end {
            // Slices are counted from the group that holds the start, so that each but the first begins with a group.
            let first = layout.group_end(at);
            let end = first.saturating_add(step - layout.group.0).min(span.end).max(at + 1);
            slices.push(Span { start: at, end });
            at = end;
        }
        slices
    }

    /// What the kernel counted on all devices; `None` if it does not count discards.
    fn counts(&self) -> Result<Option<DiscardCounts>, TrimError> {
        let mut sum = Some(DiscardCounts::default());
        for device in &self.devices {
            let found = device.stat()?.discards;
            sum = sum.zip(found).map(|(sum, found)| sum.plus(found));
        }
        Ok(sum)
    }

    /// Waits until the discards that XFS left on their way are done: nothing in flight and nothing more counted, three
    /// looks in a row. Others may keep the device busy; then two seconds without a discard will do.
    fn settle(&self) -> Result<(), TrimError> {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        const ENOUGH_WITHOUT: Duration = Duration::from_secs(2);
        if self.kind != Kind::Xfs {
            return Ok(()); // these wait for their discards
        }
        let (mut last, mut since, mut quiet) = (self.counts()?, Instant::now(), 0);
        while quiet < 3 && since.elapsed() < ENOUGH_WITHOUT {
            std::thread::sleep(LOOK_EVERY);
            let counts = self.counts()?;
            let mut in_flight = 0;
            for device in &self.devices {
                in_flight += device.stat()?.in_flight;
            }
            if counts != last {
                (last, since, quiet) = (counts, Instant::now(), 0);
            } else if in_flight == 0 {
                quiet += 1;
            } else {
                quiet = 0;
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<File, TrimError> {
        let file = open(&self.mount.mount_point)?;
        if identity(&file, &self.mount.mount_point)? != self.identity {
            return Err(TrimError::Gone { path: self.shown() });
        }
        Ok(file)
    }

    /// The file in which ext4 says which least extent it was last trimmed with, in clusters.
    fn last_least_path(&self) -> PathBuf {
        Path::new("/sys/fs/ext4").join(&self.devices[0].name).join("last_trim_minblks")
    }

    /// What ext4 will do with the groups that it has trimmed, if it is asked for extents of `least` and longer.
    pub fn trimmed_groups(&self, least: Bytes) -> TrimmedGroups {
        let (Kind::Ext4, Some(layout)) = (self.kind, &self.layout) else { return TrimmedGroups::Again };
        match number_in(&self.last_least_path()) {
            Ok(last) if least.0 / layout.cluster.0.max(1) < last => TrimmedGroups::AgainSince { last },
            Ok(_) => TrimmedGroups::Skipped,
            Err(_) => TrimmedGroups::Unknown,
        }
    }

    fn trim_slice(&self, slice: Span, min_extent: Bytes) -> Result<Bytes, TrimError> {
        let file = self.open()?;
        // See the head of this file.
        let calls = if self.kind == Kind::Xfs { self.slices(slice, 1) } else { vec![slice] };
        let mut answered = Bytes(0);
        for call in calls {
            let mut range = FstrimRange { start: call.start, len: call.bytes().0, minlen: min_extent.0 };
            match fitrim(file.as_fd(), &mut range) {
                Ok(()) => answered.0 = answered.0.saturating_add(range.len),
                Err(errno) => return Err(self.call("FITRIM", errno)),
            }
        }
        Ok(answered)
    }

    fn call(&self, call: &'static str, errno: Errno) -> TrimError {
        let path = self.shown();
        match errno {
            Errno::PERM | Errno::ACCESS => TrimError::NotPermitted { path },
            Errno::NOTTY | Errno::OPNOTSUPP => {
                TrimError::NoFitrim { path, fs_type: self.mount.fs_type.clone() }
            }
            _ => TrimError::Call { path, call, source: errno.into() },
        }
    }

    fn shown(&self) -> String {
        self.mount.mount_point.display().to_string()
    }
}

fn open(mount_point: &Path) -> Result<File, TrimError> {
    OpenOptions::new()
        .read(true)
        .open(mount_point)
        .map_err(|source| TrimError::Open { path: mount_point.display().to_string(), source })
}

fn identity(file: &File, mount_point: &Path) -> Result<(u32, u32), TrimError> {
    statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map(|found| (found.stx_dev_major, found.stx_dev_minor))
        .map_err(|errno| TrimError::Open { path: mount_point.display().to_string(), source: errno.into() })
}

/// What to trim and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In this order.
    pub slices: Vec<Span>,
    /// What FITRIM gets as its least extent, in every slice.
    pub min_extent: Bytes,
    /// How long to rest between two slices.
    pub pause: Duration,
}

/// How a trim ended.
#[derive(Debug)]
pub enum Ended {
    /// With the last slice.
    Done,
    /// Before it, since it was told to stop.
    Stopped,
    /// Before it, since a slice failed.
    Failed(TrimError),
}

/// What a trim did.
#[derive(Debug)]
pub struct Outcome {
    /// How many slices were trimmed.
    pub slices_done: usize,
    /// The sum of what FITRIM answered; see [`answer_means`].
    pub answered: Bytes,
    /// The discards that the kernel counted on the devices from before the first slice to after the last, whoever sent
    /// them; `None` if it does not count them.
    pub counted: Option<DiscardCounts>,
    /// Real time, with the rests.
    pub elapsed: Duration,
    /// How it ended.
    pub ended: Ended,
}

/// Trims slice by slice until all are done or `stop` is set, and calls `on_slice` with how many are done.
///
/// # Errors
/// If the device's counts cannot be read at the beginning; later failures end the trim and are part of the outcome.
pub fn run(
    target: &Target,
    plan: &Plan,
    stop: &AtomicBool,
    mut on_slice: impl FnMut(usize),
) -> Result<Outcome, TrimError> {
    let before = target.counts()?;
    let least = target.least_extent(plan.min_extent)?;
    let trimmed = target.trimmed_groups(least);
    let begun = Instant::now();
    let mut outcome = Outcome {
        slices_done: 0,
        answered: Bytes(0),
        counted: None,
        elapsed: Duration::ZERO,
        ended: Ended::Done,
    };
    for (index, &slice) in plan.slices.iter().enumerate() {
        if index > 0 {
            rest(plan.pause, stop);
        }
        if stop.load(Ordering::Relaxed) {
            outcome.ended = Ended::Stopped;
            break;
        }
        if let (TrimmedGroups::AgainSince { last }, 1..) = (trimmed, index) {
            // As root, and nobody else may trim, this fails only if the file system is gone, as the slice will say.
            drop(std::fs::write(target.last_least_path(), last.to_string()));
        }
        match target
            .trim_slice(slice, plan.min_extent)
            .and_then(|answered| target.settle().map(|()| answered))
        {
            Ok(answered) => outcome.answered.0 = outcome.answered.0.saturating_add(answered.0),
            Err(error) => {
                outcome.ended = Ended::Failed(error);
                break;
            }
        }
        outcome.slices_done += 1;
        on_slice(outcome.slices_done);
    }
    outcome.elapsed = begun.elapsed();
    // A device that is gone by now is what the failed slice already says.
    let after = target.counts().ok().flatten();
    outcome.counted = after.zip(before).map(|(after, before)| after.since(before));
    Ok(outcome)
}

/// Sleeps, but not on when it is told to stop.
fn rest(pause: Duration, stop: &AtomicBool) {
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let until = Instant::now() + pause;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(layout: Option<Layout>) -> Target {
        Target {
            mount: mount_of(Path::new("/proc")).unwrap(),
            kind: Kind::Ext4,
            devices: Vec::new(),
            layout,
            identity: (0, 0),
        }
    }

    fn groups_of(group: u64, first_group: u64, end: u64) -> Option<Layout> {
        Some(Layout {
            block: Bytes(1),
            cluster: Bytes(1),
            group: Bytes(group),
            first_group: Bytes(first_group),
            end: Bytes(end),
            assumed: false,
            realtime: Bytes(0),
        })
    }

    fn slices(layout: Option<Layout>, start: u64, end: u64, groups: u64) -> Vec<(u64, u64)> {
        let slices = target(layout).slices(Span { start, end }, groups);
        slices.iter().map(|slice| (slice.start, slice.end)).collect()
    }

    #[test]
    fn slices_are_whole_groups_but_at_the_ends() {
        let layout = groups_of(100, 0, 950);
        assert_eq!(slices(layout, 0, 950, 4), [(0, 400), (400, 800), (800, 950)]);
        assert_eq!(slices(layout, 150, 420, 1), [(150, 200), (200, 300), (300, 400), (400, 420)]);
        assert_eq!(slices(layout, 150, 420, 2), [(150, 300), (300, 420)]);
        assert_eq!(slices(layout, 0, 950, u64::MAX), [(0, 950)]);
        assert_eq!(slices(layout, 7, 7, 1), []);
    }

    #[test]
    fn a_boot_block_belongs_to_the_first_group() {
        assert_eq!(slices(groups_of(100, 1, 201), 0, 201, 1), [(0, 101), (101, 201)]);
    }

    #[test]
    fn where_there_are_no_groups_there_is_one_slice() {
        assert_eq!(slices(None, 5, u64::MAX, 1), [(5, u64::MAX)]);
    }

    #[test]
    fn what_cannot_be_trimmed_is_named() {
        let message = |path: &str| Target::of(Path::new(path)).unwrap_err().to_string();
        let proc = message("/proc");
        assert!(proc.starts_with("/proc: proc lies on no block device"), "{proc}");
        let below = message("/proc/self");
        assert!(below.starts_with("/proc/self: not a mount point") && below.contains("on /proc:"), "{below}");
        assert!(message("/no/such/place").starts_with("/no/such/place: "));
    }
}
