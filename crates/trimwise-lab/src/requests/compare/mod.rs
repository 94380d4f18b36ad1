//! `compare` with real kernels.

mod aged;
pub mod check;
pub mod file_system;
pub mod on_kernel;
pub mod unfinished;
pub mod workload;

#[cfg(test)]
mod tests;

use trimwise::compare::result::Target;
use trimwise::failure::{Failure, Mistake};
use trimwise_study::caller::Caller;
use trimwise_study::compare::here::StandIn;
use trimwise_study::compare::workload::Workload;
use trimwise_study::compare::{CompareRequest, Comparison, file_system::on_model, on_model};
use trimwise_study::defaults;
use trimwise_uml::cell::KernelTarget;

/// Runs a comparison on the kernel that the request names, or that its file system or its check needs.
pub fn run(request: &CompareRequest, caller: &dyn Caller) -> Result<Comparison, Failure> {
    let workload = Workload::of(request)?;
    let mut found = StandIn::of(request, &workload)?;
    let target = match &request.target {
        Target::Model => file_system::target(request, &workload, found.as_mut(), caller)?,
        given => given.clone(),
    };
    let Target::Kernel(text) = &target else {
        let request = on_model(request, found.as_ref());
        return check::run(&request, planned(&request, workload, found)?, caller);
    };
    let (request, parsed) = on_chosen(request, text, found.as_ref())?;
    on_kernel::run(&request, &parsed, (workload, found), caller)
}

/// Makes a plan for the model, after checking that a kernel could run the target of `--check`.
pub(crate) fn planned(
    request: &CompareRequest,
    workload: Workload,
    found: Option<StandIn>,
) -> Result<on_model::Plan, Failure> {
    request.check.as_deref().map(check::parse).transpose()?;
    on_model::Plan::on(request, workload, found)
}

/// Returns the request as adapted to the chosen kernel, and that kernel with its file system.
pub fn on_chosen(
    request: &CompareRequest,
    target: &str,
    found: Option<&StandIn>,
) -> Result<(CompareRequest, KernelTarget), Failure> {
    let parsed = target
        .parse()
        .map_err(|e: String| Mistake::of("target", format!("kernel:{target}")).because(e).fail())?;
    let mut request = request.clone();
    if let Some(found) = found {
        request.utilization.get_or_insert(found.utilization_percent());
    }
    if request.target == Target::Model {
        // As the model would: on an aged file system. The version has already chosen the kernel.
        request.utilization.get_or_insert(defaults::UTILIZATION_PERCENT);
        (request.fs, request.linux) = (None, None);
    }
    request.target = Target::Kernel(target.to_owned());
    Ok((request, parsed))
}
