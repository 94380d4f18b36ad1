//! The figures of a table: for each device and policy, the medians of its repetitions.

use serde::{Deserialize, Serialize};

use crate::compare::figure::{Values, View};
use crate::compare::ledger::CellLedger;
use crate::compare::means::{Host, Means};
use crate::compare::result::{Cell, DeviceFigures, Measure};
use crate::compare::statistics::{Comparison, Sample, compare, median};
use crate::policy::{PolicyId, Trimmer};

type Keyed<'a, K, T> = Vec<(&'a K, T)>;

/// All cells of a comparison, by device and policy in order of appearance.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The policy with which others are compared: `off` if it ran, else the first.
    pub baseline: PolicyId,
    pub measure: Measure,
    pub devices: Vec<DeviceSummary<'a>>,
}

#[derive(Clone, Debug)]
pub struct DeviceSummary<'a> {
    pub device: &'a str,
    pub policies: Vec<PolicySummary<'a>>,
}

#[derive(Clone, Debug)]
pub struct PolicySummary<'a> {
    pub policy: &'a PolicyId,
    /// What a host with this drive needs in order to have it.
    pub means: Means,
    /// It trims at intervals or is the daemon, and trimmed nothing in any run, so it did the same as `off`; or its
    /// interval is longer than the days of the run, which show more of its sweeps than a host would have.
    pub unswept: bool,
    pub runs: Vec<&'a Cell>,
    pub time_s: Sample,
    /// Comparison with the baseline; `None` for the baseline itself, or where it did not run.
    pub versus_baseline: Option<Comparison>,
    /// Comparison with [`PolicyId::IDEAL`]; `None` for the bound itself, or where it did not run.
    pub versus_ideal: Option<Comparison>,
    /// Savings over `off`; `None` where that did not run, or the device does not report.
    pub saved: Option<Saved>,
}

/// Savings over `off`: differences of the medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    pub gc_units: f64,
    pub time_s: f64,
}

impl<'a> Summary<'a> {
    pub fn of(cells: &'a [Cell]) -> Self {
        let mut devices: Keyed<str, Keyed<PolicyId, Vec<&Cell>>> = Vec::new();
        for cell in cells {
            let device = entry(&mut devices, &*cell.device);
            entry(device, &cell.policy).push(cell);
        }
        let baseline = cells
            .iter()
            .find(|c| c.policy == PolicyId::OFF)
            .or(cells.first())
            .map_or(PolicyId::OFF, |c| c.policy.clone());
        let devices = devices
            .into_iter()
            .map(|(device, policies)| {
                let policies =
                    policies.into_iter().filter_map(|(policy, runs)| PolicySummary::of(policy, runs));
                let mut device = DeviceSummary { device, policies: policies.collect() };
                device.compare(&baseline);
                device
            })
            .collect();
        Self { baseline, measure: cells.first().map(Cell::measure).unwrap_or_default(), devices }
    }

    pub fn frees_nothing(&self) -> bool {
        let mut runs = self.devices.iter().flat_map(|d| &d.policies).flat_map(|p| &p.runs);
        runs.all(|run| run.frees_nothing())
    }

    pub fn rows(&self) -> Vec<SummaryRow> {
        let row = |d: &DeviceSummary, p: &PolicySummary| SummaryRow::of(d.device, p, self.measure);
        self.devices.iter().flat_map(|d| d.policies.iter().map(|p| row(d, p))).collect()
    }
}

impl<'a> DeviceSummary<'a> {
    pub fn policy(&self, policy: &PolicyId) -> Option<&PolicySummary<'a>> {
        self.policies.iter().find(|p| p.policy == policy)
    }

    fn compare(&mut self, baseline: &PolicyId) {
        let time_of = |policy: &PolicyId| self.policy(policy).map(|p| p.time_s.clone());
        let (of_baseline, of_bound) = (time_of(baseline), time_of(&PolicyId::IDEAL));
        let copied = |p: &PolicySummary| p.device_median_of(|d| d.gc_units_copied as f64);
        let without = self.policy(&PolicyId::OFF).and_then(|p| Some((p.time_s.median(), copied(p)?)));
        for p in &mut self.policies {
            if p.policy != baseline {
                p.versus_baseline = of_baseline.as_ref().map(|b| compare(b, &p.time_s));
            }
            if *p.policy != PolicyId::IDEAL {
                p.versus_ideal = of_bound.as_ref().map(|b| compare(b, &p.time_s));
            }
            p.saved = without.and_then(|(time_s, gc_units)| {
                Some(Saved { gc_units: gc_units - copied(p)?, time_s: time_s - p.time_s.median() })
            });
        }
    }
}

impl<'a> PolicySummary<'a> {
    fn of(policy: &'a PolicyId, runs: Vec<&'a Cell>) -> Option<Self> {
        let seconds = runs.iter().map(|c| c.measured_ns() as f64 / 1e9).collect();
        // A real directory is never exact, even if two runs take the same nanoseconds. And one run says nothing about
        // another repetition.
        let exact = runs.len() > 1
            && runs.iter().all(|c| c.is_in_virtual_time())
            && runs.windows(2).all(|w| same_run(w[0], w[1]));
        let time_s = Sample::new(seconds, exact)?;
        let first = runs.first()?;
        let means = Means::of(
            policy,
            &first.target,
            Host { link: first.drive.map(|drive| drive.link), discard: first.discard },
        );
        let interval = policy.known().and_then(Trimmer::sweeps).map(|batch| batch.every.as_nanos());
        let sweeps = interval.is_some() || policy.known().is_some_and(Trimmer::is_hosted);
        let is_untrimmed =
            |c: &&Cell| c.device_stats.as_ref().is_some_and(|device| device.trim_commands == 0);
        // A run of some days has a weekly sweep, of less than a week's work.
        let is_short = |c: &&Cell| {
            c.days.as_ref().zip(interval).is_some_and(|(days, interval)| days.elapsed_ns < interval)
        };
        let unswept = sweeps && (runs.iter().all(is_untrimmed) || runs.iter().any(is_short));
        Some(Self {
            policy,
            means,
            unswept,
            runs,
            time_s,
            versus_baseline: None,
            versus_ideal: None,
            saved: None,
        })
    }

    pub fn median_of(&self, figure: impl Fn(&Cell) -> f64) -> f64 {
        let values: Vec<f64> = self.runs.iter().map(|c| figure(c)).collect();
        median(&values).unwrap_or(0.0)
    }

    /// The median of a figure that may be missing; `None` if a repetition lacks it.
    pub fn known_median_of(&self, figure: impl Fn(&Cell) -> Option<f64>) -> Option<f64> {
        let values: Option<Vec<f64>> = self.runs.iter().map(|c| figure(c)).collect();
        median(&values?)
    }

    /// The median of a figure of the device; `None` if a repetition has no such figures.
    pub fn device_median_of(&self, figure: impl Fn(&DeviceFigures) -> f64) -> Option<f64> {
        self.known_median_of(|c| c.device_stats.as_ref().map(&figure))
    }

    /// The median of a figure of the ledger; `None` if there is none.
    pub(crate) fn ledger_median_of(&self, figure: impl Fn(&CellLedger) -> f64) -> Option<f64> {
        self.known_median_of(|c| c.ledger.as_ref().map(&figure))
    }

    /// The repetitions of a figure of the device, to be compared with another policy's.
    pub fn device_sample_of(&self, figure: impl Fn(&DeviceFigures) -> f64) -> Option<Sample> {
        let values: Option<Vec<f64>> =
            self.runs.iter().map(|c| c.device_stats.as_ref().map(&figure)).collect();
        Sample::new(values?, self.time_s.is_exact())
    }
}

/// One policy on one device, as data: medians over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryRow {
    pub device: String,
    pub policy: PolicyId,
    /// What a host with this drive needs in order to have the policy; `None` in results of older versions.
    pub means: Option<Means>,
    pub reps: usize,
    /// The repetitions were the same to the last bit.
    pub exact: bool,
    /// The timed part of the run: `total`, `fsync` or `write`.
    pub measure: Measure,
    pub median_s: f64,
    /// Lower end of the interval of the median; null after a single run.
    #[serde(deserialize_with = "super::result::number")]
    pub low_s: f64,
    #[serde(deserialize_with = "super::result::number")]
    pub high_s: f64,
    /// Excess over the baseline, in percent; null for the baseline itself, or where it did not run.
    pub vs_baseline_percent: Option<f64>,
    pub vs_baseline_significant: Option<bool>,
    /// Excess over `ideal`, in percent; null for `ideal` itself, or where it did not run.
    pub vs_ideal_percent: Option<f64>,
    pub vs_ideal_significant: Option<bool>,
    /// The figures of [`View::Summary`]. Those of the device are null on a real directory.
    #[serde(flatten)]
    pub figures: Values,
    /// The figures of [`View::SummaryLedger`]; null on a real directory.
    pub ledger: Option<Values>,
}

impl SummaryRow {
    fn of(device: &str, p: &PolicySummary, measure: Measure) -> Self {
        let interval = p.time_s.interval();
        let longer = |c: Option<Comparison>| c.map(|c| (1.0 / c.ratio - 1.0) * 100.0);
        let significant = |c: Option<Comparison>| c.map(|c| c.significant);
        Self {
            device: device.to_owned(),
            policy: p.policy.clone(),
            means: Some(p.means),
            reps: p.runs.len(),
            exact: p.time_s.is_exact(),
            measure,
            median_s: p.time_s.median(),
            low_s: interval.low,
            high_s: interval.high,
            vs_baseline_percent: longer(p.versus_baseline),
            vs_baseline_significant: significant(p.versus_baseline),
            vs_ideal_percent: longer(p.versus_ideal),
            vs_ideal_significant: significant(p.versus_ideal),
            figures: Values::of(View::Summary, p),
            ledger: View::SummaryLedger.covers(p).then(|| Values::of(View::SummaryLedger, p)),
        }
    }
}

fn same_run(a: &Cell, b: &Cell) -> bool {
    a.duration_ns == b.duration_ns
        && a.days == b.days
        && a.workload == b.workload
        && a.device_stats == b.device_stats
        && a.ledger.map(|l| (l.units, l.trim_busy_ns)) == b.ledger.map(|l| (l.units, l.trim_busy_ns))
        && a.latency == b.latency
        && a.latency_quantiles_ns == b.latency_quantiles_ns
}

fn entry<'l, 'a, K: PartialEq + ?Sized, T: Default>(list: &'l mut Keyed<'a, K, T>, key: &'a K) -> &'l mut T {
    let index = list.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[index].1
}
