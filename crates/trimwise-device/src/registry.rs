//! Registers the emulated devices of this host.
//!
//! Each has a folder, by default `/run/trimwise/devices/NAME`; users other than root have another place.
//!
//! | entry | contents |
//! | `record.json` | the description of the device: a [`Record`] |
//! | `lock` | locked by the server while it runs; a reused process number cannot mislead |
//! | `control` | a socket on which the server responds to `status` at once, and to `stop` after it has ended |
//! | `mounted` | the mount point of the drive's file, if a loop device lies over it |
//!
//! A server that ends removes its folder. A server that was killed cannot: its device returns I/O errors from then on.
//! The next command that creates or lists devices removes the remains: loop device, mount and folder. Only a loop
//! device that is still mounted stays until it is unmounted.

mod error;
mod registered;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use serde::{Deserialize, Serialize};
use trimwise::block::PortCounts;

use trimwise_linux::path_error::at;

use crate::{EmulatedDrive, attachment};
pub use error::RegistryError;
pub use registered::Registered;

pub(crate) const PLACE: &str = "/run/trimwise/devices";
/// Returns the default place of registration for this user: [`PLACE`] is for root only.
pub fn usual_place() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    place_of(geteuid().is_root(), variable)
}

fn place_of(is_root: bool, variable: impl Fn(&'static str) -> Option<PathBuf>) -> PathBuf {
    // The XDG base directory specification ignores relative paths.
    let folder = |name| variable(name).filter(|path| path.is_absolute());
    let own = || {
        let state = || folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        folder("XDG_RUNTIME_DIR").or_else(state)
    };
    let own = if is_root { None } else { own() };
    own.map_or_else(|| PLACE.into(), |folder| folder.join("trimwise/devices"))
}

/// Longest name: the path of its socket must fit into 108 bytes.
pub(crate) const NAME_BYTES_MAX: usize = 48;
/// Time limit for a response of a running server.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub profile: String,
    pub size_bytes: u64,
    /// Seed of everything that the drive draws at random.
    pub seed: u64,
    /// Factor by which everything takes longer than modelled.
    pub time_scale: f64,
    /// `None` for memory.
    pub backing: Option<PathBuf>,
    pub server_pid: u32,
    pub front: Front,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Front {
    Loop {
        /// Path of the device's node; `None` while it is being created.
        device: Option<PathBuf>,
    },
    Nbd {
        /// `unix:PATH` or `tcp:ADDRESS:PORT`.
        addresses: Vec<String>,
    },
}

/// A server's response to `status` and `stop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub counts: PortCounts,
    /// Size of the stored data, in memory or in the backing file.
    pub stored_bytes: u64,
}

impl Status {
    pub fn of(drive: &EmulatedDrive) -> Self {
        Self { counts: drive.counts(), stored_bytes: drive.stored().0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Serving(Status),
    Silent,
    /// The server has died, and its remains cannot be removed yet.
    Dead {
        in_use: String,
    },
}

/// The longest path of a socket: `sun_path` has 108 bytes including a final zero.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

pub(crate) fn check_socket_path(path: &Path) -> Result<(), RegistryError> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(RegistryError::LongPath { path: path.to_owned(), bytes });
    }
    Ok(())
}

/// The folder of all devices on this host.
#[derive(Clone, Debug)]
pub struct Registry {
    place: PathBuf,
}

impl Registry {
    /// Opens the registry at `place`, which is created with the first device.
    pub fn at(place: impl Into<PathBuf>) -> Self {
        Self { place: place.into() }
    }

    /// Reserves a name for a device. If `name` is `None`, uses `like`, with a number after it if that is taken. Removes
    /// the remains of dead servers first.
    pub(crate) fn register(&self, name: Option<&str>, like: &str) -> Result<Registered, RegistryError> {
        for name in name.iter().copied().chain([like]) {
            check_name(name)?;
        }
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(&self.place).map_err(at(&self.place))?;
        let guard = self.guard()?;
        self.clean(&guard)?;
        let candidates = match name {
            Some(name) => vec![name.to_owned()],
            None => {
                std::iter::once(like.to_owned()).chain((2..1000).map(|n| format!("{like}-{n}"))).collect()
            }
        };
        for candidate in &candidates {
            let folder = self.place.join(candidate);
            check_socket_path(&folder.join("control"))?;
            match fs::DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Registered::new(candidate.clone(), folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at(&folder)(error).into()),
            }
        }
        Err(RegistryError::Taken { name: candidates.into_iter().next().unwrap_or_default() })
    }

    pub fn list(&self) -> Result<Vec<(Record, State)>, RegistryError> {
        if !self.place.exists() {
            return Ok(Vec::new());
        }
        let guard = self.guard()?;
        let dead = self.clean(&guard)?;
        let mut devices = Vec::new();
        for record in self.records()? {
            let state = match dead.iter().find(|(name, _)| *name == record.name) {
                Some((_, in_use)) => State::Dead { in_use: in_use.clone() },
                None => match self.ask(&record.name, "status") {
                    Ok(status) => State::Serving(status),
                    Err(_) => State::Silent,
                },
            };
            devices.push((record, state));
        }
        Ok(devices)
    }

    /// Ends the device with this name or node, and returns the requests that it served. `None` means that its server
    /// had died, and that its remains are now removed.
    ///
    /// # Errors
    /// If no such device exists, or it cannot be ended. A device that is in use is left alone.
    pub fn detach(&self, given: &str) -> Result<(Record, Option<Status>), RegistryError> {
        let records = if self.place.exists() { self.records()? } else { Vec::new() };
        let node = |record: &Record| match &record.front {
            Front::Loop { device: Some(device) } => device.display().to_string(),
            Front::Loop { device: None } => String::new(),
            Front::Nbd { addresses } => addresses.first().cloned().unwrap_or_default(),
        };
        let found = records.iter().find(|record| record.name == given || node(record) == given);
        let Some(record) = found.cloned() else {
            let there = records.into_iter().map(|record| record.name).collect();
            return Err(RegistryError::Unknown { given: given.to_owned(), there });
        };
        let folder = self.place.join(&record.name);
        let in_use = || match &record.front {
            Front::Loop { device: Some(device) } if attachment::is_over(device, &file_in(&folder)) => {
                attachment::user(device).map(|how| RegistryError::InUse { device: node(&record), how })
            }
            _ => None,
        };
        if let Some(error) = in_use() {
            return Err(error);
        }
        if !is_served(&folder) {
            let guard = self.guard()?;
            self.clean(&guard)?;
            return match in_use() {
                Some(error) => Err(error),
                None => Ok((record, None)),
            };
        }
        let server = process(record.server_pid);
        let status = self.ask(&record.name, "stop").ok();
        let lingers = |why: &str| RegistryError::Lingers {
            name: record.name.clone(),
            pid: record.server_pid,
            why: why.to_owned(),
        };
        let begin = Instant::now();
        while is_served(&folder) {
            if begin.elapsed() > PATIENCE {
                let why = "some program still has the device open; it ends when that closes it";
                return Err(lingers(why));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Until its server ends, it has the backing file open, so the file system below could not be unmounted.
        if let Some(server) = server {
            let rest = Timespec::try_from(PATIENCE.saturating_sub(begin.elapsed())).ok();
            // The device is gone, even if something keeps the process alive.
            let _ = poll(&mut [PollFd::new(&server, PollFlags::IN)], rest.as_ref());
        }
        // The server is stopped, was killed meanwhile, or is older than its folder.
        let guard = self.guard()?;
        self.clean(&guard)?;
        Ok((record, status))
    }

    /// Locks the registry: only one process at a time creates or removes folders.
    fn guard(&self) -> Result<Guard, RegistryError> {
        let path = self.place.join(".lock");
        let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(at(&path))?;
        Ok(Guard(file))
    }

    /// Removes the remains of dead servers. Returns what cannot be removed yet, with the reason.
    fn clean(&self, _: &Guard) -> Result<Vec<(String, String)>, RegistryError> {
        let mut dead = Vec::new();
        for name in self.names()? {
            let folder = self.place.join(&name);
            if is_served(&folder) {
                continue;
            }
            let device = match read_record(&folder) {
                Ok(Record { front: Front::Loop { device: Some(device) }, .. }) => Some(device),
                _ => None,
            };
            let file = file_in(&folder);
            if let Some(device) = device.filter(|device| attachment::is_over(device, &file)) {
                if let Some(user) = attachment::user(&device) {
                    dead.push((name, user));
                    continue;
                }
                attachment::detach(&device, &file).map_err(at(&device))?;
            }
            remove(&folder).map_err(at(&folder))?;
        }
        Ok(dead)
    }

    fn names(&self) -> Result<Vec<String>, RegistryError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.place).map_err(at(&self.place))? {
            let entry = entry.map_err(at(&self.place))?;
            if let Some(name) = entry.file_name().to_str().filter(|name| check_name(name).is_ok()) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn records(&self) -> Result<Vec<Record>, RegistryError> {
        Ok(self.names()?.iter().filter_map(|name| read_record(&self.place.join(name)).ok()).collect())
    }

    fn ask(&self, name: &str, word: &str) -> io::Result<Status> {
        let mut stream = UnixStream::connect(self.place.join(name).join("control"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        writeln!(stream, "{word}")?;
        let mut answer = String::new();
        stream.take(1 << 16).read_to_string(&mut answer)?;
        serde_json::from_str(&answer).map_err(io::Error::from)
    }
}

fn process(pid: u32) -> Option<OwnedFd> {
    let other = (pid != std::process::id()).then_some(pid)?;
    pidfd_open(Pid::from_raw(other.try_into().ok()?)?, PidfdFlags::empty()).ok()
}

struct Guard(#[expect(dead_code, reason = "held for its lock")] File);

fn check_name(name: &str) -> Result<(), RegistryError> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_@+".contains(c));
    if !begins || !plain || name.len() > NAME_BYTES_MAX {
        return Err(RegistryError::Name { name: name.to_owned() });
    }
    Ok(())
}

fn read_record(folder: &Path) -> io::Result<Record> {
    Ok(serde_json::from_str(&fs::read_to_string(folder.join("record.json"))?)?)
}

fn mounted_in(folder: &Path) -> PathBuf {
    folder.join("mounted")
}

fn file_in(folder: &Path) -> PathBuf {
    mounted_in(folder).join(super::fuse::FILE)
}

/// Returns true if a server is running: it holds the lock.
fn is_served(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join("lock")) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Removes a folder and the mount in it. Nothing below a mount is touched.
fn remove(folder: &Path) -> io::Result<()> {
    let mounted = mounted_in(folder);
    // Usually it is not mounted; if it cannot be unmounted, the folder is not removed either.
    let _ = rustix::mount::unmount(&mounted, rustix::mount::UnmountFlags::DETACH);
    let gone = |result: io::Result<()>| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    gone(fs::remove_dir(&mounted))?;
    for name in ["control", "record.json", "record.json.new", "lock"] {
        gone(fs::remove_file(folder.join(name)))?;
    }
    gone(fs::remove_dir(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: devices of all users were registered in /run, where only root may create files.
    #[test]
    fn regression_a_user_s_devices_are_registered_where_the_user_may_write() {
        let at = |is_root, set: &[(&str, &str)]| {
            let variable = |name| set.iter().find(|(n, _)| *n == name).map(|(_, path)| PathBuf::from(path));
            place_of(is_root, variable).display().to_string()
        };
        let all = [("XDG_RUNTIME_DIR", "/run/user/7"), ("XDG_STATE_HOME", "/s"), ("HOME", "/home/u")];
        assert_eq!(at(true, &all), PLACE);
        assert_eq!(at(false, &all), "/run/user/7/trimwise/devices");
        assert_eq!(at(false, &all[1..]), "/s/trimwise/devices");
        assert_eq!(at(false, &all[2..]), "/home/u/.local/state/trimwise/devices");
        assert_eq!(
            at(false, &[("XDG_RUNTIME_DIR", "here"), all[2]]),
            "/home/u/.local/state/trimwise/devices"
        );
        assert_eq!(at(false, &[]), PLACE);
    }
}
