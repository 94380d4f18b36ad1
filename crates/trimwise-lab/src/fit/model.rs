//! Runs the same probes on a model, for numbers without a closed form and for predictions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::block::{BlockError, BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::ssd::{Ssd, SsdConfig};

use super::probe::{Held, Plan, Probe, Samples};
use trimwise::failure::Failure;
pub use trimwise_study::bench::sized;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    RandomReads,
    Sustained,
    HeldBack,
}

/// Results of a job; only its own part is filled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub samples: Samples,
    pub held: Vec<Held>,
}

/// Fills the region of a new model and runs a job on it.
pub(super) fn run(
    config: &SsdConfig,
    plan: Plan,
    job: Job,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let config = sized(config).map_err(Failure::run)?;
    let sim = Sim::new();
    let ssd = Ssd::new(&config, plan.seed).map_err(Failure::run)?;
    let queue = BlockQueue::new(&sim, ssd, QueueConfig::default());
    let device = ModelDevice::new(queue, "model").interrupted_by(stop);
    let ended = sim.run(async move {
        let mut probe = Probe::new(&device, plan, &|_, _| {});
        let mut outcome = Outcome::default();
        if plan.read_only {
            // A drive in use already holds data.
            super::fill(&device, plan).await?;
        }
        probe.fill().await?;
        match job {
            Job::RandomReads => outcome.samples.random_reads = probe.random_reads().await?,
            Job::Sustained => probe.sustained(&mut outcome.samples).await?,
            Job::HeldBack => {
                // Use the same history: an SLC cache and a map remember it.
                outcome.samples = probe.samples().await?;
                outcome.held = probe.held_back().await?;
            }
        }
        Ok::<_, BlockError>(outcome)
    });
    ended.map_err(Failure::run)?.map_err(|error| match error {
        BlockError::Interrupted => Failure::Interrupted,
        other => Failure::run(other),
    })
}
