//! Conditions on a result, and what changed since a saved one.
//!
//! [`Measured`] is a figure of a policy, a device test or a stage of `verify`. Conditions ([`Condition`]) and changes
//! ([`Since`]) are judged on these alone, with the tests of `compare`: a difference within noise is none.

mod condition;
mod measured;
mod of_compare;
mod saved;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::Serialize;
use trimwise::compare::statistics::{Comparison, RUNS_FOR_TEST, Sample, compare};
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::spelling::Accepted;

pub use condition::{BASELINE, Condition, Limit};
pub use measured::{Unit, of_cells, of_stages};
pub use of_compare::CompareGate;
use saved::compare_baseline;
pub use saved::{Alike, expect_alike, read, version_note};

/// All runs of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Tells apart what has the same name: the drive, or which of several equal tests. May be empty.
    pub place: String,
    /// The policy, test or stage.
    pub subject: String,
    pub figure: Cow<'static, str>,
    pub unit: Unit,
    pub sample: Sample,
    /// Whether a change since a saved result is shown.
    pub is_tracked: bool,
}

/// What conditions of a command can be about.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Kinds of subjects in messages, as in "policies".
    pub kind: &'static str,
    /// Empty if they are known only after the run.
    pub subjects: Vec<String>,
    pub figures: Vec<(Cow<'static, str>, Unit)>,
    /// Figures that the command shows, but of several runs together, so that there is no noise to judge by.
    pub of_several_runs: Vec<&'static str>,
    /// The figure of a condition that names none.
    pub usual: Option<&'static str>,
}

/// The conditions of a request, and the saved result to compare with.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    pub conditions: Vec<Condition>,
    pub then: Option<Then>,
}

/// A saved result that can be compared with.
#[derive(Clone, Debug, Default)]
pub struct Then {
    pub file: String,
    pub trimwise: String,
    pub measured: Vec<Measured>,
    /// Differences that do not prevent a comparison.
    pub notes: Vec<String>,
}

/// An answer with what was judged of it, as JSON.
#[derive(Debug, Serialize)]
pub struct Gated<'a, T> {
    #[serde(flatten)]
    pub answer: &'a T,
    #[serde(flatten)]
    pub judged: &'a Judged,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Judged {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Why conditions, or the saved result, could not be judged.
    #[serde(skip)]
    pub refused: Vec<Mistake>,
}

/// How a condition turned out in one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub condition: String,
    pub place: String,
    pub result: Held,
    pub figure: Cow<'static, str>,
    /// Unit of the values.
    pub unit: Unit,
    /// The median.
    pub value: f64,
    /// The limit, or the median of what is compared with.
    pub other: f64,
    /// Excess over what is compared with; `None` for a limit that is a value.
    pub excess_percent: Option<f64>,
    /// Of the test of the difference; `None` if there is no test, or nothing is left to chance.
    pub p: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Holds,
    DoesNotHold,
    /// The medians fulfil the condition, but no difference is shown.
    WithinNoise,
    /// Like [`Self::WithinNoise`], with so few runs that no difference could be shown.
    TooFewRuns,
}

/// What changed since a saved result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Since {
    pub file: String,
    /// The version that saved it.
    pub trimwise: String,
    pub notes: Vec<String>,
    /// Number of figures compared.
    pub compared: usize,
    /// Those that differ, with so few runs that no difference could be shown.
    pub untold: usize,
    pub changes: Vec<Change>,
}

/// A figure that changed beyond noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    pub place: String,
    pub subject: String,
    pub figure: Cow<'static, str>,
    pub unit: Unit,
    pub then: f64,
    pub now: f64,
    pub change_percent: f64,
    /// `None` if nothing is left to chance.
    pub p: Option<f64>,
}

impl Gate {
    /// Rejects conditions that cannot be judged, as far as that is known before the run.
    ///
    /// # Errors
    ///
    /// All conditions that name another subject or figure than those of the command, or a unit of another kind.
    pub fn check(&self, terms: &Terms) -> Result<(), Failure> {
        let checked = |condition: &Condition| {
            condition.read(terms, self.then.is_some()).map(drop).map_err(Mistake::fail)
        };
        Mistakes::of(self.conditions.iter().map(checked))
    }

    /// Judges a result. A condition is refused if the runs do not have what it names.
    pub fn judge(&self, now: &[Measured], terms: &Terms) -> Judged {
        let mut judged =
            Judged { since: self.then.as_ref().map(|then| Since::of(then, now)), ..Judged::default() };
        if let Some(since) = judged.since.as_ref().filter(|since| since.compared == 0) {
            let why = "it has no figure in common with this result";
            judged.refused.push(Mistake::of("baseline", &since.file).because(why));
        }
        for condition in &self.conditions {
            match self.judged(condition, now, terms) {
                Ok(outcomes) => judged.conditions.extend(outcomes),
                Err(mistake) => judged.refused.push(mistake),
            }
        }
        judged
    }

    fn judged(
        &self,
        condition: &Condition,
        now: &[Measured],
        terms: &Terms,
    ) -> Result<Vec<Outcome>, Mistake> {
        let refused = |why: String, expected: Vec<&str>| {
            Mistake::of("fail_if", condition).because(why).expected(Accepted::from(listed(&expected)))
        };
        let read = condition.read(terms, self.then.is_some())?;
        let of_subject = |subject: &str, all: &'_ [Measured]| -> Vec<Measured> {
            all.iter().filter(|m| condition::names(subject, &m.subject)).cloned().collect()
        };
        let own = of_subject(&condition.subject, now);
        if own.is_empty() {
            let why = format!("`{}` has no results", condition.subject);
            return Err(refused(why, distinct(now.iter().map(|m| &*m.subject))));
        }
        let of_figure: Vec<&Measured> = own.iter().filter(|m| m.figure == read.figure).collect();
        if of_figure.is_empty() {
            let why =
                format!("the runs of `{}` have no {} that can be judged", condition.subject, read.figure);
            return Err(refused(why, distinct(own.iter().map(|m| &*m.figure))));
        }
        let others = match &condition.limit {
            Limit::Value { .. } => Vec::new(),
            Limit::By { other, .. } if other == BASELINE => {
                let then = self.then.iter().flat_map(|then| &then.measured).cloned().collect::<Vec<_>>();
                of_subject(&condition.subject, &then)
            }
            Limit::By { other, .. } => of_subject(other, now),
        };
        let mut outcomes = Vec::new();
        for m in of_figure {
            let limit = match &condition.limit {
                Limit::Value { .. } => Against::Value(read.value),
                Limit::By { percent, other } => {
                    let is_same = |o: &&Measured| o.place == m.place && o.figure == m.figure;
                    let Some(found) = others.iter().find(is_same) else {
                        let why = format!("`{other}` has no {} to compare with", read.figure);
                        return Err(refused(why, distinct(now.iter().map(|m| &*m.subject))));
                    };
                    Against::Sample(&found.sample, *percent)
                }
            };
            outcomes.push(Outcome::of(condition, m, limit));
        }
        Ok(outcomes)
    }
}

/// Judges a result, if a saved one may turn out not to be comparable.
pub fn judged(
    conditions: &[Condition],
    then: Result<Option<Then>, Failure>,
    now: &[Measured],
    terms: &Terms,
) -> Judged {
    let (then, mistakes) = match then {
        Ok(then) => (then, Vec::new()),
        Err(Failure::Usage(mistakes)) => (None, mistakes.0),
        Err(failure) => (None, vec![Mistake::that(failure.to_string())]),
    };
    // Conditions on a saved result that was refused cannot be judged either, which is said already.
    let needs = |c: &&Condition| matches!(&c.limit, Limit::By { other, .. } if other == BASELINE);
    let conditions = conditions.iter().filter(|c| mistakes.is_empty() || !needs(c)).cloned().collect();
    let mut judged = Gate { conditions, then }.judge(now, terms);
    judged.refused.extend(mistakes);
    judged
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    names.for_each(|name| {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    });
    distinct
}

/// Lists names for a message. One quantile of each latency stands for all of them.
fn listed(names: &[&str]) -> String {
    let has_latencies = names.iter().any(|name| name.starts_with("p99:"));
    let is_shown = |name: &&&str| !has_latencies || !name.contains(':') || name.starts_with("p99:");
    let shown: Vec<&str> = names.iter().filter(is_shown).copied().collect();
    let more = if has_latencies { " (or p50, p99.9, max)" } else { "" };
    format!("one of {}{more}", shown.join(", "))
}

enum Against<'a> {
    Value(f64),
    /// The sample, and by how many percent.
    Sample(&'a Sample, f64),
}

impl Outcome {
    fn of(condition: &Condition, m: &Measured, against: Against<'_>) -> Self {
        let value = m.sample.median();
        let is_beyond =
            |value: f64, limit: f64| if condition.is_above { value > limit } else { value < limit };
        let (result, other, excess, p) = match against {
            Against::Value(limit) => {
                let interval = m.sample.interval();
                let nearer = if condition.is_above { interval.low } else { interval.high };
                // A single run has no interval.
                let is_clear = nearer.is_nan() || is_beyond(nearer, limit);
                let result = match is_beyond(value, limit) {
                    false => Held::DoesNotHold,
                    true if is_clear => Held::Holds,
                    true => Held::WithinNoise,
                };
                (result, limit, None, None)
            }
            Against::Sample(other, percent) => {
                let compared = compare(other, &m.sample);
                let excess = excess_percent(&compared);
                let limit = if condition.is_above { percent } else { -percent };
                let result = match is_beyond(excess, limit) {
                    false => Held::DoesNotHold,
                    true if compared.significant => Held::Holds,
                    true if are_too_few(&m.sample, other) => Held::TooFewRuns,
                    true => Held::WithinNoise,
                };
                (result, other.median(), Some(excess), compared.p)
            }
        };
        Self {
            condition: condition.to_string(),
            place: m.place.clone(),
            result,
            figure: m.figure.clone(),
            unit: m.unit,
            value,
            other,
            excess_percent: excess,
            p,
        }
    }
}

fn excess_percent(compared: &Comparison) -> f64 {
    (1.0 / compared.ratio - 1.0) * 100.0
}

/// Returns true if no difference between the samples could be significant.
fn are_too_few(a: &Sample, b: &Sample) -> bool {
    !(a.is_exact() && b.is_exact()) && a.values().len().min(b.values().len()) < RUNS_FOR_TEST
}

impl Since {
    fn of(then: &Then, now: &[Measured]) -> Self {
        let mut since = Self {
            file: then.file.clone(),
            trimwise: then.trimwise.clone(),
            notes: then.notes.clone(),
            compared: 0,
            untold: 0,
            changes: Vec::new(),
        };
        let subjects = |all: &[Measured]| -> Vec<String> {
            let name = |m: &Measured| {
                if m.place.is_empty() { m.subject.clone() } else { format!("{} on {}", m.subject, m.place) }
            };
            let names: Vec<String> = all.iter().map(name).collect();
            distinct(names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect()
        };
        let (before, after) = (subjects(&then.measured), subjects(now));
        let missing = |of: &[String], among: &[String]| -> Vec<String> {
            of.iter().filter(|name| !among.contains(name)).map(|name| format!("`{name}`")).collect()
        };
        let (new, gone) = (missing(&after, &before), missing(&before, &after));
        if !new.is_empty() {
            since.notes.push(format!("it does not have {}", new.join(", ")));
        }
        if !gone.is_empty() {
            since.notes.push(format!("only it has {}", gone.join(", ")));
        }
        for m in now.iter().filter(|m| m.is_tracked) {
            let is_same =
                |o: &&Measured| o.place == m.place && o.subject == m.subject && o.figure == m.figure;
            let Some(before) = then.measured.iter().find(is_same) else { continue };
            since.compared += 1;
            let compared = compare(&before.sample, &m.sample);
            let (then, now) = (before.sample.median(), m.sample.median());
            if compared.significant {
                since.changes.push(Change {
                    place: m.place.clone(),
                    subject: m.subject.clone(),
                    figure: m.figure.clone(),
                    unit: m.unit,
                    then,
                    now,
                    change_percent: excess_percent(&compared),
                    p: compared.p,
                });
            } else if then != now && are_too_few(&before.sample, &m.sample) {
                since.untold += 1;
            }
        }
        since
    }
}
