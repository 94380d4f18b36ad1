//! Results of orders: maps and slices.

use super::knowledge::{Pass, Seen, Settled};
use super::pace::Done;
use super::{Asked, Busy, Failed, LOOK_SHARE, LiveHost, Order, Slice, Trimmed, Window};
use crate::policy::{Acknowledged, PolicyEvent};
use crate::units::{SimDuration, SimTime, Span};

impl LiveHost {
    pub fn looked(&mut self, now: SimTime, result: Result<Window<'_>, Failed>, orders: &mut Vec<Order>) {
        self.now = now;
        let (begins, begun) = match self.busy.take() {
            Some(Busy::Looking { begins, begun }) => (begins, begun),
            _ => (false, now),
        };
        self.look_not_before = now + self.settings.look_every.max(now.since(begun) * LOOK_SHARE);
        match result {
            Ok(window) => self.learn(begins, window),
            Err(failed) => {
                self.fail(failed);
                self.trouble.look_at = self.trouble.retry_at;
            }
        }
        self.decide(orders);
    }

    /// Learns from a map. `begins` says that it is the first of a round.
    fn learn(&mut self, begins: bool, window: Window<'_>) {
        self.trouble.look_succeeded();
        let moment = self.moment();
        let waited = self.knowledge.waiting().0 > 0;
        let Some(Seen { learned, is_first, failure }) =
            self.knowledge.learn(begins, window, &moment, &mut self.frees)
        else {
            return;
        };
        let is_later = self.see_map(begins, waited);
        self.totals.looks += 1;
        if let Some(message) = failure {
            self.trouble.slice_failure = Some(message.clone());
            self.pace.failed();
            self.fail(Failed::Again(message));
        }
        self.totals.reused_bytes += learned.reused.0;
        if is_first && !self.wishes.backlog && !self.is_asked() {
            self.knowledge.drop_fresh();
            return;
        }
        if !is_first {
            self.totals.freed_bytes += learned.freed.0;
        }
        self.committed(learned.freed);
        if is_later {
            self.knowledge.drop_fresh();
        } else if self.all_is_wanted() {
            self.catch_up();
        }
    }

    /// Handles the end of a slice, which took `took`.
    pub fn trimmed(
        &mut self,
        now: SimTime,
        took: SimDuration,
        result: Result<Trimmed, Failed>,
        orders: &mut Vec<Order>,
    ) {
        self.now = now;
        self.load.touched = true;
        let Some(Busy::Trimming { slice, covered }) = self.busy.take() else { return };
        let result = match self.trouble.device_failed.take() {
            Some(message) if result.is_ok() => Err(Failed::Device(message)),
            _ => result,
        };
        self.totals.slices_over += u64::from(took > self.pace.target());
        self.totals.slice_longest_ns = self.totals.slice_longest_ns.max(took);
        match result {
            Ok(trimmed) => self.slice_done(took, &slice, &covered, trimmed),
            Err(failed) => {
                self.totals.slices_failed += 1;
                if !matches!(failed, Failed::Interrupted) {
                    self.trouble.slice_failure = Some(failed.to_string());
                }
                // The next slice is smaller, so that one that takes too long or hits a bad spot is not repeated for ever.
                let was_least = self.pace.failed();
                self.knowledge.slice_failed(&covered, was_least, now);
                self.fail(failed);
            }
        }
        self.decide(orders);
    }

    fn slice_done(&mut self, took: SimDuration, slice: &Slice, covered: &[Span], trimmed: Trimmed) {
        let Trimmed { counted, taken, is_proven } = trimmed;
        let taken = slice.bytes.min(taken);
        self.totals.slices += 1;
        self.totals.trimmed_bytes += taken.0;
        self.totals.counted_bytes += counted.unwrap_or_default().0;
        let Settled { is_sure, paced, pass } = self.knowledge.settle(slice, covered, trimmed, self.now);
        if !is_proven {
            // What the device did not even count of an unsure slice still waits.
            let sent = if is_sure { slice.bytes } else { slice.bytes.min(counted.unwrap_or(slice.bytes)) };
            self.totals.unverified_bytes += sent.0.saturating_sub(taken.0);
        }
        if is_sure {
            self.trouble.slice_succeeded();
        }
        self.pace.done(Done { ended: self.now, took, bytes: paced, extents: slice.extents });
        if pass == Pass::WalkOver {
            // Space freed in the meantime is not part of the request, or it would never end.
            self.end_asked(Asked::Done);
            self.given_back();
        }
        if slice.lanes == self.lanes.next() {
            self.lanes.done(slice.extents, slice.bytes, took);
        }
        self.shorten_rest();
        self.wishes.slice = false;
        let units = slice.bytes.units_ceil();
        let ranges = u32::try_from(slice.extents).unwrap_or(u32::MAX).max(1);
        if !self.wishes.sweep {
            self.tell(&PolicyEvent::Issued(Acknowledged { ranges, units, took }));
        } else if pass != Pass::Underway {
            self.wishes.sweep = false;
            self.tell(&PolicyEvent::Trimmed { units });
        }
    }
}
