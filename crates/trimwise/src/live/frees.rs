//! Frees that are told as they happen, where the kernel can be asked to (tracepoints).
//!
//! A map shows what is free, not what came and went since the last one. Whoever hears of each free knows: what is freed is
//! not trimmed any more, wherever it lies, and a later map will show it as fresh. So nothing need be forgotten on the
//! suspicion that something came and went.
//!
//! The kernel tells of a free before the blocks are free: ext4 frees them when its transaction commits. Until a map that was
//! begun behind the free shows them, nothing is known of them: a slice would pass over them, and they would count as
//! trimmed. A free that is told too late does no harm: then it is trimmed once more.
//!
//! If some were lost, there was a gap: until the next map, utilization says how much may have been freed unseen, as it
//! does where nobody tells of frees at all.

use super::space::SPANS_MAX;
use super::spans::{bytes, intersect, keep_longest, subtract, union};
use super::{Knowledge, LiveHost};
use crate::units::{Bytes, Span};

/// Utilization comes each second, a map whenever it is ready: the next one may have been read before it fell.
const GAP: u8 = 2;

/// What is known of frees since the last map.
#[derive(Clone, Debug)]
pub(super) struct Frees {
    /// Each is told.
    watched: bool,
    /// But some were not: for so many maps more, utilization says how much that may have been.
    gap: u8,
    /// Told, and not seen as free in a map yet.
    announced: Vec<Span>,
    /// Told since the reading of a map began.
    since_look: Vec<Span>,
    /// Bytes since the last sample.
    since_sample: u64,
}

impl Default for Frees {
    fn default() -> Self {
        Self { watched: false, gap: GAP, announced: Vec::new(), since_look: Vec::new(), since_sample: 0 }
    }
}

impl Frees {
    /// Bytes that were told since the last call.
    pub(super) fn take_since_sample(&mut self) -> u64 {
        std::mem::take(&mut self.since_sample)
    }

    /// The reading of a map begins.
    pub(super) fn look_begins(&mut self) {
        self.since_look.clear();
    }

    /// What the map that was read may be believed to be free.
    pub(super) fn believed(&self, free: &[Span]) -> Vec<Span> {
        subtract(free, &self.since_look)
    }

    /// A map of what lies in `window` was believed: whether something may have been freed unseen before it, and how much was
    /// told of there that is not free in it, so that the next one may have it.
    pub(super) fn mapped(&mut self, window: Span, free: &[Span]) -> (bool, Bytes) {
        let gap = self.gap > 0;
        self.gap = if self.watched { self.gap.saturating_sub(1) } else { GAP };
        let announced = std::mem::take(&mut self.announced);
        self.announced = subtract(&announced, &[window]);
        (gap, Bytes(bytes(&subtract(&intersect(&announced, &[window]), free))))
    }

    fn announce(&mut self, spans: &[Span]) {
        for list in [&mut self.announced, &mut self.since_look] {
            *list = union(list, spans);
            keep_longest(list, SPANS_MAX);
        }
    }
}

impl LiveHost {
    /// Whether each free is told.
    pub fn are_frees_watched(&self) -> bool {
        self.frees.watched
    }

    /// From now on each free is told by [`LiveHost::freed`], or none is any more.
    pub fn watch_frees(&mut self, watched: bool) {
        if self.frees.watched != watched {
            self.frees.gap = GAP;
        }
        self.frees.watched = watched;
    }

    /// Was freed since the last call, in any order: whatever the device knew of it, it does not know that it is free again.
    pub fn freed(&mut self, mut spans: Vec<Span>) {
        spans.retain(|span| span.start < span.end);
        spans.sort_unstable_by_key(|span| span.start);
        let spans = union(&spans, &[]);
        let bytes: u64 = spans.iter().map(|span| span.bytes().0).sum();
        self.totals.told_freed_bytes += bytes;
        let Knowledge::Map(space) = &mut self.knowledge else { return };
        self.totals.reused_bytes += space.freed(&spans).0;
        self.frees.announce(&spans);
        self.frees.since_sample = self.frees.since_sample.saturating_add(bytes);
    }

    /// So many frees, or more, were lost before they could be told. A map is read as soon as one may be.
    pub fn frees_lost(&mut self, frees: u64) {
        self.totals.frees_lost = self.totals.frees_lost.saturating_add(frees);
        self.frees.gap = GAP;
        self.changed_since_look = u64::MAX;
    }
}
