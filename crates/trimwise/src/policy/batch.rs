//! `batch:EVERY[:SMALLEST]`: nothing at commits, all free space at intervals (fstrim.timer, `wiper.sh`).
//!
//! A sweep goes through the file system one block group after the other without a pause, as `fstrim` does. Extents
//! shorter than `SMALLEST` are skipped (`fstrim --minimum`). The file system remembers which groups it has trimmed.

use super::spec::grammar::{Duration, Part, Wrong, wrong};
use super::spec::term::{Arguments, LiveUse, Term};
use super::{Decision, Explanation, Governor, HostTraits, Needs, PolicyEvent, View};
use crate::units::{Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};

pub(super) const TERM: Term = Term {
    refuses_gate: Some("trims all free space, regardless of commits"),
    live: LiveUse::Slices,
    parse,
    show: |[every_ns, units_min]| {
        let every = Duration(SimDuration::from_nanos(every_ns));
        let smallest = format!(":{}KiB", units_min * UNIT_BYTES / 1024);
        format!(":{every}{}", if units_min <= 1 { "" } else { &smallest })
    },
    ..Term::plain(
        "batch:EVERY[:SMALLEST]",
        "all free space at intervals (10m, 1w), as fstrim does",
        &["batch:10s"],
        |issuer| Box::new(Batch::new(BatchConfig::of(issuer.arguments))),
    )
};

fn parse(term: Part<'_>, arguments: &[Part<'_>]) -> Result<Arguments, Wrong> {
    let every_ns = |part: &Part<'_>| Ok(part.duration("interval")?.as_nanos());
    match arguments {
        [every] => Ok([every_ns(every)?, 1]),
        [every, smallest] => Ok([every_ns(every)?, smallest.extent_units()?]),
        _ => wrong(
            term.at,
            format!("'{}' needs an interval, which only a smallest extent may follow", term.text),
            "batch:EVERY[:SMALLEST], as in batch:1w or batch:10m:64KiB",
        ),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Time from the start of one sweep to the next.
    pub every: SimDuration,
    pub units_min: u64,
}

impl BatchConfig {
    pub fn hours(self) -> u64 {
        self.every.as_nanos() / SimDuration::from_secs(3600).as_nanos()
    }

    pub(super) fn of([every_ns, units_min]: Arguments) -> Self {
        Self { every: SimDuration::from_nanos(every_ns), units_min }
    }

    pub(super) fn arguments(self) -> Arguments {
        [self.every.as_nanos(), self.units_min]
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Batch {
    config: BatchConfig,
    total_units: u64,
    slice_units: u64,
    next_sweep: SimTime,
    at: u64,
}

impl Batch {
    /// Creates the governor. Its first sweep comes one interval after the start.
    pub fn new(config: BatchConfig) -> Self {
        Self { config, total_units: 0, slice_units: 1, next_sweep: SimTime::ZERO, at: 0 }
    }

    fn slice(&mut self, decisions: &mut Vec<Decision>) {
        let units = self.slice_units.min(self.total_units - self.at);
        let range = UnitRange::new(Lpn(self.at), units);
        self.at += units;
        decisions.push(Decision::TrimFree { range, units_min: self.config.units_min });
    }
}

impl Governor for Batch {
    fn needs(&self) -> Needs {
        Needs { commits: false, ..Needs::default() }
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match *event {
            PolicyEvent::Hosted(HostTraits { total_units, group_units, .. }) => {
                self.total_units = total_units;
                self.slice_units = group_units.max(1);
                self.at = total_units;
                self.next_sweep = view.now + self.config.every;
                decisions.push(Decision::WakeAt(self.next_sweep));
            }
            PolicyEvent::Committed { .. } => decisions.push(Decision::DropFreed),
            PolicyEvent::Woken => {
                self.next_sweep = view.now + self.config.every;
                self.at = 0;
                self.slice(decisions);
            }
            PolicyEvent::Trimmed { .. } if self.at < self.total_units => self.slice(decisions),
            PolicyEvent::Trimmed { .. } => decisions.push(Decision::WakeAt(self.next_sweep)),
            PolicyEvent::Issued(_) | PolicyEvent::PassOver => {}
        }
    }

    fn explain(&self, view: &View) -> Explanation {
        if self.at < self.total_units {
            return Explanation::new("A sweep through all free space is under way.", "The end of the sweep.");
        }
        let left = self.next_sweep.since(view.now).as_nanos() / 1_000_000_000;
        Explanation::new(format!("Nothing to do until the next sweep, in {left} s."), "The next sweep.")
    }
}
