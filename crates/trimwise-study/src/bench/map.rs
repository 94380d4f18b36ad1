//! Cost of TRIM to the foreground: latency of reads and writes over offered rates of reads, writes and TRIMs.
//!
//! First each load runs alone, as fast as possible. Shares of those rates are then offered in all combinations, each
//! for the same time, in an open loop: requests arrive at their times even if earlier ones are not done. Reads are 4
//! KiB at random places in one half of the region. Writes are 128 KiB, sequential, in the other half. TRIMs are 1 MiB
//! of the data written there; after each point the trimmed ranges are written again. A request's latency begins when it
//! is due. If a load is not completed soon after its time, the point is *saturated*: its latencies would only depend on
//! its length, so none are given.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass};
use trimwise::units::{Lpn, SimDuration, SimTime, UNIT_BYTES, UnitRange};
use trimwise::workload::latency::LatencySummary;

use super::load::{Tally, below};

/// Units of each kind of request: read, write, TRIM.
const UNITS: [u64; 3] = [1, 32, 256];
const DEPTHS: [usize; 3] = [64, 16, 1];
/// Offered shares, in percent, of the rates that reads, writes and TRIMs reach alone.
pub(super) const SHARES: [u64; 6] = [0, 20, 40, 60, 80, 95];
pub(super) const TRIM_SHARES: [u64; 4] = [0, 10, 30, 60];
/// Take completions only if there are more than this; fewer are never waited for.
const UNTAKEN: usize = 512;
/// A point kept up if everything was completed soon after its end: within this percentage of its length. With TRIMs,
/// this many times the duration of a TRIM is added, since one that is due at the end holds up the rest.
const TAIL_PERCENT: u64 = 5;
const TAIL_TRIMS: f64 = 2.5;
/// Minimum number of requests of all kinds at a point, if any are offered.
const REQUESTS_MIN: u64 = 20;
/// A load that is faster than this many requests per second counts as free; `FREE_AFTER` requests decide. No drive
/// comes close: reads would reach 80 GB/s.
const FREE_PER_S: f64 = 2e7;
const FREE_AFTER: u64 = 1 << 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPlan {
    pub region: UnitRange,
    pub point: SimDuration,
    pub content: ContentClass,
    /// Seed of places and times.
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub trim_bytes: u64,
    /// Reads per second alone, as fast as possible.
    pub read_most_per_s: f64,
    /// Writes per second alone, as fast as possible.
    pub write_most_per_s: f64,
    /// TRIMs per second alone; `None` if the device has no TRIM.
    pub trim_most_per_s: Option<f64>,
    pub point_ns: u64,
    /// Ordered by TRIM rate, then write rate, then read rate.
    pub points: Vec<MapPoint>,
    /// Why points are missing, if any are.
    pub broken: Option<String>,
    pub interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapPoint {
    pub reads: MapLoad,
    pub writes: MapLoad,
    pub trims: MapLoad,
    /// Whether all requests were completed when due, or soon after.
    pub kept_up: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapLoad {
    pub offered_per_s: f64,
    pub offered_bytes_per_s: f64,
    pub achieved_per_s: f64,
    pub achieved_bytes_per_s: f64,
    /// Latency from the time at which each request was due; `None` without requests, or if the point did not keep up.
    pub latency: Option<LatencySummary>,
}

pub fn points(has_trim: bool) -> usize {
    SHARES.len() * SHARES.len() * if has_trim { TRIM_SHARES.len() } else { 1 }
}

/// Returns the minimum duration of a map, on a device that keeps up.
pub fn estimate(plan: &MapPlan, has_trim: bool) -> SimDuration {
    plan.point * (points(has_trim) as u64 + UNITS.len() as u64)
}

struct Mapping<'a, D> {
    device: &'a D,
    plan: MapPlan,
    rng: Xoshiro256PlusPlus,
    version: u32,
    at: [u64; 2],
}

/// Measures a map. Calls `on_progress` with the number of points done and of all points.
///
/// # Errors
///
/// [`BlockError::Unsupported`] if a load costs no time, or the device's error before the first point. Later errors end
/// the map and are part of it.
pub async fn map<D: BlockDevice>(
    device: &D,
    plan: MapPlan,
    on_progress: &dyn Fn(usize, usize),
) -> Result<Map, BlockError> {
    let rng = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let mut mapping = Mapping { device, plan, rng, version: 0, at: [0, 0] };
    mapping.put(plan.region).await?;
    let has_trim = device.facts().trim.is_some();
    let all = points(has_trim);
    let mut most = [0.0; 3];
    for (kind, most) in most.iter_mut().enumerate().take(if has_trim { 3 } else { 2 }) {
        *most = mapping.alone(kind).await?;
    }
    let mut map = Map {
        read_bytes: UNITS[0] * UNIT_BYTES,
        write_bytes: UNITS[1] * UNIT_BYTES,
        trim_bytes: UNITS[2] * UNIT_BYTES,
        read_most_per_s: most[0],
        write_most_per_s: most[1],
        trim_most_per_s: has_trim.then_some(most[2]),
        point_ns: plan.point.as_nanos(),
        points: Vec::new(),
        broken: None,
        interrupted: false,
    };
    for trims in if has_trim { &TRIM_SHARES[..] } else { &TRIM_SHARES[..1] } {
        for writes in SHARES {
            for reads in SHARES {
                let shares = [reads, writes, *trims];
                let rates = [0, 1, 2].map(|kind| most[kind] * shares[kind] as f64 / 100.0);
                match mapping.point(rates, most[2]).await {
                    Ok(point) => map.points.push(point),
                    Err(error) => {
                        map.interrupted = error == BlockError::Interrupted;
                        map.broken = Some(error.to_string());
                        return Ok(map);
                    }
                }
                on_progress(map.points.len(), all);
            }
        }
    }
    Ok(map)
}

impl<D: BlockDevice> Mapping<'_, D> {
    fn halves(&self) -> [UnitRange; 2] {
        let UnitRange { start, units } = self.plan.region;
        let half = units / 2 / UNITS[2] * UNITS[2];
        [UnitRange::new(start, units - half), UnitRange::new(start.offset(units - half), half)]
    }

    fn next(&mut self, kind: usize) -> Operation {
        let [of_reads, of_writes] = self.halves();
        let units = UNITS[kind];
        if kind == 0 {
            let place = below(&mut self.rng, of_reads.units);
            return Operation::read(UnitRange::new(of_reads.start.offset(place), units));
        }
        let at = &mut self.at[kind - 1];
        let range = UnitRange::new(of_writes.start.offset(*at), units.min(of_writes.units));
        *at = (*at + units) % of_writes.units;
        if kind == 2 {
            return Operation::Trim(vec![range]);
        }
        self.version = self.version.wrapping_add(1);
        Operation::write(range, Content::new(self.plan.content, self.version))
    }

    async fn put(&mut self, range: UnitRange) -> Result<(), BlockError> {
        let mut in_flight = 0;
        for piece in range.pieces(128) {
            self.version = self.version.wrapping_add(1);
            let write = Operation::write(piece, Content::new(self.plan.content, self.version));
            self.device.submit(write, 0)?;
            in_flight += 1;
            if in_flight == DEPTHS[1] {
                self.device.completion().await?;
                in_flight -= 1;
            }
        }
        for _ in 0..in_flight {
            self.device.completion().await?;
        }
        self.device.perform(Operation::Flush).await?;
        Ok(())
    }

    /// Returns the rate of one kind of request, alone and as fast as possible.
    async fn alone(&mut self, kind: usize) -> Result<f64, BlockError> {
        let start = self.device.now();
        let (mut in_flight, mut done) = (0, 0u64);
        let mut last = start;
        loop {
            let is_over = self.device.now().since(start) >= self.plan.point && done >= REQUESTS_MIN;
            while in_flight < DEPTHS[kind] && !is_over {
                let next = self.next(kind);
                self.device.submit(next, 0)?;
                in_flight += 1;
            }
            if in_flight == 0 {
                break;
            }
            last = self.device.completion().await?.completed;
            (in_flight, done) = (in_flight - 1, done + 1);
            if done == FREE_AFTER && done as f64 > last.since(start).as_secs_f64() * FREE_PER_S {
                return Err(BlockError::Unsupported(format!(
                    "{}: {} take next to no time, so there is no maximum rate to offer shares of; expected a drive on \
                     which they take time",
                    self.device.facts().name,
                    ["reads", "writes", "TRIMs"][kind]
                )));
            }
        }
        if kind > 0 {
            let [_, half] = self.halves();
            self.put(half).await?;
        }
        Ok(done as f64 / last.since(start).as_secs_f64().max(1e-9))
    }

    /// Offers requests of each kind at these rates. `trim_most` is the rate that TRIMs reach alone.
    async fn point(&mut self, rates: [f64; 3], trim_most: f64) -> Result<MapPoint, BlockError> {
        let span = self.plan.point;
        let start = self.device.now();
        // Each period has one request, at a random time.
        let periods =
            rates.map(|rate| if rate > 0.0 { (1e9 / rate) as u64 } else { 0 }.max(u64::from(rate > 0.0)));
        let mut counts = [0u64; 3];
        let mut due = [None; 3];
        let mut untaken = 0;
        let mut tallies = [const { Vec::new() }; 3];
        let mut in_time = [0u64; 3];
        let mut is_late = false;
        let from = self.at[1];
        let mut dues: Vec<SimTime> = Vec::new();
        loop {
            for kind in 0..3 {
                if due[kind].is_none() && periods[kind] > 0 {
                    let begin = counts[kind] * periods[kind];
                    let within = below(&mut self.rng, periods[kind]);
                    if begin < span.as_nanos() {
                        counts[kind] += 1;
                    }
                    // Requests due after the end are not offered.
                    if begin + within < span.as_nanos() {
                        due[kind] = Some(start + SimDuration(begin + within));
                    }
                }
            }
            let first = (0..3).filter_map(|kind| due[kind].map(|at| (at, kind))).min();
            let Some((at, kind)) = first else { break };
            let now = self.device.now();
            if at > now {
                self.device.sleep(at.since(now)).await;
            } else if now.since(at) > span * 2 / 10 {
                is_late = true;
                break;
            }
            due[kind] = None;
            let operation = self.next(kind);
            self.device.submit(operation, (kind as u64) << 32 | dues.len() as u64)?;
            dues.push(at);
            untaken += 1;
            if untaken > UNTAKEN {
                for _ in 0..UNTAKEN / 2 {
                    self.take(start + span, &dues, &mut tallies, &mut in_time).await?;
                    untaken -= 1;
                }
            }
        }
        for _ in 0..untaken {
            self.take(start + span, &dues, &mut tallies, &mut in_time).await?;
        }
        let drained = self.device.now();
        if rates[2] > 0.0 {
            // Write the trimmed ranges again.
            let [_, half] = self.halves();
            let trimmed = (counts[2] * UNITS[2]).min(half.units);
            let tail = trimmed.min(half.units - from);
            self.put(UnitRange::new(half.start.offset(from), tail)).await?;
            self.put(UnitRange::new(half.start, trimmed - tail)).await?;
        }
        let one_trim = if rates[2] > 0.0 { (TAIL_TRIMS * 1e9 / trim_most.max(1e-9)) as u64 } else { 0 };
        let kept_up =
            !is_late && drained.since(start + span) <= span * TAIL_PERCENT / 100 + SimDuration(one_trim);
        let seconds = span.as_secs_f64();
        let load = |kind: usize| {
            let bytes = (UNITS[kind] * UNIT_BYTES) as f64;
            let achieved = in_time[kind] as f64 / seconds;
            let mut tally = Tally::default();
            tallies[kind].iter().for_each(|&latency| tally.add(0, latency));
            MapLoad {
                offered_per_s: rates[kind],
                offered_bytes_per_s: rates[kind] * bytes,
                achieved_per_s: achieved,
                achieved_bytes_per_s: achieved * bytes,
                latency: tally.latency().filter(|_| kept_up),
            }
        };
        Ok(MapPoint { reads: load(0), writes: load(1), trims: load(2), kept_up })
    }

    async fn take(
        &self,
        end: SimTime,
        dues: &[SimTime],
        latencies: &mut [Vec<SimDuration>; 3],
        in_time: &mut [u64; 3],
    ) -> Result<(), BlockError> {
        let done = self.device.completion().await?;
        let kind = (done.token >> 32) as usize;
        let due = dues.get(done.token as u32 as usize).copied().unwrap_or(done.submitted);
        if let (Some(latencies), Some(in_time)) = (latencies.get_mut(kind), in_time.get_mut(kind)) {
            latencies.push(done.completed.since(due));
            *in_time += u64::from(done.completed <= end);
        }
        Ok(())
    }
}

/// Returns the region of a map: large enough for many requests of each kind, and small enough to be filled quickly.
pub fn region(whole: UnitRange) -> UnitRange {
    let most = trimwise::units::Bytes::gib(1).units_floor();
    UnitRange::new(Lpn(whole.start.0), whole.units.min(most))
}

#[cfg(test)]
mod tests {
    use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
    use trimwise::engine::Sim;
    use trimwise::profile::Profile;
    use trimwise::ssd::Ssd;

    use super::*;

    fn map_of(profile: &str) -> Map {
        let profile = Profile::embedded(profile).unwrap();
        let sim = Sim::new();
        let ssd = Ssd::new(&crate::bench::sized(&profile.config).unwrap(), 1).unwrap();
        let device = ModelDevice::new(BlockQueue::new(&sim, ssd, QueueConfig::default()), "drive");
        let region = UnitRange::new(Lpn(0), 64 << 8);
        let point = SimDuration::from_millis(100);
        let plan = MapPlan { region, point, content: ContentClass::Incompressible, seed: 1 };
        sim.run(async move { map(&device, plan, &|_, _| {}).await }).unwrap().unwrap()
    }

    #[test]
    fn slow_trims_cost_reads_what_they_take_and_saturation_has_no_numbers() {
        // A TRIM costs at least 8,000 ns a command, or nothing on a drive without TRIM.
        let map = map_of("sata-small");
        assert_eq!(map.points.len(), points(true));
        let at = |reads: usize, writes: usize, trims: usize| {
            &map.points[(trims * SHARES.len() + writes) * SHARES.len() + reads]
        };
        let p99 = |point: &MapPoint| point.reads.latency.unwrap().p99_ns;
        // Alone on the drive, a TRIM of 1 MiB takes 0.3 ms or more, and a read 0.1 ms.
        assert!(p99(at(1, 0, 2)) > 2 * p99(at(1, 0, 0)), "{} {}", p99(at(1, 0, 2)), p99(at(1, 0, 0)));
        let idle = at(0, 0, 0);
        assert!(idle.kept_up && idle.reads.latency.is_none());
        let full = at(5, 5, 3);
        assert!(!full.kept_up && full.reads.latency.is_none(), "twice what the drive can do: {full:?}");
        assert!(full.reads.achieved_per_s < full.reads.offered_per_s);
        let light = at(1, 0, 0);
        assert!((light.reads.achieved_per_s / light.reads.offered_per_s - 1.0).abs() < 0.05, "{light:?}");
        assert_eq!(map_of("sata-small"), map, "the same again");
    }

    #[test]
    fn a_drive_without_costs_has_no_map() {
        let profile = Profile::embedded("zero-cost").unwrap();
        let sim = Sim::new();
        let ssd = Ssd::new(&crate::bench::sized(&profile.config).unwrap(), 1).unwrap();
        let device = ModelDevice::new(BlockQueue::new(&sim, ssd, QueueConfig::default()), "free");
        let region = UnitRange::new(Lpn(0), 64 << 8);
        let point = SimDuration::from_millis(100);
        let plan = MapPlan { region, point, content: ContentClass::Incompressible, seed: 1 };
        let refused = sim.run(async move { map(&device, plan, &|_, _| {}).await }).unwrap().unwrap_err();
        assert!(refused.to_string().starts_with("free: reads take next to no time"), "{refused}");
    }

    #[test]
    fn a_drive_without_trim_has_one_panel() {
        let mut profile = Profile::embedded("sata-small").unwrap();
        profile.config.trim = trimwise::ssd::TrimConfig::unsupported();
        let sim = Sim::new();
        let ssd = Ssd::new(&profile.config, 1).unwrap();
        let device = ModelDevice::new(BlockQueue::new(&sim, ssd, QueueConfig::default()), "drive");
        let region = UnitRange::new(Lpn(0), 64 << 8);
        let point = SimDuration::from_millis(20);
        let plan = MapPlan { region, point, content: ContentClass::Incompressible, seed: 1 };
        let map = sim.run(async move { map(&device, plan, &|_, _| {}).await }).unwrap().unwrap();
        assert_eq!((map.points.len(), map.trim_most_per_s), (points(false), None));
    }
}
