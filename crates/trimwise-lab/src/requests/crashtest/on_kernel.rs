//! Power cuts on a real kernel, and what they have in common with a [soak](super::soak).

use std::ops::Range;

use crate::crash::CrashReport;
use crate::crash::kernel::{self, CUTS_PER_RUN, KernelCrashTest};
use crate::guests::{self, Bounds, RealKernel};
use crate::requests::limits;
use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::profile::Profile;
use trimwise::ssd::Drive;
use trimwise::units::Bytes;
use trimwise_linux::pool;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::images::KernelImage;

use super::{CUT, CUTS, RUN};
use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::check::{JOBS, at_most_one, within};
use trimwise_study::command_text::CommandText;
use trimwise_study::given::Given;
use trimwise_study::guest_limits::GuestLimits;
use trimwise_study::verify::Plant;
use trimwise_study::{defaults, input};

/// Memory of a guest: enough for the four file systems, but so little that pages are written back early.
const MEMORY: Bytes = Bytes::mib(96);
/// Memory that one run takes on this computer besides its guest: the recording, and the images of its cuts.
const MEMORY_OF_RUN: Bytes = Bytes::mib(400);

/// A kernel under test, and how to test it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnKernel {
    /// `kernel:VERSION:FS[:MOUNT_OPTIONS]`.
    pub target: Given<KernelTarget>,
    /// The drive's profile (a name or a file), which is scaled down; `None` means the default.
    pub device: Option<String>,
    /// A fault to plant in the drive.
    pub fault: Option<Plant>,
    /// The only run to make, counted from 0.
    pub run: Option<u64>,
    /// Seed of all random numbers.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Runs at a time, without effect on the result; `None` means one for each core.
    pub jobs: Option<u16>,
    /// Time limits of a guest.
    #[serde(flatten)]
    pub limits: GuestLimits,
}

/// A request for power cuts on a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCrashtestRequest {
    /// The kernel under test.
    #[serde(flatten)]
    pub on: OnKernel,
    /// Number of cuts; `None` means the default. Cannot be combined with `on.run`.
    pub cuts: Option<u64>,
    /// The only cut to make, counted from 0 over all runs. Cannot be combined with `on.run` or `cuts`.
    pub cut: Option<u64>,
}

/// The result; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct KernelCrashTests {
    pub trimwise: &'static str,
    pub seed: u64,
    /// The target as given, without `kernel:`.
    pub target: String,
    pub kernel: RealKernel,
    /// The drive's profile.
    pub device: String,
    /// Size of the drive.
    pub capacity_bytes: u64,
    pub fault: Option<&'static str>,
    /// Number of cuts in a run.
    pub cuts_per_run: u64,
    /// Whether the user stopped it early.
    pub interrupted: bool,
    pub command: String,
    /// For each violation described in the report, the command that repeats its cut.
    pub again: Vec<String>,
    /// All runs combined.
    #[serde(flatten)]
    pub report: CrashReport,
}

impl KernelCrashTests {
    /// Returns why the tests count as failed, if they do: a violation, or an interrupt.
    pub fn failure(&self) -> Option<Failure> {
        let broken = || format!("a power cut breaks the file system of {}", self.target);
        failure(self.report.violations, self.interrupted, broken)
    }
}

pub(super) fn failure(
    violations: u64,
    is_interrupted: bool,
    broken: impl FnOnce() -> String,
) -> Option<Failure> {
    match violations {
        0 => is_interrupted.then_some(Failure::Interrupted),
        _ => Some(Failure::run(broken())),
    }
}

/// The parts that a request names.
pub(super) struct Found {
    pub(super) target: KernelTarget,
    pub(super) device: Profile,
    pub(super) image: KernelImage,
}

impl OnKernel {
    /// Finds everything that the request names before installing the handler for an interrupt.
    pub(super) fn find(&self, caller: &dyn Caller) -> Result<(Found, Bounds), Failure> {
        Mistakes::of([
            self.limits.check(),
            within("run", self.run, &RUN),
            within("jobs", self.jobs, &JOBS),
            self.target.get("target").map(drop),
        ])?;
        let target = self.target.get("target")?;
        let file_system = target.file_system;
        let mut profile = input::profile(self.device.as_deref().unwrap_or(defaults::DEVICE), "device")?;
        if let Some(fault) = self.fault {
            profile.faults = fault.on(profile.faults);
        }
        let device = kernel::device(profile, file_system)?;
        Drive::new(&device.config, device.faults, self.seed).map_err(|e| {
            let of = Mistake::of("device", &device.name).because(e.to_string());
            match self.fault {
                Some(fault) => Mistake::of("fault", fault.name()).with(Mistakes(vec![of])).fail(),
                None => of.fail(),
            }
        })?;
        kernel::check_programs(file_system)?;
        let image = guests::image(target)?;
        let stop = caller.stop(OnInterrupt::StopAndShow)?;
        Ok((Found { target: target.clone(), device, image }, Bounds { limits: limits(&self.limits), stop }))
    }

    /// Starts a command line with the options that all runs share.
    pub(super) fn begun(&self) -> CommandText {
        let mut command = CommandText::new("crashtest");
        command.option("--target", &self.target);
        self.device.iter().for_each(|device| command.option("--device", device));
        self.fault.iter().for_each(|fault| command.option("--fault", fault.name()));
        command.option("--seed", self.seed);
        command
    }
}

/// Cuts the power of a guest. Violations are in the [answer](KernelCrashTests::failure).
pub fn run(request: &KernelCrashtestRequest, caller: &dyn Caller) -> Result<KernelCrashTests, Failure> {
    let given = [request.cut.is_some(), request.cuts.is_some(), request.on.run.is_some()];
    Mistakes::of([
        within("cuts", request.cuts, &CUTS),
        within("cut", request.cut, &CUT),
        at_most_one(&[("cut", given[0]), ("cuts", given[1]), ("run", given[2])]),
    ])?;
    let (Found { target, device, image }, bounds) = request.on.find(caller)?;
    let seed = request.on.seed;
    let guest = guests::guest(&image, MEMORY, &bounds)?;
    let test = KernelCrashTest { guest: &guest, target: &target, device: &device, seed };

    let runs: Vec<(u64, Range<u64>)> = match request.cut {
        Some(cut) => vec![(cut / CUTS_PER_RUN, cut % CUTS_PER_RUN..cut % CUTS_PER_RUN + 1)],
        None if request.on.run.is_some() => {
            request.on.run.iter().map(|&run| (run, 0..CUTS_PER_RUN)).collect()
        }
        None => {
            let cuts = request.cuts.unwrap_or(defaults::CUTS);
            let of = |run: u64| (run, 0..(cuts - run * CUTS_PER_RUN).min(CUTS_PER_RUN));
            (0..cuts.div_ceil(CUTS_PER_RUN)).map(of).collect()
        }
    };
    let memory = Bytes(MEMORY.0 + MEMORY_OF_RUN.0 + device.config.capacity_bytes);
    let jobs = request.on.jobs.map_or_else(|| pool::default_jobs(memory), usize::from);
    let progress = caller.progress(runs.len(), "runs");
    let (reports, failure) = pool::run_finished(jobs, runs.len(), |index| {
        let (run, cuts) = runs[index].clone();
        let report = test.one_run(run, cuts, &mut |done, total| progress.update(index, done, total));
        progress.done(index);
        report.map_err(|failure| failure.in_run(format!("{target}, seed {seed}, run {run}")))
    });
    progress.finish();
    let interrupted = failure == Some(Failure::Interrupted);
    if let Some(failure) = failure.filter(|_| !interrupted) {
        return Err(failure);
    }
    let mut report = CrashReport::default();
    reports.into_iter().for_each(|other| report.add(other));
    let command = |name: &str, number: u64| {
        let mut command = request.on.begun();
        command.option(name, number);
        command.into_text()
    };
    Ok(KernelCrashTests {
        trimwise: trimwise::VERSION,
        seed,
        target: target.to_string(),
        kernel: guests::real_kernel(&image, &target)?,
        device: device.name.clone(),
        capacity_bytes: device.config.capacity_bytes,
        fault: request.on.fault.map(|fault| fault.name()),
        cuts_per_run: CUTS_PER_RUN,
        interrupted,
        command: match (request.cut, request.on.run) {
            (Some(cut), _) => command("--cut", cut),
            (None, Some(run)) => command("--run", run),
            (None, None) => command("--cuts", request.cuts.unwrap_or(defaults::CUTS)),
        },
        again: report.details.iter().map(|v| command("--cut", v.run * CUTS_PER_RUN + v.cut)).collect(),
        report,
    })
}
