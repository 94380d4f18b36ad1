//! File systems that a user paused. A pause survives a restart or crash of the daemon, and ends with a reboot.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::saving::{Loaded, Saving};

const FILE_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
pub struct Paused {
    points: BTreeSet<PathBuf>,
    pub saving: Saving,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    boot: String,
    mount_points: BTreeSet<PathBuf>,
}

/// Reads the mount points paused since boot. If the file cannot be parsed, none is paused.
pub fn read(path: &Path, boot: &str) -> Loaded<BTreeSet<PathBuf>> {
    let parse = |text: &str| {
        let written: Written =
            serde_json::from_str(text).map_err(|error| format!("cannot be parsed ({error})"))?;
        Ok(if written.boot == boot { written.mount_points } else { BTreeSet::new() })
    };
    Loaded::read(path, FILE_MAX, parse, |why| format!("{} {why}: nothing is paused", path.display()))
}

impl Paused {
    pub fn load(&mut self, points: BTreeSet<PathBuf>) {
        self.points.extend(points);
        self.saving.begin();
    }

    pub fn contains(&self, point: &Path) -> bool {
        self.points.contains(point)
    }

    /// Pauses or resumes a mount point. Returns true if that is a change.
    pub fn set(&mut self, point: &Path, paused: bool) -> bool {
        if paused { self.points.insert(point.to_owned()) } else { self.points.remove(point) }
    }

    pub fn clear(&mut self) {
        self.points.clear();
    }

    pub fn text(&self, boot: &str) -> String {
        let written = Written { boot: boot.to_owned(), mount_points: self.points.clone() };
        serde_json::to_string(&written).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_pause_ends_with_the_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("paused.json");
        let open = |boot: &str| {
            let loaded = read(&path, boot);
            let mut paused = Paused::default();
            paused.load(loaded.value.unwrap());
            (paused, loaded.problem)
        };
        let mut paused = open("boot").0;
        assert!(paused.set(Path::new("/home"), true) && !paused.set(Path::new("/home"), true));
        assert!(paused.set(Path::new("/srv"), true) && paused.set(Path::new("/srv"), false));
        let text = paused.text("boot");
        fs::write(&path, &text).unwrap();
        let again = open("boot").0;
        assert!(again.contains(Path::new("/home")) && !again.contains(Path::new("/srv")));
        let (other, problem) = open("other");
        assert!(!other.contains(Path::new("/home")) && problem.is_none());
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        let (broken, problem) = open("boot");
        assert!(!broken.contains(Path::new("/home")) && problem.unwrap().contains("cannot be parsed"));
    }
}
