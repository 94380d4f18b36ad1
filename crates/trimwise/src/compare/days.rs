//! A cell whose workload is spread over days: who trims, when sweeps are due, and what is recorded.

use std::cell::Cell as StdCell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::daemon::Daemon;
use crate::engine::Event;
use crate::files::{FileError, Files as _};
use crate::fs::Ext4;
use crate::policy::{BatchConfig, Trimmer};
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};
use crate::workload::days::{Days, Paced, Pacer, USUAL};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaysSpec {
    pub days: Days,
    pub trimmer: Trimmer,
    /// Space that ageing freed under a policy that sweeps, or under the daemon, is untrimmed at the start. Otherwise it
    /// has been trimmed, as under the other policies.
    pub has_backlog: bool,
}

/// Figures of a run over days, besides those that every run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaysFigures {
    /// From the start to the end of the last day, or of the workload if it ended later.
    pub elapsed_ns: u64,
    pub operations: u64,
    /// Operations that began late, since the previous one had not ended.
    pub late_operations: u64,
    pub late_max_ns: u64,
    pub sweeps: u64,
    /// The longest sweep of `batch`, or slice of trimwised.
    pub fitrim_max_ns: u64,
    /// Slices of trimwised.
    pub slices: u64,
    /// Maps of free space that trimwised read.
    pub maps: u64,
    /// Units in the commands of sweeps or slices.
    pub fitrim_units: u64,
}

impl DaysFigures {
    /// Builds the figures of operations spread over days, of which `elapsed` has passed.
    pub fn of(paced: Paced, elapsed: SimDuration) -> Self {
        Self {
            elapsed_ns: elapsed.as_nanos(),
            operations: paced.operations,
            late_operations: paced.late,
            late_max_ns: paced.late_max.as_nanos(),
            ..Self::default()
        }
    }
}

const EVERYTHING: UnitRange = UnitRange { start: Lpn(0), units: u64::MAX };

/// Ends the preparation of a file system for days: trims the space that ageing freed, unless that is a backlog.
pub(super) async fn prepare(fs: &Ext4, spec: &DaysSpec) -> Result<(), FileError> {
    if !spec.has_backlog && (spec.trimmer.sweeps().is_some() || spec.trimmer.is_hosted()) {
        // The last freed space must be committed before it can be trimmed.
        fs.sync().await?;
        fs.trim_free(EVERYTHING, 1).await;
    }
    Ok(())
}

pub(super) struct Running {
    fs: Ext4,
    days: Days,
    begin: SimTime,
    daemon: Option<Daemon>,
    sweeper: Rc<Sweeper>,
}

struct Sweeper {
    figures: StdCell<DaysFigures>,
    stopping: StdCell<bool>,
    sweeping: StdCell<bool>,
    done: Event,
}

impl Running {
    pub fn begin(fs: &Ext4, spec: &DaysSpec) -> Self {
        let sim = fs.queue().sim();
        let sweeper = Rc::new(Sweeper {
            figures: StdCell::default(),
            stopping: StdCell::new(false),
            sweeping: StdCell::new(false),
            done: Event::new(sim),
        });
        let daemon = match spec.trimmer {
            Trimmer::Daemon(policy) => Some(Daemon::start(fs, policy, spec.has_backlog)),
            Trimmer::Kernel(_) | Trimmer::Block(_) => None,
        };
        let this = Self { fs: fs.clone(), days: spec.days.clone(), begin: sim.now(), daemon, sweeper };
        if let Some(config) = spec.trimmer.sweeps() {
            this.sweep_at_times(config);
        }
        this
    }

    fn sweep_at_times(&self, config: BatchConfig) {
        let (fs, sweeper, begin) = (self.fs.clone(), Rc::clone(&self.sweeper), self.begin);
        let times = self.days.sweeps(config.every);
        let sim = fs.queue().sim().clone();
        sim.clone().spawn(async move {
            for at in times {
                sim.sleep_until(begin + at).await;
                if sweeper.stopping.get() {
                    return;
                }
                sweeper.sweeping.set(true);
                let started = sim.now();
                let units = fs.trim_free(EVERYTHING, config.units_min).await;
                let took = sim.now().since(started).as_nanos();
                let before = sweeper.figures.get();
                sweeper.figures.set(DaysFigures {
                    sweeps: before.sweeps + 1,
                    fitrim_max_ns: before.fitrim_max_ns.max(took),
                    fitrim_units: before.fitrim_units + units,
                    ..before
                });
                sweeper.sweeping.set(false);
                sweeper.done.notify_all();
            }
        });
    }

    /// Makes this many operations of `tasks` tasks wait until they are due.
    pub fn pacer(&self, operations: u64, tasks: u32, seed: u64) -> Pacer {
        Pacer::new(&self.days.of(USUAL), operations, tasks, self.begin, seed)
    }

    /// Waits for the end of the last day. Returns the figures, and how long tasks spent in their operations; `None` for
    /// a workload that keeps its own times.
    pub async fn end(&self, known: Option<Paced>) -> (DaysFigures, Option<SimDuration>) {
        let sim = self.fs.queue().sim();
        sim.sleep_until(self.begin + self.days.length()).await;
        let of_sweeps = self.sweeper.figures.get();
        let mut figures = DaysFigures {
            sweeps: of_sweeps.sweeps,
            fitrim_max_ns: of_sweeps.fitrim_max_ns,
            fitrim_units: of_sweeps.fitrim_units,
            ..DaysFigures::of(known.unwrap_or_default(), sim.now().since(self.begin))
        };
        if let Some(daemon) = &self.daemon {
            let did = daemon.did();
            (figures.slices, figures.maps) = (did.slices, did.maps);
            figures.fitrim_max_ns = did.slice_longest.as_nanos();
            figures.fitrim_units = did.sent.units_floor();
        }
        (figures, known.map(|paced| paced.waiting))
    }

    /// Stops the trimmer, and waits until nothing is in progress.
    pub async fn stop(self) {
        self.sweeper.stopping.set(true);
        while self.sweeper.sweeping.get() {
            self.sweeper.done.wait().await;
        }
        if let Some(daemon) = self.daemon {
            daemon.stop().await;
        }
    }
}

#[cfg(test)]
#[path = "days_tests.rs"]
mod tests;
