//! The block allocator: free extents by address, in block groups of 128 MiB.
//!
//! The allocator follows mballoc as far as TRIM is concerned: an allocation never crosses a block group, a growing file
//! asks for the block behind its end, and everything else continues at one moving goal ("stream allocation"). So files
//! written one after the other lie one after the other.

use super::mballoc::Mballoc;
use crate::policy::extents::{CHUNK_UNITS, Extents};
use crate::units::{Lpn, UnitRange};

/// Blocks of 4 KiB in a block group: one bitmap block's worth, 128 MiB.
pub const GROUP_UNITS: u64 = CHUNK_UNITS;

/// Extents to scan before taking the longest one seen (mballoc: `mb_max_to_scan`, 200).
const EXTENTS_TO_SCAN: usize = 200;

#[derive(Clone, Debug, Default)]
pub struct Allocator {
    /// Neighbours inside a group are merged.
    free: Extents,
    stream_goal: u64,
    counts: Vec<GroupCount>,
    mballoc: Mballoc,
    /// Groups that FITRIM trimmed with nothing freed in them since (ext4 keeps this in memory only).
    trimmed_groups: Vec<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupCount {
    pub(super) units: u64,
    pub(super) extents: u64,
}

pub(crate) fn group_of(block: u64) -> u64 {
    block / GROUP_UNITS
}

impl Allocator {
    pub fn new(total_units: u64) -> Self {
        let groups = total_units.div_ceil(GROUP_UNITS) as usize;
        Self {
            trimmed_groups: vec![false; groups],
            counts: vec![GroupCount::default(); groups],
            ..Self::default()
        }
    }

    pub fn free_units(&self) -> u64 {
        self.free.units() + self.mballoc.preallocated_units()
    }

    pub(crate) fn groups(&self) -> usize {
        self.trimmed_groups.len()
    }

    /// Returns the block at which an allocation without its own goal starts looking.
    pub(crate) fn stream_goal(&self) -> Lpn {
        Lpn(self.stream_goal)
    }

    /// Allocates up to `want` units in one extent inside one group; `None` only if nothing is free.
    ///
    /// `goal` is the block after the file's last. The extent starts there if `want` units fit.
    pub(crate) fn allocate(&mut self, goal: Option<Lpn>, want: u64) -> Option<UnitRange> {
        if want == 0 || self.free.units() == 0 {
            return None;
        }
        if let Some(Lpn(goal)) = goal
            && self.free_at(goal) >= want
        {
            return Some(self.take(goal, want));
        }
        let found = self.search(want)?;
        let range = self.take(found.start.0, found.units.min(want));
        self.stream_goal = range.end().0;
        Some(range)
    }

    /// Allocates `want` units at `place` if they are free there. Stream allocation continues after them.
    ///
    /// For data after a hole: ext4 finds the window that it reserves for such data by stream allocation.
    pub(crate) fn allocate_at(&mut self, place: Lpn, want: u64) -> Option<UnitRange> {
        if want == 0 || self.free_at(place.0) < want {
            return None;
        }
        let range = self.take(place.0, want);
        self.stream_goal = range.end().0;
        Some(range)
    }

    pub(super) fn count(&self, group: u64) -> GroupCount {
        self.counts[group as usize]
    }

    pub(super) fn mballoc(&self) -> &Mballoc {
        &self.mballoc
    }

    pub(super) fn mballoc_mut(&mut self) -> &mut Mballoc {
        &mut self.mballoc
    }

    pub(super) fn take_free(&mut self, start: u64, units: u64) -> UnitRange {
        self.take(start, units)
    }

    pub(crate) fn take_exact(&mut self, range: UnitRange) {
        let mut at = range.start.0;
        while at < range.end().0 {
            let units = self.free_at(at).min(range.end().0 - at);
            assert!(units > 0, "block {at} of {range:?} is not free");
            self.take(at, units);
            at += units;
        }
    }

    /// Frees blocks. They must not be free already.
    pub fn release(&mut self, range: UnitRange) {
        for group in group_of(range.start.0)..=group_of(range.end().0.saturating_sub(1)) {
            self.trimmed_groups[group as usize] = false;
        }
        self.return_trimmed(range);
    }

    /// Frees blocks of which the device was just told, so their groups may stay marked as trimmed.
    pub(crate) fn return_trimmed(&mut self, range: UnitRange) {
        let mut at = range.start;
        while at < range.end() {
            let end = range.end().min(Lpn((group_of(at.0) + 1) * GROUP_UNITS));
            self.change(at.0, |free| free.insert(UnitRange::between(at, end), true));
            at = end;
        }
    }

    /// Returns the number of free units from `block` on, inside its group (0 if it is not free).
    pub(crate) fn free_at(&self, block: u64) -> u64 {
        self.free.from(block).next().filter(|extent| extent.start.0 == block).map_or(0, |extent| extent.units)
    }

    pub(crate) fn free_in(&self, range: UnitRange) -> u64 {
        let extents = self.free_from(range.start.0, range.end().0);
        extents.map(|e| e.end().min(range.end()).0 - e.start.0).sum()
    }

    pub(crate) fn free_in_group(&self, group: u64) -> impl Iterator<Item = UnitRange> + '_ {
        self.free_from(group * GROUP_UNITS, (group + 1) * GROUP_UNITS)
    }

    /// Iterates over the free extents that begin between `from` and `to`, in order. If an extent contains `from`, its
    /// rest comes first.
    pub(crate) fn free_from(&self, from: u64, to: u64) -> impl Iterator<Item = UnitRange> + '_ {
        self.free.from(from).take_while(move |extent| extent.start.0 < to)
    }

    /// Returns true if FITRIM has trimmed this group with nothing freed in it since.
    pub(crate) fn is_trimmed(&self, group: u64) -> bool {
        self.trimmed_groups[group as usize]
    }

    pub(crate) fn mark_trimmed(&mut self, group: u64) {
        self.trimmed_groups[group as usize] = true;
    }

    pub(crate) fn forget_trimmed(&mut self) {
        self.trimmed_groups.fill(false);
    }

    /// First fit from the stream goal on, wrapping around; after enough extents, the longest seen.
    fn search(&self, want: u64) -> Option<UnitRange> {
        let goal = self.stream_goal;
        let at_goal = UnitRange::new(Lpn(goal), self.free_at(goal));
        if at_goal.units >= want {
            return Some(at_goal);
        }
        let mut best = (at_goal.units > 0).then_some(at_goal);
        // An extent that begins before the goal comes last, and as a whole.
        let is_inside = !goal.is_multiple_of(GROUP_UNITS) && best.is_some() && self.free_at(goal - 1) > 0;
        let after = self.free.from(goal).skip(usize::from(is_inside));
        for (scanned, extent) in after.chain(self.free_from(0, goal)).enumerate() {
            if extent.units >= want {
                return Some(extent);
            }
            if best.is_none_or(|longest| extent.units > longest.units) {
                best = Some(extent);
            }
            if scanned >= EXTENTS_TO_SCAN && best.is_some() {
                break;
            }
        }
        best
    }

    fn take(&mut self, start: u64, units: u64) -> UnitRange {
        let range = UnitRange::new(Lpn(start), units);
        self.change(start, |free| {
            let taken = free.remove(range, |_| ());
            debug_assert_eq!(taken, units, "the caller found {range:?} free");
        });
        range
    }

    fn change(&mut self, block: u64, change: impl FnOnce(&mut Extents)) {
        let group = group_of(block);
        self.mballoc.changed(group);
        let before = (self.free.units(), self.free.len() as u64);
        change(&mut self.free);
        let count = &mut self.counts[group as usize];
        count.units = count.units + self.free.units() - before.0;
        count.extents = count.extents + self.free.len() as u64 - before.1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn empty(total: u64) -> Allocator {
        let mut a = Allocator::new(total);
        a.release(UnitRange::new(Lpn(0), total));
        a
    }

    #[test]
    fn files_written_one_after_the_other_lie_one_after_the_other() {
        let mut a = empty(2 * GROUP_UNITS);
        let first = a.allocate(None, 25).unwrap();
        let second = a.allocate(None, 10).unwrap();
        assert_eq!(second.start, first.end());
        // The first file grows, but the space behind it is taken.
        let third = a.allocate(Some(first.end()), 5).unwrap();
        assert_eq!(third.start, second.end());
    }

    #[test]
    fn stream_allocation_continues_behind_a_gap() {
        let mut a = empty(2 * GROUP_UNITS);
        let first = a.allocate(None, 16).unwrap();
        let second = a.allocate_at(first.end().offset(16), 16).unwrap();
        assert_eq!(second.start, first.end().offset(16));
        // The next file does not fill the gap, which ext4 keeps reserved.
        assert_eq!(a.allocate(None, 4).unwrap().start, second.end());
        // A place that is taken, or too short inside the group, is refused.
        assert_eq!(a.allocate_at(second.start, 1), None);
        assert_eq!(a.allocate_at(Lpn(GROUP_UNITS - 4), 5), None);
        assert_eq!(a.allocate_at(Lpn(GROUP_UNITS - 4), 4).unwrap().start.0, GROUP_UNITS - 4);
    }

    #[test]
    fn no_extent_crosses_a_group() {
        let mut a = empty(2 * GROUP_UNITS);
        assert_eq!(a.allocate(None, 3 * GROUP_UNITS).unwrap().units, GROUP_UNITS);
        assert_eq!(a.allocate(None, 3 * GROUP_UNITS).unwrap().units, GROUP_UNITS);
        assert_eq!(a.allocate(None, 1), None);
    }

    proptest! {
        /// Checked against one flag per block: allocated blocks were free; free blocks stay counted and merged.
        #[test]
        fn agrees_with_a_map_of_flags(ops in prop::collection::vec((any::<bool>(), 0u64..400, 1u64..60), 1..200)) {
            const TOTAL: u64 = 500;
            let mut a = empty(TOTAL);
            let mut used = [false; TOTAL as usize];
            let mut held: Vec<UnitRange> = Vec::new();
            for (allocate, pick, want) in ops {
                if allocate {
                    let goal = (pick % 3 == 0).then_some(Lpn(pick));
                    match a.allocate(goal, want) {
                        Some(range) => {
                            prop_assert!(range.units >= 1 && range.units <= want);
                            for lpn in range.iter() {
                                prop_assert!(!used[lpn.0 as usize]);
                                used[lpn.0 as usize] = true;
                            }
                            held.push(range);
                        }
                        None => prop_assert!(used.iter().all(|u| *u)),
                    }
                } else if !held.is_empty() {
                    let range = held.swap_remove(pick as usize % held.len());
                    a.release(range);
                    for lpn in range.iter() {
                        used[lpn.0 as usize] = false;
                    }
                }
                let free = used.iter().filter(|u| !**u).count() as u64;
                prop_assert_eq!(a.free_units(), free);
                // Merged: the listed extents are maximal runs of free blocks.
                for extent in a.free_in_group(0) {
                    prop_assert!(extent.iter().all(|l| !used[l.0 as usize]));
                    prop_assert!(extent.start.0 == 0 || used[extent.start.0 as usize - 1]);
                    prop_assert!(extent.end().0 == TOTAL || used[extent.end().0 as usize]);
                }
            }
        }
    }
}
