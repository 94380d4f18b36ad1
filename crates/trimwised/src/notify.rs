//! Notifications to a service manager: the protocol of sd_notify(3), which is one datagram. The crate `sd-notify` would
//! wait for a manager that does not read.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    pub(crate) fn from_environment() -> Self {
        let address = std::env::var("NOTIFY_SOCKET").ok().and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(name).ok(),
        });
        let microseconds = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let of_this = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        Self {
            socket: address.and_then(|address| {
                let socket = UnixDatagram::unbound().ok()?;
                socket.set_nonblocking(true).ok()?; // do not wait for a busy manager
                Some((socket, address))
            }),
            watchdog: microseconds.filter(|_| of_this).map(Duration::from_micros),
        }
    }

    /// Sends a state such as `READY=1`. A missing listener is not an error.
    pub fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.socket {
            drop(socket.send_to_addr(state.as_bytes(), address));
        }
    }

    /// Returns the interval between watchdog messages, short enough that one write to a busy disk may take most of the
    /// watchdog's time.
    pub(crate) fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 12)
    }
}
