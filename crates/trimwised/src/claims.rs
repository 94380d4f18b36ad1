//! One daemon for each file system, whatever the state and run folders of the daemons are.
//!
//! Two daemons on one file system would each take the other's mount option for the user's. So a daemon locks a small
//! file for each file system that it manages, in a folder of the host's `/run` that does not depend on its arguments. The
//! file's name is the file system's number in mountinfo, which is the same in all mount namespaces; a daemon in a
//! container finds the folder through `--host-root`. A lock on the mount itself would need no folder, but would keep the
//! file system from being unmounted.
//!
//! A lock does not keep its file from being removed, and the next daemon would then make and lock another. So inotify
//! reports what happens in the folder, and a file that is gone is made and locked again at once. If another daemon was
//! faster, the file system is its own.
//!
//! While a mount option is changed, the file holds the old value too: a daemon that was killed may never come back, and
//! the next one can have another state folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FlockOperation, flock, inotify};
use serde::{Deserialize, Serialize};

use crate::journal::Change;
use crate::places::{Places, PlacesError, is_same_file, make_folder, open_own};
use crate::speak::warn;
use trimwise_linux::daemon::DEFAULT_RUN;

/// Time after the start in which a held lock is tried again, in all: a helper that a killed daemon was about to start
/// holds its locks for a moment longer.
const PATIENCE: Duration = Duration::from_secs(1);
const FILE_MAX: usize = 64 << 10;

type Numbers = (u32, u32);

/// Contents of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    boot: String,
    /// The daemon that has the lock, or had it last.
    process: u32,
    origin: Option<Origin>,
}

/// The mount option of one mounting before any daemon changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    Changed(Change),
    /// It was put back, or set by somebody else since. The number is that of [`Change::session`].
    Settled(Option<u64>),
}

#[derive(Debug)]
pub struct Claims {
    /// `None` if no folder can be written.
    folder: Option<PathBuf>,
    /// An inotify instance that reports what is removed in the folder; `None` if it cannot be had.
    watch: Option<OwnedFd>,
    boot: String,
    held: BTreeMap<Numbers, (File, Option<Origin>)>,
    /// Mount points of file systems that other daemons manage, with the reason in words.
    refused: BTreeMap<Numbers, (PathBuf, String)>,
    patient_until: Instant,
}

impl Claims {
    /// Without a folder (`is_dry`) nothing is locked, and no other daemon noticed.
    pub fn new(places: &Places, boot: String, is_dry: bool) -> Self {
        let make = |parent: &Path| {
            let folder = parent.join("file-systems");
            make_both(&folder).map(|()| folder)
        };
        let folder = || {
            make(&places.host.path(DEFAULT_RUN)).or_else(|error| {
                warn(&format!("{error}: other daemons are noticed only if they have the same run folder"));
                make(&places.run)
            })
        };
        let folder = if is_dry { None } else { folder().ok() };
        Self {
            watch: folder.as_deref().and_then(watch),
            folder,
            boot,
            held: BTreeMap::new(),
            refused: BTreeMap::new(),
            patient_until: Instant::now() + PATIENCE,
        }
    }

    /// Returns true if this daemon may manage a file system, and from now on no other one.
    pub fn claim(&mut self, numbers: Numbers, mount_point: &Path) -> bool {
        if self.held.contains_key(&numbers) {
            return true;
        }
        match self.lock(numbers) {
            Ok(Some(file)) => {
                let record = read(&file);
                let origin = record.origin.filter(|_| record.boot == self.boot);
                // The number of the process serves messages only.
                drop(self.write(&file, origin.clone()));
                self.held.insert(numbers, (file, origin));
            }
            Ok(None) => {}
            Err(why) => {
                self.refused.insert(numbers, (mount_point.to_owned(), why));
                return false;
            }
        }
        self.refused.remove(&numbers);
        true
    }

    /// Locks the file of a file system; `None` if it cannot be opened. The error says who has the lock.
    fn lock(&self, (major, minor): Numbers) -> Result<Option<File>, String> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let path = folder.join(format!("{major}:{minor}"));
        let file = match open_own(&path, File::options().read(true).write(true).create(true)) {
            Ok(file) => file,
            Err(error) => {
                warn(&format!("{}: {error}; other daemons on this file system go unnoticed", path.display()));
                return Ok(None);
            }
        };
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= self.patient_until {
                return Err(format!("another trimwised{} manages it", process(read(&file).process)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(file))
    }

    pub fn waits(&self) -> Option<PollFd<'_>> {
        self.watch.as_ref().map(|watch| PollFd::new(watch, PollFlags::IN))
    }

    /// Makes the files that were removed, and locks them again. Returns the file systems that another daemon has locked
    /// since then.
    pub fn defend(&mut self) -> Vec<Numbers> {
        if let Some(watch) = &self.watch {
            while rustix::io::read(watch, &mut [0; 4096][..]).is_ok_and(|read| read > 0) {}
        }
        let Some(folder) = self.folder.clone() else { return Vec::new() };
        let is_gone = |(major, minor): &Numbers, file: &File| {
            let there = std::fs::symlink_metadata(folder.join(format!("{major}:{minor}")));
            !there.is_ok_and(|there| file.metadata().is_ok_and(|held| is_same_file(&held, &there)))
        };
        let gone = self.held.iter().filter(|(numbers, (file, _))| is_gone(numbers, file));
        let gone: Vec<Numbers> = gone.map(|(&numbers, _)| numbers).collect();
        if gone.is_empty() {
            return gone;
        }
        let made = make_both(&folder);
        self.watch = watch(&folder); // the folder may be another one
        let mut lost = Vec::new();
        for (major, minor) in gone {
            let path = folder.join(format!("{major}:{minor}"));
            let path = path.display();
            match made.as_ref().map_err(ToString::to_string).and_then(|()| self.lock((major, minor))) {
                Ok(Some(file)) => {
                    warn(&format!(
                        "{path}: was removed, although it keeps other daemons off; it was made again"
                    ));
                    let origin = self.held.remove(&(major, minor)).and_then(|(_, origin)| origin);
                    drop(self.write(&file, origin.clone()));
                    self.held.insert((major, minor), (file, origin));
                }
                Err(why) if made.is_ok() => {
                    warn(&format!("{path}: was removed, although it keeps other daemons off, and {why} now"));
                    self.held.remove(&(major, minor));
                    lost.push((major, minor));
                }
                Ok(None) => {} // which says so itself
                Err(why) => warn(&format!("{path}: was removed, and cannot be made again ({why})")),
            }
        }
        lost
    }

    /// Returns the file systems that are this daemon's.
    pub fn held(&self) -> impl Iterator<Item = Numbers> {
        self.held.keys().copied()
    }

    pub fn release(&mut self, unused: &[Numbers]) {
        self.held.retain(|numbers, _| !unused.contains(numbers));
    }

    /// Forgets which file systems other daemons manage, before all are claimed again.
    pub fn begin(&mut self) {
        self.refused.clear();
    }

    pub fn refused(&self) -> impl Iterator<Item = &(PathBuf, String)> {
        self.refused.values()
    }

    pub fn why_refused(&self, numbers: Numbers) -> Option<&str> {
        self.refused.get(&numbers).map(|(_, why)| why.as_str())
    }

    /// Tries again where another daemon was. Returns true if one has ended.
    pub fn try_again(&mut self) -> bool {
        let refused: Vec<_> =
            self.refused.iter().map(|(&numbers, (point, _))| (numbers, point.clone())).collect();
        refused.into_iter().filter(|(numbers, point)| self.claim(*numbers, point)).count() > 0
    }

    /// Returns the change that a daemon made to this mounting and nobody put back.
    pub fn changed(&self, numbers: Numbers, session: Option<u64>) -> Option<&Change> {
        match &self.held.get(&numbers)?.1 {
            Some(Origin::Changed(change)) if session.is_some() && change.session == session => Some(change),
            _ => None,
        }
    }

    /// Returns true if a change was settled by another daemon than the one that noted it.
    pub fn is_settled(&self, change: &Change) -> bool {
        let origin = self.held.get(&change.numbers).and_then(|(_, origin)| origin.as_ref());
        change.session.is_some() && origin == Some(&Origin::Settled(change.session))
    }

    /// Notes a change of a file system for other daemons, before it is made.
    pub fn note(&mut self, change: &Change) -> Result<(), String> {
        self.set(change.numbers, Origin::Changed(change.clone()))
    }

    /// Notes that a change is none any more.
    pub fn settle(&mut self, change: &Change) {
        if let Err(why) = self.set(change.numbers, Origin::Settled(change.session)) {
            warn(&why);
        }
    }

    fn set(&mut self, numbers: Numbers, origin: Origin) -> Result<(), String> {
        let Some((file, before)) = self.held.get(&numbers) else { return Ok(()) };
        if before.as_ref() == Some(&origin) {
            return Ok(());
        }
        let written = self.write(file, Some(origin.clone()));
        written.map_err(|error| {
            let folder = self.folder.as_deref().unwrap_or(Path::new(""));
            format!("{}/{}:{}: {error}", folder.display(), numbers.0, numbers.1)
        })?;
        if let Some((_, before)) = self.held.get_mut(&numbers) {
            *before = Some(origin);
        }
        Ok(())
    }

    /// Overwrites a file in one call; what is left of a longer text is not read.
    fn write(&self, file: &File, origin: Option<Origin>) -> std::io::Result<()> {
        let record = Record { boot: self.boot.clone(), process: std::process::id(), origin };
        let text = serde_json::to_vec(&record)?;
        file.write_all_at(&text, 0)?;
        file.set_len(text.len() as u64)
    }
}

/// Makes the folder of the files, and the one above it.
fn make_both(folder: &Path) -> Result<(), PlacesError> {
    folder.parent().map_or(Ok(()), |parent| make_folder(parent, 0o755))?;
    make_folder(folder, 0o700)
}

/// Watches for files that leave a folder; `None` if the kernel has no more inotify instances for this user.
fn watch(folder: &Path) -> Option<OwnedFd> {
    let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
    let leaving = inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVED_FROM
        | inotify::WatchFlags::DELETE_SELF
        | inotify::WatchFlags::MOVE_SELF;
    let watch = inotify::init(flags).ok()?;
    inotify::add_watch(&watch, folder, leaving).ok()?;
    Some(watch)
}

/// Names a daemon's process, unless the number is one of another namespace: a container's.
fn process(id: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    if name.trim_end() == env!("CARGO_PKG_NAME") { format!(" (process {id})") } else { String::new() }
}

/// Reads the contents of a file; those of an empty or damaged one are empty.
fn read(file: &File) -> Record {
    let mut text = vec![0; FILE_MAX];
    let length = file.read_at(&mut text, 0).unwrap_or_default();
    let mut records = serde_json::Deserializer::from_slice(&text[..length]).into_iter();
    records.next().and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise_linux::host_root::HostRoot;

    fn change(was: &str, session: u64) -> Change {
        Change {
            numbers: (8, 1),
            device: "/dev/sda1".to_owned(),
            mount_point: "/srv".into(),
            was: was.to_owned(),
            others: None,
            session: Some(session),
        }
    }

    #[test]
    fn a_file_system_has_one_daemon_and_its_option_one_origin() {
        let folder = tempfile::tempdir().unwrap();
        let claims = |run: &str, boot: &str| {
            let host = HostRoot::new(folder.path());
            let places = Places { run: folder.path().join(run), host, ..Places::default() };
            let mut claims = Claims::new(&places, boot.to_owned(), false);
            claims.patient_until = Instant::now();
            claims
        };
        let srv = Path::new("/srv");
        let mut first = claims("a", "boot");
        assert!(first.claim((8, 1), srv) && first.claim((8, 1), srv));
        first.note(&change("nodiscard", 7)).unwrap();

        let mut second = claims("b", "boot");
        assert!(!second.claim((8, 1), srv) && second.claim((8, 2), srv));
        // The number is left out: under it runs this test, not a daemon.
        assert_eq!(second.why_refused((8, 1)), Some("another trimwised manages it"));
        assert!(!second.try_again());
        drop(first); // killed: its change is not settled
        assert!(second.try_again() && second.refused().next().is_none());
        assert_eq!(second.changed((8, 1), Some(7)), Some(&change("nodiscard", 7)));
        assert_eq!((second.changed((8, 1), Some(8)), second.changed((8, 1), None)), (None, None));
        assert!(!second.is_settled(&change("nodiscard", 7)));
        second.settle(&change("nodiscard", 7));
        drop(second);

        let mut third = claims("c", "boot");
        assert!(third.claim((8, 1), srv));
        assert!(third.is_settled(&change("nodiscard", 7)) && !third.is_settled(&change("nodiscard", 8)));
        third.note(&change("discard", 8)).unwrap();
        third.release(&[(8, 1)]);
        let mut after_boot = claims("d", "another boot");
        assert!(after_boot.claim((8, 1), srv));
        assert_eq!(after_boot.changed((8, 1), Some(8)), None);
    }

    #[test]
    fn a_claim_that_is_removed_is_made_again_unless_another_daemon_was_faster() {
        let folder = tempfile::tempdir().unwrap();
        let claims = |run: &str| {
            let host = HostRoot::new(folder.path());
            let places = Places { run: folder.path().join(run), host, ..Places::default() };
            let mut claims = Claims::new(&places, "boot".to_owned(), false);
            claims.patient_until = Instant::now();
            claims
        };
        let is_told = |claims: &Claims| {
            let soon = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut [claims.waits().unwrap()], Some(&soon)).unwrap() == 1
        };
        let srv = Path::new("/srv");
        let run = folder.path().join("run/trimwise");
        let mut first = claims("a");
        assert!(first.claim((8, 1), srv) && first.claim((8, 2), srv));
        first.note(&change("nodiscard", 7)).unwrap();
        assert!(!is_told(&first) && first.defend().is_empty());
        for removed in [run.join("file-systems/8:1"), run.join("file-systems"), run.clone()] {
            if removed.is_dir() {
                std::fs::remove_dir_all(&removed).unwrap();
            } else {
                std::fs::remove_file(&removed).unwrap();
            }
            assert!(is_told(&first), "{}", removed.display());
            assert_eq!(first.defend(), [], "{}", removed.display());
            assert!(!is_told(&first));
            let mut second = claims("b");
            assert!(!second.claim((8, 1), srv), "{}", removed.display());
            assert_eq!(read(&first.held[&(8, 1)].0).origin, Some(Origin::Changed(change("nodiscard", 7))));
        }
        std::fs::remove_dir_all(&run).unwrap();
        let mut second = claims("b");
        assert!(second.claim((8, 1), srv));
        assert_eq!(first.defend(), [(8, 1)]);
        assert_eq!(first.held().collect::<Vec<_>>(), [(8, 2)]);
        assert!(!first.claim((8, 1), srv) && !second.claim((8, 2), srv));
    }

    #[test]
    fn where_the_hosts_folder_cannot_be_written_the_run_folder_serves() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run"), "in the way").unwrap();
        let host = HostRoot::new(folder.path());
        let places =
            |run: &str| Places { run: folder.path().join(run), host: host.clone(), ..Places::default() };
        let mut claims = Claims::new(&places("own"), "boot".to_owned(), false);
        assert!(claims.claim((8, 1), Path::new("/srv")));
        assert!(folder.path().join("own/file-systems/8:1").exists());
        // A dry run leaves no trace.
        assert!(Claims::new(&places("dry"), "boot".to_owned(), true).claim((8, 1), Path::new("/srv")));
        assert!(!folder.path().join("dry").exists());
        // Without any folder, file systems are managed all the same.
        assert!(Claims::new(&places("run/own"), "boot".to_owned(), false).claim((8, 1), Path::new("/srv")));
    }
}
