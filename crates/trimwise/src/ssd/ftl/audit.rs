use super::super::address::{Slot, Table};
use super::super::audit::{AuditError, ensure};
use super::{Ftl, Placement, State};

impl<P: Placement> Ftl<P> {
    /// Checks that no slot is lost or counted twice: live + dead + free slots are all slots, each unit is where the map
    /// says, and the slots written by cause equal those erased plus those that superblocks hold.
    ///
    /// It looks at every slot: for tests and for the end of a run.
    pub(crate) fn audit_accounting(&self) -> Result<(), AuditError> {
        let live = P::audit_map(self)?;
        let written = self.audit_superblocks(live)?;
        self.audit_pool()?;
        self.victims.audit(&self.blocks)?;
        let stats = &self.flash.stats;
        let counts = if P::SLOTS_ARE_GRANULES { stats.nand_granules } else { stats.nand_units };
        let erases = self.blocks.iter().map(|block| u64::from(block.erases)).sum();
        self.flash.audit_counts(counts.in_slots(), written, self.erased_slots, erases)
    }

    fn audit_superblocks(&self, live_by_map: u64) -> Result<u64, AuditError> {
        let all = self.superblock_slots;
        let (mut live, mut dead, mut free, mut closed) = (0u64, 0u64, 0u64, 0);
        for (superblock, block) in self.blocks.numbered() {
            let count = P::audit_superblock(self, superblock)?;
            ensure!(
                count + block.unchecked == block.valid,
                "superblock {superblock}: {count} slots live and {} to check, {} counted",
                block.unchecked,
                block.valid
            );
            ensure!(block.written <= all, "superblock {superblock} has taken {} slots", block.written);
            match block.state {
                State::Free => ensure!(block.written == 0, "superblock {superblock} is free and was written"),
                State::Closed => closed += 1,
                State::Slc => ensure!(block.slc, "superblock {superblock} waits to be folded in normal mode"),
                State::Open => ensure!(
                    self.open_superblocks().any(|next| next == Slot::new(superblock, block.written)),
                    "superblock {superblock} is open and no frontier fills it"
                ),
                State::Victim => {
                    let victim = self.collector.victim.map(|victim| victim.superblock);
                    ensure!(
                        victim == Some(superblock) || self.map.own_victim() == superblock,
                        "superblock {superblock} is a stray victim"
                    );
                }
            }
            live += u64::from(count);
            dead += u64::from(block.written - count);
            free += u64::from(all - block.written);
        }
        ensure!(live == live_by_map, "{live} slots are live in superblocks, {live_by_map} by the map");
        let slots = u64::from(all) * self.blocks.len() as u64;
        ensure!(live + dead + free == slots, "{live} live + {dead} dead + {free} free slots are not {slots}");
        ensure!(
            closed == self.victims.closed().len(),
            "{closed} superblocks are closed, not all are candidates"
        );
        Ok(live + dead)
    }

    fn audit_pool(&self) -> Result<(), AuditError> {
        let mut pool = Table::new(self.blocks.len(), false);
        for superblock in self.pool.iter() {
            ensure!(!pool[superblock], "superblock {superblock} is twice in the free pool");
            ensure!(
                self.blocks[superblock].state == State::Free,
                "superblock {superblock} is in the free pool and not free"
            );
            pool[superblock] = true;
        }
        let pooled = pool.iter().filter(|&&p| p).count();
        let free = self.blocks.iter().filter(|b| b.state == State::Free).count();
        ensure!(
            pooled + self.map.free_outside_pool() == free,
            "{free} superblocks are free, {pooled} in the pool"
        );
        ensure!(
            pooled == self.pool.free() as usize,
            "{pooled} superblocks in the pool, another number counted"
        );
        Ok(())
    }
}
