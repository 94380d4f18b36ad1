use super::super::address::{Number, Ppn, ShortLpn, Slot, Superblock, Table, Tags};
use super::super::ftl::{Bitmap, Pool};
use super::super::geometry::Geometry;
use crate::units::{Lpn, SimTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Clean,
    GivenBack,
    /// Holds a logical block, each unit at its own offset.
    Data,
    /// Will hold a logical block that still has another data block.
    Stream,
    Log,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub role: Role,
    pub valid: u32,
    pub written: u32,
    /// The first slot that can still be filled. Empty slots before it are lost until the next erase.
    pub next: u32,
    /// Slots before this one are programmed, or their program is reserved.
    pub programmed: u32,
    pub erases: u32,
    /// This superblock's part of the table of owners; `None` unless it is in the random log.
    owners: Option<u32>,
    pub programmed_at: SimTime,
}

impl Block {
    const ERASED: Self = Self {
        role: Role::Clean,
        valid: 0,
        written: 0,
        next: 0,
        programmed: 0,
        erases: 0,
        owners: None,
        programmed_at: SimTime::ZERO,
    };
}

#[derive(Clone, Debug)]
pub(super) struct Slots {
    superblocks: Table<Superblock, Block>,
    units: u32,
    pub valid: Bitmap,
    /// The unit for which each slot of the random log was written, by superblock of the log.
    owners: Vec<ShortLpn>,
    owners_free: Vec<u32>,
    clean: Pool,
    given_back: Pool,
    /// Slots that were filled and then erased; for the audit.
    pub erased_slots: u64,
    pub tags: Tags,
}

impl Slots {
    pub fn new(geometry: &Geometry, log_superblocks: u32, track_tags: bool) -> Self {
        let units = geometry.superblock_units;
        let mut clean = Pool::new(geometry.lanes);
        clean.extend((0..geometry.superblocks).map(Superblock));
        Self {
            superblocks: Table::new(geometry.superblocks as usize, Block::ERASED),
            units,
            valid: Bitmap::new(geometry.superblocks, units),
            owners: vec![ShortLpn::NONE; log_superblocks as usize * units as usize],
            owners_free: (0..log_superblocks).rev().collect(),
            clean,
            given_back: Pool::new(geometry.lanes),
            erased_slots: 0,
            tags: Tags::new(track_tags, geometry.physical_units()),
        }
    }

    #[inline]
    pub fn superblock(&self, superblock: Superblock) -> &Block {
        &self.superblocks[superblock]
    }

    #[inline]
    pub(crate) fn superblock_mut(&mut self, superblock: Superblock) -> &mut Block {
        &mut self.superblocks[superblock]
    }

    pub fn superblocks(&self) -> &Table<Superblock, Block> {
        &self.superblocks
    }

    #[inline]
    pub(crate) fn is_valid(&self, slot: Ppn) -> bool {
        self.valid.get(slot.slot(self.units))
    }

    #[inline]
    pub fn invalidate(&mut self, slot: Ppn) {
        let slot = slot.slot(self.units);
        self.valid.clear(slot);
        self.superblocks[slot.superblock].valid -= 1;
    }

    #[inline]
    pub fn append(&mut self, superblock: Superblock, tag: u32) -> Ppn {
        let block = &mut self.superblocks[superblock];
        let slot = Slot::new(superblock, block.next);
        self.valid.set(slot);
        block.next += 1;
        block.written += 1;
        block.valid += 1;
        let ppn = slot.ppn(self.units);
        self.tags.set(ppn, tag);
        ppn
    }

    #[inline]
    pub fn skip(&mut self, superblock: Superblock, slots: u32) {
        self.superblocks[superblock].next += slots;
    }

    pub fn fill(&mut self, superblock: Superblock, padding: u32) {
        self.superblocks[superblock].written += padding;
    }

    #[inline]
    pub fn own(&mut self, slot: Ppn, lpn: Lpn) {
        let owner = self.owner_index(slot.slot(self.units));
        self.owners[owner] = lpn.into();
    }

    pub fn owner(&self, slot: Slot) -> Lpn {
        self.owners[self.owner_index(slot)].lpn()
    }

    fn owner_index(&self, slot: Slot) -> usize {
        let Some(owners) = self.superblocks[slot.superblock].owners else {
            unreachable!("a superblock of the random log has its part of the table")
        };
        (owners * self.units + slot.offset) as usize
    }

    pub fn free(&self) -> u32 {
        self.clean.free() + self.given_back.free()
    }

    pub fn pool(&self) -> impl Iterator<Item = Superblock> + '_ {
        self.clean.iter().chain(self.given_back.iter())
    }

    pub fn take(&mut self, role: Role, lane: u32) -> (Superblock, bool) {
        let found = self.clean.lanes_from(lane as usize).find_map(|lane| {
            let clean = self.clean.take_from(lane).map(|superblock| (superblock, false));
            clean.or_else(|| self.given_back.take_from(lane).map(|superblock| (superblock, true)))
        });
        let Some((superblock, dirty)) = found else {
            unreachable!("data blocks, the log and one more are fewer than all superblocks")
        };
        if dirty {
            self.erase(superblock);
        }
        let block = &mut self.superblocks[superblock];
        block.role = role;
        if role == Role::Log {
            let Some(owners) = self.owners_free.pop() else {
                unreachable!("the log has no more superblocks than its limit")
            };
            block.owners = Some(owners);
        }
        (superblock, dirty)
    }

    /// Gives back a superblock without valid data, to be erased later.
    pub(crate) fn give_back(&mut self, superblock: Superblock) {
        let block = &mut self.superblocks[superblock];
        debug_assert_eq!(block.valid, 0, "what is given back will be erased");
        self.owners_free.extend(block.owners.take());
        block.role = Role::GivenBack;
        self.given_back.put(superblock);
    }

    pub(crate) fn erase_given_back(&mut self) -> Option<Superblock> {
        let lane = (0..self.given_back.lanes()).max_by_key(|&lane| self.given_back.free_in(lane))?;
        let superblock = self.given_back.take_from(lane)?;
        self.erase(superblock);
        self.clean.put(superblock);
        Some(superblock)
    }

    fn erase(&mut self, superblock: Superblock) {
        let block = &mut self.superblocks[superblock];
        self.erased_slots += u64::from(block.written);
        *block = Block { erases: block.erases + 1, ..Block::ERASED };
    }

    /// Erases all superblocks that are not clean, whatever they hold, and returns them.
    pub(crate) fn erase_all(&mut self) -> Vec<Superblock> {
        let is_used = |&s: &Superblock| self.superblocks[s].role != Role::Clean;
        let used: Vec<Superblock> = self.superblocks.numbers().filter(is_used).collect();
        self.valid.clear_all();
        let log_superblocks = self.owners.len() as u32 / self.units;
        self.owners_free = (0..log_superblocks).rev().collect();
        self.given_back.clear();
        for &superblock in &used {
            self.erase(superblock);
            self.clean.put(superblock);
        }
        used
    }

    pub fn memory_bytes(&self) -> u64 {
        let owners = (self.owners_free.capacity() + self.owners.capacity()) * 4;
        let pools = self.clean.memory_bytes() + self.given_back.memory_bytes();
        self.valid.memory_bytes() + self.superblocks.memory_bytes() + pools + owners as u64
    }
}
