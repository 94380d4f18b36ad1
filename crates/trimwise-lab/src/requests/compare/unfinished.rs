//! Keeps finished runs on kernels until a command has completed all of its runs, so that a command that was killed or
//! interrupted, or one of whose guests failed, can be continued.
//!
//! A folder in the user's cache has a folder for each combination of drives, workload and kernel. A finished run is a
//! file there ([`Kept`]), named after everything that its result depends on. A command that completes all its runs
//! removes its folder, so the same command starts afresh the next time. Folders that are not used again are removed
//! after a month.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use trimwise::failure::Failure;
use trimwise::numbers::counted;
use trimwise_linux::kept::{self, Kept};

use trimwise_study::caller::Caller;

/// How long finished runs are kept.
const KEPT_FOR: Duration = Duration::from_secs(30 * 86_400);

pub struct Unfinished {
    /// `None` if there is nowhere to keep them.
    folder: Option<PathBuf>,
    /// Whether the caller was told that earlier runs are used.
    is_found: AtomicBool,
    /// Whether the caller was told that runs cannot be kept.
    is_refused: AtomicBool,
    /// Number of runs kept.
    count: AtomicU64,
}

impl Unfinished {
    /// Opens the folder, in the user's cache, of commands about `what`.
    pub fn of_user(what: &impl Debug) -> Self {
        let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        Self::at(cache.map(|cache| cache.join("trimwise/runs")).as_deref(), what)
    }

    /// Opens the folder of commands about `what` below `all`, and removes expired folders there.
    fn at(all: Option<&Path>, what: &impl Debug) -> Self {
        let name = kept::hash(format!("{what:?}").as_bytes());
        for entry in all.and_then(|all| fs::read_dir(all).ok()).into_iter().flatten().flatten() {
            let is_ours = entry.file_name().to_str().is_some_and(|entry| entry.len() == name.len());
            let modified = entry.metadata().and_then(|meta| meta.modified());
            let age = modified.ok().and_then(|then| SystemTime::now().duration_since(then).ok());
            if is_ours && age.is_some_and(|age| age > KEPT_FOR) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
        Self {
            folder: all.map(|all| all.join(name)),
            is_found: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            count: AtomicU64::new(0),
        }
    }

    /// Returns a run of an earlier command; `cell` contains everything that its result depends on.
    pub fn look<T: DeserializeOwned>(&self, caller: &dyn Caller, cell: &str) -> Option<T> {
        let folder = self.folder.as_ref().filter(|folder| folder.is_dir())?;
        let found = Kept::open(folder).and_then(|kept| kept.look(cell)).ok().flatten()?;
        if !self.is_found.swap(true, Ordering::Relaxed) {
            caller.note("continuing where an earlier command stopped: its finished runs are not repeated");
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Keeps a finished run. If that fails, the command still works, but cannot be continued later.
    pub fn enter(&self, caller: &dyn Caller, cell: &str, result: &impl Serialize) {
        let Some(folder) = &self.folder else { return };
        let entered = Kept::open(folder).and_then(|kept| kept.enter(cell, result));
        self.count.fetch_add(u64::from(entered.is_ok()), Ordering::Relaxed);
        if let Err(why) = entered.map_err(Failure::unasked)
            && !self.is_refused.swap(true, Ordering::Relaxed)
        {
            caller.note(&format!("finished runs cannot be kept and are lost if this command stops: {why}"));
        }
    }

    /// Ends a command: removes its runs if it has all of them, and otherwise says how to continue.
    pub fn end(&self, caller: &dyn Caller, has_all: bool) {
        let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_dir()) else { return };
        if has_all {
            drop(fs::remove_dir_all(folder));
        } else if !self.is_refused.load(Ordering::Relaxed) {
            let count = self.count.load(Ordering::Relaxed);
            let (runs, are) = (counted(count, "finished run"), if count == 1 { "is" } else { "are" });
            caller.note(&format!("{runs} {are} kept for a month; run the same command again to continue"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise_study::caller::Silent;

    #[test]
    fn a_run_is_found_by_the_same_key_until_its_command_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("runs");
        let open = |what: &str| Unfinished::at(Some(&all), &what);
        let first = open("a");
        assert!(first.look::<u64>(&Silent::default(), "off 0").is_none());
        first.enter(&Silent::default(), "off 0", &7);
        assert_eq!(open("a").look::<u64>(&Silent::default(), "off 0"), Some(7));
        assert!(open("a").look::<u64>(&Silent::default(), "off 1").is_none());
        assert!(open("b").look::<u64>(&Silent::default(), "off 0").is_none());
        open("a").end(&Silent::default(), false);
        assert!(open("a").look::<u64>(&Silent::default(), "off 0").is_some());
        open("a").end(&Silent::default(), true);
        assert!(open("a").look::<u64>(&Silent::default(), "off 0").is_none());
        assert_eq!(fs::read_dir(&all).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_kept_does_not_stop_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let unfinished = Unfinished::at(Some(&file), &"a");
        unfinished.enter(&Silent::default(), "off 0", &7);
        assert!(unfinished.is_refused.load(Ordering::Relaxed));
        assert!(unfinished.look::<u64>(&Silent::default(), "off 0").is_none());
    }
}
