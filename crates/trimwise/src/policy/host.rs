//! Hosting a policy: the one interpreter of [`Decision`], for any file system.
//!
//! A file system keeps a [`HostedPolicy`] and implements [`PolicyHost`]. It reports what happens: the host's traits
//! ([`PolicyEvent::Hosted`], through [`HostedPolicy::tell`]), a durable transaction ([`HostedPolicy::committed`]), an
//! acknowledged command ([`HostedPolicy::acknowledged`]), the governor's own timer ([`HostedPolicy::wake`]). Each time
//! the governor decides, and what it decided comes back as calls of the trait.
//!
//! Background TRIMs have no sleeping worker: a worker is a slot for one command in flight. The governor, told of each
//! acknowledgement, decides whether to fill the slot again.

use std::cell::{Cell, RefCell};

use super::{
    Acknowledged, Availability, Decision, DiscardGeneration, Governor, Ledger, PendingSet, PolicyEvent,
    Shape, TrimToken, View,
};
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

/// Maximum number of nested `PassOver` events at one instant.
const NESTED_MAX: u32 = 8;
/// What a host's timer does under a policy that always asks for now, for [`Sim::consume_budget`](crate::engine::Sim).
pub(crate) const WAKES_IN_THE_PAST: &str = "wakes the policy at an instant that has passed";
const EVERYWHERE: UnitRange = UnitRange { start: Lpn(0), units: u64::MAX };

/// What a file system does for a policy.
///
/// A host promises four things, and then no policy, however wrong, can lose data:
///
/// - It calls [`HostedPolicy::committed`] once the transaction that freed the blocks is durable, and allocates none of
///   them before [`PolicyHost::release`].
/// - Before it uses blocks that it has allocated, it withdraws them ([`HostedPolicy::withdraw`]).
/// - It allocates nothing between [`PolicyHost::withhold`] and [`PolicyHost::release`].
/// - In [`PolicyHost::start_trim_free`] it trims only what is allocatable, and allocates none of it meanwhile.
///
/// A method that acts later (`send`, `start_trim_free`) returns at once. None may call back into the [`HostedPolicy`]
/// before it returns, except to read what is pending. `tests/quick/policy_host.rs` is a complete host in a hundred
/// lines.
pub trait PolicyHost {
    /// Returns time, utilization and other load on the device. The interpreter fills in the rest.
    fn view(&self) -> View;
    /// Makes free blocks unallocatable until they are released.
    fn withhold(&self, range: UnitRange);
    /// Makes blocks allocatable. `is_told` says that a command about them was acknowledged.
    fn release(&self, range: UnitRange, is_told: bool);
    /// Sends one TRIM command, and calls [`HostedPolicy::acknowledged`] when the device has acknowledged it.
    fn send(&self, command: TrimCommand);
    /// Trims the allocatable extents of at least `units_min` in `range`, as FITRIM does. Notes each with
    /// [`HostedPolicy::issued_in_batch`], and tells the policy of [`PolicyEvent::Trimmed`] at the end.
    fn start_trim_free(&self, range: UnitRange, units_min: u64);
    /// Tells the device about an extent at no cost. Only a model can.
    fn reveal(&self, range: UnitRange);
    /// Notes that [`HostedPolicy::wake_at`] has changed.
    fn timer_changed(&self);
    /// Notes that extents have entered or left the pending set, other than by an allocation. Wakes tasks that wait for
    /// this.
    fn pending_changed(&self) {}
}

/// One TRIM command, to be sent as one if the link can.
#[derive(Debug)]
#[must_use = "its blocks stay withheld until it is acknowledged"]
pub struct TrimCommand {
    tokens: Vec<TrimToken>,
    runs_on: bool,
}

impl TrimCommand {
    pub fn ranges(&self) -> Vec<UnitRange> {
        self.tokens.iter().map(TrimToken::range).collect()
    }

    pub fn units(&self) -> u64 {
        self.tokens.iter().map(|token| token.range().units).sum()
    }

    /// Returns true if the last extent runs on through the free space after it ([`Shape::runs_on`]).
    pub fn runs_on(&self) -> bool {
        self.runs_on
    }
}

/// The TRIMs that a commit must wait for before it is declared done: all pending extents, taken with
/// [`HostedPolicy::take`] and given back with [`HostedPolicy::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InCommit {
    Nothing,
    OneByOne,
    Together,
}

/// A policy at work on a host: the governor, the pending set, and the decisions in progress.
pub struct HostedPolicy {
    governor: RefCell<Box<dyn Governor>>,
    availability: Availability,
    pending: RefCell<PendingSet>,
    wake_at: Cell<Option<SimTime>>,
    in_flight: Cell<u32>,
    cursor: Cell<Lpn>,
    nested: Cell<u32>,
    is_stopped: Cell<bool>,
}

impl HostedPolicy {
    /// A policy that has not been told of its host yet.
    pub fn new(governor: Box<dyn Governor>, kernel: DiscardGeneration) -> Self {
        let (availability, merges) = (governor.availability(kernel), governor.merges());
        Self::with(governor, availability, merges)
    }

    /// A policy below a file system, where freed space is what the file system discards. Extents merge there under
    /// every policy, and a write takes its range out of the set.
    pub(crate) fn of_discards(governor: Box<dyn Governor>) -> Self {
        Self::with(governor, Availability::AfterCommit, true)
    }

    fn with(governor: Box<dyn Governor>, availability: Availability, merges: bool) -> Self {
        let pending = if governor.takes_oldest_first() {
            PendingSet::oldest_first()
        } else if governor.takes_in_order() && !merges {
            PendingSet::in_order()
        } else {
            PendingSet::new(merges)
        };
        Self {
            availability,
            pending: RefCell::new(pending),
            governor: RefCell::new(governor),
            wake_at: Cell::new(None),
            in_flight: Cell::new(0),
            cursor: Cell::new(Lpn(0)),
            nested: Cell::new(0),
            is_stopped: Cell::new(false),
        }
    }

    /// When freed blocks may be allocated again.
    pub fn availability(&self) -> Availability {
        self.availability
    }

    /// Notes that these blocks are in use from now on: they may not be trimmed, and no longer count as untrimmed.
    #[inline]
    pub fn withdraw(&self, range: UnitRange) {
        let mut pending = self.pending.borrow_mut();
        if pending.units() > 0 || pending.untrimmed_units() > 0 {
            pending.withdraw(range);
        }
    }

    /// Finds `want` units in one pending extent, at `goal` or after it; `None` if none of the next extents is long
    /// enough.
    pub fn fit(&self, goal: Lpn, want: u64) -> Option<UnitRange> {
        self.pending.borrow().fit(goal, want)
    }

    /// Notes that a batch TRIM of free space covers `range`, which is no longer pending or untrimmed.
    pub fn issued_in_batch(&self, range: UnitRange) {
        self.pending.borrow_mut().issued_in_batch(range);
    }

    /// Notes a freed extent that the device was told of at once, past the governor.
    pub(crate) fn passed_on(&self, range: UnitRange) {
        self.pending.borrow_mut().passed_on(range);
    }

    /// Notes an extent that was free before accounting began. It counts as untrimmed, since what the device holds there
    /// is unknown.
    pub(crate) fn suspect(&self, range: UnitRange) {
        self.pending.borrow_mut().suspect(range);
    }

    /// Accounts for all blocks freed so far.
    pub fn ledger(&self) -> Ledger {
        self.pending.borrow().ledger()
    }

    pub(crate) fn pending_extents(&self) -> Vec<UnitRange> {
        self.pending.borrow().iter().collect()
    }

    pub(crate) fn untrimmed_units(&self) -> u64 {
        self.pending.borrow().untrimmed_units()
    }

    /// Units of which the device was not told: pending and untrimmed ones.
    pub(crate) fn untold_units(&self) -> u64 {
        let pending = self.pending.borrow();
        pending.units() + pending.untrimmed_units()
    }

    pub(crate) fn untold_extents(&self) -> Vec<UnitRange> {
        let pending = self.pending.borrow();
        pending.iter().chain(pending.untrimmed()).collect()
    }

    pub fn wake_at(&self) -> Option<SimTime> {
        self.wake_at.get()
    }

    /// Wakes the governor: the time of [`HostedPolicy::wake_at`] has come.
    pub fn wake(&self, host: &dyn PolicyHost) {
        self.wake_at.set(None);
        self.tell(host, &PolicyEvent::Woken);
    }

    pub fn stop(&self) {
        self.is_stopped.set(true);
    }

    /// Adds the blocks that a durable transaction freed to the pending set, and lets the governor decide about them.
    /// Returns what the commit must wait for.
    pub fn committed(&self, host: &dyn PolicyHost, freed: &[UnitRange]) -> InCommit {
        let now = host.view().now;
        for &range in freed {
            self.pending.borrow_mut().insert_at(range, now);
            if self.availability != Availability::AfterIssue {
                host.release(range, false);
            }
        }
        if !freed.is_empty() {
            host.pending_changed();
        }
        let freed_units = freed.iter().map(|range| range.units).sum();
        let mut in_commit = InCommit::Nothing;
        for decision in self.decisions_on(host, &PolicyEvent::Committed { freed_units }) {
            match decision {
                Decision::DropFreed => freed.iter().for_each(|&range| self.drop_range(host, range)),
                Decision::IssueInCommit { together: false } => in_commit = InCommit::OneByOne,
                Decision::IssueInCommit { together: true } => in_commit = InCommit::Together,
                other => self.carry_out(host, other),
            }
        }
        in_commit
    }

    /// Adds discards from above, as [`HostedPolicy::committed`] adds freed blocks. Parts of them may be pending or
    /// untrimmed already.
    pub(crate) fn discarded(&self, host: &dyn PolicyHost, ranges: &[UnitRange]) -> InCommit {
        self.committed(host, &self.missing(ranges))
    }

    /// Notes discards from above of which the device is told at once, past the governor. Returns the parts that must be
    /// sent: pending parts stay pending.
    pub(crate) fn passed_through(&self, ranges: &[UnitRange]) -> Vec<UnitRange> {
        let missing = self.missing(ranges);
        missing.iter().for_each(|&range| self.passed_on(range));
        missing
    }

    fn missing(&self, ranges: &[UnitRange]) -> Vec<UnitRange> {
        ranges.iter().flat_map(|&range| self.pending.borrow_mut().missing(range)).collect()
    }

    /// Returns true once the host ends. Nothing new may begin then.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// Issues what a commit must wait for. `trim` returns once the device has acknowledged its ranges.
    pub(crate) async fn issue_in_commit(
        &self,
        host: &dyn PolicyHost,
        how: InCommit,
        trim: impl AsyncFn(&[UnitRange]),
    ) {
        let at_once = match how {
            InCommit::Nothing => return,
            InCommit::OneByOne => 1,
            InCommit::Together => usize::MAX,
        };
        loop {
            let next = || self.take(host, Lpn(0), Shape::NEXT);
            let tokens: Vec<TrimToken> = std::iter::from_fn(next).take(at_once).collect();
            if tokens.is_empty() {
                return;
            }
            let ranges: Vec<UnitRange> = tokens.iter().map(TrimToken::range).collect();
            trim(&ranges).await;
            tokens.into_iter().for_each(|token| self.settle(host, token));
        }
    }

    /// Settles an acknowledged command. The device took `took` for it, as this many ranges of its own. The governor
    /// decides what comes next.
    pub fn acknowledged(&self, host: &dyn PolicyHost, command: TrimCommand, ranges: u32, took: SimDuration) {
        let units = command.units();
        for token in command.tokens {
            self.settle(host, token);
        }
        self.in_flight.set(self.in_flight.get() - 1);
        self.tell(host, &PolicyEvent::Issued(Acknowledged { ranges, units, took }));
    }

    /// Tells the governor of an event outside a commit and carries out its decisions.
    pub fn tell(&self, host: &dyn PolicyHost, event: &PolicyEvent) {
        for decision in self.decisions_on(host, event) {
            self.carry_out(host, decision);
        }
    }

    /// Takes the next pending extent of at least `units_min` in `range`, cut at the end of the range.
    pub(crate) fn take_within(
        &self,
        host: &dyn PolicyHost,
        range: UnitRange,
        units_min: u64,
    ) -> Option<TrimToken> {
        let next = self.pending.borrow().next(range.start, units_min)?;
        let left = range.end().0.checked_sub(next.start.0).filter(|&left| left > 0)?;
        self.take(host, range.start, Shape { units_min, units_max: left, ..Shape::NEXT })
    }

    pub(crate) fn pending_count(&self) -> u64 {
        self.pending.borrow().extents()
    }

    /// Takes the next pending extent of a shape from `from` on. Its blocks are withheld until the token is settled.
    pub fn take(&self, host: &dyn PolicyHost, from: Lpn, shape: Shape) -> Option<TrimToken> {
        let token = self.pending.borrow_mut().take(from, shape.units_min, shape.units_max)?;
        if self.availability != Availability::AfterIssue {
            host.withhold(token.range());
        }
        Some(token)
    }

    /// Settles a token whose TRIM the device has acknowledged. Its blocks may be allocated.
    pub fn settle(&self, host: &dyn PolicyHost, token: TrimToken) {
        let range = token.range();
        self.pending.borrow_mut().settle(token);
        host.release(range, true);
        host.pending_changed();
    }

    /// Drops everything pending, at unmount.
    pub fn drop_all(&self, host: &dyn PolicyHost) {
        self.drop_range(host, EVERYWHERE);
    }

    fn decisions_on(&self, host: &dyn PolicyHost, event: &PolicyEvent) -> Vec<Decision> {
        let mut view = host.view();
        {
            let pending = self.pending.borrow();
            view.freed_units = pending.ledger().freed;
            view.pending_units = pending.units();
            view.pending_extents = pending.extents();
            view.untrimmed_units = pending.untrimmed_units();
            view.oldest = pending.oldest().map(|(_, since)| since);
        }
        view.in_flight = self.in_flight.get();
        let mut decisions = Vec::new();
        self.governor.borrow_mut().on_event(event, &view, &mut decisions);
        decisions
    }

    fn carry_out(&self, host: &dyn PolicyHost, decision: Decision) {
        match decision {
            // These decisions apply only to a commit.
            Decision::DropFreed | Decision::IssueInCommit { .. } => {}
            Decision::WakeAt(at) => {
                self.wake_at.set(Some(at));
                host.timer_changed();
            }
            _ if self.is_stopped.get() => {}
            Decision::CatchUp => self.catch_up(host),
            Decision::Reveal => {
                while let Some(token) = self.take(host, Lpn(0), Shape::NEXT) {
                    host.reveal(token.range());
                    self.settle(host, token);
                }
            }
            Decision::Issue(shape) => self.issue(host, shape),
            Decision::TrimFree { range, units_min } => host.start_trim_free(range, units_min),
        }
    }

    fn issue(&self, host: &dyn PolicyHost, shape: Shape) {
        let mut command = TrimCommand { tokens: Vec::new(), runs_on: shape.runs_on };
        let mut left = shape.units_max.max(1);
        while command.tokens.len() < shape.ranges_max.max(1) as usize && left > 0 {
            let rest = Shape { units_max: left, ..shape };
            let Some(token) = self.take(host, self.cursor.get(), rest) else { break };
            self.cursor.set(token.range().end());
            left -= token.range().units;
            command.tokens.push(token);
        }
        let is_over = command.tokens.is_empty();
        if is_over || self.pending.borrow().units() == 0 {
            self.cursor.set(Lpn(0));
        }
        if !is_over {
            self.in_flight.set(self.in_flight.get() + 1);
            host.send(command);
        } else if self.nested.get() < NESTED_MAX {
            // The governor may ask for another kind of command. The bound stops one that keeps asking for the same.
            self.nested.set(self.nested.get() + 1);
            self.tell(host, &PolicyEvent::PassOver);
            self.nested.set(self.nested.get() - 1);
        }
    }

    /// Drops the pending part of `range`. Blocks that waited for their TRIM become allocatable.
    fn drop_range(&self, host: &dyn PolicyHost, range: UnitRange) {
        let parts = self.pending.borrow_mut().drop_range(range);
        if self.availability == Availability::AfterIssue {
            parts.into_iter().for_each(|part| host.release(part, false));
        }
        host.pending_changed();
    }

    pub(crate) fn catch_up(&self, host: &dyn PolicyHost) {
        let now = host.view().now;
        let extents = self.pending.borrow_mut().catch_up_at(now);
        if self.availability == Availability::AfterIssue {
            extents.into_iter().for_each(|range| host.withhold(range));
        }
    }
}
