//! A mount after the cut: replays the journal as jbd2 does, and builds the tree from the blocks.
//!
//! The log is read from the tail named in the journal's superblock, transaction by transaction, as long as there are
//! descriptors and a final commit block of the expected transaction. There are no checksums: a commit block vouches for
//! everything logged before it, so if a log block before it is missing, the old contents of that block are replayed.

use std::collections::BTreeMap;

use trimwise::fs::layout::{Layout, ROOT_INODE};
use trimwise::fs::witness::{Content, ContentId, Image, InodeImage, NEVER, Record, Tail};
use trimwise::units::{Lpn, UnitRange};

use super::power::Platter;
use super::violation::Broken;

pub(crate) struct Recovered<'a> {
    pub inodes: BTreeMap<u32, &'a InodeImage>,
    pub files: BTreeMap<String, u32>,
    pub allocated: Vec<UnitRange>,
}

struct Logged {
    tid: u64,
    writes: Vec<(u64, ContentId)>,
    end: u64,
}

/// Replays the log and adds its errors to `broken`. Of the blocks written to their places, only those that `survives`
/// selects remain: all, or those that a power failure leaves before the log is released.
pub fn replay(
    platter: &mut Platter<'_>,
    record: &Record,
    layout: &Layout,
    mut survives: impl FnMut() -> bool,
    broken: &mut Vec<Broken>,
) {
    let log = UnitRange::new(layout.journal.start.offset(1), layout.journal.units - 1);
    let Content::Tail(Tail { tid, offset }) = record.content(platter.read(layout.journal.start.0)) else {
        broken.push(Broken::NoJournal { block: layout.journal.start.0 });
        return;
    };
    let (mut tid, mut offset) = (*tid, *offset);
    let mut revoked: BTreeMap<u64, u64> = BTreeMap::new();
    let mut transactions = Vec::new();
    while let Some(logged) = scan(platter, record, log, tid, offset, &mut revoked, broken) {
        offset = logged.end;
        tid += 1;
        transactions.push(logged);
    }
    for Logged { tid, writes, .. } in transactions {
        for (block, content) in writes {
            if revoked.get(&block).is_none_or(|&by| by < tid) && survives() {
                platter.replay(block, content);
            }
        }
    }
}

/// Reads one transaction at `offset`; `None` if there is no complete one.
fn scan(
    platter: &Platter<'_>,
    record: &Record,
    log: UnitRange,
    tid: u64,
    offset: u64,
    revoked: &mut BTreeMap<u64, u64>,
    broken: &mut Vec<Broken>,
) -> Option<Logged> {
    let place = |at: u64| log.start.0 + at % log.units;
    let at_log = |at: u64| record.content(platter.read(place(at)));
    let mut at = offset;
    let mut writes = Vec::new();
    let mut missing = None;
    let mut revokes = Vec::new();
    while at - offset < log.units {
        match at_log(at) {
            Content::Descriptor { tid: found, blocks } if *found == tid => {
                for (i, &block) in (1..).zip(blocks) {
                    match at_log(at + i) {
                        Content::Logged { tid: found, block: of, content }
                            if (*found, *of) == (tid, block) =>
                        {
                            writes.push((block, *content));
                        }
                        _ => missing = missing.or(Some((place(at + i), block))),
                    }
                }
                at += 1 + blocks.len() as u64;
            }
            Content::Revoke { tid: found, blocks } if *found == tid => {
                revokes.extend_from_slice(blocks);
                at += 1;
            }
            Content::Commit { tid: found } if *found == tid => {
                if let Some((block, home)) = missing {
                    let found = record.describe(platter.read(block));
                    broken.push(Broken::LogBlockMissing { tid, block, home, found });
                    return None;
                }
                for block in revokes {
                    revoked.insert(block, tid);
                }
                return Some(Logged { tid, writes, end: (at + 1) % log.units });
            }
            _ => return None,
        }
    }
    None
}

pub fn mount<'a>(
    platter: &Platter<'_>,
    record: &'a Record,
    layout: &Layout,
    tables: &[u64],
    broken: &mut Vec<Broken>,
) -> Recovered<'a> {
    let mut found = Recovered { inodes: BTreeMap::new(), files: BTreeMap::new(), allocated: Vec::new() };
    let mut lost = |block: u64, what: &'static str| {
        broken.push(Broken::MetadataLost { block, kind: what, found: record.describe(platter.read(block)) });
    };
    let groups = layout.total_units().div_ceil(trimwise::fs::alloc::GROUP_UNITS);
    for block in (0..groups).map(|group| layout.block_bitmap(group).0) {
        match record.image(platter.read(block), block) {
            Some(Image::Bitmap(runs)) => found.allocated.extend_from_slice(runs),
            _ => lost(block, "a block bitmap"),
        }
    }
    for &block in tables {
        match record.image(platter.read(block), block) {
            Some(Image::Inodes(inodes)) => found.inodes.extend(inodes.iter().map(|i| (i.inode, i))),
            None if platter.read(block) == NEVER => {} // none of its inodes was ever in use
            _ => lost(block, "a block of the inode table"),
        }
    }
    let small = layout.initial_blocks().into_iter().flat_map(UnitRange::iter);
    for Lpn(block) in small {
        if record.image(platter.read(block), block).is_none() {
            lost(block, "a superblock, descriptor or bitmap");
        }
    }
    for (&inode, image) in &found.inodes {
        for &Lpn(block) in &image.tree {
            match record.image(platter.read(block), block) {
                Some(Image::Tree { inode: of }) if *of == inode => {}
                _ => lost(block, "a block of an extent tree"),
            }
        }
    }
    let mut directories = vec![(String::new(), ROOT_INODE)];
    while let Some((path, inode)) = directories.pop() {
        let Some(image) = found.inodes.get(&inode).copied() else {
            broken.push(Broken::NameWithoutInode { path, inode });
            continue;
        };
        for block in image.extents.iter().flat_map(|extent| extent.blocks.iter()) {
            let held = platter.read(block.0);
            let entries = match record.image(held, block.0) {
                Some(Image::Directory { inode: of, entries }) if *of == inode => entries,
                _ => {
                    broken.push(Broken::DirectoryLost {
                        path: path.clone(),
                        block: block.0,
                        found: record.describe(held),
                    });
                    continue;
                }
            };
            for (path, &inode) in entries {
                match found.inodes.get(&inode) {
                    Some(image) if image.is_directory => directories.push((path.to_string(), inode)),
                    Some(_) => drop(found.files.insert(path.to_string(), inode)),
                    None => broken.push(Broken::NameWithoutInode { path: path.to_string(), inode }),
                }
            }
        }
    }
    found
}
