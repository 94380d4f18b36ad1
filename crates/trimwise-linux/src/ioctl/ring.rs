//! A queue of direct transfers: io_uring, made safe by owning the buffers that the kernel reads and writes.
//!
//! The kernel uses a buffer from the call that names it until that call has completed. So a call hands its buffer to
//! the ring and gets it back with the completion. A ring that is dropped waits for its calls first, and leaks their
//! memory if it cannot.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use crate::slots::Slots;

/// The bytes of one unit, aligned for any direct transfer.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct Page(pub [u8; 4096]);

/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE` of include/uapi/linux/falloc.h.
const PUNCH_HOLE_AND_KEEP_SIZE: i32 = 0x01 | 0x02;
/// `BLOCK_URING_CMD_DISCARD`, `_IO(0x12, 0)`, of include/uapi/linux/blkdev.h (Linux 6.12).
const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;

/// One call to the kernel; offsets and lengths in bytes.
pub enum Call {
    Read {
        offset: u64,
        bytes: u32,
        pages: Vec<Page>,
    },
    Write {
        offset: u64,
        bytes: u32,
        pages: Vec<Page>,
    },
    PunchHole {
        offset: u64,
        bytes: u64,
    },
    /// Discards with `BLOCK_URING_CMD_DISCARD`: like BLKDISCARD, without a waiting thread.
    Discard {
        offset: u64,
        bytes: u64,
    },
    Sync,
    Readable(Arc<File>),
}

pub struct Done {
    pub owner: u64,
    pub result: io::Result<u32>,
    /// Empty if it had none.
    pub pages: Vec<Page>,
}

/// Memory and files that must stay alive while a call is in flight.
struct InFlight {
    owner: u64,
    pages: Vec<Page>,
    _file: Arc<File>,
}

pub(crate) struct Ring {
    uring: IoUring,
    file: Arc<File>,
    /// Indexed by the number that the kernel returns.
    calls: Slots<InFlight>,
}

impl Ring {
    /// Creates a ring with room for `entries` calls that the kernel has not yet taken. More can be in flight.
    pub fn new(file: Arc<File>, entries: u32) -> io::Result<Self> {
        // Otherwise each completion interrupts the processor, and with it this thread's work on the next write. A flag
        // says when there are completions to fetch (Linux 5.19).
        let uring = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(entries);
        let uring = uring.or_else(|error| match error.kind() {
            io::ErrorKind::InvalidInput => IoUring::new(entries),
            _ => Err(error),
        })?;
        Ok(Self { uring, file, calls: Slots::default() })
    }

    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Hands a call to the kernel; on failure it is not in flight.
    pub fn start(&mut self, owner: u64, call: Call) -> io::Result<()> {
        let fits = |bytes: u32, pages: &Vec<Page>| bytes as usize <= size_of::<Page>() * pages.len();
        if let Call::Read { bytes, pages, .. } | Call::Write { bytes, pages, .. } = &call
            && !fits(*bytes, pages)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let fd = types::Fd(self.file.as_raw_fd());
        let mut file = Arc::clone(&self.file);
        let mut owned = Vec::new();
        let entry = match call {
            Call::Read { offset, bytes, pages } => {
                owned = pages;
                opcode::Read::new(fd, owned.as_mut_ptr().cast(), bytes).offset(offset).build()
            }
            Call::Write { offset, bytes, pages } => {
                owned = pages;
                opcode::Write::new(fd, owned.as_ptr().cast(), bytes).offset(offset).build()
            }
            Call::PunchHole { offset, bytes } => {
                opcode::Fallocate::new(fd, bytes).offset(offset).mode(PUNCH_HOLE_AND_KEEP_SIZE).build()
            }
            Call::Discard { offset, bytes } => {
                // The length goes into `addr3`, which overlaps the start of the command's own bytes.
                let mut cmd = [0; 16];
                cmd[..8].copy_from_slice(&bytes.to_ne_bytes());
                opcode::UringCmd16::new(fd, BLOCK_URING_CMD_DISCARD).addr(Some(offset)).cmd(cmd).build()
            }
            Call::Sync => opcode::Fsync::new(fd).build(),
            Call::Readable(other) => {
                const POLLIN: u32 = 1;
                let fd = types::Fd(other.as_raw_fd());
                file = other;
                opcode::PollAdd::new(fd, POLLIN).build()
            }
        };
        let number = self.calls.put(InFlight { owner, pages: owned, _file: file });
        if let Err(error) = self.push(&entry.user_data(number as u64)) {
            self.calls.take(number);
            return Err(error);
        }
        // The call is in flight from here on. If the kernel does not accept it now, `wait` tries again and returns the
        // error.
        drop(self.uring.submit());
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the buffer and the file that the entry names are owned by `self.calls` until its completion is
            // seen in `reap`, moving a `Vec` does not move its memory, and `drop` waits for all calls or leaks them.
            // The length was checked against the buffer's in `start`.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.uring.submit().map(|_| ()).or_else(busy_is_later)?;
            if self.uring.submission().is_full() {
                self.wait(Duration::from_millis(10))?;
            }
        }
    }

    /// Returns true if there are completions to reap. The kernel may hand them over only in a wait.
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.uring.completion().is_empty() || self.uring.submission().taskrun()
    }

    /// Waits for a completion, a signal, or the end of `at_most`.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        if !self.uring.completion().is_empty() {
            return Ok(());
        }
        let waited = if self.uring.params().is_feature_ext_arg() {
            let time = types::Timespec::from(at_most);
            self.uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
        } else {
            self.uring.submit_and_wait(1)
        };
        const ETIME: i32 = 62;
        match waited {
            Err(error)
                if error.kind() != io::ErrorKind::Interrupted && error.raw_os_error() != Some(ETIME) =>
            {
                busy_is_later(error)
            }
            _ => Ok(()),
        }
    }

    pub fn reap(&mut self, mut take: impl FnMut(Done)) {
        for entry in self.uring.completion() {
            let Some(call) = self.calls.take(entry.user_data() as usize) else { continue };
            let result = u32::try_from(entry.result())
                .map_err(|_| io::Error::from_raw_os_error(entry.result().wrapping_neg()));
            take(Done { owner: call.owner, result, pages: call.pages });
        }
    }
}

/// Treats EBUSY as success: the kernel wants completions to be reaped first, and submitted calls stay in the ring.
fn busy_is_later(error: io::Error) -> io::Result<()> {
    const EBUSY: i32 = 16;
    const EAGAIN: i32 = 11;
    match error.raw_os_error() {
        Some(EBUSY | EAGAIN) => Ok(()),
        _ if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.wait(Duration::from_secs(1)).is_err() {
                // The kernel may still write to these buffers.
                std::mem::forget(std::mem::take(&mut self.calls));
                return;
            }
            self.reap(drop);
        }
    }
}
