//! The journal of changed mount options and their old values, written before each change so that after a kill -9 the
//! next daemon restores them.
//!
//! A change belongs to one mounting of a file system, identified by [`session`]: if you remount the file system with
//! other options, yours apply.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::known::{session, sessions};
use crate::saving::{Loaded, Saving};
use trimwise_linux::block_device::devices_of;
use trimwise_linux::files::with_ending;
use trimwise_linux::layout::Kind;
use trimwise_linux::mount::Mount;
use trimwise_linux::remount;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub numbers: (u32, u32),
    pub device: String,
    pub mount_point: PathBuf,
    pub was: String,
    /// The file system's other options at that time; `None` if a version without them wrote this.
    #[serde(default)]
    pub others: Option<Vec<String>>,
    /// Identifies the mounting; `None` if the kernel does not report it.
    #[serde(default)]
    pub session: Option<u64>,
}

const FILE_MAX: u64 = 16 << 20;

#[derive(Debug, Default)]
pub struct Journal {
    changes: Vec<Change>,
    /// Changes not written yet, with the first version of the file that contains them.
    unsaved: Vec<(Change, u64)>,
    pub saving: Saving,
}

/// State of the note of an option's old value. The option can be changed once it is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    Saved,
    Waits,
    /// The old value could not be written. The text follows the journal's name in a message.
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    boot: String,
    changes: Vec<Change>,
}

/// Reads the last daemon's changes, if they are from this boot. A file that cannot be parsed is moved aside.
pub fn read(path: &Path, boot: &str) -> Loaded<Vec<Change>> {
    let parse = |text: &str| {
        let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok(if written.boot == boot { written.changes } else { Vec::new() })
    };
    Loaded::read(path, FILE_MAX, parse, |why| {
        let aside = with_ending(path, ".corrupt");
        let moved = match fs::rename(path, &aside) {
            Ok(()) => format!("was moved to {}", aside.display()),
            Err(error) => format!("cannot be moved to {} ({error})", aside.display()),
        };
        format!(
            "{} cannot be read ({why}) and {moved}: mount options that a killed daemon changed stay as they are",
            path.display()
        )
    })
}

impl Journal {
    /// Loads the last daemon's changes. Until then, no option may be changed.
    pub fn load(&mut self, changes: Vec<Change>) {
        self.changes = changes;
        self.saving.begin();
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub fn was(&self, one: &Candidate) -> Option<&str> {
        self.of(one).map(|change| change.was.as_str())
    }

    pub fn of(&self, one: &Candidate) -> Option<&Change> {
        self.changes.iter().find(|change| is_of(change, &one.mount, one.session))
    }

    /// Adds a change that a daemon with another state folder made, so that it is restored.
    pub fn adopt(&mut self, change: Change) {
        self.changes.push(change);
        self.saving.changed();
    }

    /// Notes the value of an option before its first change: the present one, or that of `origin`, which another daemon
    /// left. The caller must not change the option before the note is saved.
    pub fn note(&mut self, one: &Candidate, origin: Option<&Change>) -> Noted {
        if !self.saving.has_begun() {
            return Noted::Failed("has not been read yet".to_owned());
        }
        if self.of(one).is_none() {
            let version = self.saving.changed();
            let change = origin.cloned().unwrap_or_else(|| Change {
                numbers: one.mount.numbers,
                device: one.mount.device.clone(),
                mount_point: one.mount.mount_point.clone(),
                was: one.mount.discard().to_owned(),
                others: Some(remount::others(&one.mount)),
                session: one.session,
            });
            self.changes.push(change.clone());
            self.unsaved.push((change, version));
        }
        self.noted(one)
    }

    pub fn noted(&self, one: &Candidate) -> Noted {
        match self.of(one) {
            Some(change) if self.unsaved.iter().any(|(unsaved, _)| unsaved == change) => Noted::Waits,
            Some(_) => Noted::Saved,
            None => Noted::Failed(self.saving.problem().unwrap_or("cannot be written").to_owned()),
        }
    }

    pub fn forget(&mut self, one: &Candidate) -> Option<Change> {
        let change = self.of(one).cloned()?;
        self.restored(&change);
        Some(change)
    }

    /// Removes a change that was undone or whose mount is gone. If that is not saved in time, the next daemon finds
    /// out.
    pub fn restored(&mut self, change: &Change) {
        self.changes.retain(|one| one != change);
        self.unsaved.retain(|(one, _)| one != change);
        self.saving.changed();
    }

    pub fn text(&self, boot: &str) -> String {
        let written = Written { boot: boot.to_owned(), changes: self.changes.clone() };
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Records the result of writing this version. On failure, unsaved notes are dropped, and their changes must not be
    /// made.
    pub fn saved(&mut self, version: u64, result: Result<(), String>) {
        if result.is_ok() {
            self.unsaved.retain(|(_, first)| *first > version);
        } else {
            let unsaved = std::mem::take(&mut self.unsaved);
            self.changes.retain(|change| !unsaved.iter().any(|(one, _)| one == change));
        }
        self.saving.done(version, result);
    }
}

pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Returns true if a change belongs to this mount, and to this mounting of it (`session`). The device name counts only
/// without a session, since it may have changed (`/dev/mapper/home`, `/dev/dm-3`).
pub fn is_of(change: &Change, mount: &Mount, session: Option<u64>) -> bool {
    change.numbers == mount.numbers
        && match change.session {
            Some(changed) => session == Some(changed),
            // Written by a version without sessions.
            None => change.device == mount.device && change.mount_point == mount.mount_point,
        }
}

/// Returns true if the changed mounting may still exist although no mount of it is visible: unmounted lazily, mounted
/// in another namespace, or without its device.
pub(crate) fn may_be_there(change: &Change) -> bool {
    change.session.is_some_and(|session| sessions().contains(&session))
}

/// Returns the identity of the mounting that a mount belongs to; `None` if the kernel does not report it.
pub(crate) fn session_of(mount: &Mount) -> Option<u64> {
    session(Kind::of(&mount.fs_type), devices_of(mount).ok()?.first()?)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_first_value_is_kept_and_another_boot_forgets_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let lines = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw,discard\n22 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
        let [on, off] = &trimwise_linux::mount::parse_mountinfo(lines)[..] else { panic!() };
        let [on, off] = [&Candidate::of_test(on), &Candidate::of_test(off)];
        let open = |boot: &str| {
            let loaded = read(&path, boot);
            let mut journal = Journal::default();
            journal.load(loaded.value.unwrap());
            (journal, loaded.problem)
        };
        let write = |journal: &mut Journal| {
            fs::write(&path, journal.text("boot")).unwrap();
            journal.saved(journal.saving.due(Instant::now()).unwrap(), Ok(()));
        };
        let mut journal = Journal::default();
        assert!(matches!(journal.note(on, None), Noted::Failed(why) if why.contains("has not been read")));
        journal = open("boot").0;
        assert_eq!((journal.note(on, None), journal.note(off, None)), (Noted::Waits, Noted::Waits));
        write(&mut journal);
        assert_eq!(journal.noted(on), Noted::Saved);
        let mut again = open("boot").0;
        assert_eq!(again.was(off), Some("discard"));
        let change = again.changes()[0].clone();
        again.restored(&change);
        write(&mut again);
        assert!(open("boot").0.changes().is_empty());
        write(&mut {
            let mut once_more = open("boot").0;
            once_more.note(on, None);
            once_more
        });
        assert!(open("other").0.changes().is_empty() && !open("boot").0.changes().is_empty());
        fs::write(&path, "{").unwrap();
        let (broken, problem) = open("boot");
        assert!(broken.changes().is_empty() && problem.unwrap().contains("journal.corrupt:"));
        assert_eq!(fs::read_to_string(folder.path().join("journal.corrupt")).unwrap(), "{");
        assert_eq!(open("boot").1, None);
        fs::create_dir_all(folder.path().join("journal/x")).unwrap();
        let problem = open("boot").1.unwrap();
        assert!(problem.contains("not a regular file") && problem.contains("cannot be moved"), "{problem}");
        fs::remove_dir_all(&path).unwrap();
        // A change that could not be noted must not be made.
        let mut failing = open("boot").0;
        failing.note(on, None);
        failing.saved(failing.saving.due(Instant::now()).unwrap(), Err("full".to_owned()));
        assert_eq!((failing.noted(on), failing.was(on)), (Noted::Failed("full".to_owned()), None));
    }

    #[test]
    fn a_change_belongs_to_one_mounting() {
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
            others: None,
            session,
        };
        assert_eq!(session_of(mount), None, "there is no such device");
        assert!(is_of(&change(None), mount, None) && !is_of(&change(Some(7)), mount, None));
        assert!(is_of(&change(Some(7)), mount, Some(7)) && !is_of(&change(Some(7)), mount, Some(8)));
    }
}
