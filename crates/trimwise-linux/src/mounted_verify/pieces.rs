//! Looks for the size below which a device frees nothing.
//!
//! Some devices acknowledge every discard and free only whole clusters of their own, larger than the granularity that they
//! announce (Longhorn's engine on SPDK: <https://github.com/longhorn/longhorn/issues/11757>). A large file's blocks go, those
//! of small files stay. So one more file is written, every second piece of it is freed, and the places are read after a trim.
//! It has a tenth to half of the test's file, and costs about as much time again at most.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rustix::fs::{FallocateFlags, fallocate, syncfs};
use trimwise::units::{Bytes, UNIT_BYTES};

use super::scratch::Scratch;
use super::{Found, Open, REST, TRIMS, blocks_of, look, plan};
use crate::fiemap::{Extent, extents};
use crate::layers::Stack;
use crate::trim::{self, Target};

/// Sizes of pieces in units, and the number of each that is freed.
const SIZES: [(u64, u64); 5] = [(4, 16), (16, 8), (64, 4), (256, 3), (1024, 2)];

/// What became of freed pieces of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    pub bytes: Bytes,
    /// Units of them that could be judged: inside whole granules, and not reused.
    pub judged: u64,
    /// Units of those whose data are gone.
    pub gone: u64,
}

/// Returns the largest size of which the device freed nothing, nor of smaller ones; `None` if it frees all sizes.
pub fn ignored_up_to(pieces: &[Pieces]) -> Option<Bytes> {
    let judged = pieces.iter().filter(|one| one.judged > 0);
    judged.take_while(|one| one.gone == 0).last().map(|one| one.bytes)
}

/// Where pieces lie in the file: (size, first unit), as many sizes as fit.
fn layout(units: u64) -> (Vec<(u64, u64)>, u64) {
    let (mut pieces, mut end) = (Vec::new(), 0);
    for (size, count) in SIZES {
        if end + 2 * size * count > units {
            break;
        }
        pieces.extend((0..count).map(|index| (size, end + 2 * index * size)));
        end += 2 * size * count;
    }
    (pieces, end)
}

/// Returns the parts of extents that lie in a range of the file.
fn within(lies: &[Extent], start: u64, bytes: u64) -> impl Iterator<Item = Extent> + '_ {
    lies.iter().filter_map(move |extent| {
        let logical = extent.logical.max(start);
        let end = (extent.logical.saturating_add(extent.bytes)).min(start + bytes);
        let skipped = logical - extent.logical;
        (logical < end).then(|| Extent { logical, physical: extent.physical + skipped, bytes: end - logical })
    })
}

/// Frees pieces of a file of at most `units`, trims, and reads. The error says why that was not possible.
pub(super) fn run(
    directory: &Path,
    units: u64,
    stack: &Stack,
    disks: &[Open],
    target: &Target,
    stop: &AtomicBool,
) -> Result<Vec<Pieces>, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let (pieces, units) = layout(units);
    let mut scratch = Scratch::write(directory, units, stop).map_err(|error| said(&error))?;
    let lies = extents(scratch.file()).map_err(|error| said(&error))?;
    let mut blocks = Vec::new();
    for &(size, first) in &pieces {
        let parts: Vec<Extent> = within(&lies, first * UNIT_BYTES, size * UNIT_BYTES).collect();
        let mut found = blocks_of(&parts, units, stack, disks);
        found.retain(|block| block.is_whole && look(block, disks, scratch.content()) == Found::OldData);
        blocks.extend(found.into_iter().map(|block| (size, block)));
    }
    for &(size, first) in &pieces {
        punch(scratch.file(), first * UNIT_BYTES, size * UNIT_BYTES)
            .map_err(|error| format!("the file system cannot free parts of a file: {error}"))?;
    }
    scratch.file().sync_all().map_err(|error| said(&error))?;
    syncfs(scratch.file()).map_err(|error| said(&error))?;
    let plan = plan(target, &lies).map_err(|error| said(&error))?;
    for round in 0..TRIMS {
        if round > 0 {
            std::thread::sleep(REST);
        }
        trim::run(target, &plan, stop, |_| ()).map_err(|error| said(&error))?;
        for (_, block) in &mut blocks {
            block.after_trim = look(block, disks, scratch.content());
        }
        if !blocks.iter().any(|(_, block)| block.after_trim == Found::OldData) {
            break;
        }
    }
    // Nothing of the test stays behind on the disk.
    scratch.remove().map_err(|error| said(&error))?;
    trim::run(target, &plan, stop, |_| ()).map_err(|error| said(&error))?;
    let of_size = |size: u64| {
        let found = || blocks.iter().filter(move |(of, _)| *of == size).map(|(_, block)| block.after_trim);
        let gone = found().filter(|found| *found == Found::Zeros).count() as u64;
        let old = found().filter(|found| *found == Found::OldData).count() as u64;
        Pieces { bytes: Bytes::from_units(size), judged: gone + old, gone }
    };
    let mut sizes: Vec<u64> = pieces.iter().map(|(size, _)| *size).collect();
    sizes.dedup();
    Ok(sizes.into_iter().map(of_size).collect())
}

fn punch(file: &File, start: u64, bytes: u64) -> rustix::io::Result<()> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_alternate_with_what_stays() {
        let (pieces, units) = layout(16 * 1024);
        assert_eq!(units, 128 + 256 + 512 + 1536 + 4096);
        assert_eq!(pieces.len(), 16 + 8 + 4 + 3 + 2);
        assert_eq!(pieces[..2], [(4, 0), (4, 8)]);
        assert_eq!(pieces[16], (16, 128));
        assert!(pieces.windows(2).all(|two| two[0].1 + 2 * two[0].0 <= two[1].1));
        assert_eq!(layout(900).1, 128 + 256 + 512);
        assert_eq!(layout(127), (vec![], 0));
        let lies = [
            Extent { logical: 0, physical: 1000, bytes: 100 },
            Extent { logical: 100, physical: 5000, bytes: 50 },
        ];
        let parts: Vec<_> = within(&lies, 90, 20).collect();
        assert_eq!(
            parts,
            [
                Extent { logical: 90, physical: 1090, bytes: 10 },
                Extent { logical: 100, physical: 5000, bytes: 10 },
            ]
        );
    }

    #[test]
    fn a_size_is_ignored_if_nothing_of_it_and_of_smaller_ones_is_gone() {
        let of = |found: &[(u64, u64, u64)]| {
            let pieces =
                found.iter().map(|&(kib, judged, gone)| Pieces { bytes: Bytes::kib(kib), judged, gone });
            ignored_up_to(&pieces.collect::<Vec<_>>()).map(|bytes| bytes.0 >> 10)
        };
        assert_eq!(of(&[(16, 64, 64), (64, 128, 128)]), None);
        assert_eq!(of(&[(16, 64, 0), (64, 128, 0), (256, 256, 64)]), Some(64));
        // Less than a granule cannot be judged.
        assert_eq!(of(&[(16, 0, 0), (64, 128, 128)]), None);
        assert_eq!(of(&[(16, 0, 0), (64, 128, 0), (256, 9, 9)]), Some(64));
        // Something of the smallest is gone: what stays is no matter of size.
        assert_eq!(of(&[(16, 64, 1), (64, 128, 0)]), None);
        assert_eq!(of(&[]), None);
    }
}
