//! A policy on a trace: what stands where a file system would.
//!
//! A trace is a host with two limits. It fixes where files lie, so no policy can make the file system allocate other
//! blocks: whatever is allocated or written again is taken out of what waits for its TRIM, under every availability
//! rule. And of free space it knows only what was freed while it was recorded: a batch TRIM covers that, and a TRIM that
//! runs on behind its extent ends with it.
//!
//! A write behind a TRIM in flight needs no care: the drive takes commands in the order in which they are sent.

use std::collections::BinaryHeap;

use super::input::Waiting;
use crate::block::{Port, PortRequest};
use crate::policy::{
    Acknowledged, Decision, DiscardGeneration, Governor, HostTraits, Ledger, PendingSet, PolicyEvent, Shape,
    TrimToken, View,
};
use crate::units::{Lpn, SectorRange, SimTime, UnitRange};

/// Units of a block group of 128 MiB: no TRIM crosses its border.
const GROUP_UNITS: u64 = 32_768;
/// Maximum number of nested `PassOver` events.
const NESTED_MAX: u32 = 8;

/// What follows when a TRIM is acknowledged.
#[derive(Debug)]
enum Next {
    /// The governor is told.
    Tell,
    /// The next one of a commit that issues them one after the other.
    InCommit,
    /// The next extent of a batch, from here to there, at least so long; so many units were issued before.
    Batch { range: UnitRange, units_min: u64, units: u64 },
    /// Nothing.
    Nothing,
}

#[derive(Debug)]
struct InFlight {
    tokens: Vec<TrimToken>,
    sent: SimTime,
    next: Next,
}

/// A policy at work on a trace.
pub(super) struct Hosted {
    governor: Box<dyn Governor>,
    pending: PendingSet,
    /// Freed by the transaction that is running; extents that touch are one, as ext4 merges them.
    freed: PendingSet,
    in_flight: BinaryHeap<Waiting<InFlight>>,
    sent: u64,
    wake_at: Option<SimTime>,
    cursor: Lpn,
    nested: u32,
    /// When the last request of the trace will have completed.
    pub busy_until: SimTime,
}

impl Hosted {
    /// Tells the governor about its host.
    pub fn new(
        governor: Box<dyn Governor>,
        kernel: DiscardGeneration,
        port: &mut Port,
        now: SimTime,
    ) -> Self {
        let pending = PendingSet::new(governor.merges());
        let mut hosted = Self {
            governor,
            pending,
            freed: PendingSet::new(true),
            in_flight: BinaryHeap::new(),
            sent: 0,
            wake_at: None,
            cursor: Lpn(0),
            nested: 0,
            busy_until: now,
        };
        let (trim, link) = (&port.drive().ssd().config().trim, &port.drive().ssd().config().link);
        let traits = HostTraits {
            kernel,
            trim_depth: if trim.is_queued() { link.queue_depth } else { 1 },
            ranges_max: trim.max_ranges,
            range_units_max: trim.max_units_per_range.into(),
            total_units: port.drive().ssd().capacity_units(),
            group_units: GROUP_UNITS,
        };
        hosted.tell(port, now, &PolicyEvent::Hosted(traits));
        hosted
    }

    /// Where freed units went.
    pub fn ledger(&self) -> Ledger {
        self.pending.ledger()
    }

    /// Units that are free in the file system and hold data in the device.
    pub fn stale_units(&self, port: &Port) -> u64 {
        let ssd = port.drive().ssd();
        let known = self.pending.iter().chain(self.pending.untrimmed());
        known.map(|range| range.iter().filter(|unit| ssd.is_mapped(*unit)).count() as u64).sum()
    }

    /// These units are in use from now on.
    #[inline]
    pub fn used(&mut self, range: UnitRange) {
        if self.pending.units() > 0 || self.pending.untrimmed_units() > 0 {
            self.pending.withdraw(range);
        }
        if self.freed.units() > 0 {
            self.freed.withdraw(range);
        }
    }

    /// The running transaction frees these units.
    pub fn free(&mut self, range: UnitRange) {
        // What is freed twice is free once.
        self.used(range);
        self.freed.insert(range);
    }

    /// The running transaction is durable.
    pub fn committed(&mut self, port: &mut Port, now: SimTime) {
        let freed: Vec<UnitRange> =
            std::mem::replace(&mut self.freed, PendingSet::new(true)).iter().collect();
        for &range in &freed {
            self.pending.insert(range);
        }
        let freed_units = freed.iter().map(|range| range.units).sum();
        for decision in self.decisions_on(port, now, &PolicyEvent::Committed { freed_units }) {
            match decision {
                Decision::DropFreed => {
                    for &range in &freed {
                        self.pending.drop_range(range);
                    }
                }
                Decision::IssueInCommit { together: false } => self.issue_in_commit(port, now),
                Decision::IssueInCommit { together: true } => {
                    let next = || self.take(Lpn(0), Shape::NEXT);
                    let tokens: Vec<TrimToken> = std::iter::from_fn(next).collect();
                    self.send(port, now, tokens, Next::Nothing);
                }
                other => self.carry_out(port, now, other),
            }
        }
    }

    /// Lets everything happen that happens up to `until`.
    #[inline]
    pub fn advance(&mut self, port: &mut Port, until: SimTime) {
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            match self.in_flight.peek() {
                Some(first) if first.at <= at.0 => {
                    if let Some(Waiting { item, .. }) = self.in_flight.pop() {
                        self.acknowledged(port, at, item);
                    }
                }
                _ => {
                    self.wake_at = None;
                    self.tell(port, at, &PolicyEvent::Woken);
                }
            }
        }
    }

    fn next_event(&self) -> Option<SimTime> {
        let done = self.in_flight.peek().map(|first| SimTime(first.at));
        [done, self.wake_at].into_iter().flatten().min()
    }

    fn acknowledged(&mut self, port: &mut Port, now: SimTime, command: InFlight) {
        let range_max = u64::from(port.drive().ssd().config().trim.max_units_per_range.max(1));
        let (mut units, mut ranges) = (0, 0);
        for token in command.tokens {
            units += token.range().units;
            ranges += token.range().units.div_ceil(range_max) as u32;
            self.pending.settle(token);
        }
        match command.next {
            Next::Tell => {
                let took = now.since(command.sent);
                self.tell(port, now, &PolicyEvent::Issued(Acknowledged { ranges, units, took }));
            }
            Next::InCommit => self.issue_in_commit(port, now),
            Next::Batch { range, units_min, units: before } => {
                self.trim_free(port, now, range, units_min, before + units);
            }
            Next::Nothing => {}
        }
    }

    fn issue_in_commit(&mut self, port: &mut Port, now: SimTime) {
        if let Some(token) = self.take(Lpn(0), Shape::NEXT) {
            self.send(port, now, vec![token], Next::InCommit);
        }
    }

    fn decisions_on(&mut self, port: &Port, now: SimTime, event: &PolicyEvent) -> Vec<Decision> {
        let ssd = port.drive().ssd();
        let waiting = self.pending.units() + self.pending.untrimmed_units();
        let view = View {
            now,
            used_units: ssd.mapped_units().saturating_sub(waiting),
            total_units: ssd.capacity_units(),
            pending_units: self.pending.units(),
            pending_extents: self.pending.extents(),
            untrimmed_units: self.pending.untrimmed_units(),
            in_flight: self.in_flight.iter().filter(|one| matches!(one.item.next, Next::Tell)).count() as u32,
            requests: u32::from(self.busy_until > now),
            quiet: now.since(self.busy_until),
        };
        let mut decisions = Vec::new();
        self.governor.on_event(event, &view, &mut decisions);
        decisions
    }

    fn tell(&mut self, port: &mut Port, now: SimTime, event: &PolicyEvent) {
        for decision in self.decisions_on(port, now, event) {
            self.carry_out(port, now, decision);
        }
    }

    fn carry_out(&mut self, port: &mut Port, now: SimTime, decision: Decision) {
        match decision {
            // These apply only to a commit.
            Decision::DropFreed | Decision::IssueInCommit { .. } => {}
            Decision::CatchUp => drop(self.pending.catch_up()),
            Decision::Reveal => {
                while let Some(token) = self.take(Lpn(0), Shape::NEXT) {
                    port.drive_mut().ssd_mut().inform_free(token.range());
                    self.pending.settle(token);
                }
            }
            // Later than now, so that a governor cannot stop time.
            Decision::WakeAt(at) => self.wake_at = Some(SimTime(at.0.max(now.0 + 1))),
            Decision::Issue(shape) => self.issue(port, now, shape),
            Decision::TrimFree { range, units_min } => {
                self.pending.catch_up();
                self.trim_free(port, now, range, units_min, 0);
            }
        }
    }

    fn issue(&mut self, port: &mut Port, now: SimTime, shape: Shape) {
        let mut tokens: Vec<TrimToken> = Vec::new();
        let mut left = shape.units_max.max(1);
        while tokens.len() < shape.ranges_max.max(1) as usize && left > 0 {
            let Some(token) = self.take(self.cursor, Shape { units_max: left, ..shape }) else { break };
            self.cursor = token.range().end();
            left -= token.range().units;
            tokens.push(token);
        }
        if tokens.is_empty() || self.pending.units() == 0 {
            self.cursor = Lpn(0);
        }
        if !tokens.is_empty() {
            self.send(port, now, tokens, Next::Tell);
        } else if self.nested < NESTED_MAX {
            self.nested += 1;
            self.tell(port, now, &PolicyEvent::PassOver);
            self.nested -= 1;
        }
    }

    /// Issues the next extent of a batch, or tells the governor that it has ended.
    fn trim_free(&mut self, port: &mut Port, now: SimTime, range: UnitRange, units_min: u64, units: u64) {
        let inside = |next: &UnitRange| next.start < range.end();
        if self.pending.next(range.start, units_min).filter(inside).is_none() {
            return self.tell(port, now, &PolicyEvent::Trimmed { units });
        }
        let border = |start: u64| group_end(start).min(range.end().0);
        let Some(token) = self.pending.take(range.start, units_min, u64::MAX, border) else { return };
        let end = token.range().end();
        let range = UnitRange::new(end, range.end().0.saturating_sub(end.0));
        self.send(port, now, vec![token], Next::Batch { range, units_min, units });
    }

    fn take(&mut self, from: Lpn, shape: Shape) -> Option<TrimToken> {
        self.pending.take(from, shape.units_min, shape.units_max, group_end)
    }

    fn send(&mut self, port: &mut Port, now: SimTime, tokens: Vec<TrimToken>, next: Next) {
        if tokens.is_empty() {
            return;
        }
        let ranges: Vec<SectorRange> = tokens.iter().map(|token| token.range().into()).collect();
        // A drive without TRIM is refused before the run, and the ranges lie on the drive.
        let done = port.submit(now, &PortRequest::Discard(ranges)).unwrap_or(now);
        self.sent += 1;
        self.in_flight.push(Waiting {
            at: done.0,
            number: self.sent,
            item: InFlight { tokens, sent: now, next },
        });
    }
}

fn group_end(block: u64) -> u64 {
    (block / GROUP_UNITS + 1) * GROUP_UNITS
}
