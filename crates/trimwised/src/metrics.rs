//! Prometheus metrics: the text format, served over HTTP on loopback, or written as a file.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use trimwise::live::Status;

/// Clients at a time.
const CLIENTS_MAX: usize = 8;
/// The longest request, and how long it may take.
const REQUEST_MAX: usize = 8 << 10;
const TIME_MAX: Duration = Duration::from_secs(5);

/// One file system, as metrics show it.
#[derive(Clone)]
pub struct Seen<'a> {
    /// Where it is mounted.
    pub mount: &'a Path,
    /// Once it was looked at.
    pub status: Option<Status>,
    /// Whether it cannot be looked at.
    pub has_problem: bool,
}

/// What is true of the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// The configuration on the disk is broken, and the one before it in use.
    pub is_config_broken: bool,
    /// The history cannot be written.
    pub is_history_broken: bool,
}

/// The text of all metrics.
pub fn render<'a>(whole: Whole, seen: impl Iterator<Item = Seen<'a>> + Clone) -> String {
    type Of = fn(&Status) -> u64;
    let metrics: [(&str, &str, &str, Of); 18] = [
        ("used_bytes", "gauge", "Bytes in use.", |s| s.used_bytes.0),
        ("size_bytes", "gauge", "Bytes of the file system.", |s| s.total_bytes.0),
        ("waiting_bytes", "gauge", "Free space that waits for its trim.", |s| s.waiting_bytes.0),
        ("left_bytes", "gauge", "Untrimmed free space that the policy does not want.", |s| s.left_bytes.0),
        ("bound_bytes", "gauge", "The most that judicious leaves untrimmed.", |s| s.bound_bytes.0),
        ("online", "gauge", "Whether the kernel's online discard is on.", |s| u64::from(s.online)),
        ("paused", "gauge", "Whether it is paused.", |s| u64::from(s.paused)),
        ("slices_total", "counter", "Slices that ended.", |s| s.totals.slices),
        ("slices_failed_total", "counter", "Slices that failed.", |s| s.totals.slices_failed),
        ("slices_over_total", "counter", "Slices that took longer than they are to take.", |s| {
            s.totals.slices_over
        }),
        ("trimmed_bytes_total", "counter", "Free space that slices trimmed.", |s| s.totals.trimmed_bytes),
        ("counted_bytes_total", "counter", "Discards that the device counted during slices.", |s| {
            s.totals.counted_bytes
        }),
        ("freed_bytes_total", "counter", "Space seen to be freed.", |s| s.totals.freed_bytes),
        ("reused_bytes_total", "counter", "Space in use again before its trim.", |s| s.totals.reused_bytes),
        ("looks_total", "counter", "Maps of free space that were read.", |s| s.totals.looks),
        ("told_freed_bytes_total", "counter", "Space freed, as tracepoints told it.", |s| {
            s.totals.told_freed_bytes
        }),
        ("frees_lost_total", "counter", "Frees that tracepoints lost.", |s| s.totals.frees_lost),
        ("slice_max_bytes", "gauge", "The most bytes of the next slice.", |s| s.slice_bytes_max.0),
    ];
    let mut text = String::new();
    // Writing to a text cannot fail.
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP trimwise_{name} {help}\n# TYPE trimwise_{name} {kind}");
    };
    for (name, help, value) in [
        (
            "config_broken",
            "Whether the configuration is broken, and the last one in use.",
            whole.is_config_broken,
        ),
        ("history_broken", "Whether the history cannot be written.", whole.is_history_broken),
    ] {
        head(&mut text, name, "gauge", help);
        let _ = writeln!(text, "trimwise_{name} {}", u64::from(value));
    }
    head(&mut text, "trouble", "gauge", "Whether it fails, is stuck or refused: `trimwise status` says why.");
    for Seen { mount, status, has_problem } in seen.clone() {
        let label = label(&mount.display().to_string());
        let trouble = has_problem || status.is_some_and(|status| status.reason.is_trouble());
        let _ = writeln!(text, "trimwise_trouble{{mountpoint=\"{label}\"}} {}", u64::from(trouble));
    }
    let file_systems = seen.filter_map(|one| Some((one.mount, one.status?)));
    for (name, kind, help, value) in metrics {
        head(&mut text, name, kind, help);
        for (mount, status) in file_systems.clone() {
            let label = label(&mount.display().to_string());
            let _ = writeln!(text, "trimwise_{name}{{mountpoint=\"{label}\"}} {}", value(&status));
        }
    }
    text.push_str("# HELP trimwise_request_seconds Mean time of a request to the device.\n");
    text.push_str("# TYPE trimwise_request_seconds gauge\n");
    for (mount, status) in file_systems {
        let label = label(&mount.display().to_string());
        for (beside, time) in [("no", status.latency_untouched_ns), ("yes", status.latency_touched_ns)] {
            if let Some(time) = time {
                let _ = writeln!(
                    text,
                    "trimwise_request_seconds{{mountpoint=\"{label}\",beside_slices=\"{beside}\"}} {:.6}",
                    time.as_secs_f64()
                );
            }
        }
    }
    text
}

/// A label's value: backslash, quote and newline are escaped.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Client {
    stream: TcpStream,
    read: Vec<u8>,
    since: Instant,
}

/// Serves metrics over HTTP.
pub struct Listener {
    listener: TcpListener,
    clients: Vec<Client>,
}

impl Listener {
    /// Listens on a loopback address.
    ///
    /// # Errors
    /// If it is taken, or not loopback.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::other(format!("{address}; expected a loopback address")));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, clients: Vec::new() })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// What to wait for.
    pub fn waits(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // Those who cannot be taken yet wait in the kernel's queue, and wake nobody.
        let listener = (self.clients.len() < CLIENTS_MAX).then(|| self.listener.as_fd());
        listener.into_iter().chain(self.clients.iter().map(|client| client.stream.as_fd()))
    }

    /// Takes clients, reads their requests, and answers those that are whole.
    pub fn serve(&mut self, mut text: impl FnMut() -> String) {
        while self.clients.len() < CLIENTS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client { stream, read: Vec::new(), since: Instant::now() });
            }
        }
        self.clients.retain_mut(|client| client.is_waiting(&mut text));
    }
}

impl Client {
    /// Whether it is to be kept.
    fn is_waiting(&mut self, text: &mut impl FnMut() -> String) -> bool {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                // Who says no more is answered, if the request is whole.
                Ok(0) if self.read.ends_with(b"\r\n\r\n") => break,
                Ok(0) => return false,
                Ok(n) => self.read.extend(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
            if self.read.len() > REQUEST_MAX {
                return false;
            }
        }
        if !self.read.windows(4).any(|four| four == b"\r\n\r\n") {
            return self.since.elapsed() < TIME_MAX;
        }
        let (status, body) = match self.read.split(|&byte| byte == b' ').take(2).collect::<Vec<_>>()[..] {
            [b"GET", path] if path.split(|&byte| byte == b'?').next() == Some(b"/metrics") => {
                ("200 OK", text())
            }
            [b"GET", _] => ("404 Not Found", "expected /metrics\n".to_owned()),
            _ => ("405 Method Not Allowed", "expected GET\n".to_owned()),
        };
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        // A client on loopback takes some KiB at once; one that does not gets less.
        drop(self.stream.write_all(response.as_bytes()));
        false
    }
}
