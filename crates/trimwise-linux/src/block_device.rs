//! The block devices below a mount: their discard limits, and how many discards the kernel counted on them.
//!
//! `/sys/dev/block/MAJOR:MINOR` leads to a disk or a partition. A partition counts its own requests (`stat`); the
//! limits (`queue/`) are the whole disk's. The kernel documents the fields of `stat` in Documentation/block/stat.rst
//! and the limits in Documentation/ABI/stable/sysfs-block.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use trimwise::units::{Bytes, SECTOR_BYTES};

use crate::mount::Mount;

/// A disk or a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// The kernel's name: `sda1`, `nvme0n1`, `dm-0`.
    pub name: String,
    /// Major and minor number.
    pub numbers: (u32, u32),
    /// Its directory in sysfs, with symbolic links resolved.
    pub sysfs: PathBuf,
    /// Its size.
    pub size: Bytes,
    /// Where it begins on its disk; zero unless it is a partition.
    pub start: Bytes,
    /// Limits on a discard.
    pub limits: DiscardLimits,
}

/// Limits on what the block layer sends to a device as one discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardLimits {
    /// Commands are split at multiples of this (`discard_granularity`).
    pub granularity: Bytes,
    /// The largest command (`discard_max_bytes`); zero if the device does not accept discards.
    pub max: Bytes,
    /// Ranges that the device accepts in one command (`max_discard_segments`); Linux merges up to this many on NVMe.
    pub ranges: u64,
    /// Whether adjacent requests are merged. They are not on a device-mapper device, nor where the administrator turned
    /// merging off (`nomerges`).
    pub merges: bool,
}

/// Discards that the kernel counted on a device, each when it completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    /// Commands that the device completed.
    pub commands: u64,
    /// Requests that were merged into another.
    pub merged: u64,
    /// Bytes that they covered.
    pub bytes: Bytes,
}

impl DiscardCounts {
    /// The difference from `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(earlier.commands),
            merged: self.merged.saturating_sub(earlier.merged),
            bytes: Bytes(self.bytes.0.saturating_sub(earlier.bytes.0)),
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            commands: self.commands.saturating_add(other.commands),
            merged: self.merged.saturating_add(other.merged),
            bytes: Bytes(self.bytes.0.saturating_add(other.bytes.0)),
        }
    }
}

/// A line of `/sys/block/DEV/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStat {
    /// Reads and writes that have completed.
    pub requests: u64,
    /// Their total time in milliseconds.
    pub requests_ms: u64,
    /// Bytes written.
    pub written: Bytes,
    /// Requests that have not completed.
    pub in_flight: u64,
    /// Discards; `None` before Linux 4.18, which does not count them.
    pub discards: Option<DiscardCounts>,
}

/// Why a mount's device cannot be examined.
#[derive(Debug, Error)]
pub enum BlockDeviceError {
    /// A file system in memory, on the network, or above another one.
    #[error(
        "{mount_point}: {fs_type} is not on a block device, so there is nothing to trim; expected ext4, XFS, btrfs..."
    )]
    None {
        /// Where it is mounted.
        mount_point: String,
        /// What is mounted there.
        fs_type: String,
    },
    /// A sysfs file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A sysfs file has unexpected contents.
    #[error("{path}: '{text}' is not what the kernel writes there; expected {expected}")]
    Text {
        /// The file.
        path: String,
        /// Its contents.
        text: String,
        /// The expected contents.
        expected: &'static str,
    },
}

fn sysfs_link((major, minor): (u32, u32)) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

impl BlockDevice {
    /// The device with this major and minor number.
    ///
    /// # Errors
    /// If sysfs does not list it, or its files cannot be parsed.
    pub(crate) fn of_numbers(numbers: (u32, u32)) -> Result<Self, BlockDeviceError> {
        let link = sysfs_link(numbers);
        let sysfs = link.canonicalize().map_err(io(&link))?;
        let is_partition = sysfs.join("partition").exists();
        let disk = sysfs.parent().filter(|_| is_partition).unwrap_or(&sysfs);
        let queue = disk.join("queue");
        let sectors = |path: &Path| number_in(path).map(|n| Bytes(n.saturating_mul(SECTOR_BYTES)));
        let max = number_in(&queue.join("discard_max_bytes")).map(Bytes)?;
        // Older kernels lack this file; without it a command has one range.
        let ranges = number_in(&queue.join("max_discard_segments")).unwrap_or(1).max(1);
        let merges = disk.join("mq").exists() && number_in(&queue.join("nomerges")).is_ok_and(|n| n == 0);
        let granularity = number_in(&queue.join("discard_granularity")).map(Bytes)?;
        Ok(Self {
            name: sysfs.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            numbers,
            size: sectors(&sysfs.join("size"))?,
            start: if is_partition { sectors(&sysfs.join("start"))? } else { Bytes(0) },
            limits: DiscardLimits { granularity, max, ranges, merges },
            sysfs,
        })
    }

    /// The device behind a node such as `/dev/sda1`.
    ///
    /// # Errors
    /// If it is not a block device, or sysfs does not list it.
    pub(crate) fn of_node(path: &Path) -> Result<Self, BlockDeviceError> {
        let found = fs::metadata(path).map_err(io(path))?;
        if !found.file_type().is_block_device() {
            let source = std::io::Error::other("not a block device");
            return Err(BlockDeviceError::Io { path: path.display().to_string(), source });
        }
        Self::of_numbers((major(found.st_rdev()), minor(found.st_rdev())))
    }

    /// Its partitions; empty if it is itself a partition.
    pub fn partitions(&self) -> Vec<Self> {
        let mut below: Vec<_> = entries(&self.sysfs).filter(|path| path.join("partition").exists()).collect();
        below.sort();
        let devices = below.iter().map(|path| number_pair(&path.join("dev")).and_then(Self::of_numbers));
        devices.filter_map(Result::ok).collect()
    }

    /// The disk that it is a partition of; `None` if it is not a partition.
    pub fn disk(&self) -> Option<Self> {
        let disk = self.sysfs.parent().filter(|_| self.sysfs.join("partition").exists())?;
        number_pair(&disk.join("dev")).and_then(Self::of_numbers).ok()
    }

    /// The directory of its disk in sysfs: its own, unless it is a partition.
    pub(crate) fn disk_sysfs(&self) -> &Path {
        let is_partition = self.sysfs.join("partition").exists();
        self.sysfs.parent().filter(|_| is_partition).unwrap_or(&self.sysfs)
    }

    /// Whether it is read-only.
    pub fn is_read_only(&self) -> bool {
        number_in(&self.sysfs.join("ro")).is_ok_and(|n| n != 0)
    }

    /// The smallest transfer that its disk accepts.
    pub fn sector(&self) -> Bytes {
        number_in(&self.disk_sysfs().join("queue/logical_block_size")).map_or(Bytes(SECTOR_BYTES), Bytes)
    }

    /// The serial numbers and world-wide names of its disk, from sysfs.
    pub(crate) fn serials(&self) -> Vec<String> {
        let disk = self.disk_sysfs();
        let files = ["serial", "device/serial", "wwid", "device/wwid", "device/cid"];
        let mut serials: Vec<String> = Vec::new();
        for file in files {
            let text = fs::read_to_string(disk.join(file)).unwrap_or_default();
            let text = text.trim();
            if !text.is_empty() && !serials.iter().any(|known| known == text) {
                serials.push(text.to_owned());
            }
        }
        // SCSI and ATA: the page "unit serial number", after a four-byte header.
        let page = fs::read(disk.join("device/vpd_pg80")).unwrap_or_default();
        let text =
            String::from_utf8_lossy(page.get(4..).unwrap_or_default()).trim_matches(['\0', ' ']).to_owned();
        if !text.is_empty() && !serials.contains(&text) {
            serials.push(text);
        }
        serials
    }

    /// Its sysfs link by number, which stays valid when names change.
    pub fn sysfs_link(&self) -> PathBuf {
        sysfs_link(self.numbers)
    }

    /// Its node in `/dev`, as the kernel names it.
    pub fn node(&self) -> PathBuf {
        let uevent = fs::read_to_string(self.sysfs.join("uevent")).unwrap_or_default();
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).unwrap_or(&self.name);
        Path::new("/dev").join(name)
    }

    /// What the kernel has counted on it so far.
    ///
    /// # Errors
    /// If the device is gone or the file cannot be parsed.
    pub fn stat(&self) -> Result<BlockStat, BlockDeviceError> {
        let path = self.sysfs.join("stat");
        let text = fs::read_to_string(&path).map_err(io(&path))?;
        parse_stat(&text).ok_or_else(|| BlockDeviceError::Text {
            path: path.display().to_string(),
            text: text.trim().chars().take(200).collect(),
            expected: "at least 11 numbers",
        })
    }

    /// Writes that have not completed. The kernel counts discards among them.
    ///
    /// # Errors
    /// If the device is gone or the file cannot be parsed.
    pub(crate) fn writes_in_flight(&self) -> Result<u64, BlockDeviceError> {
        let second = |text: &str| text.split_whitespace().nth(1)?.parse().ok();
        read_as(&self.sysfs.join("inflight"), "two numbers", second)
    }

    /// Whether the kernel counts its requests (`queue/iostats`).
    pub(crate) fn counts_requests(&self) -> bool {
        number_in(&self.disk_sysfs().join("queue/iostats")).map_or(true, |n| n != 0)
    }
}

/// The devices of a file system: one, or for btrfs all of them.
///
/// # Errors
/// If it has none, or sysfs cannot be read.
pub fn devices_of(mount: &Mount) -> Result<Vec<BlockDevice>, BlockDeviceError> {
    if mount.numbers.0 != 0 {
        return Ok(vec![BlockDevice::of_numbers(mount.numbers)?]);
    }
    let none = || BlockDeviceError::None {
        mount_point: mount.mount_point.display().to_string(),
        fs_type: mount.fs_type.clone(),
    };
    let source = fs::metadata(&mount.device).ok().filter(|found| found.file_type().is_block_device());
    let numbers = source.map(|found| (major(found.st_rdev()), minor(found.st_rdev()))).ok_or_else(none)?;
    let named = BlockDevice::of_numbers(numbers)?;
    let Some(directory) = btrfs_directory(&named) else { return Ok(vec![named]) };
    let mut names: Vec<_> = entries(&directory.join("devices")).collect();
    names.sort();
    names.iter().map(|path| number_pair(&path.join("dev")).and_then(BlockDevice::of_numbers)).collect()
}

/// `/sys/fs/btrfs/UUID` of the file system on this device.
pub fn btrfs_directory(device: &BlockDevice) -> Option<PathBuf> {
    entries(Path::new("/sys/fs/btrfs")).find(|path| {
        path.join("devices").join(&device.name).canonicalize().is_ok_and(|found| found == device.sysfs)
    })
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Parses `/sys/block/DEV/stat`. Returns `None` if it has fewer than the eleven fields that every kernel writes, or if
/// a field of interest is not a number.
pub fn parse_stat(text: &str) -> Option<BlockStat> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    if fields.len() < 11 {
        return None;
    }
    let discards = if fields.len() < 15 {
        None
    } else {
        let bytes = Bytes(number(13)?.saturating_mul(SECTOR_BYTES));
        Some(DiscardCounts { commands: number(11)?, merged: number(12)?, bytes })
    };
    Some(BlockStat {
        requests: number(0)?.saturating_add(number(4)?),
        requests_ms: number(3)?.saturating_add(number(7)?),
        written: Bytes(number(6)?.saturating_mul(SECTOR_BYTES)),
        in_flight: number(8)?,
        discards,
    })
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BlockDeviceError {
    let path = path.display().to_string();
    move |source| BlockDeviceError::Io { path, source }
}

/// Reads a sysfs file that holds one number.
pub(crate) fn number_in(path: &Path) -> Result<u64, BlockDeviceError> {
    read_as(path, "a number", |text| text.parse().ok())
}

pub(crate) fn number_pair(path: &Path) -> Result<(u32, u32), BlockDeviceError> {
    read_as(path, "MAJOR:MINOR", |text| {
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

fn read_as<T>(
    path: &Path,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, BlockDeviceError> {
    let text = fs::read_to_string(path).map_err(io(path))?;
    let text = text.trim();
    parse(text).ok_or_else(|| BlockDeviceError::Text {
        path: path.display().to_string(),
        text: text.chars().take(200).collect(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discards_are_fields_twelve_to_fourteen() {
        let line = "     780        0    19900     1616    53004    59944 17005200   488058        3    25600   489820 \
             17        2     4096        5       41      146\n";
        let counts = DiscardCounts { commands: 17, merged: 2, bytes: Bytes(4096 * 512) };
        let expected = BlockStat {
            requests: 780 + 53_004,
            requests_ms: 1616 + 488_058,
            written: Bytes(17_005_200 * 512),
            in_flight: 3,
            discards: Some(counts),
        };
        assert_eq!(parse_stat(line), Some(expected));
    }

    #[test]
    fn a_kernel_that_does_not_count_discards_differs_from_one_that_counted_none() {
        assert_eq!(parse_stat("1 2 3 4 5 6 7 8 9 10 11\n").unwrap().discards, None);
        let none = Some(DiscardCounts::default());
        assert_eq!(parse_stat("1 2 3 4 5 6 7 8 9 10 11 0 0 0 0").unwrap().discards, none);
    }

    #[test]
    fn malformed_stat_lines_are_rejected() {
        for text in ["", "1 2 3", "1 2 3 4 5 6 7 8 x 10 11", "1 2 3 4 5 6 7 8 9 10 11 x 0 0 0", "-1 -1 -1"] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
        let huge = format!("{} ", u64::MAX).repeat(17);
        assert_eq!(parse_stat(&huge).unwrap().discards.unwrap().bytes, Bytes(u64::MAX));
    }
}
