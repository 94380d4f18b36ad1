//! Does a drive honour TRIM, and does TRIM restore its speed?
//!
//! On a model, a real file or a device this runs the torture, which destroys all data. [`directory`] is the form for a
//! mounted file system, which destroys nothing.

pub mod directory;
mod gate;
mod plant;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::bench::verify::{Torture, Verdict, Verification, verify};
use crate::bench::{Hooks, Part, Settings};
use serde::{Deserialize, Serialize};
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::failure::{Failure, Mistake, Mistakes, argument, key};
use trimwise::ssd::{Drive, Faults, SsdConfig};
use trimwise::units::{Bytes, SimDuration};
use trimwise::words;
use trimwise_linux::block_on;
use trimwise_linux::code::Code;
use trimwise_linux::raw_device::Target;

use crate::caller::{Caller, OnInterrupt};
use crate::check::within;
use crate::command_text::CommandText;
use crate::real_target::RealTarget;
use crate::{as_text, defaults, input};

use directory::DirectoryReport;
pub use gate::VerifyGate;
pub use plant::Plant;

/// Called with the completed thousandths.
type OnThousandths = Arc<dyn Fn(u64)>;

/// Default size of a modelled drive: every profile gets the right verdict at this size, in seconds.
const MODEL_BYTES: Bytes = Bytes::gib(4);

/// Range for the random writes of the torture, in percent of the verified size.
pub const TORTURE_PERCENT: RangeInclusive<u64> = 1..=10_000;
pub const REST_S: RangeInclusive<u64> = 0..=86_400;

/// `None` stands for a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyRequest {
    /// A profile's name or file, in the model; `file:PATH` or `dev:PATH`, a real file or device; or `dir:PATH`, a
    /// directory of a mounted file system.
    pub target: String,
    /// Size to verify: of a profile, which is scaled down; of a new file; or of the file in a directory.
    pub size: Option<Bytes>,
    pub fault: Option<Plant>,
    /// The kind of data to write.
    #[serde(with = "as_text::option", default)]
    pub content: Option<ContentClass>,
    /// Random writes of the torture, in percent of the verified size.
    pub torture_percent: Option<u64>,
    /// Rest before each measurement.
    pub rest_s: Option<u64>,
    /// The part of the device to verify; `None`: all of it.
    #[serde(with = "as_text::option", default)]
    pub region: Option<Part>,
    /// Seed of the random places, and in the model of the drive.
    pub seed: Option<u64>,
    /// The name of the target, to allow overwriting it. The failure of a request without it has the name.
    pub destroy: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Verified {
    Drive(Box<VerifyReport>),
    Directory(Box<DirectoryReport>),
}

impl Verified {
    /// Why the verification counts as failed, if it does: the drive treats TRIM wrongly, or there is no verdict.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Drive(report) => report.failure(),
            Self::Directory(report) => report.failure.clone(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    pub trimwise: &'static str,
    pub settings: VerifySettings,
    /// Whether the verification ended early, because the device failed or the user stopped it.
    pub partial: bool,
    /// Code of what is wrong or unknown.
    pub code: Option<Code>,
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub found: Verification,
}

#[derive(Clone, Debug, Serialize)]
pub struct VerifySettings {
    /// As given.
    pub target: String,
    pub fault: Option<&'static str>,
    /// Start of the verified part of the device.
    pub region_start_percent: f64,
    /// Length of the verified part of the device.
    pub region_length_percent: f64,
    /// Random writes of the torture, in percent of the verified part.
    pub torture_percent: u64,
    /// Rest before each measurement.
    pub rest_s: u64,
    pub command: String,
}

/// Verifies a drive, or the way to it from a mounted file system.
///
/// # Errors
///
/// A [`Failure`] if the request is wrong or there is nothing to find out. A drive that treats TRIM wrongly is in the
/// [answer](Verified::failure).
pub fn run(request: &VerifyRequest, caller: &dyn Caller) -> Result<Verified, Failure> {
    Mistakes::of([
        within("torture_percent", request.torture_percent, &TORTURE_PERCENT),
        within("rest_s", request.rest_s, &REST_S),
    ])?;
    if request.target.starts_with("dir:") {
        return directory::run(request, caller).map(|report| Verified::Directory(Box::new(report)));
    }
    let real = RealTarget::parse(&request.target, request.size, request.destroy.as_ref())?;
    let settings = request.settings();
    let torture = Torture {
        leaves_holes: matches!(&real, Some(RealTarget { target: Target::File(_), .. })),
        ..request.torture()
    };
    let progress = caller.progress(1, "drives");
    let on_progress: OnThousandths = {
        let progress = Arc::clone(&progress);
        Arc::new(move |thousandths| progress.update(0, thousandths, 1000))
    };
    let (found, notes) = match real {
        None => {
            refuse(request, "is a model", &[("destroy", request.destroy.is_some())])?;
            if request.fault == Some(Plant::IgnoresFlush) {
                let of = Mistake::of("fault", "ignores-flush").because("only a power cut shows it");
                return Err(of.expected("trimwise crashtest --target ...").fail());
            }
            let modelled = Modelled::of(request)?;
            let stop = caller.stop(OnInterrupt::StopAndShow)?;
            modelled.verify(&settings, &torture, &stop, on_progress)
        }
        Some(real) => {
            refuse(request, "is not a model", &[("fault", request.fault.is_some())])?;
            let stop = caller.stop(OnInterrupt::StopAndShow)?;
            on_real(&real, &settings, &torture, &stop, on_progress)
        }
    }?;
    progress.finish();
    Ok(Verified::Drive(Box::new(request.report(found, notes))))
}

/// Rejects options that make no sense for this kind of target.
fn refuse(request: &VerifyRequest, what: &str, given: &[(&'static str, bool)]) -> Result<(), Failure> {
    Mistakes::of(given.iter().filter(|(_, given)| *given).map(|(field, _)| {
        let expected = words!["no ", key(field), " with it"];
        Err(Mistake::on(*field).because(format!("{} {what}", request.target)).expected(expected).fail())
    }))
}

struct Modelled {
    name: String,
    config: SsdConfig,
    faults: Faults,
    notes: Vec<String>,
}

impl Modelled {
    fn of(request: &VerifyRequest) -> Result<Self, Failure> {
        let profile = input::profile(&request.target, argument("target"))?;
        let (name, whole) = (profile.name, Bytes(profile.config.capacity_bytes));
        if let Some(size) = request.size.filter(|&size| size > whole) {
            return Err(Mistake::of("size", size)
                .expected(format!("at most {whole}, which {name} has"))
                .fail());
        }
        let size = request.size.unwrap_or(MODEL_BYTES).min(whole);
        let config = profile.config.shrunk(size.0).map_err(|error| {
            Mistake::of("size", size).because(format!("{name} cannot be scaled down to that: {error}")).fail()
        })?;
        let faults = request.fault.map_or(profile.faults, |plant| plant.on(profile.faults));
        if let Some(plant) = request.fault {
            faults.validate(&config.trim).map_err(|error| {
                Mistake::of("fault", plant.name()).because(format!("{name}: {error}")).fail()
            })?;
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
            .map_err(|error| Mistake::of(argument("target"), &name).because(error.to_string()).fail())?;
        let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
        let device = ModelDevice::new(queue, &name).interrupted_by(stop);
        let (settings, torture) = (*settings, *torture);
        let ended = sim.run(async move {
            let hooks = Hooks { on_progress: &|_, thousandths| on_progress(thousandths), stats: None };
            verify(&device, &settings, &torture, hooks).await
        });
        let found = ended.map_err(Failure::run)?.map_err(|error| Mistake::that(error.to_string()).fail())?;
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
    let found = ended.map_err(Failure::run)?.map_err(|error| Mistake::that(error.to_string()).fail())?;
    let mut notes = device.notes().to_vec();
    notes.push(device.promise().to_string());
    if let Target::File(_) = &real.target {
        notes.push(
            "TRIM of a file punches holes, so the file system is judged together with the drive".to_owned(),
        );
    }
    Ok((found, notes))
}

impl VerifyRequest {
    fn settings(&self) -> Settings {
        Settings {
            content: self.content.unwrap_or(ContentClass::Compressible),
            seed: self.seed.unwrap_or(defaults::SEED),
            region: self.region.unwrap_or(Part::ALL),
            ..Settings::default()
        }
    }

    fn torture(&self) -> Torture {
        let usual = Torture::default();
        Torture {
            written_percent: self.torture_percent.unwrap_or(usual.written_percent),
            rest: self.rest_s.map_or(usual.rest, SimDuration::from_secs),
            ..usual
        }
    }

    /// The request, as results show it.
    fn shown(&self) -> VerifySettings {
        let (settings, torture) = (self.settings(), self.torture());
        let mut command = CommandText::new("verify");
        command.argument(&self.target);
        if let Some(size) = self.size {
            command.option("--size", size.0);
        }
        if let Some(plant) = self.fault {
            command.option("--fault", plant.name());
        }
        command.option("--content", settings.content);
        let rest_s = torture.rest.as_nanos() / 1_000_000_000;
        command.option("--torture", torture.written_percent);
        command.option("--rest", rest_s);
        if let Some(region) = self.region {
            command.option("--region", region);
        }
        command.option("--seed", settings.seed);
        if let Some(word) = &self.destroy {
            command.option("--destroy", word);
        }
        VerifySettings {
            target: self.target.clone(),
            fault: self.fault.map(|plant| plant.name()),
            region_start_percent: settings.region.start.value(),
            region_length_percent: settings.region.length.value(),
            torture_percent: torture.written_percent,
            rest_s,
            command: command.into_text(),
        }
    }

    /// Combines the request with the findings about a drive, and remarks for the user.
    pub fn report(&self, found: Verification, notes: Vec<String>) -> VerifyReport {
        VerifyReport {
            trimwise: trimwise::VERSION,
            settings: self.shown(),
            partial: found.broken.is_some(),
            code: match (&found.broken, &found.judgement) {
                (Some(broken), _) => Some(Code::VerifyFailed).filter(|_| !broken.interrupted),
                (None, judgement) => judgement.as_ref().and_then(|judgement| judgement.verdict.code()),
            },
            notes,
            found,
        }
    }
}

impl VerifyReport {
    /// Why the verification counts as failed, if it does.
    pub fn failure(&self) -> Option<Failure> {
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
