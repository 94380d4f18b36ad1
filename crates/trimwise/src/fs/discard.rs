//! Where the policy meets the file system.
//!
//! The commit brings what it freed into the pending set, tells the governor, and does what it decides.
//! Tokens are the only way to the device. While one is being issued its blocks cannot be allocated: under
//! the availability rule "after issue" they are not free yet; under "after commit" they are taken out of
//! the allocator for the time of the command, as `ext4_trim_extent` does it.

use super::alloc::{GROUP_UNITS, group_of};
use super::host::DiscardGeneration;
use super::{COMMIT_INTERVAL, Ext4, Inner, State};
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
        inner.events.blocks_released.notify_all();
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
        self.0.events.blocks_released.notify_all();
    }

    /// Waits until the policy has issued what it is going to issue: nothing is pending or on its way, or for
    /// ten seconds (twice the commit interval) no blocks were released.
    pub async fn drain_discards(&self) {
        loop {
            let ledger = self.ledger();
            if ledger.pending == 0 && ledger.in_tokens == 0 {
                return;
            }
            let patience = self.0.sim.now() + COMMIT_INTERVAL * 2;
            if !self.0.events.blocks_released.wait_until(patience).await {
                return;
            }
        }
    }

    fn reveal_pending(&self) {
        while let Some(token) = self.take_token() {
            self.0.queue.with_ssd_mut(|ssd| ssd.inform_free(token.range()));
            if let Some(witness) = &self.0.witness {
                witness.revealed(token.range());
            }
            self.settle(token);
        }
    }

    async fn issue_as_kernel(&self) {
        match self.0.host.discard {
            DiscardGeneration::CommitSerial => {
                while let Some(token) = self.take_token() {
                    self.0.queue.trim(&[token.range()]).await;
                    self.settle(token);
                }
            }
            DiscardGeneration::CommitBatched => {
                let tokens: Vec<TrimToken> = std::iter::from_fn(|| self.take_token()).collect();
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
            let Some(token) = self.take_token() else {
                inner.events.discard_worker.wait().await;
                continue;
            };
            inner.queue.trim(&[token.range()]).await;
            self.settle(token);
        }
    }

    /// Takes the first pending extent, as far as it lies in one block group; its blocks cannot be allocated
    /// until it is settled.
    fn take_token(&self) -> Option<TrimToken> {
        let state = &mut *self.0.state.borrow_mut();
        let first = state.pending.first()?;
        let units_max = (group_of(first.start.0) + 1) * GROUP_UNITS - first.start.0;
        let token = state.pending.take(units_max)?;
        if self.0.availability == Availability::AfterCommit {
            state.disk.allocator.take_exact(token.range());
            state.withheld_units += token.range().units;
        }
        state.held_units += token.range().units;
        Some(token)
    }

    /// The device has acknowledged the TRIM of a token: its blocks may be allocated.
    fn settle(&self, token: TrimToken) {
        let state = &mut *self.0.state.borrow_mut();
        let range = token.range();
        state.pending.settle(token);
        match self.0.availability {
            // Freed only now.
            Availability::AfterIssue => state.disk.allocator.release(range),
            Availability::AfterCommit => state.disk.allocator.return_trimmed(range),
        }
        self.release_held(state, range);
    }

    /// Blocks that were in a TRIM are free again, and the device knows it.
    fn release_held(&self, state: &mut State, range: UnitRange) {
        let now = self.0.sim.now();
        state.withheld_units -= range.units;
        state.held_units -= range.units;
        self.0.queue.with_ssd(|ssd| {
            state.disk.stale.told(now, range, |unit| ssd.is_mapped(Lpn(unit)));
        });
        self.0.events.blocks_released.notify_all();
    }

    /// Trims the free extents of at least `min_units` in `range`, as the ioctl FITRIM does; answers the units
    /// submitted.
    ///
    /// Groups that were trimmed before and in which nothing was freed since are skipped, unless the last call
    /// asked for longer extents only. Extents that begin before the range are cut, the last one is not. Only
    /// blocks that are allocatable now are trimmed, and they cannot be allocated while their command runs.
    pub async fn trim_free(&self, range: UnitRange, min_units: u64) -> u64 {
        let inner: &Inner = &self.0;
        let total = inner.state.borrow().disk.layout.total_units();
        let end = range.end().0.min(total);
        // The device's granularity is the least (`FITRIM` raises `minlen` to it).
        let granularity = inner.queue.with_ssd(|ssd| u64::from(ssd.config().trim.granularity_units));
        let min_units = min_units.max(granularity).max(1);
        let mut submitted = 0;
        let mut at = range.start.0;
        while at < end {
            let group = group_of(at);
            let group_end = ((group + 1) * GROUP_UNITS).min(total);
            let is_whole = at == group * GROUP_UNITS && end >= group_end;
            {
                let state = &mut *inner.state.borrow_mut();
                if state.disk.allocator.is_trimmed(group) && min_units >= state.trimmed_min_units {
                    at = group_end;
                    continue;
                }
                // Before the commands: what is freed while they run clears the mark again.
                if is_whole {
                    state.disk.allocator.mark_trimmed(group);
                }
            }
            while let Some(extent) = self.hold_free(at, end.min(group_end), min_units) {
                at = extent.end().0;
                inner.queue.trim(&[extent]).await;
                let state = &mut *inner.state.borrow_mut();
                state.disk.allocator.return_trimmed(extent);
                self.release_held(state, extent);
                submitted += extent.units;
            }
            at = group_end;
        }
        inner.state.borrow_mut().trimmed_min_units = min_units;
        submitted
    }

    /// Takes the first free extent of at least `min_units` that begins between `from` and `to`, or what of one
    /// lies behind `from`, out of the allocator for the time of a TRIM.
    fn hold_free(&self, from: u64, to: u64, min_units: u64) -> Option<UnitRange> {
        if from >= to {
            return None;
        }
        let state = &mut *self.0.state.borrow_mut();
        let held = state.disk.allocator.free_from(from, to).find(|e| e.units >= min_units)?;
        state.disk.allocator.take_exact(held);
        state.withheld_units += held.units;
        state.held_units += held.units;
        state.pending.issued_in_batch(held);
        Some(held)
    }
}
