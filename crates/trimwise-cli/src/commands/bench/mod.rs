//! `trimwise bench`: device tests, one after another, on a model or on a real device.

pub mod arguments;
pub mod map;
pub mod report;
pub mod table;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::Profile;
use trimwise::ssd::Drive;
use trimwise_lab::bench::{self, Hooks, Results, Settings, Test};
use trimwise_lab::failure::Failure;
use trimwise_linux::block_on;

use crate::commands::bench::arguments::BenchArguments;
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::input;
use trimwise_study::real_target::RealTarget;

/// Progress callback: the test's number, and how many thousandths of it are done.
type OnProgress = Arc<dyn Fn(usize, u64) + Send + Sync>;

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    /// The version of trimwise.
    pub trimwise: Cow<'static, str>,
    /// What was asked for.
    pub settings: BenchSettings,
    /// Whether tests are missing, because the device failed or the user stopped them.
    pub partial: bool,
    /// The results.
    #[serde(flatten)]
    pub results: Results,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchSettings {
    /// The target, as given.
    pub target: String,
    /// The tests, as they are written in full.
    pub tests: Vec<String>,
    /// What was written.
    pub content: Cow<'static, str>,
    /// Where random places came from.
    pub seed: u64,
    /// The part of the device that was tested, in percent of it.
    pub region_start_percent: f64,
    /// How long that part is.
    pub region_length_percent: f64,
    /// The command that repeats this.
    pub command: String,
}

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run(
    arguments: &BenchArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let real = RealTarget::parse(&arguments.target, arguments.size, arguments.destroy.as_ref())?;
    if arguments.map {
        return map::run(arguments, real.as_ref(), on_signal);
    }
    // clap drops what an option requires if that conflicts with the tests.
    if arguments.point.is_some() {
        return Err(Failure::usage("--point: without --map; expected --map in place of tests"));
    }
    let tests: Result<Vec<Test>, _> = arguments.tests.iter().map(|t| t.parse::<Test>()).collect();
    let tests = tests.map_err(Failure::usage)?;
    let destinations = Destinations::check(&arguments.output())?;
    let settings = Settings {
        content: arguments.content,
        seed: arguments.seed,
        region: arguments.region.unwrap_or(bench::Part::ALL),
    };
    let progress = Progress::of(tests.len(), "tests");
    let on_progress: OnProgress = {
        let progress = Arc::clone(&progress);
        Arc::new(move |test, thousandths| progress.update(test, thousandths, 1000))
    };
    let results = match real {
        None => {
            only_for_real_targets(arguments)?;
            let device = input::profile(&arguments.target, "device").map_err(input::as_argument)?;
            let stop = on_signal(OnInterrupt::StopAndShow)?;
            in_model(&device, &tests, &settings, &stop, on_progress)
        }
        Some(real) => {
            let stop = on_signal(OnInterrupt::StopAndShow)?;
            on_real(&real, &tests, &settings, &stop, &*on_progress)
        }
    };
    progress.finish();
    deliver(&destinations, &BenchReport::new(arguments, &tests, &settings, results?))
}

fn deliver(destinations: &Destinations, report: &BenchReport) -> Result<String, Failure> {
    let html = || report::html(report);
    let text = destinations.deliver_with_report(report, html, || table::render(report))?;
    match &report.results.broken {
        None => Ok(text),
        // Report what was done even if the run broke off.
        Some(broken) if broken.interrupted => output::print(&text).and(Err(Failure::Interrupted)),
        Some(broken) => {
            output::print(&text)?;
            Err(Failure::run(format!("{}: {}: {}", report.results.device.name, broken.test, broken.why)))
        }
    }
}

/// Runs tests on a new device.
fn in_model(
    profile: &Profile,
    tests: &[Test],
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    on_progress: OnProgress,
) -> Result<Results, Failure> {
    let sim = Sim::new();
    let drive = Drive::new(&profile.config, profile.faults, settings.seed)
        .map_err(|e| Failure::usage(format!("{}: {e}", profile.name)))?;
    let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
    let device = Rc::new(ModelDevice::new(queue, &profile.name).interrupted_by(stop));
    let (tests, settings) = (tests.to_vec(), *settings);
    let ended = sim.run(async move {
        let stats = || device.queue().with_ssd(|ssd| *ssd.stats());
        let hooks = Hooks { on_progress: &*on_progress, stats: Some(&stats) };
        bench::run(&*device, &tests, &settings, hooks).await
    });
    ended.map_err(Failure::run)?.map_err(Failure::usage)
}

/// Runs tests on a real file or device. If one of them writes, the user must have agreed.
fn on_real(
    real: &RealTarget,
    tests: &[Test],
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    on_progress: &dyn Fn(usize, u64),
) -> Result<Results, Failure> {
    let is_written = tests.iter().any(|test| test.is_destructive());
    let depth = tests.iter().map(|test| test.depth()).max().unwrap_or(0);
    let device = real.open(is_written, depth, stop)?;
    let hooks = Hooks { on_progress, stats: None };
    let ended = block_on(bench::run(&device, tests, settings, hooks));
    let mut results = ended.map_err(Failure::run)?.map_err(Failure::usage)?;
    results.notes = device.notes().to_vec();
    Ok(results)
}

/// Rejects options that mean nothing for a model.
fn only_for_real_targets(arguments: &BenchArguments) -> Result<(), Failure> {
    let given = [("--size", arguments.size.is_some()), ("--destroy", arguments.destroy.is_some())];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option}: {} is a model; this option is for file:PATH and dev:PATH only",
            arguments.target
        ))),
        None => Ok(()),
    }
}

impl BenchReport {
    /// Combines what `arguments` asked for with the results.
    pub fn new(arguments: &BenchArguments, tests: &[Test], settings: &Settings, results: Results) -> Self {
        Self {
            trimwise: trimwise::VERSION.into(),
            settings: BenchSettings {
                target: arguments.target.clone(),
                tests: tests.iter().map(Test::to_string).collect(),
                content: settings.content.name().into(),
                seed: settings.seed,
                region_start_percent: settings.region.start.value(),
                region_length_percent: settings.region.length.value(),
                command: arguments.command(|command| tests.iter().for_each(|test| command.argument(test))),
            },
            partial: results.broken.is_some(),
            results,
        }
    }
}

#[cfg(test)]
mod tests;
