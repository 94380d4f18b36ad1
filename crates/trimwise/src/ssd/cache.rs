//! The write cache: a number of units, and the programs that they wait for.
//!
//! Data are not stored, so the cache is a count and a ring. Units enter when the host has sent them and
//! leave, stripe by stripe in the order of entry, when the stripe is programmed. A unit that is overwritten
//! while it waits is programmed all the same.

use std::collections::VecDeque;

use super::address::Ppn;
use crate::units::SimTime;

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    done: SimTime,
    first: Ppn,
    units: u32,
}

#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    capacity_units: u64,
    used_units: u64,
    ring: VecDeque<Outstanding>,
    drained_at: SimTime,
}

impl WriteCache {
    pub fn new(capacity_units: u64) -> Self {
        Self { capacity_units, used_units: 0, ring: VecDeque::new(), drained_at: SimTime::ZERO }
    }

    #[inline]
    pub(crate) fn admit(&mut self, now: SimTime) -> SimTime {
        let mut at = now;
        self.used_units += 1;
        if self.used_units > self.capacity_units {
            at = self.make_room(now);
        }
        at
    }

    #[cold]
    fn make_room(&mut self, now: SimTime) -> SimTime {
        let mut at = now;
        while let Some(&oldest) = self.ring.front() {
            // If there is room already, take out only what has left.
            if self.used_units <= self.capacity_units && oldest.done > at {
                break;
            }
            at = at.max(oldest.done);
            self.used_units -= u64::from(oldest.units);
            self.ring.pop_front();
        }
        at
    }

    /// Notes that a stripe with `units` host units, beginning at `first`, will be programmed at `done`.
    #[inline]
    pub fn issued(&mut self, done: SimTime, first: Ppn, units: u32) {
        self.ring.push_back(Outstanding { done, first, units });
        self.drained_at = self.drained_at.max(done);
    }

    pub fn holds(&self, first: Ppn, now: SimTime) -> bool {
        self.ring.iter().rev().any(|o| o.first == first && o.done > now)
    }

    pub(crate) fn drained_at(&self) -> SimTime {
        self.drained_at
    }

    pub fn settle(&mut self, now: SimTime) {
        while let Some(oldest) = self.ring.front()
            && oldest.done <= now
        {
            self.used_units -= u64::from(oldest.units);
            self.ring.pop_front();
        }
    }

    pub fn clear(&mut self) {
        self.used_units = 0;
        self.ring.clear();
    }
}
