//! Knowledge of free space without a map: sums from utilization, and the walk over all addresses.
//!
//! FITRIM over everything cannot be stopped and has no bound on its duration. So a trim of everything is a walk: it
//! covers the file system's address ranges slice by slice, at the pace of all slices. Where the free space lies in them
//! is unknown; it is assumed to be spread evenly.

use super::frees::Frees;
use super::knowledge::{Knowledge, Limits, Look, Moment, Next, Pass, Seen, Settled};
use super::space::{Cut, Slice};
use super::spans::{bytes, intersect, subtract};
use super::{Sample, Trimmed, Window};
use crate::units::{Bytes, SimDuration, SimTime, Span};

/// Minimum time between two trims of everything: as fstrim.timer, and every third day above the bound.
const WHOLE_EVERY: SimDuration = SimDuration::from_secs(7 * 86_400);
const WHOLE_EVERY_FORCED: SimDuration = SimDuration::from_secs(3 * 86_400);
/// Time from the start to the first trim of everything, when the machine has booted.
const WHOLE_FIRST: SimDuration = SimDuration::from_secs(3_600);
/// Slices are cut at multiples of this.
const ALIGN: u64 = 1 << 20;

#[derive(Debug)]
struct Walk {
    ahead: Vec<Span>,
    bytes: u64,
    /// Bytes freed since the start of the walk, perhaps in ranges already covered.
    freed: u64,
    /// Bytes that it sent, and of which it is not known that the device took them.
    unproven: u64,
}

#[derive(Debug)]
pub(super) struct Estimate {
    cut: Cut,
    waiting: u64,
    left: u64,
    unverified: u64,
    fresh: u64,
    taken: u64,
    next: SimTime,
    next_forced: SimTime,
    walk: Option<Walk>,
    /// The kernel told the device of an unknown part of the free space before the host started, and no walk has covered
    /// it since.
    is_unknown: bool,
}

impl Estimate {
    pub(super) fn new(cut: Cut, now: SimTime) -> Self {
        let first = now + WHOLE_FIRST;
        Self {
            cut,
            waiting: 0,
            left: 0,
            unverified: 0,
            fresh: 0,
            taken: 0,
            next: first,
            next_forced: first,
            walk: None,
            is_unknown: false,
        }
    }

    fn freed(&mut self, freed: u64, free: u64) {
        self.waiting = self.waiting.saturating_add(freed).min(free.saturating_sub(self.left));
        self.left = self.left.min(free);
        self.fresh = self.fresh.saturating_add(freed).min(self.waiting);
        if let Some(walk) = &mut self.walk {
            walk.freed = walk.freed.saturating_add(freed);
        }
    }

    fn at_most(&mut self, free: u64) {
        self.waiting = self.waiting.min(free);
        self.left = self.left.min(free - self.waiting);
        self.unverified = self.unverified.min(free - self.waiting - self.left);
        if let Some(walk) = &mut self.walk {
            walk.unproven = walk.unproven.min(self.unverified);
        }
        self.fresh = self.fresh.min(self.waiting);
    }

    fn earliest_walk(&self, forced: bool) -> SimTime {
        if forced { self.next_forced } else { self.next }
    }

    /// Expected waiting, left and earlier unverified bytes in this many bytes of addresses.
    fn share(&self, range: Bytes) -> (u64, u64, u64) {
        let Some(walk) = &self.walk else { return (0, 0, 0) };
        let ahead = bytes(&walk.ahead).max(1);
        let of = |sum: u64| (u128::from(sum) * u128::from(range.0) / u128::from(ahead)) as u64;
        let earlier = self.unverified.saturating_sub(walk.unproven);
        (of(self.waiting.saturating_sub(walk.freed)), of(self.left), of(earlier))
    }

    fn done(&mut self, covered: &[Span], is_proven: bool, now: SimTime) -> bool {
        let of_walk = self.walk.as_ref().map_or(0, |walk| bytes(&intersect(&walk.ahead, covered)));
        let (waiting, left, earlier) = self.share(Bytes(of_walk));
        let Some(walk) = &mut self.walk else { return false };
        walk.ahead = subtract(&walk.ahead, covered);
        (self.waiting, self.left) = (self.waiting - waiting, self.left - left);
        if is_proven {
            self.unverified -= earlier;
        } else {
            self.unverified += waiting + left;
            walk.unproven += waiting + left + earlier;
        }
        self.go_on(now)
    }

    /// Ends the walk if nothing is ahead of it. Space freed in the meantime may lie behind it, and waits for the next
    /// one. Returns true if the walk is over.
    fn go_on(&mut self, now: SimTime) -> bool {
        let Some(walk) = self.walk.take_if(|walk| walk.ahead.is_empty()) else { return false };
        self.is_unknown = false;
        (self.waiting, self.left, self.unverified) = (walk.freed.min(self.waiting), 0, walk.unproven);
        (self.next, self.next_forced) = (now + WHOLE_EVERY, now + WHOLE_EVERY_FORCED);
        true
    }
}

impl Knowledge for Estimate {
    fn waiting(&self) -> Bytes {
        Bytes(self.waiting)
    }

    fn waiting_extents(&self) -> u64 {
        u64::from(self.waiting > 0)
    }

    fn left(&self) -> Bytes {
        Bytes(self.left)
    }

    fn unverified(&self) -> Bytes {
        Bytes(self.unverified)
    }

    fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    fn sampled(&mut self, before: Option<&Sample>, sample: &Sample, _: u64) -> Bytes {
        let free = sample.free().0;
        let Some(before) = before else {
            self.at_most(free);
            // Unless the user has asked for all of it already.
            self.is_unknown = sample.online && self.waiting == 0;
            if !sample.online {
                self.left = free;
            }
            return Bytes(0);
        };
        let freed = if before.online { 0 } else { before.used.0.saturating_sub(sample.used.0) };
        if !before.online {
            self.freed(freed, free);
        }
        self.at_most(free);
        Bytes(freed)
    }

    fn take_fresh(&mut self) -> Bytes {
        self.taken = std::mem::take(&mut self.fresh);
        Bytes(self.taken)
    }

    fn drop_fresh(&mut self) {
        let dropped = std::mem::take(&mut self.taken).min(self.waiting);
        (self.waiting, self.left) = (self.waiting - dropped, self.left + dropped);
    }

    fn catch_up(&mut self) {
        self.waiting += std::mem::take(&mut self.left);
    }

    fn ask_for_all(&mut self, sample: &Sample) {
        // Nothing is known of space that was free before the daemon started or before online discard was on. The next
        // walk starts from the beginning.
        (self.waiting, self.left, self.unverified, self.is_unknown) = (sample.free().0, 0, 0, false);
        self.walk = None;
    }

    fn learn(&mut self, _: bool, ranges: Window<'_>, moment: &Moment, _: &mut Frees) -> Option<Seen> {
        self.walk =
            Some(Walk { ahead: ranges.free.to_vec(), bytes: bytes(ranges.free), freed: 0, unproven: 0 });
        self.go_on(moment.now);
        None
    }

    fn is_due(&self, now: SimTime, forced: bool) -> bool {
        self.walk.is_some() || now >= self.earliest_walk(forced)
    }

    fn next_walk(&self, forced: bool) -> Option<SimTime> {
        self.walk.is_none().then_some(self.earliest_walk(forced))
    }

    fn trims_despite_online(&self) -> bool {
        true
    }

    /// A slice is at most `bytes_max` bytes of addresses. With [`Cut::Nowhere`] it consists of whole ranges, at least
    /// one.
    fn next_slice(&mut self, Limits { bytes_max, .. }: Limits, _: &Moment) -> Next {
        let Some(walk) = &self.walk else { return Next::Look(Look::Everything) };
        let ahead = &walk.ahead;
        let Some(&next) = ahead.first() else { return Next::Nothing };
        let end = if self.cut == Cut::Nowhere {
            let fits = |range: &&Span| range.end - next.start <= bytes_max.0;
            ahead.iter().take_while(fits).last().unwrap_or(&next).end
        } else {
            let most = next.start.saturating_add(bytes_max.0) / ALIGN * ALIGN;
            most.max((next.start + 1).next_multiple_of(ALIGN)).min(next.end)
        };
        let range = Span { start: next.start, end };
        let (waiting, ..) = self.share(Bytes(bytes(&intersect(ahead, &[range]))));
        let slice = Slice { ranges: vec![range], bytes: Bytes(waiting), extents: 0, lanes: 1 };
        Next::Trim(slice, vec![range])
    }

    fn settle(&mut self, _: &Slice, covered: &[Span], trimmed: Trimmed, now: SimTime) -> Settled {
        let pass = if self.done(covered, trimmed.is_proven, now) { Pass::WalkOver } else { Pass::Underway };
        // Slices are cut by addresses.
        Settled { is_sure: true, paced: Bytes(bytes(covered)), pass }
    }

    fn slice_failed(&mut self, covered: &[Span], was_least: bool, now: SimTime) {
        if was_least {
            if let Some(walk) = &mut self.walk {
                walk.ahead = subtract(&walk.ahead, covered);
            }
            self.go_on(now);
        }
    }

    fn progress_permille(&self) -> Option<u64> {
        let walk = self.walk.as_ref()?;
        let ahead = u128::from(bytes(&walk.ahead)) * 1000;
        Some(1000 - ahead.div_ceil(u128::from(walk.bytes.max(1))).min(1000) as u64)
    }

    fn progress_words(&self, at: &str) -> String {
        format!(
            "The file system has no map, so all its addresses are trimmed slice by slice: {at} of them so far."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unverified_is_what_the_last_walk_did_not_prove() {
        let mut one = Estimate::new(Cut::Anywhere { align: 1 }, SimTime::ZERO);
        for (waiting, proven, expected) in [
            (80, [false, false], 80),
            // It was all sent again.
            (20, [false, false], 100),
            (0, [true, false], 50),
            (10, [true, true], 0),
        ] {
            one.waiting = waiting;
            one.walk =
                Some(Walk { ahead: vec![Span { start: 0, end: 1000 }], bytes: 1000, freed: 0, unproven: 0 });
            for (start, is_proven) in [0, 500].into_iter().zip(proven) {
                one.done(&[Span { start, end: start + 500 }], is_proven, SimTime::ZERO);
            }
            assert_eq!((one.unverified, one.waiting), (expected, 0), "{waiting} waiting, {proven:?}");
        }
    }
}
