//! The books of the compressing map, checked from scratch.
//!
//! Slow (it looks at every chunk) and meant for tests and for the end of a run.

use super::super::audit::{AuditError, ensure};
use super::super::ftl::State;
use super::Compressing;
use super::store::{Held, Whose};
use crate::content::DUPLICATES;

impl Compressing {
    /// Checks that live, dead and free granules are all granules, that each unit's chunk lies where the map says,
    /// that a duplicate has as many references as units refer to it, and that what was written by cause is what the
    /// erases freed and the superblocks hold.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    pub fn audit_books(&self) -> Result<(), AuditError> {
        let live = self.audit_map()?;
        let written = self.audit_superblocks(live)?;
        self.audit_pool()?;
        self.victims.audit(&self.store.blocks).map_err(AuditError::new)?;
        let stats = &self.flash.stats;
        ensure!(
            stats.nand_granules.total() == written + self.erased_granules,
            "{} granules written by cause; superblocks hold {written}, and {} were erased",
            stats.nand_granules.total(),
            self.erased_granules
        );
        let erases: u64 = self.store.blocks.iter().map(|b| u64::from(b.erases)).sum();
        ensure!(
            erases == stats.superblock_erases,
            "{erases} erases in superblocks, {} counted",
            stats.superblock_erases
        );
        Ok(())
    }

    /// Returns the granules of all chunks that units refer to.
    fn audit_map(&self) -> Result<u64, AuditError> {
        let (mut mapped, mut live) = (0, 0);
        let mut references = [0; DUPLICATES as usize];
        for lpn in 0..self.store.units() {
            match self.store.held(lpn) {
                Held::Nothing => continue,
                Held::Zeros => {}
                Held::Shared(number) => references[number as usize] += 1,
                Held::Own(_) => live += self.store.chunk(lpn).map_or(0, |(_, granules)| u64::from(granules)),
            }
            mapped += 1;
        }
        ensure!(mapped == self.store.mapped, "{mapped} units are mapped, {} counted", self.store.mapped);
        for (number, &count) in references.iter().enumerate() {
            let duplicate = self.store.duplicate(number as u32);
            ensure!(
                duplicate.references == count,
                "duplicate {number} has {} references, and {count} units refer to it",
                duplicate.references
            );
            let is_stored = duplicate.at != super::store::UNMAPPED;
            ensure!(
                is_stored == (count > 0),
                "duplicate {number} is stored and nobody needs it, or the reverse"
            );
            if is_stored {
                live += u64::from(self.store.length(super::Owner::duplicate(number as u32)));
            }
        }
        Ok(live)
    }

    /// Returns the granules that the superblocks hold.
    fn audit_superblocks(&self, live_by_map: u64) -> Result<u64, AuditError> {
        let all = self.store.granules_per_superblock();
        let (mut live, mut dead, mut free, mut closed) = (0u64, 0u64, 0u64, 0);
        for (i, block) in self.store.blocks.iter().enumerate() {
            let (mut offset, mut counting) = (0, 0);
            let moved = self.collector.victim_superblock() == Some(i as u32);
            for &owner in &self.store.logs[i] {
                let granules = self.store.length(owner);
                if self.store.is_live(owner, i as u32 * all + offset) {
                    counting += granules;
                }
                if let Whose::Unit(lpn, size) = owner.whose() {
                    let chunk = self.store.chunk(lpn);
                    let here = chunk.is_some_and(|(at, _)| at == i as u32 * all + offset);
                    let own = matches!(self.store.held(lpn), Held::Own(_));
                    let same = chunk.is_some_and(|(_, length)| length == self.store.granules(size));
                    ensure!(!here || !own || same, "unit {lpn} is of another size than its chunk");
                }
                offset += granules;
            }
            ensure!(offset == block.written, "superblock {i}: {offset} granules, {} counted", block.written);
            ensure!(offset <= all, "superblock {i} has taken {offset} granules");
            let unchecked = self.store.unchecked[i];
            ensure!(
                counting + unchecked == block.valid,
                "superblock {i}: {counting} granules live and {unchecked} to check, {} counted",
                block.valid
            );
            match block.state {
                State::Free => ensure!(block.written == 0, "superblock {i} is free and was written"),
                State::Closed => closed += 1,
                State::Open => ensure!(
                    self.frontiers().any(|(s, next)| s == i as u32 && next == block.written),
                    "superblock {i} is open and no frontier fills it"
                ),
                State::Slc => ensure!(false, "superblock {i} is in SLC mode, which this mapping has not"),
                State::Victim => ensure!(moved, "superblock {i} is a stray victim"),
            }
            live += u64::from(counting);
            dead += u64::from(block.written - counting);
            free += u64::from(all - block.written);
        }
        ensure!(live == live_by_map, "{live} granules are live in superblocks, {live_by_map} by the map");
        let granules = u64::from(all) * self.store.blocks.len() as u64;
        ensure!(
            live + dead + free == granules,
            "{live} live + {dead} dead + {free} free granules are not {granules}"
        );
        ensure!(
            closed == self.victims.closed().len(),
            "{closed} superblocks are closed, not all are candidates"
        );
        Ok(live + dead)
    }

    fn audit_pool(&self) -> Result<(), AuditError> {
        let blocks = &self.store.blocks;
        let mut pool = vec![false; blocks.len()];
        for &superblock in self.free.iter().flatten() {
            let i = superblock as usize;
            ensure!(!pool[i], "superblock {i} is twice in the free pool");
            ensure!(blocks[i].state == State::Free, "superblock {i} is in the free pool and not free");
            pool[i] = true;
        }
        let pooled = pool.iter().filter(|&&p| p).count();
        let free = blocks.iter().filter(|b| b.state == State::Free).count();
        ensure!(pooled == free, "{free} superblocks are free, {pooled} in the pool");
        ensure!(
            pooled == self.free_count as usize,
            "{pooled} superblocks in the pool, another number counted"
        );
        Ok(())
    }
}
