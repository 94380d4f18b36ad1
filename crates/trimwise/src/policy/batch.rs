//! `batch:EVERY[:SMALLEST]`: nothing at commits, all free space at intervals (fstrim.timer, `wiper.sh`).
//!
//! A sweep goes through the file system one block group after the other without a pause, as `fstrim` does. Extents
//! shorter than `SMALLEST` are skipped (`fstrim --minimum`). The file system remembers which groups it has trimmed.

use super::{
    Availability, Decision, DiscardGeneration, Explanation, Governor, HostTraits, Needs, PolicyEvent, View,
};
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

/// Arguments of `batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Time from the start of one sweep to the next.
    pub every: SimDuration,
    /// Shorter free extents are skipped, in units.
    pub units_min: u64,
}

/// Sweeps through all free space at intervals.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    config: BatchConfig,
    total_units: u64,
    slice_units: u64,
    next_sweep: SimTime,
    /// The position of the sweep.
    at: u64,
}

impl Batch {
    /// A governor in its initial state: the first sweep comes one interval after the start.
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
        Needs::default()
    }

    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::AfterCommit
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
            return Explanation {
                state: "A sweep through all free space is under way.".to_owned(),
                change: "The end of the sweep.".to_owned(),
            };
        }
        let left = self.next_sweep.since(view.now).as_nanos() / 1_000_000_000;
        Explanation {
            state: format!("Nothing to do until the next sweep, in {left} s."),
            change: "The next sweep.".to_owned(),
        }
    }
}
