//! The line to a kernel: memory that this process shares with a library inside the kernel's own process.
//!
//! The library (preload/line.c, which has the story) is the kernel's calendar and passes completions on when they are
//! due. It sends a word when a disk must act, and then waits for this process to finish. So only one of the two runs at
//! any time, and the memory needs no lock.
//!
//! The guest's own root could write here, since the library's process is the guest's kernel: nothing read from this
//! memory is trusted.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;
use trimwise::units::SimTime;
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

/// Name of the line's file in the run's folder. The library opens the file; then it is removed.
const NAME: &str = "line";
pub(crate) const DISKS_MAX: usize = 16;
const COMPLETIONS_MAX: usize = DISKS_MAX * 256;

/// Offsets in the memory: `struct line`, after `struct um_timetravel_schedshm` of the kernel.
mod at {
    pub(crate) const BOARD_VERSION: usize = 0;
    pub(crate) const BOARD_LENGTH: usize = 4;
    pub(crate) const BOARD_RUNNING: usize = 24;
    pub(crate) const BOARD_CLIENTS: usize = 26;
    /// Offset of the calendar's capabilities; the calendar is the first client.
    pub(crate) const BOARD_CALENDAR: usize = 4096;
    pub(crate) const TURN: usize = 8192;
    pub(crate) const WORD: usize = TURN + 4;
    pub(crate) const DISK: usize = TURN + 8;
    pub(crate) const BEATS: usize = TURN + 12;
    pub(crate) const NOW: usize = TURN + 16;
    pub(crate) const NEXT: usize = TURN + 24;
    pub(crate) const LATEST: usize = TURN + 32;
    pub(crate) const PASSED: usize = TURN + 40;
    pub(crate) const COUNT: usize = TURN + 44;
    pub(crate) const RINGS: usize = TURN + 64;
    pub(crate) const COMPLETIONS: usize = RINGS + super::DISKS_MAX * 16;
    pub(crate) const END: usize = COMPLETIONS + super::COMPLETIONS_MAX * 24;
}

/// `struct um_timetravel_schedshm`: its version, and its length with two clients, in whole pages.
const BOARD_VERSION: u32 = 2;
const BOARD_BYTES: u32 = 8192;
const BOARD_CLIENTS: u16 = 2;
const BOARD_KERNEL: u16 = 1;
const BOARD_CAN_SHARE: u32 = 1;
const KERNELS_TURN: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Connected(usize),
    Message(usize),
    Kicked(usize),
    /// The next event is due at this time, beyond the limit of virtual time.
    Beyond(SimTime),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Completion {
    pub(crate) at: SimTime,
    pub(crate) disk: usize,
    /// Place of the request in the order of the disk's requests.
    pub(crate) number: u64,
    pub(crate) head: u16,
    pub(crate) written: u32,
}

pub(crate) struct Line {
    memory: MmapRegion,
    list: Vec<Completion>,
}

impl Line {
    pub(crate) const NEVER: SimTime = SimTime(i64::MAX as u64);

    /// Creates a line in the run's folder, to a kernel that may run until the time `latest`.
    pub(crate) fn new(folder: &Path, latest: SimTime) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(folder.join(NAME))?;
        let bytes = at::END.next_multiple_of(4096);
        // Write zeros rather than leave a hole: filling a hole on a full disk would kill this process.
        (&file).write_all(&vec![0; bytes])?;
        let memory = MmapRegion::from_file(FileOffset::new(file, 0), bytes).map_err(io::Error::other)?;
        let line = Self { memory, list: Vec::new() };
        line.store(at::BOARD_VERSION, BOARD_VERSION)?;
        line.store(at::BOARD_LENGTH, BOARD_BYTES)?;
        line.store(at::BOARD_CLIENTS, BOARD_CLIENTS)?;
        line.store(at::BOARD_RUNNING, BOARD_KERNEL)?;
        line.store(at::BOARD_CALENDAR, BOARD_CAN_SHARE)?;
        line.store(at::LATEST, latest.0)?;
        Ok(line)
    }

    /// Waits for the library's next word, up to `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> io::Result<Option<Word>> {
        let memory = self.memory.as_volatile_slice();
        let turn: &AtomicU32 = memory.get_atomic_ref(at::TURN).map_err(io::Error::other)?;
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        if turn.load(Ordering::SeqCst) == KERNELS_TURN {
            match futex::wait(turn, futex::Flags::empty(), KERNELS_TURN, Some(&patience)) {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if turn.load(Ordering::SeqCst) == KERNELS_TURN {
            return Ok(None);
        }
        let disk = self.load::<u32>(at::DISK)? as usize;
        Ok(Some(match self.load::<u32>(at::WORD)? {
            0 => Word::Connected(disk),
            1 => Word::Message(disk),
            2 => Word::Kicked(disk),
            3 => Word::Beyond(SimTime(self.load(at::NEXT)?)),
            4 => Word::Ended,
            unknown => {
                return Err(invalid(format!("unexpected answer from the kernel's library: {unknown}")));
            }
        }))
    }

    pub(crate) fn go_on(&self) -> io::Result<()> {
        let memory = self.memory.as_volatile_slice();
        let turn: &AtomicU32 = memory.get_atomic_ref(at::TURN).map_err(io::Error::other)?;
        turn.store(KERNELS_TURN, Ordering::SeqCst);
        futex::wake(turn, futex::Flags::empty(), 1)?;
        Ok(())
    }

    pub(crate) fn now(&self) -> io::Result<SimTime> {
        Ok(SimTime(self.load(at::NOW)?))
    }

    /// Returns a number that changes as long as the kernel waits and speaks.
    pub(crate) fn beats(&self) -> io::Result<u32> {
        self.load(at::BEATS)
    }

    /// Returns the time up to which the library has passed completions on since the list was set, if any.
    pub(crate) fn passed(&self) -> io::Result<Option<SimTime>> {
        let passed = self.load::<u32>(at::PASSED)? as usize;
        if passed > self.list.len() {
            return Err(invalid(format!("{passed} of {} requests have completed", self.list.len())));
        }
        Ok(self.list[..passed].last().map(|last| last.at))
    }

    /// Sets the address of a disk's used ring in the guest's memory, and its length.
    pub(crate) fn set_ring(&self, disk: usize, address: u64, size: u16) -> io::Result<()> {
        self.store(at::RINGS + 16 * disk, address)?;
        self.store(at::RINGS + 16 * disk + 8, u64::from(size))
    }

    pub(crate) fn set_list(&mut self, completions: impl Iterator<Item = Completion>) -> io::Result<()> {
        self.list.clear();
        self.list.extend(completions);
        self.list.sort_unstable();
        if self.list.len() > COMPLETIONS_MAX {
            return Err(invalid(format!("{} requests at a time", self.list.len())));
        }
        for (index, completion) in self.list.iter().enumerate() {
            let entry = at::COMPLETIONS + 24 * index;
            self.store(entry, completion.at.0)?;
            self.store(entry + 8, completion.disk as u32)?;
            self.store(entry + 12, u32::from(completion.head))?;
            self.store(entry + 16, completion.written)?;
        }
        self.store(at::PASSED, 0_u32)?;
        self.store(at::COUNT, self.list.len() as u32)
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T) -> io::Result<()> {
        self.memory.as_volatile_slice().store(value, at, Ordering::Relaxed).map_err(io::Error::other)
    }

    fn load<T: AtomicAccess>(&self, at: usize) -> io::Result<T> {
        self.memory.as_volatile_slice().load(at, Ordering::Relaxed).map_err(io::Error::other)
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line::new(tempfile::tempdir().unwrap().path(), SimTime(1000)).unwrap()
    }

    fn completion(at: u64, disk: usize, number: u64) -> Completion {
        Completion { at: SimTime(at), disk, number, head: number as u16, written: 1 }
    }

    #[test]
    fn completions_are_passed_on_by_time_then_disk_then_request() {
        let mut line = line();
        let order = [(5, 1, 2), (5, 0, 9), (3, 1, 3), (5, 0, 4)];
        line.set_list(order.into_iter().map(|(at, disk, number)| completion(at, disk, number))).unwrap();
        let head = |index: usize| line.load::<u32>(at::COMPLETIONS + 24 * index + 12).unwrap();
        assert_eq!([0, 1, 2, 3].map(head), [3, 4, 9, 2]);
        assert_eq!(line.passed().unwrap(), None);
        line.store(at::PASSED, 2_u32).unwrap();
        assert_eq!(line.passed().unwrap(), Some(SimTime(5)));
    }

    /// Offsets as the library has them: `struct line` in preload/line.c, with 16 bytes a ring and 24 a completion.
    #[test]
    fn each_field_is_where_the_library_reads_it() {
        let mut line = line();
        line.set_ring(3, 0x1122_3344_5566, 256).unwrap();
        let completion =
            Completion { at: SimTime(7_000_000_009), disk: 5, number: 1, head: 513, written: 4097 };
        line.set_list([completion, Completion { at: SimTime(1), ..completion }].into_iter()).unwrap();
        let word = |at| line.load::<u32>(at).unwrap();
        let long = |at| line.load::<u64>(at).unwrap();
        for (what, at, expected) in [
            ("version of the board", 0, 2),
            ("length of the board", 4, 8192),
            ("kernel is running, two clients", 24, 2 << 16 | 1),
            ("the calendar can share", 4096, 1),
            ("turn", 8192, 0),
            ("completions passed on", 8232, 0),
            ("completions", 8236, 2),
            ("disk of the second", 8512 + 24 + 8, 5),
            ("head of the second", 8512 + 24 + 12, 513),
            ("bytes written of the second", 8512 + 24 + 16, 4097),
        ] {
            assert_eq!(word(at), expected, "{what}, at {at}");
        }
        for (what, at, expected) in [
            ("latest time", 8224, 1000),
            ("ring of disk 2", 8256 + 2 * 16, 0),
            ("ring of disk 3", 8256 + 3 * 16, 0x1122_3344_5566),
            ("entries of ring 3", 8256 + 3 * 16 + 8, 256),
            ("time of the first completion", 8512, 1),
            ("time of the second completion", 8512 + 24, 7_000_000_009),
        ] {
            assert_eq!(long(at), expected, "{what}, at {at}");
        }
        line.store(8208, 77_u64).unwrap();
        line.store(8204, 5_u32).unwrap();
        assert_eq!((line.now().unwrap(), line.beats().unwrap()), (SimTime(77), 5), "time and beats");
    }

    #[test]
    fn each_word_of_the_library_has_its_number() {
        let line = line();
        line.store(8192, 1_u32).unwrap();
        line.store(8200, 9_u32).unwrap();
        line.store(8216, 12_345_u64).unwrap();
        for (number, word) in [
            (0, Word::Connected(9)),
            (1, Word::Message(9)),
            (2, Word::Kicked(9)),
            (3, Word::Beyond(SimTime(12_345))),
            (4, Word::Ended),
        ] {
            line.store(8196, number as u32).unwrap();
            assert_eq!(line.wait(Duration::ZERO).unwrap(), Some(word), "word {number}");
        }
        line.store(8196, 5_u32).unwrap();
        assert!(line.wait(Duration::ZERO).is_err(), "word 5");
    }

    #[test]
    fn all_that_a_list_can_hold_and_no_more_is_passed_on() {
        let mut line = line();
        let many = |n: u64| (0..n).map(|number| completion(5, 0, number));
        line.set_list(many(16 * 256)).unwrap();
        line.store(at::PASSED, 16 * 256_u32).unwrap();
        assert_eq!(line.passed().unwrap(), Some(SimTime(5)), "all of them");
        let error = line.set_list(many(16 * 256 + 1)).unwrap_err();
        assert_eq!(error.to_string(), "4097 requests at a time");
    }

    #[test]
    fn what_a_kernel_cannot_have_said_is_an_error() {
        let mut line = line();
        line.set_list([completion(1, 0, 1)].into_iter()).unwrap();
        line.store(at::PASSED, 2_u32).unwrap();
        assert!(line.passed().unwrap_err().to_string().contains("2 of 1"));
        assert_eq!(line.wait(Duration::ZERO).unwrap(), None, "it is the kernel's turn");
        line.store(at::TURN, 1_u32).unwrap();
        line.store(at::WORD, 77_u32).unwrap();
        assert!(line.wait(Duration::ZERO).unwrap_err().to_string().contains("77"));
        line.store(at::WORD, 2_u32).unwrap();
        assert_eq!(line.wait(Duration::ZERO).unwrap(), Some(Word::Kicked(0)));
        line.go_on().unwrap();
        assert_eq!(line.wait(Duration::ZERO).unwrap(), None);
    }
}
