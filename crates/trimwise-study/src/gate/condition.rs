//! `[FIGURE of] SUBJECT > VALUE` or `[FIGURE of] SUBJECT > OTHER by N %`, and the same with `<`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use trimwise::compare::result::Measure;
use trimwise::failure::Mistake;
use trimwise::spelling::Accepted;

use super::Terms;
use crate::input::usual_name;

/// Stands for the same subject in the saved result.
pub const BASELINE: &str = "baseline";

/// A condition under which a command fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// As written.
    text: String,
    /// `None`: the command's usual one.
    pub figure: Option<String>,
    pub subject: String,
    pub is_above: bool,
    pub limit: Limit,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// A number and its unit, which the figure decides about.
    Value {
        number: f64,
        unit: String,
    },
    By {
        other: String,
        percent: f64,
    },
}

const EXPECTED: &str = "expected [FIGURE of] NAME > VALUE or [FIGURE of] NAME > OTHER by N %, or the same with <, such \
                        as 'commit > off by 5 %' or 'p99:fsync of commit > 10 ms'";

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| format!("{why}; {EXPECTED}");
        let at = text.find(['>', '<']).ok_or_else(|| refused("there is no > or <"))?;
        let (left, right) = (&text[..at], text[at + 1..].trim());
        let (figure, subject) = match left.split_once(" of ") {
            Some((figure, subject)) => (Some(figure.trim().to_owned()), subject.trim()),
            None => (None, left.trim()),
        };
        if subject.is_empty() || figure.as_ref().is_some_and(String::is_empty) {
            return Err(refused("there is no name before it"));
        }
        if right.is_empty() || right.contains(['>', '<', '=']) {
            return Err(refused("there is no value or name after it"));
        }
        let limit = if right.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
            let (number, unit) =
                number_and_unit(right).ok_or_else(|| refused(&format!("'{right}' is no value")))?;
            Limit::Value { number, unit: unit.to_owned() }
        } else {
            let (other, by) = right.rsplit_once(" by ").unwrap_or((right, "0 %"));
            let percent = number_and_unit(by.trim()).filter(|(number, unit)| *unit == "%" && *number >= 0.0);
            let (percent, _) = percent.ok_or_else(|| refused(&format!("'{by}' is no percentage")))?;
            Limit::By { other: other.trim().to_owned(), percent }
        };
        Ok(Self {
            text: text.trim().to_owned(),
            figure,
            subject: subject.to_owned(),
            is_above: text[at..].starts_with('>'),
            limit,
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Splits `10 ms` or `10ms`.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// Returns whether a name in a condition means this subject; `discard` means `commit`.
pub(super) fn names(written: &str, subject: &str) -> bool {
    written == subject || usual_name(written) == subject
}

/// A condition in the terms of a command.
pub(super) struct InTerms {
    pub figure: Cow<'static, str>,
    /// The limit in the unit of the figure, if it is a value.
    pub value: f64,
}

impl Condition {
    /// Returns the condition with other names.
    #[must_use]
    pub fn renamed(&self, rename: impl Fn(&str) -> String) -> Self {
        let limit = match &self.limit {
            Limit::By { other, percent } if other != BASELINE => {
                Limit::By { other: rename(other), percent: *percent }
            }
            limit => limit.clone(),
        };
        Self { subject: rename(&self.subject), limit, ..self.clone() }
    }

    /// Returns the condition, and the latency that it is about; `None` if it is about another figure.
    pub(super) fn latency(&self) -> Option<(&Self, Measure)> {
        let measure = self.figure.as_deref()?.parse().ok()?;
        matches!(measure, Measure::Latency(..)).then_some((self, measure))
    }

    pub(super) fn read(&self, terms: &Terms, has_baseline: bool) -> Result<InTerms, Mistake> {
        let refused = |why: String| Mistake::of("fail_if", self).because(why);
        let figures: Vec<&str> = terms.figures.iter().map(|(name, _)| &**name).collect();
        let named = self.figure.as_deref().or(terms.usual);
        let Some(named) = named else {
            let expected =
                Accepted::from(format!("FIGURE of {}, with one of {}", self.subject, figures.join(", ")));
            return Err(refused("names no figure".to_owned()).expected(expected));
        };
        let Some((figure, unit)) = terms.figures.iter().find(|(name, _)| name == named) else {
            let why = match terms.of_several_runs.contains(&named) {
                true => {
                    format!("`{named}` is a figure of several runs, and only those of each run are judged")
                }
                false => format!("there is no figure `{named}`"),
            };
            let all = super::listed(&figures);
            return Err(refused(why).expected(Accepted::instead_of(named, figures.iter().copied(), all)));
        };
        let other = match &self.limit {
            Limit::By { other, .. } if other == BASELINE && !has_baseline => {
                return Err(refused("there is no saved result to compare with".to_owned())
                    .expected(trimwise::words![trimwise::failure::key("baseline"), " with it"]));
            }
            Limit::By { other, .. } if other != BASELINE => Some(other),
            _ => None,
        };
        let all: Vec<&str> = terms.subjects.iter().map(String::as_str).collect();
        for name in std::iter::once(&self.subject).chain(other).filter(|_| !all.is_empty()) {
            if !all.iter().any(|subject| names(name, subject)) {
                let why = format!("`{name}` is not among the {} of this run", terms.kind);
                return Err(refused(why).expected(Accepted::one_of(name, &all)));
            }
        }
        let value = match &self.limit {
            Limit::By { .. } => 0.0,
            Limit::Value { number, unit: written } => unit.scaled(*number, written).ok_or_else(|| {
                let why = if written.is_empty() {
                    format!("{number} has no unit")
                } else {
                    format!("'{written}' is no unit of {named}")
                };
                refused(why).expected(Accepted::from(unit.expected()))
            })?,
        };
        Ok(InTerms { figure: figure.clone(), value })
    }
}
