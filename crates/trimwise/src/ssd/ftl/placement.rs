//! The interface between a mapping and the core.

use std::fmt::Debug;

use super::super::address::{Die, Number, Ppn, Slot, Superblock};
use super::super::audit::AuditError;
use super::super::translation::Ready;
use super::{Cause, Ftl};
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};

/// A piece of a superblock: slots that can only move together.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Piece<O> {
    pub offset: u32,
    pub slots: u32,
    pub live: bool,
    pub owner: O,
}

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ssd) struct Cursor {
    pub piece: u32,
    pub offset: u32,
}

/// A mapping's choice of places for host writes, and its way to find them again. [`Ftl`] does the rest.
///
/// Functions without `self` take the core with the placement in it.
pub(in crate::ssd) trait Placement: Clone + Debug + Send + Sync + Sized + 'static {
    /// What it takes to move a piece, besides its slot.
    type Owner: Copy;

    /// Slots are granules, counted in `nand_granules`, and not whole units.
    const SLOTS_ARE_GRANULES: bool;

    /// A victim is finished at once when its copies have taken the last free superblock.
    const NEEDS_FREE_SUPERBLOCK: bool;

    /// Writes host units that arrive at `arrived`, for a command accepted at `now`. Returns when the last of them is in
    /// the cache.
    fn write(
        ftl: &mut Ftl<Self>,
        now: SimTime,
        arrived: SimTime,
        units: UnitRange,
        content: Content,
    ) -> SimTime;

    /// Reads units for a command that is decoded at `decoded`.
    fn read(ftl: &mut Ftl<Self>, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready;

    /// See [`Translation::expect`](super::Translation::expect).
    fn expect(&self, _lpns: &[Lpn]) {}

    /// Fetches the table entries for the next `count` slots of a superblock that are copied.
    fn expect_copies(&self, _superblock: Superblock, _from: Cursor, _count: usize) {}
    fn is_mapped(&self, lpn: Lpn) -> bool;
    fn mapped_units(&self) -> u64;

    /// Returns the first of the slots that a unit is read from, and their count; `None` for a unit without slots.
    fn slots_of(&self, lpn: Lpn) -> Option<(Ppn, u32)>;

    fn tag(&self, lpn: Lpn) -> Option<u32>;
    fn memory_bytes(&self) -> u64;

    /// Unmaps a unit. Returns the superblock and the number of slots that became dead.
    fn release(&mut self, lpn: Lpn) -> Option<(Superblock, u32)>;

    /// Unmaps every unit at once if that is quicker than one by one. Returns false if it is not, and nothing was done.
    fn release_all(_ftl: &mut Ftl<Self>) -> bool {
        false
    }

    /// Returns true if the collector must look for other references to trimmed slots before they are free.
    fn checks_references(&self) -> bool {
        false
    }

    fn before_unmap(_ftl: &mut Ftl<Self>, _now: SimTime, _ranges: &[UnitRange]) {}

    /// Called before the whole device is unmapped at no cost.
    fn before_forgetting(_ftl: &mut Ftl<Self>) {}

    /// Returns when the parts of the map for the last unmapping were at hand; zero if the whole map is in memory.
    fn unmapped_at(&self) -> SimTime {
        SimTime::ZERO
    }

    /// Called when the host has filled a stripe of a frontier. Chooses the frontier for the next stripe, and lets the
    /// collector do its share.
    fn stripe_filled(ftl: &mut Ftl<Self>, frontier: usize, now: SimTime);
    fn padded(&mut self, _superblock: Superblock, _slots: u32, _is_host: bool) {}

    fn die_used(&mut self, _die: Die) {}
    fn closed(&mut self, _superblock: Superblock, _slc: bool) {}
    fn erased(&mut self, _superblock: Superblock) {}

    fn slc_erased(&mut self, _superblock: Superblock, _written: u32) -> bool {
        true
    }

    fn clear(ftl: &mut Ftl<Self>);

    /// Returns the first piece of a superblock at or after a place. Pieces without live data may be skipped.
    fn next_piece(&self, superblock: Superblock, from: Cursor) -> Option<Piece<Self::Owner>>;
    fn moved(&mut self, owner: Self::Owner, from: Slot, to: Slot);

    /// Makes sure that some frontier has room for a piece. Returns its index.
    fn copy_target(ftl: &mut Ftl<Self>, _cause: Cause, slots: u32, now: SimTime) -> usize {
        ftl.prepare_copies(slots, now)
    }

    fn copies_filled(_ftl: &mut Ftl<Self>, _cause: Cause, _frontier: usize, _now: SimTime) {}

    /// Returns the victim to use instead of `chosen` when the host waits for room.
    fn victim_for_waiting_host(_ftl: &Ftl<Self>, chosen: Superblock) -> Superblock {
        chosen
    }

    /// Chooses a victim although flash is free, if one is worth it. Returns true if there is a victim.
    fn recycle(_ftl: &mut Ftl<Self>) -> bool {
        false
    }

    /// Called when the collector has finished its victim, unless the host waited for it.
    fn victim_done(_ftl: &mut Ftl<Self>, _now: SimTime) {}

    /// Does a piece of the work that comes before collection while the host is idle. Returns true if there was any.
    fn work_while_idle(_ftl: &mut Ftl<Self>, _now: SimTime, _slots: u32) -> bool {
        false
    }

    /// Returns the number of superblocks that idle collection should free in addition to what the collector needs.
    fn superblocks_wanted(_ftl: &Ftl<Self>) -> u32 {
        0
    }

    /// Returns the superblock that the placement itself is emptying, or [`Superblock::NONE`].
    fn own_victim(&self) -> Superblock {
        Superblock::NONE
    }

    fn free_outside_pool(&self) -> usize {
        0
    }

    /// Checks the map. Returns its number of live slots.
    fn audit_map(ftl: &Ftl<Self>) -> Result<u64, AuditError>;

    /// Checks the placement's state of a superblock. Returns its number of live slots.
    fn audit_superblock(ftl: &Ftl<Self>, superblock: Superblock) -> Result<u32, AuditError>;
}
