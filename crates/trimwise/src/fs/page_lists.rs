//! Free pages that a processor keeps for itself (`mm/page_alloc.c`, per-CPU page lists).
//!
//! A processor keeps the pages that it frees on its own lists and takes from there first. Since Linux 6.7 (90b41691b988
//! and later commits) their length tunes itself, up to an eighth of all memory: it grows whenever a processor finds its
//! lists empty, and falls by an eighth per second. Such pages do not count as free for the dirty limits
//! (`global_dirtyable_memory`). So after a large file is deleted the limits are lower: write-back starts earlier and
//! writers pause sooner, until the pages are in use again.
//!
//! Modelled for one processor and single pages. Not modelled: pages that the kernel itself allocates and frees.

use crate::units::SimTime;

/// Scales up the number of pages moved at once, as a shift (`CONFIG_PCP_BATCH_SCALE_MAX`).
const BATCH_SCALE_MAX: u32 = 5;

#[derive(Clone, Debug)]
pub(crate) struct PageLists {
    batch: u64,
    high_max: u64,
    high: u64,
    count: u64,
    second: u64,
}

impl PageLists {
    pub fn new(memory_pages: u64) -> Self {
        // `zone_batchsize`: 31 with 512 MiB, 63 from 1 GiB on.
        let quarter = ((memory_pages >> 10).min(256) / 4).max(1);
        let batch = (1 << (quarter + quarter / 2).ilog2()) - 1;
        // MIN_PERCPU_PAGELIST_HIGH_FRACTION
        Self { batch, high_max: memory_pages / 8, high: 0, count: 0, second: 0 }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    fn step(&self) -> u64 {
        self.batch << BATCH_SCALE_MAX
    }

    /// Takes pages into use (`nr_pcp_alloc`). Empty lists are filled from the pool that all processors share.
    pub fn take(&mut self, pages: u64, is_memory_short: bool) {
        if pages <= self.count {
            self.count -= pages;
            return;
        }
        let wanted = pages - self.count;
        let fill = if is_memory_short { self.batch.max(1) } else { self.step().max(1) };
        let fills = wanted.div_ceil(fill);
        if !is_memory_short {
            self.high = (self.high + fills * fill).min(self.high_max);
        }
        self.count = fills * fill - wanted;
    }

    /// Frees pages (`nr_pcp_high`, `nr_pcp_free`).
    pub fn give(&mut self, pages: u64, is_memory_short: bool) {
        if is_memory_short {
            self.high = self.high.saturating_sub(pages.min(self.step()));
            self.count = self.count.min(self.high);
            return;
        }
        self.count += pages;
        if self.count > self.high {
            // Returns pages in steps, which leaves room on the lists.
            let excess = self.count - self.high;
            self.count = self.count.saturating_sub(excess.next_multiple_of(self.step().max(1)));
        }
    }

    /// Applies the decay up to `now` (`decay_pcp_high`, each second).
    pub fn pass(&mut self, now: SimTime) {
        let second = now.as_nanos() / 1_000_000_000;
        for _ in 0..second.saturating_sub(self.second).min(64) {
            self.high = self.count.saturating_sub(self.step()).max(self.high - self.high / 8);
            self.count = self.count.min(self.high);
        }
        self.second = second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: bool = true;
    const PAGES: u64 = 126_210; // of a guest of 512 MiB

    #[test]
    fn freed_pages_stay_up_to_an_eighth_of_memory_and_return_over_time() {
        let mut lists = PageLists::new(PAGES);
        assert_eq!((lists.batch, lists.high_max), (31, 15_776), "as /proc/zoneinfo of 6.12 has them");
        lists.take(60_000, !SHORT);
        assert_eq!(lists.high, lists.high_max);
        lists.give(10_000, !SHORT);
        assert!((10_000..=10_000 + lists.step()).contains(&lists.count), "{}", lists.count);
        lists.give(20_000, !SHORT);
        assert!(
            lists.count <= lists.high_max && lists.count > lists.high_max - lists.step(),
            "{}",
            lists.count
        );
        lists.pass(SimTime(1_000_000_000));
        assert!(lists.high < lists.high_max && lists.count <= lists.high);
        lists.pass(SimTime(60_000_000_000));
        assert!(lists.count < lists.step(), "{}", lists.count);
    }

    /// In steps of 32 times 31 pages.
    #[test]
    fn lists_that_are_too_long_give_back_whole_steps_and_shrink_by_no_more_where_memory_is_short() {
        let lists = |high, count| PageLists { high, count, ..PageLists::new(PAGES) };
        let mut long = lists(1_000, 0);
        long.give(1_500, !SHORT);
        assert_eq!((long.high, long.count), (1_000, 1_500 - 992));
        let mut short = lists(5_000, 4_500);
        short.give(2_000, SHORT);
        assert_eq!((short.high, short.count), (5_000 - 992, 5_000 - 992));
    }

    #[test]
    fn lists_lose_an_eighth_per_second() {
        let mut lists = PageLists { high: 8_000, count: 7_000, ..PageLists::new(PAGES) };
        for (second, left) in [(1, 7_000), (2, 6_125), (2, 6_125)] {
            lists.pass(SimTime(second * 1_000_000_000));
            assert_eq!((lists.high, lists.count), (left, left));
        }
    }

    #[test]
    fn pages_are_taken_from_the_lists_first_and_none_are_kept_where_memory_is_short() {
        let mut lists = PageLists::new(PAGES);
        lists.take(60_000, !SHORT);
        lists.give(10_000, !SHORT);
        let held = lists.count;
        lists.take(4_000, !SHORT);
        assert_eq!(lists.count, held - 4_000);
        (0..20).for_each(|_| lists.give(4_000, SHORT));
        assert_eq!(lists.count, 0);
    }
}
