//! The daemon's proof: days of a host's work ([`Week`]) on the file systems of a real kernel in virtual time, under
//! each way of trimming that a Linux host has, and under `trimwised`.
//!
//! The drive was full once, and the file system is aged: remaining files lie between many free extents. The cost of a
//! way of trimming shows in the small accesses of the foreground. They come at the same times and places in every run,
//! so a run is compared with itself, while trimming and not, and with the run that never trims. The gain is in write
//! amplification. The remaining untrimmed space, which the drive holds and the file system does not, is sampled every
//! ten minutes.

mod claims;
mod plots;
mod runs;
mod tables;
#[cfg(test)]
mod tests;

use serde::Serialize;
use trimwise::units::{Bytes, SimDuration, Utilization};
use trimwise::workload::latency::{LatencySummary, OpLatencies, Operation};
use trimwise::workload::week::{Week, WeekDone};

use super::kernels::observe::{Discarded, Discards};
use super::result::ExperimentResult;
use super::{Experiment, Host};
use crate::plot::Plot;

pub static WEEK: Experiment = Experiment {
    name: "daemon-week",
    question: "What does trimwised cost the foreground and gain for the drive in a week, compared with fstrim, discard and no TRIM?",
    reps: 1,
    claims: include_str!("../../../../experiments/daemon-week/claims.toml"),
    host: Host::AnyKernel(|only, target| runs::choice(only, target).map(drop)),
    run: |request| runs::run(&WEEK, Week { seed: request.seed, ..Week::default() }, request),
};

pub static DAY: Experiment = Experiment {
    name: "daemon-day",
    question: "What does trimwised cost and gain in a single day with fifty times as many small accesses?",
    reps: WEEK.reps,
    claims: WEEK.claims,
    host: Host::AnyKernel(|only, target| runs::choice(only, target).map(drop)),
    run: |request| runs::run(&DAY, day(request.seed), request),
};

/// A single day, so dense that a minute has a thousand writes at 3 o'clock, when fstrim runs, and 240 by day. With the
/// accesses of the week, the minute of a daily fstrim has 24 writes.
fn day(seed: u64) -> Week {
    Week { days: 1, seed, gap_mean: SimDuration::from_millis(200), ..Week::default() }
}

/// The kernel: the oldest long-term series whose ext4 discards after the commit.
pub const KERNEL: &str = "6.1";
/// The drive. Its TRIM is not queued and blocks everything else, and a command takes 12 ms. That is not a measured
/// value: it was chosen so that the claims of the poster on SeT hold.
pub const DEVICE: &str = "sata-60gb-2011";
/// Small enough that ageing and a week write twice the capacity.
pub const CAPACITY: Bytes = Bytes::gib(4);
pub const AGED: Utilization = Utilization::of(30);
pub const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// Maximum untrimmed space that the daemon's default leaves, in thousandths of the file system.
pub(crate) const BOUND_PERMILLE: u64 = 100;

/// Length of a minute. Minutes in which a discard is in flight count as trimming.
const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trimming {
    Never,
    /// The mount option `discard`; on btrfs `discard=sync`.
    Discard,
    DiscardAsync,
    /// FITRIM over everything at 3 o'clock on the first day, as fstrim.timer does.
    FstrimWeekly,
    /// FITRIM over everything at 3 o'clock each day.
    FstrimDaily,
    Daemon,
}

impl Trimming {
    pub const ALL: [Self; 6] =
        [Self::Never, Self::Discard, Self::DiscardAsync, Self::FstrimWeekly, Self::FstrimDaily, Self::Daemon];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Discard => "discard",
            Self::DiscardAsync => "discard-async",
            Self::FstrimWeekly => "fstrim-weekly",
            Self::FstrimDaily => "fstrim-daily",
            Self::Daemon => "daemon",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    pub file_system: &'static str,
    pub trimming: Trimming,
}

impl Case {
    pub fn mount_option(&self) -> &'static str {
        match (self.trimming, self.file_system) {
            (Trimming::Discard, "btrfs") => "discard=sync",
            (Trimming::Discard, _) => "discard",
            (Trimming::DiscardAsync, _) => "discard=async",
            _ => "nodiscard",
        }
    }

    /// Returns the time of the first FITRIM and the interval, if there is FITRIM.
    pub fn fitrim(&self) -> Option<(SimDuration, SimDuration)> {
        const FIRST: SimDuration = SimDuration::from_secs(3 * 3_600);
        match self.trimming {
            Trimming::FstrimWeekly => Some((FIRST, SimDuration::from_secs(7 * 86_400))),
            Trimming::FstrimDaily => Some((FIRST, SimDuration::from_secs(86_400))),
            _ => None,
        }
    }
}

pub fn cases() -> Vec<Case> {
    let of = |file_system| {
        let has = move |trimming: &Trimming| *trimming != Trimming::DiscardAsync || file_system == "btrfs";
        Trimming::ALL.into_iter().filter(has).map(move |trimming| Case { file_system, trimming })
    };
    FILE_SYSTEMS.into_iter().flat_map(of).collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Slices {
    pub count: u64,
    pub over_count: u64,
    pub longest_ns: u64,
}

/// Measurements of a run. Times count from the start of the week.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub case: Case,
    pub done: WeekDone,
    pub discards: Vec<Discarded>,
    /// Bytes that the drive holds, at the start of the week and at each look.
    pub mapped_bytes: Vec<u64>,
    pub capacity_bytes: u64,
    pub write_amplification: f64,
    pub slices: Option<Slices>,
}

/// Writes or reads in the hours in which accesses come at one rate. At night they come five times as often, and an
/// access that waits for others there says nothing about trimming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OfRate {
    /// True for the busy hours of the night, from 1 to 5 o'clock; false for all others.
    pub busy: bool,
    /// Latency in minutes in which a discard was in flight; `None` if there was no such minute.
    pub trimming: Option<LatencySummary>,
    /// Latency in hours without any discard; `None` if there was no such hour.
    pub untouched: Option<LatencySummary>,
    /// Latency in the run that never trims, in the hours in which this one trims.
    pub never: Option<LatencySummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub case: Case,
    /// Time until a write of the foreground was durable.
    pub write: LatencySummary,
    pub read: LatencySummary,
    /// Latency of writes in minutes in which a discard was in flight; `None` if there was no such minute.
    pub write_trimming: Option<LatencySummary>,
    /// Latency of writes and its references, by the kind of hour.
    pub rates: [OfRate; 2],
    /// Latency of reads and its references, by the kind of hour.
    pub read_rates: [OfRate; 2],
    /// Time in which a discard was in flight.
    pub discarding_ns: u64,
    pub discard_max_ns: u64,
    pub write_amplification: f64,
    pub discards: Discards,
    pub slices: Option<Slices>,
    /// Space freed: space in use at the beginning of the week, plus files removed during it.
    pub freed_bytes: u64,
    /// Time until the untrimmed space fell below the bound for the first time.
    pub under_bound_after_ns: Option<u64>,
    pub untrimmed_max_bytes: Option<u64>,
    pub untrimmed_end_bytes: u64,
    /// Untrimmed space (held by the drive but not by the file system) at the start of the week and at each look.
    pub untrimmed_bytes: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeekRows {
    pub week: WeekText,
    pub runs: Vec<Row>,
    pub plots: Vec<Plot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WeekText {
    pub days: u64,
    pub accesses: u64,
    pub day_bytes: Bytes,
    pub bound_permille: u64,
}

/// Returns the numbers of the minutes or hours with discards, ascending.
fn slots(discards: &[Discarded], slot_ns: u64) -> Vec<u64> {
    let spans = discards.iter().flat_map(|d| d.at_ns / slot_ns..=d.done_ns / slot_ns);
    let mut slots: Vec<u64> = spans.collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

/// Returns the time in which at least one discard was in flight.
fn discarding_ns(discards: &[Discarded]) -> u64 {
    let mut spans: Vec<(u64, u64)> = discards.iter().map(|d| (d.at_ns, d.done_ns)).collect();
    spans.sort_unstable();
    let covered = spans.into_iter().fold((0, 0), |(sum, until): (u64, u64), (from, to)| {
        (sum + to.saturating_sub(from.max(until)), until.max(to))
    });
    covered.0
}

/// Returns the latencies of some accesses; writes count as [`Operation::Fsync`] since they are durable.
fn latencies(week: &Week, done: &WeekDone, wanted: impl Fn(u64) -> bool) -> OpLatencies {
    let mut latencies = OpLatencies::default();
    for (access, &took) in week.accesses().zip(&done.latencies_ns) {
        if wanted(access.at.as_nanos()) {
            let operation = if access.reads { Operation::Read } else { Operation::Fsync };
            latencies.record(operation, SimDuration(took));
        }
    }
    latencies
}

fn bound(capacity_bytes: u64) -> Bytes {
    Bytes(capacity_bytes / 1000 * BOUND_PERMILLE)
}

impl Row {
    /// Evaluates a run, compared with the run of the same file system that never trims.
    pub fn of(week: &Week, run: &Run, never: Option<&Run>) -> Option<Self> {
        let (minutes, hours) = (slots(&run.discards, MINUTE_NS), slots(&run.discards, HOUR_NS));
        let all = latencies(week, &run.done, |_| true);
        let summary = |run: &Run, operation, wanted: &dyn Fn(u64) -> bool| {
            latencies(week, &run.done, wanted).summary(operation)
        };
        let trimming = |at: u64| minutes.binary_search(&(at / MINUTE_NS)).is_ok();
        let touched = |at: u64| hours.binary_search(&(at / HOUR_NS)).is_ok();
        let of_rate = |operation, busy| {
            let is_of = |at: u64| Week::is_busy(SimDuration::from_nanos(at)) == busy;
            OfRate {
                busy,
                trimming: summary(run, operation, &|at| is_of(at) && trimming(at)),
                untouched: summary(run, operation, &|at| is_of(at) && !touched(at)),
                never: never.and_then(|never| summary(never, operation, &|at| is_of(at) && touched(at))),
            }
        };
        let used = |free: &u64| run.capacity_bytes.saturating_sub(*free);
        let untrimmed: Vec<u64> = run
            .mapped_bytes
            .iter()
            .zip(&run.done.free_bytes)
            .map(|(mapped, free)| mapped.saturating_sub(used(free)))
            .collect();
        let under = untrimmed.iter().position(|&bytes| Bytes(bytes) <= bound(run.capacity_bytes));
        let backlog = run.done.free_bytes.first().copied().unwrap_or_default();
        Some(Self {
            case: run.case,
            write: all.summary(Operation::Fsync)?,
            read: all.summary(Operation::Read)?,
            write_trimming: summary(run, Operation::Fsync, &trimming),
            rates: [true, false].map(|busy| of_rate(Operation::Fsync, busy)),
            read_rates: [true, false].map(|busy| of_rate(Operation::Read, busy)),
            discarding_ns: discarding_ns(&run.discards),
            discard_max_ns: run.discards.iter().map(|d| d.done_ns - d.at_ns).max().unwrap_or(0),
            write_amplification: run.write_amplification,
            discards: Discards::of(&run.discards),
            slices: run.slices,
            freed_bytes: backlog + run.done.removed_bytes,
            under_bound_after_ns: under.map(|look| Week::look(look as u64).as_nanos()),
            untrimmed_max_bytes: under.and_then(|from| untrimmed[from..].iter().copied().max()),
            untrimmed_end_bytes: untrimmed.last().copied().unwrap_or_default(),
            untrimmed_bytes: untrimmed,
        })
    }
}

fn evaluate(experiment: &Experiment, week: &Week, runs: &[Run], reps: u32, seed: u64) -> ExperimentResult {
    let never_of = |run: &Run| {
        runs.iter().find(|other| {
            other.case.trimming == Trimming::Never && other.case.file_system == run.case.file_system
        })
    };
    let rows: Vec<Row> = runs.iter().filter_map(|run| Row::of(week, run, never_of(run))).collect();
    let figures = claims::figures(&rows);
    let rows = WeekRows {
        week: WeekText {
            days: week.days,
            accesses: week.accesses().count() as u64,
            day_bytes: week.day_bytes(),
            bound_permille: BOUND_PERMILLE,
        },
        plots: plots::all(&rows),
        runs: rows,
    };
    ExperimentResult { tables: tables::all(&rows), ..experiment.judge(&figures, &rows, reps, seed) }
}
