//! Turns operations into kernel calls, and their results into completions.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use trimwise::block::{BlockError, Completion, Operation};
use trimwise::units::{Bytes, Lba, SECTOR_BYTES, SectorRange, SimTime, UNIT_BYTES};

use super::bytes::Buffers;
use super::{CALL_BYTES, IN_FLIGHT_BYTES};
use crate::ioctl::discard;
use crate::ioctl::ring::{Call, Done, Ring};
use crate::slots::Slots;

/// Interval at which a wait checks the interrupt flag.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The owner of the call that waits for [`Threads`]; other owners are part numbers.
const THREADS: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    PunchHole,
    Discard,
    Thread,
}

pub struct Queue {
    ring: Ring,
    file: Arc<File>,
    name: String,
    trim: Trim,
    jobs: Slots<Job>,
    parts: Slots<Part>,
    finished: VecDeque<Result<Completion, BlockError>>,
    done: Vec<Done>,
    buffers: Buffers,
    bytes: u64,
    threads: Option<Threads>,
}

struct Job {
    token: u64,
    submitted: SimTime,
    parts_left: usize,
    failed: Option<BlockError>,
}

#[derive(Clone, Copy)]
struct Part {
    job: usize,
    what: What,
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Write,
    Trim,
    Flush,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "TRIM",
            Self::Flush => "flush",
        }
    }
}

impl Queue {
    pub fn new(ring: Ring, file: Arc<File>, name: String, trim: Trim) -> Self {
        Self {
            ring,
            file,
            name,
            trim,
            jobs: Slots::default(),
            parts: Slots::default(),
            finished: VecDeque::new(),
            done: Vec::new(),
            buffers: Buffers::default(),
            bytes: 0,
            threads: None,
        }
    }

    /// Returns true if nothing is in flight and no completion is left to report.
    pub fn is_idle(&self) -> bool {
        self.jobs.len() == 0 && self.finished.is_empty()
    }

    pub fn is_busy(&self) -> bool {
        self.jobs.len() > 0
    }

    /// Hands an operation to the kernel; calls `now` when its bytes are ready.
    pub fn submit(
        &mut self,
        operation: &Operation,
        token: u64,
        now: impl Fn() -> SimTime,
    ) -> Result<(), BlockError> {
        let parts = parts_of(operation);
        let held: u64 = parts.iter().filter(|part| part.is_transfer()).map(|part| part.bytes).sum();
        if self.bytes.saturating_add(held) > IN_FLIGHT_BYTES.0 {
            let more = Bytes(self.bytes.saturating_add(held));
            return Err(BlockError::Other(format!(
                "{}: {more} would be in flight at once; expected at most {IN_FLIGHT_BYTES}: use smaller transfers or \
                 a lower queue depth",
                self.name
            )));
        }
        let job = self.jobs.put(Job { token, submitted: now(), parts_left: parts.len(), failed: None });
        let mut calls = Vec::with_capacity(parts.len());
        for mut part in parts {
            part.job = job;
            let call = self.call_of(part, operation);
            calls.push((part, call));
        }
        let submitted = now();
        if let Some(job) = self.jobs.get_mut(job) {
            job.submitted = submitted;
        }
        if calls.is_empty() {
            self.jobs.take(job);
            self.finished.push_back(Ok(Completion { token, submitted, completed: submitted }));
        }
        for (part, call) in calls {
            self.start(part, call, &now);
        }
        self.reap(&now);
        Ok(())
    }

    pub fn next(&mut self, now: impl Fn() -> SimTime) -> Option<Result<Completion, BlockError>> {
        if self.finished.is_empty() {
            self.reap(now);
        }
        self.finished.pop_front()
    }

    /// Waits briefly for a completion, and prepares the next write meanwhile.
    pub fn wait(&mut self) -> Result<(), BlockError> {
        let ring = &mut self.ring;
        self.buffers.make_ahead(|| ring.has_completions());
        self.ring
            .wait(LOOK_EVERY)
            .map_err(|error| BlockError::Other(format!("{}: io_uring: {error}", self.name)))
    }

    fn call_of(&mut self, part: Part, operation: &Operation) -> Option<Call> {
        let (offset, length) = (part.offset, part.bytes);
        let bytes = length as u32; // a transfer is at most CALL_BYTES
        Some(match (part.what, operation) {
            (What::Read, _) => {
                Call::Read { offset, bytes, pages: self.buffers.take(length.div_ceil(UNIT_BYTES) as usize) }
            }
            (What::Write, Operation::Write(_, content)) => {
                let sectors = SectorRange::new(Lba(offset / SECTOR_BYTES), length / SECTOR_BYTES);
                Call::Write { offset, bytes, pages: self.buffers.filled(*content, sectors) }
            }
            (What::Trim, _) => match self.trim {
                Trim::PunchHole => Call::PunchHole { offset, bytes: length },
                Trim::Discard => Call::Discard { offset, bytes: length },
                Trim::Thread => return None,
            },
            (What::Flush | What::Write, _) => Call::Sync,
        })
    }

    fn start(&mut self, part: Part, call: Option<Call>, now: &impl Fn() -> SimTime) {
        let number = self.parts.put(part);
        if part.is_transfer() {
            self.bytes += part.bytes;
        }
        let started = match call {
            Some(call) => self.ring.start(number as u64, call),
            None => self.start_thread(number, part),
        };
        if let Err(error) = started {
            self.end(number, Err(error), now);
        }
    }

    fn start_thread(&mut self, number: usize, part: Part) -> io::Result<()> {
        let threads = match self.threads.take() {
            Some(threads) => self.threads.insert(threads),
            None => {
                let threads = self.threads.insert(Threads::new()?);
                self.ring.start(THREADS, Call::Readable(Arc::clone(&threads.event)))?;
                threads
            }
        };
        threads.trim(Arc::clone(&self.file), number, part)
    }

    pub fn reap(&mut self, now: impl Fn() -> SimTime) {
        let mut done = std::mem::take(&mut self.done);
        self.ring.reap(|one| done.push(one));
        for one in done.drain(..) {
            self.buffers.put(one.pages);
            if one.owner == THREADS {
                self.reap_threads(&now);
            } else {
                self.end_call(one.owner as usize, one.result, &now);
            }
        }
        self.done = done;
    }

    fn reap_threads(&mut self, now: &impl Fn() -> SimTime) {
        let Some(threads) = &mut self.threads else { return };
        let ended = threads.ended();
        let event = Arc::clone(&threads.event);
        for (number, result) in ended {
            self.end(number, result.map(|()| 0), now);
        }
        if let Err(error) = self.ring.start(THREADS, Call::Readable(event)) {
            let message = format!("{}: io_uring: {error}", self.name);
            self.finished.push_back(Err(BlockError::Other(message)));
        }
    }

    /// Handles the end of a call. If the kernel's io_uring has no discard, a thread takes over.
    fn end_call(&mut self, number: usize, result: io::Result<u32>, now: &impl Fn() -> SimTime) {
        let is_unknown = result.as_ref().is_err_and(|error| {
            is_one_of(error, &[Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTTY, Errno::NOSYS])
        });
        let part = self.parts.get_mut(number).map(|part| *part);
        if let Some(part) =
            part.filter(|part| is_unknown && part.what == What::Trim && self.trim == Trim::Discard)
        {
            if let Err(error) = self.start_thread(number, part) {
                self.end(number, Err(error), now);
            }
            return;
        }
        self.end(number, result, now);
    }

    fn end(&mut self, number: usize, result: io::Result<u32>, now: &impl Fn() -> SimTime) {
        let Some(part) = self.parts.take(number) else { return };
        if part.is_transfer() {
            self.bytes -= part.bytes;
        }
        let Some(job) = self.jobs.get_mut(part.job) else { return };
        job.parts_left -= 1;
        if let Some(error) = part.error(&self.name, result) {
            job.failed.get_or_insert(error);
        }
        if job.parts_left > 0 {
            return;
        }
        let Some(job) = self.jobs.take(part.job) else { return };
        self.finished.push_back(match job.failed {
            None => Ok(Completion { token: job.token, submitted: job.submitted, completed: now() }),
            Some(error) => Err(error),
        });
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The ring waits for its calls, one of which waits for the threads.
        if let Some(threads) = &self.threads {
            drop((&*threads.event).write(&1u64.to_ne_bytes()));
        }
    }
}

fn is_one_of(error: &io::Error, list: &[Errno]) -> bool {
    error.raw_os_error().is_some_and(|number| list.iter().any(|errno| errno.raw_os_error() == number))
}

impl Part {
    fn is_transfer(&self) -> bool {
        matches!(self.what, What::Read | What::Write)
    }

    /// Converts a failed or short call to an error; returns `None` if it succeeded.
    fn error(&self, name: &str, result: io::Result<u32>) -> Option<BlockError> {
        let (what, offset, bytes) = (self.what.name(), self.offset, self.bytes);
        let place = match self.what {
            What::Flush => String::new(),
            _ => format!(" of {bytes} bytes at byte {offset}"),
        };
        let why = match result {
            Ok(done) if self.is_transfer() && u64::from(done) != bytes => {
                format!("only {done} bytes were transferred: the file or device ends there, or is full")
            }
            Ok(_) => return None,
            Err(error) => match error.kind() {
                io::ErrorKind::StorageFull => "no space is left on the file system".to_owned(),
                _ => {
                    if is_one_of(&error, &[Errno::NODEV, Errno::NXIO]) {
                        format!("the device is gone ({error})")
                    } else {
                        error.to_string()
                    }
                }
            },
        };
        Some(BlockError::Other(format!("{name}: {what}{place}: {why}")))
    }
}

fn parts_of(operation: &Operation) -> Vec<Part> {
    let part = |what, offset, bytes| Part { job: 0, what, offset, bytes };
    let transfer = |what, sectors: &SectorRange| {
        let (first, all) = (sectors.first.0 * SECTOR_BYTES, sectors.bytes().0);
        let pieces = (0..all).step_by(CALL_BYTES.0 as usize);
        pieces.map(|at| part(what, first + at, CALL_BYTES.0.min(all - at))).collect()
    };
    match operation {
        Operation::Read(sectors) => transfer(What::Read, sectors),
        Operation::Write(sectors, _) => transfer(What::Write, sectors),
        Operation::Trim(ranges) => {
            let ranges = ranges.iter().filter(|range| range.units > 0);
            ranges
                .map(|range| part(What::Trim, range.start.0 * UNIT_BYTES, range.units * UNIT_BYTES))
                .collect()
        }
        Operation::Flush => vec![part(What::Flush, 0, 0)],
    }
}

/// Threads that wait for BLKDISCARD, one per call in flight.
struct Threads {
    /// Becomes readable when a thread has ended.
    event: Arc<File>,
    sender: mpsc::Sender<(usize, io::Result<()>)>,
    receiver: mpsc::Receiver<(usize, io::Result<()>)>,
}

impl Threads {
    fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, receiver) = mpsc::channel();
        Ok(Self { event: Arc::new(File::from(event)), sender, receiver })
    }

    fn trim(&self, file: Arc<File>, number: usize, part: Part) -> io::Result<()> {
        let (sender, event) = (self.sender.clone(), Arc::clone(&self.event));
        std::thread::Builder::new().name("trim".to_owned()).spawn(move || {
            let result = discard(file.as_fd(), part.offset, part.bytes).map_err(io::Error::from);
            // The receiver is gone only if the device was closed.
            drop(sender.send((number, result)));
            drop((&*event).write(&1u64.to_ne_bytes()));
        })?;
        Ok(())
    }

    fn ended(&mut self) -> Vec<(usize, io::Result<()>)> {
        // Reset first: a thread that ends after this makes it readable again.
        drop((&*self.event).read(&mut [0; 8]));
        self.receiver.try_iter().collect()
    }
}
