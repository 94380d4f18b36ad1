//! `compare` with real kernels.

mod aged;
pub mod check;
pub mod file_system;
pub mod on_kernel;
pub mod unfinished;
pub mod workload;

#[cfg(test)]
mod tests;

use trimwise::failure::Failure;
use trimwise::units::Utilization;
use trimwise_study::caller::Caller;
use trimwise_study::compare::here::StandIn;
use trimwise_study::compare::target::RunOn;
use trimwise_study::compare::workload::Workload;
use trimwise_study::compare::{CompareRequest, Comparison, file_system::on_model, on_model};
use trimwise_study::given::Given;
use trimwise_uml::cell::KernelTarget;

/// Runs a comparison on the kernel that the request names, or that its file system or its check needs.
pub fn run(request: &CompareRequest, caller: &dyn Caller) -> Result<Comparison, Failure> {
    let workload = Workload::of(request)?;
    let mut found = StandIn::of(request, &workload)?;
    let target = match request.target()? {
        RunOn::Kernel(target) => Some(target.clone()),
        _ => file_system::target(request, &workload, found.as_mut(), caller)?,
    };
    let Some(target) = target else {
        let request = on_model(request, found.as_ref());
        return check::run(&request, on_model::Plan::on(&request, workload, found)?, caller);
    };
    let request = on_chosen(request, &target, found.as_ref());
    on_kernel::run(&request, &target, (workload, found), caller)
}

/// Returns the request as adapted to the chosen kernel.
pub fn on_chosen(request: &CompareRequest, target: &KernelTarget, found: Option<&StandIn>) -> CompareRequest {
    let mut request = request.clone();
    if let Some(found) = found {
        request.utilization.get_or_insert_with(|| Given::of(found.utilization()));
    }
    if !request.is_elsewhere() {
        // As the model would: on an aged file system. The version has already chosen the kernel.
        request.utilization.get_or_insert_with(|| Given::of(Utilization::default()));
        (request.fs, request.linux) = (None, None);
    }
    request.target = Given::of(RunOn::Kernel(target.clone()));
    request
}
