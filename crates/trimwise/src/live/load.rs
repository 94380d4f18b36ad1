//! The activity of a file system and its device, from sample to sample.

use super::Sample;
use crate::policy::set::Trend;
use crate::units::{Bytes, SimDuration, SimTime};

/// A device with at most this many requests per second counts as idle, since every host writes logs.
const IDLE_REQUESTS_PER_SECOND: u64 = 5;
/// Window of the trend shown to the user.
const TREND_WINDOW: SimDuration = SimDuration::from_secs(600);

pub(super) struct Load {
    pub sample: Sample,
    pub sampled_at: SimTime,
    pub trend: Trend,
    /// Bytes freed so far, as far as can be seen: reported, or from used space that fell between two samples.
    pub freed: Bytes,
    pub quiet: SimDuration,
    pub alone: SimDuration,
    /// A slice was in progress since the last sample.
    pub touched: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub mean: SimDuration,
    pub touched: bool,
}

impl Load {
    pub(super) fn new(first: Sample, now: SimTime) -> Self {
        Self {
            sample: first,
            sampled_at: now,
            trend: Trend::new(TREND_WINDOW),
            freed: Bytes(0),
            quiet: SimDuration::ZERO,
            alone: SimDuration::ZERO,
            touched: false,
        }
    }

    /// Takes over a sample, and how many bytes were reported as freed since the previous one. Returns the previous
    /// sample, and the time between the two.
    pub(super) fn take(&mut self, now: SimTime, sample: Sample, reported: u64) -> (Sample, SimDuration) {
        // Take the time between samples, not between calls: requests are counted from sample to sample.
        let interval = now.since(std::mem::replace(&mut self.sampled_at, now));
        let before = std::mem::replace(&mut self.sample, sample);
        let fallen = before.used.0.saturating_sub(sample.used.0);
        self.freed.0 = self.freed.0.saturating_add(fallen.max(reported));
        self.trend.observe(now, sample.used.units_floor(), self.freed.units_floor());
        (before, interval)
    }

    /// Evaluates the requests since the sample `before`. `is_trimming` says that a slice is in progress now. Returns
    /// their mean time, if there were any.
    pub(super) fn see_requests(
        &mut self,
        before: &Sample,
        interval: SimDuration,
        is_trimming: bool,
    ) -> Option<Latency> {
        let served = self.sample.served.since(&before.served);
        let done = served.requests;
        let touched = std::mem::replace(&mut self.touched, is_trimming);
        self.alone = if done == 0 { self.alone + interval } else { SimDuration::ZERO };
        let few = done.saturating_mul(1_000_000_000)
            <= interval.as_nanos().saturating_mul(IDLE_REQUESTS_PER_SECOND);
        // During a slice, requests in the device are the slice's own.
        if few && (touched || self.sample.in_flight == 0) {
            self.quiet += interval;
        } else {
            self.quiet = SimDuration::ZERO;
        }
        (done > 0).then(|| Latency { mean: served.time / done, touched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Served;

    #[test]
    fn what_is_in_the_device_is_of_others_unless_a_slice_runs() {
        let second = SimDuration::from_secs(1);
        #[rustfmt::skip]
        let rows = [
            // a slice ran, requests that ended, those in the device; seconds without and with few
            (false, 0, 0, 1, 1),
            (false, 5, 0, 0, 1),
            (false, 6, 0, 0, 0),
            (false, 0, 1, 1, 0),
            (true, 0, 1, 1, 1),
            (true, 5, 9, 0, 1),
            (true, 6, 0, 0, 0),
        ];
        for (touched, requests, in_flight, alone_s, quiet_s) in rows {
            let case = format!("a slice ran: {touched}, {requests} requests, {in_flight} in the device");
            let mut load = Load::new(Sample::default(), SimTime::ZERO);
            load.touched = touched;
            let served = Served { requests, time: second, ..Served::default() };
            let sample = Sample { served, in_flight, ..Sample::default() };
            let (before, interval) = load.take(SimTime::ZERO + second, sample, 0);
            let latency = load.see_requests(&before, interval, false);
            assert_eq!((load.alone, load.quiet), (second * alone_s, second * quiet_s), "{case}");
            assert_eq!(latency.map(|latency| latency.touched), (requests > 0).then_some(touched), "{case}");
            assert!(!load.touched, "{case}");
        }
    }
}
