//! One cell of a comparison: a device, a policy, a workload, a repetition, run in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use thiserror::Error;

use super::result::{Cell, DeviceFigures, TimelineSample};
use crate::block::BlockQueue;
use crate::engine::{Sim, Stalled};
use crate::fs::host::HostConfig;
use crate::fs::layout::{FormatError, FormatOptions};
use crate::fs::{Ext4, Volume};
use crate::policy::PolicySpec;
use crate::ssd::{ConfigError, Ssd, SsdConfig, SsdStats, Wear};
use crate::units::{SimDuration, SimTime};
use crate::workload::ageing;
use crate::workload::files::FileError;
use crate::workload::postmark::layout::LocationError;
use crate::workload::postmark::{self, Outcome, PostmarkConfig, Progress, RunError};

/// What the timeline of a cell keeps at most.
const TIMELINE_SAMPLES_MAX: usize = 200;

/// Idle time between ageing and the workload: a multiple of any drive's idle threshold.
pub(super) const SETTLING: SimDuration = SimDuration::from_secs(10);

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct CellSpec {
    /// Name of the device, for the result.
    pub device: String,
    /// The device.
    pub ssd: SsdConfig,
    /// The policy.
    pub policy: PolicySpec,
    /// The workload.
    pub workload: PostmarkConfig,
    /// The host.
    pub host: HostConfig,
    /// How the file system is made.
    pub format: FormatOptions,
    /// If given, the file system is aged before: filled, then emptied to this utilization under the policy.
    pub utilization_percent: Option<u64>,
    /// The repetition. It decides at which phase of the commit timer the workload begins, and the seed of
    /// the ageing step: the two causes by which repetitions differ.
    pub rep: u32,
    /// The seed of the whole.
    pub seed: u64,
}

impl CellSpec {
    fn ageing_seed(&self) -> u64 {
        self.seed ^ (u64::from(self.rep) << 32)
    }
}

/// When, after the mount, a workload begins: repetitions are spread over the commit interval by the golden ratio,
/// so that any number of them covers it evenly.
pub(super) fn commit_phase(rep: u32) -> SimDuration {
    const GOLDEN_NS: u64 = 3_090_169_944; // 5 s / 1.618...
    const COMMIT_NS: u64 = crate::fs::COMMIT_INTERVAL.as_nanos();
    SimDuration::from_nanos(u64::from(rep) * GOLDEN_NS % COMMIT_NS)
}

/// Why a cell has no result.
#[derive(Debug, Error)]
pub enum CellError {
    /// The device's numbers contradict each other.
    #[error(transparent)]
    Device(#[from] ConfigError),
    /// The file system does not fit.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A location of the workload that the model does not have.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The ageing step failed.
    #[error("ageing: {0}")]
    Ageing(#[from] FileError),
    /// The workload failed.
    #[error("{device}, policy {policy}: {source}")]
    Workload {
        /// The device.
        device: String,
        /// The policy.
        policy: PolicySpec,
        /// What happened.
        source: Box<RunError>,
    },
    /// A defect in the model.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// A defect in the model: an invariant does not hold after the run.
    #[error("{device}, policy {policy}: the audit after the run failed: {what}")]
    Audit {
        /// The device.
        device: String,
        /// The policy.
        policy: PolicySpec,
        /// What does not hold.
        what: String,
    },
}

/// What a run leaves: the figures, and PostMark's outcome for its own report.
#[derive(Clone, Debug)]
pub struct CellRun {
    /// The figures.
    pub cell: Cell,
    /// PostMark's own account.
    pub outcome: Outcome,
}

/// Runs one cell on a new device: format, mount, age if asked for, the workload, unmount, audit.
///
/// # Errors
///
/// [`CellError`].
pub fn run_cell(spec: &CellSpec, progress: impl FnMut(Progress) + 'static) -> Result<CellRun, CellError> {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&spec.ssd, spec.seed)?, spec.host.queue);
    let spec = spec.clone();
    sim.run(async move { run_on(&queue, &spec, progress).await })?
}

/// Runs several repetitions one after the other on the same device, each with a new file system, as a
/// benchmark on a real drive does it; `after_each` is called after each.
///
/// # Errors
///
/// [`CellError`].
pub fn run_in_turn(
    spec: &CellSpec,
    reps: u32,
    mut after_each: impl FnMut(),
) -> Result<Vec<CellRun>, CellError> {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&spec.ssd, spec.seed)?, spec.host.queue);
    let mut runs = Vec::new();
    for rep in 0..reps {
        let (queue, spec) = (queue.clone(), CellSpec { rep, ..spec.clone() });
        runs.push(sim.run(async move { run_on(&queue, &spec, |_| ()).await })??);
        after_each();
    }
    Ok(runs)
}

async fn run_on(
    queue: &BlockQueue,
    spec: &CellSpec,
    mut progress: impl FnMut(Progress),
) -> Result<CellRun, CellError> {
    let sim = queue.sim();
    let workload = spec.workload.for_model()?;
    let volume = Volume::format(queue, spec.format).await?;
    let fs = volume.mount(spec.host, spec.policy.governor()).await;
    if let Some(percent) = spec.utilization_percent {
        ageing::age(&fs, percent, spec.ageing_seed()).await?;
        // What ageing left to trim is ageing's debt, not the workload's; and the drive gets the same idle time
        // under every policy before the workload begins.
        fs.drain_discards().await;
        sim.sleep(SETTLING).await;
    }
    sim.sleep(commit_phase(spec.rep)).await;

    // What the drive collected while it rested is not the workload's.
    let before = queue.with_ssd_mut(|ssd| {
        ssd.catch_up(sim.now());
        *ssd.stats()
    });
    fs.restart_stale();
    let timeline = Timeline::start(&fs, before);
    let result = postmark::run(&fs, &workload, &mut progress).await;
    let timeline = timeline.finish();
    let outcome = result.map_err(|source| CellError::Workload {
        device: spec.device.clone(),
        policy: spec.policy,
        source: Box::new(source),
    })?;
    let (stale_units_max, stale_units_mean) = fs.stale_max_and_mean();
    let stats = queue.with_ssd(|ssd| *ssd.stats()).since(&before);
    let wear = queue.with_ssd(Ssd::wear);
    let device_stats = device_figures(&stats, wear, (stale_units_max, stale_units_mean), timeline);

    let audit = |what| CellError::Audit { device: spec.device.clone(), policy: spec.policy, what };
    fs.audit().map_err(audit)?;
    fs.unmount().await;
    queue.with_ssd(|ssd| ssd.audit()).map_err(|e| audit(e.to_string()))?;
    let cell = Cell::of_run(
        spec.device.clone(),
        spec.policy.to_string(),
        "model".to_owned(),
        spec.rep,
        &outcome,
        spec.workload.report,
        Some(device_stats),
    );
    Ok(CellRun { cell, outcome })
}

fn device_figures(
    stats: &SsdStats,
    wear: Wear,
    (stale_units_max, stale_units_mean): (u64, f64),
    timeline: Vec<TimelineSample>,
) -> DeviceFigures {
    let busy = &stats.busy_ns;
    DeviceFigures {
        host_units_written: stats.host_units_written,
        nand_units_written: stats.nand_units.total(),
        write_amplification: if stats.host_units_written == 0 { 1.0 } else { stats.write_amplification() },
        trim_commands: stats.trim.commands,
        trim_ranges: stats.trim.ranges,
        trimmed_units: stats.trim.units_invalidated,
        erases: stats.block_erases,
        erase_count_min: wear.min,
        erase_count_mean: wear.mean,
        erase_count_max: wear.max,
        gc_units_copied: stats.nand_units.gc,
        stale_units_max,
        stale_units_mean,
        busy_ns: BTreeMap::from([
            ("link", busy.link),
            ("controller", busy.controller),
            ("write_path", busy.write_path),
            ("read_host", busy.read),
            ("read_gc", busy.read_gc),
            ("program_host", busy.program_host),
            ("program_gc", busy.program_gc),
            ("erase", busy.erase),
            ("trim", busy.trim),
            ("flush", busy.flush),
        ]),
        timeline,
    }
}

/// Samples stale units and writes while a workload runs: every second at first, then, whenever there are
/// too many samples, every other one is dropped and the step doubles.
struct Timeline(Rc<RefCell<Sampler>>);

struct Sampler {
    samples: Vec<TimelineSample>,
    step: SimDuration,
    begin: SimTime,
    before: SsdStats,
    running: bool,
    fs: Ext4,
}

impl Timeline {
    fn start(fs: &Ext4, before: SsdStats) -> Self {
        let sim = fs.queue().sim().clone();
        let sampler = Rc::new(RefCell::new(Sampler {
            samples: Vec::new(),
            step: SimDuration::from_secs(1),
            begin: sim.now(),
            before,
            running: true,
            fs: fs.clone(),
        }));
        let shared = Rc::clone(&sampler);
        sim.clone().spawn(async move {
            while shared.borrow().running {
                shared.borrow_mut().sample(sim.now());
                let step = shared.borrow().step;
                sim.sleep(step).await;
            }
        });
        Self(sampler)
    }

    fn finish(self) -> Vec<TimelineSample> {
        let mut sampler = self.0.borrow_mut();
        let now = sampler.fs.queue().sim().now();
        sampler.sample(now);
        sampler.running = false;
        std::mem::take(&mut sampler.samples)
    }
}

impl Sampler {
    fn sample(&mut self, now: SimTime) {
        let stats = self.fs.queue().with_ssd(|ssd| *ssd.stats()).since(&self.before);
        self.samples.push(TimelineSample {
            at_ns: now.since(self.begin).as_nanos(),
            stale_units: self.fs.stale_units(),
            host_units_written: stats.host_units_written,
            nand_units_written: stats.nand_units.total(),
        });
        if self.samples.len() >= TIMELINE_SAMPLES_MAX {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.step = self.step * 2;
        }
    }
}
