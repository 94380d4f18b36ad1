//! A device-mapper target between a file system and its device, as `kernel/dm-trim` is: lazy TRIM below any file
//! system.
//!
//! A discard is complete once it is in the pending set. A write takes its range out of the set; a write over a discard
//! in flight waits for that discard alone. Nothing else waits: no read, and no flush, because a discard promises
//! nothing. Any [`Governor`] decides what is issued, and when.
//!
//! **Architecture invariant:** the target never trims data written after their discard. It issues only tokens out of
//! the pending set, or, if the set is full, a discard as it comes; a write withdraws its range first, and no write
//! reaches the device while a discard of the same units is in flight.
//!
//! The target also knows how much of the device is in use, for policies that ask: what is mapped, but not pending.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{BlockQueue, OnDone};
use crate::engine::Event;
use crate::policy::{
    DiscardGeneration, Governor, HostTraits, HostedPolicy, InCommit, Ledger, PolicyEvent, PolicyHost,
    QUIET_EXTENTS_MAX as EXTENTS_MAX, Shape, TrimCommand, View,
};
use crate::units::{Lpn, SimDuration, UnitRange};

/// How long an unmount waits for pending discards (`drain_ms=`). The rest is dropped.
const DRAIN: SimDuration = SimDuration::from_secs(1);

type OnTold = Box<dyn Fn(UnitRange)>;
type Send = Box<dyn FnOnce(&BlockQueue)>;

pub(super) struct Target {
    policy: HostedPolicy,
    flying: RefCell<Vec<Flying>>,
    landed: Event,
    timer: Event,
    is_stopped: Cell<bool>,
    on_told: RefCell<Option<OnTold>>,
    #[cfg(feature = "sabotage")]
    fault: Cell<Option<TargetFault>>,
}

/// A discard in flight, with the writes that wait for it.
struct Flying {
    ranges: Rc<[UnitRange]>,
    waiters: Vec<(UnitRange, Send)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFault {
    /// A write does not take its range out of the pending set.
    KeepsWhatIsWritten,
    /// A write over a discard in flight does not wait for it.
    OvertakesDiscards,
}

impl Target {
    fn waiting(&self) -> usize {
        self.flying.borrow().iter().map(|flying| flying.waiters.len()).sum()
    }

    #[cfg(not(feature = "sabotage"))]
    fn has_fault(&self, _fault: TargetFault) -> bool {
        false
    }

    #[cfg(feature = "sabotage")]
    fn has_fault(&self, fault: TargetFault) -> bool {
        self.fault.get() == Some(fault)
    }

    /// Sends a write of `range`, now or when the discard in its way has ended.
    pub fn write(&self, queue: &BlockQueue, range: UnitRange, send: impl FnOnce(&BlockQueue) + 'static) {
        if !self.has_fault(TargetFault::KeepsWhatIsWritten) {
            self.policy.withdraw(range);
        }
        let overlaps = |other: &UnitRange| other.start < range.end() && range.start < other.end();
        let mut flying = self.flying.borrow_mut();
        let in_the_way = flying.iter_mut().find(|flying| flying.ranges.iter().any(overlaps));
        match in_the_way.filter(|_| !self.has_fault(TargetFault::OvertakesDiscards)) {
            Some(flying) => flying.waiters.push((range, Box::new(send))),
            None => {
                drop(flying);
                send(queue);
            }
        }
    }

    /// Takes a discard. It completes at once unless the policy issues within commits.
    pub fn discard(self: &Rc<Self>, queue: &BlockQueue, ranges: &[UnitRange], on_done: Vec<OnDone>) {
        let host = Host { queue: queue.clone(), target: Rc::clone(self) };
        let end = move || on_done.into_iter().for_each(|on_done| on_done(SimDuration::ZERO));
        if self.policy.pending_count() >= EXTENTS_MAX {
            // There is no memory for it, so it goes to the device at once (`full=pass`).
            let ranges = host.take_off(&self.policy.passed_through(ranges));
            queue.sim().spawn(async move {
                host.fly(ranges).await;
                end();
            });
            return;
        }
        match self.policy.discarded(&host, ranges) {
            InCommit::Nothing => end(),
            how => queue.sim().spawn(async move {
                host.target.policy.issue_in_commit(&host, how, async |ranges| host.issue(ranges).await).await;
                end();
            }),
        }
    }
}

#[derive(Clone)]
struct Host {
    queue: BlockQueue,
    target: Rc<Target>,
}

impl Host {
    /// Makes the device discard `ranges`. Meanwhile no write reaches them.
    async fn issue(&self, ranges: &[UnitRange]) {
        self.fly(self.take_off(ranges)).await;
    }

    /// Makes writes of these ranges wait, as soon as the ranges are taken out of the set.
    fn take_off(&self, ranges: &[UnitRange]) -> Rc<[UnitRange]> {
        let ranges: Rc<[UnitRange]> = ranges.into();
        let flying = Flying { ranges: Rc::clone(&ranges), waiters: Vec::new() };
        self.target.flying.borrow_mut().push(flying);
        ranges
    }

    async fn fly(&self, ranges: Rc<[UnitRange]>) {
        self.queue.trim_below_target(&ranges).await;
        let landed = {
            let mut flying = self.target.flying.borrow_mut();
            let at = flying.iter().position(|flying| Rc::ptr_eq(&flying.ranges, &ranges));
            at.map(|at| flying.remove(at))
        };
        if let Some(on_told) = &*self.target.on_told.borrow() {
            ranges.iter().for_each(|&range| on_told(range));
        }
        // Treat the waiting writes as if they came only now: they may meet another discard, or a range discarded since.
        for (range, send) in landed.into_iter().flat_map(|flying| flying.waiters) {
            self.target.write(&self.queue, range, send);
        }
        self.queue.dispatch();
        self.target.landed.notify_all();
    }

    async fn timer(self) {
        let target = &self.target;
        while !target.is_stopped.get() {
            match target.policy.wake_at() {
                None => target.timer.wait().await,
                Some(at) if self.queue.sim().now() >= at => target.policy.wake(&self),
                Some(at) => {
                    target.timer.wait_until(at).await;
                }
            }
        }
    }
}

impl PolicyHost for Host {
    fn view(&self) -> View {
        let load = self.queue.load();
        let waiting = self.target.waiting() as u32;
        let (mapped, total_units) = self.queue.with_ssd(|ssd| (ssd.mapped_units(), ssd.capacity_units()));
        View {
            now: self.queue.sim().now(),
            used_units: mapped.saturating_sub(self.target.policy.untold_units()),
            total_units,
            requests: load.requests + waiting,
            quiet: if waiting > 0 { SimDuration::ZERO } else { load.quiet },
            requests_done: load.done,
            served: self.queue.counts().served,
            ..View::default()
        }
    }

    fn withhold(&self, _: UnitRange) {}
    fn release(&self, _: UnitRange, _is_told: bool) {}

    fn send(&self, command: TrimCommand) {
        let (host, begin) = (self.clone(), self.queue.sim().now());
        let ranges = self.take_off(&command.ranges());
        self.queue.sim().spawn(async move {
            host.fly(Rc::clone(&ranges)).await;
            let took = host.queue.sim().now().since(begin);
            let ranges = host.queue.with_ssd(|ssd| ssd.config().trim.ranges(&ranges));
            host.target.policy.acknowledged(&host, command, ranges, took);
        });
    }

    fn start_trim_free(&self, range: UnitRange, units_min: u64) {
        let host = self.clone();
        self.queue.sim().spawn(async move {
            let policy = &host.target.policy;
            if policy.is_stopped() {
                return;
            }
            // Only discarded space is known to be free. Dropped discards are free too.
            policy.catch_up(&host);
            let (mut at, mut units) = (range.start, 0);
            while !policy.is_stopped()
                && let Some(token) = policy.take_within(&host, UnitRange::between(at, range.end()), units_min)
            {
                (at, units) = (token.range().end(), units + token.range().units);
                host.issue(&[token.range()]).await;
                policy.settle(&host, token);
            }
            policy.tell(&host, &PolicyEvent::Trimmed { units });
        });
    }

    fn reveal(&self, range: UnitRange) {
        self.queue.with_ssd_mut(|ssd| ssd.inform_free(range));
    }

    fn timer_changed(&self) {
        self.target.timer.notify_all();
    }
}

impl BlockQueue {
    /// Puts a target with this policy over the device, on a host with this kernel, until it is removed. There must be
    /// no other target.
    pub fn put_target(&self, governor: Box<dyn Governor>, kernel: DiscardGeneration) {
        let event = || Event::new(self.sim());
        let target = Rc::new(Target {
            policy: HostedPolicy::of_discards(governor),
            flying: RefCell::default(),
            landed: event(),
            timer: event(),
            is_stopped: Cell::new(false),
            on_told: RefCell::default(),
            #[cfg(feature = "sabotage")]
            fault: Cell::new(None),
        });
        *self.0.target.borrow_mut() = Some(Rc::clone(&target));
        let host = Host { queue: self.clone(), target };
        let depth = self.admission().trim_depth();
        let traits = self.with_ssd(|ssd| HostTraits::below_file_system(ssd, kernel, depth));
        host.target.policy.tell(&host, &PolicyEvent::Hosted(traits));
        self.sim().spawn(host.timer());
    }

    pub(super) fn target(&self) -> Option<Rc<Target>> {
        self.0.target.borrow().clone()
    }

    /// Calls `on_told` whenever the target has told the device of a range.
    pub(crate) fn on_told_below(&self, on_told: OnTold) {
        if let Some(target) = self.target() {
            *target.on_told.borrow_mut() = Some(on_told);
        }
    }

    /// Accounts for all discarded blocks; `None` without a target.
    pub(crate) fn ledger_below(&self) -> Option<Ledger> {
        self.target().map(|target| target.policy.ledger())
    }

    /// Breaks the target from now on; `None` mends it.
    #[cfg(feature = "sabotage")]
    pub fn break_target(&self, fault: Option<TargetFault>) {
        if let Some(target) = self.target() {
            target.fault.set(fault);
        }
    }

    /// Removes the target, if there is one. Issues pending discards for a second, and drops the rest. Returns the units
    /// of which the device was never told.
    pub(crate) async fn remove_target(&self) -> u64 {
        let Some(target) = self.target() else { return 0 };
        let host = Host { queue: self.clone(), target: Rc::clone(&target) };
        let until = self.sim().now() + DRAIN;
        let is_flying = || !target.flying.borrow().is_empty();
        target.policy.stop();
        while self.sim().now() < until {
            if is_flying() {
                target.landed.wait_until(until).await;
            } else if let Some(token) = target.policy.take(&host, Lpn(0), Shape::NEXT) {
                let (host, ranges) = (host.clone(), host.take_off(&[token.range()]));
                self.sim().spawn(async move {
                    host.fly(ranges).await;
                    host.target.policy.settle(&host, token);
                });
            } else {
                break;
            }
        }
        target.policy.drop_all(&host);
        while is_flying() {
            target.landed.wait().await;
        }
        target.is_stopped.set(true);
        target.timer.notify_all();
        self.sim().yield_now().await;
        self.0.target.borrow_mut().take();
        target.policy.untold_units()
    }
}
