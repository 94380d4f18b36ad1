//! `set-1a` on a real ext4.

use trimwise_uml::cell::{KernelPolicy, KernelTarget};
use trimwise_uml::job::Step;

use super::ONE_A;
use super::Run;
use super::on_kernel::{self, MEMORY_OF_RUN, Sides, adjust, postmark, run_of};
use super::one_a::{self, FURTHER, TIME, UTILIZATION, UTILIZATIONS, figures, places};
use crate::experiment::Request;
use crate::experiment::grid::{Grid, both};
use crate::experiment::real_ext4::{self, Policy, RealExt4, chosen, mkfs};
use crate::experiment::result::ExperimentResult;
use crate::guests::RealKernel;
use crate::plot::{Plot, PlotKind};
use trimwise::failure::Failure;
use trimwise::units::Utilization;

const POLICIES: [&str; 2] = ["off", "commit"];

/// Utilizations that run by default: enough for every claim.
const SAMPLE: [Utilization; 5] = Utilization::all([40, 50, 80, 90, 100]);

/// Rejects unknown utilizations, and kernels that this computer does not have.
pub(super) fn check(only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
    let Some(target) = target else { return real_ext4::whole_in_model(only) };
    choice(only, false)?;
    on_kernel::ext4(target, false).map(drop)
}

fn choice(only: &[String], full: bool) -> Result<Vec<Utilization>, Failure> {
    if only.is_empty() && !full {
        return Ok(SAMPLE.to_vec());
    }
    chosen(&UTILIZATIONS, ToString::to_string, only, "a utilization in percent")
}

type Both = [Run; 2];

/// Runs PostMark under both policies at each utilization, on the kernel and in the model.
pub(super) fn run(request: &Request, target: &KernelTarget) -> Result<ExperimentResult, Failure> {
    let utilizations = choice(&request.only, request.full)?;
    let sides = on_kernel::age_both(request, target)?;
    let policies = RealExt4::policies_of(target, &POLICIES);
    let steps = policies.len() as u32;
    let runs = request.spread_in(MEMORY_OF_RUN, utilizations.len(), steps, |i, step| {
        run_at(request, &sides, &policies, utilizations[i], step)
    })?;
    let of_sides = [0, 1].map(|side| {
        let names = policies.iter().map(|policy| policy.name.clone());
        Grid::new(names, places(&utilizations), |policy, at| vec![runs[at][policy][side].clone()])
    });
    Ok(on_kernel::with_size(evaluate(sides.ext4.named()?, &of_sides, request.seed), request.full))
}

fn run_at(
    request: &Request,
    sides: &Sides,
    policies: &[Policy],
    utilization: Utilization,
    after_each: &dyn Fn(),
) -> Result<Vec<Both>, Failure> {
    let Sides { ext4, setting, kernel, model } = sides;
    let specs: Vec<_> = policies.iter().map(|policy| policy.model).collect();
    let modelled =
        one_a::run(setting, model, &specs, utilization, 0, request.seed, &|| ()).map_err(Failure::run)?;
    // Trim, and make a new file system with an mkfs that does not trim.
    let prepare = vec![
        ext4.mount(KernelPolicy::Off),
        adjust(utilization, request.seed ^ utilization.percent()),
        Step::Fitrim { minlen_bytes: 0 },
        Step::Unmount,
        mkfs(),
    ];
    let prepared = ext4.run(request, kernel.another(false)?, prepare)?;
    let mut runs = Vec::new();
    for (policy, model) in policies.iter().zip(modelled) {
        let mut steps = vec![ext4.mount(policy.kernel), Step::WriteZeros];
        steps.extend(postmark(setting, 0));
        let last = steps.len() - 1;
        let ran = ext4.run(request, prepared.another(false)?, steps)?;
        runs.push([run_of(&ran, last)?, model]);
        after_each();
    }
    Ok(runs)
}

fn evaluate(kernel: RealKernel, sides: &[Grid<Run>; 2], seed: u64) -> ExperimentResult {
    let mut figures = figures(&sides[0]);
    for (side, prefix) in sides.iter().zip(["kernel.", "model."]) {
        side.name(&mut figures, prefix, TIME.of);
    }
    let shown = std::iter::once(&TIME).chain(&FURTHER[..3]);
    let plots: Vec<Plot> =
        shown.flat_map(|shown| both(sides, PlotKind::Lines, &UTILIZATION, shown)).collect();
    ONE_A.judge_on(kernel, &figures, &plots, 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invents times of `off` and `commit` at the sample's utilizations; the model takes `model_percent` of them.
    fn met(off: [f64; 5], commit: [f64; 5], model_percent: f64) -> Vec<String> {
        let sides = [100.0, model_percent].map(|percent| {
            Grid::new(POLICIES, places(&SAMPLE), |policy, at| {
                vec![Run { total_s: [off, commit][policy][at] * percent / 100.0, ..Run::default() }]
            })
        });
        let result = evaluate(crate::guests::invented_kernel(), &sides, 1);
        result.claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    #[test]
    fn a_sample_tries_every_claim_on_the_kernel() {
        let (off, commit) = ([330.0, 350.0, 530.0, 660.0, 980.0], [490.0, 500.0, 600.0, 660.0, 800.0]);
        let all = ["set-1a-low", "set-1a-slope", "set-1a-gain", "set-1a-model-off", "set-1a-model-commit"];
        assert_eq!(met(off, commit, 90.0), all);
        assert_eq!(met(off, commit, 120.0), all[..3], "the model is far");
        assert_eq!(met(off, [300.0, 310.0, 400.0, 450.0, 600.0], 100.0), all[1..], "TRIM costs nothing");
        assert_eq!(met(off, [490.0; 5], 120.0), all[..1], "flat");
    }

    #[test]
    fn parts_are_utilizations_and_only_of_the_kernel() {
        assert_eq!(
            choice(&["95".to_owned(), "10".to_owned()], false).ok(),
            Some(Utilization::all([10, 95]).to_vec())
        );
        assert!(
            matches!(choice(&["15".to_owned()], true), Err(Failure::Usage(m)) if m.to_string().contains("10, 20"))
        );
        assert!(check(&["95".to_owned()], None).is_err() && check(&[], None).is_ok());
    }
}
