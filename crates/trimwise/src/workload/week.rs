//! Days of a host's work: a small write or read every few seconds, files created by day, and a night in which
//! yesterday's are removed.
//!
//! The schedule is fixed here, before anything runs, and follows from the configuration alone: accesses come at their
//! times even if earlier ones have not ended (an open loop). So each run of the same week gets the same requests, and
//! the results can be compared access by access. The runner reports the time of each access from the instant at which
//! it was due.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, SimDuration};

pub(crate) const DAY: SimDuration = SimDuration::from_secs(86_400);
/// Times of day at which the first file of a day is created, and the last interval ends.
const FILES_BEGIN: SimDuration = SimDuration::from_secs(8 * 3_600);
const FILES_END: SimDuration = SimDuration::from_secs(20 * 3_600);
/// Time of day at which yesterday's files are removed.
const REMOVED_AT: SimDuration = SimDuration::from_secs(2 * 3_600 + 300);
/// The busy hours of a night, and the factor of their load.
const BUSY_HOURS: std::ops::Range<u64> = 1..5;
const BUSY: u64 = 5;
const LOOK_EVERY: SimDuration = SimDuration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Week {
    pub days: u64,
    /// Seed for the times and places of accesses.
    pub seed: u64,
    /// Size of the file for small accesses.
    pub database: Bytes,
    /// Size of an access. Its offset is a multiple of this.
    pub access: Bytes,
    /// Mean time between accesses by day; each gap lies between zero and twice that. From 1 to 5 o'clock there are five
    /// times as many.
    pub gap_mean: SimDuration,
    pub reads_percent: u64,
    /// Files created per day.
    pub files_a_day: u64,
    pub file: Bytes,
}

impl Default for Week {
    /// The database of a small server: 100,000 accesses, and 2.2 GiB that come and go.
    fn default() -> Self {
        Self {
            days: 7,
            seed: 1,
            database: Bytes::mib(512),
            access: Bytes::kib(16),
            gap_mean: SimDuration::from_secs(10),
            reads_percent: 20,
            files_a_day: 40,
            file: Bytes::mib(8),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Due time, from the start of the week.
    pub at: SimDuration,
    pub offset: Bytes,
    /// A read rather than a write. A write ends when it is durable.
    pub reads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Create and write a file; the kernel writes it back in its own time.
    Make {
        day: u64,
        /// Number of the file on that day.
        number: u64,
    },
    Remove {
        day: u64,
    },
}

impl Week {
    pub fn length(&self) -> SimDuration {
        DAY * self.days
    }

    pub fn accesses(&self) -> impl Iterator<Item = Access> + use<> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut below = move |n: u64| ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64;
        let places = (self.database.0 / self.access.0.max(1)).max(1);
        let Self { access, reads_percent, .. } = *self;
        let (gap_max, end) = (self.gap_mean.as_nanos() * 2, self.length());
        let mut at = SimDuration::ZERO;
        std::iter::from_fn(move || {
            let busy = if Self::is_busy(at) { BUSY } else { 1 };
            at += SimDuration::from_nanos(1 + below(gap_max / busy));
            let offset = Bytes(below(places) * access.0);
            let reads = below(100) < reads_percent;
            (at < end).then_some(Access { at, offset, reads })
        })
    }

    /// Returns true if an instant, from the start of the week, lies in the busy hours of a night.
    pub fn is_busy(at: SimDuration) -> bool {
        BUSY_HOURS.contains(&(at.as_nanos() / 3_600_000_000_000 % 24))
    }

    /// Returns all other work, with its times.
    pub fn chores(&self) -> Vec<(SimDuration, Chore)> {
        let every = (FILES_END - FILES_BEGIN) / self.files_a_day.max(1);
        let mut chores = Vec::new();
        for day in 1..=self.days {
            let midnight = DAY * (day - 1);
            chores.push((midnight + REMOVED_AT, Chore::Remove { day: day - 1 }));
            let makes = (0..self.files_a_day)
                .map(|number| (midnight + FILES_BEGIN + every * number, Chore::Make { day, number }));
            chores.extend(makes);
        }
        chores
    }

    /// Iterates over the times of the looks at the free space after the start: every ten minutes.
    pub fn looks(&self) -> impl Iterator<Item = SimDuration> + use<> {
        (1..=self.length().as_nanos() / LOOK_EVERY.as_nanos()).map(Self::look)
    }

    /// Returns the time of a look, from the start of the week; number 0 is the start itself.
    pub fn look(number: u64) -> SimDuration {
        LOOK_EVERY * number
    }

    pub fn day_bytes(&self) -> Bytes {
        Bytes(self.files_a_day * self.file.0)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeekDone {
    /// Duration of each access from the instant at which it was due, in order.
    pub latencies_ns: Vec<u64>,
    /// Free bytes reported by the file system, at the start of the week and at each of [`Week::looks`].
    pub free_bytes: Vec<u64>,
    pub removed_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_is_the_same_each_time_and_another_with_another_seed() {
        let week = Week::default();
        let accesses: Vec<Access> = week.accesses().collect();
        assert!(accesses.iter().eq(week.accesses().collect::<Vec<_>>().iter()));
        assert!(!accesses.iter().copied().eq(Week { seed: 2, ..week.clone() }.accesses()));
        let (night, day): (Vec<&Access>, Vec<&Access>) = accesses
            .iter()
            .partition(|access| (1..5).contains(&(access.at.as_nanos() / 3_600_000_000_000 % 24)));
        for (accesses, hours, gap_s) in [(day, 20, 10), (night, 4, 2)] {
            let expected = week.days * hours * 3_600 / gap_s;
            assert!((accesses.len() as u64).abs_diff(expected) < expected / 100, "{}", accesses.len());
        }
        let reads = accesses.iter().filter(|access| access.reads).count() * 100 / accesses.len();
        assert!((19..=21).contains(&reads), "{reads} %");
        for pair in accesses.windows(2) {
            assert!(pair[0].at < pair[1].at);
        }
        for access in &accesses {
            assert!(access.at < week.length());
            assert!(access.offset.0.is_multiple_of(week.access.0));
            assert!(access.offset.0 + week.access.0 <= week.database.0);
        }
    }

    #[test]
    fn files_of_a_day_are_removed_in_the_next_night() {
        let week = Week { days: 2, files_a_day: 3, ..Week::default() };
        let hour = |n: u64| SimDuration::from_secs(3_600 * n);
        let five_past = |n| hour(n) + SimDuration::from_secs(300);
        let make = |day, number| Chore::Make { day, number };
        let expected = [
            (five_past(2), Chore::Remove { day: 0 }),
            (hour(8), make(1, 0)),
            (hour(12), make(1, 1)),
            (hour(16), make(1, 2)),
            (five_past(26), Chore::Remove { day: 1 }),
            (hour(32), make(2, 0)),
            (hour(36), make(2, 1)),
            (hour(40), make(2, 2)),
        ];
        assert_eq!(week.chores(), expected);
        assert_eq!((week.looks().count(), week.looks().last()), (2 * 144, Some(hour(48))));
    }
}
