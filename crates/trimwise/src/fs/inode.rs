//! Inodes: a file's size, its extents and its pages in memory.

use super::cache::ChunkTable;
use super::mballoc::FileShape;
use crate::units::{Lpn, SimTime, UNIT_BYTES, UnitRange};

/// A run of a file's pages in a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    pub page: u64,
    pub blocks: UnitRange,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    pub in_use: bool,
    /// Number of files that had this slot before; it distinguishes an open file that was removed from its successor.
    pub generation: u32,
    pub size_bytes: u64,
    /// Extents in the order of the file's pages, merged where they continue each other.
    pub extents: Vec<FileExtent>,
    /// Runs of pages (first page and count) whose blocks do not yet hold their data, where the file system records
    /// that.
    pub unwritten: Vec<(u64, u64)>,
    /// Blocks of the extent tree, in order, for extents that do not fit into the inode.
    pub tree: Vec<Lpn>,
    pub chunks: ChunkTable,
    pub dirty_pages: u64,
    pub writers: u32,
    pub writeback_pages: u64,
    /// Requests in flight that read this file, or write it past the page cache.
    pub reads: u64,
    /// Number of holes being punched, and of those punched before.
    pub punching: u32,
    pub punches: u64,
    /// Number of dirty pages that have no block yet (delayed allocation).
    pub reserved_pages: u64,
    /// Key among the dirty files: the time at which the file became dirty, and a sequence number.
    pub dirty_key: Option<(SimTime, u64)>,
    pub transaction: u64,
    /// The transaction that holds the latest change without which its data cannot be read (`i_datasync_tid`).
    pub data_transaction: u64,
    pub name_transaction: u64,
    pub modified: Option<SimTime>,
    /// The access time is younger than the last change, so a read need not update it (relatime).
    pub accessed_since_change: bool,
    /// Page at which write-back continues in a large file.
    pub writeback_cursor: u64,
}

impl Inode {
    /// Notes that the length or the blocks of the file were changed in a transaction.
    pub fn note_data_change(&mut self, tid: u64) {
        (self.transaction, self.data_transaction) = (tid, tid);
    }

    pub(crate) fn mapped_end(&self) -> u64 {
        self.extents.last().map_or(0, |e| e.page + e.blocks.units)
    }

    /// Returns the properties that mballoc considers when it allocates blocks from `page` on.
    pub(super) fn shape(&self, inode: u32, page: u64) -> FileShape {
        let index = self.extents.partition_point(|e| e.page <= page);
        let left = index.checked_sub(1).map(|i| &self.extents[i]);
        let right = self.extents.get(index);
        FileShape {
            inode,
            page,
            size_pages: self.size_bytes.div_ceil(UNIT_BYTES),
            is_open: self.writers > 0,
            left: left.map(|e| (e.page + e.blocks.units, e.blocks.end().0)),
            right: right.map(|e| (e.page, e.blocks.start.0)),
        }
    }

    /// Returns the block at which ext4 starts to look for a page's block: as far from its neighbour on the disk as it
    /// is in the file (`ext4_ext_find_goal`); `None` if the file has no block yet.
    pub(super) fn near(&self, page: u64) -> Option<Lpn> {
        let index = self.extents.partition_point(|e| e.page <= page);
        let neighbour = self.extents.get(index.saturating_sub(1))?;
        Some(if page > neighbour.page {
            neighbour.blocks.start.offset(page - neighbour.page)
        } else {
            Lpn(neighbour.blocks.start.0.saturating_sub(neighbour.page - page))
        })
    }

    /// Returns the block after the file's last, where growth would be contiguous.
    pub fn goal(&self) -> Option<Lpn> {
        self.extents.last().map(|e| e.blocks.end())
    }

    /// Returns the place for page `page`, which follows (or precedes) a hole: as far from its neighbour on the disk as
    /// it is in the file. `None` means the goal of stream allocation.
    ///
    /// So a hole in the file leaves a gap on the disk, which is how `lseek` fragments a file. In ext4 this has two
    /// causes. `ext4_ext_find_goal` asks for the neighbour's block plus the distance in pages. For a file under stream
    /// allocation, which ignores that goal, `ext4_mb_normalize_request` has the same effect: it reserves a whole
    /// aligned window of the file and puts each page at its place in it. Windows without data are never reserved and
    /// leave no gap. (Measured on Linux 6.18: alternating 64 KiB of data with 4 or 64 KiB of hole lies on the disk as
    /// in the file; alternating 8 MiB with 8 MiB, or 16 with 16, lies without gaps.)
    ///
    /// Other files can use unused reservations here; ext4 frees them when the file is closed.
    pub fn place(&self, page: u64) -> Option<Lpn> {
        let window = window_pages(self.size_bytes.div_ceil(UNIT_BYTES).max(page + 1))?;
        let index = self.extents.partition_point(|e| e.page <= page);
        if let Some(left) = index.checked_sub(1).map(|i| &self.extents[i]) {
            let end = left.page + left.blocks.units;
            let skipped = (page / window).saturating_sub((end - 1) / window + 1);
            return Some(left.blocks.end().offset(page.checked_sub(end)? - skipped * window));
        }
        let right = self.extents.first().filter(|right| right.page / window == page / window)?;
        right.blocks.start.0.checked_sub(right.page - page).map(Lpn)
    }

    /// Returns the contiguous blocks of the pages from `page` on: `Ok` with at most `pages` blocks, or `Err` with the
    /// number of pages (at most `pages`) that have no block.
    pub fn map(&self, page: u64, pages: u64) -> Result<UnitRange, u64> {
        let index = self.extents.partition_point(|e| e.page + e.blocks.units <= page);
        match self.extents.get(index) {
            Some(e) if e.page <= page => {
                let skip = page - e.page;
                Ok(UnitRange::new(e.blocks.start.offset(skip), pages.min(e.blocks.units - skip)))
            }
            Some(e) => Err(pages.min(e.page - page)),
            None => Err(pages),
        }
    }

    pub fn take_extents(&mut self, page: u64, pages: u64) -> Vec<UnitRange> {
        let (mut taken, end) = (Vec::new(), page + pages);
        let from = self.extents.partition_point(|e| e.page + e.blocks.units <= page);
        let to = self.extents.partition_point(|e| e.page < end);
        let cut: Vec<FileExtent> = self.extents.drain(from..to.max(from)).collect();
        let mut kept = Vec::new();
        for extent in cut {
            let (first, last) = (page.max(extent.page), end.min(extent.page + extent.blocks.units));
            taken.push(UnitRange::new(extent.blocks.start.offset(first - extent.page), last - first));
            for (from, to) in [(extent.page, first), (last, extent.page + extent.blocks.units)] {
                if from < to {
                    let blocks = UnitRange::new(extent.blocks.start.offset(from - extent.page), to - from);
                    kept.push(FileExtent { page: from, blocks });
                }
            }
        }
        self.extents.splice(from..from, kept);
        taken
    }

    /// Returns the number of blocks that the file has.
    pub(super) fn allocated(&self) -> u64 {
        self.extents.iter().map(|e| e.blocks.units).sum::<u64>() + self.tree.len() as u64
    }

    pub(crate) fn add_extent(&mut self, page: u64, blocks: UnitRange) {
        let index = self.extents.partition_point(|e| e.page < page);
        let continues = |left: &FileExtent, right: &FileExtent| {
            left.page + left.blocks.units == right.page && left.blocks.end() == right.blocks.start
        };
        let mut new = FileExtent { page, blocks };
        if let Some(right) = self.extents.get(index).copied().filter(|right| continues(&new, right)) {
            new.blocks.units += right.blocks.units;
            self.extents.remove(index);
        }
        match index.checked_sub(1).map(|i| &mut self.extents[i]) {
            Some(left) if continues(left, &new) => left.blocks.units += new.blocks.units,
            _ => self.extents.insert(index, new),
        }
    }
}

/// Returns the window that ext4 reserves at once in a file of this many pages (`ext4_mb_normalize_request`); `None` for
/// small files, which share the processor's preallocation (`s_mb_stream_request`, 64 KiB).
fn window_pages(file_pages: u64) -> Option<u64> {
    const MIB: u64 = (1 << 20) / UNIT_BYTES;
    match file_pages {
        0..=16 => None,
        // Up to 1 MiB the whole file: there is no other window to skip.
        _ if file_pages <= MIB => Some(MIB),
        _ if file_pages <= 4 * MIB => Some(2 * MIB),
        _ if file_pages <= 8 * MIB => Some(4 * MIB),
        _ => Some(8 * MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_merge_and_leave_holes() {
        let mut inode = Inode::default();
        inode.add_extent(0, UnitRange::new(Lpn(100), 4));
        inode.add_extent(4, UnitRange::new(Lpn(104), 4));
        inode.add_extent(16, UnitRange::new(Lpn(300), 2));
        assert_eq!(inode.extents.len(), 2);
        assert_eq!(inode.map(6, 10), Ok(UnitRange::new(Lpn(106), 2)));
        assert_eq!(inode.map(8, 100), Err(8));
        assert_eq!(inode.map(17, 5), Ok(UnitRange::new(Lpn(301), 1)));
        assert_eq!(inode.map(18, 5), Err(5));
        assert_eq!(inode.mapped_end(), 18);
    }

    #[test]
    fn blocks_that_fit_between_two_extents_join_them() {
        let mut inode = Inode::default();
        inode.add_extent(0, UnitRange::new(Lpn(100), 4));
        inode.add_extent(8, UnitRange::new(Lpn(108), 4));
        inode.add_extent(6, UnitRange::new(Lpn(106), 2));
        assert_eq!(inode.extents.len(), 2);
        inode.add_extent(4, UnitRange::new(Lpn(104), 2));
        assert_eq!(inode.extents, [FileExtent { page: 0, blocks: UnitRange::new(Lpn(100), 12) }]);
    }

    #[test]
    fn a_hole_takes_what_lies_in_it() {
        let mut inode = Inode::default();
        for page in [0, 16, 32] {
            inode.add_extent(page, UnitRange::new(Lpn(1_000 + 2 * page), 8));
        }
        assert_eq!(inode.take_extents(8, 8), []);
        let taken =
            [(1_004, 4), (1_032, 8), (1_064, 2)].map(|(start, units)| UnitRange::new(Lpn(start), units));
        assert_eq!(inode.take_extents(4, 30), taken);
        let pages: Vec<_> =
            inode.extents.iter().map(|e| (e.page, e.blocks.start.0, e.blocks.units)).collect();
        assert_eq!(pages, [(0, 1_000, 4), (34, 1_066, 6)]);
        assert_eq!(inode.take_extents(1, 2), [UnitRange::new(Lpn(1_001), 2)]);
        assert_eq!(inode.extents.len(), 3);
    }

    /// A file of 64 MiB with one extent at its beginning.
    fn large(page: u64, blocks: UnitRange) -> Inode {
        let extents = vec![FileExtent { page, blocks }];
        Inode { size_bytes: 64 << 20, extents, ..Inode::default() }
    }

    #[test]
    fn a_hole_leaves_a_gap_of_its_length() {
        let inode = large(0, UnitRange::new(Lpn(34_816), 16));
        assert_eq!(inode.place(16), Some(Lpn(34_832)));
        assert_eq!(inode.place(17), Some(Lpn(34_833)));
        assert_eq!(inode.place(32), Some(Lpn(34_848)));
        // In the next window, whose beginning is reserved behind the end of this one.
        assert_eq!(inode.place(2_050), Some(Lpn(34_816 + 2_050)));
    }

    #[test]
    fn windows_that_hold_nothing_leave_no_gap() {
        let inode = large(0, UnitRange::new(Lpn(34_816), 2_048));
        assert_eq!(inode.place(4_096), Some(Lpn(36_864)));
        assert_eq!(inode.place(4_100), Some(Lpn(36_868)));
        assert_eq!(inode.place(10_240), Some(Lpn(36_864)));
    }

    #[test]
    fn a_page_before_the_first_extent_lies_before_it_in_the_same_window_only() {
        let inode = large(4_100, UnitRange::new(Lpn(50_000), 4));
        assert_eq!(inode.place(4_097), Some(Lpn(49_997)));
        assert_eq!(inode.place(4_095), None);
        assert_eq!(large(1_000, UnitRange::new(Lpn(10), 4)).place(0), None);
    }

    #[test]
    fn windows_grow_with_the_file_and_small_files_have_none() {
        let mut inode = large(0, UnitRange::new(Lpn(1_000), 4));
        inode.size_bytes = 64 << 10;
        assert_eq!(inode.place(8), None);
        inode.size_bytes = 4 << 20;
        // Pages 512 to 1,023 are the second window of 2 MiB; the first is reserved as a whole.
        assert_eq!(inode.place(600), Some(Lpn(1_600)));
        inode.size_bytes = 8 << 20;
        assert_eq!(inode.place(1_030), Some(Lpn(2_030)));
        assert_eq!(Inode::default().place(100), None);
    }
}
