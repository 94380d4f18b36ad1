//! The books of the page map, checked from scratch.
//!
//! Slow (it looks at every slot) and meant for tests and for the end of a run.

use super::super::audit::{AuditError, ensure};
use super::super::ftl::{NONE, State};
use super::PageMapped;

impl PageMapped {
    /// Checks that nothing is lost or counted twice: valid + invalid + free slots are all slots, the two
    /// directions of the map agree, and what was written by cause is what the erases freed and the blocks hold.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    pub fn audit_books(&self) -> Result<(), AuditError> {
        let map = &self.map;
        let units = self.flash.geometry.superblock_units;
        let (mut mapped, mut of_map) = (0, 0);
        for (lpn, &ppn) in map.l2p.iter().enumerate() {
            if ppn == NONE {
                continue;
            }
            if lpn < self.flash.geometry.logical_units as usize {
                mapped += 1;
            } else {
                of_map += 1;
            }
            ensure!(map.p2l[ppn as usize] == lpn as u32, "unit {lpn} is at slot {ppn}, which holds another");
            ensure!(map.is_valid(ppn), "unit {lpn} is at slot {ppn}, which is not valid");
        }
        ensure!(mapped == map.mapped, "{mapped} units are mapped, {} counted", map.mapped);
        let bits: u64 = map.bits.iter().map(|w| u64::from(w.count_ones())).sum();
        ensure!(
            bits == mapped + of_map,
            "{bits} slots are valid, {mapped} units and {of_map} of the map are mapped"
        );

        let (mut valid, mut invalid, mut written) = (0u64, 0u64, 0u64);
        let mut closed = 0;
        for (i, block) in map.blocks.iter().enumerate() {
            let superblock = i as u32;
            let mut count = 0;
            let mut from = 0;
            while let Some(offset) = map.next_valid(superblock, from) {
                count += 1;
                ensure!(
                    offset < block.written,
                    "superblock {i}: slot {offset} is valid and was never written"
                );
                from = offset + 1;
            }
            ensure!(count == block.valid, "superblock {i}: {count} slots valid, {} counted", block.valid);
            ensure!(block.written <= units, "superblock {i} has taken {} units", block.written);
            match block.state {
                State::Free => ensure!(block.written == 0, "superblock {i} is free and was written"),
                State::Closed => closed += 1,
                State::Slc => {}
                State::Open => {
                    ensure!(
                        self.frontiers().any(|(s, next)| s == superblock && next == block.written),
                        "superblock {i} is open and no frontier fills it"
                    );
                }
                State::Victim => {
                    ensure!(
                        [self.collector.victim_superblock(), self.folded_superblock()]
                            .contains(&Some(superblock)),
                        "superblock {i} is a stray victim"
                    );
                }
            }
            valid += u64::from(block.valid);
            invalid += u64::from(block.written - block.valid);
            written += u64::from(block.written);
        }
        let slots = u64::from(self.flash.geometry.physical_units());
        let free = self.free_slots();
        ensure!(
            valid + invalid + free == slots,
            "{valid} valid + {invalid} invalid + {free} free slots are not {slots}"
        );
        ensure!(
            closed == self.victims.closed().len(),
            "{closed} superblocks are closed, not all are candidates"
        );
        let mut pool = vec![false; map.blocks.len()];
        for superblock in self.free_pool() {
            let i = superblock as usize;
            ensure!(!pool[i], "superblock {i} is twice in the free pool");
            ensure!(map.blocks[i].state == State::Free, "superblock {i} is in the free pool and not free");
            pool[i] = true;
        }
        let pooled = pool.iter().filter(|&&p| p).count();
        let free_blocks = map.blocks.iter().filter(|b| b.state == State::Free).count();
        ensure!(
            pooled + self.static_free() == free_blocks,
            "{free_blocks} superblocks are free, {pooled} in the pool"
        );
        ensure!(
            pooled == self.free_count as usize,
            "{pooled} superblocks in the pool, another number counted"
        );

        self.audit_slc()?;
        self.audit_map_cache()?;
        self.victims.audit(&map.blocks).map_err(AuditError::new)?;
        let stats = &self.flash.stats;
        ensure!(
            stats.nand_units.host == stats.host_units_written,
            "{} host units written, {} placed",
            stats.host_units_written,
            stats.nand_units.host
        );
        ensure!(
            stats.nand_units.total() == written + self.erased_slots(),
            "{} units written by cause; blocks hold {written}, and {} were erased",
            stats.nand_units.total(),
            self.erased_slots()
        );
        let erases: u64 = map.blocks.iter().map(|b| u64::from(b.erases)).sum();
        ensure!(
            erases == stats.superblock_erases,
            "{erases} erases in blocks, {} counted",
            stats.superblock_erases
        );
        Ok(())
    }
}
