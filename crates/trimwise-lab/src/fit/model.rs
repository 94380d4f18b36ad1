//! Runs the same probes on a model, for numbers without a closed form and for predictions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::block::{BlockError, BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::ssd::{ConfigError, Ssd, SsdConfig};
use trimwise::units::Bytes;

use super::probe::{Held, Plan, Probe, Samples};
use trimwise::failure::Failure;

/// Minimum capacity of a model that takes a probe's place on a drive: the region is at most an eighth of it, so that
/// nothing is collected.
const CAPACITY: Bytes = Bytes::gib(16);
const SPARE: u64 = 16;

/// Returns the drive with fewer superblocks. Dies, rates, caches and the size of superblocks stay, and there is space
/// enough that a short bench never collects. It takes a hundredth of the memory of a drive of a terabyte.
pub fn sized(config: &SsdConfig) -> Result<SsdConfig, ConfigError> {
    let mut small = config.clone();
    let g = &config.geometry;
    let superblock = u64::from(g.superblock_planes) * u64::from(g.pages_per_block) * u64::from(g.page_bytes);
    let planes = u64::from(g.channels) * u64::from(g.dies_per_channel) * u64::from(g.planes_per_die);
    let lanes = (planes / u64::from(g.superblock_planes.max(1))).max(1);
    let capacity = CAPACITY.0.max(4 * superblock).min(config.capacity_bytes);
    let slc = config.slc.as_ref().map_or(0, |slc| u64::from(slc.static_superblocks));
    let log = match &config.mapping {
        trimwise::ssd::MappingConfig::Block(block) => u64::from(block.log_superblocks),
        _ => 0,
    };
    let wanted = capacity.div_ceil(superblock) * 108 / 100 + SPARE + slc + log;
    let blocks = wanted.div_ceil(lanes) as u32;
    if g.blocks_per_plane.is_some_and(|old| old <= blocks) {
        return Ok(small);
    }
    small.capacity_bytes = capacity;
    small.over_provisioning_percent = None;
    small.geometry.blocks_per_plane = Some(blocks);
    small.validate()?;
    Ok(small)
}

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
