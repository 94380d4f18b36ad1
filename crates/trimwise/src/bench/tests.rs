//! Tests on a device whose latencies are set by hand, where every figure has a closed form, and on small models.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::block::{BlockQueue, Completion, ModelDevice, QueueConfig, TrimFacts, check_operation};
use crate::content::Stored;
use crate::engine::Sim;
use crate::ssd::{Ssd, SsdConfig, TrimKind};
use crate::units::{SimDuration, SimTime};

/// A device that takes any number of operations at a time; how long each takes, `latency` says.
struct Fabricated<L> {
    facts: DeviceFacts,
    now: Cell<SimTime>,
    latency: L,
    on_its_way: RefCell<BinaryHeap<Reverse<(SimTime, u64, u64, SimTime)>>>,
    submitted: RefCell<Vec<(SimTime, Operation)>>,
    /// The number of the completion that fails.
    fails_at: Option<u64>,
    completions: Cell<u64>,
}

impl<L: Fn(SimTime, &Operation) -> SimDuration> Fabricated<L> {
    fn new(size: Bytes, latency: L) -> Self {
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
            on_its_way: RefCell::default(),
            submitted: RefCell::default(),
            fails_at: None,
            completions: Cell::default(),
        }
    }

    fn run(&self, tests: &str) -> Results {
        let tests: Vec<Test> = tests.split_whitespace().map(|t| t.parse().unwrap()).collect();
        polled(run(self, &tests, &Settings::default(), Hooks::default())).unwrap()
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
        self.on_its_way.borrow_mut().push(Reverse((end, number, token, now)));
        self.submitted.borrow_mut().push((now, operation));
        Ok(())
    }

    async fn completion(&self) -> Result<Completion, BlockError> {
        let number = self.completions.replace(self.completions.get() + 1);
        if self.fails_at == Some(number) {
            return Err(BlockError::Other("input/output error".to_owned()));
        }
        let next = self.on_its_way.borrow_mut().pop();
        let Some(Reverse((completed, _, token, submitted))) = next else {
            return Err(BlockError::Other("nothing is on its way".to_owned()));
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

/// What a future that never has to wait answers.
fn polled<T>(future: impl Future<Output = T>) -> T {
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
    // The same rate in every interval.
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
    // 32 transfers and a flush before it, and the one that failed is not counted.
    assert_eq!((broken.did.bytes_written, broken.interrupted), (67 * 4096, false));
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_run() {
    let mut device = Fabricated::new(Bytes::mib(64), every(1));
    let refused = |device: &Fabricated<_>, tests: &str, settings: Settings| {
        let tests: Vec<Test> = tests.split_whitespace().map(|t| t.parse().unwrap()).collect();
        let error = polled(run(device, &tests, &settings, Hooks::default())).unwrap_err().to_string();
        assert!(device.submitted.borrow().is_empty());
        error
    };
    let all = Settings::default();
    assert_eq!(
        refused(&device, "fill seqwrite:60MiB:50", all),
        "seqwrite:62914560:50: 60 MiB from 50 % on; expected at most 32 MiB, which is what there is"
    );
    let small = Settings { region: "90:10".parse().unwrap(), ..all };
    assert!(refused(&device, "fill", small).contains("6.4 MiB to test on; expected at least 16 MiB"));
    let part = Settings { region: "0:30".parse().unwrap(), ..all };
    assert!(refused(&device, "fill trim:0:0.01", part).contains("less than one unit"));
    device.facts.trim = None;
    for test in ["trim", "trimlatency", "settling:50"] {
        let error = refused(&device, &format!("fill {test}"), all);
        assert!(error.starts_with(&format!("{test}: fabricated takes no TRIM")), "{error}");
    }
}

/// Runs tests on a small drive.
fn on_a_model(config: SsdConfig, tests: &str, settings: Settings) -> Results {
    let tests: Vec<Test> = tests.split_whitespace().map(|t| t.parse().unwrap()).collect();
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&config, settings.seed).unwrap(), QueueConfig::default());
    let device = Rc::new(ModelDevice::new(queue, "small"));
    sim.run(async move {
        let stats = || device.queue().with_ssd(|ssd| *ssd.stats());
        run(&*device, &tests, &settings, Hooks { stats: Some(&stats), ..Hooks::default() }).await
    })
    .unwrap()
    .unwrap()
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
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&config, 1).unwrap(), QueueConfig::default());
    let device = ModelDevice::new(queue, "old");
    let error = check(&[Test::Trim(Part::ALL)], &Settings::default(), device.facts()).unwrap_err();
    assert!(matches!(error, SetupError::NoTrim { .. }));
}
