//! Checks a real directory before a workload runs in it.
//!
//! The checks create nothing, so a refusal leaves nothing behind. The directory must exist, be writable, contain no
//! name that the run would use, lie on one file system, and have room for the run.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, Access, AtFlags, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use thiserror::Error;
use trimwise::units::Bytes;
use trimwise::workload::postmark::layout::Layout;
use trimwise::workload::postmark::{Footprint, LocationError, PostmarkConfig, footprint, footprint_min};

/// Reasons why a directory is unsuitable; each is one sentence for the user.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DirectoryError {
    #[error("{path}: no such directory")]
    Missing { path: String },
    #[error("{path}: not a directory")]
    NotADirectory { path: String },
    #[error("{path}: the file system is mounted read-only")]
    ReadOnly { path: String },
    #[error("{path}: not writable: {reason}")]
    NotWritable { path: String, reason: String },
    /// The directory contains a name that the run would write to and delete.
    #[error("{path}: already exists, and the workload would use that name; give an empty directory")]
    Occupied { path: String },
    /// A location is a symbolic link or another mount: files would go elsewhere.
    #[error("{path}: leads out of the directory under test (a symbolic link or another mount)")]
    LeadsOut { path: String },
    #[error(transparent)]
    Location(#[from] LocationError),
    #[error("{path}: the run needs at least {needed} and {free} are free")]
    TooFull {
        path: String,
        /// The most that the run's files occupy at one time, in whole blocks of 4 KiB.
        needed: Bytes,
        free: Bytes,
    },
    #[error("{path}: the run needs at least {needed} inodes and {free} are free")]
    TooFewInodes { path: String, needed: u64, free: u64 },
    #[error("{path}: {reason}")]
    Io { path: String, reason: String },
}

/// Returns a function that adds a path to an error, for `map_err`.
pub(crate) fn at<E: Into<std::io::Error>>(path: &Path) -> impl Fn(E) -> DirectoryError {
    move |error| DirectoryError::Io {
        path: path.display().to_string(),
        reason: Into::<std::io::Error>::into(error).to_string(),
    }
}

pub(crate) fn words(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

pub(crate) fn check_writable(directory: BorrowedFd<'_>, path: &Path) -> Result<(), DirectoryError> {
    if fs::fstatvfs(directory).map_err(at(path))?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(DirectoryError::ReadOnly { path: path.display().to_string() });
    }
    check_writable_at(directory, path)
}

/// Opens the directory `path` below `root` without following symbolic links or crossing mounts; `None` if it is
/// missing. The descriptor stays valid if names change.
pub(crate) fn open_beneath(
    root: BorrowedFd<'_>,
    root_path: &Path,
    path: &str,
) -> Result<Option<OwnedFd>, DirectoryError> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut there: Option<OwnedFd> = None;
    let mut shown = root_path.to_owned();
    for component in
        path.split('/').filter(|component| !component.is_empty()).chain(path.is_empty().then_some("."))
    {
        shown.push(component);
        let from = there.as_ref().map_or(root, OwnedFd::as_fd);
        let name = || shown.display().to_string();
        there = Some(match fs::openat2(from, component, flags, Mode::empty(), resolve) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => return Err(DirectoryError::LeadsOut { path: name() }),
            Err(Errno::NOTDIR) => return Err(DirectoryError::NotADirectory { path: name() }),
            Err(errno) => return Err(at(&shown)(errno)),
        });
    }
    Ok(there)
}

/// Checks that a run of `config`, with relative locations, can take place below `root` without touching anything else.
pub(crate) fn check_run(
    root: BorrowedFd<'_>,
    root_path: &Path,
    config: &PostmarkConfig,
) -> Result<(), DirectoryError> {
    let layout = Layout::new(config)?;
    // Refuse a run that is far too large at once: going through its script could take long.
    check_room(root, root_path, footprint_min(config), &layout)?;
    let needs = footprint(config);
    for location in layout.locations() {
        let Some(there) = open_beneath(root, root_path, location)? else { continue };
        let directory = root_path.join(location);
        check_writable_at(there.as_fd(), &directory)?;
        check_free_of(there.as_fd(), &directory, |name| {
            is_postmarks(name, needs.names, layout.subdirectories())
        })?;
    }
    check_room(root, root_path, needs, &layout)
}

fn check_room(
    root: BorrowedFd<'_>,
    root_path: &Path,
    needs: Footprint,
    layout: &Layout,
) -> Result<(), DirectoryError> {
    let path = root_path.display().to_string();
    let space = fs::fstatvfs(root).map_err(at(root_path))?;
    let free = Bytes(space.f_bavail.saturating_mul(space.f_frsize));
    if free < needs.bytes_max {
        return Err(DirectoryError::TooFull { path, needed: needs.bytes_max, free });
    }
    let directories = layout.location_directories().len() as u64
        + u64::from(layout.subdirectories()) * layout.locations().count() as u64;
    let (needed, free) = (needs.files_max + directories, space.f_favail);
    // File systems without a fixed number of inodes, such as btrfs, report 0 of 0.
    if space.f_files > 0 && free < needed {
        return Err(DirectoryError::TooFewInodes { path, needed, free });
    }
    Ok(())
}

fn check_writable_at(there: BorrowedFd<'_>, directory: &Path) -> Result<(), DirectoryError> {
    fs::accessat(there, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty()).map_err(|errno| {
        DirectoryError::NotWritable { path: directory.display().to_string(), reason: words(errno) }
    })
}

fn check_free_of(
    there: BorrowedFd<'_>,
    directory: &Path,
    is_taken: impl Fn(&str) -> bool,
) -> Result<(), DirectoryError> {
    // Report the first name in sorted order, so that the message is always the same.
    let mut in_the_way: Option<String> = None;
    for entry in fs::Dir::read_from(there).map_err(at(directory))? {
        let entry = entry.map_err(at(directory))?;
        let name = entry.file_name();
        if let Some(name) = name.to_str().ok().filter(|name| is_taken(name)) {
            let is_first = in_the_way.as_ref().is_none_or(|first| (name.len(), name) < (first.len(), first));
            if is_first {
                in_the_way = Some(name.to_owned());
            }
        }
    }
    match in_the_way {
        None => Ok(()),
        Some(name) => Err(DirectoryError::Occupied { path: directory.join(name).display().to_string() }),
    }
}

/// Returns true if PostMark would create something called `name`: files 1 to `names`, or subdirectories `s0`, `s1`...
fn is_postmarks(name: &str, names: u64, subdirectories: u32) -> bool {
    let (digits, numbers) = match (subdirectories, name.strip_prefix('s')) {
        (0, _) => (name, 1..names.saturating_add(1)),
        (_, Some(digits)) => (digits, 0..u64::from(subdirectories)),
        (_, None) => return false,
    };
    // `007` and `+7` parse as numbers too, but PostMark does not use such names.
    digits.parse().is_ok_and(|n: u64| numbers.contains(&n) && n.to_string() == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_postmark_uses_are_recognised() {
        let taken = |names: &[&str], subdirectories| {
            names
                .iter()
                .filter(|name| is_postmarks(name, 20, subdirectories))
                .copied()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let names = ["0", "1", "20", "21", "007", "+7", "7a", "s0", "s2", "s3", "s", "s-1", "lost+found"];
        assert_eq!(taken(&names, 0), "1 20");
        assert_eq!(taken(&names, 3), "s0 s2");
    }
}
