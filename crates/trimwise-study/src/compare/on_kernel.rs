//! `compare --target kernel:...`: every cell on a real kernel in virtual time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::compare::result::{Cell, Target};
use trimwise::fs::layout::FormatOptions;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::{self, Bounds, RealKernel};
use trimwise_lab::pool;
use trimwise_uml::cell::{KernelCell, KernelPolicy, KernelTarget};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::FileSystem;
use trimwise_uml::machine::Limits;

use super::CompareRequest;
use super::room::Room;
use super::workload::Workload;
use super::{Comparison, Grid, NO_FILL, Ran, Settings, finish, or};
use crate::caller::{Caller, OnInterrupt};
use crate::defaults;
use crate::input::{self, distinct, named};

/// What to run on a kernel.
pub struct Plan {
    /// The devices, each with the name that tables show.
    pub devices: Vec<(String, Profile)>,
    /// The policies.
    pub policies: Vec<KernelPolicy>,
    workload: Workload,
    memory: Bytes,
    seed: u64,
    /// What was asked for, as the answer shows it.
    pub settings: Settings,
}

impl Plan {
    /// Resolves the arguments, and rejects what no kernel can do.
    pub fn of(request: &CompareRequest, target: &KernelTarget) -> Result<Self, Failure> {
        let option = format!("--target {}", request.target);
        target.check_for_policies().map_err(|e| Failure::usage(format!("{option}: {e}")))?;
        if request.linux.is_some() {
            let what = format!("--linux does not go with {option}: the target names the kernel");
            return Err(Failure::usage(what));
        }
        if request.fill {
            return Err(Failure::usage(NO_FILL));
        }
        let mut policy_arguments = request.policies.clone();
        if policy_arguments.is_empty() {
            policy_arguments.extend(KernelPolicy::all_of(target).iter().map(ToString::to_string));
        }
        let policies = distinct(&policy_arguments, "--policy", |text| {
            let policy = KernelPolicy::parse(&input::usual_name(text), target)
                .map_err(|e| Failure::usage(format!("--policy: {e}")))?;
            Ok((policy.to_string(), policy))
        })?;
        let device_arguments = or(&request.devices, [defaults::DEVICE]);
        let devices = named(&device_arguments, "--device", input::device)?;
        let workload = Workload::of(request)?;
        let memory_mib = request.memory.unwrap_or(defaults::MEMORY_MIB);
        let seed = request.seed.unwrap_or(defaults::SEED);
        let settings = Settings::of(request, |command| {
            device_arguments.iter().for_each(|d| command.option("--device", d));
            policy_arguments.iter().for_each(|p| command.option("--policy", p));
            if let Some(percent) = request.utilization {
                command.option("--utilization", percent);
            }
            command.option("--memory", memory_mib);
            command.option("--reps", request.reps);
            command.option("--seed", seed);
        });
        let memory = Bytes::mib(memory_mib);
        let settings = Settings {
            target: Target::Kernel(target.to_string()),
            utilization_percent: request.utilization,
            host_memory_bytes: Some(memory.0),
            ..settings
        };
        Ok(Self { devices, policies, workload, memory, seed, settings })
    }
}

/// Runs all cells.
pub fn run(
    request: &CompareRequest,
    target: &KernelTarget,
    caller: &dyn Caller,
) -> Result<Comparison, Failure> {
    let plan = Plan::of(request, target)?;
    let image = guests::image(target)?;
    let runs = Runs {
        grid: Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps },
        workload: &plan.workload,
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
    let ran = runs.cells(caller, &caller.stop(OnInterrupt::Stop)?);
    let kernel = Some(RealKernel::of(&image, target)?);
    finish(request, Settings { kernel, ..plan.settings }, None, ran)
}

/// Each policy on each device, as often as requested, on one kernel.
pub(super) struct Runs<'a> {
    pub grid: Grid<'a, KernelPolicy>,
    pub workload: &'a Workload,
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
            let guest = guests::memory_of_guest(self.memory, device, self.utilization_percent);
            Bytes(pool::memory_of_run(device).0.saturating_add(guest.0))
        };
        self.grid.run(caller, self.jobs, memory, |_, _, pair, rep| self.run(pair, rep, stop))
    }

    fn run(
        &self,
        (device, policy): (&Profile, KernelPolicy),
        rep: u32,
        stop: &Arc<AtomicBool>,
    ) -> Result<Cell, Failure> {
        let Self { target, utilization_percent, seed, .. } = *self;
        let workload = &self.workload.to_guest()?;
        let cell = KernelCell { device, target, policy, workload, utilization_percent, rep, seed };
        let bounds = Bounds { limits: self.limits, stop: Arc::clone(stop) };
        cell.run(&guests::guest(self.image, self.memory, &bounds)?).map_err(guests::failure)
    }
}
