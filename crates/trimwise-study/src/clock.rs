//! How long runs on a kernel may take, announced before they start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trimwise::numbers::counted;

use crate::caller::Caller;

/// Minimum duration worth announcing.
const WORTH_TELLING_S: f64 = 10.0;

/// Announces how long runs may take: first from the expected time, then from the time of the first run.
#[derive(Debug)]
pub struct Clock {
    /// Runs in parallel.
    pub jobs: usize,
    count: usize,
    /// Expected mean time of a run.
    mean: Duration,
    begun: Instant,
    is_told: AtomicBool,
}

impl Clock {
    /// Starts the clock and announces the time for `count` runs of about `mean` each, `jobs` in parallel.
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

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Corrects the first estimate once a run that was expected to take `expected` has taken `first`.
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

fn about(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}
