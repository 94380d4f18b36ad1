//! Metrics over HTTP: on a loopback address, or on a unix socket. No client can lock others out or make the daemon
//! wait. A separate process creates the unix socket and passes it on, since its folder may hang.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketFlags, accept_with};
use serde::{Deserialize, Serialize};

use crate::process::{Left, Process, asked, has_ended, read_ready, send_opened, write_ready};
use crate::server;

pub(crate) const COMMAND: &str = "listen";

/// Maximum number of clients with an incomplete request. Beyond it, the client that has waited longest is dropped, so a
/// client that sends its request at once is always served.
const ASKING_MAX: usize = 64;
/// Maximum number of clients that have not read their whole response, which can be some MiB. Beyond it, the one that
/// has not read for longest is dropped, so a client that reads at once is always served.
const READING_MAX: usize = 8;
const REQUEST_MAX: usize = 8 << 10;
/// Time limit for a client to send a request, or to read a response.
const TIME_MAX: Duration = Duration::from_secs(5);
const TURN: usize = 256;
/// Time for which a text is reused, so that clients cannot make the daemon render it again and again.
const TEXT_MAX: Duration = Duration::from_millis(250);
/// Time after which a failed listen is retried.
const AGAIN: Duration = Duration::from_secs(10);

/// Time to wait for a unix socket at start and reload. It is created later if its folder hangs.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time limit for the process that creates a unix socket; then it is killed.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Loopback(SocketAddr),
    /// The setting `metrics-socket`, and the id of the group that may read there besides root.
    Socket(PathBuf, Option<u32>),
}

impl Address {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Loopback(_) => None,
            Self::Socket(path, _) => Some(path),
        }
    }

    fn key(&self) -> String {
        match self {
            Self::Loopback(address) => format!("metrics-listen = \"{address}\""),
            Self::Socket(path, _) => format!("metrics-socket = \"{}\"", path.display()),
        }
    }
}

fn on_loopback(address: SocketAddr) -> io::Result<OwnedFd> {
    if !address.ip().is_loopback() {
        return Err(io::Error::other("expected a loopback address"));
    }
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    path: PathBuf,
    group: Option<u32>,
    /// True if the daemon itself listens there already, for another group.
    is_ours: bool,
}

pub fn main() -> io::Result<()> {
    let Request { path, group, is_ours } = asked()?;
    match server::listen(&path, group, is_ours) {
        Ok(listener) => send_opened(Ok(listener.as_fd())),
        Err(error) => send_opened(Err(error.to_string())),
    }
}

pub(crate) struct Endpoint {
    address: Address,
    program: PathBuf,
    /// True if an endpoint before this one listens on the same socket.
    is_ours: bool,
    listening: Option<OwnedFd>,
    /// Process that creates the socket, and the instant of its start.
    creating: Option<(Process, Instant)>,
    /// A process that creates a socket, was killed and has not exited.
    stuck: Option<Child>,
    /// Reason why the endpoint is not listening, without a full stop.
    problem: Option<String>,
    retry_at: Instant,
    clients: Vec<Client>,
    text: Option<(Instant, Rc<[u8]>)>,
}

impl Endpoint {
    /// Starts to listen, now or later: see [`Self::problem`].
    pub fn open(address: Address, program: &Path, is_ours: bool) -> Self {
        let mut endpoint = Self { is_ours, ..Self::new(address, program) };
        endpoint.listen();
        let until = Instant::now() + WAIT_MAX;
        while endpoint.creating.is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            endpoint.hear();
        }
        if endpoint.creating.is_some() {
            endpoint.failed("its folder does not respond");
        }
        endpoint
    }

    fn new(address: Address, program: &Path) -> Self {
        Self {
            address,
            program: program.to_owned(),
            is_ours: false,
            listening: None,
            creating: None,
            stuck: None,
            problem: None,
            retry_at: Instant::now(),
            clients: Vec::new(),
            text: None,
        }
    }

    pub fn end(self, left: &mut Left) {
        if let Some((mut process, _)) = self.creating {
            process.kill();
            left.keep(process.into_parts().1);
        }
        self.stuck.into_iter().for_each(|child| left.keep(child));
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(crate) fn try_again(&mut self, now: Instant) {
        self.hear();
        if self.stuck.as_mut().is_some_and(has_ended) {
            self.stuck = None;
        }
        let is_idle = self.listening.is_none() && self.creating.is_none() && self.stuck.is_none();
        if is_idle && now >= self.retry_at {
            self.listen();
        }
    }

    fn listen(&mut self) {
        match &self.address {
            Address::Loopback(address) => match on_loopback(*address) {
                Ok(listening) => (self.listening, self.problem) = (Some(listening), None),
                Err(error) => self.failed(&error.to_string()),
            },
            Address::Socket(path, group) => {
                let request = Request { path: path.clone(), group: *group, is_ours: self.is_ours };
                match Process::ask(&self.program, COMMAND, &request) {
                    Ok(process) => self.creating = Some((process, Instant::now())),
                    Err(error) => self.failed(&format!("its process cannot be started: {error}")),
                }
            }
        }
    }

    fn failed(&mut self, why: &str) {
        self.problem = Some(format!("{}: {why}", self.address.key()));
        self.retry_at = Instant::now() + AGAIN;
    }

    fn hear(&mut self) {
        let Some((mut process, begun)) = self.creating.take() else { return };
        match process.receive_opened() {
            Some(Ok(opened)) => (self.listening, self.problem) = (Some(opened), None),
            Some(Err(why)) => self.failed(&why),
            None if begun.elapsed() < PATIENCE => return self.creating = Some((process, begun)),
            None => {
                process.kill();
                self.failed("its folder does not respond");
            }
        }
        self.stuck = Some(process.into_parts().1); // about to exit, unless its folder hangs
    }

    pub fn waits(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listening = self.listening.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
        let creating = self.creating.as_ref().map(|(process, _)| process.waits());
        let clients = self.clients.iter().map(|client| {
            PollFd::new(&client.stream, if client.answer.is_some() { PollFlags::OUT } else { PollFlags::IN })
        });
        listening.into_iter().chain(creating).chain(clients)
    }

    pub fn serve(&mut self, mut text: impl FnMut() -> String) {
        let kept = &mut self.text;
        let mut text = || match kept {
            Some((made, text)) if made.elapsed() < TEXT_MAX => Rc::clone(text),
            _ => Rc::clone(&kept.insert((Instant::now(), text().into_bytes().into())).1),
        };
        self.clients.retain_mut(|client| client.goes_on(&mut text));
        drop_beyond(&mut self.clients, true, READING_MAX);
        let mut unread = 0;
        for _ in 0..TURN {
            if unread == READING_MAX {
                break; // the others wait in the kernel's queue, so that one turn does not send many MiB
            }
            let Some(Ok(stream)) = self
                .listening
                .as_ref()
                .map(|fd| accept_with(fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))
            else {
                break;
            };
            let mut client =
                Client { stream: stream.into(), read: Vec::new(), answer: None, since: Instant::now() };
            if client.goes_on(&mut text) {
                unread += usize::from(client.answer.is_some());
                self.clients.push(client);
            }
            drop_beyond(&mut self.clients, false, ASKING_MAX);
            drop_beyond(&mut self.clients, true, READING_MAX);
        }
        if self.clients.is_empty() && self.text.as_ref().is_some_and(|(made, _)| made.elapsed() >= TEXT_MAX) {
            self.text = None; // it may be large
        }
    }
}

/// If more than `most` clients are reading their response, or have not sent their request, drops those of them without
/// progress for longest.
fn drop_beyond(clients: &mut Vec<Client>, reads: bool, most: usize) {
    let all = |clients: &[Client]| -> Vec<(Instant, usize)> {
        let of_them = clients.iter().enumerate().filter(|(_, client)| client.answer.is_some() == reads);
        of_them.map(|(index, client)| (client.since, index)).collect()
    };
    let mut them = all(clients);
    while them.len() > most
        && let Some(&(_, oldest)) = them.iter().min()
    {
        clients.remove(oldest);
        them = all(clients);
    }
}

struct Client {
    stream: File,
    read: Vec<u8>,
    /// The response: head, text, and the number of bytes of both that are sent.
    answer: Option<(Vec<u8>, Rc<[u8]>, usize)>,
    since: Instant,
}

impl Client {
    fn goes_on(&mut self, text: &mut impl FnMut() -> Rc<[u8]>) -> bool {
        if self.answer.is_none() && !self.asks(text) {
            return false;
        }
        self.since.elapsed() < TIME_MAX && !self.is_answered()
    }

    fn asks(&mut self, text: &mut impl FnMut() -> Rc<[u8]>) -> bool {
        let Ok(has_closed) = read_ready(&mut self.stream, &mut self.read, REQUEST_MAX) else { return false };
        if self.read.len() > REQUEST_MAX {
            return false;
        }
        // Answer a complete request even if the client closed its side.
        if !self.read.windows(4).any(|four| four == b"\r\n\r\n") {
            return !has_closed;
        }
        let said = |words: &str| Rc::from(words.as_bytes());
        let (status, body) = match self.read.split(|&byte| byte == b' ').take(2).collect::<Vec<_>>()[..] {
            [b"GET", path] if path.split(|&byte| byte == b'?').next() == Some(b"/metrics") => {
                ("200 OK", text())
            }
            [b"GET", _] => ("404 Not Found", said("expected /metrics\n")),
            _ => ("405 Method Not Allowed", said("expected GET\n")),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n",
            body.len()
        );
        self.answer = Some((head.into_bytes(), body, 0));
        self.since = Instant::now();
        true
    }

    /// Sends as much as possible. Returns true if everything is sent or the client is gone.
    fn is_answered(&mut self) -> bool {
        let Some((head, body, sent)) = &mut self.answer else { return false };
        loop {
            let rest = if *sent < head.len() { &head[*sent..] } else { &body[*sent - head.len()..] };
            if rest.is_empty() {
                return true;
            }
            let (n, is_there) = write_ready(&mut self.stream, rest);
            *sent += n;
            if n > 0 {
                self.since = Instant::now(); // a client that keeps reading may continue
            }
            if n < rest.len() || !is_there {
                return !is_there;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn listening(path: &Path) -> Endpoint {
        let mut endpoint = Endpoint::new(Address::Socket(path.to_owned(), None), Path::new("/proc/self/exe"));
        endpoint.listening = Some(server::listen(path, None, false).unwrap().into());
        endpoint
    }

    #[test]
    fn regression_half_requests_lock_nobody_out_and_a_long_answer_is_sent_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.sock");
        let mut endpoint = listening(&path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = "trimwise_x 1\n".repeat(300_000);
        let mut half: Vec<UnixStream> = Vec::new();
        for _ in 0..200 {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
            half.push(stream);
            if half.len().is_multiple_of(50) {
                endpoint.serve(|| text.clone());
            }
        }
        let mut whole = UnixStream::connect(&path).unwrap();
        whole.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        whole.set_nonblocking(true).unwrap();
        let (mut read, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            endpoint.serve(|| text.clone());
            match whole.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => read.extend(&buffer[..n]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(read.ends_with(text.as_bytes()) && read.starts_with(b"HTTP/1.1 200 OK\r\n"));
        assert!(endpoint.clients.len() <= ASKING_MAX);
    }

    #[test]
    fn regression_clients_that_do_not_read_lock_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.sock");
        let mut endpoint = listening(&path);
        let text = "trimwise_x 1\n".repeat(300_000);
        let ask = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream
        };
        let unread: Vec<UnixStream> = (0..100).map(|_| ask()).collect();
        let mut whole = ask();
        whole.set_nonblocking(true).unwrap();
        let (mut read, mut buffer, begun) = (Vec::new(), vec![0; 1 << 16], Instant::now());
        loop {
            endpoint.serve(|| text.clone());
            assert!(endpoint.clients.len() <= READING_MAX);
            match whole.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => read.extend(&buffer[..n]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(begun.elapsed() < TIME_MAX, "not served before the others are dropped for being idle");
        }
        assert!(read.ends_with(text.as_bytes()));
        drop(unread);
    }
}
