//! Inodes: a file's size, its extents and what of it is in memory.

use super::cache::ChunkTable;
use crate::units::{Lpn, SimTime, UnitRange};

/// A run of a file's pages in a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// First page of the file.
    pub page: u64,
    /// Where it lies.
    pub blocks: UnitRange,
}

/// One file (or directory) of the file system.
#[derive(Clone, Debug, Default)]
pub struct Inode {
    /// Whether it is in use; a removed file keeps its slot for the next one.
    pub in_use: bool,
    /// How many files had this slot before: an open file that was removed meanwhile is told by it.
    pub generation: u32,
    /// Length of the file.
    pub size_bytes: u64,
    /// Extents in the order of the file's pages, merged where they continue each other.
    pub extents: Vec<FileExtent>,
    /// Pages in memory.
    pub chunks: ChunkTable,
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Pages being written.
    pub writeback_pages: u64,
    /// Requests under way that read pages of this file.
    pub reads: u64,
    /// Dirty pages that have no block yet (delayed allocation).
    pub reserved_pages: u64,
    /// Its place among the dirty files: when it became dirty, and a sequence number.
    pub dirty_key: Option<(SimTime, u64)>,
    /// The transaction that holds its latest metadata change.
    pub transaction: u64,
    /// Whether its access time is younger than its last change (then a read need not update it: relatime).
    pub accessed_since_change: bool,
    /// Where write-back goes on in a large file.
    pub writeback_cursor: u64,
}

impl Inode {
    /// The first page behind the last one that has a block.
    pub fn mapped_end(&self) -> u64 {
        self.extents.last().map_or(0, |e| e.page + e.blocks.units)
    }

    /// The block behind the file's last, where growth would be contiguous.
    pub fn goal(&self) -> Option<Lpn> {
        self.extents.last().map(|e| e.blocks.end())
    }

    /// The blocks of the pages from `page` on, as far as they are contiguous: `Ok` with at most `pages`
    /// blocks, or `Err` with the number of pages (at most `pages`) that have none.
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

    /// Gives pages from `page` on these blocks; the pages must have had none.
    pub fn add_extent(&mut self, page: u64, blocks: UnitRange) {
        let index = self.extents.partition_point(|e| e.page < page);
        if let Some(before) = index.checked_sub(1).map(|i| &mut self.extents[i])
            && before.page + before.blocks.units == page
            && before.blocks.end() == blocks.start
        {
            before.blocks.units += blocks.units;
            return;
        }
        self.extents.insert(index, FileExtent { page, blocks });
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
}
