//! One run of a comparison on a real kernel: device, policy, workload and repetition, as in the model.
//!
//! The kernel brings its own file system and its own discard; the policies are its own ([`KernelPolicy`]), set by mount
//! options. Everything else is as in a cell of the model: a new file system on a new drive, aged if requested, the same
//! rest before the workload, the workload's own code, and figures of the same drive.
//!
//! A cell on a kernel differs from a modelled one, for these reasons:
//!
//! - The guest's processor takes no time, except 256 ns for each reading of the clock. The times measured are those of
//!   the drive and of the kernel's own waiting.
//! - Stale space is known only at the end, and only if the file system reports free space (ext4, XFS).
//! - There is no ledger: the kernel does not report TRIMs that it drops or keeps pending.
//! - After a workload that times one operation, its files are removed before the drive's figures are taken.

use std::fmt;

use thiserror::Error;
use trimwise::block::Port;
use trimwise::compare::cell::{SETTLING, commit_phase};
use trimwise::compare::days::DaysFigures;
use trimwise::compare::gauge::{Stale, device_figures};
use trimwise::compare::result::{Cell, CellId, DriveFacts, WorkloadFigures};
use trimwise::failure::{Mistake, Words, key};
use trimwise::policy::{BatchConfig, LazyConfig, PolicyId, PolicySpec, SetConfig, Trimmer};
use trimwise::profile::Profile;
use trimwise::ssd::{ConfigError, Ssd};
use trimwise::units::{Bytes, Lpn, SimDuration, UNIT_BYTES, Utilization};
use trimwise::words;
use trimwise::workload::days::Days;
use trimwise::workload::own::OwnFigures;

use crate::disk::Disk;
use crate::job::{
    DAEMON_FOLDER, FileSystem, Guest, Job, JobError, MOUNT_POINT, Outcome, Part, ProgramEnd, Said, Step,
    StepReport,
};
pub use trimwise_linux::kernel_target::KernelTarget;
use trimwise_linux::kernel_target::{DM_TRIM, EXT4_TRIM, TRIM_TARGET};
use trimwise_linux::program_end::expect_success;
use trimwise_linux::sparse_store::SparseStore;

/// A kernel's ways of using TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPolicy {
    /// `nodiscard`: the kernel never trims.
    Off,
    /// `discard`: ext4 and XFS trim with or after each commit, btrfs in the commit (`discard=sync`), f2fs from its own
    /// thread.
    Commit,
    /// `discard=async`, which only btrfs has.
    Async,
    /// `nodiscard`, and FITRIM over the whole file system at intervals.
    Batch(BatchConfig),
    /// `nodiscard`, and trimwised with a policy in the guest; only over days.
    Daemon(PolicySpec),
    /// A policy that only [`EXT4_TRIM`] adds to ext4; it always has options of its own.
    Patched(PolicySpec),
    /// `discard`, over the target that only [`DM_TRIM`] adds.
    Target(PolicySpec),
}

/// Idle time before days begin: enough for discards that are sent slowly, and for a daemon to get to know the file
/// system.
pub const LONG_REST: SimDuration = SimDuration::from_secs(7_200);

/// Returns the mount option that puts `kernel/dm-trim` below the file system with this policy; `None` if the target has
/// no such policy.
fn target_option(policy: PolicySpec) -> Option<String> {
    if policy == PolicySpec::QUIET {
        return Some(TRIM_TARGET.to_owned());
    }
    if let Some([quiet, hold]) = policy.quiet_and_hold() {
        let (quiet_ms, hold_s) = (quiet.as_nanos() / 1_000_000, hold.as_nanos() / 1_000_000_000);
        return Some(format!("{TRIM_TARGET}=quiet_ms={quiet_ms}+hold_s={hold_s}"));
    }
    let LazyConfig { workers_min, workers_max, reuse, merge: _, fill, back_off } = policy.lazy()?;
    let is_eager = policy.gate().is_none() && reuse && !fill && !back_off;
    let has_workers = workers_min == workers_max && workers_max <= TARGET_WORKERS_MAX;
    (is_eager && has_workers).then(|| format!("{TRIM_TARGET}=policy=eager+workers={workers_max}"))
}

/// The limit of the target's own option `workers`.
const TARGET_WORKERS_MAX: u32 = 64;

/// Returns the mount options that make the patched ext4 follow a policy; `None` if it cannot.
fn patched_options(policy: PolicySpec) -> Option<String> {
    let gate = match policy.gate() {
        None => String::new(),
        // There, zero turns the gate off.
        Some(SetConfig { high_percent: 0, .. }) => return None,
        Some(gate @ SetConfig { low_percent, high_percent, .. }) => {
            let is_plain = gate == SetConfig::new(low_percent, high_percent);
            is_plain.then(|| format!(",trim_low={low_percent},trim_high={high_percent}"))?
        }
    };
    let gated = policy.without_gate();
    let ways = [
        (PolicySpec::COMMIT, "discard"),
        (PolicySpec::SERIAL, "discard=serial"),
        (PolicySpec::TOGETHER, "discard=commit"),
    ];
    let way = match (ways.iter().find(|(way, _)| *way == gated), policy.lazy()) {
        (Some((_, option)), _) => (*option).to_owned(),
        (
            None,
            Some(LazyConfig { workers_min, workers_max, reuse, merge: false, fill: false, back_off: false }),
        ) => {
            let reuse = if reuse { "trim_reuse" } else { "notrim_reuse" };
            format!("discard=lazy,trim_workers={workers_min}-{workers_max},{reuse}")
        }
        _ => return None,
    };
    Some(way + &gate)
}

impl KernelPolicy {
    /// Returns policies of the target's own file system that need no settings.
    pub fn all_of(target: &KernelTarget) -> Vec<Self> {
        let mut all = vec![Self::Off, Self::Commit];
        all.extend((target.file_system == FileSystem::Btrfs).then_some(Self::Async));
        all.extend(target.has_dm_trim().then_some(Self::Target(PolicySpec::QUIET)));
        if target.has_ext4_trim() {
            let own = ["serial", "lazy", "lazy+reuse"];
            all.extend(own.iter().filter_map(|policy| policy.parse().ok()).map(Self::Patched));
        }
        all
    }

    pub fn forms(target: &KernelTarget) -> String {
        let own = Self::all_of(target).into_iter().map(|policy| match policy {
            Self::Off => "off (mount option nodiscard)".to_owned(),
            Self::Commit | Self::Async if target.file_system == FileSystem::Btrfs => {
                format!("{policy} ({})", policy.mount_option(target.file_system))
            }
            _ => policy.to_string(),
        });
        let mut forms = own.collect::<Vec<_>>().join(", ");
        if target.has_ext4_trim() {
            forms += ", lazy:MIN:MAX, set:LOW:HIGH+POLICY";
        }
        if target.has_dm_trim() {
            forms += ", dm-trim:quiet:QUIET:HOLD, dm-trim:lazy:N:N+reuse";
        }
        forms + ", batch:EVERY[:SMALLEST], trimwised[:POLICY] (over days)"
    }

    /// Parses a policy for a target.
    pub fn parse(text: &str, target: &KernelTarget) -> Result<Self, Mistake> {
        let policy = PolicyId::asked(text).map_err(Mistake::that);
        Self::of_asked(text, policy.as_ref(), target)
    }

    /// Returns the way in which a target follows a policy that was asked for as `text`, and read before.
    pub fn of_asked(
        text: &str,
        policy: Result<&PolicyId, &Mistake>,
        target: &KernelTarget,
    ) -> Result<Self, Mistake> {
        let refused = || Self::refused(text, target, "");
        match policy {
            Ok(PolicyId::Known(policy)) => Self::asked(*policy, text, target),
            Ok(own) => Self::of_id(own, target).ok_or_else(refused),
            // The grammar explains what is wrong with a policy that any kernel can follow.
            Err(why) if Trimmer::is_daemon(text) || Trimmer::is_target(text) || text.starts_with("batch") => {
                Err(why.clone())
            }
            Err(_) => Err(refused()),
        }
    }

    /// Returns the way in which a target follows a policy.
    pub fn of(policy: Trimmer, target: &KernelTarget) -> Result<Self, Mistake> {
        Self::asked(policy, &policy.to_string(), target)
    }

    /// Returns the policy of a target that has this identifier.
    pub fn of_id(id: &PolicyId, target: &KernelTarget) -> Option<Self> {
        match id {
            PolicyId::Known(policy) => Self::of(*policy, target).ok(),
            PolicyId::Named(name) if &**name == "discard=sync" => {
                (target.file_system == FileSystem::Btrfs).then_some(Self::Commit)
            }
            PolicyId::Named(_) => Self::all_of(target).into_iter().find(|own| own.id() == *id),
        }
    }

    /// Converts a policy that was asked for as `text`.
    fn asked(policy: Trimmer, text: &str, target: &KernelTarget) -> Result<Self, Mistake> {
        if policy.spec().limit().is_some() {
            let why =
                format!("'{text}': limits on deletions are modelled above the model's file system only");
            return Err(Mistake::that(why).expected(policy.spec().without_limit().to_string()));
        }
        let spec = match policy {
            Trimmer::Daemon(spec) => return Ok(Self::Daemon(spec)),
            Trimmer::Block(spec) => return Self::asked_below(spec, text, target),
            Trimmer::Kernel(spec) if spec == PolicySpec::OFF => return Ok(Self::Off),
            Trimmer::Kernel(spec) if spec == PolicySpec::COMMIT => return Ok(Self::Commit),
            Trimmer::Kernel(spec) => spec,
        };
        if let Some(batch) = spec.batch() {
            return Ok(Self::Batch(batch));
        }
        if patched_options(spec).is_none() {
            return Err(Self::refused(text, target, ""));
        }
        if target.has_ext4_trim() {
            return Ok(Self::Patched(spec));
        }
        let with = if target.file_system == FileSystem::Ext4 {
            let version = target.kernel.version();
            format!(
                "; or kernel:{version}+{EXT4_TRIM}:ext4, which has it once it is built: \
                 trimwise kernel build --version {version} --with kernel/{EXT4_TRIM}"
            )
        } else {
            String::new()
        };
        Err(Self::refused(text, target, &with))
    }

    fn refused(text: &str, target: &KernelTarget, with: &str) -> Mistake {
        let kind = if target.has_ext4_trim() { "the patched kernel" } else { "a real kernel" };
        let why = format!("'{text}' is not a policy of {} on {kind}", target.file_system.name());
        Mistake::that(why).expected(Self::forms(target) + with)
    }

    fn asked_below(policy: PolicySpec, text: &str, target: &KernelTarget) -> Result<Self, Mistake> {
        if target.puts_target() {
            let why = format!("'{text}': the mount option {TRIM_TARGET} puts the target there");
            return Err(Mistake::that(why).expected("one of them"));
        }
        if !target.has_dm_trim() {
            let version = target.kernel.version();
            let expected = format!(
                "kernel:{version}+{DM_TRIM}:{}, which has it once it is built: trimwise kernel build --version \
                 {version} --with kernel/{DM_TRIM}",
                target.file_system.name()
            );
            let why = format!("'{text}' needs the target of kernel/{DM_TRIM}");
            return Err(Mistake::that(why).expected(expected));
        }
        match target_option(policy) {
            Some(_) => Ok(Self::Target(policy)),
            None => {
                let why = format!("'{text}' is not a policy of kernel/{DM_TRIM}");
                Err(Mistake::that(why).expected(Self::forms(target)))
            }
        }
    }

    /// Returns the policy's identifier. The model has no policy that is `async`.
    pub fn id(self) -> PolicyId {
        match self {
            Self::Off => PolicyId::OFF,
            Self::Commit => PolicyId::COMMIT,
            Self::Async => PolicyId::Named("async".into()),
            Self::Batch(config) => PolicySpec::from(config).into(),
            Self::Daemon(policy) => Trimmer::Daemon(policy).into(),
            Self::Patched(policy) => policy.into(),
            Self::Target(policy) => Trimmer::Block(policy).into(),
        }
    }

    /// Returns FITRIM at intervals, if this policy uses it: at the times of a timer if the work is spread over days, and
    /// otherwise the first after one interval.
    pub fn trim_every(self, days: Option<&Days>) -> Option<Step> {
        let Self::Batch(config) = self else { return None };
        let minlen_bytes = if config.units_min <= 1 { 0 } else { config.units_min * UNIT_BYTES };
        let first = days.and_then(|days| days.sweeps(config.every).next()).unwrap_or(config.every);
        let (first_ns, every_ns) = (first.as_nanos(), config.every.as_nanos());
        Some(Step::TrimEvery { first_ns, every_ns, minlen_bytes })
    }

    /// Returns true if trimwised carries out the policy.
    pub fn is_daemon(self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    /// Returns the mount options of a target under this policy.
    pub fn mount_options(self, target: &KernelTarget) -> String {
        let of_policy = self.mount_option(target.file_system);
        match target.options.as_str() {
            "" => of_policy,
            others => format!("{others},{of_policy}"),
        }
    }

    /// Rejects mount options of a target that a policy sets; the error names the option, and the policy or step that sets it.
    pub fn check_options(target: &KernelTarget) -> Result<(), Words> {
        const OF_POLICIES: [&str; 7] =
            ["discard", "nodiscard", "trim_low", "trim_high", "trim_workers", "trim_reuse", "notrim_reuse"];
        let is_discard =
            |option: &&str| option.split('=').next().is_some_and(|name| OF_POLICIES.contains(&name));
        match target.options.split(',').find(is_discard) {
            None => Ok(()),
            Some(option) => Err(words![
                format!("mount option '{option}' is set by "),
                key("policies"),
                format!("; give it there: {}", Self::forms(target))
            ]),
        }
    }

    pub fn mount_option(self, file_system: FileSystem) -> String {
        match (self, file_system) {
            (Self::Off | Self::Batch(_) | Self::Daemon(_), _) => "nodiscard".to_owned(),
            (Self::Commit, FileSystem::Btrfs) => "discard=sync".to_owned(),
            (Self::Commit, _) => "discard".to_owned(),
            (Self::Async, _) => "discard=async".to_owned(),
            (Self::Patched(policy), _) => patched_options(policy).unwrap_or_default(),
            (Self::Target(policy), _) => {
                let discard = Self::Commit.mount_option(file_system);
                format!("{discard},{}", target_option(policy).unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for KernelPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum KernelWorkload {
    /// PostMark, by the text of its configuration.
    Postmark(String),
    /// A benchmark that times one operation, as on the command line.
    Timed(String),
    Program {
        argument: String,
        text: String,
        /// The part of the job that runs, at most 1. An application has it in its parameters.
        scale: f64,
    },
    Command {
        /// A program that prepares the file system, which is then synced. Empty for none.
        setup: Vec<String>,
        /// The program that is measured.
        run: Vec<String>,
    },
}

impl KernelWorkload {
    /// Returns true if the workload marks the drive when its files exist and before they are removed. For the others,
    /// that is done around the step.
    fn marks_itself(&self) -> bool {
        match self {
            Self::Program { .. } => true,
            Self::Postmark(_) | Self::Timed(_) | Self::Command { .. } => false,
        }
    }
}

/// All inputs of a run, besides the kernel.
#[derive(Clone, Debug)]
pub struct KernelCell<'a> {
    pub device: &'a Profile,
    pub target: &'a KernelTarget,
    pub policy: KernelPolicy,
    pub workload: &'a KernelWorkload,
    /// If set, the file system is first aged under the policy until this share is in use.
    pub utilization: Option<Utilization>,
    /// True if ageing goes on until all flash beyond the space in use was written once more, as in
    /// [`CellSpec`](trimwise::compare::cell::CellSpec::long_in_use).
    pub long_in_use: bool,
    /// If set, PostMark or a program is spread over these days.
    pub days: Option<&'a Days>,
    /// Number of the repetition: it decides at which phase of the commit timer the workload begins, and the seed of the
    /// ageing.
    pub rep: u32,
    pub seed: u64,
}

#[derive(Debug, Error)]
pub enum KernelCellError {
    #[error(transparent)]
    Device(#[from] ConfigError),
    #[error("cannot make the drive's memory: {0}")]
    Store(std::io::Error),
    #[error(transparent)]
    Job(#[from] JobError),
    /// A defect: the drive's accounting is wrong.
    #[error("the audit of the drive after the run failed: {0}")]
    Audit(String),
    #[error("{0}")]
    Command(String),
    /// A defect: the guest did not report a result that the job asks for.
    #[error("the guest did not report {0}")]
    NoAnswer(&'static str),
}

pub fn new_disk(device: &Profile, seed: u64, is_traced: bool) -> Result<Disk, KernelCellError> {
    let capacity = Bytes::from_units(device.config.capacity_units());
    let store = SparseStore::in_memory(capacity).map_err(KernelCellError::Store)?;
    disk_over(store, device, seed, is_traced)
}

/// Creates a drive of this profile whose contents are `store`.
pub fn disk_over(
    store: SparseStore,
    device: &Profile,
    seed: u64,
    is_traced: bool,
) -> Result<Disk, KernelCellError> {
    let drive = trimwise::ssd::Drive::new(&device.config, device.faults, seed)?;
    let mut disk = Disk::new(Port::new(drive), store, "trimwise", is_traced);
    disk.write_what_is_there().map_err(KernelCellError::Store)?;
    Ok(disk)
}

/// Returns the step that lets the drive rest after writes.
pub fn settling() -> Step {
    Step::Sleep { ns: SETTLING.as_nanos() }
}

/// Returns the steps that fill a file system, empty it to this share, and let the drive rest.
pub fn ageing(utilization: Utilization, seed: u64) -> [Step; 2] {
    [Step::Age { utilization, seed }, settling()]
}

impl KernelCell<'_> {
    fn draw_seed(&self) -> u64 {
        self.seed ^ (u64::from(self.rep) << 32)
    }

    fn id(&self) -> CellId {
        CellId {
            device: self.device.name.clone(),
            policy: self.policy.id(),
            target: self.target.into(),
            rep: self.rep,
        }
    }

    /// Returns the steps, spread over days, of the guest that ages the drive before the measured guest boots; `None` if
    /// the measured guest does it itself, or nothing ages the drive.
    ///
    /// Cells on the same kind of drive, with the same kernel, memory and seed, may begin with one drive if these steps
    /// are the same: `off`, fstrim and the daemon differ only after them.
    pub fn steps_before(&self) -> Result<Option<Vec<Step>>, ConfigError> {
        if !self.is_aged_before() {
            return Ok(None);
        }
        let file_system = self.target.file_system;
        let mut steps = vec![Step::Mkfs { file_system, options: Vec::new() }, self.mount()];
        steps.extend(self.zeros());
        steps.extend(self.ageing()?);
        steps.extend([settling(), Step::Sync, Step::Sleep { ns: LONG_REST.as_nanos() }, Step::Unmount]);
        Ok(Some(steps))
    }

    fn is_aged_before(&self) -> bool {
        is_aged_before(self.days, self.utilization)
    }

    fn mount(&self) -> Step {
        let file_system = self.target.file_system;
        Step::Mount { file_system, options: self.policy.mount_options(self.target) }
    }

    fn zeros(&self) -> Option<Step> {
        writes_zeros(self.device, self.target).then_some(Step::WriteZeros)
    }

    fn ageing(&self) -> Result<Vec<Step>, ConfigError> {
        let Some(utilization) = self.utilization else { return Ok(Vec::new()) };
        let seed = self.draw_seed();
        let mut steps = vec![Step::Age { utilization, seed }];
        if self.long_in_use {
            let in_use = self.device.config.capacity_bytes / 100 * utilization.percent();
            let bytes = self.device.config.physical_bytes()?.saturating_sub(in_use);
            steps.push(Step::TurnOver { utilization, bytes, seed });
        }
        Ok(steps)
    }

    /// Returns the steps of the measured guest, and the index of the workload among them.
    fn steps(&self) -> Result<(Vec<Step>, usize), ConfigError> {
        let file_system = self.target.file_system;
        let is_aged = self.is_aged_before();
        let mut steps = Vec::new();
        if !is_aged {
            steps.push(Step::Mkfs { file_system, options: Vec::new() });
        }
        steps.push(self.mount());
        if self.days.is_none() {
            steps.extend(self.policy.trim_every(None));
        }
        steps.extend(self.zeros());
        if !is_aged {
            steps.extend(self.ageing()?);
        } else if matches!(self.policy, KernelPolicy::Batch(_) | KernelPolicy::Daemon(_)) {
            // The other policies have trimmed this before the days begin.
            steps.push(Step::Fitrim { minlen_bytes: 0 });
        }
        if self.utilization.is_some() {
            steps.push(settling());
        }
        if let (Some(_), KernelPolicy::Daemon(policy)) = (self.days, self.policy) {
            steps.push(Step::Daemon { config: daemon_config(policy) });
        }
        if self.days.is_some() {
            steps.push(Step::Sleep { ns: LONG_REST.as_nanos() });
        }
        match self.workload {
            KernelWorkload::Command { setup, .. } => {
                steps.push(Step::TrustRandomness);
                if !setup.is_empty() {
                    steps.push(Step::Program { command: setup.clone(), input: Said::default() });
                    steps.push(Step::Sync);
                }
            }
            KernelWorkload::Postmark(_) | KernelWorkload::Timed(_) | KernelWorkload::Program { .. } => {}
        }
        steps.push(Step::Sleep { ns: commit_phase(self.rep).as_nanos() });
        if let Some(days) = self.days {
            steps.extend(self.policy.trim_every(Some(days)));
        }
        let workload = steps.len();
        let work = match self.workload {
            KernelWorkload::Postmark(config) => Step::Postmark { config: config.clone(), rep: self.rep },
            KernelWorkload::Timed(spec) => {
                Step::Timed { spec: spec.clone(), part: Part::Whole, rep: self.rep, seed: self.draw_seed() }
            }
            KernelWorkload::Program { argument, text, scale } => Step::Workload {
                argument: argument.clone(),
                text: text.clone(),
                scale: *scale,
                rep: self.rep,
                seed: self.draw_seed(),
            },
            KernelWorkload::Command { run, .. } => {
                Step::Program { command: run.clone(), input: Said::default() }
            }
        };
        steps.push(match self.days {
            None => work,
            Some(days) => {
                let (days, shape) = (days.days(), days.shape().to_string());
                Step::OverDays { days, shape, seed: self.draw_seed(), work: Box::new(work) }
            }
        });
        if self.policy.is_daemon() {
            steps.extend([
                Step::Program { command: status_command(), input: Said::default() },
                Step::StopDaemon,
            ]);
        }
        // The guest ends right after this with the file system mounted, so the drive's map is from exactly this moment.
        if matches!(file_system, FileSystem::Ext4 | FileSystem::Xfs) {
            steps.push(Step::FreeSpace);
        }
        Ok((steps, workload))
    }

    /// Runs the cell on a new drive. For a policy of trimwised, the guest must have it ([`Guest::daemon`]).
    pub fn run(&self, guest: &Guest) -> Result<Cell, KernelCellError> {
        self.run_on(self.age(guest)?.into_disk(), guest)
    }

    /// Returns a new drive after [`KernelCell::steps_before`].
    pub fn age(&self, guest: &Guest) -> Result<Aged, KernelCellError> {
        let mut disks = [new_disk(self.device, self.seed, false)?];
        if let Some(steps) = self.steps_before()? {
            // Use the same guest for every cell.
            let guest = Guest { daemon: None, ..guest.clone() };
            guest.run(&Job { steps }, &mut disks)?;
        }
        let [disk] = disks;
        let (port, store, _, _) = disk.into_parts();
        Ok(Aged { port, store })
    }

    /// Runs the cell on a drive that [`KernelCell::age`] returned, for this cell or for one with the same steps before.
    pub fn run_on(&self, disk: Disk, guest: &Guest) -> Result<Cell, KernelCellError> {
        let mut disks = [disk];
        let (steps, workload) = self.steps()?;
        let job = Job { steps };
        let report = guest.run(&job, &mut disks)?;
        let [disk] = disks;
        let (port, _, _, marks) = disk.into_parts();
        let ssd = port.drive().ssd();
        ssd.audit().map_err(|e| KernelCellError::Audit(e.to_string()))?;

        for (step, report) in job.steps.iter().zip(&report.steps) {
            if let (Step::Program { command, .. }, Outcome::Program(end)) = (step, &report.outcome) {
                expect_success(command, end).map_err(KernelCellError::Command)?;
            }
        }
        let mut reports = report.steps.into_iter().skip(workload);
        let (cell, postmark_report) = match reports.next() {
            Some(StepReport { outcome: Outcome::Cell(cell, report), .. }) => (*cell, report),
            Some(StepReport { outcome: Outcome::Program(_), begin_ns, end_ns }) => {
                let duration = SimDuration(end_ns - begin_ns);
                (Cell::new(self.id(), duration, WorkloadFigures::Own(OwnFigures::default())), String::new())
            }
            _ => return Err(KernelCellError::NoAnswer("what the workload did")),
        };
        let (mut stale, mut of_daemon) = (Stale::default(), None);
        for outcome in reports.map(|report| report.outcome) {
            match outcome {
                Outcome::Free(extents) => stale.end = Some(stale_units(ssd, &extents)),
                Outcome::Program(status) if self.policy.is_daemon() => of_daemon = Some(totals(&status)?),
                _ => {}
            }
        }
        let marks_itself = self.days.is_some() || self.workload.marks_itself();
        let first = workload + usize::from(marks_itself);
        let [before, after] = marks.get(first..first + 2).unwrap_or_default() else {
            return Err(KernelCellError::NoAnswer("when the workload ran"));
        };
        let device_stats = device_figures(&after.stats.since(&before.stats), ssd.wear(), stale, Vec::new());
        let days = cell.days.map(|days| {
            let [slices, fitrim_max_ns, maps] = of_daemon.unwrap_or([0, days.fitrim_max_ns, 0]);
            let is_sent = days.sweeps + slices > 0;
            let fitrim_units = if is_sent { device_stats.trimmed_units } else { 0 };
            DaysFigures { slices, fitrim_max_ns, maps, fitrim_units, ..days }
        });
        let CellId { device, policy, target, rep } = self.id();
        Ok(Cell {
            device,
            policy,
            target,
            rep,
            days,
            device_stats: Some(device_stats),
            drive: Some(DriveFacts::of(&self.device.config)),
            postmark_report,
            ..cell
        })
    }
}

/// Returns true if a guest of its own ages a cell's drive before the measured guest boots, which is so over days.
pub fn is_aged_before(days: Option<&Days>, utilization: Option<Utilization>) -> bool {
    days.is_some() && utilization.is_some()
}

/// A drive on which cells begin, at a moment when no guest has it.
///
/// A guest in the middle of its work cannot be copied in this way. Each of its processes is a process of this computer,
/// traced by the kernel's process. A fork of the latter would trace none of them, and share the guest's memory, a
/// mapped file, with the original. So every cell boots its own guest, which takes a tenth of a second.
#[derive(Debug)]
pub struct Aged {
    port: Port,
    store: SparseStore,
}

impl Aged {
    /// Returns a copy as a guest's disk. The drive's clock goes on: that guest's first request waits until this time.
    pub fn disk(&self) -> Result<Disk, KernelCellError> {
        let store = self.store.duplicate().map_err(KernelCellError::Store)?;
        Ok(Aged { port: self.port.clone(), store }.into_disk())
    }

    /// Returns the drive itself as a guest's disk, for the last cell.
    pub fn into_disk(self) -> Disk {
        Disk::new(self.port, self.store, "trimwise", false)
    }
}

/// Returns true if ageing and the work may write zeros, which take no memory: neither the drive nor the file system
/// looks at the data.
pub fn writes_zeros(device: &Profile, target: &KernelTarget) -> bool {
    !device.config.looks_at_content() && !target.options.contains("compress")
}

/// Returns the configuration of a daemon that follows a policy on the file system under test, with defaults for
/// everything else.
pub fn daemon_config(policy: PolicySpec) -> String {
    let toggle = if policy.toggles_discard() { "toggle = true\n" } else { "" };
    format!("[mount.\"{MOUNT_POINT}\"]\npolicy = \"{policy}\"\n{toggle}")
}

fn status_command() -> Vec<String> {
    let run = format!("{DAEMON_FOLDER}/run");
    ["/proc/self/exe", "status", "--run", &run, "--json", "-"].map(str::to_owned).to_vec()
}

/// Reads the number of slices, the longest slice in nanoseconds, and the number of maps read from the daemon's status,
/// which covers one file system.
fn totals(status: &ProgramEnd) -> Result<[u64; 3], KernelCellError> {
    let data: serde_json::Value = serde_json::from_slice(&status.output.0).unwrap_or_default();
    let totals = &data["file_systems"][0]["status"]["totals"];
    let number = |key| totals[key].as_u64().ok_or(KernelCellError::NoAnswer("what trimwised did"));
    Ok([number("slices")?, number("slice_longest_ns")?, number("looks")?])
}

/// Counts units that lie entirely in a free extent and hold data in the drive.
pub fn stale_units(ssd: &Ssd, free: &[(u64, u64)]) -> u64 {
    let units =
        free.iter().flat_map(|&(offset, length)| offset.div_ceil(UNIT_BYTES)..(offset + length) / UNIT_BYTES);
    units.filter(|&unit| ssd.is_mapped(Lpn(unit))).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_below_the_file_system_is_a_mount_option() {
        let of = |policy: &str, fs| {
            let target = target("6.12+dm-trim", fs);
            KernelPolicy::parse(policy, &target).map(|policy| policy.mount_options(&target))
        };
        for (policy, options) in [
            ("dm-trim", "x-trim"),
            ("dm-trim:quiet:50ms", "x-trim=quiet_ms=50+hold_s=60"),
            ("dm-trim:quiet", "x-trim"),
            ("dm-trim:quiet:100ms:5s", "x-trim=quiet_ms=100+hold_s=5"),
            ("dm-trim:lazy:4:4+reuse+merge", "x-trim=policy=eager+workers=4"),
            ("dm-trim:lazy:64:64+reuse", "x-trim=policy=eager+workers=64"),
        ] {
            assert_eq!(of(policy, FileSystem::Xfs), Ok(format!("discard,{options}")));
            assert_eq!(of(policy, FileSystem::Btrfs), Ok(format!("discard=sync,{options}")));
        }
        for policy in [
            "dm-trim:lazy",
            "dm-trim:lazy:4:4+merge",
            "dm-trim:lazy:1:2+reuse",
            "dm-trim:lazy:65:65+reuse",
            "dm-trim:lazy:4:4+reuse+fill",
            "dm-trim:lazy:4:4+reuse+backoff",
            "dm-trim:set:40:90+lazy:4:4+reuse",
            "dm-trim:set:40:90+quiet",
            "dm-trim:btrfs",
        ] {
            let refused = of(policy, FileSystem::Ext4).unwrap_err();
            assert!(refused.to_string().contains("not a policy of kernel/dm-trim"), "{refused}");
        }
        let there =
            KernelTarget { options: "x-trim=workers=2".into(), ..target("6.12+dm-trim", FileSystem::Ext4) };
        assert!(
            KernelPolicy::parse("dm-trim", &there).unwrap_err().to_string().contains("expected one of them")
        );
        let without = KernelPolicy::parse("dm-trim", &target("6.12", FileSystem::Ext4)).unwrap_err();
        assert!(
            without.to_string().contains("kernel build --version 6.12 --with kernel/dm-trim"),
            "{without}"
        );
    }

    #[test]
    fn a_target_is_written_as_it_is_read() {
        for text in [
            "6.1:ext4",
            "5.10:btrfs:compress=zstd:3,noatime",
            "6.12:xfs",
            "6.6.30:f2fs",
            "6.12+ext4-overtrim+ext4-trim+kasan:ext4:noatime",
        ] {
            assert_eq!(text.parse::<KernelTarget>().unwrap().to_string(), text);
        }
        let options = "6.1:btrfs:compress=zstd:3".parse::<KernelTarget>().unwrap().options;
        assert_eq!(options, "compress=zstd:3", "only the first two colons part");
        for (text, expected) in [
            ("6.1", "VERSION:FS"),
            (":ext4", "VERSION:FS"),
            ("6.1:ntfs", "ext4, xfs, btrfs, f2fs"),
            ("new:ext4", "numbers"),
            ("6.1+:ext4", "patch set ''"),
            ("6.1+../x:ext4", "patch set '../x'"),
            ("6.1+kasan+a:ext4", "is the name of a variant"),
            ("6.1+a+a:ext4", "twice"),
        ] {
            let error = text.parse::<KernelTarget>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    fn target(version: &str, file_system: FileSystem) -> KernelTarget {
        KernelTarget { kernel: version.parse().unwrap(), file_system, options: String::new() }
    }

    #[test]
    fn a_typed_policy_becomes_what_its_text_does() {
        let kernels = ["6.12", "6.12+ext4-trim", "6.12+dm-trim", "6.12+dm-trim+ext4-trim"];
        let hosts = [Trimmer::Kernel, Trimmer::Daemon, Trimmer::Block];
        for (version, file_system) in
            kernels.iter().flat_map(|version| FileSystem::ALL.map(|fs| (version, fs)))
        {
            let target = target(version, file_system);
            for host in hosts {
                // Not all are usable by each host, and so not all can be parsed.
                for trimmer in PolicySpec::examples().into_iter().map(host) {
                    let text = trimmer.to_string();
                    if text.parse() == Ok(trimmer) {
                        let own = KernelPolicy::of(trimmer, &target);
                        assert_eq!(own, KernelPolicy::parse(&text, &target), "{text} on {target}");
                        if let Ok(own) = own {
                            assert_eq!(own.id(), trimmer.into(), "{text} on {target}");
                        }
                    }
                }
            }
            for own in KernelPolicy::all_of(&target) {
                assert_eq!(KernelPolicy::of_id(&own.id(), &target), Some(own), "{own} on {target}");
            }
        }
        let [ext4, btrfs] = [FileSystem::Ext4, FileSystem::Btrfs].map(|fs| target("6.12", fs));
        assert_eq!(KernelPolicy::of_id(&KernelPolicy::Async.id(), &btrfs), Some(KernelPolicy::Async));
        assert_eq!(KernelPolicy::of_id(&KernelPolicy::Async.id(), &ext4), None);
        assert_eq!(KernelPolicy::of_id(&"own:off".into(), &ext4), None);
    }

    #[test]
    fn each_file_system_has_its_own_policies() {
        let parse = |text: &str, fs| {
            KernelPolicy::parse(text, &target("6.12", fs)).map(|policy| policy.mount_option(fs))
        };
        for (text, file_system, option) in [
            ("off", FileSystem::Ext4, "nodiscard"),
            ("commit", FileSystem::F2fs, "discard"),
            ("commit", FileSystem::Btrfs, "discard=sync"),
            ("async", FileSystem::Btrfs, "discard=async"),
            ("batch:10s:64KiB", FileSystem::Xfs, "nodiscard"),
        ] {
            assert_eq!(parse(text, file_system).as_deref(), Ok(option), "{text}");
        }
        for text in ["async", "lazy", "set:40:90", "set:40:90+batch:10s", "batch"] {
            let error = parse(text, FileSystem::Ext4).unwrap_err();
            assert!(error.to_string().contains("expected"), "{error}");
        }
        let batch = KernelPolicy::parse("batch:90s:64KiB", &target("6.12", FileSystem::Ext4)).unwrap();
        assert_eq!(batch.to_string(), "batch:90s:64KiB");
    }

    #[test]
    fn the_patched_ext4_has_the_papers_policies_and_others_name_it() {
        let patched = target("6.12+ext4-trim", FileSystem::Ext4);
        for (text, option) in [
            ("commit", "discard"),
            ("serial", "discard=serial"),
            ("together", "discard=commit"),
            ("lazy", "discard=lazy,trim_workers=1-8,notrim_reuse"),
            ("lazy:2:4+reuse", "discard=lazy,trim_workers=2-4,trim_reuse"),
            ("set:40:90", "discard,trim_low=40,trim_high=90"),
            ("set:40:80+serial", "discard=serial,trim_low=40,trim_high=80"),
            ("set:0:1+together", "discard=commit,trim_low=0,trim_high=1"),
            ("set:100:100", "discard,trim_low=100,trim_high=100"),
            ("lazy+reuse", "discard=lazy,trim_workers=1-8,trim_reuse"),
            ("off", "nodiscard"),
            ("batch:1d", "nodiscard"),
            ("trimwised", "nodiscard"),
            ("set:0:60+lazy+reuse", "discard=lazy,trim_workers=1-8,trim_reuse,trim_low=0,trim_high=60"),
        ] {
            let policy = KernelPolicy::parse(text, &patched).unwrap();
            assert_eq!(policy.mount_option(FileSystem::Ext4), option);
            assert_eq!(policy.to_string(), text);
        }
        for text in [
            "judicious",
            "ideal",
            "lazy+merge",
            "lazy+fill",
            "lazy+backoff",
            "set:0:0",
            "set:40:90:5s",
            "set:40:90+catchup",
            "kernel515",
            "?",
        ] {
            let error = KernelPolicy::parse(text, &patched).unwrap_err();
            assert!(
                error.to_string().contains(" commit, serial, lazy, ") && !error.to_string().contains("build"),
                "{error}"
            );
        }
        for text in ["serial", "lazy+reuse", "set:40:90"] {
            let error = KernelPolicy::parse(text, &target("6.12", FileSystem::Ext4)).unwrap_err();
            assert!(
                error.to_string().contains("kernel build --version 6.12 --with kernel/ext4-trim"),
                "{error}"
            );
            let error = KernelPolicy::parse(text, &target("6.12", FileSystem::Xfs)).unwrap_err();
            assert!(!error.to_string().contains("build"), "{error}");
        }
    }

    #[test]
    fn a_cell_has_the_steps_of_its_policy_and_workload_and_each_repetition_a_phase_and_a_seed() {
        let device = Profile::embedded("sata-small").unwrap();
        let steps = |to: &str, policy: &str, workload: &KernelWorkload, utilization, rep| {
            let target: KernelTarget = to.parse().unwrap();
            let policy = KernelPolicy::parse(policy, &target).unwrap();
            let (device, target, seed) = (&device, &target, 5);
            let (long_in_use, days) = (false, None);
            KernelCell { device, target, policy, workload, utilization, long_in_use, days, rep, seed }
                .steps()
                .unwrap()
        };
        let names = |(steps, workload): (Vec<Step>, usize)| {
            (steps.iter().map(Step::name).collect::<Vec<_>>().join(", "), steps[workload].name())
        };
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let make = KernelWorkload::Command { setup: words("tar x"), run: words("make all") };
        let expected = "mkfs.ext4, mount of ext4 with 'noatime,nodiscard', FITRIM at intervals, writing zeros, ageing to \
                        70 %, sleep, crediting entropy, tar, sync, sleep, make, GETFSMAP";
        let made = steps("6.1:ext4:noatime", "batch:90s", &make, Some(Utilization::of(70)), 0);
        assert_eq!(names(made), (expected.to_owned(), "make".to_owned()));
        let append = KernelWorkload::Timed("append".to_owned());
        let expected =
            "mkfs.btrfs, mount of btrfs with 'discard=async', writing zeros, sleep, workload append";
        let appended = steps("6.12:btrfs", "async", &append, None, 0);
        assert_eq!(names(appended), (expected.to_owned(), "workload append".to_owned()));
        for rep in [0, 1] {
            let (steps, _) = steps("6.1:f2fs", "off", &append, Some(Utilization::of(50)), rep);
            let own = 5 ^ (u64::from(rep) << 32);
            let phase = Step::Sleep { ns: commit_phase(rep).as_nanos() };
            let spec = "append".to_owned();
            let timed = Step::Timed { spec, part: Part::Whole, rep, seed: own };
            assert_eq!(steps[3..], [&ageing(Utilization::of(50), own)[..], &[phase, timed]].concat());
        }
    }

    #[test]
    fn over_days_the_work_is_spread_and_what_trims_starts_with_it() {
        let device = Profile::embedded("sata-small").unwrap();
        let days = Days::new(7, "office".parse().unwrap()).unwrap();
        let text = String::new();
        let workload = &KernelWorkload::Program { argument: "desktop".to_owned(), text, scale: 1.0 };
        let names = |policy: &str| {
            let target: KernelTarget = "6.12:xfs".parse().unwrap();
            let policy = KernelPolicy::parse(policy, &target).unwrap();
            let (device, target, days) = (&device, &target, Some(&days));
            let (utilization, long_in_use, rep, seed) = (Some(Utilization::of(60)), true, 0, 5);
            let cell =
                KernelCell { device, target, policy, workload, utilization, long_in_use, days, rep, seed };
            let (steps, workload) = cell.steps().unwrap();
            let sweep = steps.iter().find_map(|step| match step {
                Step::TrimEvery { first_ns, every_ns, .. } => Some((*first_ns, *every_ns)),
                _ => None,
            });
            assert_eq!(steps[workload].name(), "workload desktop over 7 days");
            let names = |steps: &[Step]| steps.iter().map(Step::name).collect::<Vec<_>>().join(", ");
            (cell.steps_before().unwrap().map(|steps| names(&steps)), names(&steps[1..]), sweep)
        };
        let work = "workload desktop over 7 days";
        let aged = |options: &str| {
            Some(format!(
                "mkfs.xfs, mount of xfs with '{options}', writing zeros, ageing to 60 %, turning files over, sleep, sync, \
                 sleep, unmount"
            ))
        };
        let plain = format!("writing zeros, sleep, sleep, sleep, {work}, GETFSMAP");
        assert_eq!(names("off"), (aged("nodiscard"), plain.clone(), None));
        assert_eq!(names("commit"), (aged("discard"), plain, None));
        let hours = |hours: u64| hours * 3_600_000_000_000;
        let batch =
            format!("writing zeros, FITRIM, sleep, sleep, sleep, FITRIM at intervals, {work}, GETFSMAP");
        // From noon to Monday's midnight.
        assert_eq!(names("batch:1w"), (aged("nodiscard"), batch, Some((hours(156), hours(168)))));
        let daemon = format!(
            "writing zeros, FITRIM, sleep, trimwised, sleep, sleep, {work}, /proc/self/exe, trimwised, GETFSMAP"
        );
        assert_eq!(names("trimwised"), (aged("nodiscard"), daemon, None));
    }

    #[test]
    fn only_whole_units_that_hold_data_are_stale() {
        let mut disk = new_disk(&Profile::embedded("sata-small").unwrap(), 1, false).unwrap();
        let ones = SparseStore::in_memory(Bytes::mib(1)).unwrap();
        ones.write(0, &[1; 8 * UNIT_BYTES as usize]).unwrap();
        assert_eq!(stale_units(disk.into_parts().0.drive().ssd(), &[(0, 1 << 20)]), 0);
        disk = disk_over(ones, &Profile::embedded("sata-small").unwrap(), 1, false).unwrap();
        let free = [(100, 2 * UNIT_BYTES), (4 * UNIT_BYTES, 8 * UNIT_BYTES)];
        assert_eq!(stale_units(disk.into_parts().0.drive().ssd(), &free), 1 + 4);
    }

    #[test]
    fn discard_is_the_policy_s_affair() {
        let check = |text: &str| KernelPolicy::check_options(&text.parse().unwrap());
        for text in ["6.1:ext4:noatime,discard", "6.1:btrfs:discard=async", "6.1:f2fs:nodiscard"] {
            assert!(check(text).unwrap_err().to_string().contains("--policy"), "{text}");
        }
        assert_eq!(check("6.1:f2fs:discard_unit=block"), Ok(()));
    }
}
