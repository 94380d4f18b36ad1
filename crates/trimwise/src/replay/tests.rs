use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;
use crate::block::{BlockQueue, PortRequest};
use crate::engine::Sim;
use crate::policy::{Decision, Governor, PolicyEvent, PolicyId, PolicySpec, Shape, View};
use crate::ssd::{SuperblockState, TrimKind};
use crate::trace::format::{Reader, Writer};
use crate::trace::{
    Event, Header, Knows, Record, ReplayFigures, Request, TraceDevice, TraceError, TraceFileSystem,
};
use crate::units::{Bytes, Lba, SectorRange, SimDuration, Utilization};
use crate::workload::latency::LatencySummary;

fn spec(policy: &str) -> ReplaySpec {
    let mut ssd = SsdConfig {
        capacity_bytes: Bytes::mib(128).0,
        over_provisioning_percent: Some(30.into()),
        ..SsdConfig::default()
    };
    ssd.geometry.pages_per_block = 32;
    ssd.trim.kind = TrimKind::Nvme;
    ReplaySpec {
        device: "small".to_owned(),
        ssd,
        faults: Faults::default(),
        policy: policy.parse::<PolicySpec>().unwrap().into(),
        linux: LinuxVersion::TODAY,
        utilization: Utilization::of(80),
        before: Arc::default(),
        rep: 0,
        seed: 1,
        options: ReplayOptions::default(),
    }
}

fn request(kind: RequestKind, unit: u64, units: u64, latency_ns: Option<u64>) -> Event {
    Event::Request(Request {
        kind,
        sectors: SectorRange::new(Lba(unit * 8), units * 8),
        sync: false,
        fua: false,
        meta: false,
        latency: latency_ns.map(SimDuration),
    })
}

fn write(unit: u64, units: u64) -> Event {
    request(RequestKind::Write, unit, units, None)
}

fn discard(unit: u64, units: u64) -> Event {
    request(RequestKind::Discard, unit, units, None)
}

fn freed(unit: u64, units: u64) -> Event {
    Event::Freed(UnitRange::new(Lpn(unit), units).into())
}

/// Returns a trace of one device in trimwise's own format; with `frees`, its header has a file system.
fn trace(frees: bool, events: &[(u64, Event)]) -> Vec<u8> {
    let file_system = frees.then(|| TraceFileSystem { is_traced: true, ..TraceFileSystem::default() });
    let header = Header { devices: vec![TraceDevice::default()], file_system, ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for &(at, event) in events {
        writer.write(&Record { at: SimTime(at), device: 0, event }).unwrap();
    }
    writer.finish().unwrap()
}

fn run(spec: &ReplaySpec, trace: &[u8]) -> Result<Cell, String> {
    let mut source = Reader::new(trace).unwrap();
    run_cell(spec, &mut source, &mut |_| true).map_err(|error| error.to_string())
}

fn figures(cell: &Cell) -> &ReplayFigures {
    match &cell.workload {
        WorkloadFigures::Replay(figures) => figures,
        other => panic!("{other:?}"),
    }
}

/// Simulates a host that keeps eight requests in flight on a prepared drive. Returns its trace and the duration.
fn recorded(drive: &PreparedDrive) -> (Vec<u8>, u64) {
    let mut port = drive.port.clone();
    let begin = drive.now + SETTLING;
    port.catch_up(begin);
    let units = port.size().units_floor();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut in_flight = BinaryHeap::new();
    let (mut now, mut end) = (begin, begin);
    let mut events = Vec::new();
    for i in 0..20_000u64 {
        if in_flight.len() == 8
            && let Some(Reverse(done)) = in_flight.pop()
        {
            now = now.max(done);
        }
        let unit = rng.next_u64() % (units - 8);
        let (kind, submitted) = match i % 50 {
            49 => (RequestKind::Flush, PortRequest::Flush),
            n if n % 3 == 0 => (RequestKind::Read, PortRequest::Read(UnitRange::new(Lpn(unit), 1).into())),
            _ => (RequestKind::Write, PortRequest::Write(UnitRange::new(Lpn(unit), 1).into(), CONTENT)),
        };
        let done = port.submit(now, &submitted).unwrap();
        in_flight.push(Reverse(done));
        end = end.max(done);
        let latency = Some(done.since(now).as_nanos());
        let units = u64::from(kind != RequestKind::Flush);
        events.push((now.since(begin).as_nanos(), request(kind, unit * units, units, latency)));
    }
    (trace(false, &events), end.since(begin).as_nanos())
}

#[test]
fn a_trace_of_the_model_itself_takes_as_long_again_on_the_same_drive() {
    let spec = spec("off");
    let drive = PreparedDrive::new(&spec).unwrap();
    let (trace, duration_ns) = recorded(&drive);
    for pace in [Pace::Closed, Pace::Open { speed_percent: 100 }] {
        let spec = ReplaySpec { options: ReplayOptions { pace, ..spec.options }, ..spec.clone() };
        let cell = run(&spec, &trace).unwrap();
        assert_eq!(cell.duration_ns, duration_ns, "{pace:?}");
        let figures = figures(&cell);
        let here: BTreeMap<String, LatencySummary> =
            cell.latency.iter().map(|(kind, summary)| (kind.to_string(), *summary)).collect();
        assert_eq!(here, figures.recorded_latency, "{pace:?}");
        assert_eq!(figures.recorded_latency_mean_ns, Some(figures.latency_mean_ns));
        assert_eq!(figures.requests, 20_000);
        let written = cell.device_stats.as_ref().unwrap().host_units_written;
        assert_eq!(written * UNIT_BYTES, figures.written_bytes, "each request reached the drive once");
    }
}

#[test]
fn a_drive_is_filled_and_then_as_much_is_overwritten_where_the_repetition_says() {
    let prepared = |rep| PreparedDrive::new(&ReplaySpec { rep, ..spec("off") }).unwrap();
    let drive = prepared(0);
    let ssd = drive.port.drive().ssd();
    let units = ssd.capacity_units() * 80 / 100;
    assert_eq!((ssd.mapped_units(), ssd.stats().host_units_written), (units, units + units / 32 * 32));
    // Random places leave holes everywhere, so what collection will copy is not what it copies on a drive that was
    // only filled.
    let valid = |drive: &PreparedDrive| -> Vec<u32> {
        drive.port.drive().ssd().superblocks().iter().map(|s: &SuperblockState| s.valid_units).collect()
    };
    let holed = ssd.superblocks().iter().filter(|s| (1..s.written_units).contains(&s.valid_units)).count();
    assert!(holed * 2 > ssd.superblocks().len(), "{holed} of {}", ssd.superblocks().len());
    assert_eq!(valid(&prepared(0)), valid(&drive));
    assert_ne!(valid(&prepared(1)), valid(&drive));
}

#[test]
fn a_fua_write_is_flushed_where_the_cache_is_volatile() {
    let fua = Event::Request(Request { fua: true, ..plain_write() });
    for volatile in [true, false] {
        let mut spec = ReplaySpec { utilization: Utilization::of(0), ..spec("off") };
        spec.ssd.cache.volatile = volatile;
        let mut port = PreparedDrive::new(&spec).unwrap().port;
        let begin = SimTime::ZERO + SETTLING;
        let written = port.submit(begin, &PortRequest::Write(plain_write().sectors, CONTENT)).unwrap();
        let flushed = port.submit(begin, &PortRequest::Flush).unwrap();
        assert!(flushed > written);
        let expected = if volatile { flushed } else { written }.since(begin).as_nanos();
        let cell = run(&spec, &trace(false, &[(0, fua)])).unwrap();
        assert_eq!((cell.duration_ns, cell.latency["write"].count), (expected, 1), "{volatile}");
    }
}

#[test]
fn twice_the_speed_is_half_the_time_if_the_drive_keeps_up() {
    let events: Vec<_> = (0..100).map(|i| (i * 10_000_000, write(i, 1))).collect();
    let at = |speed_percent| {
        let options = ReplayOptions { pace: Pace::Open { speed_percent }, ..ReplayOptions::default() };
        run(&ReplaySpec { options, ..spec("off") }, &trace(false, &events)).unwrap().duration_ns
    };
    let (normal, double) = (at(100), at(200));
    assert!(normal > 990_000_000 && double > 495_000_000 && double < 500_000_000, "{normal} {double}");
}

#[test]
fn addresses_beyond_the_drive_are_refused_or_brought_onto_it() {
    let events = [(0, write(0, 8)), (5, write(40_000, 8))];
    let error = run(&spec("off"), &trace(false, &events)).unwrap_err();
    let expected = "record 2: 64 sectors from sector 320000 lie beyond a drive of 128 MiB, and need one of 163872768 bytes";
    assert!(error.starts_with(expected), "{error}");
    let with = |addresses| {
        let options = ReplayOptions { addresses, ..ReplayOptions::default() };
        run(&ReplaySpec { options, ..spec("off") }, &trace(false, &events))
    };
    assert_eq!(figures(&with(Addresses::Wrap).unwrap()).requests, 2);
    assert!(with(Addresses::Scale).unwrap_err().contains("does not say how large its device was"));
    let header = Header {
        devices: vec![TraceDevice { capacity_bytes: Some(Bytes::mib(256).0), ..TraceDevice::default() }],
        ..Header::default()
    };
    let options = ReplayOptions { addresses: Addresses::Scale, ..ReplayOptions::default() };
    let aim = Aim::new(options, Bytes::mib(128));
    let (sectors, is_cut) = aim.place(SectorRange::new(Lba(320_003), 5), 0, &header).unwrap();
    assert_eq!((sectors, is_cut), (SectorRange::new(Lba(160_003), 5), false));
    let last = SectorRange::new(Lba((Bytes::mib(256).0 / 512) - 8), 64);
    assert_eq!(aim.place(last, 0, &header).unwrap(), (SectorRange::new(Lba((128 << 11) - 8), 8), true));
}

#[test]
fn of_several_devices_one_is_chosen() {
    let header = Header {
        devices: vec![TraceDevice { name: "8,0".to_owned(), ..TraceDevice::default() }; 2],
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for device in [0, 1, 1] {
        writer.write(&Record { at: SimTime(0), device, event: write(0, 1) }).unwrap();
    }
    let trace = writer.finish().unwrap();
    let with = |devices| {
        let options = ReplayOptions { devices, ..ReplayOptions::default() };
        run(&ReplaySpec { options, ..spec("off") }, &trace)
    };
    let error = with(DeviceChoice::Only).unwrap_err();
    assert!(
        error.starts_with("record 2: a request to device 1 (8,0), after requests to device 0"),
        "{error}"
    );
    assert_eq!(figures(&with(DeviceChoice::Number(1)).unwrap()).requests, 2);
    assert_eq!(figures(&with(DeviceChoice::All).unwrap()).requests, 3);
    assert_eq!(with(DeviceChoice::Number(2)).unwrap_err(), "the trace has no requests to device 2");
}

/// Regression test: a file system on several disks has one journal, so its commits concern all of its disks.
#[test]
fn regression_a_commit_is_of_every_device() {
    let file_system = Some(TraceFileSystem { is_traced: true, ..TraceFileSystem::default() });
    let header = Header { devices: vec![TraceDevice::default(); 2], file_system, ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for (device, event) in [(1, write(0, 8)), (1, freed(0, 8)), (0, Event::Committed), (0, Event::Lost(2))] {
        writer.write(&Record { at: SimTime(0), device, event }).unwrap();
    }
    let trace = writer.finish().unwrap();
    for devices in [DeviceChoice::Only, DeviceChoice::Number(1), DeviceChoice::All] {
        let options = ReplayOptions { devices, ..ReplayOptions::default() };
        let cell = run(&ReplaySpec { options, ..spec("commit") }, &trace).unwrap();
        assert_eq!(cell.ledger.as_ref().unwrap().units.freed, 8, "{devices:?}");
        assert_eq!(figures(&cell).lost_events, 2, "{devices:?}");
    }
}

/// Returns events that discard the first half of the drive, and then write a quarter of it again.
fn discards() -> Vec<(u64, Event)> {
    let mut events: Vec<(u64, Event)> = (0..64).map(|i| (i * 1_000, discard(i * 128, 128))).collect();
    events.extend((0..1024).map(|i| (100_000 + i * 1_000, write(i * 2, 2))));
    events
}

#[test]
fn discards_alone_are_a_queue_in_front_of_the_drive() {
    let trace = trace(false, &discards());
    let of = |policy: &str| {
        let cell = run(&spec(policy), &trace).unwrap();
        let (stats, ledger) = (cell.device_stats.clone().unwrap(), cell.ledger.unwrap().units);
        assert_eq!(figures(&cell).knows, Knows::Discards);
        assert_eq!(figures(&cell).recorded_discards, 64);
        (stats, ledger, cell)
    };
    let (off, ledger, _) = of("off");
    assert_eq!((off.trim_commands, ledger.freed, ledger.issued), (0, 8192, 0));
    assert_eq!(off.stale_units_end, Some(8192 - 2048), "what was written again is not stale");
    let (commit, ledger, cell) = of("commit");
    assert_eq!((commit.trim_commands, commit.trimmed_units), (64, 8192));
    assert_eq!((ledger.freed, ledger.issued), (8192, 8192));
    assert_eq!(cell.latency["discard"].count, 64);
    let (lazy, ledger, _) = of("lazy+reuse+backoff");
    assert!(ledger.reused > 0 && ledger.issued + ledger.reused + ledger.pending + ledger.in_tokens == 8192);
    assert!(lazy.trimmed_units < 8192, "{ledger:?}");
}

#[test]
fn frees_drive_every_policy_once_they_are_durable() {
    let events = [
        (0, freed(0, 1024)),
        (10, discard(0, 1024)),
        (20, write(512, 8)),
        (1_000, Event::Committed),
        (2_000, freed(2048, 64)),
        (3_000, Event::Allocated(UnitRange::new(Lpn(2048), 64).into())),
        (4_000, Event::Committed),
        (5_000_000_000, freed(4096, 64)),
        (6_000_000_000, write(0, 1)),
        (7_000_000_000, Event::Lost(3)),
    ];
    let trace = trace(true, &events);
    for policy in PolicySpec::examples() {
        let open = ReplayOptions { pace: Pace::Open { speed_percent: 100 }, ..ReplayOptions::default() };
        let spec = ReplaySpec { options: open, ..spec(&policy.to_string()) };
        let cell = run(&spec, &trace).unwrap_or_else(|error| panic!("{policy}: {error}"));
        let again = run(&spec, &trace).unwrap();
        assert_eq!(format!("{cell:?}"), format!("{again:?}"), "{policy}");
        let ledger = cell.ledger.as_ref().unwrap().units;
        // The last one was not durable, and the second was in use again before it was.
        assert_eq!(ledger.freed, 1024 - 8, "{policy}");
        let figures = figures(&cell);
        assert_eq!((figures.knows, figures.recorded_discards, figures.lost_events), (Knows::Frees, 1, 3));
        if ["commit", "lazy", "ideal"].contains(&policy.to_string().as_str()) {
            assert_eq!((ledger.issued, ledger.pending), (1016, 0), "{policy}");
            assert_eq!(cell.device_stats.as_ref().unwrap().stale_units_end, Some(0), "{policy}");
        }
    }
}

#[test]
fn a_policy_backs_off_while_the_requests_of_the_trace_follow_each_other() {
    let issued = |policy: &str, every_ms: u64| {
        let writes = (0..500 / every_ms).map(|i| (i * every_ms * 1_000_000, write(9_000 + i, 1)));
        let mut events: Vec<(u64, Event)> = writes.collect();
        events.insert(1, (2_000_000, discard(0, 128)));
        let open = ReplayOptions { pace: Pace::Open { speed_percent: 100 }, ..ReplayOptions::default() };
        let cell = run(&ReplaySpec { options: open, ..spec(policy) }, &trace(false, &events)).unwrap();
        cell.ledger.unwrap().units.issued
    };
    // It waits until nothing has been in the drive for 10 ms.
    assert_eq!([5, 50].map(|every_ms| issued("lazy+backoff", every_ms)), [0, 128]);
    assert_eq!([5, 50].map(|every_ms| issued("lazy", every_ms)), [128, 128]);
}

#[test]
fn where_no_completion_is_recorded_as_many_requests_are_in_flight_as_asked_for() {
    let reads = |i: u64| (i, request(RequestKind::Read, i * 7919 % 20_000, 1, None));
    let trace = trace(false, &(0..256).map(reads).collect::<Vec<_>>());
    // By Little's law, all latencies together are the duration times the mean number in flight, whatever the drive.
    let [one, four, all] = [1, 4, 256].map(|queue_depth| {
        let options = ReplayOptions { queue_depth, ..ReplayOptions::default() };
        let cell = run(&ReplaySpec { options, ..spec("off") }, &trace).unwrap();
        let in_flight = (256 * figures(&cell).latency_mean_ns) as f64 / cell.duration_ns as f64;
        (in_flight, cell.duration_ns)
    });
    assert!((0.99..=1.0).contains(&one.0) && (3.9..=4.0).contains(&four.0), "{one:?} {four:?}");
    // All are submitted at once, and fewer are left after each.
    assert!((64.0..=256.0).contains(&all.0), "{all:?}");
    assert!(one.1 > four.1 && four.1 > all.1, "{one:?} {four:?} {all:?}");
}

/// The grammar's `off` drops the discards of a trace, and its `commit` sends them as they are.
#[test]
fn a_policy_of_ones_own_decides_on_recorded_discards_whatever_its_name() {
    let trace = trace(false, &[(0, discard(0, 128)), (5_000_000_000, write(9_000, 1))]);
    let options = ReplayOptions { pace: Pace::Open { speed_percent: 100 }, ..ReplayOptions::default() };
    let run = |policy: Policy| {
        let cell = run(&ReplaySpec { policy, options, ..spec("off") }, &trace).unwrap();
        format!("{:?}", Cell { policy: PolicyId::OFF, ..cell })
    };
    let known = |policy: &str| run(policy.parse::<PolicySpec>().unwrap().into());
    let lazy = known("lazy");
    for name in ["off", "commit"] {
        assert_ne!(known(name), lazy);
        assert_eq!(
            run(Policy::new(name, || "lazy".parse::<PolicySpec>().unwrap().governor())),
            lazy,
            "{name}"
        );
    }
}

#[test]
fn what_is_freed_twice_before_a_commit_is_free_once() {
    let events = [(0, freed(0, 64)), (0, freed(32, 64)), (1, Event::Committed), (2, write(9_000, 1))];
    let units = run(&spec("lazy"), &trace(true, &events)).unwrap().ledger.unwrap().units;
    assert_eq!(units.freed, 96);
}

/// Issues one extent at a time, if it is told rightly of the one before.
struct OneByOne;

impl Governor for OneByOne {
    fn on_event(&mut self, event: &PolicyEvent, _: &View, decisions: &mut Vec<Decision>) {
        let goes_on = match event {
            PolicyEvent::Committed { .. } => true,
            PolicyEvent::Issued(done) => {
                done.units == 40 && done.ranges == 1 && done.took >= SimDuration::from_micros(100)
            }
            _ => false,
        };
        if goes_on {
            decisions.push(Decision::Issue(Shape::NEXT));
        }
    }
}

#[test]
fn a_policy_is_told_what_each_command_was_and_how_long_it_took() {
    let frees = [80, 200, 400].map(|at| (0, freed(at, 40)));
    let events = [&frees[..], &[(1_000, Event::Committed), (5_000_000_000, write(9_000, 1))]].concat();
    let options = ReplayOptions { pace: Pace::Open { speed_percent: 100 }, ..ReplayOptions::default() };
    let policy = Policy::new("one-by-one", || Box::new(OneByOne));
    let cell = run(&ReplaySpec { policy, options, ..spec("off") }, &trace(true, &events)).unwrap();
    assert_eq!((cell.ledger.unwrap().units.issued, cell.device_stats.unwrap().trim_commands), (120, 3));
}

/// Trims free space in a range that ends within an extent; when that is done, in another one.
struct Ranges;

impl Governor for Ranges {
    fn on_event(&mut self, event: &PolicyEvent, _: &View, decisions: &mut Vec<Decision>) {
        let range = match event {
            PolicyEvent::Committed { .. } => UnitRange::new(Lpn(0), 100),
            PolicyEvent::Trimmed { units: 20 } => UnitRange::new(Lpn(195), 15),
            _ => return,
        };
        decisions.push(Decision::TrimFree { range, units_min: 1 });
    }
}

#[test]
fn a_batch_ends_with_its_range() {
    let events = [
        (0, freed(80, 40)),
        (0, freed(200, 40)),
        (1_000, Event::Committed),
        (5_000_000_000, write(9_000, 1)),
    ];
    let options = ReplayOptions { pace: Pace::Open { speed_percent: 100 }, ..ReplayOptions::default() };
    let policy = Policy::new("ranges", || Box::new(Ranges));
    let spec = ReplaySpec { policy, options, ..spec("off") };
    let cell = run(&spec, &trace(true, &events)).unwrap();
    let (ledger, device) = (cell.ledger.unwrap().units, cell.device_stats.unwrap());
    // Of 80 to 120 what lies below 100, and of 200 to 240 what lies below 210.
    assert_eq!((ledger.issued, ledger.pending), (30, 50));
    assert_eq!((device.trim_commands, device.trimmed_units), (2, 30));
}

#[test]
fn what_cannot_be_concluded_is_refused() {
    let plain = trace(false, &[(0, write(0, 1))]);
    assert_eq!(figures(&run(&spec("off"), &plain).unwrap()).knows, Knows::Nothing);
    let error = run(&spec("lazy"), &plain).unwrap_err();
    assert!(error.contains("neither discards nor frees"), "{error}");
    assert_eq!(run(&spec("off"), &trace(false, &[])).unwrap_err(), "the trace has no requests");
    let cut = &plain[..plain.len() - 1];
    let cell = run(&spec("off"), cut).unwrap();
    assert!(figures(&cell).cut_off.as_ref().unwrap().contains("record 2"), "{:?}", figures(&cell).cut_off);
    // A record of an unknown kind.
    let wrong = [cut, &[14, 0]].concat();
    let cell = run(&spec("off"), &wrong).unwrap();
    assert!(
        figures(&cell).cut_off.as_ref().unwrap().contains("record 2: kind 14"),
        "{:?}",
        figures(&cell).cut_off
    );
    let nothing = trace(false, &[]);
    let nothing = [&nothing[..nothing.len() - 1], &[14, 0]].concat();
    assert!(run(&spec("off"), &nothing).unwrap_err().contains("record 1: kind 14"));
}

#[test]
fn a_replay_stops_when_it_is_told_to() {
    struct Endless(Header, u64);
    impl Source for Endless {
        fn header(&self) -> &Header {
            &self.0
        }
        fn next(&mut self) -> Result<Option<Record>, TraceError> {
            self.1 += 1;
            // Completions that are recorded for the end of time.
            let event = request(RequestKind::Write, self.1 % 1000, 1, Some(u64::MAX / 2));
            Ok(Some(Record { at: SimTime(self.1), device: 0, event }))
        }
    }
    let header = Header { devices: vec![TraceDevice::default()], ..Header::default() };
    let mut calls = 0;
    let error = run_cell(&spec("off"), &mut Endless(header, 0), &mut |_| {
        calls += 1;
        calls < 3
    });
    assert!(matches!(error, Err(ReplayError::Interrupted)));
}

#[test]
fn a_block_device_is_asked_for_the_same() {
    let spec = spec("off");
    let events = [
        (0, write(0, 4)),
        (10, Event::Request(Request { sectors: SectorRange::new(Lba(3), 18), ..plain_write() })),
        (20, discard(0, 2)),
        (30, request(RequestKind::Flush, 0, 0, None)),
        (40, request(RequestKind::Read, 8, 1, Some(1_000))),
        (9_000_000, write(100, 1)),
    ];
    for (pace, discards) in [(Pace::Closed, true), (Pace::Open { speed_percent: 100 }, false)] {
        let sim = Sim::new();
        let drive = Drive::new(&spec.ssd, spec.faults, 1).unwrap();
        let queue = BlockQueue::new(&sim, drive, crate::block::QueueConfig::default());
        let device = crate::block::ModelDevice::new(queue, "small");
        let bytes = trace(false, &events);
        let options = ReplayOptions { pace, ..ReplayOptions::default() };
        let replay = sim
            .run(async move {
                let on_device = OnDeviceOptions { discards, ..OnDeviceOptions::default() };
                replay_on(&device, &mut Reader::new(&bytes[..]).unwrap(), options, &on_device).await
            })
            .unwrap()
            .unwrap();
        assert_eq!((replay.figures.requests, replay.figures.recorded_discards), (5, 1));
        assert_eq!(replay.figures.written_bytes, 4 * 4096 + 18 * 512 + 4096);
        assert_eq!(replay.latency["write"].count, 3);
        assert_eq!(replay.latency.contains_key("discard"), discards);
        assert_eq!((replay.discards_sent, replay.prelude), (u64::from(discards), None));
        assert_eq!(replay.duration_ns > 9_000_000, pace != Pace::Closed);
    }
}

/// A drive that is written whole, rests, and is then overwritten at random.
#[test]
fn a_prelude_makes_the_drive_what_it_was_and_counts_for_nothing() {
    const BEGUN: u64 = 20_000_000_000;
    let units = Bytes::mib(128).units_floor();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let prelude =
        (0..units / 64).map(|i| (i * 1_000_000, request(RequestKind::Write, i * 64, 64, Some(900_000))));
    let prelude: Vec<(u64, Event)> = prelude.chain([(BEGUN, Event::Begun)]).collect();
    let after =
        |i: u64, unit: u64| (BEGUN + i * 2_000_000, request(RequestKind::Write, unit, 1, Some(1_000_000)));
    let after: Vec<(u64, Event)> = (0..units / 2).map(|i| after(i, rng.next_u64() % units)).collect();
    let written = |events: &[(u64, Event)], has_prelude| {
        let header = Header { devices: vec![TraceDevice::default()], has_prelude, ..Header::default() };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for &(at, event) in events {
            writer.write(&Record { at: SimTime(at), device: 0, event }).unwrap();
        }
        writer.finish().unwrap()
    };
    let whole = written(&[&prelude[..], &after[..]].concat(), true);
    for pace in [Pace::Open { speed_percent: 100 }, Pace::Open { speed_percent: 200 }, Pace::Closed] {
        let options = ReplayOptions { pace, ..ReplayOptions::default() };
        let spec = ReplaySpec { options, ..spec("off") };
        let cell = run(&spec, &whole).unwrap();
        let device = cell.device_stats.as_ref().unwrap();
        assert_eq!((figures(&cell).requests, device.host_units_written), (units / 2, units / 2));
        assert_eq!(cell.latency["write"].count, units / 2);
        let (recorded, took) = (units / 2 * 2_000_000, cell.duration_ns);
        match pace {
            Pace::Open { speed_percent } => {
                let expected = recorded * 100 / u64::from(speed_percent);
                assert!(took.abs_diff(expected) < expected / 100, "{took} ns, not {expected}");
            }
            Pace::Closed => assert!(took < recorded / 2, "{took} ns"),
        }
        let fuller = run(&ReplaySpec { utilization: Utilization::of(10), ..spec.clone() }, &whole).unwrap();
        assert_eq!(fuller.device_stats, cell.device_stats, "the prelude alone fills the drive");
        let on_empty = ReplaySpec { utilization: Utilization::of(0), ..spec };
        let empty = run(&on_empty, &written(&after, false)).unwrap().device_stats.unwrap();
        assert!(
            device.gc_units_copied > 2 * empty.gc_units_copied,
            "{device:?}, and {empty:?} on an empty drive"
        );
    }
    let sim = Sim::new();
    let spec = spec("off");
    let queue = BlockQueue::new(&sim, Drive::new(&spec.ssd, spec.faults, 1).unwrap(), Default::default());
    let device = crate::block::ModelDevice::new(queue, "small");
    let replay = {
        let whole = whole.clone();
        let options = ReplayOptions { pace: Pace::Open { speed_percent: 100 }, ..ReplayOptions::default() };
        let on_device = OnDeviceOptions { discards: true, ..OnDeviceOptions::default() };
        sim.run(async move {
            replay_on(&device, &mut Reader::new(&whole[..]).unwrap(), options, &on_device).await
        })
    };
    let replay = replay.unwrap().unwrap();
    assert_eq!(replay.figures.requests, units / 2);
    let prelude = replay.prelude.unwrap();
    assert_eq!((prelude.requests, prelude.written_bytes), (units / 64, units * UNIT_BYTES));
    let recorded = units / 2 * 2_000_000;
    assert!(replay.duration_ns.abs_diff(recorded) < recorded / 100, "{} ns", replay.duration_ns);

    let info = crate::trace::survey(&mut Reader::new(&whole[..]).unwrap(), &mut |_| true);
    assert_eq!((info.prelude_records, info.records), (units / 64 + 1, units / 2));
    assert_eq!(info.requests["write"].count, units / 2);
    assert_eq!(info.needed_bytes, Bytes::mib(128).0, "a drive must hold the prelude, too");
}

#[test]
fn regression_a_part_of_a_prelude_is_no_recording() {
    let events: Vec<(u64, Event)> = (0..20).map(|i| (i * 1_000_000, write(i, 1))).collect();
    let written = |events: &[(u64, Event)]| {
        let header = Header { devices: vec![TraceDevice::default()], has_prelude: true, ..Header::default() };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for &(at, event) in events {
            writer.write(&Record { at: SimTime(at), device: 0, event }).unwrap();
        }
        writer.finish().unwrap()
    };
    let whole = written(&events);
    for (part, records) in [(&whole[..], 20), (&whole[..whole.len() - 2], 19)] {
        let error = run(&spec("off"), part).unwrap_err();
        assert!(error.contains("the recording is missing"), "{error}");
        let refused = expect_recording(&mut Reader::new(part).unwrap());
        assert!(matches!(refused, Err(ReplayError::OnlyPrelude)), "{refused:?}");
        let sim = Sim::new();
        let drive = Drive::new(&spec("off").ssd, Faults::default(), 1).unwrap();
        let device =
            crate::block::ModelDevice::new(BlockQueue::new(&sim, drive, Default::default()), "small");
        let part = part.to_vec();
        let replay = sim.run(async move {
            let mut source = Reader::new(&part[..]).unwrap();
            let on_device = OnDeviceOptions { discards: true, ..OnDeviceOptions::default() };
            let replay = replay_on(&device, &mut source, ReplayOptions::default(), &on_device).await;
            (replay, crate::trace::survey(&mut Reader::new(&part[..]).unwrap(), &mut |_| true))
        });
        let (replay, info) = replay.unwrap();
        assert!(matches!(replay, Err(ReplayError::OnlyPrelude)), "{replay:?}");
        assert!(info.recording_is_missing);
        assert_eq!((info.prelude_records, info.records, info.requests.len()), (records, 0, 0));
    }
    let begun = [(30_000_000, Event::Begun), (31_000_000, write(0, 1)), (32_000_000, write(1, 1))];
    let whole = written(&[&events[..], &begun].concat());
    let cut = run(&spec("off"), &whole[..whole.len() - 2]).unwrap();
    assert_eq!(figures(&cut).requests, 1);
    assert!(figures(&cut).cut_off.is_some(), "cut off in the same batch in which the recording begins");
    expect_recording(&mut Reader::new(&whole[..]).unwrap()).unwrap();
    assert!(!crate::trace::survey(&mut Reader::new(&whole[..]).unwrap(), &mut |_| true).recording_is_missing);
}

#[test]
fn regression_discards_passed_on_as_recorded_are_in_the_ledger() {
    let events: Vec<(u64, Event)> =
        (0..40).map(|i| (i * 1_000_000, if i % 4 == 3 { discard(i - 1, 2) } else { write(i, 1) })).collect();
    let bytes = trace(false, &events);
    let ledger = |policy: &str| run(&spec(policy), &bytes).unwrap().ledger.unwrap().units;
    let commit = ledger("commit");
    assert_eq!((commit.freed, commit.issued), (20, 20));
    assert_eq!((ledger("off").freed, ledger("lazy").freed), (20, 20));
}

fn plain_write() -> Request {
    let Event::Request(request) = write(0, 1) else { unreachable!() };
    request
}

#[test]
fn regression_what_a_trace_reads_first_is_on_the_drive() {
    let read = |unit, units| request(RequestKind::Read, unit, units, None);
    // Units 0 and 1 are written first, 100 discarded; the others are read first.
    let events = [
        (0, write(0, 2)),
        (1, read(0, 4)),
        (2, discard(100, 1)),
        (3, read(98, 4)),
        (4, read(20_000, 300)),
        (5, write(20_000, 300)),
        (6, read(20_100, 8)),
    ];
    let bytes = trace(false, &events);
    let options = ReplayOptions::default();
    let size = Bytes(spec("off").ssd.capacity_bytes);
    let before = read_before(&mut Reader::new(&bytes[..]).unwrap(), options, size, &mut |_| true).unwrap();
    let range = |start, units| UnitRange::new(Lpn(start), units);
    assert_eq!(before, [range(2, 2), range(98, 2), range(101, 1), range(20_000, 300)]);

    let empty = ReplaySpec { utilization: Utilization::of(0), ..spec("off") };
    let filled = ReplaySpec { before: before.into(), ..empty.clone() };
    let p50 = |spec: &ReplaySpec| run(spec, &bytes).unwrap().latency["read"].p50_ns;
    assert!(p50(&filled) > p50(&empty), "{} and {}", p50(&filled), p50(&empty));
    assert_eq!(figures(&run(&filled, &bytes).unwrap()).written_before_bytes, 305 * UNIT_BYTES);
    // What the fill covers is not written again.
    let both = ReplaySpec { utilization: Utilization::of(50), ..filled };
    let units = PreparedDrive::new(&both).unwrap().port.drive().ssd().capacity_units() / 2;
    assert_eq!(
        figures(&run(&both, &bytes).unwrap()).written_before_bytes,
        (20_300 - units.max(20_000)) * UNIT_BYTES
    );

    // A trace with a prelude was recorded on a new drive, and has all that was on it.
    let header = Header { devices: vec![TraceDevice::default()], has_prelude: true, ..Header::default() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for (at, event) in [(0, Event::Begun), (1, read(0, 4))] {
        writer.write(&Record { at: SimTime(at), device: 0, event }).unwrap();
    }
    let whole = writer.finish().unwrap();
    assert_eq!(read_before(&mut Reader::new(&whole[..]).unwrap(), options, size, &mut |_| true).unwrap(), []);
}

#[test]
fn a_device_is_written_before_or_the_result_says_what_it_read() {
    let read = |unit, units| request(RequestKind::Read, unit, units, None);
    let bytes = trace(false, &[(0, write(0, 2)), (1, read(0, 4)), (2, read(2, 2))]);
    let replay = |before: Option<Vec<UnitRange>>| {
        let (sim, spec, bytes) = (Sim::new(), spec("off"), bytes.clone());
        let drive = Drive::new(&spec.ssd, spec.faults, 1).unwrap();
        let device =
            crate::block::ModelDevice::new(BlockQueue::new(&sim, drive, Default::default()), "small");
        let on_device = OnDeviceOptions { before, ..OnDeviceOptions::default() };
        sim.run(async move {
            replay_on(&device, &mut Reader::new(&bytes[..]).unwrap(), ReplayOptions::default(), &on_device)
                .await
        })
        .unwrap()
        .unwrap()
    };
    let without = replay(None);
    assert_eq!((without.unwritten_read_bytes, without.figures.written_before_bytes), (4 * UNIT_BYTES, 0));
    let with = replay(Some(vec![UnitRange::new(Lpn(2), 2)]));
    assert_eq!((with.unwritten_read_bytes, with.figures.written_before_bytes), (0, 2 * UNIT_BYTES));
    assert_eq!(
        (with.figures.requests, with.figures.written_bytes),
        (3, 2 * UNIT_BYTES),
        "not the trace's own"
    );
    assert!(with.latency["read"].p50_ns > without.latency["read"].p50_ns);
}
