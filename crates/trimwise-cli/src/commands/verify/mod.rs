//! `trimwise verify`: whether a drive honours TRIM, and whether TRIM gives its speed back.

pub mod arguments;
pub mod table;

use trimwise::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::gate::{Gated, Judged};
use trimwise_study::verify::{self, Verified, VerifyGate};

use crate::commands::verify::arguments::VerifyArguments;
use crate::gate::{self, GateArguments};
use crate::output::{self, Destinations};

/// Runs the command; exit code 1 reports a drive that handles TRIM wrongly.
pub fn run(arguments: &VerifyArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    let request = arguments.request();
    let GateArguments { fail_if, baseline } = &arguments.gate;
    let gate = VerifyGate::open(fail_if, baseline.as_deref(), &request)?;
    let verified = verify::run(&request, caller)?;
    let judged = match &verified {
        Verified::Drive(report) => gate.judge(report),
        Verified::Directory(_) => Judged::default(),
    };
    let answer = Gated { answer: &verified, judged: &judged };
    let text = destinations.deliver(&answer, || match &verified {
        Verified::Drive(report) => table::render(report) + &gate::text(&judged),
        Verified::Directory(report) => table::render_directory(report),
    })?;
    output::concluded(text, verified.failure().or(gate::failure(&judged)))
}

#[cfg(test)]
mod tests;
