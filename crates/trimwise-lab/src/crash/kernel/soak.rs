//! Random operations on a real kernel for a long time, with the power on: reads must return the data written, the
//! kernel must not complain, and at the end the file system must be sound and every file complete.
//!
//! Unlike before cuts, the file system gets full, and may be remounted with other options on the way. It is meant for
//! kernels with sanitizers, whose reports are complaints.

use std::collections::BTreeSet;

use serde::Serialize;
use trimwise::profile::Profile;
use trimwise::workload::tagged::{Operation, Plan};
use trimwise_uml::cell::{KernelTarget, new_disk};
use trimwise_uml::job::{Guest, Job, JobError, Outcome, Step};

use super::history::History;
use super::images;
use super::{Broken, check, describe, last_operations, mkfs_options, seed_of};
use crate::guests;
use trimwise::failure::Failure;

const OPERATIONS: u32 = 3_000;
/// Maximum number of failed runs that are described.
const DETAILS_MAX: usize = 5;

pub struct Soak<'a> {
    pub guest: &'a Guest,
    pub target: &'a KernelTarget,
    /// See [`super::device`].
    pub device: &'a Profile,
    pub seed: u64,
    /// Mount options to change between.
    pub remounts: &'a [String],
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SoakReport {
    pub runs: u64,
    pub operations: u64,
    /// Most of these name a file that does not exist.
    pub failed: u64,
    /// Operations that found no space.
    pub no_space: u64,
    pub remounts: u64,
    pub remounts_refused: u64,
    /// Options of the refused remounts.
    pub refused_options: BTreeSet<String>,
    pub requests: u64,
    /// Discards among the requests.
    pub discards: u64,
    pub virtual_ns: u64,
    /// Runs with a fault.
    pub violations: u64,
    /// The first failed runs.
    pub details: Vec<SoakViolation>,
}

/// A run with a fault.
#[derive(Clone, Debug, Serialize)]
pub struct SoakViolation {
    pub run: u64,
    pub machine: String,
    pub broken: Vec<Broken>,
    /// The last operations on the file that the first fault names.
    pub history: Vec<String>,
}

impl Soak<'_> {
    /// Makes the run with this number. A kernel that breaks off is a result, not an error.
    pub fn one_run(&self, run: u64) -> Result<SoakReport, Failure> {
        let seed = seed_of(self.seed, run);
        let drawn = Plan::draw(seed);
        let ballast_percent = [60, 85, 95, 99][(seed % 4) as usize];
        let plan = Plan {
            operations: OPERATIONS / drawn.tasks,
            ballast_percent,
            remounts: self.remounts.to_vec(),
            ..drawn
        };
        let KernelTarget { file_system, options, .. } = self.target;
        let (file_system, mut options) = (*file_system, options.clone());
        if let (true, Some(first)) = (options.is_empty(), self.remounts.first()) {
            options.clone_from(first);
        }
        let mount = Step::Mount { file_system, options: options.clone() };
        let steps = vec![
            Step::Mkfs { file_system, options: mkfs_options(file_system) },
            mount.clone(),
            Step::Tagged { plan: plan.clone() },
            Step::Unmount,
            Step::Examine { file_system, options },
        ];
        let mut disks = [new_disk(self.device, seed, false).map_err(guests::failure)?];
        let mut report = SoakReport { runs: 1, ..SoakReport::default() };
        let (mut broken, mut operations, mut until) = (Vec::new(), Vec::new(), usize::MAX);
        match self.guest.run_in_any_case(&Job { steps }, &mut disks) {
            Ok(job) => {
                broken.extend(job.complaints.into_iter().map(|said| Broken::KernelComplains { said }));
                (report.requests, report.virtual_ns) = (job.ended.requests, job.ended.virtual_time.0);
                let mut history = History::default();
                for step in job.steps {
                    match step.outcome {
                        Outcome::Logged(log) => {
                            report.operations = log.len() as u64;
                            let errors = log.iter().filter_map(|logged| logged.error.as_deref());
                            report.failed = errors.clone().count() as u64;
                            report.no_space =
                                errors.filter(|error| error.contains("os error 28")).count() as u64;
                            let remounts = log
                                .iter()
                                .filter(|logged| matches!(logged.operation, Operation::Remount { .. }));
                            for remount in remounts {
                                let is_refused = remount.error.is_some();
                                report.remounts += u64::from(!is_refused);
                                report.remounts_refused += u64::from(is_refused);
                                if let (true, Operation::Remount { options }) =
                                    (is_refused, &remount.operation)
                                {
                                    report.refused_options.insert(options.clone());
                                }
                            }
                            history = History::of(&log);
                            until = history.wrong_reads.first().map_or(until, |(end, _)| end + 1);
                            broken.extend(history.wrong_reads.drain(..).map(|(_, wrong)| wrong));
                            operations = log;
                        }
                        Outcome::Examined(found) => {
                            broken.extend(found.error.map(|error| Broken::Unusable { error }));
                            // Everything has ended, and the unmount made it durable.
                            let expected = history.at(usize::MAX, Some(usize::MAX));
                            check::files(&expected, &found.files, &mut broken);
                        }
                        _ => {}
                    }
                }
                let [disk] = disks;
                let (port, store, ..) = disk.into_parts();
                report.discards = port.counts().discards;
                let said = images::check(file_system, store.file());
                let said = said.map_err(|e| Failure::run(format!("cannot check the file system: {e}")))?;
                broken.extend(said.map(|said| Broken::CheckerFound { said }));
            }
            Err(error) if error.is_of_the_kernel() => {
                broken.push(Broken::KernelComplains { said: error.to_string() });
            }
            Err(error) => match &error {
                // It is no fault if the kernel refuses the options of a new file system.
                JobError::Step { step, .. } if *step != mount.name() => {
                    broken.push(Broken::Unusable { error: error.to_string() });
                }
                _ => return Err(guests::job_failure(error)),
            },
        }
        if !broken.is_empty() {
            report.violations = 1;
            let history = last_operations(&operations, until, &broken[..1]);
            report.details.push(SoakViolation { run, machine: describe(&plan), broken, history });
        }
        Ok(report)
    }
}

impl SoakReport {
    /// Adds the results of another run; add runs in order.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.failed += other.failed;
        self.no_space += other.no_space;
        self.remounts += other.remounts;
        self.remounts_refused += other.remounts_refused;
        self.refused_options.extend(other.refused_options);
        self.requests += other.requests;
        self.discards += other.discards;
        self.virtual_ns += other.virtual_ns;
        self.violations += other.violations;
        let room = DETAILS_MAX.saturating_sub(self.details.len());
        self.details.extend(other.details.into_iter().take(room));
    }
}
