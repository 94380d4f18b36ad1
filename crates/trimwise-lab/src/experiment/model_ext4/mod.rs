//! The modelled ext4 next to that of a real kernel: the same PostMark on the same drive, and the requests that reach
//! it.
//!
//! The guest's processor takes no time, so the model's takes none either; the model's memory and journal are those of
//! the guest. Requests are counted from the start of PostMark until [`SETTLE`] after its end, when everything has been
//! written; the duration is PostMark's own.

mod claims;
mod kernel;
pub mod log;
mod tables;

use log::{Log, Traffic};
use serde::Serialize;
use trimwise::block::BlockQueue;
use trimwise::compare::cell::{CellError, audited};
use trimwise::engine::Sim;
use trimwise::fs::Volume;
use trimwise::fs::host::{HostConfig, Slabs};
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, SsdConfig};
use trimwise::units::{Bytes, SimDuration, UNIT_BYTES};
use trimwise::workload::postmark::{self, PostmarkConfig};

use super::result::ExperimentResult;
use super::{Experiment, Host};

pub static EXPERIMENT: Experiment = Experiment {
    name: "model-ext4",
    question: "How close is the modelled ext4 to that of a real kernel?",
    reps: 1,
    claims: include_str!("../../../../../experiments/model-ext4/claims.toml"),
    host: Host::Kernels(|only, _| kernel::choice(only).map(drop)),
    run: kernel::run,
};

const KERNEL: &str = "6.1";
const DEVICE: &str = "sata-generic";

/// More than any of the workloads fills, so that there are always free blocks.
const CAPACITY: Bytes = Bytes::gib(8);

/// About half of the guest's memory remains for the page cache.
const GUEST_MEMORY: Bytes = Bytes::mib(256);

/// Rest after the mount, and after PostMark before counting ends: twice the age at which dirty data are written.
const SETTLE: SimDuration = SimDuration::from_secs(70);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    name: &'static str,
    config: &'static str,
}

/// Three workloads: metadata dominate the first, data the second; the third reads and appends over more than fits into
/// memory.
const SHAPES: [Shape; 3] = [
    Shape {
        name: "small",
        config: "set number 20000\nset transactions 100000\nset size 500 20000\nset buffering false\nset write 4096\n\
                 set read 4096\n",
    },
    Shape {
        name: "large",
        config: "set number 120\nset transactions 1500\nset size 2000000 10000000\nset buffering false\n\
                 set write 65536\nset read 65536\n",
    },
    Shape {
        name: "mixed",
        config: "set number 4000\nset transactions 20000\nset size 1000 200000\nset buffering false\nset write 4096\n\
                 set read 4096\n",
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    shape: &'static Shape,
    discard: bool,
}

impl Case {
    /// Returns the policy, which has the same name on both sides.
    fn policy(&self) -> PolicySpec {
        if self.discard { PolicySpec::COMMIT } else { PolicySpec::OFF }
    }
}

fn cases() -> Vec<Case> {
    let with = |shape| [false, true].map(|discard| Case { shape, discard });
    SHAPES.iter().flat_map(with).collect()
}

fn device() -> Result<SsdConfig, CellError> {
    let profile = Profile::embedded(DEVICE).expect("the device is built in");
    Ok(profile.config.shrunk(CAPACITY.0)?)
}

/// Properties of the guest that affect its file system, as reported before PostMark began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GuestFacts {
    /// Dirty pages beyond which write-back starts (`nr_dirty_background_threshold` of /proc/vmstat).
    pub background_pages: u64,
    /// Dirty pages beyond which writers would be stopped (`nr_dirty_threshold`).
    pub dirty_pages: u64,
    /// Pages of programs and of files elsewhere (active and inactive file pages in /proc/meminfo, which do not include
    /// init's locked pages).
    pub cached_pages: u64,
    pub journal_blocks: u64,
}

impl GuestFacts {
    /// Returns the model's host. Its memory is derived from the dirty limits, which are shares of the memory that pages
    /// may fill.
    fn host(&self) -> HostConfig {
        let linux = KERNEL.parse().expect("it is a version");
        let guest = HostConfig::in_guest(linux, GUEST_MEMORY);
        HostConfig {
            memory: Bytes::from_units(self.dirty_pages * 100 / guest.dirty_percent),
            slabs: Slabs { programs_bytes: self.cached_pages * UNIT_BYTES, ..guest.slabs },
            ..guest
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    pub duration_ns: u64,
    pub commits: u64,
    #[serde(flatten)]
    pub traffic: Traffic,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    pub shape: &'static str,
    pub policy: String,
    pub guest: GuestFacts,
    pub kernel: Side,
    pub model: Side,
}

fn run_model(case: Case, guest: GuestFacts, seed: u64) -> Result<Side, CellError> {
    let sim = Sim::new();
    let host = guest.host();
    let queue = BlockQueue::new(&sim, Drive::new(&device()?, Default::default(), seed)?, host.queue);
    let parsed = PostmarkConfig::parse(case.shape.config, case.shape.name);
    let config = parsed.expect("it is written here").runs[0].config.for_model()?;
    sim.run(async move {
        let format = FormatOptions {
            journal: Some(Bytes::from_units(guest.journal_blocks)),
            discard: false,
            ..FormatOptions::TODAY
        };
        let volume = Volume::format(&queue, format).await?;
        let fs = volume.mount(host, case.policy().governor()).await;
        let sim = queue.sim();
        sim.sleep(SETTLE).await;

        let log = Log::start(&queue);
        let before = fs.commits();
        let result = postmark::run(&fs, &config, &mut |_| ()).await;
        let outcome = result.map_err(|source| CellError::Workload {
            device: DEVICE.to_owned(),
            policy: case.policy().to_string(),
            source: Box::new(source),
        })?;
        sim.sleep(SETTLE).await;
        let traffic = log.stop(&fs);
        let commits = fs.commits() - before;
        audited(fs, DEVICE, &case.policy()).await?;
        Ok(Side { duration_ns: outcome.duration().as_nanos(), commits, traffic })
    })?
}

pub fn evaluate(pairs: &[Pair], seed: u64) -> ExperimentResult {
    let judged = EXPERIMENT.judge(&claims::figures(pairs), &pairs, EXPERIMENT.reps, seed);
    ExperimentResult { tables: tables::all(pairs), ..judged }
}
