//! Conditions and a saved result for `compare`.

use std::path::{Path, PathBuf};

use trimwise::compare::result::{Measure, Target};
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::policy::PolicyId;

use super::{Condition, Gate, Judged, Terms, Then, compare_baseline, of_cells};
use crate::compare::on_model::Plan;
use crate::compare::target::RunOn;
use crate::compare::workload::Workload;
use crate::compare::{CompareRequest, Comparison, Settings, or};
use crate::defaults;

#[derive(Debug, Default)]
pub struct CompareGate {
    conditions: Vec<Condition>,
    then: Option<(PathBuf, Box<Comparison>)>,
}

impl CompareGate {
    /// Reads the saved result, and rejects what is known to be wrong before the run.
    ///
    /// # Errors
    ///
    /// All conditions that name a policy that does not run or a figure that its runs cannot have, and what keeps the
    /// saved result from being compared.
    pub fn open(
        conditions: &[Condition],
        baseline: Option<&Path>,
        request: &CompareRequest,
    ) -> Result<Self, Failure> {
        let mut mistakes = Mistakes::default();
        let saved = baseline.map(|path| Ok((path.to_owned(), Box::new(compare_baseline(path)?))));
        let then = saved.and_then(|read| mistakes.keep(read).transpose()).transpose()?;
        let gate = Self { conditions: conditions.to_vec(), then };
        if gate.is_empty() && baseline.is_none() {
            return Ok(gate);
        }
        // A kernel's own policies are known after the run only, and a request that is wrong is rejected there.
        let is_model = !request.is_elsewhere() && request.fs.is_none();
        let plan = match is_model.then(|| Plan::of(request)) {
            Some(Ok(plan)) => Some(plan),
            // Other failures than those of the request come up again with the run.
            Some(Err(failure @ Failure::Usage(_))) => {
                mistakes.keep::<()>(Err(failure))?;
                None
            }
            Some(Err(_)) | None => None,
        };
        let given = || request.policies.iter().filter_map(|policy| policy.value().ok()).cloned();
        let policies: Vec<PolicyId> = match &plan {
            Some(plan) => plan.policies.iter().map(|policy| PolicyId::from(*policy)).collect(),
            None => given().collect(),
        };
        let devices: Vec<String> = match (&plan, &request.target.value()) {
            (Some(plan), _) => plan.devices.iter().map(|(name, _)| name.clone()).collect(),
            (None, Ok(RunOn::Kernel(_))) if request.here.is_none() => {
                or(&request.devices, [defaults::DEVICE]).iter().map(ToString::to_string).collect()
            }
            (None, _) => Vec::new(),
        };
        if let Some((_, then)) = &gate.then {
            let settings =
                plan.as_ref().map_or_else(|| known(request, &then.settings), |plan| plan.settings.clone());
            let settings = Settings { judge: measure(request, &then.settings), ..settings };
            mistakes.keep(gate.then(&settings, &devices.iter().map(String::as_str).collect::<Vec<_>>()))?;
        }
        let terms = Terms::of_compare(policies.iter().map(PolicyId::to_string).collect());
        let then = baseline.map(|_| Then::default());
        mistakes.keep(Gate { conditions: gate.conditions.clone(), then }.check(&terms))?;
        if let Ok(workload) = Workload::of(request) {
            let latencies = gate.conditions.iter().filter_map(Condition::latency);
            for (condition, latency) in latencies {
                mistakes.keep(workload.expect_calls(Mistake::of("fail_if", condition), latency))?;
            }
        }
        mistakes.end()?;
        Ok(gate)
    }

    pub const fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.then.is_none()
    }

    fn then(&self, settings: &Settings, devices: &[&str]) -> Result<Option<Then>, Failure> {
        let then = self.then.as_ref();
        then.map(|(path, then)| Then::of_comparison(path, then, settings, devices)).transpose()
    }

    /// Judges a finished comparison.
    pub fn judge(&self, comparison: &Comparison) -> Judged {
        if self.is_empty() {
            return Judged::default();
        }
        let devices: Vec<&str> = comparison.cells.iter().map(|cell| &*cell.device).collect();
        let then = self.then(&comparison.settings, &super::distinct(devices.into_iter()));
        let policies = comparison.cells.iter().map(|cell| cell.policy.to_string()).collect();
        super::judged(&self.conditions, then, &of_cells(&comparison.cells), &Terms::of_compare(policies))
    }
}

/// What a request for a kernel or a directory says about its settings, and what it leaves open as in the saved result.
fn known(request: &CompareRequest, saved: &Settings) -> Settings {
    let target = request.target.value().map_or(Target::Model, Target::from);
    let utilization = request.utilization().ok().flatten();
    Settings {
        workload: request.workload().to_owned(),
        target,
        utilization: utilization.or(saved.utilization),
        days: request.days.or(saved.days),
        ..saved.clone()
    }
}

/// Returns the measure of a request as its result will name it, as far as that is known.
pub(super) fn measure(request: &CompareRequest, saved: &Settings) -> String {
    let is_latency = matches!(saved.judge.parse(), Ok(Measure::Latency(..)));
    match request.judge {
        Some(measure @ Measure::Latency(..)) => measure.to_string(),
        // Without --judge, nothing is judged by a latency.
        _ if is_latency => Measure::Total.to_string(),
        _ => saved.judge.clone(),
    }
}
