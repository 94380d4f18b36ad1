//! Recognises a device's contents by its first bytes.
//!
//! Offsets and magic numbers are those of blkid(8). Only common kinds are distinguished, since a device with anything
//! but zeros counts as holding data anyway.

use trimwise::content::{Stored, recognise};
use trimwise::units::{Lpn, UNIT_BYTES};

/// Bytes from the start of a device that [`signature`] needs.
pub const HEAD_BYTES: usize = 72 << 10;

/// Offset, magic number, and name of the contents that it identifies.
const MAGIC: [(usize, &[u8], &str); 22] = [
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, b"XFSB", "an XFS file system"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
    (1024, b"\x10\x20\xf5\xf2", "an f2fs file system"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcache device or a bcachefs file system"),
    (4096 - 10, b"SWAPSPACE2", "swap space"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"LABELONE", "an LVM physical volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (0, b"hsqs", "a squashfs file system"),
    (32_768, b"ReIsEr", "a ReiserFS file system"),
    (32_768, b"JFS1", "a JFS file system"),
    // Last: a boot sector may precede any of the others.
    (510, b"\x55\xaa", "a boot sector or an MBR partition table"),
];

/// Identifies contents by `head`, the first bytes of a device. Returns `None` if no known kind matches.
pub fn signature(head: &[u8]) -> Option<&'static str> {
    let found =
        MAGIC.iter().find(|(at, magic, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    found.map(|&(_, _, what)| what).or_else(|| {
        let own = head.get(..UNIT_BYTES as usize).map(|unit| recognise(Lpn(0), unit));
        let is_own =
            matches!(own, Some(Stored::Content(_) | Stored::Duplicate(_) | Stored::Misplaced { .. }));
        is_own.then_some("data from an earlier trimwise test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise::content::{Content, ContentClass};

    #[test]
    fn kinds_are_recognised_by_their_magic_numbers_and_short_heads_are_not() {
        for (at, magic, what) in MAGIC {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(signature(&head), Some(what));
            assert_eq!(signature(&head[..at + magic.len() - 1]), None, "{what}, cut");
        }
        assert_eq!(signature(&[]), None);
        assert_eq!(signature(&[0; HEAD_BYTES]), None);
    }

    #[test]
    fn our_own_data_are_recognised() {
        let mut unit = vec![0; UNIT_BYTES as usize];
        Content::new(ContentClass::Incompressible, 3).fill(Lpn(0), &mut unit);
        assert_eq!(signature(&unit), Some("data from an earlier trimwise test"));
        unit[100] ^= 1;
        assert_eq!(signature(&unit), None);
    }
}
