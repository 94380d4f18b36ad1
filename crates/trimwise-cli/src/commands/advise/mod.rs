//! `trimwise advise`: the advice as text, JSON and HTML, and carried out.

pub mod arguments;
pub mod report;
#[cfg(test)]
pub mod tests;
mod text;

use std::cell::RefCell;

use trimwise_lab::failure::Failure;
use trimwise_study::advise;
use trimwise_study::caller::Caller;
use trimwise_study::conclusion::{Conclusion, Decision};

use crate::output::{self, Destinations};
use arguments::AdviseArguments;

/// Runs the command and returns what to print.
pub fn run(arguments: &AdviseArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    let advice = advise::run(&arguments.request(), caller)?;
    let text = || text::render(&advice, arguments.details);
    let mut text = destinations.deliver_with_report(&advice, || report::html(&advice), text)?;
    if arguments.apply {
        text += &applied(&advice.conclusion)?;
    }
    output::concluded(text, advice.ended_by)
}

/// Carries a change out, and says what was done.
fn applied(conclusion: &Conclusion) -> Result<String, Failure> {
    if conclusion.decision != Decision::Change || conclusion.steps.commands.is_empty() {
        return Ok("--apply: there is nothing to carry out.\n".to_owned());
    }
    let done = RefCell::new(String::from("Carried out:\n"));
    let carried_out =
        conclusion.steps.carry_out(&|step| done.borrow_mut().push_str(&format!("    {step}\n")));
    carried_out.map(|()| done.into_inner())
}
