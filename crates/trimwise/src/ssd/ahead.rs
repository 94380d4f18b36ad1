//! Reading ahead: a controller with memory to spare fetches what a sequential stream will ask for next.
//!
//! One stream at a time is followed. It begins with the second of two reads that follow each other; what is
//! written or trimmed in front of it ends it.

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    window_units: u32,
    /// Where the stream goes on.
    next: u32,
    /// Fetched pieces from `next` on: the end of each, and when it is in memory.
    fetched: VecDeque<(u32, u64)>,
}

/// What a read finds, and what is to be fetched for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The first unit that is not in memory.
    pub missing_from: u32,
    /// When what is in memory is all there.
    pub ready: u64,
    /// To be read ahead.
    pub ahead: Range<u32>,
}

impl ReadAhead {
    /// `None` where the controller does not read ahead.
    pub fn new(window_units: u32) -> Option<Self> {
        (window_units > 0).then(|| Self { window_units, next: u32::MAX, fetched: VecDeque::new() })
    }

    /// Follows the stream with a read of `units` on a device of `capacity`.
    pub fn plan(&mut self, units: &Range<u32>, capacity: u32) -> Plan {
        let follows = units.start == self.next;
        if !follows {
            self.fetched.clear();
        }
        self.next = units.end;
        let (mut missing_from, mut ready) = (units.start, 0);
        while missing_from < units.end
            && let Some(&(end, at)) = self.fetched.front()
        {
            ready = ready.max(at);
            missing_from = end.min(units.end);
            if end > units.end {
                break;
            }
            self.fetched.pop_front();
        }
        let from = self.fetched.back().map_or(units.end, |&(end, _)| end);
        let to = if follows { units.end.saturating_add(self.window_units).min(capacity) } else { from };
        Plan { missing_from, ready, ahead: from..to.max(from) }
    }

    /// The units up to `end` will be in memory at `ready`.
    pub(crate) fn fetched(&mut self, end: u32, ready: u64) {
        self.fetched.push_back((end, ready));
    }

    /// These units have changed.
    pub fn changed(&mut self, units: &Range<u32>) {
        if self.fetched.back().is_some_and(|&(end, _)| units.start < end && units.end > self.next) {
            self.forget();
        }
    }

    /// Ends the stream.
    pub fn forget(&mut self) {
        self.next = u32::MAX;
        self.fetched.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_ahead_from_its_second_read_on() {
        let mut ahead = ReadAhead::new(8).unwrap();
        assert_eq!(ahead.plan(&(0..4), 100), Plan { missing_from: 0, ready: 0, ahead: 4..4 });
        assert_eq!(ahead.plan(&(4..8), 100), Plan { missing_from: 4, ready: 0, ahead: 8..16 });
        ahead.fetched(16, 500);
        assert_eq!(ahead.plan(&(8..14), 100), Plan { missing_from: 14, ready: 500, ahead: 16..22 });
        ahead.fetched(22, 700);
        assert_eq!(ahead.plan(&(14..30), 24), Plan { missing_from: 22, ready: 700, ahead: 30..30 });
    }

    #[test]
    fn a_jump_or_a_change_ends_it() {
        let mut ahead = ReadAhead::new(8).unwrap();
        ahead.plan(&(0..4), 100);
        ahead.plan(&(4..8), 100);
        ahead.fetched(16, 500);
        ahead.changed(&(16..20));
        ahead.changed(&(0..8));
        assert_eq!(ahead.plan(&(8..9), 100).missing_from, 9, "neither touched what was read ahead");
        ahead.changed(&(10..11));
        assert_eq!(ahead.plan(&(9..10), 100), Plan { missing_from: 9, ready: 0, ahead: 10..10 });
        ahead.plan(&(10..11), 100);
        ahead.fetched(19, 500);
        assert_eq!(ahead.plan(&(50..51), 100).missing_from, 50);
    }

    #[test]
    fn without_a_window_nothing_is_read_ahead() {
        assert!(ReadAhead::new(0).is_none());
    }
}
