//! Arguments of `sweep`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::arguments::OutputArguments;

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise sweep grid.toml --out results\n      \
    every cell of the grid; the same command goes on where an earlier one was stopped or killed\n  \
    trimwise sweep grid.toml --out results --dry-run\n      \
    how many cells it has; nothing is run or written\n  \
    trimwise sweep grid.toml --out /shared/results --shard 3/64 --jobs 4\n      \
    the third of 64 jobs of a batch system, into a folder that all of them share\n\n\
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

    /// Where the results go
    #[command(flatten)]
    pub output: OutputArguments,
}

/// A share of the cells: those of the groups `number - 1`, `number - 1 + of`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Whether this share has that group of cells.
    pub fn has(self, group: u64) -> bool {
        group % u64::from(self.of) == u64::from(self.number - 1)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shard = text
            .split_once('/')
            .and_then(|(number, of)| Some(Self { number: number.parse().ok()?, of: of.parse().ok()? }));
        let is_one = |shard: &Self| (1..=shard.of).contains(&shard.number);
        shard.filter(is_one).ok_or_else(|| "expected K/N with K from 1 to N, such as 3/64".to_owned())
    }
}
