use super::{CAPACITY, FILE_SYSTEMS, OfRate, Row, Trimming, bound};
use crate::experiment::claims::Figures;

/// Returns the figures of each file system that ran under the daemon.
pub fn figures(rows: &[Row]) -> Figures {
    let mut figures = Figures::default();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    figures.set("bound", [mib(bound(CAPACITY.0).0)]);
    for fs in FILE_SYSTEMS {
        let of =
            |trimming| rows.iter().find(|row| row.case.file_system == fs && row.case.trimming == trimming);
        let Some(daemon) = of(Trimming::Daemon) else { continue };
        let compared = Slower::of(&daemon.rates).unwrap_or_default();
        figures.set(format!("p99.{fs}"), [worst(&compared)]);
        figures.set(format!("p99.reads.{fs}"), Slower::of(&daemon.read_rates).map(|reads| worst(&reads)));
        for of_rate in &compared {
            let hours = if of_rate.busy { "busy" } else { "other" };
            figures.set(format!("p99.{hours}.{fs}"), [of_rate.ratio]);
            figures.set(format!("writes.{hours}.{fs}"), [of_rate.accesses as f64]);
            figures.push(format!("p99.never.{fs}"), of_rate.is_over_never.then_some(of_rate.ratio));
        }
        figures.set(format!("wa.{fs}"), [daemon.write_amplification]);
        figures.set(format!("wa.discard.{fs}"), of(Trimming::Discard).map(|row| row.write_amplification));
        figures.set(format!("untrimmed.{fs}"), [daemon.untrimmed_max_bytes.map_or(f64::NAN, mib)]);
        figures.set(format!("after.{fs}"), daemon.under_bound_after_ns.map(|ns| ns as f64 / 60e9));
        figures.set(format!("discarded.{fs}"), [mib(daemon.discards.bytes)]);
        figures.set(format!("freed.{fs}"), [mib(daemon.freed_bytes)]);
        if let Some(fstrim) = of(Trimming::FstrimDaily) {
            let p99_ms = |row: &Row| row.write_trimming.map(|latency| latency.p99_ns as f64 / 1e6);
            let longest_ms = |row: &Row| row.write_trimming.map(|latency| latency.max_ns as f64 / 1e6);
            figures.set(format!("p99.fstrim.{fs}"), Slower::of(&fstrim.rates).map(|of_run| worst(&of_run)));
            figures.set(format!("longest-ms.{fs}"), longest_ms(daemon));
            figures.set(format!("longest-ms.fstrim.{fs}"), longest_ms(fstrim));
            figures.set(format!("p99-ms.{fs}"), p99_ms(daemon));
            figures.set(format!("p99-ms.fstrim.{fs}"), p99_ms(fstrim));
            figures.set(format!("wa.fstrim.{fs}"), [fstrim.write_amplification]);
            figures.set(format!("discarded.fstrim.{fs}"), [mib(fstrim.discards.bytes)]);
        }
    }
    figures
}

/// With fewer accesses, the p99 is one of the ten slowest, which is chance.
const ACCESSES_MIN: u64 = 1_000;

/// Slowdown of accesses during trimming, in the hours of one rate of accesses.
struct Slower {
    busy: bool,
    accesses: u64,
    /// Ratio to the p99 of untouched hours of that rate; without such hours, to that of the run that never trims.
    ratio: f64,
    is_over_never: bool,
}

impl Slower {
    /// Returns the slowdown for each rate with accesses during trimming; `None` if there is nothing to compare with.
    fn of(rates: &[OfRate]) -> Option<Vec<Self>> {
        let touched = rates.iter().filter_map(|of| Some((of, of.trimming?)));
        let slower = touched.map(|(of, trimming)| {
            let calm = of.untouched.or(of.never)?;
            let ratio = trimming.p99_ns as f64 / calm.p99_ns as f64;
            let accesses = trimming.count;
            Some(Self { busy: of.busy, accesses, ratio, is_over_never: of.untouched.is_none() })
        });
        slower.collect()
    }
}

fn worst(of_run: &[Slower]) -> f64 {
    of_run
        .iter()
        .filter(|of| of.accesses >= ACCESSES_MIN)
        .map(|of| of.ratio)
        .max_by(f64::total_cmp)
        .unwrap_or(f64::NAN)
}
