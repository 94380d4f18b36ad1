//! Knowledge of trimmed space, kept across restarts of the daemon.
//!
//! XFS keeps no record of trimmed space, and ext4's record is lost when FITRIM's minimum extent changes: without this
//! file, every start would trim all free space again. The data are valid only while the file system stays mounted. That
//! is checked by the boot id and by the inode number of the file system's folder in sysfs (`/sys/fs/xfs/sda1`), which
//! changes with each mount. The mount id of mountinfo does not serve: a mount namespace, such as a hardened service
//! gets at each start, has its own ids, and they are reused.
//!
//! Blocks allocated and freed while no daemon watched are not seen. They are no more than the bytes written to the
//! device meanwhile, which the kernel counts. If that exceeds `UNSEEN_MAX_PERCENT` of the file system, the data are
//! discarded. Otherwise they expire on the same day as without the restart.

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
use trimwise_linux::layout::Kind;

const VERSION: u32 = 1;
/// Maximum number of extents in the file, of all file systems together: 2 MiB of text.
const SPANS_ALL: usize = 4 * SPANS_MAX;
const FILE_MAX: u64 = 8 << 20;
/// Share of a file system, in percent, that may be written unseen before its data are discarded. A twentieth that stays
/// untrimmed for a week is less than what `judicious` leaves.
const UNSEEN_MAX_PERCENT: u64 = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Major and minor number of the file system's device.
    pub numbers: (u32, u32),
    /// State of the file system when the record was made.
    #[serde(flatten)]
    pub then: Present,
    /// Seconds after which all knowledge expires.
    pub forget_in_s: u64,
    /// Bytes that may have been freed unseen.
    pub unseen: u64,
    /// Start and end of each trimmed extent, in bytes, ascending.
    pub trimmed: Vec<(u64, u64)>,
    /// The parts of them that were sent, and may not have been taken.
    #[serde(default)]
    pub unverified: Vec<(u64, u64)>,
    /// True if discards failed since it was mounted.
    #[serde(default)]
    pub failed_before: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    trimwised_known: u32,
    boot: String,
    file_systems: Vec<Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// Identifies the mounting: see the head of this file.
    pub session: u64,
    pub total: u64,
    /// Bytes written to the file system's device so far.
    pub written: u64,
    /// Time of the observation, in seconds since boot.
    pub at_s: u64,
}

/// Returns the identity of a mounting: see the head of this file. `None` if the kernel does not report it.
pub(crate) fn session(kind: Kind, device: &BlockDevice) -> Option<u64> {
    let folder = match kind {
        Kind::Ext4 => Path::new("/sys/fs/ext4").join(&device.name),
        Kind::Xfs => Path::new("/sys/fs/xfs").join(&device.name),
        Kind::Btrfs => btrfs_directory(device)?,
        // Among others only f2fs has such a folder.
        Kind::Other => Path::new("/sys/fs/f2fs").join(&device.name),
    };
    Some(fs::metadata(folder).ok()?.ino())
}

/// Returns the identities of all mountings of ext4, XFS, btrfs and f2fs in the kernel.
pub(crate) fn sessions() -> BTreeSet<u64> {
    let folders = ["/sys/fs/ext4", "/sys/fs/xfs", "/sys/fs/btrfs", "/sys/fs/f2fs"];
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    entries.filter_map(|entry| Some(fs::metadata(entry.path()).ok()?.ino())).collect()
}

/// Parses a file written during this boot.
pub fn parse(text: &str, boot: &str) -> Result<Vec<Kept>, String> {
    let written: Written =
        serde_json::from_str(text).map_err(|error| format!("cannot be parsed ({error})"))?;
    if written.trimwised_known != VERSION {
        return Err(format!("has version {}; expected {VERSION}", written.trimwised_known));
    }
    if written.boot != boot {
        return Err("is from another boot".to_owned());
    }
    for kept in &written.file_systems {
        let is_sound = |spans: &[(u64, u64)]| {
            let within = spans.iter().all(|&(start, end)| start < end && end <= kept.then.total);
            let ascending = spans.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            within && ascending && spans.len() <= SPANS_MAX
        };
        if !is_sound(&kept.trimmed) || !is_sound(&kept.unverified) {
            return Err("has impossible extents".to_owned());
        }
    }
    Ok(written.file_systems)
}

impl Kept {
    /// Returns the part of the record that can still be trusted. The error says why nothing can.
    pub fn believed(self, now: Present) -> Result<Known, String> {
        let age = now.at_s.checked_sub(self.then.at_s).ok_or("it is from the future")?;
        let forget_in = self.forget_in_s.checked_sub(age).ok_or("it is too old")?;
        if self.then.session != now.session {
            return Err("it was unmounted and mounted again since".to_owned());
        }
        if self.then.total != now.total {
            return Err("it was resized since".to_owned());
        }
        let unseen = now.written.checked_sub(self.then.written).ok_or("its device's counters were reset")?;
        if unseen > now.total / 100 * UNSEEN_MAX_PERCENT {
            return Err(format!("{} were written to it since that was recorded", Bytes(unseen)));
        }
        Ok(Known {
            trimmed: spans(&self.trimmed),
            unverified: spans(&self.unverified),
            forget_in: SimDuration::from_secs(forget_in),
            unseen: Bytes(self.unseen.saturating_add(unseen)),
        })
    }

    /// Returns true if discards failed on the present mounting: what its file system believes since then is as old as
    /// that.
    pub(crate) fn failed_before(&self, session: Option<u64>) -> bool {
        self.failed_before && session == Some(self.then.session)
    }

    pub(crate) fn new(device: (u32, u32), now: Present, known: Known, failed_before: bool) -> Self {
        // One invalid extent would invalidate the whole file.
        let valid =
            |spans: &[Span]| numbers(spans).into_iter().filter(|&(_, end)| end <= now.total).collect();
        Self {
            numbers: device,
            then: now,
            forget_in_s: known.forget_in.as_nanos() / 1_000_000_000,
            unseen: known.unseen.0,
            failed_before,
            trimmed: valid(&known.trimmed),
            unverified: valid(&known.unverified),
        }
    }
}

fn spans(numbers: &[(u64, u64)]) -> Vec<Span> {
    numbers.iter().map(|&(start, end)| Span { start, end }).collect()
}

/// Reads the last daemon's knowledge. Invalid data are ignored.
pub(crate) fn read(path: &Path, boot: &str) -> Loaded<Vec<Kept>> {
    let invalid = |why: String| format!("{} {why}, and is ignored", path.display());
    Loaded::read(path, FILE_MAX, |text| parse(text, boot), invalid)
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: BTreeMap<(u32, u32), Kept>,
    hash: u64,
    text: String,
    pub saving: Saving,
}

impl Store {
    pub fn load(&mut self, kept: Vec<Kept>) {
        // This daemon's own knowledge is newer.
        for one in kept {
            self.kept.entry(one.numbers).or_insert(one);
        }
        self.saving.begin();
    }

    /// Removes and returns the record of a file system. It can be used only once, since it becomes outdated.
    pub fn take(&mut self, device: (u32, u32)) -> Option<Kept> {
        self.kept.remove(&device)
    }

    /// Keeps the record of a mounted file system that is no longer managed, in case it is managed again.
    pub fn keep(&mut self, kept: Kept) {
        self.kept.insert(kept.numbers, kept);
    }

    pub fn write(&mut self, mut file_systems: Vec<Kept>, boot: &str) {
        // For file systems that this daemon has not reached yet, keep what the last one knew.
        file_systems.extend(self.kept.values().cloned());
        let share = SPANS_ALL / file_systems.len().max(1);
        for one in &mut file_systems {
            if one.trimmed.len() > share {
                let mut longest = spans(&one.trimmed);
                keep_longest(&mut longest, share);
                one.trimmed = numbers(&longest);
            }
            // Rather than forgetting a doubt, doubt all of it.
            if one.unverified.len() > share {
                one.unverified.clone_from(&one.trimmed);
            }
        }
        let mut hasher = DefaultHasher::new();
        for one in &file_systems {
            (one.numbers, one.then.session, one.then.written).hash(&mut hasher);
            (&one.trimmed, &one.unverified, one.failed_before).hash(&mut hasher);
        }
        if hasher.finish() == self.hash {
            return;
        }
        let written = Written { trimwised_known: VERSION, boot: boot.to_owned(), file_systems };
        self.text = serde_json::to_string(&written).unwrap_or_default();
        self.hash = hasher.finish();
        self.saving.changed();
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Records the result of writing this version, and frees the text once it is saved.
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
            unverified: vec![span(8192, 1 << 16)],
            forget_in: SimDuration::from_secs(1000),
            unseen: Bytes(5),
        }
    }

    #[test]
    fn kept_data_are_read_again_and_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        let (mut store, problem) = opened(&path);
        assert_eq!((problem, store.take((8, 1))), (None, None));
        write(&mut store, &path, vec![Kept::new((8, 1), NOW, known(), false)]);
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
    fn failed_discards_are_remembered_as_long_as_it_stays_mounted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        let mut store = opened(&path).0;
        write(&mut store, &path, vec![Kept::new((8, 1), NOW, known(), false)]);
        assert!(!opened(&path).0.take((8, 1)).unwrap().failed_before(Some(7)));
        write(&mut store, &path, vec![Kept::new((8, 1), NOW, known(), true)]);
        let kept = opened(&path).0.take((8, 1)).unwrap();
        for (session, expected) in [(Some(7), true), (Some(8), false), (None, false)] {
            assert_eq!(kept.failed_before(session), expected, "{session:?}");
        }
        // Written by a version that did not know of it.
        let old = fs::read_to_string(&path).unwrap().replace(",\"failed_before\":true", "");
        assert!(!parse(&old, BOOT).unwrap()[0].failed_before);
    }

    #[test]
    fn other_extents_are_written_even_if_nothing_was_written_to_the_device() {
        let mut store = Store::default();
        store.write(vec![Kept::new((8, 1), NOW, known(), false)], BOOT);
        let before = store.text().to_owned();
        let aged = Known { forget_in: SimDuration::from_secs(900), ..known() };
        store.write(vec![Kept::new((8, 1), Present { at_s: 5100, ..NOW }, aged, false)], BOOT);
        assert_eq!(store.text(), before, "only the age differs");
        let more = Known { trimmed: vec![Span { start: 0, end: 8192 }], ..known() };
        store.write(vec![Kept::new((8, 1), NOW, more, false)], BOOT);
        assert!(store.text().contains("\"trimmed\":[[0,8192]]"), "{}", store.text());
    }

    #[test]
    fn nothing_is_trusted_after_a_break() {
        let why = |now: Present| Kept::new((8, 1), NOW, known(), false).believed(now).unwrap_err();
        assert!(why(Present { session: 8, ..NOW }).contains("mounted again"));
        assert!(why(Present { total: 1 << 31, ..NOW }).contains("resized"));
        assert!(why(Present { at_s: 6001, ..NOW }).contains("too old"));
        assert!(why(Present { at_s: 4999, ..NOW }).contains("future"));
        assert!(why(Present { written: 0, ..NOW }).contains("counters were reset"));
        assert!(why(Present { written: NOW.written + (64 << 20), ..NOW }).contains("64 MiB were written"));
    }

    #[test]
    fn an_invalid_file_is_ignored_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known.json");
        write(&mut opened(&path).0, &path, vec![Kept::new((8, 1), NOW, known(), false)]);
        let sound = fs::read_to_string(&path).unwrap();
        for (text, words) in [
            (String::new(), "cannot be parsed"),
            (sound[..sound.len() / 2].to_owned(), "cannot be parsed"),
            (sound.replace("known\":1", "known\":2"), "has version 2; expected 1"),
            (sound.replace(BOOT, "another"), "is from another boot"),
            (sound.replace("[0,4096]", "[0,9000]"), "impossible extents"),
            (sound.replace("[0,4096]", "[0,0]"), "impossible extents"),
            (sound.replace("1048576", "2147483648"), "impossible extents"),
            (sound.replace("[8192,65536]", "[8192,8192]"), "impossible extents"),
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
        let all = (0..8).map(|minor| Kept::new((8, minor), NOW, many.clone(), false)).collect();
        write(&mut opened(&path).0, &path, all);
        let kept = opened(&path).0.take((8, 3)).unwrap();
        assert_eq!(kept.trimmed.len(), SPANS_ALL / 8);
        assert!(kept.trimmed.iter().all(|(start, end)| end - start >= 5));
        assert_eq!(kept.unverified, [(8192, 1 << 16)]);
        many.unverified = many.trimmed.clone();
        let all = (0..8).map(|minor| Kept::new((8, minor), NOW, many.clone(), false)).collect();
        write(&mut opened(&path).0, &path, all);
        let kept = opened(&path).0.take((8, 3)).unwrap();
        assert_eq!(kept.unverified, kept.trimmed, "no doubt is forgotten");
    }
}
