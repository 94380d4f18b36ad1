//! Loads: streams of reads and writes, each at a queue depth, for a time or up to an amount.
//!
//! One loop in one task keeps the queues of all streams full: it submits as much as the depths allow, waits for a
//! completion, records it, and submits the next transfer of that stream. A run ends when the first stream reaches its
//! time or amount; the others (a background load) end with it. What is under way by then still completes and counts.

use hdrhistogram::Histogram;
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::Content;
use trimwise::units::{Bytes, Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime, UNIT_BYTES, UnitRange};
use trimwise::workload::latency::LatencySummary;

use super::Bench;

const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;
/// Completions between two progress reports.
const REPORT_EVERY: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write,
    Mixed { read_percent: u8 },
    Trim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Trim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each transfer follows the last one; at the end, from the beginning again.
    Sequential,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub time: Option<SimDuration>,
    pub bytes: Option<Bytes>,
}

impl Limit {
    pub const NONE: Self = Self { time: None, bytes: None };

    pub const fn bytes(bytes: Bytes) -> Self {
        Self { time: None, bytes: Some(bytes) }
    }

    pub const fn time(time: SimDuration) -> Self {
        Self { time: Some(time), bytes: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub action: Action,
    pub order: Order,
    pub area: UnitRange,
    /// Size of a transfer: whole units, or a part of one that divides it.
    pub transfer: Bytes,
    pub depth: u32,
    /// Transfers of other streams that must complete before each of this stream's; 0 means that it does not wait.
    pub pace: u32,
    /// A run ends with the first stream that reaches its limit.
    pub limit: Limit,
}

impl Stream {
    pub(super) fn once(action: Action, area: UnitRange, transfer: Bytes, depth: u32) -> Self {
        let limit = Limit::bytes(Bytes::from_units(area.units));
        Self { action, order: Order::Sequential, area, transfer, depth, pace: 0, limit }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub operations: u64,
    pub bytes: Bytes,
    latency: Option<Histogram<u64>>,
}

impl Tally {
    pub(super) fn add(&mut self, bytes: u64, latency: SimDuration) {
        self.operations += 1;
        self.bytes.0 += bytes;
        self.latency.get_or_insert_with(latencies).saturating_record(latency.as_nanos().max(1));
    }

    /// `None` if there were no transfers.
    pub fn latency(&self) -> Option<LatencySummary> {
        self.latency.as_ref().map(|histogram| LatencySummary {
            count: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        })
    }

    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes.0 += other.bytes.0;
        if let Some(histogram) = &other.latency {
            // Histograms with the same bounds can always be added.
            let _ = self.latency.get_or_insert_with(latencies).add(histogram);
        }
    }
}

fn latencies() -> Histogram<u64> {
    const HOUR_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, HOUR_NS, 3).expect("constant bounds are valid")
}

/// Bytes completed in each interval of a run. If there are too many intervals, neighbours are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub length: SimDuration,
    /// The last interval may be cut short by the end.
    pub bytes: Vec<u64>,
}

impl Intervals {
    const MAX: usize = 4096;

    pub(super) fn new(length: SimDuration) -> Self {
        Self { length, bytes: Vec::new() }
    }

    pub(super) fn add(&mut self, after: SimDuration, bytes: u64) {
        // Completions at the end of an interval belong to it.
        let index = |length: SimDuration| after.as_nanos().saturating_sub(1) / length.as_nanos();
        while index(self.length) >= Self::MAX as u64 {
            self.bytes = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.length = self.length * 2;
        }
        let index = index(self.length) as usize;
        if index >= self.bytes.len() {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
    }

    /// Returns megabytes per second in each whole interval of a run that took `elapsed`, with the end of the interval
    /// in seconds.
    pub fn rates(&self, elapsed: SimDuration) -> Vec<(f64, f64)> {
        let whole = (elapsed.as_nanos() / self.length.as_nanos()) as usize;
        let seconds = self.length.as_secs_f64();
        let rate = |(i, &bytes): (usize, &u64)| ((i + 1) as f64 * seconds, bytes as f64 / 1e6 / seconds);
        self.bytes.iter().take(whole).enumerate().map(rate).collect()
    }
}

#[derive(Clone, Debug)]
pub struct Done {
    pub reads: Tally,
    pub writes: Tally,
    pub trims: Tally,
    pub elapsed: SimDuration,
    pub intervals: Intervals,
}

impl Done {
    pub fn bytes(&self) -> Bytes {
        Bytes(self.reads.bytes.0 + self.writes.bytes.0)
    }

    pub fn operations(&self) -> u64 {
        self.reads.operations + self.writes.operations
    }

    pub fn mb_per_s(&self) -> f64 {
        per_second(self.bytes().0 as f64 / 1e6, self.elapsed)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Total {
    pub tally: Tally,
    pub elapsed: SimDuration,
}

impl Total {
    pub fn add(&mut self, done: &Done) {
        self.tally.merge(&done.reads);
        self.tally.merge(&done.writes);
        self.elapsed += done.elapsed;
    }
}

pub(crate) fn per_second(amount: f64, elapsed: SimDuration) -> f64 {
    if elapsed == SimDuration::ZERO { 0.0 } else { amount / elapsed.as_secs_f64() }
}

struct Running {
    stream: Stream,
    transfer_sectors: u64,
    area_sectors: u64,
    at: u64,
    submitted_bytes: u64,
    /// Sectors and kind of the transfers in flight, by slot.
    transfers: Vec<(u32, Kind)>,
    vacant: Vec<u32>,
    /// Transfers of other streams since this stream's last one.
    waited: u32,
    ended: bool,
    done: Done,
}

impl Running {
    fn new(stream: Stream, interval: SimDuration) -> Self {
        Self {
            stream,
            transfer_sectors: (stream.transfer.0 / SECTOR_BYTES).max(1),
            area_sectors: stream.area.units * UNIT_SECTORS,
            at: 0,
            submitted_bytes: 0,
            transfers: vec![(0, Kind::Read); stream.depth as usize],
            vacant: (0..stream.depth).rev().collect(),
            waited: 0,
            ended: false,
            done: Done {
                reads: Tally::default(),
                writes: Tally::default(),
                trims: Tally::default(),
                elapsed: SimDuration::ZERO,
                intervals: Intervals::new(interval),
            },
        }
    }

    /// Returns whether the stream has more to submit. Once false, it stays false.
    fn wants_more(&mut self, elapsed: SimDuration) -> bool {
        let Limit { time, bytes } = self.stream.limit;
        self.ended |= self.area_sectors == 0
            || bytes.is_some_and(|most| self.submitted_bytes >= most.0)
            || time.is_some_and(|most| elapsed >= most);
        !self.ended
    }

    fn next(&mut self, rng: &mut Xoshiro256PlusPlus) -> SectorRange {
        let (first, sectors) = match self.stream.order {
            Order::Sequential => {
                // The last transfer of the area ends with the area, and the last of an amount with the amount.
                let left = match self.stream.limit.bytes {
                    Some(most) => (most.0 - self.submitted_bytes).div_ceil(SECTOR_BYTES),
                    None => u64::MAX,
                };
                let sectors = self.transfer_sectors.min(self.area_sectors - self.at).min(left);
                let first = self.at;
                self.at = (self.at + sectors) % self.area_sectors;
                (first, sectors)
            }
            Order::Random => {
                let places = (self.area_sectors / self.transfer_sectors).max(1);
                let place = below(rng, places);
                (place * self.transfer_sectors, self.transfer_sectors.min(self.area_sectors))
            }
        };
        SectorRange::new(Lba(self.stream.area.start.first_lba().0 + first), sectors)
    }

    fn kind(&self, rng: &mut Xoshiro256PlusPlus) -> Kind {
        match self.stream.action {
            Action::Read => Kind::Read,
            Action::Write => Kind::Write,
            Action::Trim => Kind::Trim,
            Action::Mixed { read_percent } if ((rng.next_u64() >> 32) * 100) >> 32 < read_percent.into() => {
                Kind::Read
            }
            Action::Mixed { .. } => Kind::Write,
        }
    }

    /// Returns how much of the limit is done, for the progress bar.
    fn progress(&self, elapsed: SimDuration) -> f64 {
        let Limit { time, bytes } = self.stream.limit;
        let time = time.map_or(0.0, |t| elapsed.as_secs_f64() / t.as_secs_f64().max(1e-9));
        time.max(bytes.map_or(0.0, |b| self.submitted_bytes as f64 / b.0.max(1) as f64)).min(1.0)
    }
}

impl<D: BlockDevice> Bench<'_, D> {
    /// Runs streams at the same time until the first of them reaches its limit. After an error, `did` holds the
    /// transfers completed by then.
    pub(super) async fn run(
        &mut self,
        streams: &[Stream],
        interval: SimDuration,
    ) -> Result<Vec<Done>, BlockError> {
        let start = self.device.now();
        let mut running: Vec<Running> = streams.iter().map(|&s| Running::new(s, interval)).collect();
        let mut in_flight = 0;
        let mut ended = false;
        for (i, stream) in running.iter_mut().enumerate() {
            in_flight += self.refill(i, stream, start)?;
            ended |= stream.ended;
        }
        let is_paced = streams.iter().any(|s| s.pace > 0);
        let mut completions = 0u64;
        while in_flight > 0 {
            let completion = self.device.completion().await?;
            in_flight -= 1;
            // A token holds the stream in its upper half and the transfer's slot in its lower.
            let (index, slot) = ((completion.token >> 32) as usize, completion.token as u32);
            let known = running.get_mut(index).filter(|r| (slot as usize) < r.transfers.len());
            let Some(stream) = known else {
                let what = format!("the device completed {:#x}, which was not submitted", completion.token);
                return Err(BlockError::Other(what));
            };
            self.count(stream, slot, start, completion.completed, completion.latency());
            if !ended {
                in_flight += self.refill(index, stream, start)?;
                ended |= stream.ended;
            }
            if is_paced && !ended {
                in_flight += self.refill_paced(index, &mut running, start)?;
            }
            completions += 1;
            if completions.is_multiple_of(REPORT_EVERY) {
                let elapsed = self.device.now().since(start);
                self.report(running.iter().map(|r| r.progress(elapsed)).fold(0.0, f64::max));
            }
        }
        Ok(running.into_iter().map(|r| r.done).collect())
    }

    fn refill(&mut self, index: usize, running: &mut Running, start: SimTime) -> Result<u64, BlockError> {
        let mut submitted = 0;
        while !running.vacant.is_empty()
            && running.wants_more(self.device.now().since(start))
            && running.waited >= running.stream.pace
        {
            let Some(slot) = running.vacant.pop() else { break };
            let kind = running.kind(&mut self.rng);
            let sectors = running.next(&mut self.rng);
            let operation = match kind {
                Kind::Read => Operation::Read(sectors),
                Kind::Trim => Operation::Trim(vec![sectors.units()]),
                Kind::Write => {
                    self.version = self.version.wrapping_add(1);
                    Operation::Write(sectors, Content::new(self.settings.content, self.version))
                }
            };
            self.device.submit(operation, (index as u64) << 32 | u64::from(slot))?;
            running.transfers[slot as usize] = (sectors.sectors as u32, kind);
            running.submitted_bytes += sectors.bytes().0;
            running.waited = 0;
            submitted += 1;
        }
        Ok(submitted)
    }

    /// Counts a completed transfer of stream `completed` for the streams that wait for others.
    fn refill_paced(
        &mut self,
        completed: usize,
        running: &mut [Running],
        start: SimTime,
    ) -> Result<u64, BlockError> {
        let mut submitted = 0;
        for (i, other) in running.iter_mut().enumerate().filter(|(i, _)| *i != completed) {
            other.waited = other.waited.saturating_add(1);
            submitted += self.refill(i, other, start)?;
        }
        Ok(submitted)
    }

    fn count(
        &mut self,
        running: &mut Running,
        slot: u32,
        start: SimTime,
        completed: SimTime,
        latency: SimDuration,
    ) {
        let (sectors, kind) = running.transfers[slot as usize];
        running.vacant.push(slot);
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        let (tally, did) = match kind {
            Kind::Read => (&mut running.done.reads, &mut self.did.bytes_read),
            Kind::Write => (&mut running.done.writes, &mut self.did.bytes_written),
            Kind::Trim => (&mut running.done.trims, &mut self.did.bytes_trimmed),
        };
        tally.add(bytes, latency);
        *did += bytes;
        let elapsed = completed.since(start);
        running.done.elapsed = running.done.elapsed.max(elapsed);
        if kind != Kind::Trim {
            running.done.intervals.add(elapsed, bytes);
        }
    }
}

/// Draws a number below `n`: the high half of a product needs no division, and is as uniform as 64 bits allow.
pub fn below(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}
