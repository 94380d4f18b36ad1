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
    trimwise devices CT1000P1SSD8\n      \
    what is public about a drive by the model that it reports, and which profile stands in for it\n  \
    trimwise devices --measured 970\n      \
    published measurements of what TRIM costs and brings, of drives with 970 in their name\n  \
    trimwise devices --json - | jq '.devices[].name'\n  \
    trimwise compare --device sata-60gb-2011 ufs21-64gb\n\n\
    How to write one: profiles/README.md")]
pub struct DevicesArguments {
    /// Show this one in full: built-in name or TOML file; @VERSION after it chooses one of its firmwares. A model as a
    /// drive reports it (`lsblk -o MODEL`) shows what is public about it
    #[arg(value_name = "NAME|FILE|MODEL", value_parser = word)]
    pub device: Option<String>,

    /// Show published measurements of what TRIM costs and brings, of all drives or of those with PATTERN in their name (`*`
    /// is any text)
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, conflicts_with = "device")]
    pub measured: Option<Option<String>>,

    /// With --measured: what each source says, how the figure was derived, and the whole address
    #[arg(long, requires = "measured")]
    pub details: bool,

    /// Print the drive of another simulator as a profile: MQSim's ssdconfig.xml, SimpleSSD's configuration, or a script
    /// or command line with FEMU's options
    #[arg(long, value_name = "FILE", value_parser = word,
          conflicts_with_all = ["device", "measured", "csv", "markdown"])]
    pub import: Option<String>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}
