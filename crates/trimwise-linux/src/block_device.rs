//! The block devices below a mount: their discard limits, and how many discards the kernel counted on them.
//!
//! `/sys/dev/block/MAJOR:MINOR` leads to a disk or a partition. A partition counts its own requests (`stat`); the
//! limits (`queue/`) are the whole disk's. The kernel documents the fields of `stat` in Documentation/block/stat.rst
//! and the limits in Documentation/ABI/stable/sysfs-block.

mod sysfs;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use trimwise::units::{Bytes, SECTOR_BYTES};

use crate::host_root::HostRoot;
use crate::mount::Mount;
pub(crate) use sysfs::{LAYERS_MAX, devices_in_sysfs, node_numbers, number_in, numbers_of, of_node};
pub use sysfs::{SysBlock, SysfsError};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    pub name: String,
    pub numbers: (u32, u32),
    pub sysfs: SysBlock,
    pub size: Bytes,
    /// Offset on the disk; zero unless the device is a partition.
    pub start: Bytes,
    pub limits: DiscardLimits,
}

/// Limits on one discard command that the block layer sends to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardLimits {
    /// Commands are split at multiples of this (`discard_granularity`).
    pub granularity: Bytes,
    /// The largest command (`discard_max_bytes`); zero if the device does not accept discards.
    pub max: Bytes,
    /// Ranges that the device accepts in one command (`max_discard_segments`); Linux merges up to this many on NVMe.
    pub ranges: u64,
    /// True if the block layer merges adjacent requests. It does not on a device-mapper device, nor where the
    /// administrator turned merging off (`nomerges`).
    pub merges: bool,
}

/// Discards that the kernel counted on a device, each when it completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscardCounts {
    /// Commands that the device completed.
    pub commands: u64,
    pub merged: u64,
    pub bytes: Bytes,
}

impl DiscardCounts {
    /// Returns the difference from `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(earlier.commands),
            merged: self.merged.saturating_sub(earlier.merged),
            bytes: Bytes(self.bytes.0.saturating_sub(earlier.bytes.0)),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
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
    /// Total time of these requests, in milliseconds.
    pub requests_ms: u64,
    /// Time during which there were some, in milliseconds.
    pub busy_ms: u64,
    pub read: Bytes,
    pub written: Bytes,
    pub in_flight: u64,
    /// Discards; `None` before Linux 4.19, which does not count them.
    pub discards: Option<DiscardCounts>,
}

#[derive(Debug, Error)]
pub enum BlockDeviceError {
    /// A file system in memory, on the network, or above another one.
    #[error(
        "{mount_point}: {fs_type} is not on a block device, so there is nothing to trim; expected ext4, XFS, btrfs..."
    )]
    None { mount_point: String, fs_type: String },
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
}

impl BlockDevice {
    /// Reads the device's limits and its place on its disk.
    pub(crate) fn of(sysfs: SysBlock) -> Result<Self, BlockDeviceError> {
        let disk = sysfs.whole();
        let sectors = |attribute| sysfs.number(attribute).map(|n| Bytes(n.saturating_mul(SECTOR_BYTES)));
        let limits = DiscardLimits {
            max: disk.queue("discard_max_bytes").map(Bytes)?,
            granularity: disk.queue("discard_granularity").map(Bytes)?,
            // Older kernels lack this file; without it a command has one range.
            ranges: disk.queue("max_discard_segments").unwrap_or(1).max(1),
            merges: disk.has("mq") && disk.queue("nomerges").is_ok_and(|n| n == 0),
        };
        Ok(Self {
            name: sysfs.name(),
            numbers: sysfs.numbers()?,
            size: sectors("size")?,
            start: if disk == sysfs { Bytes(0) } else { sectors("start")? },
            limits,
            sysfs,
        })
    }

    pub(crate) fn of_numbers(numbers: (u32, u32)) -> Result<Self, BlockDeviceError> {
        Self::of(SysBlock::of_numbers(&HostRoot::default(), numbers)?)
    }

    /// Returns true if the kernel refuses writes to the device.
    pub fn is_read_only(&self) -> bool {
        self.sysfs.number("ro").is_ok_and(|n| n != 0)
    }

    /// Returns true if the driver has a request queue, so that the block layer counts every request, and reports those
    /// that fail.
    pub(crate) fn has_queue(&self) -> bool {
        self.sysfs.whole().has("mq")
    }

    /// Returns the smallest transfer that the disk accepts.
    pub fn sector(&self) -> Bytes {
        self.sysfs.queue("logical_block_size").map_or(Bytes(SECTOR_BYTES), Bytes)
    }

    /// Returns the serial numbers and world-wide names of the disk, from sysfs.
    pub(crate) fn serials(&self) -> Vec<String> {
        let disk = self.sysfs.whole();
        let files = ["serial", "device/serial", "wwid", "device/wwid", "device/cid"];
        let mut serials: Vec<String> = files.iter().filter_map(|file| disk.text(file)).collect();
        // SCSI and ATA: the page "unit serial number", after a four-byte header.
        let page = disk.bytes("device/vpd_pg80").unwrap_or_default();
        let text = String::from_utf8_lossy(page.get(4..).unwrap_or_default());
        serials.push(text.trim_matches(['\0', ' ']).to_owned());
        let mut known = BTreeSet::new();
        serials.retain(|serial| !serial.is_empty() && known.insert(serial.clone()));
        serials
    }

    pub fn sysfs_link(&self) -> PathBuf {
        sysfs::link(self.numbers)
    }

    pub fn stat(&self) -> Result<BlockStat, BlockDeviceError> {
        Ok(self.sysfs.stat()?)
    }

    /// Returns the number of writes that have not completed. The kernel counts discards among them.
    pub(crate) fn writes_in_flight(&self) -> Result<u64, BlockDeviceError> {
        let second = |text: &str| text.split_whitespace().nth(1)?.parse().ok();
        Ok(self.sysfs.read_as("inflight", "two numbers", second)?)
    }

    /// Returns true if the kernel counts requests to this device (`queue/iostats`).
    pub(crate) fn counts_requests(&self) -> bool {
        self.sysfs.queue("iostats").map_or(true, |n| n != 0)
    }
}

/// Returns the devices of a file system: one, or for btrfs all of them.
pub fn devices_of(mount: &Mount) -> Result<Vec<BlockDevice>, BlockDeviceError> {
    let found = devices_in_sysfs(&HostRoot::default(), mount)?;
    if found.is_empty() {
        return Err(BlockDeviceError::None {
            mount_point: mount.mount_point.display().to_string(),
            fs_type: mount.fs_type.clone(),
        });
    }
    found.into_iter().map(BlockDevice::of).collect()
}

/// Returns `/sys/fs/btrfs/UUID` of the file system.
pub fn btrfs_directory(device: &BlockDevice) -> Option<PathBuf> {
    device.sysfs.btrfs(&HostRoot::default())
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
        busy_ms: number(9)?,
        read: Bytes(number(2)?.saturating_mul(SECTOR_BYTES)),
        written: Bytes(number(6)?.saturating_mul(SECTOR_BYTES)),
        in_flight: number(8)?,
        discards,
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
            busy_ms: 25_600,
            read: Bytes(19_900 * 512),
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
