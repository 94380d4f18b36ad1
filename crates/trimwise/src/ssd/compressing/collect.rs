//! Collection in this class, where it differs from the core's (`ftl/collect.rs`).
//!
//! A chunk moves whole. A superblock with trimmed chunks that are not yet checked is read from end to end, since the
//! controller cannot tell without reading whether its contents are shared; dead chunks are then dropped. Until then
//! they count as valid: a drive full of trimmed data has nothing to gain as far as it knows, and the collector takes
//! such superblocks last.
//!
//! This class also recycles while there is free flash: whenever some superblock has become so stale that moving the
//! rest is cheap (`recycles_from_stale_percent`). Recycling keeps pace with the host's reads and writes. The chunks
//! that it moves lie between the host's writes of that time, and a die that programs a copy cannot serve a read.

use super::super::address::Superblock;
use super::super::ftl::Urgency;
use super::Compressing;
use crate::units::SimTime;

impl Compressing {
    /// Lets the recycler do its share after the host has read `granules` units. A unit counts as one granule.
    pub(crate) fn pace_with_reads(&mut self, now: SimTime, granules: u32) {
        if self.map.recycles_from_stale_percent.is_none() {
            return;
        }
        // Reads take no flash. When flash is short, only writes need to do more.
        if self.collector.victim.is_some() || self.start_recycling() {
            self.work_off(now, granules);
            self.count_units();
        }
    }

    pub(crate) fn start_recycling(&mut self) -> bool {
        let Some(percent) = self.map.recycles_from_stale_percent else { return false };
        let Some(first) = self.victims.first() else { return false };
        let all = u64::from(self.superblock_slots);
        let stale = all - u64::from(self.blocks[first].valid);
        stale * 100 >= all * u64::from(percent) && self.start_victim(Urgency::Idle)
    }

    /// Returns the victim for a host that waits. Unchecked chunks count as valid in the choice, so a superblock with
    /// next to nothing to gain could be chosen again and again while others only need checking. In that case the
    /// emptiest one is returned, so that collection comes to an end.
    ///
    /// A gain also counts as next to nothing if it is lost again when the rest has moved: no chunk crosses the end of a
    /// superblock, and up to a chunk less a granule is left there, at most once for each victim. A configuration has
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
