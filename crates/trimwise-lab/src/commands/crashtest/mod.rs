//! `trimwise crashtest`: cuts the power under a policy or on a real kernel, and reports what that breaks.

pub mod arguments;
pub mod table;

use crate::requests::crashtest::{self, on_kernel, soak};
use trimwise::failure::{Failure, key};
use trimwise::words;
use trimwise_study::caller::Caller;

use crate::commands::crashtest::arguments::CrashtestArguments;
use trimwise_cli::output::{self, Destinations};
use trimwise_study::guest_limits::GuestLimits;

/// Runs the command; a violation is a failure of the run (exit code 1).
pub fn run(arguments: &CrashtestArguments, caller: &dyn Caller) -> Result<String, Failure> {
    if arguments.target.is_none() && arguments.limits.are_given() {
        return Err(GuestLimits::only_for_guests(words!["them with ", key("target")]));
    }
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    let (text, failure) = if let Some(request) = arguments.soak_request() {
        let tests = soak::run(&request, caller)?;
        (destinations.deliver(&tests, || table::of_soak(&tests))?, tests.failure())
    } else if let Some(request) = arguments.kernel_request() {
        let tests = on_kernel::run(&request, caller)?;
        (destinations.deliver(&tests, || table::of_kernel(&tests))?, tests.failure())
    } else {
        let tests = crashtest::run(&arguments.request(), caller)?;
        (destinations.deliver(&tests, || table::render(&tests))?, tests.failure())
    };
    output::concluded(text, failure)
}
