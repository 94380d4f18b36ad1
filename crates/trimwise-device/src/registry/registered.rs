use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use trimwise_linux::files::replace;

use trimwise_linux::path_error::at;

use super::{Record, RegistryError, Status, mounted_in, remove};
use crate::EmulatedDrive;

#[derive(Debug)]
pub struct Registered {
    name: String,
    folder: PathBuf,
    lock: File,
    waiting: Arc<Mutex<Vec<UnixStream>>>,
    ended: bool,
}

impl Registered {
    pub(super) fn new(name: String, folder: PathBuf) -> Result<Self, RegistryError> {
        let path = folder.join("lock");
        let made = File::options().write(true).create_new(true).open(&path).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            fs::create_dir(mounted_in(&folder))?;
            Ok(lock)
        });
        let lock = match made {
            Ok(lock) => lock,
            Err(error) => {
                drop(remove(&folder));
                return Err(at(&path)(error).into());
            }
        };
        Ok(Self { name, folder, lock, waiting: Arc::default(), ended: false })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub fn mount_point(&self) -> PathBuf {
        mounted_in(&self.folder)
    }

    pub fn record(&self, record: &Record) -> Result<(), RegistryError> {
        let path = self.folder.join("record.json");
        let text = serde_json::to_string_pretty(record).map_err(io::Error::from);
        Ok(text.and_then(|text| replace(&path, &text, 0o644)).map_err(at(&path))?)
    }

    /// Responds to requests from now on. `on_stop` is called when the device should end.
    pub fn answer(
        &self,
        drive: Arc<EmulatedDrive>,
        on_stop: impl Fn() + Send + 'static,
    ) -> Result<(), RegistryError> {
        let path = self.folder.join("control");
        let listener = UnixListener::bind(&path).map_err(at(&path))?;
        let waiting = Arc::clone(&self.waiting);
        let serve = move || {
            for stream in listener.incoming() {
                // A silent client blocks the others for at most this long.
                let Ok(mut stream) = stream else {
                    // Accept fails if there are no descriptors left; the socket then stays ready.
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                };
                drop(stream.set_read_timeout(Some(Duration::from_secs(1))));
                drop(stream.set_write_timeout(Some(Duration::from_secs(1))));
                let mut word = String::new();
                drop(BufReader::new((&stream).take(16)).read_line(&mut word));
                match word.trim_end() {
                    "status" => tell(&mut stream, &Status::of(&drive)),
                    "stop" => {
                        waiting.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
                        on_stop();
                    }
                    _ => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("trimwise-control".to_owned()).spawn(serve);
        thread.map_err(at(&path))?;
        Ok(())
    }

    /// Reports the drive's requests to those waiting for the end, and removes the folder.
    pub fn end(mut self, status: &Status) -> Result<(), RegistryError> {
        let removed = remove(&self.folder).map_err(at(&self.folder));
        self.ended = removed.is_ok();
        for mut stream in std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)) {
            tell(&mut stream, status);
        }
        Ok(removed?)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.ended {
            drop(remove(&self.folder));
        }
        // Unlock last, so that no folder is ever seen without a server.
        let _ = flock(self.lock.as_fd(), FlockOperation::Unlock);
    }
}

/// Sends a status; a client that has gone misses it.
fn tell(stream: &mut UnixStream, status: &Status) {
    if let Ok(text) = serde_json::to_string(status) {
        drop(stream.write_all(text.as_bytes()));
    }
}
