//! `trimwise advise`: the advice as text, JSON, HTML, and as a configuration of trimwised.

pub mod arguments;
pub mod report;
#[cfg(test)]
pub mod tests;
mod text;

use trimwise::advise::Means;
use trimwise_lab::failure::Failure;
use trimwise_study::advise::{self, config};
use trimwise_study::caller::Caller;

use crate::output::{self, Destinations};
use arguments::AdviseArguments;

/// Runs the command and returns what to print.
pub fn run(arguments: &AdviseArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    if let Some(file) = &arguments.apply {
        destinations.expect_apart(config::OPTION, file)?;
        config::check(file, arguments.output.force)?;
    }
    let mut advice = advise::run(&arguments.request(), caller)?;
    if let (Some(file), None, Some(Means::Daemon), Some(policy)) =
        (&arguments.apply, &advice.ended_by, advice.means, advice.spec())
    {
        let at = (policy.spec(), advice.mount());
        let write = |text: &str| destinations.write_result(config::OPTION, file, text);
        let written = config::write(file, at, &advice.settings.command, write)?;
        advice.apply = config::steps(&advice.apply, advice.mount(), Some(&written));
        advice.written = Some(written);
    }
    let text = || text::render(&advice, arguments.apply.is_some());
    let text = destinations.deliver_with_report(&advice, || report::html(&advice), text)?;
    output::concluded(text, advice.ended_by)
}
