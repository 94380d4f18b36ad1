//! One cell of a comparison: a device, a policy, a workload, a repetition, run in virtual time.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;

use super::days::{self, DaysSpec};
use super::gauge::Gauge;
use super::result::{Cell, CellId, DriveFacts, Target, WorkloadFigures};
use super::watch::Watch;
use crate::block::BlockQueue;
use crate::block::thin::ThinConfig;
use crate::content::Content;
use crate::engine::{Event, Sim, Stalled, Standstill};
use crate::files::{FileError, Files as _};
use crate::fs::host::HostConfig;
use crate::fs::layout::{FormatError, FormatOptions};
use crate::fs::{Ext4, Volume};
use crate::policy::{Limit, LinuxVersion, Policy};
use crate::profile::Profile;
use crate::ssd::{ConfigError, Drive, Faults, SsdConfig};
use crate::units::{Bytes, SimDuration, Utilization};
use crate::workload::ageing;
use crate::workload::days::{Paced, Pacer};
use crate::workload::limited::Limited;
use crate::workload::own::OwnWorkload;
use crate::workload::postmark::layout::LocationError;
use crate::workload::postmark::{self, PostmarkConfig, Progress, RunError};
use crate::workload::program::Program;
use crate::workload::stage::{Session, TaskEnd, joined};
use crate::workload::timed::Timed;

/// Idle time between ageing and the workload: a multiple of any drive's idle threshold.
pub const SETTLING: SimDuration = SimDuration::from_secs(10);

/// Idle time for a drive in long use: enough for any drive to do all that it does when idle. A shorter rest would leave
/// a large drive with fewer free blocks for its size than a small one.
const LONG_SETTLING: SimDuration = SimDuration::from_secs(600);

#[derive(Clone, Debug)]
pub enum Workload {
    Postmark(PostmarkConfig),
    Timed(Timed),
    Program(Program),
    Own(Arc<dyn OwnWorkload>),
}

impl From<Program> for Workload {
    fn from(program: Program) -> Self {
        Self::Program(program)
    }
}

impl From<PostmarkConfig> for Workload {
    fn from(config: PostmarkConfig) -> Self {
        Self::Postmark(config)
    }
}

impl<W: OwnWorkload + 'static> From<Arc<W>> for Workload {
    fn from(own: Arc<W>) -> Self {
        Self::Own(own)
    }
}

impl From<Timed> for Workload {
    fn from(timed: Timed) -> Self {
        Self::Timed(timed)
    }
}

/// Everything on which a run depends. [`run_cell`] has an example.
#[derive(Clone, Debug)]
pub struct CellSpec {
    pub device: String,
    pub ssd: SsdConfig,
    pub faults: Faults,
    /// Thin storage between the file system and the drive.
    pub thin: Option<ThinConfig>,
    pub policy: Policy,
    pub workload: Workload,
    pub host: HostConfig,
    pub format: FormatOptions,
    /// Spread the workload over days; then `policy` is that of the trimmer
    /// ([`Trimmer::policy`](crate::policy::Trimmer::policy)). PostMark and programs are spread; a workload of the
    /// caller's keeps its own times. A workload that times one operation is refused.
    pub days: Option<DaysSpec>,
    /// Age the file system first: fill it, then empty it to this utilization, under the policy.
    pub utilization: Option<Utilization>,
    /// Continue ageing at that utilization until all flash beyond the space in use was written once more. The drive
    /// then copies from the first write on, as a drive in long use does. Otherwise it first uses up its spare flash.
    pub long_in_use: bool,
    /// The repetition. It sets the phase of the commit timer at which the workload begins, and the seed of ageing and
    /// of the workload: the two causes for which repetitions differ.
    pub rep: u32,
    pub seed: u64,
}

impl CellSpec {
    /// The default of `trimwise compare`: a new drive, today's Linux, 1 GiB of memory, aged to 80 % in use.
    pub fn new(drive: Profile, policy: impl Into<Policy>, workload: impl Into<Workload>) -> Self {
        Self {
            device: drive.name,
            ssd: drive.config,
            faults: drive.faults,
            thin: drive.thin,
            policy: policy.into(),
            workload: workload.into(),
            days: None,
            host: HostConfig::of(LinuxVersion::TODAY, Bytes::gib(1)),
            format: FormatOptions::TODAY,
            utilization: Some(Utilization::default()),
            long_in_use: false,
            rep: 0,
            seed: 1,
        }
    }

    /// The device, behind a queue of its own.
    fn queue(&self, sim: &Sim) -> Result<BlockQueue, ConfigError> {
        let queue = BlockQueue::new(sim, Drive::new(&self.ssd, self.faults, self.seed)?, self.host.queue);
        self.thin.into_iter().for_each(|thin| queue.put_thin(thin));
        Ok(queue)
    }

    /// The limit of the application on its deletions.
    fn limit(&self) -> Option<Limit> {
        self.policy.id().known()?.spec().limit()
    }

    /// The seed of this repetition, for ageing and for the choice of the file to remove.
    fn draw_seed(&self) -> u64 {
        self.seed ^ (u64::from(self.rep) << 32)
    }

    /// Bytes that ageing writes after it has filled the file system once.
    fn turned_over(&self, utilization: Utilization) -> Result<Bytes, ConfigError> {
        let in_use = self.ssd.capacity_bytes / 100 * utilization.percent();
        Ok(if self.long_in_use { Bytes(self.ssd.physical_bytes()? - in_use) } else { Bytes(0) })
    }

    fn stalled(&self, source: Stalled) -> CellError {
        CellError::Standstill { device: self.device.clone(), policy: self.policy.to_string(), source }
    }

    fn file_failed(&self, source: FileError) -> CellError {
        CellError::File {
            device: self.device.clone(),
            policy: self.policy.to_string(),
            source: Box::new(source),
        }
    }
}

/// Delay of the workload after the mount. Repetitions are spread over the commit interval by the golden ratio, so that
/// any number of them covers it evenly.
pub fn commit_phase(rep: u32) -> SimDuration {
    const GOLDEN_NS: u64 = 3_090_169_944; // 5 s / 1.618...
    const COMMIT_NS: u64 = crate::fs::COMMIT_INTERVAL.as_nanos();
    SimDuration::from_nanos(u64::from(rep) * GOLDEN_NS % COMMIT_NS)
}

#[derive(Debug, Error)]
pub enum CellError {
    #[error(transparent)]
    Device(#[from] ConfigError),
    /// The file system does not fit on the device.
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error("ageing: {0}")]
    Ageing(#[from] FileError),
    #[error("{device}, policy {policy}: {source}")]
    Workload { device: String, policy: String, source: Box<RunError> },
    /// A workload other than PostMark failed.
    #[error("{device}, policy {policy}: {source}")]
    File { device: String, policy: String, source: Box<FileError> },
    /// A device test failed, or its counts do not add up.
    #[error("{device}: {what}")]
    Test { device: String, what: String },
    /// A defect in the model, or outside [`run_cell`] also a policy that withholds blocks for ever.
    #[error(transparent)]
    Stalled(#[from] Stalled),
    /// The run was stopped, or came to a standstill: its policy withholds blocks for ever
    /// ([`Withheld`](crate::engine::Standstill::Withheld)), or a defect in the model.
    #[error("{device}, policy {policy}: {source}")]
    Standstill { device: String, policy: String, source: Stalled },
    /// A defect in the model: an invariant does not hold after the run.
    #[error("{device}, policy {policy}: the audit after the run failed: {what}")]
    Audit { device: String, policy: String, what: String },
}

impl CellError {
    pub fn is_stopped(&self) -> bool {
        matches!(self, Self::Standstill { source, .. } if source.why == Standstill::Stopped)
    }
}

/// Runs one cell on a new device: format, mount, age if asked for, the workload, unmount, audit.
///
/// ```no_run
/// use trimwise::compare::cell::{CellSpec, run_cell};
/// use trimwise::policy::PolicySpec;
/// use trimwise::profile::Profile;
/// use trimwise::workload::postmark::PostmarkConfig;
///
/// let drive = Profile::embedded("sata-small").ok_or("no such profile")?;
/// let policy: PolicySpec = "lazy+reuse".parse()?;
/// let spec = CellSpec { rep: 1, ..CellSpec::new(drive, policy, PostmarkConfig::default()) };
/// let cell = run_cell(&spec, Box::new(|_| ()))?;
/// println!("{} took {} ms of virtual time", cell.policy, cell.duration_ns / 1_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Its callback is `dyn`: each crate that calls a generic function would compile it, and the models with it.
pub fn run_cell(spec: &CellSpec, progress: Box<dyn FnMut(Progress)>) -> Result<Cell, CellError> {
    run_cell_until(spec, Arc::default(), progress)
}

/// Runs one cell as [`run_cell`] does, until `stop` is raised. That ends the run soon with [`CellError::is_stopped`].
pub fn run_cell_until(
    spec: &CellSpec,
    stop: Arc<AtomicBool>,
    mut progress: Box<dyn FnMut(Progress)>,
) -> Result<Cell, CellError> {
    let sim = Sim::new();
    sim.stop_at(stop);
    let queue = spec.queue(&sim)?;
    let task_spec = spec.clone();
    sim.run(async move { run_on(&queue, &task_spec, &mut *progress).await })
        .map_err(|stalled| spec.stalled(stalled))?
}

/// Runs several repetitions one after the other on the same device, each with a new file system, as a benchmark on a
/// real drive would. Calls `after_each` after each of them.
pub fn run_in_turn(spec: &CellSpec, reps: u32, after_each: &dyn Fn()) -> Result<Vec<Cell>, CellError> {
    let sim = Sim::new();
    let queue = spec.queue(&sim)?;
    let mut runs = Vec::new();
    for rep in 0..reps {
        let (queue, task_spec) = (queue.clone(), CellSpec { rep, ..spec.clone() });
        let ran = sim.run(async move { run_on(&queue, &task_spec, &mut |_| ()).await });
        runs.push(ran.map_err(|stalled| spec.stalled(stalled))??);
        after_each();
    }
    Ok(runs)
}

async fn run_on(
    queue: &BlockQueue,
    spec: &CellSpec,
    progress: &mut dyn FnMut(Progress),
) -> Result<Cell, CellError> {
    let sim = queue.sim();
    let workload = match &spec.workload {
        Workload::Postmark(config) => Workload::Postmark(config.for_model()?),
        other @ (Workload::Timed(_) | Workload::Program(_) | Workload::Own(_)) => other.clone(),
    };
    let volume = Volume::format(queue, spec.format).await?;
    // A drive may work off the TRIM of mkfs in the background; let it finish.
    sim.sleep_until(queue.with_ssd(|ssd| ssd.worked_off_at())).await;
    let fs = volume.mount_under(spec.host, &spec.policy, None).await;
    if let Some(utilization) = spec.utilization {
        ageing::age_and_turn_over(&fs, utilization, spec.turned_over(utilization)?, spec.draw_seed()).await?;
        // The workload must not pay for the TRIMs of ageing, and the drive gets the same idle time under every policy.
        fs.drain_discards().await;
        if let Some(days) = &spec.days {
            days::prepare(&fs, days).await?;
        }
        sim.sleep(if spec.long_in_use { LONG_SETTLING } else { SETTLING }).await;
    }
    sim.sleep(commit_phase(spec.rep)).await;
    progress(Progress::BEGUN);

    let cell = match &workload {
        Workload::Timed(_) if spec.days.is_some() => {
            let what = "a workload that times one operation cannot be spread over days".to_owned();
            return Err(CellError::Test { device: spec.device.clone(), what });
        }
        Workload::Timed(_) | Workload::Own(_) if spec.limit().is_some() => {
            let what = "the deletions of this workload cannot be limited".to_owned();
            return Err(CellError::Test { device: spec.device.clone(), what });
        }
        Workload::Postmark(config) => run_postmark(&fs, spec, config, progress).await?,
        Workload::Timed(timed) => run_timed(&fs, spec, *timed).await?,
        Workload::Program(program) => run_program(&fs, spec, program).await?,
        Workload::Own(own) => run_own(&fs, spec, &**own).await?,
    };
    audited(fs, &spec.device, &spec.policy).await?;
    Ok(Cell { drive: Some(DriveFacts::of(&spec.ssd)), discard: Some(spec.host.discard), ..cell })
}

/// Audits the file system, unmounts it, and audits the device.
pub async fn audited(fs: Ext4, device: &str, policy: &dyn fmt::Display) -> Result<Volume, CellError> {
    let audit = |what| CellError::Audit { device: device.to_owned(), policy: policy.to_string(), what };
    fs.audit().map_err(audit)?;
    let volume = fs.unmount().await;
    volume.queue().with_ssd(|ssd| ssd.audit()).map_err(|e| audit(e.to_string()))?;
    Ok(volume)
}

fn cell_id(spec: &CellSpec) -> CellId {
    CellId {
        device: spec.device.clone(),
        policy: spec.policy.id().clone(),
        target: Target::Model,
        rep: spec.rep,
    }
}

async fn run_postmark(
    fs: &Ext4,
    spec: &CellSpec,
    config: &PostmarkConfig,
    progress: &mut dyn FnMut(Progress),
) -> Result<Cell, CellError> {
    let gauge = Gauge::start(fs);
    let days = spec.days.as_ref().map(|days| days::Running::begin(fs, days));
    let pacer = days.as_ref().map(|days| days.pacer(postmark::operations(config), 1, spec.draw_seed()));
    let limited = Limited::start(fs, spec.limit());
    let result = postmark::run_paced(&limited, config, pacer.as_ref(), progress).await;
    let outcome = result.map_err(|source| CellError::Workload {
        device: spec.device.clone(),
        policy: spec.policy.to_string(),
        source: Box::new(source),
    })?;
    let cell = Cell::of_postmark(cell_id(spec), &outcome, config.report);
    let cell = finished(cell, gauge, days, pacer.as_ref().map(Pacer::paced)).await;
    let deletions = limited.stop().await.map_err(|source| spec.file_failed(source))?;
    Ok(Cell { deletions, ..cell })
}

async fn finished(cell: Cell, gauge: Gauge, days: Option<days::Running>, paced: Option<Paced>) -> Cell {
    let Some(running) = days else {
        let (device, ledger) = gauge.finish();
        return Cell { device_stats: Some(device), ledger: Some(ledger), ..cell };
    };
    let (figures, waiting) = running.end(paced).await;
    let (device, ledger) = gauge.finish();
    running.stop().await;
    Cell { device_stats: Some(device), ledger: Some(ledger), ..cell.over_days(figures, waiting) }
}

async fn run_own(fs: &Ext4, spec: &CellSpec, own: &dyn OwnWorkload) -> Result<Cell, CellError> {
    own.prepare(fs, spec.draw_seed()).await.map_err(|source| spec.file_failed(source))?;
    let gauge = Gauge::start(fs);
    let begin = fs.queue().sim().now();
    let days = spec.days.as_ref().map(|days| days::Running::begin(fs, days));
    let figures = own.run(fs, spec.draw_seed()).await.map_err(|source| spec.file_failed(source))?;
    let duration = fs.queue().sim().now().since(begin);
    let cell = Cell::new(cell_id(spec), duration, WorkloadFigures::Own(figures));
    Ok(finished(cell, gauge, days, None).await)
}

/// Runs a program, whose tasks are tasks of the engine. Its remaining files are removed when its figures are taken.
async fn run_program(fs: &Ext4, spec: &CellSpec, program: &Program) -> Result<Cell, CellError> {
    let failed = |source| spec.file_failed(source);
    fs.queue().set_content(Content::new(program.content(), 0));
    let session = Session::new(program.clone(), spec.draw_seed());
    session.prepare(&Limited::start(fs, None)).await.map_err(failed)?;
    let gauge = Gauge::start(fs);
    let begin = fs.now();
    let days = spec.days.as_ref().map(|days| days::Running::begin(fs, days));
    let session = Rc::new(match &spec.days {
        Some(DaysSpec { days, .. }) => session.spread(days, begin),
        None => session,
    });
    let limited = Limited::start(fs, spec.limit());
    let ends = joined(run_tasks(&limited, &session).await).map_err(failed)?;
    // Freed space counts from its commit on, and ext4's first may be 5 s away.
    let is_uncommitted = ends.iter().any(TaskEnd::frees) && !gauge.has_freed(fs);
    if is_uncommitted {
        fs.sync().await.map_err(failed)?;
    }
    let duration = fs.now().since(begin);
    if is_uncommitted {
        fs.drain_discards().await;
    }
    let cell = Cell::of_program(cell_id(spec), duration, ends);
    let cell = finished(cell, gauge, days, session.paced()).await;
    let deletions = limited.stop().await.map_err(failed)?;
    session.remove(&Limited::start(fs, None)).await.map_err(failed)?;
    Ok(Cell { deletions, ..cell })
}

pub async fn run_tasks(fs: &Limited, session: &Rc<Session>) -> Vec<Result<TaskEnd, FileError>> {
    let sim = fs.sim().clone();
    let (sender, ended) = (Rc::new(RefCell::new(Vec::new())), Event::new(&sim));
    for task in 0..session.tasks() {
        let (fs, session, sender, ended) =
            (fs.clone(), Rc::clone(session), Rc::clone(&sender), ended.clone());
        sim.spawn(async move {
            let end = session.run_task(&fs, task).await;
            sender.borrow_mut().push(end);
            ended.notify_all();
        });
    }
    while sender.borrow().len() < session.tasks() as usize {
        ended.wait().await;
    }
    sender.take()
}

/// Watches the device until the TRIMs of the removed file are issued; removing the rest afterwards does not count. A
/// workload that fills the file system begins to measure when the policy has nothing left to do.
async fn run_timed(fs: &Ext4, spec: &CellSpec, timed: Timed) -> Result<Cell, CellError> {
    let failed = |source| spec.file_failed(source);
    let gauge = Gauge::start(fs);
    let begin = fs.queue().sim().now();
    let mut prepared = timed.prepare(fs, spec.draw_seed()).await.map_err(failed)?;
    if timed.fills() {
        fs.drain_discards().await;
    }
    let watch = Watch::new(fs.queue());
    watch.start();
    let timing = prepared.measure(fs).await.map_err(failed)?;
    let duration = fs.queue().sim().now().since(begin);
    fs.drain_discards().await;
    let issue = watch.stop();
    let (device, ledger) = gauge.finish();
    prepared.remove(fs).await.map_err(failed)?;
    let cell = Cell::of_timed(cell_id(spec), duration, timed, timing, Some(issue.into()));
    Ok(Cell { device_stats: Some(device), ledger: Some(ledger), ..cell })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as StdCell;

    use super::*;
    use crate::block::{Command, Stage};
    use crate::compare::result::BlockShares;
    use crate::files::OpenMode;
    use crate::policy::PolicySpec;
    use crate::ssd::{Ssd, TrimConfig};
    use crate::units::SimTime;
    use crate::workload::own::{OwnFigures, OwnRun};

    fn spec(rep: u32, utilization: Option<Utilization>) -> CellSpec {
        let trim = TrimConfig { cost_per_command_ns: 1_000_000_000, ..SsdConfig::default().trim };
        let mut ssd = SsdConfig {
            capacity_bytes: Bytes::mib(128).0,
            over_provisioning_percent: Some(30.into()),
            trim,
            ..SsdConfig::default()
        };
        ssd.geometry.pages_per_block = 32;
        CellSpec {
            device: "small".to_owned(),
            ssd,
            faults: Faults::default(),
            thin: None,
            policy: "lazy".parse::<PolicySpec>().unwrap().into(),
            workload: PostmarkConfig { number: 10, transactions: 0, ..PostmarkConfig::default() }.into(),
            days: None,
            // So little memory that what ageing writes reaches the device.
            host: HostConfig { memory: Bytes::mib(16), ..HostConfig::of_the_2010s() },
            format: FormatOptions { journal: Some(Bytes::mib(4)), ..FormatOptions::default() },
            utilization,
            long_in_use: false,
            rep,
            seed: 1,
        }
    }

    /// When the workload began, and when the device had acknowledged the last TRIM before.
    fn begin(rep: u32, utilization: Option<Utilization>) -> (SimTime, SimTime) {
        let spec = spec(rep, utilization);
        let sim = Sim::new();
        let queue = BlockQueue::new(&sim, Ssd::new(&spec.ssd, 1).unwrap(), spec.host.queue);
        let trimmed = Rc::new(StdCell::new(SimTime::ZERO));
        let begun = Rc::new(RefCell::new(None));
        let (sink, first, clock) = (Rc::clone(&trimmed), Rc::clone(&begun), sim.clone());
        queue.trace(Some(Box::new(move |at, stage, command| {
            if matches!((stage, command), (Stage::Completed, Command::Trim(_))) {
                sink.set(at);
            }
        })));
        let mut progress = move |_| {
            first.borrow_mut().get_or_insert((clock.now(), trimmed.get()));
        };
        sim.run(async move { run_on(&queue, &spec, &mut progress).await }).unwrap().unwrap();
        begun.take().expect("the workload has begun")
    }

    /// Leaves a file of 2 MiB and removes one of 8 MiB, for good.
    #[derive(Debug)]
    struct Removal;

    impl OwnWorkload for Removal {
        fn run<'a>(&'a self, fs: &'a Ext4, _seed: u64) -> OwnRun<'a> {
            Box::pin(async {
                for (path, mib) in [("kept", 2), ("removed", 8)] {
                    let mut file = fs.open(path, OpenMode::Create).await?;
                    fs.write(&mut file, &vec![1; mib << 20]).await?;
                    fs.close(file).await?;
                }
                fs.sync().await?;
                fs.unlink("removed").await?;
                fs.sync().await?;
                Ok(OwnFigures::new())
            })
        }
    }

    #[test]
    fn the_map_of_the_blocks_says_what_is_in_use_stale_and_invalid() {
        let [off, ideal] = [PolicySpec::OFF, PolicySpec::IDEAL].map(|policy| {
            let spec =
                CellSpec { policy: policy.into(), workload: Arc::new(Removal).into(), ..spec(0, None) };
            let device = run_cell(&spec, Box::new(|_| ())).unwrap().device_stats.unwrap();
            let map = device.blocks.unwrap();
            let superblocks = map.superblocks as usize;
            let size = Ssd::new(&spec.ssd, 1).unwrap().superblock_units();
            let shares = |when: &BlockShares| {
                let all = [&when.in_use_permille, &when.stale_permille, &when.invalid_permille];
                assert!(all.iter().all(|shares| shares.len() == superblocks), "each is a group of its own");
                for group in 0..superblocks {
                    assert!(all.iter().map(|shares| shares[group]).sum::<u16>() <= 1000, "{when:?}");
                }
                all.map(|shares| shares.iter().map(|share| u64::from(*share)).sum::<u64>() * size / 1000)
            };
            assert_eq!(shares(&map.before)[1], 0, "nothing was removed yet");
            (shares(&map.after), device.stale_units_end.unwrap(), map.superblocks * size / 1000 + 1)
        });

        let ([in_use, stale, invalid], stale_end, rounding) = off;
        let ([in_use_trimmed, stale_trimmed, invalid_trimmed], stale_end_trimmed, _) = ideal;
        assert!(stale_end >= 2048 && stale <= stale_end && stale_end <= stale + rounding, "{off:?}");
        assert_eq!((stale_trimmed, stale_end_trimmed), (0, 0));
        // What is stale without TRIM is invalid with it; the rest is the same.
        assert!(
            (512..2048).contains(&in_use) && in_use.abs_diff(in_use_trimmed) <= rounding,
            "{off:?} {ideal:?}"
        );
        assert!((invalid + stale).abs_diff(invalid_trimmed) <= 2 * rounding, "{off:?} {ideal:?}");
    }

    fn run_job(text: &str, policy: &str) -> Cell {
        let policy = policy.parse::<PolicySpec>().unwrap().into();
        let workload = Program::parse("job:a.fio", text).unwrap().into();
        run_cell(&CellSpec { policy, workload, ..spec(0, None) }, Box::new(|_| ())).unwrap()
    }

    #[test]
    fn what_a_short_job_frees_is_committed_at_its_end() {
        let trims = run_job("[a]\nrw=randtrim\nbs=1m\nsize=8m\n", "commit");
        let removes = run_job(
            "[a]\nrw=write\nbs=64k\nsize=4m\nloops=3\nunlink_each_loop=1\nioengine=io_uring\niodepth=4\n",
            "commit",
        );
        for (cell, removed, punched_bytes, freed) in
            [(trims, 0, 8 << 20, 2048..=2048), (removes, 2, 0, 1..=2048)]
        {
            let WorkloadFigures::Program(done) = &cell.workload else { panic!("{cell:?}") };
            assert_eq!((done.files_removed, done.punched_bytes), (removed, punched_bytes));
            assert!(freed.contains(&cell.ledger.unwrap().units.freed), "{done:?} {:?}", cell.ledger);
            assert!(cell.device_stats.unwrap().trim_commands > 0, "{done:?}");
        }
        // What frees nothing is not made durable.
        let writes = "[a]\nrw=write\nbs=64k\nsize=4m\n";
        let [without, with] =
            [writes.to_owned(), format!("{writes}end_fsync=1\n")].map(|text| run_job(&text, "off"));
        assert!(without.duration_ns < with.duration_ns / 2, "{} {}", without.duration_ns, with.duration_ns);
    }

    #[test]
    fn a_run_ends_soon_after_it_is_stopped() {
        let text = "[a]\nrw=randwrite\nsize=4m\ntime_based\nruntime=1000\nrate_iops=10\n";
        let spec = CellSpec { workload: Program::parse("job:a.fio", text).unwrap().into(), ..spec(0, None) };
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        let raise = Box::new(move |_| raised.store(true, std::sync::atomic::Ordering::SeqCst));
        let error = run_cell_until(&spec, stop, raise).unwrap_err();
        assert!(error.is_stopped(), "{error}");
    }

    #[test]
    fn repetitions_begin_at_different_phases_of_the_commit_timer() {
        let phases = [0, 1, 2].map(commit_phase);
        assert_eq!(phases.map(|phase| phase.as_nanos()), [0, 3_090_169_944, 1_180_339_888]);
        let [first, second, third] = [0, 1, 2].map(|rep| begin(rep, None).0);
        assert_eq!([second.since(first), third.since(first)], [phases[1], phases[2]]);
    }

    #[test]
    fn repetitions_draw_differently() {
        let seeds = [0, 1, 2].map(|rep| spec(rep, None).draw_seed());
        assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && seeds[0] != seeds[2], "{seeds:?}");
    }

    /// TRIMs of a second each: some are left when ageing ends, and they must not fall into the rest that follows.
    #[test]
    fn a_workload_begins_when_the_device_has_rested_from_ageing() {
        let (begun, trimmed) = begin(0, Some(Utilization::of(50)));
        assert!(trimmed > SimTime(2_000_000_000), "only mkfs has trimmed anything");
        assert!(begun.since(trimmed) >= SETTLING, "{begun:?}, and the last TRIM ended at {trimmed:?}");
    }
}
