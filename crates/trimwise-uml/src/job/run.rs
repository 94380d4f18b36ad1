//! Runs a job in a guest.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;
use trimwise::units::Bytes;

use super::boot::BootOptions;
use super::folder::{RunFolder, open_regular};
use super::{INIT_COMMAND, JOB_FILE, Job, Outcome, REPORT_FILE, Report, Step, StepReport};
use crate::disk::Disk;
use crate::machine::{CONSOLE, Ended, Limits, Machine, MachineError, complaints, last_lines, refusal};

/// How to run a job.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The kernel.
    pub linux: PathBuf,
    /// See [`Machine::preload`].
    pub preload: PathBuf,
    /// See [`Machine::seccomp`].
    pub seccomp: bool,
    /// The program that is the guest's init: this one, with the command [`INIT_COMMAND`].
    pub init: PathBuf,
    /// The program `trimwised`, for jobs with a [`Step::Daemon`](super::Step::Daemon).
    pub daemon: Option<PathBuf>,
    /// The guest's memory.
    pub memory: Bytes,
    /// How long it may take.
    pub limits: Limits,
    /// Set when the user wants to stop.
    pub interrupted: Arc<AtomicBool>,
}

/// The results of a job.
#[derive(Debug)]
pub struct JobReport {
    /// One for each step.
    pub steps: Vec<StepReport>,
    /// The run of the kernel.
    pub ended: Ended,
    /// Faults in the kernel's log: warnings, reports of sanitizers, errors of file systems and disks.
    pub complaints: Vec<String>,
}

/// Why a job has no result.
#[derive(Debug, Error)]
pub enum JobError {
    /// The run's folder failed.
    #[error("{what}: {source}")]
    Folder {
        /// What was attempted.
        what: String,
        /// The host's error.
        source: io::Error,
    },
    /// The kernel failed.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A request of the guest could not be carried out here.
    #[error("a disk of the guest failed on this host: {what}")]
    Disk {
        /// Why.
        what: String,
    },
    /// The kernel does not know words that were added to its command line.
    #[error("--boot: this kernel does not know '{words}'; nothing was run")]
    UnknownWords {
        /// These.
        words: String,
    },
    /// A step failed in the guest.
    #[error("in the guest, {step}: {what}{}{console}", if .console.is_empty() { "" } else { "; its last lines:\n" })]
    Step {
        /// The step.
        step: String,
        /// The guest's message; for a mount, also the kernel's, which says why.
        what: String,
        /// The guest's last lines; none if the step is a program, about which the kernel says nothing.
        console: String,
    },
    /// The kernel found a fault in itself, in its file system or in its disk.
    #[error("the guest's kernel complains, so the result cannot be trusted:\n{}", .complaints.join("\n"))]
    Complains {
        /// Its messages.
        complaints: Vec<String>,
    },
    /// The guest left no report: its init failed.
    #[error("the guest left no report ({what}); its last lines:\n{console}")]
    NoReport {
        /// What is wrong with it.
        what: String,
        /// The guest's last lines.
        console: String,
    },
}

impl JobError {
    /// Whether the kernel itself broke off, hung or fell asleep for ever.
    pub fn is_of_the_kernel(&self) -> bool {
        matches!(
            self,
            Self::Machine(
                MachineError::BrokeOff { .. }
                    | MachineError::Silent { .. }
                    | MachineError::SleepsForEver { .. }
            )
        )
    }
}

impl Guest {
    /// Boots a guest with these disks, has it do a job, and returns the result. Everything that the run needed on the
    /// host is removed by then.
    ///
    /// # Errors
    /// [`JobError`]; it includes a failed step, and a kernel that complains unless a disk is meant to fail.
    pub fn run(&self, job: &Job, disks: &mut [Disk]) -> Result<JobReport, JobError> {
        let report = self.run_in_any_case(job, disks)?;
        if report.complaints.is_empty() || disks.iter().any(Disk::has_faults) {
            return Ok(report);
        }
        Err(JobError::Complains { complaints: report.complaints })
    }

    /// Does the same, but leaves the kernel's complaints to the caller.
    pub fn run_in_any_case(&self, job: &Job, disks: &mut [Disk]) -> Result<JobReport, JobError> {
        self.run_logged(job, disks, &BootOptions::default(), &mut Vec::new())
    }

    /// Does the same with options of the kernel's command line; `log` receives the kernel's log even if the run fails.
    pub fn run_logged(
        &self,
        job: &Job,
        disks: &mut [Disk],
        boot: &BootOptions,
        log: &mut Vec<u8>,
    ) -> Result<JobReport, JobError> {
        let folder_error = |what: &str| {
            let what = what.to_owned();
            move |source| JobError::Folder { what, source }
        };
        let folder =
            RunFolder::new().map_err(folder_error("cannot make a temporary folder (TMPDIR says where)"))?;
        let place = folder.path();
        let text = serde_json::to_vec(job).map_err(|e| folder_error("cannot write the job")(e.into()))?;
        fs::write(place.join(JOB_FILE), text).map_err(folder_error("cannot write the job"))?;
        let link = |program: &PathBuf, name| {
            symlink(program, place.join(name)).map_err(folder_error("cannot link a program"))
        };
        link(&self.init, "init")?;
        self.daemon.as_ref().map_or(Ok(()), |daemon| link(daemon, "trimwised"))?;
        let machine = Machine {
            linux: self.linux.clone(),
            preload: self.preload.clone(),
            seccomp: self.seccomp,
            memory: self.memory,
            folder: place.to_owned(),
            arguments: std::iter::once(INIT_COMMAND.to_owned())
                .chain(boot.words().map(str::to_owned))
                .collect(),
            limits: self.limits,
            interrupted: Arc::clone(&self.interrupted),
        };
        let outcome = machine.run(disks);
        *log = fs::read(place.join(CONSOLE)).unwrap_or_default();
        // How the guest handles a failed request is up to it: an error somewhere, or silence.
        if let Some(what) = disks.iter().find_map(|disk| disk.failure()) {
            return Err(JobError::Disk { what: what.to_owned() });
        }
        let ended = outcome?;
        let console = place.join(CONSOLE);
        let no_report = |what: String| JobError::NoReport { what, console: last_lines(&console) };
        let mut bytes = Vec::new();
        // Programs in the guest can write to the folder, too.
        fs::File::open(place)
            .and_then(|folder| open_regular(&folder, REPORT_FILE)?.read_to_end(&mut bytes))
            .map_err(|e| no_report(e.to_string()))?;
        let Report { steps, marks, unknown_words } =
            serde_json::from_slice(&bytes).map_err(|e| no_report(e.to_string()))?;
        if !unknown_words.is_empty() {
            return Err(JobError::UnknownWords { words: unknown_words.join(" ") });
        }
        if marks.len() != disks.len() {
            return Err(no_report(format!("it marked {} of {} disks", marks.len(), disks.len())));
        }
        for (disk, marks) in disks.iter_mut().zip(&marks) {
            disk.keep_marks(marks).map_err(no_report)?;
        }
        if let (Some(StepReport { outcome: Outcome::Failed(what), .. }), Some(step)) =
            (steps.last(), steps.len().checked_sub(1).and_then(|last| job.steps.get(last)))
        {
            let what = match mounts(&job.steps[..steps.len()]).and_then(|name| refusal(&console, name)) {
                Some(reason) => format!("{what}: {reason}"),
                None => what.clone(),
            };
            let console = match step {
                Step::Program { .. } => String::new(),
                _ => last_lines(&console),
            };
            return Err(JobError::Step { step: step.name(), what, console });
        }
        if steps.len() != job.steps.len() {
            return Err(no_report(format!("{} of {} steps were reported", steps.len(), job.steps.len())));
        }
        Ok(JobReport { steps, ended, complaints: complaints(&console) })
    }
}

/// The name of the file system that the last of these steps mounts or remounts; `None` if it does neither.
fn mounts(steps: &[Step]) -> Option<&'static str> {
    let (last, before) = steps.split_last()?;
    let of = |step: &Step| match step {
        Step::Mount { file_system, .. } => Some(file_system.name()),
        _ => None,
    };
    match last {
        Step::Remount { .. } => before.iter().rev().find_map(of),
        _ => of(last),
    }
}
