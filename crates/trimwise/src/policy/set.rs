//! `set:LOW:HIGH`: selective TRIM by utilization, a gate before any other policy.
//!
//! After Hyun, Choi, Lee and Noh, "To TRIM or Not to TRIM: Judicious TRIMing for Solid State Drives" (SOSP 2011,
//! poster). TRIM is on above the high watermark and off below the low one. In between it is off while utilization keeps
//! rising (files are being created, which commands would delay) and on while it keeps falling (deletions dominate).
//!
//! # What "keeps rising" is
//!
//! The paper does not say; it gives the reasons: "files are being created and expanded rather than being deleted", and
//! "file deletions are dominant". So each commit compares what was allocated with what was freed in the last *window*:
//! utilization rises if allocations are at least twice the frees, and falls if frees are at least twice the allocations;
//! otherwise the gate stays as it is. No part of this depends on the size of the file system. As allocations are the
//! change of utilization plus the frees, it rises if it has gained at least what was freed, and falls if it has lost at
//! least half of that. Blocks that are freed already and not committed yet lower both sums alike.
//!
//! In a steady mix of creations and deletions the two stay within a factor of two of each other, so the gate does not
//! move. The window is two commit intervals, so that one commit among others cannot decide; after a rest, the first
//! one does. A change below [`NET_UNITS_MIN`] decides nothing: directories and logs grow at any time, and few commands
//! depend on it.
//!
//! Blocks freed while the gate is closed are dropped for good, as published; with `catchup` they are trimmed when the
//! gate opens.

use std::collections::VecDeque;

use super::{Availability, Decision, DiscardGeneration, Explanation, Governor, Needs, PolicyEvent, View};
use crate::units::{SimDuration, SimTime};

/// Samples kept per window; more would not change the result.
const SAMPLES_PER_WINDOW: u64 = 16;
/// Minimum change of utilization that counts as a direction: 1 MiB, more than the metadata that a commit allocates.
const NET_UNITS_MIN: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetConfig {
    /// Below this utilization TRIM is off, in percent.
    pub low_percent: u64,
    /// Above this utilization TRIM is on, in percent.
    pub high_percent: u64,
    /// Length of time over which allocations and frees are compared.
    pub window: SimDuration,
    /// Dropped extents are trimmed when the gate opens.
    pub catch_up: bool,
}

impl SetConfig {
    pub fn new(low_percent: u64, high_percent: u64) -> Self {
        Self { low_percent, high_percent, window: Trend::WINDOW, catch_up: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Allocations were at least twice the frees within the window.
    Rising,
    /// Frees were at least twice the allocations.
    Falling,
    Steady,
}

/// Utilization at a moment, and all frees until then, in units.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: SimTime,
    used: u64,
    freed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Trend {
    window: SimDuration,
    /// The first moment is at least a window old, or the oldest available.
    moments: VecDeque<Moment>,
    direction: Direction,
}

impl Trend {
    pub const WINDOW: SimDuration = SimDuration::from_secs(10);

    pub fn new(window: SimDuration) -> Self {
        Self { window, moments: VecDeque::new(), direction: Direction::Steady }
    }

    /// Notes the units in use now, and those freed so far.
    pub fn observe(&mut self, at: SimTime, used: u64, freed: u64) -> Direction {
        while self.moments.get(1).is_some_and(|second| at.since(second.at) >= self.window) {
            self.moments.pop_front();
        }
        let now = Moment { at, used, freed };
        let before = *self.moments.front().unwrap_or(&now);
        let freed = freed.saturating_sub(before.freed);
        self.direction = if used.saturating_sub(before.used) >= freed.max(NET_UNITS_MIN) {
            Direction::Rising
        } else if before.used.saturating_sub(used) >= freed.div_ceil(2).max(NET_UNITS_MIN) {
            Direction::Falling
        } else {
            Direction::Steady
        };
        let step = SimDuration::from_nanos(self.window.as_nanos() / SAMPLES_PER_WINDOW);
        if self.moments.back().is_none_or(|last| at.since(last.at) >= step) {
            self.moments.push_back(now);
        }
        self.direction
    }

    pub fn direction(&self) -> Direction {
        self.direction
    }
}

pub struct Set {
    config: SetConfig,
    trend: Trend,
    open: bool,
    inner: Box<dyn Governor>,
}

impl Set {
    pub fn new(config: SetConfig, inner: Box<dyn Governor>) -> Self {
        Self { config, trend: Trend::new(config.window), open: true, inner }
    }

    fn decide(&mut self, view: &View) -> bool {
        let direction = self.trend.observe(view.now, view.used_units, view.freed_units);
        let used = view.used_units.saturating_mul(100);
        let at = |percent: u64| view.total_units.saturating_mul(percent);
        if used > at(self.config.high_percent) {
            true
        } else if used < at(self.config.low_percent) {
            false
        } else {
            match direction {
                Direction::Rising => false,
                Direction::Falling => true,
                Direction::Steady => self.open,
            }
        }
    }
}

impl Governor for Set {
    fn needs(&self) -> Needs {
        Needs { commits: true, ..self.inner.needs() }
    }

    fn availability(&self, kernel: DiscardGeneration) -> Availability {
        self.inner.availability(kernel)
    }

    fn merges(&self) -> bool {
        self.inner.merges()
    }

    fn takes_oldest_first(&self) -> bool {
        self.inner.takes_oldest_first()
    }

    fn takes_in_order(&self) -> bool {
        self.inner.takes_in_order()
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        if let PolicyEvent::Committed { .. } = event {
            let was_open = self.open;
            self.open = self.decide(view);
            if !self.open {
                decisions.push(Decision::DropFreed);
                return;
            }
            if self.config.catch_up && !was_open {
                decisions.push(Decision::CatchUp);
            }
        }
        self.inner.on_event(event, view, decisions);
    }

    fn explain(&self, view: &View) -> Explanation {
        let (used, config) = (view.used_percent(), self.config);
        let (low, high) = (config.low_percent, config.high_percent);
        if self.open {
            let inner = self.inner.explain(view);
            let why = if used >= high {
                format!("use is at {used} %, above the high watermark of {high} %")
            } else {
                format!("use is at {used} %, between {low} % and {high} %, and not rising")
            };
            return Explanation::new(
                format!("TRIM is on: {why}. {}", inner.state),
                format!("Use falling below {low} %, or rising while below {high} %."),
            );
        }
        let why = if used < low {
            format!("use is at {used} %, below the low watermark of {low} %")
        } else {
            format!("use is at {used} %, between {low} % and {high} %, and rising")
        };
        Explanation::new(
            format!("TRIM is off: {why}."),
            format!("Use above {high} %, or falling while above {low} %."),
        )
    }
}
