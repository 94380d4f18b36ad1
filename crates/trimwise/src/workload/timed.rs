//! Workloads that time one operation instead of a whole run, in their notation: `append:64KiB:1GiB`, `fullwrite`.
//!
//! Both come from the Lazy TRIM paper: [`fragmenting`] is the append benchmark, [`full_write`] the write that needs a
//! block on a full file system. Each is prepared, measured and removed in three calls, so that a caller may look at the
//! device in between; a real directory uses the same three calls.

use std::fmt;
use std::str::FromStr;

use super::apps::parameters::{Mistake, WorkloadError, exact};
use super::fragmenting::{self, FILE, Fragmenting, Note, Removal};
use super::full_write::{self, Full, FullWrite};
use crate::files::{FileError, Files};
use crate::units::{Bytes, SimDuration};

/// Smallest append: one block; less would not make a fragment.
const APPEND_MIN: Bytes = Bytes::kib(4);
/// Largest append: four times the paper's largest. It is held in memory, once for each concurrent run.
const APPEND_MAX: Bytes = Bytes::mib(256);
/// Largest file: a sixteenth of the maximum of ext4 with blocks of 4 KiB.
const FILE_MAX: Bytes = Bytes::gib(1024);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// The fsync after the removal of a fragmented file: `append[:APPEND[:FILE]]`.
    Append(Fragmenting),
    /// A synchronous write that needs a block on a full file system: `fullwrite[:APPEND[:FILE]][:nofsync]`.
    FullWrite { file: Fragmenting, fsync: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    Append(Removal),
    FullWrite(FullWrite),
}

impl Timing {
    /// Returns the duration of the operation that the workload times.
    pub fn operation(self) -> SimDuration {
        match self {
            Self::Append(removal) => removal.fsync,
            Self::FullWrite(full) => full.write,
        }
    }
}

pub struct Prepared<F: Files>(Stage<F>);

enum Stage<F: Files> {
    /// The note, and true while the file exists.
    Append(Note<F>, bool),
    FullWrite {
        full: Full<F>,
        fsync: bool,
        seed: u64,
    },
}

impl Timed {
    /// Returns true if a text is meant as a timed workload, valid or not: its first field is one of their names.
    pub fn is_meant(text: &str) -> bool {
        matches!(text.split(':').next(), Some("append" | "fullwrite"))
    }

    /// Returns true if the workload takes all the space of the file system.
    pub fn fills(self) -> bool {
        matches!(self, Self::FullWrite { .. })
    }

    /// Returns how each file is written.
    pub fn file(self) -> Fragmenting {
        match self {
            Self::Append(file) | Self::FullWrite { file, .. } => file,
        }
    }

    /// Returns the space that the files take at one time. For a workload that fills the file system it is the minimum:
    /// the file to remove.
    pub fn needed(self) -> Bytes {
        let file = self.file();
        Bytes(file.pieces().saturating_mul(file.append.0))
    }

    /// Writes the files, up to the timed operation. `seed` selects the file to remove, if there are several.
    ///
    /// # Errors
    /// Errors of the file system; the files are removed again.
    pub async fn prepare<F: Files>(self, fs: &F, seed: u64) -> Result<Prepared<F>, FileError> {
        Ok(Prepared(match self {
            Self::Append(config) => {
                let note = Note::create(fs).await?;
                if let Err(error) = fragmenting::write(fs, FILE, &config).await {
                    note.remove(fs).await?;
                    return Err(error);
                }
                Stage::Append(note, true)
            }
            Self::FullWrite { file, fsync } => {
                let full = full_write::fill(fs, &file, full_write::FILES_MAX).await?;
                Stage::FullWrite { full, fsync, seed }
            }
        }))
    }

    /// Takes over the files that [`Timed::prepare`] left on the file system, perhaps in another mount.
    pub async fn resume<F: Files>(self, fs: &F, seed: u64) -> Result<Prepared<F>, FileError> {
        Ok(Prepared(match self {
            Self::Append(_) => Stage::Append(Note::reopen(fs).await?, true),
            Self::FullWrite { fsync, .. } => {
                let full = full_write::reopen(fs, full_write::FILES_MAX).await?;
                Stage::FullWrite { full, fsync, seed }
            }
        }))
    }
}

impl<F: Files> Prepared<F> {
    /// Removes a file and times the operation; call it once.
    ///
    /// # Errors
    /// Errors of the file system; even then [`Prepared::remove`] removes all remaining files.
    pub async fn measure(&mut self, fs: &F) -> Result<Timing, FileError> {
        match &mut self.0 {
            Stage::Append(note, file) => {
                let removal = fragmenting::remove(fs, FILE, note).await;
                *file &= removal.is_err();
                Ok(Timing::Append(removal?))
            }
            Stage::FullWrite { full, fsync, seed } => {
                Ok(Timing::FullWrite(full.remove_and_write(fs, *seed, *fsync).await?))
            }
        }
    }

    pub async fn remove(self, fs: &F) -> Result<(), FileError> {
        match self.0 {
            Stage::Append(note, file) => {
                if file {
                    // The removal itself may have succeeded before a later step failed.
                    match fs.unlink(FILE).await {
                        Ok(()) | Err(FileError::NotFound { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
                note.remove(fs).await
            }
            Stage::FullWrite { full, .. } => full.remove(fs).await,
        }
    }
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fragmenting { append, file, .. } = self.file();
        let (append, file) = (exact(append), exact(file));
        match self {
            Self::Append(_) => write!(f, "append:{append}:{file}"),
            Self::FullWrite { fsync: true, .. } => write!(f, "fullwrite:{append}:{file}"),
            Self::FullWrite { fsync: false, .. } => write!(f, "fullwrite:{append}:{file}:nofsync"),
        }
    }
}

impl FromStr for Timed {
    type Err = WorkloadError;

    fn from_str(given: &str) -> Result<Self, WorkloadError> {
        let wrong = |at: usize, what: String, expected: String| WorkloadError {
            given: given.to_owned(),
            mistakes: vec![Mistake::at(given, at, what, expected)],
        };
        // Each field comes with its byte offset.
        let mut fields = given.split(':').scan(0, |at, text| {
            let field = (*at, text);
            *at += text.len() + 1;
            Some(field)
        });
        let (_, name) = fields.next().unwrap_or_default();
        let fills = match name {
            "append" => false,
            "fullwrite" => true,
            other => {
                let expected = "append[:APPEND[:FILE]] or fullwrite[:APPEND[:FILE]][:nofsync]";
                return Err(wrong(0, format!("unknown workload '{other}'"), expected.to_owned()));
            }
        };
        let mut fields: Vec<(usize, &str)> = fields.collect();
        let last = fields.last().map(|(_, text)| *text);
        let fsync = !(fills && last == Some("nofsync"));
        if !fsync {
            fields.pop();
        }
        let size = |index: usize, default: Bytes, what: &str, min: Bytes, max: Bytes| {
            let Some(&(at, text)) = fields.get(index) else { return Ok(default.max(min)) };
            let or_nofsync = if fills { ", or at the end nofsync" } else { "" };
            let expected = format!("the size of {what}, from {} to {}{or_nofsync}", exact(min), exact(max));
            match text.parse::<Bytes>() {
                Err(_) => Err(wrong(at, format!("'{text}' is not a size"), expected)),
                Ok(bytes) if bytes < min => Err(wrong(at, format!("'{text}' is too small"), expected)),
                Ok(bytes) if bytes > max => Err(wrong(at, format!("'{text}' is too large"), expected)),
                Ok(bytes) => Ok(bytes),
            }
        };
        let default = Fragmenting::of_append(Bytes::kib(64));
        let append = size(0, default.append, "an append", APPEND_MIN, APPEND_MAX)?;
        let length = size(1, default.file, "the file", append, FILE_MAX)?;
        if let Some(&(at, text)) = fields.get(2) {
            let expected = if fills { "nothing more, or nofsync" } else { "nothing more" };
            return Err(wrong(at, format!("unexpected third field '{text}'"), expected.to_owned()));
        }
        let file = Fragmenting { file: length, ..Fragmenting::of_append(append) };
        Ok(if fills { Self::FullWrite { file, fsync } } else { Self::Append(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_prints_as_it_was_parsed() {
        for (text, canonical) in [
            ("append", "append:64KiB:1GiB"),
            ("append:1MiB", "append:1MiB:1GiB"),
            ("append:4096:12k", "append:4KiB:12KiB"),
            ("append:5000:10001", "append:5000:10001"),
            ("fullwrite", "fullwrite:64KiB:1GiB"),
            ("fullwrite:nofsync", "fullwrite:64KiB:1GiB:nofsync"),
            ("fullwrite:128KiB:nofsync", "fullwrite:128KiB:1GiB:nofsync"),
            ("fullwrite:128KiB:64MiB", "fullwrite:128KiB:64MiB"),
            ("fullwrite:128KiB:64MiB:nofsync", "fullwrite:128KiB:64MiB:nofsync"),
        ] {
            let read: Timed = text.parse().unwrap();
            assert_eq!(read.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(read));
            assert!(Timed::is_meant(text));
        }
        assert!(!Timed::is_meant("appendix.pmrc") && !Timed::is_meant("dir/append:1"));
    }

    #[test]
    fn an_error_names_its_column_and_what_is_accepted() {
        for (text, column, what, expected) in [
            ("appendix", 1, "unknown workload 'appendix'", "append[:APPEND[:FILE]]"),
            ("append:", 8, "'' is not a size", "from 4KiB to 256MiB"),
            ("append:64Kibi", 8, "'64Kibi' is not a size", "an append, from 4KiB"),
            ("append:1", 8, "'1' is too small", "from 4KiB"),
            ("append:1GiB", 8, "'1GiB' is too large", "to 256MiB"),
            ("append:64KiB:4KiB", 14, "'4KiB' is too small", "the file, from 64KiB to 1024GiB"),
            ("append:64KiB:1PiB", 14, "'1PiB' is too large", "to 1024GiB"),
            ("append:64KiB:1GiB:9", 19, "unexpected third field '9'", "nothing more"),
            ("append:nofsync", 8, "'nofsync' is not a size", "an append"),
            ("fullwrite:nofsync:64KiB", 11, "'nofsync' is not a size", "or at the end nofsync"),
            ("fullwrite:64KiB:1GiB:sync", 22, "unexpected third field 'sync'", "or nofsync"),
        ] {
            let error = text.parse::<Timed>().unwrap_err();
            let [mistake] = &error.mistakes[..] else { panic!("{error}") };
            assert_eq!((error.given.as_str(), mistake.column), (text, column));
            assert!(
                mistake.what.contains(what) && mistake.expected.to_string().contains(expected),
                "{error}"
            );
        }
    }
}
