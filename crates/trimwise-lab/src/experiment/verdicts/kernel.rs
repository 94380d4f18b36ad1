//! Runs on the kernels: each repetition of each cell is one boot.

use trimwise::compare::cell::{SETTLING, commit_phase};
use trimwise::units::{Bytes, Utilization};
use trimwise_uml::cell::{KernelPolicy, KernelTarget, stale_units};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Outcome, Step};

use super::{
    CAPACITY, Case, DRIVES, Ended, KERNELS, MEMORY, POLICIES, Row, Side, UTILIZATIONS, WORKLOADS, Work,
};
use crate::experiment::Request;
use crate::experiment::model_ext4::log::{Places, Traffic};
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran};
use trimwise::failure::{Failure, Mistake};

/// Memory of this computer that one run takes: the guest, its data, and the drive's model.
const MEMORY_OF_RUN: Bytes = Bytes(CAPACITY.0 + MEMORY.0 + (1 << 30));

pub(super) fn target(version: &str) -> KernelTarget {
    format!("{version}:ext4").parse().expect("it is written here")
}

/// Returns the kernels and the cells that `--only` selects by workload, drive, kernel, policy or degree of ageing; all
/// by default.
pub(super) fn choice(only: &[String]) -> Result<(Vec<KernelImage>, Vec<Case<'static>>), Failure> {
    let workloads = WORKLOADS.map(|workload| workload.name.to_owned());
    let degrees = UTILIZATIONS.map(|percent| format!("{percent}%"));
    let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let parts = [workloads.to_vec(), fixed(&DRIVES), fixed(&KERNELS), fixed(&POLICIES), degrees.to_vec()];
    if let Some(unknown) = only.iter().find(|part| !parts.iter().any(|names| names.contains(part))) {
        let all = parts.map(|names| names.join(", ")).join("; ");
        return Err(Mistake::of("only", unknown).expected(format!("one of {all}")).fail());
    }
    let mut cases = super::cases();
    cases.retain(|case| {
        let degree = format!("{}%", case.utilization);
        let own = [case.workload.name, case.drive, case.linux, case.policy, &degree];
        parts.iter().zip(own).all(|(names, own)| {
            let mut asked = only.iter().filter(|part| names.contains(part)).peekable();
            asked.peek().is_none() || asked.any(|part| part == own)
        })
    });
    let needed = KERNELS.into_iter().filter(|version| cases.iter().any(|case| case.linux == *version));
    let images = needed.map(|version| guests::image(&target(version))).collect::<Result<_, _>>()?;
    Ok((images, cases))
}

/// Runs all repetitions of all cells on the kernels and in the model.
pub(super) fn run(request: &Request) -> Result<ExperimentResult, Failure> {
    let (images, cases) = choice(&request.only)?;
    let Request { reps, seed, .. } = *request;
    let rows = request.spread_in(MEMORY_OF_RUN, cases.len(), reps, |i, step| {
        let case = cases[i];
        let image = images.iter().find(|image| image.name.to_string() == case.linux);
        let image = image.ok_or_else(|| Failure::run(format!("kernel {} is missing", case.linux)))?;
        let (mut kernel, mut model) = (Vec::new(), Vec::new());
        for rep in 0..reps {
            kernel.push(run_kernel(request, image, case, rep)?);
            model.push(super::run_model(case, MEMORY, rep, seed, |_| ()).map_err(Failure::run)?.side);
            step();
        }
        Ok(Row::new(case, kernel, model))
    })?;
    Ok(super::evaluate(rows, reps, seed).made_on(&images))
}

/// Returns the steps of a repetition of a cell; the last one is the workload.
pub(super) fn steps(case: Case<'_>, rep: u32, seed: u64) -> Result<Vec<Step>, Failure> {
    let file_system = FileSystem::Ext4;
    let policy = KernelPolicy::parse(case.policy, &target(case.linux)).map_err(Failure::run)?;
    let draw = Case::draw_seed(seed, rep);
    let mut steps = vec![
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options: policy.mount_option(file_system) },
    ];
    steps.extend(policy.trim_every(None));
    if case.utilization > Utilization::EMPTY {
        steps.push(Step::Age { utilization: case.utilization, seed: draw });
    }
    steps.extend([Step::Sleep { ns: SETTLING.as_nanos() }, Step::Sleep { ns: commit_phase(rep).as_nanos() }]);
    steps.push(match case.workload.work {
        Work::Postmark(config) => Step::Postmark { config: format!("{config}run\n"), rep },
        Work::Scene(scene) => Step::Scene { name: scene.to_string(), seed: draw },
    });
    Ok(steps)
}

fn run_kernel(request: &Request, image: &KernelImage, case: Case<'_>, rep: u32) -> Result<Side, Failure> {
    let guest = guests::guest(image, MEMORY, &request.bounds)?;
    let mut steps = steps(case, rep, request.seed)?;
    let work = steps.len() - 1;
    steps.extend([Step::FreeSpace, Step::Metadata]);
    let ran = Ran::new(&guest, case.drive, CAPACITY, request.seed, steps)?;
    Ok(ended(&ran, work, work + 1)?.side)
}

/// Reads the result of a cell whose workload was step `work`. Free space and metadata were listed from step `listed` on.
pub(super) fn ended(ran: &Ran, work: usize, listed: usize) -> Result<Ended, Failure> {
    let duration_ns = ran.outcome(work, |outcome| match outcome {
        Outcome::Cell(cell, _) => Some(cell.duration_ns),
        Outcome::Lasted { duration_ns } => Some(*duration_ns),
        _ => None,
    })?;
    let stale = ran.outcome(listed, |outcome| match outcome {
        Outcome::Free(extents) => Some(stale_units(ran.port.drive().ssd(), extents)),
        _ => None,
    })?;
    let [before, after] = ran.marks.get(work..work + 2).unwrap_or_default() else {
        return Err(Failure::run("the guest did not report when the workload ran"));
    };
    let places = Places::in_guest(ran, listed + 1, &[])?;
    let traffic = Traffic::in_guest(ran.requests(work, work), &places);
    Ok(Ended::new(after.at.0, duration_ns, traffic, after.stats.since(&before.stats), stale))
}
