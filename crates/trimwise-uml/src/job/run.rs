use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;
use trimwise::units::Bytes;

use super::boot::BootOptions;
use super::folder::RunFolder;
use super::{INIT_BYTES, INIT_COMMAND, JOB_FILE, Job, Outcome, Step, StepReport};
use crate::channel::{End, Listener, Says};
use crate::disk::Disk;
use crate::machine::{
    CONSOLE, Ended, Limits, Machine, MachineError, complaints, last_lines, out_of_memory, refusal,
};

#[derive(Clone, Debug)]
pub struct Guest {
    pub linux: PathBuf,
    /// See [`Machine::preload`].
    pub preload: PathBuf,
    /// See [`Machine::seccomp`].
    pub seccomp: bool,
    /// The program that becomes the guest's init: this one, with the command [`INIT_COMMAND`].
    pub init: PathBuf,
    /// Path of `trimwised`, which is copied for the guest, for jobs with a [`Step::Daemon`].
    pub daemon: Option<PathBuf>,
    pub memory: Bytes,
    /// Options for the kernel's command line.
    pub boot: BootOptions,
    pub limits: Limits,
    pub interrupted: Arc<AtomicBool>,
}

#[derive(Debug)]
pub struct JobReport {
    pub steps: Vec<StepReport>,
    pub ended: Ended,
    /// Faults in the kernel's log: warnings, reports of sanitizers, errors of file systems and disks.
    pub complaints: Vec<String>,
}

#[derive(Debug, Error)]
pub enum JobError {
    #[error("{what}: {source}")]
    Folder { what: String, source: io::Error },
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("a disk of the guest failed on this host: {what}")]
    Disk { what: String },
    #[error("this kernel does not know '{words}'; nothing was run")]
    UnknownWords { words: String },
    #[error("in the guest, {step}: {what}{}{console}", if .console.is_empty() { "" } else { "; its last lines:\n" })]
    Step {
        step: String,
        /// The guest's message. For a mount it includes the kernel's message, which has the reason.
        what: String,
        /// Last lines of the console. Empty if the step is a program, about which the kernel says nothing.
        console: String,
    },
    /// The kernel reported a fault in itself, its file system or its disk.
    #[error("{}:\n{}", why_not_trusted(.complaints), .complaints.join("\n"))]
    Complains { complaints: Vec<String> },
    #[error("the guest left no report ({what}); its last lines:\n{console}")]
    NoReport { what: String, console: String },
}

fn why_not_trusted(complaints: &[String]) -> String {
    out_of_memory(&complaints.join("\n"))
        .unwrap_or_else(|| "the guest's kernel reported problems, so the result cannot be trusted".to_owned())
}

impl JobError {
    /// Returns true if the guest had too little memory.
    pub fn lacks_memory(&self) -> bool {
        match self {
            Self::Complains { complaints } => out_of_memory(&complaints.join("\n")).is_some(),
            Self::Machine(MachineError::BrokeOff { console, .. }) => out_of_memory(console).is_some(),
            _ => false,
        }
    }

    /// Returns true if the kernel itself broke off, hung, or went to sleep forever.
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
    /// Boots a guest with these disks, runs a job in it, and returns the result. Leaves nothing behind on the host.
    ///
    /// # Errors
    /// If the guest or a step fails, or the kernel complains; complaints are not an error if a disk is meant to fail.
    pub fn run(&self, job: &Job, disks: &mut [Disk]) -> Result<JobReport, JobError> {
        let report = self.run_in_any_case(job, disks)?;
        if report.complaints.is_empty() || disks.iter().any(Disk::has_faults) {
            return Ok(report);
        }
        Err(JobError::Complains { complaints: report.complaints })
    }

    /// Like [`Guest::run`], but returns the kernel's complaints instead of failing.
    pub fn run_in_any_case(&self, job: &Job, disks: &mut [Disk]) -> Result<JobReport, JobError> {
        self.run_logged(job, disks, &self.boot, &mut Vec::new(), &mut |_, _| ())
    }

    /// Like [`Guest::run_in_any_case`], with options for the kernel's command line. `log` receives the kernel's log,
    /// and `says` each piece of what programs print while they run, even if the run fails. The guest cannot notice how
    /// long `says` takes.
    pub fn run_logged(
        &self,
        job: &Job,
        disks: &mut [Disk],
        boot: &BootOptions,
        log: &mut Vec<u8>,
        says: &mut Says<'_>,
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
        if let Some(daemon) = &self.daemon {
            // Kernels since 6.12 follow links themselves, and in a guest there is another /tmp.
            fs::copy(daemon, place.join("trimwised")).map_err(folder_error("cannot copy trimwised"))?;
        }
        let machine = Machine {
            linux: self.linux.clone(),
            preload: self.preload.clone(),
            seccomp: self.seccomp && job.steps.iter().any(Step::starts_programs),
            memory: Bytes(self.memory.0.saturating_add(INIT_BYTES)),
            folder: place.to_owned(),
            arguments: std::iter::once(INIT_COMMAND.to_owned())
                .chain(boot.words().map(str::to_owned))
                .collect(),
            limits: self.limits,
            interrupted: Arc::clone(&self.interrupted),
        };
        let mut listener = Listener::default();
        let outcome = machine.run(disks, &mut |bytes| listener.hear(bytes, says));
        if outcome.is_err() {
            listener.hear_no_more(says);
        }
        *log = fs::read(place.join(CONSOLE)).unwrap_or_default();
        // The guest may report a failed request as an error somewhere, or not at all.
        if let Some(what) = disks.iter().find_map(|disk| disk.failure()) {
            return Err(JobError::Disk { what: what.to_owned() });
        }
        let ended = outcome?;
        let console = place.join(CONSOLE);
        let no_report = |what: String| JobError::NoReport { what, console: last_lines(&console) };
        listener.expect_whole().map_err(|e| no_report(e.to_string()))?;
        let Listener { steps, end, .. } = listener;
        let Some(End { marks, unknown_words }) = end else {
            let step = job.steps.get(steps.len()).map_or("the end of its job".to_owned(), Step::name);
            return Err(no_report(format!("it powered off during {step}")));
        };
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

/// Returns the name of the file system that the last of these steps mounts or remounts; `None` if none does.
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
