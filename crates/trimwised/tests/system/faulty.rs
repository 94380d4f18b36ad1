//! A file that answers with the errors that a test wants, and a loop device over it: a drive that fails on demand.
//!
//! The file is served by FUSE in the test's own process, so that it can also go away under the device, like a drive
//! that is pulled out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use trimwise::units::Bytes;
use trimwise_device::fuse::{self, Operation};

/// What the drive does wrong.
#[derive(Debug, Default)]
pub struct Faults {
    /// The error of each discard; 0 for none.
    pub discard: AtomicI32,
    /// Discards are not answered.
    pub holds: AtomicBool,
    /// Reads and writes fail with EIO.
    pub io: AtomicBool,
}

/// A mounted file and its faults. Dropping it takes the file away, whoever uses it.
pub struct Faulty {
    pub faults: Arc<Faults>,
    mounted: fuse::Mounted,
}

impl Faulty {
    /// Serves `store` as a file below `point`.
    pub fn new(store: File, point: &Path) -> Self {
        let faults = Arc::new(Faults::default());
        let bytes = store.metadata().unwrap().len();
        let served = Arc::new(Served { store, bytes, faults: Arc::clone(&faults) });
        let mounted = fuse::Mounted::new(served, point, 2, &mpsc::channel().0).unwrap();
        Self { faults, mounted }
    }

    pub fn file(&self) -> PathBuf {
        self.mounted.file()
    }

    /// The drive is pulled out: whoever waits for it, or asks it for anything from now on, gets an error.
    pub fn pull_out(&self) {
        self.faults.holds.store(false, Ordering::Relaxed);
        self.mounted.abort();
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.pull_out();
    }
}

struct Served {
    store: File,
    bytes: u64,
    faults: Arc<Faults>,
}

impl Served {
    fn done(&self, result: io::Result<()>) -> Result<Instant, i32> {
        let eio = Errno::IO.raw_os_error();
        if self.faults.io.load(Ordering::Relaxed) {
            return Err(eio);
        }
        result.map(|()| Instant::now()).map_err(|error| error.raw_os_error().unwrap_or(eio))
    }

    fn fallocate(&self, mode: FallocateFlags, offset: u64, length: Bytes) -> Result<Instant, i32> {
        let mode = mode | FallocateFlags::KEEP_SIZE;
        self.done(fallocate(&self.store, mode, offset, length.0).map_err(io::Error::from))
    }
}

impl fuse::Served for Served {
    fn size(&self) -> Bytes {
        Bytes(self.bytes)
    }

    fn serve(&self, offset: u64, operation: Operation<'_>) -> Result<Instant, i32> {
        match operation {
            Operation::Read(bytes) => self.done(self.store.read_exact_at(bytes, offset)),
            Operation::Write(bytes) => self.done(self.store.write_all_at(bytes, offset)),
            Operation::Discard(length) => {
                while self.faults.holds.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                match self.faults.discard.load(Ordering::Relaxed) {
                    errno @ 1.. => Err(errno),
                    _ => self.fallocate(FallocateFlags::PUNCH_HOLE, offset, length),
                }
            }
            Operation::WriteZeroes(length) => self.fallocate(FallocateFlags::ZERO_RANGE, offset, length),
            Operation::Flush => self.done(Ok(())),
        }
    }
}
