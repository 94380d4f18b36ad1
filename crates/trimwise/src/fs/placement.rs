//! Where a closed file gets its blocks: mballoc since Linux 2.6.32, without its buddies.
//!
//! Most files are closed when they are written back, and nothing is set aside for their growth
//! (`ext4_mb_group_or_file`). Those of up to 64 KiB lie side by side in chunks of 2 MiB. A larger one looks in the block
//! group of its goal first, and in those behind it: of about the first ten free extents that it meets it takes that
//! which is the least larger than it. Groups whose free extents are shorter than it on average are passed over until none is left.
//!
//! Not modelled: extents as buddies cut them, several chunks with room left, and what is set aside for open files.

use super::alloc::{Allocator, GROUP_UNITS, group_of};
use crate::units::{Lpn, UnitRange};

/// Largest file of a chunk, in pages (`s_mb_stream_request`: 64 KiB).
const SMALL_PAGES: u64 = 16;
/// A chunk (`s_mb_group_prealloc`: 512 blocks), which is aligned to its length.
const CHUNK_UNITS: u64 = 512;
/// After more free extents than these one that suffices is taken (`s_mb_min_to_scan`).
const SCANNED_MIN: usize = 10;
/// And after more than these the longest, whether it suffices or not (`s_mb_max_to_scan`).
const SCANNED_MAX: usize = 200;

impl Allocator {
    /// Allocates up to `want` units in one extent for a file of so many pages; `None` only if nothing is free.
    pub(super) fn allocate_in_groups(&mut self, goal: Lpn, want: u64, size_pages: u64) -> Option<UnitRange> {
        if want == 0 || self.free_units() == 0 {
            return None;
        }
        let group = group_of(goal.0) % self.groups() as u64;
        if size_pages <= SMALL_PAGES
            && want <= SMALL_PAGES
            && let Some(range) = self.allocate_in_chunk(group, want)
        {
            return Some(range);
        }
        let (start, units) = self.best_fit(group, want)?;
        Some(self.take_free(start, units.min(want)))
    }

    fn allocate_in_chunk(&mut self, group: u64, want: u64) -> Option<UnitRange> {
        let fits = |chunk: &UnitRange| chunk.units >= want;
        let left = self.chunk().filter(fits).filter(|chunk| self.free_at(chunk.start.0) >= want);
        let chunk = match left {
            Some(chunk) => chunk,
            None => self.find_chunk(group)?,
        };
        let range = self.take_free(chunk.start.0, want);
        self.set_chunk(Some(UnitRange::new(range.end(), chunk.units - want)));
        Some(range)
    }

    fn groups_from(&self, first: u64) -> impl Iterator<Item = u64> + use<> {
        let groups = self.groups() as u64;
        (0..groups).map(move |i| (first + i) % groups)
    }

    /// The first chunk that is free as a whole.
    fn find_chunk(&self, first: u64) -> Option<UnitRange> {
        let in_group = |group: u64| {
            let is_likely = self.count(group).units >= CHUNK_UNITS;
            let mut extents = is_likely.then(|| self.free_in_group(group)).into_iter().flatten();
            extents.find_map(|extent| {
                let start = extent.start.0.next_multiple_of(CHUNK_UNITS);
                (start + CHUNK_UNITS <= extent.end().0).then(|| UnitRange::new(Lpn(start), CHUNK_UNITS))
            })
        };
        self.groups_from(first).find_map(in_group)
    }

    /// The extent to take, where it starts and how long it is.
    fn best_fit(&self, first: u64, want: u64) -> Option<(u64, u64)> {
        let want = want.min(GROUP_UNITS);
        let mut best: Option<(u64, u64)> = None;
        let is_better = |best: Option<(u64, u64)>, units: u64| match best {
            None => true,
            Some((_, held)) if held < want => units > held,
            Some((_, held)) => units >= want && units < held,
        };
        for passes_over in [true, false] {
            let mut scanned = 0;
            for group in self.groups_from(first) {
                let count = self.count(group);
                if count.extents == 0 || (passes_over && count.units / count.extents < want) {
                    continue;
                }
                for extent in self.free_in_group(group) {
                    scanned += 1;
                    let (start, units) = self.beside_chunk(extent);
                    if units > 0 && is_better(best, units) {
                        best = Some((start, units));
                    }
                    let suffices = best.is_some_and(|(_, units)| units >= want);
                    let is_exact = best.is_some_and(|(_, units)| units == want);
                    if is_exact || (suffices && scanned > SCANNED_MIN) || scanned > SCANNED_MAX {
                        return best;
                    }
                }
                if best.is_some_and(|(_, units)| units >= want) {
                    return best;
                }
            }
        }
        best.or_else(|| self.free_in_any().map(|extent| (extent.start.0, extent.units)))
    }

    /// What of a free extent is not set aside for small files: in front of the chunk or behind it, whichever is longer.
    fn beside_chunk(&self, extent: UnitRange) -> (u64, u64) {
        let Some(chunk) =
            self.chunk().filter(|chunk| chunk.start < extent.end() && extent.start < chunk.end())
        else {
            return (extent.start.0, extent.units);
        };
        let before = chunk.start.0.saturating_sub(extent.start.0);
        let after = extent.end().0.saturating_sub(chunk.end().0);
        if before >= after { (extent.start.0, before) } else { (chunk.end().0, after) }
    }

    fn free_in_any(&self) -> Option<UnitRange> {
        self.groups_from(0).find_map(|group| self.free_in_group(group).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Allocator {
        let mut allocator = Allocator::new(4 * GROUP_UNITS);
        allocator.release(UnitRange::new(Lpn(0), 4 * GROUP_UNITS));
        allocator
    }

    #[test]
    fn small_files_lie_side_by_side_and_large_ones_beside_their_chunk() {
        let mut allocator = empty();
        let goal = Lpn(GROUP_UNITS);
        let small: Vec<u64> =
            (0..3).map(|_| allocator.allocate_in_groups(goal, 5, 5).unwrap().start.0 - goal.0).collect();
        assert_eq!(small, [0, 5, 10]);
        assert_eq!(allocator.allocate_in_groups(goal, 100, 100).unwrap().start.0, goal.0 + CHUNK_UNITS);
        assert_eq!(allocator.allocate_in_groups(goal, 5, 5).unwrap().start.0, goal.0 + 15);
    }

    #[test]
    fn a_large_file_takes_the_hole_that_fits_best() {
        let mut allocator = empty();
        let goal = Lpn(GROUP_UNITS);
        let all = allocator.allocate_in_groups(goal, 1_000, 1_000).unwrap();
        for (at, units) in [(10, 90), (200, 60), (400, 80)] {
            allocator.release(UnitRange::new(all.start.offset(at), units));
        }
        assert_eq!(allocator.allocate_in_groups(goal, 60, 60).unwrap().start, all.start.offset(200));
        assert_eq!(allocator.allocate_in_groups(goal, 70, 70).unwrap().start, all.start.offset(400));
    }

    #[test]
    fn everything_can_be_allocated() {
        let mut allocator = empty();
        let mut left = 4 * GROUP_UNITS;
        for i in 0.. {
            let Some(range) = allocator.allocate_in_groups(Lpn(i * 777), 1 + i % 900, 1 + i % 40) else {
                break;
            };
            left -= range.units;
        }
        assert_eq!(left, 0);
    }
}
