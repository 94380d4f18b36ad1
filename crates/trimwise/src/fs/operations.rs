//! The calls of a workload: [`Files`], with writes and durability. Names are handled in `names`, reads in `read`.

use super::cache::{CHUNK_PAGES, in_chunks, mask};
use super::host::Writeback;
use super::inode::Inode;
use super::names::{DATA_CREDITS, is_a_directory};
use super::read::ReadAhead;
use super::sabotage::Sabotage;
use super::{Ext4, State};
use crate::files::{FileError, FileSystemSpace, Files, OpenMode};
use crate::policy::Availability;
use crate::units::{Bytes, Lpn, SECTOR_BYTES, SimDuration, SimTime, UNIT_BYTES, UnitRange};

/// Journal blocks that a change of an inode can touch.
const INODE_CREDITS: u64 = 8;
/// Number of times that a writer without a free block requests a commit before it gives up (`ext4_should_retry_alloc`).
const SPACE_COMMITS_MAX: u32 = 4;

/// An open file of the modelled file system.
///
/// Linux keeps a removed file until it is closed. Here its blocks go at once; an open file then reads as if it ended,
/// and refuses writes.
#[derive(Clone, Debug)]
pub struct OpenFile {
    pub(super) inode: u32,
    pub(super) generation: u32,
    pub(super) position_bytes: u64,
    pub(super) append: bool,
    pub(super) direct: bool,
    writes: bool,
    pub(super) read_ahead: ReadAhead,
    path: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Recorded,
    Time,
    Length,
}

impl Ext4 {
    pub(super) async fn wait_for_space(&self, path: &str) -> Result<(), FileError> {
        let mut commits = 0;
        while commits < SPACE_COMMITS_MAX {
            let (is_there, may_come) = {
                let state = &*self.0.state.borrow();
                (self.allocatable_units(state) > state.reserved_pages, self.promisable_units(state) > 0)
            };
            if is_there {
                return Ok(());
            }
            if !may_come {
                break;
            }
            commits += u32::from(self.wait_for_blocks().await);
        }
        Err(FileError::NoSpace { path: path.to_owned() })
    }

    /// Waits for blocks that will become free. If a commit would free them, requests it; if they are in a policy's
    /// queue, waits for the whole queue; if they are in a TRIM, waits for its end. Returns true if it waited for a
    /// commit.
    pub(super) async fn wait_for_blocks(&self) -> bool {
        let (of_commit, is_queued, tid) = {
            let state = &*self.0.state.borrow();
            // What waits in a target below withholds nothing from the allocator.
            let ledger = self.0.policy.ledger();
            let queued = match self.0.policy.availability() {
                Availability::AfterIssue => ledger.pending,
                Availability::AfterCommit | Availability::Reuse => 0,
            };
            let in_trims = ledger.in_tokens + state.held.iter().map(|range| range.units).sum::<u64>();
            (state.withheld_units > in_trims + queued, queued > 0, state.journal.newest_open_tid())
        };
        match tid {
            Some(tid) if of_commit => self.commit_and_wait(tid).await,
            _ if is_queued => self.flush_pending().await,
            _ => self.0.events.blocks_released.wait().await,
        }
        of_commit
    }

    /// Returns the number of a file's pages that would need a block and have neither one nor a reservation.
    fn pages_without_block(state: &State, inode: u32, first: u64, pages: u64) -> u64 {
        let entry = &state.disk.inodes[inode as usize];
        let is_dirty = |page: u64| state.cache.page(&entry.chunks, page).dirty != 0;
        let needs_block = |page: &u64| !is_dirty(*page) && entry.map(*page, 1).is_err();
        (first..first + pages).filter(needs_block).count() as u64
    }

    /// Returns the pages that a write covers in part and that must be read first.
    fn partial_pages(&self, inode: u32, start: u64, end: u64) -> [Option<u64>; 2] {
        let state = &*self.0.state.borrow();
        let entry = &state.disk.inodes[inode as usize];
        let is_missing = |page: u64| {
            let is_present = state.cache.page(&entry.chunks, page).present != 0;
            !is_present && page * UNIT_BYTES < entry.size_bytes && entry.map(page, 1).is_ok()
        };
        let first = (!start.is_multiple_of(UNIT_BYTES)).then_some(start / UNIT_BYTES);
        let last = (!end.is_multiple_of(UNIT_BYTES) && end < entry.size_bytes).then_some(end / UNIT_BYTES);
        [first.filter(|&page| is_missing(page)), last.filter(|&page| Some(page) != first && is_missing(page))]
    }

    async fn write_at(&self, file: &OpenFile, start: u64, len: u64) -> Result<(), FileError> {
        let cpu = &self.0.host.cpu;
        let end = start + len;
        if len == 0 {
            self.0.sim.charge(cpu.syscall).await;
            return Ok(());
        }
        if !(start.is_multiple_of(UNIT_BYTES) && end.is_multiple_of(UNIT_BYTES)) {
            for page in self.partial_pages(file.inode, start, end).into_iter().flatten() {
                self.read_page(file, page).await;
            }
        }
        let (first_page, pages) = (start / UNIT_BYTES, end.div_ceil(UNIT_BYTES) - start / UNIT_BYTES);
        self.0
            .sim
            .charge(cpu.syscall + cpu.page_write * pages + cpu.copy_page * len.div_ceil(UNIT_BYTES))
            .await;
        let (change, dirtied) = {
            let state = &mut *self.0.state.borrow_mut();
            let room = self.promisable_units(state);
            if room < pages && room < Self::pages_without_block(state, file.inode, first_page, pages) {
                return Err(FileError::NoSpace { path: file.path.to_string() });
            }
            if state.disk.inodes[file.inode as usize].generation != file.generation {
                return Err(Self::refused(&file.path, "removed while it was open"));
            }
            self.mark_written(state, file.inode, first_page, pages, end)
        };
        if change != Change::Recorded {
            self.record_change(file.inode, change).await;
        }
        self.balance_dirty_pages(dirtied).await;
        Ok(())
    }

    /// Writes past the page cache (`O_DIRECT`). Existing blocks are overwritten in place; for new ones the pages go
    /// through the cache and are written at once, as the kernel does where it cannot write directly.
    async fn write_direct(&self, file: &OpenFile, start: u64, len: u64) -> Result<(), FileError> {
        let (page, pages) = (start / UNIT_BYTES, (start + len).div_ceil(UNIT_BYTES) - start / UNIT_BYTES);
        self.clean(file.inode, page, pages).await;
        // The drive reads the parts of a unit that a write leaves.
        for (end, page) in [(start, page), (start + len, page + pages - 1)] {
            if !end.is_multiple_of(UNIT_BYTES) {
                self.read_direct(file.inode, page, 1).await;
            }
        }
        let punches = || self.0.state.borrow().disk.inodes[file.inode as usize].punches;
        // While a file is truncated, it still has blocks beyond its length that are about to go.
        let is_within = || self.0.state.borrow().disk.inodes[file.inode as usize].size_bytes >= start + len;
        let blocks = loop {
            self.wait_for_punches(file.inode).await;
            let before = punches();
            let Some(blocks) = self.blocks_of(file, page, pages).filter(|_| is_within()) else {
                self.write_at(file, start, len).await?;
                self.write_file(file.inode).await;
                return Ok(());
            };
            self.0.sim.charge(self.0.host.cpu.syscall).await;
            let is_punching = self.0.state.borrow().disk.inodes[file.inode as usize].punching > 0;
            if punches() == before && !is_punching && is_within() {
                break blocks;
            }
        };
        // Only the time of the last change is updated.
        let change = {
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[file.inode as usize];
            if entry.generation != file.generation {
                return Ok(());
            }
            entry.reads += 1;
            self.witnessed(|witness| witness.page_written(file.inode, page, pages));
            self.change_of(state, file.inode, false)
        };
        if change != Change::Recorded {
            self.record_change(file.inode, change).await;
        }
        let mut at = page;
        for piece in blocks.iter().flat_map(|&range| self.0.queue.split(range)) {
            self.witnessed(|witness| witness.data_submitted(file.inode, file.generation, at, piece));
            at += piece.units;
            self.0.queue.write(piece).await;
        }
        self.0.state.borrow_mut().disk.inodes[file.inode as usize].reads -= 1;
        self.0.events.read_done.notify_all();
        Ok(())
    }

    fn check_aligned(&self, file: &OpenFile, offset: u64, len: u64) -> Result<(), FileError> {
        if offset.is_multiple_of(SECTOR_BYTES) && len.is_multiple_of(SECTOR_BYTES) {
            return Ok(());
        }
        Err(FileError::Other { path: file.path.to_string(), reason: "invalid argument".to_owned() })
    }

    fn blocks_of(&self, file: &OpenFile, page: u64, pages: u64) -> Option<Vec<UnitRange>> {
        let entry = &self.0.state.borrow().disk.inodes[file.inode as usize];
        let (mut blocks, mut at) = (Vec::new(), page);
        while at < page + pages {
            let range = entry.map(at, page + pages - at).ok()?;
            at += range.units;
            blocks.push(range);
        }
        Some(blocks)
    }

    async fn record_change(&self, inode: u32, change: Change) {
        let handle = self.start_handle(INODE_CREDITS).await;
        let block = {
            let disk = &mut self.0.state.borrow_mut().disk;
            let entry = &mut disk.inodes[inode as usize];
            entry.transaction = handle.tid;
            if change == Change::Length {
                entry.data_transaction = handle.tid;
            }
            disk.layout.inode_block(inode)
        };
        self.dirty_metadata(&handle, &[block]).await;
    }

    /// Returns a write's changes to the inode. `grows` says that the end of the file moves within its last block.
    fn change_of(&self, state: &mut State, inode: u32, grows: bool) -> Change {
        let entry = &mut state.disk.inodes[inode as usize];
        let modified = self.0.host.file_time(self.0.sim.now());
        let is_noted = entry.modified.replace(modified) == Some(modified) && !grows;
        entry.accessed_since_change = false;
        if is_noted {
            return Change::Recorded;
        }
        if state.journal.running_tid() == Some(entry.transaction) {
            if grows {
                entry.data_transaction = entry.transaction;
            }
            return Change::Recorded;
        }
        if grows { Change::Length } else { Change::Time }
    }

    /// Marks pages dirty. Returns the metadata that must join the running transaction, and how many pages became dirty.
    fn mark_written(
        &self,
        state: &mut State,
        inode: u32,
        first_page: u64,
        pages: u64,
        end_bytes: u64,
    ) -> (Change, u64) {
        let now = self.0.sim.now();
        let entry = &mut state.disk.inodes[inode as usize];
        let (mapped_end, dirty_before) = (entry.mapped_end(), entry.dirty_pages);
        for (index, first, count) in in_chunks(first_page, pages) {
            let id = state.cache.touch(&mut entry.chunks, inode, index);
            let bits = mask(first, count);
            let new = bits & !state.cache.state(id).dirty;
            let start = index * CHUNK_PAGES;
            let reserved = if start + first >= mapped_end {
                u64::from(new.count_ones())
            } else {
                let unmapped = |i: &u64| new & 1 << i != 0 && entry.map(start + i, 1).is_err();
                (0..CHUNK_PAGES).filter(unmapped).count() as u64
            };
            entry.reserved_pages += reserved;
            state.reserved_pages += reserved;
            entry.dirty_pages += state.cache.mark_dirty(id, bits);
        }
        let dirtied = entry.dirty_pages - dirty_before;
        if entry.dirty_key.is_none() && entry.dirty_pages > 0 {
            state.queue_dirty(inode, now);
        }
        let entry = &mut state.disk.inodes[inode as usize];
        // If the file's end has a block already, the new length is recorded at once, otherwise with the block.
        let grows_in_block =
            end_bytes > entry.size_bytes && entry.map((end_bytes - 1) / UNIT_BYTES, 1).is_ok();
        entry.size_bytes = entry.size_bytes.max(end_bytes);
        self.witnessed(|witness| witness.page_written(inode, first_page, pages));
        let change = self.change_of(state, inode, grows_in_block);
        self.shrink_cache(state);
        (change, dirtied)
    }

    /// Syncs the file system as `sync_filesystem` does, in two passes, the first of which waits for nothing. So the
    /// metadata changed once the last data are written form a transaction of their own. After both passes the drive's
    /// own page cache is written.
    pub(super) async fn sync_all(&self) {
        let promise = self.begin_promise(None);
        let is_paced = matches!(self.0.host.writeback, Writeback::Paced { .. });
        if is_paced {
            self.submit_all().await;
            let tid = self.0.state.borrow().journal.running_tid();
            tid.iter().for_each(|&tid| self.request_commit(tid));
        }
        self.write_all().await;
        let tid = self.0.state.borrow().journal.newest_open_tid();
        self.commit_or_flush(tid).await;
        self.keep_promise(promise);
        if is_paced {
            self.write_dirty_metadata(u64::MAX).await;
            self.wait_for_metadata_io().await;
        }
    }

    /// Writes a file's data and commits the transaction that `needed` returns, unless it is committed already
    /// (`ext4_sync_file`).
    async fn sync_file(&self, file: &OpenFile, needed: fn(&Inode) -> u64) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        if self.generation(file.inode) != file.generation {
            return Ok(());
        }
        let promise = self.begin_promise(Some((&file.path, file.inode)));
        self.write_file(file.inode).await;
        let (tid, will_be_found) = {
            let state = &*self.0.state.borrow();
            let inode = &state.disk.inodes[file.inode as usize];
            let (tid, named) = (needed(inode), inode.name_transaction);
            let will_be_found = named <= tid || state.journal.is_committed(named);
            ((!state.journal.is_committed(tid)).then_some(tid), will_be_found)
        };
        self.commit_or_flush(tid).await;
        self.keep_promise(promise.filter(|_| will_be_found));
        Ok(())
    }

    /// Makes all changes of names durable, as the fsync of a directory does.
    pub(crate) async fn sync_names(&self) {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        let tid = self.0.state.borrow().journal.newest_open_tid();
        self.commit_or_flush(tid).await;
    }

    /// Makes earlier writes durable: commits `tid` if given, and flushes the device unless the commit does
    /// (`ext4_sync_file`).
    async fn commit_or_flush(&self, tid: Option<u64>) {
        let will_flush = tid.is_some_and(|tid| self.0.state.borrow().journal.will_flush(tid));
        if let Some(tid) = tid {
            self.commit_and_wait(tid).await;
        }
        if !will_flush && !self.is_sabotaged(Sabotage::NoFlushInFsync) {
            self.0.queue.flush().await;
        }
    }
}

impl Files for Ext4 {
    type File = OpenFile;

    fn now(&self) -> SimTime {
        self.0.sim.now()
    }

    async fn statfs(&self) -> Result<FileSystemSpace, FileError> {
        let total = {
            let disk = &self.0.state.borrow().disk;
            Bytes::from_units(disk.layout.total_units() - disk.fixed_units)
        };
        Ok(FileSystemSpace { total, free: self.bytes_free() })
    }

    async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        if self.lookup(path).is_some() {
            return Err(FileError::Exists { path: path.to_owned() });
        }
        self.make_entry(path, true).await?;
        Ok(())
    }

    async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall + self.0.host.cpu.unlink).await;
        self.read_for_removal(path).await;
        let handle = self.start_handle(DATA_CREDITS).await;
        let blocks = {
            let state = &mut *self.0.state.borrow_mut();
            let disk = &mut state.disk;
            match disk.directories.get(path).filter(|_| !path.is_empty()) {
                None => return Err(Self::not_found(path)),
                Some(d) if d.entries > 0 => return Err(Self::refused(path, "directory not empty")),
                Some(_) => {
                    let blocks = disk.directories.remove(path).map(|d| d.blocks).unwrap_or_default();
                    state.withheld_units += blocks.len() as u64;
                    blocks
                }
            }
        };
        let entry = self.remove_entry(&handle, path, true).await;
        let blocks: Vec<Lpn> = blocks.into_iter().map(Lpn).collect();
        self.free_metadata(&handle, &blocks).await;
        if let Some(entry) = entry {
            self.remove_inode(&handle, entry.inode, entry.is_directory).await;
        }
        Ok(())
    }

    async fn open(&self, path: &str, mode: OpenMode) -> Result<OpenFile, FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall + self.0.host.cpu.open).await;
        let (inode, generation) = loop {
            match (self.lookup(path), mode) {
                (Some(entry), _) if entry.is_directory => {
                    return Err(is_a_directory(path));
                }
                (Some(entry), _) => {
                    let generation = self.generation(entry.inode);
                    if mode == OpenMode::Create {
                        drop(self.truncate(entry.inode, generation).await);
                    }
                    if self.generation(entry.inode) == generation {
                        break (entry.inode, generation);
                    }
                }
                (None, OpenMode::Create | OpenMode::CreateKeep | OpenMode::Direct) => {
                    match self.make_entry(path, false).await {
                        Err(FileError::Exists { .. }) => {}
                        made => break made?,
                    }
                }
                (None, OpenMode::Read | OpenMode::Append) => return Err(Self::not_found(path)),
            }
        };
        let writes = mode != OpenMode::Read;
        self.0.state.borrow_mut().disk.inodes[inode as usize].writers += u32::from(writes);
        Ok(OpenFile {
            inode,
            generation,
            writes,
            position_bytes: 0,
            append: mode == OpenMode::Append,
            direct: mode == OpenMode::Direct,
            read_ahead: ReadAhead::default(),
            path: path.into(),
        })
    }

    async fn write(&self, file: &mut OpenFile, data: &[u8]) -> Result<(), FileError> {
        if file.append {
            file.position_bytes = self.0.state.borrow().disk.inodes[file.inode as usize].size_bytes;
        }
        self.pwrite(file, file.position_bytes, data).await?;
        file.position_bytes += data.len() as u64;
        Ok(())
    }

    async fn read(&self, file: &mut OpenFile, buffer: &mut [u8]) -> Result<usize, FileError> {
        let read = self.read_at(file, file.position_bytes, buffer.len() as u64).await?;
        file.position_bytes += read as u64;
        Ok(read)
    }

    async fn pwrite(&self, file: &mut OpenFile, offset: u64, data: &[u8]) -> Result<(), FileError> {
        let len = data.len() as u64;
        if file.direct && len > 0 {
            self.check_aligned(file, offset, len)?;
            return self.write_direct(file, offset, len).await;
        }
        self.write_at(file, offset, len).await
    }

    async fn pread(&self, file: &mut OpenFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        if file.direct {
            self.check_aligned(file, offset, buffer.len() as u64)?;
        }
        self.read_at(file, offset, buffer.len() as u64).await
    }

    async fn seek(&self, file: &mut OpenFile, offset: u64) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        file.position_bytes = offset;
        Ok(())
    }

    async fn punch(&self, file: &mut OpenFile, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.punch_hole(file.inode, file.generation, offset, bytes).await;
        Ok(())
    }

    async fn fsync(&self, file: &mut OpenFile) -> Result<(), FileError> {
        self.sync_file(file, |inode| inode.transaction).await
    }

    async fn fdatasync(&self, file: &mut OpenFile) -> Result<(), FileError> {
        self.sync_file(file, |inode| inode.data_transaction).await
    }

    async fn drop_cached(&self, file: &mut OpenFile) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        let state = &mut *self.0.state.borrow_mut();
        let entry = &mut state.disk.inodes[file.inode as usize];
        if entry.generation == file.generation && entry.dirty_pages + entry.writeback_pages + entry.reads == 0
        {
            state.cache.forget(&mut entry.chunks);
        }
        Ok(())
    }

    async fn close(&self, file: OpenFile) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        let state = &mut *self.0.state.borrow_mut();
        let entry = &mut state.disk.inodes[file.inode as usize];
        if file.writes && entry.generation == file.generation {
            entry.writers -= 1;
            if entry.writers == 0 && entry.reserved_pages == 0 {
                state.disk.allocator.discard_windows(file.inode);
            }
        }
        Ok(())
    }

    async fn unlink(&self, path: &str) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall + self.0.host.cpu.unlink).await;
        match self.lookup(path) {
            None => return Err(Self::not_found(path)),
            Some(entry) if entry.is_directory => return Err(is_a_directory(path)),
            Some(_) => {}
        }
        self.read_for_removal(path).await;
        let handle = self.start_handle(DATA_CREDITS).await;
        let Some(entry) = self.remove_entry(&handle, path, false).await else {
            return Err(Self::not_found(path));
        };
        let generation = self.generation(entry.inode);
        // The name goes in one transaction; the blocks may go in the next (meanwhile the file is on the orphan list).
        drop(handle);
        if let Some(handle) = self.truncate(entry.inode, generation).await {
            self.remove_inode(&handle, entry.inode, entry.is_directory).await;
        }
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let cpu = &self.0.host.cpu;
        self.0.sim.charge(cpu.syscall + cpu.create + cpu.unlink).await;
        self.rename_file(from, to).await
    }

    async fn sync(&self) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        self.sync_all().await;
        Ok(())
    }

    async fn drop_caches(&self) -> Result<(), FileError> {
        self.0.sim.charge(self.0.host.cpu.syscall).await;
        self.drop_all_cached().await;
        Ok(())
    }

    async fn sleep(&self, duration: SimDuration) {
        self.0.sim.sleep(duration).await;
    }

    async fn charge_user_copy(&self, bytes: u64) {
        let time = self.0.host.cpu.copy_page.as_nanos() * bytes / UNIT_BYTES;
        self.0.sim.charge(SimDuration::from_nanos(time)).await;
    }
}
