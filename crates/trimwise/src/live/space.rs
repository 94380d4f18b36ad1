//! What a live host knows of free space: which of it the device was told of, and which it was not.
//!
//! A stock kernel tells of no single free, but through tracepoints where they can be had. What there is are maps of
//! all free space, now and then. What is free now and was not trimmed since it was last in use is *waiting*; that is
//! the difference between a map and what is known as trimmed. So nothing is trimmed twice, also on XFS, which keeps
//! no record itself. What was freed before the first map, or while a policy wanted none of it, is *left*: it is
//! untrimmed too, but nobody waits for it.
//!
//! Space that was allocated and freed again between two maps counts as trimmed though it is not, unless somebody tells of
//! each free ([`FreeSpace::freed`]). Else it is found when what is known is forgotten ([`FreeSpace::forget`]): once a
//! week, and when utilization has shown as much to be freed unseen as is sent once more by that.
//!
//! Memory is bounded, for all file systems of a daemon together ([`spans_each`]): of more spans than that, of each kind and
//! [`SPANS_MAX`] at most, the shortest are forgotten. What is forgotten as trimmed is
//! trimmed once more; what is forgotten as waiting comes back with the next map.
//!
//! A file system may have more free extents than that. Then its map comes in *windows* of addresses, one after the other.
//! What is known outside a window stays as it is when the window is learned. What is trimmed in the window itself is not
//! forgotten for what is trimmed outside, or what was just sent would look fresh when the window is read again.

pub use super::spans::keep_longest;
use super::spans::{bytes, intersect, subtract, union};
use crate::units::{Bytes, Span};

/// Spans kept of each kind: 256 KiB of them.
pub const SPANS_MAX: usize = 16_384;
/// Spans of each kind that the file systems of a daemon share: 4 MiB of them, and six kinds at most.
const SPANS_ALL: usize = 16 * SPANS_MAX;
/// A share is no smaller: a window of so many free extents is still worth its map.
const SPANS_MIN: usize = 512;

/// Spans that each of so many file systems may keep of each kind. In powers of two, since whenever the share shrinks all of
/// them forget some of what they know, and trim that once more.
pub fn spans_each(file_systems: usize) -> usize {
    let share = SPANS_ALL / file_systems.clamp(1, SPANS_ALL);
    (1 << share.ilog2()).clamp(SPANS_MIN, SPANS_MAX)
}

/// Where a slice may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Only at the boundaries of groups: ext4 sends the last extent of a range whole, up to the end of its group, so that what
    /// waits before a trimmed part of its extent is sent with that part.
    Groups {
        /// Where the first group begins.
        first: u64,
        /// Bytes of a group.
        bytes: u64,
    },
    /// At multiples of this many bytes.
    Anywhere {
        /// A block of the file system, or more.
        align: u64,
    },
    /// Nowhere: FITRIM sends every free extent that a range touches whole, as XFS does it on older kernels.
    Nowhere,
}

impl Cut {
    /// The group that holds `at`; a span that is never cut where there are none.
    fn group(self, at: u64) -> Option<Span> {
        let Self::Groups { first, bytes } = self else { return None };
        let index = at.saturating_sub(first) / bytes.max(1);
        let start = if at < first { 0 } else { first.saturating_add(index.saturating_mul(bytes)) };
        let end = first.saturating_add(index.saturating_add(1).saturating_mul(bytes));
        Some(Span { start, end: if at < first { first } else { end } })
    }

    /// Whether so much of what is sent waits that it need not be put off: half of whole extents, and more where that is but a
    /// matter of their ends.
    fn is_worth(self, one: &Sendable) -> bool {
        match self {
            Self::Groups { .. } => one.beside() <= one.waits / BESIDE,
            _ => one.waits >= one.span.bytes().0.div_ceil(2),
        }
    }
}

/// What one call of a helper trims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Ranges for FITRIM, ascending.
    pub ranges: Vec<Span>,
    /// Free space in them that was not trimmed, as the last map had it; without maps what is expected.
    pub bytes: Bytes,
    /// In so many extents; 0 if that is not known.
    pub extents: u64,
    /// Calls of FITRIM at once.
    pub lanes: u32,
}

/// What a map has told that was not known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Free now, and neither waiting, left nor trimmed before.
    pub freed: Bytes,
    /// Was waiting or left and is in use again: it needs no TRIM.
    pub reused: Bytes,
}

/// Free space by what the device knows of it. The three kinds are disjoint.
#[derive(Clone, Debug)]
pub struct FreeSpace {
    /// Spans kept of each kind; of what is trimmed, as many in the window and outside it.
    spans_max: usize,
    /// What the last map was of.
    window: Span,
    trimmed: Vec<Span>,
    waiting: Vec<Span>,
    left: Vec<Span>,
    /// What the last map made waiting.
    fresh: Vec<Span>,
    /// Where the next slice begins.
    cursor: u64,
    /// Whether the last map had more than is kept.
    cut_short: bool,
    /// Bytes that were trimmed or left, and are forgotten since the round began.
    forgotten: u64,
    /// Freed, as it was told, and in no map yet.
    told: Vec<Span>,
    /// So much that does not wait may be sent beside what does.
    spare: u64,
    /// Nothing is worth its slice until something changes.
    is_spent: bool,
}

/// What FITRIM sends if it is asked for it, and how much of that waits.
#[derive(Clone, Copy, Debug)]
struct Sendable {
    span: Span,
    waits: u64,
}

impl Sendable {
    /// What is sent though it does not wait.
    fn beside(&self) -> u64 {
        self.span.bytes().0 - self.waits
    }
}

/// Of what does not wait, one part in so many of what does may be sent beside it on ext4: a waiting extent before a trimmed one
/// cannot be sent without it.
const BESIDE: u64 = 10;
/// No more of that is saved up for later: what was sent after the start, when all waits, is no licence for the day.
const SPARE_MAX: u64 = 64 << 20;

/// A map of the whole file system, as a window.
pub const WHOLE: Span = Span { start: 0, end: u64::MAX };

impl FreeSpace {
    /// Nothing is known yet, and no more than `spans_max` spans of each kind will be.
    pub fn new(spans_max: usize) -> Self {
        Self {
            spans_max,
            window: WHOLE,
            trimmed: Vec::new(),
            waiting: Vec::new(),
            left: Vec::new(),
            fresh: Vec::new(),
            cursor: 0,
            cut_short: false,
            forgotten: 0,
            told: Vec::new(),
            spare: 0,
            is_spent: false,
        }
    }

    /// Takes in a map of what lies in `window` ([`WHOLE`] if it is one of everything): `free` is ascending and disjoint.
    /// With `told`, whatever was freed since the last map was told to the device already, by the kernel's own online
    /// discard.
    pub fn learn(&mut self, window: Span, free: &[Span], told: bool) -> Learned {
        let used = subtract(&[window], free);
        let free = intersect(free, &[window]);
        let before = bytes(&self.waiting) + bytes(&self.left);
        self.waiting = subtract(&self.waiting, &used);
        self.left = subtract(&self.left, &used);
        let reused = before - bytes(&self.waiting) - bytes(&self.left);
        let unknown = subtract(&free, &union(&self.waiting, &self.left));
        let fresh = if told {
            self.trimmed = union(&subtract(&self.trimmed, &[window]), &unknown);
            Vec::new()
        } else {
            self.trimmed = subtract(&self.trimmed, &used);
            subtract(&unknown, &self.trimmed)
        };
        let freed = bytes(&fresh);
        self.waiting = union(&self.waiting, &fresh);
        self.fresh = fresh;
        if window != WHOLE {
            self.cursor = window.start;
        }
        self.window = window;
        self.told = subtract(&self.told, &[window]);
        self.cut_short = false;
        self.keep();
        Learned { freed: Bytes(freed), reused: Bytes(reused) }
    }

    /// Keeps no more than so many spans of each kind from now on.
    pub fn keep_at_most(&mut self, spans_max: usize) {
        self.spans_max = spans_max;
        keep_longest(&mut self.fresh, spans_max);
        keep_longest(&mut self.told, spans_max);
        self.keep();
    }

    /// Forgets what there is no room for. Called when something has changed.
    fn keep(&mut self) {
        self.is_spent = false;
        let before = bytes(&self.trimmed) + bytes(&self.left);
        self.cut_short |= keep_longest(&mut self.waiting, self.spans_max);
        keep_longest(&mut self.left, self.spans_max);
        if self.trimmed.len() > self.spans_max {
            let window = [self.window];
            let (mut inside, mut outside) =
                (intersect(&self.trimmed, &window), subtract(&self.trimmed, &window));
            keep_longest(&mut inside, self.spans_max);
            keep_longest(&mut outside, self.spans_max);
            self.trimmed = union(&inside, &outside);
        }
        self.forgotten += before - bytes(&self.trimmed) - bytes(&self.left);
    }

    /// Free space that was trimmed or left, and was forgotten for want of room since the last call of
    /// [`FreeSpace::begin_round`]: a map will show it as if it was just freed.
    pub fn forgotten(&self) -> Bytes {
        Bytes(self.forgotten)
    }

    /// The next map is the first of a round over everything.
    pub fn begin_round(&mut self) {
        self.forgotten = 0;
    }

    /// What the last map made waiting is not wanted.
    pub fn drop_fresh(&mut self) {
        // What was trimmed meanwhile is trimmed.
        let fresh = intersect(&std::mem::take(&mut self.fresh), &self.waiting);
        self.waiting = subtract(&self.waiting, &fresh);
        self.left = union(&self.left, &fresh);
        self.keep();
    }

    /// What was left is wanted after all.
    pub fn catch_up(&mut self) {
        self.waiting = union(&self.waiting, &std::mem::take(&mut self.left));
        self.keep();
    }

    /// This was in use, and is free now or will be: nothing is known of it until a map shows it. Answers how much of it
    /// was untrimmed, and was used again without having been trimmed.
    pub fn freed(&mut self, spans: &[Span]) -> Bytes {
        let untrimmed = self.waiting().0 + self.left().0;
        for kind in [&mut self.trimmed, &mut self.waiting, &mut self.left, &mut self.fresh] {
            *kind = subtract(kind, spans);
        }
        let reused = untrimmed - self.waiting().0 - self.left().0;
        self.told = union(&self.told, spans);
        keep_longest(&mut self.told, self.spans_max);
        self.keep();
        Bytes(reused)
    }

    /// All that is known as trimmed counts as untrimmed from the next map on.
    pub fn forget(&mut self) {
        self.trimmed.clear();
    }

    /// Free space that waits for its trim.
    pub fn waiting(&self) -> Bytes {
        Bytes(bytes(&self.waiting))
    }

    /// Extents that wait for their trim.
    pub fn waiting_extents(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Untrimmed free space that nobody waits for.
    pub fn left(&self) -> Bytes {
        Bytes(bytes(&self.left))
    }

    /// Where the free space is that the device knows of: the longest spans of it, no more than are kept.
    pub fn trimmed_spans(&self) -> Vec<Span> {
        let mut spans = self.trimmed.clone();
        keep_longest(&mut spans, self.spans_max);
        spans
    }

    /// Before the first map: this was trimmed, as somebody else knew.
    pub fn remember(&mut self, trimmed: Vec<Span>) {
        self.trimmed = trimmed;
        self.keep();
    }

    /// Free space that the device knows of.
    pub fn trimmed(&self) -> Bytes {
        Bytes(bytes(&self.trimmed))
    }

    /// Where the first extent begins that waits in the window of the last map.
    pub fn first_waiting(&self) -> Option<u64> {
        let first = self.waiting.partition_point(|span| span.end <= self.window.start);
        let start = self.waiting.get(first)?.start.max(self.window.start);
        (start < self.window.end).then_some(start)
    }

    /// Whether another map of the same window would find more waiting without anything being freed.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The next slice of at most `bytes_max` and `extents_max`, but at least one extent (or its part in one group), and
    /// what of the waiting space is in it. Goes round through the file system.
    ///
    /// Where extents cannot be cut at will, those of which too little waits are left for later, so that not much more is sent
    /// than what waits (`Cut::is_worth`); with `any` those of which most waits come nevertheless if there are no others.
    pub fn next_slice(
        &mut self,
        cut: Cut,
        bytes_max: Bytes,
        extents_max: u64,
        any: bool,
    ) -> Option<(Slice, Vec<Span>)> {
        let Cut::Anywhere { align } = cut else {
            return self.next_whole(cut, bytes_max, extents_max.max(1), any);
        };
        let align = align.max(1);
        let from = self.waiting.partition_point(|span| span.end <= self.cursor);
        let from = if from < self.waiting.len() { from } else { 0 };
        let mut covered: Vec<Span> = Vec::new();
        let mut room = bytes_max.0.max(1);
        let mut start = self.waiting.get(from)?.start.max(if from == 0 { 0 } else { self.cursor });
        for span in &self.waiting[from..] {
            start = start.max(span.start);
            if room == 0 || covered.len() as u64 >= extents_max.max(1) {
                break;
            }
            let whole = start.saturating_add(room) / align * align;
            let end = (if whole > start { whole } else { start + align }).min(span.end);
            covered.push(Span { start, end });
            room = room.saturating_sub(end - start);
            if end < span.end {
                break;
            }
            start = end;
        }
        self.cursor = covered.last()?.end;
        let slice = Slice {
            ranges: self.ranges(cut, &covered),
            bytes: Bytes(bytes(&covered)),
            extents: covered.len() as u64,
            lanes: 1,
        };
        Some((slice, covered))
    }

    /// The next slice where FITRIM sends extents to their ends; see [`FreeSpace::next_slice`].
    fn next_whole(
        &mut self,
        cut: Cut,
        bytes_max: Bytes,
        extents_max: u64,
        any: bool,
    ) -> Option<(Slice, Vec<Span>)> {
        if self.is_spent && !any {
            return None;
        }
        let mut good = self.sendable(cut);
        let mut poor: Vec<Sendable> = Vec::new();
        good.retain(|one| {
            cut.is_worth(one) || {
                poor.push(*one);
                false
            }
        });
        let next = good.partition_point(|one| one.span.start < self.cursor);
        good.rotate_left(next);
        // Of the others those first of which most waits; in thousandths, so that among those that are alike the first is taken.
        poor.sort_by_key(|one| {
            (u64::MAX - one.waits.saturating_mul(1000) / one.span.bytes().0.max(1), one.span.start)
        });
        if cut == Cut::Nowhere {
            poor.truncate(usize::from(any && good.is_empty()));
        } else if !any || !good.is_empty() {
            let mut spare = self.spare;
            let affordable = poor.iter().take_while(|one| {
                let is_enough = one.beside() <= spare;
                spare = spare.saturating_sub(one.beside());
                is_enough
            });
            let affordable = affordable.count();
            poor.truncate(affordable);
        }
        let (mut chosen, mut waits, mut sent) = (Vec::new(), 0, 0_u64);
        for one in good.into_iter().chain(poor) {
            sent = sent.saturating_add(one.span.bytes().0);
            if !chosen.is_empty() && (sent > bytes_max.0 || chosen.len() as u64 >= extents_max) {
                break;
            }
            waits += one.waits;
            self.spare = self.spare.saturating_sub(one.beside());
            chosen.push(one.span);
        }
        let Some(last) = chosen.last() else {
            self.is_spent = true;
            return None;
        };
        self.cursor = last.end;
        chosen.sort_unstable_by_key(|extent| extent.start);
        let extents = chosen.len() as u64;
        let ranges = if cut == Cut::Nowhere { chosen.clone() } else { self.ranges(cut, &chosen) };
        Some((Slice { ranges, bytes: Bytes(waits), extents, lanes: 1 }, chosen))
    }

    /// Each free extent, or its part in one group, in which something waits, as it is sent.
    fn sendable(&self, cut: Cut) -> Vec<Sendable> {
        let mut from = 0;
        let mut all = Vec::new();
        for extent in self.free() {
            let mut start = extent.start;
            while start < extent.end {
                let end =
                    cut.group(start).map_or(extent.end, |group| group.end.min(extent.end).max(start + 1));
                from += self.waiting[from..].partition_point(|span| span.end <= start);
                let upto = from + self.waiting[from..].partition_point(|span| span.start < end);
                let in_it = intersect(&self.waiting[from..upto], &[Span { start, end }]);
                if let Some(first) = in_it.first() {
                    // What lies before it in a group need not be asked for.
                    let start = if cut == Cut::Nowhere { start } else { first.start };
                    all.push(Sendable { span: Span { start, end }, waits: bytes(&in_it) });
                }
                start = end;
            }
        }
        all
    }

    /// Fewer calls: spans with nothing trimmed between them become one range, and a group in which nothing is trimmed
    /// is asked for whole, so that ext4 remembers it.
    fn ranges(&self, cut: Cut, covered: &[Span]) -> Vec<Span> {
        let mut ranges: Vec<Span> = Vec::new();
        for &span in covered {
            let group = cut.group(span.start);
            match ranges.last_mut() {
                Some(last)
                    if (group.is_none() || cut.group(last.start) == group)
                        && self.nothing_else_between(last.end, span.start, covered) =>
                {
                    last.end = span.end;
                }
                _ => ranges.push(span),
            }
        }
        for range in &mut ranges {
            if let Some(group) = cut.group(range.start)
                && self.nothing_else_between(group.start, range.start, covered)
                && self.nothing_else_between(range.end, group.end, covered)
            {
                *range = group;
            }
        }
        ranges
    }

    /// Whether all free space between two places is known to be in `covered`.
    fn nothing_else_between(&self, start: u64, end: u64, covered: &[Span]) -> bool {
        let gap = [Span { start, end }];
        if start >= end {
            return true;
        }
        // Nobody knows what lies outside the window.
        if start < self.window.start || end > self.window.end {
            return false;
        }
        let free_there = |spans: &[Span]| {
            let from = spans.partition_point(|span| span.end <= start);
            spans[from..].iter().take_while(|span| span.start < end).count() > 0
        };
        // What was freed since the map is waiting in the next one, whether it is sent now or not.
        !free_there(&self.trimmed)
            && !free_there(&self.told)
            && !free_there(&self.left)
            && subtract(&intersect(&self.waiting, &gap), covered).is_empty()
    }

    /// All that is free as far as it is known; neighbours are one.
    fn free(&self) -> Vec<Span> {
        union(&union(&self.waiting, &self.left), &self.trimmed)
    }

    /// A slice is done that was cut, and every extent in it was sent whole.
    pub fn done_whole(&mut self, covered: &[Span]) {
        let touched = |extent: &Span| !intersect(covered, &[*extent]).is_empty();
        let whole: Vec<Span> = self.free().into_iter().filter(touched).collect();
        self.done(&whole);
    }

    /// What is still free of a slice was trimmed, but for what the last map showed to be freed.
    pub fn done_but_fresh(&mut self, still_free: &[Span]) {
        self.done(&subtract(still_free, &self.fresh));
    }

    /// A slice is done: what was in it is trimmed.
    pub fn done(&mut self, covered: &[Span]) {
        let covered = &intersect(covered, &self.waiting);
        self.spare = (self.spare + bytes(covered) / BESIDE).min(SPARE_MAX);
        self.waiting = subtract(&self.waiting, covered);
        self.trimmed = union(&self.trimmed, covered);
        self.keep();
    }
}
