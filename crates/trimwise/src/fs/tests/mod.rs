//! White-box tests: a reference model with random operations, racing tasks, and regressions found by these.

mod durable;
mod model;
mod punch;
mod races;
mod regressions;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};

use super::host::{DiscardGeneration, HostConfig, Placement, Writeback};
use super::layout::FormatOptions;
use super::{Ext4, Volume};
use crate::block::{BlockQueue, Command, QueueConfig, Stage};
use crate::engine::Sim;
use crate::policy::PolicySpec;
use crate::ssd::{GeometryConfig, Ssd, SsdConfig, TrimConfig};
use crate::units::{Bytes, SimDuration, UnitRange};

/// Every way to deal with freed blocks: each policy, and those that depend on the kernel on each kernel generation.
fn hosts() -> Vec<(PolicySpec, DiscardGeneration)> {
    use DiscardGeneration::{CommitBatched, CommitSerial, Worker};
    let on_older = ["commit", "set:40:90+catchup"].into_iter().flat_map(|text| {
        let policy = text.parse().unwrap();
        [(policy, CommitSerial), (policy, CommitBatched)]
    });
    PolicySpec::examples().into_iter().map(|policy| (policy, Worker)).chain(on_older).collect()
}

/// Returns a drive with superblocks of 512 KiB whose TRIMs are so slow that some are always outstanding.
fn drive(mib: u64) -> SsdConfig {
    SsdConfig {
        trim: TrimConfig { cost_per_command_ns: 100_000_000, ..SsdConfig::default().trim },
        capacity_bytes: Bytes::mib(mib).0,
        over_provisioning_percent: Some(15.into()),
        geometry: GeometryConfig::flat(1, 64, 8192),
        ..SsdConfig::default()
    }
}

/// A host with so little memory that write-back, eviction and throttling all happen. Kernels that discard after the
/// commit come with today's allocator and write-back, older ones with those of the experiments.
fn host(generation: DiscardGeneration) -> HostConfig {
    let older = HostConfig { memory: Bytes::mib(4), discard: generation, ..HostConfig::of_the_2010s() };
    match generation {
        DiscardGeneration::CommitSerial | DiscardGeneration::CommitBatched => older,
        DiscardGeneration::Worker | DiscardGeneration::WorkerRunningOn => HostConfig {
            placement: Placement::Groups,
            writeback: Writeback::Paced { hz: 250 },
            converts_unwritten: true,
            ..older
        },
    }
}

fn format(journal_mib: u64) -> FormatOptions {
    FormatOptions { journal: Some(Bytes::mib(journal_mib)), ..FormatOptions::default() }
}

/// A block layer in which every task has to wait for room, and every request is small.
fn narrow() -> QueueConfig {
    QueueConfig {
        max_request: Bytes::kib(64),
        background_depth: 1,
        background_waiting_max: 2,
        ..QueueConfig::default()
    }
}

/// Runs `test` on a new drive; panics if the simulation runs for ten hours of virtual time.
fn with_queue<F: Future<Output = ()> + 'static>(
    drive: &SsdConfig,
    config: QueueConfig,
    test: impl FnOnce(BlockQueue) -> F,
) {
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, Ssd::new(drive, 1).unwrap(), config);
    let watch = sim.clone();
    sim.spawn(async move {
        watch.sleep(SimDuration::from_secs(36_000)).await;
        panic!("stuck: still running after ten hours");
    });
    sim.run(test(queue)).unwrap();
}

async fn mounted(queue: &BlockQueue, policy: PolicySpec, generation: DiscardGeneration) -> Ext4 {
    let volume = Volume::format(queue, format(4)).await.unwrap();
    volume.mount(host(generation), policy.governor()).await
}

fn overlaps(a: UnitRange, b: UnitRange) -> bool {
    a.start < b.end() && b.start < a.end()
}

/// Returns a configuration with the same cases in every run.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Default::default() }
}

/// Blocks that no TRIM may hit.
#[derive(Default)]
struct Guarded {
    /// Blocks of these paths.
    live: BTreeSet<String>,
    /// Freed blocks, each with the number of flushes sent to the device by then. Their commit takes two of its own, one
    /// before its record and one after it.
    freed: Vec<(UnitRange, u64)>,
    flushes_given: u64,
    flushes_done: u64,
}

impl Guarded {
    /// Notes that the blocks of `path` are about to be freed.
    fn freeing(&mut self, fs: &Ext4, path: &str) {
        let extents = fs.extents(path).unwrap_or_default();
        self.freed.extend(extents.into_iter().map(|extent| (extent, self.flushes_given)));
    }

    fn see(&mut self, fs: &Ext4, stage: Stage, command: &Command) {
        match (stage, command) {
            (Stage::Dispatched, Command::Flush) => self.flushes_given += 1,
            (Stage::Completed, Command::Flush) => self.flushes_done += 1,
            (Stage::Dispatched, Command::Trim(ranges)) => {
                let hit = |extent: UnitRange| ranges.iter().find(|&&range| overlaps(range, extent));
                for path in &self.live {
                    for extent in fs.extents(path).unwrap_or_default() {
                        assert_eq!(hit(extent), None, "a TRIM of a block of {path}, {extent:?}");
                    }
                }
                self.freed.retain(|&(_, given)| self.flushes_done < given + 2);
                for &(extent, _) in &self.freed {
                    assert_eq!(hit(extent), None, "a TRIM before {extent:?} is free for good");
                }
            }
            _ => {}
        }
    }
}

/// Panics as soon as a TRIM is sent that hits a guarded block.
fn guard(fs: &Ext4, guarded: Rc<RefCell<Guarded>>) {
    // The file system owns the tracer; a weak reference breaks the cycle.
    let inner = Rc::downgrade(&fs.0);
    fs.queue().trace(Some(Box::new(move |_, stage, command| {
        if let Some(inner) = inner.upgrade() {
            guarded.borrow_mut().see(&Ext4(inner), stage, command);
        }
    })));
}
