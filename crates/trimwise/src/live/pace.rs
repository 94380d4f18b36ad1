//! The size of slices, and the rest after each.
//!
//! A discard in flight cannot be stopped, and other writers may wait for it. So a slice is small enough to be expected
//! to meet the target duration: its bytes and extents shrink in proportion when one takes too long, and grow, at most
//! twofold, while there is room. After it comes a rest, in multiples of its duration: the slowest of a hundred requests
//! should not meet a slice, so others get 299 of 300 parts of the time. The rest is shorter if nothing else uses the
//! device, or if space must not wait any longer ([`Pace::rest_at_most`]).
//!
//! The effect of slices on others is measured with the device's own counters: the mean time of a request in seconds
//! with a slice, compared with that in seconds without. If it is worse by more than a tenth, slices halve and rests
//! double; otherwise both recover.

use crate::units::{Bytes, SimDuration, SimTime};

const BYTES_FIRST: Bytes = Bytes::mib(64);
/// Some drives take seconds for a discard of 16 GiB, without warning.
const BYTES_MAX: Bytes = Bytes::gib(8);
/// Below this the single command dominates the duration.
const BYTES_MIN: Bytes = Bytes::mib(1);
/// Extents of the first slice; each is at least one command. A drive that takes 12 ms per command, such as the modelled
/// drive of 2011, then takes no longer for the first slice than for any other. Slower ones exist: vendor 2 of
/// `postmark-vendors` takes 80 ms.
const EXTENTS_FIRST: u64 = 8;
/// Maximum number of ranges sent to a helper at once.
const EXTENTS_MAX: u64 = 1024;
/// Harm: requests slower than the untouched baseline by this much, in tenths, and by this much in absolute terms, since
/// requests of a few microseconds vary by a tenth anyway.
const HARM_TENTHS: u64 = 1;
const HARM_LEAST: SimDuration = SimDuration::from_micros(50);
/// The rest after a slice, in multiples of its duration: fewer than one in a hundred requests meets a slice, with a
/// margin.
const REST: u64 = 299;
/// Maximum factor by which the rest grows, and slices shrink, where slices harm others.
const CARE_MAX: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub ended: SimTime,
    pub took: SimDuration,
    pub bytes: Bytes,
    pub extents: u64,
}

#[derive(Clone, Debug)]
pub struct Pace {
    target: SimDuration,
    bytes_max: Bytes,
    extents_max: u64,
    /// At least 1; more if slices harm others.
    care: u64,
    last: Option<Done>,
    rest_until: SimTime,
    untouched: Option<SimDuration>,
    touched: Option<SimDuration>,
}

impl Pace {
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

    /// Changes the target. Larger slices shrink after the next one is done.
    pub(crate) fn aim(&mut self, target: SimDuration) {
        self.target = target;
    }

    pub fn target(&self) -> SimDuration {
        self.target
    }

    /// Notes the mean time of a request in the last second, and whether a slice was in progress then.
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

    pub fn done(&mut self, done: Done) {
        let Done { ended, took, bytes, extents } = done;
        let target_ns = (self.target.as_nanos() / self.care).max(1);
        let took_ns = took.as_nanos().max(1);
        // The amount that would have met the target if this alone took the time.
        let fits = |n: u64| n.saturating_mul(target_ns / 1024 + 1) / (took_ns / 1024 + 1);
        if took_ns > target_ns {
            self.bytes_max = Bytes(fits(bytes.0)).clamp(BYTES_MIN, self.bytes_max);
            self.extents_max = fits(extents).clamp(1, self.extents_max);
        } else if took_ns < target_ns / 2 {
            // Only the limit that was reached grows.
            let grown = |n: u64, max: u64| {
                if n.saturating_mul(2) >= max { fits(n).clamp(max, max * 2) } else { max }
            };
            self.bytes_max = Bytes(grown(bytes.0, self.bytes_max.0)).min(BYTES_MAX);
            self.extents_max = grown(extents, self.extents_max).min(EXTENTS_MAX);
        }
        self.last = Some(done);
        self.rest_until = ended + took * self.rest_factor();
    }

    /// Notes that a slice failed or was given up: the next one is half as large. Returns true if it could not have been
    /// smaller.
    pub fn failed(&mut self) -> bool {
        let was_least = self.bytes_max <= BYTES_MIN;
        self.bytes_max = Bytes(self.bytes_max.0 / 2).max(BYTES_MIN);
        self.extents_max = (self.extents_max / 2).max(1);
        was_least
    }

    pub fn last(&self) -> Option<Done> {
        self.last
    }

    pub(crate) fn rest_at_most(&mut self, factor: u64) {
        if let Some(Done { ended, took, .. }) = self.last {
            self.rest_until = self.rest_until.min(ended + took * factor);
        }
    }

    pub(crate) fn rest_until(&self) -> SimTime {
        self.rest_until
    }

    pub fn bytes_max(&self) -> Bytes {
        self.bytes_max
    }

    pub fn extents_max(&self) -> u64 {
        self.extents_max
    }

    pub fn latencies(&self) -> (Option<SimDuration>, Option<SimDuration>) {
        (self.untouched, self.touched)
    }

    /// The rest after a slice while others use the device, in multiples of the slice's duration.
    pub(crate) fn rest_factor(&self) -> u64 {
        REST * self.care
    }

    pub(crate) fn is_harmful(&self) -> bool {
        let (Some(untouched), Some(touched)) = (self.untouched, self.touched) else { return false };
        touched > untouched + (untouched * HARM_TENTHS / 10) && touched > untouched + HARM_LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: SimDuration = SimDuration::from_millis(100);

    /// Settles the pace on a device with a cost per byte and per extent.
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
    fn slices_settle_at_the_target_on_any_device() {
        for (per_gib, per_extent) in [(400, 0), (2, 0), (400, 5), (1, 20)] {
            let of = |ms| SimDuration::from_millis(ms);
            let (pace, took) = settled(of(per_gib), of(per_extent));
            assert!(took <= TARGET * 11 / 10, "{per_gib} {per_extent}: {took:?} {pace:?}");
            assert!(took >= TARGET / 4 || pace.bytes_max() == BYTES_MAX, "{per_gib} {per_extent}: {took:?}");
        }
    }

    /// Growing to twice as many extents must not exceed the target.
    #[test]
    fn regression_after_a_short_slice_the_next_one_is_not_too_long() {
        let mut pace = Pace::new(TARGET);
        for waiting in [4, 16, 4, 100, 8, 100, 3, 100] {
            let extents = pace.extents_max().min(waiting);
            let took = SimDuration::from_millis(12) * extents;
            assert!(took <= TARGET, "{extents} extents of {waiting}");
            pace.done(Done { ended: SimTime::ZERO, took, bytes: Bytes::mib(extents), extents });
        }
    }

    #[test]
    fn a_failed_slice_is_followed_by_one_half_as_large() {
        let mut pace = Pace::new(TARGET);
        for (mib, extents) in [(64, 8), (32, 4), (16, 2), (8, 1), (4, 1), (2, 1)] {
            assert_eq!((pace.bytes_max(), pace.extents_max()), (Bytes::mib(mib), extents));
            assert!(!pace.failed(), "{mib} MiB");
        }
        assert_eq!((pace.bytes_max(), pace.failed()), (Bytes::mib(1), true));
        assert_eq!((pace.bytes_max(), pace.extents_max()), (Bytes::mib(1), 1));
    }

    #[test]
    fn harm_lengthens_the_rest_and_shrinks_slices_until_it_ends() {
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
