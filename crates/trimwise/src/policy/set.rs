//! `set:LOW:HIGH`: selective TRIM by utilization, a gate before any other policy.
//!
//! After Hyun, Choi, Lee and Noh, "To TRIM or Not to TRIM: Judicious TRIMing for Solid State Drives" (SOSP 2011,
//! poster). TRIM is on above the high watermark and off below the low one. In between it is off while utilization keeps
//! rising (files are being created, which commands would delay) and on while it keeps falling (deletions dominate).
//!
//! # What "keeps rising" is
//!
//! The paper does not say. Here each commit compares utilization with its value one *window* ago: it keeps rising if it
//! has gained at least the *hysteresis* since, keeps falling if it has lost as much; otherwise the gate stays as it is.
//! To make it switch twice, the workload must move utilization by the hysteresis up and down again within two windows;
//! smaller movements, and steady states of any kind, never move the gate. The defaults are two commit intervals, so
//! that one commit alone cannot decide, and one percent, which is more than a journal's worth of any single file.
//!
//! Blocks freed while the gate is closed are dropped for good, as published; with `catchup` they are trimmed when the
//! gate opens.

use std::collections::VecDeque;

use super::{Availability, Decision, DiscardGeneration, Explanation, Governor, Needs, PolicyEvent, View};
use crate::units::{SimDuration, SimTime};

/// Samples kept per window; more would not change the result.
const SAMPLES_PER_WINDOW: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetConfig {
    /// Below this utilization TRIM is off, in percent.
    pub low_percent: u64,
    /// Above this utilization TRIM is on, in percent.
    pub high_percent: u64,
    /// Utilization is compared with its value this long ago.
    pub window: SimDuration,
    /// The change, in thousandths of all units, that counts as rising or falling.
    pub hysteresis_permille: u64,
    /// Whether dropped extents are trimmed when the gate opens.
    pub catch_up: bool,
}

impl SetConfig {
    /// The given watermarks, with defaults for the rest.
    pub fn new(low_percent: u64, high_percent: u64) -> Self {
        Self {
            low_percent,
            high_percent,
            window: SimDuration::from_secs(10),
            hysteresis_permille: 10,
            catch_up: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It has gained at least the hysteresis within the window.
    Rising,
    Falling,
    Steady,
}

#[derive(Clone, Debug)]
pub(crate) struct Trend {
    window: SimDuration,
    hysteresis_permille: u64,
    /// Used units over time; the first sample is at least a window old, or the oldest available.
    samples: VecDeque<(SimTime, u64)>,
    direction: Direction,
}

impl Trend {
    pub fn new(window: SimDuration, hysteresis_permille: u64) -> Self {
        Self { window, hysteresis_permille, samples: VecDeque::new(), direction: Direction::Steady }
    }

    pub fn observe(&mut self, now: SimTime, used_units: u64, total_units: u64) -> Direction {
        while self.samples.get(1).is_some_and(|&(at, _)| now.since(at) >= self.window) {
            self.samples.pop_front();
        }
        let &(_, before) = self.samples.front().unwrap_or(&(now, used_units));
        let change = (total_units.saturating_mul(self.hysteresis_permille) / 1000).max(1);
        self.direction = if used_units >= before.saturating_add(change) {
            Direction::Rising
        } else if before >= used_units.saturating_add(change) {
            Direction::Falling
        } else {
            Direction::Steady
        };
        let step = SimDuration::from_nanos(self.window.as_nanos() / SAMPLES_PER_WINDOW);
        if self.samples.back().is_none_or(|&(at, _)| now.since(at) >= step) {
            self.samples.push_back((now, used_units));
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
        Self { config, trend: Trend::new(config.window, config.hysteresis_permille), open: true, inner }
    }

    fn decide(&mut self, view: &View) -> bool {
        let direction = self.trend.observe(view.now, view.used_units, view.total_units);
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
