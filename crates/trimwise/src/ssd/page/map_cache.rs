//! A map that lies in the flash, and the cache for parts of it (Gupta, Kim and Urgaonkar, DFTL, ASPLOS 2009).
//!
//! A *part* is one unit: the places of 1,024 logical units. Parts are logical units themselves, behind those of the
//! host, in the same page map, and are collected with everything else. A directory, which fits in memory, has their
//! places. Writes caused by the map fill a frontier of their own.
//!
//! A look-up of the host brings the part into the cache if it is not there: the least recently used part leaves, and is
//! written if it has changed. A TRIM of all units of a part leaves nothing of it to keep, so that it costs no flash
//! operation, unless [`TrimMap`] says that the firmware looks at the part all the same. Copies change parts too. A part in the cache is changed there. The others are noted, each once, and read,
//! changed and written when the victim has been erased (*lazy copying*). Only if a command waits for the collector, or
//! the last free superblock would be needed, are they left to the next victim: collecting never depends on room for the
//! map. The model assumes that this list and the directory are safe in the controller's memory.
//!
//! A look-up touches a few array elements: the order of use is one of [`Lists`].

use super::super::address::{Number, Ppn, Table, number};
use super::super::audit::{AuditError, ensure};
use super::super::config::{MappingConfig, SsdConfig, TrimMap};
use super::super::ftl::Lists;
use super::super::geometry::{Geometry, MAP_PART_UNITS};
use super::PageMapped;
use crate::units::{Lpn, SimTime, UNIT_BYTES, UnitRange};

number! {
    Part
}

impl Part {
    fn of(lpn: Lpn) -> Self {
        Self((lpn.0 / u64::from(MAP_PART_UNITS)) as u32)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PartState {
    cached: bool,
    /// Cached, and changed since it was last written to the flash.
    dirty: bool,
    /// Not cached, and changed by copies that are not yet in the flash.
    moved: bool,
    /// In the list of moved parts, even if it is no longer one.
    listed: bool,
}

/// The cache has a single list: its parts, from the least to the most recently used.
const USED: usize = 0;

#[derive(Clone, Debug)]
pub(super) struct MapCache {
    capacity: u32,
    trim_map: TrimMap,
    used: u32,
    parts: Table<Part, PartState>,
    order: Lists<Part>,
    /// Parts that copies have changed, in that order. Those no longer marked as moved are skipped.
    moved: Vec<Part>,
    /// Slots filled in the frontier's stripes for which nothing was collected yet.
    owed_units: u32,
    /// When the parts read for the last unmapping were there.
    pub(super) unmapped_at: SimTime,
}

impl MapCache {
    pub fn new(config: &SsdConfig, geometry: &Geometry) -> Option<Self> {
        let MappingConfig::Page { map_cache: Some(cache), trim_map } = &config.mapping else { return None };
        let parts = geometry.map_units as usize;
        Some(Self {
            capacity: (cache.bytes / UNIT_BYTES).min(u64::from(geometry.map_units)) as u32,
            trim_map: *trim_map,
            used: 0,
            parts: Table::new(parts, PartState::default()),
            order: Lists::new(1, parts),
            moved: Vec::new(),
            owed_units: 0,
            unmapped_at: SimTime::ZERO,
        })
    }

    /// Returns true if the part of a range without data stays in the map, rather than being dropped.
    pub(crate) fn keeps_empty_parts(&self) -> bool {
        self.trim_map != TrimMap::Dropped
    }

    #[inline]
    pub fn copied(&mut self, lpn: Lpn) {
        let part = Part::of(lpn);
        let state = &mut self.parts[part];
        if state.cached {
            state.dirty = true;
        } else if !state.moved {
            state.moved = true;
            if !state.listed {
                state.listed = true;
                self.moved.push(part);
            }
        }
    }

    /// Takes a part out of the cache. Returns true if it was dirty.
    fn remove(&mut self, part: Part) -> bool {
        self.order.remove(USED, part);
        self.used -= 1;
        let state = &mut self.parts[part];
        state.cached = false;
        std::mem::take(&mut state.dirty)
    }

    pub fn clear(&mut self) {
        self.used = 0;
        self.parts.fill(PartState::default());
        self.order.clear();
        self.moved.clear();
        self.owed_units = 0;
    }

    /// Returns the slots taken by the map that no write has paid for, and resets their count.
    pub(crate) fn take_owed(&mut self) -> u32 {
        std::mem::take(&mut self.owed_units)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.parts.memory_bytes() + self.order.memory_bytes() + self.moved.capacity() as u64 * 4
    }

    fn audit(&self) -> Result<(), AuditError> {
        let cached = self.parts.iter().filter(|state| state.cached).count();
        ensure!(cached == self.used as usize, "{cached} parts of the map are cached, {} counted", self.used);
        ensure!(self.used <= self.capacity, "{} parts of the map in a cache of {}", self.used, self.capacity);
        let order = self.order.audited(USED)?;
        for &part in &order {
            ensure!(self.parts[part].cached, "part {part} is in the order of use, and not in the cache");
        }
        ensure!(order.len() == cached, "{} parts in the order of use, {cached} in the cache", order.len());
        for (i, part) in self.parts.numbered() {
            ensure!(part.cached || !part.dirty, "part {i} has changed in a cache that does not hold it");
            ensure!(!(part.cached && part.moved), "part {i} is cached, and its changes are not in it");
            ensure!(!part.moved || part.listed, "part {i} was changed by copies, and is not listed");
        }
        let listed = self.parts.iter().filter(|part| part.listed).count();
        let known = self.moved.iter().all(|&part| self.parts[part].listed);
        ensure!(
            known && listed == self.moved.len(),
            "{listed} parts are listed as moved, not those in the list"
        );
        Ok(())
    }
}

impl PageMapped {
    fn unit_of(&self, part: Part) -> Lpn {
        self.map.host_end.offset(part.0.into())
    }

    /// Looks up a unit, not before `ready`. `changes` says that its place will change. Returns when its place is known.
    pub(crate) fn translate(&mut self, now: SimTime, ready: SimTime, lpn: Lpn, changes: bool) -> SimTime {
        let part = Part::of(lpn);
        let is_stored = self.map.find(self.unit_of(part)).is_some();
        let Some(cache) = &mut self.map.cache else { return ready };
        let state = &mut cache.parts[part];
        if state.cached {
            state.dirty |= changes;
            self.flash.stats.map_cache.hits += 1;
            if cache.order.last(USED) != part {
                cache.order.remove(USED, part);
                cache.order.push(USED, part);
            }
            return ready;
        }
        if !is_stored && !changes {
            return ready;
        }
        self.flash.stats.map_cache.misses += 1;
        if cache.used == cache.capacity {
            self.evict(now);
        }
        // Making room may have moved the part, but did not bring it into the cache.
        let at_hand = self.read_part_of_map(part, now, ready);
        let Some(cache) = &mut self.map.cache else { return ready };
        let state = &mut cache.parts[part];
        // Changes by copies are in the cached part from now on.
        (state.cached, state.dirty) = (true, changes || state.moved);
        state.moved = false;
        cache.used += 1;
        cache.order.push(USED, part);
        at_hand
    }

    /// Reads a part from the flash if it was ever written. Returns when it is in the controller.
    fn read_part_of_map(&mut self, part: Part, now: SimTime, ready: SimTime) -> SimTime {
        match self.map.find(self.unit_of(part)) {
            Some(ppn) if !self.in_memory(ppn, 1, now) => {
                self.flash.stats.map_cache.reads += 1;
                let at = self.flash.place(ppn.slot(self.superblock_slots));
                self.flash.nand.read(at, now, ready, 1, &mut self.flash.stats.busy_ns.read_map)
            }
            _ => ready,
        }
    }

    fn evict(&mut self, now: SimTime) {
        let Some(cache) = &self.map.cache else { return };
        let oldest = cache.order.first(USED);
        if cache.parts[oldest].dirty && !self.frontiers[self.map_frontier].has_room(1) {
            // Collecting changes no order of use, and marks no cached part as moved.
            self.make_room(self.map_frontier, 0, 1, now);
        }
        let Some(cache) = &mut self.map.cache else { return };
        if cache.remove(oldest) {
            self.write_part_of_map(oldest, now, now);
        }
    }

    fn write_part_of_map(&mut self, part: Part, now: SimTime, ready: SimTime) {
        self.clear_part(part);
        self.map.set(self.frontiers[self.map_frontier].slot(), self.unit_of(part));
        self.flash.stats.nand_units.map += 1;
        if self.append(self.map_frontier, now, ready, 1, 0)
            && let Some(cache) = &mut self.map.cache
        {
            cache.owed_units += self.stripe_slots;
        }
    }

    fn clear_part(&mut self, part: Part) {
        if let Some(superblock) = self.map.clear(self.unit_of(part)) {
            self.kill(superblock, 1);
        }
    }

    /// Writes the parts that copies have changed, as far as there is room for them.
    pub(crate) fn write_moved_parts(&mut self, now: SimTime) {
        let Some(cache) = &mut self.map.cache else { return };
        let mut moved = std::mem::take(&mut cache.moved);
        let mut done = 0;
        for &part in &moved {
            let Some(cache) = &mut self.map.cache else { break };
            if cache.parts[part].moved {
                if !self.frontiers[self.map_frontier].has_room(1) {
                    if self.pool.free() <= 1 {
                        break;
                    }
                    self.open(self.map_frontier, 0);
                }
                let ready = self.read_part_of_map(part, now, now);
                self.write_part_of_map(part, now, ready);
            }
            let Some(cache) = &mut self.map.cache else { break };
            (cache.parts[part].moved, cache.parts[part].listed) = (false, false);
            done += 1;
        }
        moved.drain(..done);
        if let Some(cache) = &mut self.map.cache {
            cache.moved = moved;
        }
    }

    /// Updates the map before ranges are unmapped: looks parts up, except those without remaining units if they can be
    /// dropped.
    pub(crate) fn unmap_parts(&mut self, now: SimTime, ranges: &[UnitRange]) {
        let Some(cache) = &self.map.cache else { return };
        let trim_map = cache.trim_map;
        let units = u64::from(MAP_PART_UNITS);
        let mut at = SimTime::ZERO;
        for range in ranges {
            let mut from = range.start;
            while from < range.end() {
                let part = Part::of(from);
                let first = Lpn(u64::from(part.0) * units);
                let end = first.offset(units).min(self.map.host_end);
                let to = range.end().min(end);
                let held = || UnitRange::between(from, to).iter().any(|lpn| self.map.find(lpn).is_some());
                match trim_map {
                    TrimMap::Dropped if from == first && to == end => self.drop_part(part),
                    TrimMap::Dropped => {
                        let held = held();
                        at = at.max(self.translate(now, now, from, held));
                    }
                    TrimMap::Changed | TrimMap::Written => {
                        let held = held();
                        at = self.translate(now, at.max(now), from, held);
                        if held && trim_map == TrimMap::Written {
                            at = self.write_through(part, now, at);
                        }
                    }
                }
                from = to;
            }
        }
        if let Some(cache) = &mut self.map.cache {
            cache.unmapped_at = at;
        }
    }

    /// Writes a cached part, and programs it without waiting for more. Returns when that is done.
    fn write_through(&mut self, part: Part, now: SimTime, ready: SimTime) -> SimTime {
        let frontier = self.map_frontier;
        if !self.frontiers[frontier].has_room(1) {
            self.make_room(frontier, 0, 1, now);
        }
        let slot = self.frontiers[frontier].slot();
        self.write_part_of_map(part, now, ready);
        let open = &self.frontiers[frontier];
        if open.superblock == slot.superblock && open.stripe_room() < self.stripe_slots {
            self.fill_up(frontier, open.stripe_end(), now);
            if let Some(cache) = &mut self.map.cache {
                cache.owed_units += self.stripe_slots;
            }
        }
        if let Some(cache) = &mut self.map.cache {
            cache.parts[part].dirty = false;
        }
        self.flash.nand.free_at(self.place(slot).die)
    }

    pub(crate) fn drop_parts(&mut self) {
        for part in 0..self.flash.geometry.map_units {
            self.drop_part(Part(part));
        }
    }

    fn drop_part(&mut self, part: Part) {
        self.clear_part(part);
        let Some(cache) = &mut self.map.cache else { return };
        if cache.parts[part].cached {
            cache.remove(part);
        }
        cache.parts[part].moved = false;
    }

    /// Checks that the map in the flash has an entry for every mapped unit.
    pub(crate) fn audit_map_cache(&self) -> Result<(), AuditError> {
        let Some(cache) = &self.map.cache else { return Ok(()) };
        cache.audit()?;
        let units = self.map.l2p.split_at(self.map.host_end.index()).0;
        for (part, units) in cache.parts.numbers().zip(units.chunks(MAP_PART_UNITS as usize)) {
            let known = cache.parts[part].cached || self.map.find(self.unit_of(part)).is_some();
            ensure!(
                known || units.iter().all(|&ppn| ppn == Ppn::NONE),
                "part {part} of the map is neither cached nor in the flash, and has mapped units"
            );
        }
        Ok(())
    }
}
