//! A set of extents, ordered by address: the interval map behind [`super::PendingSet`] and the file system's allocator.
//!
//! The address space is cut into chunks of one block group, and a chunk keeps its extents as a sorted list of four
//! bytes each. A lookup is a search in a small tree and a binary search in a few kilobytes; a change moves the rest of
//! the chunk's list. So a set of a million extents costs hundreds of nanoseconds per operation (`benches/policy.rs`),
//! and never a walk along a list. Extents end at the border of a chunk, as allocations do.

use std::collections::BTreeMap;

use crate::units::{Lpn, UnitRange};

/// Units in a chunk: a block group of 128 MiB. Offsets in it, up to its length, fit into 16 bits.
pub(crate) const CHUNK_UNITS: u64 = 32_768;

/// Extents that [`Extents::fit`] examines before it gives up, to bound the cost of an allocation.
const FIT_SCAN: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u16,
    end: u16,
}

impl Run {
    fn in_chunk(self, chunk: u64) -> UnitRange {
        UnitRange::new(Lpn(chunk * CHUNK_UNITS + u64::from(self.start)), u64::from(self.end - self.start))
    }
}

fn pieces(range: UnitRange) -> impl Iterator<Item = (u64, Run)> {
    let (start, end) = (range.start.0, range.end().0);
    let chunks = if range.units == 0 { 0..0 } else { start / CHUNK_UNITS..end.div_ceil(CHUNK_UNITS) };
    chunks.map(move |chunk| {
        let base = chunk * CHUNK_UNITS;
        let offset = |at: u64| at.saturating_sub(base).min(CHUNK_UNITS) as u16;
        (chunk, Run { start: offset(start), end: offset(end) })
    })
}

#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// No chunk is empty.
    chunks: BTreeMap<u64, Vec<Run>>,
    units: u64,
    extents: usize,
}

impl Extents {
    /// Adds an extent that overlaps none in the set. With `merge`, neighbours in a chunk become one extent.
    pub fn insert(&mut self, range: UnitRange, merge: bool) {
        self.units += range.units;
        for (chunk, run) in pieces(range) {
            let runs = self.chunks.entry(chunk).or_default();
            let at = runs.partition_point(|r| r.start < run.start);
            debug_assert!(at == 0 || runs[at - 1].end <= run.start, "inserted twice: {range:?}");
            let joins_before = merge && at > 0 && runs[at - 1].end == run.start;
            let joins_after = merge && runs.get(at).is_some_and(|r| r.start == run.end);
            match (joins_before, joins_after) {
                (false, false) => runs.insert(at, run),
                (true, false) => runs[at - 1].end = run.end,
                (false, true) => runs[at].start = run.start,
                (true, true) => {
                    runs[at - 1].end = runs[at].end;
                    runs.remove(at);
                }
            }
            self.extents = self.extents + 1 - usize::from(joins_before) - usize::from(joins_after);
        }
    }

    /// Removes the parts of `range` that are in the set, passing each to `taken`. Returns their total units.
    pub fn remove(&mut self, range: UnitRange, mut taken: impl FnMut(UnitRange)) -> u64 {
        if range.units == 0 {
            return 0;
        }
        let mut removed = 0;
        let (first, last) = (range.start.0 / CHUNK_UNITS, (range.end().0 - 1) / CHUNK_UNITS);
        let mut emptied = Vec::new();
        for (&chunk, runs) in self.chunks.range_mut(first..=last) {
            let base = chunk * CHUNK_UNITS;
            let start = range.start.0.saturating_sub(base).min(CHUNK_UNITS) as u16;
            let end = range.end().0.saturating_sub(base).min(CHUNK_UNITS) as u16;
            let from = runs.partition_point(|r| r.end <= start);
            let to = from + runs[from..].partition_point(|r| r.start < end);
            if from == to {
                continue;
            }
            for &run in &runs[from..to] {
                let part = Run { start: run.start.max(start), end: run.end.min(end) }.in_chunk(chunk);
                removed += part.units;
                taken(part);
            }
            let before = Run { start: runs[from].start, end: start };
            let after = Run { start: end, end: runs[to - 1].end };
            let left = [before, after].into_iter().filter(|r| r.start < r.end);
            let count = left.clone().count();
            self.extents = self.extents + count - (to - from);
            if count == to - from {
                // Replace in place, so that the rest of the list does not move.
                runs[from..to].iter_mut().zip(left).for_each(|(run, left)| *run = left);
            } else {
                runs.splice(from..to, left);
            }
            if runs.is_empty() {
                emptied.push(chunk);
            }
        }
        for chunk in emptied {
            self.chunks.remove(&chunk);
        }
        self.units -= removed;
        removed
    }

    /// Returns the first extent after `from` with at least `units_min` units. Of an extent that begins before `from`,
    /// only the part from there on counts.
    pub fn find(&self, from: u64, units_min: u64) -> Option<UnitRange> {
        self.from(from).find(|extent| extent.units >= units_min.max(1))
    }

    /// Finds `want` units in one extent, at `goal` or after it, wrapping around. Examines a bounded number of extents;
    /// `None` if none of these is long enough.
    pub fn fit(&self, goal: u64, want: u64) -> Option<UnitRange> {
        let around = self.from(goal).chain(self.from(0));
        let fitting = around.take(FIT_SCAN.min(2 * self.extents)).find(|extent| extent.units >= want)?;
        Some(UnitRange::new(fitting.start, want))
    }

    pub(crate) fn from(&self, from: u64) -> impl Iterator<Item = UnitRange> + '_ {
        let first = from / CHUNK_UNITS;
        let offset = (from % CHUNK_UNITS) as u16;
        self.chunks.range(first..).flat_map(move |(&chunk, runs)| {
            let cut = if chunk == first { offset } else { 0 };
            let at = if cut == 0 { 0 } else { runs.partition_point(|r| r.end <= cut) };
            runs[at..].iter().map(move |r| Run { start: r.start.max(cut), end: r.end }.in_chunk(chunk))
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = UnitRange> + '_ {
        self.from(0)
    }

    pub fn overlaps(&self, range: UnitRange) -> bool {
        self.find(range.start.0, 0).is_some_and(|extent| extent.start < range.end())
    }

    pub fn units(&self) -> u64 {
        self.units
    }

    pub fn len(&self) -> usize {
        self.extents
    }
}
