//! The narrow file trait that every file workload is written against.
//!
//! A workload is one async function over [`Files`]. It runs unchanged on the modelled file system in virtual time and
//! on a real directory in real time (there each call blocks and the future is ready at once). So claims about the model
//! can be checked against the real thing with the same code.

use thiserror::Error;

use crate::units::{Bytes, SimDuration, SimTime};

/// Mode of opening a file, with only the flags that the workloads need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Write-only; created if missing, emptied if not (`O_WRONLY|O_CREAT|O_TRUNC`).
    Create,
    /// Read and write; created if missing, *not* emptied (`O_RDWR|O_CREAT`).
    CreateKeep,
    /// Read-only, for existing files.
    Read,
    /// Read and write, every write at the end (`O_RDWR|O_APPEND`).
    Append,
    /// Read and write past the page cache (`O_DIRECT`), otherwise like [`OpenMode::CreateKeep`]: only [`Files::pread`]
    /// and [`Files::pwrite`], of whole sectors of 512 bytes.
    Direct,
}

/// Reasons why a file operation failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say what is wrong and where")]
pub enum FileError {
    /// No block or inode is left, even after waiting for those that a commit would free.
    #[error("{path}: no space left on the file system")]
    NoSpace { path: String },
    /// The path does not exist.
    #[error("{path}: no such file or directory")]
    NotFound { path: String },
    /// The path already exists.
    #[error("{path}: already exists")]
    Exists { path: String },
    /// The run was asked to stop (Ctrl-C on a real directory).
    #[error("interrupted")]
    Interrupted,
    /// Any other error of the host's file system.
    #[error("{path}: {reason}")]
    Other { path: String, reason: String },
}

/// Size and free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Bytes that files could use in an empty file system.
    pub total: Bytes,
    /// Bytes that an allocation could use now or after the running commit.
    pub free: Bytes,
}

/// A file system as a workload sees it.
///
/// Paths are relative to the root of the file system (or of the directory under test) and use `/`. A task makes one
/// call after the other; several tasks may share a file system. Nothing is durable before [`Files::fsync`] or
/// [`Files::sync`] returns.
#[allow(async_fn_in_trait)] // single-threaded by design: no future here needs to be `Send`
pub trait Files {
    /// An open file with its position.
    type File;

    /// Returns the present: virtual time in the model, a monotonic clock on a real directory.
    fn now(&self) -> SimTime;
    /// Returns size and free space.
    async fn statfs(&self) -> Result<FileSystemSpace, FileError>;
    /// Creates a directory; its parent must exist.
    async fn mkdir(&self, path: &str) -> Result<(), FileError>;
    /// Removes an empty directory.
    async fn rmdir(&self, path: &str) -> Result<(), FileError>;
    /// Opens a file in one of the modes.
    async fn open(&self, path: &str, mode: OpenMode) -> Result<Self::File, FileError>;
    /// Writes all of `data` at the file's position (at its end with [`OpenMode::Append`]); one system call.
    async fn write(&self, file: &mut Self::File, data: &[u8]) -> Result<(), FileError>;
    /// Reads up to `buffer.len()` bytes at the file's position; one system call. Returns the number of bytes; 0 at the
    /// end.
    ///
    /// The model leaves the buffer unchanged: it knows the duration of a read, not its data.
    async fn read(&self, file: &mut Self::File, buffer: &mut [u8]) -> Result<usize, FileError>;
    /// Moves the file's position to `offset` bytes from its start (`lseek`).
    async fn seek(&self, file: &mut Self::File, offset: u64) -> Result<(), FileError>;
    /// Writes all of `data` at `offset` (`pwrite`); the position stays. Not for [`OpenMode::Append`].
    async fn pwrite(&self, file: &mut Self::File, offset: u64, data: &[u8]) -> Result<(), FileError>;
    /// Reads as [`Files::read`], but at `offset` (`pread`); the position stays.
    async fn pread(&self, file: &mut Self::File, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError>;
    /// Frees the blocks of `bytes` from `offset` on, as far as they are whole, and leaves the file's length
    /// (`fallocate` with `FALLOC_FL_PUNCH_HOLE`); the rest of the range becomes zeros.
    async fn punch(&self, file: &mut Self::File, offset: u64, bytes: u64) -> Result<(), FileError>;
    /// Makes the file's data and metadata durable.
    async fn fsync(&self, file: &mut Self::File) -> Result<(), FileError>;
    /// Makes the file's data durable, and the metadata needed to read them (`fdatasync`).
    async fn fdatasync(&self, file: &mut Self::File) -> Result<(), FileError>;
    /// Drops cached pages of the file, as far as they are written (`posix_fadvise` with `POSIX_FADV_DONTNEED`).
    async fn drop_cached(&self, file: &mut Self::File) -> Result<(), FileError>;
    /// Closes the file.
    async fn close(&self, file: Self::File) -> Result<(), FileError>;
    /// Removes a file's name, and with it the file.
    async fn unlink(&self, path: &str) -> Result<(), FileError>;
    /// Renames a file; a file of the new name is replaced and removed. Directories are not renamed.
    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError>;
    /// Makes the whole file system durable.
    async fn sync(&self) -> Result<(), FileError>;
    /// Lets time pass; other tasks run meanwhile.
    async fn sleep(&self, duration: SimDuration);
    /// Spends the processor time of a C library copying `bytes` through its stdio buffer.
    ///
    /// The model adds it to the clock. A real directory copies that much between two buffers, because the workload
    /// itself keeps no buffer and passes its data on directly.
    async fn charge_user_copy(&self, bytes: u64);
}
