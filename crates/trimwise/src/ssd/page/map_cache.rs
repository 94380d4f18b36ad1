//! A map that lies in the flash, and the cache for parts of it (Gupta, Kim and Urgaonkar, DFTL, ASPLOS 2009).
//!
//! A *part* is one unit: the places of 1,024 logical units. Parts are logical units themselves, behind those of the host,
//! in the same page map, and are collected with everything else; where they lie says a directory, which fits in memory.
//! What is written because of the map fills a frontier of its own.
//!
//! A look-up of the host brings the part into the cache if it is not there: the part that was used longest ago leaves, and
//! is written if it has changed. A TRIM of all units of a part leaves nothing of it to keep, so that it costs no flash
//! operation. Copies change parts too. One that is in the cache is changed there. The others are noted, each once,
//! and read, changed and written when the victim has been erased (*lazy copying*). Only where somebody waits for the
//! collector, or where the last free superblock would be needed, they are left to the next victim: collecting
//! never depends on room for the map. That list, like the directory, is taken as safe in the controller's memory.
//!
//! A look-up touches a few array elements: the order of use is a doubly linked list threaded through two arrays.

use std::ops::Range;

use super::super::audit::{AuditError, ensure};
use super::super::config::{MappingConfig, SsdConfig};
use super::super::ftl::NONE;
use super::super::geometry::{Geometry, MAP_PART_UNITS};
use super::PageMapped;
use crate::units::UNIT_BYTES;

/// What is known of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    cached: bool,
    /// Cached, and not as it is in the flash.
    dirty: bool,
    /// Not cached, and changed by copies that are not yet in the flash.
    moved: bool,
    /// In the list of parts that were moved, if only because it once was.
    listed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct MapCache {
    capacity: u32,
    used: u32,
    parts: Vec<Part>,
    /// The neighbours of a cached part in the order of use.
    newer: Vec<u32>,
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Parts that copies have changed, in that order. Those no longer marked as moved are skipped.
    moved: Vec<u32>,
    /// Slots of the frontier's stripes for which nothing was collected yet.
    owed_units: u32,
    /// When what the last unmapping had to read was there.
    unmapped_at: u64,
}

impl MapCache {
    pub fn new(config: &SsdConfig, geometry: &Geometry) -> Option<Self> {
        let MappingConfig::Page { map_cache: Some(cache) } = &config.mapping else { return None };
        let parts = geometry.map_units as usize;
        Some(Self {
            capacity: (cache.bytes / UNIT_BYTES).min(u64::from(geometry.map_units)) as u32,
            used: 0,
            parts: vec![Part::default(); parts],
            newer: vec![NONE; parts],
            older: vec![NONE; parts],
            newest: NONE,
            oldest: NONE,
            moved: Vec::new(),
            owed_units: 0,
            unmapped_at: 0,
        })
    }

    /// A unit has been copied.
    #[inline]
    pub fn copied(&mut self, lpn: u32) {
        let index = lpn / MAP_PART_UNITS;
        let part = &mut self.parts[index as usize];
        if part.cached {
            part.dirty = true;
        } else if !part.moved {
            part.moved = true;
            if !part.listed {
                part.listed = true;
                self.moved.push(index);
            }
        }
    }

    fn link(&mut self, part: u32) {
        self.newer[part as usize] = NONE;
        self.older[part as usize] = self.newest;
        match self.newest {
            NONE => self.oldest = part,
            newest => self.newer[newest as usize] = part,
        }
        self.newest = part;
    }

    fn unlink(&mut self, part: u32) {
        let (newer, older) = (self.newer[part as usize], self.older[part as usize]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
    }

    /// Takes a part out of the cache. Returns whether it has changed.
    fn remove(&mut self, part: u32) -> bool {
        self.unlink(part);
        self.used -= 1;
        let part = &mut self.parts[part as usize];
        part.cached = false;
        std::mem::take(&mut part.dirty)
    }

    /// Everything was erased.
    pub fn clear(&mut self) {
        self.used = 0;
        self.parts.fill(Part::default());
        (self.newest, self.oldest) = (NONE, NONE);
        self.moved.clear();
        self.owed_units = 0;
    }

    /// Slots that the map has taken and nobody has paid for.
    pub(crate) fn take_owed(&mut self) -> u32 {
        std::mem::take(&mut self.owed_units)
    }

    pub(crate) fn unmapped_at(&self) -> u64 {
        self.unmapped_at
    }

    pub fn memory_bytes(&self) -> u64 {
        let parts = self.parts.capacity() * size_of::<Part>();
        (parts + (self.newer.capacity() + self.older.capacity() + self.moved.capacity()) * 4) as u64
    }

    fn audit(&self) -> Result<(), AuditError> {
        let cached = self.parts.iter().filter(|part| part.cached).count();
        ensure!(cached == self.used as usize, "{cached} parts of the map are cached, {} counted", self.used);
        ensure!(self.used <= self.capacity, "{} parts of the map in a cache of {}", self.used, self.capacity);
        let (mut listed, mut part, mut newer) = (0, self.newest, NONE);
        while part != NONE && listed <= cached {
            let i = part as usize;
            ensure!(self.parts[i].cached, "part {part} is in the order of use, and not in the cache");
            ensure!(self.newer[i] == newer, "part {part} does not follow {newer} both ways");
            (newer, part) = (part, self.older[i]);
            listed += 1;
        }
        ensure!(listed == cached, "{listed} parts in the order of use, {cached} in the cache");
        ensure!(newer == self.oldest, "the order of use ends with part {newer}, not {}", self.oldest);
        for (i, part) in self.parts.iter().enumerate() {
            ensure!(part.cached || !part.dirty, "part {i} has changed in a cache that does not hold it");
            ensure!(!(part.cached && part.moved), "part {i} is cached, and its changes are not in it");
            ensure!(!part.moved || part.listed, "part {i} was changed by copies, and is not listed");
        }
        let listed = self.parts.iter().filter(|part| part.listed).count();
        let known = self.moved.iter().all(|&part| self.parts[part as usize].listed);
        ensure!(
            known && listed == self.moved.len(),
            "{listed} parts are listed as moved, not those in the list"
        );
        Ok(())
    }
}

impl PageMapped {
    /// The slot of a part in the flash.
    fn part_slot(&self, part: u32) -> u32 {
        self.map.l2p[(self.map.logical_units + part) as usize]
    }

    /// Looks up a unit, which it is possible to begin with at `ready`, and notes that its place `changes`. Returns when
    /// its place is known.
    pub(crate) fn translate(&mut self, now: u64, ready: u64, lpn: u32, changes: bool) -> u64 {
        let index = lpn / MAP_PART_UNITS;
        let slot = self.part_slot(index);
        let Some(cache) = &mut self.map.cache else { return ready };
        let part = &mut cache.parts[index as usize];
        if part.cached {
            part.dirty |= changes;
            self.flash.stats.map_cache.hits += 1;
            if cache.newest != index {
                cache.unlink(index);
                cache.link(index);
            }
            return ready;
        }
        if slot == NONE && !changes {
            return ready;
        }
        self.flash.stats.map_cache.misses += 1;
        let full = cache.used == cache.capacity;
        if full {
            self.evict(now);
        }
        // Making room may have moved the part, but did not bring it into the cache.
        let at_hand = self.read_part_of_map(index, now, ready);
        let Some(cache) = &mut self.map.cache else { return ready };
        let part = &mut cache.parts[index as usize];
        // What copies have changed is in it from now on.
        (part.cached, part.dirty) = (true, changes || part.moved);
        part.moved = false;
        cache.used += 1;
        cache.link(index);
        at_hand
    }

    /// Reads a part from the flash, if it has ever been written. Returns when it is at hand.
    fn read_part_of_map(&mut self, part: u32, now: u64, ready: u64) -> u64 {
        let slot = self.part_slot(part);
        if slot == NONE || self.in_memory(slot, 1, now) {
            return ready;
        }
        self.flash.stats.map_cache.reads += 1;
        let (superblock, offset) = self.split(slot);
        let at = self.flash.place(superblock, offset);
        self.flash.nand.read_map(at, now, ready, &mut self.flash.stats.busy_ns)
    }

    /// Makes sure that the map has a frontier with room.
    fn prepare_map(&mut self, now: u64) {
        if !self.frontiers[self.map_frontier].has_room(1) {
            self.make_room(self.map_frontier, 0, 1, now);
        }
    }

    /// Makes room in the cache for a part.
    fn evict(&mut self, now: u64) {
        let Some(cache) = &self.map.cache else { return };
        let oldest = cache.oldest;
        if cache.parts[oldest as usize].dirty {
            // Collecting changes no order of use, and marks no cached part as moved.
            self.prepare_map(now);
        }
        let Some(cache) = &mut self.map.cache else { return };
        if cache.remove(oldest) {
            self.write_part_of_map(oldest, now, now);
        }
    }

    /// Writes a part to the map's frontier, which is open.
    fn write_part_of_map(&mut self, part: u32, now: u64, ready: u64) {
        self.clear_part(part);
        let lpn = self.map.logical_units + part;
        self.map.set(self.frontiers[self.map_frontier].slot(), lpn);
        self.flash.stats.nand_units.map += 1;
        if self.append(self.map_frontier, now, ready, 1, false)
            && let Some(cache) = &mut self.map.cache
        {
            cache.owed_units += self.stripe_slots;
        }
    }

    /// Marks the slot of a part in the flash as dead, if it has one.
    fn clear_part(&mut self, part: u32) {
        if let Some(superblock) = self.map.clear(self.map.logical_units + part) {
            self.kill(superblock, 1);
        }
    }

    /// Writes the parts that copies have changed, as far as there is room for them.
    pub(crate) fn write_moved_parts(&mut self, now: u64) {
        let Some(cache) = &mut self.map.cache else { return };
        let mut moved = std::mem::take(&mut cache.moved);
        let mut done = 0;
        for &part in &moved {
            let Some(cache) = &mut self.map.cache else { break };
            if cache.parts[part as usize].moved {
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
            (cache.parts[part as usize].moved, cache.parts[part as usize].listed) = (false, false);
            done += 1;
        }
        moved.drain(..done);
        if let Some(cache) = &mut self.map.cache {
            cache.moved = moved;
        }
    }

    /// What the map does before ranges are unmapped: parts of which nothing is left are dropped, the others looked up.
    pub(crate) fn unmap_parts(&mut self, now: u64, ranges: &[Range<u32>]) {
        let logical = self.map.logical_units;
        let mut at = 0;
        for range in ranges {
            let mut from = range.start;
            while from < range.end {
                let part = from / MAP_PART_UNITS;
                let end = ((part + 1) * MAP_PART_UNITS).min(logical);
                let to = range.end.min(end);
                if from == part * MAP_PART_UNITS && to == end {
                    self.drop_part(part);
                } else {
                    let held = self.map.l2p[from as usize..to as usize].iter().any(|&ppn| ppn != NONE);
                    at = at.max(self.translate(now, now, from, held));
                }
                from = to;
            }
        }
        if let Some(cache) = &mut self.map.cache {
            cache.unmapped_at = at;
        }
    }

    /// Forgets a part, of whose units none is mapped any more.
    fn drop_part(&mut self, part: u32) {
        self.clear_part(part);
        let Some(cache) = &mut self.map.cache else { return };
        if cache.parts[part as usize].cached {
            cache.remove(part);
        }
        cache.parts[part as usize].moved = false;
    }

    /// Checks the map in the flash: what is mapped must be found again.
    pub(crate) fn audit_map_cache(&self) -> Result<(), AuditError> {
        let Some(cache) = &self.map.cache else { return Ok(()) };
        cache.audit()?;
        let logical = self.map.logical_units as usize;
        for (i, units) in self.map.l2p[..logical].chunks(MAP_PART_UNITS as usize).enumerate() {
            let known = cache.parts[i].cached || self.part_slot(i as u32) != NONE;
            ensure!(
                known || units.iter().all(|&ppn| ppn == NONE),
                "part {i} of the map is neither cached nor in the flash, and has mapped units"
            );
        }
        Ok(())
    }
}
