//! Workloads of one or more tasks, as they are named on the command line: applications, and fio jobs.

use std::fmt;

use thiserror::Error;

use super::apps::Application;
use super::apps::parameters::ApplicationError;
use super::fio::{self, FioError, JobFile};
use super::stage::Stage;
use crate::files::{FileError, Files};
use crate::units::Bytes;

/// The directory that such a workload creates, and removes.
pub const DIRECTORY: &str = "trimwise-workload";

/// A workload of one or more tasks.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// A named one.
    Application(Application),
    /// A fio job file, with its name.
    Fio(String, JobFile),
}

/// What a fio job file is written after.
const JOB: &str = "job:";

/// Error for a workload that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    /// A named one.
    #[error(transparent)]
    Application(#[from] ApplicationError),
    /// A fio job file.
    #[error("{name}: {error}")]
    Fio {
        /// Its name.
        name: String,
        /// What is wrong.
        error: FioError,
    },
}

impl Program {
    /// Whether an argument is meant as one of these, valid or not.
    pub fn is_meant(argument: &str) -> bool {
        Application::is_meant(argument) || Self::job_file(argument).is_some()
    }

    /// The name of the fio job file that an argument is meant as.
    pub fn job_file(argument: &str) -> Option<&str> {
        argument.strip_prefix(JOB)
    }

    /// Parses an argument of the command line; `text` is the file of a job.
    ///
    /// # Errors
    ///
    /// [`ProgramError`].
    pub fn parse(argument: &str, text: &str) -> Result<Self, ProgramError> {
        let Some(name) = Self::job_file(argument) else { return Ok(Self::Application(argument.parse()?)) };
        let jobs =
            JobFile::parse(text).map_err(|error| ProgramError::Fio { name: name.to_owned(), error })?;
        Ok(Self::Fio(name.to_owned(), jobs))
    }

    /// Number of tasks, which run at the same time.
    pub fn tasks(&self) -> u32 {
        match self {
            Self::Application(application) => application.tasks(),
            Self::Fio(_, jobs) => jobs.tasks(),
        }
    }

    /// Number of operations of its own kind; `seed` is that of the run.
    pub fn operations(&self, seed: u64) -> u64 {
        match self {
            Self::Application(application) => application.operations(),
            Self::Fio(_, jobs) => jobs.operations(seed),
        }
    }

    /// What decides already when its operations happen, so that they cannot be spread over days; `None` if nothing does.
    pub fn own_pace(&self) -> Option<&'static str> {
        match self {
            Self::Application(application) => application.pauses().then_some("pause"),
            Self::Fio(_, jobs) => jobs.own_pace(),
        }
    }

    /// Space that its files take at one time, at most.
    pub fn needed(&self) -> Bytes {
        match self {
            Self::Application(application) => application.needed(),
            Self::Fio(_, jobs) => jobs.needed(),
        }
    }

    pub(super) async fn prepare<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        stage.mkdir(DIRECTORY).await?;
        match self {
            Self::Application(application) => application.prepare(stage).await,
            Self::Fio(_, jobs) => fio::prepare(jobs, stage).await,
        }
    }

    pub(super) async fn run_task<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        match self {
            Self::Application(application) => application.run_task(stage).await,
            Self::Fio(_, jobs) => fio::run(jobs, stage).await,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(application) => application.fmt(f),
            Self::Fio(name, _) => write!(f, "{JOB}{name}"),
        }
    }
}
