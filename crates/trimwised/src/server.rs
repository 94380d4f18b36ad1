//! The daemon's side of its sockets. No connection can make it wait.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;

use crate::process::{read_ready, write_ready};
use trimwise_linux::daemon::control::{REQUEST_MAX, Request, Response};
use trimwise_linux::files::with_ending;

/// Maximum number of connections; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
/// Maximum number of connections of users other than root, so that root always gets through.
const OTHERS_MAX: usize = 16;
/// Maximum number of connections of one user other than root, so that one user cannot lock others out.
const OF_ONE_MAX: usize = 4;
/// Maximum number of connections accepted in one turn, refused ones included. Then the status socket rests, so that a
/// flood of connections takes neither the loop nor a processor.
const ACCEPTED_MAX: usize = 32;
/// Minimum cost charged for a connection's turn: the loop around it does more than the connection asks for.
const TURN_COST: Duration = Duration::from_millis(1);
/// Time after which a turn of a user other than root ends, between two requests.
const TURN_MAX: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(50);
/// Idle connections are closed after this time.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Bytes of unread responses beyond which a reader's further requests wait.
const UNREAD_MAX: usize = 8 << 20;
/// Requests of one connection answered before others are served.
const TURN: usize = 16;
/// All connections of a user other than root together get at most one part in this many of a processor: accepting them,
/// reading what they send, and answering, which for the history includes the worker's time.
const USER_SHARE: u32 = 20;

struct Connection {
    stream: UnixStream,
    user: Option<u32>,
    commands: bool,
    read: Vec<u8>,
    to_write: Vec<u8>,
    last: Instant,
    ended: bool,
    /// Number of the request whose response is sent later, and the instant at which it was made.
    awaits: Option<(u64, Instant)>,
}

/// Instants until which the next request of each user other than root must wait, because of the processor time that the
/// user has used.
#[derive(Debug, Default)]
struct Shares(BTreeMap<Option<u32>, Instant>);

impl Shares {
    fn spent(&mut self, user: Option<u32>, took: Duration, now: Instant) {
        self.0.retain(|_, until| *until > now);
        *self.0.entry(user).or_insert(now) += took * (USER_SHARE - 1);
    }

    fn wait(&self, user: Option<u32>, now: Instant) -> Duration {
        self.0.get(&user).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

pub struct Server {
    control: UnixListener,
    status: Option<UnixListener>,
    group: Option<u32>,
    connections: Vec<Connection>,
    requests: u64,
    shares: Shares,
    /// Instant until which the status socket rests.
    rests_until: Option<Instant>,
}

impl Server {
    /// Opens the sockets, replacing those of another server or of a killed daemon. On failure nothing has changed.
    pub fn open(control: &Path, status: Option<&Path>, group: Option<u32>) -> io::Result<Self> {
        let control = Bound::for_group(control, group)?;
        let status = status.map(|path| Bound::under_temporary_name(path, 0o666)).transpose()?;
        Ok(Self {
            status: status.map(Bound::in_place).transpose()?,
            control: control.in_place()?,
            group,
            connections: Vec::new(),
            requests: 0,
            shares: Shares::default(),
            rests_until: None,
        })
    }

    pub fn waits(&self, now: Instant) -> impl Iterator<Item = PollFd<'_>> {
        let has_room = self.connections.len() < CONNECTIONS_MAX;
        let status =
            self.status.as_ref().filter(|_| self.has_room_for_others() && self.rests_until.is_none());
        let listeners = [Some(&self.control), status].into_iter().flatten().filter(move |_| has_room);
        // Do not poll connections that await an answer: a closed one would wake the loop again and again. Nor those
        // of a user whose share is used up: they are not read, and what they send would do the same.
        let polled =
            self.connections.iter().filter(move |one| one.awaits.is_none() && self.rests(one, now).is_zero());
        let connections = polled.map(|one| {
            PollFd::new(&one.stream, if one.to_write.is_empty() { PollFlags::IN } else { PollFlags::OUT })
        });
        listeners.map(|listener| PollFd::new(listener, PollFlags::IN)).chain(connections)
    }

    /// Sends the response to the request of this number, if its client is still connected.
    pub(crate) fn answer_later(&mut self, request: u64, response: &Response) {
        let awaits = |one: &&mut Connection| one.awaits.is_some_and(|(number, _)| number == request);
        if let Some(one) = self.connections.iter_mut().find(awaits) {
            let asked_at = one.awaits.take().map(|(_, at)| at);
            one.last = Instant::now();
            one.say(response);
            if !one.is_root() {
                let now = Instant::now();
                self.shares.spent(one.user, asked_at.map_or(Duration::ZERO, |at| now - at), now);
            }
        }
    }

    pub(crate) fn take_over(&mut self, other: Self) {
        self.requests = other.requests;
        self.connections = other.connections;
    }

    /// Accepts connections, reads requests, passes each with its number to `answer`, and writes responses as far as
    /// possible. If `answer` returns no response, [`Self::answer_later`] sends one later, and until then no other
    /// request of that connection is processed.
    pub fn serve(&mut self, mut answer: impl FnMut(&Request, u64) -> Option<Response>) {
        self.accept();
        let mut unread = self.unread();
        for connection in &mut self.connections {
            let begun = Instant::now();
            if !connection.is_root() && !self.shares.wait(connection.user, begun).is_zero() {
                continue;
            }
            unread -= connection.to_write.len();
            connection.send();
            connection.receive();
            for _ in 0..TURN {
                // A request's cost is known only afterwards, so process one at a time.
                let is_over = !connection.is_root() && begun.elapsed() >= TURN_MAX;
                if is_over || (unread > UNREAD_MAX && !connection.is_root()) {
                    break;
                }
                let Some(line) = connection.next_line() else { break };
                let response = match Request::parse(&line) {
                    Ok(request) if connection.commands || request.is_reading() => {
                        self.requests += 1;
                        answer(&request, self.requests)
                    }
                    Ok(_) => Some(Response::refused("only root and the configured group may send commands")),
                    Err(why) => Some(Response::wrong(why)),
                };
                match &response {
                    Some(response) => connection.say(response),
                    None => connection.awaits = Some((self.requests, Instant::now())),
                }
            }
            if connection.read.len() > REQUEST_MAX && !connection.read.contains(&b'\n') {
                connection.say(&Response::wrong(format!("request of more than {REQUEST_MAX} bytes")));
                connection.read.clear();
                connection.ended = true;
            }
            unread += connection.to_write.len();
            if !connection.is_root() {
                let now = Instant::now();
                self.shares.spent(connection.user, (now - begun).max(TURN_COST), now);
            }
        }
        self.connections.retain(|one| {
            let done = one.ended && one.to_write.is_empty() && !one.has_work();
            one.awaits.is_some() || !(done || one.last.elapsed() > IDLE_MAX)
        });
    }

    /// Returns the time until the next request can be processed, if requests or connections are left after their turn.
    pub(crate) fn work_in(&self, now: Instant) -> Option<Duration> {
        let is_full = self.unread() > UNREAD_MAX;
        // A resting connection is not polled, so it may have sent something.
        let has_work = |one: &&Connection| {
            one.awaits.is_none()
                && (one.has_work() || !self.rests(one, now).is_zero())
                && (one.is_root() || !is_full)
        };
        let working = self.connections.iter().filter(has_work);
        let wait = |one: &Connection| self.rests(one, now);
        let rest = self.rests_until.map(|until| until.saturating_duration_since(now));
        working.map(wait).chain(rest).min()
    }

    /// Returns how long a connection must rest because its user's share is used up.
    fn rests(&self, one: &Connection, now: Instant) -> Duration {
        if one.is_root() { Duration::ZERO } else { self.shares.wait(one.user, now) }
    }

    pub fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.rests_until.is_none()
    }

    fn unread(&self) -> usize {
        self.connections.iter().map(|one| one.to_write.len()).sum()
    }

    fn accept(&mut self) {
        let now = Instant::now();
        self.rests_until.take_if(|until| *until <= now);
        let mut is_busy = false;
        for accepted in 0.. {
            // A user who connects again and again, and is refused, must not keep the loop busy either.
            if accepted == ACCEPTED_MAX {
                is_busy = true;
            }
            if accepted == ACCEPTED_MAX || self.connections.len() >= CONNECTIONS_MAX {
                break;
            }
            let from_control = self.control.accept().map(|(stream, _)| (stream, true));
            let next = from_control.or_else(|error| match &self.status {
                Some(status) if self.has_room_for_others() && self.rests_until.is_none() => {
                    status.accept().map(|(stream, _)| (stream, false))
                }
                _ => Err(error),
            });
            let Ok((stream, by_control)) = next else { break };
            let commands = by_control && self.may_command(&stream);
            let user = socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw());
            let is_refused = (by_control && !commands) || !self.takes(user, commands);
            if is_refused || stream.set_nonblocking(true).is_err() {
                is_busy = true;
                continue; // closed
            }
            self.connections.push(Connection::new(stream, user, commands));
        }
        if is_busy {
            self.rests_until = Some(now + REST);
        }
    }

    /// Returns true if there is room for another connection of this user.
    fn takes(&self, user: Option<u32>, commands: bool) -> bool {
        let of_one = || self.connections.iter().filter(|one| !one.is_root() && one.user == user).count();
        (commands && user == Some(0)) || (self.has_room_for_others() && of_one() < OF_ONE_MAX)
    }

    fn has_room_for_others(&self) -> bool {
        self.connections.iter().filter(|one| !one.is_root()).count() < OTHERS_MAX
    }

    /// Returns true if the peer's credentials allow commands: root, or another user if there is a group. The socket's
    /// mode lets only root and the group connect.
    fn may_command(&self, stream: &UnixStream) -> bool {
        let root = socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root());
        root || self.group.is_some()
    }
}

impl Connection {
    fn new(stream: UnixStream, user: Option<u32>, commands: bool) -> Self {
        Self {
            stream,
            user,
            commands,
            read: Vec::new(),
            to_write: Vec::new(),
            last: Instant::now(),
            ended: false,
            awaits: None,
        }
    }

    fn is_root(&self) -> bool {
        self.commands && self.user == Some(0)
    }

    /// Returns the next request, without its newline. It waits until the response to the last one was read, so that at
    /// most one is pending.
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
        if self.ended {
            return;
        }
        let before = self.read.len();
        let has_closed = read_ready(&mut self.stream, &mut self.read, REQUEST_MAX);
        // A client that sends requests but reads no responses counts as idle.
        if self.read.len() > before && self.to_write.is_empty() {
            self.last = Instant::now();
        }
        // Answer a last request even if it lacks a newline.
        if matches!(has_closed, Ok(true)) && self.read.last().is_some_and(|&last| last != b'\n') {
            self.read.push(b'\n');
        }
        self.ended = !matches!(has_closed, Ok(false));
    }

    fn send(&mut self) {
        let (sent, is_there) = write_ready(&mut self.stream, &self.to_write);
        if sent > 0 {
            self.to_write.drain(..sent);
            self.last = Instant::now();
        }
        if !is_there {
            // Drop the client's responses and requests.
            self.ended = true;
            self.to_write.clear();
            self.read.clear();
        }
    }
}

/// A socket under a temporary name, so that the old one stays in use until all succeeded.
struct Bound {
    listener: UnixListener,
    temporary: PathBuf,
    place: PathBuf,
}

/// Listens on a socket for root and a group, replacing one that nobody listens on any more; with `is_ours`, the daemon's
/// own.
pub fn listen(path: &Path, group: Option<u32>, is_ours: bool) -> io::Result<UnixListener> {
    if !is_ours && is_socket(path) && is_listening(path) {
        return Err(io::Error::other(format!("another process listens on {}", path.display())));
    }
    Bound::for_group(path, group)?.in_place()
}

fn is_listening(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let asked = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .and_then(|socket| connect(&socket, &address));
    // EAGAIN: its queue of connections is full. EPROTOTYPE: it is a socket of datagrams.
    matches!(asked, Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE))
}

pub(crate) fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Only sockets are replaced.
fn expect_socket(path: &Path) -> io::Result<()> {
    if is_socket(path) || fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let why = format!("{} exists and is not a socket; expected a socket, or nothing, there", path.display());
    Err(io::Error::other(why))
}

impl Bound {
    fn for_group(place: &Path, group: Option<u32>) -> io::Result<Self> {
        let bound = Self::under_temporary_name(place, 0o600)?;
        if let Some(group) = group {
            chown(&bound.temporary, None, Some(group))?;
            fs::set_permissions(&bound.temporary, fs::Permissions::from_mode(0o660))?;
        }
        Ok(bound)
    }

    fn under_temporary_name(place: &Path, mode: u32) -> io::Result<Self> {
        let temporary = with_ending(place, ".new");
        expect_socket(place)?;
        expect_socket(&temporary)?;
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Allow no connection before the mode is set.
        let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(&temporary);
        rustix::process::umask(old);
        let bound = Self { listener: listener?, temporary, place: place.to_owned() };
        fs::set_permissions(&bound.temporary, fs::Permissions::from_mode(mode))?;
        bound.listener.set_nonblocking(true)?;
        Ok(bound)
    }

    fn in_place(self) -> io::Result<UnixListener> {
        fs::rename(&self.temporary, &self.place)?;
        self.listener.try_clone()
    }
}

impl Drop for Bound {
    /// Removes the temporary name, if the socket was not moved into place.
    fn drop(&mut self) {
        drop(fs::remove_file(&self.temporary));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn regression_each_read_only_user_has_a_share() {
        let (mut shares, now) = (Shares::default(), Instant::now());
        let ms = Duration::from_millis;
        shares.spent(Some(1000), ms(10), now);
        assert_eq!((shares.wait(Some(1000), now), shares.wait(Some(7), now)), (ms(190), ms(0)));
        assert_eq!(shares.wait(Some(1000), now + ms(190)), ms(0));
        shares.spent(Some(7), ms(1), now + ms(200));
        assert_eq!(shares.0.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn regression_a_group_does_not_lock_root_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut server = Server::open(&at("control"), Some(&at("status")), None).unwrap();
        let mut taken = Vec::new();
        for user in (0..10).flat_map(|user| [1000 + user; 10]) {
            let (stream, theirs) = UnixStream::pair().unwrap();
            if server.takes(Some(user), true) {
                server.connections.push(Connection::new(stream, Some(user), true));
                taken.push((user, theirs));
            }
        }
        let of_one = taken.iter().filter(|(user, _)| *user == 1000).count();
        assert_eq!((taken.len(), of_one), (OTHERS_MAX, OF_ONE_MAX));
        assert!(server.takes(Some(0), true) && server.connections.len() < CONNECTIONS_MAX);
    }

    #[test]
    fn regression_a_flood_of_connections_ends_the_turn() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut server = Server::open(&at("control"), Some(&at("status")), None).unwrap();
        let mut flood: Vec<UnixStream> =
            (0..ACCEPTED_MAX + 20).map(|_| UnixStream::connect(at("status")).unwrap()).collect();
        let waits = server.waits(Instant::now()).count();
        server.serve(|_, _| None);
        assert_eq!(server.connections.len(), OF_ONE_MAX);
        assert_eq!(
            server.waits(Instant::now()).count(),
            waits - 1,
            "the status socket rests, and the user's connections too"
        );
        assert!(server.work_in(Instant::now()).is_some_and(|rest| rest <= REST));
        let last = flood.last_mut().unwrap();
        last.set_nonblocking(true).unwrap();
        assert_eq!(last.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock, "not reached yet");
        std::thread::sleep(REST);
        server.serve(|_, _| None);
        assert_eq!(last.read(&mut [0; 9]).unwrap(), 0, "refused in the next turn");
    }

    #[test]
    fn regression_whoever_used_up_his_share_is_neither_polled_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut server = Server::open(&at("control"), Some(&at("status")), None).unwrap();
        let listeners = server.waits(Instant::now()).count();
        for sent in ["\n".repeat(16_000), "A".repeat(20_000), Request::Status.line()] {
            server.shares = Shares::default();
            let mut stream = UnixStream::connect(at("status")).unwrap();
            stream.write_all(sent.as_bytes()).unwrap();
            while server.shares.0.is_empty() {
                server.serve(|_, _| Some(Response::done("x")));
            }
            // As if it had cost a second.
            let now = Instant::now();
            let user = server.connections.last().map_or(Some(0), |one| one.user);
            server.shares.spent(user, Duration::from_secs(1), now);
            stream.write_all(b"\n").unwrap_or_default();
            assert_eq!(server.waits(Instant::now()).count(), listeners, "only the listeners are polled");
            let answered = server.requests;
            server.serve(|_, _| Some(Response::done("x")));
            assert_eq!(server.requests, answered);
            let connected = !server.connections.is_empty();
            assert!(
                !connected
                    || server.work_in(Instant::now()).is_some_and(|wait| wait > Duration::from_secs(10))
            );
            server.connections.clear();
        }
    }

    #[test]
    fn regression_an_answer_that_took_long_counts_against_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut server = Server::open(&at("control"), Some(&at("status")), None).unwrap();
        let mut stream = UnixStream::connect(at("status")).unwrap();
        stream.write_all(Request::Status.line().as_bytes()).unwrap();
        while server.requests == 0 {
            server.serve(|_, _| None);
        }
        let second = Duration::from_secs(1);
        let one = &mut server.connections[0];
        one.awaits = one.awaits.map(|(number, at)| (number, at.checked_sub(second).unwrap()));
        let user = one.user;
        server.answer_later(server.requests, &Response::done("x"));
        assert!(server.shares.wait(user, Instant::now()) > second * (USER_SHARE - 2));
    }

    #[test]
    fn regression_only_a_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for name in ["file", "file.new"] {
            let file = folder.path().join(name);
            fs::write(&file, "precious").unwrap();
            let why = listen(&path, None, false).unwrap_err().to_string();
            assert!(why.contains("is not a socket"), "{why}");
            assert_eq!(fs::read(&file).unwrap(), b"precious");
            fs::remove_file(file).unwrap();
        }
        drop(listen(&path, None, false).unwrap());
        let left_by_a_killed_daemon = listen(&path, None, false);
        let why = listen(&path, None, false).unwrap_err().to_string();
        assert!(why.contains("another process listens"), "{why}");
        drop((left_by_a_killed_daemon.unwrap(), listen(&path, None, true).unwrap()));
    }

    #[test]
    fn regression_a_client_that_closed_its_side_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut server = Server::open(&at("control"), Some(&at("status")), None).unwrap();
        for end in ["\n", ""] {
            let mut stream = UnixStream::connect(at("status")).unwrap();
            stream.write_all(format!("{}{end}", Request::Status.line().trim_end()).as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut answer = String::new();
            // Until the server closes it after its answer.
            while stream.read_to_string(&mut answer).is_err() {
                server.serve(|request, _| Some(Response::done(request == &Request::Status)));
            }
            assert!(answer.contains("\"data\":true"), "{end:?}: {answer}");
        }
    }
}
