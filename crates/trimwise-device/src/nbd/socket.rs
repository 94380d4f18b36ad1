use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use super::LOOK_EVERY;

const NEGOTIATION_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    /// Address and port. NBD has no password: anyone who can connect can read and write.
    Tcp(SocketAddr),
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{given}' is not an address; expected unix:PATH or tcp:ADDRESS:PORT, such as tcp:127.0.0.1:10809")]
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

/// Removes a socket that has no listener; refuses anything else.
pub(super) fn free(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, why.to_owned()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            refuse("exists and is not a socket; expected a path that is free")
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
            Ok(_) => refuse("another server listens there; expected a path that is free"),
        },
    }
}

#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Source of clients; a test counts its calls.
pub(super) trait Incoming {
    /// Waits for a client, at most for [`LOOK_EVERY`]. Returns true if there is one.
    fn wait(&self) -> bool;
    fn accept(&self) -> io::Result<Stream>;
}

impl Incoming for Listener {
    fn wait(&self) -> bool {
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.as_nanos() as i64 };
        matches!(poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&wait)), Ok(1..))
    }

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
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(super) fn shut_down(&self) {
        // This fails if the client closed it first.
        drop(match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        });
    }

    pub(super) fn wait_for_ever(&self) -> io::Result<()> {
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
