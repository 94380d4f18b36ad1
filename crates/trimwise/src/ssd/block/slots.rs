//! The superblocks of a block map and their slots: which hold data, which belong to what, which are free.

use super::super::ftl::{Bitmap, NONE, Pool};
use super::super::geometry::Geometry;

/// What a superblock is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Erased.
    Clean,
    /// Nothing in it counts; still to be erased.
    GivenBack,
    /// Holds a logical block, each unit at its own offset.
    Data,
    /// Will hold a logical block that has another data block still.
    Stream,
    /// Holds units in the order in which they were written.
    Log,
}

/// What is known of a superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Superblock {
    pub role: Role,
    /// Slots that hold live data.
    pub valid: u32,
    /// Slots filled since the last erase, be it with nothing.
    pub written: u32,
    /// The first slot that can still be filled. Those before it that were not are lost until the next erase.
    pub next: u32,
    /// Slots before this one are programmed, or their program is on its way.
    pub programmed: u32,
    pub erases: u32,
    /// Which part of the owners' table is this one's; [`NONE`] unless it is of the random log.
    owners: u32,
    /// When the last host program of it ends, nanoseconds.
    pub programmed_at: u64,
}

impl Superblock {
    const ERASED: Self = Self {
        role: Role::Clean,
        valid: 0,
        written: 0,
        next: 0,
        programmed: 0,
        erases: 0,
        owners: NONE,
        programmed_at: 0,
    };
}

#[derive(Clone, Debug)]
pub(super) struct Slots {
    superblocks: Vec<Superblock>,
    units: u32,
    /// A bit for each slot that holds live data.
    valid: Bitmap,
    /// Which unit a slot of the random log was written for, superblock by superblock of the log.
    owners: Vec<u32>,
    /// Parts of it that no superblock has.
    owners_free: Vec<u32>,
    /// Those that are erased.
    clean: Pool,
    /// Those that are still to be erased.
    given_back: Pool,
    /// Slots that were filled and then erased, for the audit.
    pub erased_slots: u64,
    /// By slot; only for tests.
    tags: Vec<u32>,
}

impl Slots {
    pub fn new(geometry: &Geometry, log_superblocks: u32, track_tags: bool) -> Self {
        let units = geometry.superblock_units;
        let mut clean = Pool::new(geometry.lanes);
        clean.extend(0..geometry.superblocks);
        Self {
            superblocks: vec![Superblock::ERASED; geometry.superblocks as usize],
            units,
            valid: Bitmap::new(geometry.superblocks, units),
            owners: vec![NONE; log_superblocks as usize * units as usize],
            owners_free: (0..log_superblocks).rev().collect(),
            clean,
            given_back: Pool::new(geometry.lanes),
            erased_slots: 0,
            tags: vec![0; if track_tags { geometry.physical_units() as usize } else { 0 }],
        }
    }

    #[inline]
    pub fn superblock(&self, superblock: u32) -> &Superblock {
        &self.superblocks[superblock as usize]
    }

    #[inline]
    pub(crate) fn superblock_mut(&mut self, superblock: u32) -> &mut Superblock {
        &mut self.superblocks[superblock as usize]
    }

    pub fn superblocks(&self) -> &[Superblock] {
        &self.superblocks
    }

    #[inline]
    pub(crate) fn is_valid(&self, slot: u32) -> bool {
        self.valid.get(slot / self.units, slot % self.units)
    }

    #[inline]
    pub fn invalidate(&mut self, slot: u32) {
        let superblock = slot / self.units;
        self.valid.clear(superblock, slot % self.units);
        self.superblocks[superblock as usize].valid -= 1;
    }

    /// Returns the offset of the first valid slot of a superblock at or after `from`.
    pub(crate) fn next_valid(&self, superblock: u32, from: u32) -> Option<u32> {
        self.valid.next(superblock, from)
    }

    /// Fills the next slot of a superblock with a unit. Returns the slot.
    #[inline]
    pub fn append(&mut self, superblock: u32, tag: u32) -> u32 {
        let block = &mut self.superblocks[superblock as usize];
        let slot = superblock * self.units + block.next;
        self.valid.set(superblock, block.next);
        block.next += 1;
        block.written += 1;
        block.valid += 1;
        if let Some(kept) = self.tags.get_mut(slot as usize) {
            *kept = tag;
        }
        slot
    }

    /// Leaves slots out.
    #[inline]
    pub fn skip(&mut self, superblock: u32, slots: u32) {
        self.superblocks[superblock as usize].next += slots;
    }

    /// Slots that were left out were filled with nothing.
    pub fn fill(&mut self, superblock: u32, padding: u32) {
        self.superblocks[superblock as usize].written += padding;
    }

    /// Notes which unit a slot of the random log is for.
    #[inline]
    pub fn own(&mut self, slot: u32, lpn: u32) {
        let owners = self.superblocks[(slot / self.units) as usize].owners;
        self.owners[(owners * self.units + slot % self.units) as usize] = lpn;
    }

    /// Which unit a slot of a superblock of the random log is for.
    pub fn owner(&self, superblock: u32, offset: u32) -> u32 {
        let owners = self.superblocks[superblock as usize].owners;
        self.owners[(owners * self.units + offset) as usize]
    }

    pub fn tag(&self, slot: u32) -> Option<u32> {
        self.tags.get(slot as usize).copied()
    }

    /// Superblocks that are unused, erased or not.
    pub fn free(&self) -> u32 {
        self.clean.free() + self.given_back.free()
    }

    /// The free superblocks, for the audit.
    pub fn pool(&self) -> impl Iterator<Item = u32> + '_ {
        self.clean.iter().chain(self.given_back.iter())
    }

    /// Takes a free superblock, of `lane` if there is one, and erases it if it is not. Returns it, and whether it was
    /// erased just now.
    pub fn take(&mut self, role: Role, lane: u32) -> (u32, bool) {
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
        let block = &mut self.superblocks[superblock as usize];
        block.role = role;
        if role == Role::Log {
            let Some(owners) = self.owners_free.pop() else {
                unreachable!("the log has no more superblocks than its limit")
            };
            block.owners = owners;
        }
        (superblock, dirty)
    }

    /// Nothing in a superblock counts any more, and it belongs to nothing.
    pub(crate) fn give_back(&mut self, superblock: u32) {
        let block = &mut self.superblocks[superblock as usize];
        debug_assert_eq!(block.valid, 0, "what is given back will be erased");
        if block.owners != NONE {
            self.owners_free.push(block.owners);
            block.owners = NONE;
        }
        block.role = Role::GivenBack;
        self.given_back.put(superblock);
    }

    /// Erases one of those that were given back, if there is one.
    pub(crate) fn erase_given_back(&mut self) -> Option<u32> {
        let lane = (0..self.given_back.lanes()).max_by_key(|&lane| self.given_back.free_in(lane))?;
        let superblock = self.given_back.take_from(lane)?;
        self.erase(superblock);
        self.clean.put(superblock);
        Some(superblock)
    }

    fn erase(&mut self, superblock: u32) {
        let block = &mut self.superblocks[superblock as usize];
        self.erased_slots += u64::from(block.written);
        *block = Superblock { erases: block.erases + 1, ..Superblock::ERASED };
    }

    /// Erases all that is not clean, whatever is in it. Returns which those are.
    pub(crate) fn erase_all(&mut self) -> Vec<u32> {
        let used = (0..self.superblocks.len() as u32).filter(|&s| self.superblock(s).role != Role::Clean);
        let used: Vec<u32> = used.collect();
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

    /// Bytes of the tables, tags aside.
    pub fn memory_bytes(&self) -> u64 {
        let superblocks = self.superblocks.capacity() * size_of::<Superblock>();
        let owners = (self.owners_free.capacity() + self.owners.capacity()) * 4;
        let pools = self.clean.memory_bytes() + self.given_back.memory_bytes();
        self.valid.memory_bytes() + pools + (superblocks + owners) as u64
    }
}
