//! Paths of the daemon's files. It writes nowhere else, except to a metrics file that the configuration names.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use trimwise_linux::daemon::config::DEFAULT_FILE;
use trimwise_linux::daemon::running::RUN_LOCK;
use trimwise_linux::host_root::HostRoot;

#[derive(Clone, Debug)]
pub struct Places {
    pub config: PathBuf,
    /// State kept across restarts: the journal of mount options, the history, the knowledge of trimmed space, pauses
    /// and the lock.
    pub state: PathBuf,
    pub run: PathBuf,
    pub host: HostRoot,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            config: DEFAULT_FILE.into(),
            state: "/var/lib/trimwise".into(),
            run: trimwise_linux::daemon::DEFAULT_RUN.into(),
            host: HostRoot::default(),
        }
    }
}

#[derive(Debug, Error)]
pub enum PlacesError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: another trimwised uses it{pid}; expected one daemon for each state and each run folder")]
    Taken {
        path: PathBuf,
        /// Process that holds the lock, such as ` (process 123)`; empty if unknown.
        pid: String,
    },
}

impl PlacesError {
    /// Returns true if the problem may disappear by itself, like a full disk.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error().is_some())
    }
}

/// Folders that programs share, directly below `/`.
const SHARED: [&str; 20] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root",
    "run", "sbin", "srv", "sys", "tmp", "usr", "var",
];
/// Those that hold devices and the kernel's own files.
const OF_KERNEL: [&str; 3] = ["dev", "proc", "sys"];

/// Returns why a path cannot be the daemon's own folder. Goes by the path alone, since its disk may hang.
fn why_unfit(path: &Path) -> Option<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.to_str().unwrap_or_default()),
            Component::ParentDir => drop(names.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    match names[..] {
        [] => Some("is the root of all files"),
        ["dev", "shm", _, ..] => None, // a tmpfs for programs
        [first, ..] if OF_KERNEL.contains(&first) => {
            Some("is a place of devices or of the kernel's own files")
        }
        [only] if SHARED.contains(&only) => Some("is shared by many programs"),
        _ => None,
    }
}

impl Places {
    /// Returns why the state or the run folder cannot be what the arguments say, with what they could be.
    pub(crate) fn unfit(&self) -> Option<String> {
        let Self { state, run, .. } = Self::default();
        [("--state", &self.state, state), ("--run", &self.run, run)].into_iter().find_map(
            |(name, path, own)| {
                let why = why_unfit(path)?;
                Some(format!(
                    "{name} {}: {why}; expected a folder of the daemon's own, such as {}",
                    path.display(),
                    own.display()
                ))
            },
        )
    }

    pub(crate) fn state_lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// Returns the path of the lock of the run folder. Its name differs from the other lock's, since both folders can
    /// be the same.
    pub(crate) fn run_lock(&self) -> PathBuf {
        self.run.join(RUN_LOCK)
    }

    /// Creates the run folder and takes its lock: two daemons with one run folder would replace each other's sockets.
    pub(crate) fn lock_run(&self) -> Result<File, PlacesError> {
        prepare(&self.run_lock(), 0o755)?;
        let held = hold(&self.run_lock())?;
        name(&self.run_lock(), std::process::id())?;
        Ok(held)
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.state.join("mount-options.json")
    }

    pub(crate) fn paused(&self) -> PathBuf {
        self.state.join("paused.json")
    }

    pub(crate) fn known(&self) -> PathBuf {
        self.state.join("known.json")
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.state.join("history.db")
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.run.join("control.sock")
    }

    /// Returns the path of the socket for everybody, which exists only if the configuration wants it.
    pub(crate) fn status(&self) -> PathBuf {
        self.run.join("status.sock")
    }
}

/// Opens a file that only this program writes. Follows no link, waits for nothing, and refuses a file that has another
/// name elsewhere.
pub(crate) fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).mode(0o600).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    if found.nlink() > 1 {
        return Err(io::Error::other("has another name (a hard link); expected a file of its own"));
    }
    Ok(file)
}

pub(crate) fn is_same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Creates the lock's folder, with this mode, and the lock, if they are missing. Fails if others can write to the
/// folder.
pub fn prepare(lock: &Path, mode: u32) -> Result<(), PlacesError> {
    let io = |source| PlacesError::Io { path: lock.to_owned(), source };
    lock.parent().map_or(Ok(()), |folder| make_folder(folder, mode))?;
    match fs::symlink_metadata(lock) {
        Ok(found) if found.is_file() && found.nlink() <= 1 => return Ok(()),
        Ok(found) if found.is_file() => {
            // A hard link, whose other name may be anything. A running daemon's lock stays: a backup can link it.
            let held = File::open(lock).map_err(io)?;
            // Another daemon that starts may have replaced it meanwhile.
            if !has_lock(&held) || !fs::symlink_metadata(lock).is_ok_and(|now| is_same_file(&found, &now)) {
                return Ok(());
            }
            fs::remove_file(lock).map_err(io)?;
        }
        Ok(_) => fs::remove_file(lock).map_err(io)?, // a pipe, or a link to somewhere else
        Err(_) => {}
    }
    open_own(lock, OpenOptions::new().write(true).create(true)).map_err(io)?;
    Ok(())
}

/// Takes a lock, for as long as the file is open. Writes nothing, so a frozen disk cannot block it.
pub fn hold(lock: &Path) -> Result<File, PlacesError> {
    let io = |source| PlacesError::Io { path: lock.to_owned(), source };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = options.open(lock).map_err(io)?;
    if !has_lock(&file) {
        let mut text = String::new();
        drop(file.take(20).read_to_string(&mut text));
        let pid = text.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (process {pid})"));
        return Err(PlacesError::Taken { path: lock.to_owned(), pid });
    }
    // Another daemon may have replaced it meanwhile, and have the lock of what is there now.
    let (held, found) = (file.metadata().map_err(io)?, fs::symlink_metadata(lock).map_err(io)?);
    if !is_same_file(&held, &found) {
        file = open_own(lock, OpenOptions::new().read(true)).map_err(io)?;
        if !has_lock(&file) {
            return Err(PlacesError::Taken { path: lock.to_owned(), pid: String::new() });
        }
    }
    Ok(file)
}

/// Writes the number of the process that has the lock into it.
pub fn name(lock: &Path, process: u32) -> Result<(), PlacesError> {
    let io = |source| PlacesError::Io { path: lock.to_owned(), source };
    let file = open_own(lock, OpenOptions::new().write(true)).map_err(io)?;
    let text = format!("{process}\n");
    let written = file.write_all_at(text.as_bytes(), 0);
    // On a full disk, an old name must not stay.
    let length = if written.is_ok() { text.len() as u64 } else { 0 };
    written.and(file.set_len(length)).map_err(io)
}

/// Takes the lock, retrying for a second: a helper that a killed daemon was about to start holds it until it execs or
/// is killed too.
fn has_lock(file: &File) -> bool {
    (0..50).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<(), PlacesError> {
    let io = |source| PlacesError::Io { path: path.to_owned(), source };
    if !path.exists() {
        fs::DirBuilder::new().mode(mode).recursive(true).create(path).map_err(io)?;
        // Set the mode regardless of the umask.
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(io)?;
    }
    let found = fs::symlink_metadata(path).map_err(io)?;
    let own = rustix::process::geteuid().as_raw();
    let wrong = if found.is_symlink() {
        "is a symbolic link"
    } else if !found.is_dir() {
        "is not a folder"
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
        fs::write(folder.path().join("file"), "").unwrap();
        let said = make_folder(&folder.path().join("file"), 0o700).unwrap_err().to_string();
        assert!(said.contains("is not a folder"), "{said}");
    }

    #[test]
    fn a_folder_of_others_is_refused_by_its_path() {
        for (path, words) in [
            ("/", Some("root of all files")),
            ("/var/..", Some("root of all files")),
            ("/dev", Some("devices")),
            ("/dev/", Some("devices")),
            ("/dev/trimwise", Some("devices")),
            ("/dev/shm", Some("devices")),
            ("/proc/self/fd", Some("kernel's own")),
            ("/sys/fs", Some("kernel's own")),
            ("/tmp/../sys/fs", Some("kernel's own")),
            ("/run", Some("shared by many")),
            ("/etc/.", Some("shared by many")),
            ("/var", Some("shared by many")),
            ("/var/lib/trimwise", None),
            ("/run/trimwise", None),
            ("/dev/shm/trimwise", None),
            ("/state", None), // a container's volume
        ] {
            assert_eq!(why_unfit(Path::new(path)).is_some(), words.is_some(), "{path}");
            assert!(why_unfit(Path::new(path)).is_none_or(|why| why.contains(words.unwrap())), "{path}");
        }
        let places = Places { run: "/dev".into(), ..Places::default() };
        let said = "--run /dev: is a place of devices or of the kernel's own files; expected a folder of the daemon's \
                    own, such as /run/trimwise";
        assert_eq!(places.unfit().unwrap(), said);
        assert_eq!(Places::default().unfit(), None);
    }

    #[test]
    fn one_daemon_has_a_state_folder_and_a_run_folder() {
        let folder = tempfile::tempdir().unwrap();
        let places = |state: &str, run: &str| Places {
            state: folder.path().join(state),
            run: folder.path().join(run),
            ..Places::default()
        };
        let lock = |state: &str, run: &str| {
            let places = places(state, run);
            let held = places.lock_run()?;
            prepare(&places.state_lock(), 0o700)?;
            let held = (held, hold(&places.state_lock())?);
            name(&places.state_lock(), std::process::id())?;
            Ok::<_, PlacesError>(held)
        };
        let held = lock("a", "run").unwrap();
        for (state, run, file) in [("a", "other", "a/lock"), ("b", "run", "run/run.lock")] {
            let said = lock(state, run).unwrap_err().to_string();
            let pid = std::process::id();
            assert!(said.contains(&format!("{file}: another trimwised uses it (process {pid})")), "{said}");
        }
        drop(held);
        lock("same", "same").unwrap();
    }

    #[test]
    fn regression_a_hard_link_as_a_lock_is_replaced_and_what_it_links_to_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, lock) = (folder.path().join("victim"), folder.path().join("state/lock"));
        fs::write(&victim, "precious").unwrap();
        fs::DirBuilder::new().mode(0o700).create(lock.parent().unwrap()).unwrap();
        fs::hard_link(&victim, &lock).unwrap();
        let said = name(&lock, 4711).unwrap_err().to_string();
        assert!(said.contains("has another name (a hard link)"), "{said}");
        prepare(&lock, 0o700).unwrap();
        let held = hold(&lock).unwrap();
        name(&lock, 4711).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&lock).unwrap(), "4711\n");
        name(&lock, 12).unwrap();
        assert_eq!(fs::read_to_string(&lock).unwrap(), "12\n");

        // A running daemon's lock is not replaced, even if a backup has linked it.
        fs::hard_link(&lock, folder.path().join("backup")).unwrap();
        prepare(&lock, 0o700).unwrap();
        let said = hold(&lock).unwrap_err().to_string();
        assert!(said.contains("another trimwised uses it (process 12)"), "{said}");
        drop(held);
        prepare(&lock, 0o700).unwrap();
        hold(&lock).unwrap();
    }
}
