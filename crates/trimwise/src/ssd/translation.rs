//! The interface of a mapping: looks up logical units in the flash, and makes room.
//!
//! [`super::Ssd`] is the front of every device: the link, the commands, the cost of a TRIM. Behind it is one of the
//! mappings, all through this trait: `page`, `block`, `compressing`. Instants of successive calls do not decrease.

use std::fmt::Debug;

use super::audit::AuditError;
use super::flash::Flash;
use super::stats::{SuperblockState, Wear};
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};

#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub first: SimTime,
    pub last: SimTime,
}

/// Maximum number of units for [`Translation::expect`]: about as many cache misses as a processor has under way.
pub(super) const EXPECTED_AT_ONCE: usize = 32;

pub(super) trait Translation: Debug + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn Translation>;
    fn flash(&self) -> &Flash;
    fn flash_mut(&mut self) -> &mut Flash;

    /// Writes host units that arrive at `arrived`, for a command accepted at `now`. Returns when the last of them is in
    /// the cache.
    fn write(&mut self, now: SimTime, arrived: SimTime, units: UnitRange, content: Content) -> SimTime;

    /// Fetches the table entries of these units into the processor's caches.
    fn expect(&self, _lpns: &[Lpn]) {}

    /// Pads and programs the page for which host units wait.
    fn pad(&mut self, now: SimTime);

    /// Reads units for a command that is decoded at `decoded`.
    fn read(&mut self, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready;

    /// Returns true if a unit is mapped and a read of it needs no flash.
    fn is_in_memory(&self, lpn: Lpn, now: SimTime) -> bool;

    /// Unmaps ranges. Returns the number of units that held data.
    fn unmap(&mut self, now: SimTime, ranges: &[UnitRange]) -> u64;

    /// Unmaps a range that the file system has reported at no cost. Returns the number of units that held data.
    fn forget(&mut self, now: SimTime, range: UnitRange) -> u64 {
        self.unmap(now, &[range])
    }

    /// Returns when the parts of the map for the last unmapping were at hand; zero if the whole map is in memory.
    fn unmapped_at(&self) -> SimTime {
        SimTime::ZERO
    }

    fn erase_all(&mut self, now: SimTime) -> SimTime;

    /// Makes room while the host is idle, from `from` on and as long as a step can begin before `until`.
    fn collect_idle(&mut self, from: SimTime, until: SimTime);
    fn is_mapped(&self, lpn: Lpn) -> bool;
    fn mapped_units(&self) -> u64;

    fn tag(&self, lpn: Lpn) -> Option<u32>;
    fn wear(&self) -> Wear;

    /// Returns the use and contents of each superblock; empty if the mapping does not have them.
    fn superblocks(&self) -> Vec<SuperblockState> {
        Vec::new()
    }

    /// Returns the superblock that holds a unit; `None` if it is unmapped, or the mapping has no superblocks.
    fn superblock_of(&self, _: Lpn) -> Option<u32> {
        None
    }

    #[cfg(test)]
    fn free_superblocks(&self) -> u32;
    fn memory_bytes(&self) -> u64;

    fn audit(&self) -> Result<(), AuditError>;
}

impl Clone for Box<dyn Translation> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
