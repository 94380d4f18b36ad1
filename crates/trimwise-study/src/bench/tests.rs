//! Tests on a device with hand-set latencies, where every figure has a closed form, and on small models.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use trimwise::block::{BlockQueue, Completion, ModelDevice, QueueConfig, TrimFacts, check_operation};
use trimwise::content::Stored;
use trimwise::engine::Sim;
use trimwise::ssd::{Ssd, SsdConfig, TrimKind};
use trimwise::units::{SimDuration, SimTime};

use super::*;

/// The end of an operation, its number, its token, and when it was submitted.
type Waiting = Reverse<(SimTime, u64, u64, SimTime)>;

/// A device that takes any number of operations at a time. `latency` returns the duration of each.
pub(super) struct Fabricated<L> {
    pub(super) facts: DeviceFacts,
    now: Cell<SimTime>,
    latency: L,
    in_flight: RefCell<BinaryHeap<Waiting>>,
    submitted: RefCell<Vec<(SimTime, Operation)>>,
    /// The number of the completion that fails.
    fails_at: Option<u64>,
    completions: Cell<u64>,
}

impl<L: Fn(SimTime, &Operation) -> SimDuration> Fabricated<L> {
    pub(super) fn new(size: Bytes, latency: L) -> Self {
        let trim = TrimFacts { granularity: Bytes(4096), max: Bytes::gib(2), promises_zeros: false };
        let facts = DeviceFacts {
            name: "fabricated".to_owned(),
            size_units: size.units_floor(),
            sector_bytes: 512,
            trim: Some(trim),
            is_model: true,
        };
        Self {
            facts,
            now: Cell::default(),
            latency,
            in_flight: RefCell::default(),
            submitted: RefCell::default(),
            fails_at: None,
            completions: Cell::default(),
        }
    }

    fn run(&self, tests: &str) -> Results {
        polled(run(self, &parsed(tests), &Settings::default(), Hooks::default())).unwrap()
    }

    /// The first sectors and lengths of all reads and writes.
    fn transfers(&self) -> Vec<(bool, u64, u64)> {
        let submitted = self.submitted.borrow();
        let transfer = |(_, operation): &(SimTime, Operation)| match operation {
            Operation::Read(sectors) => Some((true, sectors.first.0, sectors.sectors)),
            Operation::Write(sectors, _) => Some((false, sectors.first.0, sectors.sectors)),
            _ => None,
        };
        submitted.iter().filter_map(transfer).collect()
    }
}

impl<L: Fn(SimTime, &Operation) -> SimDuration> BlockDevice for Fabricated<L> {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn now(&self) -> SimTime {
        self.now.get()
    }

    async fn sleep(&self, span: SimDuration) {
        self.now.set(self.now.get() + span);
    }

    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError> {
        check_operation(&operation, self.facts.size_units)?;
        let now = self.now.get();
        let number = self.submitted.borrow().len() as u64;
        let end = now + (self.latency)(now, &operation);
        self.in_flight.borrow_mut().push(Reverse((end, number, token, now)));
        self.submitted.borrow_mut().push((now, operation));
        Ok(())
    }

    async fn completion(&self) -> Result<Completion, BlockError> {
        let number = self.completions.replace(self.completions.get() + 1);
        if self.fails_at == Some(number) {
            return Err(BlockError::Other("input/output error".to_owned()));
        }
        let next = self.in_flight.borrow_mut().pop();
        let Some(Reverse((completed, _, token, submitted))) = next else {
            return Err(BlockError::Other("nothing is under way".to_owned()));
        };
        self.now.set(completed.max(self.now.get()));
        Ok(Completion { token, submitted, completed })
    }

    async fn stored(&self, _: Lpn) -> Result<Stored, BlockError> {
        Ok(Stored::Unknown)
    }

    async fn erase(&self) -> Result<(), BlockError> {
        self.sleep(SimDuration::from_secs(2)).await;
        Ok(())
    }
}

fn parsed(tests: &str) -> Vec<Test> {
    tests.split_whitespace().map(|test| test.parse().unwrap()).collect()
}

/// Returns the result of a future that never has to wait.
pub(super) fn polled<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a fabricated device never waits"),
    }
}

fn every(ms: u64) -> impl Fn(SimTime, &Operation) -> SimDuration {
    move |_, _| SimDuration::from_millis(ms)
}

#[test]
fn rates_are_the_queue_depth_divided_by_the_latency() {
    let device = Fabricated::new(Bytes::mib(64), every(1));
    let results = device.run("randwrite:32:2 randread:1:3 mixed:25:8:4");
    let [write, read, mixed] = &results.tests[..] else { panic!("{results:?}") };
    assert_eq!(write.measured[0].iops, Some(32_000.0));
    assert_eq!(write.measured[0].throughput_mb_per_s, Some(32.0 * 4.096));
    assert_eq!((write.measured[0].operations, write.elapsed_ns), (64_000, 2_001_000_000));
    assert_eq!(write.did.bytes_written, 64_000 * 4096);
    let latency = write.measured[0].latency.unwrap();
    assert!((999_000..=1_001_000).contains(&latency.p50_ns) && latency.p50_ns == latency.max_ns);
    assert_eq!((read.measured[0].what.as_str(), read.measured[0].iops), ("read", Some(1000.0)));
    assert_eq!((read.did.bytes_written, read.elapsed_ns), (0, 3_000_000_000), "nothing to flush");
    let [reads, writes] = &mixed.measured[..] else { panic!("{mixed:?}") };
    assert_eq!(reads.operations + writes.operations, 32_000);
    // A quarter, give or take four times the standard deviation of 32,000 draws.
    assert!(reads.operations.abs_diff(8_000) < 4 * 78, "{}", reads.operations);
    // The rate is equal in every interval.
    let plot = &write.plots[0];
    assert_eq!(plot.series[0].points.len(), 20);
    assert!(plot.series[0].points.iter().all(|p| (p.y - 131.072).abs() < 1e-9), "{plot:?}");
}

#[test]
fn sequential_tests_touch_each_unit_of_their_part_once_in_order() {
    let device = Fabricated::new(Bytes::mib(64), every(2));
    let results = device.run("fill:40.1 seqwrite:10481664:50 seqread::75");
    let transfers = device.transfers();
    let part = |reads: bool, from: u64| {
        let mut at = from;
        for &(_, first, sectors) in transfers.iter().filter(|t| t.0 == reads && t.1 >= from) {
            if first != at {
                break;
            }
            at += sectors;
        }
        at
    };
    let unit_sectors = 8;
    let region = Bytes::mib(64).units_floor();
    assert_eq!(part(false, 0), region * 401 / 1000 * unit_sectors);
    assert_eq!(part(false, region / 2 * unit_sectors), region / 2 * unit_sectors + 10_481_664 / 512);
    assert_eq!(part(true, region * 3 / 4 * unit_sectors), region * unit_sectors);
    // Ten transfers of up to 1 MiB, one at a time.
    let seqwrite = &results.tests[1].measured[0];
    assert_eq!((seqwrite.operations, seqwrite.elapsed_ns), (10, 20_000_000));
    assert_eq!(results.tests[2].measured[0].bytes, 16 << 20);
}

#[test]
fn a_device_that_fails_leaves_a_partial_result() {
    let mut device = Fabricated::new(Bytes::mib(64), every(1));
    device.fails_at = Some(100);
    let results = device.run("fill:50 randwrite:4:1 fill");
    assert_eq!(results.tests.len(), 1);
    let broken = results.broken.unwrap();
    assert_eq!((broken.test.as_str(), broken.why.as_str()), ("randwrite:4:1", "input/output error"));
    // 32 transfers and a flush come before. The failing one is not counted.
    assert_eq!((broken.did.bytes_written, broken.interrupted), (67 * 4096, false));
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_run() {
    let mut device = Fabricated::new(Bytes::mib(64), every(1));
    let refused = |device: &Fabricated<_>, tests: &str, settings: Settings| {
        let error = polled(run(device, &parsed(tests), &settings, Hooks::default())).unwrap_err().to_string();
        assert!(device.submitted.borrow().is_empty());
        error
    };
    let all = Settings::default();
    assert_eq!(
        refused(&device, "fill seqwrite:60MiB:50", all),
        "seqwrite:62914560:50: 60 MiB from 50 % on; expected at most 32 MiB, the space there"
    );
    let small = Settings { region: "90:10".parse().unwrap(), ..all };
    assert!(refused(&device, "fill", small).contains("6.4 MiB to test on; expected at least 16 MiB"));
    let part = Settings { region: "0:30".parse().unwrap(), ..all };
    assert!(refused(&device, "fill trim:0:0.01", part).contains("less than one unit"));
    device.facts.is_model = false;
    assert!(refused(&device, "fill erase", all).starts_with("erase: fabricated is erased with its vendor's"));
    device.facts.trim = None;
    for test in ["trim", "trimlatency", "settling:50"] {
        let error = refused(&device, &format!("fill {test}"), all);
        assert!(error.starts_with(&format!("{test}: fabricated does not support TRIM")), "{error}");
    }
}

fn model(sim: &Sim, config: &SsdConfig, seed: u64) -> ModelDevice {
    let queue = BlockQueue::new(sim, Ssd::new(config, seed).unwrap(), QueueConfig::default());
    ModelDevice::new(queue, "small")
}

fn on_a_model(config: SsdConfig, tests: &str, settings: Settings) -> Results {
    let tests = parsed(tests);
    let sim = Sim::new();
    let device = model(&sim, &config, settings.seed);
    sim.run(async move {
        let stats = || device.stats();
        run(&device, &tests, &settings, Hooks { stats: Some(&stats), ..Hooks::default() }).await
    })
    .unwrap()
    .unwrap()
}

/// The user interrupts when the second test begins.
#[test]
fn regression_an_interrupt_leaves_the_results_of_a_model_so_far() {
    let tests = parsed("fill:5 randwrite:1:1");
    let sim = Sim::new();
    let stop = Arc::new(AtomicBool::new(false));
    let device = model(&sim, &small(), 1).interrupted_by(&stop);
    let ended = sim.run(async move {
        let on_progress = |test, _| stop.store(test == 1, Ordering::Relaxed);
        let hooks = Hooks { on_progress: &on_progress, stats: None };
        run(&device, &tests, &Settings::default(), hooks).await
    });
    let results = ended.unwrap().unwrap();
    assert_eq!((results.tests.len(), results.tests[0].test.as_str()), (1, "fill:5"));
    let broken = results.broken.unwrap();
    assert!(broken.interrupted && broken.did.bytes_written > 0, "{broken:?}");
}

fn small() -> SsdConfig {
    SsdConfig { capacity_bytes: Bytes::mib(512).0, ..SsdConfig::default() }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_does_not() {
    let json = |seed| {
        let settings = Settings { seed, ..Settings::default() };
        serde_json::to_string(&on_a_model(small(), "fill randwrite:32:2 mixed:50:4:1", settings)).unwrap()
    };
    assert_eq!(json(1), json(1));
    assert_ne!(json(1), json(2));
}

#[test]
fn what_a_test_did_is_what_the_model_counted() {
    let results =
        on_a_model(small(), "fill:50 randwrite:32:1 seqread:64MiB:20 randread:8:1", Settings::default());
    for test in &results.tests {
        let counted = test.device.as_ref().unwrap();
        assert_eq!(test.did.bytes_written, counted.host_units_written * 4096, "{}", test.test);
    }
    assert_eq!(results.tests[2].device.as_ref().unwrap().unmapped_reads_percent, Some(0.0));
    assert!(results.tests[2].notes.is_empty());
    let random = &results.tests[3];
    assert!(random.notes[0].contains("% of the units read hold no data"), "{:?}", random.notes);
}

#[test]
fn a_device_without_trim_is_refused_by_its_own_facts() {
    let mut config = small();
    config.trim.kind = TrimKind::Unsupported;
    let device = model(&Sim::new(), &config, 1);
    let error = check(&[Test::Trim(Part::ALL)], &Settings::default(), device.facts()).unwrap_err();
    assert!(matches!(error, SetupError::NoTrim { .. }));
}

#[test]
fn a_pass_over_the_zones_shows_where_the_device_is_slow() {
    // Sixteen MiB per zone; the second half is half as fast.
    let half = Bytes::mib(800).0 / 512;
    let device = Fabricated::new(Bytes::mib(1600), move |_, operation| match operation {
        Operation::Read(sectors) if sectors.first.0 >= half => SimDuration::from_millis(2),
        _ => SimDuration::from_millis(1),
    });
    let results = device.run("hdtach hdtach:writes:full");
    let [read, write] = &results.tests[0].measured[..] else { panic!("{results:?}") };
    assert_eq!((read.what.as_str(), write.what.as_str()), ("read", "write"));
    assert_eq!((read.throughput_min_mb_per_s, read.throughput_max_mb_per_s), (Some(32.768), Some(65.536)));
    assert_eq!(write.throughput_mb_per_s, Some(65.536));
    // Quick: the first 8 MiB of each zone.
    assert_eq!((read.bytes, write.bytes), (800 << 20, 800 << 20));
    let points = &results.tests[0].plots[0].series[0].points;
    assert_eq!(points.len(), 100);
    assert_eq!((points[49].y, points[50].y), (65.536, 32.768));
    assert!(results.tests[0].notes[0].contains("its own writes"));
    let transfers = device.transfers();
    assert!(transfers[..12_800].iter().all(|t| t.0) && !transfers[12_800].0, "reads come first");
    assert_eq!(results.tests[1].did.bytes_written, 1600 << 20, "all of it");
}

#[test]
fn throughput_by_size_is_four_transfers_a_latency() {
    let device = Fabricated::new(Bytes::mib(512), every(1));
    let results = device.run("atto");
    let plot = &results.tests[0].plots[0];
    for series in &plot.series {
        assert_eq!(series.points.len(), 15);
        for (i, point) in series.points.iter().enumerate() {
            let bytes = 512u64 << i;
            assert!((point.y - 4.0 * bytes as f64 / 1e3).abs() < 1e-9, "{point:?}");
        }
    }
    let transfers = device.transfers();
    // Up to 8 KiB, the number of transfers is capped; then it halves for each size, down to 32.
    assert_eq!(transfers.len(), 2 * (5 * 32_768 + (1..=10).map(|i| 32_768 >> i).sum::<usize>()));
    // The eighth transfer of 512 bytes is the last part of the first unit.
    assert_eq!(transfers[7], (false, 7, 1));
    // A device with sectors of 4 KiB has no smaller transfers.
    let mut device = Fabricated::new(Bytes::mib(512), every(1));
    device.facts.sector_bytes = 4096;
    let results = device.run("atto");
    assert_eq!(results.tests[0].plots[0].series[0].points.len(), 12);
    assert!(results.tests[0].notes[0].contains("4 KiB"));
}

#[test]
fn reader_and_writer_are_measured_alone_and_together() {
    // A read takes twice as long once the device has also written since the last one.
    let wrote = Cell::new(false);
    let device = Fabricated::new(Bytes::mib(64), move |_, operation| match operation {
        Operation::Read(_) => SimDuration::from_millis(if wrote.replace(false) { 4 } else { 2 }),
        _ => {
            wrote.set(true);
            SimDuration::from_millis(1)
        }
    });
    let results = device.run("readwrite:4");
    let rates: Vec<f64> =
        results.tests[0].measured.iter().map(|m| m.throughput_mb_per_s.unwrap().round()).collect();
    assert_eq!(rates, [524.0, 1049.0, 262.0, 1049.0]);
}

#[test]
fn trim_latency_is_that_of_the_trims_alone() {
    let cost = |units: u64| SimDuration::from_nanos(100_000 + units * 10);
    let device = Fabricated::new(Bytes::mib(512), move |_, operation| match operation {
        Operation::Trim(ranges) => cost(ranges.iter().map(|r| r.units).sum()),
        _ => SimDuration::from_micros(50),
    });
    let results = device.run("trimlatency");
    let Findings::TrimLatency(times) = &results.tests[0].findings else { panic!("{results:?}") };
    // 4 KiB, four times as much each, up to an eighth of the device: 64 MiB.
    assert_eq!(times.len(), 2 * 8);
    assert_eq!((times[15].range_bytes, times[15].loaded), (64 << 20, true));
    for time in times {
        let expected = cost(time.range_bytes / 4096).as_nanos();
        assert!(time.latency.p50_ns.abs_diff(expected) <= expected / 500, "{time:?}");
        assert_eq!(time.latency.count, if time.range_bytes <= 16 << 20 { 8 } else { 3 });
    }
    // Under load, 64 random writes precede each TRIM.
    let submitted = device.submitted.borrow();
    let trims: Vec<usize> = (0..submitted.len())
        .filter(|&i| matches!(&submitted[i].1, Operation::Trim(ranges) if ranges[0].units == 1))
        .collect();
    assert_eq!(trims.len(), 16);
    assert_eq!(trims[1] - trims[0], 1);
    assert!(trims[9..].windows(2).all(|pair| pair[1] - pair[0] >= 64), "{trims:?}");
    let second_half = Bytes::mib(256).0 / 512;
    let load = submitted[trims[8]..trims[15]].iter().filter_map(|(_, operation)| match operation {
        Operation::Write(sectors, _) => Some(sectors.first.0),
        _ => None,
    });
    assert!(load.into_iter().all(|first| first >= second_half));
}

#[test]
fn the_settling_time_is_that_of_the_device() {
    // After a TRIM, writes take four times as long, for ten milliseconds per MiB of it.
    let slow_until = Cell::new(SimTime::ZERO);
    let device = Fabricated::new(Bytes::mib(400), move |now, operation| match operation {
        Operation::Trim(ranges) => {
            slow_until.set(now + SimDuration::from_millis(10) * (ranges[0].units / 256));
            SimDuration::ZERO
        }
        Operation::Write(..) if now < slow_until.get() => SimDuration::from_millis(4),
        _ => SimDuration::from_millis(1),
    });
    let results = device.run("settling::10");
    let Findings::Settling(settled) = &results.tests[0].findings else { panic!("{results:?}") };
    let found: Vec<(f64, u64, Option<u64>)> = settled
        .iter()
        .map(|s| (s.range_percent, s.written_before_bytes >> 20, s.settled_after_ns.map(|ns| ns / 1_000_000)))
        .collect();
    let expected = [(12.5, 500), (25.0, 1000), (50.0, 2000), (100.0, 4000)];
    for (i, (range, ms)) in expected.into_iter().enumerate() {
        assert_eq!(found[2 * i], (range, 0, Some(ms)));
        assert_eq!(found[2 * i + 1], (range, 400, Some(ms)));
    }
    assert!(settled.iter().all(|s| (s.final_mb_per_s - 131.072).abs() < 1e-9));
    // The first second: for the smallest range half of it is slow.
    let first = |s: &Settled| if s.range_percent == 12.5 { (32.768 + 131.072) / 2.0 } else { 32.768 };
    assert!(settled.iter().all(|s| (s.first_mb_per_s - first(s)).abs() < 1e-9), "{settled:?}");
    assert_eq!(results.tests[0].plots[0].series.len(), 8);
    let one = device.run("settling:50:9");
    assert!(matches!(&one.tests[0].findings, Findings::Settling(settled) if settled.len() == 2));
}

#[test]
fn steady_state_is_found_where_there_is_one() {
    let device = Fabricated::new(Bytes::mib(16), every(1));
    let results = device.run("steady:1");
    let Findings::Steady(steady) = &results.tests[0].findings else { panic!("{results:?}") };
    assert_eq!((steady.reached, steady.rounds, steady.iops), (true, 5, 32_000.0));
    // Twice the region before, and five rounds.
    assert_eq!(results.tests[0].did.bytes_written, (2 << 24) + 5 * 32_000 * 4096);

    // Slower each second: the slope over five rounds stays too steep, however long it is measured.
    let aging = |now: SimTime, _: &Operation| SimDuration::from_nanos(1_000_000 + now.as_nanos() / 1000);
    let device = Fabricated::new(Bytes::mib(16), aging);
    let results = device.run("steady:1");
    let Findings::Steady(steady) = &results.tests[0].findings else { panic!("{results:?}") };
    assert_eq!((steady.reached, steady.rounds), (false, 25));
    assert!(steady.slope_percent > 10.0 && steady.round_iops.len() == 25, "{steady:?}");
}

/// The whole test has the sequential writes of the preconditioning too, with a write amplification of 1.
#[test]
fn regression_the_steady_state_shows_the_write_amplification_of_its_window() {
    let mut config = small();
    config.gc.idle = false;
    let results = on_a_model(config, "steady:2", Settings::default());
    let test = &results.tests[0];
    let Findings::Steady(steady) = &test.findings else { panic!("{results:?}") };
    let rounds = steady.round_write_amplification.as_ref().unwrap();
    assert_eq!(rounds.len() as u32, steady.rounds);
    let window = test.measured[0].write_amplification.unwrap();
    let last = &rounds[rounds.len() - 5..];
    let (least, most) = (last.iter().copied().fold(9.9, f64::min), last.iter().copied().fold(0.0, f64::max));
    assert!((least..=most).contains(&window) && least > 2.0, "{window} of {rounds:?}");
    assert!(test.device.as_ref().unwrap().write_amplification.unwrap() < window - 0.5, "{results:?}");
    assert_eq!(test.write_amplification(), Some(window));
}

/// Worn by small writes, half mended by TRIM, mended more by rest, and new after an erase.
fn worn() -> Fabricated<impl Fn(SimTime, &Operation) -> SimDuration> {
    let (ms, last) = (Cell::new(10), Cell::new(SimTime::ZERO));
    Fabricated::new(Bytes::mib(64), move |now, operation| {
        let idle = now.since(last.replace(now));
        if idle >= SimDuration::from_secs(60) {
            ms.set(16);
        } else if idle >= SimDuration::from_secs(2) {
            ms.set(10);
        }
        match operation {
            Operation::Write(sectors, _) if sectors.sectors == 8 => ms.set(40),
            Operation::Trim(_) => ms.set(20),
            _ => {}
        }
        SimDuration::from_millis(ms.get())
    })
}

#[test]
fn reviewers_compare_each_write_with_that_to_the_clean_drive() {
    let device = worn();
    let results = device.run("reviewers:80:10:2m");
    let test = &results.tests[0];
    let Findings::Reviewers(found) = &test.findings else { panic!("{results:?}") };
    assert_eq!((found.fill_percent, found.trimmed.as_str(), found.rest_s), (80.0, "free", 120.0));
    let ratios = RATIOS.map(|(_, of)| (of(found).unwrap() * 1e3).round() / 1e3);
    assert_eq!(ratios, [0.25, 0.5, 0.625, 1.0]);
    let steps: Vec<&str> = test.measured.iter().map(|m| m.what.as_str()).collect();
    assert_eq!(steps, ["clean", "torture", "dirty", "trimmed", "rested", "erased"]);
    // The measured writes go behind the data, and the random ones among them.
    let filled = Bytes::mib(64).units_floor() * 8 / 10 * 8;
    let transfers = device.transfers();
    assert!(transfers.iter().all(|&(_, first, sectors)| sectors == 8 || first < filled || first == filled));
    assert!(transfers.iter().filter(|t| t.2 == 8).all(|t| t.1 < filled));
    let trims = device
        .submitted
        .borrow()
        .iter()
        .filter_map(|(_, operation)| match operation {
            Operation::Trim(ranges) => Some(ranges[0].start.first_lba().0),
            _ => None,
        })
        .collect::<Vec<u64>>();
    assert_eq!(trims, [filled]);

    let of = |tests: &str| match &worn().run(tests).tests[0].findings {
        Findings::Reviewers(found) => found.clone(),
        other => panic!("{other:?}"),
    };
    let whole = of("reviewers::10:2m");
    assert_eq!((whole.trimmed.as_str(), whole.dirty_over_clean), ("all", 0.25));
    let none = of("reviewers::10:2m:none");
    assert_eq!((none.trimmed.as_str(), none.after_trim_over_clean), ("none", None));
}

#[test]
fn reviewers_trim_what_can_be_trimmed_and_refuse_what_cannot() {
    let mut device = worn();
    device.facts.trim = None;
    let results = device.run("reviewers::10:2m");
    assert!(results.tests[0].notes[0].starts_with("the drive does not support TRIM"), "{results:?}");
    let refused = |device: &Fabricated<_>, tests: &str| {
        polled(run(device, &parsed(tests), &Settings::default(), Hooks::default())).unwrap_err().to_string()
    };
    assert!(refused(&device, "reviewers:80:::free").contains("does not support TRIM"));
    device.facts.is_model = false;
    assert!(refused(&device, "reviewers").contains("cannot be made clean"));
    // A real drive is trimmed instead of erased, which is said.
    device.facts.trim = worn().facts.trim;
    let results = device.run("reviewers::10:2m");
    let Findings::Reviewers(found) = &results.tests[0].findings else { panic!("{results:?}") };
    assert_eq!(found.after_erase_over_clean, None);
    assert!(results.tests[0].notes[0].contains("clean means trimmed here"), "{results:?}");
}

#[test]
fn a_rest_lets_a_model_tidy_up_and_says_what_it_did() {
    let mut config = small();
    config.gc.idle = true;
    let results = on_a_model(config, "fill torture:5 rest:10m rest:1s", Settings::default());
    let [_, _, rest, again] = &results.tests[..] else { panic!("{results:?}") };
    assert_eq!((rest.test.as_str(), rest.elapsed_ns), ("rest:10m", 600_000_000_000));
    assert!(rest.notes[0].starts_with("meanwhile the drive copied"), "{rest:?}");
    assert_eq!(again.notes, ["the drive did nothing meanwhile"]);
}

#[test]
fn times_and_amounts_of_tests_are_to_scale() {
    let device = Fabricated::new(Bytes::mib(64), every(1));
    let settings = Settings { scale: "1/4".parse().unwrap(), ..Settings::default() };
    let tests = parsed("randwrite:1:8 seqwrite:32MiB rest:2m seqwrite:240MiB");
    let results = polled(run(&device, &tests, &settings, Hooks::default())).unwrap();
    let [random, sequential, rest, all] = &results.tests[..] else { panic!("{results:?}") };
    assert_eq!(random.measured[0].elapsed_ns, 2_000_000_000);
    assert_eq!((sequential.did.bytes_written, all.did.bytes_written), (8 << 20, 60 << 20));
    assert_eq!(rest.elapsed_ns, 30_000_000_000);
}

#[test]
fn erase_and_trim_tell_how_long_they_took_and_what_they_did() {
    let device = Fabricated::new(Bytes::mib(64), every(7));
    let results = device.run("erase trim trim:25:50");
    let times: Vec<u64> = results.tests.iter().map(|t| t.measured[0].elapsed_ns / 1_000_000).collect();
    assert_eq!(times, [2000, 7, 7]);
    assert_eq!(results.tests[0].did.whole_device_erases, 1);
    assert_eq!(results.tests[2].did.bytes_trimmed, 32 << 20);
}

#[test]
fn torture_wears_a_model_down_and_trim_brings_it_back() {
    let results = on_a_model(small(), "fill seqwrite torture seqwrite trim seqwrite", Settings::default());
    let rate = |i: usize| results.tests[i].measured[0].throughput_mb_per_s.unwrap();
    let amplification = |i: usize| results.tests[i].device.as_ref().unwrap().write_amplification.unwrap();
    assert!(amplification(2) > 2.0, "{}", amplification(2));
    assert!(amplification(3) > 1.2 && amplification(5) == 1.0, "{}", amplification(3));
    let (before, worn, after) = (rate(1), rate(3), rate(5));
    assert!(worn < 0.8 * before && (after / before - 1.0).abs() < 0.01, "{before}, {worn}, {after}");
    // A model's torture ends by amount if no time is given.
    assert_eq!(results.tests[2].did.bytes_written, 2 * Bytes::mib(512).0);
}

#[test]
fn every_test_runs_on_a_small_model() {
    let tests = "erase fill:50 seqwrite seqread randwrite:32:1 randread:32:1 mixed:70:8:1 readwrite:1 hdtach atto \
                 torture:1 trim trimlatency settling:25:2 steady:1 rest reviewers:50:1s";
    let region = Settings { region: "25:50".parse().unwrap(), ..Settings::default() };
    let results = on_a_model(small(), tests, region);
    assert!(results.broken.is_none(), "{:?}", results.broken);
    assert_eq!(results.tests.len(), TESTS.len());
    for test in &results.tests {
        let counted = test.device.as_ref().unwrap();
        let trimmed = counted.trim_commands > 0;
        assert_eq!(test.did.bytes_trimmed > 0, trimmed, "{}", test.test);
        // Parts of a unit may merge in the cache, so fewer units are written than transfers say.
        assert!(test.test == "atto" || test.did.bytes_written == counted.host_units_written * 4096);
    }
}
