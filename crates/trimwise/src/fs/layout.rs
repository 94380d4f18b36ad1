//! Layout of an ext4 file system's metadata.
//!
//! With `flex_bg` the bitmaps and inode tables of 16 block groups lie together in the first of them, and the journal
//! lies in the middle of the device. Everything else is free for data and directories.

use thiserror::Error;

use super::alloc::{Allocator, GROUP_UNITS, group_of};
use crate::units::{Bytes, Lpn, UnitRange};

/// Number of groups whose metadata lie together (mke2fs: `flex_bg_size`).
pub(super) const FLEX_GROUPS: u64 = 16;
/// Inodes per group: one for each 16 KiB (mke2fs: `inode_ratio`).
pub(super) const INODES_PER_GROUP: u64 = 8_192;
/// Inodes per block of the inode table: 256 bytes each.
pub(super) const INODES_PER_BLOCK: u64 = 16;
const TABLE_BLOCKS: u64 = INODES_PER_GROUP / INODES_PER_BLOCK;
/// Minimum journal size of the model, in blocks (jbd2 itself needs 1,024).
const JOURNAL_UNITS_MIN: u64 = 256;
pub(crate) const FIRST_INODE: u32 = 12;
pub const ROOT_INODE: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Size of the journal; `None` applies mke2fs's own rule.
    pub journal: Option<Bytes>,
    /// mkfs discards the whole device first (mke2fs does by default since 1.41.10).
    pub discard: bool,
    pub tool: Mke2fs,
}

/// Generations of mke2fs, by their rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mke2fs {
    /// 1.41: journals of 128 MiB at most; inode tables stay unwritten until they are used.
    Old,
    /// 1.43 and later: journals of up to 1 GiB, and room for the descriptors to grow. Inode tables are zeroed, by
    /// mke2fs or by the kernel soon after the first mount (`lazy_itable_init`).
    Today,
}

impl FormatOptions {
    /// The defaults of mke2fs today.
    pub const TODAY: Self = Self { journal: None, discard: true, tool: Mke2fs::Today };
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self { journal: None, discard: true, tool: Mke2fs::Old }
    }
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "a file system with a {journal} journal does not fit on a device of {device}; at least {least} are needed"
)]
pub struct FormatError {
    pub device: Bytes,
    pub journal: Bytes,
    pub least: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    total_units: u64,
    tool: Mke2fs,
    pub journal: UnitRange,
}

impl Layout {
    pub fn plan(total_units: u64, options: FormatOptions) -> Result<Self, FormatError> {
        let journal_units =
            options.journal.map_or_else(|| options.tool.journal_units(total_units), Bytes::units_floor);
        let least = journal_units.max(JOURNAL_UNITS_MIN) * 4 + FLEX_GROUPS * (TABLE_BLOCKS + 2) + 64;
        let error = FormatError {
            device: Bytes::from_units(total_units),
            journal: Bytes::from_units(journal_units),
            least: Bytes::from_units(least),
        };
        if total_units < least || journal_units < JOURNAL_UNITS_MIN {
            return Err(error);
        }
        // mke2fs leaves out a last group that has no room for the metadata it would hold.
        let (groups, rest) = (total_units.div_ceil(GROUP_UNITS), total_units % GROUP_UNITS);
        let heads_a_flex = (groups - 1).is_multiple_of(FLEX_GROUPS) && groups > 1;
        let is_too_small = rest > 0 && heads_a_flex && rest < 2 * FLEX_GROUPS + TABLE_BLOCKS + 50;
        let total_units = if is_too_small { total_units - rest } else { total_units };
        let mut layout =
            Self { total_units, tool: options.tool, journal: UnitRange::new(Lpn(0), journal_units) };
        layout.journal.start = layout.journal_start(journal_units);
        let journal = layout.journal;
        if layout.metadata().iter().any(|m| m.start < journal.end() && journal.start < m.end()) {
            return Err(error);
        }
        Ok(layout)
    }

    /// Returns the start of the journal: in the middle, after the metadata of that group.
    fn journal_start(&self, journal_units: u64) -> Lpn {
        let groups = self.groups();
        let group = match self.tool {
            Mke2fs::Old => groups / 2 / FLEX_GROUPS * FLEX_GROUPS + FLEX_GROUPS.min(groups) / 2,
            // The emptiest of two or three (`get_midpoint_journal_block`).
            Mke2fs::Today => {
                let middle = self.total_units / 2 / GROUP_UNITS;
                let first = if middle > FLEX_GROUPS {
                    middle / FLEX_GROUPS * FLEX_GROUPS
                } else {
                    middle.saturating_sub(1)
                };
                let last = if middle > FLEX_GROUPS { first + 1 } else { middle + 1 }.min(groups - 1);
                let taken = |group: u64| {
                    let (from, to) = (group * GROUP_UNITS, (group + 1) * GROUP_UNITS);
                    let beyond = to.saturating_sub(self.total_units);
                    let metadata = self.metadata().into_iter();
                    let inside = |m: UnitRange| m.end().0.min(to).saturating_sub(m.start.0.max(from));
                    beyond + metadata.map(inside).sum::<u64>()
                };
                (first..=last).min_by_key(|&group| taken(group)).unwrap_or(first)
            }
        };
        // Place it after any metadata in its way; mke2fs would cut it in two there.
        let mut metadata = self.metadata();
        metadata.sort_unstable_by_key(|range| range.start);
        let first_fit = |from: u64| {
            let overlaps = |start: u64, range: &UnitRange| {
                range.start.0 < start + journal_units && start < range.end().0
            };
            metadata
                .iter()
                .fold(from, |start, range| if overlaps(start, range) { range.end().0 } else { start })
        };
        let start = first_fit(group.min(groups - 1) * GROUP_UNITS);
        let is_inside = start + journal_units <= self.total_units;
        Lpn(if is_inside {
            start
        } else {
            first_fit(self.metadata_end(0)).min(self.total_units - journal_units)
        })
    }

    pub fn total_units(&self) -> u64 {
        self.total_units
    }

    pub fn inodes(&self) -> u64 {
        self.groups() * INODES_PER_GROUP
    }

    pub fn superblock(&self) -> Lpn {
        Lpn(0)
    }

    pub(crate) fn descriptor(&self, group: u64) -> Lpn {
        Lpn(1 + group / self.tool.descriptors_per_block())
    }

    pub fn block_bitmap(&self, group: u64) -> Lpn {
        Lpn(self.flex_start(group) + group % FLEX_GROUPS)
    }

    /// Returns the metadata blocks that change when this block is allocated or freed.
    pub(super) fn group_metadata(&self, block: Lpn) -> [Lpn; 2] {
        let group = group_of(block.0);
        [self.block_bitmap(group), self.descriptor(group)]
    }

    pub(crate) fn inode_bitmap(&self, group: u64) -> Lpn {
        Lpn(self.flex_start(group) + FLEX_GROUPS + group % FLEX_GROUPS)
    }

    pub(crate) fn inode_group(&self, inode: u32) -> u64 {
        u64::from(inode) / INODES_PER_GROUP
    }

    pub(crate) fn inode_block(&self, inode: u32) -> Lpn {
        let group = self.inode_group(inode);
        let table = self.flex_start(group) + 2 * FLEX_GROUPS + group % FLEX_GROUPS * TABLE_BLOCKS;
        Lpn(table + u64::from(inode) % INODES_PER_GROUP / INODES_PER_BLOCK)
    }

    /// Returns the blocks of the inode table that Linux reads together with an inode's: 32, at a multiple of 32 on the
    /// device (`inode_readahead_blks`).
    pub(super) fn inodes_read_with(&self, inode: u32) -> UnitRange {
        const READ_AHEAD: u64 = 32;
        let group_first = (self.inode_group(inode) * INODES_PER_GROUP) as u32;
        let table = self.inode_block(group_first).0;
        let first = self.inode_block(inode).0 / READ_AHEAD * READ_AHEAD;
        let (from, to) = (first.max(table), (first + READ_AHEAD).min(table + TABLE_BLOCKS));
        UnitRange::new(Lpn(from), to - from)
    }

    /// Returns the block at which allocation for a file without blocks starts: the second group of its inode's flex
    /// group (`ext4_inode_to_goal_block`).
    pub(crate) fn file_goal(&self, inode: u32) -> Lpn {
        let group = self.inode_group(inode) / FLEX_GROUPS * FLEX_GROUPS + 1;
        Lpn(group * GROUP_UNITS)
    }

    /// Returns the block at which allocation for a directory starts: the first group of its inode's flex group.
    pub(crate) fn directory_goal(&self, inode: u32) -> Lpn {
        Lpn(self.inode_group(inode) / FLEX_GROUPS * FLEX_GROUPS * GROUP_UNITS)
    }

    /// Returns the inodes in a block of the inode table; `None` if the block is not part of it.
    pub(crate) fn inodes_in(&self, block: Lpn) -> Option<std::ops::Range<u32>> {
        (0..self.groups()).find_map(|group| {
            let first = (group * INODES_PER_GROUP) as u32;
            let index =
                block.0.checked_sub(self.inode_block(first).0).filter(|&index| index < TABLE_BLOCKS)?;
            let from = first + (index * INODES_PER_BLOCK) as u32;
            Some(from..from + INODES_PER_BLOCK as u32)
        })
    }

    /// Returns all blocks that mkfs reserves for metadata, without the journal.
    pub fn metadata(&self) -> Vec<UnitRange> {
        let flexes = self.flexes();
        let range = |flex: u64| {
            let start = flex * GROUP_UNITS;
            UnitRange::new(Lpn(start), self.metadata_end(flex).min(self.total_units) - start)
        };
        flexes.map(range).chain(self.backups()).collect()
    }

    /// Returns the blocks of the copies of superblock and descriptors, including room for the descriptors to grow. They
    /// are in groups whose number is a power of 3, 5 or 7 (`sparse_super`), except group 0.
    fn backups(&self) -> impl Iterator<Item = UnitRange> + '_ {
        let powers = |base: u64| std::iter::successors(Some(base), move |power| Some(power * base));
        let groups = self.groups();
        let of_base = move |base| powers(base).take_while(move |&group| group < groups);
        let all = (groups > 1).then_some(1).into_iter().chain([3, 5, 7].into_iter().flat_map(of_base));
        let units = match self.tool {
            Mke2fs::Old => 0,
            Mke2fs::Today => self.head_units(),
        };
        let range = move |group| UnitRange::new(Lpn(group * GROUP_UNITS), units);
        all.map(range).filter(|range| range.units > 0 && range.end().0 <= self.total_units)
    }

    /// Returns what mke2fs writes of superblocks and descriptors besides [`Layout::initial_blocks`]: the room to grow in the
    /// first group, and the copies.
    pub(crate) fn written_heads(&self) -> impl Iterator<Item = UnitRange> + '_ {
        let written = 1 + self.groups().div_ceil(self.tool.descriptors_per_block());
        let copy = move |range: UnitRange| UnitRange { units: range.units.min(written), ..range };
        std::iter::once(UnitRange::new(Lpn(0), self.head_units())).chain(self.backups().map(copy))
    }

    /// Returns the number of blocks that the copies keep for more descriptors, and nobody writes.
    pub(crate) fn unwritten_units(&self) -> u64 {
        let units =
            |ranges: &mut dyn Iterator<Item = UnitRange>| ranges.map(|range| range.units).sum::<u64>();
        units(&mut self.backups()) - units(&mut self.written_heads().skip(1))
    }

    /// Returns the number of blocks of the superblock, the descriptors, and the room for these to grow.
    fn head_units(&self) -> u64 {
        let groups = self.groups();
        let descriptors = groups.div_ceil(self.tool.descriptors_per_block());
        1 + descriptors + self.tool.growth_units(self.total_units, descriptors)
    }

    /// Returns an allocator with everything free except metadata and journal.
    pub fn allocator(&self) -> Allocator {
        let mut allocator = Allocator::new(self.total_units);
        allocator.release(UnitRange::new(Lpn(0), self.total_units));
        for range in self.metadata() {
            allocator.take_exact(range);
        }
        allocator.take_exact(self.journal);
        allocator
    }

    /// Returns the blocks of the inode tables, zeroed by mke2fs or soon after the first mount.
    pub(crate) fn inode_tables(&self) -> Vec<UnitRange> {
        let flexes = self.flexes();
        let range = |flex: u64| {
            let start = self.flex_start(flex) + 2 * FLEX_GROUPS;
            UnitRange::new(Lpn(start), self.metadata_end(flex) - start)
        };
        flexes.map(range).collect()
    }

    /// Returns the small metadata blocks that mkfs writes: superblock, descriptors, bitmaps.
    pub fn initial_blocks(&self) -> Vec<UnitRange> {
        let groups = self.groups();
        let mut ranges = vec![UnitRange::new(Lpn(0), 1 + groups.div_ceil(self.tool.descriptors_per_block()))];
        for flex in self.flexes() {
            ranges.push(UnitRange::new(Lpn(self.flex_start(flex)), 2 * FLEX_GROUPS));
        }
        ranges
    }

    fn groups(&self) -> u64 {
        self.total_units.div_ceil(GROUP_UNITS)
    }

    fn flexes(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.groups()).step_by(FLEX_GROUPS as usize)
    }

    fn flex_start(&self, group: u64) -> u64 {
        let first = group / FLEX_GROUPS * FLEX_GROUPS;
        if first == 0 { self.head_units() } else { first * GROUP_UNITS }
    }

    fn metadata_end(&self, flex: u64) -> u64 {
        let groups = self.groups();
        let members = FLEX_GROUPS.min(groups - flex);
        self.flex_start(flex) + 2 * FLEX_GROUPS + members * TABLE_BLOCKS
    }
}

impl Mke2fs {
    fn descriptors_per_block(self) -> u64 {
        match self {
            Self::Old => 128,
            Self::Today => 64,
        }
    }

    /// Returns the blocks reserved for more descriptors, until the file system is a thousand times as large
    /// (`resize_inode`; e2fsprogs, `calc_reserved_gdt_blocks`).
    fn growth_units(self, total_units: u64, descriptor_units: u64) -> u64 {
        if self == Self::Old {
            return 0;
        }
        let groups = (total_units * 1_024).min(u64::from(u32::MAX)).div_ceil(GROUP_UNITS);
        (groups.div_ceil(self.descriptors_per_block()) - descriptor_units).min(1_024)
    }

    /// Returns the size of the journal of a file system with this many blocks (e2fsprogs,
    /// `ext2fs_default_journal_size`).
    fn journal_units(self, total_units: u64) -> u64 {
        let units = match total_units {
            0..32_768 => 1_024,
            32_768..262_144 => 4_096,
            262_144..524_288 => 8_192,
            524_288..1_048_576 => 16_384,
            1_048_576..4_194_304 if self == Self::Today => 16_384,
            1_048_576..8_388_608 => 32_768,
            8_388_608..16_777_216 => 65_536,
            16_777_216..33_554_432 => 131_072,
            _ => 262_144,
        };
        match self {
            Self::Old => units.min(32_768),
            Self::Today => units,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::UNIT_BYTES;

    #[test]
    fn fixed_places_do_not_overlap_and_are_not_free() {
        for gib in [1, 8, 60] {
            let units = Bytes::gib(gib).units_floor() - 777;
            let layout = Layout::plan(units, FormatOptions::default()).unwrap();
            let allocator = layout.allocator(); // panics if journal and metadata overlap
            let groups = units.div_ceil(GROUP_UNITS);
            for group in 0..groups {
                for block in
                    [layout.descriptor(group), layout.block_bitmap(group), layout.inode_bitmap(group)]
                {
                    assert_eq!(allocator.free_at(block.0), 0);
                }
            }
            let last = u32::try_from(layout.inodes() - 1).unwrap();
            assert_eq!(allocator.free_at(layout.inode_block(last).0), 0);
            assert!(allocator.free_units() > units * 9 / 10 - layout.journal.units);
        }
    }

    #[test]
    fn regression_metadata_of_a_last_small_group_would_lie_outside_the_device() {
        let whole = 16 * GROUP_UNITS;
        for (units, expected) in [(1, 0), (593, 0), (594, 594), (20_000, 20_000)] {
            let layout = Layout::plan(whole + units, FormatOptions::default()).unwrap();
            assert_eq!(layout.total_units(), whole + expected);
            let last = layout.initial_blocks().into_iter().map(UnitRange::end).max().unwrap();
            assert!(last.0 <= layout.total_units());
            let inode = u32::try_from(layout.inodes() - 1).unwrap();
            assert!(layout.inode_block(inode).0 < layout.total_units());
            layout.allocator();
        }
    }

    /// Places found with debugfs after mke2fs 1.47 on empty files of these sizes.
    #[test]
    fn the_journal_is_where_mke2fs_puts_it() {
        for (gib, start) in [(4, 491_520), (8, 1_081_344), (20, 2_655_236)] {
            let layout = Layout::plan(Bytes::gib(gib).units_floor(), FormatOptions::TODAY).unwrap();
            assert_eq!(layout.journal.start.0, start, "{gib} GiB");
        }
    }

    #[test]
    fn journals_of_today_never_run_into_metadata() {
        for gib in (1..300).step_by(7) {
            Layout::plan(Bytes::gib(gib).units_floor(), FormatOptions::TODAY).unwrap().allocator();
        }
    }

    #[test]
    fn regression_a_journal_that_would_run_into_metadata_lies_elsewhere() {
        for journal in [Bytes::gib(1), Bytes(Bytes::gib(1).0 + UNIT_BYTES)] {
            let options = FormatOptions { journal: Some(journal), ..FormatOptions::default() };
            Layout::plan(40 * GROUP_UNITS, options).unwrap().allocator(); // panics if they overlap
        }
    }

    #[test]
    fn a_device_that_is_too_small_is_refused() {
        let error = Layout::plan(2_000, FormatOptions::default()).unwrap_err();
        assert!(error.to_string().contains("does not fit"), "{error}");
    }
}
