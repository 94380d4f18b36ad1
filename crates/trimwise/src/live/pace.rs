//! How much at once, and how long a rest after it.
//!
//! A discard that is on its way cannot be stopped, and whoever writes meanwhile may wait for it. So a slice is small
//! enough to be expected to take no longer than the target: its bytes and its extents shrink by what the last one took
//! too long, and grow, twofold at most, while there is room. Behind it there is a rest, in multiples of its time: who asks how long the
//! slowest of a hundred requests takes must not find a slice in its way, so that others get 299 parts of 300 of the time.
//! Where nobody else is, and where space must not wait any longer, it is less ([`Pace::rest_at_most`]).
//!
//! What slices do to others is seen in the device's own counts: the mean time of a request in seconds with a slice, beside
//! that in untouched ones. If it is worse by more than a tenth, slices halve and rests double; else both go back again.

use crate::units::{Bytes, SimDuration, SimTime};

/// The first slice: little on any device.
const BYTES_FIRST: Bytes = Bytes::mib(64);
/// Some drives take seconds for a discard of 16 GiB, and say nothing before.
const BYTES_MAX: Bytes = Bytes::gib(8);
/// Below this it is the single command that takes its time.
const BYTES_MIN: Bytes = Bytes::mib(1);
/// Extents of the first slice; each is at least one command. A drive that takes 12 ms for one, as the modelled drive of 2011
/// does, then takes no longer for the first slice than for any other. There are slower ones: vendor 2 of `postmark-vendors`
/// takes 80 ms.
const EXTENTS_FIRST: u64 = 8;
/// A helper is told so many ranges at once at most.
const EXTENTS_MAX: u64 = 1024;
/// Worse than the untouched baseline by this much, in tenths, counts as harm; and by so much in any case, since
/// requests of a few microseconds differ by a tenth for no reason.
const HARM_TENTHS: u64 = 1;
const HARM_LEAST: SimDuration = SimDuration::from_micros(50);
/// The rest behind a slice, in multiples of its time: fewer than one of a hundred requests meet a slice, with room.
const REST: u64 = 299;
/// How many times longer it becomes where slices harm others, and how many times smaller the slices.
const CARE_MAX: u64 = 16;

/// A slice that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When it ended.
    pub ended: SimTime,
    /// How long it took.
    pub took: SimDuration,
    /// What was to be trimmed in it.
    pub bytes: Bytes,
    /// In so many extents.
    pub extents: u64,
}

/// The pace of one file system's slices.
#[derive(Clone, Debug)]
pub struct Pace {
    target: SimDuration,
    bytes_max: Bytes,
    extents_max: u64,
    /// From 1; more where slices harm others.
    care: u64,
    last: Option<Done>,
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
            care: 1,
            last: None,
            rest_until: SimTime::ZERO,
            untouched: None,
            touched: None,
        }
    }

    /// The next slices are expected to take no longer than this. What is larger than it allows shrinks when it is done.
    pub fn aim(&mut self, target: SimDuration) {
        self.target = target;
    }

    /// A slice is expected to take no longer.
    pub fn target(&self) -> SimDuration {
        self.target
    }

    /// The mean time of a request in the last second, and whether a slice was under way in it.
    pub fn observe(&mut self, latency: SimDuration, touched: bool) {
        let smoothed = |mean: Option<SimDuration>, parts: u64| {
            mean.map_or(latency, |mean| (mean * (parts - 1) + latency) / parts)
        };
        if touched {
            self.touched = Some(smoothed(self.touched, 4));
            self.care = if self.is_harmful() { self.care * 2 } else { self.care - 1 }.clamp(1, CARE_MAX);
        } else {
            self.untouched = Some(smoothed(self.untouched, 16));
        }
    }

    /// A slice is done.
    pub fn done(&mut self, done: Done) {
        let Done { ended, took, bytes, extents } = done;
        let target_ns = (self.target.as_nanos() / self.care).max(1);
        let took_ns = took.as_nanos().max(1);
        // As much as would have taken as long as the target, if all of the time was for this.
        let fits = |n: u64| n.saturating_mul(target_ns / 1024 + 1) / (took_ns / 1024 + 1);
        if took_ns > target_ns {
            self.bytes_max = Bytes(fits(bytes.0)).clamp(BYTES_MIN, self.bytes_max);
            self.extents_max = fits(extents).clamp(1, self.extents_max);
        } else if took_ns < target_ns / 2 {
            // Only what was in the way grows.
            let grown = |n: u64, max: u64| {
                if n.saturating_mul(2) >= max { fits(n).clamp(max, max * 2) } else { max }
            };
            self.bytes_max = Bytes(grown(bytes.0, self.bytes_max.0)).min(BYTES_MAX);
            self.extents_max = grown(extents, self.extents_max).min(EXTENTS_MAX);
        }
        self.last = Some(done);
        self.rest_until = ended + took * self.rest_factor();
    }

    /// A slice failed, or was given up: the next one is half as large. Answers whether it could not have been smaller.
    pub fn failed(&mut self) -> bool {
        let was_least = self.bytes_max <= BYTES_MIN;
        self.bytes_max = Bytes(self.bytes_max.0 / 2).max(BYTES_MIN);
        self.extents_max = (self.extents_max / 2).max(1);
        was_least
    }

    /// The last slice.
    pub fn last(&self) -> Option<Done> {
        self.last
    }

    /// The rest behind the last slice is so many times as long as that at most.
    pub fn rest_at_most(&mut self, factor: u64) {
        if let Some(Done { ended, took, .. }) = self.last {
            self.rest_until = self.rest_until.min(ended + took * factor);
        }
    }

    /// No slice before this instant.
    pub fn rest_until(&self) -> SimTime {
        self.rest_until
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

    /// The rest behind a slice beside others, in multiples of its time.
    pub fn rest_factor(&self) -> u64 {
        REST * self.care
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
            pace.done(Done { ended: SimTime::ZERO, took, bytes, extents });
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

    /// Room for twice as many extents is no room for more than take the target.
    #[test]
    fn regression_behind_a_short_slice_the_next_one_is_not_too_long() {
        let mut pace = Pace::new(TARGET);
        for waiting in [4, 16, 4, 100, 8, 100, 3, 100] {
            let extents = pace.extents_max().min(waiting);
            let took = SimDuration::from_millis(12) * extents;
            assert!(took <= TARGET, "{extents} extents of {waiting}");
            pace.done(Done { ended: SimTime::ZERO, took, bytes: Bytes::mib(extents), extents });
        }
    }

    #[test]
    fn harm_lengthens_the_rest_and_shrinks_slices_and_its_absence_takes_that_back() {
        let mut pace = Pace::new(TARGET);
        let ms = SimDuration::from_millis;
        (0..20).for_each(|_| pace.observe(ms(1), false));
        (0..3).for_each(|_| pace.observe(ms(5), true));
        assert!(pace.is_harmful() && pace.rest_factor() == 8 * REST, "{pace:?}");
        let done = |bytes, extents| Done { ended: SimTime::ZERO, took: ms(50), bytes, extents };
        pace.done(done(Bytes::mib(64), 16));
        assert_eq!(pace.rest_until(), SimTime::ZERO + ms(50 * 8 * REST));
        assert!((3..=4).contains(&pace.extents_max()) && pace.bytes_max() <= Bytes::mib(17), "{pace:?}");
        pace.done(done(Bytes::mib(16), 4));
        pace.rest_at_most(4);
        assert_eq!(pace.rest_until(), SimTime::ZERO + ms(200));
        pace.rest_at_most(u64::MAX);
        assert_eq!(pace.rest_until(), SimTime::ZERO + ms(200));
        (0..100).for_each(|_| pace.observe(ms(1), true));
        assert!(!pace.is_harmful() && pace.rest_factor() == REST, "{pace:?}");
    }
}
