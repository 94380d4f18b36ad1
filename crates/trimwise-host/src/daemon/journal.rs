//! Which mount options were changed, and how they were: written before the change, so that after a kill -9 the next daemon
//! puts them back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::places::replace;
use crate::mount::Mount;

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
    /// Reads what the last daemon left; nothing if that was before this boot, or cannot be understood.
    pub fn open(path: &Path) -> Self {
        let boot = boot_id();
        let written =
            fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Written>(&text).ok());
        let changes =
            written.filter(|written| written.boot == boot).map_or(Vec::new(), |written| written.changes);
        Self { path: path.to_owned(), boot, changes }
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
        });
        self.write().inspect_err(|_| drop(self.changes.pop()))
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

/// Whether a change is one of this mount.
pub fn is_of(change: &Change, mount: &Mount) -> bool {
    change.numbers == mount.numbers && change.device == mount.device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_first_is_kept_and_another_boot_forgets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let lines = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw,discard\n22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let [on, off] = &crate::mount::parse_mountinfo(lines)[..] else { panic!() };
        let mut journal = Journal::open(&path);
        journal.note(on).unwrap();
        journal.note(off).unwrap();
        let mut again = Journal::open(&path);
        assert_eq!(again.was(off), Some("discard"));
        let change = again.changes()[0].clone();
        again.restored(&change);
        assert!(Journal::open(&path).changes().is_empty());
        journal.note(on).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap().replace(&journal.boot, "other")).unwrap();
        assert!(Journal::open(&path).changes().is_empty());
        fs::write(&path, "{").unwrap();
        assert!(Journal::open(&path).changes().is_empty());
    }
}
