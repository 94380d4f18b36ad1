//! The drive as a network block device, for QEMU, nbd-client and other users of NBD.
//!
//! One export, named after the device; the default export is the same. Several connections may use it at once. Requests
//! are worked on as they arrive, and each is answered when the model says that it completed, so that answers overtake
//! each other as they do on a drive. A connection has two threads: one reads requests and moves bytes, the other gives the
//! answers that had to wait.

pub mod protocol;

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use trimwise::units::{Bytes, SECTOR_BYTES, UNIT_BYTES};

use super::registry::check_socket_path;
use super::{Completions, EmulatedDrive, RequestError};
use protocol::{
    Command, DATA_BYTES_MAX, FIXED_NEWSTYLE, MAGIC, NO_ZEROES, OPTION_HEAD_BYTES, OPTION_MAGIC, OptionAnswer,
    OptionHead, OptionKind, REPLY_BYTES, REQUEST_BYTES, Request, Wanted, export_flags, option_answer, reply,
};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// Address and port. NBD knows no password: whoever reaches it may read and write.
    Tcp(SocketAddr),
}

/// What is no address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{given}' is no address; expected unix:PATH or tcp:ADDRESS:PORT, such as tcp:127.0.0.1:10809")]
pub struct AddressError {
    given: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let parsed = match given.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(path.into())),
            Some(("tcp", address)) => address.parse().ok().map(Self::Tcp),
            _ => None,
        };
        parsed.ok_or_else(|| AddressError { given: given.to_owned() })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A server. Dropping it ends all connections.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    sockets: Vec<PathBuf>,
    addresses: Vec<Address>,
}

#[derive(Debug)]
struct Shared {
    drive: Arc<EmulatedDrive>,
    export: String,
    ended: AtomicBool,
    connections: Mutex<Vec<(Arc<Stream>, JoinHandle<()>)>>,
}

/// How often a listener looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a client may take to say what it wants.
const NEGOTIATION_MAX: Duration = Duration::from_secs(10);
/// Data that wait to be sent on one connection; beyond it no further request is read.
const WAITING_BYTES_MAX: usize = 64 << 20;

impl Server {
    /// Listens at all addresses.
    ///
    /// # Errors
    /// A path that is too long or taken; what the kernel says.
    pub fn new(drive: Arc<EmulatedDrive>, export: &str, addresses: &[Address]) -> io::Result<Self> {
        let connections = Mutex::default();
        let shared =
            Arc::new(Shared { drive, export: export.to_owned(), ended: AtomicBool::new(false), connections });
        let mut server = Self { shared, threads: Vec::new(), sockets: Vec::new(), addresses: Vec::new() };
        for address in addresses {
            // What was made before an error is taken away by `drop`.
            let listener =
                server.listen(address).map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?;
            let shared = Arc::clone(&server.shared);
            let accept = move || shared.accept(&listener);
            server.threads.push(std::thread::Builder::new().name("trimwise-nbd".to_owned()).spawn(accept)?);
        }
        Ok(server)
    }

    /// Where it listens: port 0 has become one that was free.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    fn listen(&mut self, address: &Address) -> io::Result<Listener> {
        let listener = match address {
            Address::Unix(path) => {
                check_socket_path(path).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
                free(path)?;
                let listener = UnixListener::bind(path)?;
                self.sockets.push(path.clone());
                self.addresses.push(address.clone());
                listener.set_nonblocking(true)?;
                Listener::Unix(listener)
            }
            Address::Tcp(at) => {
                let listener = TcpListener::bind(at)?;
                self.addresses.push(Address::Tcp(listener.local_addr()?));
                listener.set_nonblocking(true)?;
                Listener::Tcp(listener)
            }
        };
        Ok(listener)
    }
}

/// Takes away a socket on which nobody listens any more; refuses anything else.
fn free(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, why.to_owned()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            refuse("exists and is no socket; expected a path that is free")
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
            Ok(_) => refuse("another server listens there; expected a path that is free"),
        },
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        let connections =
            std::mem::take(&mut *self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner));
        for (stream, thread) in connections {
            stream.shut_down();
            drop(thread.join());
        }
        for path in self.sockets.drain(..) {
            drop(fs::remove_file(path));
        }
    }
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(NEGOTIATION_MAX))?;
                Ok(Stream::Unix(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(NEGOTIATION_MAX))?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn shut_down(&self) {
        // Closed already, if the client went first.
        drop(match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        });
    }

    fn wait_for_ever(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(None),
            Self::Tcp(stream) => stream.set_read_timeout(None),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(bytes),
            Stream::Tcp(stream) => (&*stream).read(bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).write(bytes),
            Stream::Tcp(stream) => (&*stream).write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &Listener) {
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
        while !self.ended.load(Ordering::SeqCst) {
            let mut listening = [PollFd::new(listener, PollFlags::IN)];
            if !matches!(poll(&mut listening, Some(&wait)), Ok(1..)) {
                continue;
            }
            // Whoever went away meanwhile is no error of ours.
            let Ok(stream) = listener.accept() else { continue };
            let stream = Arc::new(stream);
            let (shared, theirs) = (Arc::clone(self), Arc::clone(&stream));
            let serve = move || {
                // What a client does wrong ends its connection, and nothing else.
                drop(serve(&shared, &theirs));
                theirs.shut_down();
            };
            let thread = std::thread::Builder::new().name("trimwise-nbd-io".to_owned()).spawn(serve);
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.retain(|(_, thread)| !thread.is_finished());
            if let Ok(thread) = thread {
                connections.push((stream, thread));
            }
        }
    }

    /// What the export can do.
    fn flags(&self) -> u16 {
        use export_flags::{CAN_MULTI_CONN, HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES};
        let trim = if self.drive.limits().discard_max_sectors > 0 { SEND_TRIM } else { 0 };
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_WRITE_ZEROES | CAN_MULTI_CONN | trim
    }

    fn knows(&self, export: &[u8]) -> bool {
        export.is_empty() || export == self.export.as_bytes()
    }
}

/// One connection from its begin to its end.
fn serve(shared: &Shared, stream: &Arc<Stream>) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, &**stream);
    if !negotiate(shared, &mut reader, stream)? {
        return Ok(());
    }
    stream.wait_for_ever()?;
    transmit(shared, &mut reader, stream)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Agrees on the export; answers whether one is wanted.
fn negotiate(shared: &Shared, reader: &mut impl Read, mut stream: &Stream) -> io::Result<bool> {
    const BLOCK_SIZE: u16 = 3;
    let mut hello = Vec::from(MAGIC.to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Ok(false);
    }
    let mut export = Vec::from(shared.drive.size().0.to_be_bytes());
    export.extend(shared.flags().to_be_bytes());
    loop {
        let mut head = [0; OPTION_HEAD_BYTES];
        reader.read_exact(&mut head)?;
        let option = OptionHead::parse(&head).map_err(invalid)?;
        let mut data = vec![0; option.data_bytes as usize];
        reader.read_exact(&mut data)?;
        let mut answer =
            |answer: OptionAnswer, data: &[u8]| stream.write_all(&option_answer(option.number, answer, data));
        match option.kind {
            OptionKind::ExportName => {
                if !shared.knows(&data) {
                    return Ok(false);
                }
                if flags & u32::from(NO_ZEROES) == 0 {
                    export.extend([0; 124]);
                }
                return stream.write_all(&export).map(|()| true);
            }
            OptionKind::Abort => return answer(OptionAnswer::Ack, &[]).map(|()| false),
            OptionKind::List if !data.is_empty() => answer(OptionAnswer::Invalid, b"a list takes no data")?,
            OptionKind::List => {
                let mut name = Vec::from((shared.export.len() as u32).to_be_bytes());
                name.extend(shared.export.as_bytes());
                answer(OptionAnswer::Server, &name)?;
                answer(OptionAnswer::Ack, &[])?;
            }
            OptionKind::Info | OptionKind::Go => {
                let Some(wanted) = Wanted::parse(&data) else {
                    answer(OptionAnswer::Invalid, b"lengths that do not agree")?;
                    continue;
                };
                if !shared.knows(wanted.export) {
                    answer(OptionAnswer::Unknown, format!("expected {}", shared.export).as_bytes())?;
                    continue;
                }
                let mut about = Vec::from(0_u16.to_be_bytes());
                about.extend(&export);
                answer(OptionAnswer::Info, &about)?;
                // A client that does not ask for it must keep to 512 bytes anyway: that is what disks have.
                let mut sizes = Vec::from(BLOCK_SIZE.to_be_bytes());
                for bytes in [SECTOR_BYTES as u32, UNIT_BYTES as u32, DATA_BYTES_MAX] {
                    sizes.extend(bytes.to_be_bytes());
                }
                answer(OptionAnswer::Info, &sizes)?;
                answer(OptionAnswer::Ack, &[])?;
                if option.kind == OptionKind::Go {
                    return Ok(true);
                }
            }
            OptionKind::Other => answer(OptionAnswer::Unsupported, &[])?,
        }
    }
}

/// The sending half of a connection.
#[derive(Debug)]
struct Answers {
    stream: Arc<Stream>,
    sending: Mutex<()>,
    waiting_bytes: Mutex<usize>,
    fewer: Condvar,
}

impl Answers {
    /// Waits until there is room for an answer of so many bytes.
    fn reserve(&self, bytes: usize) {
        let mut waiting = self.waiting_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *waiting > 0 && *waiting + bytes > WAITING_BYTES_MAX {
            waiting = self.fewer.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        *waiting += bytes;
    }

    /// Sends an answer for which there was room. If it cannot be sent, the connection ends.
    fn send(&self, bytes: &[u8], reserved_bytes: usize) {
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if (&*self.stream).write_all(bytes).is_err() {
            self.stream.shut_down();
        }
        drop(sending);
        *self.waiting_bytes.lock().unwrap_or_else(PoisonError::into_inner) -= reserved_bytes;
        self.fewer.notify_one();
    }
}

/// What an answer costs besides its data, so that their number is bounded too.
const ANSWER_BYTES: usize = 4096;

/// Works on requests until the client goes.
fn transmit(shared: &Shared, reader: &mut impl Read, stream: &Arc<Stream>) -> io::Result<()> {
    let answers = Arc::new(Answers {
        stream: Arc::clone(stream),
        sending: Mutex::new(()),
        waiting_bytes: Mutex::new(0),
        fewer: Condvar::new(),
    });
    let completions = Completions::new()?;
    let mut data = Vec::new();
    // The answer with its data, used again for those that need not wait.
    let mut buffer = Vec::new();
    loop {
        let mut head = [0; REQUEST_BYTES];
        match reader.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let request = Request::parse(&head).map_err(invalid)?;
        let length = request.length_bytes as usize;
        let mut given: &[u8] = &[];
        match request.command {
            Command::Disconnect => return Ok(()),
            Command::Write => {
                if data.len() < length {
                    data.resize(length, 0);
                }
                reader.read_exact(&mut data[..length])?;
                given = &data[..length];
            }
            _ => {}
        }
        let reads = request.command == Command::Read && length <= DATA_BYTES_MAX as usize;
        let reserved = if reads { length + ANSWER_BYTES } else { ANSWER_BYTES };
        answers.reserve(reserved);
        buffer.clear();
        buffer.resize(if reads { REPLY_BYTES + length } else { REPLY_BYTES }, 0);
        let result = perform(&shared.drive, &request, given, &mut buffer[REPLY_BYTES..]);
        let errno = result.as_ref().err().copied().unwrap_or(0);
        buffer[..REPLY_BYTES].copy_from_slice(&reply(errno, request.cookie));
        match result {
            Ok(due) if !Completions::is_due(due) => {
                let (answers, bytes) = (Arc::clone(&answers), std::mem::take(&mut buffer));
                completions.at(due, move || answers.send(&bytes, reserved));
            }
            Ok(_) => answers.send(&buffer, reserved),
            Err(_) => answers.send(&buffer[..REPLY_BYTES], reserved),
        }
    }
}

/// Does what is asked for; answers when it completes, or why not.
fn perform(
    drive: &EmulatedDrive,
    request: &Request,
    given: &[u8],
    wanted: &mut [u8],
) -> Result<Instant, i32> {
    use rustix::io::Errno;
    let refuse = |errno: Errno| Err(errno.raw_os_error());
    if request.unknown_flags {
        return refuse(Errno::INVAL);
    }
    let (offset, length) = (request.offset_bytes, Bytes(request.length_bytes.into()));
    let beyond = offset.checked_add(length.0).is_none_or(|end| end > drive.size().0);
    if beyond && matches!(request.command, Command::Write | Command::WriteZeroes { .. }) {
        // As the protocol has it: no space behind the end.
        return refuse(Errno::NOSPC);
    }
    let done = match request.command {
        Command::Read if request.length_bytes > DATA_BYTES_MAX => return refuse(Errno::INVAL),
        Command::Read => drive.read(offset, wanted),
        Command::Write => drive.write(offset, given),
        Command::Flush => drive.flush(),
        Command::Trim => drive.discard(offset, length, false),
        Command::WriteZeroes { may_unmap } => drive.write_zeroes(offset, length, may_unmap),
        Command::Disconnect | Command::Other(_) => return refuse(Errno::INVAL),
    };
    let number = |error: RequestError| error.errno();
    let changes = !matches!(request.command, Command::Read | Command::Flush);
    if request.fua && changes && drive.limits().volatile_cache {
        let done = done.map_err(number)?;
        return Ok(done.max(drive.flush().map_err(number)?));
    }
    done.map_err(number)
}
