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
    QUIET_EXTENTS_MAX as EXTENTS_MAX, Shape, TrimCommand, View, WAKES_IN_THE_PAST,
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
                Some(at) if self.queue.sim().now() >= at => {
                    self.queue.sim().consume_budget(WAKES_IN_THE_PAST).await;
                    target.policy.wake(&self);
                }
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
        self.queue.reveal(range);
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::block::QueueConfig;
    use crate::engine::{Budget, Sim, Standstill};
    use crate::policy::Decision;
    use crate::ssd::{LinkKind, Ssd, SsdConfig, TrimConfig, TrimKind};
    use crate::units::{Bytes, SimTime, UNIT_BYTES};

    fn range(start: u64, units: u64) -> UnitRange {
        UnitRange::new(Lpn(start), units)
    }

    fn ms(ms: u64) -> SimDuration {
        SimDuration::from_millis(ms)
    }

    /// Answers each event with what a test has put down for it, and notes what it was told.
    #[derive(Clone, Default)]
    struct Script {
        told: Rc<RefCell<Vec<(PolicyEvent, View)>>>,
        answers: Rc<RefCell<VecDeque<Vec<Decision>>>>,
    }

    impl Script {
        fn next(&self, answer: Vec<Decision>) {
            self.answers.borrow_mut().push_back(answer);
        }

        /// What it was told since the last call.
        fn heard(&self) -> Vec<(PolicyEvent, View)> {
            std::mem::take(&mut self.told.borrow_mut())
        }

        fn events(&self) -> Vec<PolicyEvent> {
            self.heard().into_iter().map(|(event, _)| event).collect()
        }
    }

    impl Governor for Script {
        fn on_event(&mut self, event: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
            self.told.borrow_mut().push((*event, *view));
            if !matches!(event, PolicyEvent::Hosted(_)) {
                decisions.extend(self.answers.borrow_mut().pop_front().unwrap_or_default());
            }
        }
    }

    /// A target on a drive of 512 MiB with 1,000 units of data, on which a TRIM takes this long next to other commands.
    fn on_target<F: Future<Output = ()> + 'static>(
        trim_ms: u64,
        test: impl FnOnce(BlockQueue, Script) -> F + 'static,
    ) {
        let mut drive = SsdConfig {
            capacity_bytes: Bytes::mib(512).0,
            trim: TrimConfig {
                kind: TrimKind::Nvme,
                max_ranges: 4,
                cost_per_command_ns: 0,
                cost_per_range_ns: 0,
                cost_per_unit_ns: 0,
                cost_per_mapped_unit_ns: 0,
                latency_per_command_ns: trim_ms * 1_000_000,
                ..SsdConfig::default().trim
            },
            ..SsdConfig::default()
        };
        drive.link.kind = LinkKind::Nvme;
        let sim = Sim::new();
        let queue = BlockQueue::new(&sim, Ssd::new(&drive, 1).unwrap(), QueueConfig::default());
        let watch = sim.clone();
        sim.spawn(async move {
            watch.sleep(SimDuration::from_secs(3600)).await;
            panic!("stuck: still running after an hour");
        });
        let on = queue.clone();
        sim.run(async move {
            on.write(range(0, 1_000)).await;
            let script = Script::default();
            on.put_target(Box::new(script.clone()), DiscardGeneration::Worker);
            test(on, script).await;
        })
        .unwrap();
    }

    /// What the device is told of, from now on.
    fn told(queue: &BlockQueue) -> Rc<RefCell<Vec<UnitRange>>> {
        let told: Rc<RefCell<Vec<UnitRange>>> = Rc::default();
        let note = Rc::clone(&told);
        queue.on_told_below(Box::new(move |range| note.borrow_mut().push(range)));
        told
    }

    fn is_mapped(queue: &BlockQueue, unit: u64) -> bool {
        queue.with_ssd(|ssd| ssd.is_mapped(Lpn(unit)))
    }

    const ISSUE: Decision = Decision::Issue(Shape::NEXT);

    #[test]
    fn a_policy_sees_the_load_what_is_in_use_and_what_waits() {
        on_target(100, |queue, script| async move {
            let sim = queue.sim().clone();
            let total_units = queue.with_ssd(Ssd::capacity_units);
            let [(PolicyEvent::Hosted(traits), _)] = script.heard()[..] else {
                panic!("not told of its host")
            };
            assert_eq!((traits.total_units, traits.ranges_max), (total_units, 4));
            sim.sleep(ms(5)).await;

            script.next(vec![ISSUE]);
            queue.trim(&[range(0, 10)]).await;
            let begin = sim.now();
            let served = queue.counts().served;
            assert_eq!((served.requests, served.bytes), (8, Bytes(1_000 * UNIT_BYTES)), "of at most 512 KiB");
            let quiet = View {
                now: begin,
                used_units: 990,
                total_units,
                freed_units: 10,
                pending_units: 10,
                pending_extents: 1,
                quiet: ms(5),
                requests_done: 8,
                served,
                ..View::default()
            };
            assert_eq!(script.heard(), [(PolicyEvent::Committed { freed_units: 10 }, quiet)]);

            // One write waits for the discard in flight, one is in the device.
            let ended: Rc<RefCell<Vec<SimTime>>> = Rc::default();
            for start in [3, 500] {
                let (ended, sim) = (Rc::clone(&ended), sim.clone());
                queue.submit_background_write(range(start, 1), move || ended.borrow_mut().push(sim.now()));
            }
            queue.trim(&[range(20, 5)]).await;
            let [(PolicyEvent::Committed { freed_units: 5 }, view)] = script.heard()[..] else { panic!() };
            let waiting = (view.requests, view.quiet, view.in_flight, view.pending_units);
            assert_eq!(waiting, (2, SimDuration::ZERO, 1, 5), "{view:?}");
            sim.sleep(ms(50)).await;
            assert_eq!(ended.borrow().len(), 1, "the one over the discard still waits");
            queue.trim(&[range(30, 5)]).await;
            let [(_, view)] = script.heard()[..] else { panic!() };
            assert_eq!((view.requests, view.quiet), (1, SimDuration::ZERO), "{view:?}");
            sim.sleep(ms(100)).await;
            let [(PolicyEvent::Issued(done), view)] = script.heard()[..] else { panic!() };
            assert_eq!((done.ranges, done.units, view.in_flight), (1, 10, 0));
            assert!(done.took >= ms(100) && done.took < ms(101), "{done:?}");
            assert!(ended.borrow()[1] >= begin + ms(100), "{ended:?}");
            let mapped = [0, 2, 3, 4, 9, 10, 20].map(|unit| is_mapped(&queue, unit));
            assert_eq!(mapped, [false, false, true, false, false, true, true]);
        });
    }

    #[test]
    fn a_write_waits_for_a_discard_in_flight_if_they_share_a_unit() {
        for (written, waits) in [
            (range(9, 1), false),
            (range(8, 2), false),
            (range(20, 1), false),
            (range(10, 1), true),
            (range(19, 1), true),
            (range(5, 6), true),
            (range(19, 5), true),
            (range(12, 2), true),
            (range(5, 30), true),
        ] {
            on_target(1_000, move |queue, script| async move {
                script.next(vec![ISSUE]);
                queue.trim(&[range(10, 10)]).await;
                let begin = queue.sim().now();
                queue.write(written).await;
                let took = queue.sim().now().since(begin);
                assert_eq!(took >= ms(1_000), waits, "{written:?} took {took:?}");
                assert!(written.iter().all(|unit| is_mapped(&queue, unit.0)), "{written:?} is lost");
            });
        }
    }

    #[test]
    fn a_write_takes_its_range_out_of_what_is_pending_before_it_is_issued() {
        for (written, issued) in [
            (range(9, 1), vec![range(10, 10)]),
            (range(10, 1), vec![range(11, 9)]),
            (range(14, 2), vec![range(10, 4), range(16, 4)]),
            (range(19, 1), vec![range(10, 9)]),
            (range(0, 40), vec![]),
        ] {
            on_target(1, move |queue, script| async move {
                let told = told(&queue);
                queue.trim(&[range(10, 10)]).await;
                queue.write(written).await;
                let ledger = queue.ledger_below().unwrap();
                let left: u64 = issued.iter().map(|range| range.units).sum();
                assert_eq!(
                    (ledger.freed, ledger.pending, ledger.reused),
                    (10, left, 10 - left),
                    "{written:?}"
                );
                script.next(vec![ISSUE, ISSUE]);
                queue.trim(&[range(900, 1)]).await;
                queue.sim().sleep(ms(10)).await;
                script.next(vec![ISSUE, ISSUE, ISSUE]);
                queue.trim(&[range(950, 1)]).await;
                queue.sim().sleep(ms(10)).await;
                let mut found = told.borrow().clone();
                found.sort_unstable();
                assert_eq!(found, [issued, vec![range(900, 1), range(950, 1)]].concat(), "{written:?}");
            });
        }
    }

    #[test]
    fn a_policy_is_woken_at_the_last_instant_that_it_asked_for() {
        on_target(1, |queue, script| async move {
            let sim = queue.sim().clone();
            let begin = sim.now();
            let commit = async |asks_ms: u64| {
                script.next(vec![Decision::WakeAt(begin + ms(asks_ms))]);
                queue.trim(&[range(asks_ms, 1)]).await;
            };
            script.heard();
            commit(7).await;
            commit(3).await;
            sim.sleep(ms(20)).await;
            let woken = |heard: Vec<(PolicyEvent, View)>| {
                let woken = heard.into_iter().filter(|(event, _)| *event == PolicyEvent::Woken);
                woken.map(|(_, view)| view.now).collect::<Vec<_>>()
            };
            assert_eq!(woken(script.heard()), [begin + ms(3)], "not at 7 ms");
            commit(5).await;
            sim.sleep(ms(1)).await;
            assert_eq!(woken(script.heard()), [begin + ms(20)], "at once, since 5 ms have passed");
            script.next(vec![Decision::WakeAt(begin + ms(40))]);
            commit(30).await;
            sim.sleep(ms(8)).await;
            assert_eq!(woken(script.heard()), [], "29 ms");
        });
    }

    #[test]
    fn a_policy_that_asks_for_an_instant_that_has_passed_ends_the_run() {
        struct Restless;

        impl Governor for Restless {
            fn on_event(&mut self, _: &PolicyEvent, view: &View, decisions: &mut Vec<Decision>) {
                decisions.push(Decision::WakeAt(view.now));
            }
        }

        let sim = Sim::new();
        sim.set_budget(Budget { at_an_instant: 1_000, ..Budget::default() });
        let ssd = Ssd::new(&SsdConfig::default(), 1).unwrap();
        let queue = BlockQueue::new(&sim, ssd, QueueConfig::default());
        let run = async move {
            queue.put_target(Box::new(Restless), DiscardGeneration::Worker);
            queue.sim().sleep(ms(1)).await;
        };
        let stalled = sim.run(run).unwrap_err();
        assert_eq!(stalled.why, Standstill::Spinning { doing: WAKES_IN_THE_PAST });
    }

    #[test]
    fn a_removal_issues_for_a_second_and_reports_the_rest() {
        for (extents, took_ms, left) in
            [(0, 0, 0), (1, 400, 0), (2, 800, 0), (3, 1_200, 0), (4, 1_200, 8), (5, 1_200, 16)]
        {
            on_target(400, move |queue, script| async move {
                let told = told(&queue);
                let discarded: Vec<UnitRange> = (0..extents).map(|at| range(at * 20, 8)).collect();
                queue.trim(&discarded).await;
                script.heard();
                let begin = queue.sim().now();
                assert_eq!(queue.remove_target().await, left, "{extents} extents");
                let took = queue.sim().now().since(begin);
                assert!(took >= ms(took_ms) && took < ms(took_ms + 5), "{extents} extents: {took:?}");
                let issued = extents - left / 8;
                assert_eq!(*told.borrow(), discarded[..issued as usize], "{extents} extents");
                assert_eq!(queue.ledger_below(), None, "there is no target any more");
                assert_eq!(script.events(), [], "a policy that is removed decides on nothing");
                // Discards reach the device again by themselves.
                queue.trim(&[range(900, 1)]).await;
                assert!(!is_mapped(&queue, 900));
            });
        }
    }

    #[test]
    fn a_sweep_trims_what_was_discarded_or_dropped_in_its_range() {
        for (swept, units_min, issued) in [
            (range(0, 45), 1, vec![range(0, 10), range(20, 10), range(40, 5)]),
            (range(5, 1_000), 1, vec![range(5, 5), range(20, 10), range(40, 12)]),
            (range(0, 1_000), 11, vec![range(40, 12)]),
            (range(0, 1_000), 13, vec![]),
            (range(60, 100), 1, vec![]),
        ] {
            on_target(10, move |queue, script| async move {
                let told = told(&queue);
                script.next(vec![Decision::DropFreed]);
                queue.trim(&[range(0, 10), range(40, 12)]).await;
                assert_eq!(queue.ledger_below().unwrap().dropped, 22);
                script.next(vec![Decision::TrimFree { range: swept, units_min }]);
                queue.trim(&[range(20, 10)]).await;
                script.heard();
                let begin = queue.sim().now();
                queue.sim().sleep(ms(100)).await;
                let case = format!("{swept:?} of at least {units_min}");
                assert_eq!(*told.borrow(), issued, "{case}");
                let units = issued.iter().map(|range| range.units).sum();
                let [(event, view)] = script.heard()[..] else { panic!("{case}") };
                assert_eq!(event, PolicyEvent::Trimmed { units }, "{case}");
                let took = view.now.since(begin);
                let one_by_one = ms(10) * issued.len() as u64;
                assert!(took >= one_by_one && took < one_by_one + ms(1), "{case}: {took:?}");
                let ledger = queue.ledger_below().unwrap();
                assert_eq!((ledger.issued, ledger.dropped), (units, 0), "{case}: {ledger:?}");
            });
        }
    }

    #[test]
    fn a_revealed_extent_costs_nothing() {
        on_target(10, |queue, script| async move {
            script.next(vec![Decision::Reveal]);
            queue.trace(Some(Box::new(|_, _, command| panic!("{command:?}"))));
            let begin = queue.sim().now();
            queue.trim(&[range(0, 10)]).await;
            assert_eq!(queue.sim().now(), begin);
            assert_eq!([9, 10].map(|unit| is_mapped(&queue, unit)), [false, true]);
            assert_eq!(queue.ledger_below().unwrap().issued, 10);
        });
    }

    #[test]
    fn a_discard_that_finds_the_memory_full_goes_to_the_device_at_once() {
        on_target(10, |queue, _| async move {
            let told = told(&queue);
            let all: Vec<UnitRange> = (0..EXTENTS_MAX - 1).map(|at| range(2_000 + at * 2, 1)).collect();
            let host = Host { queue: queue.clone(), target: queue.target().unwrap() };
            host.target.policy.committed(&host, &all);
            for (start, took) in [(0, ms(0)), (10, ms(10))] {
                let begin = queue.sim().now();
                queue.trim(&[range(start, 1)]).await;
                let since = queue.sim().now().since(begin);
                assert!(since >= took && since < took + ms(1), "{start}: {since:?}");
            }
            assert_eq!(*told.borrow(), [range(10, 1)]);
            let ledger = queue.ledger_below().unwrap();
            assert_eq!((ledger.pending, ledger.issued), (EXTENTS_MAX, 1));
        });
    }
}
