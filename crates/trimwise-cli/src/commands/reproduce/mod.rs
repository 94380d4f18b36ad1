//! `trimwise reproduce`: repeats published experiments.

pub mod arguments;
pub mod report;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_uml::cell::KernelTarget;

use crate::command_line::CommandText;
use crate::commands::compare::GUEST_LIMITS;
use crate::commands::reproduce::arguments::ReproduceArguments;
use crate::failure::Failure;
use crate::interrupt::OnInterrupt;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use crate::runner::guests::{self, Bounds};
use crate::runner::{Listed, Models, Reproduction};
use crate::table::folded;

/// A result, as `--json` writes it.
#[derive(Serialize)]
struct Made<'a> {
    #[serde(flatten)]
    result: &'a ExperimentResult,
    /// The SHA-256 of the program that was the guests' init and ran their workloads; null if no kernel booted.
    guest_program: Option<&'a str>,
}

/// Runs the command and returns what to print.
pub fn run<M: Models>(
    models: &M,
    arguments: &ReproduceArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let target = parse_target(arguments)?;
    let listed = models.experiments();
    let destinations = Destinations::check(&arguments.output)?;
    if arguments.list {
        if arguments.output.json.is_some() || arguments.output.report.is_some() {
            return Err(Failure::usage("--list runs nothing, so --json and --report do not go with it"));
        }
        return Ok(list(&listed));
    }
    let names: Vec<String> = match &arguments.name {
        None => listed.iter().map(|e| e.name.clone()).collect(),
        Some(name) if listed.iter().any(|e| e.name == *name) => vec![name.clone()],
        Some(name) => {
            let known: Vec<String> = listed.iter().map(|e| e.name.clone()).collect();
            return Err(Failure::usage(format!(
                "there is no experiment '{name}'; expected one of {}",
                known.join(", ")
            )));
        }
    };
    let boots = |name: &str| target.is_some() || listed.iter().any(|e| e.name == name && e.boots);
    let any_boots = names.iter().any(|name| boots(name));
    if !any_boots && arguments.limits.are_given() {
        return Err(Failure::usage(format!(
            "{GUEST_LIMITS}; expected an experiment that boots kernels, or --target kernel:..."
        )));
    }
    let guest_program = any_boots.then(guests::program_hash).transpose()?;
    let on_interrupt = if any_boots { OnInterrupt::StopAfterRun } else { OnInterrupt::Exit };
    let mut left_out = Vec::new();
    for name in &names {
        match models.check_reproduction(&asked(arguments, target.as_ref(), name, Arc::default())) {
            // With --all, skip the experiments that cannot run here.
            Err(failure) if arguments.all => {
                eprintln!("note: {name} is skipped: {failure}");
                left_out.push(name.clone());
            }
            checked => checked?,
        }
    }
    let names: Vec<String> = names.into_iter().filter(|name| !left_out.contains(name)).collect();
    if names.is_empty() {
        return Err(Failure::usage(format!(
            "--all --target {}: no experiment can run there; the notes above say why",
            arguments.target
        )));
    }
    let stop = on_signal(on_interrupt)?;
    let progress = Progress::new(names.len());
    // One experiment after another: each spreads its own cells over the jobs.
    let mut failure = None;
    let mut results: Vec<ExperimentResult> = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let asked = asked(arguments, target.as_ref(), name, Arc::clone(&stop));
        match models.reproduce(&asked, progress.report(i)) {
            Ok(result) => results.push(result),
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
    let made = results.iter().map(|result| Made {
        result,
        guest_program: guest_program.as_deref().filter(|_| boots(&result.experiment)),
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

/// Parses the kernel to run on; `None` for the model.
fn parse_target(arguments: &ReproduceArguments) -> Result<Option<KernelTarget>, Failure> {
    let text = &arguments.target;
    let refused = |what: String| Failure::usage(format!("--target {text}: {what}"));
    match text.split_once(':') {
        _ if text == "model" => Ok(None),
        Some(("kernel", target)) => target.parse().map(Some).map_err(refused),
        _ => Err(refused(
            "expected `model` or `kernel:VERSION:FS[:MOUNT_OPTIONS]`; an experiment sets up its own host"
                .to_owned(),
        )),
    }
}

fn asked<'a>(
    arguments: &'a ReproduceArguments,
    target: Option<&'a KernelTarget>,
    name: &'a str,
    stop: Arc<AtomicBool>,
) -> Reproduction<'a> {
    let ReproduceArguments { reps, only, .. } = arguments;
    let bounds = Bounds { limits: arguments.limits.limits(), stop };
    Reproduction { name, target, reps: *reps, jobs: arguments.output.jobs, only, bounds }
}

/// Returns the command that repeats one result, or all of them.
fn command(arguments: &ReproduceArguments, result: Option<&ExperimentResult>) -> String {
    let mut command = CommandText::new("reproduce");
    match result.map(|r| &r.experiment).or(arguments.name.as_ref()) {
        Some(name) => command.argument(name),
        None => command.argument("--all"),
    }
    if arguments.target != "model" {
        command.option("--target", &arguments.target);
    }
    arguments.only.iter().for_each(|part| command.option("--only", part));
    if let Some(reps) = arguments.reps {
        command.option("--reps", reps);
    }
    command.into_text()
}

/// Lays out names and their summaries in two columns; the second is folded.
pub fn list(entries: &[Listed]) -> String {
    let width = entries.iter().map(|e| e.name.chars().count()).max().unwrap_or(0);
    let row = |e: &Listed| format!("{:width$}  {}", e.name, folded(&e.summary, width + 2).trim_start());
    entries.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Command, CommandLine};
    use crate::runner::fabricated::Fabricated;

    fn json_of(line: &str) -> serde_json::Value {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let words = ["trimwise", "reproduce"].into_iter().chain(line.split_whitespace());
        let Command::Reproduce(mut arguments) = CommandLine::try_parse_from(words).unwrap().command else {
            panic!("not reproduce")
        };
        arguments.output.json = Some(path.clone());
        run(&Fabricated { noisy: false }, &arguments, |_| Ok(Arc::default())).unwrap();
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn one_experiment_is_an_object_and_all_are_a_list() {
        let one = json_of("postmark-vendors");
        assert_eq!(one["experiment"], "postmark-vendors");
        let row = one["rows"][0].as_object().unwrap();
        for key in "device postmark_buffering metric nodiscard discard published_nodiscard published_discard"
            .split_whitespace()
        {
            assert!(row.contains_key(key), "{key}");
        }
        assert_eq!(one["claims"][1]["met"], false);
        let worth = ["basis", "role"].map(|key| one["claims"][1][key].clone());
        assert_eq!(worth, ["measured", "check"]);
        assert_eq!(one["claims"][1]["published"], serde_json::json!([10.7, 97.6]));
        assert_eq!(json_of("--all"), serde_json::json!([one]));
    }

    #[test]
    fn what_ran_in_guests_names_their_program_and_only_guests_have_limits() {
        assert_eq!(json_of("postmark-vendors")["guest_program"], serde_json::Value::Null);
        let program = guests::program_hash().unwrap();
        for limits in ["", " --max-silence 7 --max-wall 9"] {
            let made = json_of(&format!("postmark-vendors --target kernel:6.1:ext4{limits}"));
            assert_eq!(made["guest_program"], program.as_str());
        }
        let line = "trimwise reproduce postmark-vendors --max-wall 9";
        let Command::Reproduce(arguments) = CommandLine::try_parse_from(line.split(' ')).unwrap().command
        else {
            panic!("not reproduce")
        };
        let bounds = asked(&arguments, None, "postmark-vendors", Arc::default()).bounds;
        assert_eq!(bounds.limits.wall.as_secs(), 9);
        let failure = run(&Fabricated { noisy: false }, &arguments, |_| Ok(Arc::default())).unwrap_err();
        assert!(
            matches!(&failure, Failure::Usage(m) if m.contains("limits of guests; expected an experiment that boots"))
        );
    }

    #[test]
    fn an_unknown_experiment_names_the_known_ones() {
        let words = ["trimwise", "reproduce", "postmark"];
        let Command::Reproduce(arguments) = CommandLine::try_parse_from(words).unwrap().command else {
            panic!("not reproduce")
        };
        let failure = run(&Fabricated { noisy: false }, &arguments, |_| Ok(Arc::default())).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.contains("expected one of postmark-vendors")));
    }

    #[test]
    fn lists_are_in_columns() {
        let entries = [("a", "first"), ("long", "second")].map(|(name, summary)| Listed {
            name: name.into(),
            summary: summary.into(),
            boots: false,
        });
        assert_eq!(list(&entries), "a     first\nlong  second\n");
    }
}
