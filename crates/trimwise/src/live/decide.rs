//! The next order and its reason, one decision at a time.
//!
//! The order of checks: a refusal, the user's pause (during which maps are still read), the delay after a failure, the
//! mount option, the map, and then a slice, if the governor wants one, the bound demands it or lent space must go back,
//! and neither pressure nor pace forbids it.

use super::knowledge::{Limits, Next};
use super::{Asked, Busy, COMMIT, LiveHost, Order, RECENT, Reason, SECOND};
use crate::policy::PolicyEvent;
use crate::units::{SimDuration, SimTime};

/// Rest in multiples of a slice's time while nothing else uses the device, and how long that must have been so.
const REST_ALONE: u64 = 7;
const ALONE: SimDuration = SimDuration::from_secs(10);
/// Above the bound the rest is short enough to trim all waiting space within an hour, but no shorter than this, without
/// and with pressure.
pub(super) const FORCED_WITHIN: SimDuration = SimDuration::from_secs(3_600);
const REST_FORCED: u64 = 4;
const REST_PRESSED: u64 = 19;

impl LiveHost {
    /// Handles time passing without a sample: a rest may be over. See [`LiveHost::next_at`].
    pub fn tick(&mut self, now: SimTime, orders: &mut Vec<Order>) {
        self.now = now;
        self.decide(orders);
    }

    /// Returns when to call [`LiveHost::tick`] next, if there is something to do before the next sample.
    pub fn next_at(&self) -> Option<SimTime> {
        matches!(self.reason, Reason::Rest { .. })
            .then(|| self.pace.rest_until())
            .filter(|_| self.busy.is_none())
    }

    /// Returns the longest time from one sample to the next. The second of a slice shows whether it harms others, and
    /// where nothing else uses the device the next slice may follow at once. Where frees are not reported, each second
    /// shows the files that come and go within a few seconds. Otherwise no decision changes sooner than with a commit.
    pub fn sample_every(&self) -> SimDuration {
        let rests = matches!(self.reason, Reason::Rest { .. });
        let sends = self.is_trimming() || self.load.touched || (rests && self.load.alone >= ALONE);
        let is_recent = self.used_changed_at.is_some_and(|at| self.now.since(at) < RECENT);
        let must_see = is_recent && !self.are_frees_watched();
        if sends || must_see || self.is_asked() || self.is_giving_back() || self.reason == Reason::Starting {
            return SECOND;
        }
        let every = self.settings.look_every.min(COMMIT);
        // The last sample before a slice shows what the device does without it.
        let rest = self.pace.rest_until().since(self.load.sampled_at);
        let every = if rests { every.min(rest - SECOND) } else { every };
        every.max(SECOND)
    }

    pub(super) fn decide(&mut self, orders: &mut Vec<Order>) {
        if self.busy.is_some() {
            return;
        }
        self.see_age();
        self.see_device_failed();
        if let Some(halt) = self.trouble.halt() {
            self.reason = halt;
            return;
        }
        if self.is_paused() {
            // The status must still show how much is waiting.
            if self.now < self.trouble.look_at || !self.decide_look(orders) {
                self.reason = Reason::Paused;
            }
            return;
        }
        if self.now < self.trouble.retry_at {
            self.look_meanwhile(orders);
            return;
        }
        self.decide_giving();
        if self.decide_online(orders) || self.decide_look(orders) {
            return;
        }
        if !self.is_left_to_kernel() {
            self.decide_slice(orders);
        }
        // This also applies if the request has just turned out to be complete.
        if self.busy.is_none() && self.is_left_to_kernel() {
            self.reason = Reason::Online { fixed: self.wants_online() != Some(true) };
        }
    }

    /// Looks how much waits while nothing may be sent. A map that failed waits as long as a slice.
    fn look_meanwhile(&mut self, orders: &mut Vec<Order>) {
        if self.now >= self.trouble.look_at {
            let reason = self.reason.clone();
            self.decide_look(orders);
            self.reason = reason;
        }
    }

    /// `off` needs no map.
    pub(super) fn look_is_useful(&self) -> bool {
        self.is_asked() || self.wishes.backlog || self.policy.governor().needs().commits
    }

    fn decide_slice(&mut self, orders: &mut Vec<Order>) {
        if self.wishes.wake.take_if(|at| *at <= self.now).is_some() {
            self.tell(&PolicyEvent::Woken);
            if self.decide_look(orders) {
                return;
            }
        }
        let (near, forced) = (self.is_near_bound(), self.is_forced());
        if self.knowledge.waiting().0 == 0 {
            self.nothing_waits();
        } else if self.is_asked() {
            self.reason = Reason::Asked;
            self.slice(orders);
            return;
        } else if self.is_low() {
            self.slice(orders);
            return;
        } else if (self.wishes.slice || self.wishes.sweep || near) && self.is_due(forced) {
            if self.is_pressed() && !forced {
                self.reason = Reason::Pressure {
                    now_permille: self.load.sample.pressure_permille,
                    max_permille: self.settings.pressure_max_permille,
                };
            } else if self.now < self.pace.rest_until() {
                let left = self.pace.rest_until().since(self.now);
                self.reason = Reason::Rest { left, harmful: self.pace.is_harmful() };
            } else {
                self.slice(orders);
            }
            return;
        }
        let words = self.policy_words();
        self.reason = Reason::Policy { state: words.state, change: words.change };
    }

    /// Returns true if untrimmed space exceeds the bound, where there is one, or must go back before a deadline.
    pub(super) fn is_forced(&self) -> bool {
        self.is_overdue() || self.is_bounded() && self.knowledge.waiting() > self.bound()
    }

    /// Returns true if waiting space is close enough to the bound to act: one map can show much at once.
    fn is_near_bound(&self) -> bool {
        self.is_overdue() || self.is_bounded() && self.knowledge.waiting().0 > self.bound().0 / 8 * 7
    }

    /// Shortens the rest if nothing else uses the device, or if waiting space must not wait any longer.
    pub(super) fn shorten_rest(&mut self) {
        let Some(last) = self.pace.last() else { return };
        if self.load.alone >= ALONE {
            self.pace.rest_at_most(REST_ALONE);
        }
        if self.is_near_bound() {
            let left = self.time_to_give_back();
            // Slices of a walk are cut by addresses.
            let bytes = match self.knowledge.progress_permille() {
                Some(permille) if left.is_some() && !self.facts.maps => {
                    self.load.sample.total.0 / 1000 * (1000 - permille)
                }
                _ => self.knowledge.waiting().0,
            };
            let by_bytes = bytes / last.bytes.0.max(1);
            let by_extents = self.view().pending_extents / last.extents.max(1);
            let work = last.took * (by_bytes.max(by_extents) + 1);
            let least = if self.is_pressed() { REST_PRESSED } else { REST_FORCED };
            self.pace
                .rest_at_most((left.unwrap_or(FORCED_WITHIN).as_nanos() / work.as_nanos().max(1)).max(least));
        }
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.load.sample.pressure_permille >= self.settings.pressure_max_permille
    }

    fn nothing_waits(&mut self) {
        self.end_asked(Asked::Done);
        self.given_back();
        if std::mem::take(&mut self.wishes.sweep) {
            self.tell(&PolicyEvent::Trimmed { units: 0 });
        }
        if std::mem::take(&mut self.wishes.slice) {
            self.tell(&PolicyEvent::PassOver);
            self.wishes.slice = false;
        }
    }

    /// Returns true if the kernel's online discard does the work and nothing else is sent.
    pub(super) fn is_left_to_kernel(&self) -> bool {
        self.is_online() && !self.is_asked() && !self.is_giving_back() && !self.has_backlog_despite_online()
    }

    /// Returns true if FITRIM must still trim, once, the space freed before the kernel's online discard was on.
    fn has_backlog_despite_online(&self) -> bool {
        self.knowledge.trims_despite_online()
            && self.wants_online() == Some(true)
            && self.wishes.backlog
            && self.knowledge.waiting().0 > 0
            && self.is_due(self.is_forced())
    }

    fn is_due(&self, forced: bool) -> bool {
        self.wishes.sweep || self.is_giving_back() || self.knowledge.is_due(self.now, forced)
    }

    fn slice(&mut self, orders: &mut Vec<Order>) {
        let limits = Limits {
            bytes_max: self.pace.bytes_max(),
            extents_max: self.pace.extents_max(),
            any: self.all_is_wanted() || self.is_near_bound(),
        };
        let moment = self.moment();
        let (mut slice, covered) = match self.knowledge.next_slice(limits, &moment) {
            Next::Trim(slice, covered) => (slice, covered),
            Next::Look(look) => return self.look(look, orders),
            Next::Nothing => {
                self.reason = Reason::PartsOnly { waiting: self.knowledge.waiting() };
                return;
            }
        };
        self.load.touched = true;
        if let Some(message) = &self.trouble.slice_failure {
            // The attempt may wait a long time for discards that hang. The trouble is not over until it succeeds.
            self.reason = Reason::Failed { message: message.clone(), again_in: SimDuration::ZERO };
        } else if self.is_asked() {
            // A request forgets which space is trimmed, so the bound says nothing about it.
            self.reason = Reason::Asked;
        } else if let Some(reason) = self.giving_reason() {
            self.reason = reason;
        } else if self.is_forced() {
            self.reason = Reason::OverBound { untrimmed: self.knowledge.waiting(), bound: self.bound() };
        } else {
            self.reason = Reason::Trimming { bytes: slice.bytes };
        }
        if self.is_asked() {
            // The user is waiting for the slice's end.
            slice.lanes = self.lanes.next();
        }
        self.busy = Some(Busy::Trimming { slice: slice.clone(), covered });
        orders.push(Order::Trim(slice));
    }
}
