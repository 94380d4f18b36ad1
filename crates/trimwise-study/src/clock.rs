//! How long runs on a kernel may take, told before they begin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trimwise::numbers::counted;

use crate::caller::Caller;

/// Seconds that a person likes to know of before.
const WORTH_TELLING_S: f64 = 10.0;

/// Tells how long runs may take: before the first from what was expected, and then from the time of the first.
#[derive(Debug)]
pub struct Clock {
    /// Runs at a time.
    pub jobs: usize,
    count: usize,
    /// What a run takes, as it was expected, on average.
    mean: Duration,
    begun: Instant,
    is_told: AtomicBool,
}

impl Clock {
    /// Starts the clock, and tells how long `count` runs of about `mean` each may take, `jobs` at a time.
    pub fn of(caller: &dyn Caller, on: &str, (jobs, count): (usize, usize), mean: Duration) -> Self {
        let jobs = jobs.clamp(1, count.max(1));
        let all = mean.as_secs_f64() * count.div_ceil(jobs) as f64;
        if all >= WORTH_TELLING_S {
            caller.note(&format!(
                "{} on {on}, {jobs} at a time: roughly {}; Ctrl-C keeps finished runs",
                counted(count as u64, "run"),
                about(all)
            ));
        }
        Self { jobs, count, mean, begun: Instant::now(), is_told: AtomicBool::new(count <= jobs) }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Corrects the estimate of the start once a first run, expected to take `expected`, has taken `first`.
    pub fn tell_first(&self, caller: &dyn Caller, expected: Duration, first: Duration) {
        const WORTH_TELLING: Duration = Duration::from_secs(2);
        if first < WORTH_TELLING || self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let mean = first.as_secs_f64() * self.mean.as_secs_f64() / expected.as_secs_f64();
        let left = mean * (self.count.div_ceil(self.jobs) - 1) as f64;
        caller.note(&format!(
            "the first run took {:.0} s, so some {} are left",
            first.as_secs_f64(),
            about(left)
        ));
    }
}

/// A time in words.
fn about(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}
