//! Erase, TRIM, and the duration of TRIM.

use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::units::{Bytes, SimDuration, UNIT_BYTES, UnitRange};

use super::load::{Action, Limit, Order, Stream};
use super::result::TrimTime;
use super::share::Part;
use super::streams::INTERVAL;
use super::{Bench, Findings, Found, Measured};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// The largest range whose latency is measured; each range is four times the previous one.
const RANGE_MOST: Bytes = Bytes::gib(1);
/// Number of TRIMs for sizes up to [`SMALL`], and for larger ones.
const TRIMS: (u64, u64) = (8, 3);
const SMALL: Bytes = Bytes::mib(16);
/// Queue depth of the random writes during a TRIM under load.
const LOAD_DEPTH: u32 = 8;
const BETWEEN: u32 = 64;

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn erase(&mut self) -> Result<Found, BlockError> {
        let start = self.device.now();
        self.device.erase().await?;
        self.did.whole_device_erases += 1;
        let bytes = Bytes::from_units(self.device.size_units()).0;
        let measured = vec![Measured::operation("erase", bytes, self.device.now().since(start))];
        Ok(Found { measured, ..Found::default() })
    }

    pub(super) async fn trim_part(&mut self, part: Part) -> Result<Found, BlockError> {
        let range = part.of(self.region);
        let took = self.trim(range).await?;
        let measured = vec![Measured::operation("TRIM", Bytes::from_units(range.units).0, took)];
        Ok(Found { measured, ..Found::default() })
    }

    /// Sends one TRIM with no other operation in flight.
    pub(super) async fn trim(&mut self, range: UnitRange) -> Result<SimDuration, BlockError> {
        let took = self.device.perform(Operation::Trim(vec![range])).await?;
        self.did.bytes_trimmed += Bytes::from_units(range.units).0;
        Ok(took)
    }

    /// Trims freshly written ranges in the first half of the region; the concurrent load is random writes to the second
    /// half.
    pub(super) async fn trim_latency(&mut self) -> Result<Found, BlockError> {
        let half = self.region.units / 2;
        let trimmed = UnitRange::new(self.region.start, half);
        let others = UnitRange::new(self.region.start.offset(half), half);
        let most = RANGE_MOST.units_floor().min(self.region.units / 8);
        let sizes: Vec<u64> = (0..32).map(|i| 1 << (2 * i)).take_while(|&units| units <= most).collect();
        let mut times = Vec::new();
        for (i, &units) in sizes.iter().enumerate() {
            for loaded in [false, true] {
                let share = 0.5 / sizes.len() as f64;
                self.phase((2 * i + usize::from(loaded)) as f64 * share, share);
                let wanted = if Bytes::from_units(units) <= SMALL { TRIMS.0 } else { TRIMS.1 };
                let count = wanted.min(trimmed.units / units);
                let area = UnitRange::new(trimmed.start, count * units);
                self.write_all(area).await?;
                let transfer = Bytes::from_units(units);
                let pace = if loaded { BETWEEN } else { 0 };
                let mut streams = vec![Stream { pace, ..Stream::once(Action::Trim, area, transfer, 1) }];
                if loaded {
                    streams.push(Stream {
                        action: Action::Write,
                        order: Order::Random,
                        area: others,
                        transfer: Bytes(UNIT_BYTES),
                        depth: LOAD_DEPTH,
                        pace: 0,
                        limit: Limit::NONE,
                    });
                }
                let done = self.run(&streams, INTERVAL).await?;
                let latency = done.first().and_then(|d| d.trims.latency());
                times.extend(latency.map(|latency| TrimTime { range_bytes: transfer.0, loaded, latency }));
            }
        }
        let line = |name: &str, loaded: bool| Series {
            name: name.to_owned(),
            points: times
                .iter()
                .filter(|t| t.loaded == loaded)
                .map(|t| Point {
                    // Figures have three digits; closer values count as equal.
                    range: (t.latency.max_ns > t.latency.p50_ns + t.latency.p50_ns / 500)
                        .then(|| (t.latency.p50_ns as f64 / 1e6, t.latency.max_ns as f64 / 1e6)),
                    ..Point::new(t.range_bytes as f64 / 1024.0, t.latency.p50_ns as f64 / 1e6)
                })
                .collect(),
        };
        let plot = Plot {
            title: "TRIM latency by the size of the range, median and slowest".to_owned(),
            kind: PlotKind::Lines,
            x: Axis::log("range_kib", "range", "KiB"),
            y: Axis::log("latency_ms", "latency", "ms"),
            series: vec![line("idle", false), line("during random writes at QD 8", true)],
        };
        Ok(Found { plots: vec![plot], findings: Findings::TrimLatency(times), ..Found::default() })
    }
}
