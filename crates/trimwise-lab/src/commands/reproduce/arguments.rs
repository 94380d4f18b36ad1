//! Arguments of `reproduce`.

use std::path::PathBuf;

use clap::Args;

use trimwise_cli::arguments::GuestLimits;
use trimwise_cli::arguments::{OutputArguments, whole_in, word};
use trimwise_study::check::REPS;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise reproduce --list\n  \
    trimwise reproduce postmark-vendors\n  \
    trimwise reproduce lazy-3 --on kernel --only 64 1024\n  \
    trimwise reproduce --all --json results.json\n\n\
    A claim that is not met is shown as such; the run still succeeds (exit code 0).")]
pub struct ReproduceArguments {
    /// Name of the experiment
    #[arg(value_name = "EXPERIMENT", required_unless_present_any = ["list", "all"], conflicts_with_all = ["list", "all"])]
    pub name: Option<String>,

    /// List the experiments
    #[arg(long, conflicts_with = "all")]
    pub list: bool,

    /// Run all experiments
    #[arg(long)]
    pub all: bool,

    /// Where to run: model; or kernel or kernel:VERSION:FS[:MOUNT_OPTIONS] for an experiment whose policies a kernel
    /// has
    #[arg(long, alias = "target", short_alias = 't', value_name = "HOST", default_value = "model", value_parser = word,
          conflicts_with = "list")]
    pub on: String,

    /// Only these parts: for `kernels`, kernels and file systems (6.1, 6.1:ext4); for `postmark-vendors`, drives
    /// (vendor1); for `model-ext4`, workloads (small); with --on kernel for `lazy-3` and `lazy-4`,
    /// append sizes in KiB (64), for `lazy-table2` and `set-1b`, policies (commit), for `set-1a`, utilizations (80); for
    /// `verdicts-ext4`, workloads, drives, kernels, policies and degrees of use (mid 6.12 80%); for `verdicts-fs`, file systems, workloads, drives,
    /// ways of trimming and degrees of use (xfs database discard); for `daemon-week` and
    /// `daemon-day`, file systems and ways of trimming (xfs, xfs:daemon)
    #[arg(long, value_name = "PART", num_args = 1.., value_parser = word, conflicts_with_all = ["list", "all"])]
    pub only: Vec<String>,

    /// With `verdicts-ext4`: run one cell on both sides and show the first commit whose freed extents differ between
    /// model and kernel. The cell is a workload (or a PostMark file), a drive, a kernel, a policy and a degree of use, as
    /// for --only (mail sata-small 6.12 commit 80%, the default of each)
    #[arg(long, value_name = "CELL", num_args = 1.., value_parser = word,
          conflicts_with_all = ["list", "all", "only", "full", "out", "reps"])]
    pub explain: Vec<String>,

    /// With --on kernel: the whole drive, and all points of `set-1a` and `set-1b` instead of a sample; all cells of
    /// `verdicts-fs`, which take a day
    #[arg(long, conflicts_with = "list")]
    pub full: bool,

    /// Keep finished cells of `verdicts-fs` in this folder, and go on from those that it has
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "list")]
    pub out: Option<PathBuf>,

    /// Repetitions [default: as many as in the source]
    #[arg(long, short = 'n', value_name = "N", value_parser = whole_in(&REPS), allow_negative_numbers = true,
          conflicts_with = "list")]
    pub reps: Option<u32>,

    #[command(flatten)]
    pub limits: GuestLimits,

    #[command(flatten)]
    pub output: OutputArguments,
}
