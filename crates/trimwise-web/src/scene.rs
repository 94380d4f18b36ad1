//! A scene: one drive, an ext4 at some fullness, a workload and a policy, to be advanced in virtual time and observed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use trimwise::block::{BlockQueue, Command, Stage};
use trimwise::engine::Sim;
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::{Ledger, LinuxVersion, Policy, PolicySpec};
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, SsdConfig, SsdStats, SuperblockState, SuperblockUse};
use trimwise::units::{Bytes, SimDuration, SimTime};
use trimwise::workload::latency::histogram;

pub use crate::workload::Workload;
use crate::workload::{Call, Observer, Town};

/// Memory of the modelled host: so little that written data soon reach the drive.
const MEMORY: Bytes = Bytes::mib(64);

/// Virtual time between samples.
pub const SAMPLE: SimDuration = SimDuration::from_millis(500);

/// Idle time between preparation and workload: more than any drive's idle threshold.
const SETTLING: SimDuration = SimDuration::from_secs(10);

/// The range of a number that the page sets, with its unit for messages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Limits {
    least: u64,
    most: u64,
    unit: &'static str,
}

impl Limits {
    const CAPACITY: Self = Self { least: 256, most: 2_048, unit: "MiB" };
    const FULLNESS: Self = Self { least: 10, most: 95, unit: "%" };
    const OVER_PROVISIONING: Self = Self { least: 5, most: 50, unit: "%" };
    const RATE: Self = Self { least: 1, most: 64, unit: "MiB/s" };

    fn check(self, name: &'static str, value: u64) -> Result<u64, SceneError> {
        if (self.least..=self.most).contains(&value) {
            return Ok(value);
        }
        let Self { least, most, unit } = self;
        Err(SceneError::Outside { name, value, least, most, unit })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub drive: String,
    /// MiB. The drive is shrunk to this capacity.
    pub capacity_mib: u64,
    /// Space that the files take while the workload runs, in percent of the space that they could take.
    pub fullness_percent: u64,
    /// Flash beyond the capacity, in percent of the capacity.
    pub over_provisioning_percent: u64,
    pub workload: Workload,
    /// MiB per second that the workload writes, as long as the drive keeps up.
    pub rate_mib_per_s: u64,
    /// As `trimwise compare --policy` takes it.
    pub policy: String,
    pub seed: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            drive: "sata-small".to_owned(),
            capacity_mib: 2_048,
            fullness_percent: 70,
            over_provisioning_percent: 7,
            workload: Workload::Files,
            rate_mib_per_s: 16,
            policy: PolicySpec::OFF.to_string(),
            seed: 1,
        }
    }
}

impl Settings {
    pub fn from_json(text: &[u8]) -> Result<Self, SceneError> {
        serde_json::from_slice(text).map_err(|e| SceneError::Json(e.to_string()))
    }

    fn ssd(&self) -> Result<SsdConfig, SceneError> {
        let profile = Profile::embedded(&self.drive).ok_or_else(|| SceneError::Drive(self.drive.clone()))?;
        let impossible = |e: trimwise::ssd::ConfigError| SceneError::Impossible(e.to_string());
        let percent =
            Limits::OVER_PROVISIONING.check("over_provisioning_percent", self.over_provisioning_percent)?;
        let capacity = Limits::CAPACITY.check("capacity_mib", self.capacity_mib)?;
        let mut ssd = profile.config.shrunk(Bytes::mib(capacity).0).map_err(impossible)?;
        ssd.geometry.blocks_per_plane = None;
        ssd.over_provisioning_percent = Some((percent as u32).into());
        ssd.validate().map_err(impossible)?;
        Ok(ssd)
    }
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SceneError {
    #[error("settings: {0}")]
    Json(String),
    /// No profile has this name, or its drive cannot be drawn.
    #[error("drive: '{0}' is not one of the drives that this page offers")]
    Drive(String),
    #[error("policy: {0}")]
    Policy(String),
    #[error("{name}: {value} {unit} is outside {least} to {most} {unit}")]
    Outside { name: &'static str, value: u64, least: u64, most: u64, unit: &'static str },
    #[error("drive: {0}")]
    Impossible(String),
}

#[derive(Debug, Serialize)]
pub struct Catalogue {
    version: &'static str,
    policies: Vec<PolicyEntry>,
    terms: Vec<(&'static str, &'static str)>,
    workloads: Vec<(Workload, &'static str)>,
    drives: Vec<(&'static str, String)>,
    fullness: Limits,
    over_provisioning: Limits,
    rate: Limits,
    sample_ms: u64,
    defaults: Settings,
}

#[derive(Debug, Serialize)]
struct PolicyEntry {
    policy: String,
    /// True if the policy is only a bound, which no real host can use.
    bound: bool,
}

impl Catalogue {
    pub fn new() -> Self {
        let entry =
            |policy: PolicySpec| PolicyEntry { policy: policy.to_string(), bound: !policy.is_usable() };
        Self {
            version: trimwise::VERSION,
            policies: PolicySpec::examples().into_iter().map(entry).collect(),
            terms: trimwise::policy::terms(),
            workloads: Workload::ALL.to_vec(),
            drives: Profile::embedded_names().filter_map(|name| Some((name, drawable(name)?))).collect(),
            fullness: Limits::FULLNESS,
            over_provisioning: Limits::OVER_PROVISIONING,
            rate: Limits::RATE,
            sample_ms: SAMPLE.as_nanos() / 1_000_000,
            defaults: Settings::default(),
        }
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the description of a drive whose superblocks can be shown at the page's capacity: one with only a page map.
fn drawable(name: &str) -> Option<String> {
    let profile = Profile::embedded(name)?;
    let is_plain = profile.config.mapping.kind() == "page"
        && profile.config.mapping.map_cache().is_none()
        && profile.config.slc.is_none()
        && profile.config.trim.is_supported();
    let settings = Settings { drive: name.to_owned(), ..Settings::default() };
    (is_plain && settings.ssd().is_ok()).then_some(profile.description)
}

/// A superblock as drawn. Its pages are valid, stale, invalid or free; a page here is a unit of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    pub valid_units: u32,
    /// Units that are valid to the device but free to the file system.
    pub stale_units: u32,
    pub invalid_units: u32,
    pub free_units: u32,
    pub use_now: SuperblockUse,
    pub erases: u32,
    pub trimmed_units: u32,
}

impl BlockView {
    pub const WORDS: usize = 7;

    /// Returns the fields as numbers, in order; free, open, full and victim are 0, 1, 2 and 3.
    pub fn words(&self) -> [u32; Self::WORDS] {
        let use_now = match self.use_now {
            SuperblockUse::Free => 0,
            SuperblockUse::Open => 1,
            SuperblockUse::Full => 2,
            SuperblockUse::Victim => 3,
        };
        [
            self.valid_units,
            self.stale_units,
            self.invalid_units,
            self.free_units,
            use_now,
            self.erases,
            self.trimmed_units,
        ]
    }
}

/// Counts from the start of the workload until a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    pub at_ms: u64,
    pub host_units: u64,
    pub nand_units: u64,
    pub gc_units: u64,
    /// Superblocks erased, in blocks of all planes.
    pub erases: u64,
    pub trims: u64,
    pub trimmed_units: u64,
    /// Completed operations of the workload: files made durable, pages overwritten.
    pub operations: u64,
    /// Median latency of the operations since the last sample; `None` if none completed.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// 99th percentile of the latencies from the start on.
    pub p99_all_us: Option<f64>,
    /// Longest latency from the start on, including that of the operation in progress.
    pub worst_us: f64,
    /// Time that the operation in progress has taken so far; zero if there is none.
    pub waiting_us: f64,
    pub stale_units: u64,
    /// Freed units whose TRIM is waiting or in progress.
    pub queued_units: u64,
    /// Freed units that were written again before their TRIM was sent.
    pub reused_units: u64,
    pub used_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    /// Samples from the requested number on.
    pub samples: Vec<Sample>,
    pub now_ms: u64,
    /// Progress of the preparation.
    pub prepared_percent: u64,
    pub failure: Option<String>,
    pub superblock_units: u64,
    pub capacity_units: u64,
    pub physical_units: u64,
}

struct Shared {
    sim: Sim,
    prepared_percent: Cell<u64>,
    fs: RefCell<Option<Ext4>>,
    began: Cell<Option<SimTime>>,
    before: Cell<SsdStats>,
    before_ledger: Cell<Ledger>,
    started: Cell<Option<SimTime>>,
    all_latencies_ns: RefCell<Histogram<u32>>,
    latencies_ns: RefCell<Vec<u64>>,
    operations: Cell<u64>,
    used_bytes: Cell<u64>,
    trimmed: RefCell<Vec<u32>>,
    samples: RefCell<Vec<Sample>>,
    failure: RefCell<Option<String>>,
    calls: RefCell<Vec<Call>>,
    keeps_calls: Cell<bool>,
}

impl Observer for Shared {
    fn settled(&self, percent: u64) {
        self.prepared_percent.set(percent);
    }

    fn began(&self) {
        self.started.set(Some(self.sim.now()));
    }

    fn ended(&self, operation: Call, latency: SimDuration, used_bytes: u64) {
        self.started.set(None);
        if !matches!(operation, Call::Delete(_)) {
            self.all_latencies_ns.borrow_mut().saturating_record(latency.as_nanos());
            self.latencies_ns.borrow_mut().push(latency.as_nanos());
            self.operations.set(self.operations.get() + 1);
        }
        self.used_bytes.set(used_bytes);
        if self.keeps_calls.get() {
            self.calls.borrow_mut().push(operation);
        }
    }
}

impl Shared {
    fn new(sim: &Sim) -> Self {
        Self {
            sim: sim.clone(),
            prepared_percent: Cell::default(),
            fs: RefCell::default(),
            began: Cell::default(),
            before: Cell::default(),
            before_ledger: Cell::default(),
            started: Cell::default(),
            all_latencies_ns: RefCell::new(histogram()),
            latencies_ns: RefCell::default(),
            operations: Cell::default(),
            used_bytes: Cell::default(),
            trimmed: RefCell::default(),
            samples: RefCell::default(),
            failure: RefCell::default(),
            calls: RefCell::default(),
            keeps_calls: Cell::default(),
        }
    }

    fn sample(&self, fs: &Ext4, began: SimTime) {
        let now = fs.queue().sim().now();
        let stats = fs.queue().with_ssd_mut(|ssd| {
            ssd.catch_up(now);
            ssd.stats().since(&self.before.get())
        });
        let mut latencies = std::mem::take(&mut *self.latencies_ns.borrow_mut());
        latencies.sort_unstable();
        let quantile = |percent: usize| {
            let at = (latencies.len() * percent).div_ceil(100).saturating_sub(1);
            latencies.get(at).map(|&ns| ns as f64 / 1e3)
        };
        let waiting_us = self.started.get().map_or(0.0, |started| now.since(started).as_nanos() as f64 / 1e3);
        let all = self.all_latencies_ns.borrow();
        let ledger = fs.ledger().since(&self.before_ledger.get());
        self.samples.borrow_mut().push(Sample {
            at_ms: now.since(began).as_nanos() / 1_000_000,
            host_units: stats.host_units_written,
            nand_units: stats.nand_units.total(),
            gc_units: stats.nand_units.gc,
            erases: stats.block_erases,
            trims: stats.trim.commands,
            trimmed_units: stats.trim.units_invalidated,
            operations: self.operations.get(),
            p50_us: quantile(50),
            p99_us: quantile(99),
            p99_all_us: (!all.is_empty()).then(|| all.value_at_quantile(0.99) as f64 / 1e3),
            worst_us: waiting_us.max(all.max() as f64 / 1e3),
            waiting_us,
            stale_units: fs.stale_units(),
            queued_units: ledger.pending + ledger.in_tokens,
            reused_units: ledger.reused,
            used_bytes: self.used_bytes.get(),
        });
    }
}

pub struct Scene {
    sim: Sim,
    queue: BlockQueue,
    shared: Rc<Shared>,
}

impl Scene {
    /// Creates a scene whose file system is not yet made.
    pub fn new(settings: &Settings) -> Result<Self, SceneError> {
        if drawable(&settings.drive).is_none() {
            return Err(SceneError::Drive(settings.drive.clone()));
        }
        let ssd = settings.ssd()?;
        Limits::FULLNESS.check("fullness_percent", settings.fullness_percent)?;
        Limits::RATE.check("rate_mib_per_s", settings.rate_mib_per_s)?;
        let spec: PolicySpec = settings
            .policy
            .parse()
            .map_err(|e: trimwise::policy::PolicyError| SceneError::Policy(e.to_string()))?;
        if spec.limit().is_some() {
            return Err(SceneError::Policy("no application limits its deletions on this page".to_owned()));
        }
        let sim = Sim::new();
        let host = HostConfig::of(LinuxVersion::TODAY, MEMORY);
        let drive = Drive::new(&ssd, Default::default(), settings.seed.into())
            .map_err(|e| SceneError::Impossible(e.to_string()))?;
        let queue = BlockQueue::new(&sim, drive, host.queue);
        let shared = Rc::new(Shared::new(&sim));
        shared.trimmed.borrow_mut().resize(queue.with_ssd(|ssd| ssd.superblocks().len()), 0);

        let (looked_at, counted) = (queue.clone(), Rc::clone(&shared));
        queue.trace(Some(Box::new(move |_, stage, command| {
            let (Stage::Dispatched, Command::Trim(ranges)) = (stage, command) else { return };
            let mut trimmed = counted.trimmed.borrow_mut();
            looked_at.with_ssd(|ssd| {
                for superblock in
                    ranges.iter().flat_map(|range| range.iter()).filter_map(|u| ssd.superblock_of(u))
                {
                    trimmed[superblock as usize] = trimmed[superblock as usize].wrapping_add(1);
                }
            });
        })));

        let (task_queue, task_shared, settings) = (queue.clone(), Rc::clone(&shared), settings.clone());
        sim.spawn(async move {
            let ended = course(&task_queue, &task_shared, &settings, host, spec.into()).await;
            *task_shared.failure.borrow_mut() = ended.err();
        });
        Ok(Self { sim, queue, shared })
    }

    /// Advances virtual time by at most `span`, but not past `until` of the workload's time.
    pub fn advance(&mut self, span: SimDuration, until: SimDuration) {
        if self.failure().is_some() {
            return;
        }
        let mut to = self.sim.now() + span;
        if let Some(began) = self.shared.began.get() {
            to = to.min(began + until);
        }
        if let Err(stalled) = self.sim.advance_to(to) {
            *self.shared.failure.borrow_mut() = Some(stalled.to_string());
        }
    }

    /// Returns how long the workload has been running; `None` while the file system is being prepared.
    pub fn elapsed(&self) -> Option<SimDuration> {
        self.shared.began.get().map(|began| self.sim.now().since(began))
    }

    pub fn failure(&self) -> Option<String> {
        self.shared.failure.borrow().clone()
    }

    pub fn blocks(&self) -> Vec<BlockView> {
        let stale = self.shared.fs.borrow().as_ref().map(Ext4::stale_units_by_superblock).unwrap_or_default();
        let (states, size) = self.queue.with_ssd(|ssd| (ssd.superblocks(), ssd.superblock_units() as u32));
        let trimmed = self.shared.trimmed.borrow();
        let view = |(i, state): (usize, SuperblockState)| {
            let stale_units = stale.get(i).copied().unwrap_or_default();
            BlockView {
                valid_units: state.valid_units - stale_units,
                stale_units,
                invalid_units: state.written_units - state.valid_units,
                free_units: size - state.written_units,
                use_now: state.use_now,
                erases: state.erases,
                trimmed_units: trimmed[i],
            }
        };
        states.into_iter().enumerate().map(view).collect()
    }

    /// Returns the samples from number `from` on, and the sizes of the drive.
    pub fn report(&self, from: usize) -> Report {
        let samples = self.shared.samples.borrow();
        let (superblock_units, capacity_units, physical_units) =
            self.queue.with_ssd(|ssd| (ssd.superblock_units(), ssd.capacity_units(), ssd.physical_units()));
        Report {
            samples: samples.get(from..).unwrap_or_default().to_vec(),
            now_ms: self.sim.now().as_nanos() / 1_000_000,
            prepared_percent: self.shared.prepared_percent.get(),
            failure: self.failure(),
            superblock_units,
            capacity_units,
            physical_units,
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Break cycles: both hold what holds them.
        self.queue.trace(None);
        self.sim.stop();
        self.shared.fs.take();
    }
}

/// Runs all parts of a scene; returns only if it fails.
async fn course(
    queue: &BlockQueue,
    shared: &Rc<Shared>,
    settings: &Settings,
    host: HostConfig,
    policy: Policy,
) -> Result<(), String> {
    let sim = queue.sim();
    let volume = Volume::format(queue, FormatOptions::TODAY).await.map_err(|e| e.to_string())?;
    let fs = volume.mount(host, policy.governor()).await;
    *shared.fs.borrow_mut() = Some(fs.clone());
    let failed = |e: trimwise::files::FileError| e.to_string();
    let mut town = Town::new(&fs, settings.workload, settings.seed.into()).await.map_err(failed)?;
    town.settle(settings.fullness_percent, &**shared).await.map_err(failed)?;
    // The workload must not pay for the TRIMs of the preparation.
    fs.drain_discards().await;
    shared.settled(98);
    sim.sleep(SETTLING).await;

    let began = sim.now();
    shared.before.set(queue.with_ssd_mut(|ssd| {
        ssd.catch_up(began);
        *ssd.stats()
    }));
    shared.before_ledger.set(fs.ledger());
    shared.began.set(Some(began));
    let (sampled, sampler, clock) = (fs.clone(), Rc::clone(shared), sim.clone());
    sim.spawn(async move {
        loop {
            sampler.sample(&sampled, began);
            clock.sleep(SAMPLE).await;
        }
    });
    let rate = Bytes::mib(settings.rate_mib_per_s).0;
    town.run(settings.fullness_percent, rate, &**shared).await.map_err(failed)
}

#[cfg(test)]
#[path = "scene_tests.rs"]
mod tests;
