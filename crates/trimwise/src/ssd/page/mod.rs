//! The page map: any unit may lie in any page. A slot of the core is a unit.
//!
//! Two optional parts precede it: `slc`, a cache of flash in SLC mode that takes host units first, and `map_cache`, for
//! a map that itself lies in the flash. A device without them pays one branch a unit for them.

mod map;
mod map_cache;
mod slc;

use super::address::{Number, Ppn, Slot, Superblock};
use super::audit::{AuditError, ensure};
use super::config::SsdConfig;
use super::ftl::{Cause, Cursor, Ftl, Layout, Piece, Placement, Reads, State};
use super::geometry::Geometry;
use super::translation::Ready;
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};
use map::PageMap;

/// Slots of one superblock that died together. Consecutive units mostly lie together, so the superblock is told once
/// for many of them.
#[derive(Default)]
struct Dead {
    superblock: Option<Superblock>,
    slots: u32,
}

impl Dead {
    #[inline]
    fn add(&mut self, ftl: &mut PageMapped, superblock: Superblock) {
        if self.superblock != Some(superblock) {
            self.bury(ftl);
            *self = Self { superblock: Some(superblock), slots: 0 };
        }
        self.slots += 1;
    }

    /// Tells the superblock. Must be called before anything looks at it.
    #[inline]
    fn bury(&self, ftl: &mut PageMapped) {
        if let Some(superblock) = self.superblock {
            ftl.kill(superblock, self.slots);
        }
    }
}

pub(super) type PageMapped = Ftl<PageMap>;

impl PageMapped {
    pub fn new(config: &SsdConfig, geometry: Geometry, seed: u64) -> Self {
        let map = PageMap::new(config, &geometry);
        let frontiers = config.gc.host_frontiers as usize;
        let rest = map.slc.as_ref().map(|slc| slc.rest());
        let layout = Layout {
            unit_slots: 1,
            // With an SLC cache, the normal frontiers are followed by as many in SLC mode, and one that is never open.
            host_frontiers: rest.map_or(frontiers, |rest| rest + 1),
            turn: rest.unwrap_or(0),
            pool_from: map.slc.as_ref().map_or(Superblock(0), |slc| slc.static_end),
        };
        Self::with_placement(config, geometry, seed, &layout, map)
    }

    /// Writes as many host units as fit into one stripe, at least one. `acknowledged` is when the unit before them was
    /// in the cache. Returns how many it wrote, and when the last of them is in the cache.
    fn write_stripe(
        &mut self,
        now: SimTime,
        acknowledged: SimTime,
        units: UnitRange,
        tag: u32,
    ) -> (u64, SimTime) {
        let (mut in_cache, mut ready) = self.admit(now, acknowledged, units.start);
        let mut turn = self.turn;
        if !self.frontiers[turn].has_room(1) {
            turn = self.begin_stripe(turn, now);
        }
        // A map that lies in the flash may write units of its own between two of the host's.
        let most = if self.map.cache.is_some() { 1 } else { self.frontiers[turn].stripe_room() };
        let count = units.units.min(most.into());
        let (mut slot, mut dead) = (self.frontiers[turn].slot(), Dead::default());
        for lpn in UnitRange::new(units.start, count).iter() {
            if lpn != units.start {
                let at_hand;
                (in_cache, at_hand) = self.admit(now, in_cache, lpn);
                ready = ready.max(at_hand);
            }
            match self.map.clear(lpn) {
                None => self.map.mapped += 1,
                Some(superblock) => dead.add(self, superblock),
            }
            self.map.set(slot, lpn);
            let ppn = self.map.ppn(slot);
            self.map.tags.set(ppn, tag);
            slot.offset += 1;
        }
        dead.bury(self);
        self.append_host(turn, now, ready, count as u32, count as u32);
        (count, in_cache)
    }

    /// Takes a unit into the cache and looks up its place. Returns when it is in the cache, and when the controller can
    /// use it.
    #[inline]
    fn admit(&mut self, now: SimTime, arrived: SimTime, lpn: Lpn) -> (SimTime, SimTime) {
        let (in_cache, ready) = self.flash.admit(arrived);
        if self.map.cache.is_some() {
            return (in_cache, ready.max(self.translate(now, in_cache, lpn, true)));
        }
        (in_cache, ready)
    }

    /// Makes sure that the host has a frontier with a stripe to fill. Returns its index.
    fn begin_stripe(&mut self, turn: usize, now: SimTime) -> usize {
        if self.map.slc.is_some() {
            return self.begin_slc_stripe(now);
        }
        self.prepare_host(turn, 1, now);
        turn
    }
}

impl Placement for PageMap {
    /// `p2l` has the unit of each slot.
    type Owner = ();
    const SLOTS_ARE_GRANULES: bool = false;
    const NEEDS_FREE_SUPERBLOCK: bool = false;

    fn write(
        ftl: &mut PageMapped,
        now: SimTime,
        arrived: SimTime,
        units: UnitRange,
        content: Content,
    ) -> SimTime {
        let tag = content.tag();
        let (mut left, mut acknowledged) = (units, arrived);
        while left.units > 0 {
            let (written, in_cache) = ftl.write_stripe(now, acknowledged, left, tag);
            acknowledged = in_cache;
            left = UnitRange::between(left.start.offset(written), left.end());
        }
        acknowledged
    }

    fn read(ftl: &mut PageMapped, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready {
        let mut reads = Reads::new(decoded);
        for lpn in units.iter() {
            let mut decoded = decoded;
            if ftl.map.cache.is_some() {
                decoded = ftl.translate(now, decoded, lpn, false);
                reads.wait(decoded);
            }
            match ftl.map.find(lpn) {
                None => {
                    ftl.flash.stats.host_units_read_unmapped += 1;
                    reads.at_hand(decoded);
                }
                Some(ppn) if ftl.in_memory(ppn, 1, now) => {
                    ftl.flash.stats.host_units_read_cached += 1;
                    reads.at_hand(decoded);
                }
                Some(ppn) => {
                    let slc = ftl.blocks[ppn.slot(ftl.superblock_slots).superblock].slc;
                    reads.slot(&mut ftl.flash, now, ppn, slc, decoded);
                }
            }
        }
        reads.finish(&mut ftl.flash, now)
    }

    fn expect(&self, lpns: &[Lpn]) {
        self.fetch(lpns);
    }

    fn expect_copies(&self, superblock: Superblock, from: Cursor, count: usize) {
        self.fetch_copies(superblock, from.offset, count);
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.find(lpn).is_some()
    }

    fn mapped_units(&self) -> u64 {
        self.mapped
    }

    fn slots_of(&self, lpn: Lpn) -> Option<(Ppn, u32)> {
        Some((self.find(lpn)?, 1))
    }

    fn tag(&self, lpn: Lpn) -> Option<u32> {
        self.tags.get(self.find(lpn)?)
    }

    fn memory_bytes(&self) -> u64 {
        let cache = self.cache.as_ref().map_or(0, |cache| cache.memory_bytes());
        self.l2p.memory_bytes() + self.p2l.memory_bytes() + self.live.memory_bytes() + cache
    }

    #[inline]
    fn release(&mut self, lpn: Lpn) -> Option<(Superblock, u32)> {
        let superblock = self.clear(lpn)?;
        self.mapped -= 1;
        Some((superblock, 1))
    }

    /// Unmaps the whole device, including a map in the flash, by filling three tables.
    fn release_all(ftl: &mut PageMapped) -> bool {
        if ftl.map.cache.as_ref().is_some_and(|cache| cache.keeps_empty_parts()) {
            return false;
        }
        ftl.map.clear_all();
        for block in ftl.blocks.iter_mut() {
            debug_assert!(block.state != State::Free || block.valid == 0);
            block.valid = 0;
        }
        true
    }

    fn before_unmap(ftl: &mut PageMapped, now: SimTime, ranges: &[UnitRange]) {
        if ftl.map.cache.is_some() {
            ftl.unmap_parts(now, ranges);
        }
    }

    fn before_forgetting(ftl: &mut PageMapped) {
        if ftl.map.cache.is_some() {
            ftl.drop_parts();
        }
    }

    fn unmapped_at(&self) -> SimTime {
        self.cache.as_ref().map_or(SimTime::ZERO, |cache| cache.unmapped_at)
    }

    #[inline]
    fn stripe_filled(ftl: &mut PageMapped, frontier: usize, now: SimTime) {
        // The map's own writes are paid for here.
        let mut units = ftl.map.cache.as_mut().map_or(0, |cache| cache.take_owed());
        if ftl.map.slc.is_none() {
            units += ftl.stripe_slots;
            ftl.turn = ftl.next_turn(frontier);
        } else if !ftl.end_slc_stripe(frontier, now) {
            // Writes to the SLC cache are paid for when it is folded.
            units += ftl.stripe_slots;
        }
        if units > 0 && !ftl.give_way(now, units) {
            ftl.pace(now, units);
        }
    }

    fn closed(&mut self, superblock: Superblock, slc: bool) {
        if let Some(cache) = &mut self.slc
            && slc
        {
            cache.filled(superblock);
        }
    }

    fn slc_erased(&mut self, superblock: Superblock, written: u32) -> bool {
        self.slc.as_mut().is_some_and(|slc| slc.release(superblock, written))
    }

    fn clear(ftl: &mut PageMapped) {
        ftl.map.clear_all();
        if let Some(slc) = &mut ftl.map.slc {
            slc.clear();
            ftl.turn = slc.rest();
        }
        if let Some(cache) = &mut ftl.map.cache {
            cache.clear();
        }
    }

    #[inline]
    fn next_piece(&self, superblock: Superblock, from: Cursor) -> Option<Piece<()>> {
        let offset = self.live.next(superblock, from.offset)?;
        Some(Piece { offset, slots: 1, live: true, owner: () })
    }

    #[inline]
    fn moved(&mut self, (): (), from: Slot, to: Slot) {
        let ppn = self.ppn(from);
        let lpn = self.p2l[ppn].lpn();
        self.live.clear(from);
        self.set(to, lpn);
        self.tags.copy(ppn, self.ppn(to));
        if let Some(cache) = &mut self.cache
            && lpn < self.host_end
        {
            cache.copied(lpn);
        }
    }

    #[inline]
    fn copy_target(ftl: &mut PageMapped, cause: Cause, slots: u32, now: SimTime) -> usize {
        if cause == Cause::Folding { ftl.fold_target(now) } else { ftl.prepare_copies(slots, now) }
    }

    #[inline]
    fn copies_filled(ftl: &mut PageMapped, cause: Cause, frontier: usize, now: SimTime) {
        if cause == Cause::Folding {
            ftl.end_fold_stripe(frontier, now);
        }
    }

    fn victim_done(ftl: &mut PageMapped, now: SimTime) {
        if ftl.map.cache.is_some() {
            ftl.write_moved_parts(now);
        }
    }

    fn work_while_idle(ftl: &mut PageMapped, now: SimTime, slots: u32) -> bool {
        ftl.fold_while_idle(now, slots)
    }

    fn superblocks_wanted(ftl: &PageMapped) -> u32 {
        ftl.wanted_by_slc()
    }

    fn own_victim(&self) -> Superblock {
        self.slc.as_ref().map_or(Superblock::NONE, |slc| slc.folded_superblock())
    }

    fn free_outside_pool(&self) -> usize {
        self.slc.as_ref().map_or(0, |slc| slc.static_free.len())
    }

    fn audit_map(ftl: &PageMapped) -> Result<u64, AuditError> {
        let map = &ftl.map;
        let (mut mapped, mut of_map) = (0, 0);
        for (lpn, &ppn) in map.l2p.numbered() {
            if ppn == Ppn::NONE {
                continue;
            }
            if lpn < map.host_end {
                mapped += 1;
            } else {
                of_map += 1;
            }
            let unit = lpn.0;
            ensure!(map.p2l[ppn].lpn() == lpn, "unit {unit} is at slot {ppn}, which holds another");
            let is_live = map.live.get(ppn.slot(ftl.superblock_slots));
            ensure!(is_live, "unit {unit} is at slot {ppn}, which is not valid");
        }
        ensure!(mapped == map.mapped, "{mapped} units are mapped, {} counted", map.mapped);
        ftl.flash.audit_host_units()?;
        ftl.audit_slc()?;
        ftl.audit_map_cache()?;
        Ok(mapped + of_map)
    }

    fn audit_superblock(ftl: &PageMapped, superblock: Superblock) -> Result<u32, AuditError> {
        let mut count = 0;
        for offset in ftl.map.live.iter(superblock, 0) {
            let is_written = offset < ftl.blocks[superblock].written;
            ensure!(is_written, "superblock {superblock}: slot {offset} is valid and was never written");
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::PageMapped;
    use crate::content::Content;
    use crate::ssd::SsdConfig;
    use crate::ssd::address::{Number, Ppn};
    use crate::ssd::geometry::Geometry;
    use crate::ssd::translation::Translation;
    use crate::units::{Bytes, Lpn, SimTime, UnitRange};

    #[test]
    fn stripes_go_to_the_host_s_frontiers_in_turn() {
        let mut config = SsdConfig { capacity_bytes: Bytes::mib(64).0, ..SsdConfig::default() };
        config.geometry.pages_per_block = 8;
        config.gc.host_frontiers = 3;
        config.over_provisioning_percent = Some(50.into());
        let geometry = Geometry::new(&config).unwrap();
        let stripe_units = geometry.stripe_units;
        let mut mapped = PageMapped::new(&config, geometry, 1);
        let units = UnitRange::new(Lpn(0), 5 * u64::from(stripe_units));
        mapped.write(SimTime::ZERO, SimTime::ZERO, units, Content::default());
        let taken: Vec<u32> = mapped.open_superblocks().map(|next| next.offset / stripe_units).collect();
        assert_eq!(taken, [2, 2, 1]);
    }

    /// A mapping that forgets a unit without making its slot invalid eventually has nothing to gain anywhere.
    #[test]
    #[should_panic(expected = "victims and no superblock free: Err(")]
    fn collection_that_gains_nothing_fails_and_names_what_does_not_add_up() {
        let mut config = SsdConfig {
            capacity_bytes: Bytes::mib(16).0,
            over_provisioning_percent: Some(50.into()),
            ..SsdConfig::default()
        };
        config.geometry.pages_per_block = 8;
        let geometry = Geometry::new(&config).unwrap();
        let units = geometry.physical_units();
        let mut mapped = PageMapped::new(&config, geometry, 1);
        for _ in 0..units {
            mapped.write(SimTime::ZERO, SimTime::ZERO, UnitRange::new(Lpn(0), 1), Content::default());
            mapped.map.l2p[Lpn(0)] = Ppn::NONE;
        }
    }
}
