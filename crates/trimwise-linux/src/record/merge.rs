//! Merges the records of several processors by time.
//!
//! Each processor's records are in order, and the processors are read in turn. Records up to the *horizon* are
//! complete: everything recorded before that instant has been read from all processors.

/// Upper bound on the time between an event and its appearance in the buffer; an interrupt can come in between.
const APPEARS_WITHIN_NS: u64 = 10_000_000;

/// Records that were read but may be preceded by records not yet read.
#[derive(Debug)]
pub(crate) struct Merge<T> {
    waiting: Vec<(u64, T)>,
    horizon: u64,
}

impl<T> Merge<T> {
    pub fn new() -> Self {
        Self { waiting: Vec::new(), horizon: 0 }
    }

    /// Begins to read all processors, at the time `now`.
    pub fn begin_round(&mut self, now: u64) {
        self.horizon = now.saturating_sub(APPEARS_WITHIN_NS);
    }

    pub fn add(&mut self, at: u64, what: T) {
        self.waiting.push((at, what));
    }

    /// Notes that a processor has more records than were read; `last` is the time of the last one read.
    pub fn has_more(&mut self, last: u64) {
        self.horizon = self.horizon.min(last);
    }

    /// Returns the records up to the horizon, in time order.
    pub fn end_round(&mut self) -> impl Iterator<Item = (u64, T)> {
        // Stable, and fast for a few sorted runs.
        self.waiting.sort_by_key(|(at, _)| *at);
        let ready = self.waiting.partition_point(|(at, _)| *at <= self.horizon);
        self.waiting.drain(..ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn records_of_two_processors_are_merged_up_to_the_horizon() {
        let mut merge = Merge::new();
        merge.begin_round(SECOND);
        for at in [1, 5, 9] {
            merge.add(at, 'a');
        }
        for at in [2, 5, SECOND - 1] {
            merge.add(at, 'b');
        }
        let merged: Vec<_> = merge.end_round().collect();
        assert_eq!(merged, [(1, 'a'), (2, 'b'), (5, 'a'), (5, 'b'), (9, 'a')]);
        merge.begin_round(2 * SECOND);
        merge.add(SECOND - 5, 'a'); // appeared late
        assert_eq!(merge.end_round().collect::<Vec<_>>(), [(SECOND - 5, 'a'), (SECOND - 1, 'b')]);
    }

    #[test]
    fn what_follows_unread_records_waits_for_them() {
        let mut merge = Merge::new();
        merge.begin_round(SECOND);
        merge.add(10, 'a');
        merge.add(20, 'a');
        merge.has_more(20);
        merge.add(30, 'b');
        assert_eq!(merge.end_round().collect::<Vec<_>>(), [(10, 'a'), (20, 'a')]);
        merge.begin_round(2 * SECOND);
        merge.add(25, 'a');
        assert_eq!(merge.end_round().collect::<Vec<_>>(), [(25, 'a'), (30, 'b')]);
    }
}
