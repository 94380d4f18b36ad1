//! `compare --check kernel:...`: runs the model, and then a real kernel to check it.

use trimwise::compare::result::{Cell, Target};
use trimwise::failure::{Failure, Mistake, set};
use trimwise::policy::Trimmer;
use trimwise::words;
use trimwise_linux::pool;
use trimwise_study::advise::{Compare, KERNEL, MODEL};
use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::compare::check::{Check, LeftOut};
use trimwise_study::compare::on_model::{self, Plan};
use trimwise_study::compare::{CompareRequest, Comparison, Grid, Ran, judge, ranges};
use trimwise_study::whole::{Kind, Whole};
use trimwise_uml::cell::{KernelPolicy, KernelTarget};
use trimwise_uml::images::KernelImage;

use super::on_kernel::Runs;
use crate::guests;

/// Returns the kernel that checks the model, after rejecting mount options that policies set themselves.
pub fn target(request: &CompareRequest) -> Result<Option<&KernelTarget>, Failure> {
    let target = request.checking()?;
    let of = |target| Mistake::of("check", Target::from(target));
    target.map_or(Ok(()), |target| {
        KernelPolicy::check_options(target).map_err(|why| of(target).because(why).fail())
    })?;
    Ok(target)
}

/// A check that has not run yet.
pub struct Planned<'a> {
    pub target: &'a KernelTarget,
    /// Those of the policies that the kernel has.
    pub policies: Vec<KernelPolicy>,
    left_out: Vec<LeftOut>,
    /// The kernel, or why it cannot be used.
    pub image: Result<KernelImage, String>,
}

impl<'a> Planned<'a> {
    /// Sorts the policies and finds the kernel. A missing kernel is reported right away, and the model runs without it.
    pub fn of<'p>(
        target: &'a KernelTarget,
        policies: impl Iterator<Item = &'p Trimmer>,
    ) -> Result<Self, Failure> {
        let (mut checked, mut left_out) = (Vec::new(), Vec::new());
        for policy in policies {
            match KernelPolicy::of(*policy, target) {
                Ok(own) => checked.push(own),
                Err(reason) => {
                    left_out.push(LeftOut { policy: (*policy).into(), reason: reason.to_string() });
                }
            }
        }
        if checked.is_empty() {
            let expected =
                words!["at least one ", set("policies", format!("of {}", KernelPolicy::forms(target)))];
            let of = Mistake::of("check", Target::from(target));
            return Err(of.because("this kernel has none of these policies").expected(expected).fail());
        }
        let image = guests::image(target).map_err(|failure| failure.to_string());
        Ok(Self { target, policies: checked, left_out, image })
    }

    /// Returns the runs; `None` without a kernel.
    fn runs<'b>(&'b self, request: &CompareRequest, plan: &'b Plan) -> Option<Runs<'b>> {
        let of = |image| Runs::of(plan, request, (self.target, image), (&self.policies, plan.seed));
        self.image.as_ref().ok().map(of)
    }

    /// Returns the number of runs, and how long they may take.
    fn kind(&self, request: &CompareRequest, plan: &Plan) -> Kind {
        self.runs(request, plan).map_or(Kind::of(0, 1), |runs| runs.kind())
    }

    /// Completes the check with the cells from the kernel. Without a kernel there are none.
    pub fn found(self, cells: Vec<Cell>) -> Result<Check, Failure> {
        let (kernel, not_run) = match self.image {
            Ok(image) => (Some(guests::real_kernel(&image, self.target)?), None),
            Err(reason) => (None, Some(reason)),
        };
        Ok(Check {
            target: self.target.into(),
            kernel,
            cells,
            summary: Vec::new(),
            left_out: self.left_out,
            compared: Vec::new(),
            contradictions: Vec::new(),
            not_run,
        })
    }
}

/// Runs every cell in the model, and then the check.
pub fn run(request: &CompareRequest, plan: Plan, caller: &dyn Caller) -> Result<Comparison, Failure> {
    let Some(target) = target(request)? else { return on_model::run(request, plan, caller) };
    let check = Planned::of(target, plan.policies.iter())?;
    check.runs(request, &plan).map_or(Ok(()), |runs| runs.check())?;
    if let Err(reason) = &check.image {
        caller.note(&format!("--check kernel:{target} is skipped: {reason}"));
    }
    plan.workload.tell_notes(caller);
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let grid = Grid { devices: &plan.devices, policies: &plan.policies, reps: request.reps };
    let at_ends = plan.devices.iter().map(|(_, device)| ranges::runs_max(request, device)).sum::<usize>();
    let runs = grid.pairs().count() * request.reps as usize + at_ends;
    let model = Kind::of(runs, grid.jobs(request.jobs, pool::memory_of_run));
    let whole = Whole::of(caller, &stop, "runs", &[model, check.kind(request, &plan)]);
    checked(request, &plan, &[], check, &whole)
}

/// Runs every cell in the model that is not known, and then the check.
fn checked(
    request: &CompareRequest,
    plan: &Plan,
    known: &[Cell],
    check: Planned,
    whole: &Whole,
) -> Result<Comparison, Failure> {
    let mut comparison = on_model::compared(request, plan, known, (&whole.part(MODEL), whole.stop()))?;
    if comparison.partial {
        return Ok(comparison);
    }
    let ran = check.runs(request, plan).map_or_else(Ran::default, |runs| runs.cells(whole, KERNEL));
    let (mut cells, failure) = ran;
    judge(request, &mut cells)?;
    (comparison.partial, comparison.ended_by) = (failure.is_some(), failure);
    comparison.add_check(check.found(cells)?);
    Ok(comparison)
}

/// The check of an advice.
pub struct Checked<'a>(pub &'a KernelTarget);

impl Compare for Checked<'_> {
    fn kind(&self, request: &CompareRequest, plan: &Plan, of: &[Trimmer]) -> Result<Kind, Failure> {
        match of.iter().any(|policy| KernelPolicy::of(*policy, self.0).is_ok()) {
            true => Ok(Planned::of(self.0, of.iter())?.kind(request, plan)),
            false => Ok(Kind::of(0, 1)),
        }
    }

    fn compare(
        &self,
        request: &CompareRequest,
        plan: &Plan,
        known: &[Cell],
        whole: &Whole,
    ) -> Result<Comparison, Failure> {
        checked(request, plan, known, Planned::of(self.0, plan.policies.iter())?, whole)
    }
}
