//! `compare --target kernel:...`: every cell on a real kernel in virtual time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::units::Bytes;
use trimwise_uml::cell::{KernelPolicy, KernelTarget};
use trimwise_uml::images::KernelImage;
use trimwise_uml::machine::Limits;

use super::{Comparison, Host, NO_FILL, Ran, RealKernel, finish, named, workload};
use crate::command_line::CommandText;
use crate::commands::compare::arguments::CompareArguments;
use crate::defaults;
use crate::failure::Failure;
use crate::pool;
use crate::progress::Progress;
use crate::runner::{KernelRun, Models, usual_name};

/// Runs all cells.
pub fn run<M: Models>(
    models: &M,
    arguments: &CompareArguments,
    target: &KernelTarget,
    on_signal: impl FnOnce() -> Result<Arc<AtomicBool>, Failure>,
) -> Result<Comparison, Failure> {
    let option = format!("--target {}", arguments.target);
    target.check_for_policies().map_err(|e| Failure::usage(format!("{option}: {e}")))?;
    if arguments.linux.is_some() {
        let what = format!("--linux does not go with {option}: the target names the kernel");
        return Err(Failure::usage(what));
    }
    if arguments.fill {
        return Err(Failure::usage(NO_FILL));
    }
    let file_system = target.file_system;
    let mut policy_arguments = arguments.policies.clone();
    if policy_arguments.is_empty() {
        policy_arguments.extend(KernelPolicy::all_of(file_system).iter().map(ToString::to_string));
    }
    let policies = named(&policy_arguments, "--policy", |text| {
        let policy = KernelPolicy::parse(&usual_name(text), file_system)
            .map_err(|e| Failure::usage(format!("--policy: {e}")))?;
        Ok((policy.to_string(), policy))
    })?;
    let mut device_arguments = arguments.devices.clone();
    if device_arguments.is_empty() {
        device_arguments.push(defaults::DEVICE.to_string());
    }
    let devices = named(&device_arguments, "--device", |a| models.device(a))?;
    let workload = workload(models, arguments)?;
    let image = models.kernel(target)?;
    let memory_mib = arguments.memory.unwrap_or(defaults::MEMORY_MIB);
    let seed = arguments.seed.unwrap_or(defaults::SEED);
    let runs = Runs::<M> {
        devices: &devices,
        policies: &policies,
        workload: &workload,
        image: &image,
        target,
        utilization_percent: arguments.utilization,
        memory: Bytes::mib(memory_mib),
        reps: arguments.reps,
        seed,
        jobs: arguments.output.jobs,
        limits: arguments.limits.limits(),
    };
    runs.check(models)?;
    let stop = on_signal()?;
    let ran = runs.cells(models, &stop);

    let mut command = CommandText::new("compare");
    command.option("--workload", &arguments.workload);
    command.option("--target", &arguments.target);
    device_arguments.iter().for_each(|d| command.option("--device", d));
    policy_arguments.iter().for_each(|p| command.option("--policy", p));
    if let Some(percent) = arguments.utilization {
        command.option("--utilization", percent);
    }
    command.option("--memory", memory_mib);
    command.option("--reps", arguments.reps);
    command.option("--seed", seed);
    let host = Host {
        utilization_percent: arguments.utilization,
        linux: None,
        memory: Some(Bytes::mib(memory_mib)),
        kernel: Some(RealKernel::of(&image, target)?),
        mount: None,
    };
    finish(arguments, ran, host, command)
}

/// Each policy on each device, as often as requested, on one kernel.
pub struct Runs<'a, M: Models> {
    pub devices: &'a [(String, M::Device)],
    pub policies: &'a [(String, KernelPolicy)],
    pub workload: &'a M::Workload,
    pub image: &'a KernelImage,
    pub target: &'a KernelTarget,
    pub utilization_percent: Option<u8>,
    pub memory: Bytes,
    pub reps: u32,
    pub seed: u64,
    pub jobs: Option<u16>,
    pub limits: Limits,
}

impl<M: Models> Runs<'_, M> {
    /// Rejects what cannot run, before anything runs.
    pub fn check(&self, models: &M) -> Result<(), Failure> {
        let stop = Arc::default();
        self.first_of_each(&stop).try_for_each(|run| models.check_kernel_run(&run))
    }

    /// Runs them, as many at a time as fit. A stop ends each guest.
    pub fn cells(&self, models: &M, stop: &Arc<AtomicBool>) -> Ran {
        let memory = || self.first_of_each(stop).map(|run| models.kernel_memory(&run)).max();
        let jobs = self.jobs.map_or_else(|| pool::default_jobs(memory().unwrap_or_default()), usize::from);
        let progress = Progress::new(self.count());
        let ran = pool::run_finished(jobs, self.count(), |index| {
            let cell = models.run_kernel(&self.run(index, stop));
            progress.done(index);
            cell
        });
        progress.finish();
        ran
    }

    fn count(&self) -> usize {
        self.devices.len() * self.policies.len() * self.reps as usize
    }

    fn run<'r>(&'r self, index: usize, stop: &'r Arc<AtomicBool>) -> KernelRun<'r, M> {
        let reps = self.reps as usize;
        KernelRun {
            device: &self.devices[index / reps / self.policies.len()].1,
            workload: self.workload,
            image: self.image,
            target: self.target,
            policy: self.policies[index / reps % self.policies.len()].1,
            utilization_percent: self.utilization_percent,
            memory: self.memory,
            rep: (index % reps) as u32,
            seed: self.seed,
            limits: self.limits,
            stop,
        }
    }

    /// The first repetition of each policy on each device.
    fn first_of_each<'r>(&'r self, stop: &'r Arc<AtomicBool>) -> impl Iterator<Item = KernelRun<'r, M>> {
        (0..self.count()).step_by(self.reps as usize).map(|index| self.run(index, stop))
    }
}
