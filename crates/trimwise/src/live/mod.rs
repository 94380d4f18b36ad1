//! A TRIM policy on a mounted file system of a real host with a stock kernel, as a pure state machine.
//!
//! The daemon hosts one [`LiveHost`] for each file system. It hears what the daemon sees: a [`Sample`] each second, a map
//! of free space when it asked for one, how a slice of a trim ended. It answers [`Order`]s: read a map, trim this slice,
//! turn the kernel's online discard on or off. It does no I/O and reads no clock, so that all of it is tested with a
//! made-up host.
//!
//! The governors are those of the models. What a commit is to them there, is here what a map or utilization shows to
//! be freed; a TRIM command that they issue is a slice. What was reused meanwhile is never sent, since FITRIM looks up
//! what is free when it runs. Between a governor and the device stand, in this order: the user's pause, the pressure on
//! I/O, and the pace ([`Pace`]). `judicious` also keeps untrimmed space below a bound: above it, slices come also under
//! pressure, with long rests.
//!
//! Not every file system has a map ([`Facts::maps`]). Then what is untrimmed is estimated from falling utilization, and a
//! trim is a walk over everything, which is why it is rare there (`WHOLE_EVERY`).

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
use crate::policy::{Decision, DiscardGeneration, Governor, HostTraits, PolicyEvent, PolicySpec, View};
use crate::units::{Bytes, SimDuration, SimTime, Span};

pub use facts::{Facts, Failed, Order, Sample, Settings, Window};
pub use known::Known;
pub use pace::Pace;
pub use reason::Reason;
pub use space::{Cut, FreeSpace, Learned, SPANS_MAX, Slice, WHOLE, keep_longest, spans_each};
pub use status::{LastSlice, Status, Totals};
pub use user::Asked;

/// Governors hear of a commit at least so often: ext4's commit interval.
const COMMIT: SimDuration = SimDuration::from_secs(5);
/// Fewer requests a second leave a device idle: logs are written on every host.
const IDLE_REQUESTS_PER_SECOND: u64 = 5;
/// So much freed or allocated is worth a map; or a thousandth of the file system, if that is more. What is in use must be
/// seen too: when it is freed again, it is not trimmed any more.
const LOOK_CHANGED: Bytes = Bytes::mib(64);
/// Less is looked at when it has waited for so long.
const LOOK_STALE: SimDuration = SimDuration::from_secs(600);
/// Reading maps takes at most this share of the time, one part in so many.
const LOOK_SHARE: u64 = 1000;
/// Space freed and allocated between two maps is not seen, unless each free is told ([`LiveHost::freed`]); so what is known
/// is forgotten as often as fstrim.timer runs.
const FORGET_EVERY: SimDuration = SimDuration::from_secs(7 * 86_400);
/// Without a map, everything is trimmed at most so often: as often as fstrim.timer does, and above the bound each third
/// day.
const WHOLE_EVERY: SimDuration = SimDuration::from_secs(7 * 86_400);
const WHOLE_EVERY_FORCED: SimDuration = SimDuration::from_secs(3 * 86_400);
/// The first one comes so long after the start, when the machine has booted.
const WHOLE_FIRST: SimDuration = SimDuration::from_secs(3_600);
/// What is known is forgotten behind a failure of the device, but no more often: one that fails now and then would be sent
/// all of its free space each time.
const FORGET_FAILED_EVERY: SimDuration = SimDuration::from_secs(86_400);
/// The first attempt behind a failure; each further one doubles it.
const RETRY: SimDuration = SimDuration::from_secs(60);
const RETRY_MAX: SimDuration = SimDuration::from_secs(3_600);
/// How long after so many failures in turn and one more it is tried again.
fn again_in(failures: u32) -> SimDuration {
    (RETRY * (1 << failures.min(6))).min(RETRY_MAX)
}

/// Rests in multiples of a slice's time where nobody else uses the device, and from when on that is so.
const REST_ALONE: u64 = 7;
const ALONE: SimDuration = SimDuration::from_secs(10);
/// Above the bound the rest is as short as it must be for what waits to be trimmed within an hour, but no shorter than
/// this, without and with pressure.
const FORCED_WITHIN: SimDuration = SimDuration::from_secs(3_600);
const REST_FORCED: u64 = 4;
const REST_PRESSED: u64 = 19;
/// Sent beside slices, this much is somebody else's, or an extent's end.
const OVERSHOOT: Bytes = Bytes::mib(16);
/// The trend that people are told of.
const TREND_WINDOW: SimDuration = SimDuration::from_secs(600);

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Busy {
    Looking {
        /// A round begins with it.
        begins: bool,
    },
    Trimming {
        slice: Slice,
        covered: Vec<Span>,
    },
    Toggling,
}

/// What is known of free space.
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
    /// How long nobody has used the device at all.
    alone: SimDuration,
    committed_at: SimTime,
    /// Whether a slice was under way since the last sample.
    touched: bool,
    busy: Option<Busy>,
    /// The governor's own timer.
    wake: Option<SimTime>,
    /// It wants a slice.
    wants: bool,
    /// It wants all that is free.
    sweep: bool,
    /// It wants what was free before the first map.
    wants_backlog: bool,
    online: bool,
    online_wanted: Option<bool>,
    toggling: toggle::Toggling,
    /// Whether the kernel told the device of all that was freed since the last map.
    told: bool,
    paused: bool,
    asked: Asked,
    look_wanted: bool,
    looked_at: Option<SimTime>,
    look_not_before: SimTime,
    look_begun: SimTime,
    freed_since_look: u64,
    changed_since_look: u64,
    /// Freed as utilization showed it, and not yet found in a map.
    unexplained: u64,
    frees: frees::Frees,
    /// Freed as utilization showed it, and not found in a map: it came and went between two of them.
    missed: u64,
    forget_at: SimTime,
    /// Whether something may have come and gone unseen since all was forgotten last.
    doubted: bool,
    /// Bytes that slices sent beyond their ranges and twice what they were asked for, and in how many slices.
    overshoot: u64,
    overshoots: u32,
    failures: u32,
    /// It is slices that fail, about which a map that succeeds says nothing.
    slices_fail: bool,
    retry_at: SimTime,
    /// The device said that discards failed, and nothing followed from it yet.
    device_failed: Option<String>,
    /// What is known is not forgotten for a failure again before this.
    forget_not_before: SimTime,
    /// A slice of which the device counted too little: what was in it, and what was counted.
    unsure: Option<(Vec<Span>, u64)>,
    /// That slice and so many before it stayed unsure.
    unsure_in_turn: u32,
    refused: Option<String>,
    /// Something that was given up is still under way in the kernel.
    stuck: Option<String>,
    reason: Reason,
    totals: Totals,
}

impl LiveHost {
    /// A host that has seen nothing yet. The policy must suit it ([`PolicySpec::suits_live_host`]).
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
            slices_fail: false,
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

    /// A second has passed.
    pub fn sample(&mut self, now: SimTime, sample: Sample, orders: &mut Vec<Order>) {
        // Not since the last call of any kind: requests are counted from sample to sample.
        let interval = now.since(std::mem::replace(&mut self.sampled_at, now));
        let before = std::mem::replace(&mut self.sample, sample);
        self.now = now;
        self.trend.observe(now, sample.used.0, sample.total.0);
        if self.is_hosted {
            self.see_requests(interval, &before);
            self.shorten_rest();
            let freed = before.used.0.saturating_sub(sample.used.0);
            // What was allocated and freed within the second is only told.
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
            self.look_wanted = true; // to note what the kernel told until now
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
        // Beside a slice, what is in the device is the slice's.
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
            // Linux's own worker: one at a time, behind the commit.
            kernel: DiscardGeneration::Worker,
            trim_depth: 1,
            ranges_max: 1024,
            range_units_max: total_units.max(1),
            total_units,
            group_units: total_units.max(1),
        };
        self.tell(&PolicyEvent::Hosted(traits));
        if self.policy.follows_commits() {
            self.committed(Bytes(0));
        }
    }

    fn committed(&mut self, freed: Bytes) {
        self.committed_at = self.now;
        let dropped = self.tell(&PolicyEvent::Committed { freed_units: freed.units_floor() });
        if self.policy.follows_commits() {
            self.online_wanted = Some(!dropped);
        }
    }

    /// The governor sees an event; what it decides is noted. Answers whether it dropped what was freed.
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

    /// The most untrimmed space that `judicious` leaves.
    pub fn bound(&self) -> Bytes {
        Bytes(self.sample.total.0 / 1000 * self.settings.untrimmed_max_permille)
    }

    /// Free space that waits for its trim.
    pub fn waiting(&self) -> Bytes {
        match &self.knowledge {
            Knowledge::Map(space) => space.waiting(),
            Knowledge::Estimate(estimate) => Bytes(estimate.waiting),
        }
    }

    /// Untrimmed free space that the policy does not want.
    pub fn left(&self) -> Bytes {
        match &self.knowledge {
            Knowledge::Map(space) => space.left(),
            Knowledge::Estimate(estimate) => Bytes(estimate.left),
        }
    }

    /// Whether it has seen its file system yet; before that all of its figures are zero.
    pub fn has_seen(&self) -> bool {
        self.is_hosted
    }

    /// Whether something is under way.
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Why it does what it does.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Sums since it began.
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
