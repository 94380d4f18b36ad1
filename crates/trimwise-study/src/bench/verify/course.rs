//! One measure of speed through the stages of the torture, and which of its changes stand out from the noise.

use trimwise::compare::statistics::{Sample, compare};

use super::{Evidence, Measured, Speed};

/// Below this share of its clean speed, a device has something to restore.
const SLOWED: f64 = 0.9;
/// From this share of its clean speed on, it is restored.
const RESTORED: f64 = 0.9;
/// If less than this share of the loss came back, TRIM restored nothing.
const NOTHING_BACK: f64 = 0.1;
/// Below this share of the speed before TRIM, TRIM has made the device slower.
const WORSE: f64 = 0.8;

/// Samples of one measure at each stage.
pub(super) struct Course {
    what: &'static str,
    clean: Sample,
    tortured: Sample,
    trimmed: Sample,
    again: Sample,
}

impl Course {
    /// `None` if a stage was not measured.
    pub(super) fn of(
        what: &'static str,
        evidence: &Evidence,
        figure: impl Fn(&Speed) -> f64,
        figures: impl Fn(&Measured) -> &Vec<f64>,
    ) -> Option<Self> {
        let stages = evidence.speeds.stages();
        let sample = |i: usize| match figures(&evidence.measured[i]).as_slice() {
            [] => Sample::new(vec![stages[i].1.as_ref().map(&figure)?], true),
            // A single value comes from a model, which has no noise.
            values => Sample::new(values.to_vec(), values.len() == 1),
        };
        Some(Self { what, clean: sample(0)?, tortured: sample(1)?, trimmed: sample(2)?, again: sample(3)? })
    }

    /// Returns whether one stage is below this share of another; `None` if the noise does not allow a decision. The
    /// stage after TRIM is measured twice and should be equally fast, so the difference shows the noise between stages.
    fn is_below(&self, one: &Sample, share: f64, other: &Sample) -> Option<bool> {
        let drift = match one.is_exact() && other.is_exact() {
            true => 1.0,
            false => {
                let ratio = compare(&self.trimmed, &self.again).ratio;
                ratio.max(1.0 / ratio)
            }
        };
        let interval = compare(one, other).interval;
        match (interval.low / drift, interval.high * drift) {
            (_, high) if high < share => Some(true),
            (low, _) if low >= share => Some(false),
            _ => None,
        }
    }

    pub(super) fn is_slowed(&self) -> Option<bool> {
        self.is_below(&self.tortured, SLOWED, &self.clean)
    }

    pub(super) fn is_restored(&self) -> Option<bool> {
        self.is_below(&self.trimmed, RESTORED, &self.clean).map(|is_below| !is_below)
    }

    pub(super) fn is_nothing_back(&self) -> Option<bool> {
        let (clean, tortured) = (self.clean.median(), self.tortured.median());
        self.is_below(&self.trimmed, 1.0 + NOTHING_BACK * (clean - tortured) / tortured, &self.tortured)
    }

    pub(super) fn is_worse(&self) -> Option<bool> {
        self.is_below(&self.trimmed, WORSE, &self.tortured)
    }

    pub(super) fn sentence(&self) -> String {
        let [clean, tortured, trimmed, again] =
            [&self.clean, &self.tortured, &self.trimmed, &self.again].map(Sample::median);
        let second = if (again - trimmed).abs() <= 0.1 * trimmed {
            "a second TRIM changes nothing".to_owned()
        } else {
            format!("a second TRIM: {again:.0} MB/s")
        };
        let what = self.what;
        format!("{what}: {clean:.0} MB/s clean, {tortured:.0} tortured, {trimmed:.0} after TRIM; {second}")
    }
}

pub(super) fn all(courses: &[&Course], is: impl Fn(&Course) -> Option<bool>) -> Option<bool> {
    courses.iter().try_fold(true, |all, course| is(course).map(|one| all && one))
}
