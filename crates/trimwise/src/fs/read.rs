//! Reading: the page cache, and read-ahead as Linux does it on demand.
//!
//! A miss at the beginning of a file, or right after the last page read, opens a window: four pages for small reads,
//! then twice as many each time, up to 128 KiB. When a reader reaches the first page read ahead of demand, the next
//! window starts, so that a sequential reader seldom waits.

use std::cell::Cell;
use std::rc::Rc;

use super::cache::{CHUNK_PAGES, ChunkId, ChunkState, mask};
use super::{Ext4, OpenFile, State};
use crate::engine::Event;
use crate::files::FileError;
use crate::units::UNIT_BYTES;

/// Journal blocks that an access time's update may change.
const ACCESS_TIME_CREDITS: u64 = 4;

/// A reader's window (Linux: `struct file_ra_state`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAhead {
    start: u64,
    pages: u64,
    ahead: u64,
    previous: Option<u64>,
}

impl ReadAhead {
    fn on_miss(&mut self, page: u64, request: u64, max: u64) -> (u64, u64) {
        let sequential = page == 0 || self.previous.is_some_and(|p| page == p || page == p + 1);
        let size = if sequential { initial_window(request, max) } else { request.min(max) };
        *self = Self { start: page, pages: size, ahead: size.saturating_sub(request), ..*self };
        (page, size)
    }

    /// Opens the next window if `page` is the first that was read ahead.
    fn on_marker(&mut self, page: u64, max: u64) -> Option<(u64, u64)> {
        if self.ahead == 0 || page != self.start + self.pages - self.ahead {
            return None;
        }
        let size = if self.pages < max / 16 { self.pages * 4 } else { self.pages * 2 }.min(max);
        *self = Self { start: self.start + self.pages, pages: size, ahead: size, ..*self };
        Some((self.start, size))
    }
}

/// Returns the pages of the first window (`get_init_ra_size`).
fn initial_window(request: u64, max: u64) -> u64 {
    let size = request.next_power_of_two();
    if size <= max / 32 {
        size * 4
    } else if size <= max / 4 {
        size * 2
    } else {
        max
    }
}

impl Ext4 {
    /// Reads up to `len` bytes from `start` on. Returns the number of bytes read.
    pub(super) async fn read_at(
        &self,
        file: &mut OpenFile,
        start: u64,
        len: u64,
    ) -> Result<usize, FileError> {
        let cpu = &self.0.host.cpu;
        let size = self.size_of(file);
        let end = (start + len).min(size);
        if start >= end {
            self.0.sim.charge(cpu.syscall).await;
            return Ok(0);
        }
        let (first, last) = (start / UNIT_BYTES, (end - 1) / UNIT_BYTES);
        if self.is_first_access(file.inode) {
            self.record_access(file.inode).await;
        }
        if file.direct {
            self.read_direct(file.inode, first, last - first + 1).await;
            return Ok((end - start) as usize);
        }
        let max = self.0.host.read_ahead.units_floor().max(1);
        for page in first..=last {
            while self.page_state(file.inode, page).present == 0 {
                // Another task may have truncated the file while this one waited.
                if page * UNIT_BYTES >= self.size_of(file) {
                    return Ok(0);
                }
                if self.page_state(file.inode, page).reading == 0 {
                    let (from, pages) = file.read_ahead.on_miss(page, last - page + 1, max);
                    self.start_reading(file.inode, from, pages.max(1));
                    continue; // a hole is there at once
                }
                self.0.events.read_done.wait().await;
            }
            if let Some((from, pages)) = file.read_ahead.on_marker(page, max) {
                self.start_reading(file.inode, from, pages);
            }
            file.read_ahead.previous = Some(page);
        }
        let pages = last - first + 1;
        self.0.sim.charge(cpu.syscall + (cpu.page_read + cpu.copy_page) * pages).await;
        {
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[file.inode as usize];
            for chunk in first / CHUNK_PAGES..=last / CHUNK_PAGES {
                state.cache.touch_present(&entry.chunks, chunk);
            }
            self.shrink_cache(state);
        }
        Ok((end - start) as usize)
    }

    /// Reads blocks past the page cache (`O_DIRECT`). A hole costs nothing.
    pub(super) async fn read_direct(&self, inode: u32, page: u64, pages: u64) {
        self.clean(inode, page, pages).await;
        self.wait_for_punches(inode).await;
        // Each call has an event of its own, so that of thousands in flight only the finished one is woken.
        let (left, done) = (Rc::new(Cell::new(0)), Event::new(&self.0.sim));
        let mut at = page;
        while at < page + pages {
            let blocks = {
                let entry = &mut self.0.state.borrow_mut().disk.inodes[inode as usize];
                match entry.map(at, page + pages - at) {
                    Err(hole) => {
                        at += hole;
                        continue;
                    }
                    Ok(blocks) => {
                        entry.reads += 1;
                        blocks
                    }
                }
            };
            at += blocks.units;
            left.set(left.get() + 1);
            let (fs, left, done) = (self.clone(), Rc::clone(&left), done.clone());
            self.0.queue.submit_read(blocks, move || {
                fs.0.state.borrow_mut().disk.inodes[inode as usize].reads -= 1;
                left.set(left.get() - 1);
                done.notify_all();
                fs.0.events.read_done.notify_all();
            });
        }
        while left.get() > 0 {
            done.wait().await;
        }
        self.0.sim.charge(self.0.host.cpu.syscall).await;
    }

    /// Writes a file's dirty pages if any of these pages is dirty or in transfer.
    pub(super) async fn clean(&self, inode: u32, page: u64, pages: u64) {
        let is_clean = {
            let state = &*self.0.state.borrow();
            let entry = &state.disk.inodes[inode as usize];
            let is_unclean = |page| {
                entry.chunks.get(page / CHUNK_PAGES).is_some_and(|id| {
                    let s = state.cache.state(id);
                    (s.dirty | s.writeback) & mask(page % CHUNK_PAGES, 1) != 0
                })
            };
            entry.dirty_pages + entry.writeback_pages == 0 || !(page..page + pages).any(is_unclean)
        };
        if !is_clean {
            self.write_file(inode).await;
        }
    }

    /// Reads one page into memory, for a write that covers only a part of it.
    pub(super) async fn read_page(&self, file: &OpenFile, page: u64) {
        while self.page_state(file.inode, page).present == 0 && page * UNIT_BYTES < self.size_of(file) {
            if self.page_state(file.inode, page).reading != 0 {
                self.0.events.read_done.wait().await;
            } else {
                self.start_reading(file.inode, page, 1);
            }
        }
    }

    pub(super) fn size_of(&self, file: &OpenFile) -> u64 {
        let entry = &self.0.state.borrow().disk.inodes[file.inode as usize];
        if entry.generation == file.generation { entry.size_bytes } else { 0 }
    }

    /// Notes an access. Returns true for the first one after a change: its time is recorded (mount option `relatime`).
    fn is_first_access(&self, inode: u32) -> bool {
        let entry = &mut self.0.state.borrow_mut().disk.inodes[inode as usize];
        !std::mem::replace(&mut entry.accessed_since_change, true)
    }

    async fn record_access(&self, inode: u32) {
        let handle = self.start_handle(ACCESS_TIME_CREDITS).await;
        let block = self.0.state.borrow().disk.layout.inode_block(inode);
        self.dirty_metadata(&handle, &[block]).await;
    }

    #[inline]
    fn page_state(&self, inode: u32, page: u64) -> ChunkState {
        let state = &*self.0.state.borrow();
        state.cache.page(&state.disk.inodes[inode as usize].chunks, page)
    }

    fn start_reading(&self, inode: u32, page: u64, pages: u64) {
        let mut requests = Vec::new();
        {
            let state = &mut *self.0.state.borrow_mut();
            let entry = &mut state.disk.inodes[inode as usize];
            let end = (page + pages).min(entry.size_bytes.div_ceil(UNIT_BYTES));
            let mut at = page;
            while at < end {
                let wanted = at;
                let mut parts: Vec<(ChunkId, u32)> = Vec::new();
                let (limit, blocks) = match entry.map(at, end - at) {
                    Ok(blocks) => (at + blocks.units, Some(blocks.start)),
                    Err(hole) => (at + hole, None),
                };
                while at < limit {
                    let id = state.cache.touch(&mut entry.chunks, inode, at / CHUNK_PAGES);
                    let bits = mask(at % CHUNK_PAGES, 1);
                    let chunk = state.cache.state(id);
                    if (chunk.present | chunk.reading) & bits != 0 {
                        break;
                    }
                    state.cache.begin_read(id, bits);
                    match parts.last_mut() {
                        Some((last, mask)) if *last == id => *mask |= bits,
                        _ => parts.push((id, bits)),
                    }
                    at += 1;
                }
                if at == wanted {
                    at += 1; // in memory already
                } else if let Some(start) = blocks {
                    let range = crate::units::UnitRange::new(start, at - wanted);
                    entry.reads += 1;
                    requests.push((range, parts));
                } else {
                    for (id, bits) in parts {
                        state.cache.end_read(id, bits);
                    }
                }
            }
        }
        for (range, parts) in requests {
            let fs = self.clone();
            self.0.queue.submit_read(range, move || {
                {
                    let state = &mut *fs.0.state.borrow_mut();
                    for (id, bits) in parts {
                        state.cache.end_read(id, bits);
                    }
                    state.disk.inodes[inode as usize].reads -= 1;
                }
                fs.0.events.read_done.notify_all();
            });
        }
    }

    pub(super) fn shrink_cache(&self, state: &mut State) {
        let pages = self.0.host.memory_for_pages(state.inodes_in_use(), state.cache.present_pages());
        state.cache.set_capacity(pages.saturating_sub(self.0.host.slabs.programs_bytes / UNIT_BYTES));
        while let Some((owner, index)) = state.cache.victim() {
            let table = &mut state.disk.inodes[owner as usize].chunks;
            state.cache.evict(table, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_as_a_file_is_read() {
        let mut ra = ReadAhead::default();
        assert_eq!(ra.on_miss(0, 1, 32), (0, 4));
        ra.previous = Some(0);
        assert_eq!(ra.on_marker(1, 32), Some((4, 8)));
        assert_eq!(ra.on_marker(4, 32), Some((12, 16)));
        assert_eq!(ra.on_marker(12, 32), Some((28, 32)));
    }

    #[test]
    fn a_random_read_reads_only_what_was_requested() {
        let mut ra = ReadAhead::default();
        assert_eq!(ra.on_miss(77, 2, 32), (77, 2));
        assert_eq!(ra.on_marker(77, 32), None);
    }
}
