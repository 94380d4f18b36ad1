//! Cells gathered into what a table shows: for each device and policy the medians of its repetitions.

use crate::experiment::result::{Cell, DeviceFigures};
use crate::experiment::statistics::{Comparison, Sample, compare, median};
use crate::policy::PolicySpec;

/// Values by name, in the order in which the names came.
type Named<'a, T> = Vec<(&'a str, T)>;

/// All the cells of a comparison, by device and policy in the order in which they came.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The policy that others are compared with: `off` if it ran, else the first.
    pub baseline: String,
    /// One entry for each device.
    pub devices: Vec<DeviceSummary<'a>>,
}

/// The policies that ran on one device.
#[derive(Clone, Debug)]
pub struct DeviceSummary<'a> {
    /// The device's name.
    pub device: &'a str,
    /// One entry for each policy.
    pub policies: Vec<PolicySummary<'a>>,
}

/// The repetitions of one policy on one device.
#[derive(Clone, Debug)]
pub struct PolicySummary<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Whether it is only a bound, which no host can use.
    pub bound: bool,
    /// The repetitions.
    pub runs: Vec<&'a Cell>,
    /// Their durations, in seconds.
    pub total_s: Sample,
    /// Compared with the baseline; `None` for the baseline itself, or where it did not run.
    pub versus_baseline: Option<Comparison>,
}

impl<'a> Summary<'a> {
    /// Gathers cells. A cell whose duration is no number cannot occur: durations are whole nanoseconds.
    pub fn of(cells: &'a [Cell]) -> Self {
        let mut devices: Named<Named<Vec<&Cell>>> = Vec::new();
        for cell in cells {
            let device = entry(&mut devices, &cell.device);
            entry(device, &cell.policy).push(cell);
        }
        let baseline = cells
            .iter()
            .find(|c| c.policy == "off")
            .or(cells.first())
            .map_or_else(|| "off".to_string(), |c| c.policy.clone());
        let devices = devices
            .into_iter()
            .map(|(device, policies)| {
                let mut policies: Vec<PolicySummary> = policies
                    .into_iter()
                    .filter_map(|(policy, runs)| PolicySummary::of(policy, runs))
                    .collect();
                let of_baseline = policies.iter().find(|p| p.policy == baseline).map(|p| p.total_s.clone());
                for p in policies.iter_mut().filter(|p| p.policy != baseline) {
                    p.versus_baseline = of_baseline.as_ref().map(|b| compare(b, &p.total_s));
                }
                DeviceSummary { device, policies }
            })
            .collect();
        Self { baseline, devices }
    }
}

impl<'a> DeviceSummary<'a> {
    /// The policy of this name, if it ran here.
    pub fn policy(&self, name: &str) -> Option<&PolicySummary<'a>> {
        self.policies.iter().find(|p| p.policy == name)
    }
}

impl<'a> PolicySummary<'a> {
    fn of(policy: &'a str, runs: Vec<&'a Cell>) -> Option<Self> {
        let seconds = runs.iter().map(|c| c.duration_ns as f64 / 1e9).collect();
        // A real directory is never exact, even if two runs should take the same nanoseconds; and one run does
        // not say what another repetition would have been.
        let exact = runs.len() > 1
            && runs.iter().all(|c| c.target == "model")
            && runs.windows(2).all(|w| same_run(w[0], w[1]));
        let total_s = Sample::new(seconds, exact)?;
        let bound = policy.parse::<PolicySpec>().is_ok_and(|p| !p.is_usable());
        Some(Self { policy, bound, runs, total_s, versus_baseline: None })
    }

    /// The median of a figure over the repetitions.
    pub fn median_of(&self, figure: impl Fn(&Cell) -> f64) -> f64 {
        let values: Vec<f64> = self.runs.iter().map(|c| figure(c)).collect();
        median(&values).unwrap_or(0.0)
    }

    /// The median of a figure of the device; `None` if the device did not tell in every repetition.
    pub fn device_median_of(&self, figure: impl Fn(&DeviceFigures) -> f64) -> Option<f64> {
        let values: Option<Vec<f64>> =
            self.runs.iter().map(|c| c.device_stats.as_ref().map(&figure)).collect();
        median(&values?)
    }
}

/// Whether two repetitions agree in everything but their number.
fn same_run(a: &Cell, b: &Cell) -> bool {
    a.duration_ns == b.duration_ns
        && a.postmark == b.postmark
        && a.device_stats == b.device_stats
        && a.latency == b.latency
        && a.latency_quantiles_ns == b.latency_quantiles_ns
}

/// The value of `key`, made if it is new; first come, first in the list.
fn entry<'l, 'a, T: Default>(list: &'l mut Named<'a, T>, key: &'a str) -> &'l mut T {
    let index = list.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[index].1
}
