//! Preconditioning and steady state, as defined by the SNIA's Performance Test Specification.
//!
//! Source: SNIA, *Solid State Storage Performance Test Specification* 2.0. First the region is written twice,
//! sequentially, 128 KiB at a time (workload-independent preconditioning, 2x the capacity). Then random writes of 4 KiB
//! continue in rounds of a minute. A window of five rounds is steady if the maximum and the minimum differ by at most
//! 20 % of the mean, and if the fitted line rises or falls by at most 10 % of the mean. After 25 rounds the search
//! ends.
//!
//! The decision uses integers, since it determines how long a simulation goes on.

use trimwise::block::{BlockDevice, BlockError};
use trimwise::ssd::SsdStats;
use trimwise::units::{Bytes, SimDuration};

use super::load::{Action, Done, Stream, Total, per_second};
use super::result::Steady;
use super::spec::{DEPTH, Seconds};
use super::{Bench, Findings, Found, Measured};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

const ROUND: SimDuration = SimDuration::from_secs(60);
const WINDOW: usize = 5;
const ROUNDS_MOST: usize = 25;
/// Number of times that the region is written for preconditioning.
const PRECONDITIONING: u32 = 2;
const LARGE: Bytes = Bytes::kib(128);

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn steady(&mut self, round: Option<Seconds>) -> Result<Found, BlockError> {
        // Five rounds of a model must write all of a large region once, however long that takes.
        let limit = self.limit(round, ROUND, Bytes::from_units((self.region.units / 4).max(1)));
        for i in 0..PRECONDITIONING {
            self.phase(f64::from(i) * 0.1, 0.1);
            self.run_one(Stream::once(Action::Write, self.region, LARGE, DEPTH)).await?;
        }
        // Transfers in a thousand seconds, so that slow devices have enough digits.
        let mut rounds: Vec<u64> = Vec::new();
        let mut amplifications: Vec<Option<f64>> = Vec::new();
        // The last rounds, each with a model's counters before it.
        let mut window: Vec<(Done, Option<SsdStats>)> = Vec::new();
        let mut reached = false;
        while !reached && rounds.len() < ROUNDS_MOST {
            let share = 0.8 / ROUNDS_MOST as f64;
            self.phase(0.2 + rounds.len() as f64 * share, share);
            let before = self.stats();
            let done = self.random_units(Action::Write, DEPTH, limit).await?;
            let rate = u128::from(done.operations()) * 1_000_000_000_000 / u128::from(done.elapsed.0.max(1));
            rounds.push(u64::try_from(rate).unwrap_or(u64::MAX));
            if window.len() == WINDOW {
                window.remove(0);
            }
            amplifications.push(self.amplification_since(before));
            window.push((done, before));
            reached = rounds.last_chunk().is_some_and(is_steady);
        }
        let mut total = Total::default();
        window.iter().for_each(|(done, _)| total.add(done));
        let before = window.first().and_then(|(_, before)| *before);
        let (excursion_percent, slope_percent) = rounds.last_chunk().map_or((0.0, 0.0), deviations);
        let round_iops: Vec<f64> = rounds.iter().map(|&rate| rate as f64 / 1e3).collect();
        let points =
            round_iops.iter().enumerate().map(|(i, &iops)| Point::new((i + 1) as f64, iops)).collect();
        let findings = Findings::Steady(Steady {
            reached,
            rounds: rounds.len() as u32,
            iops: per_second(total.tally.operations as f64, total.elapsed),
            round_iops,
            round_write_amplification: amplifications.into_iter().collect(),
            excursion_percent,
            slope_percent,
        });
        let plot = Plot {
            title: "Random writes by round".to_owned(),
            kind: PlotKind::Lines,
            x: Axis::linear("round", "round", ""),
            y: Axis::linear("iops", "4 KiB random writes", "IOPS"),
            series: vec![Series { name: "QD 32".to_owned(), points }],
        };
        let measured = vec![Measured {
            write_amplification: self.amplification_since(before),
            ..Measured::of("last rounds", &total.tally, total.elapsed)
        }];
        Ok(Found { measured, findings, plots: vec![plot], ..Found::default() })
    }
}

/// Returns maximum less minimum, the sum, and ten times the slope of the fitted line. The line's rise over the window
/// is four slopes.
fn moments(window: &[u64; WINDOW]) -> (u128, u128, u128) {
    let (most, least) = window.iter().fold((0, u64::MAX), |(m, l), &y| (m.max(y), l.min(y)));
    let sum = window.iter().map(|&y| u128::from(y)).sum();
    // Rounds are one apart, so the slope is the sum of (i - 2) y divided by 10, the sum of (i - 2) squared.
    let [a, b, _, d, e] = window.map(u128::from);
    (u128::from(most - least), sum, (2 * e + d).abs_diff(2 * a + b))
}

fn is_steady(window: &[u64; WINDOW]) -> bool {
    let (excursion, sum, weighted) = moments(window);
    // The excursion is at most a fifth of the mean, which is a fifth of the sum; the rise, 4/10 of the weighted sum, is
    // at most a tenth of the mean.
    sum > 0 && excursion * 25 <= sum && weighted * 20 <= sum
}

/// Returns the excursion and the rise in percent of the mean, for display.
fn deviations(window: &[u64; WINDOW]) -> (f64, f64) {
    let (excursion, sum, weighted) = moments(window);
    let mean = (sum as f64 / WINDOW as f64).max(f64::MIN_POSITIVE);
    (excursion as f64 / mean * 100.0, weighted as f64 * 0.4 / mean * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_conditions_hold_at_their_limit_and_not_beyond() {
        // A window with mean 1000: a spread of 200 is a fifth.
        assert!(is_steady(&[900, 1100, 1000, 1100, 900]));
        assert!(!is_steady(&[899, 1100, 1001, 1100, 900]));
        // A straight line that rises by 100 of 1000 over the window.
        assert!(is_steady(&[950, 975, 1000, 1025, 1050]));
        assert!(!is_steady(&[949, 975, 1000, 1025, 1051]));
        assert!(!is_steady(&[1051, 1025, 1000, 975, 949]), "falling too");
        assert!(!is_steady(&[0; 5]), "a device that does nothing is not steady");
        let (excursion, slope) = deviations(&[950, 975, 1000, 1025, 1050]);
        assert!((excursion - 10.0).abs() < 1e-9 && (slope - 10.0).abs() < 1e-9, "{excursion} {slope}");
    }
}
