//! Figure 3 on file systems that have no model: XFS, btrfs and f2fs, with and without their own discards. It includes
//! the data of figure 4, without claims.

use trimwise::profile::Profile;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::fragmenting::Fragmenting;
use trimwise_uml::cell::{KernelPolicy, KernelTarget, new_disk};
use trimwise_uml::images::KernelImage;
use trimwise_uml::job::{FileSystem, Step};

use super::FIGURE_3;
use super::on_kernel::{self, GUEST_MEMORY, MEMORY_OF_RUN, TIMED, choice, timing, took};
use super::sizes::{APPEND, COMMANDS, FSYNC, ISSUE};
use super::{DEVICE, Run};
use crate::experiment::Request;
use crate::experiment::grid::Grid;
use crate::experiment::real_ext4;
use crate::experiment::result::ExperimentResult;
use crate::guests::{self, Ran, RealKernel};
use crate::plot::PlotKind;
use trimwise::failure::Failure;

/// Time to wait for discards. XFS frees the file when its log is next forced, after up to 30 s, and btrfs lets it rest
/// for 120 s under `discard=async`.
const DRAIN: SimDuration = SimDuration::from_secs(300);

/// Returns true if a target is a file system of this module.
pub(super) fn is_other(target: &KernelTarget) -> bool {
    target.file_system != FileSystem::Ext4
}

/// Rejects unknown append sizes, and kernels that this computer does not have.
pub(super) fn check(only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
    match target.filter(|target| is_other(target)) {
        None => on_kernel::check(only, target),
        Some(target) => {
            choice(only)?;
            guests::image(target).map(drop)
        }
    }
}

/// Runs each of the file system's ways of discarding at each append size.
pub(super) fn run(request: &Request, target: &KernelTarget) -> Result<ExperimentResult, Failure> {
    let (image, sizes) = (guests::image(target)?, choice(&request.only)?);
    let policies = KernelPolicy::all_of(target);
    let cases: Vec<(KernelPolicy, Bytes)> =
        policies.iter().flat_map(|policy| sizes.iter().map(move |size| (*policy, *size))).collect();
    let runs = request
        .boot(MEMORY_OF_RUN, &cases, |(policy, append)| run_case(request, &image, target, policy, append))?;
    let names = policies.iter().map(ToString::to_string);
    let places = sizes.iter().map(|size| (size.0 >> 10) as f64);
    let grid = Grid::new(names, places, |policy, size| vec![runs[policy * sizes.len() + size]]);
    Ok(evaluate(&grid, guests::real_kernel(&image, target)?, request.seed))
}

fn run_case(
    request: &Request,
    image: &KernelImage,
    target: &KernelTarget,
    policy: KernelPolicy,
    append: Bytes,
) -> Result<Run, Failure> {
    let file_system = target.file_system;
    let device = Profile::embedded(DEVICE).expect("the device is built in");
    let new_file_system = [
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options: policy.mount_options(target) },
    ];
    let steps = timing(new_file_system, Fragmenting::of_append(append), DRAIN, request.seed);
    let [measure, drain] = TIMED;
    let guest = guests::guest(image, GUEST_MEMORY, &request.bounds)?;
    let ran = Ran::on(&guest, new_disk(&device, request.seed, true).map_err(guests::failure)?, steps)?;
    Ok(Run { took: took(&ran)?, issue: real_ext4::issue(ran.requests(measure, drain)) })
}

fn evaluate(grid: &Grid<Run>, kernel: RealKernel, seed: u64) -> ExperimentResult {
    let mut figures = crate::experiment::claims::Figures::default();
    grid.name(&mut figures, &format!("{}.", kernel.file_system), FSYNC.of);
    let plots =
        [&FSYNC, &ISSUE, &COMMANDS].map(|shown| grid.plot(PlotKind::Lines, &APPEND, shown).without_empty());
    FIGURE_3.judge_on(kernel, &figures, &plots, 1, seed)
}

#[cfg(test)]
mod tests {
    use super::super::Issue;
    use super::*;

    #[test]
    fn claims_are_about_the_file_system_that_ran() {
        let met = |file_system: &str, discard_us: u64| {
            let grid = Grid::new(["off", "commit"], [64.0, 1024.0], |policy, _| {
                let took = SimDuration::from_micros(if policy == 0 { 1_000 } else { discard_us });
                vec![Run { took, issue: Issue::default() }]
            });
            let kernel = RealKernel { file_system: file_system.to_owned(), ..guests::invented_kernel() };
            let result = evaluate(&grid, kernel, 1);
            let on = format!("On the {file_system} of Linux 6.12.1");
            assert!(result.finding.starts_with(&on), "{}", result.finding);
            result.claims.into_iter().map(|claim| (claim.id, claim.met)).collect::<Vec<_>>()
        };
        assert_eq!(met("xfs", 1_050), [("lazy-3-xfs".to_owned(), true)]);
        assert_eq!(met("f2fs", 1_200), [("lazy-3-f2fs".to_owned(), false)]);
    }
}
