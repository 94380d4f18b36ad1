//! The books of the block map, checked from scratch.
//!
//! Slow (it looks at every slot) and meant for tests and for the end of a run.

use super::super::audit::{AuditError, ensure};
use super::super::ftl::NONE;
use super::BlockMapped;
use super::slots::Role;

impl BlockMapped {
    /// Checks that nothing is lost or counted twice: valid + invalid + left out + free slots are all slots, each
    /// mapped unit lies where its block, its stream or the log says, each superblock has one owner, and what was
    /// written by cause is what the erases freed and the superblocks hold.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    pub(crate) fn audit_books(&self) -> Result<(), AuditError> {
        self.audit_units()?;
        self.audit_superblocks()?;
        self.audit_owners()
    }

    fn audit_units(&self) -> Result<(), AuditError> {
        let mut mapped = 0;
        for (i, block) in self.blocks.iter().enumerate() {
            let first = i as u32 * self.units();
            let end = (first + self.units()).min(self.flash.geometry.logical_units);
            let slots: Vec<_> = (first..end).filter_map(|lpn| self.slot(lpn)).collect();
            ensure!(
                slots.iter().all(|&slot| self.slots.is_valid(slot)),
                "a unit of logical block {i} is at a slot that is not valid"
            );
            let logged = (first..end).filter(|&lpn| self.logged[lpn as usize] != NONE).count();
            ensure!(
                slots.len() == block.mapped as usize && logged == block.logged as usize,
                "logical block {i}: {} units are mapped and {logged} logged, counted {} and {}",
                slots.len(),
                block.mapped,
                block.logged
            );
            mapped += slots.len() as u64;
        }
        ensure!(mapped == self.mapped, "{mapped} units are mapped, {} counted", self.mapped);
        let valid: u64 = self.slots.superblocks().iter().map(|s| u64::from(s.valid)).sum();
        ensure!(valid == mapped, "{valid} slots are valid, {mapped} units mapped");
        Ok(())
    }

    fn audit_superblocks(&self) -> Result<(), AuditError> {
        let (mut valid, mut invalid, mut left_out, mut free, mut written) = (0u64, 0u64, 0u64, 0u64, 0u64);
        for (i, block) in self.slots.superblocks().iter().enumerate() {
            let superblock = i as u32;
            let (mut count, mut from) = (0, 0);
            while let Some(offset) = self.slots.next_valid(superblock, from) {
                count += 1;
                ensure!(offset < block.next, "superblock {i}: slot {offset} is valid and was never filled");
                if block.role == Role::Log {
                    let lpn = self.slots.owner(superblock, offset) as usize;
                    ensure!(
                        self.logged.get(lpn) == Some(&(superblock * self.units() + offset)),
                        "superblock {i}: slot {offset} is valid, and its unit {lpn} lies elsewhere"
                    );
                }
                from = offset + 1;
            }
            ensure!(count == block.valid, "superblock {i}: {count} slots valid, {} counted", block.valid);
            ensure!(
                block.valid <= block.written && block.written <= block.next && block.next <= self.units(),
                "superblock {i}: {} valid, {} filled, next {}",
                block.valid,
                block.written,
                block.next
            );
            let unused = matches!(block.role, Role::Clean | Role::GivenBack);
            ensure!(!unused || block.valid == 0, "superblock {i} is unused and holds data");
            ensure!(block.role != Role::Clean || block.next == 0, "superblock {i} is erased and was filled");
            valid += u64::from(block.valid);
            invalid += u64::from(block.written - block.valid);
            left_out += u64::from(block.next - block.written);
            free += u64::from(self.units() - block.next);
            written += u64::from(block.written);
        }
        let slots = u64::from(self.flash.geometry.physical_units());
        ensure!(
            valid + invalid + left_out + free == slots,
            "{valid} valid + {invalid} invalid + {left_out} left out + {free} free slots are not {slots}"
        );
        let stats = &self.flash.stats;
        ensure!(
            stats.nand_units.host == stats.host_units_written,
            "{} host units written, {} placed",
            stats.host_units_written,
            stats.nand_units.host
        );
        ensure!(
            stats.nand_units.total() == written + self.slots.erased_slots,
            "{} units written by cause; superblocks hold {written}, and {} were erased",
            stats.nand_units.total(),
            self.slots.erased_slots
        );
        let erases: u64 = self.slots.superblocks().iter().map(|b| u64::from(b.erases)).sum();
        ensure!(
            erases == stats.superblock_erases,
            "{erases} erases of superblocks, {} counted",
            stats.superblock_erases
        );
        Ok(())
    }

    fn audit_owners(&self) -> Result<(), AuditError> {
        let mut owners = vec![0; self.slots.superblocks().len()];
        let data = self.blocks.iter().map(|block| block.data).filter(|&data| data != NONE);
        let streams = self.streams.iter().filter(|s| self.stream_onto(s.block).is_some());
        let open = streams.map(|stream| stream.superblock).filter(|&s| s != NONE);
        let log = self.log.iter().copied();
        let owned = data.map(|s| (s, Role::Data)).chain(open.map(|s| (s, Role::Stream)));
        for (superblock, role) in owned.chain(log.map(|s| (s, Role::Log))) {
            owners[superblock as usize] += 1;
            let found = self.slots.superblock(superblock).role;
            ensure!(found == role, "superblock {superblock} is {found:?} and used as {role:?}");
        }
        let mut free = 0;
        for superblock in self.slots.pool() {
            owners[superblock as usize] += 1;
            free += 1;
        }
        ensure!(free == self.slots.free(), "{free} superblocks are free, {} counted", self.slots.free());
        for (superblock, count) in owners.iter().enumerate() {
            ensure!(*count == 1, "superblock {superblock} has {count} owners");
        }
        let in_use = self.log_in_use();
        ensure!(in_use <= self.log_max, "the log has {in_use} superblocks, its limit is {}", self.log_max);
        for stream in self.streams.iter().filter(|s| s.superblock != NONE) {
            let next = self.slots.superblock(stream.superblock).next;
            let former = self.blocks[stream.block as usize].data;
            ensure!(
                former == stream.superblock
                    || self.slots.next_valid(former, 0).is_none_or(|first| first >= next),
                "logical block {}: its stream is at {next}, and an older unit counts still",
                stream.block
            );
        }
        Ok(())
    }
}
