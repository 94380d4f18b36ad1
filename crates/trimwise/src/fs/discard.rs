//! Where the policy meets the file system.
//!
//! A commit adds what it freed to the pending set and tells the governor. Acknowledged commands and the governor's own
//! timer are events too. This file carries out the governor's decisions; tokens are the only way to the device. While a
//! token is being issued its blocks cannot be allocated. Under the availability rule "after issue" they are not free
//! yet; under the other rules they are taken out of the allocator while the command runs, as `ext4_trim_extent` does.
//!
//! Background TRIMs have no sleeping worker: a worker is a slot for one command in flight. The governor, told of each
//! acknowledgement, decides whether to fill the slot again.

use super::alloc::{GROUP_UNITS, group_of};
use super::{COMMIT_INTERVAL, Ext4, Inner, State};
use crate::policy::{Acknowledged, Availability, Decision, HostTraits, PolicyEvent, Shape, TrimToken, View};
use crate::units::{Lpn, SimDuration, UnitRange};

/// Longer than any policy waits before it issues its pending extents (btrfs: 120 s, OpenZFS: 160 s).
const DRAIN_PATIENCE: SimDuration = SimDuration::from_secs(300);

/// Maximum number of nested `PassOver` events at one instant.
const PASSES_TOLD_MAX: u32 = 8;

/// Every block of a device of any size.
const EVERYWHERE: UnitRange = UnitRange { start: Lpn(0), units: u64::MAX };

impl Ext4 {
    /// Handles a durable transaction that freed these blocks.
    pub(super) async fn transaction_is_durable(&self, freed: Vec<UnitRange>) {
        let inner: &Inner = &self.0;
        let freed = merged(freed);
        {
            let now = inner.sim.now();
            let state = &mut *inner.state.borrow_mut();
            for &range in &freed {
                state.pending.insert(range);
                inner.queue.with_ssd(|ssd| {
                    state.disk.stale.freed(now, range, |unit| ssd.is_mapped(Lpn(unit)));
                });
                if inner.availability != Availability::AfterIssue {
                    state.disk.allocator.release(range);
                    state.withheld_units -= range.units;
                }
            }
        }
        if !freed.is_empty() {
            inner.events.blocks_released.notify_all();
        }
        let freed_units = freed.iter().map(|range| range.units).sum();
        for decision in self.decisions_on(&PolicyEvent::Committed { freed_units }) {
            match decision {
                Decision::DropFreed => {
                    for &range in &freed {
                        self.drop_pending(range);
                    }
                }
                Decision::IssueInCommit { together: false } => {
                    while let Some(token) = self.take_token(Lpn(0), Shape::NEXT) {
                        inner.queue.trim(&[token.range()]).await;
                        self.settle(token);
                    }
                }
                Decision::IssueInCommit { together: true } => {
                    let next = || self.take_token(Lpn(0), Shape::NEXT);
                    let tokens: Vec<TrimToken> = std::iter::from_fn(next).collect();
                    let ranges: Vec<UnitRange> = tokens.iter().map(TrimToken::range).collect();
                    inner.queue.trim(&ranges).await;
                    for token in tokens {
                        self.settle(token);
                    }
                }
                other => self.carry_out(other),
            }
        }
    }

    /// Tells the governor about its host.
    pub(super) fn introduce_host(&self) {
        let inner: &Inner = &self.0;
        let host = inner.queue.with_ssd(|ssd| {
            let (trim, link) = (&ssd.config().trim, &ssd.config().link);
            HostTraits {
                kernel: inner.host.discard,
                trim_depth: if trim.is_queued() { link.queue_depth } else { 1 },
                ranges_max: trim.max_ranges,
                range_units_max: trim.max_units_per_range.into(),
                total_units: ssd.capacity_units(),
                group_units: GROUP_UNITS,
            }
        });
        self.tell(&PolicyEvent::Hosted(host));
    }

    /// Calls the governor at the times that it asked for.
    pub(super) async fn policy_timer(self) {
        let inner: &Inner = &self.0;
        while !inner.stopping.get() {
            match inner.wake_at.get() {
                None => inner.events.policy_timer.wait().await,
                Some(at) if inner.sim.now() >= at => {
                    inner.wake_at.set(None);
                    self.tell(&PolicyEvent::Woken);
                }
                Some(at) => {
                    inner.events.policy_timer.wait_until(at).await;
                }
            }
        }
    }

    /// Returns the governor's decisions on an event.
    fn decisions_on(&self, event: &PolicyEvent) -> Vec<Decision> {
        let inner: &Inner = &self.0;
        let (used_units, total_units) = self.utilization();
        let load = inner.queue.load();
        let view = {
            let state = &*inner.state.borrow();
            View {
                now: inner.sim.now(),
                used_units,
                total_units,
                pending_units: state.pending.units(),
                pending_extents: state.pending.extents(),
                untrimmed_units: state.pending.untrimmed_units(),
                in_flight: inner.trims_in_flight.get(),
                requests: load.requests,
                quiet: load.quiet,
            }
        };
        let mut decisions = Vec::new();
        inner.governor.borrow_mut().on_event(event, &view, &mut decisions);
        decisions
    }

    /// Tells the governor of an event outside a commit and carries out its decisions.
    fn tell(&self, event: &PolicyEvent) {
        for decision in self.decisions_on(event) {
            self.carry_out(decision);
        }
    }

    /// Carries out a decision without waiting; commands run in the background, and the governor is told when they end.
    fn carry_out(&self, decision: Decision) {
        let inner: &Inner = &self.0;
        match decision {
            // These apply only to a commit.
            Decision::DropFreed | Decision::IssueInCommit { .. } => {}
            Decision::CatchUp => self.catch_up(),
            Decision::Reveal => self.reveal_pending(),
            Decision::WakeAt(at) => {
                inner.wake_at.set(Some(at));
                inner.events.policy_timer.notify_all();
            }
            _ if inner.stopping.get() => {}
            Decision::Issue(shape) => self.issue(shape),
            Decision::TrimFree { range, units_min } => {
                let fs = self.clone();
                self.start_thread(async move {
                    let units = fs.trim_free(range, units_min).await;
                    fs.tell(&PolicyEvent::Trimmed { units });
                });
            }
        }
    }

    /// Issues one command in the background.
    fn issue(&self, shape: Shape) {
        let inner: &Inner = &self.0;
        let mut tokens = Vec::new();
        let mut units = 0;
        while tokens.len() < shape.ranges_max.max(1) as usize && units < shape.units_max.max(1) {
            let rest = Shape { units_max: shape.units_max.max(1) - units, ..shape };
            let Some(token) = self.take_token(inner.issue_cursor.get(), rest) else { break };
            inner.issue_cursor.set(token.range().end());
            units += token.range().units;
            tokens.push(token);
        }
        if tokens.is_empty() || inner.state.borrow().pending.units() == 0 {
            inner.issue_cursor.set(Lpn(0));
        }
        if tokens.is_empty() {
            // The governor may ask for another kind of command. The bound stops one that keeps asking for the same.
            let told = inner.passes_told.get();
            if told < PASSES_TOLD_MAX {
                inner.passes_told.set(told + 1);
                self.tell(&PolicyEvent::PassOver);
                inner.passes_told.set(told);
            }
            return;
        }
        inner.trims_in_flight.set(inner.trims_in_flight.get() + 1);
        let behind = tokens.last().filter(|_| shape.runs_on).and_then(|last| self.run_on(last.range().end()));
        let fs = self.clone();
        self.start_thread(async move {
            let mut ranges: Vec<UnitRange> = tokens.iter().map(TrimToken::range).collect();
            if let (Some(last), Some(behind)) = (ranges.last_mut(), behind) {
                last.units += behind.units;
            }
            let took = fs.0.queue.trim_as_one(&ranges).await;
            for token in tokens {
                fs.settle(token);
            }
            if let Some(behind) = behind {
                fs.end_run_on(behind);
            }
            fs.0.trims_in_flight.set(fs.0.trims_in_flight.get() - 1);
            let range_max = fs.0.queue.with_ssd(|ssd| u64::from(ssd.config().trim.max_units_per_range));
            let ranges = ranges.iter().map(|range| range.units.div_ceil(range_max) as u32).sum();
            fs.tell(&PolicyEvent::Issued(Acknowledged { ranges, units, took }));
        });
    }

    /// Takes the free space from `start` on, inside its block group, out of the allocator while a TRIM runs on through
    /// it, whether or not that space waits for a TRIM of its own.
    fn run_on(&self, start: Lpn) -> Option<UnitRange> {
        let state = &mut *self.0.state.borrow_mut();
        if start.0.is_multiple_of(GROUP_UNITS) {
            return None;
        }
        let behind = UnitRange::new(start, state.disk.allocator.free_at(start.0));
        if behind.units == 0 {
            return None;
        }
        state.disk.allocator.take_exact(behind);
        state.withheld_units += behind.units;
        state.held_units += behind.units;
        state.run_on.push(behind);
        Some(behind)
    }

    fn end_run_on(&self, behind: UnitRange) {
        let state = &mut *self.0.state.borrow_mut();
        state.run_on.retain(|range| *range != behind);
        state.disk.allocator.return_trimmed(behind);
        self.release_held(state, behind);
    }

    /// Drops the pending part of `range`; blocks that waited for their TRIM become allocatable.
    fn drop_pending(&self, range: UnitRange) {
        let state = &mut *self.0.state.borrow_mut();
        for part in state.pending.drop_range(range) {
            if self.0.availability == Availability::AfterIssue {
                state.disk.allocator.release(part);
                state.withheld_units -= part.units;
            }
        }
        self.0.events.blocks_released.notify_all();
    }

    /// Drops all pending extents, at unmount.
    pub(super) fn drop_all_pending(&self) {
        self.drop_pending(EVERYWHERE);
    }

    /// Makes all untrimmed extents pending.
    fn catch_up(&self) {
        let state = &mut *self.0.state.borrow_mut();
        for range in state.pending.catch_up() {
            if self.0.availability == Availability::AfterIssue {
                state.disk.allocator.take_exact(range);
                state.withheld_units += range.units;
            }
        }
    }

    /// Waits until the policy has issued what it is going to issue: until nothing is pending or in flight, or no blocks
    /// were released for longer than any policy waits.
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
        let gone = |ledger: crate::policy::Ledger| ledger.issued + ledger.reused + ledger.dropped;
        let wanted = gone(self.ledger()) + self.ledger().pending + self.ledger().in_tokens;
        while gone(self.ledger()) < wanted && self.ledger().pending + self.ledger().in_tokens > 0 {
            // A policy may delay its TRIMs: after a commit interval the caller checks again.
            let patience = self.0.sim.now() + COMMIT_INTERVAL;
            if !self.0.events.blocks_released.wait_until(patience).await {
                return;
            }
        }
    }

    fn reveal_pending(&self) {
        while let Some(token) = self.take_token(Lpn(0), Shape::NEXT) {
            self.0.queue.with_ssd_mut(|ssd| ssd.inform_free(token.range()));
            if let Some(witness) = &self.0.witness {
                witness.revealed(token.range());
            }
            self.settle(token);
        }
    }

    /// Takes the next pending extent of a shape from `from` on, cut at the end of its block group. Its blocks cannot be
    /// allocated until the token is settled.
    fn take_token(&self, from: Lpn, shape: Shape) -> Option<TrimToken> {
        let state = &mut *self.0.state.borrow_mut();
        let group_end = |block: u64| (group_of(block) + 1) * GROUP_UNITS;
        let token = state.pending.take(from, shape.units_min, shape.units_max, group_end)?;
        if self.0.availability != Availability::AfterIssue {
            state.disk.allocator.take_exact(token.range());
            state.withheld_units += token.range().units;
        }
        state.held_units += token.range().units;
        Some(token)
    }

    /// Settles a token whose TRIM the device has acknowledged: its blocks may be allocated.
    fn settle(&self, token: TrimToken) {
        let state = &mut *self.0.state.borrow_mut();
        let range = token.range();
        state.pending.settle(token);
        match self.0.availability {
            // Freed only now.
            Availability::AfterIssue => state.disk.allocator.release(range),
            Availability::AfterCommit | Availability::Reuse => state.disk.allocator.return_trimmed(range),
        }
        self.release_held(state, range);
    }

    /// Accounts for blocks that are free again after their TRIM.
    pub(super) fn release_held(&self, state: &mut State, range: UnitRange) {
        let now = self.0.sim.now();
        state.withheld_units -= range.units;
        state.held_units -= range.units;
        self.0.queue.with_ssd(|ssd| {
            state.disk.stale.told(now, range, |unit| ssd.is_mapped(Lpn(unit)));
        });
        self.0.events.blocks_released.notify_all();
    }
}

/// Merges the extents of one transaction as the kernel does: those that touch inside a block group become one
/// (`ext4_try_merge_freed_extent`).
fn merged(mut extents: Vec<UnitRange>) -> Vec<UnitRange> {
    extents.sort_unstable_by_key(|range| range.start);
    extents.dedup_by(|next, kept| {
        let touch = kept.end() == next.start && group_of(kept.start.0) == group_of(next.start.0);
        if touch {
            kept.units += next.units;
        }
        touch
    });
    extents
}
