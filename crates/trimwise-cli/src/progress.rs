//! A progress bar, only on a terminal and only for commands that take a while.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use trimwise_study::caller;

/// A bar is drawn once a command has run this long; shorter ones would only flicker.
const DRAWN_AFTER: Duration = Duration::from_secs(2);

/// Steps per run.
const STEPS: u64 = 1000;

/// How often the bar is drawn, so that it moves even while no run reports anything.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// How far the runs of a command are.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    runs: Vec<Run>,
    /// What a run is called.
    what: &'static str,
    /// What is being done now, if worth telling.
    note: Mutex<String>,
    since: Instant,
    /// Set once the bar is removed; locked while it is drawn.
    finished: Mutex<bool>,
}

/// How far one run is.
#[derive(Debug, Default)]
struct Run {
    /// Whether it is ageing its file system, which reports no progress.
    ageing: AtomicBool,
    steps: AtomicU64,
}

impl Progress {
    /// Shows how far `runs` runs are, which are called `what`, on standard error if that is a terminal.
    pub fn of(runs: usize, what: &'static str) -> Arc<Self> {
        let bar = ProgressBar::with_draw_target(Some(runs as u64 * STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {elapsed_precise} [{bar:20}] {percent:>3} %  {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        let progress = Arc::new(Self {
            bar,
            runs: (0..runs).map(|_| Run::default()).collect(),
            what,
            note: Mutex::default(),
            since: Instant::now(),
            finished: Mutex::new(false),
        });
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        if std::io::stderr().is_terminal() && !dumb && !crate::output::is_quiet() {
            let weak = Arc::downgrade(&progress);
            // If its thread cannot start, there is no bar; the runs go on.
            drop(std::thread::Builder::new().spawn(move || draw_while_there(&weak)));
        }
        progress
    }

    fn steps(&self) -> u64 {
        self.runs.iter().map(|r| r.steps.load(Ordering::Relaxed)).sum()
    }

    fn message(&self) -> String {
        let whole = self.runs.iter().filter(|r| r.steps.load(Ordering::Relaxed) == STEPS).count();
        let of_runs = format!("{whole} of {} {}", self.runs.len(), self.what);
        let note = self.note.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match self.runs.iter().filter(|r| r.ageing.load(Ordering::Relaxed)).count() {
            0 if note.is_empty() => of_runs,
            0 => format!("{of_runs}, {note}"),
            ageing => format!("{of_runs}, {ageing} ageing"),
        }
    }

    /// Estimates the time left, assuming a constant rate.
    fn remaining(&self, elapsed: Duration) -> Option<Duration> {
        let (steps, all) = (self.steps(), self.runs.len() as u64 * STEPS);
        // Below a hundredth, an estimate is worthless.
        let known = steps * 100 >= all && steps > 0;
        known.then(|| elapsed.mul_f64((all - steps) as f64 / steps as f64))
    }

    /// Draws the bar; returns whether it still exists.
    fn draw(&self) -> bool {
        let finished = self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*finished {
            self.bar.set_position(self.steps());
            let left = self.remaining(self.since.elapsed()).map_or(String::new(), |left| {
                let seconds = left.as_secs();
                format!(", {}:{:02}:{:02} left", seconds / 3600, seconds / 60 % 60, seconds % 60)
            });
            self.bar.set_message(self.message() + &left);
            self.bar.tick();
        }
        !*finished
    }
}

impl caller::Progress for Progress {
    fn begin_ageing(&self, run: usize) {
        if let Some(run) = self.runs.get(run) {
            run.ageing.store(true, Ordering::Relaxed);
        }
    }

    fn update(&self, run: usize, done: u64, total: u64) {
        let Some(run) = self.runs.get(run) else { return };
        let steps = (u128::from(done) * u128::from(STEPS)).checked_div(u128::from(total)).unwrap_or(0);
        run.ageing.store(false, Ordering::Relaxed);
        run.steps.store((steps as u64).min(STEPS), Ordering::Relaxed);
    }

    fn say(&self, what: String) {
        *self.note.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = what;
    }

    fn finish(&self) {
        *self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.bar.finish_and_clear();
    }
}

fn draw_while_there(progress: &Weak<Progress>) {
    std::thread::sleep(DRAWN_AFTER);
    if let Some(progress) = progress.upgrade() {
        progress.bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    while progress.upgrade().is_some_and(|p| p.draw()) {
        std::thread::sleep(DRAWN_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use caller::Progress as _;

    use super::*;

    #[test]
    fn each_run_counts_the_same_whatever_its_own_total() {
        let p = Progress::of(2, "runs");
        p.update(0, 5, 10);
        p.update(1, 1_000_000, 4_000_000);
        assert_eq!(p.steps(), 750);
        p.update(1, 3, 0); // a run that does not know its length
        p.update(0, 9, 3); // one that did more than it announced
        p.done(7); // one that does not exist
        assert_eq!(p.steps(), 1000);
    }
    #[test]
    fn runs_that_age_are_told_until_they_report() {
        let p = Progress::of(3, "runs");
        assert_eq!(p.message(), "0 of 3 runs");
        p.begin_ageing(0);
        p.begin_ageing(1);
        assert_eq!(p.message(), "0 of 3 runs, 2 ageing");
        p.update(0, 1, 10);
        assert_eq!(p.message(), "0 of 3 runs, 1 ageing");
        p.done(1);
        assert_eq!(p.message(), "1 of 3 runs");
        p.say("6.1: download".to_string());
        assert_eq!(p.message(), "1 of 3 runs, 6.1: download");
    }

    #[test]
    fn what_is_left_takes_as_long_as_what_is_done() {
        let p = Progress::of(2, "runs");
        let minute = Duration::from_secs(60);
        assert_eq!(p.remaining(minute), None);
        p.update(0, 5, 1000);
        assert_eq!(p.remaining(minute), None, "too early to tell");
        p.update(0, 1, 2);
        assert_eq!(p.remaining(minute), Some(minute * 3));
        p.done(0);
        p.done(1);
        assert_eq!(p.remaining(minute), Some(Duration::ZERO));
    }

    #[test]
    fn nothing_is_drawn_after_the_end() {
        let p = Progress::of(1, "runs");
        assert!(p.draw());
        p.finish();
        assert!(!p.draw());
    }
}
