//! What a mapping does: where a logical unit lies in the flash, and how room is made.
//!
//! [`super::Ssd`] is the front of every device: the link, the commands, what a TRIM costs. Behind it stands one
//! of the mappings, all by this one trait: `page`, `block`, `compressing`. Instants of successive calls do not
//! decrease.

use std::fmt::Debug;

use super::audit::AuditError;
use super::flash::Flash;
use super::stats::{SuperblockState, Wear};
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};

/// When the first and the last of the units of a read are in the controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub first: SimTime,
    pub last: SimTime,
}

/// The most units that [`Translation::expect`] takes: about as many cache misses as a processor has under way.
pub(super) const EXPECTED_AT_ONCE: usize = 32;

pub(super) trait Translation: Debug + Send + Sync {
    /// A copy with everything in it.
    fn boxed_clone(&self) -> Box<dyn Translation>;

    fn flash(&self) -> &Flash;

    fn flash_mut(&mut self) -> &mut Flash;

    /// Writes host units that are there at `arrived`, by a command accepted at `now`. Returns when the last of them is
    /// in the cache.
    fn write(&mut self, now: SimTime, arrived: SimTime, units: UnitRange, content: Content) -> SimTime;

    /// Fetches into the processor's caches what is kept of these units.
    fn expect(&self, _lpns: &[Lpn]) {}

    /// Programs host units that wait for their page to be full, filling it up with nothing.
    fn pad(&mut self, now: SimTime);

    /// Reads units for a command that is decoded at `decoded`.
    fn read(&mut self, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready;

    /// Whether a unit is mapped and a read of it needs no flash.
    fn is_in_memory(&self, lpn: Lpn, now: SimTime) -> bool;

    /// Unmaps ranges. Returns how many units held data.
    fn unmap(&mut self, now: SimTime, ranges: &[UnitRange]) -> u64;

    /// Unmaps a range of which the file system has told at no cost. Returns how many units held data.
    fn forget(&mut self, now: SimTime, range: UnitRange) -> u64 {
        self.unmap(now, &[range])
    }

    /// When the parts of the map that the last unmapping had to look at were at hand; zero if all of it is in memory.
    fn unmapped_at(&self) -> SimTime {
        SimTime::ZERO
    }

    /// Erases everything. Returns when the last erase ends.
    fn erase_all(&mut self, now: SimTime) -> SimTime;

    /// Makes room while the host is idle, from `from` on and as long as it can begin before `until`.
    fn collect_idle(&mut self, from: SimTime, until: SimTime);

    fn is_mapped(&self, lpn: Lpn) -> bool;

    fn mapped_units(&self) -> u64;

    /// The tag of what a unit holds; `None` if it is unmapped or tags are not kept.
    fn tag(&self, lpn: Lpn) -> Option<u32>;

    fn wear(&self) -> Wear;

    /// What each superblock is and holds; empty if the mapping does not tell.
    fn superblocks(&self) -> Vec<SuperblockState> {
        Vec::new()
    }

    /// The number of the superblock that holds a unit; `None` if it is unmapped, or the mapping does not tell.
    fn superblock_of(&self, _: Lpn) -> Option<u32> {
        None
    }

    #[cfg(test)]
    fn free_superblocks(&self) -> u32;

    /// Bytes of the model's own tables, tags aside.
    fn memory_bytes(&self) -> u64;

    /// Checks the accounting.
    ///
    /// # Errors
    /// The first thing that does not add up.
    fn audit(&self) -> Result<(), AuditError>;
}

impl Clone for Box<dyn Translation> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
