//! Commands to a live host, from the user and from the daemon that carries out its orders.

use serde::Serialize;

use super::{Knowledge, LiveHost, Reason, Settings};
use crate::units::SimTime;

/// State of the user's last request to trim everything ([`LiveHost::trim_now`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// There was none.
    Never,
    /// It is in progress.
    UnderWay,
    /// All that was free has been trimmed.
    Done,
    /// A pause ended it.
    CalledOff,
}

impl LiveHost {
    /// Pauses or resumes slices, but not maps, for the user. A slice in progress ends by itself.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.end_asked(Asked::CalledOff);
        }
        if self.busy.is_none() && self.refused.is_none() && self.stuck.is_none() {
            self.reason = if paused { Reason::Paused } else { Reason::Starting };
        }
    }

    /// Changes the user's settings. A slice in progress and the rest after it stay as they are.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
        self.pace.aim(settings.slice_target);
    }

    /// Number of spans of each kind to keep, and of free extents in one map.
    pub fn spans_max(&self) -> usize {
        self.facts.spans_max
    }

    /// Changes the number of spans of each kind to keep ([`spans_each`]), because more or fewer file systems share the
    /// memory. A file system with more free extents is read in windows from the next map on.
    ///
    /// [`spans_each`]: super::spans_each
    pub fn keep_at_most(&mut self, spans_max: usize) {
        if std::mem::replace(&mut self.facts.spans_max, spans_max) != spans_max
            && let Knowledge::Map(space) = &mut self.knowledge
        {
            space.keep_at_most(spans_max);
        }
    }

    /// Notes that the ordered map is being read now, so that time spent waiting does not count as its cost.
    pub fn look_begins(&mut self, now: SimTime) {
        self.look_begun = now;
    }

    /// Cancels the last order, which has not started.
    pub fn call_off(&mut self) {
        self.busy = None;
        self.reason = if self.paused { Reason::Paused } else { Reason::Starting };
    }

    /// Trims all free space now, whatever the policy says and whatever is believed to be trimmed, but slice by slice.
    pub fn trim_now(&mut self) {
        self.asked = Asked::UnderWay;
        if self.busy.is_none() && self.refused.is_none() && self.stuck.is_none() {
            // An earlier failure is no reply to this request.
            self.reason = Reason::Asked;
        }
        self.forget();
        self.retry_at = self.now;
        self.catch_up();
        if let Knowledge::Estimate(estimate) = &mut self.knowledge {
            // Nothing is known of space that was free before the daemon started or before online discard was on.
            estimate.ask_for_all(self.sample.total.0.saturating_sub(self.sample.used.0));
        }
    }

    /// Forgets what the device was told; the next map shows all of it as untrimmed.
    pub(super) fn forget(&mut self) {
        if let Knowledge::Map(space) = &mut self.knowledge {
            space.forget();
        }
        self.look_wanted = true;
        (self.told, self.round.told) = (false, false);
    }

    /// Sets or clears the description of something given up on that is still running; until it is cleared nothing else
    /// starts.
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

    /// Whether a request to trim everything is in progress.
    pub fn is_asked(&self) -> bool {
        self.asked == Asked::UnderWay
    }

    /// Whether the user ever asked to trim everything.
    pub fn was_asked(&self) -> bool {
        self.asked != Asked::Never
    }

    pub(super) fn end_asked(&mut self, how: Asked) {
        if self.is_asked() {
            self.asked = how;
        }
    }
}
