//! What is known to be trimmed, kept over a restart of the daemon.
//!
//! XFS keeps no record of what was trimmed, and ext4's is lost where FITRIM's least extent changes: without this every start
//! would send all free space once more. What is kept holds only while the file system is mounted without a break. That is
//! told by the boot id and by the inode number of the file system's folder in sysfs (`/sys/fs/xfs/sda1`), which the kernel
//! gives out anew with each mount. Not by the mount id of mountinfo: a mount namespace, as each start of a hardened service
//! gets one, has ids of its own, and they are given out again.
//!
//! What was allocated and freed while no daemon watched is not seen. It is no more than what was written to the device
//! meanwhile, which the kernel counts: of more than `UNSEEN_MAX_PERCENT` of the file system nothing is believed, and what is
//! believed is forgotten on the day on which it would have been without the restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trimwise::live::{Known, SPANS_MAX, keep_longest};
use trimwise::units::{Bytes, SimDuration, Span};

use crate::helper::numbers;
use crate::saving::{Loaded, Saving};
use trimwise_linux::block_device::{BlockDevice, btrfs_directory};
use trimwise_linux::files::{Unread, read_own};
use trimwise_linux::layout::Kind;

/// Version of the file.
const VERSION: u32 = 1;
/// Extents in the file, of all file systems together: 2 MiB of text.
const SPANS_ALL: usize = 4 * SPANS_MAX;
/// A file that is longer is none of ours.
const FILE_MAX: u64 = 8 << 20;
/// Of so much of a file system written unseen, nothing is believed: a twentieth that stays untrimmed for a week is less than
/// what `judicious` leaves.
const UNSEEN_MAX_PERCENT: u64 = 5;

/// One file system, as it was when it was written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Major and minor number of its device.
    pub numbers: (u32, u32),
    /// Which mount of it that was: see the head of this file.
    pub session: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Bytes that had been written to its device.
    pub written: u64,
    /// When, in seconds since the boot.
    pub at_s: u64,
    /// So many seconds later all of it is forgotten.
    pub forget_in_s: u64,
    /// Bytes that may have been freed unseen.
    pub unseen: u64,
    /// Start and end of what was trimmed, in bytes, ascending.
    pub trimmed: Vec<(u64, u64)>,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    trimwised_known: u32,
    boot: String,
    file_systems: Vec<Kept>,
}

/// How a mounted file system is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// Which mount of it this is.
    pub session: u64,
    /// Its size in bytes.
    pub total: u64,
    /// Bytes that have been written to its device.
    pub written: u64,
    /// Seconds since the boot.
    pub at_s: u64,
}

/// Which mounting of a file system this is: see the head of this file. `None` if the kernel does not tell.
pub fn session(kind: Kind, device: &BlockDevice) -> Option<u64> {
    let folder = match kind {
        Kind::Ext4 => Path::new("/sys/fs/ext4").join(&device.name),
        Kind::Xfs => Path::new("/sys/fs/xfs").join(&device.name),
        Kind::Btrfs => btrfs_directory(device)?,
        Kind::Other => return None,
    };
    Some(fs::metadata(folder).ok()?.ino())
}

/// All mountings of these file systems that the kernel has.
pub fn sessions() -> BTreeSet<u64> {
    let folders = ["/sys/fs/ext4", "/sys/fs/xfs", "/sys/fs/btrfs"];
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    entries.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.ino())).collect()
}

/// Reads the text of a file: what this boot's daemons kept.
///
/// # Errors
/// Why nothing of it can be believed.
pub fn parse(text: &str, boot: &str) -> Result<Vec<Kept>, String> {
    let written: Written =
        serde_json::from_str(text).map_err(|error| format!("is not understood ({error})"))?;
    if written.trimwised_known != VERSION {
        return Err(format!("has version {}; expected {VERSION}", written.trimwised_known));
    }
    if written.boot != boot {
        return Err("is of another boot".to_owned());
    }
    for kept in &written.file_systems {
        let within = kept.trimmed.iter().all(|&(start, end)| start < end && end <= kept.total);
        let ascending = kept.trimmed.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !within || !ascending || kept.trimmed.len() > SPANS_MAX {
            return Err("has extents that cannot be".to_owned());
        }
    }
    Ok(written.file_systems)
}

impl Kept {
    /// What of it may be believed.
    ///
    /// # Errors
    /// Why nothing.
    pub fn believed(self, now: Present) -> Result<Known, String> {
        let age = now.at_s.checked_sub(self.at_s).ok_or("it is from the future")?;
        let forget_in = self.forget_in_s.checked_sub(age).ok_or("it is too old")?;
        if self.session != now.session {
            return Err("it was unmounted and mounted again meanwhile".to_owned());
        }
        if self.total != now.total {
            return Err("it was resized meanwhile".to_owned());
        }
        let unseen = now.written.checked_sub(self.written).ok_or("its device counts anew")?;
        if unseen > now.total / 100 * UNSEEN_MAX_PERCENT {
            return Err(format!("{} were written to it since that was noted", Bytes(unseen)));
        }
        Ok(Known {
            trimmed: self.trimmed.into_iter().map(|(start, end)| Span { start, end }).collect(),
            forget_in: SimDuration::from_secs(forget_in),
            unseen: Bytes(self.unseen.saturating_add(unseen)),
        })
    }

    /// What is known of a file system, to be written down.
    pub fn new(device: (u32, u32), now: Present, known: Known) -> Self {
        Self {
            numbers: device,
            session: now.session,
            total: now.total,
            written: now.written,
            at_s: now.at_s,
            forget_in_s: known.forget_in.as_nanos() / 1_000_000_000,
            unseen: known.unseen.0,
            // Unsound extents would make the whole file unsound.
            trimmed: numbers(&known.trimmed).into_iter().filter(|&(_, end)| end <= now.total).collect(),
        }
    }
}

/// Reads what the last daemon kept. What cannot be believed is passed over.
pub fn read(path: &Path, boot: &str) -> Loaded<Vec<Kept>> {
    let read = read_own(path, FILE_MAX)
        .and_then(|text| text.map_or(Ok(Vec::new()), |text| parse(&text, boot).map_err(Unread::Wrong)));
    Loaded::from(path, read, |kept| kept)
        .or_nothing(|why| format!("{} {why}, and is passed over", path.display()))
}

/// What the last daemon knew, and how far what this one knows is written.
#[derive(Debug, Default)]
pub struct Store {
    kept: BTreeMap<(u32, u32), Kept>,
    /// Of what was written last.
    hash: u64,
    /// The text of the file, as it is wanted.
    text: String,
    /// How far it is written.
    pub saving: Saving,
}

impl Store {
    /// Takes what the last daemon kept.
    pub fn load(&mut self, kept: Vec<Kept>) {
        // What this one has learned meanwhile is newer.
        for one in kept {
            self.kept.entry(one.numbers).or_insert(one);
        }
        self.saving.begin();
    }

    /// What was kept of a file system. Once only: from then on its own daemon knows better.
    pub fn take(&mut self, device: (u32, u32)) -> Option<Kept> {
        self.kept.remove(&device)
    }

    /// Notes what is known of a file system that is mounted and not managed any more: it may be again.
    pub fn keep(&mut self, kept: Kept) {
        self.kept.insert(kept.numbers, kept);
    }

    /// Has what is known now written, if that is something else than before.
    pub fn write(&mut self, mut file_systems: Vec<Kept>, boot: &str) {
        // Of those that this daemon has not come to yet, what the last one knew.
        file_systems.extend(self.kept.values().cloned());
        let share = SPANS_ALL / file_systems.len().max(1);
        for one in &mut file_systems {
            if one.trimmed.len() > share {
                let mut spans = one.trimmed.iter().map(|&(start, end)| Span { start, end }).collect();
                keep_longest(&mut spans, share);
                one.trimmed = numbers(&spans);
            }
        }
        let mut hasher = DefaultHasher::new();
        for one in &file_systems {
            (one.numbers, one.session, one.written, &one.trimmed).hash(&mut hasher);
        }
        if hasher.finish() == self.hash {
            return;
        }
        let written = Written { trimwised_known: VERSION, boot: boot.to_owned(), file_systems };
        self.text = serde_json::to_string(&written).unwrap_or_default();
        self.hash = hasher.finish();
        self.saving.changed();
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// It was written in this version, or could not be. The text is not kept for nothing.
    pub fn saved(&mut self, version: u64, result: Result<(), String>) {
        self.saving.done(version, result);
        if self.saving.is_saved() {
            self.text = String::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Present = Present { session: 7, total: 1 << 30, written: 1 << 40, at_s: 5000 };

    const BOOT: &str = "this boot";

    fn opened(path: &Path) -> (Store, Option<String>) {
        let loaded = read(path, BOOT);
        let mut store = Store::default();
        store.load(loaded.value.unwrap());
        (store, loaded.problem)
    }

    fn write(store: &mut Store, path: &Path, kept: Vec<Kept>) {
        store.write(kept, BOOT);
        fs::write(path, store.text()).unwrap();
    }

    fn known() -> Known {
        let span = |start, end| Span { start, end };
        Known {
            trimmed: vec![span(0, 4096), span(8192, 1 << 20)],
            forget_in: SimDuration::from_secs(1000),
            unseen: Bytes(5),
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        let (mut store, problem) = opened(&path);
        assert_eq!((problem, store.take((8, 1))), (None, None));
        write(&mut store, &path, vec![Kept::new((8, 1), NOW, known())]);
        let (mut again, problem) = opened(&path);
        assert_eq!(problem, None);
        let kept = again.take((8, 1)).unwrap();
        assert_eq!(again.take((8, 1)), None);
        let later = Present { at_s: 5400, written: NOW.written + 1000, ..NOW };
        let believed = kept.believed(later).unwrap();
        assert_eq!(
            believed,
            Known { forget_in: SimDuration::from_secs(600), unseen: Bytes(1005), ..known() }
        );
    }

    #[test]
    fn nothing_is_believed_behind_a_break() {
        let why = |now: Present| Kept::new((8, 1), NOW, known()).believed(now).unwrap_err();
        assert!(why(Present { session: 8, ..NOW }).contains("mounted again"));
        assert!(why(Present { total: 1 << 31, ..NOW }).contains("resized"));
        assert!(why(Present { at_s: 6001, ..NOW }).contains("too old"));
        assert!(why(Present { at_s: 4999, ..NOW }).contains("future"));
        assert!(why(Present { written: 0, ..NOW }).contains("counts anew"));
        assert!(why(Present { written: NOW.written + (64 << 20), ..NOW }).contains("64 MiB were written"));
    }

    #[test]
    fn a_file_that_cannot_be_believed_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        write(&mut opened(&path).0, &path, vec![Kept::new((8, 1), NOW, known())]);
        let sound = fs::read_to_string(&path).unwrap();
        for (text, words) in [
            (String::new(), "is not understood"),
            (sound[..sound.len() / 2].to_owned(), "is not understood"),
            (sound.replace("known\":1", "known\":2"), "has version 2; expected 1"),
            (sound.replace(BOOT, "another"), "is of another boot"),
            (sound.replace("[0,4096]", "[0,9000]"), "extents that cannot be"),
            (sound.replace("[0,4096]", "[0,0]"), "extents that cannot be"),
            (sound.replace("1048576", "2147483648"), "extents that cannot be"),
        ] {
            fs::write(&path, &text).unwrap();
            let (mut store, problem) = opened(&path);
            assert!(problem.as_ref().is_some_and(|said| said.contains(words)), "{words}: {problem:?}");
            assert_eq!(store.take((8, 1)), None, "{words}");
        }
        fs::write(&path, vec![b' '; FILE_MAX as usize + 1]).unwrap();
        assert!(opened(&path).1.unwrap().contains("longer than 8 MiB"));
    }

    #[test]
    fn of_many_extents_the_longest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        let mut many = known();
        many.trimmed =
            (0..SPANS_MAX as u64).map(|i| Span { start: i * 10, end: i * 10 + 1 + i % 8 }).collect();
        let all = (0..8).map(|minor| Kept::new((8, minor), NOW, many.clone())).collect();
        write(&mut opened(&path).0, &path, all);
        let kept = opened(&path).0.take((8, 3)).unwrap();
        assert_eq!(kept.trimmed.len(), SPANS_ALL / 8);
        assert!(kept.trimmed.iter().all(|(start, end)| end - start >= 5));
    }
}
