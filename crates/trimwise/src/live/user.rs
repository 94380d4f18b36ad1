//! What a live host is told to do, or not to do, from outside: by the user, and by whoever carries out its orders.

use serde::Serialize;

use super::{Knowledge, LiveHost, Reason, Settings};
use crate::units::SimTime;

/// What became of the user's last request to trim everything ([`LiveHost::trim_now`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// There was none.
    Never,
    /// It is not over yet.
    UnderWay,
    /// All that was free has been trimmed.
    Done,
    /// A pause ended it.
    CalledOff,
}

impl LiveHost {
    /// The user pauses or resumes it: slices, not looks. A slice under way ends by itself.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.end_asked(Asked::CalledOff);
        }
        if self.busy.is_none() && self.refused.is_none() && self.stuck.is_none() {
            self.reason = if paused { Reason::Paused } else { Reason::Starting };
        }
    }

    /// The user changes what it keeps to. What is under way, and the rest behind it, stay as they are.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.pace.aim(settings.slice_target);
    }

    /// How many spans of each kind it keeps, and the most free extents of one map.
    pub fn spans_max(&self) -> usize {
        self.facts.spans_max
    }

    /// It shares memory with more file systems, or with fewer, and keeps so many spans of each kind ([`spans_each`]). A
    /// file system that has more free extents is gone through in windows from the next map on.
    ///
    /// [`spans_each`]: super::spans_each
    pub fn keep_at_most(&mut self, spans_max: usize) {
        if std::mem::replace(&mut self.facts.spans_max, spans_max) != spans_max
            && let Knowledge::Map(space) = &mut self.knowledge
        {
            space.keep_at_most(spans_max);
        }
    }

    /// The look that was ordered begins now: it may have waited for its turn, which is not what it costs.
    pub fn look_begins(&mut self, now: SimTime) {
        self.look_begun = now;
    }

    /// What was ordered last is not begun, and will not be.
    pub fn call_off(&mut self) {
        self.busy = None;
        self.reason = if self.paused { Reason::Paused } else { Reason::Starting };
    }

    /// The user asks for all that is free, now: whatever the policy says and whatever is believed to be trimmed, but slice by
    /// slice.
    pub fn trim_now(&mut self) {
        self.asked = Asked::UnderWay;
        if self.busy.is_none() && self.refused.is_none() && self.stuck.is_none() {
            // An earlier failure is no answer to this request.
            self.reason = Reason::Asked;
        }
        self.forget();
        self.retry_at = self.now;
        self.catch_up();
        if let Knowledge::Estimate(estimate) = &mut self.knowledge {
            // What was free before the daemon began, or before the kernel was to tell the device, nobody knows of.
            estimate.ask_for_all(self.sample.total.0.saturating_sub(self.sample.used.0));
        }
    }

    /// What the device was told of is not believed any more; the next map shows all of it as untrimmed.
    pub(super) fn forget(&mut self) {
        if let Knowledge::Map(space) = &mut self.knowledge {
            space.forget();
        }
        self.look_wanted = true;
        (self.told, self.round.told) = (false, false);
    }

    /// What was given up is still under way, in words, or is not any more: until then nothing else is begun.
    pub fn stick(&mut self, message: Option<String>) {
        if message.is_none() && self.stuck.is_some() {
            self.reason = Reason::Starting;
            self.retry_at = self.now;
        }
        self.stuck = message;
    }

    /// Whether the user paused it.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the user asked for everything, and that is not over yet.
    pub fn is_asked(&self) -> bool {
        self.asked == Asked::UnderWay
    }

    /// Whether the user ever asked for everything.
    pub fn was_asked(&self) -> bool {
        self.asked != Asked::Never
    }

    pub(super) fn end_asked(&mut self, how: Asked) {
        if self.is_asked() {
            self.asked = how;
        }
    }
}
