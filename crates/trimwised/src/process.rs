//! Another process of this program, and the socket between both. Whatever may hang in the kernel is done in one: a process
//! can be given up, a thread cannot.
//!
//! Every such process ends with the daemon. One that hangs in the kernel ends when the kernel lets it go; until then
//! [`Left`] keeps it, so that it can be reaped.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use trimwise_linux::ioctl::child::die_with_parent;

/// A process that was started, and what it and the daemon have yet to read of each other.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stream: UnixStream,
    to_send: Vec<u8>,
    received: Vec<u8>,
}

impl Process {
    /// Starts the program. The socket is its standard input and its standard output.
    ///
    /// # Errors
    /// If no process can be started.
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = spawn(program, arguments, theirs.into(), Stdio::null())?;
        Ok(Self { child, stream: ours, to_send: Vec::new(), received: Vec::new() })
    }

    /// Sends this, now or when there is room: see [`Self::flush`].
    pub fn send(&mut self, bytes: &[u8]) {
        self.to_send.extend(bytes);
        self.flush();
    }

    /// Sends what there is room for.
    pub fn flush(&mut self) {
        while !self.to_send.is_empty() {
            match self.stream.write(&self.to_send) {
                Ok(n @ 1..) => drop(self.to_send.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It has ended: what it still said tells how.
                Ok(0) | Err(_) => self.to_send.clear(),
            }
        }
    }

    /// Reads what it has said. Returns whether that was all: it ended, or was killed because it said more than `most` bytes.
    pub fn receive(&mut self, most: usize) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(n) if self.received.len() + n <= most => self.received.extend(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Ok(_) | Err(_) => {
                    self.kill();
                    return true;
                }
            }
        }
    }

    /// The next whole line of what was received, without its end.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|&byte| byte == b'\n')?;
        let rest = self.received.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        line.pop();
        Some(line)
    }

    /// What was received of one that has closed its socket, and the process, which is about to end.
    pub fn into_parts(self) -> (Vec<u8>, Child) {
        (self.received, self.child)
    }

    /// What to wait for.
    pub fn waits(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether something waits for room to be sent.
    pub fn is_sending(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Tells it to end. What it has the kernel do now still ends.
    pub fn kill(&mut self) {
        drop(self.child.kill());
    }

    /// Kills it, and waits until then at most for its end.
    pub fn end(mut self, left: &mut Left, until: Instant) {
        self.kill();
        left.wait(self.child, until);
    }
}

/// Starts the program with this socket as its standard input and output.
///
/// # Errors
/// If no process can be started.
pub fn spawn(program: &Path, arguments: &[&str], socket: OwnedFd, stderr: Stdio) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(socket.try_clone()?).stdout(socket).stderr(stderr).current_dir("/");
    // What a terminal sends to the daemon, such as Ctrl-C, is the daemon's to answer.
    command.process_group(0);
    die_with_parent(&mut command);
    command.spawn()
}

/// Processes that did not end when they were given up, until the kernel lets them go.
#[derive(Debug, Default)]
pub struct Left(Vec<Child>);

impl Left {
    /// Keeps one.
    pub fn keep(&mut self, child: Child) {
        self.0.push(child);
    }

    /// Lets go of those that have ended.
    pub fn reap(&mut self) {
        self.0.retain_mut(|child| !has_ended(child));
    }

    /// Kills all of them.
    pub fn kill(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
    }

    /// Waits until then at most for one that was killed.
    pub fn wait(&mut self, mut child: Child, until: Instant) {
        while !has_ended(&mut child) {
            if Instant::now() >= until {
                return self.keep(child);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether it has ended.
pub fn has_ended(child: &mut Child) -> bool {
    // An error says that it is no child any more.
    !matches!(child.try_wait(), Ok(None))
}
