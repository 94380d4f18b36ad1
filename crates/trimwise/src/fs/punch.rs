//! Files that lose a part: holes punched into them (`ext4_punch_hole`), and their ends cut off (`ftruncate`).

use super::cache::{CHUNK_PAGES, mask};
use super::inode::Inode;
use super::journal::Handle;
use super::operations::OpenFile;
use super::writeback::ALLOCATION_CREDITS;
use super::{Ext4, State};
use crate::units::{Lpn, UNIT_BYTES, UnitRange};

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
            let handle = self.start_handle(ALLOCATION_CREDITS).await;
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
            let (freed, metadata) = take_blocks(state, &handle, inode, (first, pages));
            if freed.is_empty() {
                return;
            }
            break (handle, freed, metadata);
        };
        self.let_go(&handle, inode, first, (&freed, &metadata)).await;
    }

    /// Cuts a file off at `bytes` (`ext4_truncate`). What was written beyond and has not reached the drive never does.
    pub async fn shorten(&self, file: &OpenFile, bytes: u64) {
        let (inode, generation) = (file.inode, file.generation);
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        let first = bytes.div_ceil(UNIT_BYTES);
        let (handle, freed, metadata, tree) = loop {
            if self.wait_for_transfers(inode, generation).await.is_none() {
                return;
            }
            // As in `truncate`: no task starts to write pages that are about to go.
            self.drop_pages_from(inode, first, bytes);
            let handle = self.start_handle(ALLOCATION_CREDITS).await;
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[inode as usize];
            if entry.generation != generation {
                return;
            }
            if entry.size_bytes > bytes || entry.writeback_pages > 0 || entry.reads > 0 {
                continue;
            }
            entry.note_data_change(handle.tid);
            let (freed, metadata) = take_blocks(state, &handle, inode, (first, u64::MAX - first));
            let entry = &mut state.disk.inodes[inode as usize];
            let tree = if entry.tree_fits_inode() { std::mem::take(&mut entry.tree) } else { Vec::new() };
            state.withheld_units += tree.len() as u64;
            break (handle, freed, metadata, tree);
        };
        self.let_go(&handle, inode, first, (&freed, &metadata)).await;
        self.free_metadata(&handle, &tree).await;
    }

    fn drop_pages_from(&self, inode: u32, first: u64, bytes: u64) {
        let state = &mut *self.0.state.borrow_mut();
        let entry = &mut state.disk.inodes[inode as usize];
        let dropped = state.cache.forget_from(&mut entry.chunks, first);
        state.disk.allocator.discard_windows(inode);
        let reserved = dropped.iter().filter(|page| entry.map(**page, 1).is_err()).count() as u64;
        entry.reserved_pages -= reserved;
        state.reserved_pages -= reserved;
        entry.dirty_pages -= dropped.len() as u64;
        if entry.dirty_pages == 0
            && let Some(key) = entry.dirty_key.take()
        {
            state.dirty.remove(&key);
        }
        entry.size_bytes = entry.size_bytes.min(bytes);
    }

    /// Frees blocks that a file has lost from page `first` on, under the handle that took them.
    async fn let_go(
        &self,
        handle: &Handle,
        inode: u32,
        first: u64,
        (freed, metadata): (&[UnitRange], &[Lpn]),
    ) {
        self.free_blocks(handle, freed);
        self.dirty_metadata(handle, metadata).await;
        self.merge_in_tree(handle, inode, first).await;
        let pages = freed.iter().map(|range| range.units).sum::<u64>();
        self.0.sim.charge(self.0.host.cpu.page_truncate * pages).await;
    }
}

/// Takes a file's blocks for these pages (first and count). Returns them with the metadata that change.
fn take_blocks(
    state: &mut State,
    handle: &Handle,
    inode: u32,
    (first, pages): (u64, u64),
) -> (Vec<UnitRange>, Vec<Lpn>) {
    let entry: &mut Inode = &mut state.disk.inodes[inode as usize];
    let freed = entry.take_extents(first, pages);
    if !freed.is_empty() {
        entry.note_data_change(handle.tid);
    }
    state.withheld_units += freed.iter().map(|range| range.units).sum::<u64>();
    let layout = &state.disk.layout;
    let mut metadata = vec![layout.inode_block(inode)];
    metadata.extend(freed.iter().flat_map(|range| layout.group_metadata(range.start)));
    (freed, metadata)
}
