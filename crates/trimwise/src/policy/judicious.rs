//! `judicious`: trimwised's default, combined from what the other policies learned.
//!
//! - From selective TRIM, *when it is worth it*: by utilization, and by whether it falls. But what costs the device
//!   copies is not what the file system uses; it is what the device holds as valid. The host can add that up: blocks in
//!   use, and blocks freed and not trimmed.
//! - From lazy TRIM, *where*: from a queue, after the commit, never inside it; and *reuse*: an allocation takes waiting
//!   blocks first, since blocks that are written again need no TRIM.
//! - From batching, *how much at once*: extents merge across commits, and a command carries as many as the device
//!   takes, where that is cheaper.
//! - From f2fs and btrfs, *back-off*: nothing while the device is in use, unless it is nearly full of dead data; and
//!   then only a bounded share of its time.
//!
//! None of this needs the device's parameters. Commands start with one range and double as long as they take less than
//! [`COMMAND_TARGET`], so that a request that arrives during one does not wait longer. A device that takes that long
//! for a single range gets commands of up to twice that time: fewer long ones are the lesser evil there. After a
//! command among other requests comes a pause of a multiple of its time. A burst is left alone, from its first commit,
//! for the time after which a device counts as idle. Free space that the device may not have been told about (after a
//! mount) counts as untrimmed.

use super::set::{Direction, Trend};
use super::spec::term::{LiveUse, Term};
use super::{
    Acknowledged, Availability, Decision, DiscardGeneration, Explanation, Governor, HostTraits, Needs,
    PolicyEvent, Shape, View,
};
use crate::units::{SimDuration, SimTime};

/// If the device holds more than this as valid, TRIM even while it is in use.
const HIGH_PERCENT: u64 = 85;
/// If the device holds less than this as valid, TRIM only in idle time.
const LOW_PERCENT: u64 = 60;
/// Pause after a command above the high watermark, in multiples of its duration: at most a fifth of the time is TRIM.
const PAUSE_HIGH: u64 = 4;
/// Pause between the watermarks while utilization falls, in multiples of the command's duration: at most a twentieth of
/// the time is TRIM.
const PAUSE_BETWEEN: u64 = 19;
/// Target for the longest command: short compared with the latencies that readers and writers are used to.
const COMMAND_TARGET: SimDuration = SimDuration::from_millis(10);
/// The device counts as idle after this long without a request. Shorter pauses occur within one activity.
const IDLE: SimDuration = SimDuration::from_millis(50);
/// Maximum number of commands in flight in idle time, on a device that queues them.
const DEPTH_MAX: u32 = 8;
/// Classes of command sizes: 1, 2, 4... 1024 ranges.
const CLASSES: usize = 11;

pub(super) const TERM: Term = Term {
    refuses_gate: Some("decides by utilization itself"),
    live: LiveUse::Bounded,
    ..Term::plain(
        "judicious",
        "trimwised's default: set, lazy, reuse, merge, fill and back-off, paced by their cost",
        &["judicious"],
        |_| Box::<Judicious>::default(),
    )
};

#[derive(Clone, Debug)]
pub struct Judicious {
    trend: Trend,
    ranges_max: u32,
    range_units_max: u64,
    depth: u32,
    took: [Option<SimDuration>; CLASSES],
    /// No command is sent before this time, unless the device is idle.
    pause_until: SimTime,
}

impl Default for Judicious {
    fn default() -> Self {
        Self {
            trend: Trend::new(Trend::WINDOW),
            ranges_max: 1,
            range_units_max: u64::MAX,
            depth: 1,
            took: [None; CLASSES],
            pause_until: SimTime::ZERO,
        }
    }
}

fn is_idle(view: &View) -> bool {
    view.requests == 0 && view.quiet >= IDLE
}

impl Judicious {
    /// The pause after a command while the device is in use, in multiples of the command's duration; `None` if no
    /// command may be issued then.
    fn pause_factor(&self, view: &View) -> Option<u64> {
        match view.device_percent() {
            HIGH_PERCENT.. => Some(PAUSE_HIGH),
            LOW_PERCENT.. if self.trend.direction() == Direction::Falling => Some(PAUSE_BETWEEN),
            _ => None,
        }
    }

    fn acknowledged(&mut self, command: &Acknowledged, view: &View) {
        let class = (command.ranges.max(1).ilog2() as usize).min(CLASSES - 1);
        let took = self.took[class].map_or(command.took, |before| (before * 3 + command.took) / 4);
        self.took[class] = Some(took);
        self.pause_until = view.now + command.took * self.pause_factor(view).unwrap_or(0);
    }

    fn ranges(&self) -> u32 {
        let Some(single) = self.took[0] else { return 1 };
        let limit = COMMAND_TARGET.max(single * 2);
        let mut class = 0;
        while class + 1 < CLASSES
            && 2 << class <= self.ranges_max
            && let Some(took) = self.took[class]
            // Assume that the cost per range doubles and the cost per command does not.
            && self.took[class + 1].unwrap_or(took * 2 - single) <= limit
        {
            class += 1;
        }
        1 << class
    }

    fn next(&self, view: &View, decisions: &mut Vec<Decision>) {
        if view.pending_units == 0 {
            return;
        }
        let is_idle = is_idle(view);
        let pressing = self.pause_factor(view).is_some();
        let free = if is_idle {
            self.depth.saturating_sub(view.in_flight)
        } else {
            u32::from(view.in_flight == 0 && pressing && view.now >= self.pause_until)
        };
        let ranges = self.ranges();
        let commands = view.pending_extents.div_ceil(ranges.into()).min(free.into());
        let units_max = self.range_units_max.saturating_mul(ranges.into());
        let shape = Shape { ranges_max: ranges, units_max, ..Shape::NEXT };
        decisions.extend((0..commands).map(|_| Decision::Issue(shape)));
        if commands == 0 && view.in_flight == 0 {
            let soon = view.now + IDLE;
            decisions.push(Decision::WakeAt(if pressing { self.pause_until.min(soon) } else { soon }));
        }
    }
}

impl Governor for Judicious {
    fn needs(&self) -> Needs {
        Needs { fills_commands: true, ..Needs::default() }
    }

    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::Reuse
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Hosted(HostTraits { ranges_max, range_units_max, trim_depth, .. }) => {
                self.ranges_max = *ranges_max;
                self.range_units_max = *range_units_max;
                self.depth = (*trim_depth).clamp(1, DEPTH_MAX);
                decisions.push(Decision::CatchUp);
                decisions.push(Decision::WakeAt(view.now + IDLE));
                return;
            }
            PolicyEvent::Committed { freed_units } => {
                self.trend.observe(view.now, view.used_units, view.freed_units);
                if *freed_units == view.pending_units {
                    // It is the first commit in a while: the activity that caused it may end soon.
                    self.pause_until = self.pause_until.max(view.now + IDLE);
                }
            }
            PolicyEvent::Issued(command) => self.acknowledged(command, view),
            PolicyEvent::PassOver | PolicyEvent::Trimmed { .. } | PolicyEvent::Woken => {}
        }
        self.next(view, decisions);
    }

    fn explain(&self, view: &View) -> Explanation {
        let held = view.device_percent();
        if view.pending_units == 0 {
            return Explanation::nothing_waits();
        }
        if is_idle(view) {
            return Explanation::new(
                "The device is idle, so freed space can be trimmed.",
                "Other use of the device, or nothing left to trim.",
            );
        }
        match self.pause_factor(view) {
            Some(factor) => Explanation::new(
                format!(
                    "The device holds {held} % of its space as valid, so trims run even while it is in use, each \
                     followed by a pause of {factor} times its duration."
                ),
                format!("Less than {LOW_PERCENT} % held, or an idle device."),
            ),
            None => Explanation::new(
                format!(
                    "The device is in use and holds only {held} % of its space as valid, so trims can wait."
                ),
                format!(
                    "An idle device, more than {HIGH_PERCENT} % held, or falling use while more than {LOW_PERCENT} % \
                     is held."
                ),
            ),
        }
    }
}
