//! Repeats published experiments.

use std::path::PathBuf;
use std::sync::Arc;

use crate::experiment::result::ExperimentResult;
use crate::experiment::verdicts::{self, explain::Explained};
use crate::experiment::{ALL, Experiment, On, Request};
use crate::guests::{self, Bounds};
use crate::requests::limits;
use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake, Mistakes, key, set};
use trimwise::spelling::Accepted;
use trimwise::words;
use trimwise_linux::kept::Kept;

use trimwise_study::caller::{self, Caller, OnInterrupt};
use trimwise_study::check::{JOBS, REPS, within};
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;
use trimwise_study::guest_limits::GuestLimits;
use trimwise_study::place::check_directory;

/// A request to repeat experiments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReproduceRequest {
    /// The experiment; `None` means all of them.
    pub name: Option<String>,
    /// Where to run it: `model`, `kernel` or `kernel:VERSION:FS[:MOUNT_OPTIONS]`.
    pub on: String,
    /// The parts of the experiment to repeat; empty means all.
    pub only: Vec<String>,
    /// Whether to run in full what is otherwise only sampled on a kernel.
    pub full: bool,
    /// The folder in which a long experiment keeps finished cells, so that it can be continued.
    pub out: Option<PathBuf>,
    /// Repetitions of each cell; `None` means as many as in the source.
    pub reps: Option<u32>,
    /// Time limits of a guest.
    pub limits: GuestLimits,
    /// Runs at a time, without effect on the result.
    pub jobs: Option<u16>,
}

const MODEL: &str = "model";

impl Default for ReproduceRequest {
    fn default() -> Self {
        Self {
            name: None,
            on: MODEL.to_owned(),
            only: Vec::new(),
            full: false,
            out: None,
            reps: None,
            limits: GuestLimits::default(),
            jobs: None,
        }
    }
}

/// The result of one experiment, as `--json` writes it.
#[derive(Clone, Debug, Serialize)]
pub struct Made {
    /// The result.
    #[serde(flatten)]
    pub result: ExperimentResult,
    /// SHA-256 of the program that was the guests' init and ran their workloads; `None` if no kernel booted.
    pub guest_program: Option<String>,
}

/// The results of the experiments that ran.
#[derive(Debug)]
pub struct Reproduced {
    /// Results; at least one.
    pub made: Vec<Made>,
    /// Why others are missing.
    pub ended_by: Option<Failure>,
}

/// Repeats published experiments. Fails if the request is wrong or no experiment has a result.
pub fn run(request: &ReproduceRequest, caller: &dyn Caller) -> Result<Reproduced, Failure> {
    run_of(&ALL, request, caller)
}

/// Repeats the experiment that a request names; without a name, returns only the first result.
pub fn run_one(request: &ReproduceRequest, caller: &dyn Caller) -> Result<Made, Failure> {
    let made = run(request, caller)?.made.into_iter().next();
    made.ok_or_else(|| Failure::run("no experiment ran"))
}

/// Repeats experiments out of `all`.
pub fn run_of(
    all: &[&'static Experiment],
    request: &ReproduceRequest,
    caller: &dyn Caller,
) -> Result<Reproduced, Failure> {
    Mistakes::of([within("reps", request.reps, &REPS), within("jobs", request.jobs, &JOBS)])?;
    request.limits.check()?;
    let on = host(&request.on)?;
    let mut experiments = match &request.name {
        None => all.to_vec(),
        Some(name) => vec![*all.iter().find(|e| e.name == name).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|e| e.name).collect();
            Mistake::that(format!("unknown experiment '{name}'"))
                .expected(Accepted::one_of(name, &known))
                .fail()
        })?],
    };
    let is_long = experiments.iter().all(|e| e.is_long());
    if request.full && on == On::Usual && !is_long {
        let of = Mistake::on("full").because("only runs on a real kernel are sampled");
        return Err(of.expected(words![set("on", "kernel"), " with it"]).fail());
    }
    let kept = match &request.out {
        Some(_) if !is_long => {
            let able: Vec<&str> = all.iter().filter(|e| e.is_long()).map(|e| e.name).collect();
            let of = Mistake::on("out").because("only long experiments keep finished cells");
            return Err(of.expected(format!("{} with it", able.join(" or "))).fail());
        }
        Some(folder) => {
            check_directory("out", folder)?;
            Some(Kept::open(folder)?)
        }
        None => None,
    };
    let boots = |experiment: &Experiment| on != On::Usual || experiment.boots();
    let any_boots = experiments.iter().any(|e| boots(e));
    if !any_boots && request.limits.are_given() {
        let expected = words!["an experiment that boots kernels, or ", set("on", "kernel")];
        return Err(GuestLimits::only_for_guests(expected));
    }
    let guest_program = any_boots.then(guests::program_hash).transpose()?;
    let on_interrupt = if any_boots { OnInterrupt::StopAfterRun } else { OnInterrupt::Exit };
    let mut refused = Ok(());
    let mut targets = Vec::new();
    experiments.retain(|experiment| {
        let target = experiment.target(&on);
        let checked = target.and_then(|target| {
            experiment.check(&request.only, target.as_ref())?;
            Ok(target)
        });
        match checked {
            Ok(target) => targets.push(target),
            // When all experiments are requested, skip those that cannot run here.
            Err(failure) if request.name.is_none() => {
                caller.note(&format!("{} is skipped: {failure}", experiment.name));
                return false;
            }
            Err(failure) => refused = Err(failure),
        }
        refused.is_ok()
    });
    refused?;
    if experiments.is_empty() {
        let why = words![key("all"), " ", set("on", &request.on)];
        return Err(
            Mistake::that(words![why, ": no experiment can run there; the notes above say why"]).fail()
        );
    }
    let stop = caller.stop(on_interrupt)?;
    let progress = caller.progress(experiments.len(), "runs");
    // One experiment at a time, because each spreads its own cells over the jobs.
    let mut ended_by = None;
    let mut made = Vec::new();
    for (i, (experiment, target)) in experiments.iter().zip(targets).enumerate() {
        // Runs in a guest differ only in the phase of the commit timer, so a single one is enough.
        let reps = if target.is_some() { 1 } else { experiment.reps };
        let ran = (experiment.run)(&Request {
            reps: request.reps.unwrap_or(reps),
            seed: defaults::SEED,
            jobs: request.jobs.map(usize::from),
            only: request.only.clone(),
            full: request.full,
            kept: kept.clone(),
            target,
            bounds: Bounds { limits: limits(&request.limits), stop: Arc::clone(&stop) },
            report: caller::report(&progress, i),
        });
        match ran {
            Ok(mut result) => {
                result.command = request.command(Some(&result));
                let guest_program = guest_program.clone().filter(|_| boots(experiment));
                made.push(Made { result, guest_program });
            }
            Err(failure) => {
                ended_by = Some(failure);
                break;
            }
        }
        progress.done(i);
    }
    progress.finish();
    match ended_by {
        Some(failure) if made.is_empty() => Err(failure),
        ended_by => Ok(Reproduced { made, ended_by }),
    }
}

/// Runs one cell of `verdicts-ext4` in the model and on the kernel, and finds the first difference.
pub fn explain(
    request: &ReproduceRequest,
    cell: &[String],
    caller: &dyn Caller,
) -> Result<Explained, Failure> {
    if request.name.as_deref() != Some("verdicts-ext4") {
        let of = Mistake::on("explain").because("only the cells of verdicts-ext4 run on both sides");
        return Err(of.expected("reproduce verdicts-ext4 with it").fail());
    }
    request.limits.check()?;
    let chosen = verdicts::explain::choose(cell)?;
    let stop = caller.stop(OnInterrupt::StopAfterRun)?;
    chosen.run(defaults::SEED, &Bounds { limits: limits(&request.limits), stop })
}

/// Parses where to run.
fn host(text: &str) -> Result<On, Failure> {
    let of = Mistake::of("on", text);
    match text.split_once(':') {
        None if text == MODEL => Ok(On::Usual),
        None if text == "kernel" => Ok(On::Kernel),
        Some(("kernel", target)) => {
            target.parse().map(On::This).map_err(|why: String| of.because(why).fail())
        }
        _ => {
            let expected = "`model`, `kernel` or `kernel:VERSION:FS[:MOUNT_OPTIONS]`; an experiment sets up its own host";
            Err(of.expected(expected).fail())
        }
    }
}

impl ReproduceRequest {
    /// Returns the command that repeats one result, or everything that was requested.
    pub fn command(&self, result: Option<&ExperimentResult>) -> String {
        let mut command = CommandText::new("reproduce");
        match result.map(|r| &r.experiment).or(self.name.as_ref()) {
            Some(name) => command.argument(name),
            None => command.argument("--all"),
        }
        if self.on != MODEL {
            command.option("--on", &self.on);
        }
        if self.full {
            command.argument("--full");
        }
        self.only.iter().for_each(|part| command.option("--only", part));
        if let Some(folder) = &self.out {
            command.option("--out", folder.display());
        }
        if let Some(reps) = self.reps {
            command.option("--reps", reps);
        }
        command.into_text()
    }
}
