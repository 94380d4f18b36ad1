//! The effect of TRIM in the model and on a real ext4: the truth table behind `trimwise compare`.
//!
//! Every cell is a workload on an aged drive, under one policy, on one kernel. The model and the kernel have the same
//! drive, ageing, workload and memory, and computing takes no time in either. There is no unmount after ageing, so its
//! pages are in memory when the workload begins, as on a real host.

pub mod explain;
mod kernel;
mod summary;
mod tables;

use serde::Serialize;
use trimwise::block::BlockQueue;
use trimwise::compare::cell::{CellError, SETTLING, audited, commit_phase};
use trimwise::engine::Sim;
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::fs::{Ext4, Volume};
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::{Drive, SsdStats};
use trimwise::units::{Bytes, Utilization};
use trimwise::workload::ageing;
use trimwise::workload::postmark::{self, PostmarkConfig};
use trimwise::workload::scene::Scene;

use super::model_ext4::log::{Log, Traffic};
use super::result::ExperimentResult;
use super::{Experiment, Host};

/// The experiment. Repetitions differ in the seed of ageing and in the phase of the commit timer.
pub static EXPERIMENT: Experiment = Experiment {
    name: "verdicts-ext4",
    question: "Does the model say the same about TRIM as a real ext4?",
    reps: 5,
    claims: include_str!("../../../../../experiments/verdicts-ext4/claims.toml"),
    host: Host::Kernels(|only, _| kernel::choice(only).map(drop)),
    run: kernel::run,
};

const KERNELS: [&str; 2] = ["6.12", "6.1"];

/// A drive whose TRIM runs alone, and one that queues it.
const DRIVES: [&str; 2] = ["sata-small", "nvme-generic"];

/// Small enough that a run takes seconds.
const CAPACITY: Bytes = Bytes::gib(4);

/// After ageing.
const UTILIZATIONS: [Utilization; 3] = Utilization::all([50, 80, 92]);

/// The machine's memory. The workloads use little of it, so that the order in which pages are dropped does not matter.
const MEMORY: Bytes = Bytes::mib(512);

/// Policies of a stock kernel. The batch is frequent enough to come several times in a run.
const POLICIES: [&str; 3] = ["off", "commit", "batch:2s"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work<'a> {
    Postmark(&'a str),
    Scene(Scene),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workload<'a> {
    name: &'a str,
    work: Work<'a>,
}

const fn postmark(name: &'static str, config: &'static str) -> Workload<'static> {
    Workload { name, work: Work::Postmark(config) }
}

/// All workloads, small enough for the space that ageing to 92 % leaves.
const WORKLOADS: [Workload<'static>; 7] = [
    // Mail: small files, none of them synced.
    postmark("mail", "set number 10000\nset transactions 60000\nset size 500 20000\nset buffering false\n"),
    // Mail, with every file synced.
    Workload { name: "spool", work: Work::Scene(Scene::Spool) },
    postmark(
        "mid",
        "set number 200\nset transactions 3000\nset size 10000 1000000\nset buffering false\nset read 4096\nset write 4096\n",
    ),
    postmark(
        "large",
        "set number 8\nset transactions 120\nset size 5000000 30000000\nset buffering false\nset read 65536\nset write 65536\n",
    ),
    Workload { name: "database", work: Work::Scene(Scene::Database) },
    Workload { name: "trees", work: Work::Scene(Scene::Trees) },
    // The default workload of `trimwise compare`, with a quarter of the files.
    postmark(
        "default",
        "set number 2000\nset transactions 30000\nset size 1000 200000\nset read 4096\nset write 4096\nset buffering false\n",
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case<'a> {
    linux: &'static str,
    drive: &'static str,
    utilization: Utilization,
    workload: Workload<'a>,
    /// The policy, in a form that is valid for both.
    policy: &'static str,
}

fn cases() -> Vec<Case<'static>> {
    let mut all = Vec::new();
    for linux in KERNELS {
        for drive in DRIVES {
            for workload in WORKLOADS {
                for utilization in UTILIZATIONS {
                    let case = |policy| Case { linux, drive, utilization, workload, policy };
                    all.extend(POLICIES.map(case));
                }
            }
        }
    }
    all
}

impl Case<'_> {
    fn policy(&self) -> PolicySpec {
        self.policy.parse().expect("it is written here")
    }

    fn draw_seed(seed: u64, rep: u32) -> u64 {
        seed ^ (u64::from(rep) << 32)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Side {
    pub duration_ns: u64,
    #[serde(flatten)]
    pub traffic: Traffic,
    pub write_amplification: f64,
    pub erases: u64,
    /// Units at the end that are free in the file system but hold data in the drive.
    pub stale_units: u64,
}

impl Side {
    fn new(duration_ns: u64, traffic: Traffic, stats: &SsdStats, stale_units: u64) -> Self {
        let write_amplification =
            if stats.host_units_written == 0 { 1.0 } else { stats.write_amplification() };
        Self { duration_ns, traffic, write_amplification, erases: stats.block_erases, stale_units }
    }
}

/// One side of a repetition, and what the drive did in it.
struct Ended {
    /// When the workload ended.
    at_ns: u64,
    side: Side,
    stats: SsdStats,
}

impl Ended {
    fn new(at_ns: u64, duration_ns: u64, traffic: Traffic, stats: SsdStats, stale_units: u64) -> Self {
        Self { at_ns, side: Side::new(duration_ns, traffic, &stats, stale_units), stats }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub linux: &'static str,
    pub drive: &'static str,
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    pub workload: &'static str,
    pub policy: &'static str,
    pub kernel: Vec<Side>,
    pub model: Vec<Side>,
}

impl Row {
    fn new(case: Case<'static>, kernel: Vec<Side>, model: Vec<Side>) -> Self {
        let Case { linux, drive, utilization, workload, policy } = case;
        Self { linux, drive, utilization, workload: workload.name, policy, kernel, model }
    }
}

/// Runs a cell in the model. `watch` is called with the file system when it is mounted.
fn run_model(
    case: Case<'_>,
    memory: Bytes,
    rep: u32,
    seed: u64,
    watch: impl FnOnce(&Ext4) + 'static,
) -> Result<Ended, CellError> {
    let host = HostConfig::in_guest(case.linux.parse().expect("it is a version"), memory);
    let sim = Sim::new();
    let profile = Profile::embedded(case.drive).expect("the device is built in");
    let drive = Drive::new(&profile.config.shrunk(CAPACITY.0)?, Default::default(), seed)?;
    let queue = BlockQueue::new(&sim, drive, host.queue);
    let draw = Case::draw_seed(seed, rep);
    let Case { drive, utilization, workload, .. } = case;
    let policy = case.policy();
    let work = match workload.work {
        Work::Postmark(config) => {
            let parsed = PostmarkConfig::parse(&format!("{config}run\n"), workload.name);
            Ok(parsed.expect("it was parsed before").runs[0].config.for_model()?)
        }
        Work::Scene(scene) => Err(scene),
    };
    sim.run(async move {
        let format = FormatOptions { discard: false, ..FormatOptions::TODAY };
        let volume = Volume::format(&queue, format).await?;
        let fs = volume.mount(host, policy.governor()).await;
        watch(&fs);
        let sim = queue.sim();
        if utilization > Utilization::EMPTY {
            ageing::age(&fs, utilization, draw).await?;
        }
        sim.sleep(SETTLING).await;
        sim.sleep(commit_phase(rep)).await;

        let log = Log::start(&queue);
        let stats = || {
            queue.with_ssd_mut(|ssd| {
                ssd.catch_up(sim.now());
                *ssd.stats()
            })
        };
        let before = stats();
        let duration_ns = match work {
            Ok(config) => {
                let run = postmark::run(&fs, &config, &mut |_| ()).await;
                let outcome = run.map_err(|source| CellError::Workload {
                    device: drive.to_owned(),
                    policy: policy.to_string(),
                    source: Box::new(source),
                })?;
                outcome.duration().as_nanos()
            }
            Err(scene) => scene.run(&fs, draw).await?.as_nanos(),
        };
        let traffic = log.stop(&fs);
        let ended =
            Ended::new(sim.now().as_nanos(), duration_ns, traffic, stats().since(&before), fs.stale_units());
        audited(fs, drive, &policy).await?;
        Ok(ended)
    })?
}

pub fn evaluate(rows: Vec<Row>, reps: u32, seed: u64) -> ExperimentResult {
    let tables = tables::all(&rows);
    ExperimentResult { tables, ..EXPERIMENT.judge(&summary::figures(&rows), &rows, reps, seed) }
}
