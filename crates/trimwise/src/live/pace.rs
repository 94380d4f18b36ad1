//! How much at once, and how long a rest after it.
//!
//! A discard that is on its way cannot be stopped, and whoever writes meanwhile may wait for it. So a slice is small
//! enough to be expected to take no longer than the target: its bytes and its extents shrink by what the last one took
//! too long, and double while there is room. What that does to others is seen in the device's own counts: the mean time
//! of a request in seconds with a slice, beside that in untouched ones. If it is worse by more than a tenth, the rest
//! behind each slice doubles, in multiples of the slice's time; else it shrinks again.

use crate::units::{Bytes, SimDuration, SimTime};

/// The first slice: little on any device.
const BYTES_FIRST: Bytes = Bytes::mib(64);
/// Some drives take seconds for a discard of 16 GiB, and say nothing before.
const BYTES_MAX: Bytes = Bytes::gib(8);
/// Below this it is the single command that takes its time.
const BYTES_MIN: Bytes = Bytes::mib(1);
/// Extents of the first slice; each is at least one command.
const EXTENTS_FIRST: u64 = 16;
/// A helper is told so many ranges at once at most.
const EXTENTS_MAX: u64 = 1024;
/// Worse than the untouched baseline by this much, in tenths, counts as harm; and by so much in any case, since
/// requests of a few microseconds differ by a tenth for no reason.
const HARM_TENTHS: u64 = 1;
const HARM_LEAST: SimDuration = SimDuration::from_micros(50);
/// The longest rest, in multiples of a slice's time: a 65th of the time is used.
const REST_MAX: u64 = 64;

/// The pace of one file system's slices.
#[derive(Clone, Debug)]
pub struct Pace {
    target: SimDuration,
    bytes_max: Bytes,
    extents_max: u64,
    rest_factor: u64,
    rest_until: SimTime,
    untouched: Option<SimDuration>,
    touched: Option<SimDuration>,
}

impl Pace {
    /// Slices that are expected to take no longer than `target`.
    pub fn new(target: SimDuration) -> Self {
        Self {
            target,
            bytes_max: BYTES_FIRST,
            extents_max: EXTENTS_FIRST,
            rest_factor: 1,
            rest_until: SimTime::ZERO,
            untouched: None,
            touched: None,
        }
    }

    /// The mean time of a request in the last second, and whether a slice was under way in it.
    pub fn observe(&mut self, latency: SimDuration, touched: bool) {
        let smoothed = |mean: Option<SimDuration>, parts: u64| {
            mean.map_or(latency, |mean| (mean * (parts - 1) + latency) / parts)
        };
        if touched {
            self.touched = Some(smoothed(self.touched, 4));
            self.rest_factor = if self.is_harmful() {
                (self.rest_factor * 2).clamp(1, REST_MAX)
            } else {
                self.rest_factor.saturating_sub(1)
            };
        } else {
            self.untouched = Some(smoothed(self.untouched, 16));
        }
    }

    /// A slice is done.
    pub fn done(&mut self, now: SimTime, took: SimDuration, bytes: Bytes, extents: u64) {
        let (took_ns, target_ns) = (took.as_nanos().max(1), self.target.as_nanos().max(1));
        if took_ns > target_ns {
            let shrunk = |n: u64| n.saturating_mul(target_ns / 1024 + 1) / (took_ns / 1024 + 1);
            self.bytes_max = Bytes(shrunk(bytes.0)).clamp(BYTES_MIN, self.bytes_max);
            self.extents_max = shrunk(extents).clamp(1, self.extents_max);
        } else if took_ns < target_ns / 2 {
            // Only what was in the way grows.
            if bytes.0.saturating_mul(2) >= self.bytes_max.0 {
                self.bytes_max = Bytes(self.bytes_max.0 * 2).min(BYTES_MAX);
            }
            if extents.saturating_mul(2) >= self.extents_max {
                self.extents_max = (self.extents_max * 2).min(EXTENTS_MAX);
            }
        }
        self.rest_until = now + took * self.rest_factor;
    }

    /// Others pay for it: the rest is at least so many times as long as the slice.
    pub fn rest_at_least(&mut self, now: SimTime, took: SimDuration, factor: u64) {
        self.rest_until = self.rest_until.max(now + took * factor);
    }

    /// No slice before this instant.
    pub fn rest_until(&self) -> SimTime {
        self.rest_until
    }

    /// Nothing until then, whatever the rest would be.
    pub fn wait_until(&mut self, at: SimTime) {
        self.rest_until = self.rest_until.max(at);
    }

    /// The most bytes of the next slice.
    pub fn bytes_max(&self) -> Bytes {
        self.bytes_max
    }

    /// The most extents of the next slice.
    pub fn extents_max(&self) -> u64 {
        self.extents_max
    }

    /// Mean times of a request, untouched and beside slices, as far as they are known.
    pub fn latencies(&self) -> (Option<SimDuration>, Option<SimDuration>) {
        (self.untouched, self.touched)
    }

    /// The rest behind a slice, in multiples of its time.
    pub fn rest_factor(&self) -> u64 {
        self.rest_factor
    }

    /// Whether requests take longer beside slices than without.
    pub fn is_harmful(&self) -> bool {
        let (Some(untouched), Some(touched)) = (self.untouched, self.touched) else { return false };
        touched > untouched + (untouched * HARM_TENTHS / 10) && touched > untouched + HARM_LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: SimDuration = SimDuration::from_millis(100);

    /// A device with a price for each byte and each extent.
    fn settled(per_gib: SimDuration, per_extent: SimDuration) -> (Pace, SimDuration) {
        let mut pace = Pace::new(TARGET);
        let mut took = SimDuration::ZERO;
        for _ in 0..50 {
            let (bytes, extents) = (pace.bytes_max(), pace.extents_max());
            took = SimDuration::from_nanos(
                (u128::from(bytes.0) * u128::from(per_gib.0) / (1 << 30)) as u64 + per_extent.0 * extents,
            );
            pace.done(SimTime::ZERO, took, bytes, extents);
        }
        (pace, took)
    }

    #[test]
    fn slices_come_to_take_the_target_on_any_device() {
        for (per_gib, per_extent) in [(400, 0), (2, 0), (400, 5), (1, 20)] {
            let of = |ms| SimDuration::from_millis(ms);
            let (pace, took) = settled(of(per_gib), of(per_extent));
            assert!(took <= TARGET * 11 / 10, "{per_gib} {per_extent}: {took:?} {pace:?}");
            assert!(took >= TARGET / 4 || pace.bytes_max() == BYTES_MAX, "{per_gib} {per_extent}: {took:?}");
        }
    }

    #[test]
    fn harm_lengthens_the_rest_and_its_absence_shortens_it() {
        let mut pace = Pace::new(TARGET);
        let ms = SimDuration::from_millis;
        (0..20).for_each(|_| pace.observe(ms(1), false));
        (0..3).for_each(|_| pace.observe(ms(5), true));
        assert!(pace.is_harmful() && pace.rest_factor() == 8, "{pace:?}");
        pace.done(SimTime::ZERO, ms(10), Bytes::mib(1), 1);
        assert_eq!(pace.rest_until(), SimTime::ZERO + ms(80));
        (0..100).for_each(|_| pace.observe(ms(1), true));
        assert!(!pace.is_harmful() && pace.rest_factor() == 0, "{pace:?}");
    }
}
