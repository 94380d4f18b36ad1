//! Frees reported as they happen, where the kernel offers it (tracepoints).
//!
//! A map shows what is free, not what was allocated and freed since the last one. Reports of each free fill the gap:
//! freed space is no longer trimmed, wherever it lies, and a later map will show it as fresh. So nothing has to be
//! forgotten on suspicion.
//!
//! The kernel reports a free before the blocks are free: ext4 frees them when its transaction commits. Until a map
//! started after the report shows them, they count as unknown; otherwise a slice would skip them and they would count
//! as trimmed. A late report does no harm: the space is trimmed once more.
//!
//! Lost reports leave a gap: until the next map, utilization says how much may have been freed unseen, as it does where
//! frees are not reported.

use super::LiveHost;
use super::space::SPANS_MAX;
use super::spans::{bytes, intersect, keep_longest, subtract, union};
use crate::units::{Bytes, Span};

/// Maps for which a gap lasts. Utilization comes every few seconds, a map whenever it is ready: the next one may have been
/// read before utilization fell.
const GAP: u8 = 2;

#[derive(Clone, Debug)]
pub(super) struct Frees {
    watched: bool,
    /// Number of further maps for which utilization says how much was freed unreported.
    gap: u8,
    /// Reported as freed, and not seen as free in a map yet.
    announced: Vec<Span>,
    since_look: Vec<Span>,
    since_sample: u64,
}

impl Default for Frees {
    fn default() -> Self {
        Self { watched: false, gap: GAP, announced: Vec::new(), since_look: Vec::new(), since_sample: 0 }
    }
}

impl Frees {
    pub(super) fn take_since_sample(&mut self) -> u64 {
        std::mem::take(&mut self.since_sample)
    }

    pub(super) fn look_begins(&mut self) {
        self.since_look.clear();
    }

    pub(super) fn believed(&self, free: &[Span]) -> Vec<Span> {
        subtract(free, &self.since_look)
    }

    /// Accounts for a map of `window`. Returns true if something may have been freed unseen before it, and how many
    /// bytes were reported there that are not free in it, so that the next map may show them.
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
    pub fn are_frees_watched(&self) -> bool {
        self.frees.watched
    }

    /// Sets whether [`LiveHost::freed`] will report each free from now on.
    pub fn watch_frees(&mut self, watched: bool) {
        if self.frees.watched != watched {
            self.frees.gap = GAP;
        }
        self.frees.watched = watched;
    }

    /// Reports the spans freed since the last call, in any order. The device does not know that they are free again.
    pub fn freed(&mut self, mut spans: Vec<Span>) {
        spans.retain(|span| span.start < span.end);
        spans.sort_unstable_by_key(|span| span.start);
        let spans = union(&spans, &[]);
        let bytes: u64 = spans.iter().map(|span| span.bytes().0).sum();
        self.totals.told_freed_bytes += bytes;
        let Some(reused) = self.knowledge.reported(&spans) else { return };
        self.totals.reused_bytes += reused.0;
        self.frees.announce(&spans);
        self.frees.since_sample = self.frees.since_sample.saturating_add(bytes);
    }

    /// Notes that at least this many frees were lost before they could be reported. A map is then read as soon as
    /// possible.
    pub fn frees_lost(&mut self, frees: u64) {
        self.totals.frees_lost = self.totals.frees_lost.saturating_add(frees);
        self.frees.gap = GAP;
        self.knowledge.reports_lost();
    }
}
