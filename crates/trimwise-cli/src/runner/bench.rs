//! Device tests on a model in virtual time.

use std::rc::Rc;

use trimwise::bench::{self, Hooks, Results, Settings, Test};
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::Ssd;

use super::BenchProgress;
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
