//! `advise` with real kernels.

pub mod on_kernel;

use trimwise::failure::Failure;
use trimwise_study::advise::{Advice, Unchecked, in_model};
use trimwise_study::caller::Caller;
use trimwise_study::compare::CompareRequest;
use trimwise_study::compare::here::StandIn;
use trimwise_study::compare::workload::Workload;

use crate::guests;

use super::compare::{check, file_system, on_chosen};

/// Gives advice on the kernel that the request's file system, or its check, needs.
pub fn run(request: &CompareRequest, caller: &dyn Caller) -> Result<Advice, Failure> {
    let checking = check::target(request)?;
    let workload = Workload::of(request)?;
    let mut found = StandIn::of(request, &workload)?;
    let Some(target) = file_system::target(request, &workload, found.as_mut(), caller)? else {
        let Some(checking) = checking else { return in_model(request, found.as_ref(), caller, &Unchecked) };
        // Without a kernel the model runs alone, which is told before it does.
        if let Err(failure) = guests::image(checking) {
            caller.note(&format!("--check kernel:{checking} is skipped: {failure}"));
        }
        return in_model(request, found.as_ref(), caller, &check::Checked(checking));
    };
    let chosen = on_chosen(request, &target, found.as_ref());
    on_kernel::run(&chosen, &target, (workload, found), (caller, request))
}
