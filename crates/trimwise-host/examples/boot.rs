//! Boots a kernel and runs a small job; for measuring.
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use trimwise::block::Port;
use trimwise::profile::Profile;
use trimwise::ssd::Drive;
use trimwise::units::Bytes;
use trimwise_host::kernel::disk::Disk;
use trimwise_host::kernel::job::{FileSystem, Guest, Job, Step};
use trimwise_host::kernel::machine::Limits;
use trimwise_host::sparse_store::SparseStore;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let fs: FileSystem = args[3].parse().unwrap();
    let profile = Profile::embedded("sata-generic").unwrap();
    let config = profile.config.shrunk(Bytes::gib(4).0).unwrap();
    let port = Port::new(Drive::new(&config, Default::default(), 1).unwrap());
    let store = SparseStore::in_memory(port.size()).unwrap();
    let mut disks = [Disk::new(port, store, "trimwise", true)];
    let guest = Guest {
        linux: args[1].clone().into(),
        preload: Some(args[2].clone().into()),
        init: args[4].clone().into(),
        memory: Bytes::mib(256),
        limits: Limits::default(),
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    let mut steps = vec![
        Step::Mkfs { file_system: fs, options: vec![] },
        Step::Mount { file_system: fs, options: "discard".into() },
    ];
    let extra = args.get(5).map(String::as_str).unwrap_or("scatter");
    if extra == "dd" {
        let n = &args[6];
        steps.push(Step::Run {
            command: ["dd", "if=/dev/zero", "of=x", "bs=4k", &format!("count={n}"), "oflag=direct"]
                .map(str::to_owned)
                .into(),
            input: String::new(),
        });
    } else {
        steps.extend([
            Step::Scatter { file: "big".into(), extents: 256, extent_bytes: 65536, keeps_gaps: false },
            Step::Sleep { ns: 12_000_000_000 },
            Step::Remove { file: "big".into() },
            Step::Append { file: "small".into(), bytes: 4096 },
            Step::Sleep { ns: 6_000_000_000 },
            Step::Fitrim { minlen_bytes: 0 },
            Step::Unmount,
        ]);
    }
    let begin = Instant::now();
    let report = guest.run(&Job { steps: steps.clone() }, &mut disks);
    let wall = begin.elapsed();
    let [disk] = disks;
    let (_, _, trace, marks) = disk.into_parts();
    match report {
        Ok(report) => {
            for ((step, report), mark) in steps.iter().zip(&report.steps).zip(&marks[1..]) {
                println!("{step:?} {} ns, at {}: {:?}", report.duration().0, report.end_ns, mark.counts);
            }
            println!(
                "{:?} wall {wall:?} {} req/s",
                report.ended,
                report.ended.requests as f64 / wall.as_secs_f64()
            );
        }
        Err(e) => println!("{e}"),
    }
    eprintln!("{}", trace.len());
}
