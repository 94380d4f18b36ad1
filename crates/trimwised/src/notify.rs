//! What a service manager is told: the protocol of sd_notify(3), which is one datagram.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A service manager that wants to be told; none where there is no `NOTIFY_SOCKET`.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As the environment says.
    pub fn from_environment() -> Self {
        let address = std::env::var("NOTIFY_SOCKET").ok().and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(name).ok(),
        });
        let microseconds = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let of_this = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        Self {
            socket: address.and_then(|address| {
                let socket = UnixDatagram::unbound().ok()?;
                socket.set_nonblocking(true).ok()?; // a manager that is busy is not waited for
                Some((socket, address))
            }),
            watchdog: microseconds.filter(|_| of_this).map(Duration::from_micros),
        }
    }

    /// Tells it, such as `READY=1`. Nobody who listens is no failure.
    pub fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            drop(socket.send_to_addr(state.as_bytes(), address));
        }
    }

    /// How often the watchdog hears: so often that one write to a busy disk may take most of its time.
    pub fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 12)
    }
}
