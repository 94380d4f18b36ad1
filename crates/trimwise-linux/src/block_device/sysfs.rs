//! A block device as sysfs shows it: its attributes, its partitions, and the devices above and below it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{BlockStat, parse_stat};
use crate::host_root::HostRoot;
use crate::mount::Mount;
use crate::path_error::{PathError, at};

/// Maximum depth of stacked devices; beyond it, assume a cycle.
pub(crate) const LAYERS_MAX: usize = 16;

/// The directory of a disk or partition in sysfs, with symbolic links resolved. A partition's directory lies in that of
/// its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SysBlock(pub(crate) PathBuf);

#[derive(Debug, Error)]
pub enum SysfsError {
    #[error(transparent)]
    Io(#[from] PathError),
    #[error("{path}: '{text}' is not what the kernel writes there; expected {expected}")]
    Text { path: String, text: String, expected: &'static str },
}

impl SysBlock {
    pub fn of_numbers(host: &HostRoot, numbers: (u32, u32)) -> Result<Self, SysfsError> {
        Self::at(&host.path(link(numbers)))
    }

    pub fn named(host: &HostRoot, name: impl AsRef<Path>) -> Result<Self, SysfsError> {
        Self::at(&host.path("/sys/class/block").join(name))
    }

    fn at(link: &Path) -> Result<Self, SysfsError> {
        Ok(Self(link.canonicalize().map_err(at(link))?))
    }

    pub fn all() -> impl Iterator<Item = Self> {
        linked(Path::new("/sys/class/block"))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn numbers(&self) -> Result<(u32, u32), SysfsError> {
        self.read_as("dev", "MAJOR:MINOR", |text| {
            let (major, minor) = text.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
    }

    /// Returns the node in `/dev`, as the kernel names it.
    pub fn node(&self) -> PathBuf {
        let uevent = self.text("uevent").unwrap_or_default();
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        Path::new("/dev").join(name.map_or_else(|| self.name(), str::to_owned))
    }

    /// Returns the disk that contains this partition; `None` if the device is not a partition.
    pub fn disk(&self) -> Option<Self> {
        self.0.parent().filter(|_| self.has("partition")).map(|disk| Self(disk.to_owned()))
    }

    /// Returns the disk that contains this partition, or the device itself if it is not a partition.
    pub fn whole(&self) -> Self {
        self.disk().unwrap_or_else(|| self.clone())
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = Self> {
        entries(&self.0).into_iter().map(Self).filter(|below| below.has("partition"))
    }

    pub(crate) fn slaves(&self) -> impl Iterator<Item = Self> {
        linked(&self.0.join("slaves"))
    }

    /// Returns true if every device directly below this one is still there.
    pub(crate) fn has_all_slaves(&self) -> bool {
        entries(&self.0.join("slaves")).len() == self.slaves().count()
    }

    /// Iterates over the devices directly above this one (device mapper, MD, bcache).
    pub(crate) fn holders(&self) -> impl Iterator<Item = Self> {
        linked(&self.0.join("holders"))
    }

    /// Returns the file or device below a loop device, as the kernel shows it; `None` for other devices.
    pub fn backing_file(&self) -> Option<PathBuf> {
        let mut path = self.bytes("loop/backing_file")?;
        path.pop_if(|last| *last == b'\n');
        Some(OsString::from_vec(path).into())
    }

    /// Returns the folder in sysfs of the btrfs on this device, named after its UUID.
    pub(crate) fn btrfs(&self, host: &HostRoot) -> Option<PathBuf> {
        let is_mine = |link: PathBuf| link.canonicalize().is_ok_and(|found| found == self.0);
        entries(&host.path("/sys/fs/btrfs"))
            .into_iter()
            .find(|folder| is_mine(folder.join("devices").join(self.name())))
    }

    pub fn has(&self, attribute: &str) -> bool {
        self.0.join(attribute).exists()
    }

    /// Returns an attribute as bytes; `None` if it cannot be read.
    pub fn bytes(&self, attribute: &str) -> Option<Vec<u8>> {
        fs::read(self.0.join(attribute)).ok()
    }

    /// Returns an attribute as trimmed text; `None` if it cannot be read.
    pub fn text(&self, attribute: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(attribute)?).trim().to_owned())
    }

    pub fn number(&self, attribute: &str) -> Result<u64, SysfsError> {
        number_in(&self.0.join(attribute))
    }

    pub fn queue(&self, attribute: &str) -> Result<u64, SysfsError> {
        number_in(&self.whole().0.join("queue").join(attribute))
    }

    pub fn stat(&self) -> Result<BlockStat, SysfsError> {
        self.read_as("stat", "at least 11 numbers", parse_stat)
    }

    pub(super) fn read_as<T>(
        &self,
        attribute: &str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SysfsError> {
        read_as(&self.0.join(attribute), expected, parse)
    }
}

/// Returns the devices of a file system: one, or for btrfs and bcachefs all of them; none if it is not on a block
/// device.
pub(crate) fn devices_in_sysfs(host: &HostRoot, mount: &Mount) -> Result<Vec<SysBlock>, SysfsError> {
    if mount.numbers.0 != 0 {
        return Ok(vec![SysBlock::of_numbers(host, mount.numbers)?]);
    }
    if mount.fs_type == "bcachefs" {
        // `/dev/nvme0n1:/dev/sda`
        let nodes = mount.device.split(":/").map(|node| format!("/{}", node.trim_start_matches('/')));
        return nodes.filter_map(|node| of_node(host, &node).transpose()).collect();
    }
    let named = of_node(host, &mount.device)?;
    let folder = match &named {
        Some(named) => named.btrfs(host),
        None if mount.fs_type == "btrfs" => btrfs_without_node(host, mount),
        None => None,
    };
    let Some(btrfs) = folder else { return Ok(named.into_iter().collect()) };
    entries(&btrfs.join("devices")).iter().map(|link| SysBlock::at(link)).collect()
}

/// Finds the device of a node in `/dev`; `None` if the text names none, or none that sysfs knows.
pub(crate) fn of_node(host: &HostRoot, device: &str) -> Result<Option<SysBlock>, SysfsError> {
    let node = host.path(device);
    match node_numbers(&node) {
        Ok(numbers) => SysBlock::of_numbers(host, numbers).map(Some),
        // A container may see the host's links in /dev, such as /dev/mapper/home, without its nodes.
        Err(_) if device.starts_with("/dev/") => {
            let node = node.canonicalize().unwrap_or(node);
            Ok(SysBlock::named(host, node.file_name().unwrap_or_default()).ok())
        }
        Err(_) => Ok(None),
    }
}

/// Finds the folder in sysfs of a btrfs whose node is gone, or was never there, such as `/dev/root`: the only one that
/// no other mount can have.
fn btrfs_without_node(host: &HostRoot, mount: &Mount) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = entries(&host.path("/sys/fs/btrfs"))
        .into_iter()
        .filter(|folder| folder.join("devices").is_dir())
        .collect();
    if folders.len() > 1 {
        let others = crate::mount::listed_mounts(host).ok()?;
        let others = others.iter().filter(|one| one.fs_type == "btrfs" && one.numbers != mount.numbers);
        let taken: Vec<PathBuf> =
            others.filter_map(|other| of_node(host, &other.device).ok().flatten()?.btrfs(host)).collect();
        folders.retain(|folder| !taken.contains(folder));
    }
    folders.pop().filter(|_| folders.is_empty())
}

pub(super) fn link((major, minor): (u32, u32)) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

pub(crate) fn node_numbers(path: &Path) -> io::Result<(u32, u32)> {
    let found = fs::metadata(path)?;
    if !found.file_type().is_block_device() {
        return Err(io::Error::other("not a block device"));
    }
    Ok(numbers_of(found.rdev()))
}

/// Splits a device number of stat(2) into major and minor number.
pub(crate) fn numbers_of(device: u64) -> (u32, u32) {
    (major(device), minor(device))
}

pub(crate) fn number_in(path: &Path) -> Result<u64, SysfsError> {
    read_as(path, "a number", |text| text.parse().ok())
}

fn read_as<T>(
    path: &Path,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, SysfsError> {
    let text = short_text(path).map_err(at(path))?;
    let text = text.trim();
    parse(text).ok_or_else(|| SysfsError::Text {
        path: path.display().to_string(),
        text: text.chars().take(200).collect(),
        expected,
    })
}

/// Reads an attribute, which is a page at most: a size and a second read would say nothing more.
fn short_text(path: &Path) -> io::Result<String> {
    let mut text = vec![0; 4096];
    let read = File::open(path)?.read(&mut text)?;
    text.truncate(read);
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Iterates over the devices that a folder of links leads to, in order of their names.
fn linked(folder: &Path) -> impl Iterator<Item = SysBlock> + use<> {
    entries(folder).into_iter().filter_map(|link| SysBlock::at(&link).ok())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}
