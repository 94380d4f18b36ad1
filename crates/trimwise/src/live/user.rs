//! Commands to a live host, from the user and from the daemon that carries out its orders.

use serde::Serialize;

use super::{Busy, LiveHost, Reason, Settings};
use crate::units::SimTime;

/// State of the user's last request to trim everything ([`LiveHost::trim_now`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    #[default]
    Never,
    UnderWay,
    /// All space that was free has been trimmed.
    Done,
    /// A pause ended it.
    CalledOff,
}

#[derive(Debug, Default)]
pub(super) struct User {
    pub paused: bool,
    pub asked: Asked,
}

impl LiveHost {
    /// Pauses or resumes slices, but not maps. A slice in progress ends by itself.
    pub fn pause(&mut self, paused: bool) {
        self.user.paused = paused;
        if paused {
            self.end_asked(Asked::CalledOff);
        }
        if self.may_begin() {
            self.reason = self.idle_reason();
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
        if std::mem::replace(&mut self.facts.spans_max, spans_max) != spans_max {
            self.knowledge.keep_at_most(spans_max);
        }
    }

    /// Notes that the ordered map is being read now, so that time spent waiting does not count as its cost.
    pub fn look_begins(&mut self, now: SimTime) {
        if let Some(Busy::Looking { begun, .. }) = &mut self.busy {
            *begun = now;
        }
    }

    /// Cancels the last order, which has not started.
    pub fn call_off(&mut self) {
        self.busy = None;
        self.reason = self.idle_reason();
    }

    /// Returns true if nothing is in progress, and nothing forbids orders for good.
    fn may_begin(&self) -> bool {
        self.busy.is_none() && self.trouble.halt().is_none()
    }

    fn idle_reason(&self) -> Reason {
        if self.is_paused() { Reason::Paused } else { Reason::Starting }
    }

    /// Trims all free space now, slice by slice, whatever the policy wants and whatever is believed to be trimmed.
    pub fn trim_now(&mut self) {
        self.user.asked = Asked::UnderWay;
        if self.may_begin() {
            // An earlier failure is no reply to this request.
            self.reason = Reason::Asked;
        }
        self.trouble.retry_at = self.now;
        self.wishes.backlog = true;
        self.knowledge.ask_for_all(&self.load.sample);
    }

    pub fn is_paused(&self) -> bool {
        self.user.paused
    }

    pub fn is_asked(&self) -> bool {
        self.user.asked == Asked::UnderWay
    }

    pub fn was_asked(&self) -> bool {
        self.user.asked != Asked::Never
    }

    pub(super) fn end_asked(&mut self, how: Asked) {
        if self.is_asked() {
            self.user.asked = how;
        }
    }
}
