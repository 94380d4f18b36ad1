//! Arguments of `devices`.

use clap::Args;

use crate::arguments::{JsonArguments, TableArguments, word};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise devices\n  \
    trimwise devices vertex-60gb@1.41\n      \
    one firmware of a drive: all its numbers, and where they come from\n  \
    trimwise devices --import ssdconfig.xml > mqsim.toml\n      \
    the drive of another simulator (MQSim, SimpleSSD, FEMU) as a profile, for --device mqsim.toml\n  \
    trimwise devices --json - | jq '.devices[].name'\n  \
    trimwise compare --device sata-60gb-2011 ufs21-64gb\n\n\
    How to write one: profiles/README.md")]
pub struct DevicesArguments {
    /// Show this one in full: built-in name or TOML file; @VERSION after it chooses one of its firmwares
    #[arg(value_name = "NAME|FILE", value_parser = word)]
    pub device: Option<String>,

    /// Print the drive of another simulator as a profile: MQSim's ssdconfig.xml, SimpleSSD's configuration, or a script
    /// or command line with FEMU's options
    #[arg(long, value_name = "FILE", value_parser = word,
          conflicts_with_all = ["device", "csv", "markdown"])]
    pub import: Option<String>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}
