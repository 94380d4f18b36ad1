//! A drive under test: device tests on parts of it, pauses, and the audit at the end.

use trimwise::block::{BlockDevice, BlockQueue, ModelDevice, QueueConfig};
use trimwise::compare::cell::CellError;
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::{MappingConfig, Ssd, SsdConfig};
use trimwise::units::SimDuration;

use crate::bench::{self, Hooks, Part, Settings, Test};

pub fn device(name: &str) -> Result<SsdConfig, CellError> {
    let unknown = || CellError::Test { device: name.to_owned(), what: "no profile of that name".to_owned() };
    Ok(Profile::embedded(name).ok_or_else(unknown)?.config)
}

pub(crate) const SMALLER: u32 = 16;

/// Shrinks the drive's blocks to one sixteenth of the pages. The number of superblocks, the log and the free pool stay
/// the same. The cache and the time of an erase shrink with the blocks, so that they keep their proportions.
pub fn small(mut config: SsdConfig) -> SsdConfig {
    config.geometry.pages_per_block /= SMALLER;
    config.capacity_bytes /= u64::from(SMALLER);
    config.nand.t_erase_ns /= u64::from(SMALLER);
    config.cache.bytes /= u64::from(SMALLER);
    debug_assert!(!matches!(config.mapping, MappingConfig::Compressing(_)), "its heads do not shrink");
    config
}

pub(crate) struct Lab {
    device: ModelDevice,
    name: String,
    seed: u64,
}

impl Lab {
    pub fn run<T: 'static, F: Future<Output = Result<T, CellError>> + 'static>(
        name: &str,
        config: &SsdConfig,
        seed: u64,
        work: impl FnOnce(std::rc::Rc<Self>) -> F + 'static,
    ) -> Result<T, CellError> {
        let sim = Sim::new();
        let queue = BlockQueue::new(&sim, Ssd::new(config, seed)?, QueueConfig::default());
        let lab =
            std::rc::Rc::new(Self { device: ModelDevice::new(queue, name), name: name.to_owned(), seed });
        sim.run(async move {
            let found = work(std::rc::Rc::clone(&lab)).await?;
            lab.device.queue().with_ssd(Ssd::audit).map_err(|error| lab.failed(error.to_string()))?;
            Ok(found)
        })?
    }

    fn failed(&self, what: String) -> CellError {
        CellError::Test { device: self.name.clone(), what }
    }

    pub fn trims(&self) -> bool {
        self.device.facts().trim.is_some()
    }

    /// Runs tests on a part of the drive. Returns all their measurements in order, in megabytes per second.
    pub async fn tests(&self, region: Part, tests: &[Test]) -> Result<Vec<f64>, CellError> {
        let settings = Settings { seed: self.seed, region, ..Settings::default() };
        let results = bench::run(&self.device, tests, &settings, Hooks::default())
            .await
            .map_err(|error| self.failed(error.to_string()))?;
        if let Some(broken) = results.broken {
            return Err(self.failed(format!("{}: {}", broken.test, broken.why)));
        }
        let measured = results.tests.iter().flat_map(|test| &test.measured);
        Ok(measured.filter_map(|measured| measured.throughput_mb_per_s).collect())
    }

    pub async fn pause(&self, seconds: u64) {
        self.device.sleep(SimDuration::from_secs(seconds)).await;
    }
}
