//! The one who asked: what a run tells while it works, and how it is told to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use trimwise::failure::Failure;

/// Progress callback: how much is done, of how much.
pub type Report = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Shows progress and notes to whoever asked, and asks for a stop. The command does so on a terminal, the Python package
/// in the interpreter.
pub trait Caller: Sync {
    /// Begins to show how far `runs` runs are; `what` is what they are called, such as `cells`.
    fn progress(&self, runs: usize, what: &str) -> Arc<dyn Progress>;

    /// Returns the flag that is raised when the run should stop. `how` says what happens then, so that a person can be
    /// told.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of the run if a stop cannot be noticed.
    fn stop(&self, how: OnInterrupt) -> Result<Arc<AtomicBool>, Failure>;

    /// Tells a note that is no part of the result, such as what was left out of a workload.
    fn note(&self, text: &str);
}

/// How far the runs of a request are.
pub trait Progress: Send + Sync {
    /// Notes that a run starts by ageing its file system, which reports no steps.
    fn begin_ageing(&self, run: usize);
    /// Notes that `done` of `total` steps of one run are done.
    fn update(&self, run: usize, done: u64, total: u64);
    /// Shows what is being done now.
    fn say(&self, what: String);
    /// Ends the display.
    fn finish(&self);

    /// Notes that a run is done.
    fn done(&self, run: usize) {
        self.update(run, 1, 1);
    }
}

/// Returns the callback through which a run reports its steps.
pub fn report(progress: &Arc<dyn Progress>, run: usize) -> Report {
    let progress = Arc::clone(progress);
    Arc::new(move |done, total| progress.update(run, done, total))
}

/// What an interrupt (Ctrl-C) does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInterrupt {
    /// End at once.
    Exit,
    /// Raise the flag and let the run clean up.
    Stop,
    /// Raise the flag and let the current step end; the second time, end at once.
    StopAfterStep,
    /// Raise the flag and let the booted guests be ended; the second time, end at once.
    StopAfterRun,
    /// Raise the flag and let the command show what has finished; the second time, end at once.
    StopAndShow,
    /// Raise the flag; what it waits for goes on. The second time, end at once.
    StopWaiting,
}

/// A caller that shows nothing. It stops a run by a flag of its own.
#[derive(Clone, Debug, Default)]
pub struct Silent {
    /// Raised to stop the run.
    pub stop: Arc<AtomicBool>,
}

impl Caller for Silent {
    fn progress(&self, _: usize, _: &str) -> Arc<dyn Progress> {
        Arc::new(Unshown)
    }

    fn stop(&self, _: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        Ok(Arc::clone(&self.stop))
    }

    fn note(&self, _: &str) {}
}

struct Unshown;

impl Progress for Unshown {
    fn begin_ageing(&self, _: usize) {}
    fn update(&self, _: usize, _: u64, _: u64) {}
    fn say(&self, _: String) {}
    fn finish(&self) {}
}
