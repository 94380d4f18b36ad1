//! Progress of commands that take a while: a bar on a terminal, or a line every now and then.
//!
//! A command of several stages says how many runs are needed and how long they take. For others the time left is
//! estimated from finished runs. Until the first has finished, it is estimated only if all runs have reported steps from
//! their start.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use trimwise_study::caller;

use crate::table::plain;

/// A bar appears once a command has run this long; for shorter ones it would only flicker.
const DRAWN_AFTER: Duration = Duration::from_secs(2);

/// Steps per run.
const STEPS: u64 = 1000;

/// How often the bar is drawn, so that it moves even while no run reports anything.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// How often a line is written without a terminal. The first is written as soon as the time left is known.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// The display that was started last.
static CURRENT: Mutex<Weak<Progress>> = Mutex::new(Weak::new());

/// Prints something above the bar, if there is one.
pub fn above(print: impl FnOnce()) {
    let current = CURRENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).upgrade();
    match current {
        Some(progress) => {
            let _drawn = progress.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            progress.bar.suspend(print);
        }
        None => print(),
    }
}

/// Progress of all runs of a command.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    runs: Vec<Run>,
    /// Number of runs that are needed.
    needed: AtomicUsize,
    /// The time left that the command told, and when.
    told: Mutex<Option<(Duration, Duration)>>,
    /// The least time left that was shown.
    least: Mutex<Option<Duration>>,
    /// What a run is called, such as `runs`.
    what: String,
    /// The current activity, if it is worth showing.
    note: Mutex<String>,
    since: Instant,
    /// Set once the bar is removed. Locked while anything is drawn.
    finished: Mutex<bool>,
}

/// Progress of one run.
#[derive(Debug, Default)]
struct Run {
    /// Whether the run is ageing its file system, which reports no progress.
    ageing: AtomicBool,
    steps: AtomicU64,
    /// When the run began and ended, since the command's start.
    span: Mutex<Span>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// Whether the run began with ageing, which its steps do not cover.
    aged: bool,
    begun: Option<Duration>,
    ended: Option<Duration>,
}

impl Run {
    fn span(&self) -> MutexGuard<'_, Span> {
        self.span.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Progress {
    /// Shows the progress of `runs` runs, called `what`, on standard error.
    pub fn of(runs: usize, what: &str) -> Arc<Self> {
        let bar = ProgressBar::with_draw_target(Some(runs as u64 * STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {elapsed_precise} [{bar:20}] {percent:>3} %  {wide_msg}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        let progress = Arc::new(Self {
            bar,
            runs: (0..runs).map(|_| Run::default()).collect(),
            needed: AtomicUsize::new(runs),
            told: Mutex::default(),
            least: Mutex::default(),
            // May contain the name of a user's file.
            what: plain(what),
            note: Mutex::default(),
            since: Instant::now(),
            finished: Mutex::new(false),
        });
        *CURRENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::downgrade(&progress);
        if !crate::output::is_quiet() {
            let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
            let show =
                if std::io::stderr().is_terminal() && !dumb { draw_while_there } else { tell_while_there };
            let weak = Arc::downgrade(&progress);
            // If the thread cannot be started, nothing is shown, but the runs continue.
            drop(std::thread::Builder::new().spawn(move || show(&weak)));
        }
        progress
    }

    fn steps(&self) -> u64 {
        self.runs.iter().map(|r| r.steps.load(Ordering::Relaxed)).sum()
    }

    fn message(&self) -> String {
        let whole = self.runs.iter().filter(|r| r.steps.load(Ordering::Relaxed) == STEPS).count();
        let of_runs = format!("{whole} of {} {}", self.needed.load(Ordering::Relaxed), self.what);
        let note = self.note.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match self.runs.iter().filter(|r| r.ageing.load(Ordering::Relaxed)).count() {
            0 if note.is_empty() => of_runs,
            0 => format!("{of_runs}, {note}"),
            ageing => format!("{of_runs}, {ageing} ageing"),
        }
    }

    /// Returns the time left as the command told it, or an estimate that assumes that each run takes as long as the
    /// finished ones did on average. `None` if all runs in progress have already taken longer than that.
    fn remaining(&self, elapsed: Duration) -> Option<Duration> {
        if let Some((left, at)) = *self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Some(left.saturating_sub(elapsed.saturating_sub(at))).filter(|left| !left.is_zero());
        }
        let spans: Vec<Span> = self.runs.iter().map(|run| *run.span()).collect();
        let ended: Vec<Duration> =
            spans.iter().filter_map(|span| Some(span.ended?.saturating_sub(span.begun?))).collect();
        let Some(mean) = ended.iter().sum::<Duration>().checked_div(ended.len() as u32) else {
            return self.remaining_by_steps(elapsed, &spans);
        };
        let under_way = spans.iter().filter(|span| span.ended.is_none()).filter_map(|span| span.begun);
        let left: Vec<Duration> =
            under_way.map(|begun| mean.saturating_sub(elapsed.saturating_sub(begun))).collect();
        let waiting = spans.iter().filter(|span| span.begun.is_none()).count() as u32;
        let all = left.iter().sum::<Duration>() + mean * waiting;
        let longest = left.iter().max().copied().unwrap_or_default();
        Some(longest.max(all / (left.len() as u32).max(1))).filter(|left| !left.is_zero())
    }

    /// Returns the time left to show, never more than was shown before.
    fn left(&self, elapsed: Duration) -> Option<Duration> {
        let mut least = self.least.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let left = self.remaining(elapsed)?;
        *least = Some(least.map_or(left, |least| least.min(left)));
        *least
    }

    /// Estimates the time left from steps, assuming a constant rate; `None` if any run began with ageing, which steps
    /// do not cover.
    fn remaining_by_steps(&self, elapsed: Duration, spans: &[Span]) -> Option<Duration> {
        let (steps, all) = (self.steps(), self.runs.len() as u64 * STEPS);
        // Below 1 %, an estimate is worthless.
        let known = steps * 100 >= all && steps > 0 && !spans.iter().any(|span| span.aged);
        known.then(|| elapsed.mul_f64((all - steps) as f64 / steps as f64))
    }

    /// Formats a line, for when no bar can be drawn.
    fn line(&self, elapsed: Duration) -> String {
        let left = self.left(elapsed).map_or(String::new(), |left| format!(", about {} left", clock(left)));
        format!("progress: {}, {} so far{left}", self.message(), clock(elapsed))
    }

    /// Draws the bar; returns whether it still exists.
    fn draw(&self) -> bool {
        let finished = self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*finished {
            self.bar.set_length(self.needed.load(Ordering::Relaxed) as u64 * STEPS);
            self.bar.set_position(self.steps());
            let left = self.left(self.since.elapsed());
            let left = left.map_or(String::new(), |left| format!(", {} left", clock(left)));
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
            *run.span() = Span { aged: true, begun: Some(self.since.elapsed()), ended: None };
        }
    }

    fn update(&self, run: usize, done: u64, total: u64) {
        let Some(run) = self.runs.get(run) else { return };
        let steps = (u128::from(done) * u128::from(STEPS)).checked_div(u128::from(total)).unwrap_or(0);
        run.ageing.store(false, Ordering::Relaxed);
        let steps = (steps as u64).min(STEPS);
        let mut span = run.span();
        span.begun.get_or_insert_with(|| self.since.elapsed());
        if steps == STEPS {
            span.ended.get_or_insert_with(|| self.since.elapsed());
        }
        run.steps.store(steps, Ordering::Relaxed);
    }

    fn say(&self, what: String) {
        *self.note.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = what;
    }

    fn expect(&self, runs: usize, left: Option<Duration>) {
        self.needed.store(runs, Ordering::Relaxed);
        let told = left.map(|left| (left, self.since.elapsed()));
        *self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = told;
    }

    fn finish(&self) {
        let mut finished = self.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Clearing it twice could erase what was printed in between.
        if !std::mem::replace(&mut *finished, true) {
            self.bar.finish_and_clear();
        }
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

/// Writes a line once the time left is known and long enough to matter, and then at regular intervals.
fn tell_while_there(progress: &Weak<Progress>) {
    let mut last: Option<Duration> = None;
    loop {
        std::thread::sleep(DRAWN_EVERY);
        let Some(progress) = progress.upgrade() else { return };
        let finished = progress.finished.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if *finished {
            return;
        }
        let elapsed = progress.since.elapsed();
        let is_due = elapsed >= last.unwrap_or_default() + LINE_EVERY;
        let is_first =
            last.is_none() && progress.remaining(elapsed).is_some_and(|left| left >= LINE_EVERY / 2);
        if is_due || is_first {
            eprintln!("{}", progress.line(elapsed));
            last = Some(elapsed);
        }
    }
}

/// Formats a time as hours, minutes and seconds.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
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
    fn without_an_ended_run_what_is_left_takes_as_long_as_what_is_done() {
        let p = Progress::of(2, "runs");
        let minute = Duration::from_secs(60);
        assert_eq!(p.remaining(minute), None);
        p.update(0, 5, 1000);
        assert_eq!(p.remaining(minute), None, "too early to tell");
        p.update(0, 1, 2);
        assert_eq!(p.remaining(minute), Some(minute * 3));
    }

    #[test]
    fn runs_that_are_left_take_as_long_as_those_that_have_ended() {
        let p = Progress::of(10, "runs");
        let seconds = Duration::from_secs;
        let span = |run: usize, begun, ended: Option<u64>| {
            *p.runs[run].span() = Span { aged: true, begun: Some(seconds(begun)), ended: ended.map(seconds) };
        };
        p.begin_ageing(0);
        p.update(0, 1, 2);
        assert_eq!(p.remaining(seconds(60)), None, "what ageing took is unknown");
        span(0, 0, Some(20));
        span(1, 0, Some(40));
        span(2, 40, None);
        span(3, 40, None);
        // Two runs under way for 10 of 30 s, six more of 30 s, two at a time.
        assert_eq!(p.remaining(seconds(50)), Some(seconds(20 + 6 * 30 / 2)));
        assert_eq!(p.line(seconds(50)), "progress: 0 of 10 runs, 0:00:50 so far, about 0:01:50 left");
        (4..10).for_each(|run| span(run, 40, Some(60)));
        // Means of 22.5 s; both are late.
        assert_eq!(p.line(seconds(70)), "progress: 0 of 10 runs, 0:01:10 so far");
    }

    #[test]
    fn a_command_that_says_what_is_left_is_believed() {
        let p = Progress::of(10, "runs");
        let seconds = Duration::from_secs;
        *p.runs[0].span() = Span { aged: true, begun: Some(seconds(0)), ended: Some(seconds(100)) };
        p.expect(7, Some(seconds(60)));
        assert_eq!(p.message(), "0 of 7 runs");
        *p.told.lock().unwrap() = Some((seconds(60), seconds(5)));
        assert_eq!(
            [seconds(5), seconds(25), seconds(65)].map(|at| p.remaining(at)),
            [Some(seconds(60)), Some(seconds(40)), None]
        );
        assert!(p.draw());
        assert_eq!(p.bar.length(), Some(7 * STEPS));
    }

    #[test]
    fn regression_the_time_left_never_grows() {
        let p = Progress::of(10, "runs");
        let seconds = Duration::from_secs;
        let left = |told: u64, at: u64| {
            *p.told.lock().unwrap() = Some((seconds(told), seconds(at)));
            p.left(seconds(at)).map(|left| left.as_secs())
        };
        let shown = [left(60, 0), left(2880, 10), left(90, 20), left(40, 30), left(41, 31)];
        assert_eq!(shown, [60, 60, 60, 40, 40].map(Some));
        assert!(p.line(seconds(32)).ends_with("about 0:00:40 left"), "{}", p.line(seconds(32)));
    }

    #[test]
    fn nothing_is_drawn_after_the_end() {
        let p = Progress::of(1, "runs");
        assert!(p.draw());
        p.finish();
        assert!(!p.draw());
    }
}
