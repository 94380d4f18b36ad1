//! `compare --target kernel:...`: every cell on a real kernel in virtual time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::units::Bytes;
use trimwise_uml::cell::{KernelPolicy, KernelTarget};

use super::{Comparison, Host, NO_FILL, RealKernel, finish, named, workload};
use crate::arguments::CompareArguments;
use crate::command_line::CommandText;
use crate::defaults;
use crate::failure::Failure;
use crate::pool;
use crate::progress::Progress;
use crate::runner::{KernelRun, Models};

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
        let policy =
            KernelPolicy::parse(text, file_system).map_err(|e| Failure::usage(format!("--policy: {e}")))?;
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
    let stop = Arc::new(AtomicBool::new(false));
    let first = KernelRun::<M> {
        device: &devices[0].1,
        workload: &workload,
        image: &image,
        target,
        policy: policies[0].1,
        utilization_percent: arguments.utilization,
        memory: Bytes::mib(memory_mib),
        rep: 0,
        seed,
        stop: &stop,
    };
    let mut memory = Bytes(0);
    for (_, device) in &devices {
        for &(_, policy) in &policies {
            let run = KernelRun { device, policy, ..first };
            models.check_kernel_run(&run)?;
            memory = memory.max(models.kernel_memory(&run));
        }
    }
    let stop = on_signal()?;

    let reps = arguments.reps as usize;
    let count = devices.len() * policies.len() * reps;
    let jobs = arguments.output.jobs.map_or_else(|| pool::default_jobs(memory), usize::from);
    let progress = Progress::new(count);
    let cells = pool::run_ordered(jobs, count, |index| {
        let cell = models.run_kernel(&KernelRun {
            device: &devices[index / reps / policies.len()].1,
            policy: policies[index / reps % policies.len()].1,
            rep: (index % reps) as u32,
            stop: &stop,
            ..first
        });
        progress.done(index);
        cell
    });
    progress.finish();
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
        kernel: Some(RealKernel::of(&image, target)),
        mount: None,
    };
    finish(arguments, cells?, host, command)
}
