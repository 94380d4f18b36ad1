//! Random operations on a real kernel, without power cuts.

use std::time::{Duration, Instant};

use crate::crash::kernel::{Soak, SoakReport};
use crate::guests::{self, RealKernel};
use serde::{Deserialize, Serialize};
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise_linux::pool;

use super::on_kernel::{Found, OnKernel, failure};
use trimwise::numbers::counted;
use trimwise_study::caller::Caller;

/// Memory of a soaking guest, of which sanitizers take a part.
const MEMORY_OF_SOAK: Bytes = Bytes::mib(256);

/// A request for random operations on a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoakRequest {
    /// The kernel under test.
    #[serde(flatten)]
    pub on: OnKernel,
    /// Real time after which no more runs start.
    pub duration: Duration,
    /// Mount options to switch between during a run; empty means no remounts.
    #[serde(default)]
    pub remounts: Vec<String>,
}

/// The result; the order of the keys is part of the format. The number of runs depends on this computer's speed, but
/// the result of each does not.
#[derive(Clone, Debug, Serialize)]
pub struct SoakTests {
    pub trimwise: &'static str,
    pub seed: u64,
    /// The target as given, without `kernel:`.
    pub target: String,
    pub kernel: RealKernel,
    pub device: String,
    pub remounts: Vec<String>,
    /// Whether the user stopped it early.
    pub interrupted: bool,
    /// For each violation described in the report, the command that repeats its run.
    pub again: Vec<String>,
    /// All runs combined.
    #[serde(flatten)]
    pub report: SoakReport,
}

impl SoakTests {
    /// Returns why the tests count as failed, if they do: a violation, or an interrupt.
    pub fn failure(&self) -> Option<Failure> {
        let broken = || format!("random operations break {}", self.target);
        failure(self.report.violations, self.interrupted, broken)
    }
}

/// Runs the operations. Violations are in the [answer](SoakTests::failure).
pub fn run(request: &SoakRequest, caller: &dyn Caller) -> Result<SoakTests, Failure> {
    let (Found { target, device, image }, bounds) = request.on.find(caller)?;
    let (on, duration) = (&request.on, request.duration);
    let guest = guests::guest(&image, MEMORY_OF_SOAK, &bounds)?;
    let soak =
        Soak { guest: &guest, target: &target, device: &device, seed: on.seed, remounts: &request.remounts };
    let memory = Bytes(2 * soak.guest.memory.0 + soak.device.config.capacity_bytes);
    let jobs = on.jobs.map_or_else(|| pool::default_jobs(memory), usize::from);
    let begin = Instant::now();
    let progress = caller.progress(1, "soaks");
    let mut report = SoakReport::default();
    let mut interrupted = false;
    let mut next = 0;
    while next == 0 || (on.run.is_none() && !interrupted && begin.elapsed() < duration) {
        let numbers: Vec<u64> = match on.run {
            Some(run) => vec![run],
            None => (next..next + jobs as u64).collect(),
        };
        let (reports, failure) =
            pool::run_finished(jobs, numbers.len(), |index| soak.one_run(numbers[index]));
        reports.into_iter().for_each(|other| report.add(other));
        interrupted = failure == Some(Failure::Interrupted);
        if let Some(failure) = failure.filter(|_| !interrupted) {
            return Err(failure);
        }
        next += numbers.len() as u64;
        progress.update(0, begin.elapsed().as_secs(), duration.as_secs().max(1));
        let (runs, violations) = (counted(next, "run"), counted(report.violations, "violation"));
        progress.say(format!("{runs}, {violations}"));
    }
    progress.finish();
    let again = report.details.iter().map(|violation| {
        let mut command = on.begun();
        command.option("--soak", "1s");
        if !request.remounts.is_empty() {
            command.argument("--remount");
            request.remounts.iter().for_each(|options| command.argument(options));
        }
        command.option("--run", violation.run);
        command.into_text()
    });
    Ok(SoakTests {
        trimwise: trimwise::VERSION,
        seed: on.seed,
        target: target.to_string(),
        kernel: guests::real_kernel(&image, &target)?,
        device: device.name.clone(),
        remounts: request.remounts.clone(),
        interrupted,
        again: again.collect(),
        report,
    })
}
