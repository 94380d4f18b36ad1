//! Conditions and a saved result for `compare`.

use std::path::{Path, PathBuf};

use trimwise::failure::Failure;
use trimwise::policy::PolicyId;

use super::{Condition, Gate, Judged, Terms, Then, compare_baseline, of_cells};
use crate::compare::on_model::Plan;
use crate::compare::{CompareRequest, Comparison};

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
    /// If a condition names a policy that does not run, or the saved result is not comparable.
    pub fn open(
        conditions: &[Condition],
        baseline: Option<&Path>,
        request: &CompareRequest,
    ) -> Result<Self, Failure> {
        let then = match baseline {
            Some(path) => Some((path.to_owned(), Box::new(compare_baseline(path)?))),
            None => None,
        };
        let gate = Self { conditions: conditions.to_vec(), then };
        if gate.is_empty() {
            return Ok(gate);
        }
        // A kernel's own policies are known after the run only, and a request that is wrong is rejected there.
        let is_model = !request.is_elsewhere() && request.fs.is_none();
        let plan = if is_model { Plan::of(request).ok() } else { None };
        let given = || request.policies.iter().filter_map(|policy| policy.value().ok()).cloned();
        let policies: Vec<PolicyId> = match &plan {
            Some(plan) => plan.policies.iter().map(|policy| PolicyId::from(*policy)).collect(),
            None => given().collect(),
        };
        let then = match &plan {
            Some(plan) => {
                let devices: Vec<&str> = plan.devices.iter().map(|(name, _)| &**name).collect();
                gate.then(&plan.settings, &devices)?
            }
            None => gate.then.as_ref().map(|_| Then::default()),
        };
        let terms = Terms::of_compare(policies.iter().map(PolicyId::to_string).collect());
        Gate { conditions: gate.conditions.clone(), then }.check(&terms)?;
        Ok(gate)
    }

    pub const fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.then.is_none()
    }

    fn then(&self, settings: &crate::compare::Settings, devices: &[&str]) -> Result<Option<Then>, Failure> {
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
