//! Days of work: a workload's operations spread over days and hours, with idle time between them.
//!
//! Any workload of files can be spread: before each operation of its own kind (a transaction, a put, a file of
//! PostMark) its task waits until that operation is due ([`Pacer`]). By the hourly rates ([`DayShape`]) the work of all
//! days is cut into n equal shares; operation k is due somewhere in share k, drawn at random, so that operations do not
//! keep step with timers. It is a closed loop: an operation that is late, because the one before it took long, starts
//! at once, and its latency counts from that start. How many were late, and how late, is counted.
//!
//! Between two operations, everything (the calls of one, and the work that it triggers) is done as fast as without
//! days. Background tasks, such as the compactions of `lsm`, follow the operations.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use super::lock;
use super::week::DAY;
use crate::content::mixed;
use crate::files::Files;
use crate::spelling::Accepted;
use crate::units::{SimDuration, SimTime};

const HOUR: SimDuration = SimDuration::from_secs(3_600);
pub const DAYS_MAX: u32 = 366;
/// Days begin and end at this hour, so that midnight, when sweeps are due, lies inside.
const NOON: u64 = 12;
/// Day of the week on which the run ends; Monday is 0.
const MONDAY: u64 = 0;
const WEEK_DAYS: u64 = 7;
const WEIGHT_MAX: u32 = 1_000_000;

/// Amount of work in each hour of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayShape {
    name: String,
    /// Weights of the hours from midnight, of weekdays and of weekends.
    weights: Box<[[u32; 24]; 2]>,
}

#[derive(Clone, Copy, Debug)]
pub struct NamedDay {
    pub name: &'static str,
    pub about: &'static str,
    pub source: &'static str,
    pub weekday: [u32; 24],
    pub weekend: [u32; 24],
}

/// The shape of most workloads: work at all hours, so that a sweep at midnight meets some.
pub const USUAL: &str = "server";
/// Stands for each application's usual shape.
pub(super) const OWN: &str = "own";

pub const NAMED: [NamedDay; 5] = [
    NamedDay {
        name: USUAL,
        about: "a service for people: most work in the evening, a third of that before dawn, weekends a little quieter",
        source: "assumed",
        weekday: [14, 11, 9, 8, 8, 9, 11, 14, 18, 20, 21, 21, 21, 21, 21, 21, 21, 22, 23, 24, 24, 23, 20, 17],
        weekend: [15, 12, 9, 8, 7, 7, 8, 10, 13, 16, 18, 19, 19, 19, 19, 19, 19, 20, 21, 22, 22, 21, 19, 16],
    },
    NamedDay {
        name: "office",
        about: "a workstation: 08:00 to 18:00 on weekdays with a lunch break; a trickle otherwise",
        source: "assumed",
        weekday: [1, 1, 1, 1, 1, 1, 2, 10, 50, 80, 80, 80, 40, 70, 80, 80, 80, 50, 15, 5, 3, 2, 1, 1],
        weekend: [1; 24],
    },
    NamedDay {
        name: "nightly",
        about: "batch jobs: five times as much from 01:00 to 05:00, also at weekends",
        source: "assumed; the factor is that of the experiment daemon-week",
        weekday: [1, 5, 5, 5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        weekend: [1, 5, 5, 5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    },
    NamedDay {
        name: "flat",
        about: "the same at all hours",
        source: "-",
        weekday: [1; 24],
        weekend: [1; 24],
    },
    NamedDay {
        name: OWN,
        about: "each workload's usual one, for several side by side",
        source: "-",
        weekday: [1; 24],
        weekend: [1; 24],
    },
];

impl From<&NamedDay> for DayShape {
    fn from(named: &NamedDay) -> Self {
        Self { name: named.name.to_owned(), weights: Box::new([named.weekday, named.weekend]) }
    }
}

impl FromStr for DayShape {
    type Err = String;

    /// Parses a name, or 24 weights for all days, or `24 weights/24 weights` for weekdays and weekends.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(named) = NAMED.iter().find(|named| named.name == text) {
            return Ok(named.into());
        }
        if !text.contains(',') {
            let names = NAMED.map(|named| named.name);
            let all = format!(
                "one of {}, or 24 weights from midnight, as in 1,1,...,5,1; for weekends 24 more after a /",
                names.join(", ")
            );
            return Err(format!("unknown day '{text}'; {}", Accepted::instead_of(text, names, all)));
        }
        let weights = |part: &str| -> Result<[u32; 24], String> {
            let parse = |(hour, number): (usize, &str)| {
                let weight = number.trim().parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
                weight.ok_or_else(|| {
                    format!(
                        "the weight '{number}' of hour {hour} is not a whole number from 0 to {WEIGHT_MAX}"
                    )
                })
            };
            let all = part.split(',').enumerate().map(parse).collect::<Result<Vec<u32>, String>>()?;
            let count = all.len();
            all.try_into()
                .map_err(|_| format!("{count} weights; expected 24, one for each hour from midnight"))
        };
        let (weekday, weekend) = text.split_once('/').unwrap_or((text, text));
        Ok(Self { name: text.to_owned(), weights: Box::new([weights(weekday)?, weights(weekend)?]) })
    }
}

impl fmt::Display for DayShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// A number of days that begin at noon and end on a Monday at noon. So each of them contains a midnight, when a daily
/// `fstrim.timer` sweeps, and the last contains that of Monday, when a weekly timer sweeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Days {
    days: u32,
    shape: DayShape,
    sums: Vec<u64>,
}

impl Days {
    /// Creates `days` days of this shape.
    ///
    /// # Errors A description of the problem: a number out of range, or no work on these days.
    pub fn new(days: u32, shape: DayShape) -> Result<Self, String> {
        if days == 0 || days > DAYS_MAX {
            return Err(format!("{days} days; expected 1 to {DAYS_MAX}"));
        }
        let mut sum = 0;
        let first = (MONDAY + WEEK_DAYS - u64::from(days) % WEEK_DAYS) % WEEK_DAYS;
        let hours = (NOON..NOON + 24 * u64::from(days)).map(|hour| {
            let is_weekend = (first + hour / 24) % WEEK_DAYS >= 5;
            sum += u64::from(shape.weights[usize::from(is_weekend)][(hour % 24) as usize]);
            sum
        });
        let sums = std::iter::once(0).chain(hours).collect();
        if sum == 0 {
            return Err(format!("{shape} has no work in the {days} days up to Monday noon"));
        }
        Ok(Self { days, shape, sums })
    }

    pub fn days(&self) -> u32 {
        self.days
    }

    pub fn shape(&self) -> &DayShape {
        &self.shape
    }

    /// Resolves the shape for a workload with this usual shape. A given shape stays as it is.
    #[must_use]
    pub fn of(&self, usual: &str) -> Self {
        let named = NAMED.iter().find(|named| named.name == usual).filter(|_| self.shape.name == OWN);
        let of_its_own = named.and_then(|named| Self::new(self.days, named.into()).ok());
        of_its_own.unwrap_or_else(|| self.clone())
    }

    pub fn length(&self) -> SimDuration {
        DAY * u64::from(self.days)
    }

    /// Returns when operation `k` of `n` is due, from the start: somewhere in its share of the work, as drawn from
    /// `seed`.
    pub fn due(&self, k: u64, n: u64, seed: u64) -> SimDuration {
        let hour_ns = u128::from(HOUR.as_nanos());
        let all = u128::from(*self.sums.last().unwrap_or(&1)) * hour_ns;
        let (k, n) = (u128::from(k.min(n)), u128::from(n.max(1)));
        // The work before it, in units of weight times nanoseconds.
        let (share, rest) = (all / n, all % n);
        let before = k * share + k * rest / n + share * u128::from(drawn(seed, k as u64)) / (1 << 16);
        let hour = self.sums.partition_point(|&sum| u128::from(sum) * hour_ns <= before).max(1) - 1;
        let Some(weight) = self.sums.get(hour + 1).map(|end| u128::from(end - self.sums[hour])) else {
            return self.length();
        };
        let inside = before - u128::from(self.sums[hour]) * hour_ns;
        HOUR * hour as u64 + SimDuration((inside / weight.max(1)) as u64)
    }

    /// Returns the times of sweeps at this interval, from the start: one of them is at midnight before the last Monday.
    pub fn sweeps(&self, every: SimDuration) -> impl Iterator<Item = SimDuration> + use<> {
        let (every, end) = (every.as_nanos().max(1), self.length().as_nanos());
        let monday = end - NOON * HOUR.as_nanos();
        (monday % every..end).step_by(usize::try_from(every).unwrap_or(usize::MAX)).map(SimDuration)
    }
}

fn drawn(seed: u64, number: u64) -> u16 {
    // Far apart, like states of one generator.
    let state = number.wrapping_sub(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed((seed ^ number.rotate_left(32)).wrapping_add(state)) >> 48) as u16
}

/// Lets the tasks of a workload wait until their operations are due.
#[derive(Debug)]
pub struct Pacer {
    days: Days,
    operations: u64,
    tasks: usize,
    begin: SimTime,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    paced: Paced,
    asleep: Vec<SimTime>,
    /// Number of tasks that wait for another task, or have ended.
    idle: usize,
}

/// Punctuality of the operations of days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paced {
    pub operations: u64,
    /// Total time that tasks spent in them.
    pub waiting: SimDuration,
    pub late: u64,
    pub late_max: SimDuration,
}

impl Pacer {
    /// Spreads this many operations of `tasks` tasks over the days, which begin at `begin`.
    pub fn new(days: &Days, operations: u64, tasks: u32, begin: SimTime, seed: u64) -> Self {
        Self { days: days.clone(), operations, tasks: tasks as usize, begin, seed, state: Mutex::default() }
    }

    pub fn days(&self) -> &Days {
        &self.days
    }

    pub fn paced(&self) -> Paced {
        lock(&self.state).paced
    }

    /// Returns how long a task that waits for others may sleep before it looks again. It looks every `often` while they
    /// work; while all of them sleep, nothing changes.
    pub(super) fn nap(&self, now: SimTime, often: SimDuration) -> SimDuration {
        let state = lock(&self.state);
        let all_rest = state.asleep.len() + state.idle >= self.tasks;
        let earliest = state.asleep.iter().min().filter(|_| all_rest);
        earliest.map_or(often, |&at| at.max(now).since(now) + often)
    }

    fn task_ended(&self) {
        lock(&self.state).idle += 1;
    }

    /// Notes that a task waits for others until the result is dropped.
    pub(super) fn idle(&self) -> Idle<'_> {
        lock(&self.state).idle += 1;
        Idle(self)
    }
}

pub(super) struct Idle<'p>(&'p Pacer);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).idle -= 1;
    }
}

/// One task under a [`Pacer`].
#[derive(Debug)]
pub struct PacedTask<'p> {
    pacer: &'p Pacer,
    begun: Cell<Option<SimTime>>,
}

impl<'p> PacedTask<'p> {
    pub fn new(pacer: &'p Pacer) -> Self {
        Self { pacer, begun: Cell::new(None) }
    }

    /// Ends the current operation, and waits until the next one is due.
    pub async fn next<F: Files>(&self, fs: &F) {
        self.end(fs);
        let now = fs.now();
        let Pacer { days, operations, begin, seed, .. } = self.pacer;
        let due = {
            let state = &mut *lock(&self.pacer.state);
            let due = *begin + days.due(state.next, *operations, *seed);
            state.next += 1;
            state.paced.operations += 1;
            if due < now {
                state.paced.late += 1;
                state.paced.late_max = state.paced.late_max.max(now.since(due));
            } else {
                state.asleep.push(due);
            }
            due
        };
        if due >= now {
            fs.sleep(due.since(now)).await;
            let asleep = &mut lock(&self.pacer.state).asleep;
            if let Some(index) = asleep.iter().position(|&at| at == due) {
                asleep.swap_remove(index);
            }
        }
        self.begun.set(Some(fs.now()));
    }

    pub(super) fn ended<F: Files>(&self, fs: &F) {
        self.end(fs);
        self.pacer.task_ended();
    }

    pub fn end<F: Files>(&self, fs: &F) {
        if let Some(begun) = self.begun.take() {
            lock(&self.pacer.state).paced.waiting += fs.now().since(begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(days: u32, shape: &str) -> Days {
        Days::new(days, shape.parse().unwrap()).unwrap()
    }

    fn hours(span: SimDuration) -> u64 {
        span.as_nanos() / HOUR.as_nanos()
    }

    #[test]
    fn operations_are_due_in_proportion_to_the_hours_and_in_order() {
        let week = days(7, "nightly");
        let n = 7 * 40 * 25; // forty weights a day
        let due: Vec<SimDuration> = (0..n).map(|k| week.due(k, n, 7)).collect();
        assert!(due.is_sorted() && due[n as usize - 1] < week.length());
        let mut counts = [0; 7 * 24];
        due.iter().for_each(|&at| counts[hours(at) as usize] += 1);
        for (hour, count) in counts.into_iter().enumerate() {
            let busy = (1..5).contains(&((hour + 12) % 24));
            assert_eq!(count, if busy { 125 } else { 25 }, "hour {hour}");
        }
        let other: Vec<SimDuration> = (0..n).map(|k| week.due(k, n, 8)).collect();
        assert_ne!(due, other, "another seed");
    }

    #[test]
    fn hours_without_work_have_none_and_weekends_have_their_own() {
        let none = vec!["0"; 24].join(",");
        let nine = format!("0,0,0,0,0,0,0,0,0,1{}", ",0".repeat(14));
        let weekdays = days(7, &format!("{nine}/{none}"));
        // From Monday noon to Monday noon there is 9 o'clock of Tuesday to Friday and of the last Monday.
        let at: Vec<u64> = (0..50).map(|k| hours(weekdays.due(k, 50, 1))).collect();
        let expected: Vec<u64> = [21, 45, 69, 93, 165].into_iter().flat_map(|hour| [hour; 10]).collect();
        assert_eq!(at, expected);
        assert!(Days::new(1, format!("{none}/{nine}").parse().unwrap()).unwrap_err().contains("no work"));
    }

    #[test]
    fn sweeps_are_at_midnight_and_a_weekly_one_is_in_any_number_of_days() {
        let at = |n, sweep: u64| days(n, "flat").sweeps(DAY * sweep).map(hours).collect::<Vec<_>>();
        assert_eq!(at(1, 1), [12]);
        assert_eq!(at(3, 1), [12, 36, 60]);
        for n in 1..=7 {
            assert_eq!(at(n, 7), [24 * u64::from(n) - 12], "{n} days");
        }
        assert_eq!(at(14, 7), [156, 324]);
        assert_eq!(days(1, "flat").sweeps(HOUR).count(), 24);
        assert_eq!(at(7, 14), [156], "a longer interval ends at the same midnight");
    }

    #[test]
    fn shapes_are_named_or_given() {
        for named in &NAMED {
            assert_eq!(named.name.parse::<DayShape>().unwrap().to_string(), named.name);
        }
        let refused = |text: &str| text.parse::<DayShape>().unwrap_err();
        assert!(refused("weird").contains("server, office, nightly, flat"));
        assert!(refused("1,2,3").contains("3 weights; expected 24"));
        assert!(refused(&["1"; 25].join(",")).contains("25 weights"));
        assert!(refused(&["x"; 24].join(",")).contains("'x' of hour 0"));
        assert!(refused(&["-1"; 24].join(",")).contains("'-1'"));
        let err = |days| Days::new(days, "flat".parse().unwrap()).unwrap_err();
        assert_eq!([err(0), err(367)], ["0 days; expected 1 to 366", "367 days; expected 1 to 366"]);
    }

    #[test]
    fn a_task_that_waits_for_others_sleeps_while_they_all_do() {
        let pacer = Pacer::new(&days(1, "flat"), 10, 3, SimTime(0), 1);
        let often = SimDuration::from_millis(1);
        let now = SimTime(5);
        let _waits = pacer.idle();
        lock(&pacer.state).asleep.push(SimTime(3_000_000_000));
        assert_eq!(pacer.nap(now, often), often, "the third task works");
        pacer.task_ended();
        assert_eq!(now + pacer.nap(now, often), SimTime(3_001_000_000));
        assert_eq!(pacer.nap(SimTime(4_000_000_000), often), often, "the other is about to wake");
        lock(&pacer.state).asleep.clear();
        assert_eq!(pacer.nap(now, often), often, "nothing is due");
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let year = days(366, &vec!["1000000"; 24].join(","));
        assert!(year.due(u64::MAX - 1, u64::MAX, 1) <= year.length());
        assert_eq!(year.due(u64::MAX, u64::MAX, 1), year.length());
        assert!(year.due(0, 0, 1) <= year.length());
    }
}
