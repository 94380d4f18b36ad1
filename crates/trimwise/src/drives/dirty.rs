//! Dirty against clean writes, as reviewers measure them.
//!
//! The procedure is that of cdrlabs.com ("TRIM performance" in each review of a drive, about 2012 to 2022): the drive is
//! erased and its sequential writes are measured (*clean*); it is filled, wholly or to 80 %, single units of what was
//! filled are overwritten at random for 30 minutes, and sequential writes are measured again (*dirty*); then it rests for
//! 30 minutes, and is measured a third time (*rested*). There is no TRIM. How much a measurement writes is not said; it
//! must be less than the SLC cache of a QLC drive, since clean writes are as fast as the link. Here it is 1/128 of the
//! drive, in 64 pieces all over it.
//!
//! The drive is shrunk ([`SsdConfig::scaled`]) and time with it, so that as many times its capacity is written, and as
//! large a share of the cache is folded meanwhile.

use std::collections::VecDeque;

use crate::ssd::{ConfigError, Ssd, SsdConfig};
use crate::units::{Bytes, Lpn, SimDuration, SimTime, UnitRange};

const SHRUNK: Bytes = Bytes::gib(16);
const MINUTES_30: SimDuration = SimDuration::from_secs(1800);
const DEPTH: usize = 32;
/// 128 KiB, as `bench` writes sequentially.
const LARGE_UNITS: u64 = 32;
const PIECES: u64 = 64;
/// Parts of the drive that a measurement writes one of.
const MEASURED: u64 = 128;

/// Speeds of sequential writes, bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Writes {
    pub clean: f64,
    pub dirty: f64,
    pub rested: f64,
}

impl Writes {
    /// Carries out the procedure on a model of the drive, filled to `full_percent`. The measurement of the dirty drive
    /// begins `pause` after the overwriting.
    ///
    /// # Errors
    /// If the drive cannot be shrunk.
    pub fn measured(
        config: &SsdConfig,
        full_percent: u8,
        pause: SimDuration,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let mut small = config.scaled(SHRUNK.0.min(config.capacity_bytes))?;
        // A cache that shrank with the drive would not keep its dies busy.
        let g = &config.geometry;
        let dies = u64::from(g.channels * g.dies_per_channel);
        let stripes = 2 * dies * u64::from(g.planes_per_die) * u64::from(g.page_bytes);
        small.cache.bytes = small.cache.bytes.max(stripes).min(config.cache.bytes);
        let share = small.capacity_bytes as f64 / config.capacity_bytes as f64;
        let [time, pause] = [MINUTES_30, pause].map(|time| SimDuration((time.0 as f64 * share) as u64));
        let units = small.capacity_units();
        let mut drive =
            Writer { ssd: Ssd::new(&small, seed)?, now: SimTime::ZERO, outstanding: VecDeque::new() };
        let clean = drive.measure(units);
        drive.now = drive.ssd.secure_erase(drive.now);
        let filled = units * u64::from(full_percent.min(100)) / 100;
        drive.write_all(UnitRange::new(Lpn(0), filled));
        drive.overwrite(filled.max(1), drive.now + time, seed);
        drive.now += pause;
        let dirty = drive.measure(units);
        drive.now += time;
        let rested = drive.measure(units);
        Ok(Self { clean, dirty, rested })
    }

    pub fn dirty_over_clean(&self) -> f64 {
        self.dirty / self.clean
    }

    pub fn rested_over_clean(&self) -> f64 {
        self.rested / self.clean
    }
}

struct Writer {
    ssd: Ssd,
    now: SimTime,
    outstanding: VecDeque<SimTime>,
}

impl Writer {
    fn write(&mut self, range: UnitRange) {
        if self.outstanding.len() == DEPTH
            && let Some(done) = self.outstanding.pop_front()
        {
            self.now = self.now.max(done);
        }
        self.outstanding.push_back(self.ssd.write(self.now, range));
    }

    fn write_all(&mut self, range: UnitRange) {
        let (mut at, end) = (range.start, range.end());
        while at < end {
            let count = LARGE_UNITS.min(end.0 - at.0);
            self.write(UnitRange::new(at, count));
            at = at.offset(count);
        }
    }

    fn wait(&mut self) {
        self.now = self.outstanding.drain(..).fold(self.now, SimTime::max);
    }

    /// Overwrites single units below `units` until `end`. The multiplier is Knuth's (MMIX).
    fn overwrite(&mut self, units: u64, end: SimTime, seed: u64) {
        let mut x = seed;
        while self.now < end {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.write(UnitRange::new(Lpn((x >> 16) % units), 1));
        }
        self.wait();
    }

    /// Measures sequential writes on a drive of `units`. Returns bytes a second.
    fn measure(&mut self, units: u64) -> f64 {
        self.wait();
        let from = self.now;
        let piece = (units / MEASURED / PIECES).max(1);
        for i in 0..PIECES {
            self.write_all(UnitRange::new(Lpn(units / PIECES * i), piece));
        }
        self.wait();
        Bytes::from_units(piece * PIECES).0 as f64 * 1e9 / self.now.since(from).0 as f64
    }
}
