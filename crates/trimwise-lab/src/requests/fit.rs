//! Fits a profile to a drive that is measured briefly.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::fit::{self, Fitted, Measured, OnStep, Plan, Prediction};
use serde::{Deserialize, Serialize};
use trimwise::block::{BlockDevice, BlockError, BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::failure::{Failure, Mistake, Mistakes, argument, key, set};
use trimwise::profile::{Profile, SettingValue};
use trimwise::ssd::Ssd;
use trimwise::units::{Bytes, SimDuration};
use trimwise::words;
use trimwise_linux::block_on;
use trimwise_linux::daemon::DEFAULT_RUN;
use trimwise_linux::here::{Drive, Here, drives_of_device};
use trimwise_linux::host_root::HostRoot;
use trimwise_linux::raw_device::{Access, Options, RawDevice, Target};

use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::check::within;
use trimwise_study::command_text::CommandText;
use trimwise_study::real_target::RealTarget;
use trimwise_study::stand_in::profile_for;
use trimwise_study::{defaults, input};

/// Operations that the ring holds.
const QUEUE_DEPTH: u32 = 256;

/// Accepted numbers of seconds to measure.
pub const SECONDS: RangeInclusive<u64> = 5..=3600;

/// A request to measure a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitRequest {
    /// A directory or file, a block device, or `model:NAME`; `file:PATH` and `dev:PATH` are explicit.
    pub target: String,
    /// The profile (a name or a file) that supplies what cannot be measured; `None` means the one for the drive's model
    /// or class.
    pub from: Option<String>,
    /// The file that the caller writes the profile to. The profile is named after it.
    pub out: Option<PathBuf>,
    /// About how many seconds to measure; a model takes them in virtual time.
    pub seconds: u64,
    /// Whether to read only.
    #[serde(default)]
    pub read_only: bool,
    /// Seed of the random places and of the intervals.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// The size of a file to create.
    pub size: Option<Bytes>,
    /// The word that confirms what may be destroyed, as the error without it says.
    pub destroy: Option<String>,
}

/// The result; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct FitReport {
    pub trimwise: &'static str,
    /// The target as given.
    pub target: String,
    /// The profile that supplies what was not measured.
    pub base: String,
    /// How the base was chosen: `given`, `model`, `class` or `guess`.
    pub base_chosen_by: &'static str,
    pub read_only: bool,
    #[serde(flatten)]
    pub measured: Measured,
    pub fitted: Vec<FittedSetting>,
    /// Predictions of tests that were held back from the fit.
    pub held_back: Vec<Prediction>,
    /// Whether most errors of these predictions, or their average, are larger than the base's.
    pub predicts_worse_than_base: bool,
    /// The profile to use with `--device`: the base if it predicts better, otherwise the fitted one; null if that is
    /// not written to a file.
    pub recommended: Option<String>,
    /// The time of a read during back-to-back TRIMs, as a multiple of a read alone.
    pub read_beside_trims: Option<f64>,
    /// Reasons not to rely on the profile.
    pub warnings: Vec<String>,
    /// What a reader should know about the measurements.
    pub notes: Vec<String>,
    pub profile_toml: String,
    pub command: String,
    /// The file that the profile is written to.
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// A directory on the drive, if known.
    #[serde(skip)]
    pub directory: Option<PathBuf>,
}

/// A setting that was fitted.
#[derive(Debug, Serialize)]
pub struct FittedSetting {
    /// The dotted name, which ends with the unit.
    pub setting: &'static str,
    /// The base's value, if it has one.
    pub base: Option<SettingValue>,
    pub value: SettingValue,
    /// Lower end of the 95 % interval.
    pub low: Option<u64>,
    /// Upper end of the 95 % interval.
    pub high: Option<u64>,
    /// Number of measurements behind the value.
    pub samples: usize,
}

/// The kind of target that an argument names.
enum What {
    Model(Box<Profile>),
    Real(RealTarget),
}

/// Measures the drive and fits a profile to it.
pub fn run(request: &FitRequest, caller: &dyn Caller) -> Result<FitReport, Failure> {
    within("seconds", request.seconds, &SECONDS)?;
    let what = target(request)?;
    let (base, chosen_by, drive) = base(request, &what)?;
    // A user's own base is known by its file.
    let base_argument = request.from.clone().unwrap_or_else(|| base.name.clone());
    let stop = caller.stop(OnInterrupt::Stop)?;
    let progress = caller.progress(1, "fits");
    let on_step = |step: &'static str, thousandths: u64| {
        progress.say(step.to_owned());
        progress.update(0, thousandths, 1000);
    };
    let measured = match &what {
        What::Model(profile) => on_model(request, profile, &stop),
        What::Real(real) => on_real(request, real, &stop, &on_step, caller),
    };
    let (mut measured, plan, mut notes) = measured.inspect_err(|_| progress.finish())?;
    if let Some(drive) = drive {
        measured.drive_bytes = Some(drive.size.0).filter(|&bytes| bytes > 0);
        measured.drive_model = Some(drive.model).filter(|model| !model.is_empty());
    }
    on_step("fitting", 950);
    let name =
        request.out.as_deref().and_then(Path::file_stem).map_or("fitted".into(), |s| s.to_string_lossy());
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let fitted = fit::fit(&measured, &base, &name, plan, &stop);
    progress.finish();
    let Fitted {
        toml, fits, notes: of_fit, warnings, predictions, predicts_worse, read_beside_trims, ..
    } = fitted?;
    if fits.is_empty() {
        return Err(Failure::run(format!(
            "{}: nothing was fitted: what was measured does not fit {}; expected another --from{}",
            request.target,
            base.name,
            if request.read_only { ", or no --read-only" } else { "" }
        )));
    }
    notes.extend(of_fit);
    let fitted = fits.into_iter().map(|f| FittedSetting {
        setting: f.setting,
        base: base.settings.iter().find(|s| s.name == f.setting).map(|s| s.value.clone()),
        value: f.value,
        low: f.interval.map(|(low, _)| low),
        high: f.interval.map(|(_, high)| high),
        samples: f.samples,
    });
    Ok(FitReport {
        trimwise: trimwise::VERSION,
        target: request.target.clone(),
        base: base.name.clone(),
        base_chosen_by: chosen_by,
        read_only: request.read_only,
        measured,
        fitted: fitted.collect(),
        held_back: predictions,
        predicts_worse_than_base: predicts_worse,
        recommended: match predicts_worse {
            true => Some(base_argument),
            false => request.out.as_ref().map(|out| out.display().to_string()),
        },
        read_beside_trims,
        warnings,
        notes,
        profile_toml: toml,
        command: command(request),
        out: request.out.clone(),
        directory: directory_here(&what),
    })
}

fn of_target(target: impl std::fmt::Display) -> Mistake {
    Mistake::of(argument("target"), target)
}

/// Finds out what the argument names.
fn target(request: &FitRequest) -> Result<What, Failure> {
    let FitRequest { target, size, destroy, .. } = request;
    let of = of_target(target);
    if let Some(name) = target.strip_prefix("model:") {
        if name.is_empty() {
            let expected = "model:NAME, a built-in profile (see `trimwise devices`) or a TOML file";
            return Err(of.that_is("without a name").expected(expected).fail());
        }
        let given = [("size", size.is_some()), ("destroy", destroy.is_some())];
        Mistakes::of(given.into_iter().filter(|(_, given)| *given).map(|(field, _)| {
            let expected = words!["no ", key(field), " with it"];
            Err(Mistake::on(field).because(format!("{target} is a model")).expected(expected).fail())
        }))?;
        let profile = input::profile(name, argument("target"))?;
        return Ok(What::Model(Box::new(profile)));
    }
    if let Some(size) = size.filter(|&size| size < fit::REGION_MIN) {
        let of = Mistake::on("size").because(format!("{size} to measure on"));
        return Err(of.expected(format!("at least {}", fit::REGION_MIN)).fail());
    }
    let found = fs::metadata(target);
    let written = match &found {
        _ if ["file:", "dev:"].iter().any(|prefix| target.starts_with(prefix)) => target.clone(),
        Ok(found) if found.file_type().is_block_device() => format!("dev:{target}"),
        Ok(found) if found.is_dir() && request.read_only => {
            let why = words![
                "a directory; ",
                key("read_only"),
                " needs something to read: expected a file or a device"
            ];
            return Err(of.because(why).fail());
        }
        Ok(found) if found.is_dir() => {
            format!(
                "file:{}",
                Path::new(target).join(format!("trimwise-fit.{}", std::process::id())).display()
            )
        }
        Err(_) if Profile::embedded(target).is_some() => {
            return Err(of
                .because(format!("neither a file nor a device; did you mean model:{target}?"))
                .fail());
        }
        // A mistyped name must not create a file.
        Err(error) => {
            let expected =
                format!("a file, directory or device that exists, or file:{target} for a new file");
            return Err(of.because(error.to_string()).expected(expected).fail());
        }
        Ok(_) => format!("file:{target}"),
    };
    RealTarget::parse(&written, *size, destroy.as_ref())?
        .map(What::Real)
        .ok_or_else(|| of.expected("a file, a directory, a device or model:NAME").fail())
}

/// The base for what shows nothing of the drive below it.
const GUESS: &str = "sata-generic";

/// Returns the profile that supplies what is not measured, how it was chosen, and the real drive.
fn base(request: &FitRequest, what: &What) -> Result<(Profile, &'static str, Option<Drive>), Failure> {
    let drives = match what {
        What::Model(_) => Vec::new(),
        What::Real(real) => match &real.target {
            Target::Device(path) => drives_of_device(&HostRoot::default(), path)
                .map_err(|e| Mistake::that(e.to_string()).fail())?,
            Target::File(path) => {
                let place = if path.exists() { path.clone() } else { directory_of(path) };
                let here = Here::of(&HostRoot::default(), Path::new(DEFAULT_RUN), &place);
                here.map_err(|e| of_target(path.display()).because(e.to_string()).fail())?.drives
            }
        },
    };
    let drive = drives.into_iter().next();
    let of = of_target(&request.target);
    let (name, chosen_by) = match (&request.from, what, &drive) {
        (Some(from), ..) => (from.clone(), "given"),
        (None, What::Model(profile), _) => {
            let of = of.because(words![key("from"), " is missing: a model has no class"]);
            return Err(of.expected(format!("a profile other than {}", profile.name)).fail());
        }
        (None, _, Some(drive)) => match profile_for(drive) {
            Ok(chosen) => (chosen.profile, chosen.by),
            // Measuring needs no verdict on what it measures.
            Err(_) => (GUESS.to_owned(), "guess"),
        },
        (None, _, None) => {
            let expected = words![set("from", "PROFILE"), " (see `trimwise devices`)"];
            return Err(of.because("no drive was found below it").expected(expected).fail());
        }
    };
    input::profile(&name, "from").map(|profile| (profile, chosen_by, drive))
}

/// Returns a path for `compare --here`.
fn directory_here(what: &What) -> Option<PathBuf> {
    match what {
        What::Real(RealTarget { target: Target::File(path), .. }) => Some(directory_of(path)),
        _ => None,
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

fn plan(request: &FitRequest, device: &impl BlockDevice) -> Result<Plan, Failure> {
    let region = fit::check(device.facts())?;
    let time = SimDuration::from_secs(request.seconds);
    Ok(Plan { region, read_only: request.read_only, time, seed: request.seed })
}

fn ended(error: &BlockError) -> Failure {
    match error {
        BlockError::Interrupted => Failure::Interrupted,
        other => Failure::run(other),
    }
}

type Found = (Measured, Plan, Vec<String>);

fn on_model(request: &FitRequest, profile: &Profile, stop: &Arc<AtomicBool>) -> Result<Found, Failure> {
    let config =
        fit::sized(&profile.config).map_err(|e| of_target(&profile.name).because(e.to_string()).fail())?;
    let sim = Sim::new();
    let ssd = Ssd::new(&config, request.seed)
        .map_err(|e| of_target(&profile.name).because(e.to_string()).fail())?;
    let queue = BlockQueue::new(&sim, ssd, QueueConfig::default());
    let device = ModelDevice::new(queue, &request.target).interrupted_by(stop);
    let plan = plan(request, &device)?;
    let measured = sim.run(async move {
        if plan.read_only {
            // Before the measurement, fill the drive: one in use holds data.
            fit::fill(&device, plan).await?;
        }
        fit::measure(&device, plan, &|_, _| {}).await
    });
    let notes = vec!["a model in place of a drive, in virtual time".to_owned()];
    Ok((measured.map_err(Failure::run)?.map_err(|e| ended(&e))?, plan, notes))
}

fn on_real(
    request: &FitRequest,
    real: &RealTarget,
    stop: &Arc<AtomicBool>,
    on_step: OnStep<'_>,
    caller: &dyn Caller,
) -> Result<Found, Failure> {
    if let Target::File(path) = &real.target {
        // Find this out before making a file of a GiB there.
        let here = Here::of(&HostRoot::default(), Path::new(DEFAULT_RUN), &directory_of(path));
        if let Some(here) = here.ok().filter(Here::is_in_memory) {
            let why = format!("on {}, which is in memory", here.mount.fs_type);
            return Err(of_target(path.display()).because(why).expected("a file on a drive").fail());
        }
    }
    let device = if request.read_only {
        let options =
            Options { queue_depth: QUEUE_DEPTH, interrupted: Arc::clone(stop), ..Options::default() };
        RawDevice::open(Access::Read(real.target.clone()), &options)
            .map_err(|e| Mistake::that(e.to_string()).fail())?
    } else {
        real.open(true, QUEUE_DEPTH, stop)?
    };
    if let Some(why) = device.is_cached().then(|| device.notes().join("; ")) {
        return Err(Mistake::that(why).expected("a file system that reads from its drive").fail());
    }
    let plan = plan(request, &device)?;
    let written = if request.read_only { "nothing is written" } else { "several GiB are written" };
    caller.note(&format!("about {} s, more on a slow drive; {written}", request.seconds));
    let measured = block_on(fit::measure(&device, plan, on_step)).map_err(Failure::run)?;
    let mut notes = device.notes().to_vec();
    if matches!(real.target, Target::File(_)) {
        notes.push(
            "measured through a file system: the figures include its time, and a TRIM is a punched hole"
                .to_owned(),
        );
    }
    Ok((measured.map_err(|e| ended(&e))?, plan, notes))
}

fn command(request: &FitRequest) -> String {
    let mut command = CommandText::new("fit");
    command.argument(&request.target);
    if let Some(from) = &request.from {
        command.option("--from", from);
    }
    command.option("--seconds", request.seconds);
    command.option("--seed", request.seed);
    if request.read_only {
        command.argument("--read-only");
    }
    if let Some(size) = request.size {
        command.option("--size", size.0);
    }
    if let Some(word) = &request.destroy {
        command.option("--destroy", word);
    }
    if let Some(out) = &request.out {
        command.option("--out", out.display());
    }
    command.into_text()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use trimwise_study::caller::Silent;

    #[test]
    fn what_cannot_be_measured_is_refused_with_what_can() {
        let dir = tempfile::tempdir().unwrap();
        let full = dir.path().join("full");
        fs::write(&full, vec![7; 1 << 20]).unwrap();
        let (full, shown) = (full.display().to_string(), dir.path().display().to_string());
        let of = |target: &str, more: Value| {
            let mut request = json!({"target": target, "from": "vendor1", "seconds": 30});
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<FitRequest>(request).unwrap()
        };
        for (request, words) in [
            (of("model:nosuch", json!({})), "nosuch: neither a built-in name"),
            (of("model:vendor1", json!({"from": null})), "--from is missing"),
            (of("model:vendor1", json!({"size": 1 << 30})), "--size: model:vendor1 is a model"),
            (of("model:vendor1", json!({"from": "nosuch"})), "--from nosuch: neither a built-in name"),
            (of("vendor1", json!({"from": null})), "did you mean model:vendor1?"),
            (of(&full, json!({})), "--destroy"),
            (of(&full, json!({"read_only": true})), "1 MiB to measure on; expected at least 64 MiB"),
            (of(&shown, json!({"read_only": true})), "--read-only needs something to read"),
            (of(&shown, json!({"size": 8 << 20})), "8 MiB to measure on; expected at least 64 MiB"),
            (of(&shown, json!({"size": 1 << 10})), "1 KiB to measure on; expected at least 64 MiB"),
            (of(&format!("{shown}/nosuch"), json!({})), "/nosuch for a new file"),
            (of("/dev/nosuch", json!({})), "expected a file, directory or device that exists"),
            (of("file:/dev/nosuch", json!({})), "/dev"),
            (of("model:", json!({})), "expected model:NAME"),
            (of(&shown, json!({"size": 4000_u64 << 40})), "no room for a file"),
            (of("dev:/dev/null", json!({})), "/dev/null"),
        ] {
            let failure = run(&request, &Silent::default()).unwrap_err();
            assert!(
                matches!(&failure, Failure::Usage(m) if m.to_string().contains(words)),
                "{request:?}: {failure:?}"
            );
        }
        assert_eq!(fs::read(&full).unwrap(), vec![7; 1 << 20], "nothing was written");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no file is left");
        assert!(!Path::new("/dev/nosuch").exists());
    }
}
