//! The caller of a run: it shows progress and can stop the run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trimwise::failure::Failure;

/// Progress callback, called with the number of steps done and the total.
pub type Report = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// A clock that returns the time since it was started.
pub type Elapsed = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Shows progress and notes to whoever asked for a run, and can stop it. The command uses the terminal, the Python
/// package the interpreter.
pub trait Caller: Sync {
    /// Starts a progress display for `runs` runs. `what` names them, such as `cells`.
    fn progress(&self, runs: usize, what: &str) -> Arc<dyn Progress>;

    /// Returns the flag that is raised when the run should stop. `how` says what happens then, so that the caller can
    /// tell the user.
    ///
    /// # Errors
    ///
    /// A [`Failure`] if the caller cannot notice a stop.
    fn stop(&self, how: OnInterrupt) -> Result<Arc<AtomicBool>, Failure>;

    /// Shows a note that is not part of the result, such as what was left out of a workload.
    fn note(&self, text: &str);

    /// Starts a clock.
    fn elapsed(&self) -> Elapsed {
        let begun = Instant::now();
        Arc::new(move || begun.elapsed())
    }
}

pub trait Progress: Send + Sync {
    /// A run starts by ageing its file system, which reports no steps.
    fn begin_ageing(&self, run: usize);
    fn update(&self, run: usize, done: u64, total: u64);
    fn say(&self, what: String);
    fn finish(&self);

    /// Of all runs, at most `runs` are needed, and those that have not finished take this long if that is known.
    fn expect(&self, _runs: usize, _left: Option<Duration>) {}

    fn done(&self, run: usize) {
        self.update(run, 1, 1);
    }
}

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
    /// Raise the flag; the run cleans up.
    Stop,
    /// Raise the flag; the current step is completed. A second interrupt ends at once.
    StopAfterStep,
    /// Raise the flag; the booted guests are shut down. A second interrupt ends at once.
    StopAfterRun,
    /// Raise the flag; the command shows what has finished. A second interrupt ends at once.
    StopAndShow,
    /// Raise the flag; whatever the run waits for continues. A second interrupt ends at once.
    StopWaiting,
}

/// A caller that shows nothing. Its own flag stops the run.
#[derive(Clone, Debug, Default)]
pub struct Silent {
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
