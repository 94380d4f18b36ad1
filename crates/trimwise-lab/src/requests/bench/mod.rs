//! Device tests, one after another, on a model or on a real device.

pub mod gate;
pub mod map;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::bench::{self, Hooks, Part, Results, Scale, Settings, Test, TestError, span};
use serde::{Deserialize, Serialize};
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::content::ContentClass;
use trimwise::engine::Sim;
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::profile::Profile;
use trimwise::ssd::Drive;
use trimwise::units::Bytes;
use trimwise_linux::block_on;

use trimwise_study::caller::{Caller, OnInterrupt};
use trimwise_study::command_text::CommandText;
use trimwise_study::input;
use trimwise_study::real_target::RealTarget;
use trimwise_study::{as_text, defaults};

/// Receives the number of a test, and how much of it is done, in thousandths.
type OnProgress = Arc<dyn Fn(usize, u64) + Send + Sync>;

/// A request for tests of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchRequest {
    /// The device and its data.
    #[serde(flatten)]
    pub on: OnDevice,
    /// The tests in order, in the form that [`Test`] parses.
    pub tests: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnDevice {
    /// A profile's name or file, in the model; or `file:PATH` or `dev:PATH`, a real file or device.
    pub target: String,
    #[serde(with = "as_text", default = "content")]
    pub content: ContentClass,
    /// Seed of the random places, and in the model of the drive.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// The part of the device to test; `None` means all of it.
    #[serde(with = "as_text::option", default)]
    pub region: Option<Part>,
    /// The share of the drive that is modelled; `None` means all of it.
    #[serde(with = "as_text::option", default)]
    pub scale: Option<Scale>,
    /// The size of a file to create. A model has its own size.
    pub size: Option<Bytes>,
    /// The word that confirms what may be destroyed, as the error without it says; not used in a model.
    pub destroy: Option<String>,
}

fn content() -> ContentClass {
    ContentClass::Incompressible
}

/// The result; the order of the keys is part of the format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    pub trimwise: Cow<'static, str>,
    pub settings: BenchSettings,
    /// Whether tests are missing because the device failed or the user stopped them.
    pub partial: bool,
    #[serde(flatten)]
    pub results: Results,
}

/// The request, as results show it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchSettings {
    /// The target as given.
    pub target: String,
    /// The tests, with all parameters spelled out.
    pub tests: Vec<String>,
    /// The class of the data written.
    pub content: Cow<'static, str>,
    /// Seed of the random places.
    pub seed: u64,
    /// Start of the tested part, in percent of the device.
    pub region_start_percent: f64,
    /// Length of that part.
    pub region_length_percent: f64,
    /// Share of the drive that was modelled, with the times and amounts of the tests.
    #[serde(default = "full")]
    pub scale: f64,
    pub command: String,
}

fn full() -> f64 {
    1.0
}

/// Runs the tests. If one fails, the failure is in the report.
pub fn run(request: &BenchRequest, caller: &dyn Caller) -> Result<BenchReport, Failure> {
    let real = request.on.real()?;
    let tests = request.parsed()?;
    let settings = request.on.settings();
    let progress = caller.progress(tests.len(), "tests");
    let on_progress: OnProgress = {
        let progress = Arc::clone(&progress);
        Arc::new(move |test, thousandths| progress.update(test, thousandths, 1000))
    };
    let results = match real {
        None => {
            let device = request.on.profile()?;
            let stop = caller.stop(OnInterrupt::StopAndShow)?;
            in_model(&device, &tests, &settings, &stop, on_progress).and_then(|mut results| {
                results.notes.extend(request.on.scale_note()?);
                Ok(results)
            })
        }
        Some(real) => {
            let rest = tests.iter().fold(0u32, |sum, test| sum.saturating_add(test.rest()));
            if rest > 0 {
                caller.note(&format!("the device rests for {} in all; Ctrl-C ends the tests", span(rest)));
            }
            let stop = caller.stop(OnInterrupt::StopAndShow)?;
            on_real(&real, &tests, &settings, &stop, &*on_progress)
        }
    };
    progress.finish();
    Ok(BenchReport::new(request, &tests, &settings, results?))
}

fn in_model(
    profile: &Profile,
    tests: &[Test],
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    on_progress: OnProgress,
) -> Result<Results, Failure> {
    let sim = Sim::new();
    let drive = Drive::new(&profile.config, profile.faults, settings.seed)
        .map_err(|e| Mistake::of(argument("target"), &profile.name).because(e.to_string()).fail())?;
    let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
    let device = Rc::new(ModelDevice::new(queue, &profile.name).interrupted_by(stop));
    let (tests, settings) = (tests.to_vec(), *settings);
    let ended = sim.run(async move {
        let stats = || device.stats();
        let hooks = Hooks { on_progress: &*on_progress, stats: Some(&stats) };
        bench::run(&*device, &tests, &settings, hooks).await
    });
    ended.map_err(Failure::run)?.map_err(|e| Mistake::that(e.to_string()).fail())
}

/// Runs tests on a real file or device. If any of them writes, the user must have confirmed the loss of data.
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
    let mut results = ended.map_err(Failure::run)?.map_err(|e| Mistake::that(e.to_string()).fail())?;
    results.notes = device.notes().to_vec();
    Ok(results)
}

impl BenchRequest {
    fn parsed(&self) -> Result<Vec<Test>, Failure> {
        self.tests.iter().map(|test| test.parse().map_err(|e: TestError| e.mistake().fail())).collect()
    }

    /// Combines this request with the results of its tests.
    pub fn report(&self, results: Results) -> Result<BenchReport, Failure> {
        Ok(BenchReport::new(self, &self.parsed()?, &self.on.settings(), results))
    }
}

impl OnDevice {
    /// Returns the real file or device, if the target is one. Rejects options that make no sense for a model.
    fn real(&self) -> Result<Option<RealTarget>, Failure> {
        let real = RealTarget::parse(&self.target, self.size, self.destroy.as_ref())?;
        let given = [("size", self.size.is_some()), ("destroy", self.destroy.is_some())];
        if real.is_some() && self.scale.is_some() {
            let why = format!("{} is a real device or file; this option is for models only", self.target);
            return Err(Mistake::on("scale").because(why).fail());
        }
        match given.into_iter().find(|(_, given)| real.is_none() && *given) {
            Some((field, _)) => {
                let why =
                    format!("{} is a model; this option is for file:PATH and dev:PATH only", self.target);
                Err(Mistake::on(field).because(why).fail())
            }
            None => Ok(real),
        }
    }

    /// Returns the modelled drive, at its scale.
    fn profile(&self) -> Result<Profile, Failure> {
        let mut profile = input::profile(&self.target, argument("target"))?;
        if let Some(scale) = self.scale {
            profile.config = scale.drive(&profile.config).map_err(|e| {
                Mistake::of("scale", scale)
                    .because(format!("{}: {e}", profile.name))
                    .expected("a larger share")
                    .fail()
            })?;
        }
        Ok(profile)
    }

    /// Says what a drive at a scale stands for, and what of it is not to scale.
    fn scale_note(&self) -> Result<Vec<String>, Failure> {
        let Some(scale) = self.scale.filter(|&scale| scale != Scale::FULL) else { return Ok(Vec::new()) };
        let whole = input::profile(&self.target, argument("target"))?;
        let capacity = Bytes(whole.config.capacity_bytes);
        let mut notes = vec![format!(
            "{scale} of a drive of {capacity}: times and amounts of tests are that part too; rates, latencies and ratios \
             stand for the whole"
        )];
        let exceptions = scale.exceptions(&whole.config, &self.profile()?.config);
        if !exceptions.is_empty() {
            notes.push(format!("not to scale: {}", exceptions.join("; ")));
        }
        Ok(notes)
    }

    fn settings(&self) -> Settings {
        Settings {
            content: self.content,
            seed: self.seed,
            region: self.region.unwrap_or(Part::ALL),
            scale: self.scale.unwrap_or(Scale::FULL),
        }
    }

    /// Returns the command that repeats a bench; `what` adds the tests, or `--map`.
    fn command(&self, what: impl FnOnce(&mut CommandText)) -> String {
        let mut command = CommandText::new("bench");
        command.argument(&self.target);
        what(&mut command);
        command.option("--content", self.content);
        command.option("--seed", self.seed);
        if let Some(region) = self.region {
            command.option("--region", region);
        }
        if let Some(scale) = self.scale {
            command.option("--scale", scale);
        }
        if let Some(size) = self.size {
            command.option("--size", size.0);
        }
        if let Some(word) = &self.destroy {
            command.option("--destroy", word);
        }
        command.into_text()
    }
}

impl BenchSettings {
    fn of(request: &BenchRequest, tests: &[Test], settings: &Settings) -> Self {
        Self {
            target: request.on.target.clone(),
            tests: tests.iter().map(Test::to_string).collect(),
            content: settings.content.name().into(),
            seed: settings.seed,
            region_start_percent: settings.region.start.value(),
            region_length_percent: settings.region.length.value(),
            scale: settings.scale.value(),
            command: request.on.command(|command| tests.iter().for_each(|test| command.argument(test))),
        }
    }
}

impl BenchReport {
    fn new(request: &BenchRequest, tests: &[Test], settings: &Settings, results: Results) -> Self {
        Self {
            trimwise: trimwise::VERSION.into(),
            settings: BenchSettings::of(request, tests, settings),
            partial: results.broken.is_some(),
            results,
        }
    }

    /// Returns why the tests ended early; `None` if they did not.
    pub fn failure(&self) -> Option<Failure> {
        let broken = self.results.broken.as_ref()?;
        Some(match broken.interrupted {
            true => Failure::Interrupted,
            false => Failure::run(format!("{}: {}: {}", self.results.device.name, broken.test, broken.why)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use trimwise_study::caller::Silent;

    fn of(request: Value) -> Result<BenchReport, Failure> {
        run(&serde_json::from_value(request).unwrap(), &Silent::default())
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (request, words) in [
            (
                json!({"target": "sata-small", "tests": ["foo"]}),
                "unknown test 'foo'; expected one of fill, seqwrite",
            ),
            (json!({"target": "sata-small", "tests": ["fill:0"]}), "column 6: '0'; expected percent"),
            (json!({"target": "sata-smal", "tests": ["fill"]}), "sata-smal: neither a built-in name"),
            (
                json!({"target": "file:", "tests": ["fill"]}),
                "'file:' is not a real target; expected file:PATH",
            ),
            (
                json!({"target": "dev:/dev/null", "tests": ["fill"], "size": 1 << 30}),
                "--size: dev:/dev/null has its own size",
            ),
            (json!({"target": "dev:/dev/null", "tests": ["fill"]}), "/dev/null"),
            (
                json!({"target": "sata-small", "tests": ["fill"], "size": 1 << 30}),
                "--size: sata-small is a model",
            ),
            (
                json!({"target": "sata-small", "tests": ["fill"], "destroy": "x"}),
                "--destroy: sata-small is a model",
            ),
            (json!({"target": "sata-small", "tests": ["fill", "seqwrite:9GiB"]}), "expected at most 8 GiB"),
            (
                json!({"target": "sata-small", "tests": ["fill"], "scale": "1/4096"}),
                "expected room for 5 superblocks",
            ),
            (
                json!({"target": "dev:/dev/null", "tests": ["fill"], "scale": "1/2"}),
                "--scale: dev:/dev/null is a real device",
            ),
        ] {
            let failure = of(request.clone()).unwrap_err();
            assert!(
                matches!(&failure, Failure::Usage(m) if m.to_string().contains(words)),
                "{request}: {failure:?}"
            );
        }
    }

    #[test]
    fn a_file_that_holds_something_is_overwritten_by_its_name_only_and_a_new_one_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (full, new) = (dir.path().join("full"), dir.path().join("new"));
        std::fs::write(&full, vec![7; 32 << 20]).unwrap();
        let failure =
            of(json!({"target": format!("file:{}", full.display()), "tests": ["fill"]})).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(m) if m.to_string().contains("--destroy")), "{failure:?}");
        assert_eq!(std::fs::read(&full).unwrap(), vec![7; 32 << 20], "nothing was written");
        let report = of(json!({
            "target": format!("file:{}", new.display()),
            "tests": ["fill:50", "randwrite:4:1", "seqread"],
            "size": 32 << 20,
        }));
        let report = report.unwrap();
        assert_eq!(report.results.tests[1].test, "randwrite:4:1");
        assert!(!report.results.device.is_model && report.failure().is_none());
        let full_name = full.display();
        let request = json!({"target": format!("file:{full_name}"), "tests": ["seqwrite"], "destroy": format!("{full_name}")});
        of(request).unwrap();
        assert_ne!(std::fs::read(&full).unwrap(), vec![7; 32 << 20]);
        assert!(!new.exists());
    }
}
