//! `quiet`: one command at a time while the device is quiet, the oldest extent first: how `kernel/dm-trim` issues.
//!
//! - *Quiet* is a time without a request other than TRIMs. A request that arrives while a command is in flight doubles
//!   the time asked for, up to [`BACK_OFF_MAX`] times; each [`CLEAN`] commands in a row that met none halve it.
//! - While the device is in use it looks again after as much time as it asks for, or when something is due, if sooner.
//! - What has waited for HOLD is due, and everything once three quarters of the target's memory are in use. Then it
//!   issues one command among other requests, and rests after it: [`REST`] times as long as commands take, and until
//!   [`REQUESTS`] requests, times those in the device, have completed, or [`REST_MAX`] has passed. It looks again when
//!   the first has passed, and then each time after an eighth of the rest so far, at least [`TICK`].
//!
//! The constants are those of `dm-trim.c`, and there is a line here for each of its rules. Time is counted in ticks
//! there. Its other policy, `policy=eager`, is `lazy:1:1+reuse` below a file system.

use super::spec::grammar::{Duration, Part, Wrong, wrong};
use super::spec::term::{Arguments, Term};
use super::{
    Acknowledged, Availability, Decision, DiscardGeneration, Explanation, Governor, PolicyEvent, Shape, View,
};
use crate::units::{SimDuration, SimTime};

/// Requests that may pass between two commands among them, so that few meet one (`TRIM_REQUESTS`).
const REQUESTS: u64 = 1000;
/// Rest after a command among other requests, in multiples of what commands take (`TRIM_REST`).
const REST: u64 = 20;
/// Longest rest, where so few requests come that their number means nothing (`TRIM_REST_MAX`).
const REST_MAX: SimDuration = SimDuration::from_secs(5);
/// The shortest wait before it looks again whether enough requests have completed: a jiffy, at 1,000 a second.
const TICK: SimDuration = SimDuration::from_millis(1);
/// Largest multiple of the quiet time asked for (`TRIM_BACKOFF_MAX`).
const BACK_OFF_MAX: u64 = 32;
/// After this many commands in a row that met no request, half as much quiet will do (`TRIM_CLEAN`).
const CLEAN: u32 = 64;
/// Extents that fit in the target's memory by default: 16 MiB, of 64 bytes each (`limit=`).
pub(crate) const EXTENTS_MAX: u64 = 16_384 * 1024 / 64;

/// Defaults in nanoseconds: quiet for 100 ms, held for 60 s (`quiet_ms=`, `hold_s=`).
pub(super) const DEFAULTS: Arguments = [100_000_000, 60_000_000_000];

pub(super) const TERM: Term = Term {
    parse,
    show: |arguments| match arguments {
        DEFAULTS => String::new(),
        [quiet, hold] if hold == DEFAULTS[1] => format!(":{}", Duration(SimDuration::from_nanos(quiet))),
        both => both.map(|ns| format!(":{}", Duration(SimDuration::from_nanos(ns)))).concat(),
    },
    ..Term::plain(
        "quiet[:QUIET[:HOLD]]",
        "after QUIET (100ms) without other requests, or sparsely after HOLD (1m), as dm-trim",
        &["quiet", "quiet:10ms:1s"],
        |issuer| Box::new(Quiet::new(issuer.arguments)),
    )
};

fn parse(_: Part<'_>, arguments: &[Part<'_>]) -> Result<Arguments, Wrong> {
    let within = |part: &Part<'_>, name: &str, least: SimDuration, most: SimDuration| {
        let is_accepted = |ns: &u64| {
            (least.as_nanos()..=most.as_nanos()).contains(ns) && ns.is_multiple_of(least.as_nanos())
        };
        if let Some(ns) = part.duration(name).ok().map(SimDuration::as_nanos).filter(is_accepted) {
            return Ok(ns);
        }
        let what = format!("{name} '{}'", part.text);
        wrong(part.at, what, format!("from {} to {}, in steps of {0}", Duration(least), Duration(most)))
    };
    let quiet = |part| within(part, "quiet time", SimDuration::from_millis(1), SimDuration::from_secs(60));
    let hold = |part| within(part, "hold time", SimDuration::from_secs(1), SimDuration::from_secs(86_400));
    match arguments {
        [] => Ok(DEFAULTS),
        [first] => Ok([quiet(first)?, DEFAULTS[1]]),
        [first, second] => Ok([quiet(first)?, hold(second)?]),
        [_, _, more, ..] => {
            wrong(more.at, format!("unexpected '{}'", more.text), "quiet:QUIET:HOLD, as in quiet:100ms:60s")
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Quiet {
    quiet_min: SimDuration,
    hold: SimDuration,
    /// The quiet time asked for at present.
    quiet: SimDuration,
    /// Commands in a row that met no request.
    clean: u32,
    /// Requests that had begun when the last command was issued, if it was issued because the device was quiet.
    watched_begun: Option<u64>,
    /// Requests that had completed when the last command among them was issued.
    rested_done: u64,
    rested_since: SimTime,
    took: Option<SimDuration>,
    /// When it looks again, if it will.
    looks_at: Option<SimTime>,
}

fn begun(view: &View) -> u64 {
    view.requests_done + u64::from(view.requests)
}

impl Quiet {
    fn new([quiet_ns, hold_ns]: Arguments) -> Self {
        let quiet = SimDuration::from_nanos(quiet_ns);
        Self {
            quiet_min: quiet,
            hold: SimDuration::from_nanos(hold_ns),
            quiet,
            clean: 0,
            watched_begun: None,
            rested_done: 0,
            rested_since: SimTime::ZERO,
            took: None,
            looks_at: None,
        }
    }

    /// Learns from the last command that was issued because the device was quiet.
    fn learn(&mut self, view: &View) {
        let Some(watched) = self.watched_begun.take_if(|_| view.in_flight == 0) else { return };
        if begun(view) != watched {
            self.clean = 0;
            self.quiet = (self.quiet * 2).min(self.quiet_min * BACK_OFF_MAX);
        } else {
            self.clean += 1;
            if self.clean >= CLEAN {
                self.clean = 0;
                self.quiet = (self.quiet / 2).max(self.quiet_min);
            }
        }
    }

    fn is_quiet(&self, view: &View) -> bool {
        view.requests == 0 && view.quiet >= self.quiet
    }

    /// Returns true if so much is pending that all of it is due.
    fn is_high(view: &View) -> bool {
        view.pending_extents > EXTENTS_MAX / 4 * 3
    }

    /// Time until the oldest pending extent is due.
    fn due_in(&self, view: &View) -> SimDuration {
        match view.oldest {
            _ if Self::is_high(view) => SimDuration::ZERO,
            Some(since) => self.hold - view.now.since(since),
            None => self.hold,
        }
    }

    /// Time until the foreground may have been left alone for long enough.
    fn rest(&self, view: &View) -> SimDuration {
        let since = view.now.since(self.rested_since);
        let rest = self.took.unwrap_or(SimDuration::ZERO) * REST;
        let passed = view.requests_done.saturating_sub(self.rested_done);
        if since < rest {
            rest - since
        } else if since >= REST_MAX || passed >= REQUESTS * u64::from(view.requests.max(1)) {
            SimDuration::ZERO
        } else {
            (since / 8).max(TICK)
        }
    }

    fn look_in(&mut self, wait: SimDuration, view: &View, decisions: &mut Vec<Decision>) {
        self.looks_at = Some(view.now + wait);
        decisions.push(Decision::WakeAt(view.now + wait));
    }

    fn look(&mut self, view: &View, decisions: &mut Vec<Decision>) {
        self.looks_at = None;
        self.learn(view);
        if view.pending_units == 0 {
            return;
        }
        if self.is_quiet(view) {
            self.watched_begun = Some(begun(view));
            if view.in_flight == 0 {
                decisions.push(Decision::Issue(Shape::NEXT));
            }
            return;
        }
        let mut wait = self.due_in(view);
        if wait == SimDuration::ZERO {
            wait = if view.in_flight == 0 { self.rest(view) } else { self.quiet };
            if wait == SimDuration::ZERO {
                self.rested_done = view.requests_done;
                decisions.push(Decision::Issue(Shape::NEXT));
                wait = self.quiet;
            }
        }
        self.look_in(wait.min(self.quiet), view, decisions);
    }
}

impl Governor for Quiet {
    fn availability(&self, _kernel: DiscardGeneration) -> Availability {
        Availability::Reuse
    }

    fn takes_oldest_first(&self) -> bool {
        true
    }

    fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
        match event {
            PolicyEvent::Committed { freed_units } => {
                let was_empty = *freed_units == view.pending_units;
                if *freed_units > 0 && Self::is_high(view) {
                    self.look(view, decisions);
                } else if *freed_units > 0 && (was_empty || self.looks_at.is_none()) {
                    self.look_in(self.quiet.min(self.hold), view, decisions);
                }
            }
            PolicyEvent::Issued(Acknowledged { took, .. }) => {
                self.took = Some(self.took.map_or(*took, |before| (before * 7 + *took) / 8));
                self.rested_since = view.now;
                self.look(view, decisions);
            }
            PolicyEvent::Woken => self.look(view, decisions),
            PolicyEvent::Hosted(_) | PolicyEvent::PassOver | PolicyEvent::Trimmed { .. } => {}
        }
    }

    fn explain(&self, view: &View) -> Explanation {
        if view.pending_units == 0 {
            return Explanation::nothing_waits();
        }
        if self.is_quiet(view) {
            return Explanation::new(
                "The device is quiet, so freed space is being trimmed.",
                "A request other than TRIMs, or nothing left to trim.",
            );
        }
        let change = format!("{} without a request other than TRIMs.", Duration(self.quiet));
        let state = if self.due_in(view) == SimDuration::ZERO {
            "The device is in use, and freed space has waited for long, so single trims run among other requests."
        } else {
            "The device is in use, so freed space waits."
        };
        Explanation::new(state, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUE: Decision = Decision::Issue(Shape::NEXT);

    fn ms(ms: u64) -> SimDuration {
        SimDuration::from_millis(ms)
    }

    fn at(now_ms: u64) -> View {
        let now = SimTime::ZERO + ms(now_ms);
        View { now, pending_units: 8, pending_extents: 2, oldest: Some(SimTime::ZERO), ..View::default() }
    }

    fn ended(took: SimDuration) -> PolicyEvent {
        PolicyEvent::Issued(Acknowledged { ranges: 1, units: 1, took })
    }

    fn decide(governor: &mut Quiet, event: PolicyEvent, view: View) -> Vec<Decision> {
        let mut decisions = Vec::new();
        governor.on_event(&event, &view, &mut decisions);
        decisions
    }

    fn wake_at(at_ms: u64) -> Decision {
        Decision::WakeAt(SimTime::ZERO + ms(at_ms))
    }

    #[test]
    fn it_waits_for_quiet_and_looks_again_after_as_long() {
        let mut quiet = Quiet::new(DEFAULTS);
        let freed = PolicyEvent::Committed { freed_units: 8 };
        assert_eq!(decide(&mut quiet, freed, at(0)), [wake_at(100)]);
        let more = PolicyEvent::Committed { freed_units: 4 };
        assert_eq!(decide(&mut quiet, more, at(50)), []);
        let in_use = View { quiet: ms(99), ..at(100) };
        assert_eq!(decide(&mut quiet, PolicyEvent::Woken, in_use), [wake_at(200)]);
        assert_eq!(decide(&mut quiet, PolicyEvent::Woken, View { quiet: ms(100), ..at(200) }), [ISSUE]);
    }

    #[test]
    fn requests_that_meet_commands_double_the_time_and_clean_commands_halve_it() {
        let mut quiet = Quiet::new(DEFAULTS);
        let idle = View { quiet: ms(10_000), ..at(0) };
        for _ in 0..7 {
            decide(&mut quiet, PolicyEvent::Woken, View { requests_done: 5, ..idle });
            decide(&mut quiet, ended(ms(1)), View { requests_done: 6, quiet: ms(0), ..idle });
        }
        assert_eq!(quiet.quiet, ms(3_200));
        for _ in 0..=CLEAN {
            assert_eq!(decide(&mut quiet, ended(ms(1)), View { requests_done: 6, ..idle }), [ISSUE]);
        }
        assert_eq!(quiet.quiet, ms(1_600));
    }

    #[test]
    fn only_clean_commands_in_a_row_halve_the_time() {
        let mut quiet = Quiet::new(DEFAULTS);
        let mut requests_done = 0;
        let mut commands = |clean: u32, met: u64| {
            requests_done += met;
            for _ in 0..clean + met as u32 {
                let idle = View { quiet: ms(10_000), requests_done, ..at(0) };
                assert_eq!(decide(&mut quiet, ended(ms(1)), idle), [ISSUE]);
            }
            quiet.quiet
        };
        commands(1, 0);
        assert_eq!(commands(0, 1), ms(200));
        assert_eq!(commands(CLEAN - 1, 0), ms(200));
        assert_eq!(commands(0, 1), ms(400));
        assert_eq!(commands(CLEAN - 1, 0), ms(400), "one of {CLEAN} met a request");
        assert_eq!(commands(1, 0), ms(200));
    }

    /// Also of a command that left nothing pending, so that the next look is long after it.
    #[test]
    fn a_request_after_a_command_did_not_meet_it() {
        let mut quiet = Quiet::new(DEFAULTS);
        for requests_done in 0..5 {
            let idle = View { quiet: ms(10_000), requests_done, ..at(0) };
            assert_eq!(decide(&mut quiet, PolicyEvent::Woken, idle), [ISSUE]);
            let nothing_left = View { pending_units: 0, pending_extents: 0, oldest: None, ..idle };
            assert_eq!(decide(&mut quiet, ended(ms(1)), nothing_left), []);
        }
        assert_eq!(quiet.quiet, ms(100));
    }

    #[test]
    fn what_is_due_goes_one_at_a_time_and_rests() {
        let mut quiet = Quiet::new(DEFAULTS);
        let busy = |now_ms: u64, requests_done: u64| View { requests: 2, requests_done, ..at(now_ms) };
        let mut woken = |now_ms, done| decide(&mut quiet, PolicyEvent::Woken, busy(now_ms, done));
        assert_eq!(woken(59_800, 9_000), [wake_at(59_900)]);
        assert_eq!(woken(59_999, 9_000), [wake_at(60_000)]);
        assert_eq!(woken(60_000, 9_000), [ISSUE, wake_at(60_100)]);
        let in_flight = View { in_flight: 1, ..busy(60_100, 20_000) };
        assert_eq!(decide(&mut quiet, PolicyEvent::Woken, in_flight), [wake_at(60_200)]);
        assert_eq!(decide(&mut quiet, ended(ms(12)), busy(60_200, 9_001)), [wake_at(60_300)]);
        let mut woken = |now_ms, done| decide(&mut quiet, PolicyEvent::Woken, busy(now_ms, done));
        assert_eq!(woken(60_439, 20_000), [wake_at(60_440)], "of {REST} times 12 ms");
        assert_eq!(woken(60_440, 10_999), [wake_at(60_470)], "too few requests");
        assert_eq!(woken(60_470, 11_000), [ISSUE, wake_at(60_570)]);
        decide(&mut quiet, ended(ms(12)), busy(60_482, 11_000));
        let mut woken = |now_ms, done| decide(&mut quiet, PolicyEvent::Woken, busy(now_ms, done));
        assert_eq!(woken(65_481, 11_001), [wake_at(65_581)]);
        assert_eq!(woken(65_482, 11_001), [ISSUE, wake_at(65_582)], "so few requests");
    }

    #[test]
    fn what_is_due_does_not_wait_for_the_quiet_time() {
        let mut quiet = Quiet::new([60_000_000_000, 1_000_000_000]);
        let now = at(10_000);
        let fresh = View { requests: 1, oldest: Some(now.now), ..now };
        let freed = PolicyEvent::Committed { freed_units: 8 };
        assert_eq!(decide(&mut quiet, freed, fresh), [wake_at(11_000)]);
        let full = View { pending_extents: EXTENTS_MAX / 4 * 3 + 1, ..fresh };
        assert_eq!(decide(&mut quiet, freed, full), [ISSUE, wake_at(70_000)]);
    }
}
