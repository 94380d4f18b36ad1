use super::super::address::{Number, Ppn, Slot, Superblock, Table};
use super::super::audit::{AuditError, ensure};
use super::BlockMapped;
use super::slots::Role;
use crate::units::Lpn;

impl BlockMapped {
    /// Checks that no slot is lost or counted twice: valid + invalid + left out + free slots are all slots, each mapped
    /// unit is where its block, its stream or the log says, each superblock has one owner, and the slots written by
    /// cause equal those erased plus those that superblocks hold.
    ///
    /// It looks at every slot: for tests and for the end of a run.
    pub(crate) fn audit_accounting(&self) -> Result<(), AuditError> {
        self.audit_units()?;
        self.audit_superblocks()?;
        self.audit_owners()
    }

    fn audit_units(&self) -> Result<(), AuditError> {
        let mut mapped = 0;
        for (i, block) in self.blocks.numbered() {
            let units: Vec<Lpn> = (0..self.units()).map(|offset| self.unit(i, offset)).collect();
            let slots: Vec<_> = units.iter().filter_map(|&lpn| self.slot(lpn)).collect();
            ensure!(
                slots.iter().all(|&slot| self.slots.is_valid(slot)),
                "a unit of logical block {i} is at a slot that is not valid"
            );
            let logged =
                units.iter().filter(|&&lpn| self.logged.at(lpn).is_some_and(|&ppn| ppn != Ppn::NONE)).count();
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
        for (i, block) in self.slots.superblocks().numbered() {
            let mut count = 0;
            for offset in self.slots.valid.iter(i, 0) {
                count += 1;
                ensure!(offset < block.next, "superblock {i}: slot {offset} is valid and was never filled");
                if block.role == Role::Log {
                    let slot = Slot::new(i, offset);
                    let lpn = self.slots.owner(slot);
                    ensure!(
                        self.logged.at(lpn) == Some(&slot.ppn(self.units())),
                        "superblock {i}: slot {offset} is valid, and its unit {} lies elsewhere",
                        lpn.0
                    );
                }
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
        self.flash.audit_host_units()?;
        let erases = self.slots.superblocks().iter().map(|block| u64::from(block.erases)).sum();
        self.flash.audit_counts(self.flash.stats.nand_units.total(), written, self.slots.erased_slots, erases)
    }

    fn audit_owners(&self) -> Result<(), AuditError> {
        let mut owners = Table::new(self.slots.superblocks().len(), 0);
        let data = self.blocks.iter().map(|block| block.data).filter(|&data| data != Superblock::NONE);
        let streams = self.streams.iter().filter(|s| self.stream_onto(s.block).is_some());
        let open = streams.map(|stream| stream.superblock).filter(|&s| s != Superblock::NONE);
        let log = self.log.iter().copied();
        let owned = data.map(|s| (s, Role::Data)).chain(open.map(|s| (s, Role::Stream)));
        for (superblock, role) in owned.chain(log.map(|s| (s, Role::Log))) {
            owners[superblock] += 1;
            let found = self.slots.superblock(superblock).role;
            ensure!(found == role, "superblock {superblock} is {found:?} and used as {role:?}");
        }
        let mut free = 0;
        for superblock in self.slots.pool() {
            owners[superblock] += 1;
            free += 1;
        }
        ensure!(free == self.slots.free(), "{free} superblocks are free, {} counted", self.slots.free());
        for (superblock, count) in owners.numbered() {
            ensure!(*count == 1, "superblock {superblock} has {count} owners");
        }
        let in_use = self.log_in_use();
        ensure!(in_use <= self.log_max, "the log has {in_use} superblocks, its limit is {}", self.log_max);
        for stream in self.streams.iter().filter(|s| s.is_open()) {
            let next = self.slots.superblock(stream.superblock).next;
            let former = self.blocks[stream.block].data;
            ensure!(
                former == stream.superblock
                    || self.slots.valid.next(former, 0).is_none_or(|first| first >= next),
                "logical block {}: its stream is at {next}, and an older unit is still valid",
                stream.block
            );
        }
        Ok(())
    }
}
