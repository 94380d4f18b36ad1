//! The daemon's side of its sockets: connections, none of which can make it wait.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

use trimwise_linux::daemon::control::{REQUEST_MAX, Request, Response};
use trimwise_linux::files::with_ending;

/// Connections at a time; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
/// Of them, those that only read the status: whoever they are, root gets through.
const READERS_MAX: usize = 16;
/// And of those no more for one user, or he would keep all others out.
const READERS_OF_ONE_MAX: usize = 4;
/// Who says nothing for so long is sent away.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Bytes of answers that nobody has taken yet: from there on, no further request of a reader is answered.
const UNREAD_MAX: usize = 8 << 20;
/// Requests of one connection that are answered before others are served.
const TURN: usize = 16;
/// A user who only reads has one part in so many of a processor for all of his requests.
const USER_SHARE: u32 = 20;

struct Connection {
    stream: UnixStream,
    /// Who it is, as a number; `None` if the kernel does not tell.
    user: Option<u32>,
    /// Whether it may command.
    commands: bool,
    read: Vec<u8>,
    to_write: Vec<u8>,
    last: Instant,
    ended: bool,
    /// The number of its request that is answered later.
    awaits: Option<u64>,
}

/// What a connection waits for, for poll(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For room to write, else for something to read.
    pub to_write: bool,
}

/// What users who only read have had of the processor: until when the next request of each waits.
#[derive(Debug, Default)]
struct Shares(BTreeMap<Option<u32>, Instant>);

impl Shares {
    fn spent(&mut self, user: Option<u32>, took: Duration, now: Instant) {
        self.0.retain(|_, until| *until > now);
        self.0.insert(user, now + took * (USER_SHARE - 1));
    }

    /// How long the next request of this user waits yet.
    fn wait(&self, user: Option<u32>, now: Instant) -> Duration {
        self.0.get(&user).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

/// The sockets and whoever is connected.
pub struct Server {
    control: UnixListener,
    status: Option<UnixListener>,
    group: Option<u32>,
    connections: Vec<Connection>,
    /// Requests up to now.
    requests: u64,
    shares: Shares,
}

impl Server {
    /// Opens the sockets, in place of what was there: another server's, or what a killed daemon left.
    ///
    /// # Errors
    /// If they cannot be made; then what was there is as it was.
    pub fn open(control: &Path, status: Option<&Path>, group: Option<u32>) -> io::Result<Self> {
        let control = Bound::for_group(control, group)?;
        let status = status.map(|path| Bound::beside(path, 0o666)).transpose()?;
        Ok(Self {
            status: status.map(Bound::in_place).transpose()?,
            control: control.in_place()?,
            group,
            connections: Vec::new(),
            requests: 0,
            shares: Shares::default(),
        })
    }

    /// What to wait for.
    pub fn waits(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Waiting)> {
        let reading = Waiting { to_write: false };
        let has_room = self.connections.len() < CONNECTIONS_MAX;
        let status = self.status.as_ref().filter(|_| self.has_room_for_readers());
        let listeners = [Some(&self.control), status].into_iter().flatten().filter(move |_| has_room);
        // What waits for its answer is not looked at: one that was closed would wake the loop again and again.
        let connections = self
            .connections
            .iter()
            .filter(|one| one.awaits.is_none())
            .map(|one| (one.stream.as_fd(), Waiting { to_write: !one.to_write.is_empty() }));
        listeners.map(move |listener| (listener.as_fd(), reading)).chain(connections)
    }

    /// The answer to the request of this number. If nobody waits for it any more, nobody gets it.
    pub fn answer_later(&mut self, request: u64, response: &Response) {
        if let Some(one) = self.connections.iter_mut().find(|one| one.awaits == Some(request)) {
            one.awaits = None;
            one.last = Instant::now();
            one.say(response);
        }
    }

    /// Lets the connections of another server go on with this one.
    pub fn take_over(&mut self, other: Self) {
        self.requests = other.requests;
        self.connections = other.connections;
    }

    /// Takes new connections, reads requests, lets `answer` answer them, and writes what can be written. `answer` is told
    /// the number of the request; without a response it comes later, by [`Self::answer_later`], and until then no other
    /// request of that connection is taken.
    pub fn serve(&mut self, mut answer: impl FnMut(&Request, u64) -> Option<Response>) {
        self.accept();
        let mut unread = self.unread();
        for connection in &mut self.connections {
            unread -= connection.to_write.len();
            connection.send();
            connection.receive();
            for _ in 0..TURN {
                let begun = Instant::now();
                let waits = !connection.commands && !self.shares.wait(connection.user, begun).is_zero();
                if waits || (unread > UNREAD_MAX && !connection.commands) {
                    break;
                }
                let Some(line) = connection.next_line() else { break };
                let response = match Request::parse(&line) {
                    Ok(request) if connection.commands || request.is_reading() => {
                        self.requests += 1;
                        answer(&request, self.requests)
                    }
                    Ok(_) => {
                        Some(Response::refused("only root and the group of the configuration may command"))
                    }
                    Err(why) => Some(Response::wrong(why)),
                };
                match &response {
                    Some(response) => connection.say(response),
                    None => connection.awaits = Some(self.requests),
                }
                if !connection.commands {
                    let now = Instant::now();
                    self.shares.spent(connection.user, now - begun, now);
                }
            }
            if connection.read.len() > REQUEST_MAX && !connection.read.contains(&b'\n') {
                connection.say(&Response::wrong(format!("a request of more than {REQUEST_MAX} bytes")));
                connection.read.clear();
                connection.ended = true;
            }
            unread += connection.to_write.len();
        }
        self.connections.retain(|one| {
            let done = one.ended && one.to_write.is_empty() && !one.has_work();
            one.awaits.is_some() || !(done || one.last.elapsed() > IDLE_MAX)
        });
    }

    /// If somebody's turn was over before all of his requests were answered: when his next one comes.
    pub fn work_in(&self) -> Option<Duration> {
        let (now, is_full) = (Instant::now(), self.unread() > UNREAD_MAX);
        let working = self.connections.iter().filter(|one| one.has_work() && (one.commands || !is_full));
        let wait =
            |one: &Connection| if one.commands { Duration::ZERO } else { self.shares.wait(one.user, now) };
        working.map(wait).min()
    }

    /// Bytes of answers that nobody has taken yet.
    fn unread(&self) -> usize {
        self.connections.iter().map(|one| one.to_write.len()).sum()
    }

    fn accept(&mut self) {
        while self.connections.len() < CONNECTIONS_MAX {
            let from_control = self.control.accept().map(|(stream, _)| (stream, true));
            let next = from_control.or_else(|error| match &self.status {
                Some(status) if self.has_room_for_readers() => {
                    status.accept().map(|(stream, _)| (stream, false))
                }
                _ => Err(error),
            });
            let Ok((stream, by_control)) = next else { return };
            let commands = by_control && self.may_command(&stream);
            let user = socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw());
            let is_one_too_many = !commands
                && self.connections.iter().filter(|one| !one.commands && one.user == user).count()
                    >= READERS_OF_ONE_MAX;
            if (by_control && !commands) || is_one_too_many || stream.set_nonblocking(true).is_err() {
                continue; // closed
            }
            self.connections.push(Connection {
                stream,
                user,
                commands,
                read: Vec::new(),
                to_write: Vec::new(),
                last: Instant::now(),
                ended: false,
                awaits: None,
            });
        }
    }

    fn has_room_for_readers(&self) -> bool {
        self.connections.iter().filter(|one| !one.commands).count() < READERS_MAX
    }

    /// Root by its credentials; others got past the socket's mode, so that they are in the group, if there is one.
    fn may_command(&self, stream: &UnixStream) -> bool {
        let root = socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root());
        root || self.group.is_some()
    }
}

impl Connection {
    /// The next request, without its end. Not before the answer to the last one was taken: so only one waits.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        if !self.has_work() {
            return None;
        }
        let end = self.read.iter().position(|&byte| byte == b'\n')?;
        let mut line: Vec<u8> = self.read.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    fn has_work(&self) -> bool {
        self.awaits.is_none() && self.to_write.is_empty() && self.read.contains(&b'\n')
    }

    fn say(&mut self, response: &Response) {
        self.to_write.extend(response.line().as_bytes());
        self.send();
    }

    fn receive(&mut self) {
        let mut buffer = [0; 4096];
        while !self.ended && self.read.len() <= REQUEST_MAX {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    // Who says no more is answered what was asked, also without the end of the line.
                    if self.read.last().is_some_and(|&last| last != b'\n') {
                        self.read.push(b'\n');
                    }
                    self.ended = true;
                    return;
                }
                Ok(n) => {
                    self.read.extend(&buffer[..n]);
                    // Who only asks, and takes no answer, is idle.
                    if self.to_write.is_empty() {
                        self.last = Instant::now();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended |= error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn send(&mut self) {
        while !self.to_write.is_empty() {
            match self.stream.write(&self.to_write) {
                Ok(0) => break,
                Ok(n) => {
                    self.to_write.drain(..n);
                    self.last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        if !self.to_write.is_empty() {
            // Nobody is there any more: neither answers nor requests are of use.
            self.ended = true;
            self.to_write.clear();
            self.read.clear();
        }
    }
}

/// A socket under another name, so that the one in its place is used until all is well.
struct Bound {
    listener: UnixListener,
    beside: PathBuf,
    place: PathBuf,
}

/// Listens on a socket for root and a group, in place of what was there.
///
/// # Errors
/// If it cannot be made; then what was there is as it was.
pub fn listen(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    Bound::for_group(path, group)?.in_place()
}

impl Bound {
    fn for_group(place: &Path, group: Option<u32>) -> io::Result<Self> {
        let bound = Self::beside(place, 0o600)?;
        if let Some(group) = group {
            chown(&bound.beside, None, Some(group))?;
            fs::set_permissions(&bound.beside, fs::Permissions::from_mode(0o660))?;
        }
        Ok(bound)
    }

    fn beside(place: &Path, mode: u32) -> io::Result<Self> {
        let beside = with_ending(place, ".new");
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Nobody may connect before the mode is right.
        let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(&beside);
        rustix::process::umask(old);
        let bound = Self { listener: listener?, beside, place: place.to_owned() };
        fs::set_permissions(&bound.beside, fs::Permissions::from_mode(mode))?;
        bound.listener.set_nonblocking(true)?;
        Ok(bound)
    }

    fn in_place(self) -> io::Result<UnixListener> {
        fs::rename(&self.beside, &self.place)?;
        self.listener.try_clone()
    }
}

impl Drop for Bound {
    /// If it is in its place, nothing is beside it any more.
    fn drop(&mut self) {
        drop(fs::remove_file(&self.beside));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_user_who_only_reads_has_a_share_and_others_have_theirs() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        let ms = Duration::from_millis;
        shares.spent(Some(1000), ms(10), now);
        assert_eq!((shares.wait(Some(1000), now), shares.wait(Some(7), now)), (ms(190), ms(0)));
        assert_eq!(shares.wait(Some(1000), now + ms(190)), ms(0));
        shares.spent(Some(7), ms(1), now + ms(200));
        assert_eq!(shares.0.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn regression_who_says_no_more_is_answered_what_was_asked() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut server = Server::open(&at("control"), Some(&at("status")), None).unwrap();
        for end in ["\n", ""] {
            let mut stream = UnixStream::connect(at("status")).unwrap();
            stream.write_all(format!("{}{end}", Request::Status.line().trim_end()).as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut answer = String::new();
            // Until it is closed behind its answer.
            while stream.read_to_string(&mut answer).is_err() {
                server.serve(|request, _| Some(Response::done(request == &Request::Status)));
            }
            assert!(answer.contains("\"data\":true"), "{end:?}: {answer}");
        }
    }
}
