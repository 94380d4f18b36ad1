//! `trimwise kernel`: builds, lists and removes the Linux kernels that run as guests in virtual time, and runs programs
//! on them.

pub mod arguments;
mod run;
pub mod table;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::units::Bytes;
use trimwise_lab::failure::Failure;
use trimwise_uml::images::{Built, CATALOGUE, Cache, KernelError, KernelImage, Order, Step};

use crate::arguments::JsonArguments;
use crate::commands::kernel::arguments::{
    KernelBuildArguments, KernelCommand, KernelListArguments, KernelRemoveArguments,
};
use crate::interrupt::OnInterrupt;
use crate::output::Destinations;
use crate::progress::Progress;

pub use run::{Phase, RunReport};

/// Steps of the progress bar for one kernel, and where in them each part of a build begins, in proportion to its time.
const STEPS: u64 = 1000;
const UNPACK_AT: u64 = 15;
const CONFIGURE_AT: u64 = 45;
const COMPILE_AT: u64 = 50;

/// What `--json` writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelsReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The folder of the kernels.
    pub directory: PathBuf,
    /// One entry per kernel.
    pub kernels: Vec<Kernel>,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// The version that names it.
    pub version: String,
    /// Whether it is built.
    pub state: State,
    /// Which kernels its results stand for, if known.
    pub stands_for: Option<&'static str>,
    /// What `uname -r` says in it.
    pub release: Option<String>,
    /// Where its source came from.
    pub source: Option<String>,
    /// The compiler's own first line.
    pub compiler: Option<String>,
    /// Hash of configuration and build recipe.
    pub recipe: Option<String>,
    /// The kernel program.
    pub linux: Option<PathBuf>,
    /// Size of the program.
    pub size_bytes: Option<u64>,
    /// When it was built, UTC.
    pub built: Option<String>,
}

/// Whether a kernel is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Built by this command.
    New,
    /// Already built.
    Built,
    /// Built by another trimwise, with another configuration or recipe; it is not used.
    Outdated,
    /// Can be built.
    NotBuilt,
}

/// Runs the command and returns what to print. `on_signal` installs the handler for Ctrl-C and returns the flag that it
/// raises.
pub fn run(
    command: &KernelCommand,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let cache = Cache::of_user().map_err(failure)?;
    match command {
        KernelCommand::Run(arguments) => run::run(arguments, on_signal),
        KernelCommand::Build(arguments) => build(&cache, arguments, on_signal),
        KernelCommand::List(arguments) => list(&cache, arguments),
        KernelCommand::Remove(arguments) => remove(&cache, arguments),
    }
}

fn build(
    cache: &Cache,
    arguments: &KernelBuildArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations =
        Destinations::check_json(&JsonArguments { json: arguments.json.clone(), force: arguments.force })?;
    let mut versions = arguments.versions.clone();
    if versions.is_empty() {
        versions = CATALOGUE.iter().map(|series| series.version.to_owned()).collect();
    }
    if let (Some(source), [_, _, ..]) = (&arguments.source, versions.as_slice()) {
        let given = versions.join(" ");
        let what =
            format!("--source {}: holds one version, but {given} were given; expected one", source.display());
        return Err(Failure::usage(what));
    }
    let orders: Vec<Order> = versions
        .into_iter()
        .map(|version| Order {
            version,
            source: arguments.source.clone(),
            jobs: arguments.jobs,
            again: arguments.force,
        })
        .collect();
    orders.iter().try_for_each(Order::check).map_err(failure)?;

    let stop = on_signal(OnInterrupt::Stop)?;
    let progress = Progress::of(orders.len(), "kernels");
    let (mut kernels, mut told) = (Vec::new(), Vec::new());
    for (index, order) in orders.iter().enumerate() {
        let built = cache.build(order, &stop, &mut |step| {
            let (done, what) = at(step);
            progress.update(index, done, STEPS);
            progress.say(format!("{}: {what}", order.version));
        });
        progress.done(index);
        kernels.push(match built {
            Ok(Built::New { image, freed_bytes }) => {
                told.extend(removed(&image.version, freed_bytes));
                Kernel::of(&image, State::New)
            }
            Ok(Built::Found(image)) => Kernel::of(&image, State::Built),
            Err(error) => {
                progress.finish();
                told.iter().for_each(|line| eprintln!("{line}"));
                return Err(failure(error));
            }
        });
    }
    progress.finish();
    told.iter().for_each(|line| eprintln!("{line}"));
    show(cache, kernels, &destinations)
}

/// Reports what became of the outdated images that the new one replaces, if there were any.
fn removed(version: &str, freed_bytes: Result<u64, String>) -> Option<String> {
    match freed_bytes {
        Ok(0) => None,
        Ok(bytes) => Some(format!("note: removed outdated images of {version}: {} freed", Bytes(bytes))),
        Err(error) => Some(format!(
            "note: outdated images of {version} are still there: {error}; `trimwise kernel list` names them"
        )),
    }
}

/// Returns how far a build is, and its current step.
fn at(step: Step) -> (u64, String) {
    match step {
        Step::Wait => (0, "waiting for another build of it".to_owned()),
        Step::Download => (0, "download".to_owned()),
        Step::Unpack => (UNPACK_AT, "unpacking".to_owned()),
        Step::Configure => (CONFIGURE_AT, "configuration".to_owned()),
        Step::Compile { done, expected } => {
            let steps = done * (STEPS - 1 - COMPILE_AT) / expected.max(1);
            (COMPILE_AT + steps, format!("compiling, {done} of about {expected}"))
        }
    }
}

fn list(cache: &Cache, arguments: &KernelListArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    let images = cache.list().map_err(failure)?;
    let mut kernels: Vec<Kernel> = images
        .iter()
        .map(|image| Kernel::of(image, if image.is_current() { State::Built } else { State::Outdated }))
        .collect();
    for series in &CATALOGUE {
        let is_built = |kernel: &Kernel| kernel.version == series.version && kernel.state == State::Built;
        if !kernels.iter().any(is_built) {
            kernels.push(Kernel::not_built(series.version));
        }
    }
    kernels.sort_by_key(|kernel| {
        kernel.version.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>()
    });
    show(cache, kernels, &destinations)
}

fn remove(cache: &Cache, arguments: &KernelRemoveArguments) -> Result<String, Failure> {
    let removed = cache.remove(&arguments.version).map_err(failure)?;
    let what = if removed == 0 { "the log of a build that failed" } else { "the kernel" };
    Ok(format!("removed {what}: {} in {}\n", arguments.version, cache.directory().display()))
}

fn show(cache: &Cache, kernels: Vec<Kernel>, destinations: &Destinations) -> Result<String, Failure> {
    let report =
        KernelsReport { trimwise: trimwise::VERSION, directory: cache.directory().to_owned(), kernels };
    destinations.deliver(&report, || table::render(&report))
}

impl Kernel {
    fn not_built(version: &str) -> Self {
        let series = CATALOGUE.iter().find(|series| series.version == version);
        Self {
            version: version.to_owned(),
            state: State::NotBuilt,
            stands_for: series.map(|series| series.stands_for),
            release: None,
            source: None,
            compiler: None,
            recipe: None,
            linux: None,
            size_bytes: None,
            built: None,
        }
    }

    fn of(image: &KernelImage, state: State) -> Self {
        Self {
            state,
            release: Some(image.release.clone()),
            source: Some(image.source.clone()),
            compiler: Some(image.compiler.clone()),
            recipe: Some(image.recipe.clone()),
            linux: Some(image.linux.clone()),
            size_bytes: Some(image.size_bytes),
            built: Some(humantime::format_rfc3339_seconds(image.built).to_string()),
            ..Self::not_built(&image.version)
        }
    }
}

fn failure(error: KernelError) -> Failure {
    match error {
        KernelError::Interrupted => Failure::Interrupted,
        error if error.is_usage() => Failure::usage(error),
        error => Failure::run(error),
    }
}
