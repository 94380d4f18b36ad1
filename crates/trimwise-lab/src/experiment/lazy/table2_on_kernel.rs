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

use super::TABLE_2;
use super::on_kernel::{DRAIN, GUEST_MEMORY, MEMORY_OF_RUN, issued};
use super::table2::{FILE, FSYNC, FSYNC_NAMES, POLICY, QUEUE, WRITE, figures, published, run_write};
use super::{DEVICE, Run, device};
use crate::experiment::Request;
use crate::experiment::grid::{Grid, both};
use crate::experiment::real_ext4::{self, Policy, RealExt4, chosen, mkfs};
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran, RealKernel};
use crate::plot::{Place, PlotKind};
use trimwise::failure::Failure;

const POLICIES: [&str; 3] = ["commit", "lazy", "lazy+reuse"];

/// Reading this file makes ext4 load the bitmaps of all groups, as they are in memory right after a file system is
/// filled.
const GROUPS: &str = "/proc/fs/ext4/*/mb_groups";

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

/// Runs each policy of the kernel, with and without the fsync, on the kernel and in the model.
pub(super) fn run(request: &Request, target: &KernelTarget) -> Result<ExperimentResult, Failure> {
    let ext4 = RealExt4::new(target, GUEST_MEMORY)?;
    let policies = choice(&request.only, target)?;
    let device = Profile::embedded(DEVICE).expect("the device is built in");
    let fill =
        vec![mkfs(), ext4.mount(KernelPolicy::Off), Step::WriteZeros, timed(true, Part::Prepare, request)];
    let full = ext4.run(request, new_disk(&device, request.seed, false).map_err(guests::failure)?, fill)?;
    let cases: Vec<(&Policy, bool)> =
        FSYNC.into_iter().flat_map(|fsync| policies.iter().map(move |policy| (policy, fsync))).collect();
    // The copies of the drive and of its data come on top.
    let runs = request
        .boot(MEMORY_OF_RUN, &cases, |(policy, fsync)| run_case(request, &ext4, &full, policy, fsync))?;
    let sides = [0, 1].map(|side| {
        let places = policies.iter().map(|policy| policy.name.clone());
        Grid::new(FSYNC_NAMES, places, |fsync, policy| vec![runs[fsync * policies.len() + policy][side]])
    });
    Ok(evaluate(ext4.named()?, &sides, request.seed))
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
) -> Result<[Run; 2], Failure> {
    let steps = vec![
        ext4.mount(policy.kernel),
        Step::Read { path: GROUPS.to_owned() },
        Step::Sleep { ns: commit_phase(0).as_nanos() },
        timed(fsync, Part::Measure, request),
        Step::Sleep { ns: DRAIN.as_nanos() },
    ];
    let [measure, drain] = [3, 4];
    let ran = ext4.run(request, full.another(true)?, steps)?;
    let took = ran.workload(measure, |figures| match figures {
        WorkloadFigures::FullWrite(figures) => Some(SimDuration(figures.write_ns)),
        _ => None,
    })?;
    let issue = issued(&ran, measure, drain, policy, FILE)?;
    let model =
        run_write(ext4.host, &device(), policy.model, fsync, 0, request.seed).map_err(Failure::run)?;
    Ok([Run { took, issue }, model])
}

fn evaluate(kernel: RealKernel, sides: &[Grid<Run>; 2], seed: u64) -> ExperimentResult {
    let mut figures = figures(&sides[0]);
    for (side, prefix) in sides.iter().zip(["kernel", "model"]) {
        for place in side.places() {
            let Place::In(policy) = place else { continue };
            let writes = FSYNC_NAMES.iter().filter_map(|fsync| side.median(fsync, place, WRITE.of));
            figures.set(format!("{prefix}.{policy}"), writes);
        }
    }
    let mut plots = [&WRITE, &QUEUE].map(|shown| both(sides, PlotKind::Bars, &POLICY, shown));
    plots[0][0].series.push(published(&sides[0]));
    TABLE_2.judge_on(kernel, &figures, &plots.concat(), 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::lazy::Issue;

    /// Invents the table: the writes after an fsync, in µs, of a kernel whose queue drains in `drain_us`.
    fn met(writes_us: [u64; 3], drain_us: u64, model_percent: u64) -> Vec<String> {
        let sides = [100, model_percent].map(|percent| {
            Grid::new(FSYNC_NAMES, POLICIES.map(str::to_owned), |fsync, policy| {
                let percent = if FSYNC[fsync] { 100 } else { percent };
                let took = SimDuration::from_micros(writes_us[policy] * percent / 100);
                let issue = Issue { commands: 1, time: SimDuration::from_micros(drain_us) };
                vec![Run { took, issue }]
            })
        });
        let result = evaluate(guests::invented_kernel(), &sides, 1);
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
