//! Workloads of one or more tasks, as they are named on the command line: applications, and fio jobs.

use std::fmt;

use thiserror::Error;

use super::apps::Application;
use super::apps::parameters::ApplicationError;
use super::files::{FileError, Files};
use super::stage::Stage;
use crate::units::Bytes;

/// The directory that such a workload creates, and removes.
pub const DIRECTORY: &str = "trimwise-workload";

/// A workload of one or more tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A named one.
    Application(Application),
}

/// Error for a workload that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    /// A named one.
    #[error(transparent)]
    Application(#[from] ApplicationError),
}

impl Program {
    /// Whether an argument is meant as one of these, valid or not.
    pub fn is_meant(argument: &str) -> bool {
        Application::is_meant(argument)
    }

    /// Parses an argument of the command line; `text` is the file of a job.
    ///
    /// # Errors
    ///
    /// [`ProgramError`].
    pub fn parse(argument: &str, _text: &str) -> Result<Self, ProgramError> {
        Ok(Self::Application(argument.parse()?))
    }

    /// Number of tasks, which run at the same time.
    pub fn tasks(&self) -> u32 {
        match self {
            Self::Application(application) => application.tasks(),
        }
    }

    /// Space that its files take at one time, at most.
    pub fn needed(&self) -> Bytes {
        match self {
            Self::Application(application) => application.needed(),
        }
    }

    pub(super) async fn prepare<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        stage.mkdir(DIRECTORY).await?;
        match self {
            Self::Application(application) => application.prepare(stage).await,
        }
    }

    pub(super) async fn run_task<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        match self {
            Self::Application(application) => application.run_task(stage).await,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(application) => application.fmt(f),
        }
    }
}
