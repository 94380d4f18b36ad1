//! A set of extents, ordered by address: the interval map behind [`super::PendingSet`].
//!
//! Every operation looks up the extents that it concerns and no others, so that a set of a million
//! extents costs hundreds of nanoseconds an operation, not a walk along a list.

use std::collections::BTreeMap;

use crate::units::{Lpn, UnitRange};

/// Extents looked at by [`Extents::fit`] before it gives up: a bound on what one allocation costs.
const FIT_SCAN: usize = 32;

/// Disjoint extents by address.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// Start to end.
    by_start: BTreeMap<u64, u64>,
    units: u64,
}

impl Extents {
    /// Adds an extent that overlaps none of the set. `merge`: neighbours become one extent.
    pub fn insert(&mut self, range: UnitRange, merge: bool) {
        if range.units == 0 {
            return;
        }
        let (mut start, mut end) = (range.start.0, range.end().0);
        self.units += range.units;
        if merge {
            if let Some((&before, &before_end)) = self.by_start.range(..start).next_back()
                && before_end == start
            {
                self.by_start.remove(&before);
                start = before;
            }
            if let Some(after_end) = self.by_start.remove(&end) {
                end = after_end;
            }
        }
        let previous = self.by_start.insert(start, end);
        debug_assert!(previous.is_none(), "inserted twice: {range:?}");
    }

    /// Takes out whatever of `range` is in the set, handing each part to `taken`; answers how many units.
    pub fn remove(&mut self, range: UnitRange, mut taken: impl FnMut(UnitRange)) -> u64 {
        let (start, end) = (range.start.0, range.end().0);
        let mut removed = 0;
        let mut take = |from: u64, to: u64| {
            removed += to - from;
            taken(UnitRange::new(Lpn(from), to - from));
        };
        if let Some((&held, held_end)) = self.by_start.range_mut(..start).next_back()
            && *held_end > start
        {
            let tail = std::mem::replace(held_end, start);
            debug_assert!(held < start);
            take(start, tail.min(end));
            if tail > end {
                self.by_start.insert(end, tail);
            }
        }
        while let Some((&held, &held_end)) = self.by_start.range(start..end).next() {
            self.by_start.remove(&held);
            take(held, held_end.min(end));
            if held_end > end {
                self.by_start.insert(end, held_end);
            }
        }
        self.units -= removed;
        removed
    }

    /// The first extent that ends behind `from` and has at least `units_min` units; of one that begins
    /// before `from`, the part from there on.
    pub fn find(&self, from: u64, units_min: u64) -> Option<UnitRange> {
        let cut = self.by_start.range(..from).next_back().filter(|&(_, &end)| end > from);
        let cut = cut.map(|(_, &end)| UnitRange::new(Lpn(from), end - from));
        let rest = self.by_start.range(from..).map(|(&start, &end)| UnitRange::new(Lpn(start), end - start));
        cut.into_iter().chain(rest).find(|extent| extent.units >= units_min.max(1))
    }

    /// A place for `want` units: the extent at `goal` if it has them, else the first of those that follow
    /// (around the end) that has. Looks at a bounded number; `None` if none of them is long enough.
    pub fn fit(&self, goal: u64, want: u64) -> Option<UnitRange> {
        let extent = self.find(goal, 0).filter(|e| e.start.0 == goal && e.units >= want);
        let after = self.by_start.range(goal..).chain(self.by_start.range(..goal));
        let candidates = after.take(FIT_SCAN).map(|(&start, &end)| UnitRange::new(Lpn(start), end - start));
        let fitting = extent.into_iter().chain(candidates).find(|extent| extent.units >= want)?;
        Some(UnitRange::new(fitting.start, want))
    }

    /// Every extent, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = UnitRange> + '_ {
        self.by_start.iter().map(|(&start, &end)| UnitRange::new(Lpn(start), end - start))
    }

    /// Whether any unit of `range` is in the set.
    pub fn overlaps(&self, range: UnitRange) -> bool {
        self.find(range.start.0, 0).is_some_and(|extent| extent.start < range.end())
    }

    /// Units in the set.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Extents in the set.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }
}
