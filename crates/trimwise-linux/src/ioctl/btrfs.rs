//! Lists the chunks of a btrfs with BTRFS_IOC_TREE_SEARCH: the logical addresses that exist. Number and structures are
//! those of include/uapi/linux/btrfs.h and btrfs_tree.h. Needs CAP_SYS_ADMIN, like FITRIM.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use trimwise::units::Span;

/// BTRFS_CHUNK_TREE_OBJECTID, BTRFS_FIRST_CHUNK_TREE_OBJECTID and BTRFS_CHUNK_ITEM_KEY.
const CHUNK_TREE: u64 = 3;
const CHUNKS: u64 = 256;
const CHUNK_ITEM: u32 = 228;

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct SearchKey {
    tree: u64,
    objectid_min: u64,
    objectid_max: u64,
    offset_min: u64,
    offset_max: u64,
    transid_min: u64,
    transid_max: u64,
    type_min: u32,
    type_max: u32,
    items: u32,
    unused: u32,
    unused64: [u64; 4],
}

const BUFFER: usize = 4096 - size_of::<SearchKey>();

/// `struct btrfs_ioctl_search_args`.
#[repr(C)]
struct Search {
    key: SearchKey,
    buffer: [u8; BUFFER],
}

/// Returns the logical addresses of a btrfs, chunk by chunk, ascending. They are not joined, since the start of each
/// chunk must be known: FITRIM skips a chunk whose start is not in its range (`btrfs_trim_fs` looks for the first block
/// group at or after the start).
pub fn chunks(file: BorrowedFd<'_>) -> Result<Vec<Span>, Errno> {
    const TREE_SEARCH: Opcode = opcode::read_write::<Search>(0x94, 17);
    let mut spans: Vec<Span> = Vec::new();
    let mut from = 0;
    loop {
        let key = SearchKey {
            tree: CHUNK_TREE,
            objectid_min: CHUNKS,
            objectid_max: CHUNKS,
            offset_min: from,
            offset_max: u64::MAX,
            transid_min: 0,
            transid_max: u64::MAX,
            type_min: CHUNK_ITEM,
            type_max: CHUNK_ITEM,
            items: u32::MAX,
            unused: 0,
            unused64: [0; 4],
        };
        let mut search = Box::new(Search { key, buffer: [0; BUFFER] });
        // SAFETY: the ioctl reads and writes one `struct btrfs_ioctl_search_args` of 4096 bytes, which `Search` is (the
        // ioctl number says its size), and keeps no pointer to it; any bits make a valid one.
        unsafe { ioctl(file, Updater::<TREE_SEARCH, _>::new(&mut *search))? };
        let found = parse(&search.buffer, search.key.items);
        let Some(last) = found.last() else { return Ok(spans) };
        from = last.start.saturating_add(1);
        spans.extend(found);
    }
}

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    rest: [u8; 1016],
}

/// `struct btrfs_ioctl_dev_info_args`.
#[repr(C)]
struct DevInfo {
    id: u64,
    uuid: [u8; 16],
    bytes_used: u64,
    total_bytes: u64,
    rest: [u8; 4056],
}

/// Returns the bytes of its devices that a btrfs uses: less than they have if it was made or resized smaller (`btrfs device
/// usage` calls the rest slack), and FITRIM stays inside.
pub fn held(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    const FS_INFO: Opcode = opcode::read::<FsInfo>(0x94, 31);
    const DEV_INFO: Opcode = opcode::read_write::<DevInfo>(0x94, 30);
    let mut of_all = Box::new(FsInfo { max_id: 0, rest: [0; 1016] });
    // SAFETY: the ioctl writes one `struct btrfs_ioctl_fs_info_args` of 1024 bytes, which `FsInfo` is (the ioctl number says
    // its size), and keeps no pointer to it; any bits make a valid one.
    unsafe { ioctl(file, Updater::<FS_INFO, _>::new(&mut *of_all))? };
    let mut held = 0_u64;
    for id in 1..=of_all.max_id {
        let mut of_one =
            Box::new(DevInfo { id, uuid: [0; 16], bytes_used: 0, total_bytes: 0, rest: [0; 4056] });
        // SAFETY: as above, with `struct btrfs_ioctl_dev_info_args` of 4096 bytes.
        match unsafe { ioctl(file, Updater::<DEV_INFO, _>::new(&mut *of_one)) } {
            Ok(()) => held = held.saturating_add(of_one.total_bytes),
            // Numbers of removed devices are not used again.
            Err(Errno::NODEV) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(held)
}

/// Parses the chunks in a search result. Each item is a `struct btrfs_ioctl_search_header`, whose third number is the
/// chunk's start, followed by a `struct btrfs_chunk`, whose first field is its length.
fn parse(buffer: &[u8], items: u32) -> Vec<Span> {
    let wide = |at: usize| <[u8; 8]>::try_from(buffer.get(at..at + 8)?).ok();
    let narrow = |at: usize| Some(u32::from_ne_bytes(buffer.get(at..at + 4)?.try_into().ok()?));
    let (mut at, mut spans) = (0_usize, Vec::new());
    for _ in 0..items {
        let (Some(start), Some(kind), Some(length)) = (wide(at + 16), narrow(at + 24), narrow(at + 28))
        else {
            break;
        };
        // The header is in native byte order, the item in on-disk order.
        let (start, bytes) = (u64::from_ne_bytes(start), wide(at + 32).map(u64::from_le_bytes));
        at += 32 + length as usize;
        if let Some(bytes) = bytes.filter(|&bytes| kind == CHUNK_ITEM && bytes > 0) {
            spans.push(Span { start, end: start.saturating_add(bytes) });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!((size_of::<SearchKey>(), size_of::<Search>()), (104, 4096));
        assert_eq!((size_of::<FsInfo>(), size_of::<DevInfo>()), (1024, 4096));
    }

    #[test]
    fn chunks_are_read_until_the_buffer_ends() {
        let mut buffer = Vec::new();
        for (start, kind, bytes) in
            [(1_u64 << 20, CHUNK_ITEM, 8_u64 << 20), (9 << 20, 1, 7), (9 << 20, CHUNK_ITEM, 64)]
        {
            buffer.extend([7_u64, CHUNKS, start].into_iter().flat_map(u64::to_ne_bytes));
            buffer.extend([kind, 80].into_iter().flat_map(u32::to_ne_bytes));
            buffer.extend(bytes.to_le_bytes());
            buffer.extend([0; 72]);
        }
        let (first, last) =
            (Span { start: 1 << 20, end: 9 << 20 }, Span { start: 9 << 20, end: (9 << 20) + 64 });
        assert_eq!(parse(&buffer, 3), [first, last]);
        assert_eq!(parse(&buffer, u32::MAX), [first, last]);
        assert_eq!(parse(&buffer, 1), [first]);
        for cut in 0..buffer.len() {
            assert!(parse(&buffer[..cut], 3).len() <= 2);
        }
    }
}
