//! `trimwise fit`: a profile from a short bench.

pub mod arguments;
pub mod table;

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::block::{BlockDevice, BlockError, BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::{Profile, SettingValue};
use trimwise::ssd::Ssd;
use trimwise::units::SimDuration;
use trimwise_lab::failure::Failure;
use trimwise_lab::fit::{self, Fitted, Measured, OnStep, Plan, Prediction};
use trimwise_linux::block_on;
use trimwise_linux::here::{Drive, Here, drives_of_device};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::raw_device::{Access, Options, RawDevice, Target};

use crate::commands::compare::here::profile_for;
use crate::commands::fit::arguments::FitArguments;
use crate::output::{Destinations, is_quiet};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::input;
use trimwise_study::real_target::RealTarget;

/// Operations that the ring holds.
const QUEUE_DEPTH: u32 = 256;

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct FitReport {
    /// The version of trimwise.
    trimwise: &'static str,
    /// The target, as given.
    pub target: String,
    /// The profile of what was not measured.
    pub base: String,
    /// How it was chosen: `given`, `model` or `class`.
    pub base_chosen_by: &'static str,
    /// Whether only reads were made.
    pub read_only: bool,
    #[serde(flatten)]
    pub measured: Measured,
    /// The fitted settings.
    pub fitted: Vec<FittedSetting>,
    /// Tests that nothing was fitted to.
    pub held_back: Vec<Prediction>,
    /// Whether their errors are larger than those of the base, in most or on average.
    pub predicts_worse_than_base: bool,
    /// A read while TRIMs follow each other, as a multiple of one alone.
    pub read_beside_trims: Option<f64>,
    /// Why not to rely on the profile.
    pub warnings: Vec<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// The profile, as `--out` writes it.
    pub profile_toml: String,
    /// The command that repeats this.
    pub command: String,
    /// Where the profile was written.
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// A directory on the drive, if one is known.
    #[serde(skip)]
    pub directory: Option<PathBuf>,
}

/// A fitted setting.
#[derive(Debug, Serialize)]
pub struct FittedSetting {
    /// Its dotted name; its unit is the name's end.
    pub setting: &'static str,
    /// The base's value; `None` if it has none.
    pub base: Option<SettingValue>,
    /// The fitted value.
    pub value: SettingValue,
    /// The lower end of the 95 % interval.
    pub low: Option<u64>,
    /// Its upper end.
    pub high: Option<u64>,
    /// Measurements behind it.
    pub samples: usize,
}

/// A target as it was understood.
enum What {
    Model(Box<Profile>),
    Real(RealTarget),
}

/// Runs the command and returns what to print.
pub fn run(
    arguments: &FitArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    if let Some(out) = &arguments.out {
        destinations.check_another("--out", out)?;
    }
    let what = target(arguments)?;
    let (base, chosen_by, drive) = base(arguments, &what)?;
    let stop = on_signal(OnInterrupt::Stop)?;
    let progress = Progress::of(1, "fits");
    let on_step = |step: &'static str, thousandths: u64| {
        progress.say(step.to_owned());
        progress.update(0, thousandths, 1000);
    };
    let measured = match &what {
        What::Model(profile) => on_model(arguments, profile, &stop),
        What::Real(real) => on_real(arguments, real, &stop, &on_step),
    };
    let (mut measured, plan, mut notes) = measured.inspect_err(|_| progress.finish())?;
    if let Some(drive) = drive {
        measured.drive_bytes = Some(drive.size.0).filter(|&bytes| bytes > 0);
        measured.drive_model = Some(drive.model).filter(|model| !model.is_empty());
    }
    on_step("fitting", 950);
    let name =
        arguments.out.as_deref().and_then(Path::file_stem).map_or("fitted".into(), |s| s.to_string_lossy());
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let fitted = fit::fit(&measured, &base, &name, plan, &stop);
    progress.finish();
    let Fitted {
        toml, fits, notes: of_fit, warnings, predictions, predicts_worse, read_beside_trims, ..
    } = fitted?;
    if fits.is_empty() {
        return Err(Failure::run(format!(
            "{}: nothing was fitted: what was measured does not fit {}; expected another --from{}",
            arguments.target,
            base.name,
            if arguments.read_only { ", or no --read-only" } else { "" }
        )));
    }
    notes.extend(of_fit);
    if let Some(out) = &arguments.out {
        destinations.write_result("--out", out, &toml)?;
    }
    let fitted = fits.into_iter().map(|f| FittedSetting {
        setting: f.setting,
        base: base.settings.iter().find(|s| s.name == f.setting).map(|s| s.value.clone()),
        value: f.value,
        low: f.interval.map(|(low, _)| low),
        high: f.interval.map(|(_, high)| high),
        samples: f.samples,
    });
    let report = FitReport {
        trimwise: trimwise::VERSION,
        target: arguments.target.clone(),
        base: base.name.clone(),
        base_chosen_by: chosen_by,
        read_only: arguments.read_only,
        measured,
        fitted: fitted.collect(),
        held_back: predictions,
        predicts_worse_than_base: predicts_worse,
        read_beside_trims,
        warnings,
        notes,
        profile_toml: toml,
        command: command(arguments),
        out: arguments.out.clone(),
        directory: directory_here(&what),
    };
    destinations.deliver(&report, || table::render(&report))
}

/// Finds out what the argument names.
fn target(arguments: &FitArguments) -> Result<What, Failure> {
    let FitArguments { target, size, destroy, .. } = arguments;
    if let Some(name) = target.strip_prefix("model:") {
        if name.is_empty() {
            return Err(Failure::usage(
                "model: without a name; expected model:NAME, a built-in profile (see `trimwise devices`) or a TOML file",
            ));
        }
        for (option, given) in [("--size", size.is_some()), ("--destroy", destroy.is_some())] {
            if given {
                return Err(Failure::usage(format!(
                    "{option}: {target} is a model; expected no {option} with it"
                )));
            }
        }
        let profile = input::profile(name, "device").map_err(input::as_argument)?;
        return Ok(What::Model(Box::new(profile)));
    }
    if let Some(size) = size.filter(|&size| size < fit::REGION_MIN) {
        return Err(Failure::usage(format!(
            "--size: {size} to measure on; expected at least {}",
            fit::REGION_MIN
        )));
    }
    let found = fs::metadata(target);
    let written = match &found {
        _ if ["file:", "dev:"].iter().any(|prefix| target.starts_with(prefix)) => target.clone(),
        Ok(found) if found.file_type().is_block_device() => format!("dev:{target}"),
        Ok(found) if found.is_dir() && arguments.read_only => {
            return Err(Failure::usage(format!(
                "{target}: a directory; --read-only needs something to read: expected a file or a device"
            )));
        }
        Ok(found) if found.is_dir() => {
            format!(
                "file:{}",
                Path::new(target).join(format!("trimwise-fit.{}", std::process::id())).display()
            )
        }
        Err(_) if Profile::embedded(target).is_some() => {
            return Err(Failure::usage(format!(
                "{target}: neither file nor device; expected model:{target}?"
            )));
        }
        // A mistyped name must not become a file.
        Err(error) => {
            return Err(Failure::usage(format!(
                "{target}: {error}; expected a file, directory or device that exists, or file:{target} for a new file"
            )));
        }
        Ok(_) => format!("file:{target}"),
    };
    RealTarget::parse(&written, *size, destroy.as_ref())?.map(What::Real).ok_or_else(|| {
        Failure::usage(format!("{target}: expected a file, a directory, a device or model:NAME"))
    })
}

/// The profile of what is not measured, how it was chosen, and the real drive.
fn base(arguments: &FitArguments, what: &What) -> Result<(Profile, &'static str, Option<Drive>), Failure> {
    let drives = match what {
        What::Model(_) => Vec::new(),
        What::Real(real) => match &real.target {
            Target::Device(path) => drives_of_device(&HostRoot::default(), path).map_err(Failure::usage)?,
            Target::File(path) => {
                let place = if path.exists() { path.clone() } else { directory_of(path) };
                let here = Here::of(&HostRoot::default(), Path::new("/run/trimwise"), &place);
                here.map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?.drives
            }
        },
    };
    let drive = drives.into_iter().next();
    let (name, chosen_by) = match (&arguments.from, what, &drive) {
        (Some(from), ..) => (from.clone(), "given"),
        (None, What::Model(profile), _) => {
            return Err(Failure::usage(format!(
                "{}: --from is missing: a model has no class; expected another profile than {}",
                arguments.target, profile.name
            )));
        }
        (None, _, Some(drive)) => {
            let (name, chosen_by, _) = profile_for(drive);
            (name, chosen_by)
        }
        (None, _, None) => {
            return Err(Failure::usage(format!(
                "{}: no drive is known below it; expected --from PROFILE (see `trimwise devices`)",
                arguments.target
            )));
        }
    };
    input::profile(&name, "from").map(|profile| (profile, chosen_by, drive))
}

/// Where `compare --here` can look.
fn directory_here(what: &What) -> Option<PathBuf> {
    match what {
        What::Real(RealTarget { target: Target::File(path), .. }) => Some(directory_of(path)),
        _ => None,
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn plan(arguments: &FitArguments, device: &impl BlockDevice) -> Result<Plan, Failure> {
    let region = fit::check(device.facts())?;
    let time = SimDuration::from_secs(arguments.seconds);
    Ok(Plan { region, read_only: arguments.read_only, time, seed: arguments.seed })
}

fn ended(error: &BlockError) -> Failure {
    match error {
        BlockError::Interrupted => Failure::Interrupted,
        other => Failure::run(other),
    }
}

type Found = (Measured, Plan, Vec<String>);

fn on_model(arguments: &FitArguments, profile: &Profile, stop: &Arc<AtomicBool>) -> Result<Found, Failure> {
    let config = fit::sized(&profile.config).map_err(|e| Failure::usage(format!("{}: {e}", profile.name)))?;
    let sim = Sim::new();
    let ssd = Ssd::new(&config, arguments.seed).map_err(Failure::usage)?;
    let queue = BlockQueue::new(&sim, ssd, QueueConfig::default());
    let device = ModelDevice::new(queue, &arguments.target).interrupted_by(stop);
    let plan = plan(arguments, &device)?;
    let measured = sim.run(async move {
        if plan.read_only {
            // A drive in use holds data.
            fit::fill(&device, plan).await?;
        }
        fit::measure(&device, plan, &|_, _| {}).await
    });
    let notes = vec!["a model in place of a drive, in virtual time".to_owned()];
    Ok((measured.map_err(Failure::run)?.map_err(|e| ended(&e))?, plan, notes))
}

fn on_real(
    arguments: &FitArguments,
    real: &RealTarget,
    stop: &Arc<AtomicBool>,
    on_step: OnStep<'_>,
) -> Result<Found, Failure> {
    if let Target::File(path) = &real.target {
        // Before a file of a GiB is made there.
        let here = Here::of(&HostRoot::default(), Path::new("/run/trimwise"), &directory_of(path));
        if let Some(here) = here.ok().filter(Here::is_in_memory) {
            return Err(Failure::usage(format!(
                "{}: on {}, which lies in memory; expected a file on a drive",
                path.display(),
                here.mount.fs_type
            )));
        }
    }
    let device = if arguments.read_only {
        let options =
            Options { queue_depth: QUEUE_DEPTH, interrupted: Arc::clone(stop), ..Options::default() };
        RawDevice::open(Access::Read(real.target.clone()), &options).map_err(Failure::usage)?
    } else {
        real.open(true, QUEUE_DEPTH, stop)?
    };
    let in_memory = device.notes().iter().find(|note| note.contains("refuses direct I/O"));
    if let Some(note) = in_memory {
        return Err(Failure::usage(format!("{note}; expected a file system that reads from its drive")));
    }
    let plan = plan(arguments, &device)?;
    if !is_quiet() {
        let written = if arguments.read_only { "nothing is written" } else { "several GiB are written" };
        eprintln!("note: about {} s, more on a slow drive; {written}", arguments.seconds);
    }
    let measured = block_on(fit::measure(&device, plan, on_step)).map_err(Failure::run)?;
    let mut notes = device.notes().to_vec();
    if matches!(real.target, Target::File(_)) {
        notes.push(
            "measured through a file system: its time is part of what was found, and a TRIM is a punched hole"
                .to_owned(),
        );
    }
    Ok((measured.map_err(|e| ended(&e))?, plan, notes))
}

fn command(arguments: &FitArguments) -> String {
    let mut command = CommandText::new("fit");
    command.argument(&arguments.target);
    if let Some(from) = &arguments.from {
        command.option("--from", from);
    }
    command.option("--seconds", arguments.seconds);
    command.option("--seed", arguments.seed);
    if arguments.read_only {
        command.argument("--read-only");
    }
    if let Some(size) = arguments.size {
        command.option("--size", size.0);
    }
    if let Some(word) = &arguments.destroy {
        command.option("--destroy", word);
    }
    if let Some(out) = &arguments.out {
        command.option("--out", out.display());
    }
    command.into_text()
}

#[cfg(test)]
mod tests;
