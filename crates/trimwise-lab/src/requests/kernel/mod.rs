//! The Linux kernels that run as guests in virtual time: builds and lists them, and runs programs on them.

pub mod run;
pub mod trace;

use std::num::NonZero;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trimwise::failure::{Failure, Mistake};
use trimwise::units::Bytes;
use trimwise_uml::images::{
    Built, BuiltSet, CATALOGUE, Cache, KernelError, KernelImage, KernelName, Order, Step,
};

use trimwise_study::caller::{Caller, OnInterrupt};

/// Steps of the progress bar for one kernel, and where in them each part of a build begins, in proportion to its time.
const STEPS: u64 = 1000;
const UNPACK_AT: u64 = 15;
const CONFIGURE_AT: u64 = 45;
const COMPILE_AT: u64 = 50;

/// Kernels to build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelBuildRequest {
    /// Their versions; empty: the whole catalogue.
    pub versions: Vec<String>,
    /// Folders of patch sets, applied in this order.
    pub with: Vec<PathBuf>,
    /// The name of a variant of the configuration.
    pub variant: Option<String>,
    /// The source of the only version: a clean tree or a tarball; `None`: Debian's package.
    pub source: Option<PathBuf>,
    /// Compilers at a time; `None`: one for each core.
    pub jobs: Option<NonZero<u16>>,
    /// Whether to build again what exists, from the newest package.
    pub again: bool,
}

/// Kernels, built or not; the order of the keys is part of the format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelsReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// The folder of the kernels.
    pub directory: PathBuf,
    /// One entry per kernel.
    pub kernels: Vec<Kernel>,
    /// The sources that are kept for further builds; `None` if they were not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<Kept>>,
}

/// A source that is kept, with its objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The version that it is kept for.
    pub version: String,
    /// Where it came from; `null` if it is incomplete.
    pub source: Option<String>,
    /// Its folder.
    pub directory: PathBuf,
    /// Disk space.
    pub size_bytes: u64,
}

/// One kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Its name: the version, and what was added to it.
    pub version: String,
    /// Whether it is built.
    pub state: State,
    /// Which kernels its results stand for, if known.
    pub stands_for: Option<&'static str>,
    /// What `uname -r` says in it.
    pub release: Option<String>,
    /// Where its source came from.
    pub source: Option<String>,
    /// The patch sets that it was built with, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<BuiltSet>,
    /// The compiler's own first line.
    pub compiler: Option<String>,
    /// Hash of patches, configuration and build recipe.
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
    /// Built just now.
    New,
    /// Already built.
    Built,
    /// Built by another trimwise, with another configuration or recipe, or from patches that have changed since; it is
    /// not used.
    Outdated,
    /// Can be built.
    NotBuilt,
}

/// Builds the kernels that are missing.
///
/// # Errors
///
/// A [`Failure`] if the request is wrong, a build fails or the caller stops it. What was built until then stays.
pub fn build(request: &KernelBuildRequest, caller: &dyn Caller) -> Result<KernelsReport, Failure> {
    let cache = Cache::of_user().map_err(failure)?;
    let mut versions = request.versions.clone();
    if versions.is_empty() {
        versions = CATALOGUE.iter().map(|series| series.version.to_owned()).collect();
    }
    if let (Some(source), [_, _, ..]) = (&request.source, versions.as_slice()) {
        let given = versions.join(" ");
        let why = format!("holds one version, but {given} were given");
        return Err(Mistake::of("source", source.display()).because(why).expected("one").fail());
    }
    let orders: Vec<Order> = versions
        .into_iter()
        .map(|version| Order {
            version,
            with: request.with.clone(),
            variant: request.variant.clone(),
            source: request.source.clone(),
            jobs: request.jobs,
            again: request.again,
        })
        .collect();
    let names: Vec<KernelName> = orders.iter().map(Order::name).collect::<Result<_, _>>().map_err(failure)?;

    let stop = caller.stop(OnInterrupt::Stop)?;
    let progress = caller.progress(orders.len(), "kernels");
    let (mut kernels, mut told) = (Vec::new(), Vec::new());
    for (index, order) in orders.iter().enumerate() {
        let built = cache.build(order, &stop, &mut |step| {
            let (done, what) = at(step);
            progress.update(index, done, STEPS);
            progress.say(format!("{}: {what}", names[index]));
        });
        progress.done(index);
        kernels.push(match built {
            Ok(Built::New { image, freed_bytes }) => {
                told.extend(removed(&image.name, freed_bytes));
                told.extend(kept(&cache, &image.name));
                Kernel::of(&image, State::New)
            }
            Ok(Built::Found(image)) => Kernel::of(&image, State::Built),
            Err(error) => {
                progress.finish();
                told.iter().for_each(|line| caller.note(line));
                return Err(failure(error));
            }
        });
    }
    progress.finish();
    told.iter().for_each(|line| caller.note(line));
    Ok(KernelsReport {
        trimwise: trimwise::VERSION,
        directory: cache.directory().to_owned(),
        kernels,
        kept: None,
    })
}

/// Reports what became of the outdated images that the new one replaces, if there were any.
fn removed(name: &KernelName, freed_bytes: Result<u64, String>) -> Option<String> {
    match freed_bytes {
        Ok(0) => None,
        Ok(bytes) => Some(format!("removed outdated images of {name}: {} freed", Bytes(bytes))),
        Err(error) => Some(format!(
            "outdated images of {name} are still there: {error}; `trimwise kernel list` names them"
        )),
    }
}

/// Tells what a build has left for the next one.
fn kept(cache: &Cache, name: &KernelName) -> Option<String> {
    let kept = cache.kept().ok()?.into_iter().find(|kept| kept.version == name.version())?;
    (!name.is_plain()).then(|| {
        format!(
            "kept source and objects of {version} for further builds: {} in {}; `trimwise kernel remove --source \
             {version}` removes them",
            Bytes(kept.size_bytes),
            kept.directory.display(),
            version = name.version()
        )
    })
}

/// Returns how far a build is, and its current step.
fn at(step: Step) -> (u64, String) {
    match step {
        Step::Wait => (0, "waiting for another build of it".to_owned()),
        Step::Read => (0, "reading the source".to_owned()),
        Step::Download => (0, "download".to_owned()),
        Step::Unpack => (UNPACK_AT, "unpacking".to_owned()),
        Step::Configure => (CONFIGURE_AT, "configuration".to_owned()),
        Step::Compile { done, expected } => {
            let steps = done * (STEPS - 1 - COMPILE_AT) / expected.max(1);
            (COMPILE_AT + steps, format!("compiling, {done} of about {expected}"))
        }
    }
}

/// Lists the kernels that are built and those that can be.
///
/// # Errors
///
/// A [`Failure`] if the folder of the kernels cannot be read.
pub fn list() -> Result<KernelsReport, Failure> {
    let cache = Cache::of_user().map_err(failure)?;
    let images = cache.list().map_err(failure)?;
    let mut kernels: Vec<Kernel> = images
        .iter()
        .map(|image| {
            let is_current = image.is_current() && image.changed_set().is_none();
            Kernel::of(image, if is_current { State::Built } else { State::Outdated })
        })
        .collect();
    for series in &CATALOGUE {
        let is_built = |kernel: &Kernel| kernel.version == series.version && kernel.state == State::Built;
        if !kernels.iter().any(is_built) {
            kernels.push(Kernel::not_built(series.version));
        }
    }
    kernels.sort_by_key(|kernel| kernel.version.parse().map(|name: KernelName| name.sort_key()).ok());
    let kept = cache.kept().map_err(failure)?.into_iter().map(|kept| Kept {
        version: kept.version,
        source: kept.source,
        directory: kept.directory,
        size_bytes: kept.size_bytes,
    });
    let directory = cache.directory().to_owned();
    Ok(KernelsReport { trimwise: trimwise::VERSION, directory, kernels, kept: Some(kept.collect()) })
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
            patches: Vec::new(),
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
            patches: image.patches.clone(),
            compiler: Some(image.compiler.clone()),
            recipe: Some(image.recipe.clone()),
            linux: Some(image.linux.clone()),
            size_bytes: Some(image.size_bytes),
            built: Some(humantime::format_rfc3339_seconds(image.built).to_string()),
            ..Self::not_built(&image.name.to_string())
        }
    }
}

/// A kernel that cannot be found, built or removed: what the user can correct is a usage error.
pub fn failure(error: KernelError) -> Failure {
    match error {
        KernelError::Interrupted => Failure::Interrupted,
        error if error.is_usage() => error.mistake().fail(),
        error => Failure::run(error),
    }
}
