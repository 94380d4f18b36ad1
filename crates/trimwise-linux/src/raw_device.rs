//! A real file or block device behind the library's block trait, in real time.
//!
//! Reads and writes are direct (O_DIRECT) and asynchronous (io_uring): all submitted operations are in the device's
//! queue at once. A block device is opened exclusively, so that it cannot be mounted meanwhile.
//!
//! **What a latency is.** It begins when the operation's bytes are ready and it is handed to the kernel, and ends when
//! its completion is seen. Every submission and every wait looks for completions and takes the time then. So with one
//! operation at a time a latency is exact to a few microseconds. With many operations, a latency can include the time
//! in which this thread prepares the bytes of another write (about a microsecond for 4 KiB). An operation longer than
//! [`CALL_BYTES`] is several calls, all submitted at once.
//!
//! **TRIM** of a block device is BLKDISCARD, of a file a punched hole. Both go through io_uring too: a TRIM is in
//! flight together with reads and writes, and its latency is measured like theirs. For a file, a kernel worker makes
//! the call. Before Linux 6.12 io_uring has no such call for a block device; then a thread of this process makes it,
//! which adds the time to wake two threads (some tens of microseconds). The kernel splits a long range at the device's
//! limit, and the latency is that of all pieces. TRIM of a file reaches the device below only as far as the file system
//! passes it on (mount option `discard`): such a test measures the file system with the drive.
//!
//! Waiting blocks inside the poll, as [`block_on`](crate::block_on) requires.

mod bytes;
mod open;
mod promise;
mod queue;

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
use crate::path_error::PathError;

pub use crate::target::{Target, TargetError};
pub use promise::{Promise, dlfeat_promises_zeros, identify_promises_zeros, lbprz_promises_zeros};
use queue::Queue;

/// The longest transfer in one call to the kernel.
pub(crate) const CALL_BYTES: Bytes = Bytes(16 << 20);
/// Maximum bytes in flight at once, which is also the limit on buffers held.
pub(crate) const IN_FLIGHT_BYTES: Bytes = Bytes(2 << 30);

#[derive(Debug)]
pub enum Access {
    Read(Target),
    Write(Consent),
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a new or empty file. A file with contents keeps its size, as does a device.
    pub file_bytes: Bytes,
    /// Number of operations in the ring before the kernel must take some.
    pub queue_depth: u32,
    /// True to trim a block device through a thread of this process, as on Linux before 6.12, even where the kernel can
    /// do better: to measure the cost.
    pub trim_by_thread: bool,
    /// Interrupt flag. It can be set at any time, for instance by a signal handler; every operation then ends with
    /// [`BlockError::Interrupted`].
    pub interrupted: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_bytes: Bytes::gib(1),
            queue_depth: 256,
            trim_by_thread: false,
            interrupted: Arc::default(),
        }
    }
}

#[derive(Debug, Error)]
pub enum RawDeviceError {
    #[error("{path}: is no longer the file or device that was checked a moment ago; nothing was written")]
    Changed { path: String },
    #[error(transparent)]
    Consent(#[from] ConsentError),
    #[error(transparent)]
    Device(#[from] BlockDeviceError),
    #[error("{path}: no room for a file of {needed}: {free} are free on its file system")]
    NoRoom { path: String, needed: Bytes, free: Bytes },
    #[error("{path}: {what}; expected {expected}")]
    Unfit { path: String, what: String, expected: &'static str },
    #[error(
        "io_uring: {source}. It needs Linux 5.6 or later, and permission to use it: `sysctl kernel.io_uring_disabled` \
         must be 0 (1: only root and its io_uring_group may), and a container's seccomp profile must let io_uring_setup \
         through (docker run --security-opt seccomp=unconfined)"
    )]
    NoRing { source: io::Error },
    #[error(transparent)]
    Io(#[from] PathError),
}

pub struct RawDevice {
    facts: DeviceFacts,
    notes: Vec<String>,
    promise: Promise,
    target: Target,
    file: Arc<File>,
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

#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// Device and inode number, so that another file of the same name is not removed.
    identity: (u64, u64),
}

impl Made {
    fn new(path: &Path, file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { path: path.to_owned(), identity: (found.dev(), found.ino()) })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let there = std::fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| (there.dev(), there.ino()) == self.identity) {
            // If the file or its file system is already gone, there is nothing to remove.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl RawDevice {
    /// Whether reads may come from the page cache, since the file system refuses direct I/O.
    pub fn is_cached(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.file).is_ok_and(|flags| !flags.contains(rustix::fs::OFlags::DIRECT))
    }

    /// Returns notes for the user on how the target was opened, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the device's promise about reads of trimmed units, with the source of that promise.
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

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
            Operation::Trim(_) if self.facts.trim.is_none() => unsupported("does not accept TRIM".to_owned()),
            Operation::Read(sectors) | Operation::Write(sectors, _) => {
                let sector = self.facts.sector_bytes;
                let bytes = [sectors.first.0 * SECTOR_BYTES, sectors.bytes().0];
                if bytes.iter().all(|n| n.is_multiple_of(sector)) {
                    return Ok(());
                }
                unsupported(format!(
                    "{} bytes from byte {} are not whole sectors of {sector} bytes",
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
        const OVERSLEPT: Duration = Duration::from_micros(200);
        let until = Instant::now() + Duration::from_nanos(span.as_nanos());
        while self.check_interrupt().is_ok() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut queue = self.queue.borrow_mut();
            // A latency ends when its completion is seen, and a sleep ends later than asked by as much as a fast read
            // takes.
            if queue.is_busy() || left <= OVERSLEPT {
                std::thread::yield_now();
            } else {
                std::thread::sleep((left - OVERSLEPT).min(LOOK_EVERY));
            }
            queue.reap(|| self.time());
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
                return Err(BlockError::Other("no operation is in flight".to_owned()));
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
                format!("{path}: a file has no erase command; remove it, or TRIM all of it")
            }
            Target::Device(_) => format!(
                "{path}: erase it with the drive's own commands: for ATA `hdparm --user-master u --security-set-pass p \
                 {path}` and `hdparm --security-erase p {path}`; for NVMe `nvme format {path} --ses=1`"
            ),
        }))
    }
}
