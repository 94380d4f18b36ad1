//! A client: the command `trimwise`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::{Request, Response, VERSION};

/// It waits for so long.
const PATIENCE: Duration = Duration::from_secs(30);
const CLOSED: &str =
    "the daemon closed the connection: it ends, or serves as many of this user as it does at a time";
/// The longest response that is read: a history of many entries.
const RESPONSE_MAX: u64 = 64 << 20;

/// Why a daemon does not answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// There is none.
    #[error("{path}: no trimwised answers there ({source}); is it running? `systemctl start trimwised`")]
    None {
        /// The socket.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
    /// There is one that does not let this user.
    #[error("{path}: only root and the group of the configuration may talk to trimwised")]
    NotPermitted {
        /// The socket.
        path: PathBuf,
    },
    /// There is one that hangs.
    #[error("{path}: trimwised does not answer within {} s", PATIENCE.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// It answered something else than the protocol.
    #[error("{path}: {what}")]
    Nonsense {
        /// The socket.
        path: PathBuf,
        /// What.
        what: String,
    },
    /// It refused.
    #[error("trimwised: {0}")]
    Refused(String),
    /// It refused what makes no sense there.
    #[error("trimwised: {0}")]
    BadRequest(String),
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon of this run folder.
    ///
    /// # Errors
    /// If none answers, or it does not let this user.
    pub fn connect(run: &Path) -> Result<Self, ClientError> {
        let mut path = run.join("control.sock");
        let stream: io::Result<_> = UnixStream::connect(&path).or_else(|error| {
            let for_all = run.join("status.sock");
            let stream = UnixStream::connect(&for_all).map_err(|_| error)?;
            path = for_all;
            Ok(stream)
        });
        match stream {
            Ok(stream) => {
                let timeout = Some(PATIENCE);
                drop(stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)));
                Ok(Self { path, stream: BufReader::new(stream) })
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(ClientError::NotPermitted { path })
            }
            Err(source) => Err(ClientError::None { path, source }),
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If the daemon refuses, or goes away.
    pub fn ask(&mut self, request: &Request) -> Result<serde_json::Value, ClientError> {
        let nonsense = |what: String| ClientError::Nonsense { path: self.path.clone(), what };
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::Silent { path: self.path.clone() }
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => nonsense(CLOSED.to_owned()),
            _ => nonsense(error.to_string()),
        };
        self.stream.get_mut().write_all(request.line().as_bytes()).map_err(failed)?;
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(RESPONSE_MAX).read_until(b'\n', &mut line);
        read.map_err(failed)?;
        if line.is_empty() {
            return Err(nonsense(CLOSED.to_owned()));
        }
        let response: Response =
            serde_json::from_slice(&line).map_err(|error| nonsense(error.to_string()))?;
        match response.error {
            Some(error) if response.bad_request => Err(ClientError::BadRequest(error)),
            Some(error) => Err(ClientError::Refused(error)),
            None if response.version != VERSION => Err(nonsense(format!(
                "it speaks version {} of the protocol; expected {VERSION}",
                response.version
            ))),
            None => serde_json::from_str(response.data.get()).map_err(|error| nonsense(error.to_string())),
        }
    }
}
