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

/// Progress steps for one kernel, and the steps at which parts of a build begin, in proportion to their time.
const STEPS: u64 = 1000;
const UNPACK_AT: u64 = 15;
const CONFIGURE_AT: u64 = 45;
const COMPILE_AT: u64 = 50;

/// A request to build kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelBuildRequest {
    /// Versions to build; empty means the whole catalogue.
    pub versions: Vec<String>,
    /// Folders of patch sets, in the order in which they are applied.
    pub with: Vec<PathBuf>,
    /// A variant of the configuration.
    pub variant: Option<String>,
    /// The source (a clean tree or a tarball) for the only version; `None` means Debian's package.
    pub source: Option<PathBuf>,
    /// Compilers at a time; `None` means one for each core.
    pub jobs: Option<NonZero<u16>>,
    /// Whether to rebuild existing kernels from the newest package.
    pub again: bool,
}

/// The result; the order of the keys is part of the format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelsReport {
    pub trimwise: &'static str,
    /// The folder of the kernels.
    pub directory: PathBuf,
    pub kernels: Vec<Kernel>,
    /// The sources kept for further builds; `None` if they were not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Vec<Kept>>,
}

/// A source kept for further builds, with its objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The version that it builds.
    pub version: String,
    /// Where it came from; `null` if it is incomplete.
    pub source: Option<String>,
    pub directory: PathBuf,
    /// Disk space taken.
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// The version, followed by what was added to it.
    pub version: String,
    pub state: State,
    /// The kernels that its results stand for, if known.
    pub stands_for: Option<&'static str>,
    /// The output of `uname -r` in it.
    pub release: Option<String>,
    /// Where its source came from.
    pub source: Option<String>,
    /// The patch sets that it was built with, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<BuiltSet>,
    /// The first line of the compiler's version.
    pub compiler: Option<String>,
    /// Hash of the patches, the configuration and the build recipe.
    pub recipe: Option<String>,
    /// The kernel's executable.
    pub linux: Option<PathBuf>,
    /// Size of that executable.
    pub size_bytes: Option<u64>,
    /// When it was built, in UTC.
    pub built: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    New,
    /// Built earlier.
    Built,
    /// Built by another version of trimwise, with another configuration or recipe, or from patches that have since
    /// changed; such a kernel is not used.
    Outdated,
    NotBuilt,
}

/// Builds the missing kernels. If a build fails or the caller stops it, kernels built until then are kept.
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

/// Reports what happened to the outdated images that the new one replaces, if there were any.
fn removed(name: &KernelName, freed_bytes: Result<u64, String>) -> Option<String> {
    match freed_bytes {
        Ok(0) => None,
        Ok(bytes) => Some(format!("removed outdated images of {name}: {} freed", Bytes(bytes))),
        Err(error) => Some(format!(
            "outdated images of {name} are still there: {error}; `trimwise kernel list` lists them"
        )),
    }
}

/// Reports what a build leaves for later builds.
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

/// Returns the progress of a build, in steps, and what it is doing.
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

/// Lists the kernels that are built, and those that can be built.
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

/// Turns an error that the user can correct into a usage error.
pub fn failure(error: KernelError) -> Failure {
    match error {
        KernelError::Interrupted => Failure::Interrupted,
        error if error.is_usage() => error.mistake().fail(),
        error => Failure::run(error),
    }
}
