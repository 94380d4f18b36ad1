//! Reading ahead: a controller with spare memory fetches the units that a sequential stream will read next.
//!
//! One stream at a time is followed. It begins with the second of two consecutive reads. A write or TRIM of the units
//! ahead of it ends it.

use std::collections::VecDeque;

use super::address::Number;
use crate::units::{Lpn, SimTime, UnitRange};

#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    window_units: u64,
    next: Lpn,
    /// Pieces fetched from `next` on: where each ends, and when it is in memory.
    fetched: VecDeque<(Lpn, SimTime)>,
}

pub(super) struct Plan {
    pub missing_from: Lpn,
    pub ready: SimTime,
    pub ahead: UnitRange,
}

impl ReadAhead {
    pub fn new(window_units: u64) -> Option<Self> {
        (window_units > 0).then(|| Self { window_units, next: Lpn::NONE, fetched: VecDeque::new() })
    }

    pub fn plan(&mut self, units: UnitRange, capacity: Lpn) -> Plan {
        let follows = units.start == self.next;
        if !follows {
            self.fetched.clear();
        }
        self.next = units.end();
        let (mut missing_from, mut ready) = (units.start, SimTime::ZERO);
        while missing_from < units.end()
            && let Some(&(end, at)) = self.fetched.front()
        {
            ready = ready.max(at);
            missing_from = end.min(units.end());
            if end > units.end() {
                break;
            }
            self.fetched.pop_front();
        }
        let from = self.fetched.back().map_or(units.end(), |&(end, _)| end);
        let to = if follows { units.end().offset(self.window_units).min(capacity) } else { from };
        Plan { missing_from, ready, ahead: UnitRange::between(from, to) }
    }

    /// Notes that the units up to `end` will be in memory at `ready`.
    pub(crate) fn fetched(&mut self, end: Lpn, ready: SimTime) {
        self.fetched.push_back((end, ready));
    }

    pub fn changed(&mut self, units: UnitRange) {
        if self.fetched.back().is_some_and(|&(end, _)| units.start < end && units.end() > self.next) {
            self.forget();
        }
    }

    pub fn forget(&mut self) {
        self.next = Lpn::NONE;
        self.fetched.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn range(units: Range<u64>) -> UnitRange {
        UnitRange::between(Lpn(units.start), Lpn(units.end))
    }

    /// Returns the first missing unit, the time at which the others are in memory, and the units to read ahead.
    fn plan(ahead: &mut ReadAhead, units: Range<u64>, capacity: u64) -> (u64, u64, Range<u64>) {
        let Plan { missing_from, ready, ahead } = ahead.plan(range(units), Lpn(capacity));
        (missing_from.0, ready.0, ahead.start.0..ahead.end().0)
    }

    #[test]
    fn a_stream_is_read_ahead_from_its_second_read_on() {
        let mut ahead = ReadAhead::new(8).unwrap();
        assert_eq!(plan(&mut ahead, 0..4, 100), (0, 0, 4..4));
        assert_eq!(plan(&mut ahead, 4..8, 100), (4, 0, 8..16));
        ahead.fetched(Lpn(16), SimTime(500));
        assert_eq!(plan(&mut ahead, 8..14, 100), (14, 500, 16..22));
        ahead.fetched(Lpn(22), SimTime(700));
        assert_eq!(plan(&mut ahead, 14..30, 24), (22, 700, 30..30));
    }

    #[test]
    fn a_jump_or_a_change_ends_it() {
        let mut ahead = ReadAhead::new(8).unwrap();
        plan(&mut ahead, 0..4, 100);
        plan(&mut ahead, 4..8, 100);
        ahead.fetched(Lpn(16), SimTime(500));
        ahead.changed(range(16..20));
        ahead.changed(range(0..8));
        assert_eq!(plan(&mut ahead, 8..9, 100).0, 9, "neither touched what was read ahead");
        ahead.changed(range(10..11));
        assert_eq!(plan(&mut ahead, 9..10, 100), (9, 0, 10..10));
        plan(&mut ahead, 10..11, 100);
        ahead.fetched(Lpn(19), SimTime(500));
        ahead.changed(range(9..12));
        assert_eq!(plan(&mut ahead, 11..12, 100), (11, 0, 12..12), "a change that begins before it");
        plan(&mut ahead, 10..11, 100);
        ahead.fetched(Lpn(19), SimTime(500));
        assert_eq!(plan(&mut ahead, 50..51, 100).0, 50);
    }

    #[test]
    fn without_a_window_nothing_is_read_ahead() {
        assert!(ReadAhead::new(0).is_none());
    }
}
