//! trimwised in the model: the daemon's own state machine ([`LiveHost`]) hosted on the modelled ext4, in virtual time.
//!
//! As the daemon does, this samples the file system and the device each second, reads maps of free space, and carries
//! out slices with FITRIM; all decisions are [`LiveHost`]'s. What a helper process costs, and how long a map takes to
//! read, is assumed. Frees are not reported (tracepoints), and mount options are not changed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::block::Counts;
use crate::engine::Event;
use crate::files::{FileError, Files as _};
use crate::fs::Ext4;
use crate::fs::alloc::GROUP_UNITS;
use crate::live::{
    Cut, Facts, Failed, Known, LiveHost, MIN_EXTENT, Order, Sample, Settings, Trimmed, Window, spans_each,
};
use crate::policy::PolicySpec;
use crate::units::{Bytes, Lpn, SimDuration, SimTime, Span, UNIT_BYTES, UnitRange};

const SECOND: SimDuration = SimDuration::from_secs(1);
const HELPER: SimDuration = SimDuration::from_millis(2);
/// Assumed time for reading a map, for each group and each extent.
const MAP_GROUP: SimDuration = SimDuration::from_micros(10);
const MAP_EXTENT: SimDuration = SimDuration::from_micros(1);
/// Weight of the past in the mean of the last ten seconds, after one second, in thousandths (`/proc/pressure`: avg10).
const AVG10_PERMILLE: u64 = 95;
/// Time until everything known is forgotten: the daemon, which forgets each week, has been running for half a week.
const FORGET_IN: SimDuration = SimDuration::from_secs(7 * 86_400 / 2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Did {
    pub slices: u64,
    pub slice_longest: SimDuration,
    pub maps: u64,
    pub sent: Bytes,
}

#[derive(Clone)]
pub(super) struct Daemon(Rc<Inner>);

struct Inner {
    fs: Ext4,
    live: RefCell<LiveHost>,
    did: Cell<Did>,
    stopping: Cell<bool>,
    works: Cell<bool>,
    done: Event,
}

impl Daemon {
    /// Starts the daemon with its default settings. With `has_backlog` it knows nothing of the file system; otherwise
    /// it has told the device of all free space.
    pub fn start(fs: &Ext4, policy: PolicySpec, has_backlog: bool) -> Self {
        let total = Bytes::from_units(fs.utilization().1);
        let facts = Facts {
            total,
            cut: Cut::Groups { first: 0, bytes: GROUP_UNITS * UNIT_BYTES },
            maps: true,
            toggles: true,
            spans_max: spans_each(1),
            online_is_good: false,
        };
        let sim = fs.queue().sim();
        let mut live = LiveHost::new(policy, facts, Settings::default(), sim.now());
        if !has_backlog {
            let trimmed = free(fs, 0, usize::MAX).0;
            live.remember(Known { trimmed, unverified: Vec::new(), forget_in: FORGET_IN, unseen: Bytes(0) });
        }
        let daemon = Self(Rc::new(Inner {
            fs: fs.clone(),
            live: RefCell::new(live),
            did: Cell::default(),
            stopping: Cell::new(false),
            works: Cell::new(false),
            done: Event::new(sim),
        }));
        let runs = daemon.clone();
        sim.spawn(async move {
            // Without an answer from statfs there is nothing to decide. The model always has one.
            let _ = runs.run().await;
        });
        daemon
    }

    pub fn did(&self) -> Did {
        self.0.did.get()
    }

    pub async fn stop(self) {
        self.0.stopping.set(true);
        while self.0.works.get() {
            self.0.done.wait().await;
        }
    }

    async fn run(&self) -> Result<(), FileError> {
        let inner = &self.0;
        let sim = inner.fs.queue().sim().clone();
        let (mut next, mut pressure, mut before) = (sim.now(), 0, inner.fs.queue().counts());
        while !inner.stopping.get() {
            let tick = inner.live.borrow().next_at();
            sim.sleep_until(tick.map_or(next, |at: SimTime| at.min(next))).await;
            if inner.stopping.get() {
                break;
            }
            let now = sim.now();
            if now < next {
                self.feed(|live, orders| live.tick(now, orders));
                continue;
            }
            next = now + SECOND;
            let counts = inner.fs.queue().counts();
            pressure = pressure_after(pressure, counts, before);
            before = counts;
            let space = inner.fs.statfs().await?;
            let sample = Sample {
                used: Bytes(space.total.0.saturating_sub(space.free.0)),
                total: space.total,
                served: counts.served,
                in_flight: counts.in_device,
                pressure_permille: pressure / 1000,
                online: false,
            };
            self.feed(|live, orders| live.sample(now, sample, orders));
        }
        Ok(())
    }

    fn feed(&self, see: impl FnOnce(&mut LiveHost, &mut Vec<Order>)) {
        let mut orders = Vec::new();
        see(&mut self.0.live.borrow_mut(), &mut orders);
        let Some(order) = orders.pop() else { return };
        self.0.works.set(true);
        let daemon = self.clone();
        self.0.fs.queue().sim().spawn(async move { daemon.carry_out(order).await });
    }

    async fn carry_out(self, order: Order) {
        let inner = &self.0;
        let sim = inner.fs.queue().sim();
        let ended = || inner.works.set(false);
        match order {
            _ if inner.stopping.get() => ended(),
            Order::Toggle { .. } => {
                ended();
                let no = Failed::Never("the model does not change mount options".to_owned());
                self.feed(|live, orders| live.toggled(sim.now(), Err(no), orders));
            }
            Order::Look { from } => {
                inner.live.borrow_mut().look_begins(sim.now());
                let most = inner.live.borrow().spans_max();
                let groups = inner.fs.utilization().1.div_ceil(GROUP_UNITS);
                let extents = free(&inner.fs, from, most).0.len() as u64;
                sim.sleep(HELPER + MAP_GROUP * groups + MAP_EXTENT * extents).await;
                ended();
                let (spans, upto) = free(&inner.fs, from, most);
                self.note(|did| did.maps += 1);
                let window = Window { from, upto, free: &spans };
                self.feed(|live, orders| live.looked(sim.now(), Ok(window), orders));
            }
            Order::Trim(slice) => {
                sim.sleep(HELPER).await;
                let begin = sim.now();
                let mut units = 0;
                for range in &slice.ranges {
                    units += inner.fs.trim_free(in_units(*range), MIN_EXTENT.units_floor()).await;
                }
                ended();
                let (now, sent) = (sim.now(), Bytes::from_units(units));
                let took = now.since(begin);
                self.note(|did| {
                    did.slices += 1;
                    did.slice_longest = did.slice_longest.max(took);
                    did.sent.0 += sent.0;
                });
                self.feed(|live, orders| live.trimmed(now, took, Ok(Trimmed::all(sent)), orders));
            }
        }
        inner.done.notify_all();
    }

    fn note(&self, change: impl FnOnce(&mut Did)) {
        let mut did = self.0.did.get();
        change(&mut did);
        self.0.did.set(did);
    }
}

/// Returns the mean share of time of the last ten seconds in which some task waited, in millionths, one second later.
fn pressure_after(before_ppm: u64, now: Counts, before: Counts) -> u64 {
    let waited = now.waited.as_nanos().saturating_sub(before.waited.as_nanos());
    let share_ppm = (waited / 1000).min(1_000_000);
    (before_ppm * (1000 - AVG10_PERMILLE) + share_ppm * AVG10_PERMILLE) / 1000
}

fn in_units(span: Span) -> UnitRange {
    let (start, end) = (span.start / UNIT_BYTES, span.end.div_ceil(UNIT_BYTES));
    UnitRange::new(Lpn(start), end.saturating_sub(start))
}

fn free(fs: &Ext4, from: u64, most: usize) -> (Vec<Span>, u64) {
    let mut spans: Vec<Span> = Vec::new();
    for (start, units) in fs.free_extents() {
        let span = Span { start: (start * UNIT_BYTES).max(from), end: (start + units) * UNIT_BYTES };
        match spans.last_mut() {
            _ if span.end <= from => {}
            Some(last) if last.end == span.start => last.end = span.end,
            last => {
                if last.is_some_and(|last| last.bytes() < MIN_EXTENT) {
                    spans.pop();
                }
                if spans.len() >= most {
                    let upto = spans.last().map_or(from, |last| last.end);
                    return (spans, upto);
                }
                spans.push(span);
            }
        }
    }
    if spans.last().is_some_and(|last| last.bytes() < MIN_EXTENT) {
        spans.pop();
    }
    (spans, fs.utilization().1 * UNIT_BYTES)
}
