//! Device tests: on a model in virtual time, on a real file or device in real time.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::bench::{self, Hooks, Results, Settings, Test};
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::Ssd;
use trimwise_host::block_on;
use trimwise_host::consent;
use trimwise_host::raw_device::{Access, Options, RawDevice, RawDeviceError};

use super::{BenchProgress, RealTarget};
use crate::failure::Failure;

/// Runs tests on a new device.
pub fn in_model(
    profile: &Profile,
    tests: &[Test],
    settings: &Settings,
    on_progress: BenchProgress,
) -> Result<Results, Failure> {
    let sim = Sim::new();
    let ssd = Ssd::new(&profile.config, settings.seed)
        .map_err(|e| Failure::usage(format!("{}: {e}", profile.name)))?;
    let device = Rc::new(ModelDevice::new(BlockQueue::new(&sim, ssd, QueueConfig::default()), &profile.name));
    let (tests, settings) = (tests.to_vec(), *settings);
    let ended = sim.run(async move {
        let stats = || device.queue().with_ssd(|ssd| *ssd.stats());
        let hooks = Hooks { on_progress: &*on_progress, stats: Some(&stats) };
        bench::run(&*device, &tests, &settings, hooks).await
    });
    ended.map_err(Failure::run)?.map_err(Failure::usage)
}

/// Runs tests on a real file or device. Where one of them writes, the user must have agreed to that.
pub fn on_real(
    real: &RealTarget,
    tests: &[Test],
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    on_progress: BenchProgress,
) -> Result<Results, Failure> {
    let access = if tests.iter().any(|test| test.is_destructive()) {
        Access::Write(consent::check(&real.target, real.destroy.as_deref()).map_err(Failure::usage)?)
    } else {
        Access::Read(real.target.clone())
    };
    let defaults = Options::default();
    let options = Options {
        file_bytes: real.size.unwrap_or(defaults.file_bytes),
        queue_depth: tests.iter().map(|test| test.depth()).fold(defaults.queue_depth, u32::max),
        interrupted: Arc::clone(stop),
        ..defaults
    };
    let device = RawDevice::open(access, &options).map_err(|error| match error {
        RawDeviceError::NoRing { .. } | RawDeviceError::Changed { .. } => Failure::run(error),
        _ => Failure::usage(error),
    })?;
    let hooks = Hooks { on_progress: &*on_progress, stats: None };
    let ended = block_on(bench::run(&device, tests, settings, hooks));
    let mut results = ended.map_err(Failure::run)?.map_err(Failure::usage)?;
    results.notes = device.notes().to_vec();
    Ok(results)
}
