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

use super::room::Room;
use super::workload::Workload;
use super::{Comparison, Grid, NO_FILL, Ran, Settings, finish, or};
use crate::commands::compare::arguments::CompareArguments;
use trimwise_study::defaults;
use trimwise_study::input::{self, distinct, named};

/// What to run on a kernel.
pub struct Plan {
    pub devices: Vec<(String, Profile)>,
    pub policies: Vec<KernelPolicy>,
    workload: Workload,
    memory: Bytes,
    seed: u64,
    pub settings: Settings,
}

impl Plan {
    /// Resolves the arguments, and rejects what no kernel can do.
    pub fn of(arguments: &CompareArguments, target: &KernelTarget) -> Result<Self, Failure> {
        let option = format!("--target {}", arguments.target);
        target.check_for_policies().map_err(|e| Failure::usage(format!("{option}: {e}")))?;
        if arguments.linux.is_some() {
            let what = format!("--linux does not go with {option}: the target names the kernel");
            return Err(Failure::usage(what));
        }
        if arguments.fill {
            return Err(Failure::usage(NO_FILL));
        }
        let mut policy_arguments = arguments.policies.clone();
        if policy_arguments.is_empty() {
            policy_arguments.extend(KernelPolicy::all_of(target).iter().map(ToString::to_string));
        }
        let policies = distinct(&policy_arguments, "--policy", |text| {
            let policy = KernelPolicy::parse(&input::usual_name(text), target)
                .map_err(|e| Failure::usage(format!("--policy: {e}")))?;
            Ok((policy.to_string(), policy))
        })?;
        let device_arguments = or(&arguments.devices, [defaults::DEVICE]);
        let devices = named(&device_arguments, "--device", input::device)?;
        let workload = Workload::of(arguments)?;
        let memory_mib = arguments.memory.unwrap_or(defaults::MEMORY_MIB);
        let seed = arguments.seed.unwrap_or(defaults::SEED);
        let settings = Settings::of(arguments, |command| {
            device_arguments.iter().for_each(|d| command.option("--device", d));
            policy_arguments.iter().for_each(|p| command.option("--policy", p));
            if let Some(percent) = arguments.utilization {
                command.option("--utilization", percent);
            }
            command.option("--memory", memory_mib);
            command.option("--reps", arguments.reps);
            command.option("--seed", seed);
        });
        let memory = Bytes::mib(memory_mib);
        let settings = Settings {
            target: Target::Kernel(target.to_string()),
            utilization_percent: arguments.utilization,
            host_memory_bytes: Some(memory.0),
            ..settings
        };
        Ok(Self { devices, policies, workload, memory, seed, settings })
    }
}

/// Runs all cells.
pub fn run(
    arguments: &CompareArguments,
    target: &KernelTarget,
    on_signal: impl FnOnce() -> Result<Arc<AtomicBool>, Failure>,
) -> Result<Comparison, Failure> {
    let plan = Plan::of(arguments, target)?;
    let image = guests::image(target)?;
    let runs = Runs {
        grid: Grid { devices: &plan.devices, policies: &plan.policies, reps: arguments.reps },
        workload: &plan.workload,
        image: &image,
        target,
        utilization_percent: arguments.utilization,
        memory: plan.memory,
        seed: plan.seed,
        jobs: arguments.output.jobs,
        limits: arguments.limits.limits(),
    };
    runs.check()?;
    let ran = runs.cells(&on_signal()?);
    let kernel = Some(RealKernel::of(&image, target)?);
    finish(arguments, Settings { kernel, ..plan.settings }, ran)
}

/// Each policy on each device, as often as requested, on one kernel.
pub struct Runs<'a> {
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
    pub fn cells(&self, stop: &Arc<AtomicBool>) -> Ran {
        let memory = |device: &Profile| {
            let guest = guests::memory_of_guest(self.memory, device, self.utilization_percent);
            Bytes(pool::memory_of_run(device).0.saturating_add(guest.0))
        };
        self.grid.run(self.jobs, memory, |_, _, pair, rep| self.run(pair, rep, stop))
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
