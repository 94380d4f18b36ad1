//! Layout of a mounted file system, as far as FITRIM depends on it.
//!
//! ext4 trims by block group and remembers the groups that it has trimmed completely. XFS works by allocation group.
//! Work that is split at their boundaries finds the same extents as one call over everything. Btrfs uses logical
//! addresses, and others differ: they are treated as one piece.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::fstatvfs;
use trimwise::units::Bytes;

use crate::block_device::{BlockDevice, numbers_of};
use crate::ioctl;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ext4, and ext2 and ext3 when mounted by ext4's code.
    Ext4,
    Xfs,
    /// Btrfs, whose FITRIM takes logical addresses.
    Btrfs,
    Other,
}

impl Kind {
    pub fn of(fs_type: &str) -> Self {
        match fs_type {
            "ext2" | "ext3" | "ext4" => Self::Ext4,
            "xfs" => Self::Xfs,
            "btrfs" => Self::Btrfs,
            _ => Self::Other,
        }
    }

    pub fn groups_name(self) -> &'static str {
        match self {
            Self::Xfs => "allocation groups",
            _ => "block groups",
        }
    }
}

/// Layout of a file system with groups of equal size; the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub block: Bytes,
    /// The allocation unit: a block, or more on an ext4 with bigalloc.
    pub cluster: Bytes,
    pub group: Bytes,
    /// Start of the first group: after the boot block if blocks are 1 KiB.
    pub first_group: Bytes,
    /// End of the last group.
    pub end: Bytes,
    /// True if these are mkfs's defaults because the superblock could not be read.
    pub assumed: bool,
    /// Size of an XFS realtime device, which belongs to no group.
    pub realtime: Bytes,
}

impl Layout {
    /// Returns the layout of a mounted file system; `None` if it has no groups of equal size, or its type is unknown
    /// here.
    pub fn of(kind: Kind, file: BorrowedFd<'_>, device: &BlockDevice) -> Option<Self> {
        match kind {
            Kind::Ext4 => superblock_of(device)
                .and_then(|superblock| parse_ext4_superblock(&superblock))
                .or_else(|| ext4_assumed(file, device)),
            Kind::Xfs => xfs(file),
            Kind::Btrfs | Kind::Other => None,
        }
    }

    pub fn groups(&self) -> u64 {
        self.end.0.saturating_sub(self.first_group.0).div_ceil(self.group.0.max(1))
    }

    /// Returns the end of the group that holds `at`, or of the last group.
    pub fn group_end(&self, at: u64) -> u64 {
        let groups = at.saturating_sub(self.first_group.0) / self.group.0.max(1);
        let end = groups.saturating_add(1).saturating_mul(self.group.0).saturating_add(self.first_group.0);
        end.min(self.end.0.max(at))
    }
}

/// Size and offset of an ext4 superblock, in bytes.
const SUPERBLOCK_BYTES: usize = 1024;
const SUPERBLOCK_OFFSET: u64 = 1024;

/// Reads the superblock through the device's page cache, which ext4 uses for it too.
fn superblock_of(device: &BlockDevice) -> Option<[u8; SUPERBLOCK_BYTES]> {
    let mut superblock = [0; SUPERBLOCK_BYTES];
    let node = File::open(device.sysfs.node()).ok()?;
    let found = rustix::fs::fstat(node.as_fd()).ok()?;
    // In a container, the node of that name may be another device.
    if numbers_of(found.st_rdev) != device.numbers {
        return None;
    }
    node.read_exact_at(&mut superblock, SUPERBLOCK_OFFSET).ok()?;
    Some(superblock)
}

/// Parses the layout from an ext4 superblock; `None` if it is not a valid one. The fields are described in
/// Documentation/filesystems/ext4/super.rst.
pub fn parse_ext4_superblock(superblock: &[u8]) -> Option<Layout> {
    const MAGIC: u16 = 0xef53;
    const INCOMPAT_64BIT: u32 = 0x80;
    const RO_COMPAT_BIGALLOC: u32 = 0x200;
    let word = |at: usize| Some(u32::from_le_bytes(superblock.get(at..at + 4)?.try_into().ok()?));
    if superblock.get(0x38..0x3a)? != MAGIC.to_le_bytes() {
        return None;
    }
    let block =
        1024u64.checked_shl(word(0x18)?).filter(|&block| block.is_power_of_two() && block <= 65_536)?;
    let high = if word(0x60)? & INCOMPAT_64BIT == 0 { 0 } else { u64::from(word(0x150)?) << 32 };
    let blocks = high | u64::from(word(0x4)?);
    let group = Some(u64::from(word(0x20)?)).filter(|&group| group > 0)?.checked_mul(block)?;
    let first_group = u64::from(word(0x14)?).checked_mul(block).filter(|&first| first <= block)?;
    let cluster_shift = if word(0x64)? & RO_COMPAT_BIGALLOC == 0 { 0 } else { word(0x1c)? };
    let cluster = if cluster_shift == 0 { block } else { 1024u64.checked_shl(cluster_shift)? };
    let end = blocks.checked_mul(block).filter(|&end| end > first_group)?;
    if cluster < block || cluster > group {
        return None;
    }
    Some(Layout {
        block: Bytes(block),
        cluster: Bytes(cluster),
        group: Bytes(group),
        first_group: Bytes(first_group),
        end: Bytes(end),
        assumed: false,
        realtime: Bytes(0),
    })
}

/// Returns the default layout of mkfs.ext4: as many blocks in a group as one block has bits.
fn ext4_assumed(file: BorrowedFd<'_>, device: &BlockDevice) -> Option<Layout> {
    let block = fstatvfs(file).ok()?.f_bsize.clamp(1024, 65_536);
    Some(Layout {
        block: Bytes(block),
        cluster: Bytes(block),
        group: Bytes(8 * block * block),
        first_group: Bytes(if block == 1024 { 1024 } else { 0 }),
        end: device.size,
        assumed: true,
        realtime: Bytes(0),
    })
}

fn xfs(file: BorrowedFd<'_>) -> Option<Layout> {
    let geometry = ioctl::xfs_geometry(file).ok()?;
    let block = u64::from(geometry.block_bytes);
    let group = u64::from(geometry.group_blocks).checked_mul(block).filter(|&group| group > 0)?;
    Some(Layout {
        block: Bytes(block),
        cluster: Bytes(block),
        group: Bytes(group),
        first_group: Bytes(0),
        end: Bytes(geometry.data_blocks.checked_mul(block)?),
        assumed: false,
        realtime: Bytes(geometry.realtime_blocks.saturating_mul(block)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn superblock() -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(0x4, 262_144);
        put(0x18, 2);
        put(0x1c, 2);
        put(0x20, 32_768);
        put(0x38, 0xef53);
        bytes
    }

    #[test]
    fn groups_of_128_mib_are_read_from_a_superblock() {
        let layout = parse_ext4_superblock(&superblock()).unwrap();
        assert_eq!((layout.block, layout.group, layout.end), (Bytes(4096), Bytes::mib(128), Bytes::gib(1)));
        assert_eq!((layout.groups(), layout.first_group, layout.assumed), (8, Bytes(0), false));
        assert_eq!(layout.group_end(0), 128 << 20);
        assert_eq!(layout.group_end((128 << 20) - 1), 128 << 20);
        assert_eq!(layout.group_end(128 << 20), 256 << 20);
        assert_eq!(layout.group_end(u64::MAX), u64::MAX);
    }

    #[test]
    fn blocks_of_1_kib_begin_after_the_boot_block() {
        let mut bytes = superblock();
        bytes[0x14] = 1;
        bytes[0x18] = 0;
        bytes[0x20..0x24].copy_from_slice(&8192u32.to_le_bytes());
        let layout = parse_ext4_superblock(&bytes).unwrap();
        assert_eq!((layout.first_group, layout.group), (Bytes(1024), Bytes::mib(8)));
        assert_eq!(layout.group_end(0), (8 << 20) + 1024);
        assert_eq!(layout.group_end(1024), (8 << 20) + 1024);
        assert_eq!(layout.group_end((8 << 20) + 1024), (16 << 20) + 1024);
    }

    #[test]
    fn the_high_half_counts_only_with_its_feature() {
        let mut bytes = superblock();
        bytes[0x150] = 1;
        assert_eq!(parse_ext4_superblock(&bytes).unwrap().end, Bytes::gib(1));
        bytes[0x60] = 0x80;
        assert_eq!(parse_ext4_superblock(&bytes).unwrap().end, Bytes((1 << 44) + (1 << 30)));
    }

    #[test]
    fn invalid_superblocks_are_rejected() {
        for (at, byte) in [(0x38, 0), (0x18, 9), (0x18, 64), (0x21, 0), (0x14, 2), (0x6, 0)] {
            let mut bytes = superblock();
            bytes[at] = byte;
            assert_eq!(parse_ext4_superblock(&bytes), None, "{at:#x}");
        }
        assert_eq!(parse_ext4_superblock(&superblock()[..0x100]).map(|layout| layout.groups()), Some(8));
        assert_eq!(parse_ext4_superblock(&superblock()[..0x60]), None);
    }

    proptest! {
        #[test]
        fn no_superblock_makes_it_panic(noise in proptest::collection::vec(any::<u8>(), 0x160), at in any::<u64>()) {
            let mut bytes = noise;
            bytes[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
            bytes[0x19..0x1c].fill(0);
            if let Some(layout) = parse_ext4_superblock(&bytes) {
                prop_assert!(layout.groups() > 0 && layout.group_end(at) >= at);
            }
        }
    }
}
