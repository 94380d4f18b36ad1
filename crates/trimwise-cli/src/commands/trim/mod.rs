//! `trimwise trim`: trims a mounted file system, or shows what would be sent.

pub mod arguments;
pub mod now;
pub mod table;

use trimwise::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::trim;

use crate::commands::trim::arguments::TrimArguments;
use crate::output::{self, Destinations};

pub fn run(arguments: &TrimArguments, caller: &dyn Caller) -> Result<String, Failure> {
    if arguments.now {
        return now::run(arguments, caller);
    }
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    let report = trim::run(&arguments.request(), caller)?;
    let text = destinations.deliver(&report, || table::render(&report))?;
    output::concluded(text, report.failure)
}
