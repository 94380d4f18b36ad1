//! `trimwise crashtest --target kernel:...`: power cuts on a real kernel. What it has in common with `--soak` is here.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::ssd::Drive;
use trimwise::units::Bytes;
use trimwise_lab::crash::CrashReport;
use trimwise_lab::crash::kernel::{self, CUTS_PER_RUN, KernelCrashTest, Soak};
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::{self, Bounds, RealKernel};
use trimwise_lab::pool;
use trimwise_uml::cell::KernelTarget;

use super::arguments::CrashtestArguments;
use super::{soak, table};
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;
use trimwise_study::input;

/// Memory of a guest: enough for the four file systems, and little, so that pages are written back early.
const MEMORY: Bytes = Bytes::mib(96);
/// Memory of a guest that soaks: sanitizers take a part of it.
const MEMORY_OF_SOAK: Bytes = Bytes::mib(256);
/// Memory of this computer that one run takes besides its guest: what was recorded, and the images of its cuts.
const MEMORY_OF_RUN: Bytes = Bytes::mib(400);

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct KernelCrashTests {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The seed.
    pub seed: u64,
    /// As given, without `kernel:`.
    pub target: String,
    /// The kernel.
    pub kernel: RealKernel,
    /// The drive, and its size.
    pub device: String,
    /// Size of the drive.
    pub capacity_bytes: u64,
    /// The planted fault.
    pub fault: Option<&'static str>,
    /// Cuts of one run.
    pub cuts_per_run: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// The command that repeats this.
    pub command: String,
    /// For each violation that is described, the command that repeats its cut.
    pub again: Vec<String>,
    /// All runs together.
    #[serde(flatten)]
    pub report: CrashReport,
}

/// Runs it; a violation is a failed run (exit code 1).
pub fn run(
    arguments: &CrashtestArguments,
    target: &str,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let parsed = parse(target)?;
    let file_system = parsed.file_system;
    let mut profile = input::profile(arguments.device.as_deref().unwrap_or(defaults::DEVICE), "device")?;
    if let Some(fault) = arguments.fault {
        profile.faults = fault.on(profile.faults);
    }
    let device = kernel::device(profile, file_system)?;
    Drive::new(&device.config, device.faults, arguments.seed).map_err(|e| {
        let fault = arguments.fault.map_or_else(String::new, |fault| format!("--fault {}: ", fault.name()));
        Failure::usage(format!("{fault}--device {}: {e}", device.name))
    })?;
    kernel::check_programs(file_system)?;
    let image = guests::image(&parsed)?;
    let stop = on_signal(OnInterrupt::StopAndShow)?;
    let bounds = Bounds { limits: arguments.limits.limits(), stop };
    if let Some(duration) = arguments.soak {
        let guest = guests::guest(&image, MEMORY_OF_SOAK, &bounds)?;
        let remounts = &arguments.remounts;
        let soak = Soak { guest: &guest, target: &parsed, device: &device, seed: arguments.seed, remounts };
        return soak::run(arguments, target, &image, &soak, duration, &destinations);
    }
    let guest = guests::guest(&image, MEMORY, &bounds)?;
    let test = KernelCrashTest { guest: &guest, target: &parsed, device: &device, seed: arguments.seed };

    let runs: Vec<(u64, std::ops::Range<u64>)> = match arguments.cut {
        Some(cut) => vec![(cut / CUTS_PER_RUN, cut % CUTS_PER_RUN..cut % CUTS_PER_RUN + 1)],
        None if arguments.run.is_some() => arguments.run.iter().map(|&run| (run, 0..CUTS_PER_RUN)).collect(),
        None => {
            let cuts = arguments.cuts.unwrap_or(defaults::CUTS);
            let of = |run: u64| (run, 0..(cuts - run * CUTS_PER_RUN).min(CUTS_PER_RUN));
            (0..cuts.div_ceil(CUTS_PER_RUN)).map(of).collect()
        }
    };
    let memory = Bytes(MEMORY.0 + MEMORY_OF_RUN.0 + device.config.capacity_bytes);
    let jobs = arguments.jobs.map_or_else(|| pool::default_jobs(memory), usize::from);
    let progress = Progress::new(runs.len());
    let (reports, failure) = pool::run_finished(jobs, runs.len(), |index| {
        let (run, cuts) = runs[index].clone();
        let report = test.one_run(run, cuts, &mut |done, total| progress.update(index, done, total));
        progress.done(index);
        report.map_err(|e| match e {
            Failure::Run(e) => Failure::run(format!("{parsed}, seed {}, run {run}: {e}", arguments.seed)),
            other => other,
        })
    });
    progress.finish();
    let interrupted = failure == Some(Failure::Interrupted);
    if let Some(failure) = failure.filter(|_| !interrupted) {
        return Err(failure);
    }
    let mut report = CrashReport::default();
    reports.into_iter().for_each(|other| report.add(other));
    let command = |name: &str, number: u64| {
        let mut command = begun(arguments, target);
        command.option(name, number);
        command.into_text()
    };
    let tests = KernelCrashTests {
        trimwise: trimwise::VERSION,
        seed: arguments.seed,
        target: parsed.to_string(),
        kernel: RealKernel::of(&image, &parsed)?,
        device: device.name.clone(),
        capacity_bytes: device.config.capacity_bytes,
        fault: arguments.fault.map(|fault| fault.name()),
        cuts_per_run: CUTS_PER_RUN,
        interrupted,
        command: match (arguments.cut, arguments.run) {
            (Some(cut), _) => command("--cut", cut),
            (None, Some(run)) => command("--run", run),
            (None, None) => command("--cuts", arguments.cuts.unwrap_or(defaults::CUTS)),
        },
        again: report.details.iter().map(|v| command("--cut", v.run * CUTS_PER_RUN + v.cut)).collect(),
        report,
    };
    let text = destinations.deliver(&tests, || table::of_kernel(&tests))?;
    let broken = || format!("a power cut breaks the file system of {parsed}");
    concluded(text, tests.report.violations, interrupted, broken)
}

/// Returns the text of a run without violations that was not stopped; prints any other, which has failed.
pub(super) fn concluded(
    text: String,
    violations: u64,
    interrupted: bool,
    broken: impl FnOnce() -> String,
) -> Result<String, Failure> {
    if violations == 0 && !interrupted {
        return Ok(text);
    }
    output::print(&text)?;
    Err(if violations == 0 { Failure::Interrupted } else { Failure::run(broken()) })
}

/// Begins a command line with what all runs have in common.
pub(super) fn begun(arguments: &CrashtestArguments, target: &str) -> CommandText {
    let mut command = CommandText::new("crashtest");
    command.option("--target", target);
    arguments.device.iter().for_each(|device| command.option("--device", device));
    arguments.fault.iter().for_each(|fault| command.option("--fault", fault.name()));
    command.option("--seed", arguments.seed);
    command
}

fn parse(target: &str) -> Result<KernelTarget, Failure> {
    let parsed = target.strip_prefix("kernel:").ok_or_else(|| {
        format!("'{target}'; expected kernel:VERSION:FS[:MOUNT_OPTIONS] such as kernel:6.12:ext4:discard")
    });
    let parsed = parsed.and_then(str::parse::<KernelTarget>);
    parsed.map_err(|e| Failure::usage(format!("--target {e}")))
}
