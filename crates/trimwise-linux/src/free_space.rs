//! Estimates a trim's discards from the file system's own map of its free space.
//!
//! ext4 and XFS list their free extents (FS_IOC_GETFSMAP), from the same structures that their FITRIM walks. For others
//! there is only a bound: the devices' size, as far as the file system uses it, less the space in use.
//!
//! The maps do not show everything: ext4 skips groups that it remembers as trimmed, and XFS skips extents that were
//! freed a moment ago. The free space also changes while the file system is in use.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::fstatvfs;
use rustix::io::Errno;
use trimwise::units::Bytes;

use crate::block_device::{BlockDevice, DiscardLimits, btrfs_directory, number_in};
use crate::ioctl::{Fsmap, FsmapQuery, btrfs};
use crate::layout::{Kind, Layout};
use crate::trim::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    Extents(Extents),
    /// Upper bound from the devices' free space, for file systems without a map.
    Bound(Bytes),
}

impl Estimate {
    /// Returns the bytes of all extents that would be sent; `None` if there is only a bound.
    pub fn exact(&self) -> Option<Bytes> {
        match self {
            Self::Extents(extents) => Some(extents.bytes),
            Self::Bound(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    pub count: u64,
    pub bytes: Bytes,
    /// Upper bound on the number of commands. Where a device accepts several ranges per command, the kernel may need
    /// fewer.
    pub commands_max: u64,
    /// Extents below the minimum length.
    pub too_short: u64,
    pub too_short_bytes: Bytes,
}

/// Estimates a trim of `span` with a minimum extent of `least`.
pub fn estimate(
    kind: Kind,
    layout: Option<&Layout>,
    file: &File,
    devices: &[BlockDevice],
    span: Span,
    least: Bytes,
) -> Result<Estimate, Errno> {
    if let (Kind::Ext4 | Kind::Xfs, Some(layout), [device]) = (kind, layout, devices) {
        match free_extents(file.as_fd(), kind, layout, device, span, least) {
            // The kernel lacks GETFSMAP (before 4.12), or the file system runs in user space.
            Err(Errno::NOTTY | Errno::OPNOTSUPP) => {}
            done => return done.map(Estimate::Extents),
        }
    }
    let bound = unused(kind, file.as_fd(), devices)?;
    let within = if kind == Kind::Btrfs { bound } else { bound.min(span.bytes()) };
    Ok(Estimate::Bound(within))
}

/// The shortest extent that FITRIM sends for a minimum of `asked`: at least the device's granularity, in whole
/// clusters. ext4 rounds down to blocks, then up to clusters (`ext4_trim_fs`), XFS up (`xfs_ioc_trim`).
pub(crate) fn least_extent(
    kind: Kind,
    layout: Option<&Layout>,
    devices: &[BlockDevice],
    asked: Bytes,
) -> Bytes {
    let granularity = devices.iter().map(|device| device.limits.granularity).max().unwrap_or_default();
    let least = asked.max(granularity).0;
    let Some(layout) = layout else { return Bytes(least) };
    let block = layout.block.0.max(1);
    let whole = match kind {
        Kind::Xfs => least.div_ceil(block).saturating_mul(block),
        _ => (least / block * block).div_ceil(layout.cluster.0.max(1)).saturating_mul(layout.cluster.0),
    };
    Bytes(whole.max(layout.cluster.0))
}

fn free_extents(
    file: BorrowedFd<'_>,
    kind: Kind,
    layout: &Layout,
    device: &BlockDevice,
    span: Span,
    least: Bytes,
) -> Result<Extents, Errno> {
    let mut sum = Sum::new(kind, layout, device, span, least);
    FsmapQuery::new().find(file, |record| {
        if record.is_free() && is_on(record, device) {
            sum.add(record.physical, record.length);
        }
        None::<()>
    })?;
    Ok(sum.finish())
}

/// A part of a map of free space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Free extents, ascending and disjoint.
    pub free: Vec<Span>,
    /// Start of the part, in bytes: the requested address, or a little after it.
    pub from: u64,
    /// End of the part, in bytes: the file system's end if everything after `from` is listed.
    pub upto: u64,
}

/// Lists the first `most` free extents of at least `least` from an address on.
///
/// Extents that continue in the next group are joined. FITRIM works group by group and leaves out a piece at the end of
/// such an extent that is shorter than `least` by itself. That piece counts as sent though it is not, at most once per
/// boundary.
///
/// Some kernels leave out an extent that begins before the address and continues after it; ext4 also leaves out its own
/// structures at the start of a group. The map then begins after that.
pub fn list(
    kind: Kind,
    layout: &Layout,
    file: &File,
    device: &BlockDevice,
    least: Bytes,
    from: u64,
    most: usize,
) -> Result<Listed, Errno> {
    let least = least_extent(kind, Some(layout), std::slice::from_ref(device), least);
    let mut listing = Listing::new(least, from, most);
    let mut query = FsmapQuery::new();
    if from > 0 {
        // The key needs the kernel's number for the device, which every record contains.
        let number = |record: &Fsmap| is_on(record, device).then_some(record.device);
        match query.find(file.as_fd(), number)? {
            Some(number) => query = FsmapQuery::from(number, from),
            None => return Ok(listing.finish(layout.end.0)),
        }
    }
    query.find(file.as_fd(), |record| {
        if is_on(record, device) {
            let end = record.physical.saturating_add(record.length);
            listing.add(record.physical, end, record.is_free());
        }
        listing.is_full.then_some(())
    })?;
    Ok(listing.finish(layout.end.0))
}

struct Listing {
    least: u64,
    asked_from: u64,
    most: usize,
    from: Option<u64>,
    /// The extent that the next record may continue.
    open: Option<Span>,
    free: Vec<Span>,
    is_full: bool,
}

impl Listing {
    fn new(least: Bytes, from: u64, most: usize) -> Self {
        let (least, asked_from) = (least.0, from);
        Self { least, asked_from, most, from: None, open: None, free: Vec::new(), is_full: false }
    }

    fn add(&mut self, start: u64, end: u64, is_free: bool) {
        let start = start.max(self.asked_from);
        self.from.get_or_insert(start);
        if !is_free || start >= end {
            return;
        }
        match &mut self.open {
            Some(span) if span.end == start => span.end = end,
            _ => {
                self.close();
                self.open = Some(Span { start, end });
            }
        }
    }

    fn close(&mut self) {
        let Some(span) = self.open.take().filter(|span| span.bytes().0 >= self.least) else { return };
        if self.free.len() < self.most {
            self.free.push(span);
        } else {
            self.is_full = true;
        }
    }

    fn finish(mut self, end: u64) -> Listed {
        self.close();
        let end = end.max(self.free.last().map_or(0, |last| last.end));
        let from = self.from.unwrap_or(end).max(self.asked_from);
        let upto = if self.is_full { self.free.last().map_or(from, |last| last.end) } else { end.max(from) };
        Listed { free: self.free, from, upto }
    }
}

/// Returns true if a record belongs to this device, not to a separate log or realtime device. Device numbers are
/// encoded like the kernel's `new_encode_dev`; later kernels may use the file system's own small numbers, from 0.
fn is_on(record: &Fsmap, device: &BlockDevice) -> bool {
    let (major, minor) = device.numbers;
    record.device == (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12) || record.device <= 1
}

/// Sums up free extents as FITRIM would see them.
struct Sum<'a> {
    kind: Kind,
    layout: &'a Layout,
    limits: DiscardLimits,
    /// Start of the file system on its disk, in bytes.
    start: u64,
    span: Span,
    least: Bytes,
    /// The extent that the next record may continue.
    open: Option<(u64, u64)>,
    extents: Extents,
}

impl<'a> Sum<'a> {
    fn new(kind: Kind, layout: &'a Layout, device: &BlockDevice, span: Span, least: Bytes) -> Self {
        let (limits, start) = (device.limits, device.start.0);
        Self { kind, layout, limits, start, span, least, open: None, extents: Extents::default() }
    }

    fn add(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        match &mut self.open {
            Some((_, open_end)) if *open_end == start => *open_end = end,
            _ => {
                self.close();
                self.open = Some((start, end));
            }
        }
    }

    /// Splits the open extent at groups, as FITRIM works group by group, and clips it to the span. Since Linux 6.8
    /// and stable kernels of early 2024, ext4 sends an extent that crosses the end of the span up to the end of its
    /// group (`ext4_try_to_trim_range`, commit 68da4c44b994).
    fn close(&mut self) {
        let Some((start, end)) = self.open.take() else { return };
        let (mut at, last) = (start.max(self.span.start), end.min(self.span.end));
        let end = if self.kind == Kind::Ext4 { end } else { last };
        while at < last {
            let piece_end = self.layout.group_end(at).min(end).max(at + 1);
            let bytes = piece_end - at;
            if bytes >= self.least.0 {
                self.extents.count += 1;
                self.extents.bytes.0 += bytes;
                self.extents.commands_max += commands(self.limits, self.start.saturating_add(at), bytes);
            } else {
                self.extents.too_short += 1;
                self.extents.too_short_bytes.0 += bytes;
            }
            at = piece_end;
        }
    }

    fn finish(mut self) -> Extents {
        self.close();
        self.extents
    }
}

/// Returns an upper bound on the commands for a discard of `bytes` at `start` of the disk, split as the block layer
/// does. If the start is not aligned to the granularity, a first command goes up to the next multiple
/// (`bio_discard_limit` in block/blk-lib.c). Each further command is as large as one bio and one command may be, in
/// multiples of the granularity (`bio_split_discard` in block/blk-merge.c). A rest that was not split is merged with
/// the first one again if both fit into a command (`ll_back_merge_fn`).
pub fn commands(limits: DiscardLimits, start: u64, bytes: u64) -> u64 {
    let granularity = limits.granularity.0.max(512);
    let multiple = |n: u64| (n / granularity * granularity).max(granularity);
    let bio = multiple(u64::from(u32::MAX));
    let command = multiple(limits.max.0).min(bio);
    let head = (granularity - start % granularity) % granularity;
    if head >= bytes {
        return u64::from(bytes > 0);
    }
    let rest = bytes - head;
    if head > 0 && limits.merges && rest <= command && bytes <= limits.max.0.min(u64::from(u32::MAX)) {
        return 1;
    }
    // Each bio is split separately, so its last command may be shorter.
    u64::from(head > 0) + (rest / bio) * bio.div_ceil(command) + (rest % bio).div_ceil(command)
}

/// Returns the devices' size less the space that the file system reports as in use. `statfs`'s free blocks would be too
/// few: file systems reserve space that FITRIM trims anyway (btrfs: 1,022.6 MiB discarded where 1,018.2 MiB were free).
fn unused(kind: Kind, file: BorrowedFd<'_>, devices: &[BlockDevice]) -> Result<Bytes, Errno> {
    let held = devices.iter().fold(0, |sum: u64, device| sum.saturating_add(device.size.0));
    // Without what a btrfs does not use of its devices.
    let of_btrfs = (kind == Kind::Btrfs).then(|| btrfs::held(file).ok()).flatten();
    let held = of_btrfs.map_or(held, |of_btrfs| of_btrfs.min(held));
    let used = match devices.first().filter(|_| kind == Kind::Btrfs).and_then(btrfs_used) {
        Some(used) => used,
        None if kind == Kind::Btrfs => 0,
        None => {
            let found = fstatvfs(file)?;
            found.f_blocks.saturating_sub(found.f_bfree).saturating_mul(found.f_frsize)
        }
    };
    Ok(Bytes(held.saturating_sub(used)))
}

/// Returns the bytes that a btrfs has in use on its devices, counting all copies: `allocation/*/disk_used` in sysfs.
fn btrfs_used(device: &BlockDevice) -> Option<u64> {
    let allocation = btrfs_directory(device)?.join("allocation");
    let used = |kind: &str| number_in(&Path::new(&allocation).join(kind).join("disk_used")).ok();
    // A file system with mixed groups has `mixed` in place of `data` and `metadata`.
    let of_kinds = ["data", "metadata", "mixed", "system"].into_iter().filter_map(used);
    Some(of_kinds.fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::block_device::SysBlock;

    fn limits(granularity: u64, max: u64) -> DiscardLimits {
        DiscardLimits { granularity: Bytes(granularity), max: Bytes(max), ranges: 1, merges: false }
    }

    fn device(granularity: u64, start: u64) -> BlockDevice {
        BlockDevice {
            name: "sdx1".into(),
            numbers: (8, 17),
            sysfs: SysBlock("/sys/none".into()),
            size: Bytes::gib(1),
            start: Bytes(start),
            limits: limits(granularity, 2 << 30),
        }
    }

    fn layout() -> Layout {
        Layout {
            block: Bytes(4096),
            cluster: Bytes(4096),
            group: Bytes::mib(128),
            first_group: Bytes(0),
            end: Bytes::gib(1),
            assumed: false,
            realtime: Bytes(0),
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn extents_are_split_at_groups_and_clipped_to_the_span() {
        let (layout, device) = (layout(), device(4096, 0));
        let sum_of = |kind, start, end| {
            let mut sum = Sum::new(kind, &layout, &device, Span { start, end }, Bytes(8192));
            sum.add(MIB, MIB); // two records of one extent
            sum.add(2 * MIB, MIB);
            sum.add(4 * MIB, 4096);
            sum.add(100 * MIB, 200 * MIB); // over two boundaries
            sum.finish()
        };
        let sum = |start, end| sum_of(Kind::Xfs, start, end);
        let whole = sum(0, 1 << 30);
        assert_eq!((whole.count, whole.bytes, whole.commands_max), (4, Bytes::mib(202), 4));
        assert_eq!((whole.too_short, whole.too_short_bytes), (1, Bytes(4096)));
        let cut = sum(2 * MIB, 130 * MIB);
        assert_eq!((cut.count, cut.bytes), (3, Bytes::mib(1 + 28 + 2)));
        let to_the_end_of_its_group = sum_of(Kind::Ext4, 2 * MIB, 130 * MIB);
        assert_eq!(
            (to_the_end_of_its_group.count, to_the_end_of_its_group.bytes),
            (3, Bytes::mib(1 + 28 + 128))
        );
        assert_eq!(sum(MIB + 4096, MIB + 8192).too_short, 1);
        assert_eq!(sum(300 * MIB, 400 * MIB), Extents::default());
    }

    fn listed(
        least: u64,
        from: u64,
        most: usize,
        records: &[(u64, u64, bool)],
    ) -> (Vec<(u64, u64)>, u64, u64) {
        let mut listing = Listing::new(Bytes(least), from, most);
        for &(start, end, is_free) in records {
            if listing.is_full {
                break;
            }
            listing.add(start, end, is_free);
        }
        let Listed { free, from, upto } = listing.finish(1000);
        (free.iter().map(|span| (span.start, span.end)).collect(), from, upto)
    }

    #[test]
    fn extents_across_a_boundary_are_joined_and_the_list_ends_when_full() {
        // One extent in three groups, one that is too short, and two more.
        let records = [
            (0, 100, false),
            (100, 128, true),
            (128, 256, true),
            (256, 300, true),
            (300, 400, false),
            (400, 405, true),
            (405, 500, false),
            (500, 520, true),
            (520, 900, false),
            (900, 1000, true),
        ];
        let all = vec![(100, 300), (500, 520), (900, 1000)];
        assert_eq!(listed(10, 0, 3, &records), (all.clone(), 0, 1000));
        assert_eq!(listed(10, 0, 1, &records), (all[..1].to_vec(), 0, 300));
        assert_eq!(listed(10, 0, 2, &records), (all[..2].to_vec(), 0, 520));
        assert_eq!(listed(10, 0, 0, &records), (Vec::new(), 0, 0));
        // From the middle: the kernel begins with the record there.
        assert_eq!(listed(10, 300, 1, &records[4..]), (all[1..2].to_vec(), 300, 520));
        assert_eq!(listed(10, 520, 9, &records[8..]), (all[2..].to_vec(), 520, 1000));
        // In the middle of a free extent: clipped, or left out by the kernel.
        assert_eq!(listed(10, 200, 9, &records[2..4]), (vec![(200, 300)], 200, 1000));
        assert_eq!(listed(10, 200, 9, &records[4..]), (all[1..].to_vec(), 300, 1000));
        assert_eq!(listed(10, 2000, 9, &[]), (Vec::new(), 2000, 2000));
    }

    #[test]
    fn commands_are_split_where_the_block_layer_splits_them() {
        assert_eq!(commands(limits(4096, MIB), 0, MIB), 1);
        assert_eq!(commands(limits(4096, MIB), 0, MIB + 4096), 2);
        // 512 bytes up to the granularity, then the rest.
        assert_eq!(commands(limits(4096, MIB), 4096 - 512, MIB), 2);
        assert_eq!(commands(limits(4096, MIB), 512, 512), 1);
        // The two are merged if they fit into one command.
        let merging = DiscardLimits { merges: true, ..limits(4096, MIB) };
        assert_eq!((commands(merging, 512, MIB), commands(merging, 512, MIB + 512)), (1, 2));
        // A maximum that is not a multiple of the granularity: 4,294,966,784 bytes of a loop device.
        assert_eq!(commands(limits(4096, 4_294_966_784), 0, 4 << 30), 2);
        assert_eq!(commands(limits(0, 0), 0, 1024), 2);
        assert_eq!(commands(limits(4096, MIB), 0, 0), 0);
    }

    #[test]
    fn the_least_extent_is_the_granularity_in_whole_clusters() {
        let layout = layout();
        let least = |kind, granularity, asked| {
            least_extent(kind, Some(&layout), &[device(granularity, 0)], Bytes(asked)).0
        };
        assert_eq!(least(Kind::Ext4, 512, 0), 4096);
        assert_eq!(least(Kind::Ext4, 65_536, 4096), 65_536);
        assert_eq!((least(Kind::Ext4, 512, 10_000), least(Kind::Xfs, 512, 10_000)), (8192, 12_288));
        let bigalloc = Layout { cluster: Bytes(65_536), ..layout };
        assert_eq!(least_extent(Kind::Ext4, Some(&bigalloc), &[device(512, 0)], Bytes(70_000)).0, 131_072);
        assert_eq!(least_extent(Kind::Btrfs, None, &[device(512, 0)], Bytes(10_000)).0, 10_000);
    }

    proptest! {
        /// Compares the count with a walk over the bytes as in the block layer.
        #[test]
        fn the_count_of_commands_matches_a_walk(
            granularity in prop::sample::select(vec![512u64, 4096, 65_536]),
            max in (1u64 << 17)..(1 << 33),
            start in 0u64..(1 << 24),
            sectors in 0u64..(1 << 25),
        ) {
            let (start, bytes, max) = (start * 512, sectors * 512, max / 512 * 512);
            let (mut at, end, mut walked) = (start, start + bytes, 0);
            while at < end {
                let aligned = at.next_multiple_of(granularity);
                let bio = if aligned == at { u64::from(u32::MAX) / granularity * granularity } else { aligned - at };
                let bio_end = (at + bio).min(end);
                while at < bio_end {
                    let most = (max.min(u64::from(u32::MAX)) / granularity * granularity).max(512);
                    at = (at + most).min(bio_end);
                    walked += 1;
                }
            }
            prop_assert_eq!(commands(limits(granularity, max), start, bytes), walked);
        }

        #[test]
        fn a_sum_is_never_more_than_the_span(
            records in prop::collection::vec((any::<u64>(), 0u64..(1 << 31)), 0..20),
            start in 0u64..(1 << 31), length in 0u64..(1 << 31),
        ) {
            let (layout, device) = (layout(), device(4096, 0));
            let mut sorted = records;
            sorted.sort_unstable();
            sorted.dedup_by(|later, earlier| later.0 < earlier.0.saturating_add(earlier.1));
            let mut sum = Sum::new(Kind::Xfs, &layout, &device, Span { start, end: start + length }, Bytes(0));
            sorted.iter().for_each(|&(at, bytes)| sum.add(at, bytes));
            prop_assert!(sum.finish().bytes.0 <= length);
        }
    }
}
