//! Knowledge of free space without a map: sums from utilization, and the walk over all addresses.
//!
//! FITRIM over everything cannot be stopped and has no bound on its duration. So a trim of everything is a walk: it
//! covers the file system's address ranges slice by slice, at the pace of all slices. Where the free space lies in them
//! is unknown; it is assumed to be spread evenly.

use super::space::{Cut, Slice};
use super::spans::{bytes, intersect, subtract};
use super::{WHOLE_EVERY, WHOLE_EVERY_FORCED, WHOLE_FIRST};
use crate::units::{Bytes, SimTime, Span};

/// Slices are cut at multiples of this.
const ALIGN: u64 = 1 << 20;

/// A trim of everything in progress.
#[derive(Debug)]
struct Walk {
    /// Ranges not covered yet, ascending.
    ahead: Vec<Span>,
    /// Bytes of all ranges at the start.
    bytes: u64,
    /// Bytes freed since the start, perhaps in ranges already covered.
    freed: u64,
}

/// Sums from utilization.
#[derive(Debug, Default)]
pub(super) struct Estimate {
    pub(super) waiting: u64,
    pub(super) left: u64,
    fresh: u64,
    /// The result of the last [`Estimate::take_fresh`].
    taken: u64,
    next: SimTime,
    next_forced: SimTime,
    walk: Option<Walk>,
    /// Whether a walk has been completed since the host started.
    has_walked: bool,
}

impl Estimate {
    pub(super) fn new(now: SimTime) -> Self {
        let first = now + WHOLE_FIRST;
        Self { next: first, next_forced: first, ..Self::default() }
    }

    /// Adds freed bytes; `free` bytes are free now.
    pub(super) fn freed(&mut self, freed: u64, free: u64) {
        self.waiting = self.waiting.saturating_add(freed).min(free.saturating_sub(self.left));
        self.left = self.left.min(free);
        self.fresh = self.fresh.saturating_add(freed).min(self.waiting);
        if let Some(walk) = &mut self.walk {
            walk.freed = walk.freed.saturating_add(freed);
        }
    }

    /// Limits the untrimmed bytes to those free now.
    pub(super) fn at_most(&mut self, free: u64) {
        self.waiting = self.waiting.min(free);
        self.left = self.left.min(free - self.waiting);
        self.fresh = self.fresh.min(self.waiting);
    }

    /// Returns the bytes freed since the last call.
    pub(super) fn take_fresh(&mut self) -> u64 {
        self.taken = std::mem::take(&mut self.fresh);
        self.taken
    }

    /// Leaves the bytes returned by that call untrimmed.
    pub(super) fn drop_fresh(&mut self) {
        let dropped = std::mem::take(&mut self.taken).min(self.waiting);
        (self.waiting, self.left) = (self.waiting - dropped, self.left + dropped);
    }

    /// Makes all bytes left untrimmed waiting again.
    pub(super) fn catch_up(&mut self) {
        self.waiting += std::mem::take(&mut self.left);
    }

    /// Whether a walk is in progress or due.
    pub(super) fn is_due(&self, now: SimTime, forced: bool) -> bool {
        self.walk.is_some() || now >= if forced { self.next_forced } else { self.next }
    }

    /// When the next walk may start; `None` if one is in progress.
    pub(super) fn next_walk(&self, forced: bool) -> Option<SimTime> {
        self.walk.is_none().then_some(if forced { self.next_forced } else { self.next })
    }

    /// Whether a walk has been completed since the host started.
    pub(super) fn has_walked(&self) -> bool {
        self.has_walked
    }

    /// Whether a walk is in progress, so that its ranges are known.
    pub(super) fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Starts a walk over these ranges, ascending and disjoint.
    pub(super) fn begin_walk(&mut self, ranges: &[Span], now: SimTime) {
        self.walk = Some(Walk { ahead: ranges.to_vec(), bytes: bytes(ranges), freed: 0 });
        self.go_on(now);
    }

    /// Makes all free space waiting; the next walk starts from the beginning.
    pub(super) fn ask_for_all(&mut self, free: u64) {
        (self.waiting, self.left) = (free, 0);
        self.walk = None;
    }

    /// Progress of the walk, in thousandths.
    pub(super) fn walked_permille(&self) -> Option<u64> {
        let walk = self.walk.as_ref()?;
        let ahead = u128::from(bytes(&walk.ahead)) * 1000;
        Some(1000 - ahead.div_ceil(u128::from(walk.bytes.max(1))).min(1000) as u64)
    }

    /// The next slice of at most `bytes_max` bytes of addresses, and the ranges it covers. With [`Cut::Nowhere`] it
    /// consists of whole ranges, at least one.
    pub(super) fn next_slice(&self, cut: Cut, bytes_max: Bytes) -> Option<(Slice, Vec<Span>)> {
        let ahead = &self.walk.as_ref()?.ahead;
        let next = *ahead.first()?;
        let end = if cut == Cut::Nowhere {
            let fits = |range: &&Span| range.end - next.start <= bytes_max.0;
            ahead.iter().take_while(fits).last().unwrap_or(&next).end
        } else {
            let most = next.start.saturating_add(bytes_max.0) / ALIGN * ALIGN;
            most.max((next.start + 1).next_multiple_of(ALIGN)).min(next.end)
        };
        let range = Span { start: next.start, end };
        let (waiting, _) = self.share(Bytes(bytes(&intersect(ahead, &[range]))));
        Some((Slice { ranges: vec![range], bytes: Bytes(waiting), extents: 0, lanes: 1 }, vec![range]))
    }

    /// Expected waiting and left bytes in this many bytes of addresses.
    fn share(&self, range: Bytes) -> (u64, u64) {
        let Some(walk) = &self.walk else { return (0, 0) };
        let ahead = bytes(&walk.ahead).max(1);
        let of = |sum: u64| (u128::from(sum) * u128::from(range.0) / u128::from(ahead)) as u64;
        (of(self.waiting.saturating_sub(walk.freed)), of(self.left))
    }

    /// Accounts for a completed slice. Returns whether the walk is over.
    pub(super) fn done(&mut self, covered: &[Span], now: SimTime) -> bool {
        let of_walk = self.walk.as_ref().map_or(0, |walk| bytes(&intersect(&walk.ahead, covered)));
        let (waiting, left) = self.share(Bytes(of_walk));
        let Some(walk) = &mut self.walk else { return false };
        walk.ahead = subtract(&walk.ahead, covered);
        (self.waiting, self.left) = (self.waiting - waiting, self.left - left);
        self.go_on(now)
    }

    /// Skips this part of the walk.
    pub(super) fn pass_over(&mut self, covered: &[Span], now: SimTime) {
        if let Some(walk) = &mut self.walk {
            walk.ahead = subtract(&walk.ahead, covered);
        }
        self.go_on(now);
    }

    /// Ends the walk if nothing is ahead of it. Space freed meanwhile may lie behind it and waits for the next one.
    /// Returns whether the walk is over.
    fn go_on(&mut self, now: SimTime) -> bool {
        let Some(walk) = self.walk.take_if(|walk| walk.ahead.is_empty()) else { return false };
        self.has_walked = true;
        (self.waiting, self.left) = (walk.freed.min(self.waiting), 0);
        (self.next, self.next_forced) = (now + WHOLE_EVERY, now + WHOLE_EVERY_FORCED);
        true
    }
}
