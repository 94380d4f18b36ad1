//! `trimwise bench`: device tests, one after another, on a model or on a real device.

pub mod arguments;
pub mod map;
pub mod report;
pub mod table;

use crate::requests::bench;
use trimwise::failure::{Failure, Mistake, key};
use trimwise::words;
use trimwise_study::caller::Caller;

use crate::commands::bench::arguments::BenchArguments;
use trimwise_cli::output::{self, Destinations};

pub use crate::requests::bench::BenchReport;

pub fn run(arguments: &BenchArguments, caller: &dyn Caller) -> Result<String, Failure> {
    if arguments.map {
        return map::run(arguments, caller);
    }
    // clap does not report a missing requirement if what is required conflicts with a given argument.
    if arguments.point.is_some() {
        let why = words!["needs ", key("map"), ", which takes the place of tests"];
        return Err(Mistake::on("point_s").that_is(why).fail());
    }
    let destinations = Destinations::check(&arguments.output())?;
    deliver(&destinations, &bench::run(&arguments.request(), caller)?)
}

fn deliver(destinations: &Destinations, report: &BenchReport) -> Result<String, Failure> {
    let html = || report::html(report);
    let text = destinations.deliver_with_report(report, html, || table::render(report))?;
    output::concluded(text, report.failure())
}

#[cfg(test)]
pub mod tests;
