//! Names and inodes: creates files and directories, and removes them with all their blocks.

use super::dirhash;
use super::host::Placement;
use super::inode::Inode;
use super::inode_table::NewInode;
use super::journal::Handle;
use super::layout::ROOT_INODE;
use super::observed::Observed;
use super::{Directory, Entry, Ext4, State};
use crate::files::FileError;
use crate::units::{Lpn, UNIT_BYTES, UnitRange};

/// Journal blocks that a change of one file may change without quotas (`EXT4_DATA_TRANS_BLOCKS`): what a handle that
/// removes a name asks for.
pub(super) const DATA_CREDITS: u64 = 24;
/// Journal blocks that a directory's index may add (`EXT4_INDEX_EXTRA_TRANS_BLOCKS`).
const INDEX_CREDITS: u64 = 12;
/// Journal blocks that creating a name may change (`ext4_create`).
const CREATE_CREDITS: u64 = DATA_CREDITS + INDEX_CREDITS + 3;
/// Journal blocks that a rename may change (`ext4_rename`).
const RENAME_CREDITS: u64 = 2 * DATA_CREDITS + INDEX_CREDITS + 2;

/// Returns the journal blocks that removing an inode and its `blocks` may change (`ext4_evict_inode`).
fn evict_credits(blocks: u64) -> u64 {
    blocks.clamp(2, 64) + DATA_CREDITS + 3
}

enum Moved {
    /// The name moved, and replaced this file, if there was one.
    Replaced(Option<Entry>),
    NoBlock,
}

pub(super) fn is_a_directory(path: &str) -> FileError {
    FileError::Other { path: path.to_owned(), reason: "is a directory".to_owned() }
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns the bytes of a directory entry: 8 plus the name, rounded up to a multiple of 4 (`ext4_dir_rec_len`).
fn entry_bytes(path: &str) -> u64 {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    (8 + name.len() as u64).next_multiple_of(4)
}

/// Returns the leaf that a name hashes to. Any well-mixing function will do; ext4 uses half-MD4.
fn leaf_of(path: &str, leaves: usize) -> usize {
    ((hash_of(path) * leaves as u64) >> 32) as usize
}

/// Returns a 32-bit hash that looks random.
fn hash_of(path: &str) -> u64 {
    let hash =
        path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

impl Ext4 {
    pub(super) fn lookup(&self, path: &str) -> Option<Entry> {
        self.0.state.borrow().disk.names.get(path).copied()
    }

    pub(super) fn not_found(path: &str) -> FileError {
        FileError::NotFound { path: path.to_owned() }
    }

    pub(super) fn refused(path: &str, reason: &str) -> FileError {
        FileError::Other { path: path.to_owned(), reason: reason.to_owned() }
    }

    /// Creates a name and an inode under one handle. Returns the inode and its generation.
    pub(super) async fn make_entry(&self, path: &str, is_directory: bool) -> Result<(u32, u32), FileError> {
        self.0.sim.charge(self.0.host.cpu.create).await;
        let (handle, (inode, metadata)) = loop {
            let handle = self.start_handle(CREATE_CREDITS).await;
            match self.try_make_entry(path, is_directory)? {
                Some(made) => break (handle, made),
                None => drop(handle),
            }
            self.wait_for_space(path).await?;
        };
        // Read the generation before the next await: the file may be removed again at once.
        let generation = self.generation(inode);
        {
            let slot = &mut self.0.state.borrow_mut().disk.inodes[inode as usize];
            slot.note_data_change(handle.tid);
            slot.name_transaction = handle.tid;
        }
        self.dirty_metadata(&handle, &metadata).await;
        Ok((inode, generation))
    }

    /// Creates a name and an inode, or changes nothing. Returns `None` if the directory needs a block and there is
    /// none.
    fn try_make_entry(&self, path: &str, is_directory: bool) -> Result<Option<(u32, Vec<Lpn>)>, FileError> {
        let now = self.0.sim.now();
        let state = &mut *self.0.state.borrow_mut();
        let room = self.allocatable_units(state).saturating_sub(state.reserved_pages);
        let disk = &state.disk;
        // Another task may have created the name while this one waited for its handle.
        if disk.names.contains_key(path) {
            return Err(FileError::Exists { path: path.to_owned() });
        }
        let parent_inode = disk.directory_inode(parent(path));
        if !disk.directories.contains_key(parent(path)) {
            return Err(Self::not_found(path));
        }
        if disk.inodes.in_use() >= disk.layout.inodes() {
            return Err(FileError::NoSpace { path: path.to_owned() });
        }
        let Some((block, mut metadata)) = self.enter_name(state, path, room) else { return Ok(None) };
        let disk = &mut state.disk;
        let new_inode = NewInode {
            placement: self.0.host.placement,
            is_directory,
            parent: parent_inode.unwrap_or(ROOT_INODE),
            sibling: disk.directories.get(parent(path)).and_then(|d| d.newest),
            hash: u64::from(dirhash::of_name(path.rsplit('/').next().unwrap_or(path))),
        };
        let inode = disk.inodes.take(new_inode, &disk.allocator).expect("one is free");
        if let Some(directory) = disk.directories.get_mut(parent(path)) {
            directory.newest = Some(inode);
        }
        let slot = &mut disk.inodes[inode as usize];
        self.witnessed(|witness| witness.created(inode));
        let modified = Some(self.0.host.file_time(now));
        *slot = Inode { in_use: true, generation: slot.generation, modified, ..Inode::default() };
        disk.names.insert(path.into(), Entry { inode, block, is_directory });
        if is_directory {
            disk.directories.insert(path.into(), Directory::default());
        }
        let group = disk.layout.inode_group(inode);
        metadata.extend([
            Lpn(block),
            disk.layout.inode_bitmap(group),
            disk.layout.descriptor(group),
            disk.layout.inode_block(inode),
        ]);
        // The directory's own inode: its times, and its size if it has grown.
        metadata.extend(parent_inode.map(|inode| disk.layout.inode_block(inode)));
        Ok(Some((inode, metadata)))
    }

    /// Makes room for a name in its directory, which exists. Returns the name's block and the metadata changed; `None`
    /// if the directory needs a block and there is none.
    fn enter_name(&self, state: &mut State, path: &str, room: u64) -> Option<(u64, Vec<Lpn>)> {
        let disk = &mut state.disk;
        let parent_inode = disk.directory_inode(parent(path));
        let directory = disk.directories.get_mut(parent(path))?;
        let mut metadata = Vec::with_capacity(10);
        // Leaves are split when full, so on average they are three quarters full.
        let bytes = directory.bytes + entry_bytes(path);
        if bytes > directory.blocks.len() as u64 * UNIT_BYTES * 3 / 4 {
            let block = match self.0.host.placement {
                _ if room == 0 => None,
                Placement::Stream => disk.allocator.allocate(None, 1),
                Placement::Groups => {
                    let last = directory.blocks.last().map(|&block| Lpn(block + 1));
                    let goal = last.or_else(|| parent_inode.map(|inode| disk.layout.directory_goal(inode)));
                    disk.allocator.allocate_for_directory(goal.unwrap_or_default())
                }
            }?;
            self.note_allocated(&mut disk.stale, block);
            directory.blocks.push(block.start.0);
            metadata.extend(disk.layout.group_metadata(block.start));
        }
        directory.bytes = bytes;
        directory.entries += 1;
        Some((directory.blocks[leaf_of(path, directory.blocks.len())], metadata))
    }

    /// Moves the name of a file under one handle. Returns the file that had the new name; an error if the old name is
    /// gone, or the new one's directory is.
    async fn move_entry(&self, handle: &Handle, from: &str, to: &str) -> Result<Moved, FileError> {
        let (moved, metadata) = {
            let state = &mut *self.0.state.borrow_mut();
            let room = self.allocatable_units(state).saturating_sub(state.reserved_pages);
            let disk = &state.disk;
            let file = |path: &str| disk.names.get(path).copied();
            let entry = file(from).filter(|entry| !entry.is_directory);
            let Some(entry) = entry else { return Err(Self::not_found(from)) };
            if !disk.directories.contains_key(parent(to)) {
                return Err(Self::not_found(to));
            }
            let replaced = file(to);
            let (block, mut metadata) = match replaced {
                Some(Entry { is_directory: true, .. }) => return Err(is_a_directory(to)),
                Some(replaced) => (replaced.block, Vec::new()),
                None => match self.enter_name(state, to, room) {
                    Some(entered) => entered,
                    None => return Ok(Moved::NoBlock),
                },
            };
            let disk = &mut state.disk;
            disk.names.remove(from);
            disk.names.insert(to.into(), Entry { block, ..entry });
            if let Some(directory) = disk.directories.get_mut(parent(from)) {
                directory.entries -= 1;
                directory.bytes -= entry_bytes(from);
            }
            let slot = &mut disk.inodes[entry.inode as usize];
            (slot.transaction, slot.name_transaction) = (handle.tid, handle.tid);
            self.witnessed(|witness| witness.renamed(entry.inode));
            let layout = &disk.layout;
            metadata.extend([Lpn(entry.block), Lpn(block), layout.inode_block(entry.inode)]);
            for path in [from, to] {
                let directory = disk.directory_inode(parent(path));
                metadata.extend(directory.map(|inode| layout.inode_block(inode)));
            }
            if let Some(replaced) = replaced {
                let slot = &mut disk.inodes[replaced.inode as usize];
                self.witnessed(|witness| witness.unlinked(to, replaced.inode, slot.generation, handle.tid));
                slot.generation += 1;
                // The superblock heads the orphan list.
                metadata.extend([layout.inode_block(replaced.inode), layout.superblock()]);
            }
            (Moved::Replaced(replaced), metadata)
        };
        self.dirty_metadata(handle, &metadata).await;
        Ok(moved)
    }

    /// Renames a file. As with a removal, the name of a replaced file goes in one transaction, and its blocks may go in
    /// the next.
    pub(super) async fn rename_file(&self, from: &str, to: &str) -> Result<(), FileError> {
        match (self.lookup(from), self.lookup(to)) {
            (None, _) => return Err(Self::not_found(from)),
            (Some(entry), _) if entry.is_directory => return Err(is_a_directory(from)),
            _ if from == to => return Ok(()),
            // Data of a file that replaces another are written at once (`auto_da_alloc`).
            (Some(entry), Some(_)) => drop(self.write_pages(entry.inode, u64::MAX).await),
            (Some(_), None) => {}
        }
        let replaced = loop {
            let handle = self.start_handle(RENAME_CREDITS).await;
            if let Moved::Replaced(replaced) = self.move_entry(&handle, from, to).await? {
                break replaced;
            }
            drop(handle);
            self.wait_for_space(to).await?;
        };
        if let Some(entry) = replaced {
            let generation = self.generation(entry.inode);
            if let Some(handle) = self.truncate(entry.inode, generation).await {
                self.remove_inode(&handle, entry.inode, false).await;
            }
        }
        Ok(())
    }

    /// Takes a name out of its directory and returns its entry; `None` if there is no such name of that kind.
    pub(super) async fn remove_entry(
        &self,
        handle: &Handle,
        path: &str,
        is_directory: bool,
    ) -> Option<Entry> {
        let (entry, metadata) = {
            let state = &mut *self.0.state.borrow_mut();
            let entry = *state.disk.names.get(path).filter(|e| e.is_directory == is_directory)?;
            state.disk.names.remove(path);
            if let Some(directory) = state.disk.directories.get_mut(parent(path)) {
                directory.entries -= 1;
                directory.bytes -= entry_bytes(path);
            }
            let slot = &mut state.disk.inodes[entry.inode as usize];
            self.witnessed(|witness| witness.unlinked(path, entry.inode, slot.generation, handle.tid));
            slot.generation += 1;
            let layout = &state.disk.layout;
            // The superblock heads the orphan list; the directory's times change.
            let mut metadata = vec![Lpn(entry.block), layout.inode_block(entry.inode), layout.superblock()];
            metadata.extend(state.disk.directory_inode(parent(path)).map(|inode| layout.inode_block(inode)));
            (entry, metadata)
        };
        self.dirty_metadata(handle, &metadata).await;
        Some(entry)
    }

    pub(super) fn generation(&self, inode: u32) -> u32 {
        self.0.state.borrow().disk.inodes[inode as usize].generation
    }

    /// Drops a file's pages, waiting for those in transfer, and frees its blocks. Returns the handle that it used;
    /// `None` if the file is removed meanwhile.
    pub(super) async fn truncate(&self, inode: u32, generation: u32) -> Option<Handle> {
        let mut has_charged = false;
        loop {
            self.wait_for_transfers(inode, generation).await?;
            // Drop its pages at once, so that no task starts to write them. Its blocks are freed under the handle.
            let pages = self.drop_pages(inode);
            if !has_charged {
                self.0.sim.charge(self.0.host.cpu.page_truncate * pages).await;
                has_charged = true;
            }
            let blocks = self.0.state.borrow().disk.inodes[inode as usize].allocated();
            let handle = self.start_handle(evict_credits(blocks)).await;
            let (extents, tree, metadata) = {
                let state = &mut *self.0.state.borrow_mut();
                let entry = &mut state.disk.inodes[inode as usize];
                if entry.generation != generation {
                    return None;
                }
                // Another task may have used the file while this one waited.
                if entry.size_bytes > 0 || entry.writeback_pages > 0 || entry.reads > 0 {
                    continue;
                }
                entry.note_data_change(handle.tid);
                let extents = std::mem::take(&mut entry.extents).into_iter().map(|e| e.blocks);
                let extents: Vec<UnitRange> = extents.collect();
                let tree = std::mem::take(&mut entry.tree);
                state.withheld_units += extents.iter().map(|e| e.units).sum::<u64>() + tree.len() as u64;
                let layout = &state.disk.layout;
                let mut metadata = vec![layout.inode_block(inode)];
                for extent in &extents {
                    metadata.extend(layout.group_metadata(extent.start));
                }
                (extents, tree, metadata)
            };
            self.free_blocks(&handle, &extents);
            self.dirty_metadata(&handle, &metadata).await;
            self.free_metadata(&handle, &tree).await;
            return Some(handle);
        }
    }

    /// Waits until no page of a file is in transfer; `None` if it is removed meanwhile.
    pub(super) async fn wait_for_transfers(&self, inode: u32, generation: u32) -> Option<()> {
        loop {
            let in_transfer = {
                let entry = &self.0.state.borrow().disk.inodes[inode as usize];
                if entry.generation != generation {
                    return None;
                }
                (entry.writeback_pages, entry.reads)
            };
            match in_transfer {
                (0, 0) => return Some(()),
                (0, _) => self.0.events.read_done.wait().await,
                _ => self.0.events.writeback_done.wait().await,
            }
        }
    }

    fn drop_pages(&self, inode: u32) -> u64 {
        let state = &mut *self.0.state.borrow_mut();
        self.witnessed(|witness| witness.truncated(inode));
        let entry = &mut state.disk.inodes[inode as usize];
        state.cache.forget(&mut entry.chunks);
        state.disk.allocator.discard_windows(inode);
        entry.dirty_pages = 0;
        if let Some(key) = entry.dirty_key.take() {
            state.dirty.remove(&key);
        }
        state.reserved_pages -= std::mem::take(&mut entry.reserved_pages);
        std::mem::take(&mut entry.size_bytes).div_ceil(UNIT_BYTES)
    }

    /// Frees blocks of a file, the last ones first (`ext4_ext_rm_leaf`).
    pub(super) fn free_blocks(&self, handle: &Handle, ranges: &[UnitRange]) {
        let now = self.0.sim.now();
        let journal = &mut self.0.state.borrow_mut().journal;
        debug_assert!(journal.running_tid().is_none_or(|tid| tid == handle.tid));
        for &range in ranges.iter().rev() {
            self.witnessed(|witness| witness.freed(range));
            self.observed(|| Observed::Freed(range));
            journal.free(now, range);
        }
    }

    pub(super) async fn remove_inode(&self, handle: &Handle, inode: u32, is_directory: bool) {
        let metadata = {
            let layout = &self.0.state.borrow().disk.layout;
            let group = layout.inode_group(inode);
            [layout.inode_bitmap(group), layout.descriptor(group)]
        };
        self.dirty_metadata(handle, &metadata).await;
        let disk = &mut self.0.state.borrow_mut().disk;
        disk.inodes.give_back(inode, is_directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 6.12 without quotas.
    #[test]
    fn handles_ask_for_as_many_blocks_as_those_of_linux() {
        assert_eq!([DATA_CREDITS, CREATE_CREDITS, RENAME_CREDITS], [24, 39, 62]);
        assert_eq!([0, 3, 100].map(evict_credits), [29, 30, 91]);
    }
}
