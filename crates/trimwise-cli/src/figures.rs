//! Numbers as tables and reports show them.

use trimwise::compare::days::DaysFigures;
use trimwise::compare::result::{Cell, DeviceFigures, Measure, Quantile, WorkloadFigures};
use trimwise::compare::statistics::{Comparison, Interval, Sample, median};
use trimwise::compare::summary::{DeviceSummary, LedgerRow, PolicySummary, Saved};
pub use trimwise::compare::verdict::{grouped, thousands};
use trimwise::policy::PolicyId;
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise::workload::latency::{LatencySummary, Operation};

/// Shown where there is no figure.
pub const NONE: &str = "-";

/// The minus sign, as wide as a plus.
pub const MINUS: &str = "\u{2212}";

/// A number with what it counts: `1 cut`, `1,000 cuts`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// About four significant digits, without an exponent.
pub fn significant(f: f64) -> String {
    let text = match f.abs() {
        a if !a.is_finite() => return NONE.to_string(),
        0.0 => return "0".to_string(),
        a if a >= 999.5 => thousands(f.round()),
        a if a >= 99.95 => format!("{f:.1}"),
        a if a >= 9.995 => format!("{f:.2}"),
        a if a >= 0.001 => format!("{f:.3}"),
        _ => format!("{f:.6}"),
    };
    text.replace('-', MINUS)
}

/// A relative change with its sign: `0.163` is `+16.3 %`.
pub fn change(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let text = match percent.abs() {
        a if !a.is_finite() => return NONE.to_string(),
        a if a >= 999.5 => format!("{} %", thousands(percent.abs())),
        a => format!("{a:.1} %"),
    };
    if text == "0.0 %" {
        text
    } else if percent < 0.0 {
        format!("{MINUS}{text}")
    } else {
        format!("+{text}")
    }
}

/// How far an interval reaches from its median, on the wider side: `± 1.2 %`; `None` for a single run.
fn plus_minus(median: f64, interval: Interval) -> Option<String> {
    if interval.confidence <= 0.0 {
        return None;
    }
    let reach = (interval.high - median).max(median - interval.low);
    Some(if median == 0.0 { "± 0 %".to_string() } else { format!("± {:.1} %", reach / median * 100.0) })
}

/// Formats the number of runs; if one stands for all, adds that it is exact.
pub fn runs(sample: &Sample) -> String {
    if sample.is_exact() { "1, exact".to_string() } else { sample.n().to_string() }
}

/// Formats a time in seconds with about four digits in a suitable unit.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        0.0 => return "0 s".to_string(),
        s if s >= 0.9995 => (seconds, "s"),
        s if s >= 0.000_999_5 => (seconds * 1e3, "ms"),
        _ => (seconds * 1e6, "\u{b5}s"),
    };
    format!("{} {unit}", significant(value))
}

/// The median of a duration, with its interval if there is one.
pub fn duration(sample: &Sample) -> String {
    let median = time(sample.median());
    match plus_minus(sample.median(), sample.interval()) {
        Some(reach) if !sample.is_exact() => format!("{median} {reach}"),
        _ => median,
    }
}

/// Formats the change in duration against the baseline; `~` if it is not significant.
pub fn difference(comparison: Option<&Comparison>) -> String {
    match comparison {
        None => String::new(),
        Some(c) if !c.significant => "~".to_string(),
        Some(c) => change(1.0 / c.ratio - 1.0),
    }
}

/// Formats how much longer it takes than the bound, which comes first in `comparison`. A distance that is not
/// significant is an estimate and comes after a `~`. Empty for the bound itself.
pub fn distance(p: &PolicySummary) -> String {
    match &p.versus_ideal {
        None if *p.policy == PolicyId::IDEAL => String::new(),
        None => NONE.to_string(),
        Some(c) if c.significant || c.p.is_none() => change(1.0 / c.ratio - 1.0),
        Some(c) => format!("~ {}", change(1.0 / c.ratio - 1.0)),
    }
}

/// Formats a saving with its sign; empty for the policy that savings are counted against.
fn saved(p: &PolicySummary, figure: impl Fn(Saved) -> f64, show: impl Fn(f64) -> String) -> String {
    match p.saved {
        _ if *p.policy == PolicyId::OFF => String::new(),
        None => NONE.to_string(),
        Some(s) => {
            let value = figure(s);
            let sign = if value < 0.0 { MINUS } else { "+" };
            if value == 0.0 { show(0.0) } else { format!("{sign}{}", show(value.abs())) }
        }
    }
}

/// The headings of a policy's ledger.
pub const LEDGER: [&str; 9] =
    ["policy", "freed", "trimmed", "reused", "dropped", "pending", "TRIM time", "GC saved", "time saved"];

/// Returns a policy's row of the ledger; `None` if it has none.
pub fn ledger(p: &PolicySummary) -> Option<[String; LEDGER.len()]> {
    let row = LedgerRow::of(p)?;
    Some([
        p.policy.to_string(),
        units_as_bytes(row.freed_units),
        units_as_bytes(row.issued_units),
        units_as_bytes(row.reused_units),
        units_as_bytes(row.dropped_units),
        units_as_bytes(row.pending_units + row.in_flight_units),
        percent(row.trim_busy_percent),
        saved(p, |s| s.gc_units, units_as_bytes),
        saved(p, |s| s.time_s, time),
    ])
}

/// The headings of what happened over days.
pub const DAYS: [&str; 7] = ["policy", "stale mean", "max", "at the end", "sweeps", "longest", "sent"];

/// Returns what happened over days under each policy; nothing of other runs.
pub fn days(device: &DeviceSummary) -> Vec<[String; DAYS.len()]> {
    let row = |p: &PolicySummary| {
        let days = |figure: fn(&DaysFigures) -> u64| {
            p.known_median_of(|c| c.days.as_ref().map(|d| figure(d) as f64))
        };
        let (sweeps, sent) = (days(|d| d.sweeps + d.slices)?, days(|d| d.fitrim_units)?);
        let mean = p.known_median_of(|c| c.device_stats.as_ref()?.stale_units_mean);
        let units = |units: Option<f64>| units.map_or(NONE.to_string(), units_as_bytes);
        let if_any = |text: String| if sweeps > 0.0 { text } else { NONE.to_string() };
        Some([
            p.policy.to_string(),
            units(mean),
            units(stale(p, |d| d.stale_units_max)),
            units(stale(p, |d| d.stale_units_end)),
            if_any(thousands(sweeps)),
            if_any(nanoseconds(days(|d| d.fitrim_max_ns)?)),
            if_any(units_as_bytes(sent)),
        ])
    };
    device.policies.iter().filter_map(row).collect()
}

/// Formats a share; `0 %` only for exactly none.
fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0 %".to_string(),
        p if p < 0.1 => "< 0.1 %".to_string(),
        p => format!("{p:.1} %"),
    }
}

/// Formats units as bytes.
pub fn units_as_bytes(units: f64) -> String {
    Bytes((units * UNIT_BYTES as f64) as u64).to_string()
}

/// Returns the latencies of these operations: operation, policy, count, median, 99 %, 99.9 % and the slowest.
pub fn latencies(device: &DeviceSummary, operations: &[Operation]) -> Vec<[String; 7]> {
    let mut rows = Vec::new();
    for operation in operations {
        for p in &device.policies {
            let of = |figure: &dyn Fn(&LatencySummary) -> u64| {
                let recorded = p.runs.iter().filter_map(|c| c.latency.get(operation.name()));
                let values: Vec<f64> = recorded.map(|l| figure(l) as f64).collect();
                median(&values)
            };
            let Some(count) = of(&|l| l.count) else { continue };
            let [p50, p99, p999, max] =
                Quantile::ALL.map(|quantile| of(&|l| quantile.of(l)).map_or(NONE.to_string(), nanoseconds));
            rows.push([
                operation.name().to_string(),
                p.policy.to_string(),
                thousands(count),
                p50,
                p99,
                p999,
                max,
            ]);
        }
    }
    rows
}

/// Formats a time in nanoseconds in a suitable unit.
pub fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n if n >= 1e3 => (n / 1e3, "\u{b5}s"),
        n => (n, "ns"),
    };
    let digits = if value >= 99.95 { 0 } else { usize::from(value.fract() != 0.0) };
    format!("{value:.digits$} {unit}")
}

/// The heading of the workload's own figure: PostMark's rate, the time until the TRIMs of what was removed were
/// acknowledged, or the latency that 1 % of a trace's writes exceed.
pub fn own_heading(measure: Measure, is_trace: bool) -> &'static str {
    match measure {
        _ if is_trace => "write p99",
        Measure::Total | Measure::Waiting | Measure::MeanLatency | Measure::Latency(..) => "trans./s",
        Measure::Fsync | Measure::Write => "TRIMs done",
    }
}

/// Whether a cell is of a trace.
pub fn is_trace(cell: &Cell) -> bool {
    matches!(cell.workload, WorkloadFigures::Replay(_))
}

/// Formats the figures of a policy that follow its duration in table and report.
pub fn of_policy(p: &PolicySummary) -> [String; 5] {
    let device = |figure: Option<f64>, show: &dyn Fn(f64) -> String| figure.map_or(NONE.to_string(), show);
    let own = match p.runs.first().map(|c| c.measure()).unwrap_or_default() {
        _ if p.runs.iter().any(|c| is_trace(c)) => p
            .known_median_of(|c| c.latency.get("write").map(|write| write.p99_ns as f64))
            .map_or(NONE.to_string(), nanoseconds),
        // Spread over days, the rate is given.
        _ if p.runs.iter().any(|c| c.days.is_some()) => NONE.to_string(),
        Measure::Total | Measure::Waiting | Measure::MeanLatency | Measure::Latency(..) => p
            .known_median_of(|c| c.postmark().map(|p| p.transactions_per_s))
            .map_or(NONE.to_string(), significant),
        Measure::Fsync | Measure::Write => p
            .known_median_of(|c| c.removal_trims().map(|t| t.acknowledged_ns as f64 / 1e9))
            // If none was sent, there was nothing to do.
            .filter(|&seconds| seconds > 0.0)
            .map_or(NONE.to_string(), time),
    };
    [
        own,
        device(p.device_median_of(|d| d.write_amplification), &|wa| format!("{wa:.2}")),
        device(p.device_median_of(|d| d.erases as f64), &thousands),
        device(p.device_median_of(|d| d.trim_commands as f64), &thousands),
        device(stale(p, |d| d.stale_units_max).or(stale(p, |d| d.stale_units_end)), &units_as_bytes),
    ]
}

/// Returns the median of a figure of stale units, if every repetition has it.
fn stale(p: &PolicySummary, figure: impl Fn(&DeviceFigures) -> Option<u64>) -> Option<f64> {
    p.known_median_of(|c| figure(c.device_stats.as_ref()?).map(|units| units as f64))
}

/// Returns the heading of the stale space: its maximum, or its final value if only that is known.
pub fn stale_heading(policies: &[PolicySummary]) -> &'static str {
    let is_followed = |p: &PolicySummary| stale(p, |d| d.stale_units_max).is_some();
    if policies.iter().any(is_followed) { "stale max" } else { "stale end" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        assert_eq!(significant(2628.5), "2,629"); // ties away from zero, not to even
        assert_eq!(significant(182.44), "182.4");
        assert_eq!(significant(20.16), "20.16");
        assert_eq!(significant(0.5), "0.500");
        assert_eq!([0.0, -0.0].map(significant), ["0", "0"]);
        assert_eq!(significant(f64::NAN), "-");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(-0.4), "0");
        assert_eq!(thousands(-1234.0), "\u{2212}1,234");
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(change(0.1628), "+16.3 %");
        assert_eq!(change(-0.9363), "\u{2212}93.6 %");
        assert_eq!(change(0.0001), "0.0 %");
        assert_eq!(change(10.9369), "+1,094 %");
    }

    #[test]
    fn time_is_shown_in_the_unit_that_suits() {
        assert_eq!(nanoseconds(999.0), "999 ns");
        assert_eq!(nanoseconds(1_500.0), "1.5 \u{b5}s");
        assert_eq!(nanoseconds(2_000_000.0), "2 ms");
        assert_eq!(nanoseconds(12_340_000_000.0), "12.3 s");
    }

    #[test]
    fn spans_keep_their_digits_in_any_unit() {
        assert_eq!(time(20.751), "20.75 s");
        assert_eq!(time(0.0123), "12.30 ms");
        assert_eq!(time(0.000_012_3), "12.30 \u{b5}s");
        assert_eq!(time(0.0), "0 s");
        assert_eq!(percent(0.01), "< 0.1 %");
        assert_eq!(percent(12.34), "12.3 %");
    }

    #[test]
    fn one_inexact_run_has_an_unknown_interval() {
        let one = Sample::new(vec![10.0], false).unwrap();
        assert_eq!(duration(&one), "10.00 s");
        assert_eq!(runs(&one), "1");
        let exact = Sample::new(vec![10.0; 3], true).unwrap();
        assert_eq!(duration(&exact), "10.00 s");
        assert_eq!(runs(&exact), "1, exact");
    }
}
