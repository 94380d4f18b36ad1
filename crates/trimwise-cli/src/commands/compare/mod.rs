//! `trimwise compare`: runs each device, policy and repetition in parallel and evaluates the results.

pub mod arguments;
mod charts;
pub(in crate::commands) mod check;
pub(in crate::commands) mod here;
mod on_directory;
mod on_kernel;
pub(crate) mod on_model;
pub(in crate::commands) mod report;
pub(in crate::commands) mod room;
pub(crate) mod table;
#[cfg(test)]
pub mod tests;
pub(in crate::commands) mod workload;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use trimwise::compare::ledger::compare_with_off;
use trimwise::compare::result::{Cell, Measure, Target, Verdict};
use trimwise::compare::summary::{Summary, SummaryRow};
use trimwise::compare::verdict;
use trimwise::policy::PolicyId;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::RealKernel;
use trimwise_lab::pool;

use crate::commands::compare::arguments::CompareArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;

/// What was asked for, as the JSON and the report show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The workload, as given.
    pub workload: String,
    /// Where it ran.
    pub target: Target,
    /// How full the modelled device was made before the run; `None` on a real directory, and of a new file system.
    pub utilization_percent: Option<u8>,
    /// How the modelled host's Linux carries out discard; `None` elsewhere.
    pub linux: Option<Linux>,
    /// Memory of the modelled host that its page cache may fill, or of the guest; `None` on a real directory.
    pub host_memory_bytes: Option<u64>,
    /// Which kernel ran; `None` if none did.
    pub kernel: Option<RealKernel>,
    /// Where a real directory lies; `None` elsewhere.
    pub mount: Option<Mounted>,
    /// Repetitions.
    pub reps: u32,
    /// Over how many days the workload is spread; `None` if it runs without a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// How it is spread over the hours of a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// What policies are judged by: `total`, or a latency such as `p99:fsync`.
    pub judge: String,
    /// What the other policies are compared with.
    pub baseline: PolicyId,
    /// The command that repeats this.
    pub command: String,
}

/// The modelled host's Linux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linux {
    /// The version, as given.
    pub version: String,
    /// The kernels that carry out discard in the same way, which it stands for.
    pub stands_for: Cow<'static, str>,
}

/// Where a real directory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where its file system is mounted; `None` if the system does not say.
    pub point: Option<String>,
    /// `ext4`, `btrfs`...
    pub file_system: Option<String>,
    /// How it uses TRIM, in a word for the table's policy column.
    pub policy: String,
}

/// A comparison, as `--json` writes it; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The version of trimwise.
    pub trimwise: Cow<'static, str>,
    /// The seed.
    pub seed: u64,
    /// What was asked for.
    pub settings: Settings,
    /// Whether runs are missing, because one failed or the user stopped them.
    pub partial: bool,
    /// Each run.
    pub cells: Vec<Cell>,
    /// A row for each policy on each device: what the tables show.
    #[serde(skip_deserializing)] // follows from the cells
    pub summary: Vec<SummaryRow>,
    /// Which policy to use.
    pub verdict: Verdict,
    /// The same on a real kernel; `None` if that was not requested.
    pub check: Option<check::Check>,
    /// What `--here` found, and what stands in for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<here::Here>,
    /// Why runs are missing.
    #[serde(skip)]
    pub ended_by: Option<Failure>,
}

impl Comparison {
    /// What was read, with what follows from the rest and is not read.
    ///
    /// # Errors
    ///
    /// Why the runs cannot be judged as the settings say.
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
type Ran = (Vec<Cell>, Option<Failure>);

const NO_FILL: &str = "--fill is for --target dir:PATH; other targets fill nothing real";

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run(
    arguments: &CompareArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let refused = |what: String| Failure::usage(format!("--target {}: {what}", arguments.target));
    let target: Target = arguments.target.parse().map_err(refused)?;
    if arguments.check.is_some() && !matches!(target, Target::Model) {
        return Err(Failure::usage(format!(
            "--check does not go with --target {}: it checks the model; expected --target model",
            arguments.target
        )));
    }
    if arguments.here.is_some() && !matches!(target, Target::Model) {
        return Err(Failure::usage(format!(
            "--here does not go with --target {}: it sets up the model; expected --target model",
            arguments.target
        )));
    }
    if arguments.days.is_some() && !matches!(target, Target::Model) {
        return Err(Failure::usage(format!(
            "--days does not go with --target {}: only the model skips idle time; expected --target model",
            arguments.target
        )));
    }
    let destinations = Destinations::check(&arguments.output)?;
    let comparison = match target {
        Target::Model => on_model::run(arguments, on_signal)?,
        Target::Kernel(text) => {
            let target = text.parse().map_err(refused)?;
            on_kernel::run(arguments, &target, || on_signal(OnInterrupt::Stop))?
        }
        Target::Directory(path) => {
            on_directory::run(arguments, Path::new(&path), || on_signal(OnInterrupt::Stop))?
        }
    };
    deliver(arguments, &destinations, comparison)
}

fn deliver(
    arguments: &CompareArguments,
    destinations: &Destinations,
    comparison: Comparison,
) -> Result<String, Failure> {
    let text = || {
        let mut text = comparison.here.as_ref().map_or_else(String::new, here::Here::text);
        if arguments.postmark {
            for cell in &comparison.cells {
                text += &format!("{}, {}, repetition {}\n", cell.device, cell.policy, cell.rep + 1);
                text += &format!("{}\n", cell.postmark_report);
            }
        }
        text + &table::render(&comparison)
    };
    let text = destinations.deliver_with_report(&comparison, || report::html(&comparison), text)?;
    match comparison.ended_by {
        None => Ok(text),
        // Report finished runs even if others are missing.
        Some(failure) => output::print(&text).and(Err(failure)),
    }
}

/// Every policy on every device, as often as requested.
struct Grid<'a, P> {
    devices: &'a [(String, Profile)],
    policies: &'a [P],
    reps: u32,
}

impl<P: Copy + Sync> Grid<'_, P> {
    fn pairs(&self) -> impl Iterator<Item = (&Profile, P)> {
        let devices = self.devices.iter().map(|(_, device)| device);
        devices.flat_map(|device| self.policies.iter().map(move |policy| (device, *policy)))
    }

    /// Runs its cells device by device, policy by policy, repetition by repetition, as many at a time as fit if each
    /// takes this much memory.
    fn run(
        &self,
        jobs: Option<u16>,
        memory: impl Fn(&Profile) -> Bytes,
        run: impl Fn(&Arc<Progress>, usize, (&Profile, P), u32) -> Result<Cell, Failure> + Sync,
    ) -> Ran {
        let pairs: Vec<(&Profile, P)> = self.pairs().collect();
        let count = pairs.len() * self.reps as usize;
        let largest = || self.devices.iter().map(|(_, device)| memory(device)).max().unwrap_or_default();
        let jobs = jobs.map_or_else(|| pool::default_jobs(largest()), usize::from);
        let progress = Progress::new(count);
        let ran = pool::run_finished(jobs, count, |index| {
            let (pair, rep) = (index / self.reps as usize, index % self.reps as usize);
            run(&progress, index, pairs[pair], rep as u32).inspect(|_| progress.done(index))
        });
        progress.finish();
        ran
    }
}

/// Returns what was given, or else the default.
fn or<const N: usize>(given: &[String], default: [&str; N]) -> Vec<String> {
    if given.is_empty() { default.map(str::to_owned).to_vec() } else { given.to_vec() }
}

impl Settings {
    /// What `arguments` ask for everywhere; `command` has further options that repeat the run.
    fn of(arguments: &CompareArguments, command: impl FnOnce(&mut CommandText)) -> Self {
        let mut text = CommandText::new("compare");
        text.option("--workload", &arguments.workload);
        if arguments.target != "model" {
            text.option("--target", &arguments.target);
        }
        arguments.here.iter().for_each(|path| text.option("--here", path.display()));
        if arguments.full_size {
            text.argument("--full-size");
        }
        command(&mut text);
        arguments.judge.iter().for_each(|judge| text.option("--judge", judge));
        Self {
            workload: arguments.workload.clone(),
            target: Target::Model,
            utilization_percent: None,
            linux: None,
            host_memory_bytes: None,
            kernel: None,
            mount: None,
            reps: arguments.reps,
            days: None,
            day: None,
            judge: String::new(),
            baseline: PolicyId::OFF,
            command: text.into_text(),
        }
    }
}

/// Has the runs judged by what `--judge` says.
pub(in crate::commands) fn judge(arguments: &CompareArguments, cells: &mut [Cell]) -> Result<(), Failure> {
    let Some(measure) = arguments.judge else { return Ok(()) };
    let judged = cells.iter_mut().try_for_each(|cell| cell.judge_by(measure));
    judged.map_err(|e| Failure::usage(format!("--judge {measure}: {e}")))
}

fn finish(
    arguments: &CompareArguments,
    settings: Settings,
    (mut cells, ended_by): Ran,
) -> Result<Comparison, Failure> {
    if let (true, Some(failure)) = (cells.is_empty(), &ended_by) {
        return Err(failure.clone());
    }
    judge(arguments, &mut cells)?;
    compare_with_off(&mut cells);
    let summary = Summary::of(&cells);
    let rows = summary.rows();
    let (baseline, measure) = (summary.baseline.clone(), summary.measure);
    let verdict = verdict::of_summary(&summary).ok_or_else(|| Failure::run("no run gave a result"))?;
    Ok(Comparison {
        trimwise: trimwise::VERSION.into(),
        seed: arguments.seed.unwrap_or(defaults::SEED),
        settings: Settings { baseline, judge: measure.to_string(), ..settings },
        partial: ended_by.is_some(),
        cells,
        summary: rows,
        verdict,
        check: None,
        here: None,
        ended_by,
    })
}
