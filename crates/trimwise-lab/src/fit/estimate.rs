//! From measurements to numbers: closed forms of medians, and their intervals by bootstrap.
//!
//! A command alone on the device passes controller, flash and link one after the other. So the times of single commands
//! are sums, and their differences give the parts. With *c* the time of the controller, *o* the overhead of the link,
//! *u* the link's time for a unit:
//!
//! | measured | is |
//! |---|---|
//! | write of n units into an empty cache | c(write) + o + n u |
//! | spacing of many such writes at once | the longer of c(write) and o + n u |
//! | read of a unit that is in the cache | c(read) + o + u |
//! | read of n units of one page | c(read) + tR + n b + o + n u, b being the bus's time for a unit |
//! | flush with nothing to do | o + t(flush) |
//! | flush after a write of a unit | tPROG + b times the units of a stripe + t(flush) |
//! | TRIM of n units, m of them mapped | o + a + n p + m q |

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::compare::statistics::median;

use super::probe::{BURST_UNITS, LOAD_COUNT, Samples, Sized};

const RESAMPLED: usize = 400;
/// A difference counts only if it is at least this share of the values it is the difference of.
const NOTICED: f64 = 0.01;

/// The numbers, each `None` where the measurements do not determine it. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    /// Time per unit in the load with the highest throughput.
    pub fastest_unit: Option<f64>,
    /// Link: time per unit.
    pub link_unit: Option<f64>,
    /// Link: time per command.
    pub link_overhead: Option<f64>,
    /// Controller: time per write.
    pub write_overhead: Option<f64>,
    /// Controller: time per read.
    pub read_overhead: Option<f64>,
    /// tR.
    pub read: Option<f64>,
    /// Bus: time per unit.
    pub bus_unit: Option<f64>,
    /// Time of an idle flush, less the link's.
    pub flush: Option<f64>,
    /// Extra time of a flush after a write, plus the idle flush's own time: tPROG and the transfer before it.
    pub program: Option<f64>,
    /// Write rate once the cache is full, in bytes per second.
    pub sustained: Option<f64>,
    /// Bytes acknowledged ahead of that rate.
    pub ahead: Option<f64>,
    /// Both values from the third quarter of the write alone, and from the fourth.
    pub tails: Option<[(f64, f64); 2]>,
    /// Sequential reads at a depth, in bytes per second.
    pub sequential_read: Option<f64>,
    /// Random reads of each load: time per read.
    pub random_read: [Option<f64>; LOAD_COUNT],
    /// Units that a die programs at once; a read takes as many from one die.
    pub stripe: Option<f64>,
    /// Latency of sequential reads, one at a time, as a share of that of random reads of the same size.
    pub stream: Option<f64>,
    /// TRIM: time per command, per unit, and extra per unit that held data, without the link's overhead.
    pub trim: Option<f64>,
    pub trim_unit: Option<f64>,
    pub trim_mapped: Option<f64>,
    /// TRIM: the part of a command in which the device is free for others.
    pub trim_latency: Option<f64>,
    /// Slowdown of reads after a large TRIM, in percent.
    pub slowdown: Option<f64>,
    /// Duration of that slowdown after a large TRIM of data, after one of nothing, and after one of a single unit.
    pub backlog: [Option<f64>; 3],
    /// Duration of a read during TRIMs of 1 MiB, relative to a read alone.
    pub beside_trims: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Samples {
    pub(super) fn numbers(&self) -> Numbers {
        let mut n = Numbers::default();
        let read = |units: u64| of_size(&self.reads, units);
        n.fastest_unit = self.loads().map(|(took, units)| took / units).min_by(f64::total_cmp);
        // The link takes no longer for a unit than any load took: single writes on a busy host would suggest that.
        let write_line = match (line(&self.writes), n.fastest_unit) {
            (Some((slope, fixed)), Some(least)) if slope > least => Some((least, fixed + slope - least)),
            (line, _) => line,
        };
        n.link_unit = write_line.map(|(slope, _)| slope).filter(|&slope| slope > 0.0);
        let [burst, larger] = BURST_UNITS.map(|units| {
            self.bursts.iter().find(|burst| burst.units == units).and_then(|b| median(&b.spacing_ns))
        });
        if let (Some(unit), Some((_, fixed)), Some(burst), Some(larger)) =
            (n.link_unit, write_line, burst, larger)
        {
            // One of the two parts of `sum` is the spacing. The spacing of larger writes tells which.
            let sum = fixed + unit;
            if burst < 0.45 * sum {
                // Several writes share most of a single write's time: the drive does several at once.
                n.write_overhead = Some(burst);
            } else {
                let burst = burst.clamp(sum / 2.0, sum - unit.min(sum / 2.0));
                let more = (BURST_UNITS[1] - BURST_UNITS[0]) as f64 * unit;
                let if_link = burst + more;
                let if_controller = burst.max(sum - burst + more);
                let is_link = (larger - if_link).abs() <= (larger - if_controller).abs();
                let controller = if is_link { sum - burst } else { burst };
                n.write_overhead = Some(controller.max(0.0));
                n.link_overhead = Some((fixed - controller).max(0.0));
            }
        }
        if let (Some(overhead), Some(unit)) = (n.link_overhead, n.link_unit) {
            // Nor does a command take longer than one took in any load.
            let shorter = self.loads().filter(|(took, units)| overhead + units * unit > 1.05 * took);
            let least = shorter.map(|(took, units)| (took - units * unit).max(0.0)).min_by(f64::total_cmp);
            n.link_overhead = Some(least.unwrap_or(overhead));
        }
        for (found, load) in n.random_read.iter_mut().zip(&self.random_reads) {
            *found = median(&load.spacing_ns);
        }
        // No part that all reads share can be longer than the time between reads.
        let fastest = n.random_read.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let hit = median(&self.hits_ns);
        if let (Some(hit), Some(o), Some(u)) = (hit, n.link_overhead, n.link_unit) {
            n.read_overhead = Some((hit - o - u).max(0.0).min(fastest));
        }
        let miss = read(1);
        if let (Some(one), Some(two), Some(unit)) = (miss, read(2), n.link_unit) {
            // A bus as fast as the link is visible; a much faster one is lost in the noise.
            n.bus_unit = Some(two - one - unit).filter(|&bus| bus > NOTICED * unit && bus < one);
        }
        if let (Some(miss), Some(c), Some(o), Some(u)) = (miss, n.read_overhead, n.link_overhead, n.link_unit)
        {
            n.read = Some(miss - c - o - u - n.bus_unit.unwrap_or(0.0)).filter(|&t| t > NOTICED * miss);
        }
        n.stripe = n.bus_unit.zip(n.link_unit).and_then(|(bus, unit)| self.stripe(bus + unit));
        let idle = median(&self.flushes_ns);
        n.flush = idle.map(|idle| (idle - n.link_overhead.unwrap_or(0.0)).max(0.0));
        if let (Some(after), Some(flush), Some(idle)) = (median(&self.flushes_after_ns), n.flush, idle) {
            n.program = Some(after - flush).filter(|_| after > 1.2 * idle);
        }
        let written = self.sustained();
        (n.sustained, n.ahead) = written.map(|[all, ..]| all).unzip();
        n.tails = written.map(|[_, tails @ ..]| tails);
        n.sequential_read = self
            .sequential_reads
            .first()
            .and_then(|load| Some((load.units * 4096) as f64 * 1e9 / median(&load.spacing_ns)?));
        n.stream = median(&self.stream_ns).zip(read(16)).map(|(stream, random)| stream / random);
        self.trim_numbers(&mut n, miss);
        n
    }

    /// Iterates over the loads with several transfers at a time: time per transfer, and its units.
    fn loads(&self) -> impl Iterator<Item = (f64, f64)> {
        let loads = self.random_reads.iter().chain(&self.sequential_reads).chain(&self.bursts);
        let loads = loads.filter_map(|load| Some((median(&load.spacing_ns)?, load.units as f64)));
        let units = self.sustained_units as f64;
        let writes = self.sustained().map(|[(rate, _), ..]| (units * 4096e9 / rate, units));
        loads.chain(writes).filter(|&(took, units)| took > 0.0 && units > 0.0)
    }

    /// Returns the units of the largest read from a single die, which come one after the other: the next size is faster
    /// than that.
    fn stripe(&self, unit: f64) -> Option<f64> {
        let one = of_size(&self.reads, 1)?;
        let from_one = |sized: &&Sized| {
            let alone = (sized.units - 1) as f64 * unit;
            median(&sized.latencies_ns)
                .is_some_and(|took| (took - one - alone).abs() < 0.03 * alone.max(unit))
        };
        let units = self.reads.iter().take_while(from_one).map(|sized| sized.units).last()?;
        (units > 1 && self.reads.last()?.units > units).then_some(units as f64)
    }

    fn trim_numbers(&self, n: &mut Numbers, miss: Option<f64>) {
        let Some([fixed, unit, mapped]) = self.trim_plane() else { return };
        let o = n.link_overhead.unwrap_or(0.0);
        let alone = (fixed - o).max(0.0);
        n.trim_unit = Some(unit);
        n.trim_mapped = Some(mapped);
        // Queued TRIMs of a unit follow each other at the time for which each occupies the device.
        let occupied = median(&self.trim_spacing_ns).map(|spacing| spacing - unit - mapped);
        n.trim_latency = occupied
            .filter(|_| alone > 0.0)
            .map(|occupied| (alone - occupied.max(0.0)).max(0.0))
            .filter(|&latency| latency > 0.05 * alone && latency > o);
        n.trim = Some(alone - n.trim_latency.unwrap_or(0.0));
        let Some(alone) = miss else { return };
        n.beside_trims = median(&self.reads_beside_trims_ns).map(|beside| beside / alone);
        let mut slow = Vec::new();
        // Slower than almost all undisturbed reads.
        let mut quiet = self.reads.first().map_or(Vec::new(), |reads| reads.latencies_ns.clone());
        quiet.sort_by(f64::total_cmp);
        let usual = quiet.get(quiet.len() * 19 / 20).copied().unwrap_or(alone).max(alone);
        for (after, backlog) in self.aftermath.iter().zip(&mut n.backlog) {
            let mut spans = Vec::new();
            for reads in &after.reads_ns {
                let slowed: Vec<_> =
                    reads.iter().take_while(|(_, latency)| *latency > 1.04 * usual).collect();
                if let (true, Some((end, _))) =
                    (slowed.len() >= 3 && slowed.len() < reads.len(), slowed.last())
                {
                    slow.extend(slowed.iter().map(|(_, latency)| (latency / alone - 1.0) * 100.0));
                    spans.push(*end);
                }
            }
            if spans.len() * 2 > after.reads_ns.len() {
                *backlog = median(&spans);
            }
        }
        n.slowdown = median(&slow).filter(|_| n.backlog.iter().any(Option::is_some));
    }

    /// Returns the write rate of the second half, and how much more had been acknowledged than that rate explains; then
    /// both for each of its two halves alone.
    fn sustained(&self) -> Option<[(f64, f64); 3]> {
        let ends = &self.sustained_ns;
        let bytes = (self.sustained_units * 4096) as f64;
        let (first, half, last) = (*ends.first()?, ends.len() / 2, ends.len() - 1);
        let of = |from: usize, to: usize| {
            let rate = bytes * (to - from) as f64 / (ends[to] - ends[from]).max(1.0);
            (rate * 1e9, bytes * (from + 1) as f64 - rate * ends[from])
        };
        let middle = (half + last) / 2;
        (ends.len() >= 64 && ends[last] > first).then(|| [of(half, last), of(half, middle), of(middle, last)])
    }

    /// Returns the fixed cost, the cost per unit, and the extra cost per unit that held data: the plane through the
    /// medians with the smallest relative errors.
    fn trim_plane(&self) -> Option<[f64; 3]> {
        // A file system charges for a hole where there was data, however small. Then only such TRIMs are used.
        let took = |units: u64, mapped: bool| {
            let of = self.trims.iter().find(|t| t.units == units && t.mapped == mapped)?;
            median(&of.latencies_ns)
        };
        let extra = |units: u64| Some(took(units, true)? - took(units, false)?);
        let only_mapped = took(1, true)? > 1.5 * took(1, false)?
            && extra(1).zip(extra(16)).is_some_and(|(one, sixteen)| sixteen < 4.0 * one);
        let rows: Vec<([f64; 3], f64)> = self
            .trims
            .iter()
            .filter(|t| t.mapped || !only_mapped)
            .filter_map(|t| {
                let units = t.units as f64;
                let took = median(&t.latencies_ns)?.max(1.0);
                let of_data = if t.mapped && !only_mapped { units } else { 0.0 };
                Some(([1.0, units, of_data], took))
            })
            .collect();
        let largest = self.trims.iter().map(|t| t.units).max()? as f64;
        let mut used = if only_mapped { vec![0, 1] } else { vec![0, 1, 2] };
        loop {
            let plane = least_squares(&rows, &used)?;
            // Leave out a cost that is zero or negative at the largest TRIM.
            let whole = plane[0] + largest * (plane[1] + plane[2]);
            let least = used.iter().copied().rfind(|&i| i > 0 && plane[i] * largest < NOTICED * whole);
            let Some(least) = least else { return Some(plane) };
            used.retain(|&i| i != least);
        }
    }

    /// Resamples the measurements with replacement.
    fn resampled(&self, rng: &mut Xoshiro256PlusPlus) -> Self {
        let mut drawn = self.clone();
        let mut draw = |values: &mut Vec<f64>| {
            let old = values.clone();
            let n = old.len() as u128;
            values.iter_mut().for_each(|v| *v = old[((u128::from(rng.next_u64()) * n) >> 64) as usize]);
        };
        for sized in drawn.reads.iter_mut().chain(&mut drawn.writes) {
            draw(&mut sized.latencies_ns);
        }
        for load in drawn.bursts.iter_mut().chain(&mut drawn.random_reads).chain(&mut drawn.sequential_reads)
        {
            draw(&mut load.spacing_ns);
        }
        drawn.trims.iter_mut().for_each(|trims| draw(&mut trims.latencies_ns));
        for values in [
            &mut drawn.hits_ns,
            &mut drawn.flushes_ns,
            &mut drawn.flushes_after_ns,
            &mut drawn.stream_ns,
            &mut drawn.trim_spacing_ns,
            &mut drawn.reads_beside_trims_ns,
        ] {
            draw(values);
        }
        // Resample the times between the ends of a long write in pieces as long as a cache makes them depend on each
        // other.
        let mut gaps: Vec<f64> = drawn.sustained_ns.windows(2).map(|w| w[1] - w[0]).collect();
        let half = gaps.len() / 2;
        let pieces: Vec<Vec<f64>> = gaps[half..].chunks(8).map(<[f64]>::to_vec).collect();
        let mut at = half;
        while at < gaps.len() && !pieces.is_empty() {
            let piece = &pieces[((u128::from(rng.next_u64()) * pieces.len() as u128) >> 64) as usize];
            for gap in piece.iter().take(gaps.len() - at).copied().collect::<Vec<_>>() {
                gaps[at] = gap;
                at += 1;
            }
        }
        for (i, gap) in gaps.iter().enumerate() {
            drawn.sustained_ns[i + 1] = drawn.sustained_ns[i] + gap;
        }
        for after in &mut drawn.aftermath {
            let old = after.reads_ns.clone();
            let n = old.len() as u128;
            let pick = |rng: &mut Xoshiro256PlusPlus| ((u128::from(rng.next_u64()) * n) >> 64) as usize;
            after.reads_ns.iter_mut().for_each(|reads| reads.clone_from(&old[pick(rng)]));
        }
        drawn
    }

    /// Evaluates the closed forms for many resampled measurements, for [`estimate`].
    pub(super) fn bootstrap(&self, seed: u64) -> Vec<Numbers> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..RESAMPLED).map(|_| self.resampled(&mut rng).numbers()).collect()
    }
}

/// Returns a number and the middle 95 % of its resampled values, widened by `resolution` on both sides: no clock
/// resolves less than a nanosecond.
pub(super) fn estimate(
    value: Option<f64>,
    resampled: &[Numbers],
    of: impl Fn(&Numbers) -> Option<f64>,
    resolution: f64,
) -> Option<Estimate> {
    let value = value?;
    let mut all: Vec<f64> = resampled.iter().filter_map(of).collect();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get((share * (all.len().max(1) - 1) as f64).round() as usize).copied();
    let low = at(0.025).unwrap_or(value).min(value) - resolution;
    let high = at(0.975).unwrap_or(value).max(value) + resolution;
    Some(Estimate { value, low: low.max(0.0), high })
}

fn of_size(sizes: &[Sized], units: u64) -> Option<f64> {
    median(&sizes.iter().find(|sized| sized.units == units)?.latencies_ns)
}

/// Returns slope and intercept of median latency over units, with the smallest relative errors.
fn line(sizes: &[Sized]) -> Option<(f64, f64)> {
    let rows: Vec<([f64; 3], f64)> = sizes
        .iter()
        .filter_map(|sized| Some(([1.0, sized.units as f64, 0.0], median(&sized.latencies_ns)?.max(1.0))))
        .collect();
    (rows.len() >= 3).then_some(())?;
    let [fixed, slope, _] = least_squares(&rows, &[0, 1])?;
    Some((slope, fixed))
}

/// Returns the coefficients of the `used` columns that minimise the relative errors; 0 for the others. `None` if the
/// rows do not determine them.
fn least_squares(rows: &[([f64; 3], f64)], used: &[usize]) -> Option<[f64; 3]> {
    let n = used.len();
    let mut matrix = [[0.0; 4]; 3];
    for (columns, y) in rows {
        for (i, &a) in used.iter().enumerate() {
            for (j, &b) in used.iter().enumerate() {
                matrix[i][j] += columns[a] * columns[b] / (y * y);
            }
            matrix[i][3] += columns[a] / y;
        }
    }
    // Gauss-Jordan elimination, on columns scaled to one.
    let scale: Vec<f64> = (0..n).map(|i| matrix[i][i].sqrt()).collect();
    if scale.contains(&0.0) {
        return None;
    }
    for i in 0..n {
        for j in 0..n {
            matrix[i][j] /= scale[i] * scale[j];
        }
        matrix[i][3] /= scale[i];
    }
    for i in 0..n {
        let best = (i..n).max_by(|&a, &b| matrix[a][i].abs().total_cmp(&matrix[b][i].abs()))?;
        matrix.swap(i, best);
        if matrix[i][i].abs() < 1e-12 {
            return None;
        }
        let row = matrix[i];
        for (k, other) in matrix.iter_mut().enumerate().take(n) {
            if k != i {
                let factor = other[i] / row[i];
                (0..4).for_each(|j| other[j] -= factor * row[j]);
            }
        }
    }
    let mut found = [0.0; 3];
    for (i, &column) in used.iter().enumerate() {
        found[column] = matrix[i][3] / matrix[i][i] / scale[i];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::super::probe::Trims;
    use super::*;

    #[test]
    fn a_line_and_a_plane_are_found_again() {
        let sized = |units: u64| Sized { units, latencies_ns: vec![7_000.0 + 1_500.0 * units as f64; 3] };
        let (slope, fixed) = line(&[1, 2, 4, 64].map(sized)).unwrap();
        assert!((slope - 1_500.0).abs() < 1e-6 && (fixed - 7_000.0).abs() < 1e-6, "{slope} {fixed}");
        assert_eq!(line(&[1, 2].map(sized)), None, "two sizes show no line");

        let trim = |units: u64, mapped: bool, per_mapped: f64| {
            let each = 20.0 + if mapped { per_mapped } else { 0.0 };
            Trims { units, mapped, latencies_ns: vec![300_000.0 + units as f64 * each; 3] }
        };
        let of = |per_mapped: f64| Samples {
            trims: [1, 16, 256, 8_191]
                .into_iter()
                .flat_map(|units| [trim(units, true, per_mapped), trim(units, false, per_mapped)])
                .collect(),
            ..Samples::default()
        };
        let [a, p, q] = of(35.0).trim_plane().unwrap();
        assert!((a - 300_000.0).abs() < 1e-3 && (p - 20.0).abs() < 1e-6 && (q - 35.0).abs() < 1e-6);
        let [a, p, q] = of(0.0).trim_plane().unwrap();
        assert!((a - 300_000.0).abs() < 1e-3 && (p - 20.0).abs() < 1e-6 && q == 0.0, "nothing stays nothing");
    }

    #[test]
    fn what_the_rows_do_not_determine_is_not_made_up() {
        assert_eq!(least_squares(&[([1.0, 2.0, 0.0], 5.0)], &[0, 1]), None);
        assert_eq!(least_squares(&[], &[0]), None);
    }

    #[test]
    fn the_controller_and_the_link_are_told_apart_by_larger_writes() {
        let samples = |controller: f64, overhead: f64, unit: f64| {
            let single = |units: u64| Sized {
                units,
                latencies_ns: vec![controller + overhead + units as f64 * unit; 9],
            };
            let burst = |units: u64| super::super::probe::AtDepth {
                depth: 32,
                units,
                spacing_ns: vec![controller.max(overhead + units as f64 * unit); 9],
            };
            Samples {
                writes: [1, 2, 4, 8, 64].map(single).to_vec(),
                bursts: BURST_UNITS.map(burst).to_vec(),
                ..Samples::default()
            }
        };
        for (controller, overhead, unit) in
            [(20_000.0, 5_000.0, 15_000.0), (1_500.0, 500.0, 1_170.0), (3_000.0, 9_000.0, 700.0)]
        {
            let n = samples(controller, overhead, unit).numbers();
            let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1.0;
            assert!(close(n.write_overhead, controller) && close(n.link_overhead, overhead), "{n:?}");
        }
    }

    #[test]
    fn the_link_is_no_slower_than_any_load() {
        let load = |depth, units, took: f64| super::super::probe::AtDepth {
            depth,
            units,
            spacing_ns: vec![took; 3],
        };
        let single = |units: u64| Sized { units, latencies_ns: vec![90_000.0 + units as f64 * 60_000.0; 3] };
        let busy = Samples {
            writes: [1, 2, 4, 8, 64].map(single).to_vec(),
            bursts: BURST_UNITS.map(|units| load(32, units, 70_000.0 + units as f64 * 60_000.0)).to_vec(),
            random_reads: vec![load(4, 1, 30_000.0), load(32, 8, 104_000.0)],
            ..Samples::default()
        };
        let n = busy.numbers();
        assert_eq!(n.link_unit, Some(13_000.0), "315 MB/s, though single writes say 68 MB/s");
        assert!(n.link_overhead.unwrap() <= 17_000.0, "a read at depth 4 took 30 us: {n:?}");
    }

    #[test]
    fn an_interval_holds_the_middle_of_what_was_drawn() {
        let samples = Samples { flushes_ns: (1..=101).map(f64::from).collect(), ..Samples::default() };
        let drawn = samples.bootstrap(1);
        let found = estimate(samples.numbers().flush, &drawn, |n| n.flush, 0.0).unwrap();
        assert_eq!(found.value, 51.0);
        // The median of 101 values from 1 to 101 is known to about 2 x 101 / (2 sqrt 101) on either side.
        assert!((35.0..48.0).contains(&found.low) && (54.0..67.0).contains(&found.high), "{found:?}");
        assert_eq!(samples.bootstrap(1), drawn, "the same seed draws the same");
    }
}
