//! `trimwise advise`: prints the advice as text, JSON or HTML, and applies it.

pub mod arguments;
pub mod report;
#[cfg(test)]
pub mod tests;
mod text;

use trimwise::failure::Failure;
use trimwise_study::advise;
use trimwise_study::caller::Caller;
use trimwise_study::conclusion::Conclusion;

use crate::laboratory::Beside;
use crate::output::{self, Destinations};
use arguments::AdviseArguments;

pub fn run(arguments: &AdviseArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    let advice = advise::run(&arguments.request(), caller, &Beside)?;
    // The tables are in the details.
    let tables = &arguments.output.tables;
    let details = arguments.details || tables.csv.is_some() || tables.markdown.is_some();
    let text = || text::render(&advice, details);
    let text = destinations.deliver_with_report(&advice, || report::html(&advice), text)?;
    let applied = if arguments.apply { apply(&advice.conclusion, caller) } else { Ok(()) };
    output::concluded(text, advice.ended_by.or(applied.err()))
}

/// Applies the recommended change and reports what was done.
fn apply(conclusion: &Conclusion, caller: &dyn Caller) -> Result<(), Failure> {
    if !conclusion.decision.is_change() || conclusion.steps.commands.is_empty() {
        caller.note("--apply: there is nothing to change");
        return Ok(());
    }
    conclusion.steps.carry_out(&|step| caller.note(&format!("done: {step}")))
}
