//! `adaptive`: trims what is worth its cost. It learns both worth and cost on the drive at hand.
//!
//! Other policies decide by limits that somebody chose: watermarks, intervals, a share of the time. This one weighs two
//! estimates, both in time of the foreground:
//!
//! - **What a TRIM delays others.** A command takes as long as the last ones of its size did. A request that arrives
//!   meanwhile waits for the rest of it; those behind it come later by themselves, as in a program that waits for each
//!   of its requests. The chance that one arrives depends on how long the device has been quiet: for each quiet time
//!   (1, 2, 4 ms and so on) arrivals are counted, and the time in which there could have been some. The drive may serve
//!   some of the requests that arrive during a command; only the share that waits counts.
//! - **What leaving a unit untrimmed costs.** The drive copies it as if it held data. How often, until its blocks are
//!   written again, is estimated from the share of its flash that the drive must hold as valid ([`copies`]). A copy
//!   takes as long as the device takes for a unit when it moves many.
//!
//! A command is not only weighed against never, but also against later. How much is moved until the device is quiet for
//! a second, a minute, half an hour is learned too. If little is, waiting costs little, and a command that waits
//! disturbs fewer. From all this follows the shortest extent that is worth a command now ([`Adaptive::offer_of`]);
//! shorter ones wait for a better time. So where TRIM is expensive it waits for the night, unless the drive is nearly
//! full of dead data; where it is cheap it trims in the first pause.
//!
//! There is no upper bound on pending space here; the more there is, the sooner a TRIM pays.

use super::spec::term::{LiveUse, Term};
use super::{
    Acknowledged, Availability, Decision, DiscardGeneration, Explanation, Governor, HostTraits, Needs,
    PolicyEvent, Served, Shape, View,
};
use crate::numbers;
use crate::units::{Bytes, SimDuration};

/// The shortest quiet time that is told apart. A device that is quiet for less is in use.
const QUIET_FIRST: SimDuration = SimDuration::from_millis(1);
/// Classes of quiet times: from 1 ms, each twice as long as the one before, to 35 minutes.
const QUIETS: usize = 22;
/// Classes of command sizes: 1, 2, 4... 1024 ranges.
const SIZES: usize = 11;
const DEPTH_MAX: u32 = 8;
/// Target for the longest command, as long as a single range takes no longer: a request must not wait for more.
const COMMAND_TARGET_NS: f64 = 10e6;
/// Expected duration of a command before any was sent.
const TOOK_FIRST_NS: f64 = 5e6;
/// Expected time for a unit before any request was seen: 4 KiB at 160 MB/s.
const UNIT_FIRST_NS: f64 = 25_000.0;
/// Approximate number of requests in a mean.
const MEMORY: f64 = 64.0;
/// Spare flash of the drive, as a share of its capacity. No drive reports it; consumer drives have at least this.
const SPARE: f64 = 0.07;
/// A command that costs less than this share of what it saves does not wait for a better time.
const NEGLIGIBLE: f64 = 0.01;
/// Bytes after which the time of a unit is updated.
const WINDOW: Bytes = Bytes::mib(4);

pub(super) const TERM: Term = Term {
    refuses_gate: Some("weighs what utilization costs itself"),
    live: LiveUse::Bounded,
    ..Term::plain(
        "adaptive",
        "when it costs less than it saves, as learned on this drive and workload",
        &["adaptive"],
        |_| Box::<Adaptive>::default(),
    )
};

/// A mean over about the last [`MEMORY`] observations, as two decaying sums.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, sum: f64, weight: f64) {
        let kept = 1.0 - 1.0 / MEMORY;
        *self = Self { sum: self.sum * kept + sum, weight: self.weight * kept + weight };
    }
}

/// Counts of the foreground at the last event.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    at_ns: f64,
    quiet_ns: f64,
    is_busy: bool,
}

impl Seen {
    fn of(view: &View) -> Self {
        Self { at_ns: view.now.0 as f64, quiet_ns: ns(view.quiet), is_busy: view.requests > 0 }
    }
}

#[derive(Clone, Debug)]
pub struct Adaptive {
    ranges_max: u32,
    range_units_max: u64,
    depth: u32,
    /// Duration of commands, by size.
    took: [Option<f64>; SIZES],
    /// Arrivals and the time in which there could have been some, by quiet time.
    arrivals: [Mean; QUIETS],
    /// By quiet time: units moved between two moments at which the device had been quiet for this long, and the units
    /// moved as of the last of these.
    between: [Mean; QUIETS],
    reached: [Bytes; QUIETS],
    /// Time per unit when the device moves many.
    unit_ns: f64,
    /// Requests served before the current window.
    window: Served,
    /// Share of the requests arriving during a command that it delayed.
    held_up: Mean,
    /// Requests served when the last command was sent.
    sent: Served,
    seen: Seen,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            ranges_max: 1,
            range_units_max: u64::MAX,
            depth: 1,
            took: [None; SIZES],
            arrivals: [Mean::default(); QUIETS],
            between: [Mean::default(); QUIETS],
            reached: [Bytes(0); QUIETS],
            unit_ns: UNIT_FIRST_NS,
            window: Served::default(),
            held_up: Mean::default(),
            sent: Served::default(),
            seen: Seen::default(),
        }
    }
}

fn ns(duration: SimDuration) -> f64 {
    duration.as_nanos() as f64
}

fn quiet_class(quiet_ns: f64) -> usize {
    let times = (quiet_ns / ns(QUIET_FIRST)).max(1.0) as u64;
    (times.ilog2() as usize).min(QUIETS - 1)
}

/// Expected copies of a stale unit until its blocks are written again, at this state of the host.
///
/// No drive tells how it collects garbage, so this is an assumption: for each unit that is written it copies
/// `r / (2 (1 - r))`, where `r` is the share of its flash that is valid. That has the right ends: none where little is
/// valid, and for greedy collection under uniform writes about that when nearly full. Each valid unit is as likely to be
/// among the copied ones as any other, and free space is written once before the unit is. The formula leaves out what
/// the unit costs by making the drive collect sooner, so near the end it is too low.
fn copies(view: &View) -> f64 {
    let total = view.total_units.max(1) as f64;
    let used = view.used_units as f64 / total;
    let held =
        (used + view.pending_units.saturating_add(view.untrimmed_units) as f64 / total).clamp(0.01, 1.0);
    let valid = held / (1.0 + SPARE);
    valid / (2.0 * (1.0 - valid)) * (1.0 - used).max(0.0) / held
}

#[derive(Clone, Copy, Debug)]
struct Offer {
    ranges: u32,
    delay_ns: f64,
    /// Shorter extents save less than the command costs.
    units_min: u64,
}

impl Adaptive {
    /// Learns from the events since the last one.
    fn learn(&mut self, view: &View) {
        let now = Seen::of(view);
        let before = std::mem::replace(&mut self.seen, now);
        let passed_ns = now.at_ns - before.at_ns;
        if passed_ns <= 0.0 {
            return;
        }
        let arrived = view.requests > 0 || now.quiet_ns < passed_ns;
        let class = &mut self.arrivals[quiet_class(before.quiet_ns)];
        match (before.is_busy, arrived) {
            (true, _) => {}
            (false, true) => class.add(1.0, passed_ns / 2.0),
            (false, false) => class.weight += passed_ns,
        }
        let from = if arrived { 0 } else { quiet_class(before.quiet_ns) } + 1;
        for class in from..=quiet_class(now.quiet_ns) {
            let last = std::mem::replace(&mut self.reached[class], view.served.bytes);
            let moved = Bytes(view.served.bytes.0.saturating_sub(last.0));
            self.between[class].add(moved.units_ceil() as f64, 1.0);
        }
        let served = view.served.since(&self.window);
        if served.bytes >= WINDOW {
            self.window = view.served;
            let unit_ns = ns(served.busy) / served.bytes.units_floor() as f64;
            // Small requests take longer per unit than a copy does, so the estimate falls faster than it rises.
            self.unit_ns += (unit_ns - self.unit_ns) / if unit_ns < self.unit_ns { 4.0 } else { MEMORY };
        }
    }

    /// Share of the requests arriving during a command that wait for its end. Before any is seen: all.
    fn held_up(&self) -> f64 {
        (self.held_up.sum + 1.0) / (self.held_up.weight + 1.0)
    }

    /// Expected duration of a command of this size; `None` if it is too far from any that was sent.
    fn took_ns(&self, size: usize) -> Option<f64> {
        // A smaller command takes no longer.
        let known = self.took[size..].iter().copied().flatten().next();
        // The cost per range doubles and the cost per command does not.
        let doubled = |size: usize| {
            let below = self.took[size.checked_sub(1)?]?;
            Some(below * 2.0 - self.took[0].map_or(0.0, |single| single.min(below)))
        };
        known.or_else(|| doubled(size)).or_else(|| (size == 0).then_some(TOOK_FIRST_NS))
    }

    /// Expected delay of others by a command that takes this long, sent when the device has been quiet for this long.
    fn delay_ns(&self, class: usize, took_ns: f64) -> f64 {
        let arrivals = self.arrivals[class];
        // Before anything is known of it, a gap is expected to last as long again.
        let prior_ns = ns(QUIET_FIRST) * (1_u64 << class) as f64;
        let rate = (arrivals.sum + 1.0) / (arrivals.weight + prior_ns);
        (rate * took_ns).min(1.0) * took_ns / 2.0 * self.held_up()
    }

    fn copy_ns(&self, view: &View) -> f64 {
        (copies(view) * self.unit_ns).max(1e-3)
    }

    /// Share of an untrimmed unit's cost that accrues until the device has been quiet for this long.
    fn waiting(&self, view: &View, class: usize) -> f64 {
        let since_last = Bytes(view.served.bytes.0.saturating_sub(self.reached[class].0)).units_ceil() as f64;
        let Mean { sum, weight } = self.between[class];
        let moved = (sum + since_last) / (weight + 1.0);
        let free = view.total_units.saturating_sub(view.used_units).max(1) as f64;
        (moved / free).clamp(1e-9, 1.0)
    }

    /// The shortest extent whose TRIM in a command of this size saves more than it costs now, and more than if it is
    /// sent when the device has been quiet for longer.
    fn offer_of(&self, view: &View, size: usize, took_ns: f64) -> Offer {
        let ranges = 1_u32 << size;
        let now = quiet_class(ns(view.quiet));
        let delay_ns = if view.requests > 0 {
            took_ns * f64::from(view.requests) * self.held_up()
        } else {
            self.delay_ns(now, took_ns)
        };
        let copy_ns = self.copy_ns(view);
        let later = (now + 1..QUIETS)
            .map(|class| (delay_ns - self.delay_ns(class, took_ns)) / (copy_ns * self.waiting(view, class)));
        let pays = delay_ns / copy_ns;
        let units = later.fold(pays, f64::max).min(pays / NEGLIGIBLE);
        // If the average extent is too short for a share of that, perhaps only one is long enough.
        let filled = f64::from(ranges).min(view.pending_extents as f64).max(1.0);
        let is_filled = units / filled <= view.pending_mean() as f64;
        let units_min = if is_filled { units / filled } else { units };
        Offer { ranges, delay_ns, units_min: units_min.ceil().max(1.0) as u64 }
    }

    fn offer(&self, view: &View) -> Offer {
        let single = self.took_ns(0).unwrap_or(TOOK_FIRST_NS);
        let sizes = (0..SIZES).take_while(|size| {
            *size == 0 || 1 << size <= self.ranges_max && (1 << size) / 2 < view.pending_extents
        });
        let offers = sizes.map_while(|size| {
            let took_ns = self
                .took_ns(size)
                .filter(|took| size == 0 || *took <= COMMAND_TARGET_NS.max(2.0 * single))?;
            Some(self.offer_of(view, size, took_ns))
        });
        let nothing = Offer { ranges: 1, delay_ns: f64::INFINITY, units_min: u64::MAX };
        // Of equal offers take the largest, which empties the queue soonest.
        offers.fold(nothing, |best, offer| if offer.units_min <= best.units_min { offer } else { best })
    }

    fn next(&self, view: &View, may_issue: bool, decisions: &mut Vec<Decision>) {
        // At that time the device has been quiet for twice as long, if nothing arrives.
        decisions.push(Decision::WakeAt(view.now + view.quiet.max(QUIET_FIRST)));
        if view.pending_units == 0 {
            return;
        }
        let offer = self.offer(view);
        let free = if view.requests == 0 { self.depth } else { 1 }.saturating_sub(view.in_flight);
        if may_issue && free > 0 {
            let units_max = self.range_units_max.saturating_mul(offer.ranges.into());
            let commands = view.pending_extents.div_ceil(offer.ranges.into()).min(free.into());
            // Send one at a time until the duration of commands is known.
            let commands =
                if self.took[0].is_some() && offer.units_min <= view.pending_mean() { commands } else { 1 };
            let shape =
                Shape { ranges_max: offer.ranges, units_min: offer.units_min, units_max, ..Shape::NEXT };
            decisions.extend((0..commands).map(|_| Decision::Issue(shape)));
        }
    }

    fn acknowledged(&mut self, command: &Acknowledged, view: &View) {
        let (waiting, served) = (f64::from(view.requests), view.served.since(&self.sent).requests as f64);
        if waiting + served > 0.0 {
            self.held_up.add(waiting / (waiting + served), 1.0);
        }
        let size = (command.ranges.max(1).ilog2() as usize).min(SIZES - 1);
        let took_ns = ns(command.took);
        self.took[size] = Some(self.took[size].map_or(took_ns, |before| (before * 3.0 + took_ns) / 4.0));
    }
}

impl Governor for Adaptive {
    fn needs(&self) -> Needs {
        Needs { fills_commands: true, ..Needs::default() }
    }

    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::Reuse
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Hosted(HostTraits { ranges_max, range_units_max, trim_depth, .. }) => {
                // Counters may start at any value.
                (self.window, self.sent, self.seen) = (view.served, view.served, Seen::of(view));
                self.reached = [view.served.bytes; QUIETS];
                self.ranges_max = *ranges_max;
                self.range_units_max = *range_units_max;
                self.depth = (*trim_depth).clamp(1, DEPTH_MAX);
                decisions.push(Decision::CatchUp);
                decisions.push(Decision::WakeAt(view.now + QUIET_FIRST));
                return;
            }
            PolicyEvent::Issued(command) => {
                self.learn(view);
                self.acknowledged(command, view);
            }
            PolicyEvent::Committed { .. }
            | PolicyEvent::PassOver
            | PolicyEvent::Trimmed { .. }
            | PolicyEvent::Woken => self.learn(view),
        }
        self.next(view, *event != PolicyEvent::PassOver, decisions);
        if view.in_flight == 0 {
            self.sent = view.served;
        }
    }

    fn explain(&self, view: &View) -> Explanation {
        if view.pending_units == 0 {
            return Explanation::nothing_waits();
        }
        let offer = self.offer(view);
        let time = |ns: f64| numbers::time(ns / 1e9);
        let state = format!(
            "A TRIM of {} {} {} and would now delay others by {} on average. To leave 4 KiB untrimmed for \
             good costs {}: the drive moves it in {}, and would copy it {:.2} times with {} % of its space held as \
             valid. So extents of {} or more are worth a TRIM now; the average one that waits has {}.",
            if offer.ranges == 1 { "one range".to_owned() } else { format!("{} ranges", offer.ranges) },
            if self.took.iter().any(Option::is_some) { "takes" } else { "is assumed to take" },
            time(self.took_ns(offer.ranges.ilog2() as usize).unwrap_or(TOOK_FIRST_NS)),
            time(offer.delay_ns),
            time(self.copy_ns(view)),
            time(self.unit_ns),
            copies(view),
            view.device_percent(),
            Bytes::from_units(offer.units_min.min(view.total_units)),
            Bytes::from_units(view.pending_mean()),
        );
        Explanation::new(
            state,
            "A longer quiet time, a cheaper TRIM, a slower drive, or more untrimmed space.",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SimTime;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 18; // in units

    fn ms(ms: u64) -> SimDuration {
        SimDuration::from_millis(ms)
    }

    /// A governor on a file system of 100 GiB, half of it in use, with requests of 1 MiB that take 5 ms each.
    struct Host {
        governor: Adaptive,
        view: View,
    }

    impl Host {
        fn new() -> Self {
            let view = View { used_units: 50 * GIB, total_units: 100 * GIB, ..View::default() };
            let mut host = Self { governor: Adaptive::default(), view };
            host.see(&PolicyEvent::Hosted(HostTraits {
                kernel: DiscardGeneration::Worker,
                trim_depth: 1,
                ranges_max: 64,
                range_units_max: 8_191,
                total_units: 100 * GIB,
                group_units: 32_768,
            }));
            host
        }

        fn see(&mut self, event: &PolicyEvent) -> Option<Shape> {
            let mut decisions = Vec::new();
            self.governor.on_event(event, &self.view, &mut decisions);
            decisions.into_iter().find_map(|decision| match decision {
                Decision::Issue(shape) => Some(shape),
                _ => None,
            })
        }

        fn pass(&mut self, quiet: SimDuration) -> Option<Shape> {
            self.view.now += quiet;
            self.view.quiet += quiet;
            self.see(&PolicyEvent::Woken)
        }

        /// A burst of requests, and then quiet for so long; the governor looks whenever that has doubled. A TRIM of `took`
        /// runs at the end of it if `is_hit`, and delays the next burst.
        fn burst(&mut self, requests: u64, quiet: SimDuration, is_hit: Option<SimDuration>) {
            let busy = ms(5) * requests;
            self.view.requests = 1;
            self.view.quiet = SimDuration::ZERO;
            self.see(&PolicyEvent::Committed { freed_units: 0 });
            self.view.now += busy;
            let served = &mut self.view.served;
            (served.requests, served.bytes.0) =
                (served.requests + requests, served.bytes.0 + (requests << 20));
            (served.time, served.busy) = (served.time + busy, served.busy + busy);
            self.view.requests = 0;
            self.see(&PolicyEvent::Committed { freed_units: 0 });
            while self.view.quiet < quiet {
                self.pass(self.view.quiet.max(ms(1)));
            }
            if let Some(took) = is_hit {
                self.view.now += took;
                (self.view.requests, self.view.quiet) = (1, SimDuration::ZERO);
                self.see(&PolicyEvent::Issued(Acknowledged { ranges: 1, units: 256, took }));
                self.view.requests = 0;
            }
        }

        fn frees(&mut self, units: u64, extents: u64) {
            (self.view.pending_units, self.view.pending_extents) = (units, extents);
        }
    }

    /// Bursts a few seconds apart, on a drive whose TRIM takes this long; then 40 GiB wait.
    fn learned(took: SimDuration) -> Host {
        let mut host = Host::new();
        for _ in 0..100 {
            host.burst(20, ms(4_000), Some(took));
        }
        host.view.quiet = SimDuration::ZERO;
        host.frees(40 * GIB, 40 * 1_024);
        host
    }

    #[test]
    fn a_dear_trim_waits_for_a_pause_and_a_cheap_one_does_not() {
        let shortest = |took| {
            let mut host = learned(took);
            host.view.requests = 1;
            let busy = host.see(&PolicyEvent::Woken).unwrap().units_min;
            host.view.requests = 0;
            let quiet = (0..10).map(|_| host.pass(host.view.quiet.max(ms(1))).unwrap().units_min).min();
            (busy, quiet.unwrap())
        };
        let (cheap_busy, cheap_quiet) = shortest(SimDuration::from_micros(10));
        let (dear_busy, dear_quiet) = shortest(ms(80));
        assert_eq!(cheap_quiet, 1, "nothing is too short");
        assert!(dear_busy > 100 * dear_quiet, "{dear_busy} {dear_quiet}");
        assert!(dear_busy > 100 * cheap_busy, "{dear_busy} {cheap_busy}");
    }

    #[test]
    fn the_more_the_drive_holds_the_shorter_an_extent_is_worth_a_trim() {
        let shortest: Vec<u64> = [10, 25, 40, 49]
            .into_iter()
            .map(|gib| {
                let mut host = learned(ms(80));
                host.view.requests = 1;
                host.frees(gib * GIB, 1_000);
                host.see(&PolicyEvent::Woken).unwrap().units_min
            })
            .collect();
        assert!(shortest.is_sorted_by(|a, b| a > b), "{shortest:?}");
    }

    #[test]
    fn a_drive_that_serves_others_beside_a_trim_is_known_by_it() {
        let mut host = learned(ms(80));
        assert!(host.governor.held_up() > 0.9);
        let alone = host.governor.delay_ns(3, 8e7);
        for _ in 0..300 {
            host.pass(ms(10));
            host.view.served.requests += 10; // while the command ran
            host.view.now += ms(80);
            host.see(&PolicyEvent::Issued(Acknowledged { ranges: 1, units: 256, took: ms(80) }));
        }
        assert!(host.governor.held_up() < 0.05);
        assert!(host.governor.delay_ns(3, 8e7) < alone / 10.0);
    }

    #[test]
    fn the_more_is_held_the_more_is_copied() {
        let view = |used_units, pending_units| View {
            used_units,
            pending_units,
            total_units: 1_000,
            ..View::default()
        };
        // All but the spare flash valid: 1 / 1.07 of it, so 1 / (2 * 0.07) units for each that is written.
        let full = copies(&view(0, 1_000));
        assert!((full - 1.0 / 0.14).abs() < 1e-9, "{full}");
        assert_eq!(copies(&view(1_000, 0)), 0.0, "nothing is free");
        assert!(copies(&view(500, 0)) < copies(&view(500, 500)) / 4.0);
    }

    /// The slices of trimwised are never of one range.
    #[test]
    fn regression_a_size_that_was_never_sent_is_judged_by_those_that_were() {
        let mut adaptive = Adaptive::default();
        adaptive.took[3] = Some(8e6);
        assert_eq!([0, 1, 3].map(|size| adaptive.took_ns(size)), [Some(8e6); 3]);
        assert_eq!((adaptive.took_ns(4), adaptive.took_ns(5)), (Some(16e6), None));
        adaptive.took[0] = Some(2e6);
        assert_eq!(adaptive.took_ns(4), Some(14e6));
    }

    #[test]
    fn regression_counters_that_began_before_it_are_not_taken_for_one_pause() {
        let mut host = Host::new();
        host.view.served.bytes = Bytes::gib(1_000);
        let traits = HostTraits {
            kernel: DiscardGeneration::Worker,
            trim_depth: 1,
            ranges_max: 1,
            range_units_max: 1,
            total_units: 1,
            group_units: 1,
        };
        host.see(&PolicyEvent::Hosted(traits));
        for _ in 0..10 {
            host.burst(20, ms(4_000), None);
        }
        assert!(host.governor.waiting(&host.view, 5) < 1e-3, "{}", host.governor.waiting(&host.view, 5));
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() <= b.abs() * 1e-9
    }

    fn units(units: u64) -> Bytes {
        Bytes::from_units(units)
    }

    /// A file system of 1,000 units: 500 in use, 200 pending in two extents, and 100 untrimmed. A stale unit is copied
    /// 0.8 / (2 * (1.07 - 0.8)) * 0.5 / 0.8 times.
    const PART: View = View {
        now: SimTime(1 << 40),
        used_units: 500,
        total_units: 1_000,
        freed_units: 0,
        pending_units: 200,
        pending_extents: 2,
        untrimmed_units: 100,
        in_flight: 0,
        requests: 0,
        quiet: SimDuration::ZERO,
        requests_done: 0,
        oldest: None,
        served: Served { requests: 0, bytes: Bytes(0), time: SimDuration::ZERO, busy: SimDuration::ZERO },
    };

    #[test]
    fn estimates_follow_their_formulas() {
        for (quiet_ms, class) in
            [(0.0, 0), (0.9, 0), (1.9, 0), (2.0, 1), (3.9, 1), (4.0, 2), (1e9, QUIETS - 1)]
        {
            assert_eq!(quiet_class(quiet_ms * 1e6), class, "{quiet_ms} ms");
        }
        let mut mean = Mean { sum: 64.0, weight: 128.0 };
        mean.add(2.0, 3.0);
        assert_eq!((mean.sum, mean.weight), (65.0, 129.0), "a 64th is forgotten");
        let copied = copies(&PART);
        assert!(is_near(copied, 0.8 / 0.54 * 0.625), "{copied}");
        let mut one = Adaptive { unit_ns: 1_000.0, ..Adaptive::default() };
        assert!(is_near(one.copy_ns(&PART), 1_000.0 * copied));
        assert_eq!(one.copy_ns(&View { used_units: 1_000, ..PART }), 1e-3, "never nothing");

        assert_eq!(one.held_up(), 1.0, "nothing is known of it");
        assert_eq!(one.delay_ns(2, 2e6), 0.5 * 1e6, "one in 4 ms may come, and waits for half of 2 ms");
        assert_eq!(one.delay_ns(2, 8e6), 4e6, "one comes for sure");
        one.arrivals[2] = Mean { sum: 3.0, weight: 4e6 };
        assert!(is_near(one.delay_ns(2, 1e6), 0.5 * 0.5e6), "four in 8 ms");
        one.held_up = Mean { sum: 1.0, weight: 3.0 };
        assert_eq!(one.held_up(), 0.5);
        assert!(is_near(one.delay_ns(2, 1e6), 0.5 * 0.25e6), "and half of them wait");

        one.reached[3] = units(2);
        one.between[3] = Mean { sum: 22.0, weight: 2.0 };
        let view = View { served: Served { bytes: units(10), ..PART.served }, used_units: 900, ..PART };
        assert!(is_near(one.waiting(&view, 3), 0.1), "22 and 8 units in three pauses, of 100 that are free");
        assert_eq!(one.waiting(&View { used_units: 999, ..view }, 3), 1.0);
        assert_eq!(one.waiting(&View { used_units: 1_000, ..view }, 3), 1.0);
    }

    #[test]
    fn it_learns_of_arrivals_pauses_and_the_time_of_a_unit_event_by_event() {
        let mut one = Adaptive::default();
        let at = |now_ms: u64, quiet_ms: u64, requests, served: u64, busy_ns: u64| View {
            now: SimTime(now_ms * 1_000_000),
            quiet: ms(quiet_ms),
            requests,
            served: Served { bytes: units(served), busy: SimDuration(busy_ns), ..Served::default() },
            ..View::default()
        };
        let seen = |mean: Mean| (mean.sum, mean.weight);
        one.learn(&at(4, 4, 0, 8, 0));
        assert_eq!(seen(one.arrivals[0]), (0.0, 4e6), "4 ms from the first class in which none came");
        assert_eq!(
            [0, 1, 2, 3].map(|class| one.between[class].sum),
            [0.0, 8.0, 8.0, 0.0],
            "reached 2 and 4 ms"
        );
        assert_eq!([0, 1, 2, 3].map(|class| one.reached[class]), [units(0), units(8), units(8), units(0)]);
        one.learn(&at(6, 0, 1, 9, 0));
        assert_eq!(seen(one.arrivals[2]), (1.0, 1e6), "after 4 ms one came, in the middle of 2 ms");
        one.learn(&at(6, 0, 0, 10, 0));
        assert_eq!(seen(one.arrivals[0]), (0.0, 4e6), "no time has passed");
        one.learn(&at(9, 0, 1, 18, 0));
        one.learn(&at(12, 2, 0, 20, 0));
        assert_eq!(
            seen(one.arrivals[0]),
            (1.0, 5_437_500.0),
            "there was a request: nothing to learn of arrivals"
        );
        assert_eq!(one.reached[1], units(20));
        one.learn(&at(20, 10, 0, 30, 0));
        assert_eq!(one.arrivals[1].weight, 8e6);
        assert_eq!(
            [1, 2, 3].map(|class| one.reached[class]),
            [units(20), units(30), units(30)],
            "from 2 to 10 ms"
        );
        one.learn(&at(30, 5, 0, 33, 0));
        assert_eq!(
            [1, 2, 3].map(|class| one.reached[class]),
            [units(33), units(33), units(30)],
            "a new pause"
        );

        let mut one = Adaptive::default();
        one.learn(&at(1, 0, 1, 1_023, 1));
        assert_eq!(one.unit_ns, UNIT_FIRST_NS, "less than 4 MiB");
        one.learn(&at(2, 0, 1, 1_024, 1_024 * 9_000));
        assert_eq!(one.unit_ns, 21_000.0, "a quarter of the way to what is faster");
        one.learn(&at(3, 0, 1, 2_048, 1_024 * (9_000 + 85_000)));
        assert_eq!(one.unit_ns, 22_000.0, "a 64th of the way to what is slower");
    }

    #[test]
    fn it_learns_what_commands_take_and_whom_they_hold_up() {
        let mut one = Adaptive::default();
        let command = |ranges, took| Acknowledged { ranges, units: 1, took };
        for (ranges, took, class, mean_ns) in
            [(4, ms(8), 2, 8e6), (7, ms(4), 2, 7e6), (0, ms(1), 0, 1e6), (4_096, ms(2), SIZES - 1, 2e6)]
        {
            one.acknowledged(&command(ranges, took), &PART);
            assert_eq!(one.took[class], Some(mean_ns), "{ranges} ranges");
        }
        assert_eq!(one.held_up.weight, 0.0, "no request came");
        let view = View { requests: 1, served: Served { requests: 3, ..PART.served }, ..PART };
        one.acknowledged(&command(1, ms(1)), &view);
        assert_eq!((one.held_up.sum, one.held_up.weight), (0.25, 1.0), "one of four waits");
        // Counting begins anew when nothing is in flight.
        let mut decisions = Vec::new();
        for (in_flight, sent) in [(1, 0), (0, 3)] {
            one.on_event(&PolicyEvent::Woken, &View { in_flight, ..view }, &mut decisions);
            assert_eq!(one.sent.requests, sent, "{in_flight} in flight");
        }
    }

    #[test]
    fn the_shortest_extent_that_is_worth_a_command_follows_from_both_costs() {
        // A stale unit costs 10 ns.
        let unit_ns = 10.0 / copies(&PART);
        // Waiting for any longer pause costs all of that.
        let dear = [Mean { sum: 500.0, weight: 0.0 }; QUIETS];
        let mut class_3 = dear;
        class_3[3].sum = 125.0;
        let in_use = View { requests: 2, ..PART };
        let quiet = View { quiet: ms(4), ..PART };
        let no_time_is_better = [Mean { sum: 5e5, weight: 0.0 }; QUIETS];
        #[rustfmt::skip]
        let rows = [
            ("two requests wait for it", in_use, dear, 0, 1_001.5, (1, 201)),
            ("two extents share it", in_use, dear, 2, 901.5, (4, 91)),
            ("they are too short to share it", in_use, dear, 2, 1_005.5, (4, 202)),
            ("waiting costs nothing: a hundred times as much", in_use, [Mean::default(); QUIETS], 0, 100.15, (1, 2_003)),
            ("nobody is there, one may come", quiet, dear, 0, 2.000005e6, (1, 50_001)),
            ("a pause of 8 ms halves the delay, for a quarter of the cost", quiet, class_3, 0, 2.000005e6, (1, 100_001)),
            ("at least a unit", in_use, no_time_is_better, 0, 0.0, (1, 1)),
        ];
        for (case, view, between, size, took_ns, expected) in rows {
            let one = Adaptive { unit_ns, between, ..Adaptive::default() };
            let offer = one.offer_of(&view, size, took_ns);
            assert_eq!((offer.ranges, offer.units_min), expected, "{case}");
        }
    }

    #[test]
    fn a_command_takes_as_many_ranges_as_there_are_extents_and_time_for() {
        let known = |all: &[u64]| {
            let mut took = [None; SIZES];
            all.iter().zip(&mut took).for_each(|(ms, took)| *took = Some(*ms as f64 * 1e6));
            took
        };
        #[rustfmt::skip]
        let rows: [(u32, u64, &[u64], u32); 10] = [
            // ranges of the device, extents, what 1, 2, 4... ranges take in ms, and the ranges of a command
            (4, 1, &[1, 1, 1, 1], 1),
            (4, 2, &[1, 1, 1, 1], 2),
            (4, 3, &[1, 1, 1, 1], 4),
            (4, 100, &[1, 1, 1, 1], 4),
            (64, 100, &[1, 1, 1, 1, 1, 1, 1, 1], 64),
            (64, 100, &[1, 2, 4, 10, 11], 8),
            (64, 100, &[8, 15], 2),
            (64, 100, &[8, 17], 1),
            // Two ranges are judged by one, and four by none.
            (64, 100, &[3], 2),
            (64, 100, &[], 1),
        ];
        for (ranges_max, extents, took, ranges) in rows {
            let one = Adaptive { ranges_max, took: known(took), unit_ns: 1e12, ..Adaptive::default() };
            let view = View { pending_extents: extents, ..PART };
            assert_eq!(one.offer(&view).ranges, ranges, "{extents} extents, {took:?}");
        }
    }

    #[test]
    fn commands_are_as_many_as_extents_slots_and_knowledge_allow() {
        let traits = |trim_depth| HostTraits {
            kernel: DiscardGeneration::Worker,
            trim_depth,
            ranges_max: 4,
            range_units_max: 100,
            total_units: 1_000,
            group_units: 32_768,
        };
        let view = View { pending_extents: 20, quiet: ms(5), ..PART };
        let next = view.now + ms(5);
        #[rustfmt::skip]
        let rows = [
            ("a queue of four", 4, view, true, PolicyEvent::Woken, 4),
            ("eight at most", 32, View { pending_extents: 40, ..view }, true, PolicyEvent::Woken, 8),
            ("at least one", 0, view, true, PolicyEvent::Woken, 1),
            ("three in flight", 4, View { in_flight: 3, ..view }, true, PolicyEvent::Woken, 1),
            ("all in flight", 4, View { in_flight: 4, ..view }, true, PolicyEvent::Woken, 0),
            ("in use", 4, View { requests: 1, ..view }, true, PolicyEvent::Woken, 1),
            ("in use, one in flight", 4, View { requests: 1, in_flight: 1, ..view }, true, PolicyEvent::Woken, 0),
            ("nothing is known of commands", 4, view, false, PolicyEvent::Woken, 1),
            ("what it asked for was too short", 4, view, true, PolicyEvent::PassOver, 0),
            ("nothing is pending", 4, View { pending_units: 0, pending_extents: 0, ..view }, true, PolicyEvent::Woken, 0),
            ("extents for three commands", 8, View { pending_extents: 9, ..view }, true, PolicyEvent::Woken, 3),
        ];
        for (case, depth, view, is_known, event, commands) in rows {
            let mut one = Adaptive::default();
            let mut decisions = Vec::new();
            one.on_event(&PolicyEvent::Hosted(traits(depth)), &view, &mut decisions);
            assert_eq!(decisions, [Decision::CatchUp, Decision::WakeAt(view.now + QUIET_FIRST)], "{case}");
            decisions.clear();
            one.unit_ns = 1e12;
            if is_known {
                one.took[..3].fill(Some(1e6));
            }
            one.on_event(&event, &view, &mut decisions);
            let (ranges_max, units_max) = if is_known { (4, 400) } else { (1, 100) };
            let issue = Decision::Issue(Shape { ranges_max, units_max, ..Shape::NEXT });
            let expected = [vec![Decision::WakeAt(next)], vec![issue; commands]].concat();
            assert_eq!(decisions, expected, "{case}");
        }
        let mut one = Adaptive::default();
        let mut decisions = Vec::new();
        one.on_event(
            &PolicyEvent::Woken,
            &View { quiet: SimDuration::ZERO, pending_units: 0, ..PART },
            &mut decisions,
        );
        assert_eq!(decisions, [Decision::WakeAt(PART.now + QUIET_FIRST)], "in use it looks again after 1 ms");
    }

    #[test]
    fn where_the_average_extent_is_too_short_one_command_looks_for_a_longer_one() {
        let mut one = Adaptive { ranges_max: 4, depth: 4, unit_ns: 1.0, ..Adaptive::default() };
        one.took[..3].fill(Some(1e6));
        let view = View { pending_extents: 20, quiet: ms(5), ..PART };
        let mut decisions = Vec::new();
        one.next(&view, true, &mut decisions);
        let [Decision::WakeAt(_), Decision::Issue(shape)] = decisions[..] else { panic!("{decisions:?}") };
        assert!(shape.units_min > view.pending_mean(), "{shape:?}");
    }

    #[test]
    fn it_says_what_it_believes() {
        let said =
            Host::new().governor.explain(&View { pending_units: 1, pending_extents: 1, ..Host::new().view });
        assert!(said.state.contains("is assumed to take 5"), "{}", said.state);
        let host = learned(ms(80));
        let said = host.governor.explain(&host.view).state;
        for figure in ["takes 80", "moves it in 1", "90 % of its space", "has 1 MiB"] {
            assert!(said.contains(figure), "no '{figure}' in: {said}");
        }
    }

    proptest! {
        /// No view, however odd, makes it panic, or wake at once for ever.
        #[test]
        fn any_events_are_survived(events in prop::collection::vec(any::<(u8, [u64; 10], [u32; 2])>(), 1..50)) {
            let mut governor = Adaptive::default();
            for (kind, n, [a, b]) in events {
                let n = n.map(|n| n >> 12); // as many units have a number of bytes
                let served = Served { requests: n[5], bytes: Bytes(n[6]), time: SimDuration(n[7]), busy: SimDuration(n[8]) };
                let view = View {
                    now: SimTime(n[0]), used_units: n[1], total_units: n[2], pending_units: n[3], pending_extents: n[4],
                    untrimmed_units: n[9], requests: a, in_flight: b, quiet: SimDuration(n[9] >> (a % 64)), served,
                    ..View::default()
                };
                let event = match kind % 4 {
                    0 => PolicyEvent::Woken,
                    1 => PolicyEvent::PassOver,
                    2 => PolicyEvent::Committed { freed_units: n[3] },
                    _ => PolicyEvent::Issued(Acknowledged { ranges: a, units: n[3], took: SimDuration(n[9]) }),
                };
                let mut decisions = Vec::new();
                governor.on_event(&event, &view, &mut decisions);
                governor.explain(&view);
                for decision in decisions {
                    match decision {
                        Decision::WakeAt(at) => prop_assert!(at > view.now),
                        Decision::Issue(_) => prop_assert!(event != PolicyEvent::PassOver && view.pending_units > 0),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
            }
        }
    }
}
