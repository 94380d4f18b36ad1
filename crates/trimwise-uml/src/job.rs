//! What a guest does: steps as data, and their results.
//!
//! The host writes a [`Job`] into the run's folder, which the guest mounts. The guest's init is this same program; it
//! carries out the steps one by one ([`super::guest`]) and writes a [`StepReport`] for each. It marks the disk before
//! the first step and after each step, so that the host knows the drive's requests and work in between.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;
use trimwise::compare::result::Cell;
use trimwise::units::{Bytes, SimDuration};
use trimwise::workload::week::{Week, WeekDone};

use crate::disk::Disk;
use crate::machine::{CONSOLE, Ended, Limits, Machine, MachineError, SEARCH_PATH, complaints, last_lines};

/// The job's file in the run's folder.
pub(super) const JOB_FILE: &str = "job.json";
/// The reports' file there.
pub(super) const REPORT_FILE: &str = "report.json";
/// The hidden command by which the program is the guest's init.
pub(crate) const INIT_COMMAND: &str = "guest-init";
/// Where a guest mounts the run's folder.
pub(super) const FOLDER: &str = "/tmp/run";
/// `trimwised` in a guest, if [`Guest::daemon`] names one: a link in the run's folder.
pub const DAEMON: &str = "/tmp/run/trimwised";
/// Where a guest mounts the file system under test.
pub const MOUNT_POINT: &str = "/tmp/fs";
/// The daemon's files in a guest, all in its memory: `config.toml`, and the folders `state` and `run`.
pub const DAEMON_FOLDER: &str = "/tmp/trimwise";

/// A file system that a guest can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::F2fs];

    /// Its name, as mount(8) knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }

    /// The program that makes it, and the Debian package that this is in.
    pub const fn mkfs(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            Self::F2fs => ("mkfs.f2fs", "f2fs-tools"),
        }
    }

    /// Checks that a guest will find the program that makes it.
    ///
    /// # Errors
    /// The missing program, and its package.
    pub fn check_mkfs(self) -> Result<(), String> {
        self.check_mkfs_in(SEARCH_PATH)
    }

    fn check_mkfs_in(self, folders: &str) -> Result<(), String> {
        let (program, package) = self.mkfs();
        let is_there = |folder| std::path::Path::new(folder).join(program).is_file();
        if folders.split(':').any(is_there) {
            return Ok(());
        }
        Err(format!(
            "{program} is not in {folders}, but a guest needs it to make {}; to install it: apt-get install {package}",
            self.name()
        ))
    }

    /// The smallest device that its current mkfs accepts.
    pub const fn least(self) -> Bytes {
        match self {
            Self::Ext4 => Bytes::mib(16),
            Self::Xfs => Bytes::mib(300),
            Self::Btrfs => Bytes::mib(128),
            Self::F2fs => Bytes::mib(128),
        }
    }
}

impl std::str::FromStr for FileSystem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|fs| fs.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is not a file system that a guest can make; expected one of {names}")
        })
    }
}

/// One step of a guest. Paths are relative to the root of the mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Makes a file system on the first disk, with fixed identifiers and without TRIM.
    Mkfs {
        /// Which.
        file_system: FileSystem,
        /// Further arguments for mkfs.
        options: Vec<String>,
    },
    /// Mounts it.
    Mount {
        /// Which.
        file_system: FileSystem,
        /// Options as in mount(8), separated by commas.
        options: String,
    },
    /// Remounts it in place with other options.
    Remount {
        /// Options as in mount(8), separated by commas.
        options: String,
    },
    /// Unmounts it, waiting for programs that briefly have it open.
    Unmount,
    /// Fills the file system with files and removes some, until this much is in use.
    Age {
        /// Percent in use at the end.
        utilization_percent: u64,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Runs PostMark.
    Postmark {
        /// Its configuration, as PostMark reads it.
        config: String,
        /// The number of the run.
        rep: u32,
    },
    /// Runs a scene.
    Scene {
        /// Its name.
        name: String,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Runs a benchmark that times one operation (`append`, `fullwrite:1MiB`).
    Timed {
        /// As on the command line.
        spec: String,
        /// The number of the run.
        rep: u32,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Runs a named application or a fio job.
    Workload {
        /// As on the command line.
        argument: String,
        /// The text of a job's file; empty for an application.
        text: String,
        /// The number of the run.
        rep: u32,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Makes a file of scattered extents.
    Scatter {
        /// Its name.
        file: String,
        /// Extents.
        extents: u64,
        /// Bytes of each extent, and of the gaps between them.
        extent_bytes: u64,
        /// Whether another file (`NAME.gaps`) occupies the gaps; otherwise they are free.
        keeps_gaps: bool,
    },
    /// Removes a file, and waits until that is durable, by an fsync of the root directory.
    Remove {
        /// Its name.
        file: String,
    },
    /// Asks the file system where a file lies (FIEMAP).
    Extents {
        /// Its name.
        file: String,
    },
    /// Appends to a file and waits until that is durable.
    Append {
        /// Its name.
        file: String,
        /// Bytes.
        bytes: u64,
    },
    /// FITRIM over the whole file system.
    Fitrim {
        /// Extents below this are left out.
        minlen_bytes: u64,
    },
    /// syncfs(2).
    Sync,
    /// Lets time pass.
    Sleep {
        /// How much.
        ns: u64,
    },
    /// Reads files of `/proc` and `/sys`; `*` stands for one part of a path.
    Read {
        /// Its path.
        path: String,
    },
    /// Asks the file system where its metadata lie (FS_IOC_GETFSMAP).
    Metadata,
    /// Asks it which space is free (the same call); only ext4 and XFS answer that.
    FreeSpace,
    /// From now on, runs FITRIM over the whole file system at intervals during the following steps, until it is
    /// unmounted.
    TrimEvery {
        /// When the first comes, from now on.
        first_ns: u64,
        /// From the beginning of one to the beginning of the next.
        every_ns: u64,
        /// Extents below this are left out.
        minlen_bytes: u64,
    },
    /// Creates what a week needs at its start.
    PrepareWeek {
        /// Which.
        week: Week,
    },
    /// Days of work. In addition to the marks of every step, the disk is marked at its start and at each of its looks.
    Week {
        /// Which.
        week: Week,
    },
    /// From now on, runs `trimwised` during the following steps, until [`Step::StopDaemon`] or the end.
    Daemon {
        /// Its configuration: the text of trimwise.toml.
        config: String,
    },
    /// Ends it with SIGTERM, and returns its output.
    StopDaemon,
    /// Ends it with SIGKILL, and returns its output.
    KillDaemon,
    /// Lets the kernel trust its random numbers, so that getrandom(2) does not wait until it does: 2.5 s on 6.1. They
    /// are the same in every run.
    TrustRandomness,
    /// Runs a program of the host's file system, in the root of the mounted one. The step succeeds even if the program
    /// fails.
    Program {
        /// The program and its arguments.
        command: Vec<String>,
        /// Its standard input.
        input: Said,
    },
}

/// An extent of metadata, and its purpose, as GETFSMAP reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataExtent {
    /// Where it begins on the device.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
    /// Whether it is the journal.
    pub is_journal: bool,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileExtent {
    /// Where it begins on the device.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

/// The result of a step, besides its time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// A workload's figures, and PostMark's own report if it was that.
    Cell(Box<Cell>, String),
    /// How long a scene took.
    Lasted {
        /// That.
        duration_ns: u64,
    },
    /// The output of a program or the text of a file.
    Text(String),
    /// The result of FITRIM; its meaning depends on the file system.
    Trimmed {
        /// The number.
        answer_bytes: u64,
    },
    /// Where the metadata lie.
    Metadata(Vec<MetadataExtent>),
    /// Free space: start on the device and length of each extent, in bytes.
    Free(Vec<(u64, u64)>),
    /// The exit status and the output of a program.
    Program(ProgramEnd),
    /// Location of a file; adjacent pieces are joined. On btrfs these are its own addresses.
    Extents(Vec<FileExtent>),
    /// The completed work of a week.
    Week(WeekDone),
    /// A file was removed.
    Removed {
        /// How long the unlink took.
        unlink_ns: u64,
        /// How long the fsync of the directory after it took.
        fsync_ns: u64,
    },
    /// It failed, and the remaining steps did not run.
    Failed(String),
}

/// How a program of [`Step::Program`] ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// That signal.
    pub signal: Option<i32>,
    /// Its standard output.
    pub output: Said,
    /// Its standard error.
    pub errors: Said,
}

/// Input or output of a program: bytes, usually text. In JSON a string; an array of bytes if it is not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub struct Said(pub Vec<u8>);

impl Said {
    /// Returns it as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

/// [`Said`] in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Written> for Said {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text.into_bytes()),
            Written::Bytes(bytes) => Self(bytes),
        }
    }
}

/// A step's end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// When it began, since the guest booted.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its result.
    pub outcome: Outcome,
}

impl StepReport {
    /// How long it took.
    pub fn duration(&self) -> SimDuration {
        SimDuration(self.end_ns - self.begin_ns)
    }
}

/// What the guest's init writes for the host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// One for each step.
    pub steps: Vec<StepReport>,
    /// The numbers of its own marks of the disk, in order.
    pub marks: Vec<usize>,
}

/// Work for a guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Carried out in order; the first that fails is the last.
    pub steps: Vec<Step>,
}

/// How to run a job.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The kernel.
    pub linux: PathBuf,
    /// See [`Machine::preload`].
    pub preload: Option<PathBuf>,
    /// The program that is the guest's init: this one, with the command [`INIT_COMMAND`].
    pub init: PathBuf,
    /// The program `trimwised`, for jobs with a [`Step::Daemon`].
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
    /// A step failed in the guest.
    #[error("in the guest, {step}: {what}")]
    Step {
        /// The step.
        step: String,
        /// The guest's message.
        what: String,
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
    ///
    /// # Errors
    /// [`JobError`].
    pub fn run_in_any_case(&self, job: &Job, disks: &mut [Disk]) -> Result<JobReport, JobError> {
        let folder_error = |what: &str| {
            let what = what.to_owned();
            move |source| JobError::Folder { what, source }
        };
        let folder = RunFolder::new().map_err(folder_error("cannot make a temporary folder"))?;
        let place = folder.path();
        let text = serde_json::to_vec(job).map_err(|e| folder_error("cannot write the job")(e.into()))?;
        fs::write(place.join(JOB_FILE), text).map_err(folder_error("cannot write the job"))?;
        let link = |program: &PathBuf, name| {
            std::os::unix::fs::symlink(program, place.join(name))
                .map_err(folder_error("cannot link a program"))
        };
        link(&self.init, "init")?;
        self.daemon.as_ref().map_or(Ok(()), |daemon| link(daemon, "trimwised"))?;
        let machine = Machine {
            linux: self.linux.clone(),
            preload: self.preload.clone(),
            memory: self.memory,
            folder: place.to_owned(),
            arguments: vec![INIT_COMMAND.to_owned()],
            limits: self.limits,
            interrupted: Arc::clone(&self.interrupted),
        };
        let outcome = machine.run(disks);
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
        let Report { steps, marks } = serde_json::from_slice(&bytes).map_err(|e| no_report(e.to_string()))?;
        if let Some(disk) = disks.first_mut() {
            disk.keep_marks(&marks).map_err(no_report)?;
        }
        if let (Some(StepReport { outcome: Outcome::Failed(what), .. }), Some(step)) =
            (steps.last(), steps.len().checked_sub(1).and_then(|last| job.steps.get(last)))
        {
            return Err(JobError::Step { step: step.name(), what: what.clone() });
        }
        if steps.len() != job.steps.len() {
            return Err(no_report(format!("{} of {} steps were reported", steps.len(), job.steps.len())));
        }
        Ok(JobReport { steps, ended, complaints: complaints(&console) })
    }
}

/// A run's folder. Dropping this value removes it; if the process is killed, the next run of the same user does.
struct RunFolder {
    folder: tempfile::TempDir,
    /// Locked while the run lasts, however it ends.
    _lock: fs::File,
}

impl RunFolder {
    const PREFIX: &str = "trimwise-guest-";
    const LOCK: &str = "lock";

    fn new() -> io::Result<Self> {
        Self::sweep(&std::env::temp_dir());
        let private = fs::Permissions::from_mode(0o700);
        loop {
            let folder =
                tempfile::Builder::new().prefix(Self::PREFIX).permissions(private.clone()).tempdir()?;
            // Before it is locked, another run may take it for a leftover and remove it.
            match Self::locked(folder.path()) {
                Ok(lock) => return Ok(Self { folder, _lock: lock }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Locks the folder; not found if the folder has been removed meanwhile.
    fn locked(folder: &Path) -> io::Result<fs::File> {
        let path = folder.join(Self::LOCK);
        let lock = fs::File::create_new(&path)?;
        lock.lock()?;
        fs::metadata(&path)?;
        Ok(lock)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes the folders of this user's runs whose process is gone. The parent folder is open to all users, so this
    /// never waits for what another user has created there.
    fn sweep(parent: &Path) {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(Self::PREFIX) {
                continue;
            }
            let lock = Self::left(&entry.path()).filter(|lock| lock.try_lock().is_ok());
            // Held until the folder is gone: a run that is about to lock it then finds it gone, and uses another.
            if let Some(_held) = lock {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Locks a leftover folder of this user.
    fn left(path: &Path) -> Option<fs::File> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let is_ours = folder.metadata().ok()?.uid() == geteuid().as_raw();
        is_ours.then(|| open_regular(&folder, Self::LOCK).ok()).flatten()
    }
}

/// Opens a regular file for reading. A FIFO in its place would block the caller, and a link could lead elsewhere.
fn open_regular(folder: impl AsFd, name: &str) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(openat(folder, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other(format!("{name}: not a regular file")))
}

impl Step {
    /// A few words for errors.
    fn name(&self) -> String {
        match self {
            Self::Mkfs { file_system, .. } => file_system.mkfs().0.to_owned(),
            Self::Mount { file_system, options } => {
                format!("mount of {} with '{options}'", file_system.name())
            }
            Self::Remount { options } => format!("remount with '{options}'"),
            Self::Unmount => "unmount".to_owned(),
            Self::Age { utilization_percent, .. } => format!("ageing to {utilization_percent} %"),
            Self::Postmark { .. } => "PostMark".to_owned(),
            Self::Timed { spec, .. } | Self::Workload { argument: spec, .. } => format!("workload {spec}"),
            Self::Scene { name, .. } => format!("scene {name}"),
            Self::Scatter { file, .. } => format!("making {file}"),
            Self::Remove { file } => format!("removing {file}"),
            Self::Extents { file } => format!("FIEMAP of {file}"),
            Self::Append { file, .. } => format!("appending to {file}"),
            Self::Fitrim { .. } => "FITRIM".to_owned(),
            Self::Sync => "sync".to_owned(),
            Self::Sleep { .. } => "sleep".to_owned(),
            Self::Read { path } => format!("reading {path}"),
            Self::Metadata | Self::FreeSpace => "GETFSMAP".to_owned(),
            Self::TrimEvery { .. } => "FITRIM at intervals".to_owned(),
            Self::PrepareWeek { .. } => "preparing the week".to_owned(),
            Self::Week { .. } => "a week".to_owned(),
            Self::Daemon { .. } | Self::StopDaemon | Self::KillDaemon => "trimwised".to_owned(),
            Self::TrustRandomness => "crediting random numbers".to_owned(),
            Self::Program { command, .. } => command.first().cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_no_run_takes_the_folder_of_a_run_that_is_starting() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let folder = RunFolder::new().unwrap();
                        fs::write(folder.path().join(JOB_FILE), "").unwrap();
                    }
                });
            }
        });
    }

    /// Any user could create a folder in the shared `/tmp` that blocked every run in open(2).
    #[test]
    fn regression_a_fifo_for_a_lock_keeps_nobody_waiting() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(format!("{}{name}", RunFolder::PREFIX));
            fs::create_dir(&path).unwrap();
            path
        };
        let fifo = folder("fifo").join(RunFolder::LOCK);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let secret = parent.path().join("secret");
        fs::write(&secret, "").unwrap();
        let linked = folder("linked").join(RunFolder::LOCK);
        std::os::unix::fs::symlink(&secret, &linked).unwrap();
        let left = folder("left");
        fs::write(left.join(RunFolder::LOCK), "").unwrap();
        // Owned by another user, if this one is root.
        let others = folder("others");
        fs::write(others.join(RunFolder::LOCK), "").unwrap();
        let is_root = std::os::unix::fs::chown(&others, Some(65534), None).is_ok();

        let (done, ended) = std::sync::mpsc::channel();
        let path = parent.path().to_owned();
        std::thread::spawn(move || {
            RunFolder::sweep(&path);
            let _ = done.send(());
        });
        // Long enough not to measure time: it ends, or never does.
        ended.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for a FIFO");
        assert!(fifo.exists() && linked.is_symlink() && secret.exists());
        assert!(!left.exists(), "what a killed run left is removed");
        assert_eq!(others.exists(), is_root, "another user's folder stays");
    }

    #[test]
    fn bytes_that_are_no_text_pass_through_json_whole() {
        for (bytes, json) in
            [(&b"text\n"[..], r#""text\n""#), (&[0xff, 0, 0x61], "[255,0,97]"), (b"", r#""""#)]
        {
            let said = Said(bytes.to_vec());
            assert_eq!(serde_json::to_string(&said).unwrap(), json);
            assert_eq!(serde_json::from_str::<Said>(json).unwrap(), said);
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let error = FileSystem::F2fs.check_mkfs_in(&path).unwrap_err();
        assert!(error.contains("mkfs.f2fs") && error.ends_with("apt-get install f2fs-tools"), "{error}");
        fs::write(folder.path().join("mkfs.f2fs"), "").unwrap();
        assert_eq!(FileSystem::F2fs.check_mkfs_in(&path), Ok(()));
    }
}
