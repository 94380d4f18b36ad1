//! Executes PostMark's operations on a file system.
//!
//! The steps come from the [script](super::script); here they become calls of the narrow file trait, with the open
//! flags and call sizes of the original: through stdio's buffer, or, with `set buffering false`, one call for each
//! block and one more for the remainder, even of 0 bytes.
//!
//! **Nothing is left behind.** If anything ends the run early (a full disk, an I/O error, Ctrl-C, which a real
//! directory turns into [`FileError::Interrupted`]), the files and directories that it created are removed through the
//! same trait, and only those: the script knows which files exist. The error reports those that could not be removed.

use std::fmt;

use thiserror::Error;

use super::config::PostmarkConfig;
use super::layout::{Layout, LocationError};
use super::outcome::{Outcome, PhaseTimes};
use super::script::{FileRef, Phase, Script, Step};
use super::stdio::{BUFFER_BYTES, ReadStep, ReadStream, WriteStream};
use crate::files::{Call, Calls, FileError, Files, OpenMode};
use crate::workload::days::{PacedTask, Pacer};
use crate::workload::latency::{OpLatencies, Operation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub phase: Phase,
    /// Files or transactions done in this phase.
    pub done: u64,
    /// Files or transactions of this phase in total.
    pub of: u64,
}

impl Progress {
    /// The beginning of a workload of any kind, once the file system is prepared for it.
    pub const BEGUN: Self = Self { phase: Phase::Create, done: 0, of: 0 };
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    pub count: u64,
    /// Why the first of them could not be removed; names it.
    pub first: FileError,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RunError {
    /// The configuration names a location that the target does not have.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// An operation failed. The files that the run had created were removed, except for the leftovers.
    #[error("{source} (while {}; {})", .phase.name(), Removed(.leftovers))]
    File {
        phase: Phase,
        source: FileError,
        /// Files that could not be removed; `None` if nothing is left.
        leftovers: Option<Leftovers>,
    },
}

impl RunError {
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::File { source: FileError::Interrupted, .. })
    }
}

struct Removed<'a>(&'a Option<Leftovers>);

impl fmt::Display for Removed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("everything that the run created was removed"),
            Some(Leftovers { count, first }) => {
                write!(f, "{count} of the run's files and directories could not be removed: {first}")
            }
        }
    }
}

/// Runs PostMark once on `fs`.
///
/// Locations must be relative to the root of `fs` ([`PostmarkConfig::for_model`], [`PostmarkConfig::for_directory`]).
/// Missing ones are created before the first timer starts and removed after the last. `progress` is called after each
/// operation.
///
/// # Errors
/// The first operation that fails ends the run (PostMark prints a line and continues, and its figures then mean
/// little). All files that the run had created are removed first.
pub async fn run<F: Files>(
    fs: &F,
    config: &PostmarkConfig,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RunError> {
    run_paced(fs, config, None, progress).await
}

/// Runs PostMark once on `fs`, as [`run`] does. With a pacer, its operations are spread over days.
pub async fn run_paced<F: Files>(
    fs: &F,
    config: &PostmarkConfig,
    pacer: Option<&Pacer>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RunError> {
    let layout = Layout::new(config)?;
    let (script, source) = Script::new(config);
    // The longest read is that of a whole file, or fills stdio's buffer.
    let calls = Calls::new(source, config.size_high.max(BUFFER_BYTES) as usize);
    let mut runner = Runner {
        fs,
        pace: pacer.map(PacedTask::new),
        config,
        layout: &layout,
        script,
        calls,
        pending: Vec::new(),
        times: PhaseTimes::default(),
        path: String::new(),
        locations: Vec::new(),
        subdirectories: Vec::new(),
        in_doubt: Vec::new(),
        latencies: OpLatencies::default(),
    };
    match runner.all(progress).await {
        Ok(()) => Ok(Outcome {
            counts: *runner.script.counts(),
            transactions: config.transactions.into(),
            times: runner.times,
            latencies: runner.latencies,
            out_of_files: runner.script.out_of_files(),
        }),
        Err(source) => {
            let phase = runner.script.phase();
            let leftovers = runner.clean_up().await;
            Err(RunError::File { phase, source, leftovers })
        }
    }
}

struct Runner<'a, F> {
    fs: &'a F,
    pace: Option<PacedTask<'a>>,
    config: &'a PostmarkConfig,
    layout: &'a Layout,
    script: Script<'a>,
    /// The calls of the pending steps. Every file's data start with the first byte of its source.
    calls: Calls,
    pending: Vec<Pending>,
    times: PhaseTimes,
    path: String,
    locations: Vec<String>,
    subdirectories: Vec<String>,
    /// Files that the script has deleted, but the file system perhaps not.
    in_doubt: Vec<FileRef>,
    latencies: OpLatencies,
}

/// Recorded times of a step: an operation has two, its begin and its end; the end of a phase has one.
#[derive(Clone, Copy)]
enum Pending {
    Timed(Operation),
    EndOf(Phase),
}

impl<F: Files> Runner<'_, F> {
    async fn all(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), FileError> {
        self.make_directories().await?;
        self.times.begin = self.fs.now();
        // A step that waits for its time must have been performed before the next one waits.
        let at_once = if self.pace.is_some() { 1 } else { self.fs.calls_at_once() };
        while let Some(step) = self.script.next() {
            if let (Some(pace), false) = (&self.pace, matches!(step, Step::EndOf(_))) {
                pace.next(self.fs).await;
            }
            self.add(step);
            if self.calls.len() >= at_once {
                self.perform(progress).await?;
            }
        }
        self.perform(progress).await?;
        if let Some(pace) = &self.pace {
            pace.end(self.fs);
        }
        for directory in self.directories() {
            self.fs.rmdir(directory).await?;
        }
        Ok(())
    }

    async fn perform(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), FileError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.fs.perform(&mut self.calls).await?;
        let mut times = self.calls.times().iter().copied();
        for step in self.pending.drain(..) {
            let time = times.next().unwrap_or_default();
            match step {
                Pending::Timed(operation) => {
                    let end = times.next().unwrap_or_default();
                    self.latencies.record(operation, end.since(time));
                }
                Pending::EndOf(Phase::Create) => self.times.created = time,
                Pending::EndOf(Phase::Transactions) => self.times.transacted = time,
                Pending::EndOf(Phase::Delete) => self.times.end = time,
            }
        }
        self.calls.clear();
        self.in_doubt.clear();
        let (done, of) = self.script.progress();
        progress(Progress { phase: self.script.phase(), done, of });
        Ok(())
    }

    async fn make_directories(&mut self) -> Result<(), FileError> {
        let layout = self.layout;
        for directory in layout.location_directories() {
            match self.fs.mkdir(directory).await {
                Ok(()) => self.locations.push(directory.to_owned()),
                Err(FileError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for directory in layout.subdirectory_paths() {
            self.fs.mkdir(&directory).await?;
            self.subdirectories.push(directory);
        }
        Ok(())
    }

    /// Iterates over the directories that the run created, in the order of removal: subdirectories as PostMark removes
    /// them, then locations from the innermost.
    fn directories(&self) -> impl Iterator<Item = &String> {
        self.subdirectories.iter().chain(self.locations.iter().rev())
    }

    fn add(&mut self, step: Step) {
        self.calls.push(Call::Now);
        let operation = match step {
            Step::Create { file, bytes } => {
                self.layout.path_into(file, &mut self.path);
                let mode = if self.config.buffering { OpenMode::Create } else { OpenMode::CreateKeep };
                self.write_file(mode, bytes);
                Operation::Create
            }
            Step::Append { file, bytes, .. } => {
                self.layout.path_into(file, &mut self.path);
                self.write_file(OpenMode::Append, bytes);
                Operation::Append
            }
            Step::Read { file, bytes } => {
                self.layout.path_into(file, &mut self.path);
                self.read_file(bytes);
                Operation::Read
            }
            Step::Delete { file, .. } => {
                self.in_doubt.push(file);
                self.layout.path_into(file, &mut self.path);
                self.calls.unlink(&self.path);
                Operation::Unlink
            }
            Step::EndOf(phase) => return self.pending.push(Pending::EndOf(phase)),
        };
        self.calls.push(Call::Now);
        self.pending.push(Pending::Timed(operation));
    }

    fn write_file(&mut self, mode: OpenMode, bytes: u32) {
        self.calls.open(&self.path, mode);
        let block = self.config.write_block.max(1);
        if self.config.buffering {
            write_buffered(&mut self.calls, bytes, block);
        } else {
            write_unbuffered(&mut self.calls, bytes, block);
        }
        self.calls.push(Call::Close);
    }

    fn read_file(&mut self, bytes: u32) {
        self.calls.open(&self.path, OpenMode::Read);
        let block = self.config.read_block.max(1);
        if self.config.buffering {
            read_buffered(&mut self.calls, bytes, block);
        } else {
            read_unbuffered(&mut self.calls, bytes, block);
        }
        self.calls.push(Call::Close);
    }

    /// Removes every file that can exist and every directory that was created. Returns those that are still there.
    async fn clean_up(&mut self) -> Option<Leftovers> {
        let mut leftovers: Option<Leftovers> = None;
        let mut note = |result: Result<(), FileError>| match result {
            Ok(()) | Err(FileError::NotFound { .. }) => {}
            Err(first) => leftovers.get_or_insert(Leftovers { count: 0, first }).count += 1,
        };
        for file in self.in_doubt.iter().copied().chain(self.script.live_files()) {
            self.layout.path_into(file, &mut self.path);
            note(self.fs.unlink(&self.path).await);
        }
        for directory in self.directories() {
            note(self.fs.rmdir(directory).await);
        }
        leftovers
    }
}

/// Writes as `fwrite` does, block by block, then the remainder, then closes as `fclose` does.
fn write_buffered(calls: &mut Calls, bytes: u32, block: u32) {
    let mut stream = WriteStream::default();
    let (mut left, mut sent, mut copied) = (bytes, 0, 0);
    while left > 0 {
        let bytes = left.min(block);
        let written = stream.fwrite(bytes);
        left -= bytes;
        copied += u64::from(written.copied);
        for bytes in [written.flush, written.direct] {
            if bytes > 0 {
                charge(calls, std::mem::take(&mut copied));
                let end = sent + bytes as usize;
                calls.push(Call::Write(sent..end));
                sent = end;
            }
        }
    }
    charge(calls, copied);
    if stream.fclose() > 0 {
        calls.push(Call::Write(sent..bytes as usize));
    }
}

fn charge(calls: &mut Calls, copied: u64) {
    if copied > 0 {
        calls.push(Call::ChargeUserCopy(copied));
    }
}

/// Calls `write` once for each block, and once for the remainder, which can be empty.
fn write_unbuffered(calls: &mut Calls, bytes: u32, block: u32) {
    let (bytes, block) = (bytes as usize, block as usize);
    let whole = bytes - bytes % block;
    for begin in (0..whole).step_by(block) {
        calls.push(Call::Write(begin..begin + block));
    }
    calls.push(Call::Write(whole..bytes));
}

/// Reads a file of this many bytes as `fread` does, block by block, then the remainder.
fn read_buffered(calls: &mut Calls, bytes: u32, block: u32) {
    let mut stream = ReadStream::default();
    let (mut left, mut in_file) = (bytes, bytes);
    while left > 0 {
        stream.fread(left.min(block));
        left -= left.min(block);
        loop {
            let step = stream.step();
            let asked = match step {
                ReadStep::Done => break,
                ReadStep::Fill => BUFFER_BYTES,
                ReadStep::Direct(bytes) => bytes,
            };
            charge(calls, stream.take_copied());
            calls.push(Call::Read(asked as usize));
            let got = asked.min(in_file);
            in_file -= got;
            match step {
                ReadStep::Direct(_) => stream.read_directly(got),
                ReadStep::Fill | ReadStep::Done => stream.filled(got),
            }
        }
    }
    charge(calls, stream.take_copied());
}

/// Calls `read` once for each block, and once for the remainder, which can be empty.
fn read_unbuffered(calls: &mut Calls, bytes: u32, block: u32) {
    for _ in 0..bytes / block {
        calls.push(Call::Read(block as usize));
    }
    calls.push(Call::Read((bytes % block) as usize));
}
