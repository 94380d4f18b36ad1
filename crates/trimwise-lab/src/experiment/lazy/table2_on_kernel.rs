//! Table II on a real ext4 in virtual time, next to the model of that guest.
//!
//! The file system is filled once; each run begins on a copy of that disk.

use trimwise::compare::cell::commit_phase;
use trimwise::compare::result::WorkloadFigures;
use trimwise::profile::Profile;
use trimwise::units::SimDuration;
use trimwise::workload::timed::Timed;
use trimwise_uml::cell::{KernelPolicy, KernelTarget, new_disk};
use trimwise_uml::job::{Part, Step};

use super::on_kernel::{DRAIN, GUEST_MEMORY, MEMORY_OF_RUN, issued};
use super::table2::{FILE, FSYNC, TABLE_2, published_ms, run_write_on};
use super::{DEVICE, Issue, device, milliseconds};
use crate::experiment::Request;
use crate::experiment::claims::Figures;
use crate::experiment::real_ext4::{self, Pair, Policy, RealExt4, chosen, mkfs};
use crate::experiment::result::{ExperimentResult, Rows};
use crate::failure::Failure;
use crate::guests::{self, Ran, RealKernel};
use crate::plot::{Axis, PlotKind, Point, Series};

/// The table's policies.
const POLICIES: [&str; 3] = ["commit", "lazy", "lazy+reuse"];

/// Reading it makes ext4 load the bitmaps of all groups, as they are in memory when a file system has just been filled.
const GROUPS: &str = "/proc/fs/ext4/*/mb_groups";

/// What both sides measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    write: SimDuration,
    issue: Issue,
}

/// A policy with or without the fsync, on the kernel and in the model.
#[derive(Clone, Debug)]
struct WritePair {
    policy: String,
    fsync: bool,
    kernel: Side,
    model: Side,
}

/// Rejects policies that a kernel does not have, and kernels that this computer does not have.
pub(super) fn check(only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
    let Some(target) = target else { return real_ext4::whole_in_model(only) };
    choice(only, target)?;
    RealExt4::new(target, GUEST_MEMORY).map(drop)
}

fn choice(only: &[String], target: &KernelTarget) -> Result<Vec<Policy>, Failure> {
    let all = RealExt4::policies_of(target, &POLICIES);
    chosen(&all, |policy| policy.name.clone(), only, "a policy of the table that the kernel has")
}

/// Runs each policy that the kernel has, with the fsync and without, and in the model.
pub(super) fn run(request: &Request, target: &KernelTarget) -> Result<ExperimentResult, Failure> {
    let ext4 = RealExt4::new(target, GUEST_MEMORY)?;
    let policies = choice(&request.only, target)?;
    let device = Profile::embedded(DEVICE).expect("the device is built in");
    let fill =
        vec![mkfs(), ext4.mount(KernelPolicy::Off), Step::WriteZeros, timed(true, Part::Prepare, request)];
    let full = ext4.run(request, new_disk(&device, request.seed, false).map_err(guests::failure)?, fill)?;
    let cases: Vec<(&Policy, bool)> =
        policies.iter().flat_map(|policy| FSYNC.map(move |fsync| (policy, fsync))).collect();
    // The copies of the drive and of its bytes come on top.
    let runs = request
        .boot(MEMORY_OF_RUN, &cases, |(policy, fsync)| run_case(request, &ext4, &full, policy, fsync))?;
    Ok(evaluate(ext4.named()?, &runs, request.seed))
}

fn timed(fsync: bool, part: Part, request: &Request) -> Step {
    let spec = Timed::FullWrite { file: FILE, fsync }.to_string();
    Step::Timed { spec, part, rep: 0, seed: request.seed }
}

fn run_case(
    request: &Request,
    ext4: &RealExt4,
    full: &Ran,
    policy: &Policy,
    fsync: bool,
) -> Result<WritePair, Failure> {
    let steps = vec![
        ext4.mount(policy.kernel),
        Step::Read { path: GROUPS.to_owned() },
        Step::Sleep { ns: commit_phase(0).as_nanos() },
        timed(fsync, Part::Measure, request),
        Step::Sleep { ns: DRAIN.as_nanos() },
    ];
    let [measure, drain] = [3, 4];
    let ran = ext4.run(request, full.another(true)?, steps)?;
    let write = ran.workload(measure, |figures| match figures {
        WorkloadFigures::FullWrite(figures) => Some(SimDuration(figures.write_ns)),
        _ => None,
    })?;
    let kernel = Side { write, issue: issued(&ran, measure, drain, policy, FILE)? };
    let of_model =
        run_write_on(ext4.host, &device(), policy.model, fsync, 0, request.seed).map_err(Failure::run)?;
    let model = Side { write: of_model.write, issue: of_model.issue };
    Ok(WritePair { policy: policy.name.clone(), fsync, kernel, model })
}

/// Makes the table and its claims.
fn evaluate(kernel: RealKernel, runs: &[WritePair], seed: u64) -> ExperimentResult {
    let mut figures = Figures::default();
    for run in runs {
        let name = if run.fsync { run.policy.clone() } else { format!("{}.unsynced", run.policy) };
        figures.set(&name, [milliseconds(run.kernel.write)]);
        if run.fsync {
            figures.set(format!("{}.drain", run.policy), [milliseconds(run.kernel.issue.time)]);
        }
    }
    let pairs = |fsync: bool, of: fn(&Side) -> SimDuration| Pair {
        name: if fsync { "after an fsync" } else { "without an fsync" }.to_owned(),
        points: runs
            .iter()
            .filter(|run| run.fsync == fsync)
            .map(|run| {
                (run.policy.clone().into(), milliseconds(of(&run.kernel)), milliseconds(of(&run.model)))
            })
            .collect(),
    };
    let by_policy = |run: &[WritePair]| Pair {
        name: run[0].policy.clone(),
        points: run
            .iter()
            .map(|run| {
                (run.fsync.to_string().into(), milliseconds(run.kernel.write), milliseconds(run.model.write))
            })
            .collect(),
    };
    let of_policies: Vec<Pair> = runs.chunk_by(|a, b| a.policy == b.policy).map(by_policy).collect();
    real_ext4::name_sides(&mut figures, &of_policies);
    let x = Axis::linear("policy", "policy", "");
    let both = |of| [pairs(true, of), pairs(false, of)];
    let mut plots = real_ext4::plots(
        "Synchronous write that needs a block, on a full file system",
        PlotKind::Bars,
        &x,
        &Axis::linear("write_ms", "write latency", "ms"),
        &both(|side| side.write),
    );
    let published =
        of_policies.iter().filter_map(|pair| Some(Point::new(pair.name.clone(), published_ms(&pair.name)?)));
    plots[0].series.push(Series { name: "published".to_owned(), points: published.collect() });
    plots.extend(real_ext4::plots(
        "TRIMs of the removed file, from the commit to the last acknowledgement",
        PlotKind::Bars,
        &x,
        &Axis::linear("queue_ms", "time until all TRIMs are acknowledged", "ms"),
        &both(|side| side.issue.time),
    ));
    TABLE_2.judge_on(kernel, &figures, Rows::of(&plots), 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invents the table: the writes after an fsync, in µs, of a kernel whose queue drains in `drain_us`.
    fn met(writes_us: [u64; 3], drain_us: u64, model_percent: u64) -> Vec<String> {
        let side = |us: u64, percent: u64| Side {
            write: SimDuration::from_micros(us * percent / 100),
            issue: Issue { commands: 1, time: SimDuration::from_micros(drain_us) },
        };
        let runs = POLICIES.iter().zip(writes_us).flat_map(|(policy, us)| {
            FSYNC.map(|fsync| WritePair {
                policy: (*policy).to_owned(),
                fsync,
                kernel: side(us, 100),
                model: side(us, if fsync { 100 } else { model_percent }),
            })
        });
        let result = evaluate(RealKernel::invented(), &runs.collect::<Vec<_>>(), 1);
        result.claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    #[test]
    fn claims_are_judged_on_the_kernel_and_the_model_by_how_near_it_is() {
        let near = ["commit", "lazy", "lazy+reuse"].map(|policy| format!("lazy-table2-model-{policy}"));
        let all = [&["lazy-table2-lazy".to_owned(), "lazy-table2-reuse".to_owned()], &near[..]].concat();
        assert_eq!(met([2_000, 840_000, 2_100], 840_000, 90), all);
        assert_eq!(met([2_000, 840_000, 2_100], 840_000, 120), all[..2]);
        assert_eq!(met([2_000, 840_000, 4_100], 840_000, 120), all[..1], "reuse waits too");
        assert_eq!(met([2_000, 2_000, 2_000], 840_000, 100), all[1..], "lazy waits for nothing");
    }
}
