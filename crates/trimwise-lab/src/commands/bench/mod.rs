//! `trimwise bench`: device tests, one after another, on a model or on a real device.

pub mod arguments;
pub mod map;
pub mod report;
pub mod table;

use crate::requests::bench::{self, gate::BenchGate};
use trimwise::failure::{Failure, Mistake, key};
use trimwise::words;
use trimwise_study::caller::Caller;

use crate::commands::bench::arguments::BenchArguments;
use trimwise_cli::gate::{self, GateArguments};
use trimwise_cli::output::{self, Destinations};
use trimwise_study::gate::Gated;

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
    let request = arguments.request();
    let GateArguments { fail_if, baseline } = &arguments.gate;
    let gate = BenchGate::open(fail_if, baseline.as_deref(), &request)?;
    deliver(&destinations, &gate, &bench::run(&request, caller)?)
}

fn deliver(
    destinations: &Destinations,
    gate: &BenchGate<'_>,
    report: &BenchReport,
) -> Result<String, Failure> {
    let judged = gate.judge(report);
    let html = || report::html(report);
    let answer = Gated { answer: report, judged: &judged };
    let text = || table::render(report) + &gate::text(&judged);
    let text = destinations.deliver_with_report(&answer, html, text)?;
    output::concluded(text, report.failure().or(gate::failure(&judged)))
}

#[cfg(test)]
pub mod tests;
