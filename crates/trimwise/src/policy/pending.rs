//! The set of extents that may be trimmed.
//!
//! A wrong TRIM destroys data, so there is one gate: an extent enters the set only when the transaction that freed it
//! is durable, an allocation takes its blocks out before it uses them, and the only thing that can be issued is a
//! [`TrimToken`], which is taken out of the set and cannot be copied. The ledger counts blocks, not commands: extents
//! split and merge.
//!
//! Extents that a policy chose not to trim stay known as *untrimmed* until they are allocated, so that a policy may
//! catch up.

use std::collections::VecDeque;

use super::aged::Aged;
use super::extents::Extents;
use crate::units::{Lpn, SimTime, UnitRange};

/// Permission to trim one extent, once. Only [`PendingSet`] makes them.
#[derive(Debug)]
#[must_use = "blocks in a token are neither pending nor issued until it is settled"]
pub struct TrimToken {
    range: UnitRange,
}

impl TrimToken {
    pub fn range(&self) -> UnitRange {
        self.range
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ledger {
    /// Freed by a durable transaction, or found free and taken on.
    #[serde(rename = "freed_units")]
    pub freed: u64,
    /// Issued to the device (or revealed to it).
    #[serde(rename = "issued_units")]
    pub issued: u64,
    /// Taken by an allocation before they were issued.
    #[serde(rename = "reused_units")]
    pub reused: u64,
    /// Not trimmed, and not caught up on later.
    #[serde(rename = "dropped_units")]
    pub dropped: u64,
    #[serde(rename = "pending_units")]
    pub pending: u64,
    /// In tokens: being issued now.
    #[serde(rename = "in_flight_units")]
    pub in_tokens: u64,
}

impl Ledger {
    pub(crate) fn balances(&self) -> bool {
        self.freed == self.issued + self.reused + self.dropped + self.pending + self.in_tokens
    }

    /// Joins this ledger with that of the set below, to which issued units go on.
    pub(crate) fn handed_on(&self, below: &Self) -> Self {
        Self {
            freed: self.freed - self.issued + below.freed,
            issued: below.issued,
            reused: self.reused + below.reused,
            dropped: self.dropped + below.dropped,
            pending: self.pending + below.pending,
            in_tokens: self.in_tokens + below.in_tokens,
        }
    }

    /// Returns the flows since `before`. Pending and in-flight units are the current ones.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            freed: self.freed - before.freed,
            issued: self.issued - before.issued,
            reused: self.reused - before.reused,
            // Catching up takes out units that were dropped earlier.
            dropped: self.dropped.saturating_sub(before.dropped),
            ..*self
        }
    }
}

/// Extents that are durably free and have not been allocated or written since.
///
/// ```
/// use trimwise::policy::PendingSet;
/// use trimwise::units::{Lpn, UnitRange};
///
/// let mut pending = PendingSet::new(true);
/// pending.insert(UnitRange::new(Lpn(100), 8)); // a commit freed it
/// pending.withdraw(UnitRange::new(Lpn(100), 2)); // an allocation takes two blocks of it
/// let token = pending.take(Lpn(0), 1, u64::MAX).expect("six blocks are left");
/// assert_eq!(token.range(), UnitRange::new(Lpn(102), 6));
/// pending.settle(token); // the device has acknowledged their TRIM
/// assert_eq!((pending.ledger().issued, pending.ledger().reused), (6, 2));
/// ```
#[derive(Clone, Debug, Default)]
pub struct PendingSet {
    extents: Extents,
    untrimmed: Extents,
    /// New extents merge with their neighbours in the set.
    merging: bool,
    /// The same extents by age, if the oldest are taken first.
    aged: Option<Aged>,
    /// What came into the set, in that order, if it is taken in that order. Parts may have left the set since.
    arrived: Option<VecDeque<UnitRange>>,
    ledger: Ledger,
}

impl PendingSet {
    pub fn new(merging: bool) -> Self {
        Self { merging, ..Self::default() }
    }

    /// Creates an empty set whose extents merge, and which gives the oldest first.
    pub(super) fn oldest_first() -> Self {
        Self { merging: true, aged: Some(Aged::default()), ..Self::default() }
    }

    /// Creates an empty set that gives extents in the order in which they came, as ext4's worker walks its list. They do
    /// not merge.
    pub(super) fn in_order() -> Self {
        Self { arrived: Some(VecDeque::new()), ..Self::default() }
    }

    /// Adds an extent whose freeing transaction is durable. It must not be in the set already.
    pub fn insert(&mut self, range: UnitRange) {
        self.insert_at(range, SimTime::ZERO);
    }

    pub(super) fn insert_at(&mut self, range: UnitRange, now: SimTime) {
        debug_assert!(!self.extents.overlaps(range), "freed twice: {range:?}");
        self.add(range, now);
        self.ledger.freed += range.units;
    }

    fn add(&mut self, range: UnitRange, now: SimTime) {
        self.extents.insert(range, self.merging);
        if let Some(aged) = &mut self.aged {
            aged.insert(range, now);
        }
        if let Some(arrived) = &mut self.arrived {
            arrived.push_back(range);
        }
        self.ledger.pending += range.units;
    }

    /// Removes the parts of `range` that are in the set. Returns their units.
    fn remove(&mut self, range: UnitRange, part: impl FnMut(UnitRange)) -> u64 {
        let units = self.extents.remove(range, part);
        if let Some(aged) = &mut self.aged {
            aged.remove(range);
        }
        self.ledger.pending -= units;
        units
    }

    /// Returns the extent of which a part has waited longest, and since when; `None` also in a set that keeps no ages.
    pub(super) fn oldest(&self) -> Option<(UnitRange, SimTime)> {
        self.aged.as_ref()?.oldest()
    }

    /// Removes the parts of `range` that are in the set, because they are being allocated, and returns their units.
    /// Also forgets untrimmed parts.
    pub fn withdraw(&mut self, range: UnitRange) -> u64 {
        self.untrimmed.remove(range, |_| ());
        let units = self.remove(range, |_| ());
        self.ledger.reused += units;
        units
    }

    /// Removes the parts of `range` that are in the set or untrimmed, because a batch TRIM of free space covers them.
    pub fn issued_in_batch(&mut self, range: UnitRange) {
        let caught_up = self.untrimmed.remove(range, |_| ());
        let units = self.remove(range, |_| ());
        self.ledger.dropped -= caught_up;
        self.ledger.issued += units + caught_up;
    }

    /// Finds `want` units in one extent of the set, at `goal` or after it; `None` if none of the next extents is long
    /// enough.
    pub fn fit(&self, goal: Lpn, want: u64) -> Option<UnitRange> {
        self.extents.fit(goal.0, want)
    }

    pub(crate) fn next(&self, from: Lpn, units_min: u64) -> Option<UnitRange> {
        self.extents.find(from.0, units_min)
    }

    pub fn iter(&self) -> impl Iterator<Item = UnitRange> + '_ {
        self.extents.iter()
    }

    /// Takes out the next extent from `from` on with at least `units_min` units, as a token, cut at `units_max`. A set
    /// that gives the oldest first, or in order, takes what is due, wherever it lies and however short it is.
    pub fn take(&mut self, from: Lpn, units_min: u64, units_max: u64) -> Option<TrimToken> {
        let next = match (&self.aged, self.arrived.is_some()) {
            (Some(aged), _) => aged.oldest()?.0,
            (None, true) => self.next_arrived()?,
            (None, false) => self.extents.find(from.0, units_min)?,
        };
        let range = UnitRange::new(next.start, next.units.min(units_max.max(1)));
        self.remove(range, |_| ());
        self.ledger.in_tokens += range.units;
        Some(TrimToken { range })
    }

    /// Returns the first part still in the set of the extent that came first.
    fn next_arrived(&mut self) -> Option<UnitRange> {
        let arrived = self.arrived.as_mut()?;
        while let Some(&range) = arrived.front() {
            let left = self.extents.find(range.start.0, 1).filter(|part| part.start < range.end());
            if let Some(part) = left {
                return Some(UnitRange::between(part.start, part.end().min(range.end())));
            }
            arrived.pop_front();
        }
        None
    }

    pub fn settle(&mut self, token: TrimToken) {
        self.ledger.in_tokens -= token.range.units;
        self.ledger.issued += token.range.units;
    }

    /// Makes the pending parts of `range` untrimmed. Returns these parts, for a host that keeps them unavailable.
    pub(crate) fn drop_range(&mut self, range: UnitRange) -> Vec<UnitRange> {
        let mut parts = Vec::new();
        let units = self.remove(range, |part| parts.push(part));
        for &part in &parts {
            self.untrimmed.insert(part, true);
        }
        self.ledger.dropped += units;
        parts
    }

    /// Makes all untrimmed extents pending and returns them.
    pub fn catch_up(&mut self) -> Vec<UnitRange> {
        self.catch_up_at(SimTime::ZERO)
    }

    pub(super) fn catch_up_at(&mut self, now: SimTime) -> Vec<UnitRange> {
        let untrimmed = std::mem::take(&mut self.untrimmed);
        self.ledger.dropped -= untrimmed.units();
        untrimmed.iter().inspect(|&range| self.add(range, now)).collect()
    }

    /// Returns the parts of `range` that are not in the set, and forgets untrimmed parts. For a range of which parts
    /// may have been freed before without having been used since.
    pub(super) fn missing(&mut self, range: UnitRange) -> Vec<UnitRange> {
        let untrimmed = self.untrimmed.remove(range, |_| ());
        self.ledger.dropped -= untrimmed;
        self.ledger.freed -= untrimmed;
        gaps(range, &[&self.extents])
    }

    /// Adds an extent that was free before accounting began. It counts as untrimmed, since what the device holds there
    /// is unknown. Parts already known stay as they are.
    pub(crate) fn suspect(&mut self, range: UnitRange) {
        for gap in gaps(range, &[&self.extents, &self.untrimmed]) {
            self.untrimmed.insert(gap, true);
            self.ledger.freed += gap.units;
            self.ledger.dropped += gap.units;
        }
    }

    /// Records an extent that was freed and issued without waiting in the set.
    pub(crate) fn passed_on(&mut self, range: UnitRange) {
        self.ledger.freed += range.units;
        self.ledger.issued += range.units;
    }

    /// Iterates over the extents that were dropped and not allocated since, in order.
    pub(crate) fn untrimmed(&self) -> impl Iterator<Item = UnitRange> + '_ {
        self.untrimmed.iter()
    }

    pub fn units(&self) -> u64 {
        self.ledger.pending
    }

    pub fn extents(&self) -> u64 {
        self.extents.len() as u64
    }

    pub(crate) fn untrimmed_units(&self) -> u64 {
        self.untrimmed.units()
    }

    /// Accounts for all blocks freed so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }
}

/// Returns the parts of `range` that are in none of the sets.
fn gaps(range: UnitRange, sets: &[&Extents]) -> Vec<UnitRange> {
    let mut gaps = Vec::new();
    let (mut at, end) = (range.start.0, range.end().0);
    while at < end {
        let known = sets.iter().filter_map(|set| set.find(at, 0));
        let next = known.min_by_key(|extent| extent.start).filter(|extent| extent.start.0 < end);
        let gap_end = next.map_or(end, |extent| extent.start.0);
        if gap_end > at {
            gaps.push(UnitRange::new(Lpn(at), gap_end - at));
        }
        at = next.map_or(end, |extent| extent.end().0);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, units: u64) -> UnitRange {
        UnitRange::new(Lpn(start), units)
    }

    fn take_first(set: &mut PendingSet, units_max: u64) -> Option<TrimToken> {
        set.take(Lpn(0), 1, units_max)
    }

    /// Freed are 100 to 110 and 0 to 4. An allocation takes the middle of the first.
    #[test]
    fn in_order_the_first_freed_goes_first_as_far_as_it_is_left() {
        let mut set = PendingSet::in_order();
        set.insert(range(100, 10));
        set.insert(range(0, 4));
        set.withdraw(range(103, 4));
        let mut taken = Vec::new();
        while let Some(token) = take_first(&mut set, u64::MAX) {
            taken.push(token.range());
            set.settle(token);
        }
        assert_eq!(taken, [range(100, 3), range(107, 3), range(0, 4)]);
    }

    #[test]
    fn an_allocation_splits_a_pending_extent() {
        let mut set = PendingSet::default();
        set.insert(range(10, 10));
        assert_eq!(set.withdraw(range(13, 2)), 2);
        let first = take_first(&mut set, u64::MAX).unwrap();
        assert_eq!(first.range(), range(10, 3));
        set.settle(first);
        let second = take_first(&mut set, 2).unwrap();
        assert_eq!(second.range(), range(15, 2));
        set.settle(second);
        let ledger = set.ledger();
        assert_eq!((ledger.issued, ledger.reused, ledger.pending), (5, 2, 3));
        assert!(ledger.balances());
    }

    #[test]
    fn neighbours_merge_only_where_the_policy_merges() {
        for (merging, extents) in [(true, 1), (false, 2)] {
            let mut set = PendingSet::new(merging);
            set.insert(range(0, 4));
            set.insert(range(4, 4));
            assert_eq!(set.extents(), extents);
        }
    }

    #[test]
    fn fit_searches_from_the_goal_on_and_wraps_around() {
        let mut set = PendingSet::default();
        for (start, units) in [(0, 8), (20, 2), (40, 8)] {
            set.insert(range(start, units));
        }
        assert_eq!(set.fit(Lpn(20), 2), Some(range(20, 2)));
        assert_eq!(set.fit(Lpn(20), 3), Some(range(40, 3)));
        assert_eq!(set.fit(Lpn(44), 4), Some(range(44, 4)));
        assert_eq!(set.fit(Lpn(44), 5), Some(range(0, 5)));
        assert_eq!(set.fit(Lpn(0), 9), None);
    }

    #[test]
    fn space_free_before_is_added_once() {
        let mut set = PendingSet::default();
        set.insert(range(4, 2));
        set.insert(range(8, 2));
        set.drop_range(range(8, 2));
        set.suspect(range(0, 12));
        set.suspect(range(0, 12));
        assert_eq!((set.units(), set.untrimmed_units()), (2, 10));
        assert_eq!(set.ledger().freed, 12);
        set.catch_up();
        assert_eq!((set.units(), set.untrimmed_units()), (12, 0));
        assert!(set.ledger().balances());
    }

    #[test]
    fn flows_count_from_the_beginning_of_a_run_and_catching_up_on_what_was_before_is_none() {
        let mut set = PendingSet::default();
        set.insert(range(0, 30));
        set.drop_range(range(0, 10));
        let before = set.ledger();
        set.drop_range(range(10, 3));
        set.withdraw(range(20, 2));
        let flows = set.ledger().since(&before);
        assert_eq!((flows.freed, flows.dropped, flows.reused, flows.pending), (0, 3, 2, 15));
        set.catch_up();
        assert_eq!(set.ledger().since(&before).dropped, 0);
    }

    #[test]
    fn an_extent_over_a_border_is_two() {
        let mut set = PendingSet::new(true);
        set.insert(range(32_000, 1_000));
        assert_eq!(set.iter().collect::<Vec<_>>(), [range(32_000, 768), range(32_768, 232)]);
        assert_eq!(set.withdraw(range(32_700, 100)), 100);
        assert_eq!((set.units(), set.extents()), (900, 2));
        assert_eq!(set.drop_range(UnitRange::new(Lpn(0), u64::MAX)).len(), 2);
        assert_eq!((set.units(), set.untrimmed_units(), set.extents()), (0, 900, 0));
    }

    const BORDER: usize = 40;
    const BASE: u64 = 32_768 - BORDER as u64;

    #[derive(Clone, Copy, PartialEq)]
    enum Flag {
        Used,
        Pending,
        Untrimmed,
    }

    proptest! {
        /// Checked against one flag per block: no token ever holds a block that was withdrawn, and nothing is lost.
        #[test]
        fn agrees_with_a_map_of_flags(
            merging: bool,
            ops in prop::collection::vec((0u8..8, 0u64..64, 1u64..16), 1..200),
        ) {
            // The map lies over a border at which extents are cut.
            let range = |start: u64, units| UnitRange::new(Lpn(BASE + start), units);
            let flag_of = |lpn: Lpn| (lpn.0 - BASE) as usize;
            let mut set = PendingSet::new(merging);
            let mut flags = [Flag::Used; 80];
            let count = |flags: &[Flag], which| flags.iter().filter(|f| **f == which).count() as u64;
            for (kind, start, units) in ops {
                let span = start as usize..(start + units) as usize;
                match kind {
                    0 | 1 => {
                        if flags[span.clone()].iter().all(|f| *f == Flag::Used) {
                            set.insert(range(start, units));
                            flags[span].fill(Flag::Pending);
                        }
                    }
                    2 => {
                        let held = count(&flags[span.clone()], Flag::Pending);
                        prop_assert_eq!(set.withdraw(range(start, units)), held);
                        flags[span].fill(Flag::Used);
                    }
                    3 => {
                        let run_from = |at: usize| {
                            let end = if at < BORDER { BORDER } else { flags.len() };
                            flags[at..end].iter().take_while(|f| **f == Flag::Pending).count()
                        };
                        let longest = (start as usize..80).map(run_from).max().unwrap_or(0) as u64;
                        match set.take(Lpn(BASE + start), units / 2, units) {
                            Some(token) => {
                                prop_assert!(token.range().start.0 >= BASE + start && token.range().units <= units);
                                for lpn in token.range().iter() {
                                    prop_assert!(flags[flag_of(lpn)] == Flag::Pending);
                                    flags[flag_of(lpn)] = Flag::Used;
                                }
                                set.settle(token);
                            }
                            None => prop_assert!(!merging || longest < (units / 2).max(1)),
                        }
                    }
                    4 => {
                        let dropped: u64 = set.drop_range(range(start, units)).iter().map(|r| r.units).sum();
                        prop_assert_eq!(dropped, count(&flags[span.clone()], Flag::Pending));
                        for flag in flags[span].iter_mut().filter(|f| **f == Flag::Pending) {
                            *flag = Flag::Untrimmed;
                        }
                    }
                    5 => {
                        let caught_up: u64 = set.catch_up().iter().map(|r| r.units).sum();
                        prop_assert_eq!(caught_up, count(&flags, Flag::Untrimmed));
                        for flag in flags.iter_mut().filter(|f| **f == Flag::Untrimmed) {
                            *flag = Flag::Pending;
                        }
                    }
                    6 => {
                        set.issued_in_batch(range(start, units));
                        flags[span].fill(Flag::Used);
                    }
                    _ => {
                        if let Some(place) = set.fit(Lpn(BASE + start), units) {
                            prop_assert_eq!(place.units, units);
                            prop_assert!(place.iter().all(|l| flags[flag_of(l)] == Flag::Pending));
                        }
                    }
                }
                prop_assert!(set.ledger().balances());
                prop_assert_eq!(set.units(), count(&flags, Flag::Pending));
                prop_assert_eq!(set.untrimmed_units(), count(&flags, Flag::Untrimmed));
            }
        }
    }
}
