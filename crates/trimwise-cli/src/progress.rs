//! A progress bar for whoever waits: on a terminal only, and only where there is something to wait for.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::runner::Report;

/// A bar is drawn once a command has run this long; shorter ones would only flicker.
const DRAWN_AFTER: Duration = Duration::from_secs(2);

/// Steps that one run counts for.
const STEPS: u64 = 1000;

/// How far the runs of a command are.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    shown: bool,
    began: Instant,
    drawn: AtomicBool,
    runs: Vec<AtomicU64>,
}

impl Progress {
    /// Progress over `runs` runs, drawn on standard error if that is a terminal.
    pub fn new(runs: usize) -> Arc<Self> {
        let bar = ProgressBar::with_draw_target(Some(runs as u64 * STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} [{bar:40}] {percent:>3} %  {msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Arc::new(Self {
            bar,
            shown: std::io::stderr().is_terminal() && !dumb,
            began: Instant::now(),
            drawn: AtomicBool::new(false),
            runs: (0..runs).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Notes that `done` of `total` of one run is done.
    pub fn update(&self, run: usize, done: u64, total: u64) {
        let Some(share) = self.runs.get(run) else { return };
        let steps = (u128::from(done) * u128::from(STEPS)).checked_div(u128::from(total)).unwrap_or(0);
        share.store((steps as u64).min(STEPS), Ordering::Relaxed);
        if !self.shown || self.began.elapsed() < DRAWN_AFTER {
            return;
        }
        if !self.drawn.swap(true, Ordering::Relaxed) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(self.steps());
        let whole = self.runs.iter().filter(|r| r.load(Ordering::Relaxed) == STEPS).count();
        self.bar.set_message(format!("{whole} of {} runs", self.runs.len()));
    }

    /// What the run of this number calls while it goes on.
    pub fn report(self: &Arc<Self>, run: usize) -> Report {
        let progress = Arc::clone(self);
        Arc::new(move |done, total| progress.update(run, done, total))
    }

    /// Notes that a run is done.
    pub fn done(&self, run: usize) {
        self.update(run, 1, 1);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn steps(&self) -> u64 {
        self.runs.iter().map(|r| r.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_counts_the_same_whatever_its_own_total() {
        let p = Progress::new(2);
        p.update(0, 5, 10);
        p.update(1, 1_000_000, 4_000_000);
        assert_eq!(p.steps(), 750);
        p.update(1, 3, 0); // a run that does not know how long it is
        p.update(0, 9, 3); // or has done more than it thought
        p.done(7); // or is not there
        assert_eq!(p.steps(), 1000);
    }
}
