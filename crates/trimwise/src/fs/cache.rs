//! The page cache: the pages of files that are in memory, dirty, or in transfer to the device.
//!
//! Pages are kept in chunks of 32 (128 KiB) with one bit per page and state, so that each system call costs only a few
//! word operations. Chunks are evicted least recently used first; those with dirty pages or pages in transfer stay.
//! Linux keeps two lists (active and inactive) of single pages; for files that are read and written as wholes the
//! difference is small.

use super::page_lists::PageLists;
use crate::units::SimTime;

pub(crate) const CHUNK_PAGES: u64 = 32;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkId(u32);

#[derive(Clone, Debug, Default)]
struct Chunk {
    owner: u32,
    index: u32,
    present: u32,
    dirty: u32,
    writeback: u32,
    reading: u32,
    newer: u32,
    older: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkTable(Vec<u32>);

impl ChunkTable {
    pub fn get(&self, index: u64) -> Option<ChunkId> {
        self.0.get(index as usize).copied().filter(|&id| id != NONE).map(ChunkId)
    }

    /// Returns an upper bound on the positions of chunks in memory, exclusive.
    pub fn end(&self) -> u64 {
        self.0.len() as u64
    }

    fn set(&mut self, index: u64, id: u32) {
        if self.0.len() <= index as usize {
            self.0.resize(index as usize + 1, NONE);
        }
        self.0[index as usize] = id;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkState {
    pub present: u32,
    /// Pages that differ from those on, or on the way to, the device.
    pub dirty: u32,
    pub writeback: u32,
    pub reading: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    chunks: Vec<Chunk>,
    vacant: Vec<u32>,
    newest: u32,
    oldest: u32,
    capacity_pages: u64,
    present_pages: u64,
    dirty_pages: u64,
    writeback_pages: u64,
    /// Page lists of the processor, for kernels in which they can grow.
    lists: Option<PageLists>,
}

pub(crate) fn mask(first: u64, count: u64) -> u32 {
    debug_assert!(first + count <= CHUNK_PAGES);
    if count == CHUNK_PAGES { u32::MAX } else { ((1u32 << count) - 1) << first }
}

/// Splits `pages` pages from `page` on by chunk: position of the chunk, the first page in it, and the number of pages.
pub(crate) fn in_chunks(page: u64, pages: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = page + pages;
    std::iter::successors(Some(page), |at| Some((at / CHUNK_PAGES + 1) * CHUNK_PAGES))
        .take_while(move |at| *at < end)
        .map(move |at| (at / CHUNK_PAGES, at % CHUNK_PAGES, (CHUNK_PAGES - at % CHUNK_PAGES).min(end - at)))
}

impl PageCache {
    pub fn new(capacity_pages: u64, lists: Option<PageLists>) -> Self {
        Self { newest: NONE, oldest: NONE, capacity_pages, lists, ..Self::default() }
    }

    /// Returns the free pages on the processor's own lists, which do not count as free.
    pub(crate) fn listed_pages(&mut self, now: SimTime) -> u64 {
        self.lists.as_mut().map_or(0, |lists| {
            lists.pass(now);
            lists.count()
        })
    }

    fn take_pages(&mut self, pages: u64) {
        self.present_pages += pages;
        if let Some(lists) = &mut self.lists {
            lists.take(pages, self.present_pages >= self.capacity_pages);
        }
    }

    pub(crate) fn set_capacity(&mut self, pages: u64) {
        self.capacity_pages = pages;
    }

    pub(crate) fn present_pages(&self) -> u64 {
        self.present_pages
    }

    pub fn dirty_pages(&self) -> u64 {
        self.dirty_pages
    }

    pub(crate) fn writeback_pages(&self) -> u64 {
        self.writeback_pages
    }

    pub fn state(&self, id: ChunkId) -> ChunkState {
        let c = &self.chunks[id.0 as usize];
        ChunkState { present: c.present, dirty: c.dirty, writeback: c.writeback, reading: c.reading }
    }

    /// Returns the states of one page of a file; each is a bit or 0.
    pub fn page(&self, table: &ChunkTable, page: u64) -> ChunkState {
        let bit = mask(page % CHUNK_PAGES, 1);
        let Some(id) = table.get(page / CHUNK_PAGES) else { return ChunkState::default() };
        let ChunkState { present, dirty, writeback, reading } = self.state(id);
        ChunkState {
            present: present & bit,
            dirty: dirty & bit,
            writeback: writeback & bit,
            reading: reading & bit,
        }
    }

    /// Returns the pages of a chunk that are dirty and not in transfer.
    pub fn ready(&self, table: &ChunkTable, index: u64) -> u32 {
        table
            .get(index)
            .map_or(0, |id| self.chunks[id.0 as usize].dirty & !self.chunks[id.0 as usize].writeback)
    }

    /// Makes the chunk of a file at `index`, if there is one, the most recently used. Returns it.
    #[inline]
    pub(crate) fn touch_present(&mut self, table: &ChunkTable, index: u64) -> Option<ChunkId> {
        let id = table.get(index)?;
        if self.newest != id.0 {
            self.unlink(id.0);
            self.link_newest(id.0);
        }
        Some(id)
    }

    /// Returns the chunk of file `owner` at `index`, creating it if needed, and makes it the most recently used.
    #[inline]
    pub fn touch(&mut self, table: &mut ChunkTable, owner: u32, index: u64) -> ChunkId {
        match self.touch_present(table, index) {
            Some(id) => id,
            None => self.add(table, owner, index),
        }
    }

    fn add(&mut self, table: &mut ChunkTable, owner: u32, index: u64) -> ChunkId {
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk::default());
            (self.chunks.len() - 1) as u32
        });
        self.chunks[id as usize] = Chunk { owner, index: index as u32, ..Chunk::default() };
        self.link_newest(id);
        table.set(index, id);
        ChunkId(id)
    }

    /// Marks pages that a process has written as present and dirty. Returns the number that became dirty.
    pub(crate) fn mark_dirty(&mut self, id: ChunkId, pages: u32) -> u64 {
        let c = &mut self.chunks[id.0 as usize];
        let new = u64::from((pages & !c.dirty).count_ones());
        let taken = u64::from((pages & !c.present).count_ones());
        c.present |= pages;
        c.dirty |= pages;
        self.dirty_pages += new;
        self.take_pages(taken);
        new
    }

    pub(crate) fn begin_writeback(&mut self, id: ChunkId, pages: u32) {
        let c = &mut self.chunks[id.0 as usize];
        debug_assert_eq!(c.dirty & pages, pages);
        debug_assert_eq!(c.writeback & pages, 0);
        c.dirty &= !pages;
        c.writeback |= pages;
        let n = u64::from(pages.count_ones());
        self.dirty_pages -= n;
        self.writeback_pages += n;
    }

    pub(crate) fn end_writeback(&mut self, id: ChunkId, pages: u32) {
        let c = &mut self.chunks[id.0 as usize];
        debug_assert_eq!(c.writeback & pages, pages);
        c.writeback &= !pages;
        self.writeback_pages -= u64::from(pages.count_ones());
    }

    pub(crate) fn begin_read(&mut self, id: ChunkId, pages: u32) {
        let c = &mut self.chunks[id.0 as usize];
        debug_assert_eq!((c.present | c.reading) & pages, 0);
        c.reading |= pages;
    }

    pub(crate) fn end_read(&mut self, id: ChunkId, pages: u32) {
        let c = &mut self.chunks[id.0 as usize];
        let arrived = pages & c.reading;
        c.reading &= !pages;
        let taken = u64::from((arrived & !c.present).count_ones());
        c.present |= arrived;
        self.take_pages(taken);
    }

    /// Drops a file's pages; none may be under write-back. Returns the number of dirty ones.
    pub fn forget(&mut self, table: &mut ChunkTable) -> u64 {
        let mut dropped = 0;
        for id in std::mem::take(&mut table.0).into_iter().filter(|&id| id != NONE) {
            debug_assert_eq!(self.chunks[id as usize].writeback, 0);
            dropped += u64::from(self.chunks[id as usize].dirty.count_ones());
            self.remove(id);
        }
        self.dirty_pages -= dropped;
        dropped
    }

    /// Drops a file's pages from `page` on; none may be under write-back or being read. Returns the dirty ones.
    pub(crate) fn forget_from(&mut self, table: &mut ChunkTable, page: u64) -> Vec<u64> {
        let mut dropped = Vec::new();
        for (index, first, count) in in_chunks(page, (table.end() * CHUNK_PAGES).saturating_sub(page)) {
            let Some(ChunkId(id)) = table.get(index) else { continue };
            let bits = mask(first, count);
            let c = &mut self.chunks[id as usize];
            debug_assert_eq!((c.writeback | c.reading) & bits, 0);
            let (dirty, gone) = (c.dirty & bits, c.present & bits);
            (c.dirty, c.present) = (c.dirty & !bits, c.present & !bits);
            dropped.extend((0..CHUNK_PAGES).filter(|i| dirty & 1 << i != 0).map(|i| index * CHUNK_PAGES + i));
            self.give_pages(u64::from(gone.count_ones()));
            if first == 0 {
                self.evict(table, index);
            }
        }
        self.dirty_pages -= dropped.len() as u64;
        dropped
    }

    /// Returns the least recently used chunk that can be evicted, as owner and position, if memory is short.
    ///
    /// The caller must then call [`PageCache::evict`], which clears the owner's table entry.
    pub fn victim(&mut self) -> Option<(u32, u64)> {
        if self.present_pages <= self.capacity_pages {
            return None;
        }
        // Chunks that must stay move to the young end, as Linux rotates dirty pages. The bound keeps this cheap when
        // nearly everything is dirty.
        for _ in 0..64 {
            let id = self.oldest;
            if id == NONE {
                return None;
            }
            let c = &self.chunks[id as usize];
            if c.dirty | c.writeback | c.reading == 0 {
                return Some((c.owner, u64::from(c.index)));
            }
            self.unlink(id);
            self.link_newest(id);
        }
        None
    }

    pub(crate) fn evict(&mut self, table: &mut ChunkTable, index: u64) {
        if let Some(ChunkId(id)) = table.get(index) {
            self.remove(id);
            table.set(index, NONE);
        }
    }

    fn give_pages(&mut self, pages: u64) {
        if let Some(lists) = &mut self.lists {
            lists.give(pages, self.present_pages >= self.capacity_pages);
        }
        self.present_pages -= pages;
    }

    fn remove(&mut self, id: u32) {
        self.give_pages(u64::from(self.chunks[id as usize].present.count_ones()));
        self.unlink(id);
        self.vacant.push(id);
    }

    fn link_newest(&mut self, id: u32) {
        let old = self.newest;
        let c = &mut self.chunks[id as usize];
        c.newer = NONE;
        c.older = old;
        if old == NONE {
            self.oldest = id;
        } else {
            self.chunks[old as usize].newer = id;
        }
        self.newest = id;
    }

    fn unlink(&mut self, id: u32) {
        let (newer, older) = {
            let c = &self.chunks[id as usize];
            (c.newer, c.older)
        };
        if newer == NONE {
            self.newest = older;
        } else {
            self.chunks[newer as usize].older = older;
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            self.chunks[older as usize].newer = newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_clean_chunk_goes_first() {
        let mut cache = PageCache::new(40, None);
        let mut table = ChunkTable::default();
        for index in 0..3 {
            let id = cache.touch(&mut table, 7, index);
            assert_eq!(cache.mark_dirty(id, mask(0, 16)), 16);
        }
        assert_eq!(cache.dirty_pages(), 48);
        for index in [0, 1] {
            let id = table.get(index).unwrap();
            cache.begin_writeback(id, mask(0, 16));
            cache.end_writeback(id, mask(0, 16));
        }
        cache.touch(&mut table, 7, 0);
        assert_eq!(cache.victim(), Some((7, 1)));
        cache.evict(&mut table, 1);
        assert_eq!(cache.victim(), None);
        assert_eq!(cache.forget(&mut table), 16);
        assert_eq!(cache.dirty_pages(), 0);
    }

    #[test]
    fn a_page_dirtied_under_write_back_stays_dirty() {
        let mut cache = PageCache::new(100, None);
        let mut table = ChunkTable::default();
        let id = cache.touch(&mut table, 1, 0);
        cache.mark_dirty(id, mask(3, 2));
        cache.begin_writeback(id, mask(3, 2));
        assert_eq!(cache.mark_dirty(id, mask(3, 1)), 1);
        cache.end_writeback(id, mask(3, 2));
        assert_eq!(cache.state(id).dirty, mask(3, 1));
        assert_eq!(cache.writeback_pages(), 0);
    }
}
