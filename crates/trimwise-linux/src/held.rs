//! What thin storage below a file system holds, as the storage itself counts it: a thin volume and its pool, VDO, the
//! file of a loop device, zram.
//!
//! The device mapper's figures are the output of `dmsetup status` and `dmsetup table`, whose fields are described in
//! Linux's Documentation/admin-guide/device-mapper/{thin-provisioning,vdo}.rst. Only root may read them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;
use trimwise::units::SECTOR_BYTES;

use crate::block_device::SysBlock;
use crate::layers::{TableError, dmsetup};

/// VDO counts blocks of this size, whatever its volume's are.
const VDO_BLOCK_BYTES: u64 = 4096;
/// Unit of `st_blocks`, whatever the file system's blocks are (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

/// How full a pool is that several volumes may share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fill {
    pub used_bytes: u64,
    pub size_bytes: u64,
    /// Share of the space for metadata in use, in percent; `None` if the pool has no such limit.
    pub metadata_percent: Option<u64>,
    /// Chunks of this size are allocated and freed as a whole; `None` if it is unknown.
    pub chunk_bytes: Option<u64>,
    /// True if the pool takes no more writes: it is out of space or of metadata, or it failed.
    pub is_stopped: bool,
}

impl Fill {
    /// Share of the space in use, in percent, rounded down.
    pub fn percent(&self) -> u64 {
        percent(self.used_bytes, self.size_bytes)
    }

    /// Reads the status of a `thin-pool` target, and its table, which has the size of its chunks.
    pub fn of_thin_pool(status: &str, table: &str) -> Option<Self> {
        let table = target(table, "thin-pool")?;
        let chunk_bytes = table.get(2)?.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)?;
        let status = target(status, "thin-pool")?;
        if matches!(status[..], ["Fail" | "Error", ..]) {
            return None;
        }
        let [_, metadata, data, _, mode, ..] = status[..] else { return None };
        let (metadata_used, metadata_size) = pair(metadata)?;
        let (used, size) = pair(data)?;
        Some(Self {
            used_bytes: used.checked_mul(chunk_bytes)?,
            size_bytes: size.checked_mul(chunk_bytes)?,
            metadata_percent: Some(percent(metadata_used, metadata_size)),
            chunk_bytes: Some(chunk_bytes),
            is_stopped: mode != "rw" || status.contains(&"needs_check"),
        })
    }

    /// Reads the status of a `vdo` target.
    pub fn of_vdo(status: &str) -> Option<Self> {
        let [_, mode, _, _, _, used, size, ..] = target(status, "vdo")?[..] else { return None };
        let bytes = |blocks: &str| blocks.parse::<u64>().ok()?.checked_mul(VDO_BLOCK_BYTES);
        Some(Self {
            used_bytes: bytes(used)?,
            size_bytes: bytes(size)?,
            metadata_percent: None,
            chunk_bytes: Some(VDO_BLOCK_BYTES),
            is_stopped: mode != "normal",
        })
    }
}

/// Reads from the table of a `thin-pool` target how much free space is its low-water mark.
pub fn low_water_bytes(table: &str) -> Option<u64> {
    let table = target(table, "thin-pool")?;
    let number = |index: usize| table.get(index)?.parse::<u64>().ok();
    number(2)?.checked_mul(SECTOR_BYTES)?.checked_mul(number(3)?)
}

/// Reads from the status of a `thin` target how many bytes of the volume its pool holds.
pub fn of_thin_volume(status: &str) -> Option<u64> {
    target(status, "thin")?.first()?.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
}

/// Space that a file takes up on its own file system, without its holes; `None` if it cannot be read.
pub fn of_file(path: &Path) -> Option<u64> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    found.blocks().checked_mul(STAT_BLOCK_BYTES)
}

/// True if a file has all of its blocks, as after fallocate(1).
pub fn is_allocated(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.blocks().saturating_mul(STAT_BLOCK_BYTES) >= found.len())
}

/// Memory that a zram device takes up (`mem_used_total`).
pub fn of_zram(device: &SysBlock) -> Option<u64> {
    device.text("mm_stat")?.split_whitespace().nth(2)?.parse().ok()
}

/// The status of a device-mapper mapping of this host.
pub fn status(name: &str) -> Result<String, TableError> {
    dmsetup("status", name)
}

/// Returns the fields after the target's name, if the text is of that target.
fn target<'t>(text: &'t str, name: &str) -> Option<Vec<&'t str>> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    (fields.get(2) == Some(&name)).then(|| fields[3..].to_vec())
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (used, size) = text.split_once('/')?;
    Some((used.parse().ok()?, size.parse().ok()?))
}

fn percent(used: u64, size: u64) -> u64 {
    (u128::from(used) * 100 / u128::from(size.max(1))).min(100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "0 204800 thin-pool 253:1 253:2 128 0 1 skip_block_zeroing";

    #[test]
    fn a_thin_pool_counts_chunks_and_blocks_of_metadata() {
        let fill = |status: &str| Fill::of_thin_pool(status, TABLE);
        let whole =
            "0 204800 thin-pool 1 130/1024 1280/1600 - rw discard_passdown queue_if_no_space - 1024\n";
        let expected = Fill {
            used_bytes: 1280 << 16,
            size_bytes: 1600 << 16,
            metadata_percent: Some(12),
            chunk_bytes: Some(1 << 16),
            is_stopped: false,
        };
        assert_eq!(fill(whole), Some(expected.clone()));
        assert_eq!(expected.percent(), 80);
        for mode in ["out_of_data_space", "ro"] {
            assert_eq!(fill(&whole.replace("rw", mode)).map(|fill| fill.is_stopped), Some(true), "{mode}");
        }
        assert_eq!(
            fill(&whole.replace("space -", "space needs_check")).map(|fill| fill.is_stopped),
            Some(true)
        );
        // Of a failed pool nothing is known, nor of other targets.
        for text in ["0 204800 thin-pool Fail", "0 204800 thin-pool 1 130 1280/1600 - rw", "0 1 linear", ""] {
            assert_eq!(fill(text), None, "{text}");
        }
        assert_eq!(Fill::of_thin_pool(whole, "0 204800 thin-pool 253:1 253:2"), None);
        let huge = "0 8 thin-pool 253:1 253:2 18446744073709551615 0";
        assert_eq!(Fill::of_thin_pool(whole, huge), None, "no panic");
    }

    #[test]
    fn the_low_water_mark_counts_chunks() {
        assert_eq!(low_water_bytes(TABLE), Some(0));
        assert_eq!(low_water_bytes("0 204800 thin-pool 253:1 253:2 128 100"), Some(100 << 16));
        assert_eq!(low_water_bytes("0 8 thin-pool 253:1 253:2 128 18446744073709551615"), None, "no panic");
        assert_eq!(low_water_bytes("0 204800 linear"), None);
    }

    #[test]
    fn vdo_counts_physical_blocks() {
        let status = "0 8388608 vdo /dev/sda5 normal - online online 600000 1048576\n";
        let fill = Fill::of_vdo(status).unwrap();
        assert_eq!((fill.used_bytes, fill.size_bytes, fill.percent()), (600_000 * 4096, 1 << 32, 57));
        assert!(!fill.is_stopped);
        assert!(Fill::of_vdo(&status.replace("normal", "read-only")).unwrap().is_stopped);
    }

    #[test]
    fn a_volume_holds_the_sectors_that_are_mapped() {
        assert_eq!(of_thin_volume("0 2097152 thin 409600 2097151\n"), Some(409_600 * 512));
        assert_eq!(of_thin_volume("0 2097152 thin Fail"), None);
        assert_eq!(of_thin_volume("0 2097152 linear"), None);
    }

    #[test]
    fn a_file_holds_its_blocks_and_a_pool_of_no_size_is_no_division_by_zero() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
        assert_eq!((of_file(&image), is_allocated(&image)), (Some(0), false), "one hole");
        fs::write(&image, [1; 4096]).unwrap();
        assert!(is_allocated(&image));
        assert_eq!(of_file(folder.path()), None);
        assert_eq!(percent(1, 0), 100);
    }
}
