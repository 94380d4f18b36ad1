//! Serves an emulated drive until it is told to stop, and then removes everything.
//!
//! A stop is requested by a signal, by `detach` or, for a loop device, by detaching it from its file. The first request
//! is gentle: a loop device that is mounted is served until it is unmounted. The second ends the device at once, and
//! its users get I/O errors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use thiserror::Error;

use crate::attachment;
use crate::fuse::{FuseEvent, Mounted};
use crate::nbd::{Address, Server};
use crate::registry::{Front, Record, Registered, Registry, RegistryError, Status};
use crate::{EmulatedDrive, TimeScale};

#[derive(Clone, Debug)]
pub struct Description {
    /// Default: the profile's name, with a number after it if it is taken.
    pub name: Option<String>,
    pub profile: String,
    /// Seed of everything that the drive draws at random.
    pub seed: u64,
    /// Factor by which everything takes longer than modelled.
    pub scale: TimeScale,
    /// `None` for memory.
    pub backing: Option<PathBuf>,
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("cannot create a block device (needs root, /dev/fuse and loop devices): {0}")]
    Attach(io::Error),
    #[error("{0}")]
    Listen(io::Error),
    #[error("the connection of {device} to the kernel was cut; its users get I/O errors")]
    Cut { device: String },
}

/// Number of stop requests: more than one means stop at once.
pub type Stops = Arc<AtomicU32>;
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Description {
    fn record(&self, name: &str, drive: &EmulatedDrive, front: Front) -> Record {
        Record {
            name: name.to_owned(),
            profile: self.profile.clone(),
            size_bytes: drive.size().0,
            seed: self.seed,
            time_scale: self.scale.factor(),
            backing: self.backing.clone(),
            server_pid: std::process::id(),
            front,
        }
    }

    fn register(
        &self,
        registry: &Registry,
        drive: &Arc<EmulatedDrive>,
        stops: &Stops,
    ) -> Result<Registered, ServeError> {
        // The sign of a variant is part of the name, but the path is not.
        let like = Path::new(&self.profile).file_stem().map_or("drive".into(), |stem| stem.to_string_lossy());
        let registered = registry.register(self.name.as_deref(), &like)?;
        let stops = Arc::clone(stops);
        registered.answer(Arc::clone(drive), move || {
            // Requests by `detach` stay gentle, however many there are.
            stops.fetch_max(1, Ordering::SeqCst);
        })?;
        Ok(registered)
    }
}

/// Continues in the background, without the terminal and without keeping a directory busy.
pub fn leave_terminal() {
    // Each of these can fail only if there is nothing to leave.
    let _ = rustix::process::setsid();
    drop(std::env::set_current_dir("/"));
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Serves a drive as a block device of this host with `threads` threads. Calls `ready` when it can be used, and
/// `notice` with messages for the user. Returns the requests that it served.
///
/// # Errors
/// If the device cannot be created, or its connection was cut. Nothing is left behind.
pub fn attach(
    registry: &Registry,
    description: &Description,
    drive: &Arc<EmulatedDrive>,
    threads: usize,
    stops: &Stops,
    ready: impl FnOnce(&Record),
    notice: impl Fn(&str),
) -> Result<(Record, Status), ServeError> {
    // Memory needed to write memory back must not wait for that. Without the privilege nothing changes.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let registered = description.register(registry, drive, stops)?;
    let (sender, events) = mpsc::channel();
    let mut record = description.record(registered.name(), drive, Front::Loop { device: None });
    registered.record(&record)?;
    let mounted = Mounted::new(Arc::clone(drive), &registered.mount_point(), threads, &sender)
        .map_err(ServeError::Attach)?;
    drop(sender);
    let file = mounted.file();
    let takes_trim = drive.limits().discard_max_sectors > 0;
    let device = attachment::attach(&file, takes_trim).map_err(ServeError::Attach)?;
    record.front = Front::Loop { device: Some(device.clone()) };
    let recorded = registered.record(&record);
    let mut was_cut = false;
    if recorded.is_ok() {
        ready(&record);
        let mut stopping = false;
        loop {
            match events.recv_timeout(LOOK_EVERY) {
                Ok(FuseEvent::Ended) | Err(RecvTimeoutError::Disconnected) => {
                    was_cut = true;
                    break;
                }
                Ok(FuseEvent::Released) | Err(RecvTimeoutError::Timeout) => {}
            }
            if !attachment::is_over(&device, &file) {
                break;
            }
            match stops.load(Ordering::SeqCst) {
                0 => {}
                1 if stopping => {}
                1 => {
                    stopping = true;
                    if let Err(error) = attachment::detach(&device, &file) {
                        notice(&format!("{} does not end: {error}", device.display()));
                    }
                    if attachment::is_over(&device, &file) {
                        notice(&format!(
                            "{} is still in use: it ends when it is unmounted and closed, or at once with another Ctrl-C",
                            device.display()
                        ));
                    }
                }
                _ => {
                    mounted.abort();
                    break;
                }
            }
        }
    }
    // If the device is still open elsewhere, it is removed when it is closed.
    let detached = attachment::detach(&device, &file);
    drop(mounted);
    let status = Status::of(drive);
    drive.release();
    registered.end(&status)?;
    recorded?;
    detached.map_err(ServeError::Attach)?;
    if was_cut {
        return Err(ServeError::Cut { device: device.display().to_string() });
    }
    Ok((record, status))
}

/// Serves a drive over NBD at all these addresses; see [`attach`].
///
/// On an error nothing is left behind.
pub fn serve(
    registry: &Registry,
    description: &Description,
    drive: &Arc<EmulatedDrive>,
    addresses: &[Address],
    stops: &Stops,
    ready: impl FnOnce(&Record),
) -> Result<(Record, Status), ServeError> {
    let registered = description.register(registry, drive, stops)?;
    let server = Server::new(Arc::clone(drive), registered.name(), addresses).map_err(ServeError::Listen)?;
    let addresses = server.addresses().iter().map(Address::to_string).collect();
    let record = description.record(registered.name(), drive, Front::Nbd { addresses });
    registered.record(&record)?;
    ready(&record);
    while stops.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(LOOK_EVERY);
    }
    drop(server);
    let status = Status::of(drive);
    drive.release();
    registered.end(&status)?;
    Ok((record, status))
}
