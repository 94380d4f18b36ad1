//! How fast a trace is replayed: block requests a second of wall time, one core, all timing on.
//!
//!     cargo bench --manifest-path benches/Cargo.toml --bench replay
//!
//! `replay/random_4k` replays a million requests of 4 KiB at uniform random places, seven writes to three reads, from a
//! trace in memory that zstd has compressed, on a full 64 GiB drive with 28 % over-provisioning. `replay/read_4k` only
//! reads that trace.
//!
//! `trace/info_FORMAT` and `trace/convert_FORMAT` survey and convert (uncompressed) the same requests as text or as
//! trimwise's own format, in memory.

use std::hint::black_box;
use std::io::{BufReader, Write as _};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::policy::{LinuxVersion, PolicySpec};
use trimwise::profile::Profile;
use trimwise::replay::{PreparedDrive, ReplayOptions, ReplaySpec};
use trimwise::trace::format::{Reader, Writer};
use trimwise::trace::{
    Event, Header, Record, Request, RequestKind, Source, TraceDevice, convert, open, survey,
};
use trimwise::units::{Bytes, Lba, SectorRange, SimDuration, SimTime, Utilization};

const REQUESTS: u64 = 1_000_000;

fn trace(capacity: Bytes) -> Vec<u8> {
    let header = Header { devices: vec![TraceDevice::default()], ..Header::default() };
    let out = zstd::Encoder::new(Vec::new(), 3).expect("a valid level");
    let mut writer = Writer::new(out, &header).expect("memory suffices");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for i in 0..REQUESTS {
        let unit = ((rng.next_u64() >> 32) * capacity.units_floor()) >> 32;
        let request = Request {
            kind: if rng.next_u64() % 10 < 7 { RequestKind::Write } else { RequestKind::Read },
            sectors: SectorRange::new(Lba(unit * 8), 8),
            sync: false,
            fua: false,
            meta: false,
            latency: Some(SimDuration::from_nanos(rng.next_u64() % 200_000)),
        };
        let at = SimTime(i * 5_000);
        writer.write(&Record { at, device: 0, event: Event::Request(request) }).expect("memory suffices");
    }
    writer.finish().and_then(zstd::Encoder::finish).expect("memory suffices")
}

/// The requests of the trace as lines of MSR Cambridge or of blkparse.
fn text(bytes: &[u8], is_blkparse: bool) -> Vec<u8> {
    let (mut source, mut text) = (source(bytes), Vec::new());
    while let Some(Record { at, event, .. }) = source.next().expect("a trace") {
        let Event::Request(Request { kind, sectors, latency, .. }) = event else { continue };
        let (first, count, latency) = (sectors.first.0, sectors.sectors, latency.unwrap_or_default().0);
        let (letter, word) = if kind == RequestKind::Read { ("R", "Read") } else { ("W", "Write") };
        if is_blkparse {
            for (stage, at) in [("Q", at.0), ("D", at.0), ("C", at.0 + latency)] {
                let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
                writeln!(text, "8,0 1 7 {seconds}.{nanos:09} 99 {stage} {letter} {first} + {count} [fio]")
                    .expect("memory suffices");
            }
        } else {
            let (at, offset, size) = (128_166_372_003_061_629 + at.0 / 100, first * 512, count * 512);
            writeln!(text, "{at},usr,0,{word},{offset},{size},{}", latency / 100).expect("memory suffices");
        }
    }
    text
}

fn trace_benches(c: &mut Criterion) {
    let profile = Profile::embedded("bench-64gib").expect("an embedded profile");
    let bytes = trace(Bytes(profile.config.capacity_bytes));
    let own = zstd::decode_all(&bytes[..]).expect("what was compressed");
    let mut group = c.benchmark_group("trace");
    group.throughput(Throughput::Elements(REQUESTS));
    group.sample_size(10);
    for (name, text) in [("msr", text(&bytes, false)), ("blkparse", text(&bytes, true)), ("own", own)] {
        group.bench_function(format!("info_{name}"), |b| {
            b.iter(|| black_box(survey(&mut *open(&text[..], None).expect("a trace"), &mut |_| true)));
        });
        group.bench_function(format!("convert_{name}"), |b| {
            b.iter(|| {
                let mut source = open(&text[..], None).expect("a trace");
                convert(&mut *source, &mut std::io::sink(), &mut |_| true).expect("a trace")
            });
        });
    }
    group.finish();
}

fn source(bytes: &[u8]) -> impl Source {
    let decoder = zstd::Decoder::new(bytes).expect("what was compressed");
    Reader::new(BufReader::with_capacity(1 << 16, decoder)).expect("a trace")
}

fn replay(c: &mut Criterion) {
    let profile = Profile::embedded("bench-64gib").expect("an embedded profile");
    let bytes = trace(Bytes(profile.config.capacity_bytes));
    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(REQUESTS));
    group.sample_size(10);
    group.bench_function("read_4k", |b| {
        b.iter(|| {
            let mut source = source(&bytes);
            while let Some(record) = source.next().expect("a trace") {
                black_box(record);
            }
        });
    });
    let spec = ReplaySpec {
        device: profile.name,
        ssd: profile.config,
        faults: profile.faults,
        policy: PolicySpec::OFF.into(),
        linux: LinuxVersion::TODAY,
        utilization: Utilization::FULL,
        before: Default::default(),
        rep: 0,
        seed: 1,
        options: ReplayOptions::default(),
    };
    let mut drive = None;
    group.bench_function("random_4k", |b| {
        let drive = drive.get_or_insert_with(|| PreparedDrive::new(&spec).expect("a valid profile"));
        b.iter(|| black_box(drive.replay(&spec, &mut source(&bytes), &mut |_| true).expect("it fits")));
    });
    group.finish();
}

criterion_group!(benches, trace_benches, replay);
criterion_main!(benches);
