use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;
use trimwise::units::SimTime;

/// Factor by which everything on an emulated drive takes longer than modelled: 1 is real time; at 10, a command that
/// takes 100 us on the modelled drive takes 1 ms, and an error of the host's timers weighs a tenth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeScale {
    millionths: NonZeroU64,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "'{given}' is not a time scale; expected a number from 0.001 to 1000, such as 10 for ten times slower"
)]
pub struct TimeScaleError {
    given: String,
}

impl TimeScale {
    const UNIT: u64 = 1_000_000;

    pub fn factor(self) -> f64 {
        self.millionths.get() as f64 / Self::UNIT as f64
    }

    fn modelled_ns(self, real_ns: u128) -> u64 {
        (real_ns * u128::from(Self::UNIT) / u128::from(self.millionths.get())) as u64
    }

    fn real_ns(self, modelled_ns: u64) -> u64 {
        (u128::from(modelled_ns) * u128::from(self.millionths.get()) / u128::from(Self::UNIT)) as u64
    }
}

impl Default for TimeScale {
    fn default() -> Self {
        Self { millionths: NonZeroU64::MIN.saturating_add(Self::UNIT - 1) }
    }
}

impl fmt::Display for TimeScale {
    /// Writes the factor in the form in which it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.factor().fmt(f)
    }
}

impl FromStr for TimeScale {
    type Err = TimeScaleError;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let factor = given.parse::<f64>().ok().filter(|factor| (0.001..=1000.0).contains(factor));
        let millionths =
            factor.and_then(|factor| NonZeroU64::new((factor * Self::UNIT as f64).round() as u64));
        millionths
            .map(|millionths| Self { millionths })
            .ok_or_else(|| TimeScaleError { given: given.to_owned() })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    begin: Instant,
    scale: TimeScale,
}

impl Clock {
    /// Creates a clock that starts at zero.
    pub fn new(scale: TimeScale) -> Self {
        Self { begin: Instant::now(), scale }
    }

    pub fn now(&self) -> SimTime {
        SimTime(self.scale.modelled_ns(self.begin.elapsed().as_nanos()))
    }

    pub(crate) fn instant(&self, time: SimTime) -> Instant {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        let wait = Duration::from_nanos(self.scale.real_ns(time.as_nanos()));
        self.begin + wait.min(YEAR)
    }
}

/// Replies that wait until they are due, and the thread that sends them.
///
/// A reply that is due, or due sooner than a thread could be woken, is sent at once by the caller: a drive that
/// takes no time needs no second thread.
#[derive(Debug)]
pub struct Completions {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    answers: BinaryHeap<Reverse<Waiter>>,
    /// A running number, so that replies due at the same time keep their order.
    sequence: u64,
    ended: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("answers", &self.answers.len()).finish_non_exhaustive()
    }
}

struct Waiter {
    due: Instant,
    sequence: u64,
    answer: Box<dyn FnOnce() + Send>,
}

impl PartialEq for Waiter {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Waiter {}
impl PartialOrd for Waiter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiter {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

/// Shorter waits are skipped: waking a thread takes longer.
const AT_ONCE: Duration = Duration::from_micros(5);

impl Completions {
    pub fn new() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("trimwise-answers".to_owned()).spawn(move || theirs.give())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn is_due(due: Instant) -> bool {
        due <= Instant::now() + AT_ONCE
    }

    /// Calls `answer` at `due`, from another thread unless it is due at once.
    pub fn at(&self, due: Instant, answer: impl FnOnce() + Send + 'static) {
        if Self::is_due(due) {
            return answer();
        }
        let mut waiting = self.shared.lock();
        waiting.sequence += 1;
        let sequence = waiting.sequence;
        let first = waiting.answers.peek().map(|Reverse(first)| first.due);
        waiting.answers.push(Reverse(Waiter { due, sequence, answer: Box::new(answer) }));
        if first.is_none_or(|first| due < first) {
            drop(waiting);
            self.shared.changed.notify_one();
        }
    }

    pub fn waiting(&self) -> usize {
        self.shared.lock().answers.len()
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread itself has reported any panic in an answer.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self) {
        // Timers of ordinary threads fire up to 50 us late on purpose, to save wake-ups. If that cannot be changed,
        // they stay as late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut waiting = self.lock();
        loop {
            let now = Instant::now();
            let due = waiting.answers.peek().map(|Reverse(first)| first.due);
            match due {
                Some(due) if due <= now || waiting.ended => {
                    let Some(Reverse(first)) = waiting.answers.pop() else { continue };
                    drop(waiting);
                    (first.answer)();
                    waiting = self.lock();
                }
                Some(due) => {
                    let slept = self.changed.wait_timeout(waiting, due - now);
                    waiting = slept.unwrap_or_else(PoisonError::into_inner).0;
                }
                None if waiting.ended => return,
                None => waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_scaled_clock_agrees_with_itself() {
        for scale in ["1", "0.001", "1000", "2.5"] {
            let scale: TimeScale = scale.parse().unwrap();
            for ns in [0, 1_000_000, 7_000_000_000, u64::MAX / 1000] {
                let there_and_back = scale.modelled_ns(scale.real_ns(ns).into());
                assert!(there_and_back.abs_diff(ns) <= 1000, "{scale:?} {ns} {there_and_back}");
            }
        }
        assert_eq!("10".parse::<TimeScale>().unwrap().real_ns(100_000), 1_000_000);
        assert_eq!(TimeScale::default(), "1".parse().unwrap());
        for refused in ["0", "-1", "1001", "0.0001", "NaN", "inf", "fast", ""] {
            let error = refused.parse::<TimeScale>().unwrap_err().to_string();
            assert!(error.contains("expected a number from 0.001 to 1000"), "{error}");
        }
        let clock = Clock::new(TimeScale::default());
        assert!(clock.instant(SimTime(u64::MAX)) > clock.begin + Duration::from_secs(1 << 24));
    }

    #[test]
    fn answers_come_in_the_order_of_their_instants_and_never_early() {
        let completions = Completions::new().unwrap();
        let (sender, receiver) = mpsc::channel();
        let begin = Instant::now();
        for ms in [30, 10, 20, 10, 0] {
            let (due, sender) = (begin + Duration::from_millis(ms), sender.clone());
            completions.at(due, move || sender.send((ms, Instant::now() + AT_ONCE >= due)).unwrap());
        }
        let order: Vec<_> = (0..5).map(|_| receiver.recv().unwrap()).collect();
        assert_eq!(order, [(0, true), (10, true), (10, true), (20, true), (30, true)]);
        assert_eq!(completions.waiting(), 0);
    }

    #[test]
    fn at_the_end_all_that_wait_are_answered() {
        let completions = Completions::new().unwrap();
        let (sender, receiver) = mpsc::channel();
        for i in 0..3 {
            let sender = sender.clone();
            completions.at(Instant::now() + Duration::from_secs(1000), move || sender.send(i).unwrap());
        }
        drop((completions, sender));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
