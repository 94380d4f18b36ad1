//! Blocks of extent trees (`fs/ext4/extents.c`).
//!
//! Four extents fit into the inode. A file with more has tree blocks for 340 extents each. These are metadata:
//! journaled, and revoked when freed. The number that matters is that of extents on the disk. While new blocks count as
//! unwritten, each allocation is an extent of its own; it merges with its neighbours only when its data are written.
//! Four written extents and the next piece of a log are five, so the tree grows a block; once the data are written they
//! are four again, and the block is freed (`ext4_ext_try_to_merge_up`). So the same file takes and frees a block with
//! each `fsync`.
//!
//! Not modelled: index blocks of trees deeper than one level (files of more than 1,360 extents), and leaves split
//! anywhere but at their end.

use super::inode::Inode;
use super::journal::Handle;
use super::{Ext4, State};
use crate::fs::host::Placement;
use crate::units::{Lpn, UnitRange};

const IN_INODE: usize = 4;
/// Length of the longest extent, in blocks (`EXT_INIT_MAX_LEN`).
const EXTENT_MAX: u64 = 32_768;
const IN_BLOCK: usize = 340;

impl Inode {
    pub(super) fn tree_fits_inode(&self) -> bool {
        if self.extents.len() > IN_INODE || self.unwritten.len() > IN_INODE {
            return false;
        }
        let mut unwritten = self.unwritten.clone();
        unwritten.sort_unstable();
        let written = |extent: &super::inode::FileExtent| {
            let end = extent.page + extent.blocks.units;
            let within = unwritten.iter().filter(|(page, _)| (extent.page..end).contains(page));
            let (mut pieces, mut at) = (0, extent.page);
            for &(page, pages) in within {
                pieces += page.saturating_sub(at).div_ceil(EXTENT_MAX);
                at = page + pages;
            }
            pieces + end.saturating_sub(at).div_ceil(EXTENT_MAX)
        };
        self.extents.iter().map(written).sum::<u64>() + unwritten.len() as u64 <= IN_INODE as u64
    }

    fn tree_block_of(&self, page: u64) -> Option<Lpn> {
        let index = self.extents.partition_point(|extent| extent.page <= page).saturating_sub(1);
        self.tree.get((index / IN_BLOCK).min(self.tree.len().checked_sub(1)?)).copied()
    }
}

impl Ext4 {
    /// Makes room in the tree for the extent of a page's new blocks. Returns the metadata that this changes, apart from
    /// the inode.
    pub(super) fn grow_tree(&self, state: &mut State, inode: u32, page: u64) -> Vec<Lpn> {
        let mut metadata = Vec::new();
        if self.0.host.placement == Placement::Stream {
            return metadata; // those experiments were fitted without a tree
        }
        loop {
            let entry = &state.disk.inodes[inode as usize];
            let blocks = (entry.extents.len() + entry.unwritten.len()).div_ceil(IN_BLOCK);
            let is_enough = match entry.tree.len() {
                0 => entry.tree_fits_inode(),
                has => has >= blocks,
            };
            if is_enough {
                break;
            }
            // Leave the blocks that pages have reserved.
            let to_come = state.disk.allocator.free_units() + state.withheld_units;
            let goal = entry.tree.first().copied().unwrap_or(state.disk.layout.file_goal(inode));
            let found = (to_come > state.reserved_pages)
                .then(|| state.disk.allocator.allocate_for_directory(goal))
                .flatten();
            let Some(block) = found else { break };
            self.note_allocated(&mut state.disk.stale, block);
            state.disk.inodes[inode as usize].tree.push(block.start);
            metadata.extend(state.disk.layout.group_metadata(block.start));
        }
        metadata.extend(state.disk.inodes[inode as usize].tree_block_of(page));
        metadata
    }

    /// Notes that the data of a page's extent are written, and frees a tree's only block if the extents fit into the
    /// inode again.
    pub(super) async fn merge_in_tree(&self, handle: &Handle, inode: u32, page: u64) {
        let (changed, freed) = {
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[inode as usize];
            if entry.tree.len() == 1 && entry.tree_fits_inode() {
                state.withheld_units += 1;
                (None, entry.tree.pop())
            } else {
                (entry.tree_block_of(page), None)
            }
        };
        self.dirty_metadata(handle, changed.as_slice()).await;
        self.free_metadata(handle, freed.as_slice()).await;
    }

    pub(super) async fn free_metadata(&self, handle: &Handle, blocks: &[Lpn]) {
        for &block in blocks {
            self.forget_metadata(handle, block).await;
            let metadata = self.0.state.borrow().disk.layout.group_metadata(block);
            self.free_blocks(handle, &[UnitRange::new(block, 1)]);
            self.dirty_metadata(handle, &metadata).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(extents: u64, unwritten: &[(u64, u64)]) -> Inode {
        let mut inode = Inode::default();
        for i in 0..extents {
            inode.add_extent(i * 10, UnitRange::new(Lpn(1_000 + i * 100), 10));
        }
        inode.unwritten = unwritten.to_vec();
        inode
    }

    #[test]
    fn unwritten_blocks_are_an_extent_of_their_own_until_their_data_are_written() {
        assert!(file(4, &[]).tree_fits_inode() && !file(5, &[]).tree_fits_inode());
        assert!(file(4, &[(30, 10)]).tree_fits_inode(), "a whole extent");
        assert!(!file(4, &[(39, 1)]).tree_fits_inode(), "the end of one");
        assert!(!file(3, &[(14, 2)]).tree_fits_inode(), "the middle of one");
        assert!(file(2, &[(10, 5), (15, 2)]).tree_fits_inode(), "1 written, 2 unwritten, 1 written");
        assert!(!file(2, &[(12, 3), (15, 2)]).tree_fits_inode());
    }

    #[test]
    fn a_tree_has_its_extents_in_order() {
        let mut inode = file(700, &[]);
        assert_eq!(inode.tree_block_of(0), None);
        inode.tree = vec![Lpn(1), Lpn(2), Lpn(3)];
        assert_eq!(
            [0, 3_395, 3_400, 6_999, 9_999].map(|page| inode.tree_block_of(page).unwrap().0),
            [1, 1, 2, 3, 3]
        );
    }
}
