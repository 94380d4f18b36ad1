//! Finds the mount that contains a path.
//!
//! A run on a real directory measures one file system as it is mounted, so its column in a table is named after the
//! mount's discard option. The kernel gives the mount's id (`statx`, Linux 5.8) and lists the mounts in
//! `/proc/self/mountinfo`. On older kernels the longest mount point above the path is used. proc_pid_mountinfo(5)
//! describes the format.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::block_device::SysBlock;
use crate::host_root::HostRoot;
use crate::path_error::{PathError, at};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub id: u64,
    pub parent: u64,
    /// Major and minor number of the block device; major 0 if there is none or more than one (tmpfs, btrfs).
    pub numbers: (u32, u32),
    pub mount_point: PathBuf,
    /// The source: `/dev/sda1`, or a word such as `tmpfs`.
    pub device: String,
    pub fs_type: String,
    /// The options of the mount, then those of the file system, without duplicates.
    pub options: Vec<String>,
    /// True if `discard` is a default of the file system, kept in its superblock (`tune2fs -o discard`). Mountinfo
    /// shows no default options.
    #[serde(default)]
    pub discards_by_default: bool,
}

/// Returns true for the mount options that turn online discard on: `discard`, `discard=async`.
pub fn turns_discard_on(option: &str) -> bool {
    option == "discard" || option.starts_with("discard=")
}

/// Returns the mount option that turns online discard on; `None` if there is none, or a later one turns it off.
pub fn discard_in(options: &[String]) -> Option<&str> {
    let last = options.iter().rfind(|option| turns_discard_on(option) || *option == "nodiscard")?;
    turns_discard_on(last).then_some(last)
}

impl Mount {
    /// The discard option as the kernel shows it (`discard`, `discard=async`); `nodiscard` if it shows none.
    pub fn discard(&self) -> &str {
        discard_in(&self.options).unwrap_or("nodiscard")
    }

    /// Returns true if both are mounts of the same file system. Only numbers tell: one device has several names, such as
    /// `/dev/root` and `/dev/sda2`.
    pub(crate) fn is_same_file_system(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }

    pub fn has_device(&self) -> bool {
        self.numbers.0 != 0 || self.device.starts_with("/dev/")
    }

    /// Returns true if a process serves the file system (FUSE); a call to it may block forever.
    pub fn is_served(&self) -> bool {
        // A subtype follows the dot: `fuse.sshfs`, `fuseblk.ntfs`.
        ["fuse", "fuseblk"].contains(&self.fs_type.split('.').next().unwrap_or_default())
    }

    /// Returns true if the file system is read-only. A read-only mount of a writable file system does not count: a
    /// hardened service sees every mount that way, and FITRIM works through it all the same. The file system's options
    /// come after those of the mount.
    pub fn is_read_only(&self) -> bool {
        let words = ["ro", "rw"];
        self.options
            .iter()
            .rfind(|option| words.contains(&option.as_str()))
            .is_some_and(|option| option == "ro")
    }

    /// Returns true if ext4 ended all writes after an error (`emergency_ro`, from 6.15 on, where it was `ro`) or was
    /// shut down. What it calls free may include what its last durable transaction still refers to, and FITRIM works
    /// all the same: such a trim would destroy files that the next mount finds again.
    pub fn has_failed(&self) -> bool {
        self.options.iter().any(|option| ["emergency_ro", "shutdown"].contains(&option.as_str()))
    }
}

#[derive(Debug, Error)]
pub enum MountError {
    #[error(transparent)]
    Io(#[from] PathError),
    #[error("{path}: no mount in /proc/self/mountinfo contains it")]
    Unknown { path: String },
}

/// Finds the mount that contains `path`.
pub fn mount_of(path: &Path) -> Result<Mount, MountError> {
    let canonical = path.canonicalize().map_err(at(path))?;
    listed(statx(CWD, &canonical, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID), &canonical)
}

/// Finds the mount of an open file or folder, even if its path now leads elsewhere.
pub fn mount_of_open(file: impl AsFd) -> Result<Mount, MountError> {
    let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()));
    let path = std::fs::read_link(&link).map_err(at(&link))?;
    listed(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID), &path)
}

/// Finds a mount by its id, or by the path on kernels before 5.8, which give no id.
fn listed(found: rustix::io::Result<Statx>, path: &Path) -> Result<Mount, MountError> {
    const MOUNTINFO: &str = "/proc/self/mountinfo";
    let text = std::fs::read(MOUNTINFO).map_err(at(Path::new(MOUNTINFO)))?;
    let mut mounts = parse_mountinfo(&text);
    let id = told_id(found);
    let index = mounts
        .iter()
        .position(|mount| Some(mount.id) == id)
        .or_else(|| nearest(&mounts, path))
        .ok_or_else(|| MountError::Unknown { path: path.display().to_string() })?;
    let mut mount = mounts.swap_remove(index);
    add_hidden_discard(&HostRoot::default(), &mut mount);
    Ok(mount)
}

fn told_id(found: rustix::io::Result<Statx>) -> Option<u64> {
    let found = found.ok()?;
    StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id)
}

/// Returns the [`Mount::id`] at `path` now; `None` on kernels before 5.8.
pub fn mount_id(path: &Path) -> Option<u64> {
    told_id(statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID))
}

/// Returns the mount with the longest mount point above `path`. If several are mounted at one place, the last covers
/// the others.
pub(crate) fn nearest(mounts: &[Mount], path: &Path) -> Option<usize> {
    let above = mounts.iter().enumerate().filter(|(_, mount)| path.starts_with(&mount.mount_point));
    above.max_by_key(|(_, mount)| mount.mount_point.components().count()).map(|(index, _)| index)
}

/// Serializes a path lossily as text: JSON strings are UTF-8, and one odd path must not make a list of mounts fail.
pub fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

pub fn mountinfo(host: &HostRoot) -> PathBuf {
    host.path(if host.is_own() { "/proc/self/mountinfo" } else { "/proc/1/mountinfo" })
}

/// Reads the mounts of a host with the options in effect.
pub fn mounts(host: &HostRoot) -> Result<Vec<Mount>, PathError> {
    let mut mounts = listed_mounts(host)?;
    mounts.iter_mut().for_each(|mount| add_hidden_discard(host, mount));
    Ok(mounts)
}

pub(crate) fn listed_mounts(host: &HostRoot) -> Result<Vec<Mount>, PathError> {
    let path = mountinfo(host);
    Ok(parse_mountinfo(&std::fs::read(&path).map_err(at(&path))?))
}

/// Adds `discard` where the superblock of an ext4 turns it on (`tune2fs -o discard`). Mountinfo shows no option that is
/// the default of its file system; `/proc/fs/ext4/DEV/options` shows all.
fn add_hidden_discard(host: &HostRoot, mount: &mut Mount) {
    const DISCARD: &str = "discard";
    // The driver of ext4 also mounts ext2 and ext3.
    let is_ext = ["ext2", "ext3", "ext4"].contains(&mount.fs_type.as_str());
    if !is_ext || mount.options.iter().any(|one| one == DISCARD || one == "nodiscard") {
        return;
    }
    let device = SysBlock::of_numbers(host, mount.numbers).ok().map(|device| device.name());
    let options = device.and_then(|name| host.text(format!("/proc/fs/ext4/{name}/options")));
    if options.is_some_and(|options| options.lines().any(|option| option == DISCARD)) {
        mount.options.push(DISCARD.to_owned());
        mount.discards_by_default = true;
    }
}

/// Parses the text of `/proc/self/mountinfo`; malformed lines are skipped.
pub fn parse_mountinfo(text: &[u8]) -> Vec<Mount> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// Parses a line: `36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda1 rw,discard`, with any number of
/// optional fields before the dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let numbers = (major.parse().ok()?, minor.parse().ok()?);
    let mount_point = PathBuf::from(OsStr::from_bytes(&unescaped(fields.nth(1)?)));
    let mount_options = text_of(fields.next()?);
    fields.find(|&field| field == b"-")?;
    let fs_type = text_of(fields.next()?);
    let device = text_of(fields.next()?);
    let file_system_options = text_of(fields.next().unwrap_or_default());
    let mut options: Vec<String> = Vec::new();
    for option in mount_options.split(',').chain(file_system_options.split(',')) {
        if !option.is_empty() && !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Some(Mount { id, parent, numbers, mount_point, device, fs_type, options, discards_by_default: false })
}

/// Decodes a field that a person or the kernel wrote, lossily as text.
pub(crate) fn text_of(field: &[u8]) -> String {
    std::ffi::OsString::from_vec(unescaped(field)).to_string_lossy().into_owned()
}

/// Decodes octal escapes such as `\040`: the kernel escapes blank, tab, newline and backslash.
pub(crate) fn unescaped(field: &[u8]) -> Vec<u8> {
    let octal = |digits: &[u8]| {
        digits.iter().try_fold(0u8, |value, &digit| match digit {
            b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
            _ => None,
        })
    };
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match tail.get(..3).filter(|_| first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,discard,errors=remount-ro\n\
        36 22 8:17 /sub /mnt/with\\040blank rw,noatime master:1 propagate_from:2 - btrfs /dev/sdb1 rw,discard=async\n\
        garbage\n\
        40 22 0:30 / /mnt rw - tmpfs  rw,size=5k\n\
        41 22 0:31 / /mnt rw - xfs /dev/sdc rw\n\
        42 22 0:32 / /short rw\n\
        x 22 0:32 / /nan rw - a b c\n\
        43 22 8 / /device rw - a b c\n";

    #[test]
    fn lines_are_parsed_and_other_text_is_skipped() {
        let mounts = parse_mountinfo(TEXT);
        assert_eq!(mounts.iter().map(|m| m.id).collect::<Vec<_>>(), [22, 36, 40, 41]);
        assert_eq!((mounts[1].numbers, mounts[2].numbers), ((8, 17), (0, 30)));
        assert_eq!(mounts[1].mount_point, Path::new("/mnt/with blank"));
        assert_eq!((mounts[1].device.as_str(), mounts[1].fs_type.as_str()), ("/dev/sdb1", "btrfs"));
        assert_eq!(mounts[0].options, ["rw", "relatime", "discard", "errors=remount-ro"]);
        assert_eq!((mounts[2].device.as_str(), mounts[2].options.last().unwrap().as_str()), ("", "size=5k"));
    }

    #[test]
    fn the_discard_option_is_named() {
        let mounts = parse_mountinfo(TEXT);
        let names: Vec<_> = mounts.iter().map(Mount::discard).collect();
        assert_eq!(names, ["discard", "discard=async", "nodiscard", "nodiscard"]);
    }

    #[test]
    fn numbers_tell_whether_two_mounts_are_of_one_file_system() {
        let text = b"22 1 8:2 / / rw - ext4 /dev/root rw\n30 22 8:2 /srv /srv rw - ext4 /dev/sda2 rw\n\
            31 22 0:40 / /a rw - overlay overlay rw\n32 22 0:41 / /b rw - overlay overlay rw\n";
        let mounts = parse_mountinfo(text);
        let is_same = |one: usize, other: usize| mounts[one].is_same_file_system(&mounts[other]);
        assert!(is_same(0, 1) && !is_same(2, 3) && !is_same(0, 2));
    }

    #[test]
    fn regression_fuse_is_served_whatever_its_subtype() {
        let is_served = |fs_type: &str| {
            let line = format!("22 1 8:1 / / rw - {fs_type} /dev/sda1 rw\n");
            parse_mountinfo(line.as_bytes())[0].is_served()
        };
        for (fs_type, expected) in [
            ("fuse", true),
            ("fuse.sshfs", true),
            ("fuseblk", true),
            ("fuseblk.hostile", true),
            ("fusectl", false),
            ("fuseblks", false),
            ("ext4", false),
        ] {
            assert_eq!(is_served(fs_type), expected, "{fs_type}");
        }
    }

    #[test]
    fn the_nearest_mount_is_the_longest_and_the_last() {
        let mounts = parse_mountinfo(TEXT);
        let id = |path: &str| nearest(&mounts, Path::new(path)).map(|index| mounts[index].id);
        assert_eq!(id("/mnt/with blank/x"), Some(36));
        assert_eq!(id("/mnt/with"), Some(41));
        assert_eq!(id("/mntx"), Some(22));
        assert_eq!(nearest(&mounts[1..], Path::new("/other")), None);
    }

    #[test]
    fn octal_escapes_are_decoded_and_others_stay() {
        assert_eq!(unescaped(b"a\\040b\\134c\\012"), b"a b\\c\n");
        assert_eq!(unescaped(b"\\04"), b"\\04");
        assert_eq!(unescaped(b"\\089\\777"), b"\\089\\777");
    }

    #[test]
    fn the_mount_of_proc_is_proc() {
        assert_eq!(mount_of(Path::new("/proc/self")).unwrap().fs_type, "proc");
        assert!(mount_of(Path::new("/nonexistent/path")).is_err());
    }
}
