//! The pending set with a million extents: what one freed extent, one allocation and one TRIM cost in it.
//!
//! Extents enter in random order, as deletions of scattered files bring them. Each figure is the time for the whole
//! million; the target is at most a second each, one microsecond an extent on average.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use trimwise::policy::PendingSet;
use trimwise::units::{Lpn, UnitRange};

const EXTENTS: u64 = 1_000_000;

/// An extent of 8 units in every 16, in random order.
fn extents() -> Vec<UnitRange> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut extents: Vec<UnitRange> = (0..EXTENTS).map(|i| UnitRange::new(Lpn(i * 16), 8)).collect();
    for i in (1..extents.len()).rev() {
        extents.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
    extents
}

fn filled(extents: &[UnitRange]) -> PendingSet {
    let mut set = PendingSet::new(true);
    extents.iter().for_each(|&range| set.insert(range));
    set
}

fn million(c: &mut Criterion) {
    let order = extents();
    let full = filled(&order);
    let mut group = c.benchmark_group("pending_1m");
    group.sample_size(10);
    group.bench_function("enqueue", |b| b.iter(|| filled(&order)));
    group.bench_function("cancel_by_allocation", |b| {
        b.iter_batched(
            || full.clone(),
            |mut set| {
                for range in &order {
                    // An allocation asks for a place near its goal and takes it: in turn the whole extent, its first
                    // half, or its middle, which splits it.
                    let place = set.fit(range.start, 2 + range.start.0 / 16 % 3 * 3);
                    set.withdraw(place.unwrap_or(*range));
                }
                set
            },
            BatchSize::LargeInput,
        );
    });
    group.bench_function("drain", |b| {
        b.iter_batched(
            || full.clone(),
            |mut set| {
                let mut cursor = Lpn(0);
                while let Some(token) = set.take(cursor, 1, u64::MAX) {
                    cursor = token.range().end();
                    set.settle(token);
                }
                set
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, million);
criterion_main!(benches);
