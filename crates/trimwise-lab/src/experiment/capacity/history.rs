//! Histories: the work done on a new drive, and the measurement at the end.

use trimwise::compare::cell::CellError;
use trimwise::compare::statistics;
use trimwise::units::Bytes;

use super::lab::{Lab, SMALLER, device, small};
use super::{DEVICES, FIRMWARES, STATIC};
use crate::bench::{Direction, Part, Percent, Test};

/// Bytes that the source's dd wrote.
const DD: Bytes = Bytes(4_096_000_000);
const DD_RUNS: usize = 4;
/// Fill levels of the source's sequential writes, and of the follow-up's random ones, in hundredths of a percent.
pub(crate) const LEVELS_WRITE: [u32; 2] = [8_730, 6_290];
pub(crate) const LEVELS_RANDOM: [u32; 2] = [6_390, 8_350];
const SYSBENCH_FILES: Bytes = Bytes::gib(2);

/// In percent.
pub(crate) const LEVELS: [u32; 11] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100];
/// Fill levels of a partition in percent, for varying over-provisioning.
pub(crate) const LEVELS_OF_PARTITION: [u32; 5] = [25, 50, 75, 90, 100];
/// Unpartitioned remainders, percent of the drive.
pub(crate) const REMAINDERS: [u32; 4] = [0, 7, 15, 28];
/// Fill levels of drives with pauses, percent.
pub(crate) const LEVELS_IDLE: [u32; 3] = [50, 80, 95];

/// Random writes at a time: the queue depth of SATA.
const DEPTH: u32 = 32;
/// Seconds of random writes for ageing the drive, for settling its speed, and for measuring it.
const AGE_S: u32 = 60;
const SETTLE_S: u32 = 90;
const MEASURE_S: u32 = 60;
/// Bursts of random writes, and the pauses between them in seconds. The first bursts do not count.
const BURSTS: usize = 8;
const BURSTS_UNCOUNTED: usize = 2;
const BURST_S: u32 = 2;
const PAUSE_S: u64 = 20;

/// Work done on a new drive, and the measurement at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// The source's history: the drive is filled to a level, the rest trimmed, and 4.096 GB written after it. Measured:
    /// four such writes.
    TrimmedWrite {
        device: &'static str,
        /// Hundredths of a percent.
        level: u32,
    },
    /// The source's follow-up: the drive is filled to a level, the rest trimmed, and files of 2 GiB written after it.
    /// Measured: random writes in those.
    TrimmedRandom {
        device: &'static str,
        /// Hundredths of a percent.
        level: u32,
    },
    /// A whole partition was written, in order and at random; files fill it to a level, and are overwritten at random.
    /// Measured: those overwrites, once their speed has settled.
    Overwritten {
        device: &'static str,
        /// Unpartitioned remainder that is never written, in percent of the drive.
        remainder: u32,
        /// Fill level of the partition, in percent.
        level: u32,
        /// True if its free space was trimmed.
        trimmed: bool,
    },
    /// Like [`History::Overwritten`], without a remainder, in bursts with pauses. Measured: the bursts.
    WithPauses {
        device: &'static str,
        /// Fill level, in percent.
        level: u32,
        /// True if its free space was trimmed.
        trimmed: bool,
        /// True if the drive collects garbage in the pauses.
        idle: bool,
    },
    /// The Vertex with one of its firmwares: everything written, files on 70 % of it, the rest trimmed if possible, and
    /// a minute's pause. Measured: random overwrites of the files, at first and when settled; then, after another
    /// pause, a sequential write after them.
    Firmware(&'static str),
    /// Measured: a sequential reader and writer, each alone and both together, on a new drive.
    Together { device: &'static str },
}

pub fn histories() -> Vec<History> {
    let mut all = Vec::new();
    for device in DEVICES {
        all.extend(LEVELS_WRITE.map(|level| History::TrimmedWrite { device, level }));
        all.extend(LEVELS_RANDOM.map(|level| History::TrimmedRandom { device, level }));
        all.push(History::Together { device });
        let overwritten =
            |remainder, level, trimmed| History::Overwritten { device, remainder, level, trimmed };
        all.extend(LEVELS.map(|level| overwritten(0, level, true)));
        // Only this much was ever written: the rest of the drive is a remainder.
        all.extend(LEVELS.map(|level| overwritten(100 - level, 100, false)));
        for remainder in REMAINDERS {
            let levels = LEVELS_OF_PARTITION.map(|level| overwritten(remainder, level, false));
            all.extend(
                levels
                    .into_iter()
                    .filter(|history| !matches!(history, History::Overwritten { level: 100, .. })),
            );
        }
        // Full partitions are not among the levels above.
        all.extend(REMAINDERS[1..].iter().map(|&remainder| overwritten(remainder, 100, false)));
        for level in LEVELS_IDLE {
            for (trimmed, idle) in [(false, false), (false, true), (true, false), (true, true)] {
                all.push(History::WithPauses { device, level, trimmed, idle });
            }
        }
    }
    all.extend(FIRMWARES.map(History::Firmware));
    all
}

fn behind(level: Percent) -> Part {
    Part { start: level, length: level.rest() }
}

fn up_to(level: Percent) -> Part {
    Part { start: Percent::ZERO, length: level }
}

const fn random(seconds: u32) -> Test {
    Test::Random { read_percent: 0, depth: DEPTH, seconds: Some(seconds) }
}

fn age() -> [Test; 2] {
    [Test::Fill(Percent::ALL), Test::Torture(Some(AGE_S))]
}

/// Carries out a history on a new drive. Returns the measurements in megabytes per second.
pub fn run(history: &History, seed: u64) -> Result<Vec<f64>, CellError> {
    match *history {
        History::TrimmedWrite { device: name, level } => {
            let level = Percent::hundredths(level);
            let write = Test::Sequential { direction: Direction::Write, size: Some(DD), start: level };
            Lab::run(name, &device(name)?, seed, async move |lab| {
                lab.tests(Part::ALL, &[Test::Fill(level)]).await?;
                lab.tests(Part::ALL, &[Test::Trim(behind(level)), write].repeat(DD_RUNS)).await
            })
        }
        History::TrimmedRandom { device: name, level } => {
            let config = device(name)?;
            let level = Percent::hundredths(level);
            let share = SYSBENCH_FILES.0 * 10_000 / config.capacity_bytes;
            let files = Part { start: level, length: Percent::hundredths(share as u32) };
            Lab::run(name, &config, seed, async move |lab| {
                lab.tests(Part::ALL, &[Test::Fill(level), Test::Trim(behind(level))]).await?;
                lab.tests(files, &[Test::Fill(Percent::ALL)]).await?;
                lab.tests(files, &[random(10)]).await
            })
        }
        History::Overwritten { device: name, remainder, level, trimmed } => {
            let partition = Percent::hundredths((100 - remainder) * 100);
            let files = up_to(Percent::hundredths((100 - remainder) * level));
            let free = behind(Percent::hundredths(level * 100));
            Lab::run(name, &small(device(name)?), seed, async move |lab| {
                lab.tests(up_to(partition), &age()).await?;
                if trimmed && level < 100 {
                    lab.tests(up_to(partition), &[Test::Trim(free)]).await?;
                }
                lab.tests(files, &[Test::Torture(Some(SETTLE_S))]).await?;
                lab.tests(files, &[random(MEASURE_S)]).await
            })
        }
        History::WithPauses { device: name, level, trimmed, idle } => {
            let level = Percent::hundredths(level * 100);
            let mut config = small(device(name)?);
            config.gc.idle = idle;
            Lab::run(name, &config, seed, async move |lab| {
                lab.tests(Part::ALL, &age()).await?;
                if trimmed {
                    lab.tests(Part::ALL, &[Test::Trim(behind(level))]).await?;
                }
                let mut bursts = Vec::new();
                for _ in 0..BURSTS {
                    lab.pause(PAUSE_S).await;
                    bursts.extend(lab.tests(up_to(level), &[random(BURST_S)]).await?);
                }
                // All bursts have the same length, so their mean is the mean over all bytes.
                Ok(mean(&bursts[BURSTS_UNCOUNTED..]).into_iter().collect())
            })
        }
        History::Firmware(version) => {
            let name = format!("{STATIC}@{version}");
            let level = Percent::hundredths(7_000);
            let size = Some(Bytes(DD.0 / u64::from(SMALLER)));
            let write = Test::Sequential { direction: Direction::Write, size, start: level };
            Lab::run(&name.clone(), &small(device(&name)?), seed, async move |lab| {
                lab.tests(Part::ALL, &age()).await?;
                if lab.trims() {
                    lab.tests(Part::ALL, &[Test::Trim(behind(level))]).await?;
                }
                lab.pause(60).await;
                let mut found = lab.tests(up_to(level), &[random(BURST_S)]).await?;
                lab.tests(up_to(level), &[Test::Torture(Some(SETTLE_S))]).await?;
                found.extend(lab.tests(up_to(level), &[random(MEASURE_S)]).await?);
                lab.pause(60).await;
                found.extend(lab.tests(Part::ALL, &[write]).await?);
                Ok(found)
            })
        }
        History::Together { device: name } => {
            let test = Test::ReadWrite(Some(10));
            Lab::run(name, &device(name)?, seed, async move |lab| lab.tests(Part::ALL, &[test]).await)
        }
    }
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[derive(Clone, Debug, Default)]
pub struct Measured {
    runs: Vec<(History, Vec<Vec<f64>>)>,
}

impl Measured {
    pub fn new(runs: impl IntoIterator<Item = (History, Vec<Vec<f64>>)>) -> Self {
        Self { runs: runs.into_iter().collect() }
    }

    /// Returns the measurements of all repetitions at a place of a history.
    pub fn each(&self, history: &History, place: usize) -> Vec<f64> {
        let of_history = self.runs.iter().filter(|(of, _)| of == history).flat_map(|(_, runs)| runs);
        of_history.filter_map(|run| run.get(place).copied()).collect()
    }

    /// Returns the median over the repetitions.
    pub fn at(&self, history: &History, place: usize) -> Option<f64> {
        statistics::median(&self.each(history, place))
    }

    /// Returns all measurements of a history, repetition by repetition.
    pub fn all(&self, history: &History) -> Vec<f64> {
        self.runs.iter().filter(|(of, _)| of == history).flat_map(|(_, runs)| runs.concat()).collect()
    }
}
