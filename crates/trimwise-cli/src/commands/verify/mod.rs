//! `trimwise verify`: whether a drive honours TRIM, and whether TRIM gives its speed back.
//!
//! On a model, a real file or a device it runs the torture, which destroys all data; `directory` is the form for a
//! mounted file system, which destroys nothing.

pub mod arguments;
pub mod directory;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::ssd::{Drive, Faults, SsdConfig};
use trimwise::units::{Bytes, SimDuration};
use trimwise_lab::bench::verify::{Torture, Verdict, Verification, verify};
use trimwise_lab::bench::{Hooks, Part, Settings};
use trimwise_lab::failure::Failure;
use trimwise_linux::block_on;
use trimwise_linux::raw_device::Target;

use crate::commands::verify::arguments::{Plant, VerifyArguments};
use crate::output::{self, Destinations};
use crate::progress::Progress;
use trimwise_study::caller::OnInterrupt;
use trimwise_study::command_text::CommandText;
use trimwise_study::defaults;
use trimwise_study::input;
use trimwise_study::real_target::RealTarget;

/// Progress callback, called with the thousandths that are done.
type OnThousandths = Arc<dyn Fn(u64)>;

/// Default size of a modelled drive: every profile comes to the same verdict, in seconds.
const MODEL_BYTES: Bytes = Bytes::gib(4);

/// What `--json` writes; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// What was asked for.
    pub settings: VerifySettings,
    /// Whether it ended early, because the device failed or the user stopped it.
    pub partial: bool,
    /// Further remarks for the user.
    pub notes: Vec<String>,
    /// What was found.
    #[serde(flatten)]
    pub found: Verification,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct VerifySettings {
    /// The target, as given.
    pub target: String,
    /// The fault that was planted.
    pub fault: Option<&'static str>,
    /// The part of the device that was verified, in percent of it.
    pub region_start_percent: f64,
    /// How long that part is.
    pub region_length_percent: f64,
    /// Random writes of the torture, in percent of that part.
    pub torture_percent: u64,
    /// Rest before each measurement.
    pub rest_s: u64,
    /// The command that repeats this.
    pub command: String,
}

/// Runs the command and returns what to print; exit code 1 reports a drive that treats TRIM wrongly. `on_signal`
/// installs the handler for Ctrl-C and returns the flag that it raises.
pub fn run(
    arguments: &VerifyArguments,
    on_signal: impl FnOnce(OnInterrupt) -> Result<Arc<AtomicBool>, Failure>,
) -> Result<String, Failure> {
    let destinations = Destinations::check_json(&arguments.json)?;
    if arguments.target.starts_with("dir:") {
        return directory::run(arguments, &destinations, on_signal);
    }
    let real = RealTarget::parse(&arguments.target, arguments.size, arguments.destroy.as_ref())?;
    let settings = Settings {
        content: arguments.content.unwrap_or(ContentClass::Compressible),
        seed: arguments.seed.unwrap_or(defaults::SEED),
        region: arguments.region.unwrap_or(Part::ALL),
    };
    let usual = Torture::default();
    let torture = Torture {
        written_percent: arguments.torture.unwrap_or(usual.written_percent),
        rest: arguments.rest.map_or(usual.rest, SimDuration::from_secs),
        leaves_holes: matches!(&real, Some(RealTarget { target: Target::File(_), .. })),
    };
    let progress = Progress::of(1, "drives");
    let on_progress: OnThousandths = {
        let progress = Arc::clone(&progress);
        Arc::new(move |thousandths| progress.update(0, thousandths, 1000))
    };
    let (found, notes) = match real {
        None => {
            refuse(arguments, "is a model", &[("--destroy", arguments.destroy.is_some())])?;
            if arguments.fault == Some(Plant::IgnoresFlush) {
                let why = "--fault ignores-flush: only a power cut shows it; expected trimwise crashtest --target ...";
                return Err(Failure::usage(why));
            }
            let modelled = Modelled::of(arguments)?;
            let stop = on_signal(OnInterrupt::StopAndShow)?;
            modelled.verify(&settings, &torture, &stop, on_progress)
        }
        Some(real) => {
            refuse(arguments, "is not a model", &[("--fault", arguments.fault.is_some())])?;
            let stop = on_signal(OnInterrupt::StopAndShow)?;
            on_real(&real, &settings, &torture, &stop, on_progress)
        }
    }?;
    progress.finish();
    let report = VerifyReport::new(arguments, &settings, &torture, found, notes);
    let text = destinations.deliver(&report, || table::render(&report))?;
    match report.failure() {
        None => Ok(text),
        Some(failure) => output::print(&text).and(Err(failure)),
    }
}

/// Rejects options that make no sense for this kind of target.
fn refuse(arguments: &VerifyArguments, what: &str, given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option}: {} {what}; expected no {option} with it",
            arguments.target
        ))),
        None => Ok(()),
    }
}

/// A profile's drive, prepared for verification.
struct Modelled {
    name: String,
    config: SsdConfig,
    faults: Faults,
    notes: Vec<String>,
}

impl Modelled {
    fn of(arguments: &VerifyArguments) -> Result<Self, Failure> {
        let profile = input::profile(&arguments.target, "device").map_err(input::as_argument)?;
        let (name, whole) = (profile.name, Bytes(profile.config.capacity_bytes));
        if let Some(size) = arguments.size.filter(|&size| size > whole) {
            return Err(Failure::usage(format!("--size {size}: expected at most {whole}, which {name} has")));
        }
        let size = arguments.size.unwrap_or(MODEL_BYTES).min(whole);
        let config = profile.config.shrunk(size.0).map_err(|error| {
            Failure::usage(format!("--size {size}: {name} cannot be scaled down to that: {error}"))
        })?;
        let faults = arguments.fault.map_or(profile.faults, |plant| plant.on(profile.faults));
        if let Some(plant) = arguments.fault {
            faults
                .validate(&config.trim)
                .map_err(|error| Failure::usage(format!("--fault {}: {name}: {error}", plant.name())))?;
        }
        let mut notes = Vec::new();
        if size < whole {
            notes.push(format!(
                "The drive was scaled down, {size} of {whole}, with the same dies, rates and shares of space"
            ));
        }
        Ok(Self { name, config, faults, notes })
    }

    fn verify(
        self,
        settings: &Settings,
        torture: &Torture,
        stop: &Arc<AtomicBool>,
        on_progress: OnThousandths,
    ) -> Result<(Verification, Vec<String>), Failure> {
        let Self { name, config, faults, notes } = self;
        let sim = Sim::new();
        // Only a drive that remembers its contents can show that it lost some.
        let config = SsdConfig { track_tags: true, ..config };
        let drive = Drive::new(&config, faults, settings.seed)
            .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
        let device = ModelDevice::new(queue, &name).interrupted_by(stop);
        let (settings, torture) = (*settings, *torture);
        let ended = sim.run(async move {
            let hooks = Hooks { on_progress: &|_, thousandths| on_progress(thousandths), stats: None };
            verify(&device, &settings, &torture, hooks).await
        });
        let found = ended.map_err(Failure::run)?.map_err(Failure::usage)?;
        Ok((found, notes))
    }
}

/// Verifies a real file or device, which is overwritten if the user agreed. Also returns notes on how it was opened.
fn on_real(
    real: &RealTarget,
    settings: &Settings,
    torture: &Torture,
    stop: &Arc<AtomicBool>,
    on_progress: OnThousandths,
) -> Result<(Verification, Vec<String>), Failure> {
    let device = real.open(true, 0, stop)?;
    let hooks = Hooks { on_progress: &|_, thousandths| on_progress(thousandths), stats: None };
    let ended = block_on(verify(&device, settings, torture, hooks));
    let found = ended.map_err(Failure::run)?.map_err(Failure::usage)?;
    let mut notes = device.notes().to_vec();
    notes.push(device.promise().to_string());
    if let Target::File(_) = &real.target {
        notes.push(
            "TRIM of a file punches holes, so the file system is judged together with the drive".to_owned(),
        );
    }
    Ok((found, notes))
}

impl VerifyReport {
    /// Combines what `arguments` asked for with the results.
    pub fn new(
        arguments: &VerifyArguments,
        settings: &Settings,
        torture: &Torture,
        found: Verification,
        notes: Vec<String>,
    ) -> Self {
        let mut command = CommandText::new("verify");
        command.argument(&arguments.target);
        if let Some(size) = arguments.size {
            command.option("--size", size.0);
        }
        if let Some(plant) = arguments.fault {
            command.option("--fault", plant.name());
        }
        command.option("--content", settings.content);
        let rest_s = torture.rest.as_nanos() / 1_000_000_000;
        command.option("--torture", torture.written_percent);
        command.option("--rest", rest_s);
        if let Some(region) = arguments.region {
            command.option("--region", region);
        }
        command.option("--seed", settings.seed);
        if let Some(word) = &arguments.destroy {
            command.option("--destroy", word);
        }
        Self {
            trimwise: trimwise::VERSION,
            settings: VerifySettings {
                target: arguments.target.clone(),
                fault: arguments.fault.map(|plant| plant.name()),
                region_start_percent: settings.region.start.value(),
                region_length_percent: settings.region.length.value(),
                torture_percent: torture.written_percent,
                rest_s,
                command: command.into_text(),
            },
            partial: found.broken.is_some(),
            notes,
            found,
        }
    }

    /// Returns the failure if the exit code is not 0.
    fn failure(&self) -> Option<Failure> {
        let name = &self.found.device.name;
        if let Some(broken) = &self.found.broken {
            return Some(match broken.interrupted {
                true => Failure::Interrupted,
                false => Failure::run(format!("{name}: {}: {}", broken.test, broken.why)),
            });
        }
        let judgement = self.found.judgement.as_ref()?;
        match judgement.verdict {
            Verdict::RestoresFully | Verdict::Unsupported | Verdict::Undetermined => None,
            Verdict::RestoresInPart | Verdict::Ignored | Verdict::Harmful => {
                let faults: Vec<&str> = judgement.faults.iter().map(|fault| fault.text()).collect();
                Some(Failure::run(format!("{name}: {}", faults.join("; "))))
            }
        }
    }
}

#[cfg(test)]
mod tests;
