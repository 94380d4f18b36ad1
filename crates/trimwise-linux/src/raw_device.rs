//! A real file or block device behind the library's block trait, in real time.
//!
//! Reads and writes are direct (O_DIRECT) and asynchronous (io_uring): as many as are handed over are in the device's
//! queue at once. A block device is opened exclusively, so that nobody can mount it meanwhile.
//!
//! **What a latency is.** It begins when the operation's bytes are ready and it is handed to the kernel, and ends when its
//! completion is seen. Completions are looked for whenever an operation is handed over or a completion is waited for,
//! and the time is taken then. So with one operation at a time a latency is exact to some microseconds; with many, one
//! may count the time for which this thread readied the bytes of another write (about a microsecond for 4 KiB). An
//! operation longer than [`CALL_BYTES`] is several calls, all handed over at once.
//!
//! **TRIM** of a block device is BLKDISCARD, of a file a punched hole. Both go through io_uring too: a TRIM is on its way
//! beside reads and writes, and its latency is taken as theirs. The kernel's own worker makes the call for a file. Before
//! Linux 6.12 it has no such call for a block device; then a thread of this process makes it, which adds the time to wake
//! two threads (some tens of microseconds). A long range is cut by the kernel at the device's limit, and the latency is
//! that of all pieces. TRIM of a file reaches the device below only as far as the file system passes it on (mount
//! option `discard`): what is tested is the file system with the drive.
//!
//! Waiting blocks in the poll, as [`block_on`](crate::block_on) wants it.

mod bytes;
mod open;
mod promise;
mod queue;
mod target;

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use trimwise::block::{BlockDevice, BlockError, Completion, DeviceFacts, Operation, check_operation};
use trimwise::content::{Stored, recognise};
use trimwise::units::{Bytes, Lpn, SECTOR_BYTES, SimDuration, SimTime, UNIT_BYTES, UnitRange};

use crate::block_device::BlockDeviceError;
use crate::consent::{Consent, ConsentError};

pub use promise::{Promise, dlfeat_promises_zeros, identify_promises_zeros, lbprz_promises_zeros};
use queue::Queue;
pub use target::{Target, TargetError};

/// The longest transfer that is one call to the kernel.
pub const CALL_BYTES: Bytes = Bytes(16 << 20);
/// The most that may be on its way at once: buffers of so many bytes are held.
pub const ON_ITS_WAY_BYTES: Bytes = Bytes(2 << 30);

/// What may be done to a target.
#[derive(Debug)]
pub enum Access {
    /// Reads only; the target may be in use.
    Read(Target),
    /// Everything.
    Write(Consent),
}

/// How a target is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a file is made, or an empty one becomes. One that holds something keeps its length, and a device its own.
    pub file_bytes: Bytes,
    /// Whether a file that was made stays at the end.
    pub keep_file: bool,
    /// Operations that the ring takes before the kernel must have seen some.
    pub queue_depth: u32,
    /// TRIM of a block device through a thread of this process, as on Linux before 6.12, also where the kernel can do
    /// better: to see what that costs.
    pub trim_by_thread: bool,
    /// May be set at any time, by a signal handler for instance: then every operation ends [`BlockError::Interrupted`].
    pub interrupted: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_bytes: Bytes::gib(1),
            keep_file: false,
            queue_depth: 256,
            trim_by_thread: false,
            interrupted: Arc::default(),
        }
    }
}

/// Why a target cannot be opened.
#[derive(Debug, Error)]
pub enum RawDeviceError {
    /// It is not the one that the consent was given for any more.
    #[error(
        "{path}: is another file or device than the one that was looked at a moment ago; nothing was written"
    )]
    Changed {
        /// The path.
        path: String,
    },
    /// It may not be overwritten, or is no such thing.
    #[error(transparent)]
    Consent(#[from] ConsentError),
    /// The kernel says nothing of the device.
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    /// There is no room for the file.
    #[error("{path}: no room for a file of {needed}: {free} are free on its file system")]
    NoRoom {
        /// The path.
        path: String,
        /// The file's size.
        needed: Bytes,
        /// What is free.
        free: Bytes,
    },
    /// No test can run there.
    #[error("{path}: {what}; expected {expected}")]
    Unfit {
        /// The path.
        path: String,
        /// What it is.
        what: String,
        /// What would do.
        expected: &'static str,
    },
    /// The kernel has no io_uring for us.
    #[error(
        "io_uring: {source}. It needs Linux 5.6 or later, and leave to use it: `sysctl kernel.io_uring_disabled` must \
         say 0 (1: only root and its io_uring_group may), and a container's seccomp profile must let io_uring_setup \
         through (docker run --security-opt seccomp=unconfined)"
    )]
    NoRing {
        /// The operating system's words.
        source: io::Error,
    },
    /// Another error of the operating system.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// The operating system's words.
        source: io::Error,
    },
}

/// A file or block device that tests run on.
pub struct RawDevice {
    facts: DeviceFacts,
    notes: Vec<String>,
    promise: Promise,
    target: Target,
    file: Arc<File>,
    /// Whether it may be written.
    is_writable: bool,
    begun: Instant,
    interrupted: Arc<AtomicBool>,
    queue: RefCell<Queue>,
    _made: Option<Made>,
}

impl fmt::Debug for RawDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawDevice").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A file that goes when it is not needed any more.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// Device and inode number: whatever else has its name by then stays.
    identity: (u64, u64),
}

impl Made {
    fn new(path: &Path, file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { path: path.to_owned(), identity: (found.dev(), found.ino()) })
    }

    /// Lets the file stay if it is to be kept.
    fn unless(self, keeps: bool) -> Option<Self> {
        if !keeps {
            return Some(self);
        }
        std::mem::forget(self);
        None
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.identity) {
            // If it is gone already, or its file system, there is nothing left to take away.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl RawDevice {
    /// What the user should know of how it was opened, each in one sentence.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether trimmed units are promised to read as zeros, and by what.
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

    /// What it was opened for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn check_interrupt(&self) -> Result<(), BlockError> {
        if self.interrupted.load(Ordering::Relaxed) { Err(BlockError::Interrupted) } else { Ok(()) }
    }

    fn time(&self) -> SimTime {
        SimTime(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn check(&self, operation: &Operation) -> Result<(), BlockError> {
        check_operation(operation, self.facts.size_units)?;
        let unsupported = |why: String| Err(BlockError::Unsupported(format!("{}: {why}", self.target)));
        match operation {
            Operation::Write(..) | Operation::Trim(_) if !self.is_writable => {
                unsupported("is opened for reading only".to_owned())
            }
            Operation::Trim(_) if self.facts.trim.is_none() => unsupported("takes no TRIM".to_owned()),
            Operation::Read(sectors) | Operation::Write(sectors, _) => {
                let sector = self.facts.sector_bytes;
                let bytes = [sectors.first.0 * SECTOR_BYTES, sectors.bytes().0];
                if bytes.iter().all(|n| n.is_multiple_of(sector)) {
                    return Ok(());
                }
                unsupported(format!(
                    "{} bytes from byte {} are no whole sectors of {sector} bytes",
                    bytes[1], bytes[0]
                ))
            }
            _ => Ok(()),
        }
    }
}

impl BlockDevice for RawDevice {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn now(&self) -> SimTime {
        self.time()
    }

    async fn sleep(&self, span: SimDuration) {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let until = Instant::now() + Duration::from_nanos(span.as_nanos());
        while self.check_interrupt().is_ok() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError> {
        self.check_interrupt()?;
        self.check(&operation)?;
        self.queue.borrow_mut().submit(&operation, token, || self.time())
    }

    async fn completion(&self) -> Result<Completion, BlockError> {
        let mut queue = self.queue.borrow_mut();
        loop {
            self.check_interrupt()?;
            if let Some(done) = queue.next(|| self.time()) {
                return done;
            }
            if queue.is_idle() {
                return Err(BlockError::Other("nothing is on its way that could complete".to_owned()));
            }
            queue.wait()?;
        }
    }

    async fn stored(&self, lpn: Lpn) -> Result<Stored, BlockError> {
        self.check_interrupt()?;
        check_operation(&Operation::read(UnitRange::new(lpn, 1)), self.facts.size_units)?;
        let mut page = Box::new(bytes::blank());
        let offset = lpn.0 * UNIT_BYTES;
        self.file.read_exact_at(&mut page.0, offset).map_err(|error| {
            BlockError::Other(format!("{}: read of 4096 bytes at byte {offset}: {error}", self.target))
        })?;
        Ok(recognise(lpn, &page.0))
    }

    async fn erase(&self) -> Result<(), BlockError> {
        let path = self.target.path().display();
        Err(BlockError::Unsupported(match &self.target {
            Target::File(_) => {
                format!("{path}: a file has no erase of its own; remove it, or TRIM all of it")
            }
            Target::Device(_) => format!(
                "{path}: erasing is left to the vendor's means: for ATA `hdparm --user-master u --security-set-pass p \
                 {path}` and `hdparm --security-erase p {path}`; for NVMe `nvme format {path} --ses=1`"
            ),
        }))
    }
}
