//! Workloads of one or more tasks as named on the command line: applications, and fio jobs.

use std::fmt;

use thiserror::Error;

use super::apps::Application;
use super::apps::parameters::{AND, WorkloadError};
use super::days::{OWN as OWN_DAY, USUAL as USUAL_DAY};
use crate::failure::Words;
use crate::words;

use super::fio::{self, FioErrors, JobFile, Surroundings};
use super::latency::Operation;
use super::stage::Stage;
use crate::content::ContentClass;
use crate::files::{FileError, Files};
use crate::units::Bytes;

pub use super::DIRECTORY;

#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Named applications with their parameters, which run side by side; at least one.
    Applications(Vec<Application>),
    Fio(String, JobFile),
}

const JOB: &str = "job:";

/// A part of a program with a pace of its own when spread over days: an application, or a fio job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub number: usize,
    /// Number of its first task, and of the first copy of its files, among those of the program.
    pub first: (u32, u32),
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    #[error(transparent)]
    Application(#[from] WorkloadError),
    #[error("{name}: {errors}")]
    Fio { name: String, errors: FioErrors },
}

impl ProgramError {
    pub fn words(&self) -> Words {
        match self {
            Self::Application(error) => error.to_string().into(),
            Self::Fio { name, errors } => words![format!("{name}: "), errors.words()],
        }
    }
}

impl Program {
    /// Returns true if an argument is meant as a program, valid or not.
    pub fn is_meant(argument: &str) -> bool {
        Application::is_meant(argument) || Self::job_file(argument).is_some()
    }

    /// Returns the name of the fio job file in an argument, if it is one.
    pub fn job_file(argument: &str) -> Option<&str> {
        argument.strip_prefix(JOB).map(|argument| fio::split_overrides(argument).0)
    }

    /// Parses an argument of the command line. `text` is the text of the job file.
    pub fn parse(argument: &str, text: &str) -> Result<Self, ProgramError> {
        Self::read(argument, text, &())
    }

    /// Parses an argument as [`Program::parse`] does. `surroundings` supply what the job file names outside itself.
    pub fn read(argument: &str, text: &str, surroundings: &dyn Surroundings) -> Result<Self, ProgramError> {
        let Some(job) = argument.strip_prefix(JOB) else {
            return Ok(Self::Applications(Application::parse_all(argument)?));
        };
        let (name, overrides) = fio::split_overrides(job);
        let jobs = JobFile::read(text, &overrides, surroundings)
            .map_err(|errors| ProgramError::Fio { name: name.to_owned(), errors })?;
        Ok(Self::Fio(job.to_owned(), jobs))
    }

    pub fn tasks(&self) -> u32 {
        match self {
            Self::Applications(all) => all.iter().map(Application::tasks).sum(),
            Self::Fio(_, jobs) => jobs.tasks(),
        }
    }

    /// Returns the number of operations of the program's own kind. `seed` is that of the run.
    pub fn operations(&self, seed: u64) -> u64 {
        self.paces(seed).map(|(_, operations, _)| operations).sum()
    }

    pub(super) fn parts(&self) -> usize {
        match self {
            Self::Applications(all) => all.len(),
            Self::Fio(..) => 1,
        }
    }

    /// Returns what it takes to spread each part over days: its usual day, and the numbers of its operations and tasks.
    pub(super) fn paces(&self, seed: u64) -> impl Iterator<Item = (&'static str, u64, u32)> {
        let (applications, job) = match self {
            Self::Applications(all) => (&all[..], None),
            Self::Fio(_, jobs) => (&[][..], Some((USUAL_DAY, jobs.operations(seed), jobs.tasks()))),
        };
        applications.iter().map(|app| (app.day(), app.operations(), app.tasks())).chain(job)
    }

    /// Returns the usual shape of its days. Applications side by side each have their own.
    pub fn day(&self) -> &'static str {
        match self {
            Self::Applications(all) if all.len() > 1 => OWN_DAY,
            Self::Applications(all) => all.first().map_or(USUAL_DAY, Application::day),
            Self::Fio(..) => USUAL_DAY,
        }
    }

    pub(super) fn part_of(&self, task: u32) -> Part {
        let mut part = Part { number: 0, first: (0, 0) };
        if let Self::Applications(all) = self {
            for application in all {
                let end = part.first.0 + application.tasks();
                if task < end {
                    break;
                }
                part = Part { number: part.number + 1, first: (end, part.first.1 + application.copies()) };
            }
        }
        part
    }

    /// Returns the option that already decides when operations happen, so that they cannot be spread over days; `None`
    /// if there is none.
    pub fn own_pace(&self) -> Option<&'static str> {
        match self {
            Self::Applications(all) => all.iter().any(Application::pauses).then_some("pause"),
            Self::Fio(_, jobs) => jobs.own_pace(),
        }
    }

    /// Returns true if the program may make such calls, so that their latencies are recorded.
    pub fn makes(&self, operation: Operation) -> bool {
        match (operation, self) {
            // Operations of PostMark alone; each is several calls.
            (Operation::Create | Operation::Append, _) => false,
            (Operation::Read, Self::Applications(all)) => all.iter().any(Application::reads),
            (Operation::Write | Operation::Fsync | Operation::Unlink, Self::Applications(_)) => true,
            (_, Self::Fio(_, jobs)) => jobs.make(operation),
        }
    }

    pub fn content(&self) -> ContentClass {
        match self {
            Self::Applications(_) => ContentClass::default(),
            Self::Fio(_, jobs) => jobs.content(),
        }
    }

    pub fn needed(&self) -> Bytes {
        match self {
            Self::Applications(all) => {
                Bytes(all.iter().fold(0, |sum, application| application.needed().0.saturating_add(sum)))
            }
            Self::Fio(_, jobs) => jobs.needed(),
        }
    }

    /// Returns the program for a drive of `factor` times the size, from 0 to 1.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Applications(all) => Self::Applications(all.iter().map(|app| app.scaled(factor)).collect()),
            Self::Fio(name, jobs) => Self::Fio(name.clone(), jobs.scaled(factor)),
        }
    }

    /// Returns the smallest factor at which the program still shows what it shows in full; at most 1.
    pub fn scale_min(&self) -> f64 {
        match self {
            Self::Applications(all) => all.iter().map(Application::scale_min).fold(0.0, f64::max),
            Self::Fio(_, jobs) => jobs.scale_min(),
        }
    }

    pub(super) async fn prepare<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        stage.mkdir(DIRECTORY).await?;
        match self {
            Self::Applications(all) => {
                for copy in 0..all.iter().map(Application::copies).sum() {
                    stage.mkdir(&format!("{DIRECTORY}/{copy}")).await?;
                }
                let mut first = 0;
                for application in all {
                    application.prepare(stage, first).await?;
                    first += application.copies();
                }
                Ok(())
            }
            Self::Fio(_, jobs) => fio::prepare(jobs, stage).await,
        }
    }

    pub(super) async fn run_task<F: Files>(&self, stage: &Stage<'_, F>) -> Result<(), FileError> {
        match self {
            Self::Applications(all) => match all.get(stage.part.number) {
                Some(application) => application.run_task(stage).await,
                None => Ok(()),
            },
            Self::Fio(_, jobs) => fio::run(jobs, stage).await,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applications(all) => {
                for (number, application) in all.iter().enumerate() {
                    let and = if number > 0 { AND.to_string() } else { String::new() };
                    write!(f, "{and}{application}")?;
                }
                Ok(())
            }
            Self::Fio(name, _) => write!(f, "{JOB}{name}"),
        }
    }
}
