//! What is done next: one decision at a time, and its reason.
//!
//! In this order: a refusal, the user's pause, the wait behind a failure, the mount option, the map, and then a slice, if
//! the governor wants one or the bound demands it, and neither pressure nor the pace is against it.

use super::{Busy, Knowledge, LOOK_CHANGED, LOOK_STALE, LiveHost, Order, Reason, Slice};
use crate::policy::PolicyEvent;
use crate::units::{Bytes, SimTime, Span};

impl LiveHost {
    /// Time has passed, without a sample: what rested may go on. See [`LiveHost::next_at`].
    pub fn tick(&mut self, now: SimTime, orders: &mut Vec<Order>) {
        self.now = now;
        self.decide(orders);
    }

    /// When [`LiveHost::tick`] would find something to do, if that is known and not with the next sample.
    pub fn next_at(&self) -> Option<SimTime> {
        matches!(self.reason, Reason::Rest { .. })
            .then(|| self.pace.rest_until())
            .filter(|_| self.busy.is_none())
    }

    pub(super) fn decide(&mut self, orders: &mut Vec<Order>) {
        if self.busy.is_some() {
            return;
        }
        if let Some(message) = &self.refused {
            self.reason = Reason::Refused { message: message.clone() };
            return;
        }
        if self.paused {
            self.reason = Reason::Paused;
            return;
        }
        if self.now < self.retry_at {
            return; // the reason is there already
        }
        if self.decide_online(orders) || self.decide_look(orders) {
            return;
        }
        if self.online && !self.asked && !self.has_backlog_beside_online() {
            self.reason = Reason::Online { fixed: self.wants_online() != Some(true) };
            return;
        }
        self.decide_slice(orders);
    }

    /// Whether the policy wants the kernel's online discard; `None` where it does not matter.
    fn wants_online(&self) -> Option<bool> {
        if self.policy.follows_commits() {
            self.online_wanted
        } else {
            Some(self.facts.online_is_good && self.policy.is_judicious())
        }
    }

    fn decide_online(&mut self, orders: &mut Vec<Order>) -> bool {
        let Some(on) = self.wants_online().filter(|&on| on != self.online) else { return false };
        if !self.facts.toggles || !self.settings.may_toggle {
            return false;
        }
        if self.facts.maps && self.look_is_useful() && (self.freed_since_look > 0 || self.looked_at.is_none())
        {
            // What was freed until now was told, or was not; the next map could not tell it apart.
            return self.look(orders);
        }
        self.busy = Some(Busy::Toggling);
        self.reason = Reason::Toggling { on };
        orders.push(Order::Toggle { on });
        true
    }

    /// `off` needs no map.
    fn look_is_useful(&self) -> bool {
        self.asked || self.wants_backlog || self.policy.governor().needs().commits
    }

    fn decide_look(&mut self, orders: &mut Vec<Order>) -> bool {
        if !self.facts.maps
            || !self.look_is_useful()
            || (self.online && self.looked_at.is_some() && !self.look_wanted)
        {
            return false;
        }
        let stale = self.looked_at.is_none_or(|at| self.now.since(at) >= LOOK_STALE);
        let worth = LOOK_CHANGED.0.max(self.sample.total.0 / 1024);
        let more =
            matches!(&self.knowledge, Knowledge::Map(space) if space.is_cut_short()) && self.waiting().0 == 0;
        let due = more
            || self.now >= self.forget_at
            || self.changed_since_look.saturating_add(self.unexplained) >= worth
            || (self.freed_since_look.saturating_add(self.unexplained) > 0 && stale);
        if self.look_wanted || (due && self.now >= self.look_not_before) {
            return self.look(orders);
        }
        false
    }

    fn look(&mut self, orders: &mut Vec<Order>) -> bool {
        self.busy = Some(Busy::Looking);
        self.reason = Reason::Looking;
        self.look_begun = self.now;
        self.frees.look_begins();
        orders.push(Order::Look);
        true
    }

    fn decide_slice(&mut self, orders: &mut Vec<Order>) {
        if self.wake.is_some_and(|at| at <= self.now) {
            self.wake = None;
            self.tell(&PolicyEvent::Woken);
            if self.decide_look(orders) {
                return;
            }
        }
        let forced = self.is_forced();
        if self.waiting().0 == 0 {
            self.nothing_waits();
        } else if self.asked {
            self.reason = Reason::Asked;
            self.slice(orders);
            return;
        } else if (self.wants || self.sweep || forced) && self.whole_is_due(forced) {
            if self.is_pressed() && !forced {
                self.reason = Reason::Pressure {
                    now_permille: self.sample.pressure_permille,
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
        let words = self.governor.explain(&self.view());
        self.reason = Reason::Policy { state: words.state, change: words.change };
    }

    fn nothing_waits(&mut self) {
        self.asked = false;
        if std::mem::take(&mut self.sweep) {
            self.tell(&PolicyEvent::Trimmed { units: 0 });
        }
        if std::mem::take(&mut self.wants) {
            self.tell(&PolicyEvent::PassOver);
            self.wants = false;
        }
    }

    /// The kernel tells of what is freed from now on. What was freed before it did so is left to FITRIM, once.
    fn has_backlog_beside_online(&self) -> bool {
        !self.facts.maps
            && self.wants_online() == Some(true)
            && self.wants_backlog
            && self.waiting().0 > 0
            && self.whole_is_due(self.is_forced())
    }

    /// Without a map a slice is the whole file system.
    fn whole_is_due(&self, forced: bool) -> bool {
        match &self.knowledge {
            Knowledge::Map(_) => true,
            Knowledge::Estimate { next, next_forced, .. } => {
                self.sweep || self.now >= if forced { *next_forced } else { *next }
            }
        }
    }

    fn slice(&mut self, orders: &mut Vec<Order>) {
        let any = self.asked || self.is_forced();
        let found = match &mut self.knowledge {
            Knowledge::Map(space) => {
                space.next_slice(self.facts.cut, self.pace.bytes_max(), self.pace.extents_max(), any)
            }
            Knowledge::Estimate { waiting, .. } => {
                let ranges = vec![Span { start: 0, end: u64::MAX }];
                Some((Slice { ranges, bytes: Bytes(*waiting), extents: 0 }, Vec::new()))
            }
        };
        let Some((slice, covered)) = found else {
            self.reason = Reason::PartsOnly { waiting: self.waiting() };
            return;
        };
        self.touched = true;
        if self.is_forced() {
            self.reason = Reason::OverBound { untrimmed: self.waiting(), bound: self.bound() };
        } else if !matches!(self.reason, Reason::Asked) {
            self.reason = Reason::Trimming { bytes: slice.bytes };
        }
        self.busy = Some(Busy::Trimming { slice: slice.clone(), covered });
        orders.push(Order::Trim(slice));
    }
}
