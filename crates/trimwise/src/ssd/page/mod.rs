//! The page map: any unit may lie in any page. A slot of the core is a unit.
//!
//! Two things may stand before it: `slc`, a cache of flash in SLC mode that takes host units first, and `map_cache`,
//! where the map itself lies in the flash. A device without them pays one branch a unit for them.

mod map;
mod map_cache;
mod slc;

use std::ops::Range;

use super::audit::{AuditError, ensure};
use super::config::SsdConfig;
use super::ftl::{Block, Cause, Cursor, Ftl, Layout, NONE, Piece, Placement, Reads, Slot, State};
use super::geometry::Geometry;
use super::translation::Ready;
use crate::content::Content;
use map::PageMap;

/// A device with a page map.
pub(super) type PageMapped = Ftl<PageMap>;

impl PageMapped {
    pub fn new(config: &SsdConfig, geometry: Geometry, seed: u64) -> Self {
        let map = PageMap::new(config, &geometry);
        let frontiers = config.gc.host_frontiers as usize;
        let rest = map.slc.as_ref().map(|slc| slc.rest());
        let layout = Layout {
            unit_slots: 1,
            // With an SLC cache, as many in SLC mode come behind them, and one that is never open.
            host_frontiers: rest.map_or(frontiers, |rest| rest + 1),
            turn: rest.unwrap_or(0),
            pool_from: map.slc.as_ref().map_or(0, |slc| slc.static_superblocks()),
        };
        Self::with_placement(config, geometry, seed, &layout, map)
    }

    /// Writes one host unit that the controller has at hand at `ready`.
    #[inline]
    fn write_unit(&mut self, now: u64, ready: u64, lpn: u32, tag: u32) {
        let mut turn = self.turn;
        if !self.frontiers[turn].has_room(1) {
            turn = self.begin_stripe(turn, now);
        }
        match self.map.clear(lpn) {
            None => self.map.mapped += 1,
            Some(superblock) => self.kill(superblock, 1),
        }
        let slot = self.frontiers[turn].slot();
        self.map.set(slot, lpn);
        self.map.set_tag(slot, tag);
        self.append_host(turn, now, ready, 1);
    }

    /// Makes sure that the host has a frontier with a stripe to fill. Returns its index.
    fn begin_stripe(&mut self, turn: usize, now: u64) -> usize {
        if self.map.slc.is_some() {
            return self.begin_slc_stripe(now);
        }
        self.prepare_host(turn, 1, now);
        turn
    }
}

impl Placement for PageMap {
    /// `p2l` says which unit is at a slot.
    type Owner = ();

    const SLOTS_ARE_GRANULES: bool = false;
    const NEEDS_FREE_SUPERBLOCK: bool = false;

    fn write(ftl: &mut PageMapped, now: u64, arrived: u64, units: Range<u32>, content: Content) -> u64 {
        let tag = content.tag();
        let mut acknowledged = arrived;
        for lpn in units {
            let (in_cache, mut ready) = ftl.flash.admit(acknowledged);
            acknowledged = in_cache;
            if ftl.map.cache.is_some() {
                ready = ready.max(ftl.translate(now, in_cache, lpn, true));
            }
            ftl.write_unit(now, ready, lpn, tag);
        }
        acknowledged
    }

    fn read(ftl: &mut PageMapped, now: u64, decoded: u64, units: Range<u32>) -> Ready {
        let mut reads = Reads::new(decoded);
        for lpn in units {
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
                    let slc = ftl.blocks[ftl.split(ppn).0 as usize].slc;
                    reads.slot(&mut ftl.flash, now, ppn, slc, decoded);
                }
            }
        }
        reads.finish(&mut ftl.flash, now)
    }

    fn expect(&self, lpns: &[u32]) {
        self.fetch(lpns);
    }

    fn expect_copies(&self, superblock: u32, from: Cursor, count: usize) {
        self.fetch_copies(superblock, from.offset, count);
    }

    fn is_mapped(&self, lpn: u32) -> bool {
        self.find(lpn).is_some()
    }

    fn mapped_units(&self) -> u64 {
        self.mapped
    }

    fn slots_of(&self, lpn: u32) -> Option<(u32, u32)> {
        Some((self.find(lpn)?, 1))
    }

    fn tag(&self, lpn: u32) -> Option<u32> {
        self.tag_at(self.find(lpn)?)
    }

    fn memory_bytes(&self) -> u64 {
        self.table_bytes() + self.cache.as_ref().map_or(0, |cache| cache.memory_bytes())
    }

    #[inline]
    fn release(&mut self, lpn: u32) -> Option<(u32, u32)> {
        let superblock = self.clear(lpn)?;
        self.mapped -= 1;
        Some((superblock, 1))
    }

    /// The whole device, with the map if it lies in the flash: three fills.
    fn release_all(ftl: &mut PageMapped) -> bool {
        ftl.map.clear_all();
        for block in &mut ftl.blocks {
            debug_assert!(block.state != State::Free || block.valid == 0);
            block.valid = 0;
        }
        true
    }

    fn before_unmap(ftl: &mut PageMapped, now: u64, ranges: &[Range<u32>]) {
        if ftl.map.cache.is_some() {
            ftl.unmap_parts(now, ranges);
        }
    }

    fn unmapped_at(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.unmapped_at())
    }

    #[inline]
    fn stripe_filled(ftl: &mut PageMapped, frontier: usize, now: u64) {
        // What the map has taken is paid for here.
        let mut units = ftl.map.cache.as_mut().map_or(0, |cache| cache.take_owed());
        if ftl.map.slc.is_none() {
            units += ftl.stripe_slots;
            ftl.turn = ftl.next_turn(frontier);
        } else if !ftl.end_slc_stripe(frontier, now) {
            // What goes to the SLC cache is paid for when it is folded.
            units += ftl.stripe_slots;
        }
        if units > 0 {
            ftl.pace(now, units);
        }
    }

    fn closed(&mut self, superblock: u32, slc: bool) {
        if let Some(cache) = &mut self.slc
            && slc
        {
            cache.filled(superblock);
        }
    }

    fn slc_erased(&mut self, superblock: u32, written: u32) -> bool {
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
    fn next_piece(&self, superblock: u32, from: Cursor) -> Option<Piece<()>> {
        let offset = self.live.next(superblock, from.offset)?;
        Some(Piece { offset, slots: 1, live: true, owner: () })
    }

    #[inline]
    fn moved(&mut self, (): (), from: Slot, to: Slot) {
        let lpn = self.p2l[self.ppn(from) as usize];
        self.live.clear(from.superblock, from.offset);
        self.set(to, lpn);
        self.copy_tag(from, to);
        if let Some(cache) = &mut self.cache
            && lpn < self.logical_units
        {
            cache.copied(lpn);
        }
    }

    #[inline]
    fn copy_target(ftl: &mut PageMapped, cause: Cause, slots: u32, now: u64) -> usize {
        if cause == Cause::Folding { ftl.fold_target(now) } else { ftl.prepare_copies(slots, now) }
    }

    #[inline]
    fn copies_filled(ftl: &mut PageMapped, cause: Cause, frontier: usize, now: u64) {
        if cause == Cause::Folding {
            ftl.end_fold_stripe(frontier, now);
        }
    }

    fn victim_done(ftl: &mut PageMapped, now: u64) {
        if ftl.map.cache.is_some() {
            ftl.write_moved_parts(now);
        }
    }

    fn work_while_idle(ftl: &mut PageMapped, now: u64, slots: u32) -> bool {
        ftl.fold_while_idle(now, slots)
    }

    fn superblocks_wanted(ftl: &PageMapped) -> u32 {
        ftl.wanted_by_slc()
    }

    fn own_victim(&self) -> u32 {
        self.slc.as_ref().map_or(NONE, |slc| slc.folded_superblock())
    }

    fn free_outside_pool(&self) -> usize {
        self.slc.as_ref().map_or(0, |slc| slc.static_free())
    }

    fn audit_map(ftl: &PageMapped) -> Result<u64, AuditError> {
        let map = &ftl.map;
        let (mut mapped, mut of_map) = (0, 0);
        for (lpn, &ppn) in map.l2p.iter().enumerate() {
            if ppn == NONE {
                continue;
            }
            if lpn < map.logical_units as usize {
                mapped += 1;
            } else {
                of_map += 1;
            }
            ensure!(map.p2l[ppn as usize] == lpn as u32, "unit {lpn} is at slot {ppn}, which holds another");
            let (superblock, offset) = ftl.split(ppn);
            ensure!(map.live.get(superblock, offset), "unit {lpn} is at slot {ppn}, which is not valid");
        }
        ensure!(mapped == map.mapped, "{mapped} units are mapped, {} counted", map.mapped);
        let stats = &ftl.flash.stats;
        ensure!(
            stats.nand_units.host == stats.host_units_written,
            "{} host units written, {} placed",
            stats.host_units_written,
            stats.nand_units.host
        );
        ftl.audit_slc()?;
        ftl.audit_map_cache()?;
        Ok(mapped + of_map)
    }

    fn audit_superblock(ftl: &PageMapped, superblock: u32) -> Result<u32, AuditError> {
        let Block { written, .. } = ftl.blocks[superblock as usize];
        let (mut count, mut from) = (0, 0);
        while let Some(offset) = ftl.map.live.next(superblock, from) {
            count += 1;
            ensure!(
                offset < written,
                "superblock {superblock}: slot {offset} is valid and was never written"
            );
            from = offset + 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::PageMapped;
    use crate::content::Content;
    use crate::ssd::SsdConfig;
    use crate::ssd::ftl::NONE;
    use crate::ssd::geometry::Geometry;
    use crate::ssd::translation::Translation;
    use crate::units::Bytes;

    #[test]
    fn stripes_go_to_the_host_s_frontiers_in_turn() {
        let mut config = SsdConfig { capacity_bytes: Bytes::mib(64).0, ..SsdConfig::default() };
        config.geometry.pages_per_block = 8;
        config.gc.host_frontiers = 3;
        config.over_provisioning_percent = Some(50);
        let geometry = Geometry::new(&config).unwrap();
        let stripe_units = geometry.stripe_units;
        let mut mapped = PageMapped::new(&config, geometry, 1);
        mapped.write(0, 0, 0..5 * stripe_units, Content::default());
        let taken: Vec<u32> = mapped.open_superblocks().map(|(_, next)| next / stripe_units).collect();
        assert_eq!(taken, [2, 2, 1]);
    }

    /// A mapping that forgets a unit without making its slot invalid has nothing to gain anywhere in the end.
    #[test]
    #[should_panic(expected = "victims and no superblock free: Err(")]
    fn collection_that_gains_nothing_fails_and_names_what_does_not_add_up() {
        let mut config = SsdConfig {
            capacity_bytes: Bytes::mib(16).0,
            over_provisioning_percent: Some(50),
            ..SsdConfig::default()
        };
        config.geometry.pages_per_block = 8;
        let geometry = Geometry::new(&config).unwrap();
        let units = geometry.physical_units();
        let mut mapped = PageMapped::new(&config, geometry, 1);
        for _ in 0..units {
            mapped.write(0, 0, 0..1, Content::default());
            mapped.map.l2p[0] = NONE;
        }
    }
}
