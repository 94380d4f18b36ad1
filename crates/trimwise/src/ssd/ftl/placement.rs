//! What a mapping adds to the core.

use std::fmt::Debug;

use super::super::address::{Die, Number, Ppn, Slot, Superblock};
use super::super::audit::AuditError;
use super::super::translation::Ready;
use super::{Cause, Ftl};
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};

/// A piece of a superblock: a number of slots that only move together.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Piece<O> {
    /// The first of them.
    pub offset: u32,
    pub slots: u32,
    /// Whether it holds live data.
    pub live: bool,
    pub owner: O,
}

/// Where the collector stands in its victim.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ssd) struct Cursor {
    /// Pieces before this one have been looked at.
    pub piece: u32,
    /// So have slots before this one.
    pub offset: u32,
}

/// Where a mapping puts what the host writes, and how it finds it again. [`Ftl`] does the rest.
///
/// Functions without `self` take the core with the placement in it.
pub(in crate::ssd) trait Placement: Clone + Debug + Send + Sync + Sized + 'static {
    /// What it needs to know about a piece to move it, besides its slot.
    type Owner: Copy;

    /// Whether slots are granules, which are counted in `nand_granules`, and not whole units.
    const SLOTS_ARE_GRANULES: bool;

    /// Whether a victim is finished at once when its copies have taken the last free superblock.
    const NEEDS_FREE_SUPERBLOCK: bool;

    /// Writes host units that are there at `arrived`, by a command accepted at `now`. Returns when the last of them is
    /// in the cache.
    fn write(
        ftl: &mut Ftl<Self>,
        now: SimTime,
        arrived: SimTime,
        units: UnitRange,
        content: Content,
    ) -> SimTime;

    /// Reads units for a command that is decoded at `decoded`.
    fn read(ftl: &mut Ftl<Self>, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready;

    /// Fetches into the processor's caches what is kept of these units, as [`Translation::expect`](super::Translation::expect).
    fn expect(&self, _lpns: &[Lpn]) {}

    /// The same for the next `count` slots of a superblock that are copied.
    fn expect_copies(&self, _superblock: Superblock, _from: Cursor, _count: usize) {}

    fn is_mapped(&self, lpn: Lpn) -> bool;

    /// Units that hold data.
    fn mapped_units(&self) -> u64;

    /// The slots that a unit is read from: the first, and their count. `None` if there are none.
    fn slots_of(&self, lpn: Lpn) -> Option<(Ppn, u32)>;

    /// The tag of what a unit holds; `None` if it is unmapped or tags are not kept.
    fn tag(&self, lpn: Lpn) -> Option<u32>;

    /// Bytes of its tables, tags aside.
    fn memory_bytes(&self) -> u64;

    /// Unmaps a unit. Returns the superblock and the number of slots that no unit refers to any longer.
    fn release(&mut self, lpn: Lpn) -> Option<(Superblock, u32)>;

    /// Unmaps every unit at once, if it has a quicker way than one by one. Returns whether it has.
    fn release_all(_ftl: &mut Ftl<Self>) -> bool {
        false
    }

    /// Whether the collector must read trimmed slots and look for other references to them before they are free.
    fn checks_references(&self) -> bool {
        false
    }

    /// Called before a command unmaps ranges.
    fn before_unmap(_ftl: &mut Ftl<Self>, _now: SimTime, _ranges: &[UnitRange]) {}

    /// When the parts of the map that the last unmapping had to look at were at hand; zero if all of it is in memory.
    fn unmapped_at(&self) -> SimTime {
        SimTime::ZERO
    }

    /// Called when the host has filled a stripe of a frontier. Chooses the frontier for the next one, and lets the
    /// collector do its share.
    fn stripe_filled(ftl: &mut Ftl<Self>, frontier: usize, now: SimTime);

    /// Called when slots were filled with nothing.
    fn padded(&mut self, _superblock: Superblock, _slots: u32, _is_host: bool) {}

    /// Called when a die programs, erases or reads for a copy.
    fn die_used(&mut self, _die: Die) {}

    /// Called when a superblock is full.
    fn closed(&mut self, _superblock: Superblock, _slc: bool) {}

    /// Called when a superblock was erased.
    fn erased(&mut self, _superblock: Superblock) {}

    /// Called when a superblock in SLC mode was erased of which `written` slots had been taken. Returns whether it goes
    /// back to the free pool.
    fn slc_erased(&mut self, _superblock: Superblock, _written: u32) -> bool {
        true
    }

    /// Called when everything was erased.
    fn clear(ftl: &mut Ftl<Self>);

    /// The piece of a superblock at or after a place. Pieces that hold no live data may be left out.
    fn next_piece(&self, superblock: Superblock, from: Cursor) -> Option<Piece<Self::Owner>>;

    /// Notes that a piece moves to another place.
    fn moved(&mut self, owner: Self::Owner, from: Slot, to: Slot);

    /// Makes sure that there is a frontier with room for a piece to move to. Returns it.
    fn copy_target(ftl: &mut Ftl<Self>, _cause: Cause, slots: u32, now: SimTime) -> usize {
        ftl.prepare_copies(slots, now)
    }

    /// Called when copies have filled a stripe of a frontier.
    fn copies_filled(_ftl: &mut Ftl<Self>, _cause: Cause, _frontier: usize, _now: SimTime) {}

    /// The victim to take when the host waits for room and the policy has chosen one.
    fn victim_for_waiting_host(_ftl: &Ftl<Self>, chosen: Superblock) -> Superblock {
        chosen
    }

    /// Makes sure that there is a victim though there is free flash, if one is worth it. Returns whether there is.
    fn recycle(_ftl: &mut Ftl<Self>) -> bool {
        false
    }

    /// Called when the collector has finished its victim, unless the host waited for it.
    fn victim_done(_ftl: &mut Ftl<Self>, _now: SimTime) {}

    /// Does a piece of what comes before collection while the host is idle. Returns whether there was any.
    fn work_while_idle(_ftl: &mut Ftl<Self>, _now: SimTime, _slots: u32) -> bool {
        false
    }

    /// Superblocks that idle collection should free beyond what the collector needs.
    fn superblocks_wanted(_ftl: &Ftl<Self>) -> u32 {
        0
    }

    /// A superblock that it empties itself; [`Superblock::NONE`] if there is none.
    fn own_victim(&self) -> Superblock {
        Superblock::NONE
    }

    /// Free superblocks that are not in the pool.
    fn free_outside_pool(&self) -> usize {
        0
    }

    /// Checks the map. Returns how many slots are live according to it.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    fn audit_map(ftl: &Ftl<Self>) -> Result<u64, AuditError>;

    /// Checks what it knows of a superblock. Returns how many slots of it are live.
    ///
    /// # Errors
    ///
    /// The first thing that does not add up.
    fn audit_superblock(ftl: &Ftl<Self>, superblock: Superblock) -> Result<u32, AuditError>;
}
