//! A profile from a short bench on a real drive.
//!
//! `probe` is the bench: single commands, bursts and short loads on any [`BlockDevice`]. `estimate` has closed forms for
//! what single commands take, and bootstrap intervals; `adjust` finds the rest by running the same probes on the model,
//! `model`; `write` makes the file. What no short bench shows (over-provisioning, collection, endurance, the SLC cache's
//! size) is the base profile's.
//!
//! Tests that nothing was fitted to, the *held-back* ones, are measured too. The fitted profile predicts them on the
//! model, and the difference is the fit's error.

mod adjust;
mod estimate;
mod model;
mod probe;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use trimwise::block::{BlockDevice, BlockError, DeviceFacts};
use trimwise::profile::Profile;
use trimwise::ssd::SsdConfig;
use trimwise::units::{Bytes, UnitRange};

pub use adjust::Fit;
pub use model::sized;
pub use probe::{Held, OnStep, Plan, Samples, region};

use adjust::Adjusting;
use model::Job;
use probe::Probe;
use trimwise::failure::{Failure, Mistake, argument};

/// The smallest region for a fit: single places must be far apart, and a write must outlast a cache.
pub const REGION_MIN: Bytes = Bytes::mib(64);

/// A profile whose predictions have at least this error comes with a warning.
const UNRELIABLE_PERCENT: f64 = 25.0;

/// An error counts as worse than the base's if it is larger by this much.
const WORSE_PERCENT: f64 = 1.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub device: String,
    pub size_bytes: u64,
    /// True for a model, in virtual time.
    pub is_model: bool,
    /// True if the drive reports TRIM.
    pub trim: bool,
    /// Size of the part that was used.
    pub region_bytes: u64,
    /// Size of the whole drive, if it is known and differs from the target's.
    pub drive_bytes: Option<u64>,
    /// Model that the drive reports, if it does.
    pub drive_model: Option<String>,
    #[serde(rename = "measurements")]
    pub samples: Samples,
    /// Results of tests that nothing is fitted to.
    #[serde(skip)]
    pub held: Vec<Held>,
}

/// A held-back test: the measured value and the prediction of the fitted profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub test: &'static str,
    pub measured_per_s: f64,
    pub predicted_per_s: f64,
    /// Predicted less measured, in percent of the measured value.
    pub error_percent: f64,
    /// Error of the unfitted base profile, in percent of the measured value.
    pub base_error_percent: f64,
}

#[derive(Clone, Debug)]
pub struct Fitted {
    pub toml: String,
    pub profile: Profile,
    pub fits: Vec<Fit>,
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
    /// Predictions of the held-back tests.
    pub predictions: Vec<Prediction>,
    /// True if the errors are larger than the base's, in most tests or on average.
    pub predicts_worse: bool,
    /// Duration of a read while TRIMs of 1 MiB follow each other, relative to a read alone; `None` without TRIM.
    pub read_beside_trims: Option<f64>,
}

/// Returns the region to fit; fails if the device is too small.
pub fn check(facts: &DeviceFacts) -> Result<UnitRange, Failure> {
    let region = region(facts.size_units);
    let bytes = Bytes::from_units(region.units);
    if bytes < REGION_MIN {
        let of = Mistake::of(argument("target"), &facts.name).because(format!("{bytes} to measure on"));
        return Err(of.expected(format!("at least {REGION_MIN}")).fail());
    }
    Ok(region)
}

/// Writes the region once, for a model that stands for a drive in use.
pub async fn fill<D: BlockDevice>(device: &D, plan: Plan) -> Result<(), BlockError> {
    Probe::new(device, Plan { read_only: false, ..plan }, &|_, _| {}).fill().await
}

pub async fn measure<D: BlockDevice>(
    device: &D,
    plan: Plan,
    on_step: OnStep<'_>,
) -> Result<Measured, BlockError> {
    let mut probe = Probe::new(device, plan, on_step);
    probe.fill().await?;
    let samples = probe.samples().await?;
    let held = probe.held_back().await?;
    let facts = device.facts();
    Ok(Measured {
        device: facts.name.clone(),
        size_bytes: Bytes::from_units(facts.size_units).0,
        is_model: facts.is_model,
        trim: facts.trim.is_some(),
        region_bytes: Bytes::from_units(plan.region.units).0,
        drive_bytes: None,
        drive_model: None,
        samples,
        held,
    })
}

/// Fits a profile, and predicts the held-back tests with it. `name` is the name of the new profile.
pub fn fit(
    measured: &Measured,
    base: &Profile,
    name: &str,
    plan: Plan,
    stop: &Arc<AtomicBool>,
) -> Result<Fitted, Failure> {
    let mut adjusting = Adjusting::new(&base.config, &measured.samples, plan, stop);
    adjusting.all(measured.trim)?;
    // The link must not contradict held-back tests either. A test that is used for this is no longer held back.
    let used = adjusting.raise_link_to(&measured.held);
    let Adjusting { mut config, mut fits, mut notes, .. } = adjusting;
    if let Some(bytes) = measured.drive_bytes {
        config = write::of_size(&config, bytes).unwrap_or(config);
    }
    config.validate().map_err(|error| {
        Failure::run(format!("the fitted settings do not describe a valid device: {error}"))
    })?;
    let held = |config: &SsdConfig| model::run(config, plan, Job::HeldBack, stop).map(|outcome| outcome.held);
    let of_base = held(&base.config).unwrap_or_default();
    let predict =
        |config: &SsdConfig| Ok::<_, Failure>(predictions(measured, &held(config)?, &of_base, &used));
    let mut predictions = predict(&config)?;
    // What a TRIM takes stands by itself: it is worth knowing even where the rest of the fit is worse than the base.
    if Against::of(&predictions).is_worse() && measured.trim {
        let of_trim = SsdConfig { trim: config.trim.clone(), ..base.config.clone() };
        let of_trim =
            measured.drive_bytes.and_then(|bytes| write::of_size(&of_trim, bytes)).unwrap_or(of_trim);
        let is_valid = of_trim.validate().is_ok() && of_trim.trim != base.config.trim;
        let found = is_valid.then(|| predict(&of_trim)).transpose()?;
        if let Some(found) = found.filter(|found| Against::of(found).worse == 0) {
            notes.push(format!(
                "only what a TRIM takes is taken from the fit: {} predicts the rest better",
                base.name
            ));
            fits.retain(|fit| fit.setting.starts_with("trim."));
            (config, predictions) = (of_trim, found);
        }
    }
    let against = Against::of(&predictions);
    let predicts_worse = against.is_worse();
    let worst = predictions.iter().map(|p| p.error_percent.abs()).fold(0.0, f64::max);
    let mut warnings = Vec::new();
    if predicts_worse {
        warnings.push(format!(
            "keep {0}: the fit predicts worse in {1} of {2} held-back tests; its errors are {3:.0} % on average, those \
             of {0} {4:.0} %",
            base.name,
            against.worse,
            predictions.len(),
            against.own_percent,
            against.base_percent
        ));
    }
    if worst > UNRELIABLE_PERCENT {
        warnings.push(format!(
            "a held-back test is mispredicted by {worst:.0} %: the host was busy, or the model has no drive like this; do \
             not rely on this profile where such loads matter"
        ));
    }
    let toml = write::toml(name, measured, base, &config, &fits, &predictions, &warnings);
    let profile = Profile::parse(&toml, name)
        .map_err(|error| Failure::run(format!("the fitted profile cannot be read: {error}")))?;
    if base.config.slc.is_some() {
        notes.push(
            "the SLC cache was not filled: only its speed was measured, not what lies behind".to_owned(),
        );
    }
    let read_beside_trims = measured.samples.numbers().beside_trims;
    Ok(Fitted { toml, profile, fits, notes, warnings, predictions, predicts_worse, read_beside_trims })
}

/// Pairs the held-back tests that were not used with their predictions.
fn predictions(measured: &Measured, predicted: &[Held], of_base: &[Held], used: &[&str]) -> Vec<Prediction> {
    let error = |predicted: f64, measured: f64| (predicted / measured - 1.0) * 100.0;
    let held = measured.held.iter().filter(|m| !used.contains(&m.test));
    held.filter_map(|m| {
        let of = |all: &[Held]| all.iter().find(|p| p.test == m.test).map(|p| p.per_s);
        let predicted_per_s = of(predicted)?;
        Some(Prediction {
            test: m.test,
            measured_per_s: m.per_s,
            predicted_per_s,
            error_percent: error(predicted_per_s, m.per_s),
            base_error_percent: of(of_base).map_or(f64::NAN, |base| error(base, m.per_s)),
        })
    })
    .collect()
}

/// Predictions compared with those of the base.
struct Against {
    tests: usize,
    /// Tests that are predicted worse.
    worse: usize,
    /// Mean errors.
    own_percent: f64,
    base_percent: f64,
}

impl Against {
    fn of(predictions: &[Prediction]) -> Self {
        let mean = |of: fn(&Prediction) -> f64| {
            predictions.iter().map(|p| of(p).abs()).sum::<f64>() / predictions.len().max(1) as f64
        };
        let is_worse = |p: &&Prediction| p.error_percent.abs() > p.base_error_percent.abs() + WORSE_PERCENT;
        Self {
            tests: predictions.len(),
            worse: predictions.iter().filter(is_worse).count(),
            own_percent: mean(|p| p.error_percent),
            base_percent: mean(|p| p.base_error_percent),
        }
    }

    fn is_worse(&self) -> bool {
        2 * self.worse > self.tests || self.own_percent > self.base_percent + WORSE_PERCENT
    }
}
