//! The compressing, de-duplicating mapping: SandForce class.
//!
//! A unit is stored in as many granules as its compressed data and a head need. A unit of zeros takes none, and a unit
//! that is already stored only one more reference. New chunks go to the end of a log: chunk after chunk, across the
//! ends of pages but not of superblocks, and chunks that the collector moves go there too. Compressible data thus leave
//! most of the flash free, random writes cost no more than sequential ones, and only the order of the data degrades,
//! which makes reads slower (`gather`).
//!
//! Space that TRIM frees may be shared. The reference is dropped at once; but with `references_checked_at_collection`
//! the space counts as taken until the collector has read the superblock and found no other reference to it.
//!
//! A slot of the core is a granule. `store` maps units to chunks, `collect` makes room, and `gather` reads.

mod audit;
mod collect;
mod gather;
mod store;
#[cfg(test)]
mod tests;

use super::address::{Die, Ppn, Slot, Superblock};
use super::audit::AuditError;
use super::config::{CompressingConfig, SsdConfig};
use super::ftl::{Cursor, Ftl, Layout, Piece, Placement};
use super::geometry::Geometry;
use super::translation::Ready;
use crate::content::Content;
use crate::units::{Lpn, SimTime, UNIT_BYTES, UnitRange};
pub(super) use store::{GRANULES_MAX, UNITS_MAX};
use store::{Held, Kind, Owner, Store};

pub(super) type Compressing = Ftl<Store>;

impl Compressing {
    pub fn new(config: &SsdConfig, mapping: &CompressingConfig, geometry: Geometry, seed: u64) -> Self {
        let store = Store::new(mapping, &geometry, config.track_tags);
        let layout = Layout {
            unit_slots: UNIT_BYTES as u32 / mapping.granule_bytes,
            host_frontiers: config.gc.host_frontiers as usize,
            turn: 0,
            pool_from: Superblock(0),
        };
        Self::with_placement(config, geometry, seed, &layout, store)
    }

    /// Writes one host unit that arrives at `arrived`. Returns when the controller has taken it.
    #[inline]
    fn write_unit(&mut self, now: SimTime, arrived: SimTime, lpn: Lpn, content: Content) -> SimTime {
        let kind = self.map.kind(content, lpn);
        let (in_cache, size, owner) = match kind {
            Kind::Zeros => {
                self.overwrite(lpn);
                self.map.hold_zeros(lpn);
                return self.flash.pass(arrived);
            }
            Kind::Duplicate(number) if self.map.duplicate(number).references > 0 => {
                if self.map.held(lpn) != Held::Shared(number) {
                    self.overwrite(lpn);
                    self.map.hold_duplicate(lpn, number);
                }
                return self.flash.pass(arrived);
            }
            Kind::Duplicate(number) => {
                let owner = Owner::duplicate(number);
                (self.flash.admit(arrived), self.map.length(owner), owner)
            }
            Kind::Data(size) => (self.flash.admit(arrived), self.map.granules(size), Owner::unit(lpn, size)),
        };
        let (acknowledged, ready) = in_cache;
        let turn = self.turn;
        self.prepare_host(turn, size, now);
        self.overwrite(lpn);
        let slot = self.frontiers[turn].slot();
        let at = slot.ppn(self.superblock_slots);
        match kind {
            Kind::Duplicate(number) => {
                self.map.hold_duplicate(lpn, number);
                self.map.place_duplicate(number, at);
            }
            Kind::Data(size) => self.map.hold_own(lpn, at, size),
            Kind::Zeros => {}
        }
        let tag = if let Kind::Duplicate(number) = kind { number } else { content.tag() };
        self.map.tags.set(at, tag);
        self.map.logs[slot.superblock].push(owner);
        self.map.unpaced += size;
        self.append_host(turn, now, ready, size, 1);
        acknowledged
    }

    #[inline]
    fn overwrite(&mut self, lpn: Lpn) {
        if let Some((superblock, granules)) = self.map.release(lpn) {
            self.kill(superblock, granules);
        }
    }
}

impl Placement for Store {
    type Owner = Owner;
    const SLOTS_ARE_GRANULES: bool = true;
    const NEEDS_FREE_SUPERBLOCK: bool = true;

    fn write(
        ftl: &mut Compressing,
        now: SimTime,
        arrived: SimTime,
        units: UnitRange,
        content: Content,
    ) -> SimTime {
        units.iter().fold(arrived, |acknowledged, lpn| ftl.write_unit(now, acknowledged, lpn, content))
    }

    fn read(ftl: &mut Compressing, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready {
        ftl.gather(now, decoded, units)
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.held(lpn) != Held::Nothing
    }

    fn mapped_units(&self) -> u64 {
        self.mapped
    }

    fn slots_of(&self, lpn: Lpn) -> Option<(Ppn, u32)> {
        self.chunk(lpn)
    }

    fn tag(&self, lpn: Lpn) -> Option<u32> {
        self.tag_of(lpn)
    }

    fn memory_bytes(&self) -> u64 {
        self.table_bytes()
    }

    #[inline]
    fn release(&mut self, lpn: Lpn) -> Option<(Superblock, u32)> {
        let (at, granules) = self.take(lpn)?;
        Some((at.slot(self.granules_per_superblock).superblock, granules))
    }

    fn checks_references(&self) -> bool {
        self.references_checked
    }

    fn stripe_filled(ftl: &mut Compressing, frontier: usize, now: SimTime) {
        if ftl.turn == frontier {
            ftl.turn = ftl.next_turn(frontier);
        }
        let granules = std::mem::take(&mut ftl.map.unpaced);
        ftl.pace(now, granules);
    }

    fn padded(&mut self, superblock: Superblock, granules: u32, is_host: bool) {
        self.logs[superblock].push(Owner::padding(granules));
        self.unpaced += if is_host { granules } else { 0 };
    }

    #[inline]
    fn die_used(&mut self, die: Die) {
        self.gatherer.lose_register(die);
    }

    fn closed(&mut self, superblock: Superblock, _slc: bool) {
        self.logs[superblock].shrink_to_fit();
    }

    fn erased(&mut self, superblock: Superblock) {
        self.logs[superblock] = Vec::new();
    }

    fn clear(ftl: &mut Compressing) {
        ftl.map.clear_all();
    }

    #[inline]
    fn next_piece(&self, superblock: Superblock, from: Cursor) -> Option<Piece<Owner>> {
        let &owner = self.logs[superblock].get(from.piece as usize)?;
        let at = Slot::new(superblock, from.offset).ppn(self.granules_per_superblock);
        let live = self.is_live(owner, at);
        Some(Piece { offset: from.offset, slots: self.length(owner), live, owner })
    }

    #[inline]
    fn moved(&mut self, owner: Owner, from: Slot, to: Slot) {
        let granules = self.granules_per_superblock;
        self.move_to(owner, from.ppn(granules), to.ppn(granules));
        self.logs[to.superblock].push(owner);
    }

    fn victim_for_waiting_host(ftl: &Compressing, chosen: Superblock) -> Superblock {
        ftl.with_more_to_gain(chosen)
    }

    fn recycle(ftl: &mut Compressing) -> bool {
        ftl.start_recycling()
    }

    fn audit_map(ftl: &Compressing) -> Result<u64, AuditError> {
        ftl.map.audit_units()
    }

    fn audit_superblock(ftl: &Compressing, superblock: Superblock) -> Result<u32, AuditError> {
        ftl.audit_log(superblock)
    }
}
