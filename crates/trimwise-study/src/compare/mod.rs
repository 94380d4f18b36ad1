//! `compare`: runs each policy on each device as often as requested, and judges the runs.

pub mod check;
pub mod file_system;
pub mod here;
mod on_directory;
pub mod on_model;
pub mod plan;
pub mod ranges;
pub mod room;
mod scale;
pub mod target;
pub mod workload;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trimwise::compare::judge::Judgement;
use trimwise::compare::ledger::compare_with_off;
use trimwise::compare::result::{Cell, Measure, Target, Verdict};
use trimwise::compare::sensitivity::AtEnds;
use trimwise::compare::summary::{Summary, SummaryRow};
use trimwise::compare::verdict;
use trimwise::failure::{Failure, Mistake, Mistakes, key, set};
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, Utilization};
use trimwise::words;
use trimwise::workload::days::{DAYS_MAX, DayShape};
use trimwise_linux::file_system::FileSystem;
use trimwise_linux::kernel_target::KernelTarget;
use trimwise_linux::pool;
use trimwise_linux::real_kernel::RealKernel;

use crate::as_text;
use crate::caller::{Caller, Progress};
use crate::check::{JOBS, REPS, within};
use crate::command_text::CommandText;
use crate::conclusion::depends::explained;
use crate::conclusion::{self, Conclusion};
use crate::defaults;
use crate::given::Given;
use crate::guest_limits::GuestLimits;
use crate::laboratory::Laboratory;
use here::StandIn;
use target::{Checking, RunOn};
use workload::Workload;

/// Names of devices, policies and workloads are resolved when a plan is made of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompareRequest {
    /// A PostMark file or a built-in name, an application, a fio job, a benchmark, a trace, or a program. Empty: the
    /// usual one of the target ([`Self::workload`]).
    pub workload: String,
    /// Profiles by name or file. Empty: the default, or the one for `here`.
    pub devices: Vec<String>,
    /// A directory on the host to model: its drive, kernel, memory and fullness.
    pub here: Option<PathBuf>,
    /// Whether to model the whole drive of `here` with all of its work, however large.
    pub full_size: bool,
    /// Empty: the default policies of the target.
    pub policies: Vec<Given<PolicyId>>,
    pub target: Given<RunOn>,
    /// The file system: the model's ext4, or another one on the closest kernel that is built. `None`: that of `here`,
    /// or the target's.
    pub fs: Option<FileSystem>,
    /// A real kernel that checks the model: `kernel:VERSION:ext4[:MOUNT_OPTIONS]`.
    pub check: Option<Given<Checking>>,
    /// Whether a workload may fill the file system of a real directory.
    pub fill: bool,
    pub utilization: Option<Given<Utilization>>,
    pub linux: Option<String>,
    pub memory: Option<u64>,
    /// The objective of policies; `None`: the workload's own.
    pub judge: Option<Measure>,
    /// Whether PostMark's own report is wanted, so that the workload must be PostMark.
    pub postmark: bool,
    pub reps: u32,
    /// Approximate limit for an advice on a kernel; `None`: 15.
    pub budget_min: Option<u32>,
    /// Seed of everything drawn at random in the model.
    pub seed: Option<u64>,
    /// Days over which the workload is spread; 0: it runs without a pause. `None`: 0, but a week if nobody named a
    /// workload, or with `here`, and the workload can be spread.
    pub days: Option<u32>,
    /// How the work is spread over the hours of each day.
    #[serde(with = "as_text::option")]
    pub day: Option<DayShape>,
    pub limits: GuestLimits,
    /// Runs in parallel. The number does not change the result.
    pub jobs: Option<u16>,
}

impl Default for CompareRequest {
    fn default() -> Self {
        Self {
            workload: String::new(),
            devices: Vec::new(),
            here: None,
            full_size: false,
            policies: Vec::new(),
            target: Given::of(RunOn::Model),
            fs: None,
            check: None,
            fill: false,
            utilization: None,
            linux: None,
            memory: None,
            judge: None,
            postmark: false,
            reps: defaults::REPS,
            budget_min: None,
            seed: None,
            days: None,
            day: None,
            limits: GuestLimits::default(),
            jobs: None,
        }
    }
}

impl CompareRequest {
    /// The workload that was asked for, or the usual one of the target.
    pub fn workload(&self) -> &str {
        match &*self.workload {
            "" if self.here.is_some() => defaults::WORKLOAD_HERE,
            "" if self.is_usual() => defaults::WORKLOAD,
            "" => defaults::WORKLOAD_AT_ONCE,
            given => given,
        }
    }

    /// Whether the usual work of the model is asked for, spread over days.
    pub(super) fn is_usual(&self) -> bool {
        let is_model = matches!(self.target.value(), Ok(RunOn::Model))
            && self.fs.is_none_or(|fs| fs == FileSystem::Ext4);
        self.workload.is_empty() && is_model && self.check.is_none() && !self.postmark
    }

    /// Rejects numbers that are out of range, and a shape of days without days. The failure names the fields.
    pub fn check(&self) -> Result<(), Failure> {
        let day = match (&self.day, self.days) {
            (Some(day), days)
                if self.here.is_none() && (days == Some(0) || days.is_none() && !self.is_usual()) =>
            {
                Err(Mistake::of("day", day).expected(words![key("days"), " with it"]).fail())
            }
            _ => Ok(()),
        };
        Mistakes::of([
            within("reps", self.reps, &REPS),
            self.utilization().map(drop),
            within("memory", self.memory, &defaults::MEMORIES_MIB),
            within("budget_min", self.budget_min, &defaults::BUDGETS_MIN),
            within("days", self.days, &(0..=DAYS_MAX)),
            within("jobs", self.jobs, &JOBS),
            self.limits.check(),
            self.target().map(drop),
            self.checking().map(drop),
            day,
        ])
    }

    pub fn target(&self) -> Result<&RunOn, Failure> {
        self.target.get("target")
    }

    /// The kernel that checks the model.
    pub fn checking(&self) -> Result<Option<&KernelTarget>, Failure> {
        let checking = self.check.as_ref().map(|given| given.get("check")).transpose()?;
        Ok(checking.map(|Checking(target)| target))
    }

    /// Whether it names another place than the model.
    pub fn is_elsewhere(&self) -> bool {
        !matches!(self.target.value(), Ok(RunOn::Model))
    }

    pub fn utilization(&self) -> Result<Option<Utilization>, Failure> {
        self.utilization.as_ref().map(|given| given.get("utilization").copied()).transpose()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// As given.
    pub workload: String,
    pub target: Target,
    /// The name of the file system that ran, as for mount(8); the model is `ext4`. `None` in results of older versions,
    /// and on a real directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<Cow<'static, str>>,
    /// Fullness of the modelled device before the run; `None` on a real directory, and for a new file system.
    #[serde(rename = "utilization_percent")]
    pub utilization: Option<Utilization>,
    /// How the modelled Linux carries out discard; `None` elsewhere.
    pub linux: Option<Linux>,
    /// Memory of the modelled host that its page cache may fill, or of the guest; `None` on a real directory.
    pub host_memory_bytes: Option<u64>,
    /// `None` if no kernel ran.
    pub kernel: Option<RealKernel>,
    /// Location of a real directory; `None` elsewhere.
    pub mount: Option<Mounted>,
    pub reps: u32,
    /// `None` if the workload runs without a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// How the work is spread over the hours of a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// The objective: `total`, or a latency such as `p99:fsync`.
    pub judge: String,
    /// The policy that the others are compared with.
    pub baseline: PolicyId,
    pub command: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linux {
    pub version: String,
    /// Kernels that carry out discard like this version.
    pub stands_for: Cow<'static, str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// `None` if the system does not tell.
    pub point: Option<String>,
    /// `ext4`, `btrfs`...
    pub file_system: Option<String>,
    /// How the mount uses TRIM, in a word for the table's policy column.
    pub policy: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub trimwise: Cow<'static, str>,
    pub seed: u64,
    pub settings: Settings,
    /// Whether runs are missing, because one failed or the user stopped them.
    pub partial: bool,
    pub cells: Vec<Cell>,
    /// A row for each policy on each device, as in the tables.
    #[serde(skip_deserializing)] // follows from the cells
    pub summary: Vec<SummaryRow>,
    pub verdict: Verdict,
    /// `None` in results of older versions.
    pub conclusion: Option<Conclusion>,
    /// How policies ran at the ends of the ranges of each drive; a drive is missing if that was not tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_ends: Vec<AtEnds>,
    /// Results on a real kernel; `None` if they were not requested.
    pub check: Option<check::Check>,
    /// The findings of `--here`, and what stands in for the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<here::Here>,
    /// Why runs are missing.
    #[serde(skip)]
    pub ended_by: Option<Failure>,
}

impl Comparison {
    /// Draws the conclusion from the runs, and has the verdict explain it.
    pub fn conclude(&mut self) {
        let conclusion = conclusion::of(self);
        let summary = Summary::of(&self.cells);
        let judged = conclusion::judged(self, &summary);
        let ranges: Vec<Option<String>> =
            judged.iter().map(|(_, hangs)| hangs.as_ref().map(explained)).collect();
        let judged: Vec<Judgement> = judged.into_iter().map(|(judged, _)| judged).collect();
        if let Some(mut verdict) = verdict::verdict(&summary, &judged) {
            for (device, text) in
                verdict.per_device.iter_mut().zip(ranges).filter_map(|(d, text)| Some((d, text?)))
            {
                device.why = [&*device.why, &text].join(" ").trim_start().to_owned();
            }
            if let [device] = &verdict.per_device[..] {
                verdict.why.clone_from(&device.why);
            }
            self.verdict = verdict;
        }
        self.conclusion = Some(conclusion);
    }

    /// Adds the actions of the conclusion's steps, which no document has.
    pub fn complete_steps(&mut self) {
        if let (Some(here), Some(conclusion)) = (&self.here, &mut self.conclusion) {
            conclusion.complete_steps(here);
        }
    }

    /// Restores the parts of an answer read from JSON that follow from the rest.
    ///
    /// # Errors
    ///
    /// If the runs cannot be judged as the settings say.
    pub fn restored(mut self) -> Result<Self, String> {
        let checked = self.check.iter_mut().flat_map(|check| &mut check.cells);
        if let Ok(measure @ Measure::Latency(..)) = self.settings.judge.parse() {
            self.cells.iter_mut().chain(checked).try_for_each(|cell| cell.judge_by(measure))?;
        }
        self.summary = Summary::of(&self.cells).rows();
        if let Some(check) = &mut self.check {
            check.summary = check.summarised(&self.settings.baseline).rows();
        }
        Ok(self)
    }
}

/// The finished runs, and why there are no more.
pub type Ran = (Vec<Cell>, Option<Failure>);

/// The error for a target that cannot be filled.
pub fn no_fill() -> Failure {
    let why = words!["is for ", set("target", "dir:PATH"), "; other targets fill nothing real"];
    Mistake::on("fill").that_is(why).fail()
}

/// Runs a comparison. Anything that needs a kernel runs in the laboratory.
///
/// # Errors
///
/// If the request is wrong, or no run has a result. If some have, [`Comparison::ended_by`] says why others are missing.
pub fn run(
    request: &CompareRequest,
    caller: &dyn Caller,
    laboratory: &dyn Laboratory,
) -> Result<Comparison, Failure> {
    request.check()?;
    let target = request.target()?;
    let is_real = matches!(target, RunOn::Directory(_));
    let unfit = [
        ("check", request.check.is_some(), "it checks the model"),
        ("fs", request.fs.is_some(), "the target has its file system"),
        ("here", is_real && request.here.is_some(), "it sets up the model or a kernel"),
        ("days", is_real && request.days.is_some_and(|days| days > 0), "only virtual time skips idle time"),
    ];
    if request.is_elsewhere() {
        let unfit = unfit.into_iter().filter(|(_, is_given, _)| *is_given);
        Mistakes::of(unfit.map(|(field, _, why)| {
            let why = words!["cannot be used with ", set("target", &request.target), ": ", why];
            Err(Mistake::on(field).that_is(why).expected(set("target", "model")).fail())
        }))?;
    }
    if let RunOn::Directory(path) = target {
        return on_directory::run(request, path, caller);
    }
    let workload = Workload::of(request)?;
    let mut found = StandIn::of(request, &workload)?;
    let is_kernel = matches!(target, RunOn::Kernel(_));
    if is_kernel || file_system::needs_laboratory(request, found.as_mut(), (caller, laboratory)) {
        if request.check.is_some() {
            // No kernel is needed for requests that the model rejects.
            on_model::Plan::of(request)?;
        }
        let mut comparison = laboratory.compare(request, caller)?;
        if let (Some(found), Some(here)) = (found, &mut comparison.here) {
            here.found_again(found);
        }
        comparison.complete_steps();
        return Ok(comparison);
    }
    let request = file_system::on_model(request, found.as_ref());
    on_model::run(&request, on_model::Plan::on(&request, workload, found)?, caller)
}

/// Every policy on every device, as often as requested.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a, P> {
    pub devices: &'a [(String, Profile)],
    pub policies: &'a [P],
    pub reps: u32,
}

impl<P: Copy + Sync> Grid<'_, P> {
    pub fn pairs(&self) -> impl Iterator<Item = (&Profile, P)> {
        let devices = self.devices.iter().map(|(_, device)| device);
        devices.flat_map(|device| self.policies.iter().map(move |policy| (device, *policy)))
    }

    /// Number of cells to run in parallel: the requested number, or as many as fit if each takes this much memory.
    pub fn jobs(&self, jobs: Option<u16>, memory: impl Fn(&Profile) -> Bytes) -> usize {
        let largest = || self.devices.iter().map(|(_, device)| memory(device)).max().unwrap_or_default();
        jobs.map_or_else(|| pool::default_jobs(largest()), usize::from)
    }

    /// Runs the cells by device, policy and repetition, in this order, as many in parallel as fit if each takes this
    /// much memory. Those that are known by their number do not run.
    fn run(
        &self,
        caller: &dyn Caller,
        jobs: Option<u16>,
        memory: impl Fn(&Profile) -> Bytes,
        known: Vec<(usize, Cell)>,
        run: impl Fn(&Arc<dyn Progress>, usize, (&Profile, P), u32) -> Result<Cell, Failure> + Sync,
    ) -> Ran {
        let pairs: Vec<(&Profile, P)> = self.pairs().collect();
        let count = pairs.len() * self.reps as usize;
        let jobs = self.jobs(jobs, memory);
        let left: Vec<usize> = (0..count).filter(|index| known.iter().all(|(of, _)| of != index)).collect();
        let progress = caller.progress(left.len(), "runs");
        let (ran, failure) = pool::run_finished(jobs, left.len(), |number| {
            let index = left[number];
            let (pair, rep) = (index / self.reps as usize, index % self.reps as usize);
            let cell = run(&progress, number, pairs[pair], rep as u32)?;
            progress.done(number);
            Ok((index, cell))
        });
        progress.finish();
        let mut cells = known;
        cells.extend(ran);
        cells.sort_by_key(|(index, _)| *index);
        (cells.into_iter().map(|(_, cell)| cell).collect(), failure)
    }
}

/// Returns the given values, or the default if there are none.
pub fn or<T: Clone + From<&'static str>, const N: usize>(given: &[T], default: [&'static str; N]) -> Vec<T> {
    if given.is_empty() { default.map(T::from).into() } else { given.to_vec() }
}

impl Settings {
    /// The settings that all targets share. `command` adds the target's options to the command that repeats the run.
    pub fn of(request: &CompareRequest, command: impl FnOnce(&mut CommandText)) -> Self {
        let mut text = CommandText::new("compare");
        text.option("--workload", request.workload());
        if request.is_elsewhere() {
            text.option("--target", &request.target);
        }
        request.here.iter().for_each(|path| text.option("--here", path.display()));
        if request.full_size {
            text.argument("--full-size");
        }
        if request.here.is_some() {
            request.fs.iter().for_each(|fs| text.option("--fs", fs.name()));
        }
        command(&mut text);
        request.judge.iter().for_each(|judge| text.option("--judge", judge));
        Self {
            workload: request.workload().to_owned(),
            target: Target::Model,
            file_system: None,
            utilization: None,
            linux: None,
            host_memory_bytes: None,
            kernel: None,
            mount: None,
            reps: request.reps,
            days: None,
            day: None,
            judge: String::new(),
            baseline: PolicyId::OFF,
            command: text.into_text(),
        }
    }
}

/// Sets the objective of `--judge`.
///
/// # Errors
///
/// If the runs cannot be judged by it.
pub fn judge(request: &CompareRequest, cells: &mut [Cell]) -> Result<(), Failure> {
    let Some(measure) = request.judge else { return Ok(()) };
    let judged = cells.iter_mut().try_for_each(|cell| cell.judge_by(measure));
    judged.map_err(|e| Mistake::of("judge", measure).because(e).fail())
}

/// Judges the finished runs of a request.
///
/// # Errors
///
/// If there are none, or they cannot be judged as requested.
pub fn finish(
    request: &CompareRequest,
    settings: Settings,
    here: Option<here::Here>,
    (mut cells, ended_by): Ran,
) -> Result<Comparison, Failure> {
    if let (true, Some(failure)) = (cells.is_empty(), &ended_by) {
        return Err(failure.clone());
    }
    judge(request, &mut cells)?;
    compare_with_off(&mut cells);
    let summary = Summary::of(&cells);
    let rows = summary.rows();
    let (baseline, measure) = (summary.baseline.clone(), summary.measure);
    if summary.devices.is_empty() {
        return Err(Failure::run("no run gave a result"));
    }
    let mut comparison = Comparison {
        trimwise: trimwise::VERSION.into(),
        seed: request.seed.unwrap_or(defaults::SEED),
        settings: Settings { baseline, judge: measure.to_string(), ..settings },
        partial: ended_by.is_some(),
        cells,
        summary: rows,
        verdict: Verdict::default(),
        conclusion: None,
        at_ends: Vec::new(),
        check: None,
        here,
        ended_by,
    };
    comparison.conclude();
    Ok(comparison)
}
