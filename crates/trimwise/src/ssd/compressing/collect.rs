//! What this class does differently when it makes room (`ftl/collect.rs`).
//!
//! A chunk moves whole. A superblock in which something was trimmed and not yet checked is read from end to end,
//! since the controller cannot tell without reading whether what it holds is shared; what turns out to be dead is
//! dropped. Until then it counts as valid: a drive full of trimmed data has nothing to gain as far as it knows, and
//! the collector takes such superblocks last.
//!
//! This class also recycles while there is free flash: whenever some superblock has become so stale that moving the
//! rest is cheap (`recycles_from_stale_percent`). It keeps step with what the host reads and writes. What it moves
//! lies between what the host writes at that time, and a die that programs a copy is not there for a read.

use super::super::address::Superblock;
use super::super::ftl::Urgency;
use super::Compressing;
use crate::units::SimTime;

impl Compressing {
    /// Lets the recycler do its share after the host has read `granules` units, each of which counts as one granule.
    pub(crate) fn pace_with_reads(&mut self, now: SimTime, granules: u32) {
        if self.map.recycles_from_stale_percent.is_none() {
            return;
        }
        // Reads take no flash: where there is little, only writes need more.
        if self.collector.victim.is_some() || self.start_recycling() {
            self.work_off(now, granules);
            self.count_units();
        }
    }

    /// Chooses a victim if one is stale enough to be recycled.
    pub(crate) fn start_recycling(&mut self) -> bool {
        let Some(percent) = self.map.recycles_from_stale_percent else { return false };
        let Some(first) = self.victims.first() else { return false };
        let all = u64::from(self.superblock_slots);
        let stale = all - u64::from(self.blocks[first].valid);
        stale * 100 >= all * u64::from(percent) && self.start_victim(Urgency::Idle)
    }

    /// A victim for a host that waits. What is yet to be checked counts as valid in the choice, so that a superblock
    /// with next to nothing to gain may be chosen again and again while others only need to be looked at: then the one
    /// that is nearest to empty is taken, so that there is an end.
    ///
    /// Next to nothing is also what is lost again when the rest has moved: no chunk lies across the end of a
    /// superblock, and up to a chunk less a granule is left there, once at most for each victim. A configuration has
    /// room for two whole chunks in each superblock that holds data, so the emptiest gains more than that.
    pub(crate) fn with_more_to_gain(&self, chosen: Superblock) -> Superblock {
        const LITTLE: u32 = 16;
        let all = self.superblock_slots;
        if all - self.live(chosen) >= (all / LITTLE).max(self.map.granules_max()) {
            return chosen;
        }
        let closed = self.victims.closed().iter().copied();
        closed.min_by_key(|&superblock| (self.live(superblock), superblock)).unwrap_or(chosen)
    }
}
