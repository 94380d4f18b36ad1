//! A live host's knowledge of free space: of which parts the device was told.
//!
//! A stock kernel reports single frees only through tracepoints, if these are available. Otherwise there are only
//! occasional maps of all free space. Space that is free now and has not been trimmed since it was last in use is
//! *waiting*: the difference between a map and the space known as trimmed. So nothing is trimmed twice, even on XFS,
//! which keeps no record itself. Space freed before the first map, or while the policy did not want it, is *left*: it
//! is untrimmed too, but not waiting.
//!
//! Space allocated and freed again between two maps counts as trimmed though it is not, unless each free is reported
//! ([`FreeSpace::freed`]). It is found when knowledge is forgotten ([`FreeSpace::forget`]): once a week, and when
//! utilization shows that as much was freed unseen as forgetting sends once more.
//!
//! Memory is bounded for all file systems of a daemon together ([`spans_each`]): beyond that number of spans of each
//! kind, [`SPANS_MAX`] at most, the shortest are forgotten. Space forgotten as trimmed is trimmed once more; space
//! forgotten as waiting comes back with the next map.
//!
//! A file system may have more free extents than that. Then its map comes in *windows* of addresses, one after the
//! other. Knowledge outside a window stays as it is when the window is learned. Spans inside the window are not
//! forgotten in favour of those outside: space that was just sent would look fresh when the window is read again, and
//! waiting space would be found in the next round only.

pub use super::spans::keep_longest;
use super::spans::{bytes, intersect, subtract, union};
use crate::units::{Bytes, Span};

/// Maximum number of spans kept of each kind: 256 KiB.
pub const SPANS_MAX: usize = 16_384;
/// Spans of each kind shared by the file systems of a daemon: 4 MiB, for each of at most six kinds.
const SPANS_ALL: usize = 16 * SPANS_MAX;
/// Smallest share. A window with this many free extents is still worth its map.
const SPANS_MIN: usize = 512;

/// Number of spans of each kind that each of `file_systems` may keep. A power of two: whenever the share shrinks, all
/// of them forget some knowledge and trim that space once more.
pub fn spans_each(file_systems: usize) -> usize {
    let share = SPANS_ALL / file_systems.clamp(1, SPANS_ALL);
    (1 << share.ilog2()).clamp(SPANS_MIN, SPANS_MAX)
}

/// Where a slice may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Only at the boundaries of groups: ext4 sends the last extent of a range whole, up to the end of its group, so a
    /// waiting part before a trimmed part of its extent is sent with it.
    Groups { first: u64, bytes: u64 },
    /// At multiples of this many bytes.
    Anywhere {
        /// A block of the file system, or a multiple.
        align: u64,
    },
    /// Nowhere: FITRIM sends every free extent that a range touches whole, as XFS does on older kernels.
    Nowhere,
}

impl Cut {
    /// Returns the group that holds `at`; `None` if there are no groups.
    fn group(self, at: u64) -> Option<Span> {
        let Self::Groups { first, bytes } = self else { return None };
        let index = at.saturating_sub(first) / bytes.max(1);
        let start = if at < first { 0 } else { first.saturating_add(index.saturating_mul(bytes)) };
        let end = first.saturating_add(index.saturating_add(1).saturating_mul(bytes));
        Some(Span { start, end: if at < first { first } else { end } })
    }

    /// Returns true if enough of what would be sent is waiting to send it now: half of a whole extent, and more where
    /// only the extent's end is in excess.
    fn is_worth(self, one: &Sendable) -> bool {
        match self {
            Self::Groups { .. } => one.excess() <= one.waits / WAITING_PER_EXCESS,
            _ => one.waits >= one.span.bytes().0.div_ceil(2),
        }
    }
}

/// The work of one call of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub ranges: Vec<Span>,
    /// Untrimmed free space in them according to the last map; without maps, an estimate.
    pub bytes: Bytes,
    /// Number of its extents; 0 if unknown.
    pub extents: u64,
    pub lanes: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Free now, and not waiting, left or trimmed before.
    pub freed: Bytes,
    /// Waiting or left before, and in use again: needs no TRIM.
    pub reused: Bytes,
}

/// Free space by what the device knows of it. The three kinds are disjoint.
#[derive(Clone, Debug)]
pub struct FreeSpace {
    /// Spans kept of each kind. For trimmed space, as many inside the window and as many outside.
    spans_max: usize,
    window: Span,
    trimmed: Vec<Span>,
    /// The part of `trimmed` that was sent, and of which it is not known that the device took it.
    unverified: Vec<Span>,
    waiting: Vec<Span>,
    left: Vec<Span>,
    fresh: Vec<Span>,
    cursor: u64,
    /// The last map had more waiting spans than are kept.
    cut_short: bool,
    /// Trimmed or left bytes forgotten since the round began.
    forgotten: u64,
    told: Vec<Span>,
    /// Bytes not waiting that may be sent along with waiting ones.
    spare: u64,
    /// Nothing is worth a slice until something changes.
    is_spent: bool,
}

/// What FITRIM would send, and how much of that is waiting.
#[derive(Clone, Copy, Debug)]
struct Sendable {
    span: Span,
    waits: u64,
}

impl Sendable {
    fn excess(&self) -> u64 {
        self.span.bytes().0 - self.waits
    }
}

/// On ext4, this fraction of the waiting bytes may be sent in addition without waiting: a waiting extent before a
/// trimmed one cannot be sent without it.
const WAITING_PER_EXCESS: u64 = 10;
/// Maximum of this allowance saved for later. The excess allowed at the start, when everything waits, must not last for
/// the rest of the day.
const SPARE_MAX: u64 = 64 << 20;

/// Keeps the longest of more than `most` spans: as many inside a window, and outside as many as `outside` returns for
/// their number. Returns true if any inside were dropped.
fn keep_in_window(
    spans: &mut Vec<Span>,
    window: Span,
    most: usize,
    outside: impl Fn(usize) -> usize,
) -> bool {
    if spans.len() <= most {
        return false;
    }
    let (mut inside, mut others) = (intersect(spans, &[window]), subtract(spans, &[window]));
    let is_cut = keep_longest(&mut inside, most);
    keep_longest(&mut others, outside(inside.len()));
    *spans = union(&inside, &others);
    is_cut
}

/// A map of the whole file system, as a window.
pub const WHOLE: Span = Span { start: 0, end: u64::MAX };

impl FreeSpace {
    /// Knows nothing yet, and keeps at most `spans_max` spans of each kind.
    pub fn new(spans_max: usize) -> Self {
        Self {
            spans_max,
            window: WHOLE,
            trimmed: Vec::new(),
            unverified: Vec::new(),
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

    /// Learns from a map of `window` ([`WHOLE`] if it shows everything). `free` is ascending and disjoint. `told` says
    /// that the kernel's own online discard has already told the device of everything freed since the last map.
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

    pub(crate) fn spans_max(&self) -> usize {
        self.spans_max
    }

    pub fn keep_at_most(&mut self, spans_max: usize) {
        self.spans_max = spans_max;
        keep_longest(&mut self.fresh, spans_max);
        keep_longest(&mut self.told, spans_max);
        self.keep();
    }

    /// Forgets spans beyond the limits. Called after every change.
    fn keep(&mut self) {
        self.is_spent = false;
        let before = bytes(&self.trimmed) + bytes(&self.left);
        let (most, window) = (self.spans_max, self.window);
        // Waiting space outside comes back with the map of its own window.
        self.cut_short |= keep_in_window(&mut self.waiting, window, most, |inside| most - inside);
        keep_longest(&mut self.left, most);
        keep_in_window(&mut self.trimmed, window, most, |_| most);
        self.unverified = intersect(&self.unverified, &self.trimmed);
        self.forgotten += before - bytes(&self.trimmed) - bytes(&self.left);
    }

    /// Trimmed or left space forgotten for lack of room since the last call of [`FreeSpace::begin_round`]. A map will
    /// show it as freshly freed.
    pub fn forgotten(&self) -> Bytes {
        Bytes(self.forgotten)
    }

    /// Starts a round: the next map is its first.
    pub fn begin_round(&mut self) {
        self.forgotten = 0;
    }

    pub(crate) fn drop_fresh(&mut self) {
        // Except spans trimmed in the meantime.
        let fresh = intersect(&std::mem::take(&mut self.fresh), &self.waiting);
        self.waiting = subtract(&self.waiting, &fresh);
        self.left = union(&self.left, &fresh);
        self.keep();
    }

    /// Makes all left space waiting again.
    pub fn catch_up(&mut self) {
        self.waiting = union(&self.waiting, &std::mem::take(&mut self.left));
        self.keep();
    }

    /// Notes that these spans were in use and are free now or soon. They are unknown until a map shows them. Returns
    /// how many bytes of them were untrimmed, and so were reused without a TRIM.
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

    /// Forgets which space is trimmed: it counts as untrimmed from the next map on.
    pub fn forget(&mut self) {
        self.trimmed.clear();
        self.unverified.clear();
    }

    /// Forgets trimmed space of which it is not known that the device took it.
    pub(crate) fn forget_unverified(&mut self) {
        self.trimmed = subtract(&self.trimmed, &std::mem::take(&mut self.unverified));
    }

    pub fn waiting(&self) -> Bytes {
        Bytes(bytes(&self.waiting))
    }

    pub fn waiting_extents(&self) -> u64 {
        self.waiting.len() as u64
    }

    pub fn left(&self) -> Bytes {
        Bytes(bytes(&self.left))
    }

    pub fn unverified(&self) -> Bytes {
        Bytes(bytes(&self.unverified))
    }

    /// The longest trimmed spans, no more than are kept.
    pub fn trimmed_spans(&self) -> Vec<Span> {
        let mut spans = self.trimmed.clone();
        keep_longest(&mut spans, self.spans_max);
        spans
    }

    /// Returns the unverified part of trimmed spans; all of it, if it is more spans than are kept.
    pub(crate) fn unverified_among(&self, trimmed: &[Span]) -> Vec<Span> {
        let unverified = intersect(&self.unverified, trimmed);
        if unverified.len() > self.spans_max { trimmed.to_vec() } else { unverified }
    }

    /// Takes over knowledge of trimmed spans, before the first map. `unverified` is part of them.
    pub fn remember(&mut self, trimmed: Vec<Span>, unverified: Vec<Span>) {
        (self.trimmed, self.unverified) = (trimmed, unverified);
        self.keep();
    }

    pub fn trimmed(&self) -> Bytes {
        Bytes(bytes(&self.trimmed))
    }

    /// Start of the first waiting extent in the window of the last map.
    pub(crate) fn first_waiting(&self) -> Option<u64> {
        let first = self.waiting.partition_point(|span| span.end <= self.window.start);
        let start = self.waiting.get(first)?.start.max(self.window.start);
        (start < self.window.end).then_some(start)
    }

    /// Returns true if another map of the same window would show more waiting space even if nothing was freed.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// Returns the next slice of at most `bytes_max` and `extents_max`, but at least one extent (or its part in one
    /// group), with the waiting spans in it. Goes round through the file system.
    ///
    /// Where extents cannot be cut at will, those with too little waiting space are deferred, so that not much else is
    /// sent (`Cut::is_worth`). With `any`, if there are no others, the ones with the largest waiting share are sent
    /// anyway.
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
        let waits = bytes(&covered);
        Some(self.slice(cut, covered, waits))
    }

    fn slice(&self, cut: Cut, covered: Vec<Span>, waits: u64) -> (Slice, Vec<Span>) {
        let ranges = if cut == Cut::Nowhere { covered.clone() } else { self.ranges(cut, &covered) };
        (Slice { ranges, bytes: Bytes(waits), extents: covered.len() as u64, lanes: 1 }, covered)
    }

    /// Returns the next slice where FITRIM sends extents to their ends; see [`FreeSpace::next_slice`].
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
        let all = self.sendable(cut).into_iter();
        let (mut good, mut poor): (Vec<Sendable>, Vec<Sendable>) = all.partition(|one| cut.is_worth(one));
        let next = good.partition_point(|one| one.span.start < self.cursor);
        good.rotate_left(next);
        // Take the others by their waiting share, largest first; in thousandths, so that equal ones go by address.
        poor.sort_by_key(|one| {
            (u64::MAX - one.waits.saturating_mul(1000) / one.span.bytes().0.max(1), one.span.start)
        });
        if cut == Cut::Nowhere {
            poor.truncate(usize::from(any && good.is_empty()));
        } else if !any || !good.is_empty() {
            let mut spare = self.spare;
            let affordable = poor.iter().map_while(|one| {
                spare = spare.checked_sub(one.excess())?;
                Some(())
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
            self.spare = self.spare.saturating_sub(one.excess());
            chosen.push(one.span);
        }
        let Some(last) = chosen.last() else {
            self.is_spent = true;
            return None;
        };
        self.cursor = last.end;
        chosen.sort_unstable_by_key(|extent| extent.start);
        Some(self.slice(cut, chosen, waits))
    }

    /// Returns each free extent, or its part in one group, that contains waiting space, as it would be sent.
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
                    // Leave out the part of the group before it.
                    let start = if cut == Cut::Nowhere { start } else { first.start };
                    all.push(Sendable { span: Span { start, end }, waits: bytes(&in_it) });
                }
                start = end;
            }
        }
        all
    }

    /// Reduces the number of calls: spans with nothing trimmed between them become one range, and a group with nothing
    /// trimmed is requested whole, so that ext4 remembers it.
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

    /// Returns true if all free space between two places is known to be in `covered`.
    fn nothing_else_between(&self, start: u64, end: u64, covered: &[Span]) -> bool {
        let gap = [Span { start, end }];
        if start >= end {
            return true;
        }
        // Nothing is known outside the window.
        if start < self.window.start || end > self.window.end {
            return false;
        }
        let free_there = |spans: &[Span]| {
            let next = spans.partition_point(|span| span.end <= start);
            spans.get(next).is_some_and(|span| span.start < end)
        };
        // Space freed since the map will wait in the next one, whether it is sent now or not.
        ![&self.trimmed, &self.told, &self.left].into_iter().any(|spans| free_there(spans))
            && subtract(&intersect(&self.waiting, &gap), covered).is_empty()
    }

    fn free(&self) -> Vec<Span> {
        union(&union(&self.waiting, &self.left), &self.trimmed)
    }

    /// Accounts for a slice that was cut, but whose extents were sent whole.
    pub(crate) fn done_whole(&mut self, covered: &[Span], is_proven: bool) {
        let touched = |extent: &Span| !intersect(covered, &[*extent]).is_empty();
        let whole: Vec<Span> = self.free().into_iter().filter(touched).collect();
        self.done(&whole, is_proven);
    }

    /// Accounts for a slice of which these spans are still free: they were trimmed, except those that the last map
    /// showed as freshly freed.
    pub(crate) fn done_but_fresh(&mut self, still_free: &[Span], is_proven: bool) {
        self.done(&subtract(still_free, &self.fresh), is_proven);
    }

    /// Accounts for a completed slice: its spans were sent, and are not sent again. `is_proven` says that the device is
    /// known to have taken them.
    pub fn done(&mut self, covered: &[Span], is_proven: bool) {
        let covered = &intersect(covered, &self.waiting);
        self.spare = (self.spare + bytes(covered) / WAITING_PER_EXCESS).min(SPARE_MAX);
        self.waiting = subtract(&self.waiting, covered);
        self.trimmed = union(&self.trimmed, covered);
        if !is_proven {
            self.unverified = union(&self.unverified, covered);
        }
        self.keep();
    }
}
