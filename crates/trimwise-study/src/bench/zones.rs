//! Sequential passes over the whole address space by zones, as HD Tach shows them.
//!
//! A pass goes through the zones in order, 64 KiB at a time, one transfer at a time. By default a sample of 8 MiB from
//! its beginning stands for each zone, as in HD Tach's quick bench. Reads come first: the writes of such a pass put the
//! drive in order, so reads after them would no longer measure the old state.

use trimwise::block::{BlockDevice, BlockError};
use trimwise::units::{Bytes, UNIT_BYTES, UnitRange};

use super::load::{Action, Stream, Total};
use super::spec::Passes;
use super::{Bench, Found, Measured};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

const ZONES: u64 = 100;
const SAMPLE: Bytes = Bytes::mib(8);
const TRANSFER: Bytes = Bytes::kib(64);

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn hd_tach(&mut self, passes: Passes, full: bool) -> Result<Found, BlockError> {
        let actions: &[Action] = match passes {
            Passes::Reads => &[Action::Read],
            Passes::Writes => &[Action::Write],
            Passes::Both => &[Action::Read, Action::Write],
        };
        let mut found = Found::default();
        let mut series = Vec::new();
        for (i, &action) in actions.iter().enumerate() {
            let (measured, line) = self.pass(action, full, (i, actions.len())).await?;
            found.measured.push(measured);
            series.push(line);
        }
        found.plots.push(Plot {
            title: "Throughput by place: sequential passes over the zones".to_owned(),
            kind: PlotKind::Lines,
            x: Axis::linear("position_gb", "place on the device", "GB"),
            y: Axis::linear("throughput_mb_per_s", "throughput", "MB/s"),
            series,
        });
        if passes != Passes::Reads {
            let what =
                "its own writes tidy up the drive as they go, so later measurements see a different drive";
            found.notes.push(what.to_owned());
        }
        Ok(found)
    }

    /// Makes one pass; `place` is its number and the number of passes.
    async fn pass(
        &mut self,
        action: Action,
        full: bool,
        place: (usize, usize),
    ) -> Result<(Measured, Series), BlockError> {
        let what = if action == Action::Read { "read" } else { "write" };
        let mut total = Total::default();
        let mut points: Vec<Point> = Vec::new();
        let share = 1.0 / (ZONES as f64 * place.1 as f64);
        for i in 0..ZONES {
            self.phase(place.0 as f64 / place.1 as f64 + i as f64 * share, share);
            let zone = self.zone(i);
            let units = if full { zone.units } else { zone.units.min(SAMPLE.units_floor()) };
            let area = UnitRange::new(zone.start, units);
            let done = self.run_one(Stream::once(action, area, TRANSFER, 1)).await?;
            total.add(&done);
            let gigabytes = (zone.start.0 - self.region.start.0) as f64 * UNIT_BYTES as f64 / 1e9;
            points.push(Point::new(gigabytes, done.mb_per_s()));
        }
        let measured = Measured::of(what, &total.tally, total.elapsed).spread(points.iter().map(|p| p.y));
        Ok((measured, Series { name: what.to_owned(), points }))
    }

    /// Returns a zone; zones are adjacent, and the last one ends with the region.
    fn zone(&self, i: u64) -> UnitRange {
        let at = |i: u64| (u128::from(self.region.units) * u128::from(i) / u128::from(ZONES)) as u64;
        UnitRange::new(self.region.start.offset(at(i)), at(i + 1) - at(i))
    }
}
