//! Arguments of `doctor`.

use std::path::PathBuf;

use clap::Args;

use crate::arguments::JsonArguments;
use crate::commands::daemon::arguments::RunArguments;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise doctor\n  \
    trimwise doctor /home --json - | jq '.file_systems[0].findings'\n  \
    trimwise doctor --host-root /host\n      \
    in a container that has the host's / at /host\n\n\
    Exit code 1 if something is wrong. Exit code 3 if nothing is known to be wrong, but the file system asked for, that \
    of /, or all but boot partitions could not be checked (ZFS, FUSE...), or this is a container that may not trim. A \
    line \"Not checked\" names every other one, with exit code 0. Nothing is sent; to see whether TRIMs reach the disk: trimwise verify dir:PATH (not on btrfs)")]
pub struct DoctorArguments {
    /// Check only the file system that is mounted here
    #[arg(value_name = "MOUNT")]
    pub mount: Option<PathBuf>,

    /// Where the host's / is [default: /]
    #[arg(long, value_name = "DIR")]
    pub host_root: Option<PathBuf>,

    #[command(flatten)]
    pub run: RunArguments,

    #[command(flatten)]
    pub json: JsonArguments,
}
