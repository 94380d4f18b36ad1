//! Device tests: a drive's behaviour under the loads commonly used to measure drives.
//!
//! Each test is written once over [`BlockDevice`], so that a model in virtual time and a real device or file run the
//! same code. Tests run one after another on the same device and leave it as they made it. That is the point, since a
//! drive's behaviour depends on its history: `erase fill torture:60 hdtach:reads trim hdtach:reads` measures a drive
//! fresh, full, worn down, and after TRIM.
//!
//! `spec` is the syntax of tests, `share` that of parts of the region, `load` the engine that keeps queues full,
//! `result` the results, `scale` smaller drives. Each family of tests has a file: `streams` the plain loads and rest,
//! `zones` HD Tach, `sizes` ATTO, `discard` erase, TRIM and its cost, `settling` throughput after TRIM, `steady` the
//! steady state of the SNIA, `reviewers` dirty against clean writes. `map` is a separate measurement: latency over the
//! rates of reads, writes and TRIMs, in an open loop.
//!
//! On a real device a test ends by the clock. A model can be so large that this would take too long to compute, so
//! tests without a given time are limited in amount too; each result says how much was transferred.

mod discard;
mod load;
pub mod map;
mod result;
mod reviewers;
mod scale;
mod settling;
mod share;
mod sized;
mod sizes;
mod spec;
mod steady;
mod streams;
pub mod verify;
mod zones;

#[cfg(test)]
mod tests;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use thiserror::Error;

pub use load::below;
pub use result::{
    Broken, Device, DeviceCounts, Did, Findings, Measured, RATIOS, Results, Reviewed, Settled, Steady,
    TestResult, TrimTime,
};
pub use reviewers::{Sequence, Trimmed};
pub use scale::Scale;
pub use share::Part;
pub use sized::sized;
pub use spec::{Direction, Passes, TESTS, Test, TestError, span};

use trimwise::block::{BlockDevice, BlockError, DeviceFacts, Operation};
use trimwise::content::ContentClass;
use trimwise::ssd::SsdStats;
pub use trimwise::units::Percent;
use trimwise::units::{Bytes, Lpn, UnitRange};

use crate::plot::Plot;

pub(crate) const REGION_MIN: Bytes = Bytes::mib(16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub content: ContentClass,
    /// Seed of the random places.
    pub seed: u64,
    /// The part of the device to test. Only `erase` reaches beyond it.
    pub region: Part,
    /// Share of the drive that a model stands for. Times and amounts of tests are that share too.
    pub scale: Scale,
}

impl Default for Settings {
    fn default() -> Self {
        Self { content: ContentClass::default(), seed: 1, region: Part::ALL, scale: Scale::FULL }
    }
}

impl Settings {
    pub fn region(&self, facts: &DeviceFacts) -> UnitRange {
        self.region.of(UnitRange::new(Lpn(0), facts.size_units))
    }
}

#[derive(Clone, Copy)]
pub struct Hooks<'a> {
    /// Called from time to time with the number of the test, from 0, and its progress in thousandths.
    pub on_progress: &'a dyn Fn(usize, u64),
    /// Returns a model's counters so far, with the work that it did while it was idle; `None` for a real device.
    pub stats: Option<&'a dyn Fn() -> SsdStats>,
}

impl Default for Hooks<'_> {
    fn default() -> Self {
        Self { on_progress: &|_, _| {}, stats: None }
    }
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SetupError {
    #[error("{test}: {device} does not support TRIM; expected tests without it, or another device")]
    NoTrim { test: String, device: String },
    #[error("{test}: {device} cannot be made clean from here without TRIM; expected a device with TRIM")]
    NoClean { test: String, device: String },
    #[error("erase: {device} is erased with its vendor's tools (hdparm, nvme format); expected trim instead")]
    NoErase { device: String },
    #[error("{device}: {region} to test on; expected at least {REGION_MIN}")]
    TooSmall { device: String, region: Bytes },
    #[error("{device}: {region} to verify TRIM on; expected at least {}", verify::REGION_MIN)]
    TooSmallToVerify { device: String, region: Bytes },
    #[error("{test}: {wanted} from {start} % on; expected at most {room}, the space there")]
    NoRoom { test: String, wanted: Bytes, start: Percent, room: Bytes },
    #[error("{test}: less than one unit of 4 KiB of a region of {region}; expected a larger share")]
    NoUnit { test: String, region: Bytes },
}

/// Rejects tests that the device cannot do, before anything runs.
pub fn check(tests: &[Test], settings: &Settings, facts: &DeviceFacts) -> Result<(), SetupError> {
    let region = settings.region(facts);
    let bytes = Bytes::from_units(region.units);
    if bytes < REGION_MIN {
        return Err(SetupError::TooSmall { device: facts.name.clone(), region: bytes });
    }
    for test in tests {
        if test.needs_trim() && facts.trim.is_none() {
            return Err(SetupError::NoTrim { test: test.to_string(), device: facts.name.clone() });
        }
        if matches!(test, Test::Reviewers(_)) && facts.trim.is_none() && !facts.is_model {
            return Err(SetupError::NoClean { test: test.to_string(), device: facts.name.clone() });
        }
        if *test == Test::Erase && !facts.is_model {
            return Err(SetupError::NoErase { device: facts.name.clone() });
        }
        let share = match *test {
            Test::Fill(level) => level.of(region.units),
            Test::Trim(part) => part.of(region).units,
            Test::Settling { range: Some(range), .. } => range.of(region.units),
            Test::Sequential { start, .. } => region.units - start.of(region.units),
            Test::Reviewers(sequence) => sequence.fill.of(region.units),
            _ => region.units,
        };
        if share == 0 {
            return Err(SetupError::NoUnit { test: test.to_string(), region: bytes });
        }
        if let Test::Sequential { size: Some(wanted), start, .. } = *test
            && settings.scale.of(wanted.units_ceil()) > share
        {
            let (test, room) = (test.to_string(), Bytes::from_units(share));
            return Err(SetupError::NoRoom { test, wanted, start, room });
        }
    }
    Ok(())
}

/// Runs tests one after another. If the device fails or the user stops them, the results say where.
pub async fn run<D: BlockDevice>(
    device: &D,
    tests: &[Test],
    settings: &Settings,
    hooks: Hooks<'_>,
) -> Result<Results, SetupError> {
    check(tests, settings, device.facts())?;
    let mut results =
        Results { device: device.facts().into(), notes: Vec::new(), tests: Vec::new(), broken: None };
    // Versions continue from test to test, so that each test writes different data.
    let mut version = 0;
    // Each test has its own random sequence, so it uses the same places whatever ran before it.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    for (number, test) in tests.iter().enumerate() {
        let mut bench = Bench {
            device,
            settings,
            hooks,
            region: settings.region(device.facts()),
            number,
            phase: (0.0, 1.0),
            rng: rng.clone(),
            version,
            did: Did::default(),
        };
        rng.jump();
        let (start, before) = (device.now(), hooks.stats.map(|stats| stats()));
        match bench.perform(*test).await {
            Ok(found) => {
                let counted = hooks.stats.zip(before).map(|(stats, before)| stats().since(&before));
                let counts = counted.as_ref().map(DeviceCounts::of);
                let mut notes = found.notes;
                notes.extend(counts.as_ref().filter(|_| matches!(test, Test::Rest(_))).map(rest_note));
                notes.extend(counts.as_ref().and_then(unmapped_note));
                results.tests.push(TestResult {
                    test: test.to_string(),
                    elapsed_ns: device.now().since(start).as_nanos(),
                    did: bench.did,
                    measured: found.measured,
                    findings: found.findings,
                    plots: found.plots,
                    notes,
                    device: counts,
                });
            }
            Err(error) => {
                results.broken = Some(Broken {
                    test: test.to_string(),
                    why: error.to_string(),
                    interrupted: error == BlockError::Interrupted,
                    did: bench.did,
                });
                return Ok(results);
            }
        }
        version = bench.version;
        (hooks.on_progress)(number, 1000);
    }
    Ok(results)
}

fn unmapped_note(counts: &DeviceCounts) -> Option<String> {
    let percent = counts.unmapped_reads_percent.filter(|&percent| percent >= 1.0)?;
    Some(format!(
        "{percent:.0} % of the units read hold no data: no flash is read for them; `fill` before the test writes them"
    ))
}

fn rest_note(counts: &DeviceCounts) -> String {
    match counts.nand_units_written {
        0 => "the drive did nothing meanwhile".to_owned(),
        units => format!("meanwhile the drive copied {} in its flash", Bytes::from_units(units)),
    }
}

#[derive(Default)]
struct Found {
    measured: Vec<Measured>,
    findings: Findings,
    plots: Vec<Plot>,
    notes: Vec<String>,
}

struct Bench<'a, D> {
    device: &'a D,
    settings: &'a Settings,
    hooks: Hooks<'a>,
    region: UnitRange,
    number: usize,
    /// The completed share of the test, and the share of the current phase.
    phase: (f64, f64),
    rng: Xoshiro256PlusPlus,
    version: u32,
    did: Did,
}

impl<D: BlockDevice> Bench<'_, D> {
    async fn perform(&mut self, test: Test) -> Result<Found, BlockError> {
        let found = match test {
            Test::Fill(level) => self.fill(level).await,
            Test::Sequential { direction, size, start } => self.sequential(direction, size, start).await,
            Test::Random { read_percent, depth, seconds } => self.random(read_percent, depth, seconds).await,
            Test::ReadWrite(seconds) => self.read_write(seconds).await,
            Test::HdTach { passes, full } => self.hd_tach(passes, full).await,
            Test::Atto => self.atto().await,
            Test::Torture(seconds) => self.torture(seconds).await,
            Test::Erase => self.erase().await,
            Test::Trim(part) => self.trim_part(part).await,
            Test::TrimLatency => self.trim_latency().await,
            Test::Settling { range, seconds } => self.settling(range, seconds).await,
            Test::Steady(round) => self.steady(round).await,
            Test::Rest(seconds) => self.rest(seconds).await,
            Test::Reviewers(sequence) => self.reviewers(sequence).await,
        }?;
        if self.did.bytes_written > 0 {
            // Flush, so that the next test does not pay for what a volatile cache still holds.
            self.device.perform(Operation::Flush).await?;
        }
        Ok(found)
    }

    fn stats(&self) -> Option<SsdStats> {
        self.hooks.stats.map(|stats| stats())
    }

    /// Returns a model's write amplification since `before`; `None` if it wrote nothing.
    fn amplification_since(&self, before: Option<SsdStats>) -> Option<f64> {
        let since = self.stats()?.since(&before?);
        (since.host_units_written > 0).then(|| since.write_amplification())
    }

    fn phase(&mut self, done: f64, share: f64) {
        self.phase = (done, share);
        self.report(0.0);
    }

    fn report(&self, of_phase: f64) {
        let (done, share) = self.phase;
        (self.hooks.on_progress)(self.number, ((done + share * of_phase) * 1000.0) as u64);
    }
}
