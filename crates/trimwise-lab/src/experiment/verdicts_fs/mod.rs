//! The value of TRIM on each file system of Linux: time, latency, write amplification and flash life under each way of
//! trimming that a stock kernel has, and under trimwised.
//!
//! For each way of mounting, a file system is made and aged once on a new drive; each workload then begins on a copy of
//! that drive, as after a reboot.

mod runs;
mod summary;
mod tables;

use serde::{Deserialize, Serialize};
use trimwise::units::{Bytes, Utilization};

use super::result::ExperimentResult;
use super::{Experiment, Host};

/// The experiment. Repetitions differ in the seed of ageing and of the workload, and in the phase of the commit timer.
pub static EXPERIMENT: Experiment = Experiment {
    name: "verdicts-fs",
    question: "What is TRIM worth on ext4, XFS, btrfs and f2fs, and which way of trimming?",
    reps: 3,
    claims: include_str!("../../../../../experiments/verdicts-fs/claims.toml"),
    host: Host::Long(|only, target| runs::choice(only, true, target).map(drop)),
    run: runs::run,
};

const KERNEL: &str = "6.12";
const FILE_SYSTEMS: [&str; 4] = ["ext4", "xfs", "btrfs", "f2fs"];

/// A drive whose TRIM runs alone, and one that queues it.
const DRIVES: [&str; 2] = ["sata-small", "nvme-generic"];

/// Small enough that a run takes seconds.
const CAPACITY: Bytes = Bytes::gib(4);

/// After ageing.
const UTILIZATIONS: [Utilization; 3] = Utilization::all([50, 80, 90]);

const MEMORY: Bytes = Bytes::mib(256);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Off,
    /// The mount option `discard`; on btrfs `discard=sync`.
    Discard,
    /// `discard=async`, which only btrfs has.
    Async,
    /// One fstrim before work that lasts seconds: it finds what any timer's fstrim has left.
    Fstrim,
    Daily,
    /// fstrim on Monday at midnight.
    Weekly,
    Trimwised,
}

impl Way {
    const ALL: [Self; 7] =
        [Self::Off, Self::Discard, Self::Async, Self::Fstrim, Self::Daily, Self::Weekly, Self::Trimwised];

    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Discard => "discard",
            Self::Async => "async",
            Self::Fstrim => "fstrim",
            Self::Daily => "fstrim-daily",
            Self::Weekly => "fstrim-weekly",
            Self::Trimwised => "trimwised",
        }
    }

    const fn policy(self) -> &'static str {
        match self {
            Self::Off | Self::Fstrim => "off",
            Self::Discard => "commit",
            Self::Async => "async",
            Self::Daily => "batch:1d",
            Self::Weekly => "batch:1w",
            Self::Trimwised => "trimwised",
        }
    }

    /// Returns the way under which the file system was aged: the one with the same mount options.
    const fn aged(self) -> Self {
        match self {
            Self::Discard | Self::Async => self,
            _ => Self::Off,
        }
    }

    /// Returns true if fstrim or the daemon has trimmed the file system before the work begins.
    const fn trims_before(self) -> bool {
        matches!(self, Self::Fstrim | Self::Daily | Self::Weekly | Self::Trimwised)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Postmark(&'static str),
    Program(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Workload {
    name: &'static str,
    work: Work,
    /// Number of days, and their shape, if the work is spread over days.
    days: Option<(u32, &'static str)>,
}

const fn program(name: &'static str, argument: &'static str, days: Option<(u32, &'static str)>) -> Workload {
    Workload { name, work: Work::Program(argument), days }
}

/// All workloads, small enough for the space that ageing to 90 % leaves.
const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "postmark",
        work: Work::Postmark(
            "set number 3000\nset transactions 40000\nset size 500 40000\nset buffering false\nrun\n",
        ),
        days: None,
    },
    program("mail", "maildir:messages=3k,deliveries=6k", None),
    program(
        "database",
        "oltp:transactions=8k,data=64MiB,segment=4MiB,checkpoint=12MiB,keep=8MiB,sorted=8MiB",
        None,
    ),
    program("vm", "vm:images=3,image=32MiB,writes=16k,life=3k", None),
    program("desktop-day", "desktop:steps=12k,cache=64MiB", Some((1, "office"))),
    program("packages-week", "unpack:packages=20,upgrades=60,layers=40,kept=3", Some((7, "server"))),
];

impl Workload {
    /// Returns the ways of trimming that this workload distinguishes on a file system.
    fn ways(&self, file_system: &str) -> impl Iterator<Item = Way> {
        let days = self.days.map_or(0, |(days, _)| days);
        let is_btrfs = file_system == "btrfs";
        Way::ALL.into_iter().filter(move |way| match way {
            Way::Off | Way::Discard => true,
            Way::Async => is_btrfs,
            Way::Fstrim => days == 0,
            Way::Daily | Way::Trimwised => days > 0,
            // Within one day, it does the same as `Daily`.
            Way::Weekly => days > 1,
        })
    }
}

/// One way of trimming under one workload on one aged file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    file_system: &'static str,
    drive: &'static str,
    utilization: Utilization,
    workload: Workload,
    way: Way,
}

impl Case {
    /// Returns true if the case is in the sample: one drive, one degree, and no week of the daemon, which takes a
    /// quarter of an hour.
    fn is_sampled(&self) -> bool {
        let is_long = self.way == Way::Trimwised && self.workload.days.is_some_and(|(days, _)| days > 1);
        self.drive == DRIVES[0] && self.utilization == UTILIZATIONS[1] && !is_long
    }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for drive in DRIVES {
        for utilization in UTILIZATIONS {
            for file_system in FILE_SYSTEMS {
                for workload in WORKLOADS {
                    let case = |way| Case { file_system, drive, utilization, workload, way };
                    all.extend(workload.ways(file_system).map(case));
                }
            }
        }
    }
    all
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Duration of the work; over days, the time spent in its operations.
    pub duration_ns: u64,
    /// `None` if nothing was made durable.
    pub fsync_p99_ns: Option<u64>,
    /// Bytes that the work wrote with its calls.
    pub written_bytes: u64,
    /// Bytes that the file system wrote to the drive.
    pub host_bytes: u64,
    /// Bytes that the drive wrote to its flash.
    pub flash_bytes: u64,
    pub trims: u64,
    pub trimmed_bytes: u64,
    /// Trimmed bytes that the drive had held as data until then.
    pub released_bytes: u64,
    pub fitrim_max_ns: u64,
}

impl Figures {
    fn write_amplification(&self) -> f64 {
        self.flash_bytes as f64 / self.host_bytes.max(1) as f64
    }

    /// Returns bytes written to the flash per byte that the work wrote, including writes that the file system adds.
    fn flash_per_byte(&self) -> f64 {
        self.flash_bytes as f64 / self.written_bytes.max(1) as f64
    }

    /// Returns trimmed bytes per byte that the work wrote.
    fn sent(&self) -> f64 {
        self.trimmed_bytes as f64 / self.written_bytes.max(1) as f64
    }

    /// Returns trimmed bytes per trimmed byte that the drive held as data; NaN if it held none.
    fn over_trim(&self) -> f64 {
        match self.released_bytes {
            0 => f64::NAN,
            released => self.trimmed_bytes as f64 / released as f64,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub file_system: &'static str,
    pub drive: &'static str,
    #[serde(rename = "utilization_percent")]
    pub utilization: Utilization,
    pub workload: &'static str,
    pub way: &'static str,
    pub runs: Vec<Figures>,
}

impl Row {
    fn new(case: Case, runs: Vec<Figures>) -> Self {
        let Case { file_system, drive, utilization, workload, way } = case;
        Self { file_system, drive, utilization, workload: workload.name, way: way.name(), runs }
    }
}

fn evaluate(rows: &[Row], is_sample: bool, (reps, seed): (u32, u64)) -> ExperimentResult {
    let tables = tables::all(rows);
    let mut result = EXPERIMENT.judge(&summary::figures(rows), &rows, reps, seed);
    if is_sample {
        result.finding = format!(
            "A sample: {}, {} % full, without a week of trimwised; --full runs all. {}",
            DRIVES[0], UTILIZATIONS[1], result.finding
        );
    }
    ExperimentResult { tables, ..result }
}
