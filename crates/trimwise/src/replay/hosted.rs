//! A policy on a trace, which takes the place of a file system.
//!
//! A trace is a host with two limits. It fixes where files lie, so no policy can make the file system allocate other
//! blocks: units that are allocated or written again are removed from those that wait for their TRIM, under every
//! availability rule. And it knows only the free space that was freed during the recording: a batch TRIM covers that
//! space, and a TRIM that runs on after its extent ends with it.
//!
//! A write after a TRIM in flight needs no care: the drive takes commands in the order in which they are sent.

use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;

use crate::block::{Port, PortRequest};
use crate::policy::{
    DiscardGeneration, HostTraits, HostedPolicy, InCommit, Ledger, PendingSet, Policy, PolicyEvent,
    PolicyHost, Served, Shape, TrimCommand, TrimToken, View,
};
use crate::trace::input::Waiting;
use crate::units::{Bytes, Lpn, SimDuration, SimTime, UnitRange};

/// TRIMs in the drive, and the steps that follow their acknowledgement.
#[derive(Debug)]
enum InFlight {
    /// A command of the governor's, which is told of it, with its time of submission.
    Issued(TrimCommand, SimTime),
    /// One TRIM of a commit that waits for each of its TRIMs.
    OneByOne(TrimToken),
    Together(Vec<TrimToken>),
    /// One TRIM of a batch, with the remainder of the batch.
    Batch(TrimToken, Batch),
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    range: UnitRange,
    units_min: u64,
    units: u64,
}

struct Host<'p> {
    port: RefCell<&'p mut Port>,
    now: Cell<SimTime>,
    busy_until: Cell<SimTime>,
    /// Time in which there were requests in the drive, once those so far have completed.
    busy: Cell<SimDuration>,
    requests: Cell<u64>,
    in_flight: RefCell<BinaryHeap<Waiting<InFlight>>>,
    sent: Cell<u64>,
    batches: RefCell<Vec<Batch>>,
    /// Units in the set that a policy fills, for the view.
    waiting_units: Cell<u64>,
}

impl Host<'_> {
    fn submit(&self, ranges: &[UnitRange], then: InFlight) {
        let (now, number) = (self.now.get(), self.sent.get() + 1);
        self.sent.set(number);
        let request = PortRequest::Discard(ranges.iter().map(|range| (*range).into()).collect());
        // A drive without TRIM is refused before the run, and the ranges lie on the drive.
        let done = self.port.borrow_mut().submit(now, &request).unwrap_or(now);
        self.in_flight.borrow_mut().push(Waiting { at: done.0, number, item: then });
    }
}

impl PolicyHost for Host<'_> {
    fn view(&self) -> View {
        let port = self.port.borrow();
        let (ssd, now) = (port.drive().ssd(), self.now.get());
        let in_device = u32::from(self.busy_until.get() > now);
        let (counts, busy) = (port.counts(), self.busy.get() - self.busy_until.get().since(now));
        View {
            now,
            used_units: ssd.mapped_units().saturating_sub(self.waiting_units.get()),
            total_units: ssd.capacity_units(),
            requests: in_device,
            quiet: now.since(self.busy_until.get()),
            requests_done: self.requests.get() - u64::from(in_device),
            served: Served {
                requests: counts.reads + counts.writes,
                bytes: Bytes(counts.read_bytes + counts.written_bytes),
                time: busy,
                busy,
            },
            ..View::default()
        }
    }

    fn withhold(&self, _: UnitRange) {}
    fn release(&self, _: UnitRange, _is_told: bool) {}

    fn send(&self, command: TrimCommand) {
        let ranges = command.ranges();
        self.submit(&ranges, InFlight::Issued(command, self.now.get()));
    }

    fn start_trim_free(&self, range: UnitRange, units_min: u64) {
        self.batches.borrow_mut().push(Batch { range, units_min, units: 0 });
    }

    fn reveal(&self, range: UnitRange) {
        self.port.borrow_mut().drive_mut().ssd_mut().inform_free(range);
    }

    fn timer_changed(&self) {}
}

pub(super) struct Hosted<'p> {
    policy: HostedPolicy,
    host: Host<'p>,
    /// Units freed by the running transaction. Extents that touch are one, as ext4 merges them.
    freed: PendingSet,
}

impl<'p> Hosted<'p> {
    pub fn new(policy: &Policy, kernel: DiscardGeneration, port: &'p mut Port, now: SimTime) -> Self {
        let (ssd, depth) = (port.drive().ssd(), port.admission().trim_depth());
        // A file system above a target discards whatever a commit freed.
        let (policy, traits) = match policy.target() {
            Some(target) => {
                (HostedPolicy::of_discards(target), HostTraits::below_file_system(ssd, kernel, depth))
            }
            None => (HostedPolicy::new(policy.governor(), kernel), HostTraits::of(ssd, kernel, depth)),
        };
        let mut hosted = Self {
            policy,
            host: Host {
                port: RefCell::new(port),
                now: Cell::new(now),
                busy_until: Cell::new(now),
                busy: Cell::default(),
                requests: Cell::new(0),
                in_flight: RefCell::default(),
                sent: Cell::new(0),
                batches: RefCell::default(),
                waiting_units: Cell::new(0),
            },
            freed: PendingSet::new(true),
        };
        hosted.policy.tell(&hosted.host, &PolicyEvent::Hosted(traits));
        hosted.start_batches();
        hosted
    }

    #[inline]
    pub fn port(&mut self) -> &mut Port {
        self.host.port.get_mut()
    }

    /// Notes a request that was sent at `at`, and the time at which all so far will have completed.
    #[inline]
    pub fn is_busy_until(&mut self, at: SimTime, done: SimTime) {
        let until = self.host.busy_until.get_mut();
        *self.host.busy.get_mut() += done.since(at.max(*until));
        *until = done;
        *self.host.requests.get_mut() += 1;
    }

    pub fn ledger(&self) -> Ledger {
        self.policy.ledger()
    }

    /// Returns the number of units that are free in the file system and hold data in the device.
    pub fn stale_units(&mut self) -> u64 {
        let ssd = self.host.port.get_mut().drive().ssd();
        let known = self.policy.untold_extents().into_iter();
        known.map(|range| range.iter().filter(|unit| ssd.is_mapped(*unit)).count() as u64).sum()
    }

    #[inline]
    pub fn used(&mut self, range: UnitRange) {
        self.policy.withdraw(range);
        if self.freed.units() > 0 {
            self.freed.withdraw(range);
        }
    }

    pub fn free(&mut self, range: UnitRange) {
        // Units freed twice are free once.
        self.used(range);
        self.freed.insert(range);
    }

    /// Notes that the recording host's discard of these units goes to the drive unchanged, past the policy.
    pub fn passed_on(&mut self, range: UnitRange) {
        self.policy.passed_on(range);
    }

    pub fn committed(&mut self, now: SimTime) {
        let freed: Vec<UnitRange> =
            std::mem::replace(&mut self.freed, PendingSet::new(true)).iter().collect();
        self.set_now(now);
        match self.policy.committed(&self.host, &freed) {
            InCommit::Nothing => {}
            InCommit::OneByOne => self.issue_in_commit(),
            InCommit::Together => {
                let next = || self.policy.take(&self.host, Lpn(0), Shape::NEXT);
                let tokens: Vec<TrimToken> = std::iter::from_fn(next).collect();
                let ranges: Vec<UnitRange> = tokens.iter().map(TrimToken::range).collect();
                if !tokens.is_empty() {
                    self.host.submit(&ranges, InFlight::Together(tokens));
                }
            }
        }
        self.start_batches();
    }

    #[inline]
    pub fn advance(&mut self, until: SimTime) {
        loop {
            let done = self.host.in_flight.get_mut().peek().map(|first| SimTime(first.at));
            // Later than now, so that a governor cannot stop time.
            let wake_at = self.policy.wake_at().map(|at| at.max(SimTime(self.host.now.get().0 + 1)));
            match (done, wake_at) {
                (Some(at), wake_at) if at <= until && wake_at.is_none_or(|wake_at| at <= wake_at) => {
                    self.set_now(at);
                    if let Some(Waiting { item, .. }) = self.host.in_flight.get_mut().pop() {
                        self.acknowledged(item);
                    }
                }
                (_, Some(at)) if at <= until => {
                    self.set_now(at);
                    self.policy.wake(&self.host);
                }
                _ => return,
            }
            self.start_batches();
        }
    }

    fn set_now(&mut self, now: SimTime) {
        *self.host.waiting_units.get_mut() = self.policy.untold_units();
        let time = self.host.now.get_mut();
        *time = now.max(*time);
    }

    fn acknowledged(&mut self, trims: InFlight) {
        match trims {
            InFlight::Issued(command, sent) => {
                let ranges = self.port().drive().ssd().config().trim.ranges(&command.ranges());
                let took = self.host.now.get().since(sent);
                self.policy.acknowledged(&self.host, command, ranges, took);
            }
            InFlight::OneByOne(token) => {
                self.policy.settle(&self.host, token);
                self.issue_in_commit();
            }
            InFlight::Together(tokens) => {
                tokens.into_iter().for_each(|token| self.policy.settle(&self.host, token));
            }
            InFlight::Batch(token, batch) => {
                self.policy.settle(&self.host, token);
                self.continue_batch(batch);
            }
        }
    }

    fn issue_in_commit(&mut self) {
        if let Some(token) = self.policy.take(&self.host, Lpn(0), Shape::NEXT) {
            self.host.submit(&[token.range()], InFlight::OneByOne(token));
        }
    }

    fn start_batches(&mut self) {
        while let Some(batch) = self.host.batches.get_mut().pop() {
            // Dropped units are free too.
            self.policy.catch_up(&self.host);
            self.continue_batch(batch);
        }
    }

    /// Issues the next extent of a batch, or tells the governor that it has ended.
    fn continue_batch(&mut self, batch: Batch) {
        let Batch { range, units_min, units } = batch;
        let token = self.policy.take_within(&self.host, range, units_min);
        let Some(token) = token else {
            return self.policy.tell(&self.host, &PolicyEvent::Trimmed { units });
        };
        let (issued, end) = (token.range(), token.range().end());
        let rest = UnitRange::new(end, range.end().0.saturating_sub(end.0));
        let batch = Batch { range: rest, units: units + issued.units, ..batch };
        self.host.submit(&[issued], InFlight::Batch(token, batch));
    }
}
