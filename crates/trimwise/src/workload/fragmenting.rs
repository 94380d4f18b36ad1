//! The fragmenting append benchmark of the Lazy TRIM paper.
//!
//! A file is written by alternating appends and seeks, so that a hole follows each piece: append 64 KiB, seek, append
//! 64 KiB, until it is 1 GiB long. ext4 puts a page as far from its neighbour on the disk as it is in the file, so each
//! hole leaves a gap and each piece becomes a fragment: when freed they do not merge, and each takes a TRIM of its own.
//! Then the file is removed and the removal made durable by an fsync, which is timed.
//!
//! The paper does not give the length of a seek, nor the file of the fsync. Here:
//!
//! - The hole is one block of 4 KiB, the minimum that fragments a file. Both readings of "until the total size of the
//!   file becomes 1GB", its length or its data, then agree within 6 %. It is a setting.
//! - The file is made durable before it is removed. Otherwise its last pages would still be waiting for blocks (delayed
//!   allocation), and would leave nothing to trim.
//! - A removed file cannot be synced. Instead a small file next to it is synced, after one of its blocks was
//!   overwritten between the removal and the fsync: fsync commits the running transaction only if its file belongs to
//!   it.

use crate::files::{FileError, Files, OpenMode};
use crate::units::{Bytes, SimDuration, UNIT_BYTES};

/// The directory that the benchmark creates for its files, so that no others are touched.
pub const DIRECTORY: &str = "fragmenting";
const NOTE: &str = "fragmenting/note";
pub const FILE: &str = "fragmenting/file";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmenting {
    /// Length at which the file is complete; the last append may go beyond it.
    pub file: Bytes,
    /// Bytes of an append, one system call.
    pub append: Bytes,
    /// Bytes skipped between two appends.
    pub hole: Bytes,
}

impl Fragmenting {
    /// The paper's file of 1 GiB, with pieces of `append`.
    pub const fn of_append(append: Bytes) -> Self {
        Self { file: Bytes::gib(1), append, hole: Bytes::kib(4) }
    }

    pub const fn pieces(&self) -> u64 {
        let step = self.append.0.saturating_add(self.hole.0);
        // The first piece that ends at or beyond the wanted length is the last.
        match self.file.0.saturating_sub(self.append.0) {
            0 => 1,
            rest => rest.div_ceil(if step == 0 { 1 } else { step }) + 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    pub unlink: SimDuration,
    /// The paper reports this one: the fsync after the unlink.
    pub fsync: SimDuration,
}

/// Writes the file and makes it durable. [`Note::create`] must have created the directory.
///
/// # Errors Errors of the file system; the file is removed again.
pub async fn write<F: Files>(fs: &F, path: &str, config: &Fragmenting) -> Result<(), FileError> {
    let mut file = fs.open(path, OpenMode::Create).await?;
    let written = write_pieces(fs, &mut file, config).await;
    fs.close(file).await?;
    if written.is_err() {
        fs.unlink(path).await?;
    }
    written
}

async fn write_pieces<F: Files>(fs: &F, file: &mut F::File, config: &Fragmenting) -> Result<(), FileError> {
    let piece = vec![0x5a; config.append.0 as usize];
    let step = config.append.0 + config.hole.0;
    for i in 0..config.pieces() {
        if i > 0 {
            fs.seek(file, i * step).await?;
        }
        fs.write(file, &piece).await?;
    }
    fs.fsync(file).await
}

/// A small file to sync, so that other files' removals become durable.
#[derive(Debug)]
pub struct Note<F: Files> {
    file: F::File,
}

impl<F: Files> Note<F> {
    /// Creates [`DIRECTORY`] and the file, and makes them durable.
    ///
    /// # Errors
    /// Errors of the file system; [`FileError::Exists`] if the directory exists. Nothing is left behind.
    pub async fn create(fs: &F) -> Result<Self, FileError> {
        fs.mkdir(DIRECTORY).await?;
        let file = match fs.open(NOTE, OpenMode::Create).await {
            Ok(file) => file,
            Err(error) => {
                fs.rmdir(DIRECTORY).await?;
                return Err(error);
            }
        };
        let mut note = Self { file };
        let written = match note.overwrite(fs).await {
            Ok(()) => fs.fsync(&mut note.file).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => Ok(note),
            Err(error) => {
                note.remove(fs).await?;
                Err(error)
            }
        }
    }

    /// Opens the note that [`Note::create`] has left there.
    pub async fn reopen(fs: &F) -> Result<Self, FileError> {
        Ok(Self { file: fs.open(NOTE, OpenMode::CreateKeep).await? })
    }

    /// Overwrites the note's one block, which needs no allocation.
    pub async fn overwrite(&mut self, fs: &F) -> Result<(), FileError> {
        fs.seek(&mut self.file, 0).await?;
        fs.write(&mut self.file, &[0xa5; UNIT_BYTES as usize]).await
    }

    /// Makes the note durable, together with the removals before it was overwritten. Returns the duration.
    pub async fn fsync(&mut self, fs: &F) -> Result<SimDuration, FileError> {
        let begin = fs.now();
        fs.fsync(&mut self.file).await?;
        Ok(fs.now().since(begin))
    }

    /// Removes the note and [`DIRECTORY`], which must hold nothing else.
    pub async fn remove(self, fs: &F) -> Result<(), FileError> {
        fs.close(self.file).await?;
        fs.unlink(NOTE).await?;
        fs.rmdir(DIRECTORY).await
    }
}

/// Removes the file, overwrites a block of `note`, and times the fsync of `note`.
pub async fn remove<F: Files>(fs: &F, path: &str, note: &mut Note<F>) -> Result<Removal, FileError> {
    let begin = fs.now();
    fs.unlink(path).await?;
    let unlink = fs.now().since(begin);
    note.overwrite(fs).await?;
    Ok(Removal { unlink, fsync: note.fsync(fs).await? })
}

/// Runs the whole benchmark and leaves nothing behind. Calls `written` when [`FILE`] lies on the disk.
pub async fn run<F: Files>(
    fs: &F,
    config: &Fragmenting,
    written: impl FnOnce(),
) -> Result<Removal, FileError> {
    let mut note = Note::create(fs).await?;
    let result = match write(fs, FILE, config).await {
        Ok(()) => {
            written();
            remove(fs, FILE, &mut note).await
        }
        Err(error) => Err(error),
    };
    note.remove(fs).await?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_the_file_is_complete() {
        let pieces = |file: u64, append: u64, hole: u64| {
            Fragmenting { file: Bytes(file), append: Bytes(append), hole: Bytes(hole) }.pieces()
        };
        assert_eq!(pieces(100, 10, 0), 10);
        // Ends at 10, 22, ..., 94, 106: the ninth lies behind 100.
        assert_eq!(pieces(100, 10, 2), 9);
        assert_eq!(pieces(94, 10, 2), 8);
        assert_eq!(pieces(5, 10, 2), 1);
        assert_eq!(pieces(0, 0, 0), 1);
        assert_eq!(Fragmenting::of_append(Bytes::kib(64)).pieces(), 15_421);
        assert_eq!(Fragmenting::of_append(Bytes::mib(64)).pieces(), 16);
    }
}
