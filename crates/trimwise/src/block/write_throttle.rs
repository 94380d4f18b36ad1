//! Limits how much write-back is queued at once: Linux since 4.10 (`block/blk-wbt.c`, `block/blk-rq-qos.c`).
//!
//! The depth starts at sixteen requests while writers pause, and a quarter of that while none does. Every tenth of a
//! second it is adjusted: halved if reads took too long, doubled, up to three quarters of the queue, if there were none
//! or none was slow. A task that finds the depth used up sleeps until a good part of it is free again.
//!
//! TRIMs are counted apart, and always have the quarter: four at first.

use crate::units::{SimDuration, SimTime};

/// `RWB_DEF_DEPTH`.
const DEPTH: u64 = 16;
/// `RWB_WINDOW_NSEC`.
const WINDOW_NS: u64 = 100_000_000;
/// `RWB_MIN_WRITE_SAMPLES`: with fewer writes in its window, a slow read is not their fault.
const WRITES_MIN: u32 = 3;
/// `RWB_UNKNOWN_BUMP`: number of windows without evidence after which the depth returns by a step.
const UNKNOWN_MAX: u32 = 5;
/// How long a writer's pause counts (`wb_recent_wait`).
const RECENT: SimDuration = SimDuration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteThrottleConfig {
    /// Maximum latency of the fastest read of a window (`wbt_lat_usec`: 75 ms for drives that Linux takes for rotating,
    /// such as virtio drives; 2 ms for others).
    pub read_latency_max: SimDuration,
    /// Requests that fit in the queue (`nr_requests`), at least 1.
    pub queue_depth: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    end: Option<SimTime>,
    fastest_read: Option<SimDuration>,
    writes: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct WriteThrottle {
    config: WriteThrottleConfig,
    step: i32,
    depth: u64,
    is_deepest: bool,
    unknown: u32,
    window: Window,
    /// When the watched read in flight was issued. The first read issued while none is watched becomes the watched one.
    watched_read: Option<SimTime>,
    paused: Option<SimTime>,
    in_flight: u64,
    trims_in_flight: u64,
}

impl WriteThrottle {
    pub fn new(config: WriteThrottleConfig) -> Self {
        let mut throttle = Self {
            config,
            step: 0,
            depth: 0,
            is_deepest: false,
            unknown: 0,
            window: Window::default(),
            watched_read: None,
            paused: None,
            in_flight: 0,
            trims_in_flight: 0,
        };
        throttle.set_depth();
        throttle
    }

    pub(crate) fn writer_paused(&mut self, now: SimTime) {
        self.paused = Some(now);
    }

    fn has_paused(&self, now: SimTime) -> bool {
        self.paused.is_some_and(|paused| now.since(paused) < RECENT)
    }

    /// `wb_background`.
    fn background(&self) -> u64 {
        if self.depth <= 2 { 1 } else { self.depth.div_ceil(4) }
    }

    /// `wb_normal`.
    fn normal(&self) -> u64 {
        if self.depth <= 2 { self.depth } else { self.depth.div_ceil(2) }
    }

    pub fn has_room(&mut self, now: SimTime) -> bool {
        self.catch_up(now);
        self.in_flight < if self.has_paused(now) { self.depth } else { self.background() }
    }

    pub fn has_room_for_trim(&mut self, now: SimTime) -> bool {
        self.catch_up(now);
        self.trims_in_flight < self.background()
    }

    pub fn queued(&mut self, now: SimTime) {
        self.in_flight += 1;
        self.watch(now);
    }

    pub fn trim_queued(&mut self, now: SimTime) {
        self.trims_in_flight += 1;
        self.watch(now);
    }

    fn watch(&mut self, now: SimTime) {
        if self.window.end.is_none() {
            self.begin_window(now);
        }
    }

    /// Notes that a write-back request is done. Returns true if tasks waiting for queue space must be woken.
    pub fn completed(&mut self, now: SimTime) -> bool {
        self.in_flight -= 1;
        let limit = if self.has_paused(now) { self.normal() } else { 0 };
        self.wakes(self.in_flight, limit)
    }

    pub fn trim_completed(&mut self) -> bool {
        self.trims_in_flight -= 1;
        self.wakes(self.trims_in_flight, self.background())
    }

    fn wakes(&self, in_flight: u64, limit: u64) -> bool {
        in_flight == 0 || limit.saturating_sub(in_flight) >= (self.background() / 2).max(1)
    }

    pub(crate) fn read_issued(&mut self, now: SimTime) {
        self.watched_read.get_or_insert(now);
    }

    pub(crate) fn read_done(&mut self, now: SimTime, issued: SimTime) {
        self.catch_up(now);
        if self.watched_read == Some(issued) {
            self.watched_read = None;
        }
        let took = now.since(issued);
        self.window.fastest_read = Some(self.window.fastest_read.map_or(took, |fastest| fastest.min(took)));
    }

    pub(crate) fn write_done(&mut self, now: SimTime) {
        self.catch_up(now);
        self.window.writes += 1;
    }

    fn begin_window(&mut self, now: SimTime) {
        let ns = match u64::try_from(self.step) {
            Ok(step @ 1..) => (WINDOW_NS << 4) / ((step + 1) << 8).isqrt(),
            _ => WINDOW_NS,
        };
        self.window = Window { end: Some(now + SimDuration(ns)), ..Window::default() };
    }

    fn catch_up(&mut self, now: SimTime) {
        while let Some(end) = self.window.end.filter(|end| *end <= now) {
            self.judge(end);
            self.window = Window::default();
            if self.step != 0 || self.in_flight + self.trims_in_flight > 0 {
                self.begin_window(end);
            }
        }
    }

    fn judge(&mut self, end: SimTime) {
        let Window { fastest_read, writes, .. } = self.window;
        let most = self.config.read_latency_max;
        let waiting = self.watched_read.map_or(SimDuration::ZERO, |issued| end.since(issued));
        if waiting.as_nanos() > WINDOW_NS || (waiting > most && fastest_read.is_none()) {
            return self.scale_down(true);
        }
        match fastest_read {
            Some(fastest) if writes >= WRITES_MIN => {
                if fastest > most {
                    self.scale_down(true);
                } else {
                    self.scale_up();
                }
            }
            _ if writes > 0 || self.has_paused(end) || self.in_flight + self.trims_in_flight > 0 => {
                self.scale_up()
            }
            _ => {
                self.unknown += 1;
                if self.unknown >= UNKNOWN_MAX {
                    match self.step {
                        1.. => self.scale_up(),
                        ..0 => self.scale_down(false),
                        0 => {}
                    }
                }
            }
        }
    }

    fn scale_up(&mut self) {
        if !self.is_deepest {
            self.step -= 1;
            self.set_depth();
            self.unknown = 0;
        }
    }

    fn scale_down(&mut self, is_hard: bool) {
        if self.depth > 1 {
            self.step = if self.step < 0 && is_hard { 0 } else { self.step + 1 };
            self.set_depth();
            self.unknown = 0;
        }
    }

    fn set_depth(&mut self) {
        let queue = self.config.queue_depth.max(1);
        let base = DEPTH.min(queue);
        let steps = self.step.unsigned_abs().min(31);
        let most = (3 * queue / 4).max(1);
        self.depth = if self.step > 0 { 1 + ((base - 1) >> steps) } else { 1 + ((base - 1) << steps) };
        self.is_deepest = self.step < 0 && self.depth > most;
        if self.is_deepest {
            self.depth = most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle() -> WriteThrottle {
        let read_latency_max = SimDuration::from_millis(75);
        WriteThrottle::new(WriteThrottleConfig { read_latency_max, queue_depth: 256 })
    }

    fn at(ms: u64) -> SimTime {
        SimTime(ms * 1_000_000)
    }

    #[test]
    fn a_quarter_of_the_depth_is_used_while_no_writer_pauses_and_all_of_it_while_one_does() {
        let mut throttle = throttle();
        let mut fill = |now| {
            while throttle.has_room(now) {
                throttle.queued(now);
            }
            throttle.in_flight
        };
        assert_eq!(fill(at(0)), 4);
        throttle.writer_paused(at(1));
        while throttle.has_room(at(1)) {
            throttle.queued(at(1));
        }
        assert_eq!(throttle.in_flight, 16);
        // Sleepers are woken when half the depth, less half a quarter, is in flight.
        let woken = (0..16).position(|_| throttle.completed(at(2)));
        assert_eq!(woken, Some(9));
    }

    #[test]
    fn writes_alone_deepen_the_queue_and_a_slow_read_brings_it_back() {
        let mut throttle = throttle();
        throttle.queued(at(0));
        for tenth in 1..=6 {
            throttle.write_done(at(tenth * 100 - 1));
        }
        throttle.catch_up(at(600));
        assert_eq!(throttle.depth, 192);
        throttle.read_issued(at(601));
        (0..3).for_each(|_| throttle.write_done(at(610)));
        throttle.read_done(at(690), at(601));
        throttle.catch_up(at(700));
        assert_eq!(throttle.depth, 16);
    }

    /// The kernel's `get_limit` and `wbt_rqw_done`: a quarter of the depth, and no sleeper is woken for a single place.
    #[test]
    fn trims_have_a_quarter_and_are_let_go_in_pairs() {
        let mut throttle = throttle();
        throttle.writer_paused(at(0));
        let queued = (0..16).take_while(|_| {
            let has_room = throttle.has_room_for_trim(at(1));
            if has_room {
                throttle.trim_queued(at(1));
            }
            has_room
        });
        assert_eq!(queued.count(), 4);
        assert!(throttle.has_room(at(1)), "write-back is counted apart");
        assert_eq!([throttle.trim_completed(), throttle.trim_completed()], [false, true]);
    }

    #[test]
    fn the_depth_halves_or_doubles_with_each_step_up_to_three_quarters_of_the_queue() {
        for (queue_depth, step, depth, is_deepest) in [
            (256, 0, 16, false),
            (256, 1, 8, false),
            (256, 2, 4, false),
            (256, 4, 1, false),
            (256, -1, 31, false),
            (256, -3, 121, false),
            (256, -4, 192, true),
            (20, 0, 16, false),
            (20, -1, 15, true),
            (42, -1, 31, false),
            (8, 1, 4, false),
            (1, 0, 1, false),
            (0, -1, 1, false),
        ] {
            let mut throttle = throttle();
            (throttle.config.queue_depth, throttle.step) = (queue_depth, step);
            throttle.set_depth();
            let case = format!("step {step} of a queue of {queue_depth}");
            assert_eq!((throttle.depth, throttle.is_deepest), (depth, is_deepest), "{case}");
        }
    }

    /// In ms before the end of the window: the issue of the watched read, and the last pause of a writer.
    #[derive(Clone, Copy, Default)]
    struct Judged {
        step: i32,
        watched: Option<u64>,
        fastest_read: Option<u64>,
        writes: u32,
        paused: Option<u64>,
        in_flight: [u64; 2],
        unknown: u32,
    }

    #[test]
    fn a_window_is_judged_by_its_slowest_evidence() {
        let none = Judged::default();
        let read = |fastest, writes| Judged { fastest_read: Some(fastest), writes, ..none };
        #[rustfmt::skip]
        let rows = [
            ("a read of another window still waits", Judged { watched: Some(101), ..read(1, 3) }, (1, 0)),
            ("it waits for exactly a window", Judged { watched: Some(100), ..read(1, 3) }, (-1, 0)),
            ("it waits for longer than allowed, and none was done", Judged { watched: Some(76), writes: 1, ..none }, (1, 0)),
            ("it waits for as long as allowed", Judged { watched: Some(75), writes: 1, ..none }, (-1, 0)),
            ("it waits for longer, but one was fast", Judged { watched: Some(76), ..read(75, 3) }, (-1, 0)),
            ("a slow read", read(76, 3), (1, 0)),
            ("as slow as allowed", read(75, 3), (-1, 0)),
            ("a slow read beside two writes", read(76, 2), (-1, 0)),
            ("a slow read from above", Judged { step: -3, ..read(76, 3) }, (0, 0)),
            ("a slow read from below", Judged { step: 2, ..read(76, 3) }, (3, 0)),
            ("a slow read at the least depth", Judged { step: 4, ..read(76, 3) }, (4, 0)),
            ("a fast read at the largest", Judged { step: -4, ..read(1, 3) }, (-4, 0)),
            ("one write", Judged { writes: 1, ..none }, (-1, 0)),
            ("a writer paused", Judged { paused: Some(999), ..none }, (-1, 0)),
            ("it paused a second ago", Judged { paused: Some(1_000), ..none }, (0, 1)),
            ("a write in flight", Judged { in_flight: [1, 0], ..none }, (-1, 0)),
            ("a TRIM in flight", Judged { in_flight: [0, 1], ..none }, (-1, 0)),
            ("one of each", Judged { in_flight: [1, 1], ..none }, (-1, 0)),
            ("nothing", none, (0, 1)),
            ("four times nothing", Judged { step: 2, unknown: 3, ..none }, (2, 4)),
            ("five times nothing, from below", Judged { step: 2, unknown: 4, ..none }, (1, 0)),
            ("five times nothing, from above", Judged { step: -2, unknown: 4, ..none }, (-1, 0)),
            ("five times nothing at the first depth", Judged { unknown: 4, ..none }, (0, 5)),
        ];
        for (case, given, expected) in rows {
            let mut throttle = throttle();
            throttle.step = given.step;
            throttle.set_depth();
            throttle.watched_read = given.watched.map(|ms| at(5_000 - ms));
            throttle.window.fastest_read = given.fastest_read.map(SimDuration::from_millis);
            throttle.window.writes = given.writes;
            throttle.paused = given.paused.map(|ms| at(5_000 - ms));
            [throttle.in_flight, throttle.trims_in_flight] = given.in_flight;
            throttle.unknown = given.unknown;
            throttle.judge(at(5_000));
            assert_eq!((throttle.step, throttle.unknown), expected, "{case}");
        }
    }

    #[test]
    fn windows_follow_while_there_is_something_to_see_and_are_shorter_the_deeper_the_step() {
        for (case, step, in_flight, end) in [
            ("nothing to see", 0, [0, 0], None),
            ("a step down, nothing in flight", 3, [0, 0], Some(at(150))),
            ("a step up, nothing in flight", -2, [0, 0], Some(at(200))),
            ("back at the first depth, a write in flight", 1, [1, 0], Some(at(200))),
            ("back at the first depth, a TRIM in flight", 1, [0, 1], Some(at(200))),
            ("back at the first depth, one of each", 1, [1, 1], Some(at(200))),
        ] {
            let mut throttle = throttle();
            throttle.window.end = Some(at(100));
            throttle.step = step;
            throttle.set_depth();
            [throttle.in_flight, throttle.trims_in_flight] = in_flight;
            throttle.catch_up(at(99));
            assert_eq!(throttle.window.end, Some(at(100)), "{case}: too early");
            throttle.catch_up(at(100));
            assert_eq!(throttle.window.end, end, "{case}");
        }
    }

    #[test]
    fn the_first_read_issued_is_watched_and_the_fastest_counts() {
        let mut throttle = throttle();
        let seen = |throttle: &WriteThrottle| (throttle.watched_read, throttle.window.fastest_read);
        throttle.read_issued(at(0));
        throttle.read_issued(at(10));
        throttle.read_done(at(20), at(10));
        assert_eq!(seen(&throttle), (Some(at(0)), Some(SimDuration::from_millis(10))), "another is done");
        throttle.read_done(at(30), at(0));
        assert_eq!(seen(&throttle), (None, Some(SimDuration::from_millis(10))), "the watched one is done");
    }
}
