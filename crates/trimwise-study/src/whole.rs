//! All runs of a command, of all its stages: one count that only shrinks, and the time left.
//!
//! A command of several stages announces all its runs at the start, at most as many as there can be, and lowers the
//! number as it learns which it needs. Each stage shows its runs in the one display, through a [`Part`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trimwise::failure::Failure;
use trimwise::numbers::counted;

use crate::caller::{Caller, Elapsed, OnInterrupt, Progress};

/// Minimum duration worth announcing.
const WORTH_TELLING: Duration = Duration::from_secs(10);

/// Runs that take about the same time.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Maximum number of runs that have yet to start.
    pub most: usize,
    /// Runs in parallel.
    pub jobs: usize,
    /// Expected mean time of a run, before any has finished; `None` if nothing is known.
    pub expected: Option<Duration>,
    /// Time of the command after which no more of these runs start.
    pub until: Option<Duration>,
}

impl Kind {
    pub const fn of(most: usize, jobs: usize) -> Self {
        Self { most, jobs, expected: None, until: None }
    }

    pub const fn expecting(self, mean: Duration) -> Self {
        Self { expected: Some(mean), ..self }
    }
}

/// A kind with its runs so far.
#[derive(Debug)]
struct Runs {
    kind: Kind,
    /// Runs under way: number in the display, and when it began.
    under_way: Vec<(usize, Duration)>,
    /// Finished runs, without those of an earlier command.
    ended: u32,
    took: Duration,
}

#[derive(Debug)]
struct Work {
    kinds: Vec<Runs>,
    /// Runs that have finished, here or in an earlier command.
    done: usize,
    /// Numbers given out in the display.
    numbered: usize,
}

impl Work {
    fn of(kinds: &[Kind]) -> Self {
        let of = |&kind: &Kind| Runs { kind, under_way: Vec::new(), ended: 0, took: Duration::ZERO };
        Self { kinds: kinds.iter().map(of).collect(), done: 0, numbered: 0 }
    }

    fn total(&self) -> usize {
        self.done + self.kinds.iter().map(|of| of.kind.most + of.under_way.len()).sum::<usize>()
    }

    fn begin(&mut self, kind: usize, number: usize, now: Duration) {
        let of = &mut self.kinds[kind];
        if of.under_way.iter().all(|(other, _)| *other != number) {
            of.kind.most = of.kind.most.saturating_sub(1);
            of.under_way.push((number, now));
        }
    }

    fn end(&mut self, kind: usize, number: usize, now: Duration) {
        let of = &mut self.kinds[kind];
        self.done += 1;
        match of.under_way.iter().position(|(other, _)| *other == number) {
            Some(place) => {
                of.took += now.saturating_sub(of.under_way.swap_remove(place).1);
                of.ended += 1;
            }
            None => of.kind.most = of.kind.most.saturating_sub(1),
        }
    }

    /// Estimates the time left, for the maximum number of runs; `None` while nothing is known about some of them.
    fn left(&self, now: Duration) -> Option<Duration> {
        let mut left = Duration::ZERO;
        for of in self.kinds.iter().filter(|of| of.kind.most + of.under_way.len() > 0) {
            let ages: Vec<Duration> =
                of.under_way.iter().map(|(_, begun)| now.saturating_sub(*begun)).collect();
            let oldest = ages.iter().max().copied().unwrap_or_default();
            let mean = self.mean(of)?.max(if of.ended == 0 { oldest } else { Duration::ZERO });
            let rest: Vec<Duration> = ages.iter().map(|age| mean.saturating_sub(*age)).collect();
            let jobs = of.kind.jobs.clamp(1, of.kind.most + ages.len());
            let all = (rest.iter().sum::<Duration>() + mean * of.kind.most as u32) / jobs as u32;
            let takes = all.max(rest.iter().max().copied().unwrap_or_default());
            left += of.kind.until.map_or(takes, |until| takes.min(until.saturating_sub(now + left)));
        }
        Some(left)
    }

    /// Returns the mean time of a kind's runs: the measured one, or else the expected one, corrected by how fast other
    /// kinds were.
    fn mean(&self, of: &Runs) -> Option<Duration> {
        if of.ended > 0 {
            return Some(of.took / of.ended);
        }
        let expected = of.kind.expected?;
        let ran = self.kinds.iter().filter_map(|of| Some((of.kind.expected? * of.ended, of.took)));
        let (expected_all, took) =
            ran.fold(Default::default(), |(a, b): (Duration, Duration), (x, y)| (a + x, b + y));
        let speed =
            if expected_all.is_zero() { 1.0 } else { took.as_secs_f64() / expected_all.as_secs_f64() };
        Some(expected.mul_f64(speed))
    }
}

/// The work of a command, and its display.
pub struct Whole<'a> {
    caller: &'a dyn Caller,
    stop: Arc<AtomicBool>,
    shown: Arc<Shown>,
    is_announced: AtomicBool,
}

struct Shown {
    display: Arc<dyn Progress>,
    elapsed: Elapsed,
    work: Mutex<Work>,
    /// The least time left that was told.
    least: Mutex<Option<Duration>>,
}

impl Shown {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Work, Duration)) {
        let now = (self.elapsed)();
        let mut work = self.work();
        change(&mut work, now);
        self.display.expect(work.total(), work.left(now));
    }
}

impl<'a> Whole<'a> {
    /// Starts the display of all runs of these kinds, called `what`.
    pub fn of(caller: &'a dyn Caller, stop: &Arc<AtomicBool>, what: &str, kinds: &[Kind]) -> Self {
        let work = Work::of(kinds);
        let display = caller.progress(work.total(), what);
        let shown = Arc::new(Shown {
            display,
            elapsed: caller.elapsed(),
            work: Mutex::new(work),
            least: Mutex::default(),
        });
        Self { caller, stop: Arc::clone(stop), shown, is_announced: AtomicBool::new(false) }
    }

    /// Returns the flag that is raised when the command should stop.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Returns a caller for one stage, whose runs are of this kind.
    pub fn part(&self, kind: usize) -> Part<'_> {
        Part { whole: self, kind }
    }

    /// Lowers the maximum number of runs of each kind that have yet to start.
    pub fn expect(&self, most: &[usize]) {
        self.shown.change(|work, _| {
            work.kinds.iter_mut().zip(most).for_each(|(of, most)| of.kind.most = *most);
        });
    }

    /// Returns the number of finished runs, and of all at most.
    pub fn counts(&self) -> (usize, usize) {
        let work = self.shown.work();
        (work.done, work.total())
    }

    pub fn elapsed(&self) -> Duration {
        (self.shown.elapsed)()
    }

    pub fn left(&self) -> Option<Duration> {
        self.shown.work().left(self.elapsed())
    }

    /// Returns the time left to tell, never more than was told before.
    pub fn left_to_tell(&self) -> Option<Duration> {
        let mut least = self.shown.least.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.left()?;
        *least = Some(least.map_or(left, |least| least.min(left)));
        *least
    }

    /// Announces once how long the runs on a kernel may take, if that is worth telling. They are those with an expected
    /// time.
    pub fn announce(&self, on: &str) {
        let work = self.shown.work();
        let kinds: Vec<Kind> =
            work.kinds.iter().map(|of| of.kind).filter(|kind| kind.expected.is_some()).collect();
        drop(work);
        let Some(left) = self.left_to_tell().filter(|left| *left >= WORTH_TELLING) else { return };
        if !self.is_announced.swap(true, Ordering::Relaxed) {
            let runs: usize = kinds.iter().map(|kind| kind.most).sum();
            let jobs = kinds.first().map_or(1, |kind| kind.jobs.clamp(1, runs.max(1)));
            let at_most = if kinds.iter().any(|kind| kind.until.is_some()) { "at most " } else { "" };
            self.caller.note(&format!(
                "{at_most}{} on {on}, {jobs} at a time: roughly {}; Ctrl-C keeps finished runs",
                counted(runs as u64, "run"),
                about(left)
            ));
        }
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        self.shown.display.finish();
    }
}

/// The caller of one stage, which shows its runs as part of the whole.
pub struct Part<'a> {
    whole: &'a Whole<'a>,
    kind: usize,
}

impl Caller for Part<'_> {
    fn progress(&self, runs: usize, _: &str) -> Arc<dyn Progress> {
        let mut work = self.whole.shown.work();
        let first = work.numbered;
        work.numbered += runs;
        Arc::new(Stage { shown: Arc::clone(&self.whole.shown), kind: self.kind, first })
    }

    fn stop(&self, _: OnInterrupt) -> Result<Arc<AtomicBool>, Failure> {
        Ok(Arc::clone(&self.whole.stop))
    }

    fn note(&self, text: &str) {
        self.whole.caller.note(text);
    }
}

struct Stage {
    shown: Arc<Shown>,
    kind: usize,
    /// Number of its first run in the display.
    first: usize,
}

impl Progress for Stage {
    fn begin_ageing(&self, run: usize) {
        self.shown.change(|work, now| work.begin(self.kind, self.first + run, now));
        self.shown.display.begin_ageing(self.first + run);
    }

    fn update(&self, run: usize, done: u64, total: u64) {
        let number = self.first + run;
        self.shown.display.update(number, done, total);
        if done == 0 {
            self.shown.change(|work, now| work.begin(self.kind, number, now));
        }
    }

    fn done(&self, run: usize) {
        let number = self.first + run;
        self.shown.display.done(number);
        self.shown.change(|work, now| work.end(self.kind, number, now));
    }

    fn say(&self, what: String) {
        self.shown.display.say(what);
    }

    /// The display ends with the whole.
    fn finish(&self) {}
}

/// Formats a duration roughly.
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_time_left_is_that_of_all_stages_from_the_start() {
        // Four runs on the model, then two on a kernel, each two at a time.
        let mut work = Work::of(&[Kind::of(4, 2), Kind::of(2, 2).expecting(seconds(60))]);
        work.begin(0, 0, seconds(0));
        assert_eq!((work.total(), work.left(seconds(1))), (6, None), "nothing is known of the model");
        work.end(0, 0, seconds(10));
        // Three of 10 s by two, and 60 s.
        assert_eq!((work.total(), work.left(seconds(10))), (6, Some(seconds(15 + 60))));
        work.begin(0, 1, seconds(10));
        work.begin(0, 2, seconds(10));
        assert_eq!(work.left(seconds(14)), Some(seconds((6 + 6 + 10) / 2 + 60)));
        work.end(0, 1, seconds(20));
        work.end(0, 2, seconds(20));
        // The last run of the model turns out not to be needed.
        work.kinds[0].kind.most = 0;
        assert_eq!((work.total(), work.left(seconds(20))), (5, Some(seconds(60))));
        // The first run on the kernel takes longer than expected, and then the other is expected to take as long.
        work.begin(1, 4, seconds(20));
        assert_eq!(work.left(seconds(110)), Some(seconds(90 / 2)));
        work.end(1, 4, seconds(110));
        assert_eq!((work.done, work.total(), work.left(seconds(110))), (4, 5, Some(seconds(90))));
    }

    #[test]
    fn runs_of_an_earlier_command_count_as_done_and_tell_nothing_about_speed() {
        let mut work = Work::of(&[Kind::of(3, 1).expecting(seconds(30))]);
        work.end(0, 0, seconds(0));
        assert_eq!((work.done, work.total(), work.left(seconds(0))), (1, 3, Some(seconds(60))));
    }

    #[test]
    fn a_budget_bounds_the_time_but_not_that_of_the_runs_that_are_certain() {
        let budget = |budget| Kind { until: Some(seconds(budget)), ..Kind::of(10, 2).expecting(seconds(20)) };
        let certain = Kind::of(4, 2).expecting(seconds(20));
        let left = |minutes: u64| Work::of(&[certain, budget(minutes * 60)]).left(seconds(0));
        assert_eq!([0, 1, 10].map(left), [Some(seconds(40)), Some(seconds(60)), Some(seconds(140))]);
        // What is not measured yet is corrected by what is: these take twice as long as expected.
        let mut work = Work::of(&[certain, budget(600)]);
        work.begin(0, 0, seconds(0));
        work.end(0, 0, seconds(40));
        assert_eq!(work.left(seconds(40)), Some(seconds(3 * 40 / 2 + 10 * 40 / 2)));
    }
}
