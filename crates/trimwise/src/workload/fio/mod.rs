//! fio job files: the operations that fio would do to the same files, in the same order.
//!
//! [`parse`] reads a job file. `sequence` chooses each job's next operation as fio does, with the random numbers of
//! `random` and the map of `map`; `run` carries it out. An unsupported option is rejected with its line; an option that
//! only changes fio's output is ignored, with a note.
//!
//! Differences from fio:
//!
//! - files are never preallocated (as with `fallocate=none`);
//! - with `iodepth` above 1, that many tasks take the next operation each; buffered ones overlap too;
//! - with `randrepeat=0` the seed is that of the comparison.

mod map;
mod parse;
mod random;
mod run;
mod scaled;
mod sequence;

pub use parse::{FioError, JobFile};
pub(super) use run::{prepare, run};
pub use sequence::{Io, Sequence};

use crate::units::SimDuration;

/// One process of a job: a job with `numjobs=4` is four of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of the job.
    pub name: String,
    /// Number of the process among all processes, from 1; it enters the seeds.
    pub thread_number: u64,
    /// Jobs of an earlier group end first (`stonewall`).
    group: u32,
    reads: bool,
    writes: bool,
    random: bool,
    block_bytes: [(u64, u64); 2],
    files: Vec<JobFileSpec>,
    /// Bytes to transfer in a loop.
    size: u64,
    depth: u32,
    fsync: u64,
    fdatasync: u64,
    end_fsync: bool,
    direct: bool,
    rate: [Option<u64>; 2],
    think: SimDuration,
    runtime: Option<SimDuration>,
    time_based: bool,
    ramp: SimDuration,
    read_percent: u64,
    seed: u64,
    /// True if each loop begins with the same random numbers.
    repeats: bool,
    /// True if the job uses the run's seed (`randrepeat=0`).
    own_seed: bool,
    has_map: bool,
    generator: Generator,
    distribution: Distribution,
    loops: u64,
    /// True if a loop ends with its bytes, and not only when no file has a block left: for asynchronous engines.
    counts_in_loop: bool,
    unlinks: bool,
    invalidates: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JobFileSpec {
    /// fio's name of the file, which enters the seed of a distribution.
    name: String,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generator {
    Tausworthe,
    Tausworthe64,
    Lfsr,
}

#[derive(Clone, Debug, PartialEq)]
enum Distribution {
    Uniform,
    Zipf(f64),
    Pareto(f64),
    /// Share of accesses and share of the file of each zone, in percent.
    Zoned(Vec<(u64, u64)>),
}
