//! `lazy`: the commit puts its TRIMs into a queue and returns; background workers issue them.
//!
//! After Lee, Kang, Jeong and Eom, "Lazy TRIM: Optimizing the Journaling Overhead caused by TRIM Commands on Ext4 File
//! System" (ICCE 2018). There are between `min` and `max` workers; their number follows the queue's length ("increasing
//! or decreasing the number of worker threads automatically according to the number of TRIM commands to be issued"),
//! one for each [`EXTENTS_PER_WORKER`] queued extents. Freed blocks can be allocated once their TRIM has been issued;
//! with `reuse`, an allocation may take them out of the queue before that ("reuse TRIM").
//!
//! A worker here is a slot for one command in flight: while fewer commands are in flight than there are workers, the
//! next is issued.

use super::spec::grammar::{Part, Wrong, wrong};
use super::spec::term::{Arguments, Issuer, LiveUse, Term};
use super::{
    Availability, Decision, DiscardGeneration, Explanation, Governor, HostTraits, Needs, PolicyEvent, Shape,
    View,
};
use crate::units::SimDuration;

/// Queued extents per worker. The paper gives no number. With this one a commit that frees a few files gets a few
/// workers, and one that frees a thousand fragments gets them all.
const EXTENTS_PER_WORKER: u64 = 16;

/// With back-off: how long the device must have been free of other requests, and how often to check.
const BACK_OFF: SimDuration = SimDuration::from_millis(10);

/// Default minimum and maximum of workers: one, and the cores of the paper's phone.
pub(super) const WORKERS: Arguments = [1, 8];

pub(super) const TERM: Term = Term {
    options: &[
        ("reuse", "with lazy: allocations take blocks out of the queue"),
        ("merge", "with lazy: neighbouring extents of different commits become one"),
        ("fill", "with lazy: as many extents in a command as the device takes"),
        ("backoff", "with lazy: only while nothing else is in the device"),
    ],
    live: LiveUse::Slices,
    parse,
    show: |workers| match workers {
        WORKERS => String::new(),
        [min, max] => format!(":{min}:{max}"),
    },
    ..Term::plain(
        "lazy[:MIN:MAX]",
        "from a queue, by MIN to MAX background workers",
        &["lazy", "lazy+reuse", "lazy:2:4+reuse+merge+fill+backoff"],
        |issuer| Box::new(Lazy { config: LazyConfig::of(issuer), ranges_max: 1 }),
    )
};

fn parse(_: Part<'_>, arguments: &[Part<'_>]) -> Result<Arguments, Wrong> {
    const MOST: u64 = 1024;
    match arguments {
        [] => Ok(WORKERS),
        [min, max] => {
            let workers = [min.number(1, MOST, "minimum workers")?, max.number(1, MOST, "maximum workers")?];
            if workers[0] > workers[1] {
                let what = format!("minimum workers {} is above the maximum, {}", min.text, max.text);
                return wrong(min.at, what, format!("at most {}", max.text));
            }
            Ok(workers)
        }
        [_, _, more, ..] => {
            wrong(more.at, format!("unexpected '{}'", more.text), "lazy:MIN:MAX, as in lazy:1:8")
        }
        [only] => wrong(
            only.at + only.text.len(),
            format!("'{}' is the minimum; the maximum is missing", only.text),
            "lazy or lazy:MIN:MAX, as in lazy:1:8",
        ),
    }
}

/// The arguments and options of `lazy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LazyConfig {
    pub workers_min: u32,
    pub workers_max: u32,
    pub reuse: bool,
    pub merge: bool,
    /// Put as many extents into a command as the device takes.
    pub fill: bool,
    pub back_off: bool,
}

impl LazyConfig {
    pub(super) fn of(issuer: Issuer) -> Self {
        let [min, max] = issuer.arguments;
        Self {
            workers_min: min as u32,
            workers_max: max as u32,
            reuse: issuer.has("reuse"),
            merge: issuer.has("merge"),
            fill: issuer.has("fill"),
            back_off: issuer.has("backoff"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Lazy {
    config: LazyConfig,
    ranges_max: u32,
}

impl Lazy {
    fn backs_off(&self, view: &View) -> bool {
        self.config.back_off && (view.requests > 0 || view.quiet < BACK_OFF)
    }

    fn workers(&self, queued_extents: u64) -> u32 {
        let wanted = u32::try_from(queued_extents.div_ceil(EXTENTS_PER_WORKER)).unwrap_or(u32::MAX);
        wanted.clamp(self.config.workers_min, self.config.workers_max)
    }
}

impl Governor for Lazy {
    fn needs(&self) -> Needs {
        Needs { fills_commands: self.config.fill, ..Needs::default() }
    }

    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        if self.config.reuse { Availability::Reuse } else { Availability::AfterIssue }
    }

    fn merges(&self) -> bool {
        self.config.merge
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        if let &PolicyEvent::Hosted(HostTraits { ranges_max, .. }) = event
            && self.config.fill
        {
            self.ranges_max = ranges_max;
        }
        if view.pending_units == 0 {
            return;
        }
        if self.backs_off(view) {
            decisions.push(Decision::WakeAt(view.now + BACK_OFF));
            return;
        }
        let commands = view.pending_extents.div_ceil(u64::from(self.ranges_max.max(1)));
        let free = u64::from(self.workers(view.pending_extents).saturating_sub(view.in_flight));
        for _ in 0..free.min(commands) {
            decisions.push(Decision::Issue(Shape { ranges_max: self.ranges_max, ..Shape::NEXT }));
        }
    }

    fn explain(&self, view: &View) -> Explanation {
        if view.pending_units == 0 {
            return Explanation::nothing_waits();
        }
        if self.backs_off(view) {
            return Explanation::new("The device is in use, so this policy backs off.", "An idle device.");
        }
        Explanation::new(
            "Freed space is being trimmed in the background.",
            "It ends when the queue is empty.",
        )
    }
}
