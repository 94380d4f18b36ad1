//! The published experiments: each a module with its question, settings, runs and evaluation. Its claims are data in
//! `experiments/NAME`.

pub mod capacity;
mod claims;
mod daemon_week;
mod grid;
mod kernels;
pub mod lazy;
mod model_ext4;
pub mod postmark_vendors;
pub mod published;
mod real_ext4;
pub mod result;
pub mod sandforce;
pub mod set;
mod settling;
pub mod verdicts;
mod verdicts_fs;

use std::sync::atomic::{AtomicU64, Ordering};

use trimwise::compare::cell::CellError;
use trimwise::compare::result::Target;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise::words;
use trimwise_uml::cell::{KernelPolicy, KernelTarget};

use crate::guests::{self, Bounds};
pub use daemon_week::{AGED as WEEK_AGED, CAPACITY as WEEK_CAPACITY, DEVICE as WEEK_DEVICE};
pub use grid::Grid;
use result::ExperimentResult;
use trimwise::failure::{Failure, Mistake, Words, set};
use trimwise_linux::kept::Kept;
use trimwise_linux::pool;

pub static ALL: [&Experiment; 16] = [
    &postmark_vendors::EXPERIMENT,
    &set::ONE_A,
    &set::ONE_B,
    &lazy::FIGURE_3,
    &lazy::FIGURE_4,
    &lazy::TABLE_2,
    &sandforce::EXPERIMENT,
    &capacity::EXPERIMENT,
    &settling::EXPERIMENT,
    &published::EXPERIMENT,
    &kernels::EXPERIMENT,
    &model_ext4::EXPERIMENT,
    &verdicts::EXPERIMENT,
    &verdicts_fs::EXPERIMENT,
    &daemon_week::WEEK,
    &daemon_week::DAY,
];

pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    pub question: &'static str,
    /// Default number of repetitions, as in the source.
    pub reps: u32,
    pub claims: &'static str,
    pub host: Host,
    pub run: fn(&Request) -> Result<ExperimentResult, Failure>,
}

/// Checks before anything runs if this computer can run these parts of an experiment, on a kernel if one is named.
pub type Check = fn(&[String], Option<&KernelTarget>) -> Result<(), Failure>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// Each experiment on its usual host.
    Usual,
    /// On a kernel of the experiment's choice.
    Kernel,
    This(KernelTarget),
}

/// Where an experiment runs. An experiment with several parts checks the choice of parts.
pub enum Host {
    Model,
    /// In the model, or on a kernel that has the experiment's policies too; on this one by default.
    ModelOrKernel(&'static str, Check),
    /// On kernels of its own choice.
    Kernels(Check),
    /// On a kernel of its own choice, or a named one.
    AnyKernel(Check),
    /// Like [`Host::AnyKernel`], for hours. It is sampled unless all of it is requested, and keeps finished cells in a
    /// folder if one is named.
    Long(Check),
}

impl Experiment {
    /// Returns true if the experiment boots kernels by default.
    pub fn boots(&self) -> bool {
        matches!(self.host, Host::Kernels(_) | Host::AnyKernel(_) | Host::Long(_))
    }

    /// Returns true if the experiment takes hours, and keeps finished cells.
    pub fn is_long(&self) -> bool {
        matches!(self.host, Host::Long(_))
    }

    fn takes_kernel(&self) -> bool {
        matches!(self.host, Host::ModelOrKernel(..) | Host::AnyKernel(_) | Host::Long(_))
    }

    /// Returns the kernel to run on; `None` for the experiment's usual host.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the experiment cannot run there.
    pub fn target(&self, on: &On) -> Result<Option<KernelTarget>, Failure> {
        let named = match (on, &self.host) {
            (On::Usual, _) | (On::Kernel, Host::Kernels(_) | Host::AnyKernel(_) | Host::Long(_)) => {
                return Ok(None);
            }
            (On::Kernel, Host::ModelOrKernel(kernel, _)) => {
                return kernel.parse().map(Some).map_err(|e: String| Mistake::that(e).fail());
            }
            (On::This(target), _) if self.takes_kernel() => return Ok(Some(target.clone())),
            (On::This(target), _) => Target::from(target).to_string(),
            (On::Kernel, Host::Model) => "kernel".to_owned(),
        };
        let able = ALL.iter().filter(|e| e.takes_kernel()).map(|e| e.name);
        let able = format!(", or one of {} on a kernel", able.collect::<Vec<_>>().join(", "));
        let why = ": it uses policies or a host that no real kernel has, or boots kernels itself";
        let why = words![format!("{} ", self.name), set("on", named), why];
        Err(Mistake::that(why).expected(words![set("on", "model"), able]).fail())
    }

    /// Rejects unknown parts, and kernels that the experiment does not have or this computer cannot run.
    pub fn check(&self, only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
        match self.host {
            Host::ModelOrKernel(_, check)
            | Host::Kernels(check)
            | Host::AnyKernel(check)
            | Host::Long(check) => check(only, target)?,
            Host::Model if only.is_empty() => {}
            Host::Model => {
                let why = format!("'{}' has no parts to choose from", self.name);
                return Err(Mistake::on("only").because(why).fail());
            }
        }
        let Some(target) = target else { return Ok(()) };
        let of = |why: Words| Mistake::of("on", Target::from(target)).because(why).fail();
        KernelPolicy::check_options(target).map_err(of)?;
        guests::image(target).map(drop)
    }
}

pub use trimwise_study::caller::Report;

/// Settings of an experiment's run.
pub struct Request {
    pub reps: u32,
    pub seed: u64,
    /// Number of concurrent runs; `None` for as many as suit this computer.
    pub jobs: Option<usize>,
    /// Parts to run; empty for all.
    pub only: Vec<String>,
    /// True to run experiments completely that are sampled on a real kernel.
    pub full: bool,
    /// Folder in which a long experiment keeps finished cells.
    pub kept: Option<Kept>,
    /// Kernel to run on instead of the usual host.
    pub target: Option<KernelTarget>,
    pub bounds: Bounds,
    pub report: Report,
}

impl Request {
    /// Carries out `count` runs on several threads and returns their results in order. `run` receives its number and a
    /// callback to call after each of its `steps`, which drives the progress display.
    ///
    /// The models of all `devices` exist at the same time; the largest decides how many runs fit into memory.
    fn spread<T: Send>(
        &self,
        devices: &[&str],
        count: usize,
        steps: u32,
        run: impl Fn(usize, &dyn Fn()) -> Result<T, CellError> + Sync,
    ) -> Result<Vec<T>, Failure> {
        let devices = devices.iter().filter_map(|name| Profile::embedded(name));
        let memory = devices.map(|device| pool::memory_of_run(&device)).max().unwrap_or_default();
        self.spread_in(memory, count, steps, |i, step| run(i, step).map_err(Failure::run))
    }

    /// Like `spread`, for runs that each need this much memory.
    fn spread_in<T: Send>(
        &self,
        memory: Bytes,
        count: usize,
        steps: u32,
        run: impl Fn(usize, &dyn Fn()) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        let jobs = self.jobs.unwrap_or_else(|| pool::default_jobs(memory));
        let done = AtomicU64::new(0);
        let all = count as u64 * u64::from(steps);
        let step = || (self.report)(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        pool::run_ordered(jobs, count, |i| run(i, &step))
    }

    /// Carries out all repetitions of each of `cells` on `device`, and returns them cell by cell.
    fn repeat<C: Sync, T: Send>(
        &self,
        devices: &[&str],
        cells: &[C],
        run: impl Fn(&C, u32) -> Result<T, CellError> + Sync,
    ) -> Result<Vec<Vec<T>>, Failure> {
        self.spread(devices, cells.len(), self.reps, |i, step| {
            (0..self.reps).map(|rep| run(&cells[i], rep).inspect(|_| step())).collect()
        })
    }

    /// Carries out cases that each boot a kernel and need this much memory.
    fn boot<C: Copy + Sync, T: Send>(
        &self,
        memory: Bytes,
        cases: &[C],
        run: impl Fn(C) -> Result<T, Failure> + Sync,
    ) -> Result<Vec<T>, Failure> {
        self.spread_in(memory, cases.len(), 1, |i, step| run(cases[i]).inspect(|_| step()))
    }
}

fn policies(written: &[&str]) -> Vec<PolicySpec> {
    written.iter().map(|policy| policy.parse().expect("it is written here")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn names_are_unique_and_fit_the_command_line() {
        for (i, experiment) in ALL.iter().enumerate() {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(experiment.name.chars().all(fits), "{}", experiment.name);
            assert!(ALL[..i].iter().all(|e| e.name != experiment.name), "{} twice", experiment.name);
            let alike = |e: &&Experiment| e.question == experiment.question;
            assert!(!ALL[..i].iter().any(alike), "{}: another experiment asks that", experiment.name);
            assert!(experiment.reps > 0 && experiment.question.ends_with('?'), "{}", experiment.name);
        }
    }

    #[test]
    fn runs_are_in_order_and_each_step_is_told() {
        let steps = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&steps);
        let report: Report = Arc::new(move |_, of| {
            assert_eq!(of, 6);
            told.fetch_add(1, Ordering::Relaxed);
        });
        let bounds = Bounds::default();
        let request = Request {
            reps: 1,
            seed: 1,
            jobs: Some(2),
            only: vec![],
            full: false,
            kept: None,
            target: None,
            bounds,
            report,
        };
        let run = |i: usize, step: &dyn Fn()| {
            step();
            step();
            Ok(i)
        };
        assert_eq!(request.spread(&["vendor1"], 3, 2, run).unwrap(), [0, 1, 2]);
        assert_eq!(steps.load(Ordering::Relaxed), 6);
    }
}
