//! `trimwise fit`: writes a profile of a drive from a short bench.

pub mod arguments;
pub mod table;

use crate::requests::fit;
use trimwise::failure::Failure;
use trimwise_study::caller::Caller;

use crate::commands::fit::arguments::FitArguments;
use trimwise_cli::output::Destinations;

pub fn run(arguments: &FitArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    if let Some(out) = &arguments.out {
        destinations.check_another("out", out)?;
    }
    let report = fit::run(&arguments.request(), caller)?;
    if let Some(out) = &arguments.out {
        destinations.write_result("--out", out, &report.profile_toml)?;
    }
    destinations.deliver(&report, || table::render(&report))
}

#[cfg(test)]
mod tests;
