//! A write that needs a block on a full file system: table II of the Lazy TRIM paper.
//!
//! The file system is filled to the last block. Then a random file is removed, its removal is made durable or not, and
//! a synchronous write that needs a new block is timed: `write` and `fsync` of one block at the end of a file, as with
//! O_SYNC.
//!
//! The paper does not give the size and the fragmentation of the files. Here the removed file is one of several files
//! of the append benchmark ([`super::fragmenting`]), and one file takes all remaining space, including the gaps between
//! their fragments.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::fragmenting::{self, Fragmenting, Note};
use crate::files::{FileError, Files, OpenMode};
use crate::units::{SimDuration, UNIT_BYTES};

/// Maximum number of fragmented files (assumed); one more file takes the rest. More would only take longer to fill the
/// gaps between their fragments.
pub const FILES_MAX: u64 = 4;
const PROBE: &str = "fragmenting/probe";
const REST: &str = "fragmenting/rest";
/// The remaining space is filled in steps of decreasing size; the last is one block.
const REST_STEPS: [u64; 3] = [4 << 20, 64 << 10, UNIT_BYTES];

/// A file system without a free block.
#[derive(Debug)]
pub struct Full<F: Files> {
    note: Note<F>,
    probe: Option<F::File>,
    files: Vec<u64>,
}

/// Durations of the write and of the steps around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullWrite {
    /// The fsync between removal and write, if there was one.
    pub fsync: Option<SimDuration>,
    /// The write and its fsync.
    pub write: SimDuration,
}

fn path_of(number: u64) -> String {
    format!("{}/{number}", fragmenting::DIRECTORY)
}

/// Fills the file system to its last block: at most `files_max` fragmented files, and one file for the rest.
///
/// On a real directory this takes all available space.
///
/// # Errors
/// Errors of the file system, except that it is full; the files are removed again.
pub async fn fill<F: Files>(fs: &F, config: &Fragmenting, files_max: u64) -> Result<Full<F>, FileError> {
    let mut full = Full { note: Note::create(fs).await?, probe: None, files: Vec::new() };
    match full.make_files(fs, config, files_max).await {
        Ok(()) => Ok(full),
        Err(error) => {
            full.remove(fs).await?;
            Err(error)
        }
    }
}

/// Opens the files that [`fill`] has left there.
pub async fn reopen<F: Files>(fs: &F, files_max: u64) -> Result<Full<F>, FileError> {
    let note = Note::reopen(fs).await?;
    let probe = Some(fs.open(PROBE, OpenMode::CreateKeep).await?);
    let mut files = Vec::new();
    for number in 0..files_max {
        match fs.open(&path_of(number), OpenMode::Read).await {
            Ok(file) => fs.close(file).await?,
            Err(FileError::NotFound { .. }) => break,
            Err(other) => return Err(other),
        }
        files.push(number);
    }
    Ok(Full { note, probe, files })
}

async fn write_rest<F: Files>(fs: &F, rest: &mut F::File) -> Result<(), FileError> {
    let mut end = 0;
    loop {
        let before = end;
        for step in REST_STEPS {
            let piece = vec![0; step as usize];
            loop {
                // The next write overwrites the remains of a failed one.
                fs.seek(rest, end).await?;
                match fs.write(rest, &piece).await {
                    Ok(()) => end += step,
                    Err(FileError::NoSpace { .. }) => break,
                    Err(other) => return Err(other),
                }
            }
        }
        // Blocks may come back: reservations for metadata, or blocks of an incomplete file.
        fs.sync().await?;
        if end == before {
            return Ok(());
        }
    }
}

impl<F: Files> Full<F> {
    async fn make_files(&mut self, fs: &F, config: &Fragmenting, files_max: u64) -> Result<(), FileError> {
        let mut probe = fs.open(PROBE, OpenMode::Create).await?;
        fs.write(&mut probe, &[1; UNIT_BYTES as usize]).await?;
        fs.fsync(&mut probe).await?;
        self.probe = Some(probe);
        for number in 0..files_max {
            match fragmenting::write(fs, &path_of(number), config).await {
                Ok(()) => self.files.push(number),
                Err(FileError::NoSpace { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        let mut rest = fs.open(REST, OpenMode::Create).await?;
        let written = write_rest(fs, &mut rest).await;
        fs.close(rest).await?;
        written
    }

    pub fn files(&self) -> &[u64] {
        &self.files
    }

    /// Returns the path of the file that [`Full::remove_and_write`] removes with this seed; `None` if there is none.
    pub fn victim(&self, seed: u64) -> Option<String> {
        let drawn = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64() >> 32;
        let index = (drawn * self.files.len() as u64) >> 32;
        self.files.get(index as usize).copied().map(path_of)
    }

    /// Removes a random file, makes that durable if `fsync`, and times a synchronous write of one block that needs a
    /// new one.
    ///
    /// # Errors
    /// Errors of the file system; [`FileError::NoSpace`] if there is no file to remove.
    pub async fn remove_and_write(&mut self, fs: &F, seed: u64, fsync: bool) -> Result<FullWrite, FileError> {
        let victim = self.victim(seed).ok_or_else(|| FileError::NoSpace { path: path_of(0) })?;
        fs.unlink(&victim).await?;
        self.files.retain(|&number| path_of(number) != victim);
        let fsync = if fsync {
            self.note.overwrite(fs).await?;
            Some(self.note.fsync(fs).await?)
        } else {
            None
        };
        let gone = || FileError::NotFound { path: PROBE.to_owned() };
        let probe = self.probe.as_mut().ok_or_else(gone)?;
        fs.seek(probe, UNIT_BYTES).await?;
        let begin = fs.now();
        fs.write(probe, &[2; UNIT_BYTES as usize]).await?;
        fs.fsync(probe).await?;
        Ok(FullWrite { fsync, write: fs.now().since(begin) })
    }

    pub async fn remove(self, fs: &F) -> Result<(), FileError> {
        if let Some(probe) = self.probe {
            fs.close(probe).await?;
        }
        let files = self.files.into_iter().map(path_of);
        for path in files.chain([PROBE.to_owned(), REST.to_owned()]) {
            match fs.unlink(&path).await {
                Ok(()) | Err(FileError::NotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        self.note.remove(fs).await
    }
}
