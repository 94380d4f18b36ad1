//! Where the policy meets the file system.
//!
//! The commit brings what it freed into the pending set, tells the governor, and does what it decides.
//! Tokens are the only way to the device. While one is being issued its blocks cannot be allocated: under
//! the availability rule "after issue" they are not free yet; under "after commit" they are taken out of
//! the allocator for the time of the command, as `ext4_trim_extent` does it.

use super::alloc::group_of;
use super::host::DiscardGeneration;
use super::{Ext4, Inner};
use crate::policy::{Availability, Decision, PolicyEvent, TrimToken};
use crate::units::{Lpn, UnitRange};

impl Ext4 {
    /// A transaction is durable, and so is the freeing of these blocks.
    pub(super) async fn transaction_is_durable(&self, freed: Vec<UnitRange>) {
        let inner: &Inner = &self.0;
        if freed.is_empty() {
            return;
        }
        {
            let now = inner.sim.now();
            let state = &mut *inner.state.borrow_mut();
            for &range in &freed {
                state.pending.insert(range);
                inner.queue.with_ssd(|ssd| {
                    state.disk.stale.freed(now, range, |unit| ssd.is_mapped(Lpn(unit)));
                });
                if inner.availability == Availability::AfterCommit {
                    state.disk.allocator.release(range);
                    state.withheld_units -= range.units;
                }
            }
        }
        let (used_units, total_units) = self.utilization();
        let event = PolicyEvent::Committed {
            freed_units: freed.iter().map(|r| r.units).sum(),
            pending_units: inner.state.borrow().pending.units(),
            used_units,
            total_units,
        };
        let mut decisions = Vec::new();
        inner.governor.borrow_mut().on_event(&event, &mut decisions);
        for decision in decisions {
            match decision {
                Decision::DropPending => self.drop_pending(),
                Decision::Reveal => self.reveal_pending(),
                Decision::IssueAsKernel => self.issue_as_kernel().await,
            }
        }
    }

    /// Forgets what is pending; blocks that waited for their TRIM become allocatable.
    pub(super) fn drop_pending(&self) {
        let state = &mut *self.0.state.borrow_mut();
        for range in state.pending.drop_all() {
            if self.0.availability == Availability::AfterIssue {
                state.disk.allocator.release(range);
                state.withheld_units -= range.units;
            }
        }
    }

    /// Waits until the policy has issued what it is going to issue: nothing is pending or on its way, or for
    /// ten seconds (twice the commit interval) nothing was issued.
    pub async fn drain_discards(&self) {
        let inner: &Inner = &self.0;
        loop {
            let before = self.ledger();
            if before.pending == 0 && before.in_tokens == 0 {
                return;
            }
            let patience = inner.sim.now() + crate::units::SimDuration::from_secs(10);
            while inner.events.discards_done.wait_until(patience).await {
                let now = self.ledger();
                if now.pending == 0 && now.in_tokens == 0 {
                    return;
                }
            }
            if self.ledger() == before {
                return;
            }
        }
    }

    fn reveal_pending(&self) {
        while let Some(token) = self.take_token(u64::MAX) {
            self.0.queue.with_ssd_mut(|ssd| ssd.inform_free(token.range()));
            self.settle(token);
        }
    }

    async fn issue_as_kernel(&self) {
        match self.0.host.discard {
            DiscardGeneration::CommitSerial => {
                while let Some(token) = self.take_token(u64::MAX) {
                    self.0.queue.trim(&[token.range()]).await;
                    self.settle(token);
                }
            }
            DiscardGeneration::CommitBatched => {
                let tokens: Vec<TrimToken> = std::iter::from_fn(|| self.take_token(u64::MAX)).collect();
                let ranges: Vec<UnitRange> = tokens.iter().map(TrimToken::range).collect();
                self.0.queue.trim(&ranges).await;
                for token in tokens {
                    self.settle(token);
                }
            }
            DiscardGeneration::Worker => self.0.events.discard_worker.notify_all(),
        }
    }

    /// The worker that carries out `discard` since Linux 5.15: one extent at a time, after the commit.
    pub(super) async fn discard_thread(self) {
        let inner: &Inner = &self.0;
        if inner.host.discard != DiscardGeneration::Worker
            || !inner.governor.borrow().needs().commits
            || inner.governor.borrow().needs().oracle
        {
            return;
        }
        while !inner.stopping.get() {
            let Some(token) = self.take_token(u64::MAX) else {
                inner.events.discard_worker.wait().await;
                continue;
            };
            inner.queue.trim(&[token.range()]).await;
            self.settle(token);
        }
    }

    /// Takes the first pending extent inside one block group; its blocks cannot be allocated until it is
    /// settled.
    fn take_token(&self, units_max: u64) -> Option<TrimToken> {
        let state = &mut *self.0.state.borrow_mut();
        let token = state.pending.take(units_max)?;
        if self.0.availability == Availability::AfterCommit {
            state.disk.allocator.take_exact(token.range());
            state.withheld_units += token.range().units;
        }
        Some(token)
    }

    /// The device has acknowledged the TRIM of a token: its blocks may be allocated.
    fn settle(&self, token: TrimToken) {
        let now = self.0.sim.now();
        {
            let state = &mut *self.0.state.borrow_mut();
            let range = token.range();
            state.pending.settle(token);
            state.disk.allocator.release(range);
            state.withheld_units -= range.units;
            self.0.queue.with_ssd(|ssd| {
                state.disk.stale.told(now, range, |unit| ssd.is_mapped(Lpn(unit)));
            });
        }
        self.0.events.discards_done.notify_all();
    }

    /// Trims the free extents of at least `min_units` in `range`, as the ioctl FITRIM does; answers the units
    /// submitted.
    ///
    /// Groups that were trimmed before and in which nothing was freed since are skipped. Only blocks that
    /// are allocatable now are trimmed, and they cannot be allocated while their command runs.
    pub async fn trim_free(&self, range: UnitRange, min_units: u64) -> u64 {
        let inner: &Inner = &self.0;
        let groups = inner.state.borrow().disk.allocator.groups() as u64;
        let last = group_of(range.end().0.saturating_sub(1)).min(groups.saturating_sub(1));
        let mut submitted = 0;
        for group in group_of(range.start.0)..=last {
            let extents: Vec<UnitRange> = {
                let allocator = &inner.state.borrow().disk.allocator;
                if allocator.is_trimmed(group) {
                    continue;
                }
                allocator.free_in_group(group).filter(|e| e.units >= min_units.max(1)).collect()
            };
            // Marked before the commands: what is freed while they run clears the mark again.
            inner.state.borrow_mut().disk.allocator.mark_trimmed(group);
            for extent in extents {
                let Some(extent) = self.hold_free(extent) else { continue };
                inner.queue.trim(&[extent]).await;
                let now = inner.sim.now();
                let state = &mut *inner.state.borrow_mut();
                state.disk.allocator.return_trimmed(extent);
                state.withheld_units -= extent.units;
                inner.queue.with_ssd(|ssd| {
                    state.disk.stale.told(now, extent, |unit| ssd.is_mapped(Lpn(unit)));
                });
                submitted += extent.units;
            }
        }
        submitted
    }

    /// Takes what is still free of an extent's beginning out of the allocator for the time of a TRIM.
    fn hold_free(&self, extent: UnitRange) -> Option<UnitRange> {
        let state = &mut *self.0.state.borrow_mut();
        let units = state.disk.allocator.free_at(extent.start.0).min(extent.units);
        let held = UnitRange::new(extent.start, units);
        if units == 0 {
            return None;
        }
        state.disk.allocator.take_exact(held);
        state.withheld_units += units;
        state.pending.issued_in_batch(held);
        Some(held)
    }
}
