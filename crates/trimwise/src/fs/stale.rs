//! Stale space: units that the file system has free and the device still holds valid.
//!
//! TRIM exists to remove that discrepancy. A stale unit costs the device a copy each time garbage collection meets it,
//! until the unit is allocated again, trimmed, or revealed by the oracle.

use crate::units::{SimTime, UnitRange};

#[derive(Clone, Debug, Default)]
pub(crate) struct StaleTracker {
    bits: Vec<u64>,
    now_units: u64,
    max_units: u64,
    recent_max_units: u64,
    /// Unit-nanoseconds since `since`; u128 holds 2^64 ns of 2^64 units.
    integral: u128,
    since: SimTime,
    last_change: SimTime,
}

impl StaleTracker {
    pub fn new(total_units: u64) -> Self {
        Self { bits: vec![0; total_units.div_ceil(64) as usize], ..Self::default() }
    }

    /// Notes that `range` became free. The units that the device holds valid are stale from now on.
    pub fn freed(&mut self, now: SimTime, range: UnitRange, is_mapped: impl Fn(u64) -> bool) {
        self.advance(now);
        for unit in range.start.0..range.end().0 {
            let (word, bit) = (unit as usize / 64, 1 << (unit % 64));
            if self.bits[word] & bit == 0 && is_mapped(unit) {
                self.bits[word] |= bit;
                self.now_units += 1;
            }
        }
    }

    pub fn allocated(&mut self, now: SimTime, range: UnitRange) {
        self.advance(now);
        for unit in range.start.0..range.end().0 {
            self.clear(unit);
        }
    }

    /// Notes that the device was told of `range`. Units that it still holds valid (granularity, faulty firmware) stay
    /// stale.
    pub fn told(&mut self, now: SimTime, range: UnitRange, is_mapped: impl Fn(u64) -> bool) {
        self.advance(now);
        for unit in range.start.0..range.end().0 {
            if !is_mapped(unit) {
                self.clear(unit);
            }
        }
    }

    pub fn units(&self) -> u64 {
        self.now_units
    }

    pub fn each(&self) -> impl Iterator<Item = u64> + '_ {
        self.bits.iter().enumerate().filter(|(_, bits)| **bits != 0).flat_map(|(word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u64 * 64 + bit)
        })
    }

    pub fn restart(&mut self, now: SimTime) {
        self.max_units = 0;
        self.recent_max_units = 0;
        self.integral = 0;
        self.since = now;
        self.last_change = now;
    }

    pub(crate) fn max_and_mean(&mut self, now: SimTime) -> (u64, f64) {
        self.advance(now);
        let span = now.since(self.since).as_nanos();
        let mean = if span == 0 { self.now_units as f64 } else { self.integral as f64 / span as f64 };
        (self.max_units, mean)
    }

    pub(crate) fn take_recent_max(&mut self, now: SimTime) -> u64 {
        self.advance(now);
        std::mem::take(&mut self.recent_max_units).max(self.now_units)
    }

    fn clear(&mut self, unit: u64) {
        let (word, bit) = (unit as usize / 64, 1 << (unit % 64));
        if self.bits[word] & bit != 0 {
            self.bits[word] &= !bit;
            self.now_units -= 1;
        }
    }

    /// Accounts for the time since the last change. Units that were stale for no time at all (freed and revealed at the
    /// same instant) never count.
    fn advance(&mut self, now: SimTime) {
        let elapsed_ns = now.since(self.last_change).as_nanos();
        if elapsed_ns > 0 {
            self.max_units = self.max_units.max(self.now_units);
            self.recent_max_units = self.recent_max_units.max(self.now_units);
            self.integral += u128::from(self.now_units) * u128::from(elapsed_ns);
            self.last_change = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Lpn;

    #[test]
    fn units_revealed_at_once_were_never_stale() {
        let mut s = StaleTracker::new(10);
        let r = UnitRange::new(Lpn(0), 10);
        s.freed(SimTime(5), r, |_| true);
        s.told(SimTime(5), r, |_| false);
        assert_eq!(s.max_and_mean(SimTime(10)), (0, 0.0));
    }

    #[test]
    fn what_the_device_keeps_although_it_was_told_stays_stale() {
        let mut s = StaleTracker::new(100);
        let r = UnitRange::new(Lpn(60), 10);
        s.freed(SimTime(5), r, |_| true);
        s.told(SimTime(6), r, |unit| unit < 63);
        assert_eq!((s.units(), s.each().collect::<Vec<_>>()), (3, vec![60, 61, 62]));
    }

    #[test]
    fn the_mean_is_weighted_by_time() {
        let mut s = StaleTracker::new(100);
        let r = UnitRange::new(Lpn(60), 10);
        s.freed(SimTime(100), r, |unit| unit % 2 == 0); // 5 of them are valid in the device
        assert_eq!(s.units(), 5);
        s.allocated(SimTime(300), UnitRange::new(Lpn(60), 2));
        s.told(SimTime(400), r, |_| false);
        assert_eq!(s.units(), 0);
        // What came and went between two samples is seen by the second.
        assert_eq!([s.take_recent_max(SimTime(900)), s.take_recent_max(SimTime(1000))], [5, 0]);
        let (max, mean) = s.max_and_mean(SimTime(1000));
        assert_eq!(max, 5);
        assert!((mean - (5.0 * 200.0 + 4.0 * 100.0) / 1000.0).abs() < 1e-12);
    }
}
