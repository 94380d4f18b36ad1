//! The log-structured core of a mapping.
//!
//! Host data fill the *host frontiers*, open superblocks taken in turn, stripe by stripe. Copies fill a frontier of
//! their own, or the first of the host's if they share it. A full superblock is *closed*. When room is needed, a closed
//! one becomes the *victim*: its live data move to the frontier of copies, and it is erased.
//!
//! A [`Placement`] decides where host writes go: the page map, in `ssd/page`, or the compressing one, in
//! `ssd/compressing`. The core counts in *slots*: a slot is a unit of the page map, and a granule of the compressing
//! one. Each combination is compiled by itself, so that no unit passes a dynamic call.
//!
//! Copies wait in the controller's own memory, not in the host's write cache, until their stripe is full. The model
//! assumes that this memory is safe against power loss.
//!
//! `frontier` fills superblocks, `collect` makes room, `victims` chooses, `pool` holds free superblocks, `bitmap` the
//! live slots, `reads` finds the time of a read. The block map, in `ssd/block`, has no log of this kind: it shares the
//! last three.

mod audit;
mod bitmap;
mod collect;
mod frontier;
mod lists;
mod placement;
mod pool;
mod reads;
mod superblock;
mod victims;

use super::address::{Ppn, Slot, Superblock, Table};
use super::audit::AuditError;
use super::config::SsdConfig;
use super::flash::Flash;
use super::geometry::Geometry;
use super::stats::{NandUnits, SuperblockState, SuperblockUse, Wear};
use super::timing::Place;
use super::translation::{Ready, Translation};
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};
pub(super) use bitmap::Bitmap;
use collect::Collector;
pub(super) use collect::{Cause, Urgency, Victim};
use frontier::Frontier;
pub(super) use lists::Lists;
pub(super) use placement::{Cursor, Piece, Placement};
pub(super) use pool::Pool;
pub(super) use reads::Reads;
pub(super) use superblock::{Block, State};
pub(super) use victims::{Victims, must_have_gained};

/// From this number of units on, the lists of victims are rebuilt after unmapping instead of being kept up to date.
const BULK_UNITS: u64 = 65_536;

pub(super) struct Layout {
    pub unit_slots: u32,
    /// Frontiers that the host may fill, in turn or as the placement decides.
    pub host_frontiers: usize,
    pub turn: usize,
    /// Superblocks below this one never go to the pool.
    pub pool_from: Superblock,
}

#[derive(Clone, Debug)]
pub(super) struct Ftl<P> {
    pub flash: Flash,
    pub map: P,
    pub blocks: Table<Superblock, Block>,
    pub victims: Victims,
    pub pool: Pool,
    /// The host's frontiers, then one for copies and one for parts of a map that lies in the flash.
    pub frontiers: Vec<Frontier>,
    /// The host frontier that takes the next unit.
    pub turn: usize,
    hosts: usize,
    copies: usize,
    pub map_frontier: usize,
    pub collector: Collector,
    pub superblock_slots: u32,
    pub stripe_slots: u32,
    /// Binary logarithm of the slots in a unit.
    pub unit_shift: u32,
    pool_from: Superblock,
    /// Slots that were written and then erased; for the audit.
    erased_slots: u64,
}

impl<P: Placement> Ftl<P> {
    pub(crate) fn with_placement(
        config: &SsdConfig,
        geometry: Geometry,
        seed: u64,
        layout: &Layout,
        map: P,
    ) -> Self {
        let mut pool = Pool::new(geometry.lanes);
        pool.extend((layout.pool_from.0..geometry.superblocks).map(Superblock));
        let superblock_slots = geometry.superblock_units * layout.unit_slots;
        Self {
            map,
            blocks: Table::new(geometry.superblocks as usize, Block::NEW),
            victims: Victims::new(config.gc.victim, geometry.superblocks, superblock_slots),
            pool,
            frontiers: vec![Frontier::UNUSED; layout.host_frontiers + 2],
            turn: layout.turn,
            hosts: config.gc.host_frontiers as usize,
            copies: if config.gc.shared_frontier { 0 } else { layout.host_frontiers },
            map_frontier: layout.host_frontiers + 1,
            collector: Collector::new(config, seed),
            superblock_slots,
            stripe_slots: geometry.stripe_units * layout.unit_slots,
            unit_shift: layout.unit_slots.trailing_zeros(),
            pool_from: layout.pool_from,
            erased_slots: 0,
            flash: Flash::new(config, geometry),
        }
    }

    #[inline]
    pub fn place(&self, slot: Slot) -> Place {
        let slc = self.blocks[slot.superblock].slc;
        Place { slc, ..self.flash.place(Slot::new(slot.superblock, slot.offset >> self.unit_shift)) }
    }

    #[inline]
    pub fn counts(&mut self) -> &mut NandUnits {
        let stats = &mut self.flash.stats;
        if P::SLOTS_ARE_GRANULES { &mut stats.nand_granules } else { &mut stats.nand_units }
    }

    #[inline]
    pub(crate) fn count_units(&mut self) {
        if P::SLOTS_ARE_GRANULES {
            let granules = self.flash.stats.nand_granules;
            let units = &mut self.flash.stats.nand_units;
            units.host = granules.host >> self.unit_shift;
            units.gc = granules.gc >> self.unit_shift;
            units.wear_levelling = granules.wear_levelling >> self.unit_shift;
            units.padding = granules.padding >> self.unit_shift;
            units.parity = granules.parity >> self.unit_shift;
        }
    }

    #[inline]
    pub fn kill(&mut self, superblock: Superblock, slots: u32) {
        let block = &mut self.blocks[superblock];
        let before = block.valid;
        block.valid = before - slots;
        if block.state == State::Closed {
            self.victims.lost(superblock, before, before - slots);
        }
    }

    /// Returns true if a read of consecutive slots needs no flash: their last stripe is still being filled, or is the
    /// host's and still being programmed at `now`.
    #[inline]
    pub fn in_memory(&self, slot: Ppn, slots: u32, now: SimTime) -> bool {
        let Slot { superblock, offset } = slot.slot(self.superblock_slots);
        let block = &self.blocks[superblock];
        let stripe_slots = self.stripe_slots;
        if block.state == State::Open && offset + slots > block.written - block.written % stripe_slots {
            return true;
        }
        let last = Ppn(slot.0 + slots - 1).stripe(stripe_slots);
        block.programmed_at > now && self.flash.cache.holds(last.first(stripe_slots), now)
    }

    /// Unmaps ranges, one unit at a time if they are few and in bulk otherwise. Returns the number of units that held
    /// data.
    fn unmap_ranges(&mut self, ranges: &[UnitRange]) -> u64 {
        let before = self.map.mapped_units();
        let bulk = ranges.iter().map(|range| range.units).sum::<u64>() >= BULK_UNITS;
        for range in ranges {
            if bulk && self.is_all(*range) && P::release_all(self) {
                continue;
            }
            for lpn in range.iter() {
                let Some((superblock, slots)) = self.map.release(lpn) else { continue };
                if self.map.checks_references() {
                    self.blocks[superblock].unchecked += slots;
                } else if bulk {
                    self.blocks[superblock].valid -= slots;
                } else {
                    self.kill(superblock, slots);
                }
            }
        }
        if bulk {
            self.victims.relink(&self.blocks);
        }
        before - self.map.mapped_units()
    }

    fn is_all(&self, range: UnitRange) -> bool {
        range.units == u64::from(self.flash.geometry.logical_units)
    }

    /// Erases a superblock without live data. Returns when the last of its dies has erased its part.
    fn erase(&mut self, superblock: Superblock, now: SimTime) -> SimTime {
        let end = self.flash.erase(superblock, now);
        self.flash.geometry.dies_of(superblock).for_each(|die| self.map.die_used(die));
        self.map.erased(superblock);
        let block = &mut self.blocks[superblock];
        debug_assert_eq!(block.valid, 0, "an erase must not destroy data");
        self.erased_slots += u64::from(block.written);
        *block = Block { erases: block.erases + 1, ..Block::NEW };
        self.collector.erases_since_move = self.collector.erases_since_move.saturating_add(1);
        end
    }
}

impl<P: Placement> Translation for Ftl<P> {
    fn boxed_clone(&self) -> Box<dyn Translation> {
        Box::new(self.clone())
    }

    fn flash(&self) -> &Flash {
        &self.flash
    }

    fn flash_mut(&mut self) -> &mut Flash {
        &mut self.flash
    }

    fn write(&mut self, now: SimTime, arrived: SimTime, units: UnitRange, content: Content) -> SimTime {
        let acknowledged = P::write(self, now, arrived, units, content);
        self.count_units();
        acknowledged
    }

    fn expect(&self, lpns: &[Lpn]) {
        self.map.expect(lpns);
        // About as many slots will be copied.
        if let Some(victim) = &self.collector.victim {
            self.map.expect_copies(victim.superblock, victim.cursor, 2 * lpns.len());
        }
    }

    fn pad(&mut self, now: SimTime) {
        self.pad_stripes(now);
        self.count_units();
    }

    fn read(&mut self, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready {
        P::read(self, now, decoded, units)
    }

    fn is_in_memory(&self, lpn: Lpn, now: SimTime) -> bool {
        let in_memory = |(slot, slots)| self.in_memory(slot, slots, now);
        self.map.is_mapped(lpn) && self.map.slots_of(lpn).is_none_or(in_memory)
    }

    fn unmap(&mut self, now: SimTime, ranges: &[UnitRange]) -> u64 {
        P::before_unmap(self, now, ranges);
        self.unmap_ranges(ranges)
    }

    fn forget(&mut self, _now: SimTime, range: UnitRange) -> u64 {
        // A map in the flash stays as it is, unless no part of it has anything left; then updating it costs nothing.
        if self.is_all(range) {
            P::before_forgetting(self);
        }
        self.unmap_ranges(&[range])
    }

    fn unmapped_at(&self) -> SimTime {
        self.map.unmapped_at()
    }

    fn erase_all(&mut self, now: SimTime) -> SimTime {
        let mut end = now;
        self.pool.clear();
        for superblock in self.blocks.numbers() {
            let block = &mut self.blocks[superblock];
            block.valid = 0;
            if block.written > 0 || block.state != State::Free {
                end = end.max(self.erase(superblock, now));
            }
            if superblock >= self.pool_from {
                self.pool.put(superblock);
            }
        }
        self.frontiers.fill(Frontier::UNUSED);
        P::clear(self);
        self.collector.victim = None;
        self.victims.clear();
        self.flash.cache.clear();
        end
    }

    fn collect_idle(&mut self, from: SimTime, until: SimTime) {
        self.collect_between(from, until);
        self.count_units();
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.map.is_mapped(lpn)
    }

    fn mapped_units(&self) -> u64 {
        self.map.mapped_units()
    }

    fn tag(&self, lpn: Lpn) -> Option<u32> {
        self.map.tag(lpn)
    }

    fn wear(&self) -> Wear {
        Wear::of(self.blocks.iter().map(|block| block.erases))
    }

    fn superblocks(&self) -> Vec<SuperblockState> {
        let units = |slots: u32| slots >> self.unit_shift;
        let state = |block: &Block| SuperblockState {
            use_now: match block.state {
                State::Free => SuperblockUse::Free,
                State::Open => SuperblockUse::Open,
                State::Closed | State::Slc => SuperblockUse::Full,
                State::Victim => SuperblockUse::Victim,
            },
            valid_units: units(block.valid),
            written_units: units(block.written),
            erases: block.erases,
        };
        self.blocks.iter().map(state).collect()
    }

    fn superblock_of(&self, lpn: Lpn) -> Option<u32> {
        self.map.slots_of(lpn).map(|(slot, _)| slot.slot(self.superblock_slots).superblock.0)
    }

    #[cfg(test)]
    fn free_superblocks(&self) -> u32 {
        self.pool.free()
    }

    fn memory_bytes(&self) -> u64 {
        let tables = self.map.memory_bytes() + self.blocks.memory_bytes();
        tables + self.victims.memory_bytes() + self.pool.memory_bytes()
    }

    fn audit(&self) -> Result<(), AuditError> {
        self.audit_accounting()
    }
}
