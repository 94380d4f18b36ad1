//! Failures of orders, and when to try again.

use super::{Failed, LiveHost, Reason};
use crate::units::{SimDuration, SimTime};

/// Knowledge is forgotten after a device failure outside of a slice, but at most this often. Otherwise a device that fails
/// now and then would be sent all of its free space each time. What a slice should have sent still waits.
const FORGET_FAILED_EVERY: SimDuration = SimDuration::from_secs(86_400);
/// Delay of the first attempt after a failure. Each further failure doubles it.
const RETRY: SimDuration = SimDuration::from_secs(60);
const RETRY_MAX: SimDuration = SimDuration::from_secs(3_600);
pub(super) const RETRY_INTERRUPTED: SimDuration = SimDuration::from_secs(1);

/// Delay before the next attempt, after `failures` earlier failures in a row and one more.
pub(super) fn again_in(failures: u32) -> SimDuration {
    (RETRY * (1 << failures.min(6))).min(RETRY_MAX)
}

#[derive(Debug)]
pub(super) struct Trouble {
    failures: u32,
    /// Why the last slice failed, until one succeeds. A successful map says nothing about it.
    pub slice_failure: Option<String>,
    pub retry_at: SimTime,
    /// When a map may be asked for, which sends nothing.
    pub look_at: SimTime,
    pub device_failed: Option<String>,
    forget_not_before: SimTime,
    refused: Option<String>,
    stuck: Option<String>,
    /// Failed discards are reported.
    pub reports_failures: bool,
}

impl Trouble {
    pub(super) fn none(now: SimTime) -> Self {
        Self {
            failures: 0,
            slice_failure: None,
            retry_at: now,
            look_at: now,
            device_failed: None,
            forget_not_before: now,
            refused: None,
            stuck: None,
            reports_failures: false,
        }
    }

    pub(super) fn halt(&self) -> Option<Reason> {
        let stuck = self.stuck.clone().map(|message| Reason::Stuck { message });
        stuck.or_else(|| self.refused.clone().map(|message| Reason::Refused { message }))
    }

    pub(super) fn slice_succeeded(&mut self) {
        (self.failures, self.slice_failure) = (0, None);
    }

    pub(super) fn look_succeeded(&mut self) {
        if self.slice_failure.is_none() {
            self.failures = 0;
        }
    }
}

impl LiveHost {
    /// Notes that a discard failed in the device. If a slice is in progress, the failure was that slice's; otherwise it
    /// belongs to a slice that counted as done.
    pub fn device_failed(&mut self, message: String) {
        self.trouble.device_failed = Some(message);
    }

    /// Sets whether discards that fail will be reported ([`LiveHost::device_failed`]).
    pub fn report_failures(&mut self, reported: bool) {
        self.trouble.reports_failures = reported;
    }

    /// Handles a failed discard if no slice is in progress. Whoever sent it, the wait is not longer for it than for the
    /// slices that failed before.
    pub(super) fn see_device_failed(&mut self) {
        if let Some(message) = self.trouble.device_failed.take() {
            self.pace.failed();
            if self.now >= self.trouble.forget_not_before {
                self.trouble.forget_not_before = self.now + FORGET_FAILED_EVERY;
                self.knowledge.forget();
            }
            if self.now >= self.trouble.retry_at {
                let failures = self.trouble.failures;
                self.fail(Failed::Device(message));
                self.trouble.failures = failures;
            }
        }
    }

    /// Sets or clears the description of something given up on that is still running. Until it is cleared nothing else
    /// starts.
    pub fn stick(&mut self, message: Option<String>) {
        if message.is_none() && self.trouble.stuck.is_some() {
            self.reason = Reason::Starting;
            self.trouble.retry_at = self.now;
        }
        self.trouble.stuck = message;
    }

    pub(super) fn fail(&mut self, failed: Failed) {
        let trouble = &mut self.trouble;
        match failed {
            Failed::Interrupted => trouble.retry_at = self.now + RETRY_INTERRUPTED,
            Failed::Never(message) => trouble.refused = Some(message),
            Failed::Again(message) | Failed::Device(message) => {
                let again_in = again_in(trouble.failures);
                trouble.failures += 1;
                trouble.retry_at = self.now + again_in;
                self.reason = Reason::Failed { message, again_in };
            }
        }
    }
}
