//! A guest's work: steps as data, and their results.
//!
//! The host writes a [`Job`] into the run's folder, which the guest mounts. The guest's init is this same program; it
//! carries out the steps one by one ([`super::guest`]) and sends a [`StepReport`] after each ([`super::channel`]). It
//! marks the disk before the first step and after each step, so that the host knows the drive's requests and work in
//! between. `run` boots the guest and collects the reports.

mod boot;
mod folder;
mod run;

use serde::{Deserialize, Serialize};
use trimwise::compare::result::Cell;
use trimwise::units::{SimDuration, Utilization};
use trimwise::workload::tagged::bytes::Run;
use trimwise::workload::tagged::{Logged, Plan};
use trimwise::workload::week::{Week, WeekDone};

pub use boot::BootOptions;
pub use run::{Guest, JobError, JobReport};
pub use trimwise_linux::file_system::{FileSystem, check_program};
pub use trimwise_linux::program_end::{ProgramEnd, Said};

pub(super) const JOB_FILE: &str = "job.json";
/// The hidden command by which the program is the guest's init.
pub(crate) const INIT_COMMAND: &str = "guest-init";
/// Path at which a guest mounts the run's folder.
pub(super) const FOLDER: &str = "/tmp/run";
/// Path of `trimwised` in a guest, if [`Guest::daemon`] names one: a copy in the run's folder.
pub const DAEMON: &str = "/tmp/run/trimwised";
/// Path at which a guest mounts the file system under test.
pub const MOUNT_POINT: &str = "/tmp/fs";
/// Node of a guest's second disk.
pub const SECOND_NODE: &str = "/dev/vdb";
/// File in a guest that has what [`Step::Record`] recorded.
pub const TRACE: &str = "/sys/kernel/tracing/trace";
/// Files in a guest that have the number of records that the buffers lost.
pub const TRACE_STATISTICS: &str = "/sys/kernel/tracing/per_cpu/*/stats";
/// Environment variable that names the second disk, if there is one, to programs in a guest.
pub(crate) const SECOND_DISK: &str = "TRIMWISE_DISK";
/// Memory that a guest has on top of what was asked for, for this program as its init. Init takes exactly this much at
/// its start, however it was built.
pub const INIT_BYTES: u64 = 40 << 20;
/// Folder of the daemon's files in a guest, all in its memory: `config.toml`, and the folders `state` and `run`.
pub const DAEMON_FOLDER: &str = "/tmp/trimwise";

/// One step of a guest. Paths are relative to the root of the mounted file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Makes a file system on the first disk, with fixed identifiers and without TRIM.
    Mkfs {
        file_system: FileSystem,
        options: Vec<String>,
    },
    Mount {
        file_system: FileSystem,
        options: String,
    },
    /// Remounts the file system in place with other options.
    Remount {
        options: String,
    },
    /// Unmounts the file system, and before it any that programs have mounted from disks. Waits for programs that
    /// briefly have it open.
    Unmount,
    /// Unmounts like [`Step::Unmount`], but accepts that nothing is mounted: a program may have unmounted it.
    UnmountRest,
    /// Fills the file system with files and removes some, until this share is in use.
    Age {
        utilization: Utilization,
        seed: u64,
    },
    /// Removes files of [`Step::Age`] and creates others at this share in use, until this many bytes are written.
    TurnOver {
        utilization: Utilization,
        bytes: u64,
        seed: u64,
    },
    Postmark {
        config: String,
        rep: u32,
    },
    Scene {
        name: String,
        seed: u64,
    },
    /// Runs a benchmark that times one operation (`append`, `fullwrite:1MiB`).
    Timed {
        spec: String,
        part: Part,
        rep: u32,
        seed: u64,
    },
    /// From now on, writes zeros instead of the data of ageing and of workloads. Long runs of them take no memory of
    /// this computer, and drives that do not look at their content cannot tell.
    WriteZeros,
    /// From now on, makes the calls of workloads one by one instead of in batches. The results must be the same.
    CallOneByOne,
    /// Creates or removes files of the kind of [`Step::Age`] until this much is in use; at 100, until none fits. It
    /// continues with the files that earlier steps left, perhaps in another guest.
    Adjust {
        utilization: Utilization,
        seed: u64,
    },
    /// Runs a named application or a fio job. In addition to the marks of every step, the disk is marked before and after
    /// what is measured: its files are there, and not yet removed.
    Workload {
        argument: String,
        text: String,
        /// The part of a job that runs, at most 1. An application has it in its parameters.
        scale: f64,
        rep: u32,
        seed: u64,
    },
    /// Spreads [`Step::Postmark`] or [`Step::Workload`] over days ([`Days`](trimwise::workload::days::Days)), and lasts to
    /// their end. In addition to the marks of every step, the disk is marked when the days begin. Files are left behind.
    OverDays {
        days: u32,
        /// As on the command line.
        shape: String,
        seed: u64,
        work: Box<Step>,
    },
    /// Makes a file of scattered extents.
    Scatter {
        file: String,
        extents: u64,
        /// Size of each extent, and of the gaps between them, in bytes.
        extent_bytes: u64,
        /// True if another file (`NAME.gaps`) occupies the gaps; otherwise they are free.
        keeps_gaps: bool,
    },
    /// Removes a file, and waits until that is durable, by an fsync of the root directory.
    Remove {
        file: String,
    },
    /// Locates a file on the device (FIEMAP).
    Extents {
        file: String,
    },
    /// Appends to a file and waits until that is durable.
    Append {
        file: String,
        bytes: u64,
    },
    /// Runs FITRIM over the whole file system.
    Fitrim {
        minlen_bytes: u64,
    },
    Sync,
    Sleep {
        ns: u64,
    },
    /// From now on, records these tracepoints (`ext4/ext4_mballoc_free`), which [`TRACE`] then has as text. The kernel's
    /// command line must enable one and set the buffer's size, so that the buffer is there when the kernel first counts
    /// its memory.
    Record {
        tracepoints: Vec<String>,
    },
    /// Reads files of `/proc` and `/sys`; `*` stands for one component of a path.
    Read {
        path: String,
    },
    /// Locates the file system's metadata (FS_IOC_GETFSMAP).
    Metadata,
    /// Lists the file system's free space (FS_IOC_GETFSMAP); only ext4 and XFS return it.
    FreeSpace,
    /// Starts to run FITRIM over the whole file system at intervals, during the following steps, until it is unmounted.
    TrimEvery {
        /// Time from this step to the first FITRIM, in nanoseconds.
        first_ns: u64,
        /// Time from the beginning of one FITRIM to the beginning of the next, in nanoseconds.
        every_ns: u64,
        minlen_bytes: u64,
    },
    /// Creates the files that a week needs at its start.
    PrepareWeek {
        week: Week,
    },
    /// Runs a week of work. In addition to the marks of every step, the disk is marked at the start and at each look.
    Week {
        week: Week,
    },
    /// Runs random operations whose bytes can be attributed. In addition to the marks of every step, the disk is marked
    /// at the beginning and the end of each operation.
    Tagged {
        plan: Plan,
    },
    /// Mounts the file system that is on the disk, reads every file of [`Step::Tagged`], and unmounts it. Errors are
    /// part of the result; the step does not fail.
    Examine {
        file_system: FileSystem,
        options: String,
    },
    /// Starts `trimwised`, which runs during the following steps, until [`Step::StopDaemon`] or the end.
    Daemon {
        config: String,
    },
    /// Ends the daemon with SIGTERM, and returns its output.
    StopDaemon,
    /// Ends the daemon with SIGKILL, and returns its output.
    KillDaemon,
    /// Lets the kernel trust its random numbers, so that getrandom(2) does not wait until it does: 2.5 s on 6.1. They
    /// are the same in every run.
    TrustRandomness,
    /// Runs a program of the host's file system, in the root of the mounted one. The step succeeds even if the program
    /// fails. Processes that the program leaves running are killed, unless the daemon runs. The environment variable
    /// [`SECOND_DISK`] names the second disk, if there is one.
    Program {
        command: Vec<String>,
        input: Said,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The whole benchmark; nothing is left behind.
    Whole,
    Prepare,
    /// The timed operation, on the files that [`Part::Prepare`] has left, perhaps in another guest. The remaining files
    /// are left behind.
    Measure,
}

/// An extent of metadata, as GETFSMAP reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataExtent {
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub is_journal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileExtent {
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    Cell(Box<Cell>, String),
    Unmounted {
        was_mounted: bool,
    },
    Lasted {
        duration_ns: u64,
    },
    /// The output of a program, or the text of a file.
    Text(String),
    /// The meaning of the result depends on the file system.
    Trimmed {
        answer_bytes: u64,
    },
    Metadata(Vec<MetadataExtent>),
    /// Free space: start on the device and length of each extent, in bytes.
    Free(Vec<(u64, u64)>),
    Program(ProgramEnd),
    /// Location of a file; adjacent pieces are joined. On btrfs these are its own addresses.
    Extents(Vec<FileExtent>),
    Week(WeekDone),
    /// The operations of [`Step::Tagged`], each task's in order.
    Logged(Vec<Logged>),
    Examined(Examined),
    Removed {
        unlink_ns: u64,
        /// Duration of the fsync of the directory after it, in nanoseconds.
        fsync_ns: u64,
    },
    /// Failure, with its description; the remaining steps did not run.
    Failed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    pub error: Option<String>,
    pub files: Vec<FoundFile>,
    pub complaints: Vec<String>,
    pub log: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    pub path: String,
    pub runs: Vec<Run>,
    /// Reason why the file could not be read to its end.
    pub error: Option<String>,
}

/// Times and result of one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// Start of the step, in nanoseconds since the guest booted.
    pub begin_ns: u64,
    /// End of the step, in nanoseconds since the guest booted.
    pub end_ns: u64,
    pub outcome: Outcome,
}

impl StepReport {
    pub fn duration(&self) -> SimDuration {
        SimDuration(self.end_ns - self.begin_ns)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Steps in order; the first that fails is the last.
    pub steps: Vec<Step>,
}

impl Step {
    /// Returns true if the job starts programs, which make their system calls one by one. This program's own calls go
    /// to the kernel in batches, which need ptrace.
    pub(super) fn starts_programs(&self) -> bool {
        matches!(self, Self::Program { .. } | Self::Daemon { .. })
    }

    /// Returns a few words for errors, as in `JobError::Step`.
    pub fn name(&self) -> String {
        match self {
            Self::Mkfs { file_system, .. } => file_system.mkfs().0.to_owned(),
            Self::Mount { file_system, options } => {
                format!("mount of {} with '{options}'", file_system.name())
            }
            Self::Remount { options } => format!("remount with '{options}'"),
            Self::Unmount | Self::UnmountRest => "unmount".to_owned(),
            Self::Age { utilization, .. } => format!("ageing to {utilization} %"),
            Self::TurnOver { .. } => "turning files over".to_owned(),
            Self::Postmark { .. } => "PostMark".to_owned(),
            Self::OverDays { days, work, .. } => format!("{} over {days} days", work.name()),
            Self::WriteZeros => "writing zeros".to_owned(),
            Self::CallOneByOne => "calling one by one".to_owned(),
            Self::Adjust { utilization, .. } => {
                format!("bringing utilization to {utilization} %")
            }
            Self::Timed { spec, .. } | Self::Workload { argument: spec, .. } => format!("workload {spec}"),
            Self::Scene { name, .. } => format!("scene {name}"),
            Self::Scatter { file, .. } => format!("making {file}"),
            Self::Remove { file } => format!("removing {file}"),
            Self::Extents { file } => format!("FIEMAP of {file}"),
            Self::Append { file, .. } => format!("appending to {file}"),
            Self::Fitrim { .. } => "FITRIM".to_owned(),
            Self::Sync => "sync".to_owned(),
            Self::Sleep { .. } => "sleep".to_owned(),
            Self::Record { .. } => "recording tracepoints".to_owned(),
            Self::Read { path } => format!("reading {path}"),
            Self::Metadata | Self::FreeSpace => "GETFSMAP".to_owned(),
            Self::TrimEvery { .. } => "FITRIM at intervals".to_owned(),
            Self::PrepareWeek { .. } => "preparing the week".to_owned(),
            Self::Week { .. } => "a week".to_owned(),
            Self::Daemon { .. } | Self::StopDaemon | Self::KillDaemon => "trimwised".to_owned(),
            Self::Tagged { .. } => "random operations".to_owned(),
            Self::Examine { .. } => "examining the files".to_owned(),
            Self::TrustRandomness => "crediting entropy".to_owned(),
            Self::Program { command, .. } => command.first().cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_lasts_from_its_begin_to_its_end() {
        let report = StepReport { begin_ns: 5, end_ns: 9, outcome: Outcome::Done };
        assert_eq!(report.duration(), SimDuration(4));
    }
}
