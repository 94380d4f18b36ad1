//! How fast the whole stack is: one run of PostMark, from mkfs to unmount, wall time on one core.
//!
//!     cargo bench --manifest-path benches/Cargo.toml --bench stack
//!
//! `stack/postmark_50000` makes 50,000 files of 1,000 to 200,000 bytes, does 50,000 transactions in blocks of 4 KiB
//! and deletes them: 2.8 million system calls, 8.6 GB written, on a SATA drive of 256 GB that is told of what is
//! freed. The limit is 4 s a run.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use trimwise::compare::cell::{CellSpec, run_cell};
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::Faults;
use trimwise_lab::experiment::postmark_vendors;

fn spec() -> CellSpec {
    let profile = Profile::embedded("sata-generic").expect("an embedded profile");
    CellSpec {
        device: profile.name,
        ssd: profile.config,
        thin: profile.thin,
        faults: Faults::default(),
        policy: PolicySpec::COMMIT.into(),
        workload: postmark_vendors::workload(true).into(),
        days: None,
        host: HostConfig::of_the_2010s(),
        format: FormatOptions::default(),
        utilization: None,
        long_in_use: false,
        rep: 0,
        seed: 1,
    }
}

fn postmark(c: &mut Criterion) {
    let spec = spec();
    let mut group = c.benchmark_group("stack");
    group.sample_size(10);
    group.bench_function("postmark_50000", |b| {
        b.iter(|| black_box(run_cell(&spec, Box::new(|_| ())).expect("the workload fits").duration_ns));
    });
    group.finish();
}

criterion_group!(benches, postmark);
criterion_main!(benches);
