//! The narrow file trait that every file workload is written against.
//!
//! A workload is one async function over [`Files`]. It runs unchanged on the modelled file system in virtual time and
//! on a real directory in real time (there each call blocks and the future is ready at once). So claims about the model
//! can be checked against the real thing with the same code.

use std::ops::Range;

use thiserror::Error;

use crate::units::{Bytes, SimDuration, SimTime};

/// Mode of opening a file, with only the flags that the workloads need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Write-only; created if missing, emptied if not (`O_WRONLY|O_CREAT|O_TRUNC`).
    Create,
    /// Read and write; created if missing, *not* emptied (`O_RDWR|O_CREAT`).
    CreateKeep,
    Read,
    /// Read and write, every write at the end (`O_RDWR|O_APPEND`).
    Append,
    /// Read and write past the page cache (`O_DIRECT`), otherwise like [`OpenMode::CreateKeep`]: only [`Files::pread`]
    /// and [`Files::pwrite`], of whole sectors of 512 bytes.
    Direct,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FileError {
    /// No block or inode is left, even after waiting for those that a commit would free.
    #[error("{path}: no space left on the file system")]
    NoSpace { path: String },
    #[error("{path}: no such file or directory")]
    NotFound { path: String },
    #[error("{path}: already exists")]
    Exists { path: String },
    /// The run was asked to stop (Ctrl-C on a real directory).
    #[error("interrupted")]
    Interrupted,
    #[error("{path}: {reason}")]
    Other { path: String, reason: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Bytes that files could use in an empty file system.
    pub total: Bytes,
    /// Bytes that an allocation could use now or after the running commit.
    pub free: Bytes,
}

/// Calls that a workload will make one after the other, for [`Files::perform`]. They concern one open file at a time:
/// the one that was opened last.
#[derive(Debug, Default)]
pub struct Calls {
    list: Vec<Call>,
    paths: String,
    data: Vec<u8>,
    scratch: Vec<u8>,
    times: Vec<SimTime>,
}

/// One of [`Calls`]; paths and data are ranges of what these hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Now,
    Open(Range<usize>, OpenMode),
    Write(Range<usize>),
    /// Reads up to this many bytes, and drops them.
    Read(usize),
    ChargeUserCopy(u64),
    Close,
    Unlink(Range<usize>),
}

impl Calls {
    /// Creates an empty list of calls that write parts of `data`, and read up to `longest_read` bytes at a time.
    pub fn new(data: Vec<u8>, longest_read: usize) -> Self {
        Self { data, scratch: vec![0; longest_read], ..Self::default() }
    }

    pub fn push(&mut self, call: Call) {
        self.list.push(call);
    }

    pub fn open(&mut self, path: &str, mode: OpenMode) {
        let path = self.keep(path);
        self.list.push(Call::Open(path, mode));
    }

    pub fn unlink(&mut self, path: &str) {
        let path = self.keep(path);
        self.list.push(Call::Unlink(path));
    }

    fn keep(&mut self, path: &str) -> Range<usize> {
        let begin = self.paths.len();
        self.paths.push_str(path);
        begin..self.paths.len()
    }

    /// Returns the calls, their paths, the data that they write, memory for what they read, and the list in which
    /// [`Call::Now`] leaves its results.
    pub fn parts(&mut self) -> (&[Call], &str, &[u8], &mut [u8], &mut Vec<SimTime>) {
        (&self.list, &self.paths, &self.data, &mut self.scratch, &mut self.times)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the results of [`Call::Now`], in order.
    pub fn times(&self) -> &[SimTime] {
        &self.times
    }

    pub fn clear(&mut self) {
        self.list.clear();
        self.paths.clear();
        self.times.clear();
    }
}

/// Performs calls one by one: [`Files::perform`] of a file system that gains nothing from several at once. If a call
/// fails, the open file is closed.
pub async fn one_by_one<F: Files>(fs: &F, calls: &mut Calls) -> Result<(), FileError> {
    let (list, paths, data, scratch, times) = calls.parts();
    let mut open: Option<F::File> = None;
    for call in list {
        let done = match (call, &mut open) {
            (Call::Now, _) => {
                times.push(fs.now());
                Ok(())
            }
            (Call::Open(path, mode), _) => {
                fs.open(&paths[path.clone()], *mode).await.map(|file| open = Some(file))
            }
            (Call::Write(range), Some(file)) => fs.write(file, &data[range.clone()]).await,
            (Call::Read(bytes), Some(file)) => fs.read(file, &mut scratch[..*bytes]).await.map(drop),
            (Call::ChargeUserCopy(bytes), _) => {
                fs.charge_user_copy(*bytes).await;
                Ok(())
            }
            (Call::Close, _) => match open.take() {
                Some(file) => fs.close(file).await,
                None => Ok(()),
            },
            (Call::Unlink(path), _) => fs.unlink(&paths[path.clone()]).await,
            (Call::Write(_) | Call::Read(_), None) => Ok(()), // no file is open
        };
        if let Err(error) = done {
            if let Some(file) = open {
                let _ = fs.close(file).await; // the first error counts
            }
            return Err(error);
        }
    }
    Ok(())
}

/// A call that is measured, for [`Files::timed`].
#[derive(Debug)]
pub enum Measured<'a, F> {
    Write(&'a mut F, &'a [u8]),
    Pwrite(&'a mut F, u64, &'a [u8]),
    Pread(&'a mut F, u64, &'a mut [u8]),
    Fsync(&'a mut F),
    Fdatasync(&'a mut F),
    Unlink(&'a str),
}

/// Performs and measures a call in three calls: [`Files::timed`] of a file system that gains nothing from fewer.
pub async fn timed_in_three<F: Files>(
    fs: &F,
    call: Measured<'_, F::File>,
) -> Result<(SimDuration, usize), FileError> {
    let begin = fs.now();
    let read = match call {
        Measured::Write(file, data) => fs.write(file, data).await.map(|()| 0),
        Measured::Pwrite(file, offset, data) => fs.pwrite(file, offset, data).await.map(|()| 0),
        Measured::Pread(file, offset, buffer) => fs.pread(file, offset, buffer).await,
        Measured::Fsync(file) => fs.fsync(file).await.map(|()| 0),
        Measured::Fdatasync(file) => fs.fdatasync(file).await.map(|()| 0),
        Measured::Unlink(path) => fs.unlink(path).await.map(|()| 0),
    }?;
    Ok((fs.now().since(begin), read))
}

/// A file system as a workload sees it.
///
/// Paths are relative to the root of the file system (or of the directory under test) and use `/`. A task makes one
/// call after the other; several tasks may share a file system. Nothing is durable before [`Files::fsync`] or
/// [`Files::sync`] returns.
#[allow(async_fn_in_trait)] // single-threaded by design: no future here needs to be `Send`
pub trait Files {
    type File;

    /// Returns the present: virtual time in the model, a monotonic clock on a real directory.
    fn now(&self) -> SimTime;
    async fn statfs(&self) -> Result<FileSystemSpace, FileError>;
    /// Creates a directory; its parent must exist.
    async fn mkdir(&self, path: &str) -> Result<(), FileError>;
    async fn rmdir(&self, path: &str) -> Result<(), FileError>;
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
    /// Frees the whole blocks in `bytes` from `offset` on, and leaves the file's length (`fallocate` with
    /// `FALLOC_FL_PUNCH_HOLE`). The rest of the range becomes zeros.
    async fn punch(&self, file: &mut Self::File, offset: u64, bytes: u64) -> Result<(), FileError>;
    /// Makes the file's data and metadata durable.
    async fn fsync(&self, file: &mut Self::File) -> Result<(), FileError>;
    /// Makes the file's data durable, and the metadata needed to read them (`fdatasync`).
    async fn fdatasync(&self, file: &mut Self::File) -> Result<(), FileError>;
    /// Drops cached pages of the file, as far as they are written (`posix_fadvise` with `POSIX_FADV_DONTNEED`).
    async fn drop_cached(&self, file: &mut Self::File) -> Result<(), FileError>;
    async fn close(&self, file: Self::File) -> Result<(), FileError>;
    /// Removes a file's name, and with it the file.
    async fn unlink(&self, path: &str) -> Result<(), FileError>;
    /// Renames a file. A file of the new name is replaced and removed. Directories are not renamed.
    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError>;
    async fn sync(&self) -> Result<(), FileError>;
    /// Syncs, and drops what is in memory: data, names, inodes and maps (`echo 3 > /proc/sys/vm/drop_caches`).
    ///
    /// # Errors
    /// Where that cannot be done.
    async fn drop_caches(&self) -> Result<(), FileError> {
        let reason = "its caches cannot be dropped from here".to_owned();
        Err(FileError::Other { path: ".".to_owned(), reason })
    }
    /// Lets time pass. Other tasks run in the meantime.
    async fn sleep(&self, duration: SimDuration);
    /// Spends the processor time of a C library copying `bytes` through its stdio buffer.
    ///
    /// The model adds it to the clock. A real directory copies that much between two buffers, because the workload
    /// itself keeps no buffer and passes its data on directly.
    async fn charge_user_copy(&self, bytes: u64);

    /// Performs a call between two readings of the clock. Returns how long it took, and the number of bytes read.
    ///
    /// # Errors
    /// Errors of the call.
    async fn timed(&self, call: Measured<'_, Self::File>) -> Result<(SimDuration, usize), FileError>
    where
        Self: Sized,
    {
        timed_in_three(self, call).await
    }
    /// Returns the number of calls beyond which [`Files::perform`] gains nothing from more.
    fn calls_at_once(&self) -> usize {
        1
    }
    /// Performs calls in order, until one fails. Their results, apart from errors and times, are dropped: a workload
    /// that knows its calls beforehand need not wait for each of them, which is expensive where a call takes long to
    /// arrive.
    ///
    /// # Errors The first that fails; the file that is open then is closed.
    async fn perform(&self, calls: &mut Calls) -> Result<(), FileError>
    where
        Self: Sized,
    {
        one_by_one(self, calls).await
    }
}
