//! Arguments of `trim`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::{JsonArguments, TableArguments, some_bytes, whole_in};
use trimwise::units::Bytes;
use trimwise_study::trim::{GROUPS, PAUSE_MS, TrimRequest};

/// Options that make no sense with the daemon. clap does not report a missing requirement of an option that conflicts
/// with one that is given, so what needs `--now` also conflicts with these.
const WITHOUT_DAEMON: [&str; 7] = ["dry_run", "min_extent", "offset", "length", "groups", "slice", "pause"];

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise trim /home --dry-run\n      \
    how much would be sent, in how many extents and commands\n  \
    trimwise trim /home --min-extent 64KiB --groups 1 --pause 200\n      \
    gently: no extent below 64 KiB, one block group at a time, pauses of 0.2 s\n  \
    trimwise trim /home --offset 100GiB --length 10GiB --json -\n      \
    a part of the file system, for another program to read\n  \
    trimwise trim /home --now --wait\n      \
    let the daemon do it, and return when it is done\n\n\
    SIZE is in bytes, or has a unit: KiB, MiB, GiB, TiB (or K, M, G, T) are powers of 1,024,\n\
    kB, MB, GB, TB powers of 1,000.\n\n\
    What the figures mean on each file system: docs/guide.md")]
pub struct TrimArguments {
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT")]
    pub mount: PathBuf,

    /// Send nothing; show what would be sent, according to the file system's own map of its free space
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// Leave out free extents shorter than this; a device leaves out those below its granularity anyway [default: 0]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub min_extent: Option<Bytes>,

    /// Start at this address of the file system (btrfs: a logical one) [default: 0]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub offset: Option<Bytes>,

    /// Trim this much from there on [default: to the end]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub length: Option<Bytes>,

    /// Block groups (XFS: allocation groups) per slice; Ctrl-C stops between slices [default: as many as make 1 GiB, at
    /// least 1]
    #[arg(long, value_name = "N", value_parser = whole_in(&GROUPS), allow_negative_numbers = true)]
    pub groups: Option<u64>,

    /// Size of a slice instead of --groups, rounded up to whole groups
    #[arg(long, value_name = "SIZE", conflicts_with = "groups", allow_negative_numbers = true,
          value_parser = some_bytes)]
    pub slice: Option<Bytes>,

    /// Pause between two slices, in milliseconds [default: 0]
    #[arg(long, value_name = "MS", value_parser = whole_in(&PAUSE_MS), allow_negative_numbers = true,
          conflicts_with = "dry_run")]
    pub pause: Option<u64>,

    /// Have the daemon trim everything untrimmed now, in its slices, whatever the policy says
    #[arg(long, conflicts_with_all = WITHOUT_DAEMON, conflicts_with_all = ["csv", "markdown"])]
    pub now: bool,

    /// Wait until everything that --now asks for is trimmed; Ctrl-C stops the waiting, not the trim
    #[arg(long, requires = "now", conflicts_with_all = WITHOUT_DAEMON)]
    pub wait: bool,

    /// The folder of the daemon's sockets, with --now
    #[arg(long, value_name = "DIR", default_value = trimwise_linux::daemon::DEFAULT_RUN, requires = "now",
          conflicts_with_all = WITHOUT_DAEMON)]
    pub run: PathBuf,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl TrimArguments {
    /// Returns the request of a trim without `--now`.
    pub fn request(&self) -> TrimRequest {
        TrimRequest {
            mount: self.mount.clone(),
            dry_run: self.dry_run,
            min_extent: self.min_extent,
            offset: self.offset,
            length: self.length,
            groups: self.groups,
            slice: self.slice,
            pause_ms: self.pause,
        }
    }
}
