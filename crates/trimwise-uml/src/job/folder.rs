//! The folder of a run, which is removed when the run is over, for whatever reason.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::geteuid;

/// A run's folder. Dropping this value removes it; if the process is killed, the next run of the same user does.
pub(super) struct RunFolder {
    folder: tempfile::TempDir,
    _lock: fs::File,
}

impl RunFolder {
    const PREFIX: &str = "trimwise-guest-";
    const LOCK: &str = "lock";

    pub(super) fn new() -> io::Result<Self> {
        Self::sweep(&std::env::temp_dir());
        let private = fs::Permissions::from_mode(0o700);
        loop {
            let folder =
                tempfile::Builder::new().prefix(Self::PREFIX).permissions(private.clone()).tempdir()?;
            // Until it is locked, another run may take the folder for a leftover and remove it.
            match Self::locked(folder.path()) {
                Ok(lock) => return Ok(Self { folder, _lock: lock }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn locked(folder: &Path) -> io::Result<fs::File> {
        let path = folder.join(Self::LOCK);
        let lock = fs::File::create_new(&path)?;
        lock.lock()?;
        fs::metadata(&path)?;
        Ok(lock)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes the folders of this user's runs whose process is gone. The parent folder is open to all users, so this
    /// never waits for a file that another user has created there.
    fn sweep(parent: &Path) {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(Self::PREFIX) {
                continue;
            }
            let lock = Self::left(&entry.path()).filter(|lock| lock.try_lock().is_ok());
            // Hold the lock until the folder is gone: a run that is about to lock it then finds it gone, and uses
            // another.
            if let Some(_held) = lock {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    fn left(path: &Path) -> Option<fs::File> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let is_ours = folder.metadata().ok()?.uid() == geteuid().as_raw();
        is_ours.then(|| open_regular(&folder, Self::LOCK).ok()).flatten()
    }
}

/// Opens a regular file for reading. A FIFO in its place would block the caller, and a link could lead elsewhere.
fn open_regular(folder: impl AsFd, name: &str) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(openat(folder, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other(format!("{name}: not a regular file")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_no_run_takes_the_folder_of_a_run_that_is_starting() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let folder = RunFolder::new().unwrap();
                        fs::write(folder.path().join("job"), "").unwrap();
                    }
                });
            }
        });
    }

    /// Regression test: any user could create a folder in the shared `/tmp` that blocked every run in open(2).
    #[test]
    fn regression_a_fifo_for_a_lock_keeps_nobody_waiting() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(format!("{}{name}", RunFolder::PREFIX));
            fs::create_dir(&path).unwrap();
            path
        };
        let fifo = folder("fifo").join(RunFolder::LOCK);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let secret = parent.path().join("secret");
        fs::write(&secret, "").unwrap();
        let linked = folder("linked").join(RunFolder::LOCK);
        std::os::unix::fs::symlink(&secret, &linked).unwrap();
        let left = folder("left");
        fs::write(left.join(RunFolder::LOCK), "").unwrap();
        // Owned by another user, if this one is root.
        let others = folder("others");
        fs::write(others.join(RunFolder::LOCK), "").unwrap();
        let is_root = std::os::unix::fs::chown(&others, Some(65534), None).is_ok();

        let (done, ended) = std::sync::mpsc::channel();
        let path = parent.path().to_owned();
        std::thread::spawn(move || {
            RunFolder::sweep(&path);
            let _ = done.send(());
        });
        // Long enough not to measure time: it ends, or never does.
        ended.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for a FIFO");
        assert!(fifo.exists() && linked.is_symlink() && secret.exists());
        assert!(!left.exists(), "what a killed run left is removed");
        assert_eq!(others.exists(), is_root, "another user's folder stays");
    }
}
