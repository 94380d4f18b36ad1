//! Parameters of named workloads, and their notation: `lsm:operations=200k,value=1KiB,scale=2`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use thiserror::Error;

use super::{ALL, Application, Named};
use crate::spelling::Accepted;
use crate::units::Bytes;

/// Declares the parameters of a workload, each once: as a typed field of a struct, for the workload, and in the
/// struct's `LIST`, for people. `read` makes the struct, given how to find the value of a parameter.
///
/// A declaration is the field, its kind, and the arguments of the function of [`Parameter`] of that name; `.scaled()`
/// at its end marks a parameter that `scale` multiplies.
macro_rules! parameters {
    (@type size) => { $crate::units::Bytes };
    (@type millis) => { $crate::units::SimDuration };
    (@type $number:ident) => { u64 };
    (@of size) => { $crate::units::Bytes };
    (@of millis) => { $crate::units::SimDuration::from_millis };
    (@of $number:ident) => { std::convert::identity };
    ($(#[$attribute:meta])* $public:vis struct $Name:ident {
        $($field:ident: $kind:ident($($declared:expr),* $(,)?) $(.$scaled:ident())?,)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $public struct $Name {
            $(pub $field: parameters!(@type $kind),)*
        }

        impl $Name {
            pub const LIST: &'static [Parameter] =
                &[$(Parameter::$kind(stringify!($field), $($declared),*) $(.$scaled())?),*];

            pub fn read(value: $crate::workload::apps::parameters::Values<'_>) -> Self {
                Self {
                    $($field: parameters!(@of $kind)(value(
                        &Parameter::$kind(stringify!($field), $($declared),*) $(.$scaled())?,
                    )),)*
                }
            }
        }
    };
}
pub(super) use parameters;

pub(super) type Values<'a> = &'a dyn Fn(&Parameter) -> u64;

parameters! {
    /// Parameters that every workload has, after its own.
    pub(super) struct Common {
        tasks: count(1, 1, 64, "copies that run at the same time, each in its own directory", "-"),
        scale: count(1, 1, 10_000, "factor for the parameters marked with *", "-"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number, with `k` or `M` for thousands and millions.
    Count,
    Size,
    Percent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub default: u64,
    pub min: u64,
    pub max: u64,
    /// `scale` multiplies the value.
    pub scales: bool,
    /// The value shrinks with the drive ([`Application::scaled`]) although `scale` leaves it.
    #[serde(skip)]
    pub shrinks: bool,
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
        Self { name, kind: Kind::Count, default, min, max, scales: false, shrinks: false, about, source }
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
        Self { name, kind: Kind::Size, default, min, max, scales: false, shrinks: false, about, source }
    }

    /// A count of milliseconds, as people see it; a duration for the workload.
    pub(super) const fn millis(
        name: &'static str,
        default: u64,
        min: u64,
        max: u64,
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self::count(name, default, min, max, about, source)
    }

    pub(super) const fn percent(
        name: &'static str,
        default: u64,
        about: &'static str,
        source: &'static str,
    ) -> Self {
        Self {
            name,
            kind: Kind::Percent,
            default,
            min: 0,
            max: 100,
            scales: false,
            shrinks: false,
            about,
            source,
        }
    }

    pub(super) const fn scaled(self) -> Self {
        Self { scales: true, ..self }
    }

    /// Marks a size or an interval that decides how often something happens. If it stayed as it is when the drive
    /// shrinks, there would be fewer checkpoints, levels or rotations instead of smaller ones.
    pub(super) const fn shrinks(self) -> Self {
        Self { shrinks: true, ..self }
    }

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

#[derive(Debug)]
pub struct Spec {
    pub name: &'static str,
    pub about: &'static str,
    pub parameters: &'static [Parameter],
    pub(super) read: fn(Values<'_>) -> Named,
}

impl Spec {
    /// Iterates over all parameters, with those that every workload has at the end.
    pub fn all(&self) -> impl Iterator<Item = &'static Parameter> {
        self.parameters.iter().chain(Common::LIST)
    }

    /// Parses `KEY=VALUE`. An error has the offset of the mistake in the text, what it is, and what is accepted.
    fn parse(&self, text: &str) -> Result<(&'static str, u64), (usize, String, Accepted)> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let Some(parameter) = self.all().find(|p| p.name == key) else {
            let forms: Vec<String> = self.all().map(|p| format!("{}=", p.name)).collect();
            let accepted = Accepted::instead_of(key, self.all().map(|p| p.name), forms.join(", "));
            return Err((0, format!("{} has no parameter '{key}'", self.name), accepted));
        };
        let what = match parameter.parse(value) {
            None => format!("'{value}' is not a value of {key}"),
            Some(parsed) if parsed < parameter.min => format!("'{value}' is too small"),
            Some(parsed) if parsed > parameter.max => format!("'{value}' is too large"),
            Some(parsed) => return Ok((parameter.name, parsed)),
        };
        Err((key.len() + 1, what, parameter.expected().into()))
    }
}

/// Separator of applications that run side by side.
pub(crate) const AND: char = '+';

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("workload '{given}', {}", listed(.mistakes))]
pub struct WorkloadError {
    pub given: String,
    /// All mistakes, from left to right; never empty.
    pub mistakes: Vec<Mistake>,
}

/// A mistake in a workload's text, and where it is.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("column {column}: {what}; {expected}")]
pub struct Mistake {
    /// Column of the mistake, in characters, from 1.
    pub column: usize,
    pub what: String,
    pub expected: Accepted,
}

impl Mistake {
    /// Describes a mistake in `given`, `offset` bytes from its beginning.
    pub(crate) fn at(given: &str, offset: usize, what: String, expected: impl Into<Accepted>) -> Self {
        Self { column: given[..offset].chars().count() + 1, what, expected: expected.into() }
    }
}

fn listed(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("; ")
}

impl Application {
    /// Parses applications that run side by side, with a `+` between them.
    ///
    /// # Errors
    /// All mistakes in all of them.
    pub(crate) fn parse_all(given: &str) -> Result<Vec<Self>, WorkloadError> {
        let (mut all, mut mistakes, mut before) = (Vec::new(), Vec::new(), 0);
        for text in given.split(AND) {
            match text.parse::<Self>() {
                Ok(application) => all.push(application),
                Err(error) => mistakes.extend(
                    error.mistakes.into_iter().map(|it| Mistake { column: it.column + before, ..it }),
                ),
            }
            before += text.chars().count() + 1;
        }
        if mistakes.is_empty() { Ok(all) } else { Err(WorkloadError { given: given.to_owned(), mistakes }) }
    }
}

impl std::str::FromStr for Application {
    type Err = WorkloadError;

    fn from_str(given: &str) -> Result<Self, WorkloadError> {
        let wrong = |mistakes| Err(WorkloadError { given: given.to_owned(), mistakes });
        let (name, rest) = given.split_once(':').map_or((given, None), |(name, rest)| (name, Some(rest)));
        let Some(spec) = ALL.iter().find(|spec| spec.name == name) else {
            let names: Vec<&str> = ALL.iter().map(|spec| spec.name).collect();
            let what = format!("unknown workload '{name}'");
            return wrong(vec![Mistake::at(given, 0, what, Accepted::one_of(name, &names))]);
        };
        let (mut values, mut mistakes) = (BTreeMap::new(), Vec::new());
        let mut at = name.len() + 1;
        for field in rest.iter().flat_map(|rest| rest.split(',')) {
            let mistake = match spec.parse(field) {
                Err(mistake) => Some(mistake),
                Ok((key, value)) => (values.insert(key, value).is_some())
                    .then(|| (0, format!("'{key}' is given twice"), "it once".into())),
            };
            mistakes.extend(mistake.map(|(offset, what, expected)| {
                Mistake::at(given, (at + offset).min(given.len()), what, expected)
            }));
            at += field.len() + 1;
        }
        if !mistakes.is_empty() {
            return wrong(mistakes);
        }
        let value = |p: &Parameter| values.get(p.name).copied().unwrap_or(p.default);
        Ok(Self::of(spec, &value))
    }
}

impl Application {
    pub(super) fn of(spec: &'static Spec, value: Values<'_>) -> Self {
        let common = Common::read(value);
        let own = (spec.read)(&|p| if p.scales { value(p).saturating_mul(common.scale) } else { value(p) });
        let given = spec.all().map(|p| (p, value(p))).filter(|(p, value)| p.default != *value).collect();
        Self { name: spec.name, given, common, own }
    }
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (i, (parameter, value)) in self.given.iter().enumerate() {
            let mark = if i == 0 { ':' } else { ',' };
            write!(f, "{mark}{}={}", parameter.name, parameter.shown(*value))?;
        }
        Ok(())
    }
}
