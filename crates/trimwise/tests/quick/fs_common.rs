//! What the tests of the file system share: a drive whose times are easy to add up, and a trace.
#![allow(dead_code)] // each test binary uses its part

use std::cell::RefCell;
use std::rc::Rc;

use trimwise::block::{BlockQueue, Command, QueueConfig, Stage};
use trimwise::engine::Sim;
use trimwise::files::{Files, OpenMode};
use trimwise::fs::host::{CpuCosts, DiscardGeneration, HostConfig, Writeback};
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::PolicySpec;
use trimwise::ssd::{LinkKind, Ssd, SsdConfig, TrimConfig, TrimKind};
use trimwise::units::{Bytes, SimDuration, SimTime, UNIT_BYTES};

/// Blocks of the journal that [`format`] makes.
pub const JOURNAL_UNITS: u64 = 1_024;

/// 512 MiB behind SATA or NVMe; a TRIM takes `trim_ms`, whatever it says.
pub fn drive(kind: LinkKind, trim_ms: u64) -> SsdConfig {
    let trim_kind = if kind == LinkKind::Nvme { TrimKind::Nvme } else { TrimKind::AtaNonQueued };
    let mut config = SsdConfig {
        capacity_bytes: Bytes::mib(512).0,
        over_provisioning_percent: Some(30.into()),
        trim: TrimConfig {
            kind: trim_kind,
            max_ranges: 4,
            cost_per_command_ns: trim_ms * 1_000_000,
            cost_per_range_ns: 0,
            cost_per_unit_ns: 0,
            ..SsdConfig::default().trim
        },
        ..SsdConfig::default()
    };
    config.link.kind = kind;
    config.geometry.pages_per_block = 32;
    config
}

/// No processor costs, ample memory.
pub fn host(discard: DiscardGeneration) -> HostConfig {
    HostConfig {
        memory: Bytes::gib(1),
        cpu: CpuCosts::ZERO,
        queue: QueueConfig::default(),
        discard,
        // Held at the limit, a writer waits for what can be worked out by hand.
        writeback: Writeback::AtTheLimit,
        ..HostConfig::of_the_2010s()
    }
}

pub fn format() -> FormatOptions {
    FormatOptions { journal: Some(Bytes::from_units(JOURNAL_UNITS)), ..FormatOptions::default() }
}

/// Runs `test` on a file system on a new drive.
pub fn on_fs<F: Future<Output = ()> + 'static>(
    drive: SsdConfig,
    host: HostConfig,
    policy: PolicySpec,
    test: impl FnOnce(Ext4) -> F + 'static,
) {
    on_queue(drive, host.queue, move |queue| async move {
        let volume = Volume::format(&queue, format()).await.unwrap();
        test(volume.mount(host, policy.governor()).await).await;
    });
}

/// Runs `test` on the queue of a new drive; a simulation that goes on for ten hours is stuck.
pub fn on_queue<F: Future<Output = ()> + 'static>(
    drive: SsdConfig,
    config: QueueConfig,
    test: impl FnOnce(BlockQueue) -> F,
) {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(&drive, 1).unwrap(), config);
    let watch = sim.clone();
    sim.spawn(async move {
        watch.sleep(SimDuration::from_secs(36_000)).await;
        panic!("stuck: still running after ten hours");
    });
    sim.run(test(queue)).unwrap();
}

/// Adds `pages` pages to a file, which is made if need be.
pub async fn write(fs: &Ext4, path: &str, pages: u64) {
    drop(fs.open(path, OpenMode::CreateKeep).await.unwrap());
    let mut file = fs.open(path, OpenMode::Append).await.unwrap();
    fs.write(&mut file, &vec![0; (pages * UNIT_BYTES) as usize]).await.unwrap();
    fs.close(file).await.unwrap();
}

pub async fn fsync(fs: &Ext4, path: &str) {
    let mut file = fs.open(path, OpenMode::Read).await.unwrap();
    fs.fsync(&mut file).await.unwrap();
}

pub async fn sleep_ms(fs: &Ext4, ms: u64) {
    fs.queue().sim().clone().sleep(SimDuration::from_millis(ms)).await;
}

/// Every command that a queue sees.
pub type Trace = Rc<RefCell<Vec<(SimTime, Stage, Command)>>>;

pub fn trace(queue: &BlockQueue) -> Trace {
    let seen = Trace::default();
    let sink = Rc::clone(&seen);
    queue.trace(Some(Box::new(move |at, stage, command| {
        sink.borrow_mut().push((at, stage, command.clone()));
    })));
    seen
}

/// One letter for each command that was given to the device.
pub fn dispatched(trace: &Trace) -> String {
    let seen = trace.borrow();
    let given = seen.iter().filter(|(_, stage, _)| *stage == Stage::Dispatched);
    given
        .map(|(_, _, command)| match command {
            Command::Read(_) | Command::ReadPart(_) => 'R',
            Command::Write(..) | Command::WritePart(..) => 'W',
            Command::Trim(_) => 'T',
            Command::Flush => 'F',
        })
        .collect()
}
