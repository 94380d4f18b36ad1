//! `trimwise verify`: whether a drive honours TRIM, and whether TRIM gives its speed back.

pub mod arguments;
pub mod table;

use trimwise::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::verify::{self, Verified};

use crate::commands::verify::arguments::VerifyArguments;
use crate::output::{self, Destinations};

/// Runs the command; exit code 1 reports a drive that handles TRIM wrongly.
pub fn run(arguments: &VerifyArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let verified = verify::run(&arguments.request(), caller)?;
    let text = destinations.deliver(&verified, || match &verified {
        Verified::Drive(report) => table::render(report),
        Verified::Directory(report) => table::render_directory(report),
    })?;
    output::concluded(text, verified.failure())
}

#[cfg(test)]
mod tests;
