//! A TRIM policy on a mounted file system of a real host with a stock kernel, as a pure state machine.
//!
//! The daemon hosts one [`LiveHost`] for each file system. It passes on what it sees: a [`Sample`] as often as asked
//! for ([`LiveHost::sample_every`]), a map of free space on request, how a slice of a trim ended. It receives
//! [`Order`]s: read a map, trim this slice, turn the kernel's online discard on or off. A [`LiveHost`] does no I/O and
//! reads no clock, so all of it is tested with a fake host.
//!
//! The governors are those of the models. A commit there is a set of frees here, as seen in a map or in utilization; a
//! TRIM command that they issue is a slice here. Space reused in the meantime is never sent, since FITRIM looks up what
//! is free when it runs. Three things stand between a governor and the device, in this order: the user's pause, the
//! pressure on I/O, and the pace ([`Pace`]). `judicious` also keeps untrimmed space below a bound: above it, slices run
//! under pressure too, with long rests. Where the space is lent, all policies do, and what is free goes back by a
//! deadline and when the lender runs short ([`Lent`]).
//!
//! Not every file system has a map ([`Facts::maps`]). Without one, untrimmed space is estimated from falling
//! utilization, and a trim is a walk over everything, which is why it is rare (`WHOLE_EVERY`).

mod decide;
mod estimate;
mod facts;
mod frees;
mod giving;
mod knowledge;
mod known;
mod lanes;
mod load;
mod maps;
mod outcome;
mod pace;
mod reason;
mod round;
mod sent;
mod space;
mod spans;
mod status;
mod toggle;
mod trouble;
mod untrimmed;
mod user;

use self::knowledge::{Knowledge, Moment};
use self::lanes::Lanes;
use self::load::{Latency, Load};
use self::trouble::Trouble;
use self::user::User;
use crate::policy::set::Direction;
use crate::policy::{
    Decision, DiscardGeneration, Governor, HostTraits, LiveUse, PolicyEvent, PolicySpec, View,
};
use crate::units::{Bytes, SimDuration, SimTime, Span};

pub use facts::{Facts, Failed, Lent, Order, Sample, Settings, Trimmed, Window};
pub use giving::{Lender, Level};
pub use known::Known;
pub use maps::nearly;
pub use pace::Pace;
pub use reason::Reason;
pub use sent::Sent;
pub use space::{Cut, FreeSpace, Learned, SPANS_MAX, Slice, WHOLE, keep_longest, spans_each};
pub use status::{LastSlice, Status, Totals};
pub use untrimmed::Untrimmed;
pub use user::Asked;

/// Shortest free extent that the daemon trims by default: at least the mapping unit of most drives, and large enough to
/// need few commands.
pub const MIN_EXTENT: Bytes = Bytes::kib(64);
/// Time between two commits reported to a governor: ext4's commit interval.
const COMMIT: SimDuration = SimDuration::from_secs(5);
/// Time between samples while slices may follow each other, or files come and go. Nothing else is decided sooner than
/// with a commit.
const SECOND: SimDuration = SimDuration::from_secs(1);
/// Files that have come or gone this recently may go on doing so.
const RECENT: SimDuration = SimDuration::from_secs(60);
/// Reading maps takes at most one part in this many of the time.
const LOOK_SHARE: u64 = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Busy {
    Looking { begins: bool, begun: SimTime },
    Trimming { slice: Slice, covered: Vec<Span> },
    Toggling,
}

#[derive(Debug, Default)]
struct Wishes {
    wake: Option<SimTime>,
    slice: bool,
    sweep: bool,
    backlog: bool,
    /// The governor's wish for the kernel's online discard; `None` if it has not said yet.
    online: Option<bool>,
}

/// One mounted file system under its policy.
pub struct LiveHost {
    policy: PolicySpec,
    governor: Box<dyn Governor>,
    wishes: Wishes,
    /// When the governor was last told of a commit; `None` before the first sample.
    committed_at: Option<SimTime>,
    /// When the space in use was last seen to change.
    used_changed_at: Option<SimTime>,
    facts: Facts,
    settings: Settings,
    user: User,
    knowledge: Box<dyn Knowledge>,
    frees: frees::Frees,
    load: Load,
    pace: Pace,
    lanes: Lanes,
    now: SimTime,
    busy: Option<Busy>,
    /// No map is read before this time, except one that cannot wait.
    look_not_before: SimTime,
    toggling: toggle::Toggling,
    trouble: Trouble,
    giving: giving::Giving,
    reason: Reason,
    totals: Totals,
}

impl LiveHost {
    /// Creates a host that has seen nothing yet. The policy must suit a live host ([`PolicySpec::suits_live_host`]).
    pub fn new(policy: PolicySpec, facts: Facts, settings: Settings, now: SimTime) -> Self {
        Self {
            policy,
            governor: policy.governor(),
            wishes: Wishes::default(),
            committed_at: None,
            used_changed_at: None,
            facts,
            settings,
            user: User::default(),
            knowledge: if facts.maps {
                Box::new(maps::Maps::new(&facts, now))
            } else {
                Box::new(estimate::Estimate::new(facts.cut, now))
            },
            frees: frees::Frees::default(),
            load: Load::new(Sample { total: facts.total, ..Sample::default() }, now),
            pace: Pace::new(settings.slice_target),
            lanes: Lanes::default(),
            now,
            busy: None,
            look_not_before: now,
            toggling: toggle::Toggling::default(),
            trouble: Trouble::none(now),
            giving: giving::Giving::default(),
            reason: Reason::Starting,
            totals: Totals::default(),
        }
    }

    pub fn sample(&mut self, now: SimTime, sample: Sample, orders: &mut Vec<Order>) {
        self.now = now;
        let reported = if self.has_seen() { self.frees.take_since_sample() } else { 0 };
        let (before, interval) = self.load.take(now, sample, reported);
        if before.used != sample.used {
            self.used_changed_at = Some(now);
        }
        if self.has_seen() {
            if let Some(Latency { mean, touched }) =
                self.load.see_requests(&before, interval, self.is_trimming())
            {
                self.pace.observe(mean, touched);
            }
            self.shorten_rest();
            self.totals.freed_bytes += self.knowledge.sampled(Some(&before), &sample, reported).0;
        } else {
            self.knowledge.sampled(None, &sample, 0);
            self.introduce();
        }
        // Samples a commit apart may come a little early.
        if self.committed_at.is_some_and(|at| now.since(at) + SECOND / 2 >= COMMIT) {
            let fresh = self.knowledge.take_fresh();
            self.committed(fresh);
        }
        self.decide(orders);
    }

    fn introduce(&mut self) {
        self.committed_at = Some(self.now);
        let total_units = self.facts.total.units_floor();
        let traits = HostTraits {
            // Linux's own worker: one at a time, after the commit.
            kernel: DiscardGeneration::Worker,
            trim_depth: 1,
            ranges_max: 1024,
            range_units_max: total_units.max(1),
            total_units,
            group_units: total_units.max(1),
        };
        self.tell(&PolicyEvent::Hosted(traits));
        if self.policy.live() == LiveUse::Kernel {
            self.committed(Bytes(0));
        }
    }

    fn committed(&mut self, freed: Bytes) {
        self.committed_at = Some(self.now);
        let dropped = self.tell(&PolicyEvent::Committed { freed_units: freed.units_floor() });
        if self.policy.live() == LiveUse::Kernel {
            self.wishes.online = Some(!dropped);
        }
    }

    /// Passes an event to the governor and records its decisions. Returns true if it dropped the freed space.
    fn tell(&mut self, event: &PolicyEvent) -> bool {
        let mut decisions = Vec::new();
        self.governor.on_event(event, &self.view(), &mut decisions);
        let mut dropped = false;
        for decision in decisions {
            match decision {
                Decision::DropFreed => {
                    dropped = true;
                    if !self.all_is_wanted() {
                        self.knowledge.drop_fresh();
                    }
                }
                Decision::CatchUp => self.catch_up(),
                // A slice is chosen by its address, so the extents in it are as long as the average.
                Decision::Issue(shape) => self.wishes.slice |= shape.units_min <= self.view().pending_mean(),
                Decision::IssueInCommit { .. } => self.wishes.slice = true,
                Decision::TrimFree { .. } => {
                    self.wishes.sweep = true;
                    self.knowledge.want_round();
                    self.catch_up();
                }
                Decision::WakeAt(at) => self.wishes.wake = Some(at),
                Decision::Reveal => {} // no real host can
            }
        }
        dropped
    }

    fn catch_up(&mut self) {
        self.wishes.backlog = true;
        self.knowledge.catch_up();
    }

    fn view(&self) -> View {
        let sample = &self.load.sample;
        View {
            now: self.now,
            used_units: sample.used.units_floor(),
            total_units: sample.total.units_floor(),
            freed_units: self.load.freed.units_floor(),
            pending_units: self.knowledge.waiting().units_ceil(),
            pending_extents: self.knowledge.waiting_extents(),
            untrimmed_units: self.knowledge.left().units_ceil(),
            in_flight: u32::from(self.is_trimming()),
            requests: u32::from(self.load.quiet == SimDuration::ZERO),
            quiet: self.load.quiet,
            served: sample.served,
            ..View::default()
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            now: self.now,
            sample: self.load.sample,
            may_look: self.now >= self.look_not_before,
            all_is_wanted: self.all_is_wanted(),
        }
    }

    fn all_is_wanted(&self) -> bool {
        self.is_asked() || self.wishes.sweep || self.is_giving_back()
    }

    fn is_trimming(&self) -> bool {
        matches!(self.busy, Some(Busy::Trimming { .. }))
    }

    fn is_online(&self) -> bool {
        self.load.sample.online
    }

    /// Returns true if untrimmed space stays below a bound.
    fn is_bounded(&self) -> bool {
        self.policy.live() == LiveUse::Bounded || (self.settings.lent.is_some() && self.policy.needs_trim())
    }

    /// Maximum untrimmed space under a policy that bounds it, or of space that is lent.
    pub fn bound(&self) -> Bytes {
        let of_drive = self.settings.untrimmed_max_permille;
        let permille = self.settings.lent.map_or(of_drive, |lent| lent.held_max_permille.min(of_drive));
        Bytes(self.load.sample.total.0 / 1000 * permille)
    }

    /// Free space that the policy will trim.
    pub fn waiting(&self) -> Untrimmed {
        self.unless_unknown(self.knowledge.waiting())
    }

    /// Untrimmed free space that is left alone: by the policy, or because it was sent and may not have been taken.
    pub fn left(&self) -> Untrimmed {
        self.unless_unknown(Bytes(self.knowledge.left().0 + self.knowledge.unverified().0))
    }

    fn unless_unknown(&self, bytes: Bytes) -> Untrimmed {
        if self.has_seen() && !self.knowledge.is_unknown() {
            Untrimmed::Known(bytes)
        } else {
            Untrimmed::Unknown
        }
    }

    /// Returns true if the host has seen its file system. Until then all of its figures are zero.
    pub fn has_seen(&self) -> bool {
        self.committed_at.is_some()
    }

    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn trend_word(&self) -> &'static str {
        match self.load.trend.direction() {
            Direction::Rising => "rising",
            Direction::Falling => "falling",
            Direction::Steady => "steady",
        }
    }
}
