//! Figures 3 and 4 on a real ext4 in virtual time, next to the model of that guest. Both come from the same runs.

use trimwise::compare::cell::commit_phase;
use trimwise::compare::result::WorkloadFigures;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::timed::Timed;
use trimwise_uml::cell::{KernelTarget, new_disk};
use trimwise_uml::job::{Part, Step};

use super::sizes::run_size_on;
use super::{DEVICE, Issue, device, milliseconds, sizes};
use crate::experiment::claims::Figures;
use crate::experiment::real_ext4::{self, Pair, Policy, RealExt4, chosen, mkfs};
use crate::experiment::result::{ExperimentResult, Rows};
use crate::experiment::{Experiment, Request};
use crate::failure::Failure;
use crate::guests::{self, Ran, RealKernel};
use crate::plot::{Axis, PlotKind};

/// The papers' policies that a kernel can have, and `off`, for which every kernel's commit sends no TRIM.
pub(super) const POLICIES: [&str; 4] = ["commit", "lazy", "lazy+reuse", "off"];

/// The guest's memory: room for the largest append, 64 MiB, besides ext4 and its journal.
pub(super) const GUEST_MEMORY: Bytes = Bytes::mib(512);

/// Memory of this computer that one run takes: guest, the drive's model, and the bytes of the file system.
pub(super) const MEMORY_OF_RUN: Bytes = Bytes::mib(1_500);

/// How long to wait until every TRIM is issued: several times as long as the slowest policy takes.
pub(super) const DRAIN: SimDuration = SimDuration::from_secs(20);

/// What both sides measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    fsync: SimDuration,
    issue: Issue,
}

/// A policy at an append size, on the kernel and in the model.
#[derive(Clone, Debug)]
struct SizePair {
    policy: String,
    append: Bytes,
    kernel: Side,
    model: Side,
}

fn kib(size: &Bytes) -> String {
    (size.0 >> 10).to_string()
}

/// Rejects append sizes that there are not, and kernels that this computer does not have.
pub(super) fn check(only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
    let Some(target) = target else { return real_ext4::whole_in_model(only) };
    choice(only)?;
    RealExt4::new(target, GUEST_MEMORY).map(drop)
}

fn choice(only: &[String]) -> Result<Vec<Bytes>, Failure> {
    chosen(&sizes().collect::<Vec<_>>(), kib, only, "an append size in KiB")
}

/// What a figure shows of the runs.
pub(super) struct Shown {
    pub title: &'static str,
    pub y: Axis,
    of: fn(&Side) -> SimDuration,
}

/// Figure 3.
pub(super) const FSYNC: Shown = Shown {
    title: "fsync after the removal of a 1 GiB file",
    y: Axis::log("fsync_ms", "fsync latency", "ms"),
    of: |side| side.fsync,
};

/// Figure 4.
pub(super) const ISSUE: Shown = Shown {
    title: "Time until all TRIMs of the file are acknowledged",
    y: Axis::log("issue_ms", "time to issue all TRIMs", "ms"),
    of: |side| side.issue.time,
};

/// Runs each policy that the kernel has at each append size, and in the model.
pub(super) fn run(
    request: &Request,
    target: &KernelTarget,
    experiment: &Experiment,
    shown: &Shown,
) -> Result<ExperimentResult, Failure> {
    let ext4 = RealExt4::new(target, GUEST_MEMORY)?;
    let sizes = choice(&request.only)?;
    let policies = RealExt4::policies_of(target, &POLICIES);
    let cases: Vec<(&Policy, Bytes)> =
        policies.iter().flat_map(|policy| sizes.iter().map(move |size| (policy, *size))).collect();
    let runs =
        request.boot(MEMORY_OF_RUN, &cases, |(policy, append)| run_case(request, &ext4, policy, append))?;
    Ok(evaluate(experiment, shown, ext4.named()?, &runs, request.seed))
}

fn run_case(request: &Request, ext4: &RealExt4, policy: &Policy, append: Bytes) -> Result<SizePair, Failure> {
    let seed = request.seed;
    let file = Fragmenting::of_append(append);
    let part = |part| Step::Timed { spec: Timed::Append(file).to_string(), part, rep: 0, seed };
    let device = Profile::embedded(DEVICE).expect("the device is built in");
    let steps = vec![
        mkfs(),
        ext4.mount(policy.kernel),
        Step::WriteZeros,
        Step::Sleep { ns: commit_phase(0).as_nanos() },
        part(Part::Prepare),
        part(Part::Measure),
        Step::Sleep { ns: DRAIN.as_nanos() },
    ];
    let [measure, drain] = [5, 6];
    let ran = ext4.run(request, new_disk(&device, seed, true).map_err(guests::failure)?, steps)?;
    let fsync = ran.workload(measure, |figures| match figures {
        WorkloadFigures::Append(figures) => Some(SimDuration(figures.fsync_ns)),
        _ => None,
    })?;
    let kernel = Side { fsync, issue: issued(&ran, measure, drain, policy, file)? };
    let of_model =
        run_size_on(ext4.host, &self::device(), policy.model, append, 0, seed).map_err(Failure::run)?;
    let model = Side { fsync: of_model.fsync, issue: of_model.issue };
    Ok(SizePair { policy: policy.name.clone(), append, kernel, model })
}

/// Returns how the discards of a removed file were issued between two steps; all must have been.
pub(super) fn issued(
    ran: &Ran,
    first: usize,
    last: usize,
    policy: &Policy,
    file: Fragmenting,
) -> Result<Issue, Failure> {
    let requests = ran.requests(first, last);
    let discarded: u64 = requests.iter().filter(|r| r.is_trim).map(|r| r.length_bytes).sum();
    let freed = file.pieces() * file.append.0;
    // With reuse, a few blocks are allocated again first.
    if policy.model.needs_trim() && discarded < freed - freed / 100 {
        return Err(Failure::run(format!(
            "policy {}: of {} that the removal freed, the kernel discarded {} within {} s; expected all of it",
            policy.kernel,
            Bytes(freed),
            Bytes(discarded),
            DRAIN.as_secs_f64()
        )));
    }
    Ok(real_ext4::issue(requests))
}

/// Makes the figure and its claims.
fn evaluate(
    experiment: &Experiment,
    shown: &Shown,
    kernel: RealKernel,
    runs: &[SizePair],
    seed: u64,
) -> ExperimentResult {
    let pairs = |of: &dyn Fn(&Side) -> f64| -> Vec<Pair> {
        let of_policy = |runs: &[SizePair]| Pair {
            name: runs[0].policy.clone(),
            points: runs
                .iter()
                .map(|run| (((run.append.0 >> 10) as f64).into(), of(&run.kernel), of(&run.model)))
                .collect(),
        };
        runs.chunk_by(|a, b| a.policy == b.policy).map(of_policy).collect()
    };
    let mut figures = Figures::default();
    let times = pairs(&|side| milliseconds((shown.of)(side)));
    for pair in &times {
        figures.set(&pair.name, pair.points.iter().map(|point| point.1));
        let smallest = runs.iter().find(|run| run.policy == pair.name && run.append == Bytes::kib(64));
        figures.set(format!("{}.64k", pair.name), smallest.map(|run| milliseconds((shown.of)(&run.kernel))));
    }
    // What sends no TRIM takes no time to issue them.
    let timed: Vec<Pair> =
        times.into_iter().filter(|pair| pair.points.iter().any(|point| point.1 > 0.0)).collect();
    real_ext4::name_sides(&mut figures, &timed);
    let x = Axis::log("append_kib", "append size", "KiB");
    let mut plots = real_ext4::plots(shown.title, PlotKind::Lines, &x, &shown.y, &timed);
    let commands = pairs(&|side| side.issue.commands as f64);
    let y = Axis::log("trim_commands", "TRIM commands", "");
    plots.extend(real_ext4::plots("TRIM commands for the removed file", PlotKind::Lines, &x, &y, &commands));
    experiment.judge_on(kernel, &figures, Rows::of(&plots), 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::lazy::{FIGURE_3, FIGURE_4};

    /// Invents runs on a kernel that takes `each_us` for a TRIM one by one and `share_percent` of it in parallel; the
    /// model takes `model_percent` of that.
    fn runs(each_us: u64, share_percent: u64, model_percent: u64) -> Vec<SizePair> {
        let run = |policy: &str, append: Bytes| {
            let serial = each_us * Fragmenting::of_append(append).pieces();
            let parallel = serial * share_percent / 100;
            let (fsync, issue, commands) = match policy {
                "commit" => (2_000 + serial, serial, 1),
                "off" => (2_000, 0, 0),
                _ => (2_000, parallel, 1),
            };
            let side = |percent: u64| Side {
                fsync: SimDuration::from_micros(fsync * percent / 100),
                issue: Issue { commands, time: SimDuration::from_micros(issue * percent / 100) },
            };
            SizePair { policy: policy.to_owned(), append, kernel: side(100), model: side(model_percent) }
        };
        POLICIES.iter().flat_map(|policy| sizes().map(move |size| run(policy, size))).collect()
    }

    fn met(experiment: &Experiment, shown: &Shown, runs: &[SizePair]) -> Vec<String> {
        let result = evaluate(experiment, shown, RealKernel::invented(), runs, 1);
        assert!(result.finding.starts_with("On the ext4 of Linux 6.12.1"), "{}", result.finding);
        result.claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    const NEAR_3: [&str; 4] =
        ["lazy-3-model-commit", "lazy-3-model-lazy", "lazy-3-model-lazy+reuse", "lazy-3-model-off"];

    #[test]
    fn claims_are_judged_on_the_kernel_and_the_model_by_how_near_it_is() {
        let papers = ["lazy-fsync-64k", "lazy-fsync-all-sizes", "lazy-fsync-spread"];
        let of_kernel = [&papers[..], &["lazy-3-grows", "lazy-3-off-64k"]].concat();
        assert_eq!(met(&FIGURE_3, &FSYNC, &runs(130, 40, 110)), [&of_kernel[..], &NEAR_3].concat());
        assert_eq!(met(&FIGURE_3, &FSYNC, &runs(130, 40, 80)), of_kernel, "the model is far");
        assert_eq!(met(&FIGURE_3, &FSYNC, &runs(0, 40, 110)), NEAR_3, "TRIMs cost nothing");
        let near = ["lazy-4-model-commit", "lazy-4-model-lazy", "lazy-4-model-lazy+reuse"];
        let all = [&["lazy-issue-time"], &near[..]].concat();
        assert_eq!(met(&FIGURE_4, &ISSUE, &runs(130, 40, 90)), all);
        assert_eq!(met(&FIGURE_4, &ISSUE, &runs(130, 100, 90)), near, "they do not overlap");
        assert_eq!(met(&FIGURE_4, &ISSUE, &runs(130, 40, 120)), all[..1]);
    }

    #[test]
    fn on_a_real_kernel_less_is_built_in() {
        use crate::experiment::result::Role;
        let result = evaluate(&FIGURE_3, &FSYNC, RealKernel::invented(), &runs(130, 40, 100), 1);
        let checks = result.claims.iter().filter(|claim| claim.role == Role::Check).count();
        assert_eq!((checks, result.claims.len()), (8, 9));
        assert!(result.claims.iter().all(|claim| claim.because.is_none() == (claim.role == Role::Check)));
    }

    #[test]
    fn a_stock_kernel_is_asked_nothing_about_lazy() {
        let runs: Vec<SizePair> =
            runs(130, 40, 100).into_iter().filter(|run| !run.policy.contains("lazy")).collect();
        let result = evaluate(&FIGURE_3, &FSYNC, RealKernel::invented(), &runs, 1);
        assert!(result.claims.iter().all(|claim| claim.met), "{:#?}", result.claims);
        assert_eq!(result.untried[..2], ["lazy-fsync-64k", "lazy-fsync-all-sizes"]);
        let all = result.claims.len() + result.untried.len();
        let count = format!("Not tried: {} of {all} claims.", result.untried.len());
        assert!(result.finding.contains(&count), "{}", result.finding);
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let refused = choice(&["48".to_owned()]);
        assert!(matches!(refused, Err(Failure::Usage(m)) if m.contains("64, 128") && m.contains("65536")));
        assert!(
            matches!(check(&["64".to_owned()], None), Err(Failure::Usage(m)) if m.contains("--on kernel"))
        );
    }
}
