//! A TRIM policy on a mounted file system of a real host with a stock kernel, as a pure state machine.
//!
//! The daemon hosts one [`LiveHost`] for each file system. It passes on what it sees: a [`Sample`] each second, a map
//! of free space on request, how a slice of a trim ended. It receives [`Order`]s: read a map, trim this slice, turn the
//! kernel's online discard on or off. A [`LiveHost`] does no I/O and reads no clock, so all of it is tested with a fake
//! host.
//!
//! The governors are those of the models. What is a commit there is a set of frees here, as seen in a map or in
//! utilization; a TRIM command that they issue is a slice here. Space reused meanwhile is never sent, since FITRIM
//! looks up what is free when it runs. Three things stand between a governor and the device, in this order: the user's
//! pause, the pressure on I/O, and the pace ([`Pace`]). `judicious` also keeps untrimmed space below a bound: above it,
//! slices run under pressure too, with long rests.
//!
//! Not every file system has a map ([`Facts::maps`]). Without one, untrimmed space is estimated from falling
//! utilization, and a trim is a walk over everything, which is why it is rare (`WHOLE_EVERY`).

mod decide;
mod estimate;
mod facts;
mod frees;
mod known;
mod lanes;
mod outcome;
mod pace;
mod reason;
mod round;
mod space;
mod spans;
mod status;
mod toggle;
mod user;

use self::lanes::Lanes;
use crate::policy::set::{Direction, Trend};
use crate::policy::{
    Decision, DiscardGeneration, Governor, HostTraits, LiveUse, PolicyEvent, PolicySpec, View,
};
use crate::units::{Bytes, SimDuration, SimTime, Span};

pub use facts::{Facts, Failed, Order, Sample, Settings, Window};
pub use known::Known;
pub use pace::Pace;
pub use reason::Reason;
pub use space::{Cut, FreeSpace, Learned, SPANS_MAX, Slice, WHOLE, keep_longest, spans_each};
pub use status::{LastSlice, Status, Totals};
pub use user::Asked;

/// Shortest free extent that the daemon trims unless it is told otherwise: at least the mapping unit of most drives, and
/// large enough to need few commands.
pub const MIN_EXTENT: Bytes = Bytes::kib(64);
/// Longest time between two commits reported to a governor: ext4's commit interval.
const COMMIT: SimDuration = SimDuration::from_secs(5);
/// A device with at most this many requests per second counts as idle, since every host writes logs.
const IDLE_REQUESTS_PER_SECOND: u64 = 5;
/// Change in used space worth a map, or a thousandth of the file system if that is more. Allocations count too: space
/// that is allocated and then freed is no longer trimmed.
const LOOK_CHANGED: Bytes = Bytes::mib(64);
/// Age after which a smaller change is worth a map.
const LOOK_STALE: SimDuration = SimDuration::from_secs(600);
/// Reading maps takes at most one part in this many of the time.
const LOOK_SHARE: u64 = 1000;
/// Space allocated and freed between two maps goes unseen, unless each free is reported ([`LiveHost::freed`]). So
/// knowledge is forgotten as often as fstrim.timer runs.
const FORGET_EVERY: SimDuration = SimDuration::from_secs(7 * 86_400);
/// Without a map, shortest time between two trims of everything: as fstrim.timer, and every third day above the bound.
const WHOLE_EVERY: SimDuration = SimDuration::from_secs(7 * 86_400);
const WHOLE_EVERY_FORCED: SimDuration = SimDuration::from_secs(3 * 86_400);
/// Time from the start to the first one, when the machine has booted.
const WHOLE_FIRST: SimDuration = SimDuration::from_secs(3_600);
/// Knowledge is forgotten after a device failure, but at most this often: otherwise a device that fails now and then
/// would be sent all of its free space each time.
const FORGET_FAILED_EVERY: SimDuration = SimDuration::from_secs(86_400);
/// Delay of the first attempt after a failure; each further failure doubles it.
const RETRY: SimDuration = SimDuration::from_secs(60);
const RETRY_MAX: SimDuration = SimDuration::from_secs(3_600);
/// Delay before the next attempt, after `failures` earlier failures in a row and one more.
fn again_in(failures: u32) -> SimDuration {
    (RETRY * (1 << failures.min(6))).min(RETRY_MAX)
}

/// Rest in multiples of a slice's time while nothing else uses the device, and how long that must have been so.
const REST_ALONE: u64 = 7;
const ALONE: SimDuration = SimDuration::from_secs(10);
/// Above the bound the rest is short enough to trim all waiting space within an hour, but no shorter than this, without
/// and with pressure.
const FORCED_WITHIN: SimDuration = SimDuration::from_secs(3_600);
const REST_FORCED: u64 = 4;
const REST_PRESSED: u64 = 19;
/// Excess over the slices that may come from others, or from the ends of extents.
const OVERSHOOT: Bytes = Bytes::mib(16);
/// Window of the trend shown to the user.
const TREND_WINDOW: SimDuration = SimDuration::from_secs(600);

/// The order in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Busy {
    Looking {
        /// Whether it starts a round.
        begins: bool,
    },
    Trimming {
        slice: Slice,
        covered: Vec<Span>,
    },
    Toggling,
}

/// Knowledge of free space.
#[derive(Debug)]
enum Knowledge {
    Map(FreeSpace),
    Estimate(estimate::Estimate),
}

/// One mounted file system under its policy.
pub struct LiveHost {
    policy: PolicySpec,
    governor: Box<dyn Governor>,
    facts: Facts,
    settings: Settings,
    knowledge: Knowledge,
    round: round::Round,
    pace: Pace,
    lanes: Lanes,
    now: SimTime,
    sampled_at: SimTime,
    sample: Sample,
    trend: Trend,
    is_hosted: bool,
    quiet: SimDuration,
    /// How long the device has had no requests at all.
    alone: SimDuration,
    committed_at: SimTime,
    /// Whether a slice was in progress since the last sample.
    touched: bool,
    busy: Option<Busy>,
    /// The governor's own timer.
    wake: Option<SimTime>,
    /// Whether it wants a slice.
    wants: bool,
    /// Whether it wants all free space trimmed.
    sweep: bool,
    /// Whether it wants what was free before the first map.
    wants_backlog: bool,
    online: bool,
    online_wanted: Option<bool>,
    toggling: toggle::Toggling,
    /// Whether the kernel told the device of everything freed since the last map.
    told: bool,
    paused: bool,
    asked: Asked,
    look_wanted: bool,
    looked_at: Option<SimTime>,
    look_not_before: SimTime,
    look_begun: SimTime,
    freed_since_look: u64,
    changed_since_look: u64,
    /// Bytes freed according to utilization, but not found in a map yet.
    unexplained: u64,
    frees: frees::Frees,
    /// Bytes freed according to utilization, but not found in any map: allocated and freed between two of them.
    missed: u64,
    forget_at: SimTime,
    /// Whether space may have been allocated and freed unseen since knowledge was last forgotten.
    doubted: bool,
    /// Bytes that slices sent beyond their ranges and beyond twice the requested amount, and the number of such slices.
    overshoot: u64,
    overshoots: u32,
    failures: u32,
    /// Why the last slice failed, until one succeeds; a successful map says nothing about it.
    slice_failure: Option<String>,
    retry_at: SimTime,
    /// A reported discard failure of the device, not handled yet.
    device_failed: Option<String>,
    /// No failure makes knowledge forgotten before this time.
    forget_not_before: SimTime,
    /// A slice of which the device counted too little: its spans, and the count.
    unsure: Option<(Vec<Span>, u64)>,
    /// Number of slices in a row that stayed unsure.
    unsure_in_turn: u32,
    refused: Option<String>,
    /// Something given up on that is still running in the kernel.
    stuck: Option<String>,
    reason: Reason,
    totals: Totals,
}

impl LiveHost {
    /// A host that has seen nothing yet. The policy must suit a live host ([`PolicySpec::suits_live_host`]).
    pub fn new(policy: PolicySpec, facts: Facts, settings: Settings, now: SimTime) -> Self {
        Self {
            policy,
            governor: policy.governor(),
            facts,
            settings,
            knowledge: if facts.maps {
                Knowledge::Map(FreeSpace::new(facts.spans_max))
            } else {
                Knowledge::Estimate(estimate::Estimate::new(now))
            },
            round: round::Round::default(),
            pace: Pace::new(settings.slice_target),
            lanes: Lanes::default(),
            now,
            sampled_at: now,
            sample: Sample { total: facts.total, ..Sample::default() },
            trend: Trend::new(TREND_WINDOW, 10),
            is_hosted: false,
            quiet: SimDuration::ZERO,
            alone: SimDuration::ZERO,
            committed_at: now,
            touched: false,
            busy: None,
            wake: None,
            wants: false,
            sweep: false,
            wants_backlog: false,
            online: false,
            online_wanted: None,
            toggling: toggle::Toggling::default(),
            told: false,
            paused: false,
            asked: Asked::Never,
            look_wanted: true,
            looked_at: None,
            look_not_before: now,
            look_begun: now,
            freed_since_look: 0,
            changed_since_look: 0,
            unexplained: 0,
            frees: frees::Frees::default(),
            missed: 0,
            forget_at: now + FORGET_EVERY,
            doubted: true,
            overshoot: 0,
            overshoots: 0,
            failures: 0,
            slice_failure: None,
            retry_at: now,
            device_failed: None,
            forget_not_before: now,
            unsure: None,
            unsure_in_turn: 0,
            refused: None,
            stuck: None,
            reason: Reason::Starting,
            totals: Totals::default(),
        }
    }

    /// Handles the sample of a second.
    pub fn sample(&mut self, now: SimTime, sample: Sample, orders: &mut Vec<Order>) {
        // The time between samples, not between calls: requests are counted from sample to sample.
        let interval = now.since(std::mem::replace(&mut self.sampled_at, now));
        let before = std::mem::replace(&mut self.sample, sample);
        self.now = now;
        self.trend.observe(now, sample.used.0, sample.total.0);
        if self.is_hosted {
            self.see_requests(interval, &before);
            self.shorten_rest();
            let freed = before.used.0.saturating_sub(sample.used.0);
            // Space allocated and freed within the second appears only in reported frees.
            let told = self.frees.take_since_sample();
            self.freed_since_look = self.freed_since_look.saturating_add(freed.max(told));
            let changed = before.used.0.abs_diff(sample.used.0).max(told);
            self.changed_since_look = self.changed_since_look.saturating_add(changed);
            if let Knowledge::Estimate(estimate) = &mut self.knowledge
                && !self.online
            {
                estimate.freed(freed, sample.total.0.saturating_sub(sample.used.0));
                self.totals.freed_bytes += freed;
            }
        }
        if let Knowledge::Estimate(estimate) = &mut self.knowledge {
            estimate.at_most(sample.total.0.saturating_sub(sample.used.0));
        }
        if self.online && !sample.online && self.facts.maps {
            self.look_wanted = true; // to record what the kernel has told the device
        }
        self.online = sample.online;
        self.host();
        if now.since(self.committed_at) >= COMMIT {
            let fresh = match &mut self.knowledge {
                Knowledge::Estimate(estimate) => estimate.take_fresh(),
                Knowledge::Map(_) => 0,
            };
            self.committed(Bytes(fresh));
        }
        self.decide(orders);
    }

    fn see_requests(&mut self, interval: SimDuration, before: &Sample) {
        let done = self.sample.requests_done.saturating_sub(before.requests_done);
        let touched = std::mem::replace(&mut self.touched, matches!(self.busy, Some(Busy::Trimming { .. })));
        if done > 0 {
            let time = self.sample.requests_time - before.requests_time;
            self.pace.observe(time / done, touched);
        }
        self.alone = if done == 0 { self.alone + interval } else { SimDuration::ZERO };
        let few = done.saturating_mul(1_000_000_000)
            <= interval.as_nanos().saturating_mul(IDLE_REQUESTS_PER_SECOND);
        // During a slice, requests in the device are the slice's own.
        if few && (touched || self.sample.in_flight == 0) {
            self.quiet += interval;
        } else {
            self.quiet = SimDuration::ZERO;
        }
    }

    /// Tells the governor of its host, once.
    fn host(&mut self) {
        if std::mem::replace(&mut self.is_hosted, true) {
            return;
        }
        self.told = self.online;
        self.committed_at = self.now;
        if let Knowledge::Estimate(estimate) = &mut self.knowledge
            && !self.online
        {
            estimate.left = self.sample.total.0.saturating_sub(self.sample.used.0);
        }
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
        self.committed_at = self.now;
        let dropped = self.tell(&PolicyEvent::Committed { freed_units: freed.units_floor() });
        if self.policy.live() == LiveUse::Kernel {
            self.online_wanted = Some(!dropped);
        }
    }

    /// Passes an event to the governor and records its decisions. Returns whether it dropped the freed space.
    fn tell(&mut self, event: &PolicyEvent) -> bool {
        let mut decisions = Vec::new();
        self.governor.on_event(event, &self.view(), &mut decisions);
        let mut dropped = false;
        for decision in decisions {
            match decision {
                Decision::DropFreed => {
                    dropped = true;
                    let all_is_wanted = self.is_asked() || self.sweep;
                    match &mut self.knowledge {
                        _ if all_is_wanted => {}
                        Knowledge::Map(space) => space.drop_fresh(),
                        Knowledge::Estimate(estimate) => estimate.drop_fresh(),
                    }
                }
                Decision::CatchUp => self.catch_up(),
                Decision::Issue(_) | Decision::IssueInCommit { .. } => self.wants = true,
                Decision::TrimFree { .. } => {
                    self.sweep = true;
                    self.look_wanted = true;
                    self.catch_up();
                }
                Decision::WakeAt(at) => self.wake = Some(at),
                Decision::Reveal => {} // no real host can
            }
        }
        dropped
    }

    fn catch_up(&mut self) {
        self.wants_backlog = true;
        match &mut self.knowledge {
            Knowledge::Map(space) => space.catch_up(),
            Knowledge::Estimate(estimate) => estimate.catch_up(),
        }
    }

    fn view(&self) -> View {
        let extents = match &self.knowledge {
            Knowledge::Map(space) => space.waiting_extents(),
            Knowledge::Estimate(estimate) => u64::from(estimate.waiting > 0),
        };
        View {
            now: self.now,
            used_units: self.sample.used.units_floor(),
            total_units: self.sample.total.units_floor(),
            pending_units: self.waiting().units_ceil(),
            pending_extents: extents,
            untrimmed_units: self.left().units_ceil(),
            in_flight: u32::from(matches!(self.busy, Some(Busy::Trimming { .. }))),
            requests: u32::from(self.quiet == SimDuration::ZERO),
            quiet: self.quiet,
        }
    }

    /// Whether its policy keeps untrimmed space below a bound.
    fn is_bounded(&self) -> bool {
        self.policy.live() == LiveUse::Bounded
    }

    /// Maximum untrimmed space under a policy that bounds it.
    pub fn bound(&self) -> Bytes {
        Bytes(self.sample.total.0 / 1000 * self.settings.untrimmed_max_permille)
    }

    /// Free space waiting to be trimmed.
    pub fn waiting(&self) -> Bytes {
        match &self.knowledge {
            Knowledge::Map(space) => space.waiting(),
            Knowledge::Estimate(estimate) => Bytes(estimate.waiting),
        }
    }

    /// Untrimmed free space that the policy leaves alone.
    pub fn left(&self) -> Bytes {
        match &self.knowledge {
            Knowledge::Map(space) => space.left(),
            Knowledge::Estimate(estimate) => Bytes(estimate.left),
        }
    }

    /// Whether it has seen its file system yet; until then all of its figures are zero.
    pub fn has_seen(&self) -> bool {
        self.is_hosted
    }

    /// Whether an order is in progress.
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// The reason for its current behaviour.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Totals since it started.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn is_mapped(&self) -> bool {
        matches!(self.knowledge, Knowledge::Map(_)) && self.looked_at.is_some()
    }

    fn trend_word(&self) -> &'static str {
        match self.trend.direction() {
            Direction::Rising => "rising",
            Direction::Falling => "falling",
            Direction::Steady => "steady",
        }
    }
}
