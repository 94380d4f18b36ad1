//! The page map: any unit may lie in any page.
//!
//! Host units fill the *host frontiers*, open superblocks taken in turn, stripe by stripe; copies fill a
//! frontier of their own (or the host's, as a setting). How room is made is in `collect`.
//!
//! Two things may stand before it: `slc`, a cache of flash in SLC mode that takes host units first, and `map_cache`,
//! where the map itself lies in the flash. A device without them pays for them one branch a unit.
//!
//! Copies wait in the controller's own memory, not in the host's write cache, until their stripe is full; the
//! model takes that memory as safe against power loss.

mod audit;
mod collect;
mod frontier;
mod map;
mod map_cache;
mod slc;
mod unmap;

use std::collections::VecDeque;
use std::ops::Range;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::audit::AuditError;
use super::config::SsdConfig;
use super::flash::Flash;
use super::ftl::Victims;
use super::geometry::Geometry;
use super::stats::Wear;
use super::ftl::{NONE, State};
use super::translation::{Ready, Translation};
use crate::content::Content;
use collect::Collector;
use frontier::{Frontier, Stream};
use map::Mapping;
use map_cache::MapCache;
use slc::SlcCache;

#[derive(Clone, Debug)]
pub(super) struct PageMapped {
    flash: Flash,
    map: Mapping,
    victims: Victims,
    /// Free superblocks by lane, in the order in which they became free.
    free: Vec<VecDeque<u32>>,
    free_count: u32,
    /// With an SLC cache, as many in SLC mode come behind them, and one that is never open.
    host: Vec<Frontier>,
    copies: Frontier,
    /// The host frontier that takes the next unit.
    turn: usize,
    collector: Collector,
    shared_frontier: bool,
    slc: Option<Box<SlcCache>>,
    map_cache: Option<Box<MapCache>>,
    /// Slots that were written and then erased, for the audit.
    erased_slots: u64,
}

impl PageMapped {
    pub fn new(config: &SsdConfig, geometry: Geometry, seed: u64) -> Self {
        let slc = SlcCache::new(config, geometry.superblock_units).map(Box::new);
        let mut free = vec![VecDeque::new(); geometry.lanes as usize];
        let first = slc.as_ref().map_or(0, |slc| slc.static_superblocks());
        for superblock in first..geometry.superblocks {
            free[(superblock % geometry.lanes) as usize].push_back(superblock);
        }
        let rest = slc.as_ref().map(|slc| slc.rest());
        Self {
            map: Mapping::new(&geometry, config.track_tags),
            victims: Victims::new(config.gc.victim, geometry.superblocks, geometry.superblock_units),
            free,
            free_count: geometry.superblocks - first,
            host: vec![Frontier::UNUSED; rest.map_or(config.gc.host_frontiers as usize, |rest| rest + 1)],
            copies: Frontier::UNUSED,
            turn: rest.unwrap_or(0),
            slc,
            map_cache: MapCache::new(config, &geometry).map(Box::new),
            collector: Collector::new(config, Xoshiro256PlusPlus::seed_from_u64(seed)),
            shared_frontier: config.gc.shared_frontier,
            erased_slots: 0,
            flash: Flash::new(config, geometry),
        }
    }

    /// Slots that no unit has taken since their erase.
    pub fn free_slots(&self) -> u64 {
        self.map.blocks.iter().map(|b| u64::from(self.flash.geometry.superblock_units - b.written)).sum()
    }

    /// Slots that were written and then erased.
    pub fn erased_slots(&self) -> u64 {
        self.erased_slots
    }

    /// The superblocks in the free pool, for the audit.
    pub fn free_pool(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().flatten().copied()
    }

    /// The open superblocks and their next slots, for the audit.
    pub fn frontiers(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let copies = (!self.shared_frontier).then_some(&self.copies);
        let map = self.map_cache.as_ref().map(|cache| &cache.frontier);
        self.host
            .iter()
            .chain(copies)
            .chain(map)
            .filter(|f| f.superblock != NONE)
            .map(|f| (f.superblock, f.next))
    }

    /// Writes one host unit that the controller has at hand at `ready`.
    #[inline]
    fn write_unit(&mut self, now: u64, ready: u64, lpn: u32, tag: u32) {
        let mut turn = self.turn;
        if self.host[turn].next == self.host[turn].stripe_end {
            turn = self.begin_stripe(turn, now);
        }
        let old = self.map.l2p[lpn as usize];
        if old == NONE {
            self.map.mapped += 1;
        } else {
            self.invalidate(old);
        }
        let frontier = &mut self.host[turn];
        let (superblock, offset) = (frontier.superblock, frontier.next);
        frontier.next += 1;
        frontier.host_units += 1;
        frontier.ready = frontier.ready.max(ready);
        let full = frontier.next == frontier.stripe_end;
        self.map.set(superblock, offset, lpn);
        self.map.set_tag(superblock * self.flash.geometry.superblock_units + offset, tag);
        let block = &mut self.map.blocks[superblock as usize];
        block.valid += 1;
        block.written += 1;
        self.flash.stats.nand_units.host += 1;
        if full {
            self.program(Stream::Host(turn), now);
            self.end_stripe(turn, now);
        }
    }

    /// The unit at a slot counts no more.
    #[inline]
    pub fn invalidate(&mut self, ppn: u32) {
        let (superblock, offset) = self.map.split(ppn);
        self.map.clear_bit(superblock, offset);
        let block = &mut self.map.blocks[superblock as usize];
        let before = block.valid;
        block.valid = before - 1;
        if block.state == State::Closed {
            self.victims.lost(superblock, before, before - 1);
        }
    }

    /// Whether a slot belongs to a stripe that is still being filled, or to one of the host's whose program
    /// has not ended at `now`: a read then needs no flash.
    #[inline]
    pub fn in_memory(&self, ppn: u32, now: u64) -> bool {
        let (superblock, offset) = self.map.split(ppn);
        let block = &self.map.blocks[superblock as usize];
        let stripe_units = self.flash.geometry.stripe_units;
        let first = offset - offset % stripe_units;
        if block.state == State::Open && block.written < first + stripe_units {
            return true;
        }
        block.programmed_at > now
            && self.flash.cache.holds(superblock * self.flash.geometry.superblock_units + first, now)
    }

    pub fn erased(&mut self, superblock: u32) {
        let block = &mut self.map.blocks[superblock as usize];
        debug_assert_eq!(block.valid, 0, "an erase must not destroy data");
        self.erased_slots += u64::from(block.written);
        block.written = 0;
        block.erases += 1;
        block.state = State::Free;
        block.slc = false;
        block.programmed_at = 0;
        self.collector.erases_since_move = self.collector.erases_since_move.saturating_add(1);
        self.flash.stats.superblock_erases += 1;
        self.flash.stats.block_erases += u64::from(self.flash.geometry.blocks_per_superblock);
    }

    fn erase_everything(&mut self, now: u64) -> u64 {
        let mut end = now;
        let first = self.static_superblocks();
        self.map.l2p.fill(NONE);
        self.map.bits.fill(0);
        self.map.mapped = 0;
        for lane in &mut self.free {
            lane.clear();
        }
        for superblock in 0..self.flash.geometry.superblocks {
            let block = &mut self.map.blocks[superblock as usize];
            block.valid = 0;
            if block.written > 0 || block.state != State::Free {
                self.erased(superblock);
                for i in 0..self.flash.geometry.dies_per_superblock {
                    let die = self.flash.geometry.die(superblock, i);
                    end = end.max(self.flash.nand.erase(die, now, &mut self.flash.stats.busy_ns));
                }
            }
            if superblock >= first {
                self.free[(superblock % self.flash.geometry.lanes) as usize].push_back(superblock);
            }
        }
        self.free_count = self.flash.geometry.superblocks - first;
        self.host.fill(Frontier::UNUSED);
        self.copies = Frontier::UNUSED;
        if let Some(slc) = &mut self.slc {
            slc.clear();
            self.turn = slc.rest();
        }
        if let Some(cache) = &mut self.map_cache {
            cache.clear();
        }
        self.collector.clear();
        self.victims.clear();
        self.flash.cache.clear();
        end
    }

    fn slot(&self, lpn: u32) -> Option<u32> {
        let ppn = *self.map.l2p.get(lpn as usize)?;
        (ppn != NONE).then_some(ppn)
    }

    /// Reads a number of units of a stripe whose places are known at `ready`.
    fn read_run(&mut self, run: Option<(u32, u32, u64)>, now: u64) -> Option<u64> {
        let (stripe, units, ready) = run?;
        let (superblock, offset) = self.map.split(stripe * self.flash.geometry.stripe_units);
        let mut at = self.flash.place(superblock, offset);
        at.slc = self.slc.is_some() && self.map.blocks[superblock as usize].slc;
        Some(self.flash.nand.read(at, now, ready, units, &mut self.flash.stats.busy_ns))
    }
}

impl Translation for PageMapped {
    fn boxed_clone(&self) -> Box<dyn Translation> {
        Box::new(self.clone())
    }

    fn flash(&self) -> &Flash {
        &self.flash
    }

    fn flash_mut(&mut self) -> &mut Flash {
        &mut self.flash
    }

    fn write(&mut self, now: u64, arrived: u64, units: Range<u32>, content: Content) -> u64 {
        let tag = content.tag();
        let mut acknowledged = arrived;
        for lpn in units {
            let (in_cache, mut ready) = self.flash.admit(acknowledged);
            acknowledged = in_cache;
            if self.map_cache.is_some() {
                ready = ready.max(self.translate(now, in_cache, lpn, true));
            }
            self.write_unit(now, ready, lpn, tag);
        }
        acknowledged
    }

    fn pad(&mut self, now: u64) {
        self.pad_stripes(now);
    }

    fn read(&mut self, now: u64, decoded: u64, units: Range<u32>) -> Ready {
        // Units of one stripe that follow each other are read together.
        let (mut first, mut last) = (u64::MAX, decoded);
        let mut run: Option<(u32, u32, u64)> = None;
        for lpn in units {
            let mut decoded = decoded;
            if self.map_cache.is_some() {
                decoded = self.translate(now, decoded, lpn, false);
                last = last.max(decoded);
            }
            let ppn = self.map.l2p[lpn as usize];
            if ppn == NONE {
                self.flash.stats.host_units_read_unmapped += 1;
                first = first.min(decoded);
                continue;
            }
            if self.in_memory(ppn, now) {
                self.flash.stats.host_units_read_cached += 1;
                first = first.min(decoded);
                continue;
            }
            let stripe = ppn / self.flash.geometry.stripe_units;
            run = match run {
                Some((at, count, ready)) if at == stripe => Some((at, count + 1, ready.max(decoded))),
                other => {
                    let ready = self.read_run(other, now);
                    first = first.min(ready.unwrap_or(u64::MAX));
                    last = last.max(ready.unwrap_or(0));
                    Some((stripe, 1, decoded))
                }
            };
        }
        if let Some(ready) = self.read_run(run, now) {
            first = first.min(ready);
            last = last.max(ready);
        }
        Ready { first, last }
    }

    fn is_in_memory(&self, lpn: u32, now: u64) -> bool {
        self.slot(lpn).is_some_and(|ppn| self.in_memory(ppn, now))
    }

    fn unmap(&mut self, now: u64, ranges: &[Range<u32>]) -> u64 {
        if self.map_cache.is_some() {
            self.unmap_parts(now, ranges);
        }
        self.unmap_ranges(ranges)
    }

    fn forget(&mut self, now: u64, range: &Range<u32>) -> u64 {
        // The parts of the map stay as they are, unless nothing is left of any: that costs nothing.
        if self.map_cache.is_some() && range.len() == self.flash.geometry.logical_units as usize {
            self.unmap_parts(now, std::slice::from_ref(range));
        }
        self.unmap_ranges(std::slice::from_ref(range))
    }

    fn unmapped_at(&self) -> u64 {
        self.map_cache.as_ref().map_or(0, |cache| cache.unmapped_at())
    }

    fn erase_all(&mut self, now: u64) -> u64 {
        self.erase_everything(now)
    }

    fn collect_idle(&mut self, from: u64, until: u64) {
        self.collect_between(from, until);
    }

    fn is_mapped(&self, lpn: u32) -> bool {
        self.slot(lpn).is_some()
    }

    fn mapped_units(&self) -> u64 {
        self.map.mapped
    }

    fn tag(&self, lpn: u32) -> Option<u32> {
        self.map.tag(self.slot(lpn)?)
    }

    fn wear(&self) -> Wear {
        Wear::of(self.map.blocks.iter().map(|block| block.erases))
    }

    fn free_superblocks(&self) -> u32 {
        self.free_count
    }

    fn memory_bytes(&self) -> u64 {
        let free: usize = self.free.iter().map(VecDeque::capacity).sum();
        let parts = self.map_cache.as_ref().map_or(0, |cache| cache.memory_bytes());
        self.map.memory_bytes() + self.victims.memory_bytes() + free as u64 * 4 + parts
    }

    fn audit(&self) -> Result<(), AuditError> {
        self.audit_books()
    }
}
