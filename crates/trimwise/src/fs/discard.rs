//! The modelled file system as a host of policies.
//!
//! The interpreter ([`HostedPolicy`](crate::policy::HostedPolicy)) decides which blocks can be allocated and which are
//! trimmed; this file carries that out, in the allocator and the block queue. While a token is being issued its blocks
//! cannot be allocated. Under the availability rule "after issue" they are not free yet; under the other rules they are
//! taken out of the allocator while the command runs, as `ext4_trim_extent` does.

use std::collections::BTreeMap;

use super::alloc::{GROUP_UNITS, group_of};
use super::{COMMIT_INTERVAL, Ext4, Inner, State};
use crate::engine::Standstill;
use crate::policy::{
    Availability, HostTraits, Ledger, PolicyEvent, PolicyHost, TrimCommand, View, WAKES_IN_THE_PAST,
};
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

/// Time limit for pending extents at the end, longer than any policy waits before it issues them (btrfs: 120 s,
/// OpenZFS: 160 s).
const DRAIN_PATIENCE: SimDuration = SimDuration::from_secs(300);

/// Longest time that a task waits for blocks withheld by a policy that sends no TRIM and has set no timer. Any commit may
/// still make it send one, and commits go on for ever; a run takes minutes of virtual time.
const UNRELEASED_MAX: SimDuration = SimDuration::from_secs(3_600);

/// Longest time that a task waits for blocks withheld by a policy that has set a timer: longer than any schedule of
/// TRIMs.
const UNRELEASED_TIMED_MAX: SimDuration = SimDuration::from_secs(31 * 86_400);

impl PolicyHost for Ext4 {
    fn view(&self) -> View {
        let (used_units, total_units) = self.utilization();
        let load = self.0.queue.load();
        View {
            now: self.0.sim.now(),
            used_units,
            total_units,
            requests: load.requests,
            quiet: load.quiet,
            served: self.0.queue.counts().served,
            requests_done: load.done,
            ..View::default()
        }
    }

    fn withhold(&self, range: UnitRange) {
        self.0.state.borrow_mut().withhold(range);
    }

    fn release(&self, range: UnitRange, is_told: bool) {
        self.0.unreleased.set(None);
        let state = &mut *self.0.state.borrow_mut();
        // Up to Linux 5.14 blocks are freed after their TRIM, which clears their group's mark.
        if is_told && self.0.policy.availability() != Availability::AfterIssue {
            state.disk.allocator.return_trimmed(range);
        } else {
            state.disk.allocator.release(range);
        }
        state.withheld_units -= range.units;
        if is_told {
            self.note_told(state, range);
        }
    }

    fn send(&self, command: TrimCommand) {
        let mut ranges = command.ranges();
        let behind = ranges.last().filter(|_| command.runs_on()).and_then(|last| self.run_on(last.end()));
        let fs = self.clone();
        self.start_thread(async move {
            if let (Some(last), Some(behind)) = (ranges.last_mut(), behind) {
                last.units += behind.units;
            }
            let took = fs.0.queue.trim_as_one(&ranges).await;
            if let Some(behind) = behind {
                fs.end_hold(behind);
            }
            let ranges = fs.0.queue.with_ssd(|ssd| ssd.config().trim.ranges(&ranges));
            fs.0.policy.acknowledged(&fs, command, ranges, took);
        });
    }

    fn start_trim_free(&self, range: UnitRange, units_min: u64) {
        let fs = self.clone();
        self.start_thread(async move {
            let units = fs.trim_free(range, units_min).await;
            fs.0.policy.tell(&fs, &PolicyEvent::Trimmed { units });
        });
    }

    fn reveal(&self, range: UnitRange) {
        self.0.queue.reveal(range);
        self.witnessed(|witness| witness.revealed(range));
    }

    fn timer_changed(&self) {
        self.0.events.policy_timer.notify_all();
    }

    fn pending_changed(&self) {
        self.0.events.blocks_released.notify_all();
    }
}

impl State {
    fn withhold(&mut self, range: UnitRange) {
        self.disk.allocator.take_exact(range);
        self.withheld_units += range.units;
    }

    /// Takes free blocks out of the allocator while a TRIM runs that has no token for them.
    pub(super) fn hold(&mut self, range: UnitRange) {
        self.withhold(range);
        self.held.push(range);
    }
}

impl Ext4 {
    pub(super) async fn transaction_is_durable(&self, freed: Vec<UnitRange>) {
        let inner: &Inner = &self.0;
        let freed = merged(freed);
        let now = inner.sim.now();
        inner.queue.with_ssd(|ssd| {
            let stale = &mut inner.state.borrow_mut().disk.stale;
            freed.iter().for_each(|&range| stale.freed(now, range, |unit| ssd.is_mapped(Lpn(unit))));
        });
        let how = inner.policy.committed(self, &freed);
        inner.policy.issue_in_commit(self, how, async |ranges| inner.queue.trim(ranges).await).await;
    }

    pub(super) fn introduce_host(&self) {
        let inner: &Inner = &self.0;
        let trim_depth = inner.queue.admission().trim_depth();
        let host = inner.queue.with_ssd(|ssd| HostTraits::of(ssd, inner.host.discard, trim_depth));
        inner.policy.tell(self, &PolicyEvent::Hosted(host));
    }

    pub(super) async fn policy_timer(self) {
        let inner: &Inner = &self.0;
        while !inner.stopping.get() {
            match inner.policy.wake_at() {
                None => inner.events.policy_timer.wait().await,
                Some(at) if inner.sim.now() >= at => {
                    inner.sim.consume_budget(WAKES_IN_THE_PAST).await;
                    inner.policy.wake(&self);
                }
                Some(at) => {
                    inner.events.policy_timer.wait_until(at).await;
                }
            }
        }
    }

    /// Takes the free space from `start` on, inside its block group, out of the allocator while a TRIM extends over it,
    /// whether or not that space waits for a TRIM of its own.
    fn run_on(&self, start: Lpn) -> Option<UnitRange> {
        let state = &mut *self.0.state.borrow_mut();
        let units =
            if start.0.is_multiple_of(GROUP_UNITS) { 0 } else { state.disk.allocator.free_at(start.0) };
        let behind = (units > 0).then(|| UnitRange::new(start, units))?;
        state.hold(behind);
        Some(behind)
    }

    pub(super) fn end_hold(&self, range: UnitRange) {
        let state = &mut *self.0.state.borrow_mut();
        state.held.retain(|held| *held != range);
        state.disk.allocator.return_trimmed(range);
        state.withheld_units -= range.units;
        self.note_told(state, range);
        self.pending_changed();
    }

    fn note_told(&self, state: &mut State, range: UnitRange) {
        let now = self.0.sim.now();
        self.0.queue.with_ssd(|ssd| {
            state.disk.stale.told(now, range, |unit| ssd.is_mapped(Lpn(unit)));
        });
    }

    /// Notes that the target below this file system has told the device of `range`.
    pub(super) fn told_below(&self, range: UnitRange) {
        self.note_told(&mut self.0.state.borrow_mut(), range);
        self.pending_changed();
    }

    /// Waits until the policy has issued its last TRIM: until nothing is pending or in flight, or no blocks were
    /// released for longer than any policy waits.
    pub async fn drain_discards(&self) {
        loop {
            let ledger = self.ledger();
            if ledger.pending == 0 && ledger.in_tokens == 0 {
                return;
            }
            let patience = self.0.sim.now() + DRAIN_PATIENCE;
            if !self.0.events.blocks_released.wait_until(patience).await {
                return;
            }
        }
    }

    /// Waits until everything pending now has been issued, as an allocation does when the only free blocks wait for
    /// their TRIM. A kernel can wait only for a worker's whole queue (`flush_work`, as in `ext4_should_retry_alloc`
    /// since Linux 5.15).
    pub(super) async fn flush_pending(&self) {
        let inner: &Inner = &self.0;
        let begin = inner.sim.now();
        inner.sim.consume_budget("waits for TRIMs, but none is pending").await;
        let gone = |ledger: Ledger| ledger.issued + ledger.reused + ledger.dropped;
        // Discards that wait below the file system withhold nothing.
        let ledger = || inner.policy.ledger();
        let wanted = gone(ledger()) + ledger().pending + ledger().in_tokens;
        while gone(ledger()) < wanted && ledger().pending + ledger().in_tokens > 0 {
            // A policy may delay its TRIMs: after a commit interval the caller checks again.
            let patience = inner.sim.now() + COMMIT_INTERVAL;
            if !inner.events.blocks_released.wait_until(patience).await {
                self.note_unreleased(begin).await;
                return;
            }
        }
    }

    /// Notes that a task has waited since `begin` for blocks that the policy withholds. Ends the run if that has lasted
    /// so long that the policy will never release any.
    async fn note_unreleased(&self, begin: SimTime) {
        let inner: &Inner = &self.0;
        let (now, ledger) = (inner.sim.now(), inner.policy.ledger());
        if ledger.in_tokens > 0 {
            return; // a TRIM ends some day
        }
        // The task checks whether there are blocks now, and may wait for a commit, before it waits here again.
        let since = match inner.unreleased.get() {
            Some((since, until)) if begin.since(until) <= COMMIT_INTERVAL => since,
            _ => begin,
        };
        inner.unreleased.set(Some((since, now)));
        let is_timed = inner.policy.wake_at().is_some();
        let limit = if is_timed { UNRELEASED_TIMED_MAX } else { UNRELEASED_MAX };
        if now.since(since) >= limit {
            inner.sim.give_up(Standstill::Withheld { units: ledger.pending, since, is_timed }).await
        }
    }
}

/// Merges the extents that one transaction freed, in that order, as the kernel does: those that touch inside a block group
/// become one, which takes the place of the last (`ext4_mb_free_metadata`, `ext4_try_merge_freed_extent`).
pub fn merged(freed: impl IntoIterator<Item = UnitRange>) -> Vec<UnitRange> {
    let mut by_start: BTreeMap<u64, (UnitRange, usize)> = BTreeMap::new();
    let mut order = 0;
    for range in freed {
        let mut at = range.start;
        while at < range.end() {
            let mut new = UnitRange::between(at, range.end().min(Lpn((group_of(at.0) + 1) * GROUP_UNITS)));
            at = new.end();
            let before = by_start.range(..new.start.0).next_back().map(|(_, &(before, _))| before);
            if let Some(before) =
                before.filter(|before| before.end() == new.start && !is_group_start(new.start))
            {
                by_start.remove(&before.start.0);
                new = UnitRange::between(before.start, new.end());
            }
            if !is_group_start(new.end())
                && let Some((behind, _)) = by_start.remove(&new.end().0)
            {
                new.units += behind.units;
            }
            by_start.insert(new.start.0, (new, order));
            order += 1;
        }
    }
    let mut merged: Vec<(UnitRange, usize)> = by_start.into_values().collect();
    merged.sort_unstable_by_key(|&(_, order)| order);
    merged.into_iter().map(|(range, _)| range).collect()
}

fn is_group_start(block: Lpn) -> bool {
    block.0.is_multiple_of(GROUP_UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_extents_that_touch_are_merged_within_a_group() {
        let range = |start, units| UnitRange::new(Lpn(start), units);
        let freed =
            [range(GROUP_UNITS, 4), range(8, 4), range(20, 1), range(4, 4), range(GROUP_UNITS - 4, 4)];
        let expected = [range(GROUP_UNITS, 4), range(20, 1), range(4, 8), range(GROUP_UNITS - 4, 4)];
        assert_eq!(merged(freed), expected);
    }

    #[test]
    fn what_joins_two_freed_extents_comes_last_and_what_crosses_a_group_is_two() {
        let range = |start, units| UnitRange::new(Lpn(start), units);
        let freed = [range(0, 4), range(8, 4), range(100, 1), range(4, 4), range(GROUP_UNITS - 2, 5)];
        let expected = [range(100, 1), range(0, 12), range(GROUP_UNITS - 2, 2), range(GROUP_UNITS, 3)];
        assert_eq!(merged(freed), expected);
    }
}
