use super::super::address::{Number, Ppn, Slot, Superblock};
use super::super::audit::{AuditError, ensure};
use super::Compressing;
use super::store::{Held, Owner, Store, Whose};
use crate::content::DUPLICATES;

impl Store {
    /// Returns the total size of all chunks that units refer to, in granules.
    pub(super) fn audit_units(&self) -> Result<u64, AuditError> {
        let (mut mapped, mut live) = (0, 0);
        let mut references = [0; DUPLICATES as usize];
        for lpn in self.map.numbers() {
            match self.held(lpn) {
                Held::Nothing => continue,
                Held::Zeros => {}
                Held::Shared(number) => references[number as usize] += 1,
                Held::Own(_) => live += self.chunk(lpn).map_or(0, |(_, granules)| u64::from(granules)),
            }
            mapped += 1;
        }
        ensure!(mapped == self.mapped, "{mapped} units are mapped, {} counted", self.mapped);
        for (number, &count) in references.iter().enumerate() {
            let duplicate = self.duplicate(number as u32);
            ensure!(
                duplicate.references == count,
                "duplicate {number} has {} references, and {count} units refer to it",
                duplicate.references
            );
            let is_stored = duplicate.at != Ppn::NONE;
            ensure!(
                is_stored == (count > 0),
                "duplicate {number} is stored and nothing refers to it, or the reverse"
            );
            if is_stored {
                live += u64::from(self.length(Owner::duplicate(number as u32)));
            }
        }
        Ok(live)
    }
}

impl Compressing {
    /// Returns the granules of a superblock that units refer to.
    pub(super) fn audit_log(&self, superblock: Superblock) -> Result<u32, AuditError> {
        let map = &self.map;
        let (mut offset, mut live) = (0, 0);
        for &owner in &map.logs[superblock] {
            let granules = map.length(owner);
            let at = Slot::new(superblock, offset).ppn(self.superblock_slots);
            if map.is_live(owner, at) {
                live += granules;
            }
            if let Whose::Unit(lpn, size) = owner.whose() {
                let chunk = map.chunk(lpn);
                let here = chunk.is_some_and(|(begin, _)| begin == at);
                let own = matches!(map.held(lpn), Held::Own(_));
                let same = chunk.is_some_and(|(_, length)| length == map.granules(size));
                ensure!(!here || !own || same, "unit {} is of another size than its chunk", lpn.0);
            }
            offset += granules;
        }
        let block = &self.blocks[superblock];
        ensure!(
            offset == block.written,
            "superblock {superblock}: {offset} granules, {} counted",
            block.written
        );
        ensure!(!block.slc, "superblock {superblock} is in SLC mode, which this mapping does not have");
        Ok(live)
    }
}
