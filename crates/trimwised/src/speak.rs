//! Writes the daemon's log to the journal or a terminal. A worker writes it, since the reader can be slow or stop
//! reading.
//!
//! Lines wait in the socket to the worker, which holds some hundreds. Lines that do not fit are dropped and counted.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::process::{Left, spawn};
use trimwise_linux::text::is_unprintable;

pub(crate) const COMMAND: &str = "speak";

/// Maximum length of a line in bytes, which fits into a packet of the socket.
const LINE_MAX: usize = 16 << 10;
/// Time to wait for unwritten lines on exit.
const END_MAX: Duration = Duration::from_secs(1);
/// Minimum time before an exited worker is restarted.
const REST: Duration = Duration::from_secs(10);
static SPEAKER: Mutex<Option<Speaker>> = Mutex::new(None);

struct Speaker {
    program: PathBuf,
    child: Child,
    socket: OwnedFd,
    started: Instant,
    dropped: u64,
}

fn speaker() -> MutexGuard<'static, Option<Speaker>> {
    SPEAKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a worker write the log until this is dropped.
pub(crate) struct Speaking(());

impl Speaking {
    pub fn begin(program: &Path) -> Self {
        *speaker() = Speaker::start(program).ok();
        Self(())
    }
}

impl Drop for Speaking {
    fn drop(&mut self) {
        let Some(Speaker { child, socket, .. }) = speaker().take() else { return };
        drop(socket); // it writes the remaining lines and exits
        let mut left = Left::default();
        left.wait(child, Instant::now() + END_MAX);
        left.kill();
    }
}

impl Speaker {
    fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = spawn(program, &[COMMAND], theirs, Stdio::inherit())?;
        Ok(Self { program: program.to_owned(), child, socket: ours, started: Instant::now(), dropped: 0 })
    }

    fn say(&mut self, line: &str) {
        let send = |socket: &OwnedFd, line: &str| {
            let end = line.floor_char_boundary(LINE_MAX);
            send(socket, format!("{}\n", &line[..end]).as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        };
        let mut sent = send(&self.socket, line);
        if matches!(sent, Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
            && self.started.elapsed() >= REST
            && let Ok(next) = Self::start(&self.program)
        {
            let mut ended = std::mem::replace(self, Self { dropped: self.dropped, ..next });
            drop(ended.child.try_wait());
            sent = send(&self.socket, line);
        }
        self.dropped += u64::from(sent.is_err());
    }
}

pub fn dropped() -> u64 {
    speaker().as_ref().map_or(0, |one| one.dropped)
}

pub fn log(text: &str) {
    say(6, text);
}

/// Logs a warning: `journalctl -p warning` shows it.
pub(crate) fn warn(text: &str) {
    say(4, text);
}

/// Replaces the problem in `kept`, and logs a warning if it has changed.
pub(crate) fn warn_of(kept: &mut Option<String>, problem: Option<String>) {
    if *kept != problem {
        problem.iter().for_each(|problem| warn(problem));
        *kept = problem;
    }
}

/// Logs a message with a priority of syslog(3).
pub fn say(priority: u8, text: &str) {
    let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    for line in text.lines() {
        let priority = if is_journal { format!("<{priority}>") } else { String::new() };
        let line = format!("{priority}{}", line.replace(is_unprintable, "\u{fffd}"));
        match speaker().as_mut() {
            Some(speaker) => speaker.say(&line),
            None => drop(writeln!(io::stderr(), "{line}")),
        }
    }
}

/// Runs the worker: writes line after line until the daemon closes the socket.
pub fn serve() -> io::Result<()> {
    let mut buffer = vec![0; LINE_MAX + 1];
    loop {
        match recv(rustix::stdio::stdin(), &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return Ok(()),
            Ok((n, _)) => drop(io::stderr().write_all(&buffer[..n])),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
