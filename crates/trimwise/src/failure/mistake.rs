//! Describes a wrong request as data: the field, its value, why it is wrong, and what would be accepted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Failure;
use super::words::{Door, Key, Words};
use crate::spelling::Accepted;

/// One thing that is wrong with a request or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mistake {
    /// The file and line with the mistake, if a file was read. Fields are then spelled as in a grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Box<Place>>,
    /// The fields of the request that are wrong; none if something else is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// Why it is wrong.
    pub why: Words,
    /// True if `why` continues a sentence whose subject is the field, as in `--check cannot be used with --days`.
    pub continues: bool,
    /// Mistakes behind this one, such as those in a file that the value names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Mistake>,
    /// What would be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Box<Accepted>>,
}

/// A field of a request, and the value that it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub key: Key,
    /// The value, as the user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub file: String,
    /// Counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Mistake {
    /// Makes a mistake that names no field.
    pub fn that(why: impl Into<Words>) -> Self {
        Self { why: why.into(), ..Self::default() }
    }

    /// Makes a mistake about a field with this value.
    pub fn of(key: impl Into<Key>, value: impl fmt::Display) -> Self {
        Self { asked: vec![Asked { key: key.into(), value: Some(value.to_string()) }], ..Self::default() }
    }

    /// Makes a mistake about a field, whatever its value.
    pub fn on(key: impl Into<Key>) -> Self {
        Self { asked: vec![Asked { key: key.into(), value: None }], ..Self::default() }
    }

    /// Adds the fields of another mistake, which contradict these.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.asked.extend(other.asked);
        self
    }

    /// Sets the reason.
    #[must_use]
    pub fn because(self, why: impl Into<Words>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// Sets the reason, in words that continue a sentence: `--check` `cannot be used with --days`.
    #[must_use]
    pub fn that_is(self, why: impl Into<Words>) -> Self {
        Self { continues: true, ..self.because(why) }
    }

    /// Sets what would be accepted.
    #[must_use]
    pub fn expected(self, accepted: impl Into<Accepted>) -> Self {
        Self { accepted: Some(Box::new(accepted.into())), ..self }
    }

    /// Sets the mistakes behind this one.
    #[must_use]
    pub fn with(self, inside: Mistakes) -> Self {
        Self { inside: inside.0, ..self }
    }

    /// Sets the file and line with the mistake.
    #[must_use]
    pub fn at(self, file: impl Into<String>, line: Option<usize>) -> Self {
        Self { at: Some(Box::new(Place { file: file.into(), line })), ..self }
    }

    /// Turns the mistake into a failure.
    pub fn fail(self) -> Failure {
        Failure::Usage(Mistakes(vec![self]))
    }

    /// Returns the first field that is wrong.
    pub fn key(&self) -> Option<&Key> {
        self.asked.first().map(|asked| &asked.key)
    }

    /// Writes the mistake, with fields spelled for this door.
    pub fn write(&self, door: Door, f: &mut dyn fmt::Write) -> fmt::Result {
        let door = if self.at.is_some() { Door::Grid } else { door };
        if let Some(Place { file, line }) = self.at.as_deref() {
            write!(f, "{file}:")?;
            line.iter().try_for_each(|line| write!(f, "{line}:"))?;
            f.write_char(' ')?;
        }
        let asked: Vec<String> =
            self.asked.iter().map(|asked| door.named(&asked.key, asked.value.as_deref())).collect();
        f.write_str(&asked.join(" and "))?;
        let has_why = !self.why.is_empty() || !self.inside.is_empty();
        if !asked.is_empty() && (has_why || self.accepted.is_some()) {
            f.write_str(if self.continues { " " } else { ": " })?;
        }
        self.why.write(door, f)?;
        for (number, inside) in self.inside.iter().enumerate() {
            let is_first = number == 0 && self.why.is_empty();
            f.write_str(if is_first { "" } else { "\n" })?;
            inside.write(door, f)?;
        }
        match &self.accepted {
            Some(accepted) => {
                f.write_str(if has_why { "; " } else { "" })?;
                accepted.write(door, f)
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Mistake {
    /// Spells fields as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Door::Command, f)
    }
}

/// Everything that is wrong with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// Collects the mistakes of a check, each once, for [`Self::end`]. Other failures are returned at once.
    pub fn keep<T>(&mut self, checked: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match checked {
            Ok(good) => Ok(Some(good)),
            Err(Failure::Usage(mistakes)) => {
                for mistake in mistakes.0 {
                    if !self.0.contains(&mistake) {
                        self.0.push(mistake);
                    }
                }
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Fails if any mistakes were collected.
    pub fn end(&mut self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::Usage(std::mem::take(self))) }
    }

    /// Runs all checks, and fails with all of their mistakes.
    pub fn of(checks: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
        let mut mistakes = Self::default();
        checks.into_iter().try_for_each(|checked| mistakes.keep(checked).map(drop))?;
        mistakes.end()
    }

    /// Writes each mistake on lines of its own, with fields spelled for this door.
    pub fn write(&self, door: Door, f: &mut dyn fmt::Write) -> fmt::Result {
        for (number, mistake) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            mistake.write(door, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Mistakes {
    /// Spells fields as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Door::Command, f)
    }
}
