//! The client side, used by the command `trimwise`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::{Request, Response, VERSION};
use crate::daemon::running::{Running, running_elsewhere};
use crate::host_root::HostRoot;
use crate::text::quoted_path;

const PATIENCE: Duration = Duration::from_secs(30);
const CLOSED: &str =
    "the daemon closed the connection: it is shutting down, or this user has too many connections";
/// Size limit of a response; enough for a long history.
const RESPONSE_MAX: u64 = 64 << 20;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error(
        "{path}: trimwised is not listening ({source}); to start it: `{}`{}",
        start(is_systemd()),
        but(elsewhere)
    )]
    None {
        path: PathBuf,
        source: io::Error,
        /// Daemons with other run folders.
        elsewhere: Vec<Running>,
    },
    #[error("{path}: only root and the group of the configuration may talk to trimwised")]
    NotPermitted { path: PathBuf },
    #[error("{path}: trimwised did not answer within {} s", PATIENCE.as_secs())]
    Silent { path: PathBuf },
    #[error("{path}: {what}")]
    Nonsense { path: PathBuf, what: String },
    #[error("trimwised: {0}")]
    Refused(String),
    #[error("trimwised: {0}")]
    BadRequest(String),
}

impl ClientError {
    /// Returns the daemons that listen elsewhere, if none listens here.
    pub fn elsewhere(&self) -> &[Running] {
        match self {
            Self::None { elsewhere, .. } => elsewhere,
            _ => &[],
        }
    }
}

/// Returns true if systemd runs this host, as sd_booted(3) defines it.
fn is_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

const fn start(by_systemd: bool) -> &'static str {
    if by_systemd { "systemctl start trimwised" } else { "trimwised" }
}

fn but(elsewhere: &[Running]) -> String {
    match elsewhere {
        [] => String::new(),
        [Running { run: Some(run), .. }] => format!("; one runs elsewhere: --run {}", quoted_path(run)),
        [Running { process, run: None }] => {
            format!("; one runs elsewhere (process {process}), and root can see where")
        }
        several => {
            let several: Vec<String> = several.iter().map(Running::to_string).collect();
            format!("; elsewhere run {}", several.join(", "))
        }
    }
}

#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon whose sockets are in `run`.
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
            Err(source) => {
                let elsewhere = running_elsewhere(&HostRoot::default(), run);
                Err(ClientError::None { path, source, elsewhere })
            }
        }
    }

    /// Sends a request and waits for the reply.
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
                "the daemon uses version {} of the protocol; expected {VERSION}",
                response.version
            ))),
            None => serde_json::from_str(response.data.get()).map_err(|error| nonsense(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_without_systemd_the_daemon_is_started_by_its_name() {
        assert_eq!([start(true), start(false)], ["systemctl start trimwised", "trimwised"]);
        let error = Client::connect(Path::new("/nonexistent")).unwrap_err().to_string();
        let said = format!("to start it: `{}`", start(is_systemd()));
        assert!(error.contains(&said), "{error}");
    }

    #[test]
    fn a_daemon_elsewhere_is_named_with_its_folder() {
        let one = |process, run: Option<&str>| Running { process, run: run.map(PathBuf::from) };
        for (elsewhere, expected) in [
            (vec![one(7, Some("/srv/my run"))], "; one runs elsewhere: --run '/srv/my run'"),
            (vec![], ""),
            (vec![one(7, None)], "; one runs elsewhere (process 7), and root can see where"),
            (
                vec![one(7, Some("/run/a")), one(8, None)],
                "; elsewhere run trimwised --run /run/a, trimwised (process 8)",
            ),
        ] {
            assert_eq!(but(&elsewhere), expected);
        }
    }
}
