//! Plain loads: sequential and random, reading, writing, mixed, both at the same time, and none.

use trimwise::block::{BlockDevice, BlockError};
use trimwise::units::{Bytes, Percent, SimDuration, UNIT_BYTES, UnitRange};

use super::load::{Action, Done, Limit, Order, Stream, Tally};
use super::spec::{DEPTH, Direction, Seconds};
use super::{Bench, Found, Measured};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// Transfer size of a fill and of dd.
pub(super) const LARGE: Bytes = Bytes::mib(1);
const DD: Bytes = Bytes(4_096_000_000);
const RANDOM: SimDuration = SimDuration::from_secs(30);
/// As in the source.
const TORTURE: SimDuration = SimDuration::from_secs(20 * 60);
/// For a reader and a writer, each alone and both together.
const TOGETHER: SimDuration = SimDuration::from_secs(10);
/// Maximum amount that the reader next to a writer reads, again and again; it is written first.
const READER_MOST: Bytes = Bytes::gib(4);
/// Interval of throughput over time; longer if there would be too many intervals.
pub(super) const INTERVAL: SimDuration = SimDuration::from_millis(100);
/// Maximum amount that a model transfers in a test without a given time.
pub(super) const MODEL_MOST: Bytes = Bytes::gib(256);
const POINTS: usize = 200;

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn fill(&mut self, level: Percent) -> Result<Found, BlockError> {
        let area = UnitRange::new(self.region.start, level.of(self.region.units));
        let done = self.write_all(area).await?;
        Ok(over_time("fill", &done))
    }

    /// Writes an area once, sequentially, with a few transfers at a time.
    pub(super) async fn write_all(&mut self, area: UnitRange) -> Result<Done, BlockError> {
        self.run_one(Stream::once(Action::Write, area, LARGE, 4)).await
    }

    pub(super) async fn sequential(
        &mut self,
        direction: Direction,
        size: Option<Bytes>,
        start: Percent,
    ) -> Result<Found, BlockError> {
        let behind = start.of(self.region.units);
        let room = self.region.units - behind;
        let units = self.settings.scale.of(size.unwrap_or(DD).units_floor()).min(room);
        let area = UnitRange::new(self.region.start.offset(behind), units);
        let action = match direction {
            Direction::Read => Action::Read,
            Direction::Write => Action::Write,
        };
        Ok(over_time("sequential", &self.run_one(Stream::once(action, area, LARGE, 1)).await?))
    }

    pub(super) async fn random(
        &mut self,
        read_percent: u8,
        depth: u32,
        seconds: Option<Seconds>,
    ) -> Result<Found, BlockError> {
        let action = match read_percent {
            0 => Action::Write,
            100 => Action::Read,
            read_percent => Action::Mixed { read_percent },
        };
        let limit = self.limit(seconds, RANDOM, MODEL_MOST);
        Ok(over_time("random", &self.random_units(action, depth, limit).await?))
    }

    pub(super) async fn torture(&mut self, seconds: Option<Seconds>) -> Result<Found, BlockError> {
        // Twice the region, so that no earlier order remains.
        let most = Bytes::from_units(self.region.units.saturating_mul(2)).min(MODEL_MOST);
        let limit = self.limit(seconds, TORTURE, most);
        Ok(over_time("torture", &self.random_units(Action::Write, DEPTH, limit).await?))
    }

    /// Runs a reader of the first half of the region, a writer of the second, and then both at the same time.
    pub(super) async fn read_write(&mut self, seconds: Option<Seconds>) -> Result<Found, BlockError> {
        let half = self.region.units / 2;
        let read_area = UnitRange::new(self.region.start, half.min(READER_MOST.units_floor()));
        let write_area = UnitRange::new(self.region.start.offset(half), half);
        let limit = self.limit(seconds, TOGETHER, Bytes(MODEL_MOST.0 / 4));
        let stream = |action, area| Stream { limit, ..Stream::once(action, area, LARGE, 1) };
        let (reader, writer) = (stream(Action::Read, read_area), stream(Action::Write, write_area));
        self.phase(0.0, 0.25);
        self.write_all(read_area).await?;
        self.phase(0.25, 0.25);
        let read = self.run_one(reader).await?;
        self.phase(0.5, 0.25);
        let written = self.run_one(writer).await?;
        self.phase(0.75, 0.25);
        let both = self.run(&[reader, writer], INTERVAL).await?;
        let (mut reads, mut writes) = (Tally::default(), Tally::default());
        let mut elapsed = SimDuration::ZERO;
        for done in &both {
            reads.merge(&done.reads);
            writes.merge(&done.writes);
            elapsed = elapsed.max(done.elapsed);
        }
        let lines = [("read alone", &read), ("write alone", &written)]
            .into_iter()
            .chain(["read during writes", "write during reads"].into_iter().zip(&both))
            .map(|(name, done)| (name.to_owned(), done.intervals.rates(done.elapsed)));
        Ok(Found {
            plots: vec![throughput("reading and writing", lines)],
            measured: vec![
                Measured::of("read alone", &read.reads, read.elapsed),
                Measured::of("write alone", &written.writes, written.elapsed),
                Measured::of("read, both", &reads, elapsed),
                Measured::of("write, both", &writes, elapsed),
            ],
            ..Found::default()
        })
    }

    pub(super) async fn random_units(
        &mut self,
        action: Action,
        depth: u32,
        limit: Limit,
    ) -> Result<Done, BlockError> {
        let (area, transfer) = (self.region, Bytes(UNIT_BYTES));
        self.run_one(Stream { action, order: Order::Random, area, transfer, depth, pace: 0, limit }).await
    }

    /// Leaves the device idle.
    pub(super) async fn rest(&mut self, seconds: Seconds) -> Result<Found, BlockError> {
        const STEPS: u64 = 100;
        let (start, whole) =
            (self.device.now(), self.settings.scale.time(SimDuration::from_secs(seconds.into())));
        for step in 1..=STEPS {
            let until = start + SimDuration::from_nanos(whole.as_nanos() / STEPS * step);
            self.device.sleep(until.since(self.device.now())).await;
            if self.device.now() < until {
                // A real device wakes early if the user interrupts.
                return Err(BlockError::Interrupted);
            }
            self.report(step as f64 / STEPS as f64);
        }
        let measured = vec![Measured::operation("rest", 0, self.device.now().since(start))];
        Ok(Found { measured, ..Found::default() })
    }

    /// A default is also limited in amount on a model.
    pub(super) fn limit(&self, seconds: Option<Seconds>, default: SimDuration, most: Bytes) -> Limit {
        let scale = self.settings.scale;
        match seconds {
            Some(seconds) => Limit::time(scale.time(SimDuration::from_secs(seconds.into()))),
            None => {
                Limit { time: Some(scale.time(default)), bytes: self.device.facts().is_model.then_some(most) }
            }
        }
    }

    pub(super) async fn run_one(&mut self, stream: Stream) -> Result<Done, BlockError> {
        let mut done = self.run(&[stream], INTERVAL).await?;
        // One stream has one result.
        done.pop().ok_or_else(|| BlockError::Other("a stream gave no result".to_owned()))
    }
}

pub(super) fn over_time(name: &str, done: &Done) -> Found {
    let rates = done.intervals.rates(done.elapsed);
    let mut measured = Measured::of_stream(done);
    if let [one] = &mut measured[..] {
        *one = one.clone().spread(rates.iter().map(|&(_, rate)| rate));
    }
    let plots = if rates.len() < 2 { Vec::new() } else { vec![throughput(name, [(name.to_owned(), rates)])] };
    Found { measured, plots, ..Found::default() }
}

/// Draws lines of throughput over time, each with at most [`POINTS`] points.
pub(super) fn throughput(title: &str, lines: impl IntoIterator<Item = (String, Vec<(f64, f64)>)>) -> Plot {
    let series = lines.into_iter().map(|(name, rates)| Series { name, points: thinned(&rates) });
    Plot {
        title: format!("Throughput over time: {title}"),
        kind: PlotKind::Lines,
        x: Axis::linear("time_s", "time", "s"),
        y: Axis::linear("throughput_mb_per_s", "throughput", "MB/s"),
        series: series.collect(),
    }
}

/// Merges neighbours into their mean, with minimum and maximum, so that at most [`POINTS`] are left.
fn thinned(rates: &[(f64, f64)]) -> Vec<Point> {
    let together = rates.len().div_ceil(POINTS).max(1);
    let point = |chunk: &[(f64, f64)]| {
        let (at, _) = *chunk.last()?;
        let ys = || chunk.iter().map(|&(_, y)| y);
        let mean = ys().sum::<f64>() / chunk.len() as f64;
        let range = (together > 1).then(|| (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max)));
        Some(Point { range, ..Point::new(at, mean) })
    };
    rates.chunks(together).filter_map(point).collect()
}
