//! Throughput over time after a TRIM: some drives are slow at first, while they carry it out.
//!
//! Each run starts from the same state: the whole region is trimmed, and the device rests. Then the region is written
//! once, or not at all, since the data written between two TRIMs matter too. Then the range is trimmed, and small
//! sequential writes into it follow at once, recorded in intervals of 100 ms.

use trimwise::block::{BlockDevice, BlockError};
use trimwise::units::{Bytes, Percent, SimDuration, UNIT_BYTES, UnitRange};

use super::load::{Action, Stream};
use super::result::Settled;
use super::spec::{DEPTH, Seconds};
use super::streams::{INTERVAL, throughput};
use super::{Bench, Findings, Found};

const RANGES: [Percent; 4] =
    [Percent::hundredths(1250), Percent::hundredths(2500), Percent::hundredths(5000), Percent::ALL];
const LOOK: SimDuration = SimDuration::from_secs(60);
/// Maximum amount that a model writes after a TRIM.
const MODEL_MOST: Bytes = Bytes::gib(16);
/// Rest before the TRIM, so that the device finishes its background work.
pub(super) const REST: SimDuration = SimDuration::from_secs(30);
/// Distance from the final level at which throughput counts as settled, in hundredths of it.
const NEAR_PERCENT: f64 = 10.0;

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn settling(
        &mut self,
        range: Option<Percent>,
        seconds: Option<Seconds>,
    ) -> Result<Found, BlockError> {
        let ranges = range.map_or(RANGES.to_vec(), |range| vec![range]);
        let limit = self.limit(seconds, LOOK, MODEL_MOST);
        let share = 1.0 / (2 * ranges.len()) as f64;
        let mut settled = Vec::new();
        let mut lines = Vec::new();
        for (i, percent) in ranges.into_iter().enumerate() {
            for writes_before in [false, true] {
                let at = (2 * i + usize::from(writes_before)) as f64 * share;
                self.phase(at, share * 0.5);
                let area = UnitRange::new(self.region.start, percent.of(self.region.units));
                if area.units == 0 {
                    continue; // the share of such a small region is empty
                }
                self.trim(self.region).await?;
                self.device.sleep(self.settings.scale.time(REST)).await;
                let before = match writes_before {
                    true => self.write_all(self.region).await?.bytes(),
                    false => Bytes(0),
                };
                self.phase(at + share * 0.5, share * 0.5);
                let trim = self.trim(area).await?;
                let stream = Stream::once(Action::Write, area, Bytes(UNIT_BYTES), DEPTH);
                let done = self.run_one(Stream { limit, ..stream }).await?;
                let rates = done.intervals.rates(done.elapsed);
                let level = level(&rates).unwrap_or_else(|| done.mb_per_s());
                settled.push(Settled {
                    range_percent: percent.value(),
                    written_before_bytes: before.0,
                    trim_ns: trim.as_nanos(),
                    settled_after_ns: settled_after(&rates, level, done.intervals.length),
                    first_mb_per_s: first_second(&rates).unwrap_or(level),
                    final_mb_per_s: level,
                });
                let name = if writes_before { "the region written before" } else { "nothing written before" };
                lines.push((format!("{percent} %, {name}"), rates));
            }
        }
        let title =
            format!("4 KiB sequential writes after a TRIM, in intervals of {} ms", INTERVAL.0 / 1_000_000);
        let plots = vec![throughput(&title, lines)];
        Ok(Found { plots, findings: Findings::Settling(settled), ..Found::default() })
    }
}

/// Mean over the first second, or over a shorter run. A second is longer than a write cache takes to fill.
fn first_second(rates: &[(f64, f64)]) -> Option<f64> {
    let first: Vec<f64> = rates.iter().take_while(|(at, _)| *at <= 1.0).map(|&(_, rate)| rate).collect();
    (!first.is_empty()).then(|| first.iter().sum::<f64>() / first.len() as f64)
}

/// Mean of the last quarter; `None` if there are fewer than four intervals.
fn level(rates: &[(f64, f64)]) -> Option<f64> {
    let quarter = rates.len() / 4;
    let last = &rates[rates.len() - quarter..];
    (quarter > 0).then(|| last.iter().map(|&(_, rate)| rate).sum::<f64>() / quarter as f64)
}

/// Returns the first time from which each interval is near the final level; `None` if that is in the last quarter,
/// whose mean is the level itself.
fn settled_after(rates: &[(f64, f64)], level: f64, interval: SimDuration) -> Option<u64> {
    let is_far = |&(_, rate): &(f64, f64)| (rate - level).abs() > level * NEAR_PERCENT / 100.0;
    let intervals = rates.iter().rposition(is_far).map_or(0, |last| last + 1);
    let settled = intervals <= rates.len() - rates.len() / 4;
    settled.then(|| interval.as_nanos() * intervals as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_is_where_the_last_interval_far_from_the_final_level_ends() {
        let of = |rates: &[f64]| {
            let rates: Vec<(f64, f64)> =
                rates.iter().enumerate().map(|(i, &rate)| (i as f64 * 0.1, rate)).collect();
            let level = level(&rates).unwrap();
            (level, settled_after(&rates, level, SimDuration::from_millis(100)))
        };
        assert_eq!(of(&[100.0; 8]), (100.0, Some(0)));
        assert_eq!(of(&[40.0, 60.0, 91.0, 100.0, 100.0, 100.0, 100.0, 100.0]), (100.0, Some(200_000_000)));
        assert_eq!(of(&[100.0, 111.0, 109.0, 100.0, 100.0, 100.0, 100.0, 100.0]), (100.0, Some(200_000_000)));
        assert_eq!(of(&[100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 50.0, 150.0]), (100.0, None));
        assert_eq!(level(&[(0.1, 5.0); 3]), None);
        assert_eq!(first_second(&[(0.5, 300.0), (1.0, 100.0), (1.5, 900.0)]), Some(200.0));
        assert_eq!(settled_after(&[], 5.0, SimDuration::from_millis(100)), Some(0));
    }
}
