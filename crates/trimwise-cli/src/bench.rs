//! `trimwise bench`: device tests, one after another, on a model or on a real device.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::bench::{self, Results, Settings, Test};

use crate::arguments::{BenchArguments, OutputArguments};
use crate::command_line::CommandText;
use crate::failure::Failure;
use crate::interrupt::OnInterrupt;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use crate::runner::{BenchProgress, Models};
use crate::table;

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// What was asked for.
    pub settings: BenchSettings,
    /// Whether tests are missing, because the device failed or the user stopped them.
    pub partial: bool,
    /// What came of it.
    #[serde(flatten)]
    pub results: Results,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct BenchSettings {
    /// The target, as given.
    pub target: String,
    /// The tests, as they are written in full.
    pub tests: Vec<String>,
    /// What was written.
    pub content: &'static str,
    /// Where random places came from.
    pub seed: u64,
    /// The part of the device that was tested, in percent of it.
    pub region_start_percent: f64,
    /// How long that part is.
    pub region_length_percent: f64,
    /// The command that makes this again.
    pub command: String,
}

/// Where tests run.
#[derive(Debug, PartialEq, Eq)]
enum Target<'a> {
    Model(&'a str),
    File(PathBuf),
    Device(PathBuf),
}

/// Runs the command and answers what to print. `on_signal` installs what Ctrl-C does and answers the flag that it raises.
pub fn run<M: Models>(
    models: &M,
    arguments: &BenchArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let target = target(&arguments.target)?;
    let tests: Result<Vec<Test>, _> = arguments.tests.iter().map(|t| t.parse::<Test>()).collect();
    let tests = tests.map_err(Failure::usage)?;
    let destinations = Destinations::check(&OutputArguments {
        jobs: None,
        json: arguments.json.clone(),
        report: arguments.report.clone(),
        force: arguments.force,
    })?;
    let settings = Settings {
        content: arguments.content,
        seed: arguments.seed,
        region: arguments.region.unwrap_or(bench::Part::ALL),
    };
    let progress = Progress::of(tests.len(), "tests");
    let on_progress: BenchProgress = {
        let progress = Arc::clone(&progress);
        Arc::new(move |test, thousandths| progress.update(test, thousandths, 1000))
    };
    let results = match target {
        Target::Model(name) => {
            only_for_real_targets(arguments)?;
            let (_, device) = models.device(name)?;
            on_signal(OnInterrupt::Exit)?;
            models.bench_model(&device, &tests, &settings, on_progress)
        }
        Target::File(path) | Target::Device(path) => Err(Failure::usage(format!(
            "{}: tests of real files and devices are not in this build; expected an SSD profile",
            path.display()
        ))),
    };
    progress.finish();
    let report = BenchReport::new(arguments, &tests, &settings, results?);
    destinations.write_json(&report)?;
    let mut text = if destinations.json_to_stdout() { String::new() } else { table::bench::render(&report) };
    if destinations.wants_report() {
        let path = destinations.write_report(&crate::report::bench::html(&report)?)?;
        if let Some(path) = path.filter(|_| !destinations.json_to_stdout()) {
            text += &format!("Report: {}\n", path.display());
        }
    }
    match &report.results.broken {
        None => Ok(text),
        // What was done is told also where it is not all.
        Some(broken) if broken.interrupted => output::print(&text).and(Err(Failure::Interrupted)),
        Some(broken) => {
            output::print(&text)?;
            Err(Failure::run(format!("{}: {}: {}", report.results.device.name, broken.test, broken.why)))
        }
    }
}

fn target(text: &str) -> Result<Target<'_>, Failure> {
    let path = |prefix: &str, what: &str| match text.strip_prefix(prefix) {
        Some("") => Err(Failure::usage(format!("{prefix} names no {what}; expected {prefix}PATH"))),
        Some(path) => Ok(Some(PathBuf::from(path))),
        None => Ok(None),
    };
    if let Some(file) = path("file:", "file")? {
        return Ok(Target::File(file));
    }
    Ok(path("dev:", "device")?.map_or(Target::Model(text), Target::Device))
}

/// A model is neither made nor destroyed.
fn only_for_real_targets(arguments: &BenchArguments) -> Result<(), Failure> {
    let given = [("--size", arguments.size.is_some()), ("--destroy", arguments.destroy.is_some())];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option}: {} is a model; expected it with file:PATH or dev:PATH only",
            arguments.target
        ))),
        None => Ok(()),
    }
}

impl BenchReport {
    fn new(arguments: &BenchArguments, tests: &[Test], settings: &Settings, results: Results) -> Self {
        let mut command = CommandText::new("bench");
        command.argument(&arguments.target);
        tests.iter().for_each(|test| command.argument(test));
        command.option("--content", settings.content);
        command.option("--seed", settings.seed);
        if let Some(region) = arguments.region {
            command.option("--region", region);
        }
        if let Some(size) = arguments.size {
            command.option("--size", size.0);
        }
        if let Some(word) = &arguments.destroy {
            command.option("--destroy", word);
        }
        Self {
            trimwise: trimwise::VERSION,
            settings: BenchSettings {
                target: arguments.target.clone(),
                tests: tests.iter().map(Test::to_string).collect(),
                content: settings.content.name(),
                seed: settings.seed,
                region_start_percent: settings.region.start.value(),
                region_length_percent: settings.region.length.value(),
                command: command.into_text(),
            },
            partial: results.broken.is_some(),
            results,
        }
    }
}
