//! Knowledge of free space from maps, with utilization between them, and the device's count for each slice.

use super::frees::Frees;
use super::knowledge::{FORGET_EVERY, Knowledge, Limits, Look, Moment, Next, Pass, Seen, Settled};
use super::round::Round;
use super::space::{Cut, FreeSpace, Slice, WHOLE};
use super::spans::{bytes, intersect};
use super::{Facts, Known, Sample, Trimmed, Window};
use crate::units::{Bytes, SimTime, Span};

/// Tolerated number of slices in a row for which the device counted too little.
const UNSURE_MAX: u32 = 2;

/// Excess over the slices that may come from others, or from the ends of extents.
const EXCESS_MAX: Bytes = Bytes::mib(16);

/// Returns seven eighths: what must have been sent of what a map shows. Extents may have come into use since, and groups
/// of XFS end within one.
pub fn nearly(of: Bytes) -> Bytes {
    Bytes(of.0 / 8 * 7)
}

fn is_far_below(bytes: u64, of: u64) -> bool {
    bytes < nearly(Bytes(of)).0
}

#[derive(Debug)]
pub(super) struct Looks {
    pub wanted: bool,
    pub at: Option<SimTime>,
    pub freed: u64,
    pub changed: u64,
}

/// Space that was allocated and freed again between two maps, and so counts as trimmed though it may not be.
#[derive(Debug)]
pub(super) struct Unseen {
    /// Bytes freed according to utilization, but not found in a map yet.
    pub unexplained: u64,
    /// Bytes freed according to utilization, but not found in any map.
    missed: u64,
    pub forget_at: SimTime,
    /// There may be unseen frees since knowledge was last forgotten.
    doubted: bool,
}

#[derive(Debug, Default)]
struct Unsure {
    /// Spans and count of the last unsure slice, and whether the device is known to have taken what it counted. The next
    /// map settles it.
    slice: Option<(Vec<Span>, Bytes, bool)>,
    in_turn: u32,
}

/// Where slices are cut, and whether the kernel keeps to that.
#[derive(Debug)]
struct Cutting {
    cut: Cut,
    /// Bytes that slices sent beyond their ranges and beyond twice the requested amount, and the number of such slices.
    excess: u64,
    slices: u32,
}

impl Cutting {
    /// Learns whether XFS exceeds the requested range, which depends on the kernel: at least two slices must have sent
    /// far more. Returns true if it has just learned that.
    fn sent_whole(&mut self, slice: &Slice, counted: Option<Bytes>) -> bool {
        let (Cut::Anywhere { .. }, Some(counted)) = (self.cut, counted) else { return false };
        // Sum over all slices: small ones exceed little, but often. Space in use inside a range when the map was read
        // may be free by now, so a kernel that keeps to the range may send all of it.
        let kept_to_range = bytes(&slice.ranges).max(slice.bytes.0.saturating_mul(2));
        self.slices = if self.excess == 0 { 0 } else { self.slices };
        self.slices += u32::from(counted.0 > kept_to_range);
        self.excess = self.excess.saturating_add(counted.0).saturating_sub(kept_to_range);
        if self.slices >= 2 && self.excess > EXCESS_MAX.0 {
            self.cut = Cut::Nowhere;
        }
        self.cut == Cut::Nowhere
    }
}

#[derive(Debug)]
pub(super) struct Maps {
    total: Bytes,
    pub(super) space: FreeSpace,
    pub(super) round: Round,
    pub(super) looks: Looks,
    /// The kernel told the device of everything freed since the last map.
    told: bool,
    /// What was known was forgotten, and no map has shown since how much that leaves.
    is_forgotten: bool,
    pub(super) unseen: Unseen,
    unsure: Unsure,
    cutting: Cutting,
}

impl Maps {
    pub(super) fn new(facts: &Facts, now: SimTime) -> Self {
        Self {
            total: facts.total,
            space: FreeSpace::new(facts.spans_max),
            round: Round::default(),
            looks: Looks { wanted: true, at: None, freed: 0, changed: 0 },
            told: false,
            is_forgotten: false,
            unseen: Unseen { unexplained: 0, missed: 0, forget_at: now + FORGET_EVERY, doubted: true },
            unsure: Unsure::default(),
            cutting: Cutting { cut: facts.cut, excess: 0, slices: 0 },
        }
    }

    /// Accounts for space that was freed according to utilization before a map, and not found in it.
    ///
    /// Utilization shows a free at once, the map only after the journal's commit: the next map may have it. Space that
    /// is in neither of two maps was allocated and freed between them. Forgetting sends everything once more, so that
    /// is done only when as much was freed unseen.
    fn account_unseen(&mut self, seen_freed: u64, found: u64) {
        let unseen = &mut self.unseen;
        let unexplained = (unseen.unexplained + seen_freed).saturating_sub(found);
        let missed = unexplained.min(unseen.unexplained);
        unseen.missed += missed;
        unseen.unexplained = unexplained - missed;
        if unseen.missed > 0 && unseen.missed >= self.space.trimmed().0 {
            unseen.missed = 0;
            self.space.forget();
            self.looks.wanted = true;
        }
    }

    /// Returns true if the device counted so little that part of the slice cannot have been sent, as far as can be told
    /// before the next map. XFS skips space that is still in its log; ext4 skips space that it knows to be trimmed.
    fn is_short(&self, slice: &Slice, counted: Option<Bytes>) -> bool {
        let may_tell = !matches!(self.cutting.cut, Cut::Groups { .. });
        may_tell && counted.is_some_and(|counted| is_far_below(counted.0, slice.bytes.0))
    }

    /// Settles an unsure slice with the next map: if the device counted about as much as is still free, that was sent;
    /// otherwise it still waits. Returns a message if that has happened too often.
    fn resolve(&mut self, free: &[Span]) -> Option<String> {
        let (covered, counted, is_proven) = self.unsure.slice.take()?;
        let still_free = intersect(&covered, free);
        let sent = Bytes(bytes(&still_free));
        if !is_far_below(counted.0, sent.0) {
            self.unsure.in_turn = 0;
            self.space.done_but_fresh(&still_free, is_proven);
            return None;
        }
        self.unsure.in_turn += 1;
        (self.unsure.in_turn > UNSURE_MAX)
            .then(|| format!("the device counted {counted} of the {sent} that a slice should have sent"))
    }
}

impl Knowledge for Maps {
    fn waiting(&self) -> Bytes {
        self.space.waiting()
    }

    fn waiting_extents(&self) -> u64 {
        self.space.waiting_extents()
    }

    fn left(&self) -> Bytes {
        self.space.left()
    }

    fn unverified(&self) -> Bytes {
        self.space.unverified()
    }

    fn is_mapped(&self) -> bool {
        self.looks.at.is_some()
    }

    fn is_unknown(&self) -> bool {
        self.is_forgotten || !self.is_mapped()
    }

    fn sampled(&mut self, before: Option<&Sample>, sample: &Sample, reported: u64) -> Bytes {
        let Some(before) = before else {
            self.told = sample.online;
            return Bytes(0);
        };
        let freed = before.used.0.saturating_sub(sample.used.0);
        // Space allocated and freed within the second appears only in reported frees.
        self.looks.freed = self.looks.freed.saturating_add(freed.max(reported));
        let changed = before.used.0.abs_diff(sample.used.0).max(reported);
        self.looks.changed = self.looks.changed.saturating_add(changed);
        // A map records what the kernel has told the device.
        self.looks.wanted |= before.online && !sample.online;
        Bytes(0)
    }

    fn drop_fresh(&mut self) {
        self.space.drop_fresh();
    }

    fn catch_up(&mut self) {
        self.space.catch_up();
    }

    fn ask_for_all(&mut self, _: &Sample) {
        self.forget();
        self.catch_up();
    }

    fn forget(&mut self) {
        self.is_forgotten |= self.space.trimmed().0 + self.space.unverified().0 > 0;
        self.space.forget();
        self.looks.wanted = true;
        (self.told, self.round.told) = (false, false);
    }

    fn want_round(&mut self) {
        self.looks.wanted = true;
    }

    fn toggled(&mut self, on: bool) {
        self.told &= on;
    }

    fn reported(&mut self, spans: &[Span]) -> Option<Bytes> {
        Some(self.space.freed(spans))
    }

    fn reports_lost(&mut self) {
        self.looks.changed = u64::MAX;
    }

    fn keep_at_most(&mut self, spans_max: usize) {
        self.space.keep_at_most(spans_max);
    }

    fn look_due(&self, moment: &Moment) -> Option<Look> {
        // A request to trim everything does not wait between two windows.
        let at_once = moment.all_is_wanted && !self.round.is_over;
        if self.looks.wanted {
            return Some(Look::Everything);
        }
        if moment.sample.online && self.is_mapped() && !at_once {
            return None;
        }
        if self.unsure.slice.is_some() {
            return Some(self.round.again());
        }
        self.next_look(moment).filter(|_| at_once || moment.may_look)
    }

    fn look_before_toggle(&self) -> Option<Look> {
        (self.looks.freed > 0 || !self.is_mapped()).then(|| self.round.again())
    }

    fn learn(
        &mut self,
        begins: bool,
        Window { from, upto, free }: Window<'_>,
        moment: &Moment,
        frees: &mut Frees,
    ) -> Option<Seen> {
        self.looks.wanted &= !begins;
        self.is_forgotten &= !begins;
        let window = Span {
            start: if begins { 0 } else { from },
            end: if upto >= self.total.0 { WHOLE.end } else { upto.max(from) },
        };
        let free = &frees.believed(free);
        let (gap, still_to_come) = frees.mapped(window, free);
        let seen_freed = self.looks.freed;
        if begins {
            (self.looks.freed, self.looks.changed) = (still_to_come.0, still_to_come.0);
            let told = std::mem::replace(&mut self.told, moment.sample.online);
            self.round.told = told && !self.round.is_first;
            self.space.begin_round();
        } else {
            self.looks.changed = self.looks.changed.saturating_add(still_to_come.0);
        }
        self.round.looked(window);
        self.looks.at = Some(moment.now);
        let (is_first, told) = (self.round.is_first, self.round.told);
        self.round.is_first = is_first && !self.round.is_over;
        self.unseen.doubted |= gap;
        if begins && moment.now >= self.unseen.forget_at && !told {
            // If each free was reported, nothing was allocated and freed unseen.
            if std::mem::take(&mut self.unseen.doubted) {
                self.space.forget();
            }
            self.space.forget_unverified();
            self.unseen.forget_at = moment.now + FORGET_EVERY;
        }
        let learned = self.space.learn(window, free, told);
        if self.round.is_whole() && !is_first && !told && gap {
            self.account_unseen(seen_freed, learned.freed.0 + still_to_come.0);
        } else {
            self.unseen.unexplained = 0;
        }
        let failure = self.resolve(free);
        Some(Seen { learned, is_first, failure })
    }

    fn next_slice(&mut self, Limits { bytes_max, extents_max, any }: Limits, moment: &Moment) -> Next {
        match self.space.next_slice(self.cutting.cut, bytes_max, extents_max, any) {
            Some((slice, covered)) => Next::Trim(slice, covered),
            // The waiting space in this window cannot be sent.
            None if !self.round.is_over && moment.may_look => Next::Look(self.round.further()),
            None => Next::Nothing,
        }
    }

    fn settle(&mut self, slice: &Slice, covered: &[Span], trimmed: Trimmed, _: SimTime) -> Settled {
        let Trimmed { counted, is_proven, .. } = trimmed;
        let is_sure = !self.is_short(slice, counted);
        if is_sure {
            self.unsure.in_turn = 0;
        }
        let sent_whole = self.cutting.sent_whole(slice, counted);
        match counted {
            Some(counted) if !is_sure => self.unsure.slice = Some((covered.to_vec(), counted, is_proven)),
            _ if sent_whole => self.space.done_whole(covered, is_proven),
            _ => self.space.done(covered, is_proven),
        }
        let is_over = self.space.waiting().0 == 0 && self.round.is_over;
        let pass = if is_over { Pass::RoundOver } else { Pass::Underway };
        Settled { is_sure, paced: slice.bytes, pass }
    }

    fn progress_permille(&self) -> Option<u64> {
        self.round.permille(self.total.0)
    }

    fn progress_words(&self, at: &str) -> String {
        let spans_max = self.space.spans_max();
        if !self.round.is_over {
            return format!(
                "The file system has more free extents than the {spans_max} that are kept, so they are processed in \
                 rounds. This round has reached {at} of the addresses; space waiting beyond that is not counted."
            );
        }
        format!(
            "The file system has more free extents than the {spans_max} that are kept, so they are processed in \
             rounds. The last one is over; the next starts when {} are freed, as much as was forgotten ({} so far), or \
             within a week.",
            self.space.forgotten(),
            Bytes(self.looks.freed)
        )
    }

    fn known(&self, now: SimTime) -> Option<Known> {
        let Unseen { unexplained, missed, forget_at, .. } = self.unseen;
        let trimmed = self.space.trimmed_spans();
        (!trimmed.is_empty()).then(|| Known {
            unverified: self.space.unverified_among(&trimmed),
            trimmed,
            forget_in: forget_at.since(now),
            // Frees that no map has explained yet may have gone unseen too.
            unseen: Bytes(missed.saturating_add(unexplained).saturating_add(self.looks.freed)),
        })
    }

    fn remember(&mut self, known: Known, now: SimTime) {
        self.space.remember(known.trimmed, known.unverified);
        self.unseen.forget_at = now + known.forget_in.min(FORGET_EVERY);
        self.unseen.missed = known.unseen.0;
    }
}
