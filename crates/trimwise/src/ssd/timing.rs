//! Time as reservations.
//!
//! Nothing here is an event. Each resource knows until when it is taken, and an operation reserves the
//! first time that suits it and learns when it ends. A die works in order; buses and links keep the gaps
//! that a reservation in the future leaves, so that a transfer that is ready now need not wait behind one
//! that is ready later.
//!
//! Host reads overtake: a controller does not let a read wait behind all programs that are queued for its
//! die. A read waits for the rest of the operation in progress, for at most one tPROG (an erase is suspended),
//! and for reads before it; what is queued moves back by its tR. Programs whose end was already told do
//! not move: an error of one tR each, in exchange for no events.

use super::config::SsdConfig;
use super::geometry::Geometry;
use super::stats::BusyTime;

/// Gaps that a [`Calendar`] remembers. More change no result that matters; fewer waste bus time when reads
/// of busy dies reserve far ahead.
const GAPS: usize = 8;

/// A resource that serves one at a time, in the order of readiness where it can.
#[derive(Clone, Debug, Default)]
pub(super) struct Calendar {
    free_at: u64,
    /// Unused spans before `free_at`, oldest first.
    gaps: [(u64, u64); GAPS],
    gap_count: usize,
}

impl Calendar {
    /// Takes the resource for `duration`, not before `ready`; `now` is the present, before which nothing
    /// will ever be reserved. Returns the end.
    #[inline]
    pub fn reserve(&mut self, now: u64, ready: u64, duration: u64) -> u64 {
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

    fn reserve_in_gap(&mut self, now: u64, ready: u64, duration: u64) -> Option<u64> {
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

    /// Keeps a gap; the oldest makes room.
    fn remember(&mut self, gap: (u64, u64)) {
        if self.gap_count == GAPS {
            self.gaps.copy_within(1.., 0);
            self.gap_count -= 1;
        }
        self.gaps[self.gap_count] = gap;
        self.gap_count += 1;
    }
}

/// Nanoseconds that a unit takes at a rate, rounded to the nearest; at most 1 ns of error in a unit.
pub(super) fn unit_ns(bytes_per_s: u64) -> u64 {
    let per_unit = crate::units::UNIT_BYTES * 1_000_000_000;
    (per_unit + bytes_per_s / 2) / bytes_per_s
}

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// When everything that is queued has ended.
    free_at: u64,
    /// When the last host read has left the array.
    read_until: u64,
}

/// The dies and the channels.
#[derive(Clone, Debug)]
pub(super) struct Nand {
    dies: Vec<Die>,
    channels: Vec<Calendar>,
    t_read_ns: u64,
    t_prog_ns: u64,
    t_erase_ns: u64,
    /// Those of flash in SLC mode.
    slc_t_read_ns: u64,
    slc_t_prog_ns: u64,
    bus_unit_ns: u64,
}

impl Nand {
    pub fn new(config: &SsdConfig, geometry: &Geometry) -> Self {
        let (slc, config) = (config.slc.as_ref(), &config.nand);
        Self {
            slc_t_read_ns: slc.map_or(config.t_read_ns, |slc| slc.t_read_ns),
            slc_t_prog_ns: slc.map_or(config.t_prog_ns, |slc| slc.t_prog_ns),
            dies: vec![Die::default(); geometry.dies as usize],
            channels: vec![Calendar::default(); geometry.channels as usize],
            t_read_ns: config.t_read_ns,
            t_prog_ns: config.t_prog_ns,
            t_erase_ns: config.t_erase_ns,
            bus_unit_ns: unit_ns(config.bus_bytes_per_s),
        }
    }

    /// Transfers a stripe of `units` that is at hand from `ready` and programs it. Returns when it is programmed.
    pub fn program(&mut self, at: Place, now: u64, ready: u64, units: u32) -> u64 {
        let loaded =
            self.channels[at.channel as usize].reserve(now, ready, u64::from(units) * self.bus_unit_ns);
        let t_prog_ns = self.t_prog_ns(at);
        let die = &mut self.dies[at.die as usize];
        die.free_at = die.free_at.max(loaded) + t_prog_ns;
        die.free_at
    }

    /// A host read of `units` of one stripe. Returns when the data are in the controller.
    pub fn read(&mut self, at: Place, now: u64, ready: u64, units: u32, busy: &mut BusyTime) -> u64 {
        busy.read += self.t_read_ns(at);
        self.overtaking_read(at, now, ready, units)
    }

    /// A read for copying. It overtakes too: if it waited behind all that its die has to do, and the copy's program
    /// on another die for it, dies would wait for each other in a chain and stand idle most of the time.
    pub(crate) fn read_for_copy(&mut self, at: Place, now: u64, units: u32, busy: &mut BusyTime) -> u64 {
        busy.read_gc += self.t_read_ns(at);
        self.overtaking_read(at, now, now, units)
    }

    /// A read of a part of the map, which is a unit.
    pub fn read_map(&mut self, at: Place, now: u64, ready: u64, busy: &mut BusyTime) -> u64 {
        busy.read_map += self.t_read_ns(at);
        self.overtaking_read(at, now, ready, 1)
    }

    fn overtaking_read(&mut self, at: Place, now: u64, ready: u64, units: u32) -> u64 {
        let end = self.overtaking_sense(at, ready);
        self.take_out(at.channel, now, end, units)
    }

    /// A host read as far as the page registers of its die. Returns when it is in them.
    pub fn sense(&mut self, at: Place, ready: u64, busy: &mut BusyTime) -> u64 {
        busy.read += self.t_read_ns(at);
        self.overtaking_sense(at, ready)
    }

    #[inline]
    fn overtaking_sense(&mut self, at: Place, ready: u64) -> u64 {
        let t_read_ns = self.t_read_ns(at);
        let die = &mut self.dies[at.die as usize];
        let in_progress = die.free_at.saturating_sub(ready).min(self.t_prog_ns);
        let start = die.read_until.max(ready + in_progress);
        die.read_until = start + t_read_ns;
        die.free_at = die.read_until.max(die.free_at + if in_progress > 0 { t_read_ns } else { 0 });
        die.read_until
    }

    /// Transfers `units` that are in page registers from `ready` on. Returns when they are in the controller.
    #[inline]
    pub fn take_out(&mut self, channel: u32, now: u64, ready: u64, units: u32) -> u64 {
        self.channels[channel as usize].reserve(now, ready, u64::from(units) * self.bus_unit_ns)
    }

    /// Erases this die's part of a superblock. Returns the end.
    pub fn erase(&mut self, die: u32, now: u64, busy: &mut BusyTime) -> u64 {
        let die = &mut self.dies[die as usize];
        die.free_at = die.free_at.max(now) + self.t_erase_ns;
        busy.erase += self.t_erase_ns;
        die.free_at
    }

    /// When nothing is queued for any die.
    pub(crate) fn idle_at(&self) -> u64 {
        self.dies.iter().map(|die| die.free_at).max().unwrap_or(0)
    }

    #[inline]
    pub fn t_prog_ns(&self, at: Place) -> u64 {
        if at.slc { self.slc_t_prog_ns } else { self.t_prog_ns }
    }

    #[inline]
    fn t_read_ns(&self, at: Place) -> u64 {
        if at.slc { self.slc_t_read_ns } else { self.t_read_ns }
    }
}

/// A die and its channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub die: u32,
    pub channel: u32,
    /// Whether what is there is in SLC mode.
    pub slc: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_is_ready_earlier_takes_the_gap() {
        let mut bus = Calendar::default();
        assert_eq!(bus.reserve(0, 100, 10), 110);
        assert_eq!(bus.reserve(0, 0, 40), 40);
        assert_eq!(bus.reserve(0, 0, 40), 80);
        // 20 ns are left before 100; too short, so behind the first one.
        assert_eq!(bus.reserve(0, 0, 30), 140);
        assert_eq!(bus.reserve(0, 0, 20), 100);
        assert_eq!(bus.reserve(0, 0, 1), 141);
    }

    #[test]
    fn a_gap_splits_on_both_sides() {
        let mut bus = Calendar::default();
        assert_eq!(bus.reserve(0, 100, 10), 110);
        assert_eq!(bus.reserve(0, 50, 10), 60);
        assert_eq!(bus.reserve(0, 0, 50), 50);
        assert_eq!(bus.reserve(0, 0, 40), 100);
    }

    #[test]
    fn a_gap_in_the_past_is_gone() {
        let mut bus = Calendar::default();
        bus.reserve(0, 100, 10);
        assert_eq!(bus.reserve(100, 100, 10), 120);
    }
}
