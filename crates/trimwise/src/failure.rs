//! Why an experiment or a command ends without a result.

#[cfg(test)]
mod lint;
mod mistake;
#[cfg(test)]
mod tests;
mod words;

use std::any::Any;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use mistake::{Asked, Mistake, Mistakes, Place};
pub use words::{Door, Key, Piece, Words, argument, key, set};

/// A message for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The request or a file given is wrong, and nothing was run.
    Usage(Mistakes),
    /// A run, or writing its result, failed.
    Run(Words),
    /// Nothing is known to be wrong, but not everything could be checked.
    Unchecked(String),
    Interrupted,
}

impl Failure {
    /// A wrong argument or input file, about which nothing is known but a message without names of fields.
    pub fn usage(message: impl fmt::Display) -> Self {
        Mistake::that(message.to_string()).fail()
    }

    /// Says it with the words of a door.
    pub fn at(&self, door: Door) -> String {
        let mut said = String::new();
        match self {
            // Writing to a string cannot fail.
            Self::Usage(mistakes) => drop(mistakes.write(door, &mut said)),
            Self::Run(why) => drop(why.write(door, &mut said)),
            other => said = other.to_string(),
        }
        said
    }

    /// The same where nobody gave the fields, but only their values are known to whoever reads it.
    #[must_use]
    pub fn unasked(self) -> Self {
        let Self::Usage(Mistakes(mut mistakes)) = self else { return self };
        for asked in mistakes.iter_mut().flat_map(|mistake| &mut mistake.asked) {
            asked.key = asked.key.clone().as_argument();
        }
        Self::Usage(Mistakes(mistakes))
    }

    /// A run that failed.
    pub fn run(message: impl fmt::Display) -> Self {
        Self::Run(message.to_string().into())
    }

    /// A run that panicked, with what the panic said.
    pub fn defect(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Self::run(format!("a defect in the model: {said}"))
    }
}

impl fmt::Display for Failure {
    /// Writes it as the command line spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(mistakes) => mistakes.fmt(f),
            Self::Run(why) => why.fmt(f),
            Self::Unchecked(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
