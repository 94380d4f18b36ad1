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
use crate::files::{FileError, Files, OpenMode};
use crate::workload::days::{PacedTask, Pacer};
use crate::workload::latency::{OpLatencies, Operation};

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Current phase of the run.
    pub phase: Phase,
    /// Files or transactions done in this phase.
    pub done: u64,
    /// Total number in this phase.
    pub of: u64,
}

impl Progress {
    /// The beginning of a workload of any kind, after what prepares the file system for it.
    pub const BEGUN: Self = Self { phase: Phase::Create, done: 0, of: 0 };
}

/// Files and directories that a failed run could not remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftovers {
    /// Number of files and directories still there.
    pub count: u64,
    /// Reason why the first of them could not be removed; names it.
    pub first: FileError,
}

/// Reasons why a run did not reach its end.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RunError {
    /// The configuration names a location that the target does not have.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// An operation failed. The files that the run had created were removed, except for the leftovers.
    #[error("{source} (while {}; {})", .phase.name(), Removed(.leftovers))]
    File {
        /// The phase of the failure.
        phase: Phase,
        /// Error of the operation.
        source: FileError,
        /// Files that could not be removed; `None` if nothing is left.
        leftovers: Option<Leftovers>,
    },
}

impl RunError {
    /// Returns true if the run was asked to stop.
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

/// Runs PostMark once on `fs`, as [`run`] does; with a pacer, its operations are spread over days.
pub async fn run_paced<F: Files>(
    fs: &F,
    config: &PostmarkConfig,
    pacer: Option<&Pacer>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RunError> {
    let layout = Layout::new(config)?;
    let (script, source) = Script::new(config);
    // The longest read is that of a whole file, or stdio filling its buffer.
    let scratch = vec![0; config.size_high.max(BUFFER_BYTES) as usize];
    let mut runner = Runner {
        fs,
        pace: pacer.map(PacedTask::new),
        config,
        layout: &layout,
        script,
        source,
        scratch,
        path: String::new(),
        locations: Vec::new(),
        subdirectories: Vec::new(),
        in_doubt: None,
        latencies: OpLatencies::default(),
    };
    match runner.all(progress).await {
        Ok(times) => Ok(Outcome {
            counts: *runner.script.counts(),
            transactions: config.transactions.into(),
            times,
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
    /// Data to write: every file's data start with its first byte.
    source: Vec<u8>,
    scratch: Vec<u8>,
    path: String,
    locations: Vec<String>,
    subdirectories: Vec<String>,
    /// A file that the script has deleted, but the file system perhaps not.
    in_doubt: Option<FileRef>,
    latencies: OpLatencies,
}

impl<F: Files> Runner<'_, F> {
    async fn all(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<PhaseTimes, FileError> {
        self.make_directories().await?;
        let mut times = PhaseTimes { begin: self.fs.now(), ..PhaseTimes::default() };
        while let Some(step) = self.script.next() {
            match step {
                Step::EndOf(Phase::Create) => times.created = self.fs.now(),
                Step::EndOf(Phase::Transactions) => times.transacted = self.fs.now(),
                Step::EndOf(Phase::Delete) => times.end = self.fs.now(),
                operation => {
                    if let Some(pace) = &self.pace {
                        pace.next(self.fs).await;
                    }
                    self.timed(operation).await?;
                }
            }
            let (done, of) = self.script.progress();
            progress(Progress { phase: self.script.phase(), done, of });
        }
        if let Some(pace) = &self.pace {
            pace.end(self.fs);
        }
        for directory in self.directories() {
            self.fs.rmdir(directory).await?;
        }
        Ok(times)
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

    /// Directories that the run created, in the order of removal: subdirectories as PostMark removes them, then
    /// locations from the innermost.
    fn directories(&self) -> impl Iterator<Item = &String> {
        self.subdirectories.iter().chain(self.locations.iter().rev())
    }

    async fn timed(&mut self, step: Step) -> Result<(), FileError> {
        let begin = self.fs.now();
        let operation = match step {
            Step::Create { file, bytes } => {
                self.layout.path_into(file, &mut self.path);
                let mode = if self.config.buffering { OpenMode::Create } else { OpenMode::CreateKeep };
                self.write_file(mode, bytes).await?;
                Operation::Create
            }
            Step::Append { file, bytes, .. } => {
                self.layout.path_into(file, &mut self.path);
                self.write_file(OpenMode::Append, bytes).await?;
                Operation::Append
            }
            Step::Read { file, bytes } => {
                self.layout.path_into(file, &mut self.path);
                self.read_file(bytes).await?;
                Operation::Read
            }
            Step::Delete { file, .. } => {
                self.in_doubt = Some(file);
                self.layout.path_into(file, &mut self.path);
                self.fs.unlink(&self.path).await?;
                self.in_doubt = None;
                Operation::Unlink
            }
            Step::EndOf(_) => return Ok(()),
        };
        self.latencies.record(operation, self.fs.now().since(begin));
        Ok(())
    }

    async fn write_file(&mut self, mode: OpenMode, bytes: u32) -> Result<(), FileError> {
        let mut file = self.fs.open(&self.path, mode).await?;
        let data = &self.source[..bytes as usize];
        let block = self.config.write_block.max(1);
        let written = if self.config.buffering {
            write_buffered(self.fs, &mut file, data, block).await
        } else {
            write_unbuffered(self.fs, &mut file, data, block).await
        };
        let closed = self.fs.close(file).await;
        written.and(closed)
    }

    async fn read_file(&mut self, bytes: u32) -> Result<(), FileError> {
        let mut file = self.fs.open(&self.path, OpenMode::Read).await?;
        let block = self.config.read_block.max(1);
        let read = if self.config.buffering {
            read_buffered(self.fs, &mut file, &mut self.scratch, bytes, block).await
        } else {
            read_unbuffered(self.fs, &mut file, &mut self.scratch, bytes, block).await
        };
        let closed = self.fs.close(file).await;
        read.and(closed)
    }

    /// Removes every file that can exist and every directory that was created. Returns those that are still there.
    async fn clean_up(&mut self) -> Option<Leftovers> {
        let mut leftovers: Option<Leftovers> = None;
        let mut note = |result: Result<(), FileError>| match result {
            Ok(()) | Err(FileError::NotFound { .. }) => {}
            Err(first) => leftovers.get_or_insert(Leftovers { count: 0, first }).count += 1,
        };
        for file in self.in_doubt.into_iter().chain(self.script.live_files()) {
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
async fn write_buffered<F: Files>(
    fs: &F,
    file: &mut F::File,
    data: &[u8],
    block: u32,
) -> Result<(), FileError> {
    let mut stream = WriteStream::default();
    let (mut left, mut sent, mut copied) = (data.len() as u32, 0, 0);
    while left > 0 {
        let bytes = left.min(block);
        let written = stream.fwrite(bytes);
        left -= bytes;
        copied += u64::from(written.copied);
        for bytes in [written.flush, written.direct] {
            if bytes > 0 {
                if copied > 0 {
                    fs.charge_user_copy(std::mem::take(&mut copied)).await;
                }
                let end = sent + bytes as usize;
                fs.write(file, &data[sent..end]).await?;
                sent = end;
            }
        }
    }
    if copied > 0 {
        fs.charge_user_copy(copied).await;
    }
    if stream.fclose() > 0 {
        fs.write(file, &data[sent..]).await?;
    }
    Ok(())
}

/// Calls `write` once for each block, and once for the remainder, which can be empty.
async fn write_unbuffered<F: Files>(
    fs: &F,
    file: &mut F::File,
    data: &[u8],
    block: u32,
) -> Result<(), FileError> {
    let blocks = data.chunks_exact(block as usize);
    let remainder = blocks.remainder();
    for block in blocks {
        fs.write(file, block).await?;
    }
    fs.write(file, remainder).await
}

/// Reads as `fread` does, block by block, then the remainder; stops at the end of the file.
async fn read_buffered<F: Files>(
    fs: &F,
    file: &mut F::File,
    scratch: &mut [u8],
    bytes: u32,
    block: u32,
) -> Result<(), FileError> {
    let mut stream = ReadStream::default();
    let mut left = bytes;
    'file: while left > 0 {
        stream.fread(left.min(block));
        left -= left.min(block);
        loop {
            let step = stream.step();
            let asked = match step {
                ReadStep::Done => break,
                ReadStep::Fill => BUFFER_BYTES,
                ReadStep::Direct(bytes) => bytes,
            };
            let copied = stream.take_copied();
            if copied > 0 {
                fs.charge_user_copy(copied).await;
            }
            let got = fs.read(file, &mut scratch[..asked as usize]).await? as u32;
            match step {
                _ if got == 0 => break 'file,
                ReadStep::Direct(_) => stream.read_directly(got),
                ReadStep::Fill | ReadStep::Done => stream.filled(got),
            }
        }
    }
    let copied = stream.take_copied();
    if copied > 0 {
        fs.charge_user_copy(copied).await;
    }
    Ok(())
}

/// Calls `read` once for each block, and once for the remainder, which can be empty.
async fn read_unbuffered<F: Files>(
    fs: &F,
    file: &mut F::File,
    scratch: &mut [u8],
    bytes: u32,
    block: u32,
) -> Result<(), FileError> {
    for _ in 0..bytes / block {
        fs.read(file, &mut scratch[..block as usize]).await?;
    }
    fs.read(file, &mut scratch[..(bytes % block) as usize]).await?;
    Ok(())
}
