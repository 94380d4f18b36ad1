//! The page map: the slot of each unit.
//!
//! Two tables of 32-bit numbers and a bitmap. `l2p` says where a logical unit lies; `p2l` says which
//! logical unit was written to a slot; the bitmap says whether the slot still counts. Invalidating a slot
//! touches the bitmap and the block's count but never `p2l`: the bitmap is 64 times smaller and stays in
//! the processor's cache, and a victim's entries of `p2l` are read in order anyway.

use std::hint::black_box;

use super::super::address::{Number, Ppn, ShortLpn, Slot, Superblock, Table, Tags};
use super::super::config::SsdConfig;
use super::super::ftl::Bitmap;
use super::super::geometry::Geometry;
use super::super::translation::EXPECTED_AT_ONCE;
use super::map_cache::MapCache;
use super::slc::SlcCache;
use crate::units::Lpn;

#[derive(Clone, Debug)]
pub(in crate::ssd) struct PageMap {
    /// Slots of the host's logical units, then of those of the map if it lies in the flash.
    pub(super) l2p: Table<Lpn, Ppn>,
    pub(super) p2l: Table<Ppn, ShortLpn>,
    pub(super) live: Bitmap,
    superblock_units: u32,
    pub(super) host_end: Lpn,
    pub(super) mapped: u64,
    pub(super) slc: Option<Box<SlcCache>>,
    pub(super) cache: Option<Box<MapCache>>,
    pub(super) tags: Tags,
}

impl PageMap {
    pub fn new(config: &SsdConfig, geometry: &Geometry) -> Self {
        Self {
            l2p: Table::new((geometry.logical_units + geometry.map_units) as usize, Ppn::NONE),
            p2l: Table::new(geometry.physical_units() as usize, ShortLpn::NONE),
            live: Bitmap::new(geometry.superblocks, geometry.superblock_units),
            superblock_units: geometry.superblock_units,
            host_end: Lpn(geometry.logical_units.into()),
            mapped: 0,
            slc: SlcCache::new(config).map(Box::new),
            cache: MapCache::new(config, geometry).map(Box::new),
            tags: Tags::new(config.track_tags, geometry.physical_units()),
        }
    }

    #[inline]
    pub(crate) fn ppn(&self, slot: Slot) -> Ppn {
        slot.ppn(self.superblock_units)
    }

    #[inline]
    pub fn set(&mut self, slot: Slot, lpn: Lpn) {
        let ppn = self.ppn(slot);
        self.l2p[lpn] = ppn;
        self.p2l[ppn] = lpn.into();
        self.live.set(slot);
    }

    /// Unmaps a mapped logical unit, of the host or of the map. Returns its superblock.
    #[inline]
    pub fn clear(&mut self, lpn: Lpn) -> Option<Superblock> {
        let ppn = std::mem::replace(&mut self.l2p[lpn], Ppn::NONE);
        if ppn == Ppn::NONE {
            return None;
        }
        let slot = ppn.slot(self.superblock_units);
        self.live.clear(slot);
        Some(slot.superblock)
    }

    #[inline]
    pub fn find(&self, lpn: Lpn) -> Option<Ppn> {
        self.l2p.at(lpn).copied().filter(|&ppn| ppn != Ppn::NONE)
    }

    /// Forgets everything. The caller must reset the counts of the superblocks.
    pub(crate) fn clear_all(&mut self) {
        self.l2p.fill(Ppn::NONE);
        self.live.clear_all();
        self.mapped = 0;
    }

    /// Fetches the entries of logical units and the words of their slots into the processor's caches. Here the loads
    /// overlap; in the course of commands, each would be waited for alone.
    #[inline]
    pub(super) fn fetch(&self, lpns: &[Lpn]) {
        let mut ppns = [Ppn::NONE; EXPECTED_AT_ONCE];
        for (ppn, &lpn) in ppns.iter_mut().zip(lpns) {
            *ppn = self.l2p[lpn];
        }
        let mapped = ppns[..lpns.len()].iter().filter(|&&ppn| ppn != Ppn::NONE);
        let word = |ppn: &Ppn| self.live.word_of(ppn.slot(self.superblock_units));
        black_box(mapped.map(word).fold(0, u64::wrapping_add));
    }

    /// Fetches the entries that change when the next `count` live slots of a superblock are copied.
    pub(super) fn fetch_copies(&self, superblock: Superblock, from: u32, count: usize) {
        let live = self.live.iter(superblock, from).take(count);
        let entry = |offset| self.l2p[self.p2l[self.ppn(Slot::new(superblock, offset))].lpn()].0;
        black_box(live.map(entry).fold(0, u32::wrapping_add));
    }
}
