//! Who is where: the page map.
//!
//! Two tables of 32-bit numbers and a bitmap. `l2p` says where a logical unit lies; `p2l` says which
//! logical unit was written to a slot; the bitmap says whether the slot still counts. Invalidating a slot
//! touches the bitmap and the block's count but never `p2l`: the bitmap is 64 times smaller and stays in
//! the processor's cache, and a victim's entries of `p2l` are read in order anyway.

use std::hint::black_box;

use super::super::config::SsdConfig;
use super::super::ftl::{Bitmap, NONE, Slot};
use super::super::geometry::Geometry;
use super::super::translation::EXPECTED_AT_ONCE;
use super::map_cache::MapCache;
use super::slc::SlcCache;

#[derive(Clone, Debug)]
pub(in crate::ssd) struct PageMap {
    /// The logical units of the host, and behind them those of the map if it lies in the flash.
    pub(super) l2p: Vec<u32>,
    pub(super) p2l: Vec<u32>,
    pub(super) live: Bitmap,
    superblock_units: u32,
    /// Logical units of the host.
    pub(super) logical_units: u32,
    /// Of them, those that hold data.
    pub(super) mapped: u64,
    pub(super) slc: Option<Box<SlcCache>>,
    pub(super) cache: Option<Box<MapCache>>,
    /// Tags by slot, only for tests.
    tags: Vec<u32>,
}

impl PageMap {
    pub fn new(config: &SsdConfig, geometry: &Geometry) -> Self {
        Self {
            l2p: vec![NONE; (geometry.logical_units + geometry.map_units) as usize],
            p2l: vec![NONE; geometry.physical_units() as usize],
            live: Bitmap::new(geometry.superblocks, geometry.superblock_units),
            superblock_units: geometry.superblock_units,
            logical_units: geometry.logical_units,
            mapped: 0,
            slc: SlcCache::new(config, geometry.superblock_units).map(Box::new),
            cache: MapCache::new(config, geometry).map(Box::new),
            tags: vec![0; if config.track_tags { geometry.physical_units() as usize } else { 0 }],
        }
    }

    #[inline]
    pub(crate) fn ppn(&self, slot: Slot) -> u32 {
        slot.superblock * self.superblock_units + slot.offset
    }

    /// Notes that a logical unit lies at a slot now.
    #[inline]
    pub fn set(&mut self, slot: Slot, lpn: u32) {
        let ppn = self.ppn(slot);
        self.l2p[lpn as usize] = ppn;
        self.p2l[ppn as usize] = lpn;
        self.live.set(slot.superblock, slot.offset);
    }

    /// Takes the slot from a logical unit, of the host or of the map, that has one. Returns its superblock.
    #[inline]
    pub fn clear(&mut self, lpn: u32) -> Option<u32> {
        let ppn = std::mem::replace(&mut self.l2p[lpn as usize], NONE);
        if ppn == NONE {
            return None;
        }
        let superblock = ppn / self.superblock_units;
        self.live.clear(superblock, ppn % self.superblock_units);
        Some(superblock)
    }

    /// Fetches the entries of logical units and the words of their slots into the processor's caches. Loads that
    /// nothing waits for are under way side by side; in the course of commands each would be waited for alone.
    #[inline]
    pub(super) fn fetch(&self, lpns: &[u32]) {
        let mut slots = [NONE; EXPECTED_AT_ONCE];
        for (slot, &lpn) in slots.iter_mut().zip(lpns) {
            *slot = self.l2p[lpn as usize];
        }
        let mapped = slots[..lpns.len()].iter().filter(|&&slot| slot != NONE);
        let word =
            |&slot: &u32| self.live.word_of(slot / self.superblock_units, slot % self.superblock_units);
        black_box(mapped.map(word).fold(0, u64::wrapping_add));
    }

    /// Fetches the entries that change when the next `count` live slots of a superblock are copied.
    pub(super) fn fetch_copies(&self, superblock: u32, from: u32, count: usize) {
        let live = self.live.iter(superblock, from).take(count);
        let first = superblock as usize * self.superblock_units as usize;
        let entry = |offset: u32| self.l2p[self.p2l[first + offset as usize] as usize];
        black_box(live.map(entry).fold(0, u32::wrapping_add));
    }

    /// Where a unit of the host lies.
    pub fn find(&self, lpn: u32) -> Option<u32> {
        self.l2p.get(lpn as usize).copied().filter(|&ppn| ppn != NONE)
    }

    pub(crate) fn set_tag(&mut self, slot: Slot, tag: u32) {
        let ppn = self.ppn(slot);
        if let Some(kept) = self.tags.get_mut(ppn as usize) {
            *kept = tag;
        }
    }

    pub(crate) fn tag_at(&self, ppn: u32) -> Option<u32> {
        self.tags.get(ppn as usize).copied()
    }

    #[inline]
    pub(crate) fn copy_tag(&mut self, from: Slot, to: Slot) {
        if !self.tags.is_empty() {
            let (from, to) = (self.ppn(from), self.ppn(to));
            self.tags[to as usize] = self.tags[from as usize];
        }
    }

    /// Forgets everything; the counts of the superblocks are the caller's.
    pub(crate) fn clear_all(&mut self) {
        self.l2p.fill(NONE);
        self.live.clear_all();
        self.mapped = 0;
    }

    /// Bytes of the tables, tags aside.
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.l2p.capacity() + self.p2l.capacity()) as u64 * 4 + self.live.memory_bytes()
    }
}
