//! `trimwise reproduce`: repeats published experiments.

pub mod arguments;
mod explain;
pub mod report;
pub mod table;

use crate::experiment::result::ExperimentResult;
use crate::experiment::{ALL, Experiment};
use crate::made;
use crate::requests::reproduce::{self, Made, ReproduceRequest, Reproduced};
use trimwise::failure::{Failure, Mistake, key};
use trimwise::words;
use trimwise_study::caller::Caller;
use trimwise_study::command_text::CommandText;

use crate::commands::reproduce::arguments::ReproduceArguments;
use trimwise_cli::output::{self, Destinations};
use trimwise_cli::table::{described, export, folded};

pub fn run(arguments: &ReproduceArguments, caller: &dyn Caller) -> Result<String, Failure> {
    run_of(&ALL, arguments, caller)
}

fn run_of(
    all: &[&'static Experiment],
    arguments: &ReproduceArguments,
    caller: &dyn Caller,
) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    if arguments.list {
        if arguments.output.json.is_some() || arguments.output.report.is_some() {
            let why =
                words!["runs nothing, so ", key("json"), " and ", key("report"), " cannot be used with it"];
            return Err(Mistake::on("list").that_is(why).fail());
        }
        let listed = || {
            let rows = all.iter().map(|e| [e.name, e.question].map(str::to_owned));
            export::keep("", &["experiment", "question"], rows, &[]);
            let list = described(&all.iter().map(|e| (e.name, e.question)).collect::<Vec<_>>(), 0);
            let code = made::code().iter().map(|(part, hash)| format!("{part} {hash}")).collect::<Vec<_>>();
            let code = format!("Code of this version, as shown below tables: {}", code.join(", "));
            format!("{list}\n{}", folded(&code, 0))
        };
        return destinations.deliver(&(), listed);
    }
    let request = arguments.request();
    if !arguments.explain.is_empty() {
        let explained = reproduce::explain(&request, &arguments.explain, caller)?;
        return destinations.deliver(&explained, || explain::text(&explained));
    }
    let Reproduced { made, ended_by } = reproduce::run_of(all, &request, caller)?;
    let html = || {
        let results: Vec<ExperimentResult> = made.iter().map(|made| made.result.clone()).collect();
        report::html(&results, &request.command(None))
    };
    let text = || {
        let texts = made.iter().map(|Made { result, .. }| table::render(result, &result.command));
        texts.collect::<Vec<String>>().join("\n")
    };
    let text = match made.as_slice() {
        [one] if !arguments.all => destinations.deliver_with_report(one, html, text)?,
        all => destinations.deliver_list(all, html, text)?,
    };
    // Report finished experiments even if a later one failed.
    output::concluded(text, ended_by)
}

impl ReproduceArguments {
    fn request(&self) -> ReproduceRequest {
        ReproduceRequest {
            name: self.name.clone(),
            on: self.on.clone(),
            only: self.only.clone(),
            full: self.full,
            out: self.out.clone(),
            reps: self.reps,
            limits: self.limits.request(),
            jobs: self.output.jobs,
        }
    }
}

/// Returns the command that repeats the experiments of a document.
pub fn repeat(results: &[ExperimentResult]) -> String {
    let mut command = CommandText::new("reproduce");
    match results {
        [one] if !one.command.is_empty() => return one.command.clone(),
        [one] => command.argument(&one.experiment),
        _ => command.argument("--all"),
    }
    command.into_text()
}

#[cfg(test)]
pub mod tests;
