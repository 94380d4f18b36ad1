//! Why an experiment or a command ends without a result.

use std::any::Any;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A message for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The command line or a file given is wrong, and nothing was run.
    Usage(String),
    /// A run, or writing its result, failed.
    Run(String),
    /// Nothing is known to be wrong, but not everything could be checked.
    Unchecked(String),
    Interrupted,
}

impl Failure {
    /// A wrong argument or input file.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// A run that failed.
    pub fn run(message: impl fmt::Display) -> Self {
        Self::Run(message.to_string())
    }

    /// A run that panicked, with what the panic said.
    pub fn defect(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Self::Run(format!("a defect in the model: {said}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Run(message) | Self::Unchecked(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
