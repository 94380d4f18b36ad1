//! `trimwise reproduce`: repeats published experiments.

pub mod arguments;
pub mod report;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_lab::experiment::{ALL, Experiment, On, Request};
use trimwise_lab::failure::Failure;
use trimwise_lab::guests::{self, Bounds};

use crate::commands::reproduce::arguments::ReproduceArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use crate::table::folded;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;
use trimwise_study::guest_limits::GUEST_LIMITS;

/// A result, as `--json` writes it.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    result: &'a ExperimentResult,
    /// The SHA-256 of the program that was the guests' init and ran their workloads; null if no kernel booted.
    guest_program: Option<&'a str>,
}

/// Runs the command and returns what to print.
pub fn run(
    arguments: &ReproduceArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    run_of(&ALL, arguments, on_signal)
}

fn run_of(
    all: &[&'static Experiment],
    arguments: &ReproduceArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let on = parse_host(arguments)?;
    if arguments.full && on == On::Usual {
        return Err(Failure::usage(
            "--full: only runs on a real kernel are sampled; expected --on kernel with it",
        ));
    }
    let destinations = Destinations::check(&arguments.output)?;
    if arguments.list {
        if arguments.output.json.is_some() || arguments.output.report.is_some() {
            return Err(Failure::usage("--list runs nothing, so --json and --report do not go with it"));
        }
        return Ok(list(&all.iter().map(|e| (e.name, e.question)).collect::<Vec<_>>()));
    }
    let mut experiments = match &arguments.name {
        None => all.to_vec(),
        Some(name) => vec![*all.iter().find(|e| e.name == name).ok_or_else(|| {
            let known = all.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
            Failure::usage(format!("there is no experiment '{name}'; expected one of {known}"))
        })?],
    };
    let boots = |experiment: &Experiment| on != On::Usual || experiment.boots();
    let any_boots = experiments.iter().any(|e| boots(e));
    if !any_boots && arguments.limits.are_given() {
        return Err(Failure::usage(format!(
            "{GUEST_LIMITS}; expected an experiment that boots kernels, or --on kernel"
        )));
    }
    let guest_program = any_boots.then(guests::program_hash).transpose()?;
    let on_interrupt = if any_boots { OnInterrupt::StopAfterRun } else { OnInterrupt::Exit };
    let mut refused = Ok(());
    let mut targets = Vec::new();
    experiments.retain(|experiment| {
        let target = experiment.target(&on);
        let checked = target.and_then(|target| {
            experiment.check(&arguments.only, target.as_ref())?;
            Ok(target)
        });
        match checked {
            Ok(target) => targets.push(target),
            // With --all, skip the experiments that cannot run here.
            Err(failure) if arguments.all => {
                eprintln!("note: {} is skipped: {failure}", experiment.name);
                return false;
            }
            Err(failure) => refused = Err(failure),
        }
        refused.is_ok()
    });
    refused?;
    if experiments.is_empty() {
        return Err(Failure::usage(format!(
            "--all --on {}: no experiment can run there; the notes above say why",
            arguments.on
        )));
    }
    let stop = on_signal(on_interrupt)?;
    let progress = Progress::new(experiments.len());
    // One experiment after another: each spreads its own cells over the jobs.
    let mut failure = None;
    let mut results: Vec<ExperimentResult> = Vec::new();
    for (i, (experiment, target)) in experiments.iter().zip(targets).enumerate() {
        // Runs of a guest differ only in the phase of its commit timer, so one stands for all.
        let reps = if target.is_some() { 1 } else { experiment.reps };
        let request = Request {
            reps: arguments.reps.unwrap_or(reps),
            seed: defaults::SEED,
            jobs: arguments.output.jobs.map(usize::from),
            only: arguments.only.clone(),
            full: arguments.full,
            target,
            bounds: Bounds { limits: arguments.limits.limits(), stop: Arc::clone(&stop) },
            report: progress.report(i),
        };
        match (experiment.run)(&request) {
            Ok(mut result) => {
                result.command = command(arguments, Some(&result));
                results.push(result);
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
        progress.done(i);
    }
    progress.finish();
    if results.is_empty() {
        return Err(failure.unwrap_or_else(|| Failure::run("no experiment ran")));
    }
    let html = || report::html(&results, &command(arguments, None));
    let text = || {
        let texts = results.iter().map(|r| table::render(r, &command(arguments, Some(r))));
        texts.collect::<Vec<String>>().join("\n")
    };
    // There are as many results as experiments were run.
    let made = experiments.iter().zip(&results).map(|(experiment, result)| Made {
        result,
        guest_program: guest_program.as_deref().filter(|_| boots(experiment)),
    });
    let made: Vec<Made> = made.collect();
    let text = match made.as_slice() {
        [one] if !arguments.all => destinations.deliver_with_report(one, html, text)?,
        all => destinations.deliver_list(all, html, text)?,
    };
    match failure {
        None => Ok(text),
        // Report what is finished even if something failed.
        Some(failure) => output::print(&text).and(Err(failure)),
    }
}

/// Parses the host to run on.
fn parse_host(arguments: &ReproduceArguments) -> Result<On, Failure> {
    let text = &arguments.on;
    let refused = |what: String| Failure::usage(format!("--on {text}: {what}"));
    match text.split_once(':') {
        None if text == "model" => Ok(On::Usual),
        None if text == "kernel" => Ok(On::Kernel),
        Some(("kernel", target)) => target.parse().map(On::This).map_err(refused),
        _ => Err(refused(
            "expected `model`, `kernel` or `kernel:VERSION:FS[:MOUNT_OPTIONS]`; an experiment sets up its own host"
                .to_owned(),
        )),
    }
}

/// Returns the command that repeats one result, or all of them.
fn command(arguments: &ReproduceArguments, result: Option<&ExperimentResult>) -> String {
    let mut command = CommandText::new("reproduce");
    match result.map(|r| &r.experiment).or(arguments.name.as_ref()) {
        Some(name) => command.argument(name),
        None => command.argument("--all"),
    }
    if arguments.on != "model" {
        command.option("--on", &arguments.on);
    }
    if arguments.full {
        command.argument("--full");
    }
    arguments.only.iter().for_each(|part| command.option("--only", part));
    if let Some(reps) = arguments.reps {
        command.option("--reps", reps);
    }
    command.into_text()
}

/// Returns the command that repeats the results of a document.
pub fn repeat(results: &[ExperimentResult]) -> String {
    let mut command = CommandText::new("reproduce");
    match results {
        [one] if !one.command.is_empty() => return one.command.clone(),
        [one] => command.argument(&one.experiment),
        _ => command.argument("--all"),
    }
    command.into_text()
}

/// Lays out names and their summaries in two columns; the second is folded.
fn list(entries: &[(&str, &str)]) -> String {
    let width = entries.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let row = |(name, summary): &(&str, &str)| {
        format!("{name:width$}  {}", folded(summary, width + 2).trim_start())
    };
    entries.iter().map(row).collect()
}

#[cfg(test)]
pub mod tests;
