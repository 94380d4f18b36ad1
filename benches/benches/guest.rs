//! How fast a guest is: a whole run of a job on ext4 of Linux 6.12, wall time, boot and mkfs included.
//!
//!     cargo bench --manifest-path benches/Cargo.toml --bench guest
//!
//! `guest/boot` boots, makes a file system, mounts and unmounts it: what the others have on top of their work.
//!
//! `guest/postmark` is 50,000 transactions on 2,000 files of 500 to 10,000 bytes, all in the guest's memory, so what it
//! measures are system calls. `in_batches` hands them over as workloads do, `one_by_one` makes each by itself.
//!
//! `guest/direct_writes` are 20,000 direct writes of 4 KiB at random places of a file, one at a time: what it measures is
//! the way of a request to the drive and back.
//!
//! Without that kernel (`trimwise kernel list`) nothing is measured.

use std::process::ExitCode;

use criterion::{Criterion, Throughput, criterion_group};
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_lab::guests::{self, Bounds};
use trimwise_uml::cell::new_disk;
use trimwise_uml::guest::run_as_init;
use trimwise_uml::images::{self, KernelImage};
use trimwise_uml::job::{FileSystem, Job, Step};

const TRANSACTIONS: u64 = 50_000;
const WRITES: u64 = 20_000;

fn job(work: Vec<Step>) -> Job {
    let file_system = FileSystem::Ext4;
    let mut steps = vec![
        Step::Mkfs { file_system, options: Vec::new() },
        Step::Mount { file_system, options: "nodiscard".to_owned() },
        Step::WriteZeros,
    ];
    steps.extend(work);
    Job { steps }
}

fn run(image: &KernelImage, job: &Job) {
    let mut device = Profile::embedded("sata-small").expect("an embedded profile");
    device.config = device.config.shrunk(Bytes::gib(1).0).expect("it can be that small");
    let guest = guests::guest(image, Bytes::mib(256), &Bounds::default()).expect("this program is found");
    let mut disks = [new_disk(&device, 1, false).expect("there is memory")];
    guest.run(job, &mut disks).expect("it runs");
}

fn postmark() -> Step {
    let config =
        format!("set number 2000\nset size 500 10000\nset transactions {TRANSACTIONS}\nset report terse\nrun\n");
    Step::Postmark { config, rep: 0 }
}

fn direct_writes() -> Step {
    let text = format!("[a]\nrw=randwrite\nbs=4k\ndirect=1\nsize=64m\nio_size={}k\n", 4 * WRITES);
    Step::Workload { argument: "job:a.fio".to_owned(), text, scale: 1.0, rep: 0, seed: 1 }
}

fn guest(c: &mut Criterion) {
    let image = match images::find("6.12") {
        Ok(image) => image,
        Err(why) => return eprintln!("guest: skipped: {why}"),
    };
    let mut group = c.benchmark_group("guest");
    group.sample_size(10);
    group.bench_function("boot", |b| b.iter(|| run(&image, &job(Vec::new()))));
    group.throughput(Throughput::Elements(TRANSACTIONS));
    for (name, how) in [("in_batches", None), ("one_by_one", Some(Step::CallOneByOne))] {
        let job = job(how.into_iter().chain([postmark()]).collect());
        group.bench_function(format!("postmark/{name}"), |b| b.iter(|| run(&image, &job)));
    }
    group.throughput(Throughput::Elements(WRITES));
    let job = job(vec![direct_writes()]);
    group.bench_function("direct_writes", |b| b.iter(|| run(&image, &job)));
    group.finish();
}

criterion_group!(benches, guest);

/// A guest's init is this program.
fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("guest-init") {
        return match run_as_init() {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("guest: {why}");
                ExitCode::FAILURE
            }
        };
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
    ExitCode::SUCCESS
}
