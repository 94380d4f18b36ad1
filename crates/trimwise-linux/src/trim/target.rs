//! A mounted file system as a target of TRIM, with its devices and groups; and FITRIM on one slice of it.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use trimwise::units::Bytes;
pub use trimwise::units::Span;

use super::settling::{Settled, Settling};
use super::{Accounts, Meaning, TrimError};
use crate::block_device::{BlockDevice, DiscardCounts, SysBlock, devices_of, number_in};
use crate::doctor::{self, Graph, Kind as Below};
use crate::free_space::{self, Estimate, Listed};
use crate::host_root::HostRoot;
use crate::ioctl::{FstrimRange, btrfs, fitrim};
use crate::layout::{Kind, Layout};
use crate::mount::{Mount, listed_mounts, mount_of, mount_of_open, mounts};
use crate::path_error::{PathError, at};

/// Effect of earlier trims on the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimmedGroups {
    /// Everything is trimmed again, as XFS and btrfs (inside block groups) always do.
    Again,
    /// Everything is trimmed again because the minimum extent is shorter than the last time (ext4).
    AgainSince {
        /// The previous minimum extent, in clusters.
        last: u64,
    },
    /// The groups that ext4 remembers as trimmed are skipped.
    Skipped,
    /// Unknown: ext4 before Linux 5.17 does not report it.
    Unknown,
}

#[derive(Debug)]
pub struct Target {
    pub mount: Mount,
    pub kind: Kind,
    pub devices: Vec<BlockDevice>,
    pub layout: Option<Layout>,
    /// Kernel names of the devices below at which TRIM stops, so that it does not reach every drive.
    pub stops: Vec<String>,
    /// True if a hypervisor provides a drive below: it may accept discards and ignore them, which cannot be seen here.
    pub is_virtual: bool,
    /// Device number of the mounted files, which identifies the file system.
    identity: (u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Before {
    counts: Option<DiscardCounts>,
    errors: Option<u64>,
}

impl Before {
    /// Returns what the devices will have counted once `sent` is done; `None` if they do not count.
    pub fn enough(&self, sent: Option<Bytes>) -> Option<Bytes> {
        Some(Bytes(self.counts?.bytes.0 + sent?.0))
    }
}

impl Target {
    /// Examines the file system mounted on `path`.
    pub fn of(path: &Path) -> Result<Self, TrimError> {
        let mount = mount_of(path)?;
        let shown = path.display().to_string();
        if path.canonicalize().ok().as_ref() != Some(&mount.mount_point) {
            let mount_point = mount.mount_point.display().to_string();
            return Err(TrimError::NotAMountPoint { path: shown, fs_type: mount.fs_type, mount_point });
        }
        let devices = devices_of(&mount)?;
        takes_discards(&shown, &devices)?;
        let file = open(&mount.mount_point)?;
        let identity = identity(&file, &mount.mount_point)?;
        let kind = Kind::of(&mount.fs_type);
        let layout = Layout::of(kind, file.as_fd(), &devices[0]);
        let root = HostRoot::default();
        let tops: Vec<SysBlock> = devices.iter().map(|device| device.sysfs.clone()).collect();
        let graph = Graph::of(&root, &listed_mounts(&root)?, &tops);
        let stops = doctor::stops(&root, &graph);
        let is_provided = |disk: &doctor::Disk| disk.hypervisor.is_some();
        let mut below = graph.nodes.iter();
        let is_virtual = below.any(|node| matches!(&node.kind, Below::Disk(disk) if is_provided(disk)));
        Ok(Self { mount, kind, devices, layout, stops, is_virtual, identity })
    }

    /// Expects that the file system and its devices can be written. A read-only one cannot be trimmed, but its options
    /// can be restored. Fails also if the file system shut down after an error.
    pub fn expect_writable(&self) -> Result<(), TrimError> {
        writable(&self.shown(), &self.mount, &self.devices)
    }

    /// Expects that this kernel is not known to destroy data, or to crash, when it trims such a stack.
    pub fn expect_sound_kernel(&self) -> Result<(), TrimError> {
        let root = HostRoot::default();
        let why = doctor::why_not_on_this_kernel(&root, &mounts(&root).unwrap_or_default(), &self.mount);
        why.map_or(Ok(()), |why| Err(TrimError::Kernel { path: self.shown(), why }))
    }

    /// Notes the counters before a trim, for [`Self::accounts`].
    pub fn before(&self) -> Result<Before, TrimError> {
        Ok(Before { counts: self.counts()?, errors: self.errors() })
    }

    /// Collects what is known of the discards since `before`. `answered` is FITRIM's return value, `failed` the number
    /// of failed requests if they are reported.
    ///
    /// # Errors
    /// If a device no longer accepts discards, which the kernel records once it refused one as unsupported, became
    /// read-only, or ext4 found damage, which it may report to the log alone.
    pub fn accounts(
        &self,
        before: &Before,
        answered: Bytes,
        failed: Option<u64>,
    ) -> Result<Accounts, TrimError> {
        self.accounts_on(&devices_of(&self.mount)?, before, answered, failed)
    }

    /// Does the same for the given present state of the devices.
    fn accounts_on(
        &self,
        devices: &[BlockDevice],
        before: &Before,
        answered: Bytes,
        failed: Option<u64>,
    ) -> Result<Accounts, TrimError> {
        let is_refusing = |now: &&BlockDevice| {
            now.limits.max.0 == 0
                && self.devices.iter().any(|was| was.numbers == now.numbers && was.limits.max.0 > 0)
        };
        if let Some(refusing) = devices.iter().find(is_refusing) {
            return Err(no_discard(&self.shown(), refusing));
        }
        writable(&self.shown(), &self.mount, devices)?;
        if before.errors.zip(self.errors()).is_some_and(|(before, after)| after > before) {
            return Err(self.failed_call("FITRIM", Meaning::Damaged, None));
        }
        // A count of zero since boot, where requests have no queue, means that the driver does not count discards.
        let counts =
            |after: DiscardCounts| after.bytes.0 > 0 || self.devices.iter().all(|one| one.has_queue());
        let after = self.counts()?.filter(|&after| counts(after));
        let counted = after.zip(before.counts).map(|(after, before)| after.since(before).bytes);
        // Some mappings count a discard more than once (LVM's raid1), so a higher count is no sign of failure.
        let counts_more =
            counted.is_some_and(|counted| counted > answered) && !devices.iter().all(BlockDevice::has_queue);
        let online = counts_more || self.mount.discard() != "nodiscard";
        let stops = !self.stops.is_empty();
        Ok(Accounts { sent: None, answered, counted, failed, online, stops, failed_before: false })
    }

    /// Number of errors that ext4 has recorded in the superblock.
    fn errors(&self) -> Option<u64> {
        number_in(&Path::new("/sys/fs/ext4").join(&self.devices[0].name).join("errors_count")).ok()
    }

    /// Returns the whole file system, or the part of it that begins at `start` and has `length` bytes, in whole blocks.
    /// Btrfs has no end: its addresses are logical.
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

    /// Returns the shortest extent that is sent if FITRIM is given `asked`.
    pub fn least_extent(&self, asked: Bytes) -> Result<Bytes, TrimError> {
        match &self.layout {
            Some(layout) if asked > layout.group => {
                Err(TrimError::LeastExtent { path: self.shown(), group: layout.group })
            }
            layout => Ok(free_space::least_extent(self.kind, layout.as_ref(), &self.devices, asked)),
        }
    }

    /// Estimates the discards of a trim of `span`.
    pub fn estimate(&self, span: Span, min_extent: Bytes) -> Result<Estimate, TrimError> {
        let file = self.open()?;
        let least = self.least_extent(min_extent)?;
        free_space::estimate(self.kind, self.layout.as_ref(), &file, &self.devices, span, least)
            .map_err(|errno| self.call("GETFSMAP", errno))
    }

    /// Splits `span` at group boundaries into slices of `groups` groups each; a file system without groups is one
    /// slice.
    pub fn slices(&self, span: Span, groups: u64) -> Vec<Span> {
        let Some(layout) = &self.layout else { return vec![span] };
        let step = groups.max(1).saturating_mul(layout.group.0);
        let mut slices = Vec::new();
        let mut at = span.start;
        let last = span.end.min(layout.end.0);
        while at < last {
            // Slices are counted from the group that holds the start, so that each but the first begins with a group.
            let first = layout.group_end(at);
            let end = first.saturating_add(step - layout.group.0).min(last).max(at + 1);
            slices.push(Span { start: at, end });
            at = end;
        }
        slices
    }

    /// Lists the first `most` free extents of at least `least` from an address on.
    pub fn free_spans(&self, least: Bytes, from: u64, most: usize) -> Result<Listed, TrimError> {
        let file = self.open()?;
        let listed = match (&self.layout, self.devices.as_slice()) {
            (Some(layout), [device]) => free_space::list(self.kind, layout, &file, device, least, from, most),
            _ => Err(Errno::OPNOTSUPP),
        };
        listed.map_err(|errno| self.call("GETFSMAP", errno))
    }

    /// Lists the address ranges that FITRIM accepts, at most `most` of them.
    pub fn ranges(&self, most: usize) -> Result<Listed, TrimError> {
        let file = self.open()?;
        let mut ranges = if self.kind == Kind::Btrfs {
            btrfs::chunks(file.as_fd()).map_err(|errno| self.call("BTRFS_IOC_TREE_SEARCH", errno))?
        } else {
            vec![self.span(Bytes(0), None)?]
        };
        let end = ranges.last().map_or(0, |last| last.end);
        // Extend the last range over the rest, so that none is left out.
        ranges.truncate(most.max(1));
        if let Some(last) = ranges.last_mut() {
            last.end = end;
        }
        Ok(Listed { free: ranges, from: 0, upto: end })
    }

    /// `None` if the kernel does not count discards, or was told not to (`iostats`).
    pub fn counts(&self) -> Result<Option<DiscardCounts>, TrimError> {
        let sum = self.discards()?;
        Ok(sum.filter(|_| self.devices.iter().all(|device| device.counts_requests())))
    }

    /// Returns the sum of the devices' own counts, which stand still where `iostats` is off.
    fn discards(&self) -> Result<Option<DiscardCounts>, TrimError> {
        let mut sum = Some(DiscardCounts::default());
        for device in &self.devices {
            let found = device.stat()?.discards;
            sum = sum.zip(found).map(|(sum, found)| sum.plus(found));
        }
        Ok(sum)
    }

    /// Waits until the discards that XFS left in flight are done, or clearly hang. Once the device has counted
    /// `enough`, no more are expected.
    pub fn settle(&self, enough: Option<Bytes>) -> Result<Settled, TrimError> {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        if self.kind != Kind::Xfs {
            return Ok(Settled { took: Duration::ZERO, in_flight: 0 }); // others wait for their discards
        }
        let begun = Instant::now();
        let are_counted = self.counts()?.is_some();
        let counted = || {
            let sum = if are_counted { self.discards()? } else { None };
            Ok::<_, TrimError>(sum.unwrap_or_default().bytes)
        };
        let mut settling = Settling::new(counted()?, enough);
        loop {
            std::thread::sleep(LOOK_EVERY);
            let mut in_flight = 0;
            for device in &self.devices {
                in_flight += device.writes_in_flight()?;
            }
            if let Some(settled) = settling.see(begun.elapsed(), counted()?, in_flight) {
                return Ok(settled);
            }
        }
    }

    pub fn open(&self) -> Result<File, TrimError> {
        let file = open(&self.mount.mount_point)?;
        if identity(&file, &self.mount.mount_point)? != self.identity {
            return Err(TrimError::Gone { path: self.shown() });
        }
        Ok(file)
    }

    /// Returns the path of the sysfs file in which ext4 reports the minimum extent of the last trim, in clusters.
    fn last_least_path(&self) -> PathBuf {
        Path::new("/sys/fs/ext4").join(&self.devices[0].name).join("last_trim_minblks")
    }

    /// Predicts if ext4 will skip groups already trimmed, given a minimum extent of `least`.
    pub fn trimmed_groups(&self, least: Bytes) -> TrimmedGroups {
        let (Kind::Ext4, Some(layout)) = (self.kind, &self.layout) else { return TrimmedGroups::Again };
        match number_in(&self.last_least_path()) {
            Ok(last) if least.0 / layout.cluster.0.max(1) < last => TrimmedGroups::AgainSince { last },
            Ok(_) => TrimmedGroups::Skipped,
            Err(_) => TrimmedGroups::Unknown,
        }
    }

    /// Has ext4 trim the groups again that it believes to be trimmed: after a failed discard it believes so too. This
    /// holds until a trim of any part of the file system has succeeded.
    ///
    /// # Errors
    /// If sysfs cannot be written, or not that file (Linux before 5.17): then ext4 skips these groups.
    pub fn doubt_trimmed_groups(&self) -> Result<(), PathError> {
        if self.kind == Kind::Ext4 { self.restore_last_least(u32::MAX.into()) } else { Ok(()) }
    }

    /// Restores the value in [`TrimmedGroups::AgainSince`], so that the next slice trims the groups again too.
    pub(super) fn restore_last_least(&self, last: u64) -> Result<(), PathError> {
        let path = self.last_least_path();
        std::fs::write(&path, last.to_string()).map_err(at(&path))
    }

    /// Runs FITRIM over a slice. Returns the sum of its return values.
    pub fn trim_slice(&self, slice: Span, min_extent: Bytes) -> Result<Bytes, TrimError> {
        let file = self.open()?;
        let now = mount_of_open(&file)?;
        writable(&self.shown(), &now, &self.devices)?;
        self.trim_by(slice, min_extent, |range| fitrim(file.as_fd(), range)).or_else(|errno| {
            // If the device is the cause, report that instead of a missing FITRIM.
            takes_discards(&self.shown(), &devices_of(&self.mount)?)?;
            Err(self.call("FITRIM", errno))
        })
    }

    /// Splits a slice into the ranges that the file system must be given, and sums what `trim` returns for them.
    fn trim_by(
        &self,
        slice: Span,
        min_extent: Bytes,
        mut trim: impl FnMut(&mut FstrimRange) -> Result<(), Errno>,
    ) -> Result<Bytes, Errno> {
        // See the head of `trim.rs`.
        let calls = if self.kind == Kind::Xfs { self.slices(slice, 1) } else { vec![slice] };
        let mut answered = Bytes(0);
        for call in calls {
            let is_all = self.kind == Kind::Other && call.start == 0 && call.end >= self.devices[0].size.0;
            // ntfs-3g cannot trim a part.
            let len = if is_all { u64::MAX } else { call.bytes().0 };
            let mut range = FstrimRange { start: call.start, len, minlen: min_extent.0 };
            match trim(&mut range) {
                Ok(()) => answered.0 = answered.0.saturating_add(range.len),
                // If the end of such a file system is unknown (vfat and f2fs may end before their device), FITRIM
                // returns EINVAL for a range after it.
                Err(Errno::INVAL) if self.kind == Kind::Other && call.start > 0 => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(answered)
    }

    fn call(&self, call: &'static str, errno: Errno) -> TrimError {
        self.failed_call(call, Meaning::of(errno), Some(errno))
    }

    fn failed_call(&self, call: &'static str, means: Meaning, errno: Option<Errno>) -> TrimError {
        let (fs_type, device) = (self.mount.fs_type.clone(), self.devices[0].name.clone());
        TrimError::Call { path: self.shown(), call, means, errno, fs_type, device }
    }

    pub(super) fn shown(&self) -> String {
        self.mount.mount_point.display().to_string()
    }
}

fn takes_discards(path: &str, devices: &[BlockDevice]) -> Result<(), TrimError> {
    match devices.first() {
        Some(device) if devices.iter().all(|device| device.limits.max.0 == 0) => {
            Err(no_discard(path, device))
        }
        _ => Ok(()),
    }
}

fn no_discard(path: &str, device: &BlockDevice) -> TrimError {
    let file = format!("{} (queue/discard_max_bytes)", device.sysfs_link().display());
    TrimError::NoDiscard { path: path.to_owned(), device: device.name.clone(), file }
}

/// Checks that discards can work and do no harm. On a read-only device FITRIM reports success although the kernel
/// refuses every discard; on a file system that [failed](Mount::has_failed) it destroys files.
fn writable(path: &str, mount: &Mount, devices: &[BlockDevice]) -> Result<(), TrimError> {
    if mount.has_failed() {
        return Err(TrimError::Call {
            path: path.to_owned(),
            call: "its mount options (emergency_ro or shutdown)",
            means: Meaning::Damaged,
            errno: None,
            fs_type: mount.fs_type.clone(),
            device: devices.first().map_or_else(String::new, |device| device.name.clone()),
        });
    }
    let what = match devices.iter().find(|device| device.is_read_only()) {
        Some(device) => format!("its device {}", device.name),
        None if mount.is_read_only() => "the file system".to_owned(),
        None => return Ok(()),
    };
    Err(TrimError::ReadOnly { path: path.to_owned(), what })
}

fn open(mount_point: &Path) -> Result<File, TrimError> {
    Ok(File::open(mount_point).map_err(at(mount_point))?)
}

fn identity(file: &File, mount_point: &Path) -> Result<(u32, u32), TrimError> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(at(mount_point))?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use trimwise_testing::fake_host::Host;

    use super::*;

    fn target(layout: Option<Layout>) -> Target {
        Target {
            mount: mount_of(Path::new("/proc")).unwrap(),
            kind: Kind::Ext4,
            devices: Vec::new(),
            layout,
            stops: Vec::new(),
            is_virtual: false,
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
    fn slices_are_whole_groups_except_at_the_ends() {
        let layout = groups_of(100, 0, 950);
        assert_eq!(slices(layout, 0, 950, 4), [(0, 400), (400, 800), (800, 950)]);
        assert_eq!(slices(layout, 150, 420, 1), [(150, 200), (200, 300), (300, 400), (400, 420)]);
        assert_eq!(slices(layout, 150, 420, 2), [(150, 300), (300, 420)]);
        assert_eq!(slices(layout, 0, 950, u64::MAX), [(0, 950)]);
        assert_eq!(slices(layout, 750, 950, 0), [(750, 800), (800, 900), (900, 950)], "at least one group");
        assert_eq!(slices(layout, 7, 7, 1), []);
    }

    #[test]
    fn regression_there_is_no_slice_after_the_end() {
        let layout = groups_of(100, 0, 950);
        assert_eq!(slices(layout, 800, 1000, 1), [(800, 900), (900, 950)]);
        assert_eq!(slices(layout, 0, u64::MAX, 5), [(0, 500), (500, 950)]);
        assert_eq!(slices(layout, 950, 1000, 1), []);
    }

    #[test]
    fn a_boot_block_belongs_to_the_first_group() {
        assert_eq!(slices(groups_of(100, 1, 201), 0, 201, 1), [(0, 101), (101, 201)]);
    }

    #[test]
    fn a_file_system_that_failed_takes_no_trim() {
        for option in ["emergency_ro", "shutdown"] {
            let mut failed = target(None);
            failed.mount.options.push(option.to_owned());
            assert_eq!(failed.expect_writable().unwrap_err().means(), Some(Meaning::Damaged), "{option}");
        }
    }

    const GIB: u64 = 1 << 30;

    /// A device of 1 GiB on a fake host.
    fn device(host: &Host, minor: u32, max: u64, granularity: u64) -> BlockDevice {
        let name = format!("sd{}", char::from(b'a' + minor as u8));
        let at = format!("sys/devices/virtual/block/{name}");
        host.device(&format!("virtual/block/{name}"), &format!("8:{minor}"), max);
        host.file(&format!("{at}/queue/discard_granularity"), &granularity.to_string());
        host.file(&format!("{at}/size"), &(GIB / 512).to_string());
        BlockDevice::of(SysBlock::named(&HostRoot::new(host.0.path()), &name).unwrap()).unwrap()
    }

    #[test]
    fn one_device_that_takes_discards_is_enough() {
        for (limits, takes) in [(&[1][..], true), (&[0], false), (&[0, 1], true), (&[0, 0], false)] {
            let host = Host::new("");
            let devices: Vec<_> = (0..).zip(limits).map(|(n, &max)| device(&host, n, max, 512)).collect();
            let found = takes_discards("/srv", &devices);
            assert_eq!(found.is_ok(), takes, "largest discards {limits:?}: {found:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains("sda"), "the first device is named: {error}");
            }
        }
    }

    #[test]
    fn what_is_read_only_is_not_trimmed_and_is_named() {
        let host = Host::new("");
        let devices = [device(&host, 0, 1, 512), device(&host, 1, 1, 512)];
        let mut mount = target(None).mount;
        mount.options = vec!["rw".to_owned()];
        let refused = |mount: &Mount| writable("/srv", mount, &devices).err().map(|error| error.to_string());
        assert_eq!(refused(&mount), None);
        mount.options = vec!["ro".to_owned()];
        assert!(refused(&mount).is_some_and(|error| error.starts_with("/srv: the file system is read-only")));
        mount.options = vec!["rw".to_owned()];
        host.file("sys/devices/virtual/block/sdb/ro", "1");
        assert!(refused(&mount).is_some_and(|error| error.starts_with("/srv: its device sdb is read-only")));
    }

    #[test]
    fn a_span_ends_with_the_file_system_and_has_whole_blocks() {
        let host = Host::new("");
        let sda = device(&host, 0, 1, 512);
        let of = |kind, layout: Option<Layout>, start, length: Option<u64>| {
            let mut target = target(layout);
            (target.kind, target.devices) = (kind, vec![sda.clone()]);
            target.span(Bytes(start), length.map(Bytes)).ok().map(|span| (span.start, span.end))
        };
        let blocks = || groups_of(1000, 0, 9_500).map(|layout| Layout { block: Bytes(100), ..layout });
        for (kind, layout, start, length, expected) in [
            (Kind::Ext4, blocks(), 0, None, Some((0, 9_500))),
            (Kind::Ext4, blocks(), 250, Some(100), Some((200, 400))),
            (Kind::Ext4, blocks(), 200, Some(100), Some((200, 300))),
            (Kind::Ext4, blocks(), 9_499, Some(u64::MAX), Some((9_400, 9_500))),
            (Kind::Ext4, blocks(), 9_500, None, None),
            // Without a layout it ends with the device, and in btrfs nowhere.
            (Kind::Other, None, 7, None, Some((7, GIB))),
            (Kind::Other, None, 7, Some(5), Some((7, 12))),
            (Kind::Other, None, GIB, None, None),
            (Kind::Btrfs, None, GIB, Some(5), Some((GIB, GIB + 5))),
            (Kind::Btrfs, None, 0, None, Some((0, u64::MAX))),
        ] {
            assert_eq!(of(kind, layout, start, length), expected, "{kind:?} from {start}, {length:?} bytes");
        }
    }

    #[test]
    fn the_least_extent_is_rounded_as_each_file_system_does() {
        let host = Host::new("");
        let mut target = target(groups_of(1 << 20, 0, GIB));
        target.devices = vec![device(&host, 0, 1, 8192), device(&host, 1, 1, 512)];
        let mut least = |kind, block, cluster, asked| {
            target.kind = kind;
            target.layout =
                target.layout.map(|layout| Layout { block: Bytes(block), cluster: Bytes(cluster), ..layout });
            target.least_extent(Bytes(asked)).ok().map(|least| least.0)
        };
        for (kind, block, cluster, asked, expected) in [
            // At least the largest granularity of the devices.
            (Kind::Ext4, 4096, 4096, 0, Some(8192)),
            // ext4 drops a part of a block, XFS rounds it up.
            (Kind::Ext4, 4096, 4096, 12_287, Some(8192)),
            (Kind::Xfs, 4096, 4096, 12_287, Some(12_288)),
            (Kind::Xfs, 4096, 4096, 12_289, Some(16_384)),
            // Clusters are whole.
            (Kind::Ext4, 4096, 65_536, 8192, Some(65_536)),
            (Kind::Ext4, 4096, 65_536, 69_632, Some(131_072)),
            // No extent is longer than a group.
            (Kind::Ext4, 4096, 4096, 1 << 20, Some(1 << 20)),
            (Kind::Ext4, 4096, 4096, (1 << 20) + 1, None),
        ] {
            let case = format!("{kind:?}, blocks of {block}, clusters of {cluster}, {asked} asked");
            assert_eq!(least(kind, block, cluster, asked), expected, "{case}");
        }
    }

    #[test]
    fn counts_are_summed_and_missing_where_a_device_does_not_count() {
        let host = Host::new("");
        let mut target = target(None);
        target.devices = vec![device(&host, 0, 1, 512), device(&host, 1, 1, 512)];
        let stat = |name: &str, text: &str| {
            host.file(&format!("sys/devices/virtual/block/{name}/stat"), text);
        };
        // Discards are fields 12 to 15: commands, merged, sectors, milliseconds.
        stat("sda", "0 0 0 0 0 0 0 0 0 0 0 3 1 16 0 0 0");
        stat("sdb", "0 0 0 0 0 0 0 0 0 0 0 4 2 8 0 0 0");
        let sum = DiscardCounts { commands: 7, merged: 3, bytes: Bytes(24 * 512) };
        assert_eq!(target.counts().unwrap(), Some(sum));
        host.file("sys/devices/virtual/block/sdb/queue/iostats", "1");
        assert_eq!(target.counts().unwrap(), Some(sum), "iostats is on");
        host.file("sys/devices/virtual/block/sdb/queue/iostats", "0");
        assert_eq!(target.counts().unwrap(), None, "iostats is off on one");
        host.file("sys/devices/virtual/block/sdb/queue/iostats", "1");
        stat("sdb", "0 0 0 0 0 0 0 0 0 0 0");
        assert_eq!(target.counts().unwrap(), None, "a kernel before 4.19");
    }

    /// A target on two fake devices, of which sysfs has room for the files of ext4.
    fn target_on(host: &Host, options: &str) -> Target {
        let mut target = target(None);
        target.mount.options = options.split(',').map(str::to_owned).collect();
        target.devices = vec![device(host, 0, 1, 512), device(host, 1, 1, 512)];
        discarded(host, [0, 0]);
        target
    }

    /// Sets the sectors that sda and sdb have discarded.
    fn discarded(host: &Host, sectors: [u64; 2]) {
        for (name, sectors) in ["sda", "sdb"].into_iter().zip(sectors) {
            let stat = format!("0 0 0 0 0 0 0 0 0 0 0 1 0 {sectors} 0");
            host.file(&format!("sys/devices/virtual/block/{name}/stat"), &stat);
        }
    }

    /// Reads the devices of a target again.
    fn again(target: &Target) -> Vec<BlockDevice> {
        target.devices.iter().map(|device| BlockDevice::of(device.sysfs.clone()).unwrap()).collect()
    }

    #[test]
    fn accounts_take_the_difference_of_the_counts_if_they_mean_something() {
        const BOTH: [bool; 2] = [true, true];
        const ONE: [bool; 2] = [true, false];
        // Which devices have a queue, the options, the sectors that they had discarded and have now, the sectors that
        // FITRIM claims; then the sectors counted, and whether they may include others' discards.
        for (queues, options, before, after, answered, counted, online) in [
            (BOTH, "rw", [10, 5], [18, 21], 24, Some(24), false),
            (BOTH, "rw", [10, 5], [18, 21], 23, Some(24), false),
            (BOTH, "rw,discard", [10, 5], [18, 21], 24, Some(24), true),
            (BOTH, "rw,discard=async", [10, 5], [18, 21], 24, Some(24), true),
            (BOTH, "rw,discard,nodiscard", [10, 5], [18, 21], 24, Some(24), false),
            (BOTH, "rw", [0, 0], [0, 0], 0, Some(0), false),
            // Without a queue, zero since boot means that the driver does not count.
            (ONE, "rw", [0, 0], [0, 0], 0, None, false),
            (ONE, "rw", [0, 1], [0, 1], 0, Some(0), false),
            // Without a queue, a mapping may count twice.
            (ONE, "rw", [0, 0], [8, 0], 8, Some(8), false),
            (ONE, "rw", [0, 0], [8, 0], 7, Some(8), true),
            (ONE, "rw", [0, 0], [8, 0], 9, Some(8), false),
        ] {
            let host = Host::new("");
            let mut target = target_on(&host, options);
            for (name, _) in ["sda", "sdb"].into_iter().zip(queues).filter(|(_, has_queue)| *has_queue) {
                host.file(&format!("sys/devices/virtual/block/{name}/mq/0/cpu_list"), "0");
            }
            let sectors = |n: u64| Bytes(n * 512);
            discarded(&host, before);
            let noted = target.before().unwrap();
            assert_eq!(noted.enough(Some(sectors(7))), Some(sectors(before[0] + before[1] + 7)));
            assert_eq!(noted.enough(None), None);
            discarded(&host, after);
            let case = format!("queues {queues:?}, {options}, {before:?} to {after:?}, {answered} answered");
            for (stops, failed) in [(false, None), (true, Some(3))] {
                target.stops = if stops { vec!["md0".to_owned()] } else { Vec::new() };
                let of =
                    |noted| target.accounts_on(&again(&target), noted, sectors(answered), failed).unwrap();
                let counted = counted.map(sectors);
                let expected = Accounts {
                    sent: None,
                    answered: sectors(answered),
                    counted,
                    failed,
                    online,
                    stops,
                    failed_before: false,
                };
                assert_eq!(of(&noted), expected, "{case}");
                // Whether discards are mixed cannot be told from counts that are missing.
                let unknown = Before { counts: None, ..noted };
                let online = options == "rw,discard" || options == "rw,discard=async";
                assert_eq!(
                    of(&unknown),
                    Accounts { counted: None, online, ..expected },
                    "{case}, no count before"
                );
            }
        }
    }

    #[test]
    fn accounts_fail_if_a_device_refuses_or_the_file_system_is_damaged() {
        let file = |file: &str, text: &str| (format!("sys/{file}"), text.to_owned());
        let max = |name: &str, max: &str| {
            file(&format!("devices/virtual/block/{name}/queue/discard_max_bytes"), max)
        };
        let errors = |text: &str| file("fs/ext4/sda/errors_count", text);
        // What is before, what changes, and the error.
        for (before, after, expected) in [
            (vec![], vec![], ""),
            (vec![], vec![max("sda", "0")], "/proc: its device sda does not accept discards"),
            (vec![], vec![max("sdb", "0")], "/proc: its device sdb does not accept discards"),
            (vec![max("sdb", "0")], vec![max("sdb", "0")], ""),
            (vec![max("sdb", "0")], vec![max("sdb", "1")], ""),
            (vec![], vec![file("devices/virtual/block/sdb/ro", "1")], "/proc: its device sdb is read-only"),
            (vec![errors("3")], vec![errors("3")], ""),
            (vec![errors("3")], vec![errors("4")], "/proc: FITRIM: the file system is damaged"),
            (vec![errors("3")], vec![errors("2")], ""),
            (vec![], vec![errors("1")], ""),
        ] {
            let host = Host::new("");
            let mut target = target_on(&host, "rw");
            for (path, text) in &before {
                host.file(path, text);
            }
            target.devices = again(&target);
            // Joined to /sys/fs/ext4, an absolute path leads to the fake host.
            let ext4 = host.0.path().join("sys/fs/ext4/sda");
            target.devices[0].name = ext4.display().to_string();
            let noted = target.before().unwrap();
            for (path, text) in &after {
                host.file(path, text);
            }
            let found = target.accounts_on(&again(&target), &noted, Bytes(0), None);
            let said = found.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(said.starts_with(expected), "{before:?}, then {after:?}: {said}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{before:?}, then {after:?}: {said}");
        }
    }

    #[test]
    fn a_slice_becomes_the_calls_that_its_file_system_needs() {
        const ALL: u64 = u64::MAX;
        let host = Host::new("");
        let mut target = target_on(&host, "rw");
        let groups = || groups_of(100, 0, 950);
        let einval = || vec![Err(Errno::INVAL)];
        // The kind, the layout, the slice, what the calls return; then start and length of the calls, and the result.
        for (kind, layout, (start, end), returned, calls, expected) in [
            (Kind::Ext4, groups(), (150, 420), vec![Ok(7)], vec![(150, 270)], Ok(7)),
            (Kind::Btrfs, None, (0, ALL), vec![Ok(7)], vec![(0, ALL)], Ok(7)),
            (
                Kind::Xfs,
                groups(),
                (150, 420),
                vec![Ok(1), Ok(20), Ok(300), Ok(4000)],
                vec![(150, 50), (200, 100), (300, 100), (400, 20)],
                Ok(4321),
            ),
            (Kind::Xfs, groups(), (0, 200), vec![Ok(ALL), Ok(5)], vec![(0, 100), (100, 100)], Ok(ALL)),
            (
                Kind::Xfs,
                groups(),
                (0, 300),
                vec![Ok(1), Err(Errno::IO)],
                vec![(0, 100), (100, 100)],
                Err(Errno::IO),
            ),
            // Only another file system is asked for everything, and only for all of its device.
            (Kind::Other, None, (0, GIB), vec![Ok(7)], vec![(0, ALL)], Ok(7)),
            (Kind::Other, None, (0, GIB + 1), vec![Ok(7)], vec![(0, ALL)], Ok(7)),
            (Kind::Other, None, (0, GIB - 1), vec![Ok(7)], vec![(0, GIB - 1)], Ok(7)),
            (Kind::Other, None, (1, GIB), vec![Ok(7)], vec![(1, GIB - 1)], Ok(7)),
            (Kind::Ext4, None, (0, GIB), vec![Ok(7)], vec![(0, GIB)], Ok(7)),
            // Such a file system may end before its device.
            (Kind::Other, None, (512, GIB), einval(), vec![(512, GIB - 512)], Ok(0)),
            (Kind::Other, None, (0, 512), einval(), vec![(0, 512)], Err(Errno::INVAL)),
            (Kind::Ext4, None, (512, GIB), einval(), vec![(512, GIB - 512)], Err(Errno::INVAL)),
            (Kind::Other, None, (512, 513), vec![Err(Errno::IO)], vec![(512, 1)], Err(Errno::IO)),
        ] {
            (target.kind, target.layout) = (kind, layout);
            let (mut seen, mut answers) = (Vec::new(), returned.into_iter());
            let found = target.trim_by(Span { start, end }, Bytes(4096), |range| {
                seen.push((range.start, range.len, range.minlen));
                answers.next().unwrap().map(|len| range.len = len)
            });
            let case = format!("{kind:?} {start} to {end}");
            let calls: Vec<_> = calls.into_iter().map(|(start, len)| (start, len, 4096)).collect();
            assert_eq!(seen, calls, "{case}");
            assert_eq!(found, expected.map(Bytes), "{case}");
        }
    }

    #[test]
    fn only_the_file_system_that_was_examined_is_trimmed() {
        let host = Host::new("");
        let mut target = target_on(&host, "rw");
        let slice = |target: &Target| {
            target.trim_slice(Span { start: 0, end: 100 }, Bytes(0)).unwrap_err().to_string()
        };
        let said = slice(&target);
        assert!(said.starts_with("/proc: the file system was unmounted"), "{said}");
        let proc = Path::new("/proc");
        target.identity = identity(&open(proc).unwrap(), proc).unwrap();
        // FITRIM fails, and its device is looked for.
        let said = slice(&target);
        assert!(said.starts_with("/proc: proc is not on a block device"), "{said}");
        host.file("sys/devices/virtual/block/sdb/ro", "1");
        let said = slice(&target);
        assert!(said.starts_with("/proc: its device sdb is read-only"), "{said}");
    }

    #[test]
    fn ext4_trims_groups_again_if_the_minimum_is_shorter_than_the_last() {
        use TrimmedGroups::{Again, AgainSince, Skipped, Unknown};
        let host = Host::new("");
        let mut target = target_on(&host, "rw");
        // Joined to /sys/fs/ext4, an absolute path leads to the fake host.
        target.devices[0].name = host.0.path().join("sys/fs/ext4/sda").display().to_string();
        let layout = groups_of(1 << 20, 0, GIB).map(|layout| Layout { cluster: Bytes(4096), ..layout });
        target.layout = layout;
        assert_eq!(target.trimmed_groups(Bytes(0)), Unknown, "before Linux 5.17");
        for (kind, layout, last, least, expected) in [
            (Kind::Ext4, layout, "2\n", 4096, AgainSince { last: 2 }),
            (Kind::Ext4, layout, "2\n", 8191, AgainSince { last: 2 }),
            (Kind::Ext4, layout, "2\n", 8192, Skipped),
            (Kind::Ext4, layout, "2\n", 12_288, Skipped),
            (Kind::Ext4, layout, "0\n", 0, Skipped),
            (Kind::Ext4, layout, "many\n", 0, Unknown),
            (Kind::Ext4, None, "2\n", 8192, Again),
            (Kind::Xfs, layout, "2\n", 8192, Again),
        ] {
            host.file("sys/fs/ext4/sda/last_trim_minblks", last);
            (target.kind, target.layout) = (kind, layout);
            let case = format!("{kind:?}, {layout:?}, last {last:?}, now {least} bytes");
            assert_eq!(target.trimmed_groups(Bytes(least)), expected, "{case}");
        }
        target.restore_last_least(77).unwrap();
        let file = host.0.path().join("sys/fs/ext4/sda/last_trim_minblks");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "77");
        target.doubt_trimmed_groups().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "77", "XFS believes nothing to be trimmed");
        target.kind = Kind::Ext4;
        target.doubt_trimmed_groups().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "4294967295");
        // What is not a file can be written as little as a read-only sysfs, even by root.
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        let error = target.doubt_trimmed_groups().unwrap_err().to_string();
        assert!(error.contains("last_trim_minblks"), "{error}");
    }

    #[test]
    fn only_xfs_is_waited_for_and_its_writes_are_counted() {
        let host = Host::new("");
        let mut target = target_on(&host, "rw");
        discarded(&host, [8, 16]);
        for kind in [Kind::Ext4, Kind::Btrfs, Kind::Other] {
            target.kind = kind;
            let settled = target.settle(None).unwrap();
            assert_eq!((settled.took, settled.in_flight), (Duration::ZERO, 0), "{kind:?}");
        }
        target.kind = Kind::Xfs;
        assert!(target.settle(None).is_err(), "`inflight` must be read");
        // Reads and writes in flight on the two devices, and the sectors to wait for.
        for (inflight, enough) in
            [(["9 0", "9 0"], None), (["0 9", "0 9"], Some(24)), (["9 0", "0 9"], Some(23))]
        {
            for (name, text) in ["sda", "sdb"].into_iter().zip(inflight) {
                host.file(&format!("sys/devices/virtual/block/{name}/inflight"), text);
            }
            let settled = target.settle(enough.map(|sectors: u64| Bytes(sectors * 512))).unwrap();
            assert_eq!((settled.took, settled.in_flight), (Duration::ZERO, 0), "{inflight:?}, {enough:?}");
        }
    }

    #[test]
    fn ranges_cover_the_file_system_and_a_map_needs_one_device() {
        let host = Host::new("");
        let mut target = target_on(&host, "rw");
        let proc = Path::new("/proc");
        target.identity = identity(&open(proc).unwrap(), proc).unwrap();
        target.layout = groups_of(100, 0, 950);
        let whole = Listed { free: vec![Span { start: 0, end: 950 }], from: 0, upto: 950 };
        assert_eq!(target.ranges(0).unwrap(), whole);
        let means = |target: &Target| target.free_spans(Bytes(1), 0, 9).unwrap_err().means();
        assert_eq!(means(&target), Some(Meaning::NoDiscard), "two devices");
        target.devices.pop();
        assert_eq!(means(&target), Some(Meaning::NoCall), "/proc has no map");
        target.layout = None;
        assert_eq!(means(&target), Some(Meaning::NoDiscard), "no layout");
    }

    #[test]
    fn where_there_are_no_groups_there_is_one_slice() {
        assert_eq!(slices(None, 5, u64::MAX, 1), [(5, u64::MAX)]);
    }

    #[test]
    fn errors_name_what_cannot_be_trimmed() {
        let message = |path: &str| Target::of(Path::new(path)).unwrap_err().to_string();
        let proc = message("/proc");
        assert!(proc.starts_with("/proc: proc is not on a block device"), "{proc}");
        let below = message("/proc/self");
        assert!(below.starts_with("/proc/self: not a mount point") && below.contains("on /proc:"), "{below}");
        assert!(message("/no/such/place").starts_with("/no/such/place: "));
    }
}
