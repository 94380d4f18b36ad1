//! Where a host's own files are: `/`, or a folder that a container has it mounted on, or a made-up one in a test.

use std::fs;
use std::path::{Path, PathBuf};

/// A folder that stands for `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot(PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self::new("/")
    }
}

impl HostRoot {
    /// The host whose `/` is at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where a path of the host is. `..` stays inside.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        use std::path::Component::{CurDir, Normal, ParentDir, Prefix, RootDir};
        let mut inside = self.0.clone();
        for part in path.as_ref().components() {
            match part {
                Normal(name) => inside.push(name),
                ParentDir | CurDir | RootDir | Prefix(_) => {}
            }
        }
        inside
    }

    /// A small text file without blanks at its ends; `None` if there is none.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read(self.path(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Whether there is such a file, folder, or link (which may lead anywhere).
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        fs::symlink_metadata(self.path(path)).is_ok()
    }

    /// Whether this is the host that this process sees itself.
    pub fn is_own(&self) -> bool {
        self.0 == Path::new("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        let root = HostRoot::new("/host");
        assert_eq!(root.path("/etc/fstab"), Path::new("/host/etc/fstab"));
        assert_eq!(root.path("../../etc/./x"), Path::new("/host/etc/x"));
        assert_eq!(HostRoot::default().path("/proc/1"), Path::new("/proc/1"));
    }
}
