//! The drive as a network block device, for QEMU, nbd-client and other users of NBD.
//!
//! The server has one export, named after the device; it is also the default export. Several connections can use it at
//! once. Requests are carried out as they arrive, and each reply is sent when the model says that the request
//! completed, so replies overtake each other as they do on a drive. A connection has two threads: one reads requests
//! and moves bytes, the other sends the replies that had to wait. Its buffers hold little more than 64 MiB, and there
//! are at most [`CONNECTIONS_MAX`] connections; further ones are closed at once.

mod connection;
pub mod protocol;
mod socket;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::EmulatedDrive;
use crate::registry::check_socket_path;
use connection::serve;
use protocol::export_flags;
pub use socket::{Address, AddressError};
use socket::{Incoming, Listener, Stream, free};

/// An NBD server. Dropping it ends all connections.
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

/// Maximum number of connections over all addresses; clients that open several (nbd-client, QEMU) ask for at most this
/// many.
pub const CONNECTIONS_MAX: usize = 16;
/// Interval at which a listener checks whether to end, and for which it rests if it cannot accept a connection.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Server {
    pub fn new(drive: Arc<EmulatedDrive>, export: &str, addresses: &[Address]) -> io::Result<Self> {
        let connections = Mutex::default();
        let shared =
            Arc::new(Shared { drive, export: export.to_owned(), ended: AtomicBool::new(false), connections });
        let mut server = Self { shared, threads: Vec::new(), sockets: Vec::new(), addresses: Vec::new() };
        for address in addresses {
            // After an error, `drop` removes what was created.
            let listener =
                server.listen(address).map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?;
            let shared = Arc::clone(&server.shared);
            let accept = move || shared.accept(&listener);
            server.threads.push(std::thread::Builder::new().name("trimwise-nbd".to_owned()).spawn(accept)?);
        }
        Ok(server)
    }

    /// Returns the addresses that the server listens on; port 0 is replaced by a free one.
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

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
        let connections = std::mem::take(&mut *self.shared.connections());
        for (stream, thread) in connections {
            stream.shut_down();
            drop(thread.join());
        }
        for path in self.sockets.drain(..) {
            drop(fs::remove_file(path));
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, incoming: &impl Incoming) {
        while !self.ended.load(Ordering::SeqCst) {
            // Do this without new clients too: ended connections hold descriptors.
            self.connections().retain(|(_, thread)| !thread.is_finished());
            if !incoming.wait() {
                continue;
            }
            // The client left, or there are no descriptors; in that case the socket stays ready.
            let Ok(stream) = incoming.accept() else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let mut connections = self.connections();
            connections.retain(|(_, thread)| !thread.is_finished());
            if connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            let stream = Arc::new(stream);
            let (shared, theirs) = (Arc::clone(self), Arc::clone(&stream));
            let serve = move || {
                // A client's mistake ends only its connection.
                drop(serve(&shared, &theirs));
                theirs.shut_down();
            };
            let thread = std::thread::Builder::new().name("trimwise-nbd-io".to_owned()).spawn(serve);
            if let Ok(thread) = thread {
                connections.push((stream, thread));
            }
        }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<(Arc<Stream>, JoinHandle<()>)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flags(&self) -> u16 {
        use export_flags::{CAN_MULTI_CONN, HAS_FLAGS, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES};
        let trim = if self.drive.limits().discard_max_sectors > 0 { SEND_TRIM } else { 0 };
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_WRITE_ZEROES | CAN_MULTI_CONN | trim
    }

    fn knows(&self, export: &[u8]) -> bool {
        export.is_empty() || export == self.export.as_bytes()
    }
}
