//! What the fresh runs say besides the verdict: the cost of a wrong guess.

use serde::{Deserialize, Serialize};

use crate::compare::choice::{SPEED_INDIFFERENCE, WEAR_INDIFFERENCE, exceeds};
use crate::compare::statistics::{Comparison, compare};
use crate::compare::summary::{DeviceSummary, PolicySummary};
use crate::policy::PolicyId;

/// How much more of something a policy takes than the recommended one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// In percent of the recommended policy's median.
    pub percent: f64,
    /// Lower end of its interval; null after a single run.
    #[serde(deserialize_with = "crate::compare::result::number")]
    pub low_percent: f64,
    /// Upper end.
    #[serde(deserialize_with = "crate::compare::result::number")]
    pub high_percent: f64,
    /// Confidence of the interval, in percent.
    pub confidence_percent: f64,
    /// Whether the test finds a difference, and it is one that matters.
    pub is_told_apart: bool,
}

impl Difference {
    /// In what policies are judged by: of the other, compared with the recommended one.
    pub fn of_times(c: &Comparison) -> Self {
        Self::of(c, SPEED_INDIFFERENCE)
    }

    fn of(c: &Comparison, indifference: f64) -> Self {
        // The other's over the recommended one's.
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let is_known = c.interval.confidence > 0.0;
        let end = |ratio: f64| if is_known { percent(ratio) } else { f64::NAN };
        Self {
            percent: percent(c.ratio),
            low_percent: end(c.interval.low),
            high_percent: end(c.interval.high),
            confidence_percent: c.interval.confidence * 100.0,
            is_told_apart: c.significant && exceeds(c, indifference),
        }
    }
}

/// What it costs to have another policy than the recommended one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The other policy.
    pub policy: PolicyId,
    /// Median of what policies are judged by, in seconds.
    pub median_s: f64,
    /// How much longer it takes.
    pub time: Difference,
    /// How much more it wears the flash; null if the device does not tell, or nothing reached the flash.
    pub wear: Option<Difference>,
}

/// The cost of each other policy that a host can have, in the order in which they ran.
pub fn costs(device: &DeviceSummary, recommended: &PolicyId) -> Vec<Cost> {
    let Some(best) = device.policy(recommended) else { return Vec::new() };
    let cost = |other: &PolicySummary| {
        let wear = device.compare_wear(best, other);
        Cost {
            policy: other.policy.clone(),
            median_s: other.time_s.median(),
            time: Difference::of(&compare(&other.time_s, &best.time_s), SPEED_INDIFFERENCE),
            wear: wear.filter(|c| c.ratio.is_finite()).map(|c| Difference::of(&c, WEAR_INDIFFERENCE)),
        }
    };
    let others = device.policies.iter().filter(|p| !p.bound && !p.unswept && p.policy != recommended);
    others.map(cost).collect()
}
