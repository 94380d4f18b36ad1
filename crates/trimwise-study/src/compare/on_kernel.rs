//! `compare --target kernel:...`: every cell on a real kernel in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trimwise::compare::result::{Cell, Target};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::Trimmer;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise::workload::days::Days;
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::{self, Bounds, RealKernel};
use trimwise_lab::pool;
use trimwise_uml::cell::{self, KernelCell, KernelPolicy, KernelTarget};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::FileSystem;
use trimwise_uml::machine::Limits;

use super::CompareRequest;
use super::here::{Here, StandIn};
use super::on_model::{days, needs_days};
use super::room::Room;
use super::workload::Workload;
use super::{Comparison, Grid, NO_FILL, Ran, Settings, finish, or};
use crate::caller::{Caller, OnInterrupt};
use crate::defaults;
use crate::input::{self, distinct, named};

/// What part of a drive's bytes takes memory where data are zeros: metadata and short writes, with room to spare.
const ZEROS_SHARE: u64 = 8;

/// What to run on a kernel.
pub struct Plan {
    /// The devices, each with the name that tables show.
    pub devices: Vec<(String, Profile)>,
    /// The policies.
    pub policies: Vec<KernelPolicy>,
    workload: Workload,
    days: Option<Days>,
    memory: Bytes,
    seed: u64,
    here: Option<Here>,
    /// What was asked for, as the answer shows it.
    pub settings: Settings,
}

/// Finds everything that no kernel does of what a request asks for, each in a sentence without its end.
pub(super) fn refusals(request: &CompareRequest, workload: &Workload, target: &KernelTarget) -> Vec<String> {
    let is_usage = |failure: Failure| match failure {
        Failure::Usage(why) => Some(why),
        _ => None,
    };
    let days = days(request, workload);
    let policies = request.policies.iter().filter_map(|text| policy(text, target).err());
    let daemon = request.policies.iter().filter(|text| Trimmer::is_daemon(text)).map(|text| needs_days(text));
    let daemon = daemon.filter(|_| matches!(days, Ok(None)));
    let of_workload = [workload.to_guest().err(), days.as_ref().err().cloned()];
    policies.chain(daemon).chain(of_workload.into_iter().flatten()).filter_map(is_usage).collect()
}

/// Parses a policy of a kernel.
fn policy(text: &str, target: &KernelTarget) -> Result<(String, KernelPolicy), Failure> {
    let policy = KernelPolicy::parse(&input::usual_name(text), target)
        .map_err(|e| Failure::usage(format!("--policy: {e}")))?;
    Ok((policy.to_string(), policy))
}

impl Plan {
    /// Resolves the arguments, and rejects what no kernel can do.
    pub fn of(request: &CompareRequest, target: &KernelTarget) -> Result<Self, Failure> {
        let workload = Workload::of(request)?;
        let found = StandIn::of(request, &workload)?;
        Self::on(request, target, (workload, found))
    }

    /// Does the same where the workload, and what stands in for the host, are known.
    fn on(
        request: &CompareRequest,
        target: &KernelTarget,
        (workload, found): (Workload, Option<StandIn>),
    ) -> Result<Self, Failure> {
        let option = format!("--target {}", request.target);
        target.check_for_policies().map_err(|e| Failure::usage(format!("{option}: {e}")))?;
        if request.linux.is_some() {
            let what = format!("--linux does not go with {option}: the target names the kernel");
            return Err(Failure::usage(what));
        }
        if request.fill {
            return Err(Failure::usage(NO_FILL));
        }
        let refusals = refusals(request, &workload, target);
        if !refusals.is_empty() {
            return Err(Failure::usage(refusals.join("\n")));
        }
        let days = days(request, &workload)?;
        let mut policy_arguments = request.policies.clone();
        if policy_arguments.is_empty() {
            policy_arguments = match &found {
                Some(found) => found.policies(days.is_some(), Some(target)),
                None => KernelPolicy::all_of(target).iter().map(ToString::to_string).collect(),
            };
            if days.is_some() && found.is_none() {
                policy_arguments.extend(["batch:1d", "batch:1w"].map(str::to_owned));
            }
        }
        let policies = distinct(&policy_arguments, "--policy", |text| policy(text, target))?;
        if policies.iter().any(|policy| policy.is_daemon()) {
            guests::trimwised()?;
        }
        let device_arguments = match &found {
            Some(found) => vec![found.device.clone()],
            None => or(&request.devices, [defaults::DEVICE]),
        };
        let mut devices = named(&device_arguments, "--device", input::device)?;
        let here = found
            .as_ref()
            .map(|found| found.stand_in(&mut devices[0], days.is_some(), Some(target)))
            .transpose()?;
        let workload = found.as_ref().map_or_else(|| workload.clone(), |found| workload.scaled(&found.scale));
        let of_host = found.as_ref().and_then(|found| found.memory_mib);
        let memory_mib = request.memory.or(of_host).unwrap_or(defaults::MEMORY_MIB);
        let seed = request.seed.unwrap_or(defaults::SEED);
        let settings = Settings::of(request, |command| {
            if found.as_ref().is_none_or(StandIn::is_given) {
                device_arguments.iter().for_each(|d| command.option("--device", d));
            }
            policy_arguments.iter().for_each(|p| command.option("--policy", p));
            if let Some(percent) = request.utilization {
                command.option("--utilization", percent);
            }
            command.option("--memory", memory_mib);
            if let Some(days) = &days {
                command.option("--days", days.days());
                command.option("--day", days.shape());
            }
            command.option("--reps", request.reps);
            command.option("--seed", seed);
        });
        let memory = Bytes::mib(memory_mib);
        let settings = Settings {
            target: Target::Kernel(target.to_string()),
            file_system: Some(target.file_system.name().into()),
            utilization_percent: request.utilization,
            host_memory_bytes: Some(memory.0),
            days: days.as_ref().map(Days::days),
            day: days.as_ref().map(|days| days.shape().to_string()),
            ..settings
        };
        Ok(Self { devices, policies, workload, days, memory, seed, here, settings })
    }
}

/// Runs all cells.
pub fn run(
    request: &CompareRequest,
    target: &KernelTarget,
    of: (Workload, Option<StandIn>),
    caller: &dyn Caller,
) -> Result<Comparison, Failure> {
    let plan = Plan::on(request, target, of)?;
    let image = guests::image(target)?;
    let runs = Runs {
        grid: Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps },
        workload: &plan.workload,
        days: plan.days.as_ref(),
        long_in_use: plan.here.is_some(),
        image: &image,
        target,
        utilization_percent: request.utilization,
        memory: plan.memory,
        seed: plan.seed,
        jobs: request.jobs,
        limits: request.limits.limits(),
    };
    runs.check()?;
    plan.workload.tell_notes(caller);
    let ran = runs.cells(caller, &caller.stop(OnInterrupt::StopAndShow)?);
    let kernel = Some(RealKernel::of(&image, target)?);
    finish(request, Settings { kernel, ..plan.settings }, plan.here, ran)
}

/// Each policy on each device, as often as requested, on one kernel.
pub(super) struct Runs<'a> {
    pub grid: Grid<'a, KernelPolicy>,
    pub workload: &'a Workload,
    /// Over which days the workload is spread.
    pub days: Option<&'a Days>,
    /// Whether the drive is brought to the state of one in long use.
    pub long_in_use: bool,
    pub image: &'a KernelImage,
    pub target: &'a KernelTarget,
    pub utilization_percent: Option<u8>,
    pub memory: Bytes,
    pub seed: u64,
    pub jobs: Option<u16>,
    pub limits: Limits,
}

impl Runs<'_> {
    /// Rejects what cannot run, before anything runs.
    pub fn check(&self) -> Result<(), Failure> {
        self.workload.to_guest()?;
        for (device, policy) in self.grid.pairs() {
            guests::check_size(device, self.target.file_system)?;
            if !device.config.trim.is_supported() && policy != KernelPolicy::Off {
                return Err(Failure::usage(format!(
                    "--policy {policy}: {} does not support TRIM; expected --policy off there",
                    device.name
                )));
            }
            // The room of other file systems is unknown.
            if self.target.file_system == FileSystem::Ext4
                && let Ok(room) =
                    Room::of(device, FormatOptions::TODAY, self.utilization_percent.unwrap_or(0))
            {
                self.workload.check(&room, device)?;
            }
        }
        Ok(())
    }

    /// Runs them, as many at a time as fit. A stop ends each guest.
    pub fn cells(&self, caller: &dyn Caller, stop: &Arc<AtomicBool>) -> Ran {
        let memory = |device: &Profile| {
            let guest = match cell::writes_zeros(device, self.target) {
                true => Bytes(self.memory.0.saturating_add(device.config.capacity_bytes / ZEROS_SHARE)),
                false => guests::memory_of_guest(self.memory, device, self.utilization_percent),
            };
            Bytes(pool::memory_of_run(device).0.saturating_add(guest.0))
        };
        let count = self.grid.pairs().count() * self.grid.reps as usize;
        let jobs = self.grid.jobs(self.jobs, memory).clamp(1, count.max(1));
        let (begun, is_told) = (Instant::now(), AtomicBool::new(count <= jobs));
        self.grid.run(caller, self.jobs, memory, |_, _, pair, rep| {
            let ran = self.run(pair, rep, stop);
            if ran.is_ok() && !is_told.swap(true, Ordering::Relaxed) {
                self.tell_time(caller, begun.elapsed(), count, jobs);
            }
            ran
        })
    }

    /// Tells how long all runs may take, from the time of the first.
    fn tell_time(&self, caller: &dyn Caller, first: Duration, count: usize, jobs: usize) {
        const WORTH_TELLING: Duration = Duration::from_secs(2);
        if first < WORTH_TELLING {
            return;
        }
        let left = first.as_secs_f64() * (count.div_ceil(jobs) - 1) as f64;
        let left = if left < 90.0 { format!("{left:.0} s") } else { format!("{:.0} min", left / 60.0) };
        caller.note(&format!(
            "{count} runs on {} of Linux {}, {jobs} at a time; the first took {:.0} s, so some {left} are left; Ctrl-C \
             keeps finished runs",
            self.target.file_system.name(),
            self.target.kernel,
            first.as_secs_f64()
        ));
    }

    fn run(
        &self,
        (device, policy): (&Profile, KernelPolicy),
        rep: u32,
        stop: &Arc<AtomicBool>,
    ) -> Result<Cell, Failure> {
        let Self { target, utilization_percent, long_in_use, days, seed, .. } = *self;
        let workload = &self.workload.to_guest()?;
        let cell = KernelCell {
            device,
            target,
            policy,
            workload,
            utilization_percent,
            long_in_use,
            days,
            rep,
            seed,
        };
        let bounds = Bounds { limits: self.limits, stop: Arc::clone(stop) };
        let mut guest = guests::guest(self.image, self.memory, &bounds)?;
        if policy.is_daemon() {
            guest.daemon = Some(guests::trimwised()?);
        }
        cell.run(&guest).map_err(guests::failure)
    }
}
