//! Figures 3 and 4 on a real ext4 in virtual time, next to the model of that guest. Both come from the same runs.

use trimwise::compare::cell::commit_phase;
use trimwise::compare::result::WorkloadFigures;
use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise::workload::timed::Timed;
use trimwise_uml::cell::{KernelTarget, new_disk};
use trimwise_uml::job::{Part, Step};

use super::sizes::{APPEND, COMMANDS, run_size};
use super::{DEVICE, Issue, Run, device, sizes};
use crate::experiment::grid::{Grid, Shown, both};
use crate::experiment::real_ext4::{self, Policy, RealExt4, chosen, mkfs};
use crate::experiment::result::ExperimentResult;
use crate::experiment::{Experiment, Request};
use crate::guests::{self, Ran, RealKernel};
use crate::plot::PlotKind;
use trimwise::failure::Failure;

/// The papers' policies that a kernel can have, and `off`, for which every kernel's commit sends no TRIM.
pub(super) const POLICIES: [&str; 4] = ["commit", "lazy", "lazy+reuse", "off"];

/// The guest's memory: room for the largest append, 64 MiB, besides ext4 and its journal.
pub(super) const GUEST_MEMORY: Bytes = Bytes::mib(512);

/// Memory of this computer that one run takes: guest, the drive's model, and the data of the file system.
pub(super) const MEMORY_OF_RUN: Bytes = Bytes::mib(1_500);

/// Time until every TRIM is surely issued: several times as long as the slowest policy takes.
pub(super) const DRAIN: SimDuration = SimDuration::from_secs(20);

fn kib(size: &Bytes) -> String {
    (size.0 >> 10).to_string()
}

/// Rejects unknown append sizes, and kernels that this computer does not have.
pub(super) fn check(only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
    let Some(target) = target else { return real_ext4::whole_in_model(only) };
    choice(only)?;
    RealExt4::new(target, GUEST_MEMORY).map(drop)
}

pub(super) fn choice(only: &[String]) -> Result<Vec<Bytes>, Failure> {
    chosen(&sizes().collect::<Vec<_>>(), kib, only, "an append size in KiB")
}

/// Runs each policy of the kernel at each append size, on the kernel and in the model.
pub(super) fn run(
    request: &Request,
    target: &KernelTarget,
    experiment: &Experiment,
    shown: &Shown<Run>,
) -> Result<ExperimentResult, Failure> {
    let ext4 = RealExt4::new(target, GUEST_MEMORY)?;
    let sizes = choice(&request.only)?;
    let policies = RealExt4::policies_of(target, &POLICIES);
    let cases: Vec<(&Policy, Bytes)> =
        policies.iter().flat_map(|policy| sizes.iter().map(move |size| (policy, *size))).collect();
    let runs =
        request.boot(MEMORY_OF_RUN, &cases, |(policy, append)| run_case(request, &ext4, policy, append))?;
    let sides = [0, 1].map(|side| {
        let names = policies.iter().map(|policy| policy.name.clone());
        let places = sizes.iter().map(|size| (size.0 >> 10) as f64);
        Grid::new(names, places, |policy, size| vec![runs[policy * sizes.len() + size][side]])
    });
    Ok(evaluate(experiment, shown, ext4.named()?, sides, request.seed))
}

fn run_case(request: &Request, ext4: &RealExt4, policy: &Policy, append: Bytes) -> Result<[Run; 2], Failure> {
    let seed = request.seed;
    let file = Fragmenting::of_append(append);
    let device = Profile::embedded(DEVICE).expect("the device is built in");
    let steps = timing([mkfs(), ext4.mount(policy.kernel)], file, DRAIN, seed);
    let [measure, drain] = TIMED;
    let ran = ext4.run(request, new_disk(&device, seed, true).map_err(guests::failure)?, steps)?;
    let took = took(&ran)?;
    let issue = issued(&ran, measure, drain, policy, file)?;
    let model = run_size(ext4.host, &self::device(), policy.model, append, 0, seed).map_err(Failure::run)?;
    Ok([Run { took, issue }, model])
}

/// Returns the steps that remove a fragmented file of a new file system, time the `fsync` after that, and wait for
/// discards during `drain`.
pub(super) fn timing(
    new_file_system: [Step; 2],
    file: Fragmenting,
    drain: SimDuration,
    seed: u64,
) -> Vec<Step> {
    let part = |part| Step::Timed { spec: Timed::Append(file).to_string(), part, rep: 0, seed };
    let mut steps = Vec::from(new_file_system);
    steps.extend([
        Step::WriteZeros,
        Step::Sleep { ns: commit_phase(0).as_nanos() },
        part(Part::Prepare),
        part(Part::Measure),
        Step::Sleep { ns: drain.as_nanos() },
    ]);
    steps
}

/// Indices of the timed steps of [`timing`], and of the steps after them.
pub(super) const TIMED: [usize; 2] = [5, 6];

/// Returns the duration of the `fsync` of [`timing`].
pub(super) fn took(ran: &Ran) -> Result<SimDuration, Failure> {
    ran.workload(TIMED[0], |figures| match figures {
        WorkloadFigures::Append(figures) => Some(SimDuration(figures.fsync_ns)),
        _ => None,
    })
}

/// Returns how the discards of a removed file were issued between two steps. Fails unless all were.
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

fn evaluate(
    experiment: &Experiment,
    shown: &Shown<Run>,
    kernel: RealKernel,
    sides: [Grid<Run>; 2],
    seed: u64,
) -> ExperimentResult {
    let mut figures = sides[0].named(shown.of);
    // A policy that sends no TRIM takes no time to issue TRIMs.
    let takes_time = |policy: &str| sides[0].line(policy, shown.of).any(|ms| ms > 0.0);
    let timed = sides.each_ref().map(|side| side.only(takes_time));
    for (side, prefix) in timed.iter().zip(["kernel.", "model."]) {
        side.name(&mut figures, prefix, shown.of);
    }
    let plots =
        [both(&timed, PlotKind::Lines, &APPEND, shown), both(&sides, PlotKind::Lines, &APPEND, &COMMANDS)];
    experiment.judge_on(kernel, &figures, &plots.concat(), 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::lazy::sizes::{FSYNC, ISSUE, sizes_kib};
    use crate::experiment::lazy::{FIGURE_3, FIGURE_4};

    /// Invents runs on a kernel that takes `each_us` for a TRIM one by one and `share_percent` of it in parallel; the
    /// model takes `model_percent` of that.
    fn runs(each_us: u64, share_percent: u64, model_percent: u64) -> [Grid<Run>; 2] {
        let run = |policy: &str, append: Bytes, percent: u64| {
            let serial = each_us * Fragmenting::of_append(append).pieces();
            let parallel = serial * share_percent / 100;
            let (fsync, issue, commands) = match policy {
                "commit" => (2_000 + serial, serial, 1),
                "off" => (2_000, 0, 0),
                _ => (2_000, parallel, 1),
            };
            Run {
                took: SimDuration::from_micros(fsync * percent / 100),
                issue: Issue { commands, time: SimDuration::from_micros(issue * percent / 100) },
            }
        };
        let sizes: Vec<Bytes> = sizes().collect();
        [100, model_percent].map(|percent| {
            Grid::new(POLICIES, sizes_kib(), |policy, size| vec![run(POLICIES[policy], sizes[size], percent)])
        })
    }

    fn met(experiment: &Experiment, shown: &Shown<Run>, runs: [Grid<Run>; 2]) -> Vec<String> {
        let result = evaluate(experiment, shown, guests::invented_kernel(), runs, 1);
        assert!(result.finding.starts_with("On the ext4 of Linux 6.12.1"), "{}", result.finding);
        result.claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    const NEAR_3: [&str; 4] =
        ["lazy-3-model-commit", "lazy-3-model-lazy", "lazy-3-model-lazy+reuse", "lazy-3-model-off"];

    #[test]
    fn claims_are_judged_on_the_kernel_and_the_model_by_how_near_it_is() {
        let papers = ["lazy-fsync-64k", "lazy-fsync-all-sizes", "lazy-fsync-spread"];
        let of_kernel = [&papers[..], &["lazy-3-grows", "lazy-3-off-64k"]].concat();
        assert_eq!(met(&FIGURE_3, &FSYNC, runs(130, 40, 110)), [&of_kernel[..], &NEAR_3].concat());
        assert_eq!(met(&FIGURE_3, &FSYNC, runs(130, 40, 80)), of_kernel, "the model is far");
        assert_eq!(met(&FIGURE_3, &FSYNC, runs(0, 40, 110)), NEAR_3, "TRIMs cost nothing");
        let near = ["lazy-4-model-commit", "lazy-4-model-lazy", "lazy-4-model-lazy+reuse"];
        let all = [&["lazy-issue-time"], &near[..]].concat();
        assert_eq!(met(&FIGURE_4, &ISSUE, runs(130, 40, 90)), all);
        assert_eq!(met(&FIGURE_4, &ISSUE, runs(130, 100, 90)), near, "they do not overlap");
        assert_eq!(met(&FIGURE_4, &ISSUE, runs(130, 40, 120)), all[..1]);
    }

    #[test]
    fn on_a_real_kernel_less_is_built_in() {
        use crate::experiment::result::Role;
        let result = evaluate(&FIGURE_3, &FSYNC, guests::invented_kernel(), runs(130, 40, 100), 1);
        let checks = result.claims.iter().filter(|claim| claim.role == Role::Check).count();
        assert_eq!((checks, result.claims.len()), (8, 9));
        assert!(result.claims.iter().all(|claim| claim.because.is_none() == (claim.role == Role::Check)));
    }

    #[test]
    fn a_stock_kernel_is_asked_nothing_about_lazy() {
        let runs = runs(130, 40, 100).map(|side| side.only(|policy| !policy.contains("lazy")));
        let result = evaluate(&FIGURE_3, &FSYNC, guests::invented_kernel(), runs, 1);
        assert!(result.claims.iter().all(|claim| claim.met), "{:#?}", result.claims);
        assert_eq!(result.untried[..2], ["lazy-fsync-64k", "lazy-fsync-all-sizes"]);
        let all = result.claims.len() + result.untried.len();
        let count = format!("Not tried: {} of {all} claims.", result.untried.len());
        assert!(result.finding.contains(&count), "{}", result.finding);
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let refused = choice(&["48".to_owned()]);
        assert!(
            matches!(refused, Err(Failure::Usage(m)) if m.to_string().contains("64, 128") && m.to_string().contains("65536"))
        );
        assert!(
            matches!(check(&["64".to_owned()], None), Err(Failure::Usage(m)) if m.to_string().contains("--on kernel"))
        );
    }
}
