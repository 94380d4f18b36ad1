//! Discards of real kernels: how much, when, and what is lost at unmount.
//!
//! Every kernel does the same deletions on each file system. A file lies in one piece, in many pieces with another file
//! between them, or in many pieces with free space between them. It is removed, the directory is synced, and every
//! discard that reaches the drive is counted until no more come. Then FITRIM trims the file system twice, and once more
//! after another deletion. Two shorter runs examine unmount and changes of options while mounted.
//!
//! [`Case`] defines the runs, `runs` boots the kernels, [`observe`] evaluates their traces.

mod claims;
pub mod observe;
mod plots;
mod runs;
mod tables;
#[cfg(test)]
mod tests;

use observe::{Deletion, Discards};
use serde::Serialize;
use trimwise::units::Bytes;

use super::result::ExperimentResult;
use super::{Experiment, Host};

/// The experiment. Nothing is drawn at random, so one run is enough.
pub static EXPERIMENT: Experiment = Experiment {
    name: "kernels",
    question: "What do the file systems of real kernels discard when a file is removed, when, and what is lost at unmount?",
    reps: 1,
    claims: include_str!("../../../../experiments/kernels/claims.toml"),
    host: Host::Kernels(|only, _| runs::check(only)),
    run: runs::run,
};

pub const KERNELS: [&str; 3] = ["5.10", "6.1", "6.12"];

/// Returns the reason why a kernel cannot run with a file system, if there is one.
///
/// In f2fs of 5.10, FITRIM and the discard thread may wait for one command. The second waiter polls it
/// (`__wait_one_discard_bio` leaves it listed while the other holds it) until a tick of the scheduler lets the first
/// continue. Computing takes no virtual time, so there is no tick.
pub fn cannot_run(kernel: &str, file_system: &str) -> Option<&'static str> {
    ((kernel, file_system) == ("5.10", "f2fs")).then_some(
        "its FITRIM spins until the scheduler's tick, which never comes where computing takes no time",
    )
}

pub const DEVICE: &str = "sata-generic";

/// The drive's capacity, with fewer blocks per plane. ext4 continues into free space when it discards, and 4 GiB have
/// enough of it.
pub const CAPACITY: Bytes = Bytes::gib(4);
pub const PLAIN_BYTES: u64 = 64 << 20;

/// Size of the pieces of a scattered file: at least the 64 KiB that f2fs discards in the background, and small compared
/// with an ext4 block group of 128 MiB.
pub const EXTENT_BYTES: u64 = 64 << 10;

/// Number of pieces. Each costs two fsyncs to make.
pub const EXTENTS: u64 = 1024;

/// Size of the file that is removed between the second FITRIM and the third.
pub const SMALL_BYTES: u64 = 1 << 20;

/// Syncs of a small file after the one that follows the deletion.
pub const LATER_FSYNCS: u64 = 20;

/// Time to wait for discards. The slowest is btrfs, which waits for two minutes, and on older kernels then sends at
/// most ten a second.
pub const WINDOW_NS: u64 = 3_600_000_000_000;

/// Time between creating files and removing them. By then the data are checkpointed, and space that was freed in
/// creating the files is discarded.
pub const SETTLE_NS: u64 = 300_000_000_000;

/// Time to wait for FITRIM's discards after the call.
pub const AFTER_FITRIM_NS: u64 = 60_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub file_system: &'static str,
    pub options: &'static str,
}

/// Mounts of every kernel, by file system. Options are always given, since defaults have changed.
pub const MOUNTS: [Mount; 9] = [
    Mount { file_system: "ext4", options: "nodiscard" },
    Mount { file_system: "ext4", options: "discard" },
    Mount { file_system: "xfs", options: "nodiscard" },
    Mount { file_system: "xfs", options: "discard" },
    Mount { file_system: "btrfs", options: "nodiscard" },
    Mount { file_system: "btrfs", options: "discard=sync" },
    Mount { file_system: "btrfs", options: "discard=async" },
    Mount { file_system: "f2fs", options: "nodiscard" },
    Mount { file_system: "f2fs", options: "discard" },
];

pub fn file_systems() -> Vec<&'static str> {
    MOUNTS.chunk_by(|a, b| a.file_system == b.file_system).map(|mounts| mounts[0].file_system).collect()
}

impl Mount {
    pub fn discards(&self) -> bool {
        self.options != "nodiscard"
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Deletions(Mount),
    Unmount(Mount),
    /// Deletions while the options change: mounted without discard, then with, then without.
    Remount(Mount),
}

impl Case {
    pub fn mount(&self) -> Mount {
        match *self {
            Self::Deletions(mount) | Self::Unmount(mount) | Self::Remount(mount) => mount,
        }
    }
}

/// Returns the cases of every kernel, in the order of the tables.
pub fn cases() -> Vec<Case> {
    let discarding = || MOUNTS.into_iter().filter(Mount::discards);
    let remounted = discarding().filter(|mount| mount.options != "discard=async");
    MOUNTS
        .into_iter()
        .map(Case::Deletions)
        .chain(discarding().map(Case::Unmount))
        .chain(remounted.map(Case::Remount))
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fitrim {
    /// FITRIM's return value; its meaning depends on the file system.
    pub answer_bytes: u64,
    pub call_ns: u64,
    /// Time from the start of the call to the acknowledgement of the last discard.
    pub last_ns: Option<u64>,
    pub in_call: Discards,
    /// Discards from the start of the call until [`AFTER_FITRIM_NS`] after its end.
    pub discards: Discards,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeletionRun {
    pub kernel: String,
    #[serde(flatten)]
    pub mount: Mount,
    pub deletions: Vec<Deletion>,
    pub first_fitrim: Fitrim,
    pub second_fitrim: Fitrim,
    pub third_fitrim: Fitrim,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnmountRun {
    pub kernel: String,
    #[serde(flatten)]
    pub mount: Mount,
    pub freed_bytes: u64,
    /// Discards before the call of unmount: in the fsync of the directory and in sync.
    pub before_unmount: Discards,
    pub in_unmount: Discards,
    pub unmount_ns: u64,
    /// Freed bytes that had been discarded by then; `None` if the file system does not report their location.
    pub covered_bytes: Option<u64>,
    /// Discards in [`WINDOW_NS`] after the next mount, without further action.
    pub after_mount: Discards,
    pub fitrim: Fitrim,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemountStep {
    pub options: String,
    /// The line of /proc/mounts, with the options as the file system shows them.
    pub shown_options: String,
    pub freed_bytes: u64,
    pub discards: Discards,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemountRun {
    pub kernel: String,
    #[serde(flatten)]
    pub mount: Mount,
    /// Mounted without the option, remounted with it, and remounted without it.
    pub steps: Vec<RemountStep>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    pub version: String,
    pub release: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub kernels: Vec<Kernel>,
    /// Kernels that are not built, each with the command that builds it.
    pub missing: Vec<String>,
    pub deletions: Vec<DeletionRun>,
    pub unmounts: Vec<UnmountRun>,
    pub remounts: Vec<RemountRun>,
}

pub fn evaluate(measured: &Measured, reps: u32, seed: u64) -> ExperimentResult {
    let rows = &KernelRows { measured, plots: plots::all(measured) };
    let mut result = EXPERIMENT.judge(&claims::figures(measured), rows, reps, seed);
    result.tables = tables::all(measured);
    if !measured.missing.is_empty() {
        result.finding += &format!(" Not examined: {}.", measured.missing.join("; "));
    }
    result
}

/// Rows of the experiment: the observations, and discarded bytes over time.
#[derive(Serialize)]
struct KernelRows<'a> {
    #[serde(flatten)]
    measured: &'a Measured,
    plots: Vec<crate::plot::Plot>,
}
