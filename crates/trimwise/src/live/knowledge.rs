//! Knowledge of free space, and the only place that asks where it comes from.
//!
//! A file system that can list its free space is known from maps ([`Maps`](super::maps::Maps)). For others there are
//! sums from utilization ([`Estimate`](super::estimate::Estimate)), and they are trimmed by a walk over all addresses.
//! Everything else in this module tree asks the trait [`Knowledge`], which answers for both.

use super::frees::Frees;
use super::space::{Learned, Slice};
use super::{Known, Sample, Trimmed, Window};
use crate::units::{Bytes, SimDuration, SimTime, Span};

/// Knowledge of trimmed space is forgotten after this time, as often as fstrim.timer runs. Space allocated and freed
/// between two maps goes unseen, unless each free is reported ([`LiveHost::freed`](super::LiveHost::freed)).
pub(super) const FORGET_EVERY: SimDuration = SimDuration::from_secs(7 * 86_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A map of everything, or of as much as fits. It starts a round.
    Everything,
    From(u64),
}

/// The circumstances in which knowledge is asked for the next step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub now: SimTime,
    pub sample: Sample,
    pub may_look: bool,
    /// The user or the governor wants all free space trimmed.
    pub all_is_wanted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub bytes_max: Bytes,
    pub extents_max: u64,
    /// If there are no others, send extents of which little waits.
    pub any: bool,
}

#[derive(Debug)]
pub(super) enum Next {
    Trim(Slice, Vec<Span>),
    Look(Look),
    Nothing,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub learned: Learned,
    /// The map belongs to the first round: what it shows as freed was free before the daemon started.
    pub is_first: bool,
    /// Message of a failure that the map has revealed: slices count as sent, but their space still waits.
    pub failure: Option<String>,
}

/// Progress through the file system after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Underway,
    /// Nothing waits, and the round's last map has been read.
    RoundOver,
    /// The walk has covered all addresses. Space freed in the meantime waits for the next one.
    WalkOver,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    /// The device counted about as much as was to be sent, as far as can be told now.
    pub is_sure: bool,
    /// Size of the slice for comparison with its duration.
    pub paced: Bytes,
    pub pass: Pass,
}

/// Knowledge of a file system's free space: of which parts the device was told. *Waiting* space is to be trimmed;
/// *left* space is untrimmed too, but the policy leaves it alone.
///
/// Methods with a default apply to one kind of knowledge only.
pub(super) trait Knowledge {
    fn waiting(&self) -> Bytes;
    fn waiting_extents(&self) -> u64;
    fn left(&self) -> Bytes;

    /// Space that was sent, and of which it is not known that the device took it. It is neither waiting nor left.
    fn unverified(&self) -> Bytes;

    fn is_mapped(&self) -> bool {
        false
    }

    /// Returns true if nothing has shown yet how much free space is untrimmed. The sums are then a lower bound.
    fn is_unknown(&self) -> bool;

    /// Notes a sample, after the one `before`; `None` if it is the first. `reported` bytes were reported as freed since
    /// then. Returns the bytes that the sample shows as freed, if no map will show them.
    fn sampled(&mut self, before: Option<&Sample>, sample: &Sample, reported: u64) -> Bytes;

    /// Returns the bytes freed since the last call, if no map shows them.
    fn take_fresh(&mut self) -> Bytes {
        Bytes(0)
    }

    /// Leaves the space alone that the last map, or the last call of [`Knowledge::take_fresh`], made waiting.
    fn drop_fresh(&mut self);
    fn catch_up(&mut self);
    fn ask_for_all(&mut self, sample: &Sample);

    /// Forgets what the device was told. The next map shows all of it as untrimmed.
    fn forget(&mut self) {}
    fn want_round(&mut self) {}
    fn toggled(&mut self, _on: bool) {}

    /// Notes reported frees. Returns how many bytes of them were untrimmed, and so were reused without a TRIM; `None`
    /// if reports are of no use.
    fn reported(&mut self, _spans: &[Span]) -> Option<Bytes> {
        None
    }

    fn reports_lost(&mut self) {}
    fn keep_at_most(&mut self, _spans_max: usize) {}

    /// The map that is due now, if any.
    fn look_due(&self, _moment: &Moment) -> Option<Look> {
        None
    }

    /// The map to read before the kernel's online discard is turned on or off: the device was told of everything freed
    /// until then, or of nothing, and a map after the change could not tell the two apart.
    fn look_before_toggle(&self) -> Option<Look> {
        None
    }

    /// Learns from a map. `begins` says that it is the first of a round. Without maps, `window` lists the ranges to
    /// walk over, and there is no result.
    fn learn(&mut self, begins: bool, window: Window<'_>, moment: &Moment, frees: &mut Frees)
    -> Option<Seen>;

    fn is_due(&self, _now: SimTime, _forced: bool) -> bool {
        true
    }

    /// Returns when the next walk over all addresses may start, if waiting space needs one.
    fn next_walk(&self, _forced: bool) -> Option<SimTime> {
        None
    }

    /// Returns true if space freed before the kernel's online discard was on is trimmed, once, while it is on.
    fn trims_despite_online(&self) -> bool {
        false
    }

    /// Returns the next slice of waiting space, or what must be done before it.
    fn next_slice(&mut self, limits: Limits, moment: &Moment) -> Next;

    /// Accounts for a slice of which no failure is known.
    fn settle(&mut self, slice: &Slice, covered: &[Span], trimmed: Trimmed, now: SimTime) -> Settled;

    /// Notes that a slice failed, and whether it could not have been smaller. The space that it covered still waits.
    fn slice_failed(&mut self, _covered: &[Span], _was_least: bool, _now: SimTime) {}

    /// Progress of work in several steps, in thousandths of the addresses; `None` if there is none.
    fn progress_permille(&self) -> Option<u64>;

    /// Describes that work in a sentence. `at` is its progress in words.
    fn progress_words(&self, at: &str) -> String;

    fn known(&self, _now: SimTime) -> Option<Known> {
        None
    }

    fn remember(&mut self, _known: Known, _now: SimTime) {}
}
