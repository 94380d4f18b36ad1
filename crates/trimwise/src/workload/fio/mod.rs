//! fio job files: the operations that fio would do to the same files, in the same order.
//!
//! `text` reads a job file and what it includes, with the meaning of each option from `options`. `section` makes a job
//! of each section's options, which `reader` gives it as `values` and `arithmetic` understand them; `layout` names their files and
//! divides their sizes, `parse` puts a `JobFile` together, and `advice` says how to make it fit. `sequence` chooses
//! each job's next operation as fio does, with the random numbers of `random` and the map of `map`; `run` carries it
//! out. All errors of a file are reported at once; options without effect are ignored, with a note.
//!
//! The sequences are those of fio 3.42. Differences from fio:
//!
//! - a file that is a device, or has an absolute path, is a file below the workload's directory;
//! - files are never preallocated (as with `fallocate=none`);
//! - with `iodepth` above 1, that many tasks take the next operation each, but one at a time where the kernel waits for
//!   buffered operations;
//! - with `randrepeat=0` the seed is that of the comparison.

mod advice;
mod arithmetic;
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
pub use text::{FioError, FioErrors, Limit, Overrides, Place, Surroundings, split_overrides};

use crate::content::ContentClass;
use crate::units::SimDuration;

const READ: usize = 0;
const WRITE: usize = 1;
const TRIM: usize = 2;

/// One process of a job: a job with `numjobs=4` is four of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    /// Number of the process among all processes, from 1; it enters the seeds.
    pub thread_number: u64,
    /// Number of the process among those of its job; it enters the names of files and their offsets.
    copy: u64,
    /// Jobs of an earlier group must end first (`stonewall`).
    group: u32,
    /// Jobs of this name must end first (`wait_for`).
    waits_for: Option<String>,
    starts_after: SimDuration,
    directions: [bool; 3],
    random: bool,
    sizes: BlockSizes,
    align: [u64; 3],
    steps: Steps,
    zones: Option<Strides>,
    files: Vec<JobFileSpec>,
    service: Service,
    open_files: usize,
    size: u64,
    /// Bytes to transfer instead of `size` (`io_size`).
    io_size: Option<u64>,
    /// The job ends after this many operations (`number_ios`).
    operations_max: Option<u64>,
    depth: u32,
    fsync: u64,
    fdatasync: u64,
    end_fsync: bool,
    /// A file is synced when it is closed (`fsync_on_close`).
    fsync_on_close: bool,
    /// What makes each write durable (`sync`).
    durable: Durable,
    direct: bool,
    rate: [Option<Rate>; 3],
    /// Times between operations are exponentially distributed (`rate_process=poisson`).
    is_poisson: bool,
    think: SimDuration,
    /// Operations between two pauses of `think`.
    think_every: u64,
    runtime: Option<SimDuration>,
    time_based: bool,
    ramp: SimDuration,
    read_percent: u64,
    seed: u64,
    /// Each loop begins with the same random numbers.
    repeats: bool,
    /// The job uses the run's seed (`randrepeat=0`).
    own_seed: bool,
    has_map: bool,
    /// Blocks may be written again before they are read for `verify`.
    may_overwrite: bool,
    generator: Generator,
    distribution: Distribution,
    /// Share of offsets that are random, in percent, in each direction.
    percent_random: [u64; 3],
    loops: u64,
    /// A loop ends with its bytes, and not only when no file has a block left: for asynchronous engines.
    counts_in_loop: bool,
    verify: Option<Verify>,
    flow: Option<Flow>,
    /// The jobs that end with this one (`exitall`).
    ends: Option<Ends>,
    creates_on_open: bool,
    unlinks: bool,
    /// Files are removed between loops (`unlink_each_loop`).
    unlinks_in_loops: bool,
    invalidates: bool,
    class: ContentClass,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BlockSizes {
    /// Smallest and largest block in each direction.
    ranges: [(u64, u64); 3],
    /// Sizes with their shares in percent, if given. Otherwise all sizes of the range are drawn.
    splits: [Vec<(u64, u64)>; 3],
    is_unaligned: bool,
    /// The sizes are those of sequential and of random transfers instead of reads and writes.
    is_by_order: bool,
}

/// How an operation's offset follows from the previous one (`rw=read:8k`, `rw=randread:8`, `rw_sequencer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// Bytes skipped after each sequential operation. Negative goes backwards.
    skip: i64,
    /// A random offset is drawn once for this many operations.
    every: u64,
    /// Between draws the same offset is used again, instead of the next.
    is_identical: bool,
}

/// Zones with skipped bytes between them (`zonemode=strided`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strides {
    size: u64,
    range: u64,
    skip: u64,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verify {
    /// The reads happen (`do_verify`). Otherwise only the sizes of blocks change.
    reads: bool,
    /// Number of writes between reads, and how many reads at a time (`verify_backlog`, `verify_backlog_batch`).
    backlog: Option<(u64, u64)>,
    /// Nothing is written (`verify_only`).
    is_all: bool,
    /// Read in the order of the writes, even if some are overwritten (`experimental_verify`).
    in_order: bool,
}

/// Jobs of one flow do operations in the ratio of their weights.
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

/// The order in which operations go to files.
#[derive(Clone, Debug, PartialEq)]
struct Service {
    order: FileOrder,
    /// Operations on a file before the next file's turn.
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
    name: String,
    /// fio's name of the file. It enters the seed of a distribution.
    seed_name: String,
    offset: u64,
    bytes: u64,
    length: u64,
}

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
    /// Blocks in this order, again and again. If true, each repetition starts after the last one.
    Sequence(Vec<u64>, bool),
}

/// A skewed distribution. The centre is the place of the most popular blocks, as a share of the file.
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

    /// Returns true if each block is trimmed and then written.
    fn trims_and_writes(&self) -> bool {
        self.writes() && self.trims()
    }

    /// Returns the smallest block of any direction, the unit of fio's maps and divisions.
    fn least(&self) -> u64 {
        self.sizes.ranges.map(|(from, _)| from).into_iter().min().unwrap_or(1)
    }
}
