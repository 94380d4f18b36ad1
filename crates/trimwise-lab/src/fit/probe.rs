//! The bench behind a fit: single commands, bursts and short loads, on any [`BlockDevice`].
//!
//! Every measurement is kept, not only its median: the intervals of the fitted values come from them.

mod trims;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass};
use trimwise::units::{Bytes, Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};

use crate::bench::below;

/// Sizes of single reads and writes, in units of 4 KiB.
const SIZES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const SINGLES: usize = 40;
/// Bursts of cached writes: writes per burst, number of bursts, and units per write.
const BURST: usize = 96;
const BURSTS: usize = 12;
pub(super) const BURST_UNITS: [u64; 2] = [1, 4];
/// Depths and units of random reads, and their rounds. Large reads show the channels.
const LOADS: [(usize, u64); 6] = [(4, 1), (16, 1), (32, 1), (128, 1), (4, 8), (32, 8)];
pub(super) const LOAD_COUNT: usize = LOADS.len();
const ROUNDS: usize = 6;
const READS_PER_ROUND: usize = 384;
const LARGE_UNITS: u64 = 128;
const LARGE_DEPTH: usize = 16;

/// Where and for how long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub region: UnitRange,
    /// True for a device in use: only read.
    pub read_only: bool,
    /// Approximate duration in all; virtual time on a model.
    pub time: SimDuration,
    pub seed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sized {
    pub units: u64,
    pub latencies_ns: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trims {
    pub units: u64,
    /// True if the units held data.
    pub mapped: bool,
    pub latencies_ns: Vec<f64>,
}

/// A load at a queue depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtDepth {
    pub depth: usize,
    pub units: u64,
    /// Nanoseconds per transfer, for each round.
    pub spacing_ns: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aftermath {
    pub units: u64,
    /// True if the units held data.
    pub mapped: bool,
    /// The reads after each TRIM: time of the end, counted from the TRIM's end, and latency.
    pub reads_ns: Vec<Vec<(f64, f64)>>,
}

/// The measurements. Empty where the device or the plan does not allow them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Samples {
    /// One at a time.
    pub reads: Vec<Sized>,
    /// Writes to an empty write cache, one at a time.
    pub writes: Vec<Sized>,
    /// Reads of the unit that was written just before.
    pub hits_ns: Vec<f64>,
    /// Flushes with nothing to flush.
    pub flushes_ns: Vec<f64>,
    pub flushes_after_ns: Vec<f64>,
    /// Bursts of writes that fit into the cache.
    pub bursts: Vec<AtDepth>,
    /// Random reads at several depths.
    pub random_reads: Vec<AtDepth>,
    /// Many at a time.
    pub sequential_reads: Vec<AtDepth>,
    /// Sequential reads of 64 KiB, one at a time.
    pub stream_ns: Vec<f64>,
    /// A long sequential write that begins with an empty cache: the end of each transfer.
    pub sustained_ns: Vec<f64>,
    /// Units per transfer of the sustained write.
    pub sustained_units: u64,
    /// One at a time.
    pub trims: Vec<Trims>,
    /// TRIMs of one unit, several at a time: nanoseconds per TRIM.
    pub trim_spacing_ns: Vec<f64>,
    /// Reads while TRIMs of 1 MiB follow each other.
    pub reads_beside_trims_ns: Vec<f64>,
    pub aftermath: Vec<Aftermath>,
}

/// Result of a held-back test, measured or predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    pub test: &'static str,
    pub per_s: f64,
    /// Bytes per second over the link; `None` if some transfers went the other way or not over the link.
    pub bytes_per_s: Option<f64>,
}

/// Called from time to time with the name of the measurement and the completed share, in thousandths.
pub type OnStep<'a> = &'a dyn Fn(&'static str, u64);

pub(crate) struct Probe<'a, D> {
    device: &'a D,
    plan: Plan,
    rng: Xoshiro256PlusPlus,
    version: u32,
    on_step: OnStep<'a>,
}

/// Completed operations: submission, completion, and number.
type Ends = Vec<(SimTime, SimTime, usize)>;

impl<'a, D: BlockDevice> Probe<'a, D> {
    pub fn new(device: &'a D, plan: Plan, on_step: OnStep<'a>) -> Self {
        Self { device, plan, rng: Xoshiro256PlusPlus::seed_from_u64(plan.seed), version: 0, on_step }
    }

    /// Writes the region once, so that reads find data in the flash.
    pub async fn fill(&mut self) -> Result<(), BlockError> {
        if !self.plan.read_only {
            let transfers = self.plan.region.units.div_ceil(LARGE_UNITS);
            (self.on_step)("filling", 0);
            self.sequential(true, LARGE_UNITS, LARGE_DEPTH, transfers as usize, None).await?;
            self.settle().await?;
        }
        Ok(())
    }

    pub async fn samples(&mut self) -> Result<Samples, BlockError> {
        let mut found = Samples::default();
        (self.on_step)("single reads", 150);
        for units in SIZES {
            let latencies_ns = self.single_reads(units).await?;
            found.reads.push(Sized { units, latencies_ns });
        }
        (self.on_step)("reads at a depth", 250);
        found.random_reads = self.random_reads().await?;
        (self.on_step)("sequential reads", 350);
        found.stream_ns = self.stream().await?;
        let transfers = (self.plan.region.units / LARGE_UNITS).clamp(1, 2048) as usize;
        let ends =
            self.sequential(false, LARGE_UNITS, LARGE_DEPTH, transfers, Some(self.share(0.08))).await?;
        let spacing_ns = by_chunks(&ends, LARGE_DEPTH);
        found.sequential_reads.push(AtDepth { depth: LARGE_DEPTH, units: LARGE_UNITS, spacing_ns });
        if self.plan.read_only {
            return Ok(found);
        }
        (self.on_step)("single writes", 450);
        self.writes(&mut found).await?;
        (self.on_step)("sustained writes", 550);
        self.sustained(&mut found).await?;
        if self.device.facts().trim.is_some() {
            (self.on_step)("TRIM", 750);
            self.trims(&mut found).await?;
        }
        Ok(found)
    }

    pub async fn random_reads(&mut self) -> Result<Vec<AtDepth>, BlockError> {
        let mut loads = Vec::new();
        for (depth, units) in LOADS {
            let mut spacing_ns = Vec::new();
            for _ in 0..ROUNDS {
                let limit = self.share(0.1 / (LOADS.len() * ROUNDS) as f64);
                let ends = self.random(depth, units, READS_PER_ROUND, Some(limit), 100).await?;
                spacing_ns.extend(spacing(&ends, depth));
            }
            loads.push(AtDepth { depth, units, spacing_ns });
        }
        Ok(loads)
    }

    /// Measures a long sequential write, which begins with an empty cache.
    pub async fn sustained(&mut self, found: &mut Samples) -> Result<(), BlockError> {
        self.settle().await?;
        let start = self.device.now();
        let transfers = (self.plan.region.units / LARGE_UNITS).max(1) as usize;
        let limit = Some(self.share(0.2));
        let ends = self.sequential(true, LARGE_UNITS, LARGE_DEPTH, transfers, limit).await?;
        found.sustained_ns = ends.iter().map(|end| ns(end.1.since(start))).collect();
        found.sustained_ns.sort_by(f64::total_cmp);
        found.sustained_units = LARGE_UNITS;
        self.settle().await
    }

    pub async fn held_back(&mut self) -> Result<Vec<Held>, BlockError> {
        (self.on_step)("held-back tests", 900);
        if !self.plan.read_only {
            self.settle().await?;
        }
        let mut held = Vec::new();
        let limit = Some(self.share(0.05));
        let mut add = |test: &'static str, ends: &Ends, depth: usize, units: Option<u64>| {
            if let Some(spacing) = spacing(ends, depth) {
                let per_s = 1e9 / spacing;
                held.push(Held {
                    test,
                    per_s,
                    bytes_per_s: units.map(|units| per_s * (units * UNIT_BYTES) as f64),
                });
            }
        };
        let ends = self.random(8, 4, 2048, limit, 100).await?;
        add("random reads, 16 KiB, QD 8", &ends, 8, Some(4));
        let ends = self.sequential(false, 16, 2, 2048, limit).await?;
        add("sequential reads, 64 KiB, QD 2", &ends, 2, Some(16));
        if !self.plan.read_only {
            let ends = self.random(4, 1, 4096, limit, 70).await?;
            add("random 70 % reads, 4 KiB, QD 4", &ends, 4, None);
            let ends = self.random(8, 8, 4096, limit, 0).await?;
            add("random writes, 32 KiB, QD 8", &ends, 8, Some(8));
            if self.device.facts().trim.is_some() {
                let ends = self.writes_and_trims().await?;
                add("a write and a TRIM of 64 KiB in turn, QD 1", &ends, 1, None);
            }
            self.flush().await?;
        }
        Ok(held)
    }

    fn share(&self, of_time: f64) -> SimDuration {
        SimDuration((self.plan.time.as_nanos() as f64 * of_time) as u64)
    }

    fn place(&mut self, units: u64) -> UnitRange {
        let places = (self.plan.region.units / units).max(1);
        let place = below(&mut self.rng, places);
        let start = Lpn(self.plan.region.start.0 + place * units);
        UnitRange::new(start, units.min(self.plan.region.units))
    }

    fn write(&mut self, range: UnitRange) -> Operation {
        self.version = self.version.wrapping_add(1);
        Operation::write(range, Content::new(ContentClass::Incompressible, self.version))
    }

    /// Lets the cache drain. If a flush survives a power cut, it does not drain the cache. Shorter than what a drive
    /// calls idle.
    async fn settle(&mut self) -> Result<(), BlockError> {
        self.flush().await?;
        self.device.sleep(SimDuration::from_millis(90)).await;
        Ok(())
    }

    async fn flush(&mut self) -> Result<f64, BlockError> {
        Ok(ns(self.device.perform(Operation::Flush).await?))
    }

    async fn single_reads(&mut self, units: u64) -> Result<Vec<f64>, BlockError> {
        let mut latencies = Vec::new();
        let begun = self.device.now();
        let limit = self.share(0.1 / SIZES.len() as f64);
        while latencies.len() < SINGLES && !self.is_over(begun, limit, latencies.len()) {
            let place = self.place(units);
            latencies.push(ns(self.device.perform(Operation::read(place)).await?));
        }
        Ok(latencies)
    }

    /// Returns true if a probe's time is over. It may make eight commands in any case.
    fn is_over(&self, begun: SimTime, limit: SimDuration, done: usize) -> bool {
        done >= 8 && self.device.now().since(begun) > limit
    }

    /// Measures single writes and the flushes after them, reads from the cache, and bursts.
    async fn writes(&mut self, found: &mut Samples) -> Result<(), BlockError> {
        self.flush().await?;
        let begun = self.device.now();
        while found.flushes_ns.len() < SINGLES / 2
            && !self.is_over(begun, self.share(0.02), found.flushes_ns.len())
        {
            found.flushes_ns.push(self.flush().await?);
        }
        for units in SIZES {
            let mut latencies_ns = Vec::new();
            let begun = self.device.now();
            let limit = self.share(0.1 / SIZES.len() as f64);
            while latencies_ns.len() < SINGLES && !self.is_over(begun, limit, latencies_ns.len()) {
                let place = self.place(units);
                let write = self.write(place);
                latencies_ns.push(ns(self.device.perform(write).await?));
                if units == 1 {
                    // By then the unit is where it is programmed from.
                    self.device.sleep(SimDuration::from_millis(1)).await;
                    found.flushes_after_ns.push(self.flush().await?);
                } else {
                    self.flush().await?;
                }
            }
            found.writes.push(Sized { units, latencies_ns });
        }
        let begun = self.device.now();
        while found.hits_ns.len() < SINGLES && !self.is_over(begun, self.share(0.02), found.hits_ns.len()) {
            let place = self.place(1);
            let write = self.write(place);
            self.device.perform(write).await?;
            found.hits_ns.push(ns(self.device.perform(Operation::read(place)).await?));
        }
        for units in BURST_UNITS {
            let mut spacing_ns = Vec::new();
            let begun = self.device.now();
            while spacing_ns.len() < BURSTS && !self.is_over(begun, self.share(0.02), spacing_ns.len()) {
                self.flush().await?;
                let ends = self.random(32, units, BURST, None, 0).await?;
                spacing_ns.extend(spacing(&ends, 1));
            }
            found.bursts.push(AtDepth { depth: 32, units, spacing_ns });
        }
        Ok(())
    }

    async fn stream(&mut self) -> Result<Vec<f64>, BlockError> {
        let mut latencies = Vec::new();
        let start = self.plan.region.start.0 + self.plan.region.units / 3;
        let begun = self.device.now();
        for i in 0..128 {
            let range = UnitRange::new(Lpn(start + i * 16), 16);
            if range.end() > self.plan.region.end() || self.is_over(begun, self.share(0.02), latencies.len())
            {
                break;
            }
            latencies.push(ns(self.device.perform(Operation::read(range)).await?));
        }
        // The first reads come before any read-ahead.
        latencies.drain(..latencies.len().min(4));
        Ok(latencies)
    }

    /// Keeps `depth` transfers at random places in flight; `limit` ends it early.
    async fn random(
        &mut self,
        depth: usize,
        units: u64,
        count: usize,
        limit: Option<SimDuration>,
        read_percent: u64,
    ) -> Result<Ends, BlockError> {
        let mut after = self.rng.clone();
        after.jump();
        let ends = closed(self.device, depth, count, limit, &mut |_| {
            let range = self.place(units);
            let is_read = ((self.rng.next_u64() >> 32) * 100) >> 32 < read_percent;
            if is_read { Operation::read(range) } else { self.write(range) }
        })
        .await;
        // Later draws must not depend on how far this got within the limit.
        self.rng = after;
        ends
    }

    /// Like `random`, from the beginning of the region, in order.
    async fn sequential(
        &mut self,
        is_write: bool,
        units: u64,
        depth: usize,
        count: usize,
        limit: Option<SimDuration>,
    ) -> Result<Ends, BlockError> {
        let region = self.plan.region;
        let places = region.units.div_ceil(units);
        closed(self.device, depth, count, limit, &mut |i| {
            let at = i as u64 % places * units;
            let range = UnitRange::new(Lpn(region.start.0 + at), units.min(region.units - at));
            if is_write { self.write(range) } else { Operation::read(range) }
        })
        .await
    }
}

fn ns(duration: SimDuration) -> f64 {
    duration.as_nanos() as f64
}

/// Returns the mean time between completions after the first `warm`; `None` if there are too few.
fn spacing(ends: &Ends, warm: usize) -> Option<f64> {
    let first = ends.get(warm.min(ends.len() / 4))?.1;
    let (count, last) = (ends.len() - 1 - warm.min(ends.len() / 4), ends.last()?.1);
    (count > 0).then(|| ns(last.since(first)) / count as f64)
}

/// Returns the spacing of each eighth of a load, after a start.
fn by_chunks(ends: &Ends, warm: usize) -> Vec<f64> {
    let steady = ends.get(warm.min(ends.len() / 4)..).unwrap_or_default();
    let chunk = (steady.len() / 8).max(2);
    steady.chunks(chunk).filter_map(|chunk| spacing(&chunk.to_vec(), 0)).collect()
}

/// Keeps `depth` operations in flight until `count` were submitted or `limit` is over. Returns them in the order of
/// completion.
async fn closed<D: BlockDevice>(
    device: &D,
    depth: usize,
    count: usize,
    limit: Option<SimDuration>,
    next: &mut dyn FnMut(usize) -> Operation,
) -> Result<Ends, BlockError> {
    let start = device.now();
    let (mut submitted, mut in_flight) = (0, 0);
    let mut ends = Vec::with_capacity(count);
    loop {
        while in_flight < depth
            && submitted < count
            && (submitted < 2 * depth || limit.is_none_or(|limit| device.now().since(start) < limit))
        {
            device.submit(next(submitted), submitted as u64)?;
            submitted += 1;
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(ends);
        }
        let done = device.completion().await?;
        in_flight -= 1;
        ends.push((done.submitted, done.completed, done.token as usize));
    }
}

/// Returns the region of a device of that size: all of it, or as much as a short bench needs.
pub fn region(size_units: u64) -> UnitRange {
    UnitRange::new(Lpn(0), size_units.min(Bytes::gib(1).units_floor()))
}
