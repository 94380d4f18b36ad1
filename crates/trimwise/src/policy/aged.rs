//! Extents by the time for which they have waited, for policies that issue the oldest first.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{Lpn, SimTime, UnitRange};

/// When an extent came: its time, and its sequence number among those of that time.
type Born = (SimTime, u64);

/// Extents that merge where they touch. A merged extent is as old as its oldest part; the parts of a split one keep its
/// age.
#[derive(Clone, Debug, Default)]
pub(super) struct Aged {
    /// End and age of each extent, by its start.
    extents: BTreeMap<u64, (u64, Born)>,
    order: BTreeSet<(Born, u64)>,
    inserted: u64,
}

impl Aged {
    /// Adds an extent that overlaps none.
    pub fn insert(&mut self, range: UnitRange, now: SimTime) {
        let (mut start, mut end) = (range.start.0, range.end().0);
        self.inserted += 1;
        let mut born = (now, self.inserted);
        let before = self.extents.range(..start).next_back().filter(|(_, (until, _))| *until == start);
        let behind = self.extents.get_key_value(&end);
        let touching: Vec<u64> = [before, behind].into_iter().flatten().map(|(&at, _)| at).collect();
        for at in touching {
            let (until, since) = self.take_out(at);
            (start, end, born) = (start.min(at), end.max(until), born.min(since));
        }
        self.put(start, end, born);
    }

    /// Removes the parts of `range` that are in the set.
    pub fn remove(&mut self, range: UnitRange) {
        let (start, end) = (range.start.0, range.end().0);
        let first = self.extents.range(..start).next_back().filter(|(_, (until, _))| *until > start);
        let overlapping: Vec<u64> =
            first.into_iter().chain(self.extents.range(start..end)).map(|(&at, _)| at).collect();
        for at in overlapping {
            let (until, born) = self.take_out(at);
            if at < start {
                self.put(at, start, born);
            }
            if end < until {
                self.put(end, until, born);
            }
        }
    }

    pub fn oldest(&self) -> Option<(UnitRange, SimTime)> {
        let &(born, start) = self.order.first()?;
        let (end, _) = self.extents[&start];
        Some((UnitRange::new(Lpn(start), end - start), born.0))
    }

    fn put(&mut self, start: u64, end: u64, born: Born) {
        self.extents.insert(start, (end, born));
        self.order.insert((born, start));
    }

    fn take_out(&mut self, start: u64) -> (u64, Born) {
        let (end, born) = self.extents.remove(&start).unwrap_or_default();
        self.order.remove(&(born, start));
        (end, born)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, units: u64) -> UnitRange {
        UnitRange::new(Lpn(start), units)
    }

    #[test]
    fn what_is_merged_is_as_old_as_its_oldest_part_and_what_is_split_stays_so() {
        let mut aged = Aged::default();
        aged.insert(range(100, 10), SimTime(1));
        aged.insert(range(0, 10), SimTime(2));
        aged.insert(range(110, 5), SimTime(3));
        assert_eq!(aged.oldest(), Some((range(100, 15), SimTime(1))));
        aged.remove(range(104, 2));
        aged.remove(range(100, 4));
        assert_eq!(aged.oldest(), Some((range(106, 9), SimTime(1))));
        aged.remove(range(0, 200));
        assert_eq!(aged.oldest(), None);
        aged.insert(range(100, 10), SimTime(9));
        assert_eq!(aged.oldest(), Some((range(100, 10), SimTime(9))), "its former age is forgotten");
    }
}
