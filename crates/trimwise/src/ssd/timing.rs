//! Time as reservations on resources.
//!
//! Nothing here is an event. Each resource knows until when it is taken. An operation reserves the first suitable time
//! and learns its end. A die works in order; buses and links keep the gaps that a reservation in the future leaves, so
//! that a transfer that is ready now need not wait behind one that is ready later.
//!
//! Host reads overtake: a controller does not let a read wait behind all programs that are queued for its die. A read
//! waits for the rest of the operation in progress, for at most one tPROG (an erase is suspended), and for reads before
//! it; queued operations move back by its tR. Programs whose end was already returned do not move: an error of one tR
//! each, in exchange for no events.

use super::address::{Channel, Die, Table};
use super::config::SsdConfig;
use super::geometry::Geometry;
use crate::units::{SimDuration, SimTime};

/// Number of gaps that a [`Calendar`] remembers. More change no result that matters; fewer waste bus time when reads of
/// busy dies reserve far ahead.
const GAPS: usize = 8;

/// A resource that serves one user at a time, in the order of readiness where it can.
#[derive(Clone, Debug, Default)]
pub(super) struct Calendar {
    free_at: SimTime,
    /// Unused spans before `free_at`, oldest first.
    gaps: [(SimTime, SimTime); GAPS],
    gap_count: usize,
}

impl Calendar {
    /// Reserves the resource for `duration`, not before `ready`. Nothing is ever reserved before `now`. Returns the
    /// end.
    #[inline]
    pub fn reserve(&mut self, now: SimTime, ready: SimTime, duration: SimDuration) -> SimTime {
        if self.gap_count != 0
            && let Some(end) = self.reserve_in_gap(now, ready, duration)
        {
            return end;
        }
        if ready > self.free_at {
            let start = self.free_at.max(now);
            if ready > start {
                self.remember((start, ready));
            }
            self.free_at = ready;
        }
        self.free_at += duration;
        self.free_at
    }

    fn reserve_in_gap(&mut self, now: SimTime, ready: SimTime, duration: SimDuration) -> Option<SimTime> {
        let mut kept = 0;
        let mut found = None;
        let mut split = None;
        for i in 0..self.gap_count {
            let (start, end) = self.gaps[i];
            if end <= now {
                continue;
            }
            let begin = start.max(ready);
            if found.is_none() && begin + duration <= end {
                found = Some(begin + duration);
                if begin + duration < end {
                    split = Some((begin + duration, end));
                }
                if begin > start {
                    self.gaps[kept] = (start, begin);
                    kept += 1;
                }
                if let Some(rest) = split.take_if(|_| kept <= i) {
                    self.gaps[kept] = rest;
                    kept += 1;
                }
                continue;
            }
            self.gaps[kept] = (start, end);
            kept += 1;
        }
        self.gap_count = kept;
        if let Some(rest) = split {
            self.remember(rest);
        }
        found
    }

    fn remember(&mut self, gap: (SimTime, SimTime)) {
        if self.gap_count == GAPS {
            self.gaps.copy_within(1.., 0);
            self.gap_count -= 1;
        }
        self.gaps[self.gap_count] = gap;
        self.gap_count += 1;
    }
}

/// Returns how long a unit takes at a rate, rounded to the nearest nanosecond.
pub(super) fn unit_time(bytes_per_s: u64) -> SimDuration {
    let per_unit = crate::units::UNIT_BYTES * 1_000_000_000;
    SimDuration((per_unit + bytes_per_s / 2) / bytes_per_s)
}

#[derive(Clone, Copy, Debug, Default)]
struct DieState {
    free_at: SimTime,
    /// End of the last host read's use of the array.
    read_until: SimTime,
}

#[derive(Clone, Debug)]
pub(super) struct Nand {
    dies: Table<Die, DieState>,
    channels: Table<Channel, Calendar>,
    t_read: SimDuration,
    t_prog: SimDuration,
    t_erase: SimDuration,
    slc_t_read: SimDuration,
    slc_t_prog: SimDuration,
    bus_unit: SimDuration,
}

impl Nand {
    pub fn new(config: &SsdConfig, geometry: &Geometry) -> Self {
        let (slc, config) = (config.slc.as_ref(), &config.nand);
        Self {
            slc_t_read: SimDuration(slc.map_or(config.t_read_ns, |slc| slc.t_read_ns)),
            slc_t_prog: SimDuration(slc.map_or(config.t_prog_ns, |slc| slc.t_prog_ns)),
            dies: Table::new(geometry.dies as usize, DieState::default()),
            channels: Table::new(geometry.channels as usize, Calendar::default()),
            t_read: SimDuration(config.t_read_ns),
            t_prog: SimDuration(config.t_prog_ns),
            t_erase: SimDuration(config.t_erase_ns),
            bus_unit: unit_time(config.bus_bytes_per_s),
        }
    }

    pub fn program(
        &mut self,
        at: Place,
        now: SimTime,
        ready: SimTime,
        units: u32,
        busy_ns: &mut u64,
    ) -> SimTime {
        let loaded = self.transfer(at.channel, now, ready, units);
        let t_prog = if at.slc { self.slc_t_prog } else { self.t_prog };
        *busy_ns += t_prog.0;
        let die = &mut self.dies[at.die];
        die.free_at = die.free_at.max(loaded) + t_prog;
        die.free_at
    }

    /// Reads `units` of one stripe. Returns when the data are in the controller.
    ///
    /// A read for a copy overtakes like a host's read. If it waited for all operations of its die, and the copy's
    /// program on another die waited for it, dies would wait for each other in a chain and be idle most of the time.
    pub fn read(
        &mut self,
        at: Place,
        now: SimTime,
        ready: SimTime,
        units: u32,
        busy_ns: &mut u64,
    ) -> SimTime {
        let end = self.sense(at, ready, busy_ns);
        self.transfer(at.channel, now, end, units)
    }

    /// Reads a page into the page registers of the die. Returns when the data are in them.
    #[inline]
    pub fn sense(&mut self, at: Place, ready: SimTime, busy_ns: &mut u64) -> SimTime {
        let t_read = if at.slc { self.slc_t_read } else { self.t_read };
        *busy_ns += t_read.0;
        let die = &mut self.dies[at.die];
        let in_progress = die.free_at.since(ready).min(self.t_prog);
        let start = die.read_until.max(ready + in_progress);
        die.read_until = start + t_read;
        let moved = if in_progress > SimDuration::ZERO { t_read } else { SimDuration::ZERO };
        die.free_at = die.read_until.max(die.free_at + moved);
        die.read_until
    }

    /// Transfers `units` that are available from `ready` on, to the page registers or out of them. Returns the end.
    #[inline]
    pub fn transfer(&mut self, channel: Channel, now: SimTime, ready: SimTime, units: u32) -> SimTime {
        self.channels[channel].reserve(now, ready, self.bus_unit * u64::from(units))
    }

    pub fn erase(&mut self, die: Die, now: SimTime, busy_ns: &mut u64) -> SimTime {
        *busy_ns += self.t_erase.0;
        let die = &mut self.dies[die];
        die.free_at = die.free_at.max(now) + self.t_erase;
        die.free_at
    }

    /// Returns when a die has nothing queued.
    pub(crate) fn free_at(&self, die: Die) -> SimTime {
        self.dies[die].free_at
    }

    /// Returns when the last die has nothing queued.
    pub(crate) fn idle_at(&self) -> SimTime {
        self.dies.iter().map(|die| die.free_at).max().unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub die: Die,
    pub channel: Channel,
    pub slc: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(bus: &mut Calendar, now: u64, ready: u64, ns: u64) -> u64 {
        bus.reserve(SimTime(now), SimTime(ready), SimDuration(ns)).0
    }

    #[test]
    fn a_transfer_that_is_ready_earlier_takes_the_gap() {
        let mut bus = Calendar::default();
        assert_eq!(reserve(&mut bus, 0, 100, 10), 110);
        assert_eq!(reserve(&mut bus, 0, 0, 40), 40);
        assert_eq!(reserve(&mut bus, 0, 0, 40), 80);
        // 20 ns are left before 100; too short, so behind the first one.
        assert_eq!(reserve(&mut bus, 0, 0, 30), 140);
        assert_eq!(reserve(&mut bus, 0, 0, 20), 100);
        assert_eq!(reserve(&mut bus, 0, 0, 1), 141);
    }

    #[test]
    fn a_gap_splits_on_both_sides() {
        let mut bus = Calendar::default();
        assert_eq!(reserve(&mut bus, 0, 100, 10), 110);
        assert_eq!(reserve(&mut bus, 0, 50, 10), 60);
        assert_eq!(reserve(&mut bus, 0, 0, 50), 50);
        assert_eq!(reserve(&mut bus, 0, 0, 40), 100);
    }

    #[test]
    fn a_gap_in_the_past_is_gone() {
        let mut bus = Calendar::default();
        reserve(&mut bus, 0, 100, 10);
        assert_eq!(reserve(&mut bus, 100, 100, 10), 120);
    }
}
