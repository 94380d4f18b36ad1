//! The plain loads: sequential and random, reading, writing, mixed, and both at the same time.

use super::load::{Action, Done, Limit, Order, Stream};
use super::spec::{Direction, Percent, Seconds};
use super::{Bench, Found, Measured};
use crate::block::{BlockDevice, BlockError};
use crate::experiment::plot::{Axis, Plot, PlotKind, Point, Series};
use crate::units::{Bytes, SimDuration, UNIT_BYTES, UnitRange};

/// Transfers of a fill and of dd.
pub(super) const LARGE: Bytes = Bytes::mib(1);
/// What the source's dd wrote: 4,096,000,000 bytes.
const DD: Bytes = Bytes(4_096_000_000);
/// How long random transfers go on, unless it is said.
const RANDOM: SimDuration = SimDuration::from_secs(30);
/// Throughput over time is booked in such intervals, or in longer ones where there would be too many.
pub(super) const INTERVAL: SimDuration = SimDuration::from_millis(100);
/// The most that a model transfers in a test whose time is not given.
pub(super) const MODEL_MOST: Bytes = Bytes::gib(256);
/// The most points of a line over time.
const POINTS: usize = 200;

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn fill(&mut self, level: Percent) -> Result<Found, BlockError> {
        let area = UnitRange::new(self.region.start, level.of(self.region.units));
        let done = self.write_all(area).await?;
        Ok(over_time("fill", &done))
    }

    /// Writes an area once, sequentially, with a few transfers at a time.
    pub(super) async fn write_all(&mut self, area: UnitRange) -> Result<Done, BlockError> {
        let limit = Limit::bytes(Bytes::from_units(area.units));
        let (action, order) = (Action::Write, Order::Sequential);
        self.run_one(Stream { action, order, area, transfer: LARGE, depth: 4, pace: 0, limit }).await
    }

    pub(super) async fn sequential(
        &mut self,
        direction: Direction,
        size: Option<Bytes>,
        start: Percent,
    ) -> Result<Found, BlockError> {
        let behind = start.of(self.region.units);
        let room = self.region.units - behind;
        let units = size.unwrap_or(DD).units_floor().min(room);
        let area = UnitRange::new(self.region.start.offset(behind), units);
        let action = match direction {
            Direction::Read => Action::Read,
            Direction::Write => Action::Write,
        };
        let limit = Limit::bytes(Bytes::from_units(units));
        let stream =
            Stream { action, order: Order::Sequential, area, transfer: LARGE, depth: 1, pace: 0, limit };
        Ok(over_time("sequential", &self.run_one(stream).await?))
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

    /// Transfers of a unit at random places of the region.
    pub(super) async fn random_units(
        &mut self,
        action: Action,
        depth: u32,
        limit: Limit,
    ) -> Result<Done, BlockError> {
        let (area, transfer) = (self.region, Bytes(UNIT_BYTES));
        self.run_one(Stream { action, order: Order::Random, area, transfer, depth, pace: 0, limit }).await
    }

    /// The time that was given, or else a default, and on a model an amount too.
    pub(super) fn limit(&self, seconds: Option<Seconds>, default: SimDuration, most: Bytes) -> Limit {
        match seconds {
            Some(seconds) => Limit::time(SimDuration::from_secs(seconds.into())),
            None => Limit { time: Some(default), bytes: self.device.facts().is_model.then_some(most) },
        }
    }

    pub(super) async fn run_one(&mut self, stream: Stream) -> Result<Done, BlockError> {
        let mut done = self.run(&[stream], INTERVAL).await?;
        // One stream, one result.
        done.pop().ok_or_else(|| BlockError::Other("a stream came to nothing".to_owned()))
    }
}

/// What one stream did, with its throughput over time.
pub(super) fn over_time(name: &str, done: &Done) -> Found {
    let rates = done.intervals.rates(done.elapsed);
    let mut measured = Measured::of_stream(done);
    if let [one] = &mut measured[..] {
        *one = one.clone().spread(rates.iter().map(|&(_, rate)| rate));
    }
    let plots = if rates.len() < 2 { Vec::new() } else { vec![throughput(name, [(name.to_owned(), rates)])] };
    Found { measured, plots, ..Found::default() }
}

/// Lines of throughput over time, each of at most [`POINTS`] points.
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

/// The mean of neighbours, with the least and the most of them, so that no more than [`POINTS`] are left.
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
