//! Locates a host's own files: at `/`, in a folder where a container has it mounted, or in a fake host of a test.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

/// A folder that serves as `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoot(PathBuf);

impl Default for HostRoot {
    fn default() -> Self {
        Self::new("/")
    }
}

impl HostRoot {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the location of a path of the host. `..` stays inside.
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

    /// Reads a small text file and trims it; `None` if it does not exist. Links are resolved inside the host.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.whole_text(path)?.trim().to_owned())
    }

    /// Reads a small text file as it is; `None` if it does not exist. Links are resolved inside the host.
    pub fn whole_text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut bytes = Vec::new();
        File::from(self.open_inside(path.as_ref(), OFlags::RDONLY).ok()?).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the names in a folder, sorted, without those that are not UTF-8; none if there is no such folder. Links
    /// are resolved inside the host.
    pub(crate) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let folder = self.resolved(folder).map(|folder| self.path(folder));
        let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Links are resolved inside the host.
    pub(crate) fn metadata(&self, path: impl AsRef<Path>) -> Option<fs::Metadata> {
        File::from(self.open_inside(path.as_ref(), OFlags::PATH).ok()?).metadata().ok()
    }

    /// Returns the target of a symbolic link; `None` if the path is not one. Links on the way to it are resolved inside
    /// the host.
    pub(crate) fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        fs::read_link(self.place(path.as_ref())?).ok()
    }

    /// Returns the path with all links resolved but the last.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else { return Some(self.path(path)) };
        Some(self.path(self.resolved(folder)?).join(name))
    }

    /// Returns a path of the host with links resolved; `None` if it does not exist.
    pub(crate) fn resolved(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let place = self.open_inside(path.as_ref(), OFlags::PATH).ok()?;
        let named = fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
        let root = fs::canonicalize(&self.0).ok()?;
        Some(Path::new("/").join(named.strip_prefix(root).ok()?))
    }

    fn open_inside(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let root = open(&self.0, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let once = || openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT);
        // The kernel returns EAGAIN if something is mounted or renamed at the same time.
        let opened = (0..10).map(|_| once()).find(|opened| !matches!(opened, Err(Errno::AGAIN)));
        match opened.unwrap_or(Err(Errno::AGAIN)) {
            // openat2 needs Linux 5.6, and older seccomp filters refuse it.
            Err(Errno::NOSYS | Errno::PERM) => open(self.path(path), flags | OFlags::CLOEXEC, Mode::empty()),
            opened => opened,
        }
    }

    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.place(path.as_ref()).is_some_and(|place| fs::symlink_metadata(place).is_ok())
    }

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
