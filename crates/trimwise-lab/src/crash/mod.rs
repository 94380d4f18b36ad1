//! Attacks every policy to show that it loses no data: the power is cut at any event of a run, and the result must be a
//! file system that contains everything promised.
//!
//! A run is a random workload on a small modelled machine under a policy. A witness ([`trimwise::fs::witness`]) records
//! the contents of each command. Then, for each of many cuts,
//!
//! 1. `power` determines the device's contents: everything that was flushed, and any subset of the writes *and TRIMs*
//!    since, block by block;
//! 2. `recovery` replays the journal, after up to two interrupted attempts, and builds the tree from the metadata
//!    blocks;
//! 3. `check` verifies that every file whose `fsync` returned is complete, every durable removal is still in effect, no
//!    live file has a block that was trimmed after it was written or holds something else, no block has two owners, and
//!    none is both free and owned.
//!
//! One run serves many cuts: the device advances event by event. A cut applies the commands that were not durable, and
//! undoes that afterwards.

mod check;
#[cfg(test)]
mod endings;
pub mod kernel;
mod power;
mod recovery;
#[cfg(test)]
mod tests;
mod violation;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use thiserror::Error;
use trimwise::engine::Stalled;
use trimwise::files::FileError;
use trimwise::fs::witness::{Content, Event, Image, Record};
use trimwise::policy::Policy;

pub use power::Survival;
pub use violation::{Broken, Violation};

/// A run costs as much as some hundred cuts.
pub const CUTS_PER_RUN: u64 = 100;
const DETAILS_MAX: usize = 5;
const BROKEN_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct CrashTest {
    pub policy: Policy,
    pub seed: u64,
    pub cuts: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CrashReport {
    pub runs: u64,
    pub cuts: u64,
    /// Cuts after which something was wrong.
    pub violations: u64,
    /// Number of the first violation, counted from 1 over all runs.
    pub first_violation: Option<u64>,
    /// Events of all runs: commands dispatched and completed, promises.
    pub events: u64,
    /// Writes and TRIMs that the device had yet to make durable, over all cuts.
    pub not_durable: u64,
    /// Files that had to be complete, over all cuts.
    pub files_checked: u64,
    pub trims: u64,
    pub trimmed_units: u64,
    /// Number of cuts with each kind of fault.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<&'static str, u64>,
    pub details: Vec<Violation>,
}

/// Reasons why a crash test could not run. Its findings are not errors.
#[derive(Clone, Debug, Error)]
pub enum CrashError {
    #[error("the machine of the crash test cannot be built: {0}")]
    Machine(String),
    /// The workload failed in a way that no race explains.
    #[error("the workload of the crash test failed: {0}")]
    Workload(FileError),
    #[error("the crash test came to a standstill: {0}")]
    Stalled(#[from] Stalled),
}

fn below(rng: &mut (impl Rng + ?Sized), limit: u64) -> u64 {
    if limit == 0 { 0 } else { rng.next_u64() % limit }
}

fn seed_of(seed: u64, run: u64) -> u64 {
    let mut mixed = Xoshiro256PlusPlus::seed_from_u64(seed ^ run.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed.next_u64()
}

impl CrashTest {
    pub fn runs(&self) -> u64 {
        self.cuts.div_ceil(CUTS_PER_RUN)
    }

    pub fn run(&self) -> Result<CrashReport, CrashError> {
        let mut report = CrashReport::default();
        for run in 0..self.runs() {
            report.add(self.one_run(run)?);
        }
        Ok(report)
    }

    /// Makes the run with this number (from 0) and its cuts, the same as in the whole test.
    pub fn one_run(&self, run: u64) -> Result<CrashReport, CrashError> {
        self.run_with(run, Rc::new(|_| ()))
    }

    /// Like [`CrashTest::one_run`], on a host that `after_mount` may have broken.
    fn run_with(&self, run: u64, after_mount: workload::AfterMount) -> Result<CrashReport, CrashError> {
        let cuts = self.cuts.saturating_sub(run * CUTS_PER_RUN).min(CUTS_PER_RUN);
        let seed = seed_of(self.seed, run);
        let made = workload::run(&self.policy, seed, after_mount)?;
        Ok(attack(&made, run, cuts, seed))
    }
}

impl CrashReport {
    /// Begins the report of a run, whose power is cut after more than `first` events.
    fn of_run(record: &Record, first: usize) -> Self {
        let trims = record.ops.iter().filter(|op| op.is_trim());
        Self {
            runs: 1,
            events: (record.events.len() - first) as u64,
            trims: trims.clone().count() as u64,
            trimmed_units: trims.flat_map(|op| op.ranges()).map(|range| range.units).sum(),
            ..Self::default()
        }
    }

    fn note(&mut self, cut: u64, violation: impl FnOnce() -> Violation) {
        self.violations += 1;
        self.first_violation = Some(self.first_violation.unwrap_or(u64::MAX).min(cut + 1));
        if self.details.len() < DETAILS_MAX {
            self.details.push(violation());
        }
    }

    /// Adds the results of another run; add runs in order.
    pub fn add(&mut self, other: Self) {
        if let (None, Some(first)) = (self.first_violation, other.first_violation) {
            self.first_violation = Some(self.cuts + first);
        }
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.violations += other.violations;
        self.events += other.events;
        self.not_durable += other.not_durable;
        self.files_checked += other.files_checked;
        self.trims += other.trims;
        self.trimmed_units += other.trimmed_units;
        for (kind, cuts) in other.kinds {
            *self.kinds.entry(kind).or_default() += cuts;
        }
        let room = DETAILS_MAX.saturating_sub(self.details.len());
        self.details.extend(other.details.into_iter().take(room));
    }
}

fn attack(made: &workload::Run, run: u64, cuts: u64, seed: u64) -> CrashReport {
    let record = &made.record;
    let mut report = CrashReport::of_run(record, 0);
    let tables = inode_tables(record);
    let mut platter = power::Platter::new(record, made.layout.total_units());
    let mut told = check::Told::default();
    let mut points = cut_points(record, 0, 0..cuts, seed).into_iter().peekable();
    for (at, &event) in record.events.iter().enumerate() {
        platter.advance(event);
        match event {
            Event::Promised(i) => {
                let promise = &record.promises[i];
                told.promises.insert(promise.inode, promise);
            }
            Event::Gone(i) => told.gone.push(&record.removals[i]),
            Event::Destroyed(inode) => drop(told.promises.remove(&inode)),
            Event::Dispatched(_) | Event::Completed(_) => {}
        }
        while let Some((_, cut)) = points.next_if(|&(point, _)| point == at + 1) {
            let (survival, mut rng) = survival(seed, cut);
            let not_durable = platter.cut(survival, &mut rng);
            let mut broken = Vec::new();
            let recoveries_cut = below(&mut rng, 3);
            for _ in 0..recoveries_cut {
                // The last recovery reports errors in the log.
                let survives = || below(&mut rng, 2) == 0;
                recovery::replay(&mut platter, record, &made.layout, survives, &mut Vec::new());
            }
            recovery::replay(&mut platter, record, &made.layout, || true, &mut broken);
            let found = recovery::mount(&platter, record, &made.layout, &tables, &mut broken);
            check::check(&platter, record, &found, &told, &mut broken);
            report.cuts += 1;
            report.not_durable += not_durable as u64;
            report.files_checked += told.promises.len() as u64;
            if !broken.is_empty() {
                report.note(cut, || {
                    let block = broken.iter().find_map(Broken::block);
                    Violation {
                        run,
                        cut,
                        events: at + 1,
                        not_durable,
                        survived: match recoveries_cut {
                            0 => survival.to_string(),
                            1 => format!("{survival}; a recovery was cut short"),
                            _ => format!("{survival}; two recoveries were cut short"),
                        },
                        machine: made.machine.to_string(),
                        broken_count: broken.len(),
                        broken: broken.into_iter().take(BROKEN_MAX).collect(),
                        history: block.map(|block| platter.history(block)).unwrap_or_default(),
                    }
                });
            }
            platter.restore();
        }
    }
    report
}

/// Returns the generator of a cut. Each cut is independent, so it does not depend on their number.
fn rng_of(seed: u64, cut: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed_of(!seed, cut))
}

/// Returns these cuts with the number of events before each, more than `first`, in the order in which the device
/// advances.
fn cut_points(record: &Record, first: usize, cuts: Range<u64>, seed: u64) -> Vec<(usize, u64)> {
    let mut contested = contested(record);
    contested.retain(|&at| at > first);
    let point = |cut| (cut_point(record, first, &contested, cut, &mut rng_of(seed, cut)), cut);
    let mut points: Vec<(usize, u64)> = cuts.map(point).collect();
    points.sort_unstable();
    points
}

/// Draws which commands survive a cut. Returns also the generator for later draws.
fn survival(seed: u64, cut: u64) -> (Survival, Xoshiro256PlusPlus) {
    let mut rng = rng_of(seed, cut);
    rng.jump(); // its first numbers chose the point
    (Survival::ALL[below(&mut rng, Survival::ALL.len() as u64) as usize], rng)
}

/// Draws the number of events before the power cut, more than `first`. Half of the cuts are at any event; a quarter are
/// shortly before a flush ends, when most is at stake; a quarter are shortly after a TRIM was sent to the device, or
/// where something is `contested`.
fn cut_point(record: &Record, first: usize, contested: &[usize], cut: u64, rng: &mut impl Rng) -> usize {
    let events = &record.events;
    if cut % 4 == 3 && !contested.is_empty() {
        return contested[(cut / 4) as usize % contested.len()];
    }
    let is_near = |at: usize| match (cut % 4, events[at]) {
        (1, Event::Completed(op)) => record.ops[op].is_flush(),
        (3, Event::Dispatched(op)) => record.ops[op].is_trim(),
        (remainder, _) => remainder.is_multiple_of(2),
    };
    let any = first + below(rng, (events.len() - first) as u64) as usize;
    let near = (any..events.len()).chain(first..any).find(|&at| is_near(at)).unwrap_or(any);
    match cut % 4 {
        1 => near.saturating_sub(below(rng, 3) as usize).max(first + 1),
        3 => (near + 1 + below(rng, 3) as usize).min(events.len()),
        _ => any + 1,
    }
}

/// Returns where a host that hands out a block while it is in a TRIM can be caught: after the completion of each write
/// over such a TRIM, and after the flushes of the commit that may refer to the block. A correct host has no such place.
fn contested(record: &Record) -> Vec<usize> {
    const FLUSHES: usize = 3;
    let ends_flush = |&at: &usize| match record.events[at - 1] {
        Event::Completed(op) => record.ops[op].is_flush(),
        _ => false,
    };
    let mut trims: Vec<usize> = Vec::new();
    let mut points = BTreeSet::new();
    for event in &record.events {
        match *event {
            Event::Dispatched(op) if record.ops[op].is_trim() => trims.push(op),
            Event::Dispatched(op) => {
                let write = &record.ops[op];
                trims.retain(|&trim| record.ops[trim].completed > write.dispatched);
                let over = |&trim: &usize| record.ops[trim].touches(write);
                if write.completed < record.events.len() && trims.iter().any(over) {
                    let completed = write.completed + 1;
                    let behind = completed + 1..=record.events.len();
                    points.insert(completed);
                    points.extend(behind.filter(ends_flush).take(FLUSHES));
                }
            }
            _ => {}
        }
    }
    points.into_iter().collect()
}

/// Returns the blocks of the inode table that were ever written.
fn inode_tables(record: &Record) -> Vec<u64> {
    let blocks = record.contents.iter().filter_map(|content| match content {
        Content::Metadata { block, image: Image::Inodes(_) } => Some(*block),
        _ => None,
    });
    blocks.collect::<BTreeSet<u64>>().into_iter().collect()
}
