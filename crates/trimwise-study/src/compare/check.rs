//! `compare --check kernel:...`: a real kernel's figures next to the model's, and where the two contradict each other.
//!
//! Only policies of a stock kernel can be checked; the others are listed. Device, workload, utilization, memory, seed
//! and repetitions are the model's.

use serde::{Deserialize, Serialize};
use trimwise::compare::result::{Cell, DeviceVerdict, Target};
use trimwise::compare::summary::{DeviceSummary, Summary, SummaryRow};
use trimwise::numbers;
use trimwise::policy::PolicyId;
use trimwise_linux::real_kernel::RealKernel;

use super::Comparison;
use crate::conclusion;

/// Largest difference between two policies' durations that contradicts nothing.
const LIMIT: f64 = 0.03;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// A kernel with ext4.
    pub target: Target,
    /// `None` if nothing ran.
    pub kernel: Option<RealKernel>,
    pub cells: Vec<Cell>,
    /// A row for each policy on each device, as for the model. It has the model's baseline if that ran on the kernel.
    #[serde(skip_deserializing)] // follows from the cells
    pub summary: Vec<SummaryRow>,
    /// Policies that no stock kernel has.
    pub left_out: Vec<LeftOut>,
    /// Devices on which two policies ran both in the model and on the kernel.
    pub compared: Vec<String>,
    pub contradictions: Vec<Contradiction>,
    /// Why nothing ran.
    pub not_run: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub policy: PolicyId,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    pub device: String,
    pub policy: PolicyId,
    /// The policy it is compared with.
    pub against: PolicyId,
    /// Extra time of `policy` over `against` in the model, in percent.
    pub model_percent: f64,
    /// Extra time of `policy` over `against` on the kernel, in percent.
    pub kernel_percent: f64,
    /// Both figures in words.
    pub text: String,
}

impl Comparison {
    /// Adds a check, and concludes again. The verdict begins with the contradictions.
    pub fn add_check(&mut self, mut check: Check) {
        let (model, kernel) = (Summary::of(&self.cells), check.summarised(&self.settings.baseline));
        let (rows, mut compared, mut contradictions) = (kernel.rows(), Vec::new(), Vec::new());
        let verdict = &mut self.verdict;
        let overall = verdict.policy.clone().unwrap_or(PolicyId::OFF);
        let chosen = |own: &DeviceVerdict| own.policy.clone().unwrap_or_else(|| model.baseline.clone());
        for own in &mut verdict.per_device {
            let of_device = |summary: &Summary| summary.devices.iter().position(|d| d.device == own.device);
            let (Some(m), Some(k)) = (of_device(&model), of_device(&kernel)) else { continue };
            let pair = Pair { model: &model.devices[m], kernel: &kernel.devices[k] };
            let policy = chosen(own);
            if pair.can_compare([&model.baseline, &policy, &overall]) {
                compared.push(own.device.clone());
            }
            contradictions.extend(pair.contradictions(&model.baseline, &policy, &overall));
        }
        (check.summary, check.compared, check.contradictions) = (rows, compared, contradictions);
        if let Some(RealKernel { release, .. }) = &check.kernel {
            let begin = |text: &mut String, what: String| {
                *text = format!("Linux {release} contradicts the model{what}. The model's verdict: {text}");
            };
            let mut devices: Vec<String> = Vec::new();
            let several = verdict.per_device.len() > 1;
            for own in &mut verdict.per_device {
                let found = check.contradictions.iter().filter(|c| c.device == own.device);
                let found: Vec<&str> = found.map(|c| c.text.as_str()).collect();
                if found.is_empty() {
                    continue;
                }
                devices.push(own.device.clone());
                begin(&mut own.text, format!(": {}", found.join("; ")));
                if !several {
                    verdict.text.clone_from(&own.text);
                }
            }
            if several && !devices.is_empty() {
                begin(&mut verdict.text, format!(" on {} (see below)", devices.join(", ")));
            }
        }
        self.check = Some(check);
        self.conclusion = Some(conclusion::of(self));
    }
}

impl Check {
    /// Summarises the kernel's figures, compared with the model's baseline if that ran.
    pub fn summarised(&self, baseline: &PolicyId) -> Summary<'_> {
        let mut summary = Summary::of(&self.cells);
        if summary.baseline != *baseline {
            summary.devices.iter_mut().flat_map(|d| &mut d.policies).for_each(|p| p.versus_baseline = None);
        }
        summary
    }

    /// Returns notes on the limits of the check. `devices` is the number of devices in the model.
    pub fn notes(&self, recommended: Option<&PolicyId>, devices: usize) -> Vec<String> {
        if let Some(reason) = &self.not_run {
            return vec![format!("Not checked on a real kernel: {reason}")];
        }
        let mut notes = vec![
            "Rows named after a version are the real kernel's. The model's figures include processor time, the \
             guest's do not."
                .to_owned(),
        ];
        if !self.left_out.is_empty() {
            let names: Vec<String> = self.left_out.iter().map(|l| format!("`{}`", l.policy)).collect();
            let is_chosen = self.left_out.iter().any(|l| Some(&l.policy) == recommended);
            let so = if is_chosen { ": the recommendation is not checked" } else { "" };
            notes.push(format!("No stock kernel has {}{so}.", names.join(", ")));
        }
        if self.compared.is_empty() {
            notes.push(
                "Nothing could be compared yet: it takes at least two policies that ran both in the model and on the \
                 kernel, one of them the baseline or the recommended one."
                    .to_owned(),
            );
        } else if self.contradictions.is_empty() {
            let at = if self.compared.len() < devices {
                format!(" on {}; on other devices nothing could be compared", self.compared.join(", "))
            } else {
                String::new()
            };
            let percent = LIMIT * 100.0;
            notes.push(format!(
                "Kernel and model do not contradict each other by more than {percent:.0} %{at}."
            ));
        }
        notes
    }
}

struct Pair<'a> {
    model: &'a DeviceSummary<'a>,
    kernel: &'a DeviceSummary<'a>,
}

impl Pair<'_> {
    /// Returns whether one of `policies` and any other policy ran both in the model and on the kernel.
    fn can_compare(&self, policies: [&PolicyId; 3]) -> bool {
        self.kernel.policies.iter().any(|p| {
            policies.iter().any(|policy| p.policy != *policy && self.changes(p.policy, policy).is_some())
        })
    }

    /// Finds policies that the model calls better than the baseline and the kernel worse, or the other way round. Also
    /// finds policies that the model recommends, here or over all devices, although another one is faster on the
    /// kernel.
    fn contradictions(&self, baseline: &PolicyId, own: &PolicyId, overall: &PolicyId) -> Vec<Contradiction> {
        let mut found: Vec<Contradiction> = Vec::new();
        for p in &self.kernel.policies {
            let Some((model, kernel)) = self.changes(p.policy, baseline) else { continue };
            if model.abs() > LIMIT && kernel.abs() > LIMIT && (model > 0.0) != (kernel > 0.0) {
                found.push(self.contradiction("", p.policy, baseline, (model, kernel)));
            }
        }
        for recommended in [own, overall] {
            let worse = |against: &&PolicyId| {
                // Over several devices, even the model may have a better policy here than the recommended one.
                self.changes(recommended, against)
                    .is_some_and(|(model, kernel)| kernel > LIMIT && (recommended == own || model <= LIMIT))
            };
            let seconds = |policy: &&PolicyId| self.kernel.policy(policy).map(|p| p.time_s.median());
            let others = self.kernel.policies.iter().map(|p| p.policy).filter(worse);
            let fastest = others
                .min_by(|a, b| seconds(a).partial_cmp(&seconds(b)).unwrap_or(std::cmp::Ordering::Equal));
            let Some(against) = fastest else { continue };
            let is_said = |c: &Contradiction| {
                [(recommended, against), (against, recommended)].contains(&(&c.policy, &c.against))
            };
            if let Some(changes) = self.changes(recommended, against)
                && !found.iter().any(is_said)
            {
                found.push(self.contradiction("the recommended ", recommended, against, changes));
            }
        }
        found
    }

    /// Returns the relative extra time of `policy` over `against`, in the model and on the kernel; `None` unless both
    /// ran on both.
    fn changes(&self, policy: &PolicyId, against: &PolicyId) -> Option<(f64, f64)> {
        let of = |device: &DeviceSummary| {
            let seconds = |policy| device.policy(policy).map(|p| p.time_s.median());
            Some(seconds(policy)? / seconds(against)? - 1.0).filter(|change| change.is_finite())
        };
        Some((of(self.model)?, of(self.kernel)?))
    }

    fn contradiction(
        &self,
        what: &str,
        policy: &PolicyId,
        against: &PolicyId,
        (model, kernel): (f64, f64),
    ) -> Contradiction {
        Contradiction {
            device: self.model.device.to_owned(),
            policy: policy.clone(),
            against: against.clone(),
            model_percent: model * 100.0,
            kernel_percent: kernel * 100.0,
            text: format!(
                "{what}`{policy}` takes {} than `{against}` in the model, {} on the kernel",
                longer(model),
                longer(kernel)
            ),
        }
    }
}

/// `16.3 % longer`.
pub fn longer(change: f64) -> String {
    let figure = numbers::change(change.abs());
    format!("{} {}", figure.trim_start_matches('+'), if change < 0.0 { "less" } else { "longer" })
}
