//! Results of orders: maps and slices.

use super::pace::Done;
use super::spans::{bytes, intersect};
use super::{
    Asked, Busy, Cut, FORGET_EVERY, FORGET_FAILED_EVERY, Failed, Knowledge, LOOK_SHARE, Learned, LiveHost,
    OVERSHOOT, Order, Reason, Slice, WHOLE, Window, again_in,
};
use crate::policy::{Acknowledged, PolicyEvent};
use crate::units::{Bytes, SimDuration, SimTime, Span};

/// Tolerated number of slices in a row of which the device counted too little.
const UNSURE_MAX: u32 = 2;

/// Whether `bytes` is less than seven eighths of `of`. Extents may have come into use since the map, and groups of XFS
/// end within one.
fn is_far_below(bytes: u64, of: u64) -> bool {
    bytes < of / 8 * 7
}

impl LiveHost {
    /// Handles the requested map.
    pub fn looked(&mut self, now: SimTime, result: Result<Window<'_>, Failed>, orders: &mut Vec<Order>) {
        self.now = now;
        let begins = matches!(self.busy.take(), Some(Busy::Looking { begins: true }));
        let cost = now.since(self.look_begun);
        self.look_not_before = now + self.settings.look_every.max(cost * LOOK_SHARE);
        match result {
            Ok(window) => self.learn(begins, window),
            Err(failed) => self.fail(failed),
        }
        self.decide(orders);
    }

    /// Learns from a map; with `begins` it is the first of a round.
    fn learn(&mut self, begins: bool, Window { from, upto, free }: Window<'_>) {
        if self.slice_failure.is_none() {
            self.failures = 0;
        }
        self.look_wanted &= !begins;
        let space = match &mut self.knowledge {
            Knowledge::Map(space) => space,
            Knowledge::Estimate(estimate) => return estimate.begin_walk(free, self.now),
        };
        let window = Span {
            start: if begins { 0 } else { from },
            end: if upto >= self.facts.total.0 { WHOLE.end } else { upto.max(from) },
        };
        let free = &self.frees.believed(free);
        let (gap, still_to_come) = self.frees.mapped(window, free);
        let seen_freed = self.freed_since_look;
        if begins {
            (self.freed_since_look, self.changed_since_look) = (still_to_come.0, still_to_come.0);
            self.round.told = std::mem::replace(&mut self.told, self.online) && !self.round.is_first;
            space.begin_round();
        } else {
            self.changed_since_look = self.changed_since_look.saturating_add(still_to_come.0);
        }
        self.round.looked(window);
        self.totals.looks += 1;
        self.looked_at = Some(self.now);
        let (first, told) = (self.round.is_first, self.round.told);
        self.round.is_first = first && !self.round.is_over;
        self.doubted |= gap;
        if begins && self.now >= self.forget_at && !told {
            // If each free was reported, nothing was allocated and freed unseen.
            if std::mem::take(&mut self.doubted) {
                space.forget();
            }
            self.forget_at = self.now + FORGET_EVERY;
        }
        let Learned { freed, reused } = space.learn(window, free, told);
        if self.round.is_whole() && !first && !told && gap {
            // Utilization shows a free at once, the map only after the journal's commit: the next map may have it. What
            // is in neither of two maps was allocated and freed between them. Forgetting sends everything once more; do
            // so only when as much was freed unseen.
            let unexplained = (self.unexplained + seen_freed).saturating_sub(freed.0 + still_to_come.0);
            let missed = unexplained.min(self.unexplained);
            self.missed += missed;
            self.unexplained = unexplained - missed;
            if self.missed > 0 && self.missed >= space.trimmed().0 {
                self.missed = 0;
                space.forget();
                self.look_wanted = true;
            }
        } else {
            self.unexplained = 0;
        }
        self.resolve(free);
        self.totals.reused_bytes += reused.0;
        if first
            && !self.wants_backlog
            && !self.is_asked()
            && let Knowledge::Map(space) = &mut self.knowledge
        {
            space.drop_fresh();
            return;
        }
        if !first {
            self.totals.freed_bytes += freed.0;
        }
        self.committed(freed);
        if self.is_asked() || self.sweep {
            self.catch_up();
        }
    }

    /// Handles the end of a slice: its duration, and what the device counted meanwhile, if it counts.
    pub fn trimmed(
        &mut self,
        now: SimTime,
        took: SimDuration,
        result: Result<Option<Bytes>, Failed>,
        orders: &mut Vec<Order>,
    ) {
        self.now = now;
        self.touched = true;
        let Some(Busy::Trimming { slice, covered }) = self.busy.take() else { return };
        let result = match self.device_failed.take() {
            Some(message) if result.is_ok() => Err(Failed::Device(message)),
            _ => result,
        };
        self.totals.slices_over += u64::from(took > self.pace.target());
        self.totals.slice_longest_ns = self.totals.slice_longest_ns.max(took);
        match result {
            Ok(counted) => self.slice_done(took, &slice, &covered, counted),
            Err(failed) => {
                self.totals.slices_failed += 1;
                if !matches!(failed, Failed::Interrupted) {
                    self.slice_failure = Some(failed.to_string());
                }
                self.slice_failed(&covered);
                self.fail(failed);
            }
        }
        self.decide(orders);
    }

    /// Makes the next slice smaller, so that one that takes too long or hits a bad spot is not repeated for ever. A
    /// walk skips what fails in the smallest slice; with maps, waiting space comes back with the next one.
    fn slice_failed(&mut self, covered: &[Span]) {
        let was_least = self.pace.failed();
        if let Knowledge::Estimate(estimate) = &mut self.knowledge
            && was_least
        {
            estimate.pass_over(covered, self.now);
        }
    }

    fn slice_done(&mut self, took: SimDuration, slice: &Slice, covered: &[Span], counted: Option<Bytes>) {
        self.totals.slices += 1;
        self.totals.trimmed_bytes += slice.bytes.min(counted.unwrap_or(Bytes(u64::MAX))).0;
        self.totals.counted_bytes += counted.unwrap_or_default().0;
        let is_sure = !self.is_short(slice, counted);
        if is_sure {
            (self.failures, self.slice_failure, self.unsure_in_turn) = (0, None, 0);
        }
        let sent_whole = self.see_overshoot(slice, counted);
        let now = self.now;
        // In a walk, slices are cut by addresses.
        let paced = if self.facts.maps { slice.bytes } else { Bytes(bytes(covered)) };
        self.pace.done(Done { ended: now, took, bytes: paced, extents: slice.extents });
        let is_gone_through = match &mut self.knowledge {
            Knowledge::Map(space) => {
                match counted {
                    Some(counted) if !is_sure => self.unsure = Some((covered.to_vec(), counted.0)),
                    _ if sent_whole => space.done_whole(covered),
                    _ => space.done(covered),
                }
                space.waiting().0 == 0 && self.round.is_over
            }
            Knowledge::Estimate(estimate) => estimate.done(covered, now),
        };
        if is_gone_through && !self.facts.maps {
            // Space freed meanwhile is not part of the request, or it would never end.
            self.end_asked(Asked::Done);
        }
        if slice.lanes == self.lanes.next() {
            self.lanes.done(slice.extents, slice.bytes, took);
        }
        self.shorten_rest();
        self.wants = false;
        let units = slice.bytes.units_ceil();
        let ranges = u32::try_from(slice.extents).unwrap_or(u32::MAX).max(1);
        if self.sweep && is_gone_through {
            self.sweep = false;
            self.tell(&PolicyEvent::Trimmed { units });
        } else if !self.sweep {
            self.tell(&PolicyEvent::Issued(Acknowledged { ranges, units, took }));
        }
    }

    /// Whether the device counted so little that part of the slice cannot have been sent, as far as can be told before
    /// the next map. XFS skips what is still in its log; ext4 skips what it knows to be trimmed.
    fn is_short(&self, slice: &Slice, counted: Option<Bytes>) -> bool {
        let may_tell = self.facts.maps && !matches!(self.facts.cut, Cut::Groups { .. });
        may_tell && counted.is_some_and(|counted| is_far_below(counted.0, slice.bytes.0))
    }

    /// Settles an unsure slice with the next map: if the device counted about as much as is still free, that was sent;
    /// otherwise it still waits.
    fn resolve(&mut self, free: &[Span]) {
        let (Some((covered, counted)), Knowledge::Map(space)) = (self.unsure.take(), &mut self.knowledge)
        else {
            return;
        };
        let still_free = intersect(&covered, free);
        if !is_far_below(counted, bytes(&still_free)) {
            self.unsure_in_turn = 0;
            return space.done_but_fresh(&still_free);
        }
        self.unsure_in_turn += 1;
        if self.unsure_in_turn > UNSURE_MAX {
            let (counted, sent) = (Bytes(counted), Bytes(bytes(&still_free)));
            let message = format!("the device counted {counted} of the {sent} that a slice should have sent");
            self.slice_failure = Some(message.clone());
            self.pace.failed();
            self.fail(Failed::Again(message));
        }
    }

    /// Learns whether XFS exceeds the requested range, which depends on the kernel: at least two slices must have sent
    /// far more. Returns whether that was just learned.
    fn see_overshoot(&mut self, slice: &Slice, counted: Option<Bytes>) -> bool {
        let (Cut::Anywhere { .. }, Some(counted), true) = (self.facts.cut, counted, self.facts.maps) else {
            return false;
        };
        // Sum over all slices: small ones exceed little, but often. Space in use inside a range when the map was read
        // may be free by now, so a kernel that keeps to the range may send all of it.
        let kept_to_range = bytes(&slice.ranges).max(slice.bytes.0.saturating_mul(2));
        self.overshoots = if self.overshoot == 0 { 0 } else { self.overshoots };
        self.overshoots += u32::from(counted.0 > kept_to_range);
        self.overshoot = self.overshoot.saturating_add(counted.0).saturating_sub(kept_to_range);
        if self.overshoots >= 2 && self.overshoot > OVERSHOOT.0 {
            self.facts.cut = Cut::Nowhere;
        }
        self.facts.cut == Cut::Nowhere
    }

    /// Notes that a discard failed in the device. If a slice is in progress, the failure was that slice's; otherwise it
    /// belongs to a slice that counted as done.
    pub fn device_failed(&mut self, message: String) {
        self.device_failed = Some(message);
    }

    /// Handles such a failure if no slice is in progress.
    pub(super) fn see_device_failed(&mut self) {
        if let Some(message) = self.device_failed.take() {
            self.pace.failed();
            self.fail(Failed::Device(message));
        }
    }

    fn fail(&mut self, failed: Failed) {
        if matches!(failed, Failed::Device(_)) && self.now >= self.forget_not_before {
            self.forget_not_before = self.now + FORGET_FAILED_EVERY;
            self.forget();
        }
        match failed {
            Failed::Interrupted => self.retry_at = self.now + SimDuration::from_secs(1),
            Failed::Never(message) => self.refused = Some(message),
            Failed::Again(message) | Failed::Device(message) => {
                let again_in = again_in(self.failures);
                self.failures += 1;
                self.retry_at = self.now + again_in;
                self.reason = Reason::Failed { message, again_in };
            }
        }
    }
}
