//! The kernel's own online discard: whether the policy wants it, and how it is turned on or off.
//!
//! A failed remount affects nothing else: it is retried at growing intervals, or never, and maps and slices continue as
//! where online discard cannot be changed.

use super::trouble::{RETRY_INTERRUPTED, again_in};
use super::{Busy, Failed, LiveHost, Order, Reason};
use crate::policy::{Explanation, LiveUse};
use crate::units::{SimDuration, SimTime};

/// Minimum time between two changes. Each writes back dirty data, and writes a line into the kernel's log. Where frees
/// are not reported, a steady mix of creations and deletions would cause one every half minute.
const REST: SimDuration = SimDuration::from_secs(600);

#[derive(Clone, Debug, Default)]
pub(super) struct Toggling {
    failures: u32,
    not_before: SimTime,
    /// The operating system's message if the last attempt failed, and whether to retry.
    problem: Option<(String, bool)>,
}

impl LiveHost {
    /// Returns true if the policy wants the kernel's online discard; `None` if it does not matter.
    pub(super) fn wants_online(&self) -> Option<bool> {
        match self.policy.live() {
            LiveUse::Kernel => self.wishes.online,
            live => Some(self.facts.online_is_good && live == LiveUse::Bounded),
        }
    }

    pub(super) fn decide_online(&mut self, orders: &mut Vec<Order>) -> bool {
        let Some(on) = self.wants_online().filter(|&on| on != self.is_online()) else { return false };
        if !self.facts.toggles || !self.settings.may_toggle || self.now < self.toggling.not_before {
            return false;
        }
        if let Some(look) = self.knowledge.look_before_toggle().filter(|_| self.look_is_useful()) {
            self.look(look, orders);
            return true;
        }
        self.busy = Some(Busy::Toggling);
        self.reason = Reason::Toggling { on };
        orders.push(Order::Toggle { on });
        true
    }

    /// Handles the result of changing the mount option. The next sample shows whether it holds.
    pub fn toggled(&mut self, now: SimTime, result: Result<bool, Failed>, orders: &mut Vec<Order>) {
        self.now = now;
        self.busy = None;
        match result {
            Ok(on) => {
                self.load.sample.online = on;
                self.knowledge.toggled(on);
                self.toggling = Toggling { not_before: now + REST, ..Toggling::default() };
            }
            Err(Failed::Never(message)) => self.leave_option(message),
            Err(Failed::Interrupted) => self.toggling.not_before = now + RETRY_INTERRUPTED,
            Err(Failed::Again(message) | Failed::Device(message)) => {
                let Toggling { failures, not_before, problem } = &mut self.toggling;
                *not_before = now + again_in(*failures);
                *failures += 1;
                *problem = Some((message, true));
            }
        }
        self.decide(orders);
    }

    /// Stops changing the option, for the given reason.
    pub fn leave_option(&mut self, why: String) {
        self.facts.toggles = false;
        self.toggling.problem = Some((why, false));
    }

    /// Returns what the policy says of itself, or what replaces the online discard that it relies on.
    pub(super) fn policy_words(&self) -> Explanation {
        if self.policy.live() == LiveUse::Kernel && self.wants_online() == Some(true) && !self.is_online() {
            return Explanation::new(
                "The policy wants the device told of freed space at once, but online discard is off: what was freed is \
                 trimmed in slices.",
                "Online discard, or another policy.",
            );
        }
        self.governor.explain(&self.view())
    }

    pub(super) fn toggle_words(&self) -> Option<String> {
        let (message, again) = self.toggling.problem.as_ref()?;
        Some(if *again {
            let left = self.toggling.not_before.since(self.now).as_secs_f64();
            format!("Online discard could not be changed: {message}; it will be tried again in {left:.0} s.")
        } else {
            format!("Online discard cannot be changed: {message}.")
        })
    }
}
