//! `trimwise compare`: turns arguments into a request, and prints the comparison as text, JSON or HTML.

pub mod arguments;
mod charts;
pub(in crate::commands) mod report;
pub(crate) mod table;
#[cfg(test)]
pub mod tests;

use trimwise::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::compare::{self, CompareRequest, Comparison};
use trimwise_study::defaults;
use trimwise_study::gate::{CompareGate, Gated};
use trimwise_study::given::Given;

use crate::commands::compare::arguments::CompareArguments;
use crate::gate::{self, GateArguments};
use crate::laboratory::Beside;
use crate::output::{self, Destinations};

pub fn run(arguments: &CompareArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let request = arguments.request();
    let destinations = Destinations::check(&arguments.output)?;
    let GateArguments { fail_if, baseline } = &*arguments.gate;
    let gate = CompareGate::open(fail_if, baseline.as_deref(), &request)?;
    deliver(arguments, &destinations, &gate, compare::run(&request, caller, &Beside)?)
}

impl CompareArguments {
    /// The devices, each once with each thin storage.
    fn devices(&self) -> Vec<String> {
        if self.thin.is_empty() {
            return self.devices.clone();
        }
        let devices = compare::or(&self.devices, [defaults::DEVICE]);
        devices
            .iter()
            .flat_map(|device| self.thin.iter().map(move |thin| format!("{device}+{thin}")))
            .collect()
    }

    pub fn request(&self) -> CompareRequest {
        CompareRequest {
            workload: self.workload.clone().unwrap_or_default(),
            devices: self.devices(),
            here: self.here.clone(),
            full_size: self.full_size,
            policies: self.policies.clone(),
            target: self.target.clone(),
            fs: self.fs,
            check: self.check.clone(),
            fill: self.fill,
            utilization: self.utilization.map(Given::of),
            linux: self.linux.clone(),
            memory: self.memory,
            judge: self.judge,
            postmark: self.postmark,
            reps: self.reps,
            budget_min: None,
            seed: self.seed,
            days: self.days,
            day: self.day.clone(),
            limits: self.limits.request(),
            jobs: self.output.jobs,
        }
    }
}

fn deliver(
    arguments: &CompareArguments,
    destinations: &Destinations,
    gate: &CompareGate,
    comparison: Comparison,
) -> Result<String, Failure> {
    let judged = gate.judge(&comparison);
    let text = || {
        let here = comparison.here.as_ref().filter(|_| arguments.details);
        let mut text = here.map_or_else(String::new, table::here);
        if arguments.postmark {
            for cell in &comparison.cells {
                text += &format!("{}, {}, repetition {}\n", cell.device, cell.policy, cell.rep + 1);
                text += &format!("{}\n", cell.postmark_report);
            }
        }
        text + &table::render(&comparison, arguments.details) + &gate::text(&judged)
    };
    let answer = Gated { answer: &comparison, judged: &judged };
    let text = destinations.deliver_with_report(&answer, || report::html(&comparison), text)?;
    output::concluded(text, comparison.ended_by.or(gate::failure(&judged)))
}
