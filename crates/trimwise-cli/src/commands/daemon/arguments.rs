//! Arguments of the commands that talk to the daemon, and of `config check`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::arguments::{JsonArguments, TableArguments, whole};

#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// The folder of the daemon's sockets
    #[arg(long, value_name = "DIR", default_value = trimwise_linux::daemon::DEFAULT_RUN, hide_default_value = false)]
    pub run: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise status\n  \
    trimwise status --watch\n  \
    trimwise status /home\n  \
    trimwise status --json - | jq '.file_systems[].status.why'")]
pub struct StatusArguments {
    /// Show only this file system; JSON always has all of them
    #[arg(value_name = "MOUNT")]
    pub mount: Option<PathBuf>,

    /// Show each file system, even if many are alike
    #[arg(long, conflicts_with = "mount")]
    pub all: bool,

    /// Refresh every second until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "csv", "markdown"])]
    pub watch: bool,

    #[command(flatten)]
    pub run: RunArguments,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise explain /home\n      \
    why the daemon does what it does there, and what would change it\n  \
    trimwise explain layer.luks.discards-off\n      \
    what a finding of `doctor` or `fleet` means, and what to do\n  \
    trimwise explain --list\n      \
    all codes",
    mut_arg("csv", |arg| arg.requires("list")), mut_arg("markdown", |arg| arg.requires("list")))]
pub struct ExplainArguments {
    /// Where the file system is mounted, or the code of a finding, such as layer.luks.discards-off
    #[arg(value_name = "MOUNT|CODE", required_unless_present = "list")]
    pub subject: Option<PathBuf>,

    /// List the codes of all findings
    #[arg(long, conflicts_with = "subject")]
    pub list: bool,

    #[command(flatten)]
    pub run: RunArguments,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    trimwise history /home --limit 10")]
pub struct HistoryArguments {
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT")]
    pub mount: PathBuf,

    /// Show the last N entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole::<u32>(1, 1_000_000),
          allow_negative_numbers = true)]
    pub limit: u32,

    #[command(flatten)]
    pub run: RunArguments,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

#[derive(Debug, Args)]
pub struct PauseArguments {
    /// Where the file system is mounted; `resume` without it applies to all of them
    #[arg(value_name = "MOUNT", conflicts_with = "all")]
    pub mount: Option<PathBuf>,

    /// All file systems that the daemon manages
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub run: RunArguments,

    #[command(flatten)]
    pub json: JsonArguments,
}

#[derive(Debug, Args)]
pub struct ConfigArguments {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the file and its drop-ins; every error comes with file, line and key
    Check(ConfigCheckArguments),
}

#[derive(Debug, Args)]
pub struct ConfigCheckArguments {
    /// The configuration; its drop-ins are in FILE.d
    #[arg(value_name = "FILE", default_value = trimwise_linux::daemon::config::DEFAULT_FILE)]
    pub file: PathBuf,

    #[command(flatten)]
    pub json: JsonArguments,
}
