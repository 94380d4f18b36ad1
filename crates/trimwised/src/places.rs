//! Where the daemon's files are. Nothing is written anywhere else, but a metrics file that the configuration asks for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use trimwise_linux::daemon::config::DEFAULT_FILE;
use trimwise_linux::host_root::HostRoot;

/// Files and folders of a daemon.
#[derive(Clone, Debug)]
pub struct Places {
    /// The configuration.
    pub config: PathBuf,
    /// What outlives the daemon: the journal of mount options, the history, what is known to be trimmed, what is paused,
    /// the lock.
    pub state: PathBuf,
    /// What does not: the sockets.
    pub run: PathBuf,
    /// Where the host's own `/` is.
    pub host: HostRoot,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            config: DEFAULT_FILE.into(),
            state: "/var/lib/trimwise".into(),
            run: "/run/trimwise".into(),
            host: HostRoot::default(),
        }
    }
}

/// Why a daemon cannot have its places.
#[derive(Debug, Error)]
pub enum PlacesError {
    /// A folder or file cannot be made.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// The operating system's words.
        source: io::Error,
    },
    /// Another daemon has them.
    #[error("{path}: another trimwised has it{pid}; expected one daemon for each state and each run folder")]
    Taken {
        /// The lock.
        path: PathBuf,
        /// ` (process 123)`.
        pid: String,
    },
}

/// Held as long as a daemon runs.
#[derive(Debug)]
pub struct Locked(#[allow(dead_code, reason = "held for their locks")] [File; 2]);

impl Places {
    /// Makes the folders, and takes their locks: two daemons with one run folder would take each other's sockets.
    ///
    /// # Errors
    /// If another daemon has one, or the folders cannot be made.
    pub fn lock(&self) -> Result<Locked, PlacesError> {
        make_folder(&self.state, 0o700)?;
        make_folder(&self.run, 0o755)?;
        // By other names: they may be one folder.
        Ok(Locked([locked(self.state.join("lock"))?, locked(self.run.join("run.lock"))?]))
    }

    /// The journal of mount options.
    pub fn journal(&self) -> PathBuf {
        self.state.join("mount-options.json")
    }

    /// What a user paused.
    pub fn paused(&self) -> PathBuf {
        self.state.join("paused.json")
    }

    /// What is known to be trimmed.
    pub fn known(&self) -> PathBuf {
        self.state.join("known.json")
    }

    /// The history.
    pub fn history(&self) -> PathBuf {
        self.state.join("history.db")
    }

    /// The socket for root and the group.
    pub fn control(&self) -> PathBuf {
        self.run.join("control.sock")
    }

    /// The socket for everybody, if the configuration wants one.
    pub fn status(&self) -> PathBuf {
        self.run.join("status.sock")
    }
}

/// A file with this process's number in it, locked.
fn locked(path: PathBuf) -> Result<File, PlacesError> {
    let io = |source| PlacesError::Io { path: path.clone(), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(&path).map_err(io)?;
    if !has_lock(&file) {
        let mut text = String::new();
        drop(io::Read::by_ref(&mut file).take(20).read_to_string(&mut text));
        let pid = text.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (process {pid})"));
        return Err(PlacesError::Taken { path, pid });
    }
    let written = file.set_len(0).and_then(|()| file.rewind());
    written.and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes())).map_err(io)?;
    Ok(file)
}

/// Takes the lock. A helper that a killed daemon was about to start holds it until it is another program, or is killed too: so
/// it is tried for a second.
fn has_lock(file: &File) -> bool {
    (0..50).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Makes a folder, or takes one that is there as it is, if nobody else can write in it.
fn make_folder(path: &Path, mode: u32) -> Result<(), PlacesError> {
    let io = |source| PlacesError::Io { path: path.to_owned(), source };
    let is_new = !path.exists();
    fs::DirBuilder::new().mode(mode).recursive(true).create(path).map_err(io)?;
    if is_new {
        // Whatever the umask is.
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io)?;
    }
    let found = fs::symlink_metadata(path).map_err(io)?;
    let own = rustix::process::geteuid().as_raw();
    let wrong = if !found.is_dir() {
        "is a symbolic link"
    } else if found.uid() != own {
        "belongs to another user"
    } else if found.mode() & 0o022 != 0 {
        "can be written by others"
    } else {
        return Ok(());
    };
    Err(io(io::Error::other(format!("{wrong}; expected a folder that only its owner, this user, can write"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let with_mode = |name: &str, mode: u32| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let said = make_folder(&path, 0o700).map_err(|error| error.to_string());
            (said, fs::metadata(&path).unwrap().mode() & 0o7777)
        };
        assert_eq!(with_mode("own", 0o750), (Ok(()), 0o750));
        let (said, mode) = with_mode("like tmp", 0o1777);
        assert!(said.unwrap_err().contains("can be written by others") && mode == 0o1777);
        std::os::unix::fs::symlink(folder.path().join("own"), folder.path().join("link")).unwrap();
        let said = make_folder(&folder.path().join("link"), 0o700).unwrap_err().to_string();
        assert!(said.contains("is a symbolic link"), "{said}");
    }

    #[test]
    fn one_daemon_has_a_state_folder_and_a_run_folder() {
        let folder = tempfile::tempdir().unwrap();
        let places = |state: &str, run: &str| Places {
            state: folder.path().join(state),
            run: folder.path().join(run),
            ..Places::default()
        };
        let held = places("a", "run").lock().unwrap();
        for (state, run, file) in [("a", "other", "a/lock"), ("b", "run", "run/run.lock")] {
            let said = places(state, run).lock().unwrap_err().to_string();
            let pid = std::process::id();
            assert!(said.contains(&format!("{file}: another trimwised has it (process {pid})")), "{said}");
        }
        drop(held);
        places("same", "same").lock().unwrap();
    }
}
