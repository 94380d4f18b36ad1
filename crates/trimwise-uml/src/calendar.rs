//! The calendar: whether the kernel may run, and what time it is.
//!
//! User-Mode Linux asks for time over a socket (include/uapi/linux/um_timetravel.h): REQUEST says when it wants to run
//! again, WAIT that it has nothing to do before that, RUN lets it continue at a given time. FREE_UNTIL, sent before
//! RUN, saves the messages in between: up to that time, at which the disk's next request completes, the kernel moves
//! its clock by itself.
//!
//! Since Linux 6.11 most of this can be in shared memory, which is passed with the answer to START: the current time,
//! the kernel's next request, and how far it may run. Only WAIT and RUN remain, without an answer. Older kernels ignore
//! the memory and send messages.

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use trimwise::units::SimTime;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// The day on which every guest boots: 14 November 2023, 22:13:20 UTC, in nanoseconds since 1970.
const TIME_OF_DAY_NS: u64 = 1_700_000_000_000_000_000;

/// Codes of messages.
mod op {
    pub(crate) const ACK: u32 = 0;
    pub const START: u32 = 1;
    pub(crate) const REQUEST: u32 = 2;
    pub(crate) const WAIT: u32 = 3;
    pub const GET: u32 = 4;
    pub(crate) const UPDATE: u32 = 5;
    pub const RUN: u32 = 6;
    pub(crate) const FREE_UNTIL: u32 = 7;
    pub(crate) const GET_TOD: u32 = 8;
}

/// A message: `struct um_timetravel_msg`.
#[derive(Clone, Copy, Debug)]
struct Message {
    op: u32,
    sequence: u32,
    time: u64,
}

impl Message {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.op.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.time.to_ne_bytes());
        bytes
    }

    fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, time @ ..] = bytes;
        Self {
            op: u32::from_ne_bytes([a, b, c, d]),
            sequence: u32::from_ne_bytes([e, f, g, h]),
            time: u64::from_ne_bytes(time),
        }
    }
}

/// The memory that calendar and kernel share: `struct um_timetravel_schedshm`, version 2, with two clients.
struct Board {
    memory: MmapRegion,
    file: File,
}

impl Board {
    const VERSION: u32 = 2;
    /// The calendar and the kernel.
    const CLIENTS: u16 = 2;
    const CALENDAR: u16 = 0;
    const KERNEL: u16 = 1;
    const HEAD_BYTES: usize = 4096;
    const CLIENT_BYTES: usize = 128;
    /// UM_TIMETRAVEL_SCHEDSHM_CAP_TIME_SHARE: the client reads and writes times here.
    const CAN_SHARE: u32 = 1;
    /// UM_TIMETRAVEL_SCHEDSHM_FLAGS_REQ_RUN: the client wants to run.
    const WANTS_TO_RUN: u32 = 1;

    const AT_VERSION: usize = 0;
    const AT_LENGTH: usize = 4;
    const AT_FREE_UNTIL: usize = 8;
    const AT_NOW: usize = 16;
    const AT_RUNNING: usize = 24;
    const AT_CLIENTS: usize = 26;

    const fn client(id: u16, offset: usize) -> usize {
        Self::HEAD_BYTES + Self::CLIENT_BYTES * id as usize + offset
    }

    fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("trimwise-calendar", MemfdFlags::CLOEXEC)?);
        // The kernel maps whole pages.
        let bytes =
            (Self::HEAD_BYTES + Self::CLIENT_BYTES * usize::from(Self::CLIENTS)).next_multiple_of(4096);
        file.set_len(bytes as u64)?;
        let memory =
            MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), bytes).map_err(io::Error::other)?;
        let board = Self { memory, file };
        board.store(Self::AT_VERSION, Self::VERSION)?;
        board.store(Self::AT_LENGTH, bytes as u32)?;
        board.store(Self::AT_CLIENTS, Self::CLIENTS)?;
        board.store(Self::AT_RUNNING, Self::KERNEL)?;
        board.store(Self::AT_FREE_UNTIL, 0_u64)?;
        board.store(Self::client(Self::CALENDAR, 0), Self::CAN_SHARE)?;
        Ok(board)
    }

    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) -> io::Result<()> {
        self.memory.as_volatile_slice().store(value, at, Ordering::SeqCst).map_err(io::Error::other)
    }

    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> io::Result<T> {
        self.memory.as_volatile_slice().load(at, Ordering::SeqCst).map_err(io::Error::other)
    }

    fn is_used_by_kernel(&self) -> io::Result<bool> {
        Ok(self.load::<u32>(Self::client(Self::KERNEL, 0))? & Self::CAN_SHARE != 0)
    }

    fn request(&self) -> io::Result<Option<SimTime>> {
        let wants = self.load::<u32>(Self::client(Self::KERNEL, 4))? & Self::WANTS_TO_RUN != 0;
        Ok(if wants { Some(SimTime(self.load(Self::client(Self::KERNEL, 8))?)) } else { None })
    }
}

/// One kernel's calendar.
pub struct Calendar {
    socket: UnixStream,
    board: Board,
    /// Whether the kernel uses the board.
    shares: bool,
    now: SimTime,
    /// When the kernel wants to run again, according to messages.
    request: Option<SimTime>,
    is_waiting: bool,
    sequence: u32,
    /// How far the kernel may run, as it was last told.
    free_until: SimTime,
    /// Messages both ways, for a run's statistics.
    messages: u64,
}

impl Calendar {
    /// A time that never comes.
    pub const NEVER: SimTime = SimTime(i64::MAX as u64);

    /// Creates the calendar of the kernel that has connected.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self {
            socket,
            board: Board::new()?,
            shares: false,
            now: SimTime::ZERO,
            request: None,
            is_waiting: false,
            sequence: 0,
            free_until: SimTime::ZERO,
            messages: 0,
        })
    }

    /// Returns the current time, as far as the kernel has reported it.
    pub fn now(&self) -> io::Result<SimTime> {
        if self.shares && !self.is_waiting {
            Ok(SimTime(self.board.load(Board::AT_NOW)?))
        } else {
            Ok(self.now)
        }
    }

    /// Whether the kernel has nothing to do until it may run again.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether times are exchanged through shared memory.
    pub(crate) fn shares_memory(&self) -> bool {
        self.shares
    }

    /// Returns the messages so far, both ways.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns when the waiting kernel wants to run again.
    pub fn request(&self) -> io::Result<SimTime> {
        let request = if self.shares { self.board.request()? } else { self.request };
        Ok(request.unwrap_or(Self::NEVER))
    }

    /// Moves the clock to `at` while the kernel waits.
    pub fn advance(&mut self, at: SimTime) -> io::Result<()> {
        self.now = self.now.max(at);
        if self.shares { self.board.store(Board::AT_NOW, self.now.0) } else { Ok(()) }
    }

    /// Receives one message, which must be available.
    pub(crate) fn take_message(&mut self) -> io::Result<()> {
        self.take().map(drop)
    }

    fn take(&mut self) -> io::Result<u32> {
        let mut bytes = [0; Message::BYTES];
        self.socket.read_exact(&mut bytes)?;
        self.messages += 1;
        let message = Message::of_bytes(bytes);
        if message.op == op::ACK {
            return Ok(op::ACK);
        }
        if message.op == op::START {
            self.send(op::ACK, message.sequence, Board::KERNEL.into(), true)?;
            return Ok(op::START);
        }
        if !self.shares && self.board.is_used_by_kernel()? {
            self.shares = true;
        }
        let mut answer = 0;
        match message.op {
            op::REQUEST => self.request = Some(SimTime(message.time)),
            op::WAIT => {
                if self.shares {
                    self.now = SimTime(self.board.load(Board::AT_NOW)?).max(self.now);
                    self.board.store(Board::AT_RUNNING, Board::CALENDAR)?;
                    self.is_waiting = true;
                    return Ok(op::WAIT); // has no answer then
                }
                self.is_waiting = true;
            }
            op::GET => answer = self.now()?.0,
            op::UPDATE => self.now = self.now.max(SimTime(message.time)),
            op::GET_TOD => answer = TIME_OF_DAY_NS,
            unknown => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the kernel sent the unknown time-travel message {unknown}"),
                ));
            }
        }
        self.send(op::ACK, message.sequence, answer, false)?;
        Ok(message.op)
    }

    /// Tells the running kernel that something will happen at `event`, if it thinks that it may run beyond that.
    pub fn limit(&mut self, event: SimTime) -> io::Result<()> {
        if event >= self.free_until {
            return Ok(());
        }
        self.free_until = event;
        if self.shares {
            // The kernel lowers it by itself for its own requests, and never raises it.
            let known: u64 = self.board.load(Board::AT_FREE_UNTIL)?;
            return self.board.store(Board::AT_FREE_UNTIL, known.min(event.0));
        }
        self.tell(op::FREE_UNTIL, event)
    }

    /// Lets the waiting kernel run from now until `event`, at which something else happens.
    pub fn run(&mut self, event: SimTime) -> io::Result<()> {
        self.is_waiting = false;
        self.free_until = event;
        if self.shares {
            self.board.store(Board::AT_FREE_UNTIL, event.0)?;
            self.board.store(Board::AT_NOW, self.now.0)?;
            self.board.store(Board::AT_RUNNING, Board::KERNEL)?;
            self.sequence += 1;
            return self.send(op::RUN, self.sequence, self.now.0, false);
        }
        self.tell(op::FREE_UNTIL, event)?;
        self.request = None;
        self.tell(op::RUN, self.now)
    }

    /// Sends a message, and serves the kernel until it answers.
    fn tell(&mut self, op: u32, time: SimTime) -> io::Result<()> {
        self.sequence += 1;
        self.send(op, self.sequence, time.0, false)?;
        while self.take()? != op::ACK {}
        Ok(())
    }

    fn send(&mut self, op: u32, sequence: u32, time: u64, with_board: bool) -> io::Result<()> {
        self.messages += 1;
        let bytes = Message { op, sequence, time }.to_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let null;
        let descriptors;
        if with_board {
            // The second one is for a shared log, which is not used.
            null = File::options().write(true).open("/dev/null")?;
            descriptors = [self.board.file.as_fd(), null.as_fd()];
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

impl AsFd for Calendar {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
