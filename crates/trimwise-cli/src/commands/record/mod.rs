//! `trimwise record`: records the block requests of a mount or a device as a trace.

pub mod arguments;
pub mod table;

use trimwise::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::record;

use crate::commands::record::arguments::RecordArguments;
use crate::output::{self, Destinations};

pub fn run(arguments: &RecordArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    destinations.check_another("out", &arguments.out)?;
    let report = record::run(&arguments.request(), caller)?;
    let text = destinations.deliver(&report, || table::render(&report))?;
    output::concluded(text, report.failure)
}
