//! The cost of a wrong guess, from the fresh runs.

use serde::{Deserialize, Serialize};

use crate::compare::judge::{LIFE_PERCENT, TIME_PERCENT, compared_wear, exceeds};
use crate::compare::statistics::{Comparison, compare};
use crate::compare::summary::{DeviceSummary, PolicySummary};
use crate::policy::PolicyId;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// In percent of the recommended policy's median.
    pub percent: f64,
    /// Lower end of the interval; null after a single run.
    #[serde(deserialize_with = "crate::compare::result::number")]
    pub low_percent: f64,
    #[serde(deserialize_with = "crate::compare::result::number")]
    pub high_percent: f64,
    pub confidence_percent: f64,
    /// The test finds a difference, and it is one that matters.
    pub is_told_apart: bool,
}

impl Difference {
    /// Compares another policy with the recommended one, in the figure by which policies are judged.
    pub fn of_times(c: &Comparison) -> Self {
        Self::of(c, TIME_PERCENT)
    }

    fn of(c: &Comparison, least_percent: f64) -> Self {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let is_known = c.interval.confidence > 0.0;
        let end = |ratio: f64| if is_known { percent(ratio) } else { f64::NAN };
        Self {
            percent: percent(c.ratio),
            low_percent: end(c.interval.low),
            high_percent: end(c.interval.high),
            confidence_percent: c.interval.confidence * 100.0,
            is_told_apart: c.significant && exceeds(c.ratio, least_percent),
        }
    }
}

/// The cost of another policy than the recommended one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub policy: PolicyId,
    pub median_s: f64,
    pub time: Difference,
    /// How much more it wears the flash; null if the device does not tell, or nothing reached the flash.
    pub wear: Option<Difference>,
}

/// Returns the cost of each other policy that a host can have, in the order in which they ran.
pub fn costs(device: &DeviceSummary, recommended: &PolicyId) -> Vec<Cost> {
    let Some(best) = device.policy(recommended) else { return Vec::new() };
    let cost = |other: &PolicySummary| {
        let wear = compared_wear(other, best);
        Cost {
            policy: other.policy.clone(),
            median_s: other.time_s.median(),
            time: Difference::of(&compare(&other.time_s, &best.time_s), TIME_PERCENT),
            wear: wear.filter(|c| c.ratio.is_finite()).map(|c| Difference::of(&c, LIFE_PERCENT)),
        }
    };
    let others =
        device.policies.iter().filter(|p| p.means.is_attainable() && !p.unswept && p.policy != recommended);
    others.map(cost).collect()
}
