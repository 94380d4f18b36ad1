//! Why the command ends without a result, and with which exit code.

use std::fmt;

/// A message for the user; its kind decides the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line or a file given is wrong, and nothing was run: exit code 2.
    Usage(String),
    /// A run, or writing its result, failed: exit code 1.
    Run(String),
    /// The user asked to stop: exit code 130, as a shell reports a process that Ctrl-C ended.
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

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Run(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
