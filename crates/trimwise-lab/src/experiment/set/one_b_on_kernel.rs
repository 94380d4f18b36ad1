//! `set-1b` on a real ext4.

use trimwise_uml::cell::KernelTarget;
use trimwise_uml::job::Step;

use super::ONE_B;
use super::on_kernel::{self, MEMORY_OF_RUN, Sides, adjust, postmark, run_of};
use super::one_b::{
    self, Measured, POLICY, POSTMARK, PUBLISHED, Stage, TIMES, TRIM, UTILIZATIONS, WHOLE, WRITES,
};
use crate::experiment::Request;
use crate::experiment::grid::both;
use crate::experiment::real_ext4::{self, Policy, RealExt4, chosen};
use crate::experiment::result::ExperimentResult;
use crate::guests::RealKernel;
use crate::plot::PlotKind;
use trimwise::failure::Failure;

/// Rejects policies that a kernel does not have, and kernels that this computer does not have.
pub(super) fn check(only: &[String], target: Option<&KernelTarget>) -> Result<(), Failure> {
    let Some(target) = target else { return real_ext4::whole_in_model(only) };
    choice(only, target)?;
    on_kernel::ext4(target, false).map(drop)
}

fn choice(only: &[String], target: &KernelTarget) -> Result<Vec<Policy>, Failure> {
    let all = RealExt4::policies_of(target, &PUBLISHED);
    chosen(&all, |policy| policy.name.clone(), only, "a policy of the figure that the kernel has")
}

/// All stages of a policy on the kernel, and in the model.
type Both = [Vec<Stage>; 2];

/// Takes the aged file system through all utilizations under each policy, on the kernel and in the model.
pub(super) fn run(request: &Request, target: &KernelTarget) -> Result<ExperimentResult, Failure> {
    let policies = choice(&request.only, target)?;
    let sides = on_kernel::age_both(request, target)?;
    let runs = request.spread_in(MEMORY_OF_RUN, policies.len(), 1, |i, step| {
        run_policy(request, &sides, &policies[i]).inspect(|_| step())
    })?;
    let names: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
    Ok(on_kernel::with_size(evaluate(sides.ext4.named()?, &names, &runs, request.seed), request.full))
}

fn run_policy(request: &Request, sides: &Sides, policy: &Policy) -> Result<Both, Failure> {
    let Sides { ext4, setting, kernel, model } = sides;
    let modelled = one_b::run(setting, model, policy.model, 0, request.seed).map_err(Failure::run)?;
    let mut steps = vec![ext4.mount(policy.kernel), Step::WriteZeros];
    let mut stages = Vec::new();
    for (stage, percent) in UTILIZATIONS.into_iter().enumerate() {
        // Each step draws different files.
        steps.push(adjust(percent, request.seed.wrapping_add((stage as u64) << 48)));
        let adjusting = steps.len() - 1;
        steps.extend(postmark(setting, 0));
        stages.push((adjusting, steps.len() - 1));
    }
    let ran = ext4.run(request, kernel.another(false)?, steps)?;
    let stage = |&(adjusting, postmark): &(usize, usize)| {
        let adjusting_s = ran.duration_ns(adjusting) as f64 / 1e9;
        Ok(Stage { adjusting_s, run: run_of(&ran, postmark)? })
    };
    Ok([stages.iter().map(stage).collect::<Result<_, Failure>>()?, modelled])
}

fn evaluate(kernel: RealKernel, policies: &[String], runs: &[Both], seed: u64) -> ExperimentResult {
    let sides = [0, 1].map(|side| Measured {
        policies: policies.to_vec(),
        runs: runs.iter().map(|both| vec![both[side].clone()]).collect(),
    });
    let (sums, stages) =
        (sides.each_ref().map(|side| side.sums(&TIMES)), sides.each_ref().map(Measured::stages));
    let by_stage = |shown| both(&stages, PlotKind::Bars, &POLICY, shown);
    let whole = both(&sums, PlotKind::Bars, &POLICY, &WHOLE);
    let plots = [whole, by_stage(&POSTMARK), by_stage(&WRITES), by_stage(&TRIM)];
    let mut figures = sides[0].figures();
    for (side, prefix) in sides.iter().zip(["kernel", "model"]) {
        for policy in policies {
            figures.set(format!("{prefix}.{policy}"), side.postmark_s(policy));
        }
    }
    ONE_B.judge_on(kernel, &figures, &plots.concat(), 1, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::set::Run;

    /// Invents totals of the published policies, in their order; the model takes `model_percent` of them.
    fn met(totals: [f64; 8], model_percent: f64) -> Vec<String> {
        let stages = |total: f64| {
            let run = Run { total_s: total / 4.0, ..Run::default() };
            vec![Stage { adjusting_s: 1.0, run }; UTILIZATIONS.len()]
        };
        let runs = totals.map(|total| [stages(total), stages(total * model_percent / 100.0)]);
        let policies = PUBLISHED.map(str::to_owned);
        let result = evaluate(crate::guests::invented_kernel(), &policies, &runs, 1);
        result.claims.into_iter().filter(|claim| claim.met).map(|claim| claim.id).collect()
    }

    #[test]
    fn claims_are_judged_on_the_kernel_and_the_model_by_how_near_it_is() {
        let totals = [900.0, 500.0, 500.0, 510.0, 510.0, 550.0, 600.0, 700.0];
        let papers = ["set-1b-on-beats-off", "set-1b-set-beats-on", "set-1b-high-watermark"];
        assert_eq!(met(totals, 120.0), papers);
        assert_eq!(met(totals, 110.0).len(), papers.len() + PUBLISHED.len());
        assert_eq!(met([600.0, 500.0, 500.0, 510.0, 510.0, 550.0, 590.0, 700.0], 120.0), papers[1..]);
    }
}
