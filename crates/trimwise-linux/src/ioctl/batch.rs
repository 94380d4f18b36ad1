//! Several system calls in one switch to the kernel, for a guest whose kernel is a process of the host.
//!
//! There each call costs two switches between processes and six calls of the host. The library that trimwise preloads
//! into the guest's kernel (`trimwise-uml`, preload/batch.c, which has the story) takes a list of calls instead, under
//! a number that no kernel knows, and presents them to the kernel one by one. Anywhere else that number is refused
//! (ENOSYS).

use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub(crate) const CALLS_MAX: usize = 256;
const PATHS_MAX: usize = 64;
const PAGE: usize = 4096;

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    number: u32,
    flags: u32,
    /// A smaller result ends the batch.
    least: i64,
    arguments: [u64; 6],
}

/// The call's result is the file that later calls use.
const OPENS: u32 = 1;
/// The call's first argument is the file.
const TAKES_FILE: u32 = 2;

/// The call's result is [`Ended::asked`].
const IS_ASKED: u32 = 4;

/// Numbers of x86-64.
mod number {
    pub(super) const READ: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const CLOSE: u32 = 3;
    pub(super) const PREAD: u32 = 17;
    pub(super) const PWRITE: u32 = 18;
    pub(super) const FSYNC: u32 = 74;
    pub(super) const FDATASYNC: u32 = 75;
    pub(super) const CLOCK_GETTIME: u32 = 228;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const UNLINKAT: u32 = 263;
}

/// The kernel copies a path with the rest of its page, so each lies at the end of one.
#[repr(align(4096))]
struct Page([u8; PAGE]);

const MONOTONIC: u64 = 1;

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

impl Time {
    fn ns(&self) -> u64 {
        self.seconds as u64 * 1_000_000_000 + self.nanoseconds as u64
    }
}

pub(crate) struct Memory {
    calls: Vec<Call>,
    paths: Vec<Page>,
    times: Box<[Time]>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            calls: Vec::with_capacity(CALLS_MAX),
            paths: Vec::new(),
            times: vec![Time::default(); CALLS_MAX].into(),
        }
    }

    /// Begins a batch whose reads go to `scratch`. The batch may close `file`.
    pub(crate) fn begin<'a>(&'a mut self, scratch: &'a mut [u8], file: Option<OwnedFd>) -> Batch<'a> {
        self.begin_with(PATHS_MAX, scratch, file)
    }

    fn begin_with<'a>(&'a mut self, paths: usize, scratch: &'a mut [u8], file: Option<OwnedFd>) -> Batch<'a> {
        self.calls.clear();
        if self.paths.len() < paths {
            self.paths.resize_with(paths, || Page([0; PAGE]));
        }
        Batch { memory: self, scratch, paths: 0, times: 0, file, directories: Vec::new(), data: PhantomData }
    }

    /// Makes the call that `add` adds, between two readings of the clock. Returns `None`, without having made it, where
    /// nothing takes batches.
    pub(crate) fn timed<'a>(&'a mut self, add: impl FnOnce(&mut Batch<'a>) -> bool) -> Option<Ended> {
        let mut batch = self.begin_with(1, &mut [], None);
        (batch.now() && add(&mut batch) && batch.now()).then_some(())?;
        batch.submit()
    }
}

/// Calls that were not made yet. Each method adds one; it returns false if there is no room for it.
pub(crate) struct Batch<'a> {
    memory: &'a mut Memory,
    scratch: &'a mut [u8],
    paths: usize,
    times: usize,
    file: Option<OwnedFd>,
    directories: Vec<Rc<OwnedFd>>,
    data: PhantomData<&'a [u8]>,
}

/// The end of a batch.
pub(crate) struct Ended {
    pub made: usize,
    pub result: Result<u64, Errno>,
    /// Result of the call of [`Memory::timed`].
    pub asked: u64,
    /// True if the last result was too small.
    pub is_cut_short: bool,
    pub file: Option<OwnedFd>,
    /// Results of [`Batch::now`], in nanoseconds of the monotonic clock.
    pub times_ns: Vec<u64>,
}

impl<'a> Batch<'a> {
    fn add(&mut self, number: u32, flags: u32, least: i64, arguments: &[u64]) -> bool {
        if self.memory.calls.len() == CALLS_MAX {
            return false;
        }
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        self.memory.calls.push(Call { number, flags, least, arguments: all });
        true
    }

    fn path(&mut self, path: &str) -> Option<u64> {
        let begin = (PAGE - 1).checked_sub(path.len())?;
        let page = self.memory.paths.get_mut(self.paths)?;
        self.paths += 1;
        page.0[begin..PAGE - 1].copy_from_slice(path.as_bytes());
        page.0[PAGE - 1] = 0;
        Some(page.0[begin..].as_ptr() as u64)
    }

    pub(crate) fn now(&mut self) -> bool {
        let Some(time) = self.memory.times.get_mut(self.times) else { return false };
        self.times += 1;
        let time = std::ptr::from_mut(time) as u64;
        self.add(number::CLOCK_GETTIME, 0, 0, &[MONOTONIC, time])
    }

    pub(crate) fn open(&mut self, directory: &Rc<OwnedFd>, name: &str, flags: OFlags, mode: Mode) -> bool {
        let Some(path) = self.path(name) else { return false };
        let at = directory.as_raw_fd() as u64;
        self.directories.push(Rc::clone(directory));
        self.add(number::OPENAT, OPENS, 0, &[at, path, flags.bits().into(), mode.bits().into()])
    }

    pub(crate) fn write(&mut self, data: &'a [u8]) -> bool {
        self.add(number::WRITE, TAKES_FILE, data.len() as i64, &[0, data.as_ptr() as u64, data.len() as u64])
    }

    /// Reads up to `bytes` bytes, which are dropped.
    pub(crate) fn read(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.scratch.len()) as u64;
        let scratch = self.scratch.as_mut_ptr() as u64;
        self.add(number::READ, TAKES_FILE, 0, &[0, scratch, bytes])
    }

    pub(crate) fn close(&mut self) -> bool {
        // Closing frees the descriptor even if the kernel reports an error, which dropping a file ignores too.
        self.add(number::CLOSE, TAKES_FILE, i64::MIN, &[])
    }

    pub(crate) fn unlink(&mut self, directory: &Rc<OwnedFd>, name: &str) -> bool {
        let Some(path) = self.path(name) else { return false };
        let at = directory.as_raw_fd() as u64;
        self.directories.push(Rc::clone(directory));
        self.add(number::UNLINKAT, 0, 0, &[at, path, 0])
    }

    fn add_asked(&mut self, number: u32, file: &'a OwnedFd, least: usize, rest: [u64; 3]) -> bool {
        let [a, b, c] = rest;
        self.add(number, IS_ASKED, least as i64, &[file.as_raw_fd() as u64, a, b, c])
    }

    /// Writes to a file at its position; [`Ended::asked`] is the number of bytes.
    pub(crate) fn write_to(&mut self, file: &'a OwnedFd, data: &'a [u8]) -> bool {
        self.add_asked(number::WRITE, file, data.len(), [data.as_ptr() as u64, data.len() as u64, 0])
    }

    /// Writes to a file at an offset; [`Ended::asked`] is the number of bytes.
    pub(crate) fn pwrite(&mut self, file: &'a OwnedFd, offset: u64, data: &'a [u8]) -> bool {
        self.add_asked(number::PWRITE, file, data.len(), [data.as_ptr() as u64, data.len() as u64, offset])
    }

    /// Reads from a file at an offset; [`Ended::asked`] is the number of bytes.
    pub(crate) fn pread(&mut self, file: &'a OwnedFd, offset: u64, buffer: &'a mut [u8]) -> bool {
        let len = buffer.len() as u64;
        self.add_asked(number::PREAD, file, 0, [buffer.as_mut_ptr() as u64, len, offset])
    }

    pub(crate) fn fsync(&mut self, file: &'a OwnedFd) -> bool {
        self.add_asked(number::FSYNC, file, 0, [0; 3])
    }

    pub(crate) fn fdatasync(&mut self, file: &'a OwnedFd) -> bool {
        self.add_asked(number::FDATASYNC, file, 0, [0; 3])
    }

    /// Makes the calls. Returns `None`, without having made any, where nothing takes batches.
    pub(crate) fn submit(self) -> Option<Ended> {
        let before = self.file.as_ref().map_or(-1, |file| file.as_raw_fd());
        let calls = &self.memory.calls;
        // SAFETY: the calls refer to paths, times and scratch memory that `self` borrows exclusively, to data that it
        // borrows, and to files and directories that are open while it lasts. Only `open` and `close`
        // make and end a descriptor: `file`.
        let mut answer = unsafe { submit(calls, before) };
        if answer.0 <= 0 {
            // Reading maps pages again that the kernel has unmapped.
            std::hint::black_box(calls.iter().fold(0, |sum: u32, call| sum.wrapping_add(call.number)));
            // SAFETY: as above; no call was made.
            answer = unsafe { submit(calls, before) };
        }
        let (made, result, file, asked) = answer;
        if made <= 0 {
            return None;
        }
        let made = (made as usize).min(calls.len());
        let last = calls.get(made - 1)?;
        if let Some(file) = self.file {
            let _ = file.into_raw_fd(); // it was closed by the batch, or is returned
        }
        let touches = |call: &&Call| call.flags & OPENS != 0 || call.number == number::CLOSE;
        let is_open = match calls[..made].iter().rev().find(touches) {
            Some(call) => call.number != number::CLOSE,
            None => true,
        };
        // SAFETY: the descriptor was made by the batch or given to it, and has no other owner.
        let file = (is_open && file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) });
        let clocks = calls[..made].iter().filter(|call| call.number == number::CLOCK_GETTIME).count();
        Some(Ended {
            made,
            asked,
            result: if (-4095..0).contains(&result) {
                Err(Errno::from_raw_os_error(-result as i32))
            } else {
                Ok(result as u64)
            },
            is_cut_short: result < last.least,
            file,
            times_ns: self.memory.times[..clocks].iter().map(Time::ns).collect(),
        })
    }
}

/// Reads the monotonic clock with the system call that batches make; `None` on other processors. The vDSO of a guest's
/// kernel makes this call too.
pub(crate) fn monotonic_ns() -> Option<u64> {
    let mut time = Time::default();
    // SAFETY: the kernel writes one `struct timespec` there.
    let answer = unsafe { call(number::CLOCK_GETTIME.into(), [MONOTONIC, &raw mut time as u64, 0]) };
    (answer[0] == 0).then(|| time.ns())
}

unsafe fn submit(calls: &[Call], file: RawFd) -> (i64, i64, RawFd, u64) {
    const NUMBER: u64 = 0x7472_696d;
    let arguments = [calls.as_ptr() as u64, calls.len() as u64, i64::from(file) as u64];
    // SAFETY: by the caller.
    let [made, result, file, asked] = unsafe { call(NUMBER, arguments) };
    (made, result, file as RawFd, asked as u64)
}

/// Makes a system call. Returns its result, and the registers rdx, rdi and r8 after it.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: u64, arguments: [u64; 3]) -> [i64; 4] {
    let [mut first, second, mut third] = arguments;
    let (result, r8): (u64, u64);
    // SAFETY: the caller vouches for what the arguments refer to.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            inlateout("rdi") first,
            in("rsi") second,
            inlateout("rdx") third,
            lateout("r8") r8,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    [result as i64, third as i64, first as i64, r8 as i64]
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn call(_: u64, _: [u64; 3]) -> [i64; 4] {
    [-1; 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_takes_batches_none_of_its_calls_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = Rc::new(OwnedFd::from(std::fs::File::open(dir.path()).unwrap()));
        let (mut memory, mut scratch) = (Memory::new(), [0; 8]);
        let mut batch = memory.begin(&mut scratch, None);
        assert!(batch.open(&root, "a", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR) && batch.close());
        assert!(batch.submit().is_none());
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let root = Rc::new(OwnedFd::from(std::fs::File::open("/").unwrap()));
        let (mut memory, mut scratch) = (Memory::new(), [0; 8]);
        let mut batch = memory.begin(&mut scratch, None);
        assert!(!batch.unlink(&root, &"x".repeat(PAGE)), "longer than any path");
        assert!((0..PATHS_MAX).all(|_| batch.unlink(&root, "x")) && !batch.unlink(&root, "x"));
        assert!((PATHS_MAX..CALLS_MAX).all(|_| batch.now()) && !batch.now());
    }
}
