//! Why an experiment or a command ends without a result.

#[cfg(test)]
mod lint;
mod mistake;
#[cfg(test)]
mod tests;
mod words;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::words;
pub use mistake::{Asked, Mistake, Mistakes, Place};
pub use words::{Door, Key, Piece, Words, argument, key, set};

/// Maximum length of a line of a message, in characters. What is longer quotes more than anybody reads.
const LINE_MAX: usize = 1000;

/// Shortens a line of a message in the middle: the beginning says what is wrong, and the end often why.
pub fn cut(line: &str) -> Cow<'_, str> {
    shortened(line, LINE_MAX)
}

/// Shortens a text in the middle to about as many characters as `most`.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.chars().nth(most).is_none() {
        return text.into();
    }
    let at = |(index, _): (usize, char)| index;
    let begin = text.char_indices().nth(most * 2 / 3).map_or(text.len(), at);
    let end = text.char_indices().nth_back((most / 3).saturating_sub(1)).map_or(0, at);
    format!("{} [...] {}", &text[..begin], &text[end..]).into()
}

/// Why there is no result; its text is for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The request or a file given is wrong, and nothing was run.
    Usage(Mistakes),
    /// A run, or writing its result, failed.
    Run(Words),
    /// Nothing wrong was found, but not everything could be checked.
    Unchecked(String),
    Interrupted,
}

impl Failure {
    /// Returns the message, with fields spelled for this door.
    pub fn at(&self, door: Door) -> String {
        let mut said = String::new();
        match self {
            // Writing to a string cannot fail.
            Self::Usage(mistakes) => drop(mistakes.write(door, &mut said)),
            Self::Run(why) => drop(why.write(door, &mut said)),
            Self::Unchecked(message) => said.push_str(message),
            Self::Interrupted => said.push_str("interrupted"),
        }
        said.split('\n').map(cut).collect::<Vec<_>>().join("\n")
    }

    /// Turns all fields into positional arguments, for readers who know only their values.
    #[must_use]
    pub fn unasked(self) -> Self {
        let Self::Usage(Mistakes(mut mistakes)) = self else { return self };
        for asked in mistakes.iter_mut().flat_map(|mistake| &mut mistake.asked) {
            asked.key = asked.key.clone().as_argument();
        }
        Self::Usage(Mistakes(mistakes))
    }

    pub fn run(message: impl fmt::Display) -> Self {
        Self::Run(message.to_string().into())
    }

    /// Adds the name of the run to its failure.
    #[must_use]
    pub fn in_run(self, run: impl fmt::Display) -> Self {
        match self {
            Self::Run(why) => Self::Run(words![format!("{run}: "), why]),
            other => other,
        }
    }

    /// Reports two failures of one run.
    #[must_use]
    pub fn and(self, between: &str, other: Self) -> Self {
        let why = |failure| if let Self::Run(why) = failure { why } else { failure.to_string().into() };
        Self::Run(words![why(self), between, why(other)])
    }

    /// Reports a run that panicked, with the panic's message.
    pub fn defect(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Self::run(format!("a defect in the model: {said}"))
    }
}

impl fmt::Display for Failure {
    /// Spells fields as on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at(Door::Command))
    }
}
