//! Another process of this program, and the socket to it. Anything that may hang in the kernel runs in one: a process
//! can be abandoned, a thread cannot.
//!
//! Every such process ends with the daemon. One that hangs in the kernel ends when the kernel releases it; until then
//! [`Left`] keeps it so that it can be reaped.

use std::io::{self, BufRead as _, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trimwise_linux::ioctl::child::die_with_parent;

/// Maximum length of the message with a descriptor, or in place of it.
const MESSAGE_MAX: usize = 1 << 10;

#[derive(Debug)]
pub struct Process {
    child: Child,
    stream: UnixStream,
    to_send: Vec<u8>,
    received: Vec<u8>,
}

impl Process {
    /// Starts the program. The socket is its standard input and its standard output.
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = spawn(program, arguments, theirs.into(), Stdio::null())?;
        Ok(Self { child, stream: ours, to_send: Vec::new(), received: Vec::new() })
    }

    /// Starts the program in a role, and sends it its only request.
    pub fn ask(program: &Path, role: &str, request: &impl Serialize) -> io::Result<Self> {
        let line = line(request)?;
        let mut process = Self::start(program, &[role])?;
        process.send(&line);
        Ok(process)
    }

    /// Sends `bytes` now, or when there is room: see [`Self::flush`].
    pub fn send(&mut self, bytes: &[u8]) {
        self.to_send.extend(bytes);
        self.flush();
    }

    /// Sends as much as there is room for.
    pub fn flush(&mut self) {
        match write_ready(&mut self.stream, &self.to_send) {
            (sent, true) => drop(self.to_send.drain(..sent)),
            // The process has exited; its remaining output shows how.
            (_, false) => self.to_send.clear(),
        }
    }

    /// Reads the process's output. Returns true if it is complete: the process exited, or was killed for writing more
    /// than `most` bytes.
    pub fn receive(&mut self, most: usize) -> bool {
        match read_ready(&mut self.stream, &mut self.received, most) {
            Ok(has_closed) if self.received.len() <= most => has_closed,
            _ => {
                self.kill();
                true
            }
        }
    }

    /// Returns the descriptor that the process opened with [`send_opened`], or the reason why it could not; `None` if
    /// it has not yet answered.
    pub(crate) fn receive_opened(&mut self) -> Option<Result<OwnedFd, String>> {
        let (mut text, mut space) = ([0; MESSAGE_MAX], [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))]);
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read =
            recvmsg(&self.stream, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let read = match read {
            Ok(message) => message.bytes,
            Err(Errno::INTR | Errno::AGAIN) => return None,
            Err(error) => return Some(Err(error.to_string())),
        };
        let opened = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Some(opened.ok_or_else(|| match &text[..read] {
            [] => "its process exited".to_owned(),
            why => String::from_utf8_lossy(why).into_owned(),
        }))
    }

    /// Returns the output that was received and not yet taken.
    pub(crate) fn received(&self) -> &[u8] {
        &self.received
    }

    pub(crate) fn take_received(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    pub(crate) fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|&byte| byte == b'\n')?;
        let rest = self.received.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        line.pop();
        Some(line)
    }

    /// Returns the output of a process that has closed its socket, and the process, which is about to exit.
    pub fn into_parts(self) -> (Vec<u8>, Child) {
        (self.received, self.child)
    }

    pub fn waits(&self) -> PollFd<'_> {
        let writing = if self.to_send.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.stream, PollFlags::IN | writing)
    }

    /// Kills the process. A system call in progress is not interrupted.
    pub fn kill(&mut self) {
        drop(self.child.kill());
    }

    /// Kills the process, and waits for it no longer than `until`.
    pub fn end(mut self, left: &mut Left, until: Instant) {
        self.kill();
        left.wait(self.child, until);
    }
}

/// Reads available bytes, until `into` holds more than `most` bytes. Returns true if the other side has closed, which the
/// next poll reports if there were any bytes.
pub(crate) fn read_ready(from: &mut impl Read, into: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let mut buffer = [0; 16 << 10];
    while into.len() <= most {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(n) => {
                into.extend(&buffer[..n]);
                if n < buffer.len() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Writes as many bytes as there is room for. Returns their number, and true if the other side still reads.
pub(crate) fn write_ready(to: &mut impl Write, bytes: &[u8]) -> (usize, bool) {
    let mut sent = 0;
    while sent < bytes.len() {
        match to.write(&bytes[sent..]) {
            Ok(0) => return (sent, false),
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (sent, error.kind() == ErrorKind::WouldBlock),
        }
    }
    (sent, true)
}

/// Encodes a message between the daemon and its processes as a line of JSON.
pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Receives the request of [`Process::ask`], in the process that was asked.
pub(crate) fn asked<T: DeserializeOwned>() -> io::Result<T> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Sends an opened descriptor to [`Process::receive_opened`], or the reason why there is none.
pub(crate) fn send_opened(opened: Result<BorrowedFd<'_>, String>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = opened.as_ref().map(|descriptor| [*descriptor]);
    let text = match &descriptors {
        Ok(descriptors) => {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
            "opened"
        }
        Err(why) => &why[..why.floor_char_boundary(MESSAGE_MAX)],
    };
    let text = [IoSlice::new(text.as_bytes())];
    sendmsg(rustix::stdio::stdin(), &text, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Starts the program with this socket as its standard input and output.
pub fn spawn(program: &Path, arguments: &[&str], socket: OwnedFd, stderr: Stdio) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(socket.try_clone()?).stdout(socket).stderr(stderr).current_dir("/");
    // Signals from a terminal, such as Ctrl-C, must reach only the daemon.
    command.process_group(0);
    die_with_parent(&mut command);
    command.spawn()
}

/// Abandoned processes, until the kernel releases them.
#[derive(Debug, Default)]
pub struct Left(Vec<Child>);

impl Left {
    pub(crate) fn keep(&mut self, child: Child) {
        self.0.push(child);
    }

    pub(crate) fn reap(&mut self) {
        self.0.retain_mut(|child| !has_ended(child));
    }

    pub fn kill(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.kill()));
    }

    /// Waits for a killed process, no longer than `until`.
    pub fn wait(&mut self, mut child: Child, until: Instant) {
        while !has_ended(&mut child) {
            if Instant::now() >= until {
                return self.keep(child);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn has_ended(child: &mut Child) -> bool {
    // An error means that it is no longer a child.
    !matches!(child.try_wait(), Ok(None))
}
