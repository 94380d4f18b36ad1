//! Which file systems a user paused. That outlives a daemon, whether it is restarted or crashes, and ends with the boot.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::journal::boot_id;
use trimwise_linux::files::{read_at_most, replace};

/// More is no list of mount points.
const FILE_MAX: u64 = 1 << 20;

/// Mount points that are paused.
#[derive(Debug)]
pub struct Paused {
    path: PathBuf,
    boot: String,
    points: BTreeSet<PathBuf>,
}

/// What is in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    boot: String,
    mount_points: BTreeSet<PathBuf>,
}

impl Paused {
    /// Reads what was paused in this boot; if the file cannot be understood, also why, as a sentence without a full stop.
    pub fn open(path: PathBuf) -> (Self, Option<String>) {
        let boot = boot_id();
        let read = read_at_most(&path, FILE_MAX).and_then(|text| match text {
            Some(text) => serde_json::from_str::<Written>(&text)
                .map(Some)
                .map_err(|e| format!("is not understood ({e})")),
            None => Ok(None),
        });
        let (points, problem) = match read {
            Ok(written) => {
                (written.filter(|written| written.boot == boot).map(|written| written.mount_points), None)
            }
            Err(why) => (None, Some(format!("{} {why}: nothing is paused", path.display()))),
        };
        (Self { path, boot, points: points.unwrap_or_default() }, problem)
    }

    /// Whether this one is.
    pub fn contains(&self, point: &Path) -> bool {
        self.points.contains(point)
    }

    /// Notes that one is paused, or is not any more; answers whether that is news.
    pub fn set(&mut self, point: &Path, paused: bool) -> bool {
        if paused { self.points.insert(point.to_owned()) } else { self.points.remove(point) }
    }

    /// Nothing is paused any more.
    pub fn clear(&mut self) {
        self.points.clear();
    }

    /// Writes it down for the next daemon.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self) -> io::Result<()> {
        let written = Written { boot: self.boot.clone(), mount_points: self.points.clone() };
        replace(&self.path, &serde_json::to_string(&written).map_err(io::Error::other)?, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_pause_is_one_of_this_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("paused.json");
        let mut paused = Paused::open(path.clone()).0;
        assert!(paused.set(Path::new("/home"), true) && !paused.set(Path::new("/home"), true));
        assert!(paused.set(Path::new("/srv"), true) && paused.set(Path::new("/srv"), false));
        paused.write().unwrap();
        let again = Paused::open(path.clone()).0;
        assert!(again.contains(Path::new("/home")) && !again.contains(Path::new("/srv")));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&paused.boot, "other")).unwrap();
        let (other, problem) = Paused::open(path.clone());
        assert!(!other.contains(Path::new("/home")) && problem.is_none());
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        let (broken, problem) = Paused::open(path);
        assert!(!broken.contains(Path::new("/home")) && problem.unwrap().contains("is not understood"));
    }
}
