//! Does this device honour TRIM, and does TRIM restore its speed?
//!
//! A device is judged by its behaviour, never by its name or its own description. Three things are checked.
//!
//! - *Which data a TRIM destroys* (`integrity`): a part of the device is written with known data, small ranges all over
//!   it are trimmed, some of them are rewritten at once, and all of it is read back. Data that were not trimmed must be
//!   there, and so must data written after the TRIM.
//! - *How far a TRIM reaches*: a unit without data is read more quickly than one with data, since no flash is read for
//!   it. If the two can be told apart, single reads show which share of the trimmed units is really free.
//! - *What a TRIM restores* (`speed`): the device is measured clean, filled, worn down by random writes, measured,
//!   trimmed, measured, trimmed again, measured. It rests before each measurement, so that background work is finished
//!   and idle-time collection has had the same chance.
//!
//! Real devices are noisy, so each of their stages is measured several times, and only differences that stand out from
//! the noise are judged. If the noise hides the answer, the torture is repeated. If it still does at the end, the
//! verdict is that the answer is unknown.
//!
//! `course` compares the stages and `verdict` judges. Zeros in trimmed units prove nothing unless the device promises
//! them, and old data disprove nothing unless it does; without a promise they are only counted.
//!
//! All data in the region under test are lost.

mod course;
mod integrity;
mod samples;
mod verdict;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

pub use integrity::Integrity;
use samples::Samples;
pub use verdict::{Fault, Judgement, Verdict};

use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::compare::statistics::median;
use trimwise::content::ContentClass;
use trimwise::units::{Bytes, SimDuration, UNIT_BYTES, UnitRange};

use super::load::{Action, Limit, Stream, Total, per_second};
use super::{Bench, Broken, Device, Did, Hooks, Settings, SetupError};

/// The smallest region that can be judged: in a smaller one, caches matter too much.
pub(crate) const REGION_MIN: Bytes = Bytes::mib(256);
/// Transfers of the sequential reads, one at a time as in HD Tach.
const READ: Bytes = Bytes::kib(64);
/// Places over the region that are read.
const ZONES: u64 = 32;
const ZONE_MOST: Bytes = Bytes::mib(4);
/// Single units read to see which of them need flash.
const SAMPLES: u64 = 1024;
const DEPTH: u32 = 32;
/// Share of the region that a measurement writes: enough for collection to show, too little to wear a clean device down.
const WRITE_PERCENT: u64 = 4;
const WRITE_TIME: SimDuration = SimDuration::from_secs(60);

/// Number of measurements of each stage of a real device: enough for an interval of the ratio of two.
const SAMPLES_PER_STAGE: usize = 5;
/// Maximum rounds of torture for a real device until there is an answer.
const ROUNDS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torture {
    /// Random writes between fill and measurement, in percent of the region.
    pub written_percent: u64,
    pub rest: SimDuration,
    /// Whether TRIM leaves holes in a file. Then reads of trimmed units reach no drive, and writes there wait for the
    /// file system to allocate blocks.
    pub leaves_holes: bool,
}

impl Default for Torture {
    fn default() -> Self {
        Self { written_percent: 150, rest: SimDuration::from_secs(60), leaves_holes: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Speed {
    /// Sequential reads of 64 KiB, one at a time.
    pub read_mb_per_s: f64,
    /// Random writes of 4 KiB, 32 at a time.
    pub write_mb_per_s: f64,
}

/// All measurements of a stage. A model has just one, since it has no noise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub reads_mb_per_s: Vec<f64>,
    pub writes_mb_per_s: Vec<f64>,
}

impl Measured {
    fn median(&self) -> Option<Speed> {
        Some(Speed {
            read_mb_per_s: median(&self.reads_mb_per_s)?,
            write_mb_per_s: median(&self.writes_mb_per_s)?,
        })
    }
}

/// Median speed at each stage of the torture; `None` if it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Speeds {
    /// Erased, or trimmed if it cannot be erased.
    pub clean: Option<Speed>,
    /// Filled and worn down.
    pub tortured: Option<Speed>,
    /// After a TRIM of the whole region.
    pub trimmed: Option<Speed>,
    /// After another TRIM.
    pub trimmed_again: Option<Speed>,
}

impl Speeds {
    pub fn stages(&self) -> [(&'static str, Option<Speed>); 4] {
        [
            ("clean", self.clean),
            ("tortured", self.tortured),
            ("trimmed", self.trimmed),
            ("trimmed again", self.trimmed_again),
        ]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    pub takes_trim: bool,
    /// Whether the device promises that trimmed units read as zeros.
    pub promises_zeros: bool,
    /// Whether `clean` was reached by an erase rather than by the TRIM that is judged.
    pub is_clean_by_erase: bool,
    pub integrity: Integrity,
    /// The share of the trimmed units that are read as quickly as units that never held data; `None` if the two kinds
    /// of reads cannot be told apart.
    pub reached_percent: Option<f64>,
    /// `reached_percent` after the second TRIM.
    pub reached_again_percent: Option<f64>,
    pub leaves_holes: bool,
    pub rounds: usize,
    pub speeds: Speeds,
    /// The measurements behind the medians of `speeds`, stage by stage.
    pub measured: [Measured; 4],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    pub device: Device,
    pub content: &'static str,
    pub seed: u64,
    pub did: Did,
    pub evidence: Evidence,
    /// `None` if the verification ended too early to judge.
    pub judgement: Option<Judgement>,
    /// Set if the device failed or the user stopped the verification.
    pub broken: Option<Broken>,
}

/// Verifies a device. All data in the region are lost.
///
/// Fails without having done anything if the region is too small.
pub async fn verify<D: BlockDevice>(
    device: &D,
    settings: &Settings,
    torture: &Torture,
    hooks: Hooks<'_>,
) -> Result<Verification, SetupError> {
    let facts = device.facts();
    let region = settings.region(facts);
    let bytes = Bytes::from_units(region.units);
    if bytes < REGION_MIN {
        return Err(SetupError::TooSmallToVerify { device: facts.name.clone(), region: bytes });
    }
    let mut bench = Bench {
        device,
        settings,
        hooks,
        region,
        number: 0,
        phase: (0.0, 1.0),
        rng: Xoshiro256PlusPlus::seed_from_u64(settings.seed),
        version: 0,
        did: Did::default(),
    };
    let (mut evidence, mut stage) = (Evidence::default(), "clean");
    let ended = bench.gather(torture, &mut evidence, &mut stage).await;
    Ok(Verification {
        device: facts.into(),
        content: settings.content.name(),
        seed: settings.seed,
        did: bench.did,
        judgement: ended.as_ref().ok().map(|()| verdict::judge(&evidence)),
        broken: ended.err().map(|error| Broken {
            test: stage.to_owned(),
            why: error.to_string(),
            interrupted: error == BlockError::Interrupted,
            did: bench.did,
        }),
        evidence,
    })
}

impl<D: BlockDevice> Bench<'_, D> {
    /// Gathers evidence stage by stage. After a failure, the evidence so far remains.
    async fn gather(
        &mut self,
        torture: &Torture,
        evidence: &mut Evidence,
        stage: &mut &'static str,
    ) -> Result<(), BlockError> {
        let Some(trim) = self.device.facts().trim else { return Ok(()) };
        evidence.takes_trim = true;
        evidence.promises_zeros = trim.promises_zeros;
        self.phase(0.0, 0.1);
        evidence.leaves_holes = torture.leaves_holes;
        evidence.is_clean_by_erase = self.clean().await?;
        let mut reads = Samples { unmapped_ns: self.rest_and_sample(torture).await?, ..Samples::default() };
        self.measure(evidence, 0).await?;
        *stage = "which data a TRIM destroys";
        self.phase(0.1, 0.05);
        evidence.integrity = self.integrity(trim.granularity).await?;
        loop {
            self.round(torture, evidence, &mut reads, stage).await?;
            evidence.rounds += 1;
            // A model has no noise.
            let is_last = self.device.facts().is_model || evidence.rounds == ROUNDS_MAX;
            if is_last || !verdict::is_in_doubt(evidence) {
                return Ok(());
            }
        }
    }

    async fn round(
        &mut self,
        torture: &Torture,
        evidence: &mut Evidence,
        reads: &mut Samples,
        stage: &mut &'static str,
    ) -> Result<(), BlockError> {
        *stage = "fill";
        self.phase(0.15, 0.25);
        self.write_all(self.region).await?;
        *stage = "torture";
        self.phase(0.4, 0.4);
        let units = u128::from(self.region.units) * u128::from(torture.written_percent) / 100;
        let wanted = Bytes::from_units(units.min(u128::from(u64::MAX / UNIT_BYTES)) as u64);
        self.random_units(Action::Write, DEPTH, Limit::bytes(wanted)).await?;
        *stage = "tortured";
        self.phase(0.8, 0.1);
        reads.mapped_ns = self.rest_and_sample(torture).await?;
        self.measure(evidence, 1).await?;
        *stage = "trimmed";
        self.phase(0.9, 0.05);
        self.trim_region().await?;
        reads.trimmed_ns = self.rest_and_sample(torture).await?;
        evidence.reached_percent = reads.reached_percent();
        self.measure(evidence, 2).await?;
        *stage = "trimmed again";
        self.phase(0.95, 0.05);
        self.trim_region().await?;
        reads.trimmed_ns = self.rest_and_sample(torture).await?;
        evidence.reached_again_percent = reads.reached_percent();
        self.measure(evidence, 3).await
    }

    async fn measure(&mut self, evidence: &mut Evidence, stage: usize) -> Result<(), BlockError> {
        let times = if self.device.facts().is_model { 1 } else { SAMPLES_PER_STAGE };
        let measured = &mut evidence.measured[stage];
        // Reads come first, since writes change what is read.
        for _ in 0..times {
            measured.reads_mb_per_s.push(self.read_speed().await?);
        }
        for _ in 0..times {
            measured.writes_mb_per_s.push(self.write_speed(times as u64).await?);
        }
        let Speeds { clean, tortured, trimmed, trimmed_again } = &mut evidence.speeds;
        *[clean, tortured, trimmed, trimmed_again][stage] = measured.median();
        Ok(())
    }

    /// Makes the device as clean as possible. Returns whether it was erased rather than just trimmed.
    async fn clean(&mut self) -> Result<bool, BlockError> {
        let is_whole = self.region.units == self.device.size_units();
        match self.device.erase().await {
            // An erase covers the whole device, including the space that is not under test.
            _ if !is_whole => self.trim_region().await.map(|()| false),
            Ok(()) => {
                self.did.whole_device_erases += 1;
                Ok(true)
            }
            Err(BlockError::Unsupported(_)) => self.trim_region().await.map(|()| false),
            Err(error) => Err(error),
        }
    }

    async fn trim_region(&mut self) -> Result<(), BlockError> {
        self.trim(self.region).await?;
        self.device.perform(Operation::Flush).await?;
        Ok(())
    }

    /// Rests, and then reads single units all over the region, one at a time. Returns the time of each.
    async fn rest_and_sample(&mut self, torture: &Torture) -> Result<Vec<u64>, BlockError> {
        self.device.perform(Operation::Flush).await?;
        self.device.sleep(torture.rest).await;
        let mut latencies = Vec::with_capacity(SAMPLES as usize);
        for _ in 0..SAMPLES {
            let place = u128::from(self.rng.next_u64()) * u128::from(self.region.units);
            let unit = UnitRange::new(self.region.start.offset((place >> 64) as u64), 1);
            latencies.push(self.device.perform(Operation::read(unit)).await?.as_nanos());
            self.did.bytes_read += UNIT_BYTES;
        }
        Ok(latencies)
    }

    async fn read_speed(&mut self) -> Result<f64, BlockError> {
        let zone = self.region.units / ZONES;
        let length = zone.min(ZONE_MOST.units_floor());
        let mut total = Total::default();
        for i in 0..ZONES {
            let area = UnitRange::new(self.region.start.offset(i * zone), length);
            total.add(&self.run_one(Stream::once(Action::Read, area, READ, 1)).await?);
        }
        Ok(per_second(total.tally.bytes.0 as f64 / 1e6, total.elapsed))
    }

    /// Takes one of `of` measurements of a stage.
    async fn write_speed(&mut self, of: u64) -> Result<f64, BlockError> {
        let written = Bytes(self.region.units * WRITE_PERCENT / 100 / of * UNIT_BYTES);
        let limit = Limit { time: Some(WRITE_TIME / of), bytes: Some(written) };
        Ok(self.random_units(Action::Write, DEPTH, limit).await?.mb_per_s())
    }

    /// A class of data that is recognised when it is read back.
    fn recognisable(&self) -> ContentClass {
        match self.settings.content {
            ContentClass::Zeros | ContentClass::Duplicated => ContentClass::Compressible,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
