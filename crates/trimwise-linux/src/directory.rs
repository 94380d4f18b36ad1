//! A real directory as the file system of a workload.
//!
//! Each call of [`Files`] makes the system call of that name at once; the futures are ready when they return
//! ([`block_on`](crate::block_on)). The directory is opened once and every path is taken relative to it. **No path
//! leaves it**: absolute paths and `..` are refused, and the parents of a path are opened without following symbolic
//! links or crossing mounts. They stay open, so files are created in the directories that were checked, even if those
//! are renamed.
//!
//! Once the interrupt flag is set, calls that create, read or write return [`FileError::Interrupted`]. Calls that
//! remove or close still work, so that a workload can clean up.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::{self, Errno};
use trimwise::files::{
    Call, Calls, FileError, FileSystemSpace, Files, Measured, OpenMode, one_by_one, timed_in_three,
};
use trimwise::units::{Bytes, SimDuration, SimTime};
use trimwise::workload::fragmenting::DIRECTORY;
use trimwise::workload::postmark::PostmarkConfig;
use trimwise::workload::timed::Timed;

use crate::directory_check::{DirectoryError, at, check_run, check_writable, open_beneath, words};
use crate::ioctl::batch::{CALLS_MAX, Ended, Memory, monotonic_ns};

/// Bytes per copy where C's stdio would copy: the size of its buffer.
const COPY_BYTES: usize = 4096;
/// Interval at which a sleep checks the interrupt flag.
const INTERRUPT_LOOKS: Duration = Duration::from_millis(100);
/// Source of zeros for writes; most writes are at most this long.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
/// Maximum number of parents held open: a process may have 1,024 descriptors.
const PARENTS_MAX: usize = 256;

#[derive(Debug)]
pub struct RealDirectory {
    root: Rc<OwnedFd>,
    /// Absolute, without symbolic links.
    path: PathBuf,
    /// Absolute, as the user wrote it.
    given: PathBuf,
    how: How,
    /// Parents below the root, at most [`PARENTS_MAX`].
    parents: RefCell<BTreeMap<String, Rc<OwnedFd>>>,
    /// Memory for several calls at once; `None` where they are made one by one.
    batches: RefCell<Option<Memory>>,
    /// Memory for [`Files::charge_user_copy`], which copies one half to the other.
    copy: RefCell<[[u8; COPY_BYTES]; 2]>,
}

#[derive(Clone, Debug)]
pub(crate) struct How {
    pub begin: Instant,
    pub interrupted: Arc<AtomicBool>,
    /// Interval at which a sleep checks the interrupt flag.
    pub looks: Duration,
    pub writes_zeros: bool,
    /// If several calls are made at once where the caller allows it, the time on the kernel's own clock at which that
    /// began.
    pub batches_since_ns: Option<u64>,
}

/// An open file of a [`RealDirectory`]; dropping it closes it.
#[derive(Debug)]
pub struct RealFile {
    descriptor: OwnedFd,
    path: String,
    /// Memory for direct transfers; `None` if the file goes through the page cache.
    aligned: Option<Vec<u8>>,
}

/// The alignment that `O_DIRECT` needs at most, apart from unusual devices.
const ALIGNMENT: usize = 4096;

/// Returns the first `len` aligned bytes of `memory`, which grows as needed.
fn aligned_part(memory: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if memory.len() < len + ALIGNMENT {
        memory.resize(len + ALIGNMENT, 0);
    }
    let at = memory.as_ptr().align_offset(ALIGNMENT);
    &mut memory[at..at + len]
}

/// Returns the data at an address from which they can be written.
fn staged<'a>(aligned: &'a mut Option<Vec<u8>>, data: &'a [u8]) -> &'a [u8] {
    match aligned {
        None => data,
        Some(memory) => {
            let staging = aligned_part(memory, data.len());
            staging.copy_from_slice(data);
            staging
        }
    }
}

impl RealDirectory {
    /// Opens the directory. `interrupted` can be set at any time, for instance by a signal handler.
    ///
    /// # Errors
    /// If it is missing, not a directory, on a read-only file system, or not writable.
    pub fn open(path: &Path, interrupted: Arc<AtomicBool>) -> Result<Self, DirectoryError> {
        let begin = Instant::now();
        let how =
            How { begin, interrupted, looks: INTERRUPT_LOOKS, writes_zeros: false, batches_since_ns: None };
        Self::open_as(path, how)
    }

    pub(crate) fn open_as(path: &Path, how: How) -> Result<Self, DirectoryError> {
        let name = || path.display().to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => DirectoryError::Missing { path: name() },
            Errno::NOTDIR => DirectoryError::NotADirectory { path: name() },
            errno => at(path)(errno),
        })?;
        check_writable(root.as_fd(), path)?;
        Ok(Self {
            root: Rc::new(root),
            path: path.canonicalize().map_err(at(path))?,
            given: std::path::absolute(path).map_err(at(path))?,
            batches: RefCell::new(how.batches_since_ns.map(|_| Memory::new())),
            how,
            parents: RefCell::default(),
            copy: RefCell::new([[0; COPY_BYTES]; 2]),
        })
    }

    /// Makes every write to this directory write zeros.
    #[must_use]
    pub fn with_zeros(mut self) -> Self {
        self.how.writes_zeros = true;
        self
    }

    /// Makes several calls at once where the workload allows it ([`Files::perform`]): only in a guest of `trimwise-uml`,
    /// whose kernel's process takes them ([`batch`](crate::ioctl::batch)).
    #[must_use]
    pub fn in_batches(mut self) -> Self {
        self.how.batches_since_ns = monotonic_ns();
        self.batches = RefCell::new(self.how.batches_since_ns.map(|_| Memory::new()));
        self
    }

    /// Lets a sleep of the workload last to its end without a look at the interrupt flag, which nobody will set.
    #[must_use]
    pub fn uninterrupted(mut self) -> Self {
        self.how.looks = Duration::MAX;
        self
    }

    pub(crate) fn how(&self) -> &How {
        &self.how
    }

    fn written<'a>(&self, data: &'a [u8]) -> Cow<'a, [u8]> {
        match ZEROS.get(..data.len()) {
            _ if !self.how.writes_zeros => Cow::Borrowed(data),
            Some(zeros) => Cow::Borrowed(zeros),
            None => Cow::Owned(vec![0; data.len()]),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_interrupted(&self) -> bool {
        self.how.interrupted.load(Ordering::Relaxed)
    }

    /// Prepares a run of PostMark: returns `config` with its locations relative to this directory.
    ///
    /// To find the run's needs, this goes through its script once (milliseconds for 100,000 operations).
    ///
    /// # Errors
    /// If a location is outside, a name that the run would use exists, or the run's files would not fit into the free
    /// space. Only the files count: a file system whose own structures need much of the remaining space can still
    /// become full. Nothing is created.
    pub fn plan(&self, config: &PostmarkConfig) -> Result<PostmarkConfig, DirectoryError> {
        let below = |root: &Path| config.for_directory(&root.to_string_lossy());
        let config = below(&self.path).or_else(|error| below(&self.given).map_err(|_| error))?;
        check_run(self.root.as_fd(), &self.path, &config)?;
        Ok(config)
    }

    /// Checks whether a benchmark that times one operation can run here; returns the space of the file system.
    ///
    /// # Errors
    /// If its directory exists, or its files would not fit into the free space. Nothing is created.
    pub fn check_timed(&self, timed: Timed) -> Result<FileSystemSpace, DirectoryError> {
        self.check_free(DIRECTORY, timed.needed())
    }

    /// Checks that a workload's directory is new and its files would fit; returns the space of the file system.
    pub(crate) fn check_free(
        &self,
        directory: &str,
        needed: Bytes,
    ) -> Result<FileSystemSpace, DirectoryError> {
        let name = |below: &Path| below.display().to_string();
        let own = self.path.join(directory);
        match fs::statat(&self.root, directory, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(DirectoryError::Occupied { path: name(&own) }),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(at(&own)(errno)),
        }
        let space = self.space().map_err(at(&self.path))?;
        if needed > space.free {
            return Err(DirectoryError::TooFull { path: name(&self.path), needed, free: space.free });
        }
        Ok(space)
    }

    fn space(&self) -> io::Result<FileSystemSpace> {
        let space = fs::fstatvfs(&self.root)?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(space.f_frsize));
        Ok(FileSystemSpace { total: bytes(space.f_blocks), free: bytes(space.f_bavail) })
    }

    fn check_interrupt(&self) -> Result<(), FileError> {
        if self.is_interrupted() { Err(FileError::Interrupted) } else { Ok(()) }
    }

    /// Splits a path into its open parent directory and its last component; refuses a path that could leave the root.
    fn parent<'a>(&self, path: &'a str) -> Result<(Rc<OwnedFd>, &'a str), FileError> {
        let refuse = |reason: String| FileError::Other { path: path.to_owned(), reason };
        if path.is_empty() || path.starts_with('/') || path.split('/').any(|component| component == "..") {
            return Err(refuse("not a path below the directory under test".to_owned()));
        }
        let Some((parent, name)) = path.rsplit_once('/') else { return Ok((Rc::clone(&self.root), path)) };
        if let Some(known) = self.parents.borrow().get(parent) {
            return Ok((Rc::clone(known), name));
        }
        match open_beneath(self.root.as_fd(), &self.path, parent) {
            Ok(Some(there)) => {
                let (there, mut parents) = (Rc::new(there), self.parents.borrow_mut());
                if parents.len() >= PARENTS_MAX {
                    parents.clear();
                }
                parents.insert(parent.to_owned(), Rc::clone(&there));
                Ok((there, name))
            }
            Ok(None) => Err(FileError::NotFound { path: path.to_owned() }),
            Err(error) => Err(refuse(error.to_string())),
        }
    }

    /// Performs calls in batches. Returns `None`, without having made any, where nothing takes batches.
    fn perform_in(&self, memory: &mut Memory, calls: &mut Calls) -> Option<Result<(), FileError>> {
        let (list, paths, data, scratch, times) = calls.parts();
        let begin_ns = self.how.batches_since_ns?;
        let (mut at, mut file, mut path) = (0, None, "");
        while at < list.len() {
            let mut batch = memory.begin(scratch, file.take());
            // Maps each call of the batch to its index in the list. A copy makes no call, since a guest's processor
            // takes no time.
            let mut indices = Vec::with_capacity(CALLS_MAX);
            let mut failed = None;
            for (index, call) in list.iter().enumerate().skip(at) {
                let parent = |path: &Range<usize>| self.parent(&paths[path.clone()]);
                let added = match call {
                    Call::Now => Ok(batch.now()),
                    Call::Open(path, mode) => parent(path).map(|(parent, name)| {
                        let (flags, permissions) = flags_of(*mode);
                        batch.open(&parent, name, flags, permissions)
                    }),
                    Call::Write(range) => Ok(batch.write(self.zeros_or(&data[range.clone()]))),
                    Call::Read(bytes) => Ok(batch.read(*bytes)),
                    Call::ChargeUserCopy(_) => continue,
                    Call::Close => Ok(batch.close()),
                    Call::Unlink(path) => parent(path).map(|(parent, name)| batch.unlink(&parent, name)),
                };
                match added {
                    Ok(true) => indices.push(index),
                    Ok(false) => break,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            let Some(&last) = indices.last() else { return Some(failed.map_or(Ok(()), Err)) };
            let Some(mut ended) = batch.submit() else {
                let refused =
                    FileError::Other { path: path.to_owned(), reason: "a batch was refused".to_owned() };
                return (at > 0).then_some(Err(refused));
            };
            times.extend(ended.times_ns.iter().map(|ns| SimTime(ns.saturating_sub(begin_ns))));
            let made = indices.get(ended.made - 1).copied().unwrap_or(last);
            if let Some(opened) = list[at..=made].iter().rev().find_map(|call| match call {
                Call::Open(path, _) | Call::Unlink(path) => Some(path),
                _ => None,
            }) {
                path = &paths[opened.clone()];
            }
            at = made + 1;
            if ended.is_cut_short {
                let done = match (ended.result, &list[made], &ended.file) {
                    // The kernel may write less, for instance when the disk fills up.
                    (Ok(written), Call::Write(range), Some(file)) => {
                        self.write_rest(path, file, &data[range.start + written as usize..range.end])
                    }
                    (result, _, _) => Err(file_error(path, result.err().unwrap_or(Errno::IO))),
                };
                if let Err(error) = done {
                    return Some(Err(error));
                }
            } else if let (true, Some(error)) = (made == last, failed) {
                return Some(Err(error));
            }
            file = ended.file.take();
        }
        Some(Ok(()))
    }

    /// Performs and measures a call in one batch. Returns `None`, without having made it, where nothing takes batches.
    fn timed_in(
        &self,
        memory: &mut Memory,
        call: &mut Measured<'_, RealFile>,
    ) -> Option<Result<(SimDuration, usize), FileError>> {
        let finish = |ended: Ended, path: &str, rest: &dyn Fn(usize) -> Result<(), FileError>| {
            let end_ns = match (ended.is_cut_short, ended.result) {
                (false, _) => ended.times_ns.get(1).copied(),
                (true, Err(errno)) => return Err(file_error(path, errno)),
                // The kernel may write less, for instance when the disk fills up.
                (true, Ok(_)) => {
                    rest(ended.asked as usize)?;
                    None
                }
            };
            let begin_ns = ended.times_ns.first().copied().unwrap_or_default();
            let duration = end_ns.or_else(monotonic_ns).unwrap_or_default().saturating_sub(begin_ns);
            Ok((SimDuration::from_nanos(duration), ended.asked as usize))
        };
        let none = |_| Ok(());
        Some(match call {
            Measured::Write(RealFile { descriptor, path, .. }, data) => {
                let data = self.zeros_or(data);
                let ended = memory.timed(|batch| batch.write_to(descriptor, data))?;
                finish(ended, path, &|written| self.write_rest(path, descriptor, &data[written..]))
            }
            Measured::Pwrite(RealFile { descriptor, path, aligned }, offset, data) => {
                let data = staged(aligned, self.zeros_or(data));
                let ended = memory.timed(|batch| batch.pwrite(descriptor, *offset, data))?;
                finish(ended, path, &|written| self.pwrite_rest(path, descriptor, *offset, data, written))
            }
            Measured::Pread(RealFile { descriptor, path, aligned: None }, offset, buffer) => {
                finish(memory.timed(|batch| batch.pread(descriptor, *offset, buffer))?, path, &none)
            }
            Measured::Pread(RealFile { descriptor, path, aligned: Some(aligned) }, offset, buffer) => {
                let staging = aligned_part(aligned, buffer.len());
                let ended = memory.timed(|batch| batch.pread(descriptor, *offset, staging))?;
                let done = finish(ended, path, &none);
                if let Ok((_, got)) = done {
                    buffer[..got].copy_from_slice(&staging[..got]);
                }
                done
            }
            Measured::Fsync(RealFile { descriptor, path, .. }) => {
                finish(memory.timed(|batch| batch.fsync(descriptor))?, path, &none)
            }
            Measured::Fdatasync(RealFile { descriptor, path, .. }) => {
                finish(memory.timed(|batch| batch.fdatasync(descriptor))?, path, &none)
            }
            Measured::Unlink(path) => match self.parent(path) {
                Ok((parent, name)) => finish(memory.timed(|batch| batch.unlink(&parent, name))?, path, &none),
                Err(error) => Err(error),
            },
        })
    }

    /// Returns the data to write in a batch: `data`, or as many zeros.
    fn zeros_or<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        ZEROS.get(..data.len()).filter(|_| self.how.writes_zeros).unwrap_or(data)
    }

    fn pwrite_rest(
        &self,
        path: &str,
        file: &OwnedFd,
        offset: u64,
        data: &[u8],
        mut written: usize,
    ) -> Result<(), FileError> {
        while written < data.len() {
            let at = offset + written as u64;
            match self.retry(path, || io::pwrite(file, &data[written..], at))? {
                0 => return Err(FileError::NoSpace { path: path.to_owned() }),
                more => written += more,
            }
        }
        Ok(())
    }

    fn write_rest(&self, path: &str, file: &OwnedFd, data: &[u8]) -> Result<(), FileError> {
        let mut written = 0;
        while written < data.len() {
            match self.retry(path, || io::write(file, &self.written(&data[written..])))? {
                0 => return Err(FileError::NoSpace { path: path.to_owned() }),
                more => written += more,
            }
        }
        Ok(())
    }

    /// Makes a system call, and retries it after a signal unless that signal ends the run.
    fn retry<T>(&self, path: &str, mut call: impl FnMut() -> io::Result<T>) -> Result<T, FileError> {
        loop {
            match call() {
                Err(Errno::INTR) => self.check_interrupt()?,
                result => return result.map_err(|errno| file_error(path, errno)),
            }
        }
    }

    /// Removes a name. Retries after every signal, since an interrupted run needs this to clean up.
    fn remove(&self, path: &str, flags: AtFlags) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        loop {
            match fs::unlinkat(&parent, name, flags) {
                Err(Errno::INTR) => {}
                result => return result.map_err(|errno| file_error(path, errno)),
            }
        }
    }
}

fn flags_of(mode: OpenMode) -> (OFlags, Mode) {
    let (flags, permissions) = match mode {
        OpenMode::Create => (OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, 0o666),
        OpenMode::CreateKeep => (OFlags::RDWR | OFlags::CREATE, 0o644),
        OpenMode::Read => (OFlags::RDONLY, 0),
        OpenMode::Append => (OFlags::RDWR | OFlags::APPEND, 0),
        OpenMode::Direct => (OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT, 0o644),
    };
    (flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::from_raw_mode(permissions))
}

fn file_error(path: &str, errno: Errno) -> FileError {
    let path = path.to_owned();
    match errno {
        Errno::NOSPC => FileError::NoSpace { path },
        Errno::NOENT => FileError::NotFound { path },
        Errno::EXIST => FileError::Exists { path },
        errno => FileError::Other { path, reason: words(errno) },
    }
}

impl Files for RealDirectory {
    type File = RealFile;

    fn now(&self) -> SimTime {
        match (self.how.batches_since_ns, self.how.batches_since_ns.and_then(|_| monotonic_ns())) {
            (Some(begin), Some(now)) => SimTime(now.saturating_sub(begin)),
            _ => SimTime(u64::try_from(self.how.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    async fn statfs(&self) -> Result<FileSystemSpace, FileError> {
        self.retry(".", || self.space())
    }

    async fn mkdir(&self, path: &str) -> Result<(), FileError> {
        self.check_interrupt()?;
        let (parent, name) = self.parent(path)?;
        self.retry(path, || fs::mkdirat(&parent, name, Mode::RWXU))
    }

    async fn rmdir(&self, path: &str) -> Result<(), FileError> {
        self.parents.borrow_mut().remove(path);
        self.remove(path, AtFlags::REMOVEDIR)
    }

    async fn open(&self, path: &str, mode: OpenMode) -> Result<RealFile, FileError> {
        self.check_interrupt()?;
        let (parent, name) = self.parent(path)?;
        let (flags, permissions) = flags_of(mode);
        let open = || fs::openat(&parent, name, flags, permissions);
        let aligned = (mode == OpenMode::Direct).then(Vec::new);
        Ok(RealFile { descriptor: self.retry(path, open)?, path: path.to_owned(), aligned })
    }

    async fn write(&self, file: &mut RealFile, data: &[u8]) -> Result<(), FileError> {
        self.check_interrupt()?;
        let data = &*self.written(data);
        let written = self.retry(&file.path, || io::write(&file.descriptor, data))?;
        // The kernel may write less, for instance when the disk fills up; the next call returns the reason.
        self.write_rest(&file.path, &file.descriptor, &data[written..])
    }

    async fn read(&self, file: &mut RealFile, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.check_interrupt()?;
        self.retry(&file.path, || io::read(&file.descriptor, &mut *buffer))
    }

    async fn seek(&self, file: &mut RealFile, offset: u64) -> Result<(), FileError> {
        self.check_interrupt()?;
        self.retry(&file.path, || fs::seek(&file.descriptor, fs::SeekFrom::Start(offset)))?;
        Ok(())
    }

    async fn pwrite(&self, file: &mut RealFile, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.check_interrupt()?;
        let data = &*self.written(data);
        let RealFile { descriptor, path, aligned } = file;
        self.pwrite_rest(path, descriptor, offset, staged(aligned, data), 0)
    }

    async fn pread(&self, file: &mut RealFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        self.check_interrupt()?;
        let RealFile { descriptor, path, aligned } = file;
        let Some(memory) = aligned else {
            return self.retry(path, || io::pread(&*descriptor, &mut *buffer, offset));
        };
        let staging = aligned_part(memory, buffer.len());
        let got = self.retry(path, || io::pread(&*descriptor, &mut *staging, offset))?;
        buffer[..got].copy_from_slice(&staging[..got]);
        Ok(got)
    }

    async fn punch(&self, file: &mut RealFile, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.check_interrupt()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.retry(&file.path, || fs::fallocate(&file.descriptor, flags, offset, bytes))
    }

    async fn fsync(&self, file: &mut RealFile) -> Result<(), FileError> {
        self.check_interrupt()?;
        self.retry(&file.path, || fs::fsync(&file.descriptor))
    }

    async fn fdatasync(&self, file: &mut RealFile) -> Result<(), FileError> {
        self.check_interrupt()?;
        self.retry(&file.path, || fs::fdatasync(&file.descriptor))
    }

    async fn drop_cached(&self, file: &mut RealFile) -> Result<(), FileError> {
        self.retry(&file.path, || fs::fadvise(&file.descriptor, 0, None, fs::Advice::DontNeed))
    }

    async fn close(&self, file: RealFile) -> Result<(), FileError> {
        drop(file);
        Ok(())
    }

    async fn unlink(&self, path: &str) -> Result<(), FileError> {
        self.remove(path, AtFlags::empty())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.check_interrupt()?;
        let ((old, old_name), (new, new_name)) = (self.parent(from)?, self.parent(to)?);
        self.retry(from, || fs::renameat(&old, old_name, &new, new_name))
    }

    async fn sync(&self) -> Result<(), FileError> {
        self.check_interrupt()?;
        self.retry(".", || fs::syncfs(&self.root))
    }

    async fn drop_caches(&self) -> Result<(), FileError> {
        const SWITCH: &str = "/proc/sys/vm/drop_caches";
        self.sync().await?;
        std::fs::write(SWITCH, "3").map_err(|error| FileError::Other {
            path: SWITCH.to_owned(),
            reason: format!("{error}; only root can drop a host's caches"),
        })
    }

    async fn sleep(&self, duration: SimDuration) {
        let end = Instant::now() + Duration::from_nanos(duration.as_nanos());
        while !self.is_interrupted() {
            match end.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return,
                left => std::thread::sleep(left.min(self.how.looks)),
            }
        }
    }

    async fn timed(&self, mut call: Measured<'_, RealFile>) -> Result<(SimDuration, usize), FileError> {
        if let Some(memory) = &mut *self.batches.borrow_mut()
            && let Some(done) = self.timed_in(memory, &mut call)
        {
            return done;
        }
        *self.batches.borrow_mut() = None;
        timed_in_three(self, call).await
    }

    fn calls_at_once(&self) -> usize {
        // A step of the workload may add some more.
        if self.batches.borrow().is_some() { CALLS_MAX * 3 / 4 } else { 1 }
    }

    async fn perform(&self, calls: &mut Calls) -> Result<(), FileError> {
        if let Some(memory) = &mut *self.batches.borrow_mut()
            && let Some(done) = self.perform_in(memory, calls)
        {
            return done;
        }
        *self.batches.borrow_mut() = None;
        one_by_one(self, calls).await
    }

    /// Spends the time by copying `bytes`, since the workload has no stdio buffer.
    async fn charge_user_copy(&self, bytes: u64) {
        let mut halves = self.copy.borrow_mut();
        let [from, to] = &mut *halves;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(COPY_BYTES as u64) as usize;
            to[..now].copy_from_slice(black_box(&from[..now]));
            black_box(&*to);
            left -= now as u64;
        }
    }
}
