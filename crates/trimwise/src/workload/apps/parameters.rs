//! Parameters of named workloads, and their notation: `lsm:operations=200k,value=1KiB,scale=2`.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use super::{ALL, Application};
use crate::units::Bytes;

/// Parameters that every workload has, after its own.
pub(super) const COMMON: [Parameter; 2] = [
    Parameter::count("tasks", 1, 1, 64, "copies that run at the same time, each in its own directory", "-"),
    Parameter::count("scale", 1, 1, 10_000, "factor for the parameters marked with *", "-"),
];

/// Type of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number, with `k` or `M` for thousands and millions.
    Count,
    /// A number of bytes, with a unit.
    Size,
    /// A share in percent.
    Percent,
}

/// A parameter of a named workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Name of the parameter, before the `=`.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Value if the parameter is not given.
    pub default: u64,
    /// Smallest accepted value.
    pub min: u64,
    /// Largest accepted value.
    pub max: u64,
    /// True if `scale` multiplies the value.
    pub scales: bool,
    /// Meaning of the parameter, for the user.
    pub about: &'static str,
    /// Source of the default, or "assumed".
    pub source: &'static str,
}

impl Parameter {
    pub(super) const fn count(
        name: &'static str,
        default: u64,
        min: u64,
        max: u64,
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Count, default, min, max, scales: false, about, source }
    }

    pub(super) const fn size(
        name: &'static str,
        default: Bytes,
        min: Bytes,
        max: Bytes,
        about: &'static str,
        source: &'static str,
    ) -> Self {
        let (default, min, max) = (default.0, min.0, max.0);
        Self { name, kind: Kind::Size, default, min, max, scales: false, about, source }
    }

    pub(super) const fn percent(
        name: &'static str,
        default: u64,
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Percent, default, min: 0, max: 100, scales: false, about, source }
    }

    pub(super) const fn scaled(self) -> Self {
        Self { scales: true, ..self }
    }

    /// Formats a value as it is parsed.
    pub fn shown(&self, value: u64) -> String {
        match self.kind {
            Kind::Size => exact(Bytes(value)),
            Kind::Percent => value.to_string(),
            Kind::Count if value > 0 && value.is_multiple_of(1_000_000) => format!("{}M", value / 1_000_000),
            Kind::Count if value > 0 && value.is_multiple_of(1_000) => format!("{}k", value / 1_000),
            Kind::Count => value.to_string(),
        }
    }

    fn parse(&self, text: &str) -> Option<u64> {
        match self.kind {
            Kind::Size => text.parse::<Bytes>().ok().map(|bytes| bytes.0),
            Kind::Percent => text.parse().ok(),
            Kind::Count => {
                let (digits, factor) = match text.strip_suffix(['k', 'K']) {
                    Some(digits) => (digits, 1_000),
                    None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1_000_000)),
                };
                digits.parse::<u64>().ok()?.checked_mul(factor)
            }
        }
    }

    fn expected(&self) -> String {
        let what = match self.kind {
            Kind::Count => "a number",
            Kind::Size => "a size",
            Kind::Percent => "a percentage",
        };
        format!("{what} from {} to {}", self.shown(self.min), self.shown(self.max))
    }
}

/// Formats a size in the largest binary unit of which it is a multiple.
pub(crate) fn exact(bytes: Bytes) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes.0 >> shift),
        None => bytes.0.to_string(),
    }
}

/// A named workload's description.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Spec {
    /// Name on the command line.
    pub name: &'static str,
    /// Description of the workload in a sentence or two.
    pub about: &'static str,
    /// Parameters of this workload alone.
    pub parameters: &'static [Parameter],
}

impl Spec {
    /// Iterates over all parameters, with those that every workload has at the end.
    pub fn all(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().chain(&COMMON)
    }
}

/// Error for a named workload that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("workload '{given}', column {column}: {what}; expected {expected}")]
pub struct ApplicationError {
    /// The text that was given.
    pub given: String,
    /// Column of the error, in characters, from 1.
    pub column: usize,
    /// Description of the error.
    pub what: String,
    /// Description of accepted text.
    pub expected: String,
}

impl std::str::FromStr for Application {
    type Err = ApplicationError;

    fn from_str(given: &str) -> Result<Self, ApplicationError> {
        let wrong = |at: usize, what: String, expected: String| ApplicationError {
            given: given.to_owned(),
            column: given[..at].chars().count() + 1,
            what,
            expected,
        };
        let (name, rest) = given.split_once(':').map_or((given, None), |(name, rest)| (name, Some(rest)));
        let Some(spec) = ALL.iter().find(|spec| spec.name == name) else {
            let names: Vec<&str> = ALL.iter().map(|spec| spec.name).collect();
            return Err(wrong(0, format!("unknown workload '{name}'"), names.join(", ")));
        };
        let mut values: Vec<Option<u64>> = vec![None; spec.all().count()];
        let mut at = name.len() + 1;
        for field in rest.iter().flat_map(|rest| rest.split(',')) {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            let Some((index, parameter)) = spec.all().enumerate().find(|(_, p)| p.name == key) else {
                let names: Vec<String> = spec.all().map(|p| format!("{}=", p.name)).collect();
                let what = format!("{name} has no parameter '{key}'");
                return Err(wrong(at, what, names.join(", ")));
            };
            let value_at = (at + key.len() + 1).min(given.len());
            let Some(parsed) = parameter.parse(value) else {
                let what = format!("'{value}' is not a value of {key}");
                return Err(wrong(value_at, what, parameter.expected()));
            };
            if !(parameter.min..=parameter.max).contains(&parsed) {
                let what =
                    format!("'{value}' is too {}", if parsed < parameter.min { "small" } else { "large" });
                return Err(wrong(value_at, what, parameter.expected()));
            }
            if values[index].replace(parsed).is_some() {
                return Err(wrong(at, format!("'{key}' is given twice"), "it once".to_owned()));
            }
            at += field.len() + 1;
        }
        let values = spec.all().zip(values).map(|(p, value)| value.unwrap_or(p.default)).collect();
        Ok(Self { spec, values })
    }
}

impl fmt::Display for Application {
    /// Writes the values that differ from the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec.name)?;
        let given = self.spec.all().zip(&self.values).filter(|(p, value)| p.default != **value);
        for (i, (parameter, &value)) in given.enumerate() {
            let mark = if i == 0 { ':' } else { ',' };
            write!(f, "{mark}{}={}", parameter.name, parameter.shown(value))?;
        }
        Ok(())
    }
}
