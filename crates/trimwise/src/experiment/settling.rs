//! How long a drive is slow after a TRIM that it works off in the background.
//!
//! Source: the note on vendor 6 in "Performance of TRIM command on ext4 filesystem": after a whole-device TRIM without
//! further writes before, throughput starts below normal and settles over time; a larger range takes longer; the writes
//! between two TRIMs matter too, in which direction is not said.

use super::cell::CellError;
use super::plot::{Axis, Plot, PlotKind, Point, Series};
use super::result::{Claim, ExperimentResult, ExperimentRows, Figure, open_claims};
use super::statistics;
use crate::bench::{self, Findings, Hooks, Percent, Settings, Settled, Test};
use crate::block::{BlockQueue, ModelDevice, QueueConfig};
use crate::engine::Sim;
use crate::profile::Profile;
use crate::ssd::Drive;

/// Its name on the command line.
pub const NAME: &str = "settling";

/// The question it answers.
pub const QUESTION: &str = "How long is a drive slow after a TRIM that it works off in the background?";

/// The drive of the note.
pub const DEVICE: &str = "vendor6";

/// The source says nothing of repetitions, and nothing here is drawn at random.
pub const REPS: u32 = 1;

/// Ranges in hundredths of a percent of the device.
const RANGES: [u32; 4] = [1250, 2500, 5000, 10_000];

/// How many ranges there are.
pub const fn ranges() -> usize {
    RANGES.len()
}

/// How long each is looked at, seconds.
const SECONDS: u32 = 90;

/// Throughput below this share of its final level is below normal.
const BELOW_NORMAL: f64 = 0.9;

/// What came of one range.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeRun {
    /// The share of the device, percent.
    pub percent: f64,
    /// With nothing written before, and with the whole device written before.
    pub settled: Vec<Settled>,
    /// Throughput over time of both.
    pub plots: Vec<Plot>,
}

/// Looks at one range on a new drive.
///
/// # Errors
///
/// [`CellError`].
pub fn run(index: usize, rep: u32, seed: u64) -> Result<RangeRun, CellError> {
    let profile = Profile::embedded(DEVICE).expect("the drive is built in");
    let percent = Percent::hundredths(RANGES[index]);
    let drive = Drive::new(&profile.config, profile.faults, seed)?;
    let sim = Sim::new();
    let device = ModelDevice::new(BlockQueue::new(&sim, drive, QueueConfig::default()), DEVICE);
    let test = Test::Settling { range: Some(percent), seconds: Some(SECONDS) };
    let settings = Settings { seed: seed ^ u64::from(rep) << 32, ..Settings::default() };
    let ran = sim.run(async move { bench::run(&device, &[test], &settings, Hooks::default()).await });
    let failed = |what: String| CellError::Audit { what };
    let mut results = ran.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
    let result = results.tests.pop().ok_or_else(|| {
        failed(results.broken.map_or_else(|| "no test was run".to_owned(), |broken| broken.why))
    })?;
    let settled = match result.findings {
        Findings::Settling(settled) => settled,
        _ => Vec::new(),
    };
    Ok(RangeRun { percent: percent.value(), settled, plots: result.plots })
}
