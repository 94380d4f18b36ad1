//! The published experiments, one line each, and how their runs are spread over threads.

use std::sync::atomic::{AtomicU64, Ordering};

use trimwise::compare::cell::CellError;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise::workload::week::Week;
use trimwise_lab::experiment::postmark_vendors::Column;
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_lab::experiment::set::{self, Setting, one_a, one_b};
use trimwise_lab::experiment::{
    capacity, daemon_week, kernels, lazy, model_ext4, postmark_vendors, sandforce, settling, verdicts,
};
use trimwise_uml::cell::{KernelCell, KernelPolicy, KernelTarget, KernelWorkload};

use super::Report;
use super::guests::{self, Bounds};
use super::linked::memory_of_run;
use crate::failure::Failure;
use crate::pool;

/// Rejects parts of an experiment, and kernels for it, that this computer cannot run, before anything runs.
pub type Check = fn(&[String], Option<&KernelTarget>) -> Result<(), Failure>;

/// A published experiment that can be repeated.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    /// Default repetitions: as many as in the source.
    pub reps: u32,
    /// Runs it.
    pub run: Run,
    /// For experiments with parts to choose from: checks whether this computer can run these parts on that kernel.
    pub check: Option<Check>,
    /// Whether it boots kernels by itself.
    pub boots: bool,
    /// For experiments whose workload and policies a real kernel has too, or that run on any kernel: runs them there.
    pub on_kernel: Option<OnKernel>,
}

type Run = fn(&Request) -> Result<ExperimentResult, Failure>;
/// Runs an experiment on a real kernel.
pub type OnKernel = fn(&Request, &KernelTarget) -> Result<ExperimentResult, Failure>;

const fn experiment(name: &'static str, question: &'static str, reps: u32, run: Run) -> Experiment {
    Experiment { name, question, reps, run, check: None, boots: false, on_kernel: None }
}

/// All of them, in the order of the list.
pub const ALL: &[Experiment] = &[
    Experiment {
        check: Some(check_vendors),
        on_kernel: Some(run_postmark_vendors_on_kernel),
        ..experiment(
            postmark_vendors::NAME,
            postmark_vendors::QUESTION,
            postmark_vendors::REPS,
            run_postmark_vendors,
        )
    },
    experiment(one_a::NAME, one_a::QUESTION, set::REPS, run_set_1a),
    experiment(one_b::NAME, one_b::QUESTION, set::REPS, run_set_1b),
    experiment(lazy::FIGURE_3, lazy::QUESTION_3, lazy::REPS, |r| run_lazy_sizes(r, lazy::evaluate_figure_3)),
    experiment(lazy::FIGURE_4, lazy::QUESTION_4, lazy::REPS, |r| run_lazy_sizes(r, lazy::evaluate_figure_4)),
    experiment(lazy::TABLE_2, lazy::QUESTION_T2, lazy::REPS, run_lazy_table_2),
    experiment(sandforce::NAME, sandforce::QUESTION, sandforce::REPS, run_sandforce),
    experiment(capacity::NAME, capacity::QUESTION, capacity::REPS, run_capacity),
    experiment(settling::NAME, settling::QUESTION, settling::REPS, run_settling),
    Experiment {
        check: Some(|only, _| super::kernels::Choice::of(only).map(drop)),
        boots: true,
        ..experiment(kernels::NAME, kernels::QUESTION, kernels::REPS, run_kernels)
    },
    Experiment {
        check: Some(|only, _| super::lazy_kernel::choice(only).map(drop)),
        boots: true,
        ..experiment(lazy::FIGURE_3_KERNEL, lazy::QUESTION_3_KERNEL, lazy::REPS, run_lazy_3_kernel)
    },
    Experiment {
        check: Some(|only, _| super::model_ext4::choice(only).map(drop)),
        boots: true,
        ..experiment(model_ext4::NAME, model_ext4::QUESTION, model_ext4::REPS, run_model_ext4)
    },
    Experiment {
        check: Some(|only, _| super::verdicts::choice(only).map(drop)),
        boots: true,
        ..experiment(verdicts::NAME, verdicts::QUESTION, verdicts::REPS, run_verdicts)
    },
    Experiment {
        check: Some(|only, target| super::daemon_week::choice(only, target).map(drop)),
        boots: true,
        on_kernel: Some(|request, target| run_daemon_week(request, daemon_week::NAME, 7, Some(target))),
        ..experiment(daemon_week::NAME, daemon_week::QUESTION, daemon_week::REPS, |request| {
            run_daemon_week(request, daemon_week::NAME, 7, None)
        })
    },
    Experiment {
        check: Some(|only, target| super::daemon_week::choice(only, target).map(drop)),
        boots: true,
        on_kernel: Some(|request, target| {
            run_daemon_week(request, daemon_week::NAME_OF_DAY, 1, Some(target))
        }),
        ..experiment(daemon_week::NAME_OF_DAY, daemon_week::QUESTION_OF_DAY, daemon_week::REPS, |request| {
            run_daemon_week(request, daemon_week::NAME_OF_DAY, 1, None)
        })
    },
];

/// How to run an experiment.
pub struct Request {
    /// Repetitions of each of its cells.
    pub reps: u32,
    /// The seed of all its runs.
    pub seed: u64,
    /// Runs at a time; `None`: as many as suit this computer.
    pub jobs: Option<usize>,
    /// Which parts of it; empty: all.
    pub only: Vec<String>,
    /// Limits of the guests, for experiments that boot kernels.
    pub bounds: Bounds,
    /// Told how much is done, of how much.
    pub report: Report,
}

impl Request {
    /// Carries out `count` runs on several threads and returns their results in order. `run` receives its number and a
    /// callback to call after each of its `steps`, which drives the progress display.
    ///
    /// `devices` are those whose models exist at the same time; the largest decides how many runs fit into memory.
    fn spread<T: Send>(
        &self,
        devices: &[&str],
        count: usize,
        steps: u64,
        run: impl Fn(usize, &dyn Fn()) -> Result<T, CellError> + Sync,
    ) -> Result<Vec<T>, Failure> {
        let memory =
            devices.iter().filter_map(|name| Profile::embedded(name)).map(|d| memory_of_run(&d)).max();
        self.spread_in(memory.unwrap_or_default(), count, steps, |i, step| run(i, step).map_err(Failure::run))
    }

    /// Does the same for runs that each need this much memory.
    fn spread_in<T: Send>(
        &self,
        memory: Bytes,
        count: usize,
        steps: u64,
        run: impl Fn(usize, &dyn Fn()) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        let jobs = self.jobs.unwrap_or_else(|| pool::default_jobs(memory));
        let done = AtomicU64::new(0);
        let all = count as u64 * steps;
        let step = || (self.report)(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        pool::run_ordered(jobs, count, |i| run(i, &step))
    }

    /// Carries out the cases of an experiment that boots a kernel for each; every case needs this much memory.
    fn boot<C: Copy + Sync, T: Send>(
        &self,
        memory: Bytes,
        cases: &[C],
        run: impl Fn(C) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        self.spread_in(memory, cases.len(), 1, |i, step| run(cases[i]).inspect(|_| step()))
    }
}

fn check_vendors(only: &[String], _: Option<&KernelTarget>) -> Result<(), Failure> {
    match only.iter().find(|only| !postmark_vendors::DEVICES.contains(&only.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Failure::usage(format!(
            "--only {unknown}: expected one of {}",
            postmark_vendors::DEVICES.join(", ")
        ))),
    }
}

fn run_postmark_vendors(request: &Request) -> Result<ExperimentResult, Failure> {
    let columns = postmark_vendors::columns(&request.only);
    let Request { reps, seed, .. } = *request;
    let means = request.spread(&postmark_vendors::DEVICES, columns.len(), reps.into(), |i, step| {
        postmark_vendors::run_column(columns[i], reps, seed, step)
    })?;
    Ok(postmark_vendors::evaluate(&columns, &means, seed))
}

/// Runs the same drives, workload and memory below a real file system. The source's processor time is not included.
fn run_postmark_vendors_on_kernel(
    request: &Request,
    target: &KernelTarget,
) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let columns = postmark_vendors::columns(&request.only);
    let image = guests::image(target)?;
    let guest = guests::guest(&image, postmark_vendors::host().memory, &request.bounds)?;
    let device = |column: Column| {
        Profile::embedded(column.device).ok_or_else(|| Failure::run(format!("{} is missing", column.device)))
    };
    let mut memory = Bytes(0);
    for &column in &columns {
        let device = device(column)?;
        guests::check_size(&device, target.file_system)?;
        let of_guest = guests::memory_of_guest(guest.memory, &device, None);
        memory = memory.max(Bytes(memory_of_run(&device).0.saturating_add(of_guest.0)));
    }
    let means = request.spread_in(memory, columns.len(), reps.into(), |i, step| {
        let (column, device) = (columns[i], device(columns[i])?);
        let workload = KernelWorkload::Postmark(postmark_vendors::workload(column.buffering).to_text());
        let policy = if column.discard { KernelPolicy::Commit } else { KernelPolicy::Off };
        let cells = (0..reps).map(|rep| {
            let workload = &workload;
            let cell = KernelCell {
                device: &device,
                target,
                policy,
                workload,
                utilization_percent: None,
                rep,
                seed,
            };
            cell.run(&guest).map_err(guests::failure).inspect(|_| step())
        });
        Ok::<_, Failure>(postmark_vendors::Means::of(&cells.collect::<Result<Vec<_>, _>>()?))
    })?;
    let mut result = postmark_vendors::evaluate(&columns, &means, seed);
    result.finding =
        format!("On kernel:{target} ({}), where computing takes no time: {}", image.release, result.finding);
    Ok(result)
}

fn policies(written: impl IntoIterator<Item = &'static str>) -> Result<Vec<PolicySpec>, Failure> {
    written.into_iter().map(|policy| policy.parse().map_err(Failure::usage)).collect()
}

fn run_set_1a(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let policies = policies(one_a::POLICIES)?;
    let setting = Setting::published();
    let aged = set::age(&setting, seed).map_err(Failure::run)?;
    let cells = one_a::UTILIZATIONS.len() * reps as usize;
    let runs = request.spread(&[set::DEVICE], cells, policies.len() as u64, |i, step| {
        let (utilization, rep) = (one_a::UTILIZATIONS[i / reps as usize], (i % reps as usize) as u32);
        one_a::run(&setting, &aged, &policies, utilization, rep, seed, step)
    })?;
    let measured = one_a::Measured {
        utilizations: one_a::UTILIZATIONS.to_vec(),
        policies: policies.iter().map(PolicySpec::to_string).collect(),
        runs: runs.chunks(reps as usize).map(<[_]>::to_vec).collect(),
    };
    Ok(one_a::evaluate(&measured, reps, seed))
}

fn run_set_1b(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let policies = policies(one_b::PUBLISHED.into_iter().chain(one_b::BESIDES))?;
    let setting = Setting::published();
    let aged = set::age(&setting, seed).map_err(Failure::run)?;
    let runs = request.spread(&[set::DEVICE], policies.len() * reps as usize, 1, |i, step| {
        let (policy, rep) = (policies[i / reps as usize], (i % reps as usize) as u32);
        let stages = one_b::run(&setting, &aged, policy, rep, seed)?;
        step();
        Ok(stages)
    })?;
    let measured = one_b::Measured {
        policies: policies.iter().map(PolicySpec::to_string).collect(),
        runs: runs.chunks(reps as usize).map(<[_]>::to_vec).collect(),
    };
    Ok(one_b::evaluate(&measured, reps, seed))
}

/// Figures 3 and 4 come from the same runs: every policy at every append size.
fn run_lazy_sizes(
    request: &Request,
    evaluate: fn(&[lazy::SizeRuns], u64) -> ExperimentResult,
) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let (device, policies) = (lazy::device(), policies(lazy::POLICIES)?);
    let sizes: Vec<_> = lazy::sizes().collect();
    let count = policies.len() * sizes.len();
    let mut runs = request
        .spread(&[lazy::DEVICE], count, reps.into(), |i, step| {
            let (policy, append) = (policies[i / sizes.len()], sizes[i % sizes.len()]);
            (0..reps)
                .map(|rep| lazy::run_size(&device, policy, append, rep, seed).inspect(|_| step()))
                .collect::<Result<Vec<_>, _>>()
        })?
        .into_iter();
    let by_policy: Vec<lazy::SizeRuns> =
        policies.iter().map(|_| runs.by_ref().take(sizes.len()).collect()).collect();
    Ok(evaluate(&by_policy, seed))
}

fn run_lazy_table_2(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let (device, policies) = (lazy::device(), policies(lazy::POLICIES)?);
    let mut runs = request
        .spread(&[lazy::DEVICE], policies.len() * lazy::FSYNC.len(), reps.into(), |i, step| {
            let (policy, fsync) = (policies[i / lazy::FSYNC.len()], lazy::FSYNC[i % lazy::FSYNC.len()]);
            (0..reps)
                .map(|rep| lazy::run_write(&device, policy, fsync, rep, seed).inspect(|_| step()))
                .collect::<Result<Vec<_>, _>>()
        })?
        .into_iter();
    let by_policy: Vec<lazy::WriteRuns> =
        policies.iter().map(|_| std::array::from_fn(|_| runs.next().unwrap_or_default())).collect();
    Ok(lazy::evaluate_table_2(&by_policy, seed))
}

/// One of the runs of `sandforce`.
enum Sandforce {
    Class(sandforce::ClassRun),
    Beside(sandforce::BesideRun),
    Files(sandforce::files::FilesRun, sandforce::Sharing),
}

fn run_sandforce(request: &Request) -> Result<ExperimentResult, Failure> {
    let (setting, seed) = (sandforce::Setting::published(), request.seed);
    let classes = sandforce::CLASSES;
    // The longest come first; every run reports the same number of steps.
    let runs = request.spread_in(sandforce::MEMORY, classes.len() + 2, sandforce::STEPS, |i, step| {
        let run = || match i {
            i if i < classes.len() => {
                sandforce::run_class(&setting, classes[i], seed, step).map(Sandforce::Class)
            }
            i if i == classes.len() => sandforce::run_beside(&setting, seed, step).map(Sandforce::Beside),
            _ => {
                let sharing = sandforce::run_sharing(&setting, seed)?;
                let files = sandforce::files::run_files(&setting.files, seed, step)?;
                Ok(Sandforce::Files(files, sharing))
            }
        };
        run().map_err(Failure::run)
    })?;
    let mut measured = sandforce::Measured::default();
    for run in runs {
        match run {
            Sandforce::Class(run) => measured.classes.push(run),
            Sandforce::Beside(run) => measured.beside = run,
            Sandforce::Files(run, sharing) => (measured.files, measured.sharing) = (run, sharing),
        }
    }
    Ok(sandforce::evaluate(&measured, seed))
}

/// Each run is one device and one history. The model draws only the places of random writes, so one run of a history
/// stands for all.
fn run_capacity(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let histories = capacity::histories();
    let runs = request.spread(&capacity::DEVICES, histories.len(), reps.into(), |i, step| {
        (0..reps)
            .map(|rep| capacity::run(&histories[i], seed.wrapping_add(rep.into())).inspect(|_| step()))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok(capacity::evaluate(&capacity::Measured::new(histories.into_iter().zip(runs)), reps, seed))
}

fn run_settling(request: &Request) -> Result<ExperimentResult, Failure> {
    let Request { reps, seed, .. } = *request;
    let runs = request.spread(&[settling::DEVICE], settling::ranges(), reps.into(), |i, step| {
        (0..reps).map(|rep| settling::run(i, rep, seed).inspect(|_| step())).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(settling::evaluate(&runs, reps, seed))
}

/// Each case of each built kernel is one boot.
fn run_kernels(request: &Request) -> Result<ExperimentResult, Failure> {
    let choice = super::kernels::Choice::of(&request.only)?;
    let observed = request.boot(super::kernels::MEMORY_OF_RUN, &choice.runs(), |(image, case)| {
        super::kernels::run(image, case, request.seed, &request.bounds)
    })?;
    Ok(kernels::evaluate(&choice.measured(observed), request.reps, request.seed))
}

/// Each append size, with and without discard, is one boot plus a run of the model.
fn run_lazy_3_kernel(request: &Request) -> Result<ExperimentResult, Failure> {
    let (image, cases) = super::lazy_kernel::choice(&request.only)?;
    let runs = request.boot(super::lazy_kernel::MEMORY_OF_RUN, &cases, |case| {
        super::lazy_kernel::run(&image, case, request.seed, &request.bounds)
    })?;
    Ok(lazy::evaluate_on_kernel(&runs, request.seed))
}

/// Each case is one boot plus a run of the model.
fn run_model_ext4(request: &Request) -> Result<ExperimentResult, Failure> {
    let (image, cases) = super::model_ext4::choice(&request.only)?;
    let pairs = request.boot(super::model_ext4::MEMORY_OF_RUN, &cases, |case| {
        super::model_ext4::run(&image, case, request.seed, &request.bounds)
    })?;
    Ok(model_ext4::evaluate(&pairs, request.seed))
}

/// Each repetition of each cell is one boot plus a run of the model.
fn run_verdicts(request: &Request) -> Result<ExperimentResult, Failure> {
    let (images, cases) = super::verdicts::choice(&request.only)?;
    let Request { reps, seed, .. } = *request;
    let memory = super::verdicts::MEMORY_OF_RUN;
    let rows = request.spread_in(memory, cases.len(), reps.into(), |i, step| {
        super::verdicts::run(&images, cases[i], reps, seed, &request.bounds, step)
    })?;
    Ok(verdicts::evaluate(rows, reps, seed))
}

/// Each way of trimming on each file system, or only the target's, is one boot.
fn run_daemon_week(
    request: &Request,
    name: &'static str,
    days: u64,
    target: Option<&KernelTarget>,
) -> Result<ExperimentResult, Failure> {
    let week = Week { days, seed: request.seed, ..Week::default() };
    let (image, cases) = super::daemon_week::choice(&request.only, target)?;
    let runs = request.boot(super::daemon_week::MEMORY_OF_RUN, &cases, |case| {
        super::daemon_week::run(&image, case, &week, request.seed, &request.bounds)
    })?;
    let mut result = daemon_week::evaluate(name, &week, &runs, request.reps, request.seed);
    if let Some(target) = target {
        result.finding = format!("On kernel:{target} ({}): {}", image.release, result.finding);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_the_command_line() {
        for (i, experiment) in ALL.iter().enumerate() {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(experiment.name.chars().all(fits), "{}", experiment.name);
            assert!(ALL[..i].iter().all(|e| e.name != experiment.name), "{} twice", experiment.name);
            let alike = |e: &Experiment| e.question == experiment.question;
            assert!(!ALL[..i].iter().any(alike), "{}: another experiment asks that", experiment.name);
            assert!(experiment.reps > 0 && experiment.question.ends_with('?'), "{}", experiment.name);
        }
    }

    #[test]
    fn regression_every_experiment_is_in_the_lists_of_them() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let table = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let command = <crate::commands::CommandLine as clap::CommandFactory>::command();
        let reproduce = command.find_subcommand("reproduce").unwrap();
        let only = reproduce.get_arguments().find(|argument| argument.get_id() == "only").unwrap();
        let help = only.get_help().unwrap().to_string();
        for experiment in ALL {
            let name = experiment.name;
            assert!(table.contains(&format!("| [{name}](")), "{name} is not in experiments/README.md");
            let has_parts = experiment.check.is_some();
            assert_eq!(help.contains(&format!("`{name}`")), has_parts, "{name} in the help of --only");
        }
    }

    #[test]
    fn runs_are_in_order_and_each_step_is_told() {
        let steps = std::sync::Arc::new(AtomicU64::new(0));
        let told = std::sync::Arc::clone(&steps);
        let report: Report = std::sync::Arc::new(move |_, of| {
            assert_eq!(of, 6);
            told.fetch_add(1, Ordering::Relaxed);
        });
        let bounds = Bounds::default();
        let request = Request { reps: 1, seed: 1, jobs: Some(2), only: Vec::new(), bounds, report };
        let run = |i: usize, step: &dyn Fn()| {
            step();
            step();
            Ok(i)
        };
        assert_eq!(request.spread(&["vendor1"], 3, 2, run).unwrap(), [0, 1, 2]);
        assert_eq!(steps.load(Ordering::Relaxed), 6);
    }
}
