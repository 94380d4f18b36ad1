//! A made-up host under `LiveHost`: a file system of pieces that are in use or free, a device that knows of some of
//! the free ones, and a FITRIM that looks up what is free, as the kernel's does.

use proptest::prelude::*;

use trimwise::live::{
    Cut, Facts, Failed, LiveHost, Order, Reason, SPANS_MAX, Sample, Settings, Slice, Trimmed, Window,
};
use trimwise::units::{Bytes, SimDuration, SimTime, Span};

/// A piece of the made-up file system.
pub const PIECE: u64 = 1 << 20;
pub const PIECES: usize = 4096;
/// Pieces in a group, where slices are cut at groups.
pub const GROUP: u64 = 128;

pub struct FakeHost {
    pub live: LiveHost,
    pub now: SimTime,
    /// Samples come as rarely as is asked for, as the daemon's do; otherwise each second.
    pub is_sampled_as_asked: bool,
    pub sampled_at: Vec<SimTime>,
    pub used: Vec<bool>,
    /// The device was told that it is free.
    pub told: Vec<bool>,
    /// When each piece was freed last, and how long a map and FITRIM lag behind utilization: up to the journal's commit.
    pub freed_at: Vec<Option<SimTime>>,
    pub map_lags: SimDuration,
    /// Maximum number of extents in a map.
    pub window: usize,
    /// Where there are no maps: what FITRIM can be asked for.
    pub ranges: Option<Vec<Span>>,
    /// Where each map was asked for.
    pub looked_from: Vec<u64>,
    /// FITRIM sends every extent that it touches whole.
    pub sends_whole: bool,
    /// FITRIM sends the last extent of a range whole, up to the end of its group, as ext4 does.
    pub sends_tail: bool,
    pub toggles_work: bool,
    /// Toggles fail like this.
    pub toggle_failure: Option<Failed>,
    /// How many were tried.
    pub toggles_tried: u64,
    pub under_way: Option<(Order, SimTime)>,
    pub sample: Sample,
    /// The pressure of the last sample: `LiveHost` hears of none in between.
    pub pressure_heard: u64,
    /// Requests that others make each second.
    /// Discards that the device does in the time of one.
    pub at_once: u32,
    pub load: u64,
    pub freed: u64,
    /// Pieces sent to the device, and those of them that it knew.
    pub sent: u64,
    pub sent_twice: u64,
    pub toggled: Vec<bool>,
    pub slices: Vec<(SimTime, Slice)>,
    /// Why each slice was sent.
    pub reasons: Vec<Reason>,
    /// The next slices fail like this.
    pub failure: Option<Failed>,
    /// How much of what a slice sent the device is known to have taken, if not all.
    pub proven_permille: Option<u64>,
    /// Maps cannot be read.
    pub look_failure: Option<Failed>,
    /// Discards end up nowhere, and are not counted.
    pub drops: bool,
    /// Each free is told.
    pub tells: bool,
    /// As on ext4 with a journal: what is freed is free with the next commit only, and told of before.
    pub commits: bool,
    pub committing: Vec<usize>,
}

impl FakeHost {
    pub fn new(policy: &str, facts: Facts, settings: Settings) -> Self {
        let live = LiveHost::new(policy.parse().unwrap(), facts, settings, SimTime::ZERO);
        Self {
            live,
            now: SimTime::ZERO,
            is_sampled_as_asked: false,
            sampled_at: Vec::new(),
            used: vec![false; PIECES],
            told: vec![true; PIECES],
            freed_at: vec![None; PIECES],
            map_lags: SimDuration::ZERO,
            window: facts.spans_max,
            ranges: (!facts.maps).then(|| vec![Span { start: 0, end: facts.total.0 }]),
            looked_from: Vec::new(),
            sends_whole: false,
            sends_tail: false,
            toggles_work: true,
            toggle_failure: None,
            toggles_tried: 0,
            under_way: None,
            sample: Sample { total: facts.total, ..Sample::default() },
            pressure_heard: 0,
            load: 0,
            at_once: 1,
            freed: 0,
            sent: 0,
            sent_twice: 0,
            toggled: Vec::new(),
            slices: Vec::new(),
            reasons: Vec::new(),
            failure: None,
            proven_permille: None,
            look_failure: None,
            drops: false,
            tells: false,
            commits: false,
            committing: Vec::new(),
        }
    }

    pub fn allocate(&mut self, from: usize, pieces: usize) {
        for at in (from..(from + pieces).min(PIECES)).filter(|at| !self.committing.contains(at)) {
            self.used[at] = true;
            self.told[at] = false;
        }
    }

    pub fn free(&mut self, from: usize, pieces: usize) {
        for at in from..(from + pieces).min(PIECES) {
            if !self.used[at] || self.committing.contains(&at) {
                continue;
            }
            self.freed += 1;
            self.freed_at[at] = Some(self.now);
            if self.tells {
                let start = at as u64 * PIECE;
                self.live.freed(vec![Span { start, end: start + PIECE }]);
            }
            if self.commits {
                self.committing.push(at);
            } else {
                self.used[at] = false;
                self.told[at] = self.sample.online;
            }
        }
    }

    pub fn commit(&mut self) {
        for at in std::mem::take(&mut self.committing) {
            self.used[at] = false;
            self.told[at] = self.sample.online;
        }
    }

    fn used_bytes(&self) -> Bytes {
        Bytes(self.used.iter().filter(|&&used| used).count() as u64 * PIECE)
    }

    /// Waiting bytes, which must be known.
    pub fn waiting(&self) -> Bytes {
        self.live.waiting().known().expect("the waiting bytes are known")
    }

    /// Untrimmed bytes that the policy leaves alone, which must be known.
    pub fn left(&self) -> Bytes {
        self.live.left().known().expect("the left bytes are known")
    }

    pub fn untrimmed(&self) -> u64 {
        self.used.iter().zip(&self.told).filter(|&(used, told)| !used && !told).count() as u64
    }

    /// Whether the file system's own structures say so.
    pub fn is_free(&self, at: usize) -> bool {
        !self.used[at] && self.freed_at[at].is_none_or(|freed| self.now >= freed + self.map_lags)
    }

    pub fn map(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for at in (0..PIECES).filter(|&at| self.is_free(at)) {
            let start = at as u64 * PIECE;
            match spans.last_mut() {
                Some(last) if last.end == start => last.end += PIECE,
                _ => spans.push(Span { start, end: start + PIECE }),
            }
        }
        spans
    }

    pub fn take(&mut self, orders: Vec<Order>) {
        for order in orders {
            assert!(self.under_way.is_none(), "{order:?} during {:?}", self.under_way);
            let takes = match &order {
                Order::Look { from } => {
                    self.looked_from.push(*from);
                    SimDuration::from_millis(2)
                }
                Order::Trim(slice) => {
                    let pressed = self.pressure_heard >= 200;
                    assert!(
                        !pressed
                            || self.waiting() > self.live.bound()
                            || self.live.is_asked()
                            || matches!(self.live.reason(), Reason::LowWater { .. } | Reason::Overdue { .. }),
                        "a slice under pressure"
                    );
                    assert!(slice.ranges.iter().all(|range| range.start < range.end), "{slice:?}");
                    assert!(slice.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{slice:?}");
                    self.slices.push((self.now, slice.clone()));
                    self.reasons.push(self.live.reason().clone());
                    let one_by_one = SimDuration::from_millis(slice.bytes.0 / PIECE + slice.extents);
                    one_by_one / u64::from(slice.lanes.min(self.at_once))
                }
                Order::Toggle { .. } => SimDuration::from_millis(1),
            };
            self.under_way = Some((order, self.now + takes));
        }
        if self.under_way.is_some() {
            assert_eq!(self.live.next_at(), None, "woken for nothing while an order is under way");
        }
    }

    pub fn finish(&mut self) {
        let Some((order, at)) = self.under_way.take() else { return };
        self.now = self.now.max(at);
        let mut orders = Vec::new();
        match order {
            Order::Look { from } => {
                let mut free = match &self.ranges {
                    Some(ranges) => ranges.clone(),
                    None => self.map(),
                };
                free.retain(|span| span.end > from);
                let is_all = free.len() <= self.window;
                free.truncate(self.window);
                if let Some(first) = free.first_mut() {
                    first.start = first.start.max(from);
                }
                let upto =
                    if is_all { PIECES as u64 * PIECE } else { free.last().map_or(from, |last| last.end) };
                let found = match &self.look_failure {
                    Some(failed) => Err(failed.clone()),
                    None => Ok(Window { from, upto, free: &free }),
                };
                self.live.looked(self.now, found, &mut orders);
            }
            Order::Trim(slice) => {
                let result = match self.failure.clone() {
                    Some(failed) => Err(failed),
                    None => {
                        let sent = self.fitrim(&slice);
                        let taken = Bytes(sent * self.proven_permille.unwrap_or(1000) / 1000);
                        let is_proven = self.proven_permille.is_none();
                        Ok(Trimmed { counted: Some(Bytes(sent)), taken, is_proven })
                    }
                };
                let took = at.since(self.slices.last().unwrap().0);
                self.live.trimmed(self.now, took, result, &mut orders);
            }
            Order::Toggle { on } => {
                self.toggles_tried += 1;
                let result = match &self.toggle_failure {
                    Some(failed) => Err(failed.clone()),
                    None if self.toggles_work => Ok(on),
                    None => Err(Failed::Never("no".into())),
                };
                if result.is_ok() {
                    self.sample.online = on;
                    self.toggled.push(on);
                }
                self.live.toggled(self.now, result, &mut orders);
            }
        }
        self.take(orders);
    }

    pub fn fitrim(&mut self, slice: &Slice) -> u64 {
        let before = self.sent;
        for range in slice.ranges.iter().filter(|_| !self.drops) {
            let mut pieces = (range.start / PIECE) as usize..(range.end.div_ceil(PIECE) as usize).min(PIECES);
            while self.sends_whole && pieces.start > 0 && self.is_free(pieces.start - 1) {
                pieces.start -= 1;
            }
            while self.sends_whole && pieces.end < PIECES && self.is_free(pieces.end) {
                pieces.end += 1;
            }
            while self.sends_tail
                && !(pieces.end as u64).is_multiple_of(GROUP)
                && self.is_free(pieces.end - 1)
                && self.is_free(pieces.end)
            {
                pieces.end += 1;
            }
            for at in pieces {
                if !self.is_free(at) {
                    continue;
                }
                self.sent += 1;
                self.sent_twice += u64::from(std::mem::replace(&mut self.told[at], true));
            }
        }
        (self.sent - before) * PIECE
    }

    /// Lets seconds pass; what is under way ends within them.
    pub fn pass(&mut self, seconds: u64) {
        // To count once a second is what most of the tests' time would go to; only a commit changes it meanwhile.
        let mut used = self.used_bytes();
        for _ in 0..seconds {
            let end = self.now + SimDuration::from_secs(1);
            while let Some((_, at)) = self.under_way.as_ref().filter(|(_, at)| *at <= end) {
                self.now = self.now.max(*at);
                self.finish();
            }
            self.now = end;
            let commits = self.now.since(SimTime::ZERO).as_nanos().is_multiple_of(5_000_000_000);
            if commits && !self.committing.is_empty() {
                self.commit();
                used = self.used_bytes();
            }
            self.sample.used = used;
            self.sample.served.requests += self.load;
            self.sample.served.time += SimDuration::from_micros(300) * self.load;
            self.pressure_heard = self.sample.pressure_permille;
            let mut orders = Vec::new();
            let last = self.sampled_at.last().copied().unwrap_or(SimTime::ZERO);
            if !self.is_sampled_as_asked || self.now.since(last) >= self.live.sample_every() {
                self.sampled_at.push(self.now);
                self.live.sample(self.now, self.sample, &mut orders);
            } else if self.live.next_at().is_some_and(|at| at <= self.now) {
                self.live.tick(self.now, &mut orders);
            }
            self.take(orders);
        }
    }

    /// Lets at most `seconds_max` pass, until the trim that the user asked for is over. Returns whether it is.
    pub fn pass_while_asked(&mut self, seconds_max: u64) -> bool {
        (0..seconds_max).any(|_| {
            self.pass(1);
            !self.live.is_asked()
        })
    }
}

pub fn facts(cut: Cut) -> Facts {
    Facts {
        total: Bytes(PIECES as u64 * PIECE),
        cut,
        maps: true,
        toggles: false,
        spans_max: SPANS_MAX,
        online_is_good: false,
    }
}

pub const XFS: Cut = Cut::Anywhere { align: PIECE };
pub const EXT4: Cut = Cut::Groups { first: 0, bytes: GROUP * PIECE };

pub fn host(policy: &str, cut: Cut) -> FakeHost {
    FakeHost::new(policy, facts(cut), Settings::default())
}

#[derive(Clone, Debug)]
pub enum Step {
    Allocate(usize, usize),
    Free(usize, usize),
    Pass(u64),
    Load(u64),
    Pressure(u64),
    Now,
    Pause(bool),
}

pub fn step() -> impl Strategy<Value = Step> {
    let run = || (0..PIECES, 1..600usize);
    prop_oneof![
        3 => run().prop_map(|(from, n)| Step::Allocate(from, n)),
        3 => run().prop_map(|(from, n)| Step::Free(from, n)),
        4 => (1..200u64).prop_map(Step::Pass),
        1 => prop::sample::select(vec![0u64, 3, 1000]).prop_map(Step::Load),
        1 => prop::sample::select(vec![0u64, 199, 200, 900]).prop_map(Step::Pressure),
        1 => Just(Step::Now),
        1 => any::<bool>().prop_map(Step::Pause),
    ]
}

impl FakeHost {
    /// One thing happens.
    pub fn take_step(&mut self, step: Step) {
        match step {
            Step::Allocate(from, n) => self.allocate(from, n),
            Step::Free(from, n) => self.free(from, n),
            Step::Pass(seconds) => self.pass(seconds),
            Step::Load(load) => self.load = load,
            Step::Pressure(permille) => self.sample.pressure_permille = permille,
            Step::Now => self.live.trim_now(),
            Step::Pause(paused) => self.live.pause(paused),
        }
    }
}
