//! Block allocation for files: mballoc, as in Linux since about 6.8 (`fs/ext4/mballoc.c`).
//!
//! An allocation goes through three stages:
//!
//! 1. *Preallocations*. A file that is open while it is written back has windows of its own (inode preallocation);
//!    files of up to 64 KiB share chunks of 2 MiB (locality groups).
//! 2. *Normalization*. An open file asks for its whole window (128 KiB to 8 MiB, by its size), a small one for a new
//!    chunk, a larger closed file for exactly its dirty pages.
//! 3. *Search*, by one criterion after the other, each less selective than the last. In a group it looks at free
//!    extents from the first on, as the buddies cut them, and takes an exact fit, or the smallest sufficient one of
//!    about ten. The first groups are those whose free extents are on average just long enough, by size class, starting
//!    from the goal's group.
//!
//! Blocks found beyond the request are preallocated. They count as free (`statfs`), but no other file gets them.
//!
//! Buddies are not stored. Linux always merges them as far as possible, so the buddy of a block follows from the free
//! extent around it.
//!
//! On a device with an optimal transfer size, such as a pool of chunks, mke2fs notes a *stripe*. A request for a multiple
//! of it takes the first free stripe that is aligned, however short the free space behind that is.
//!
//! Not modelled: bigalloc, rotating disks, contention (one processor, so one locality group), and groups whose
//! bitmap has not been read (`prefetch_block_bitmaps` reads all of them after the mount).

use std::collections::{BTreeMap, BTreeSet};

use super::alloc::{Allocator, GROUP_UNITS, group_of};
use crate::units::{Lpn, UnitRange};

/// Largest file that shares a chunk, in pages (`s_mb_stream_request`: 64 KiB).
const SMALL_PAGES: u64 = 16;
/// Length of a chunk (`s_mb_group_prealloc`: 512 blocks).
const CHUNK_UNITS: u64 = 512;
/// After scanning more free extents than this, take a sufficient one (`s_mb_min_to_scan`).
const SCANNED_MIN: usize = 10;
/// After scanning more than this, take the longest, sufficient or not (`s_mb_max_to_scan`).
const SCANNED_MAX: usize = 200;
/// Number of buddy sizes: 4 KiB to 32 MiB (`MB_NUM_ORDERS`).
const ORDERS: usize = 14;
/// Number of orders by which a window can be cut before the search gets slow (`s_mb_best_avail_max_trim_order`).
const TRIM_ORDERS: u32 = 3;
/// Number of lists of chunks, by the order of their remaining length (`PREALLOC_TB_SIZE`).
const CHUNK_LISTS: usize = 10;
/// A list with more chunks than this is cut down to [`CHUNKS_KEPT`] (`ext4_mb_add_n_trim`).
const CHUNKS_MAX: usize = 8;
const CHUNKS_KEPT: usize = 5;
/// The first of this many groups holds the metadata of all; no whole buddies for data are taken from it.
const FLEX_GROUPS: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct FileShape {
    pub(super) inode: u32,
    pub(super) page: u64,
    pub(super) size_pages: u64,
    pub(super) is_open: bool,
    /// Page and block just after the previous mapped extent.
    pub(super) left: Option<(u64, u64)>,
    /// First page and block of the next mapped extent.
    pub(super) right: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Mballoc {
    windows: BTreeMap<(u32, u64), Window>,
    /// Remaining parts of the chunks for small files, by the order of their length, shortest first.
    chunks: [Vec<UnitRange>; CHUNK_LISTS],
    preallocated_units: u64,
    newly_preallocated: Vec<UnitRange>,
    /// Blocks of a stripe (`s_stripe`); 0: none.
    stripe_units: u64,
    /// The search has no [`Criterion::AverageOfLess`]: up to Linux 6.4.
    never_shortens: bool,
    /// Group of the last window (`s_mb_last_group`).
    last_window: u64,
    /// Groups by the order of the average length of their free extents (`s_mb_avg_fragment_size`).
    by_average: [BTreeSet<u64>; ORDERS],
    averages: Vec<Option<u8>>,
    /// Groups by the order of their largest buddy (`s_mb_largest_free_orders`).
    by_largest: [BTreeSet<u64>; ORDERS],
    largest: Vec<Option<u8>>,
    changed: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Window {
    blocks: UnitRange,
    unused: Vec<UnitRange>,
}

/// A criterion that groups and extents must meet. From the most to the least selective:
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Criterion {
    Buddy,
    Average,
    /// A group whose extents are on average long enough for a shortened window.
    AverageOfLess,
    Enough,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Continue,
    Found,
    Break,
}

/// What to search for.
#[derive(Clone, Copy)]
struct Wanted {
    goal_group: u64,
    units: u64,
    /// Units to search for once a search for fewer than `units` was in vain (`ac_orig_goal_len`).
    units_at_last: u64,
    /// Units that were asked for, before they became a window or a chunk.
    least_units: u64,
    is_data: bool,
}

struct Search {
    wanted: Wanted,
    /// Units to search for now.
    goal_units: u64,
    best: Option<UnitRange>,
    scanned: usize,
    status: Status,
}

/// Returns the order of a length: 0 for 1, 1 for 2 and 3, 2 for 4 to 7.
fn order_of(units: u64) -> usize {
    units.max(1).ilog2() as usize
}

/// Returns the list for an average (or wanted) length (`mb_avg_fragment_size_order`).
fn average_order(units: u64) -> usize {
    order_of(units).saturating_sub(1).min(ORDERS - 1)
}

/// Returns the end of the buddy that begins at a block of a free extent ending at `end`. From the beginning of an
/// extent on, each buddy begins where the one before ends.
fn buddy_end(block: u64, end: u64) -> u64 {
    let order = block.trailing_zeros().min((end - block).ilog2()).min(ORDERS as u32 - 1);
    block + (1 << order)
}

/// Returns true if a free extent has a buddy of that order, or a larger one.
fn has_buddy(extent: UnitRange, order: usize) -> bool {
    let units = 1 << order;
    extent.start.0.next_multiple_of(units) + units <= extent.end().0
}

/// Returns the part of a free extent that a scan considers from the beginning of a buddy on: buddies until there are
/// enough units (`mb_find_extent`).
fn buddies_from(block: u64, extent_end: u64, wanted: u64) -> UnitRange {
    let mut end = buddy_end(block, extent_end);
    while end - block < wanted && end < extent_end {
        end = buddy_end(end, extent_end);
    }
    UnitRange::new(Lpn(block), end - block)
}

impl Wanted {
    fn exactly(goal: Lpn, units: u64, is_data: bool) -> Self {
        let goal_group = group_of(goal.0);
        Self { goal_group, units, units_at_last: units, least_units: units, is_data }
    }
}

impl Search {
    fn is_good(&self, allocator: &Allocator, criterion: Criterion, group: u64) -> bool {
        let count = allocator.count(group);
        if count.units == 0 {
            return false;
        }
        match criterion {
            Criterion::Buddy => {
                let has_metadata = self.wanted.is_data && group.is_multiple_of(FLEX_GROUPS);
                let largest = allocator.mballoc().largest[group as usize];
                !has_metadata
                    && count.units >= self.goal_units
                    && largest.is_some_and(|largest| usize::from(largest) >= order_of(self.goal_units))
            }
            Criterion::Average | Criterion::AverageOfLess => count.units / count.extents >= self.goal_units,
            Criterion::Enough => count.units >= self.goal_units,
            Criterion::Any => true,
        }
    }

    fn scan(&mut self, allocator: &Allocator, criterion: Criterion, group: u64) {
        if !self.is_good(allocator, criterion, group) {
            return;
        }
        if criterion == Criterion::Buddy {
            return self.take_buddy(allocator, group);
        }
        let passes_over_short = matches!(criterion, Criterion::Average | Criterion::AverageOfLess);
        let stripe = allocator.mballoc().stripe_units;
        if passes_over_short && stripe > 0 && self.goal_units.is_multiple_of(stripe) {
            self.take_stripe(allocator, group, stripe);
            if self.status != Status::Continue {
                return;
            }
        }
        for extent in allocator.free_in_group(group) {
            let mut at = extent.start.0;
            while at < extent.end().0 && !(passes_over_short && extent.end().0 - at < self.goal_units) {
                let seen = buddies_from(at, extent.end().0, self.goal_units);
                self.measure(seen);
                if self.status != Status::Continue {
                    return;
                }
                at = seen.end().0;
            }
        }
        self.check(true);
    }

    /// Takes what is free from the first aligned stripe on that is free, to the end of its buddies
    /// (`ext4_mb_scan_aligned`).
    fn take_stripe(&mut self, allocator: &Allocator, group: u64, stripe: u64) {
        let first = (group * GROUP_UNITS).next_multiple_of(stripe);
        for extent in allocator.free_in_group(group) {
            let at = first + extent.start.0.saturating_sub(first).next_multiple_of(stripe);
            if at + stripe > extent.end().0 {
                continue;
            }
            // Buddies follow each other from the beginning of the extent.
            let mut end = extent.start.0;
            while end < at + stripe {
                end = buddy_end(end, extent.end().0);
            }
            self.best = Some(UnitRange::new(Lpn(at), end - at));
            self.status = Status::Found;
            return;
        }
    }

    /// Takes the first of the smallest sufficient buddies (`ext4_mb_simple_scan_group`).
    fn take_buddy(&mut self, allocator: &Allocator, group: u64) {
        let order = order_of(self.goal_units);
        let mut best: Option<(usize, u64)> = None;
        for extent in allocator.free_in_group(group).filter(|&extent| has_buddy(extent, order)) {
            let mut at = extent.start.0;
            while at < extent.end().0 {
                let end = buddy_end(at, extent.end().0);
                let found = order_of(end - at);
                if found >= order && best.is_none_or(|(held, _)| found < held) {
                    best = Some((found, at));
                }
                at = end;
            }
            if best.is_some_and(|(held, _)| held == order) {
                break;
            }
        }
        if let Some((_, at)) = best {
            self.best = Some(UnitRange::new(Lpn(at), self.goal_units));
            self.status = Status::Found;
        }
    }

    /// Keeps an extent if it is better than the best so far (`ext4_mb_measure_extent`).
    fn measure(&mut self, seen: UnitRange) {
        self.scanned += 1;
        if seen.units == self.goal_units {
            self.best = Some(seen);
            self.status = Status::Found;
            return;
        }
        let Some(best) = self.best else {
            self.best = Some(seen);
            return;
        };
        let is_better = if best.units < self.goal_units {
            seen.units > best.units
        } else {
            seen.units > self.goal_units && seen.units < best.units
        };
        if is_better {
            self.best = Some(seen);
        }
        self.check(false);
    }

    /// Ends the scan if enough extents were seen (`ext4_mb_check_limits`).
    fn check(&mut self, is_group_done: bool) {
        if self.status == Status::Found {
            return;
        }
        if self.scanned > SCANNED_MAX {
            self.status = Status::Break;
        } else if self.best.is_some_and(|best| best.units >= self.goal_units)
            && (is_group_done || self.scanned > SCANNED_MIN)
        {
            self.status = Status::Found;
        }
    }

    /// Runs the search (`ext4_mb_regular_allocator`, without the goal itself).
    fn run(&mut self, allocator: &Allocator) -> Option<UnitRange> {
        if self.goal_units >= 2 && self.goal_units.is_power_of_two() {
            self.through_lists(allocator, Criterion::Buddy);
        }
        self.through_lists(allocator, Criterion::Average);
        if self.wanted.is_data && !allocator.mballoc().never_shortens {
            self.through_lists(allocator, Criterion::AverageOfLess);
        }
        for criterion in [Criterion::Enough, Criterion::Any] {
            let groups = allocator.groups() as u64;
            for i in 0..groups {
                if self.status == Status::Continue {
                    self.scan(allocator, criterion, (self.wanted.goal_group + i) % groups);
                }
            }
        }
        self.best
    }

    /// Scans the groups of the suitable lists, beginning with the goal's group and wrapping around.
    fn through_lists(&mut self, allocator: &Allocator, criterion: Criterion) {
        let (groups, lists) = (allocator.groups() as u64, allocator.mballoc());
        let first = self.wanted.goal_group;
        for range in [first..groups, 0..first] {
            match criterion {
                Criterion::Buddy => {
                    for list in &lists.by_largest[order_of(self.goal_units).min(ORDERS)..] {
                        self.through_list(allocator, criterion, list, &range);
                    }
                }
                Criterion::Average => {
                    for list in &lists.by_average[average_order(self.goal_units)..] {
                        self.through_list(allocator, criterion, list, &range);
                    }
                }
                _ => {
                    let most = self.wanted.units.max(1).ilog2();
                    let mut least = most.saturating_sub(TRIM_ORDERS);
                    let stripe = lists.stripe_units;
                    if 1 << least < stripe {
                        least = stripe.ilog2();
                    }
                    if 1 << least < self.wanted.least_units {
                        least = self.wanted.least_units.ilog2() + 1;
                    }
                    for order in (least..=most).rev() {
                        if self.status != Status::Continue {
                            return;
                        }
                        self.goal_units = (1u64 << order).next_multiple_of(stripe.max(1));
                        let list = &lists.by_average[average_order(self.goal_units)];
                        self.through_list(allocator, criterion, list, &range);
                    }
                }
            }
        }
        if criterion == Criterion::AverageOfLess && self.status == Status::Continue {
            self.goal_units = self.wanted.units_at_last;
        }
    }

    fn through_list(
        &mut self,
        allocator: &Allocator,
        criterion: Criterion,
        list: &BTreeSet<u64>,
        groups: &std::ops::Range<u64>,
    ) {
        for &group in list.range(groups.clone()) {
            if self.status != Status::Continue {
                return;
            }
            self.scan(allocator, criterion, group);
        }
    }
}

impl Mballoc {
    pub(super) fn preallocated_units(&self) -> u64 {
        self.preallocated_units
    }

    /// Sets the stripe that mke2fs found. One block, or more than a group, is none (`ext4_get_stripe_size`).
    pub(super) fn set_stripe(&mut self, units: u64) {
        self.stripe_units = if (2..=GROUP_UNITS).contains(&units) { units } else { 0 };
    }

    pub(super) fn set_never_shortens(&mut self, never: bool) {
        self.never_shortens = never;
    }

    pub(super) fn changed(&mut self, group: u64) {
        self.changed.insert(group);
    }
}

fn relist(lists: &mut [BTreeSet<u64>; ORDERS], held: &mut Option<u8>, group: u64, order: Option<usize>) {
    let order = order.map(|order| order as u8);
    if *held == order {
        return;
    }
    if let Some(old) = std::mem::replace(held, order) {
        lists[usize::from(old)].remove(&group);
    }
    if let Some(new) = order {
        lists[usize::from(new)].insert(group);
    }
}

impl Allocator {
    fn bring_up_to_date(&mut self) {
        let groups = self.groups();
        for group in std::mem::take(&mut self.mballoc_mut().changed) {
            let count = self.count(group);
            let average = (count.extents > 0).then(|| average_order(count.units / count.extents));
            let mut orders = 0;
            for extent in self.free_in_group(group) {
                while orders < ORDERS && has_buddy(extent, orders) {
                    orders += 1;
                }
            }
            let largest = orders.checked_sub(1);
            let lists = self.mballoc_mut();
            lists.averages.resize(groups, None);
            lists.largest.resize(groups, None);
            relist(&mut lists.by_average, &mut lists.averages[group as usize], group, average);
            relist(&mut lists.by_largest, &mut lists.largest[group as usize], group, largest);
        }
    }

    /// Allocates up to `want` units in one extent for a file; `None` only if nothing is free. Also returns the newly
    /// preallocated blocks, which must not be trimmed any more.
    pub(super) fn allocate_for_file(
        &mut self,
        goal: Lpn,
        want: u64,
        file: FileShape,
    ) -> (Option<UnitRange>, Vec<UnitRange>) {
        let blocks = self.allocate_blocks(goal, want, file);
        (blocks, std::mem::take(&mut self.mballoc_mut().newly_preallocated))
    }

    fn allocate_blocks(&mut self, goal: Lpn, want: u64, file: FileShape) -> Option<UnitRange> {
        if want == 0 || self.free_units() == 0 {
            return None;
        }
        let want = want.min(GROUP_UNITS - 1);
        self.use_window(file, want).or_else(|| self.allocate_normalized(goal, want, file)).or_else(|| {
            // All free blocks are preallocated (`ext4_mb_discard_preallocations`).
            self.discard_preallocations();
            self.allocate_normalized(goal, want, file)
        })
    }

    fn allocate_normalized(&mut self, goal: Lpn, want: u64, file: FileShape) -> Option<UnitRange> {
        let end = file.page + want;
        let size = end.max(file.size_pages);
        if size <= SMALL_PAGES {
            return self.allocate_in_chunk(goal, want);
        }
        // Nothing is preallocated for a closed file that is written to its end.
        if end == file.size_pages && !file.is_open {
            return self.find_in_groups(Wanted::exactly(goal, want, true));
        }
        self.allocate_window(want, size, file)
    }

    /// Allocates the next unit of a directory, near `goal`.
    pub(super) fn allocate_for_directory(&mut self, goal: Lpn) -> Option<UnitRange> {
        if self.free_units() == 0 {
            return None;
        }
        self.find_in_groups(Wanted::exactly(goal, 1, false)).or_else(|| {
            self.discard_preallocations();
            self.find_in_groups(Wanted::exactly(goal, 1, false))
        })
    }

    /// Finds and takes up to the wanted units.
    fn find_in_groups(&mut self, wanted: Wanted) -> Option<UnitRange> {
        self.bring_up_to_date();
        let wanted = Wanted { goal_group: wanted.goal_group % self.groups() as u64, ..wanted };
        let mut search =
            Search { wanted, goal_units: wanted.units, best: None, scanned: 0, status: Status::Continue };
        let best = search.run(self)?;
        // A shortened goal may be rounded up to a stripe, beyond what was asked for.
        Some(self.take_free(best.start.0, best.units.min(search.goal_units).min(wanted.units)))
    }

    /// Takes blocks from the file's window for these pages (`ext4_mb_use_inode_pa`).
    fn use_window(&mut self, file: FileShape, want: u64) -> Option<UnitRange> {
        let windows = &mut self.mballoc_mut().windows;
        let (&key, window) = windows.range_mut((file.inode, 0)..=(file.inode, file.page)).next_back()?;
        let start = window.blocks.start.offset(file.page - key.1);
        let index = window.unused.iter().position(|part| part.start <= start && start < part.end())?;
        let part = window.unused.remove(index);
        let used = UnitRange::new(start, want.min(part.end().0 - start.0));
        let before = UnitRange::new(part.start, used.start.0 - part.start.0);
        let after = UnitRange::new(used.end(), part.end().0 - used.end().0);
        let rest = [before, after].into_iter().filter(|rest| rest.units > 0);
        window.unused.splice(index..index, rest);
        if window.unused.is_empty() {
            windows.remove(&key);
        }
        self.mballoc_mut().preallocated_units -= used.units;
        Some(used)
    }

    /// Allocates a normalized request (`ext4_mb_normalize_request`).
    fn allocate_window(&mut self, want: u64, size_pages: u64, file: FileShape) -> Option<UnitRange> {
        const MIB: u64 = 256;
        let (mut start, length) = match size_pages {
            0..=MIB => (0, size_pages.next_power_of_two()),
            257..=1_024 => (file.page / (2 * MIB) * (2 * MIB), 2 * MIB),
            1_025..=2_048 => (file.page / (4 * MIB) * (4 * MIB), 4 * MIB),
            _ if want <= 2_048 => (file.page / (8 * MIB) * (8 * MIB), 8 * MIB),
            _ => (file.page, want),
        };
        let mut end = start + length;
        if let Some((page, _)) = file.left {
            start = start.max(page);
        }
        if let Some((page, _)) = file.right {
            end = end.min(page);
        }
        let windows = &self.mballoc().windows;
        if let Some((&(_, page), window)) =
            windows.range((file.inode, 0)..=(file.inode, file.page)).next_back()
        {
            start = start.max((page + window.blocks.units).min(file.page));
        }
        if let Some((&(_, page), _)) =
            windows.range((file.inode, file.page + 1)..=(file.inode, u64::MAX)).next()
        {
            end = end.min(page);
        }
        let units = end.saturating_sub(start).clamp(1, GROUP_UNITS);
        // Next to the file's own blocks, if those places are free.
        let behind = file.left.filter(|&(page, _)| page == start).map(|(_, block)| block);
        let before =
            file.right.filter(|&(page, _)| page == end).and_then(|(_, block)| block.checked_sub(units));
        let stripe = self.mballoc().stripe_units;
        let is_aligned = |block: u64| units != stripe || block.is_multiple_of(stripe);
        let beside = behind.or(before).filter(|&block| self.free_at(block) >= units && is_aligned(block));
        let want = want.min(end - file.page);
        let found = match beside {
            Some(block) => self.take_free(block, units),
            None => self.find_in_groups(Wanted {
                goal_group: self.mballoc().last_window,
                units,
                units_at_last: units,
                least_units: want.min(units),
                is_data: true,
            })?,
        };
        self.mballoc_mut().last_window = group_of(found.start.0);
        if found.units <= want {
            return Some(found);
        }
        // If the search found less than the window, it goes to the window's end if the request lies there, otherwise to
        // its beginning (`ext4_mb_new_inode_pa`).
        let page = if found.units == units || found.units + file.page >= end {
            end - found.units
        } else if file.page + want <= start + found.units {
            start
        } else {
            file.page
        };
        let page = page.min(file.page);
        self.mballoc_mut().preallocated_units += found.units;
        self.mballoc_mut().newly_preallocated.push(found);
        let window = Window { blocks: found, unused: vec![found] };
        self.mballoc_mut().windows.insert((file.inode, page), window);
        self.use_window(file, want)
    }

    fn allocate_in_chunk(&mut self, goal: Lpn, want: u64) -> Option<UnitRange> {
        let lists = &self.mballoc().chunks;
        let mut nearest: Option<(usize, usize, u64)> = None;
        for (list, chunks) in lists.iter().enumerate().skip(order_of(want).min(CHUNK_LISTS - 1)) {
            for (index, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| chunk.units >= want) {
                let distance = chunk.start.0.abs_diff(goal.0);
                if nearest.is_none_or(|(_, _, held)| distance < held) {
                    nearest = Some((list, index, distance));
                }
            }
        }
        let (chunk, is_new) = match nearest {
            Some((list, index, _)) => (self.mballoc_mut().chunks[list].remove(index), false),
            None => {
                let units = CHUNK_UNITS.next_multiple_of(self.mballoc().stripe_units.max(1));
                // `ext4_mb_normalize_group_request` leaves `ac_orig_goal_len` as it was asked for.
                let shortens = !self.mballoc().never_shortens;
                let units_at_last = if shortens { want } else { units };
                let goal_group = group_of(goal.0);
                let wanted = Wanted { goal_group, units, units_at_last, least_units: want, is_data: true };
                (self.find_in_groups(wanted)?, true)
            }
        };
        let used = UnitRange::new(chunk.start, want.min(chunk.units));
        let rest = UnitRange::new(used.end(), chunk.units - used.units);
        let lists = self.mballoc_mut();
        if is_new {
            lists.preallocated_units += rest.units;
            lists.newly_preallocated.push(rest);
        } else {
            lists.preallocated_units -= used.units;
        }
        if rest.units > 0 {
            self.keep_chunk(rest);
        }
        Some(used)
    }

    /// Keeps the rest of a chunk, and cuts its list down if it is too long (`ext4_mb_add_n_trim`).
    fn keep_chunk(&mut self, chunk: UnitRange) {
        let list = &mut self.mballoc_mut().chunks[order_of(chunk.units).min(CHUNK_LISTS - 1)];
        let place = list.iter().position(|held| chunk.units < held.units).unwrap_or(list.len());
        list.insert(place, chunk);
        if list.len() <= CHUNKS_MAX {
            return;
        }
        let excess = list.len() - CHUNKS_KEPT;
        let mut dropped = Vec::with_capacity(excess);
        while dropped.len() < excess {
            // Keep the chunk that was just used.
            let index = usize::from(list[0] == chunk);
            dropped.push(list.remove(index));
        }
        self.give_back(&dropped);
    }

    fn give_back(&mut self, preallocated: &[UnitRange]) {
        for &range in preallocated {
            self.mballoc_mut().preallocated_units -= range.units;
            self.return_trimmed(range);
        }
    }

    /// Frees a file's unused windows for others (`ext4_discard_preallocations`).
    pub(super) fn discard_windows(&mut self, inode: u32) {
        let windows = &mut self.mballoc_mut().windows;
        let own: Vec<(u32, u64)> =
            windows.range((inode, 0)..=(inode, u64::MAX)).map(|(&key, _)| key).collect();
        let unused: Vec<UnitRange> =
            own.iter().filter_map(|key| windows.remove(key)).flat_map(|window| window.unused).collect();
        self.give_back(&unused);
    }

    pub(super) fn discard_preallocations(&mut self) {
        let lists = self.mballoc_mut();
        let windows = std::mem::take(&mut lists.windows).into_values().flat_map(|window| window.unused);
        let chunks = std::mem::take(&mut lists.chunks).into_iter().flatten();
        let all: Vec<UnitRange> = windows.chain(chunks).collect();
        self.give_back(&all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUPS: u64 = 4;

    fn empty() -> Allocator {
        let mut allocator = Allocator::new(GROUPS * GROUP_UNITS);
        allocator.release(UnitRange::new(Lpn(0), GROUPS * GROUP_UNITS));
        allocator
    }

    fn closed(inode: u32, size_pages: u64) -> FileShape {
        FileShape { inode, page: 0, size_pages, is_open: false, left: None, right: None }
    }

    /// As `ext4_mb_measure_extent`: until one is long enough the longest counts, then the shortest, and the first of
    /// equals.
    #[test]
    fn of_equally_good_extents_the_first_is_kept() {
        let wanted = Wanted::exactly(Lpn(0), 100, true);
        let mut search = Search { wanted, goal_units: 100, best: None, scanned: 0, status: Status::Continue };
        for (start, units, kept) in [
            (0, 10, 0),
            (50, 10, 0),
            (70, 11, 70),
            (200, 128, 200),
            (400, 128, 200),
            (600, 120, 600),
            (800, 120, 600),
        ] {
            search.measure(UnitRange::new(Lpn(start), units));
            assert_eq!(search.best.map(|best| best.start), Some(Lpn(kept)), "after {units} units at {start}");
        }
    }

    fn file(allocator: &mut Allocator, goal: u64, shape: FileShape, want: u64) -> UnitRange {
        allocator.allocate_for_file(Lpn(goal), want, shape).0.expect("there is room")
    }

    /// Free are 5 to 35 and all from 100 on.
    #[test]
    fn a_multiple_of_the_stripe_takes_the_first_free_stripe_however_short() {
        let range = |from, to| UnitRange::between(Lpn(from), Lpn(to));
        let placed = |stripe, want| {
            let mut allocator = empty();
            allocator.take_exact(range(0, 5));
            allocator.take_exact(range(35, 100));
            allocator.mballoc_mut().set_stripe(stripe);
            file(&mut allocator, 0, closed(1, want), want)
        };
        assert_eq!(placed(0, 48), range(100, 148));
        assert_eq!(placed(16, 48), range(16, 32), "the buddy that begins there");
        assert_eq!(placed(16, 47), range(100, 147), "no multiple");
        assert_eq!(placed(48, 48), range(144, 192));
        assert_eq!(placed(1, 48), range(100, 148), "a stripe of one block is none");
        assert_eq!(placed(GROUP_UNITS + 1, 48), range(100, 148), "nor is one beyond a group");
    }

    #[test]
    fn chunks_are_whole_stripes_and_a_window_of_a_stripe_continues_a_file_only_where_one_begins() {
        let mut allocator = empty();
        allocator.mballoc_mut().set_stripe(4_096);
        file(&mut allocator, 0, closed(1, 4), 4);
        assert_eq!(allocator.mballoc().preallocated_units(), 4_096 - 4);
        // The first group of all gives no whole buddies.
        for (stripe, starts) in [(0, 1_000), (512, GROUP_UNITS)] {
            let mut allocator = empty();
            allocator.mballoc_mut().set_stripe(stripe);
            allocator.take_exact(UnitRange::new(Lpn(0), 1_000));
            let left = Some((512, 1_000));
            let shape =
                FileShape { inode: 1, page: 512, size_pages: 1_024, is_open: true, left, right: None };
            assert_eq!(file(&mut allocator, 0, shape, 10).start, Lpn(starts), "{stripe}");
        }
    }

    #[test]
    fn buddies_are_aligned_and_as_large_as_the_free_extent_lets_them_be() {
        let extent = UnitRange::new(Lpn(6), 30);
        let next = |&at: &u64| (at < 36).then(|| buddy_end(at, 36));
        assert_eq!(std::iter::successors(Some(6), next).collect::<Vec<_>>(), [6, 8, 16, 32, 36]);
        assert!(has_buddy(extent, 4) && !has_buddy(extent, 5));
        assert_eq!(buddies_from(6, 36, 5), UnitRange::new(Lpn(6), 10));
        assert_eq!(buddies_from(6, 36, 400), extent);
        assert_eq!(buddy_end(0, GROUP_UNITS), 8_192);
    }

    #[test]
    fn small_files_share_a_chunk_and_its_rest_counts_as_free() {
        let mut allocator = empty();
        let goal = GROUP_UNITS;
        let small: Vec<u64> =
            (0..3).map(|i| file(&mut allocator, goal, closed(i, 5), 5).start.0 - goal).collect();
        assert_eq!(small, [0, 5, 10]);
        assert_eq!(allocator.free_units(), GROUPS * GROUP_UNITS - 15);
        assert_eq!(allocator.free_at(goal), 0);
        assert_eq!(allocator.free_at(goal + CHUNK_UNITS), GROUP_UNITS - CHUNK_UNITS);
        allocator.discard_preallocations();
        assert_eq!(allocator.free_at(goal + 15), GROUP_UNITS - 15);
    }

    #[test]
    fn a_closed_file_takes_the_hole_that_fits_best() {
        let mut allocator = empty();
        let all = file(&mut allocator, GROUP_UNITS, closed(1, 1_000), 1_000);
        for (at, units) in [(10, 90), (200, 60), (400, 80)] {
            allocator.release(UnitRange::new(all.start.offset(at), units));
        }
        // The first ten free extents are scanned. 400 to 480 is three buddies of 16, 32 and 32 blocks: the first two
        // together are too short for 60, all three too long.
        assert_eq!(file(&mut allocator, GROUP_UNITS, closed(2, 60), 60).start, all.start.offset(200));
        assert_eq!(file(&mut allocator, GROUP_UNITS, closed(3, 70), 70).start, all.start.offset(400));
    }

    #[test]
    fn an_open_file_gets_a_window_and_grows_in_it() {
        let mut allocator = empty();
        let open =
            |page, left| FileShape { page, is_open: true, size_pages: page + 100, left, ..closed(1, 0) };
        let first = file(&mut allocator, GROUP_UNITS, open(0, None), 100);
        let window = allocator.mballoc().preallocated_units();
        assert_eq!(window, 28, "128 pages for 100");
        // Another file does not get the blocks behind it.
        let other = file(&mut allocator, GROUP_UNITS, closed(2, 20), 20);
        assert_ne!(other.start, first.end());
        let behind = Some((100, first.end().0));
        assert_eq!(file(&mut allocator, GROUP_UNITS, open(100, behind), 10).start, first.end());
        assert_eq!(allocator.mballoc().preallocated_units(), 18);
        allocator.discard_windows(1);
        assert_eq!(allocator.mballoc().preallocated_units(), 0);
        assert_eq!(allocator.free_at(first.end().0 + 10), 18);
    }

    #[test]
    fn groups_whose_extents_are_long_enough_on_average_come_first() {
        let mut allocator = empty();
        // Group 1 has holes of 8, group 2 holes of 64, the others one extent each.
        for (group, hole) in [(1, 8), (2, 64)] {
            allocator.take_exact(UnitRange::new(Lpn(group * GROUP_UNITS), GROUP_UNITS));
            for at in (0..GROUP_UNITS).step_by(128) {
                allocator.release(UnitRange::new(Lpn(group * GROUP_UNITS + at), hole));
            }
        }
        let of = |allocator: &mut Allocator, units| {
            group_of(file(allocator, GROUP_UNITS, closed(units as u32, units), units).start.0)
        };
        assert_eq!(of(&mut allocator, 40), 2);
        assert_eq!(of(&mut allocator, 300), 3);
    }

    /// An allocator in which only these holes of group 1 are free, given by their distance from its start and length.
    fn with_holes(holes: impl IntoIterator<Item = (u64, u64)>) -> Allocator {
        let mut allocator = Allocator::new(GROUPS * GROUP_UNITS);
        for (at, units) in holes {
            allocator.release(UnitRange::new(Lpn(GROUP_UNITS + at), units));
        }
        allocator
    }

    /// Keeps part of the free space as a chunk for small files.
    fn keep(allocator: &mut Allocator, at: u64, units: u64) {
        let chunk = UnitRange::new(Lpn(at), units);
        allocator.take_exact(chunk);
        allocator.mballoc_mut().preallocated_units += units;
        allocator.keep_chunk(chunk);
    }

    #[test]
    fn the_eleventh_extent_is_still_looked_at_and_the_twelfth_is_not() {
        for (fitting, taken) in [(10, 10), (11, 0)] {
            let holes = (0..20).map(|i| (i * 128, if i == fitting { 40 } else { 64 }));
            let found = file(&mut with_holes(holes), GROUP_UNITS, closed(1, 40), 40);
            assert_eq!(found.start.0, GROUP_UNITS + taken * 128);
        }
    }

    #[test]
    fn files_of_up_to_sixteen_pages_share_a_chunk() {
        for (pages, preallocated) in [(16, CHUNK_UNITS - 16), (17, 0)] {
            let mut allocator = empty();
            file(&mut allocator, GROUP_UNITS, closed(1, pages), pages);
            assert_eq!(allocator.mballoc().preallocated_units(), preallocated);
        }
    }

    #[test]
    fn small_files_take_the_chunk_nearest_to_their_goal() {
        let mut allocator = empty();
        for group in [1, 3] {
            keep(&mut allocator, group * GROUP_UNITS, 100);
        }
        for group in [3, 1] {
            let goal = group * GROUP_UNITS;
            assert_eq!(file(&mut allocator, goal, closed(1, 10), 10).start.0, goal);
        }
    }

    /// The ninth is one too many: five are kept, and the one just used is among them although it is the shortest.
    #[test]
    fn a_list_of_chunks_that_is_too_long_is_cut_down() {
        let mut allocator = empty();
        (0..8).for_each(|i| keep(&mut allocator, i * 10, 3));
        assert_eq!(allocator.mballoc().preallocated_units(), 24);
        keep(&mut allocator, 100, 2);
        assert_eq!((allocator.mballoc().preallocated_units(), allocator.free_at(100)), (4 * 3 + 2, 0));
    }

    #[test]
    fn a_window_is_looked_for_where_the_last_one_was_found() {
        let mut allocator = empty();
        let first_group = UnitRange::new(Lpn(GROUP_UNITS), GROUP_UNITS);
        allocator.take_exact(first_group);
        let open = |inode| FileShape { is_open: true, ..closed(inode, 100) };
        assert_eq!(group_of(file(&mut allocator, 0, open(1), 10).start.0), 2);
        allocator.release(first_group);
        assert_eq!(group_of(file(&mut allocator, 0, open(2), 10).start.0), 2);
    }

    /// The long extent has no whole buddy of 128 blocks, and all extents are short on average.
    #[test]
    fn a_window_that_was_cut_in_vain_is_looked_for_whole() {
        let mut allocator = with_holes((0..100).map(|i| (i * 2, 1)).chain([(1_025, 200)]));
        file(&mut allocator, GROUP_UNITS, FileShape { is_open: true, ..closed(1, 100) }, 5);
        assert_eq!(allocator.mballoc().preallocated_units(), 128 - 5);
    }

    /// On average extents are too short even for a chunk cut by three orders. Since Linux 6.5 the search then goes on
    /// for the five blocks that were asked for (`ac_orig_goal_len`), and takes the hole of just five; before, for a
    /// whole chunk, which lies in the 600 blocks, though not as one buddy.
    #[test]
    fn where_no_chunk_is_to_be_had_a_small_file_takes_a_hole_of_its_size() {
        let holes = (0..100).map(|i| (i * 8, 3)).chain([(1_001, 5), (1_537, 600)]);
        for (never_shortens, taken, kept) in [(false, 1_001, 0), (true, 1_537, CHUNK_UNITS - 5)] {
            let mut allocator = with_holes(holes.clone());
            allocator.mballoc_mut().set_never_shortens(never_shortens);
            let found = file(&mut allocator, GROUP_UNITS, closed(1, 5), 5);
            assert_eq!(found, UnitRange::new(Lpn(GROUP_UNITS + taken), 5));
            assert_eq!(allocator.mballoc().preallocated_units(), kept);
        }
    }

    /// The request is for page 100 of a window of 128 pages; the search finds the last 32.
    #[test]
    fn a_window_that_was_cut_lies_at_the_end_if_the_request_does() {
        let mut allocator = with_holes((0..20).map(|i| (i * 64, 40)));
        let shape = FileShape { page: 100, size_pages: 110, is_open: true, ..closed(1, 0) };
        let found = file(&mut allocator, GROUP_UNITS, shape, 10);
        assert_eq!(found, UnitRange::new(Lpn(GROUP_UNITS + 100 - 96), 10));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        /// For any requests, nothing is allocated twice, nothing is lost, and everything can be allocated.
        #[test]
        fn blocks_are_conserved(
            requests in prop::collection::vec((0u32..20, 1u64..3_000, any::<bool>(), 0..GROUPS * GROUP_UNITS), 1..80)
        ) {
            let mut allocator = empty();
            let mut held: BTreeMap<u32, Vec<(u64, UnitRange)>> = BTreeMap::new();
            let mut used = vec![false; (GROUPS * GROUP_UNITS) as usize];
            for (inode, want, is_open, goal) in requests {
                if goal % 5 == 0 {
                    allocator.discard_windows(inode);
                    for (_, range) in held.remove(&inode).unwrap_or_default() {
                        range.iter().for_each(|unit| used[unit.0 as usize] = false);
                        allocator.release(range);
                    }
                    continue;
                }
                let extents = held.entry(inode).or_default();
                let page = extents.last().map_or(0, |(page, range)| page + range.units);
                let left = extents.last().map(|(page, range)| (page + range.units, range.end().0));
                let shape = FileShape { inode, page, size_pages: page + want, is_open, left, right: None };
                let Some(range) = allocator.allocate_for_file(Lpn(goal), want, shape).0 else {
                    prop_assert_eq!(allocator.free_units(), 0);
                    continue;
                };
                prop_assert!(range.units >= 1 && range.units <= want);
                for unit in range.iter() {
                    prop_assert!(!std::mem::replace(&mut used[unit.0 as usize], true), "{} twice", unit.0);
                }
                extents.push((page, range));
                let count = used.iter().filter(|used| !**used).count() as u64;
                prop_assert_eq!(allocator.free_units(), count);
            }
            while let Some(unit) = allocator.allocate_for_directory(Lpn(0)) {
                prop_assert!(!std::mem::replace(&mut used[unit.start.0 as usize], true));
                if unit.start.0 % 64 != 0 { break; }
            }
            allocator.discard_preallocations();
            let listed: u64 = (0..GROUPS).flat_map(|g| allocator.free_in_group(g)).map(|r| r.units).sum();
            prop_assert_eq!(listed, allocator.free_units());
        }
    }
}
