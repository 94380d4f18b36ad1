//! What is wrong with a request, as data: what was asked for, the value, why, and what would be accepted.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Failure;
use super::words::{Door, Key, Words};
use crate::spelling::Accepted;

/// One thing that is wrong with a request or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mistake {
    /// The file that it is in. Keys in it are those of a grid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Box<Place>>,
    /// The fields of the request that it is about; none if it is about something else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// Why it is wrong.
    pub why: Words,
    /// Whether `why` continues a sentence whose subject is what was asked for.
    pub continues: bool,
    /// What is wrong inside of it, such as in a file that a value names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Mistake>,
    /// What would be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Box<Accepted>>,
}

/// A field of a request, and the value that it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The field.
    pub key: Key,
    /// Its value, as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl Mistake {
    /// Says only what is wrong.
    pub fn that(why: impl Into<Words>) -> Self {
        Self { why: why.into(), ..Self::default() }
    }

    /// Begins with the value of a field.
    pub fn of(key: impl Into<Key>, value: impl fmt::Display) -> Self {
        Self { asked: vec![Asked { key: key.into(), value: Some(value.to_string()) }], ..Self::default() }
    }

    /// Begins with a field.
    pub fn on(key: impl Into<Key>) -> Self {
        Self { asked: vec![Asked { key: key.into(), value: None }], ..Self::default() }
    }

    /// Adds a field that contradicts the first.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.asked.extend(other.asked);
        self
    }

    /// Says why.
    #[must_use]
    pub fn because(self, why: impl Into<Words>) -> Self {
        Self { why: why.into(), ..self }
    }

    /// Says why, in words that continue a sentence: `--check` `does not go with --days`.
    #[must_use]
    pub fn that_is(self, why: impl Into<Words>) -> Self {
        Self { continues: true, ..self.because(why) }
    }

    /// Says what would be accepted.
    #[must_use]
    pub fn expected(self, accepted: impl Into<Accepted>) -> Self {
        Self { accepted: Some(Box::new(accepted.into())), ..self }
    }

    /// Says what is wrong inside of it.
    #[must_use]
    pub fn with(self, inside: Mistakes) -> Self {
        Self { inside: inside.0, ..self }
    }

    /// Says in which file it is.
    #[must_use]
    pub fn at(self, file: impl Into<String>, line: Option<usize>) -> Self {
        Self { at: Some(Box::new(Place { file: file.into(), line })), ..self }
    }

    /// Makes a failure of it.
    pub fn fail(self) -> Failure {
        Failure::Usage(Mistakes(vec![self]))
    }

    /// The first field that it is about.
    pub fn key(&self) -> Option<&Key> {
        self.asked.first().map(|asked| &asked.key)
    }

    /// Writes it with the words of a door.
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
    /// Writes it as the command line spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Door::Command, f)
    }
}

/// All that is wrong with a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// Keeps what is wrong for [`Self::end`], each mistake once. Returns a failure of another kind at once.
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

    /// Fails with all that was kept.
    pub fn end(&mut self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::Usage(std::mem::take(self))) }
    }

    /// Makes all checks, and fails with all mistakes.
    pub fn of(checks: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
        let mut mistakes = Self::default();
        checks.into_iter().try_for_each(|checked| mistakes.keep(checked).map(drop))?;
        mistakes.end()
    }

    /// Writes each on lines of its own with the words of a door.
    pub fn write(&self, door: Door, f: &mut dyn fmt::Write) -> fmt::Result {
        for (number, mistake) in self.0.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "\n" })?;
            mistake.write(door, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Mistakes {
    /// Writes them as the command line spells them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(Door::Command, f)
    }
}
