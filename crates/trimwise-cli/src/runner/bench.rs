//! Device tests: on a model in virtual time, on a real file or device in real time.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::Drive;
use trimwise_lab::bench::{self, Hooks, Results, Settings, Test};
use trimwise_linux::block_on;

use super::{BenchProgress, RealTarget};
use crate::failure::Failure;

/// Runs tests on a new device.
pub fn in_model(
    profile: &Profile,
    tests: &[Test],
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    on_progress: BenchProgress,
) -> Result<Results, Failure> {
    let sim = Sim::new();
    let drive = Drive::new(&profile.config, profile.faults, settings.seed)
        .map_err(|e| Failure::usage(format!("{}: {e}", profile.name)))?;
    let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
    let device = Rc::new(ModelDevice::new(queue, &profile.name).interrupted_by(stop));
    let (tests, settings) = (tests.to_vec(), *settings);
    let ended = sim.run(async move {
        let stats = || device.queue().with_ssd(|ssd| *ssd.stats());
        let hooks = Hooks { on_progress: &*on_progress, stats: Some(&stats) };
        bench::run(&*device, &tests, &settings, hooks).await
    });
    ended.map_err(Failure::run)?.map_err(Failure::usage)
}

/// Runs tests on a real file or device. If one of them writes, the user must have agreed.
pub fn on_real(
    real: &RealTarget,
    tests: &[Test],
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    on_progress: BenchProgress,
) -> Result<Results, Failure> {
    let is_written = tests.iter().any(|test| test.is_destructive());
    let depth = tests.iter().map(|test| test.depth()).max().unwrap_or(0);
    let device = real.open(is_written, depth, stop)?;
    let hooks = Hooks { on_progress: &*on_progress, stats: None };
    let ended = block_on(bench::run(&device, tests, settings, hooks));
    let mut results = ended.map_err(Failure::run)?.map_err(Failure::usage)?;
    results.notes = device.notes().to_vec();
    Ok(results)
}
