//! Numbers as tables and reports show them.

use trimwise::compare::figure::View;
use trimwise::compare::result::Quantile;
use trimwise::compare::statistics::{Comparison, Interval, Sample, median};
use trimwise::compare::summary::{DeviceSummary, PolicySummary};
pub use trimwise::numbers::{
    MINUS, NONE, change, counted, grouped, nanoseconds, significant, thousands, time,
};
use trimwise::policy::PolicyId;
use trimwise::workload::latency::{LatencySummary, Operation};

/// Formats the wider side of an interval, relative to the median, as in `± 1.2 %`; `None` for a single run.
fn plus_minus(median: f64, interval: Interval) -> Option<String> {
    if interval.confidence <= 0.0 {
        return None;
    }
    let reach = (interval.high - median).max(median - interval.low);
    Some(if median == 0.0 { "± 0 %".to_string() } else { format!("± {:.1} %", reach / median * 100.0) })
}

/// Formats the number of runs. One that stands for all is called exact.
pub fn runs(sample: &Sample) -> String {
    if sample.is_exact() { "1, exact".to_string() } else { sample.n().to_string() }
}

/// Formats the median of durations, with its interval if there is one.
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

/// Formats how much longer a policy takes than the bound; `~` marks a difference that is not significant. Empty for the
/// bound itself.
pub fn distance(p: &PolicySummary) -> String {
    match &p.versus_ideal {
        None if *p.policy == PolicyId::IDEAL => String::new(),
        None => NONE.to_string(),
        Some(c) if c.significant || c.p.is_none() => change(1.0 / c.ratio - 1.0),
        Some(c) => format!("~ {}", change(1.0 / c.ratio - 1.0)),
    }
}

/// Returns `policy` and the headings of a view's figures.
pub fn headings(view: View) -> Vec<&'static str> {
    std::iter::once("policy").chain(view.figures().map(|(_, heading)| heading)).collect()
}

/// Returns the headings of a view, and a row for each policy.
pub fn rows(view: View, device: &DeviceSummary) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let row = |p: &PolicySummary| {
        let figures = view.figures().map(|(figure, _)| figure.text(p));
        std::iter::once(p.policy.to_string()).chain(figures).collect()
    };
    let covered = device.policies.iter().filter(|p| view.covers(p));
    (headings(view), covered.map(row).collect())
}

/// Returns a row for each of these operations and each policy: count, median, 99 %, 99.9 % and maximum.
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

#[cfg(test)]
mod tests {
    use super::*;

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
