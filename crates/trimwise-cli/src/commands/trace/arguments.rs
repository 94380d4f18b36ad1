//! Arguments of `trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use trimwise::trace::Format;

use crate::arguments::{JsonArguments, TableArguments, word};

#[derive(Debug, Args)]
#[command(after_long_help = trace_help())]
pub struct TraceArguments {
    #[command(subcommand)]
    pub command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show what is in a trace: requests, sizes, time, working set, lost events
    Info(InfoArguments),
    /// Convert a trace into trimwise's own format
    Convert(ConvertArguments),
}

#[derive(Debug, Args)]
pub struct InfoArguments {
    /// The trace, plain or compressed with zstd or gzip; `-` is standard input
    #[arg(value_name = "[FORMAT:]FILE", value_parser = word)]
    pub trace: String,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

#[derive(Debug, Args)]
pub struct ConvertArguments {
    /// The trace to read, plain or compressed with zstd or gzip
    #[arg(value_name = "[FORMAT:]IN", value_parser = word)]
    pub input: String,

    /// The file to write; compressed if its name ends in .zst
    #[arg(value_name = "OUT")]
    pub output: PathBuf,

    /// Replace an existing OUT
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Help text below the options of `trace`: the formats, and examples.
fn trace_help() -> String {
    let mut help = String::from("Formats:\n");
    for (_, name, meaning) in Format::ALL {
        help += &format!("  {name:<14} {meaning}\n");
    }
    help + "\nFor a format that is not recognised automatically, put its name before the file's.\n\nExamples:\n  \
        trimwise trace info sda.blktrace\n  \
        trimwise trace info tencent:2018-10-01-01.csv.gz\n  \
        trimwise trace convert msr:usr_0.csv.gz usr_0.zst\n  \
        trimwise compare --workload trace:usr_0.zst:open --policy off --device sata-generic"
}
