use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass};
use trimwise::units::{Lpn, UnitRange};

use super::{Aftermath, Ends, LARGE_UNITS, Probe, Samples, Trims, closed, ns, spacing};

const TRIMS: [u64; 6] = [1, 16, 256, 2048, 8191, 32_768];
const TRIMS_EACH: usize = 6;
const TRIM_DEPTH: usize = 8;

impl<D: BlockDevice> Probe<'_, D> {
    pub(super) async fn trims(&mut self, found: &mut Samples) -> Result<(), BlockError> {
        let most = self.device.facts().trim.map_or(0, |trim| trim.max.units_floor());
        let most = most.min(self.plan.region.units / 4).min(TRIMS[TRIMS.len() - 1]);
        let begun = self.device.now();
        let limit = self.share(0.12);
        let mut largest = 0;
        for units in TRIMS.into_iter().map(|units| units.min(most)) {
            if units <= largest {
                break;
            }
            largest = units;
            let [mut mapped, mut unmapped] = [Vec::new(), Vec::new()];
            for i in 0..TRIMS_EACH {
                if i >= 3 && self.device.now().since(begun) > limit {
                    break;
                }
                let place = self.place(units);
                self.put(place).await?;
                for latencies in [&mut mapped, &mut unmapped] {
                    latencies.push(ns(self.device.perform(Operation::Trim(vec![place])).await?));
                }
                self.put(place).await?;
            }
            found.trims.push(Trims { units, mapped: true, latencies_ns: mapped });
            found.trims.push(Trims { units, mapped: false, latencies_ns: unmapped });
        }
        if largest == 0 {
            return Ok(());
        }
        self.overlapping_trims(found).await?;
        for (units, mapped) in [(largest, true), (largest, false), (1, true)] {
            let mut reads_ns = Vec::new();
            for _ in 0..4 {
                let place = UnitRange::new(self.plan.region.start, units);
                self.put(place).await?;
                if !mapped {
                    self.device.perform(Operation::Trim(vec![place])).await?;
                }
                self.settle().await?;
                self.device.perform(Operation::Trim(vec![place])).await?;
                let (start, mut reads) = (self.device.now(), Vec::new());
                for _ in 0..48 {
                    // Read elsewhere: reads of trimmed units do not reach the flash.
                    let mut at = self.place(1);
                    at.start.0 = at.start.0.max(place.end().0).min(self.plan.region.end().0 - 1);
                    let latency = ns(self.device.perform(Operation::read(at)).await?);
                    reads.push((ns(self.device.now().since(start)), latency));
                }
                reads_ns.push(reads);
                self.put(place).await?;
            }
            found.aftermath.push(Aftermath { units, mapped, reads_ns });
        }
        Ok(())
    }

    /// Measures TRIMs of written units, several at a time, and then reads during TRIMs.
    async fn overlapping_trims(&mut self, found: &mut Samples) -> Result<(), BlockError> {
        let region = self.plan.region;
        let count = (region.units / 4).min(64) as usize;
        for _ in 0..4 {
            let ends = closed(self.device, TRIM_DEPTH, count, Some(self.share(0.01)), &mut |i| {
                Operation::Trim(vec![UnitRange::new(Lpn(region.start.0 + 2 * i as u64), 1)])
            })
            .await?;
            found.trim_spacing_ns.extend(spacing(&ends, TRIM_DEPTH));
            self.put(UnitRange::new(region.start, 2 * count as u64)).await?;
        }
        let units = 256.min(region.units / 8);
        let reads = closed(self.device, 2, 256, Some(self.share(0.02)), &mut |i| {
            if i % 2 == 0 {
                let at = (i as u64 / 2 * units) % (region.units / 4).max(1) / units * units;
                return Operation::Trim(vec![UnitRange::new(Lpn(region.start.0 + at), units)]);
            }
            let at = region.units / 2 + (i as u64 * 7919) % (region.units / 2);
            Operation::read(UnitRange::new(Lpn(region.start.0 + at), 1))
        })
        .await?;
        let reads = reads.iter().filter(|(_, _, number)| number % 2 == 1);
        found.reads_beside_trims_ns = reads.map(|(from, to, _)| ns(to.since(*from))).collect();
        self.put(UnitRange::new(region.start, region.units / 4)).await
    }

    /// Writes a range, and waits until it is in its final place.
    async fn put(&mut self, range: UnitRange) -> Result<(), BlockError> {
        for piece in range.pieces(LARGE_UNITS) {
            let write = self.write(piece);
            self.device.perform(write).await?;
        }
        self.flush().await?;
        Ok(())
    }

    pub(super) async fn writes_and_trims(&mut self) -> Result<Ends, BlockError> {
        let region = self.plan.region;
        let mut version = self.version;
        let places = (region.units / 2 / 16).max(1);
        let ends = closed(self.device, 1, 2048, Some(self.share(0.05)), &mut |i| {
            let range = |i: usize| UnitRange::new(Lpn(region.start.0 + i as u64 % places * 16), 16);
            if i % 2 == 1 {
                return Operation::Trim(vec![range(i + 16)]);
            }
            version = version.wrapping_add(1);
            Operation::write(range(i), Content::new(ContentClass::Incompressible, version))
        })
        .await;
        self.version = version;
        ends
    }
}
