//! `trimwise crashtest --target kernel:... --soak 1h`: random operations with the power on.

use std::time::{Duration, Instant};

use serde::Serialize;
use trimwise::units::Bytes;
use trimwise_lab::crash::kernel::{Soak, SoakReport};
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::RealKernel;
use trimwise_lab::pool;
use trimwise_uml::images::KernelImage;

use super::arguments::CrashtestArguments;
use super::on_kernel::{begun, concluded};
use super::table;
use crate::figures::counted;
use crate::output::Destinations;
use crate::progress::Progress;

/// What `--json` writes; the order of the keys is part of the format. How many runs there were depends on this
/// computer's speed; each of them does not.
#[derive(Clone, Debug, Serialize)]
pub struct SoakTests {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The seed.
    pub seed: u64,
    /// As given, without `kernel:`.
    pub target: String,
    /// The kernel.
    pub kernel: RealKernel,
    /// The drive.
    pub device: String,
    /// The mount options to change between.
    pub remounts: Vec<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// For each violation that is described, the command that repeats its run.
    pub again: Vec<String>,
    /// All runs together.
    #[serde(flatten)]
    pub report: SoakReport,
}

/// Runs it; a violation is a failed run (exit code 1).
pub fn run(
    arguments: &CrashtestArguments,
    target: &str,
    image: &KernelImage,
    soak: &Soak<'_>,
    duration: Duration,
    destinations: &Destinations,
) -> Result<String, Failure> {
    let memory = Bytes(2 * soak.guest.memory.0 + soak.device.config.capacity_bytes);
    let jobs = arguments.jobs.map_or_else(|| pool::default_jobs(memory), usize::from);
    let begin = Instant::now();
    let progress = Progress::of(1, "soaks");
    let mut report = SoakReport::default();
    let mut interrupted = false;
    let mut next = 0;
    while next == 0 || (arguments.run.is_none() && !interrupted && begin.elapsed() < duration) {
        let numbers: Vec<u64> = match arguments.run {
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
        let mut command = begun(arguments, target);
        command.option("--soak", "1s");
        if !arguments.remounts.is_empty() {
            command.argument("--remount");
            arguments.remounts.iter().for_each(|options| command.argument(options));
        }
        command.option("--run", violation.run);
        command.into_text()
    });
    let tests = SoakTests {
        trimwise: trimwise::VERSION,
        seed: arguments.seed,
        target: soak.target.to_string(),
        kernel: RealKernel::of(image, soak.target)?,
        device: soak.device.name.clone(),
        remounts: arguments.remounts.clone(),
        interrupted,
        again: again.collect(),
        report,
    };
    let text = destinations.deliver(&tests, || table::of_soak(&tests))?;
    let broken = || format!("random operations break {}", tests.target);
    concluded(text, tests.report.violations, interrupted, broken)
}
