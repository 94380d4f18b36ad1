//! Arguments of `sweep`.

use std::path::PathBuf;

use clap::{Arg, Args, Command};

use trimwise_linux::file_system::FileSystem;
use trimwise_study::sweep::{Shard, SweepRequest};

use crate::arguments::{GuestLimits, OutputArguments};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise sweep grid.toml --out results\n      \
    every cell of the grid; the same command continues where an earlier one was stopped or killed\n  \
    trimwise sweep grid.toml --out results --dry-run\n      \
    how many cells it has; nothing is run or written\n  \
    trimwise sweep grid.toml --out /shared/results --shard 3/64 --jobs 4\n      \
    the third of 64 jobs of a batch system, into a folder that all of them share\n  \
    trimwise sweep grid.toml --out on-xfs --fs xfs\n      \
    the same grid on XFS itself; its policies must be those that a stock kernel has there\n\n\
    A grid:\n  \
    devices = [\"sata-small\", \"my-ssd.toml\"]\n  \
    policies = [\"off\", \"commit\", \"lazy+reuse\", \"ideal\"]\n  \
    workloads = [\"default\", \"append:64KiB:256MiB\", \"mail.pmrc\"]\n  \
    utilizations_percent = [50, 80, 90]\n  \
    seeds = [\"1-10\"]\n\n\
    Every key of a grid, and every column of the result: docs/guide.md")]
pub struct SweepArguments {
    /// The grid (TOML). Files that it names are found as `compare` finds them: from the working directory
    #[arg(value_name = "GRID.toml")]
    pub grid: PathBuf,

    /// Folder of the results, which is made if it does not exist: part-*.parquet, one data set, and in _cells a file
    /// for each finished cell. What is finished there is not run again. A folder of another grid, or of another version of
    /// trimwise, is refused
    #[arg(long, short = 'o', value_name = "DIR")]
    pub out: PathBuf,

    /// Only show how many cells there are
    #[arg(long)]
    pub dry_run: bool,

    /// Run only this share of the cells: the Kth of N; shards may share a folder or have one each
    #[arg(long, value_name = "K/N")]
    pub shard: Option<Shard>,

    /// The file system: ext4 is the model; xfs, btrfs and f2fs run themselves, in virtual time, on the built kernel that is
    /// closest to the grid's `linux` (see `trimwise kernel`) [default: ext4]
    #[arg(long, value_name = "ext4|xfs|btrfs|f2fs")]
    pub fs: Option<FileSystem>,

    #[command(flatten)]
    pub limits: GuestLimits,

    #[command(flatten)]
    pub output: OutputArguments,
}

/// Options of `compare`, and the keys of a grid that are given instead.
const KEYS: [(&str, &str); 10] = [
    ("day", "day"),
    ("days", "days"),
    ("device", "devices"),
    ("linux", "linux"),
    ("memory", "memory_mib"),
    ("policy", "policies"),
    ("reps", "reps"),
    ("seed", "seeds"),
    ("utilization", "utilizations_percent"),
    ("workload", "workloads"),
];

/// Adds options that are refused with the key of the grid. Pages and completions do not have them.
pub fn with_keys_refused(sweep: Command) -> Command {
    sweep.args(KEYS.map(|(option, key)| {
        let refused = move |_: &str| Err::<String, _>(format!("give `{key}` in the grid"));
        let argument = Arg::new(option).long(option).value_name("VALUE").hide(true);
        argument.num_args(0..=1).default_missing_value("").value_parser(refused)
    }))
}

impl SweepArguments {
    /// Returns the request. `wants_cases` asks for the summary of each case as well.
    pub fn request(&self, wants_cases: bool) -> SweepRequest {
        SweepRequest {
            grid: self.grid.clone(),
            out: self.out.clone(),
            is_dry: self.dry_run,
            shard: self.shard,
            wants_cases,
            fs: self.fs,
            limits: self.limits.request(),
            jobs: self.output.jobs,
        }
    }
}
