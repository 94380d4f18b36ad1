//! How fast the device model is: host units a second of wall time, one core, all timing on.
//!
//!     cargo bench --manifest-path benches/Cargo.toml --bench device
//!
//! `device/random_write_64gib` writes single units at uniform random places of a 64 GiB drive with 28 %
//! over-provisioning, 32 commands outstanding, in steady state: filled once in order and then overwritten at
//! random, three times its size, before anything is measured. Next to the rate it prints the write amplification
//! and the model's memory for each logical unit, 9.3 bytes here; the limit is 12.
//!
//! `device/random_write_block_mapping` does the same on the same flash with a block mapping, whose log is all that
//! is over-provisioned. Merges write several units to the flash for each that the host writes, so it prints the rate of
//! both.
//!
//! `device/random_write_compressing` does the same with a compressing mapping of the same flash and compressible data, of
//! which it holds eight units in the place of one.
//!
//! `device/whole_device_discard_8gib` unmaps a full 8 GiB drive at once.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::content::{Content, ContentClass};
use trimwise::profile::Profile;
use trimwise::ssd::{BlockMappingConfig, CompressingConfig, MappingConfig, Ssd, SsdConfig};
use trimwise::units::{Lpn, SimTime, UnitRange};

/// Commands that the host keeps outstanding.
const OUTSTANDING: usize = 32;
/// Writes in one iteration.
const WRITES: u64 = 1_000_000;
/// Log of the block mapping: what is over-provisioned, but for a few superblocks.
const LOG_SUPERBLOCKS: u32 = 140;
/// What fills that log once. Merges come in bursts, so that less would measure a burst or none.
const LOG_UNITS: u64 = LOG_SUPERBLOCKS as u64 * 32_768;

/// What is written; to the other mappings it is all the same.
const COMPRESSIBLE: Content = Content::new(ContentClass::Compressible, 1);

/// A host that keeps a number of commands outstanding: the next is handed over when the oldest has completed.
struct Host {
    ssd: Ssd,
    rng: Xoshiro256PlusPlus,
    outstanding: [SimTime; OUTSTANDING],
    now: SimTime,
}

impl Host {
    /// The next commands are known in advance, as they are to a host with a queue.
    fn write_at_random(&mut self, count: u64) -> SimTime {
        let units = self.ssd.capacity_units();
        for _ in 0..count / OUTSTANDING as u64 {
            let next: [Lpn; OUTSTANDING] =
                std::array::from_fn(|_| Lpn(((self.rng.next_u64() >> 32) * units) >> 32));
            self.ssd.expect(next);
            for (slot, lpn) in self.outstanding.iter_mut().zip(next) {
                self.now = self.now.max(*slot);
                *slot = self.ssd.write_content(self.now, UnitRange::new(lpn, 1), COMPRESSIBLE);
            }
        }
        self.now
    }
}

fn steady_host(change: impl FnOnce(&mut SsdConfig)) -> Host {
    let mut config = Profile::embedded("bench-64gib").expect("an embedded profile").config;
    change(&mut config);
    let ssd = Ssd::new(&config, 1).expect("a valid profile");
    let mut host = Host {
        ssd,
        rng: Xoshiro256PlusPlus::seed_from_u64(1),
        outstanding: [SimTime::ZERO; OUTSTANDING],
        now: SimTime::ZERO,
    };
    let units = host.ssd.capacity_units();
    for start in (0..units).step_by(256) {
        let range = UnitRange::new(Lpn(start), 256.min(units - start));
        host.now = host.ssd.write_content(host.now, range, COMPRESSIBLE);
    }
    host.write_at_random(3 * units);
    host
}

fn random_write(c: &mut Criterion) {
    random_write_of(c, "random_write_64gib", WRITES, |_| {});
    random_write_of(c, "random_write_block_mapping", LOG_UNITS, |config| {
        config.mapping = MappingConfig::Block(BlockMappingConfig { log_superblocks: LOG_SUPERBLOCKS });
    });
    random_write_of(c, "random_write_compressing", WRITES, |config| {
        config.mapping = MappingConfig::Compressing(CompressingConfig {
            granule_bytes: 512,
            head_bytes: 0,
            deduplicates: true,
            read_latency_ns: 0,
            fragment_read_ns: 0,
            recycles_from_stale_percent: Some(75),
            references_checked_at_collection: true,
        });
    });
}

fn random_write_of(c: &mut Criterion, name: &str, writes: u64, change: impl Fn(&mut SsdConfig)) {
    let mut group = c.benchmark_group("device");
    group.throughput(Throughput::Elements(writes));
    group.sample_size(10);
    // Made only when this benchmark is asked for: it takes half a minute.
    let mut host = None;
    group.bench_function(name, |b| {
        let host = host.get_or_insert_with(|| steady_host(&change));
        let earlier = *host.ssd.stats();
        let begun = Instant::now();
        b.iter(|| black_box(host.write_at_random(writes)));
        let took = begun.elapsed().as_secs_f64();
        let stats = host.ssd.stats().since(&earlier);
        eprintln!(
            "write amplification {:.2}, {:.2} million host units and {:.2} million flash units a second, {:.2} bytes \
             of model for each logical unit",
            stats.write_amplification(),
            stats.host_units_written as f64 / took / 1e6,
            stats.nand_units.total() as f64 / took / 1e6,
            host.ssd.memory_bytes() as f64 / host.ssd.capacity_units() as f64
        );
    });
    group.finish();
}

fn discard(c: &mut Criterion) {
    let mut group = c.benchmark_group("device");
    let profile = Profile::embedded("sata-small").expect("an embedded profile");
    let mut full = Ssd::new(&profile.config, 1).expect("a valid profile");
    let units = full.capacity_units();
    full.write(SimTime::ZERO, UnitRange::new(Lpn(0), units));
    group.sample_size(10);
    group.bench_function("whole_device_discard_8gib", |b| {
        b.iter_batched_ref(
            || full.clone(),
            |ssd| ssd.inform_free(UnitRange::new(Lpn(0), units)),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, random_write, discard);
criterion_main!(benches);
