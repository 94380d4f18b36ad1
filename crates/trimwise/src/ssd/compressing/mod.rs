//! The compressing, de-duplicating mapping: SandForce class.
//!
//! A unit is stored in as many granules as its compressed data and a head need; a unit of zeros in none; a unit that
//! is stored already is only referred to once more. What is stored goes to the end of a log: chunk behind chunk, over
//! the ends of pages but not of superblocks, and chunks that the collector moves go there too. Compressible
//! data thus leave most of the flash free, random writes cost no more than sequential ones, and nothing degrades but
//! the order in which the data lie: that is what reads pay for (`gather`).
//!
//! What TRIM frees may be shared. The reference is dropped at once; but with `references_checked_at_collection` the
//! space counts as taken until the collector has read the superblock and found that nobody else refers to it.
//!
//! `store` says what lies where, `frontier` fills superblocks, `collect` makes room, `gather` reads.

mod audit;
mod collect;
mod frontier;
mod gather;
mod store;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::audit::AuditError;
use super::config::{CompressingConfig, SsdConfig};
use super::flash::Flash;
use super::ftl::Victims;
use super::geometry::Geometry;
use super::stats::Wear;
use super::ftl::State;
use super::translation::{Ready, Translation};
use crate::content::Content;
use crate::units::UNIT_BYTES;
use collect::Collector;
use frontier::Frontier;
use gather::Gatherer;
pub(super) use store::{GRANULES_MAX, UNITS_MAX};
use store::{Held, Kind, Owner, Store};

/// From this many units on, the lists of victims are made anew at the end instead of kept up to date.
const BULK_UNITS: usize = 65_536;

#[derive(Clone, Debug)]
pub(super) struct Compressing {
    flash: Flash,
    store: Store,
    victims: Victims,
    /// Free superblocks by lane, in the order in which they became free.
    free: Vec<VecDeque<u32>>,
    free_count: u32,
    host: Vec<Frontier>,
    copies: Frontier,
    /// The host frontier that takes the next unit.
    turn: usize,
    collector: Collector,
    gatherer: Gatherer,
    shared_frontier: bool,
    references_checked: bool,
    /// Granules of a stripe, and the binary logarithm of those of a unit.
    stripe_granules: u32,
    unit_shift: u32,
    /// Granules that the host has filled since the collector did its share.
    unpaced: u32,
    /// Units that the host has read from flash since the recycler did its share.
    unpaced_reads: u32,
    /// Granules that were written and then erased, for the audit.
    erased_granules: u64,
}

impl Compressing {
    pub fn new(config: &SsdConfig, mapping: &CompressingConfig, geometry: Geometry, seed: u64) -> Self {
        let mut free = vec![VecDeque::new(); geometry.lanes as usize];
        for superblock in 0..geometry.superblocks {
            free[(superblock % geometry.lanes) as usize].push_back(superblock);
        }
        let store = Store::new(mapping, &geometry, config.track_tags);
        let granules_per_unit = UNIT_BYTES as u32 / mapping.granule_bytes;
        Self {
            victims: Victims::new(config.gc.victim, geometry.superblocks, store.granules_per_superblock()),
            free,
            free_count: geometry.superblocks,
            host: vec![Frontier::UNUSED; config.gc.host_frontiers as usize],
            copies: Frontier::UNUSED,
            turn: 0,
            collector: Collector::new(config, mapping, Xoshiro256PlusPlus::seed_from_u64(seed)),
            gatherer: Gatherer::new(mapping, geometry.dies),
            shared_frontier: config.gc.shared_frontier,
            references_checked: mapping.references_checked_at_collection,
            stripe_granules: geometry.stripe_units * granules_per_unit,
            unit_shift: granules_per_unit.trailing_zeros(),
            unpaced: 0,
            unpaced_reads: 0,
            erased_granules: 0,
            store,
            flash: Flash::new(config, geometry),
        }
    }

    /// Writes one host unit that is there at `arrived`. Returns when the controller has taken it.
    #[inline]
    fn write_unit(&mut self, now: u64, arrived: u64, lpn: u32, content: Content) -> u64 {
        let kind = self.store.kind(content, lpn);
        let (in_cache, size, owner) = match kind {
            Kind::Zeros => {
                self.overwrite(lpn);
                self.store.hold_zeros(lpn);
                return self.flash.pass(arrived);
            }
            Kind::Duplicate(number) if self.store.duplicate(number).references > 0 => {
                if self.store.held(lpn) != Held::Shared(number) {
                    self.overwrite(lpn);
                    self.store.hold_duplicate(lpn, number);
                }
                return self.flash.pass(arrived);
            }
            Kind::Duplicate(number) => {
                let owner = Owner::duplicate(number);
                (self.flash.admit(arrived), self.store.length(owner), owner)
            }
            Kind::Data(size) => {
                (self.flash.admit(arrived), self.store.granules(size), Owner::unit(lpn, size))
            }
        };
        let (acknowledged, ready) = in_cache;
        let turn = self.prepare_host(now, size);
        self.overwrite(lpn);
        let at = self.next_granule(turn);
        match kind {
            Kind::Duplicate(number) => {
                self.store.hold_duplicate(lpn, number);
                self.store.place_duplicate(number, at);
            }
            Kind::Data(size) => self.store.hold_own(lpn, at, size),
            Kind::Zeros => {}
        }
        self.store.set_tag(at, kind, content);
        self.append_host(turn, now, ready, owner, size);
        acknowledged
    }

    /// Releases what a unit holds because something else is written to it: that space is free for the collector.
    #[inline]
    fn overwrite(&mut self, lpn: u32) {
        if let Some((at, granules)) = self.store.release(lpn) {
            let (superblock, _) = self.store.split(at);
            self.kill(superblock, granules);
        }
    }

    /// So many granules of a superblock count no more.
    #[inline]
    fn kill(&mut self, superblock: u32, granules: u32) {
        let block = &mut self.store.blocks[superblock as usize];
        let before = block.valid;
        block.valid = before - granules;
        if block.state == State::Closed {
            self.victims.lost(superblock, before, before - granules);
        }
    }

    /// Drops the references of the units in a range; in bulk, the lists of victims are made anew behind it.
    fn unmap_range(&mut self, range: Range<u32>, bulk: bool) {
        for lpn in range {
            let Some((at, granules)) = self.store.release(lpn) else { continue };
            let (superblock, _) = self.store.split(at);
            if self.references_checked {
                self.store.unchecked[superblock as usize] += granules;
            } else if bulk {
                self.store.blocks[superblock as usize].valid -= granules;
            } else {
                self.kill(superblock, granules);
            }
        }
    }

    /// Whether all of a chunk is in the flash: not in a stripe that is still being filled, nor in one of the host's
    /// whose program has not ended.
    #[inline]
    fn in_memory(&self, at: u32, granules: u32, now: u64) -> bool {
        let (superblock, offset) = self.store.split(at);
        let block = &self.store.blocks[superblock as usize];
        let end = offset + granules;
        if block.state == State::Open && end > block.written - block.written % self.stripe_granules {
            return true;
        }
        let stripe = (at + granules - 1) / self.stripe_granules * self.stripe_granules;
        block.programmed_at > now && self.flash.cache.holds(stripe, now)
    }

    fn erase_everything(&mut self, now: u64) -> u64 {
        let mut end = now;
        for lane in &mut self.free {
            lane.clear();
        }
        for superblock in 0..self.flash.geometry.superblocks {
            let block = &mut self.store.blocks[superblock as usize];
            block.valid = 0;
            if block.written > 0 || block.state != State::Free {
                end = end.max(self.erase_superblock(superblock, now));
            }
            self.free[(superblock % self.flash.geometry.lanes) as usize].push_back(superblock);
        }
        self.store.clear();
        self.free_count = self.flash.geometry.superblocks;
        self.host.fill(Frontier::UNUSED);
        self.copies = Frontier::UNUSED;
        (self.unpaced, self.unpaced_reads) = (0, 0);
        self.collector.clear();
        self.gatherer.clear();
        self.victims.clear();
        self.flash.cache.clear();
        end
    }

    /// Erases a superblock in which nothing counts any more. Returns when the last of its dies has.
    fn erase_superblock(&mut self, superblock: u32, now: u64) -> u64 {
        let mut end = now;
        for i in 0..self.flash.geometry.dies_per_superblock {
            let die = self.flash.geometry.die(superblock, i);
            end = end.max(self.flash.nand.erase(die, now, &mut self.flash.stats.busy_ns));
            self.gatherer.lose_register(die);
        }
        self.store.logs[superblock as usize] = Vec::new();
        self.store.unchecked[superblock as usize] = 0;
        let block = &mut self.store.blocks[superblock as usize];
        debug_assert_eq!(block.valid, 0, "an erase must not destroy data");
        self.erased_granules += u64::from(block.written);
        block.written = 0;
        block.erases += 1;
        block.state = State::Free;
        block.programmed_at = 0;
        self.collector.erased();
        self.flash.stats.superblock_erases += 1;
        self.flash.stats.block_erases += u64::from(self.flash.geometry.blocks_per_superblock);
        end
    }

    /// Carries the counts of granules over into units.
    #[inline]
    fn count_units(&mut self) {
        let stats = &mut self.flash.stats;
        let granules = stats.nand_granules;
        stats.nand_units.host = granules.host >> self.unit_shift;
        stats.nand_units.gc = granules.gc >> self.unit_shift;
        stats.nand_units.wear_levelling = granules.wear_levelling >> self.unit_shift;
        stats.nand_units.padding = granules.padding >> self.unit_shift;
    }
}

impl Translation for Compressing {
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
        let mut acknowledged = arrived;
        for lpn in units {
            acknowledged = self.write_unit(now, acknowledged, lpn, content);
        }
        self.count_units();
        acknowledged
    }

    fn pad(&mut self, now: u64) {
        self.pad_stripes(now);
        self.count_units();
    }

    fn read(&mut self, now: u64, decoded: u64, units: Range<u32>) -> Ready {
        self.gather(now, decoded, units)
    }

    fn is_in_memory(&self, lpn: u32, now: u64) -> bool {
        match self.store.held(lpn) {
            Held::Nothing => false,
            Held::Zeros => true,
            Held::Shared(_) | Held::Own(_) => {
                self.store.chunk(lpn).is_some_and(|(at, granules)| self.in_memory(at, granules, now))
            }
        }
    }

    fn unmap(&mut self, _now: u64, ranges: &[Range<u32>]) -> u64 {
        let before = self.store.mapped;
        let bulk = ranges.iter().map(ExactSizeIterator::len).sum::<usize>() >= BULK_UNITS;
        ranges.iter().for_each(|range| self.unmap_range(range.clone(), bulk));
        if bulk {
            self.victims.relink(&self.store.blocks);
        }
        before - self.store.mapped
    }

    fn erase_all(&mut self, now: u64) -> u64 {
        self.erase_everything(now)
    }

    fn collect_idle(&mut self, from: u64, until: u64) {
        self.collect_between(from, until);
        self.count_units();
    }

    fn is_mapped(&self, lpn: u32) -> bool {
        self.store.held(lpn) != Held::Nothing
    }

    fn mapped_units(&self) -> u64 {
        self.store.mapped
    }

    fn tag(&self, lpn: u32) -> Option<u32> {
        self.store.tag(lpn)
    }

    fn wear(&self) -> Wear {
        Wear::of(self.store.blocks.iter().map(|block| block.erases))
    }

    fn free_superblocks(&self) -> u32 {
        self.free_count
    }

    fn memory_bytes(&self) -> u64 {
        let free: usize = self.free.iter().map(VecDeque::capacity).sum();
        self.store.memory_bytes() + self.victims.memory_bytes() + free as u64 * 4
    }

    fn audit(&self) -> Result<(), AuditError> {
        self.audit_books()
    }
}
