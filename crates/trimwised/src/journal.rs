//! Which mount options were changed, and how they were: written before the change, so that after a kill -9 the next daemon
//! puts them back.
//!
//! A change is one of one mounting of a file system, which [`session`] tells: who unmounts it and mounts it again with
//! options of his own choice finds them as he chose.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::known::{session, sessions};
use trimwise_linux::block_device::devices_of;
use trimwise_linux::files::{replace, with_ending};
use trimwise_linux::layout::Kind;
use trimwise_linux::mount::Mount;

/// A mount option that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Major and minor number of the mount.
    pub numbers: (u32, u32),
    /// What is mounted.
    pub device: String,
    /// Where.
    pub mount_point: PathBuf,
    /// As it was: `discard`, `nodiscard`, `discard=async`.
    pub was: String,
    /// Which mounting of the file system it was; `None` if the kernel does not tell.
    #[serde(default)]
    pub session: Option<u64>,
}

/// All changes that are in effect.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    boot: String,
    changes: Vec<Change>,
}

/// What is in the file. Mounts do not outlive a boot.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    boot: String,
    changes: Vec<Change>,
}

impl Journal {
    /// Reads what the last daemon left; nothing if that was before this boot. If it cannot be understood, it is moved aside,
    /// and there is a sentence about it without a full stop.
    pub fn open(path: &Path) -> (Self, Option<String>) {
        let boot = boot_id();
        let read = match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str::<Written>(&text).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Written { boot: boot.clone(), changes: Vec::new() })
            }
            Err(error) => Err(error.to_string()),
        };
        let (changes, problem) = match read {
            Ok(written) if written.boot == boot => (written.changes, None),
            Ok(_) => (Vec::new(), None),
            Err(why) => {
                let aside = with_ending(path, ".corrupt");
                drop(fs::rename(path, &aside));
                let (path, aside) = (path.display(), aside.display());
                let problem = format!(
                    "{path} cannot be read ({why}), and is {aside} now: mount options that a killed daemon changed \
                     stay as they are"
                );
                (Vec::new(), Some(problem))
            }
        };
        (Self { path: path.to_owned(), boot, changes }, problem)
    }

    /// The changes in effect.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// How the option of a mount was before it was changed.
    pub fn was(&self, mount: &Mount) -> Option<&str> {
        self.changes.iter().find(|change| is_of(change, mount)).map(|change| change.was.as_str())
    }

    /// Notes how an option is, before it is changed for the first time.
    ///
    /// # Errors
    /// If it cannot be written; then it must not be changed.
    pub fn note(&mut self, mount: &Mount) -> io::Result<()> {
        if self.was(mount).is_some() {
            return Ok(());
        }
        self.changes.push(Change {
            numbers: mount.numbers,
            device: mount.device.clone(),
            mount_point: mount.mount_point.clone(),
            was: mount.discard().to_owned(),
            session: session_of(mount),
        });
        self.write().inspect_err(|_| drop(self.changes.pop()))
    }

    /// The option of this mount is not the daemon's any more.
    pub fn forget(&mut self, mount: &Mount) {
        if let Some(change) = self.changes.iter().find(|change| is_of(change, mount)).cloned() {
            self.restored(&change);
        }
    }

    /// An option is as it was, or its mount is gone.
    pub fn restored(&mut self, change: &Change) {
        self.changes.retain(|one| one != change);
        // A change that is noted and not there any more is found to be so by the next daemon.
        drop(self.write());
    }

    fn write(&self) -> io::Result<()> {
        let written = Written { boot: self.boot.clone(), changes: self.changes.clone() };
        replace(&self.path, &serde_json::to_string(&written).map_err(io::Error::other)?, 0o600)
    }
}

/// Which boot this is, as the kernel names it.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Whether a change is one of this mount, and of this mounting of it. Its device may have got another name meanwhile
/// (`/dev/mapper/home`, `/dev/dm-3`), so that it counts only where nothing else tells.
pub fn is_of(change: &Change, mount: &Mount) -> bool {
    change.numbers == mount.numbers
        && match change.session {
            Some(session) => session_of(mount) == Some(session),
            // Of a version that did not ask.
            None => change.device == mount.device && change.mount_point == mount.mount_point,
        }
}

/// Whether the mounting that was changed may still be there although no mount of it is seen: unmounted lazily, mounted in
/// another namespace, or without its device.
pub fn may_be_there(change: &Change) -> bool {
    change.session.is_some_and(|session| sessions().contains(&session))
}

/// Which mounting of its file system a mount is of; `None` if the kernel does not tell.
pub fn session_of(mount: &Mount) -> Option<u64> {
    session(Kind::of(&mount.fs_type), devices_of(mount).ok()?.first()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_first_is_kept_and_another_boot_forgets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let lines = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw,discard\n22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let [on, off] = &trimwise_linux::mount::parse_mountinfo(lines)[..] else { panic!() };
        let mut journal = Journal::open(&path).0;
        journal.note(on).unwrap();
        journal.note(off).unwrap();
        let mut again = Journal::open(&path).0;
        assert_eq!(again.was(off), Some("discard"));
        let change = again.changes()[0].clone();
        again.restored(&change);
        assert!(Journal::open(&path).0.changes().is_empty());
        journal.note(on).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap().replace(&journal.boot, "other")).unwrap();
        assert!(Journal::open(&path).0.changes().is_empty());
        fs::write(&path, "{").unwrap();
        let (broken, problem) = Journal::open(&path);
        assert!(broken.changes().is_empty() && problem.unwrap().contains("journal.corrupt now"));
        assert_eq!(fs::read_to_string(folder.path().join("journal.corrupt")).unwrap(), "{");
        assert_eq!(Journal::open(&path).1, None);
    }

    #[test]
    fn a_change_is_of_one_mounting_only() {
        let [mount] =
            &trimwise_linux::mount::parse_mountinfo(b"22 1 8:1 / / rw - ext4 /dev/none1 rw,discard\n")[..]
        else {
            panic!()
        };
        let change = |session| Change {
            numbers: (8, 1),
            device: "/dev/none1".to_owned(),
            mount_point: "/".into(),
            was: "discard".to_owned(),
            session,
        };
        // There is no such device, so that nothing tells which mounting it is.
        assert!(is_of(&change(None), mount) && !is_of(&change(Some(7)), mount));
    }
}
