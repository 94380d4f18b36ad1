//! fio job files: the operations that fio would do to the same files, in the same order.
//!
//! `text` reads a job file and what it includes, with the meaning of each option from `options`. `section` makes a job of
//! each section's options, which `reader` gives it as `values` understands them; `layout` names their files and divides
//! their sizes, `parse` puts a `JobFile` together, and `advice` says how to make it fit. `sequence` chooses each job's
//! next operation as fio does, with the random numbers of `random` and the map of `map`; `run` carries it out. All errors
//! of a file are reported at once; what changes nothing is ignored, with a note.
//!
//! The sequences are those of fio 3.42. Differences from fio:
//!
//! - a file that is a device, or has an absolute path, is a file below the workload's directory;
//! - files are never preallocated (as with `fallocate=none`);
//! - with `iodepth` above 1, that many tasks take the next operation each, but one at a time where the kernel waits for
//!   buffered operations;
//! - with `randrepeat=0` the seed is that of the comparison.

mod advice;
mod describe;
mod layout;
mod map;
mod options;
mod parse;
mod random;
mod reader;
mod run;
mod scaled;
mod section;
mod sequence;
mod text;
mod values;

pub use parse::JobFile;
pub(super) use run::{prepare, run};
pub use sequence::{Io, Sequence};
pub use text::{FioError, FioErrors, Overrides, Place, Surroundings, split_overrides};

use crate::content::ContentClass;
use crate::units::SimDuration;

/// Directions of transfers, as indices.
const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

/// One process of a job: a job with `numjobs=4` is four of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of the job.
    pub name: String,
    /// Number of the process among all processes, from 1; it enters the seeds.
    pub thread_number: u64,
    /// Number of the process among those of its job; it enters the names of files and their offsets.
    copy: u64,
    /// Jobs of an earlier group end first (`stonewall`).
    group: u32,
    /// Jobs of this name end first (`wait_for`).
    waits_for: Option<String>,
    starts_after: SimDuration,
    /// Reads, writes and TRIMs.
    directions: [bool; 3],
    random: bool,
    sizes: BlockSizes,
    /// Alignment of random offsets in each direction.
    align: [u64; 3],
    steps: Steps,
    zones: Option<Strides>,
    files: Vec<JobFileSpec>,
    service: Service,
    open_files: usize,
    /// Bytes to transfer in a loop.
    size: u64,
    /// Bytes to transfer instead of `size` (`io_size`).
    io_size: Option<u64>,
    /// Operations after which a job ends (`number_ios`).
    operations_max: Option<u64>,
    depth: u32,
    fsync: u64,
    fdatasync: u64,
    end_fsync: bool,
    /// What makes each write durable (`sync`).
    durable: Durable,
    direct: bool,
    rate: [Option<Rate>; 3],
    /// True if times between operations are exponentially distributed (`rate_process=poisson`).
    is_poisson: bool,
    think: SimDuration,
    /// Operations between two pauses of `think`.
    think_every: u64,
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
    /// True if blocks may be written again before they are read for `verify`.
    may_overwrite: bool,
    generator: Generator,
    distribution: Distribution,
    /// Share of offsets that are random, in percent, in each direction.
    percent_random: [u64; 3],
    loops: u64,
    /// True if a loop ends with its bytes, and not only when no file has a block left: for asynchronous engines.
    counts_in_loop: bool,
    verify: Option<Verify>,
    flow: Option<Flow>,
    /// Which jobs end with this one (`exitall`).
    ends: Option<Ends>,
    creates_on_open: bool,
    unlinks: bool,
    /// True if files are removed between loops (`unlink_each_loop`).
    unlinks_in_loops: bool,
    invalidates: bool,
    class: ContentClass,
}

/// Sizes of a job's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BlockSizes {
    /// Smallest and largest block in each direction.
    ranges: [(u64, u64); 3],
    /// Sizes with their shares in percent, if they are given; otherwise all sizes of the range are drawn.
    splits: [Vec<(u64, u64)>; 3],
    is_unaligned: bool,
    /// True if the sizes are those of sequential and of random transfers instead of reads and writes.
    is_by_order: bool,
}

/// How the offset of an operation follows from the one before it (`rw=read:8k`, `rw=randread:8`, `rw_sequencer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// Bytes skipped after each sequential operation; negative goes backwards.
    skip: i64,
    /// Random offsets are drawn for each of so many operations.
    every: u64,
    /// Between them the same offset is used again, instead of the next.
    is_identical: bool,
}

/// Zones with bytes between them that are skipped (`zonemode=strided`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strides {
    size: u64,
    range: u64,
    skip: u64,
}

/// Bytes per second, or operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    Bytes(u64),
    Operations(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    No,
    /// As with `O_DSYNC`.
    Data,
    /// As with `O_SYNC`.
    Whole,
}

/// Reads of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verify {
    /// True if they happen (`do_verify`); otherwise only the sizes of blocks change.
    reads: bool,
    /// Writes after which they are read, and how many at a time (`verify_backlog`, `verify_backlog_batch`).
    backlog: Option<(u64, u64)>,
    /// Nothing is written (`verify_only`).
    is_all: bool,
    /// The order is that of the writes, even if some are overwritten (`experimental_verify`).
    in_order: bool,
}

/// Jobs of one number do operations in the ratio of their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    id: u64,
    weight: u64,
    sleep: SimDuration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Group,
    All,
}

/// Which file an operation goes to.
#[derive(Clone, Debug, PartialEq)]
struct Service {
    order: FileOrder,
    /// Operations on a file before the next one.
    run: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum FileOrder {
    RoundRobin,
    Sequential,
    Random,
    Skewed(Shape),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct JobFileSpec {
    /// Path below the workload's directory.
    name: String,
    /// fio's name of the file, which enters the seed of a distribution.
    seed_name: String,
    /// First byte that the job uses.
    offset: u64,
    /// Bytes that the job uses.
    bytes: u64,
    /// Length of the file.
    length: u64,
}

/// A number of bytes, or a share of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Bytes(u64),
    Percent(u64),
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
    Skewed(Shape),
    /// Share of accesses and share of the file of each zone, in percent, in each direction.
    Zoned([Vec<(u64, u64)>; 3]),
    /// Share of accesses in percent, and bytes of each zone, in each direction.
    ZonedBytes([Vec<(u64, u64)>; 3]),
    /// Blocks in this order, again and again; with true, each time behind those of the last.
    Sequence(Vec<u64>, bool),
}

/// A skewed distribution; the centre is where the most popular blocks are, as a share of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Zipf { theta: f64, center: Option<f64> },
    Pareto { h: f64, center: Option<f64> },
    Normal { deviation: f64, center: Option<f64> },
}

impl Job {
    fn reads(&self) -> bool {
        self.directions[READ]
    }

    fn writes(&self) -> bool {
        self.directions[WRITE]
    }

    fn trims(&self) -> bool {
        self.directions[TRIM]
    }

    /// True if each block is trimmed and then written.
    fn trims_and_writes(&self) -> bool {
        self.writes() && self.trims()
    }

    /// Returns the smallest block of any direction, which fio's maps and divisions count in.
    fn least(&self) -> u64 {
        self.sizes.ranges.map(|(from, _)| from).into_iter().min().unwrap_or(1)
    }
}
