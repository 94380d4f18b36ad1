//! Holes punched into files (`ext4_punch_hole`).

use super::Ext4;
use super::cache::{CHUNK_PAGES, mask};
use super::names::DELETE_CREDITS;
use crate::units::UNIT_BYTES;

impl Ext4 {
    /// Frees the blocks of a file that lie wholly in a range. As in the kernel, which holds the inode's lock, direct
    /// transfers in flight end first, and new ones wait.
    pub(super) async fn punch_hole(&self, inode: u32, generation: u32, offset: u64, bytes: u64) {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        let (first, end) = (offset.div_ceil(UNIT_BYTES), offset.saturating_add(bytes) / UNIT_BYTES);
        if first >= end || self.generation(inode) != generation {
            return;
        }
        self.0.state.borrow_mut().disk.inodes[inode as usize].punching += 1;
        self.free_range(inode, generation, first, end - first).await;
        let entry = &mut self.0.state.borrow_mut().disk.inodes[inode as usize];
        entry.punching -= 1;
        entry.punches += 1;
        self.0.events.read_done.notify_all();
    }

    /// Waits until no task is punching a hole into the file.
    pub(super) async fn wait_for_punches(&self, inode: u32) {
        while self.0.state.borrow().disk.inodes[inode as usize].punching > 0 {
            self.0.events.read_done.wait().await;
        }
    }

    async fn free_range(&self, inode: u32, generation: u32, first: u64, pages: u64) {
        let (handle, freed, metadata) = loop {
            self.clean(inode, first, pages).await;
            if self.wait_for_transfers(inode, generation).await.is_none() {
                return;
            }
            let handle = self.start_handle(DELETE_CREDITS).await;
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[inode as usize];
            if entry.generation != generation {
                return;
            }
            let is_dirty = |page: u64| {
                let id = entry.chunks.get(page / CHUNK_PAGES);
                id.is_some_and(|id| state.cache.state(id).dirty & mask(page % CHUNK_PAGES, 1) != 0)
            };
            // Another task may have used the file while this one waited.
            let is_busy = entry.writeback_pages > 0 || entry.reads > 0;
            if is_busy || entry.dirty_pages > 0 && (first..first + pages).any(is_dirty) {
                continue;
            }
            let freed = entry.take_extents(first, pages);
            if freed.is_empty() {
                return;
            }
            entry.note_data_change(handle.tid);
            state.withheld_units += freed.iter().map(|range| range.units).sum::<u64>();
            let layout = &state.disk.layout;
            let mut metadata = vec![layout.inode_block(inode)];
            metadata.extend(freed.iter().flat_map(|range| layout.group_metadata(range.start)));
            break (handle, freed, metadata);
        };
        self.free_blocks(&handle, &freed);
        self.dirty_metadata(&handle, &metadata).await;
        self.merge_in_tree(&handle, inode, first).await;
        let pages = freed.iter().map(|range| range.units).sum::<u64>();
        self.0.sim.charge(self.0.host.cpu.page_truncate * pages).await;
    }
}
