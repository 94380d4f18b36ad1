//! Transfer sizes from 0.5 KiB to 8 MiB, as ATTO shows them.
//!
//! For each size a stretch of 256 MiB is written sequentially, four transfers at a time, and then read. Small sizes
//! have a shorter stretch of 32,768 transfers, which keeps the test short.

use trimwise::block::{BlockDevice, BlockError};
use trimwise::units::{Bytes, UnitRange};

use super::load::{Action, Stream, Total};
use super::{Bench, Found, Measured};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// The smallest transfer; each following size is twice as large.
const SMALLEST: Bytes = Bytes(512);
const SIZES: u32 = 15;
const DEPTH: u32 = 4;
const STRETCH: Bytes = Bytes::mib(256);
const TRANSFERS_MOST: u64 = 32_768;

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn atto(&mut self) -> Result<Found, BlockError> {
        let sector = self.device.facts().sector_bytes;
        let stretch = STRETCH.0.min(Bytes::from_units(self.region.units).0);
        let actions = [("write", Action::Write), ("read", Action::Read)];
        let mut totals = [Total::default(), Total::default()];
        let mut series = actions.map(|(name, _)| Series { name: name.to_owned(), points: Vec::new() });
        let sizes = (0..SIZES).map(|i| Bytes(SMALLEST.0 << i)).filter(|size| size.0 >= sector);
        for (i, transfer) in sizes.clone().enumerate() {
            let bytes = Bytes(stretch.min(transfer.0 * TRANSFERS_MOST));
            let area = UnitRange::new(self.region.start, bytes.units_floor());
            for (j, (_, action)) in actions.into_iter().enumerate() {
                let share = 1.0 / f64::from(SIZES * 2);
                self.phase((2 * i + j) as f64 * share, share);
                let done = self.run_one(Stream::once(action, area, transfer, DEPTH)).await?;
                totals[j].add(&done);
                series[j].points.push(Point::new(transfer.0 as f64 / 1024.0, done.mb_per_s()));
            }
        }
        let measured = series.iter().zip(&totals).map(|(line, total)| {
            Measured::of(line.name.clone(), &total.tally, total.elapsed)
                .spread(line.points.iter().map(|p| p.y))
        });
        let mut found = Found { measured: measured.collect(), ..Found::default() };
        if sector > SMALLEST.0 {
            found.notes.push(format!("the smallest transfer of this device is {}", Bytes(sector)));
        }
        found.plots.push(Plot {
            title: "Throughput by transfer size".to_owned(),
            kind: PlotKind::Lines,
            x: Axis::log("transfer_kib", "transfer size", "KiB"),
            y: Axis::linear("throughput_mb_per_s", "throughput", "MB/s"),
            series: series.to_vec(),
        });
        Ok(found)
    }
}
