//! `trimwise fleet`: many hosts at a glance, from the JSON that `status`, `doctor` and `verify` wrote on each.
//!
//! The files are brought here by whatever means the user likes (ssh, Ansible, a cron job and rsync); this command opens
//! no connection. A broken file from one host does not hide the others.

pub mod table;

use std::path::PathBuf;

use clap::Args;
use trimwise::failure::Failure;
use trimwise_study::fleet::Fleet;

use crate::arguments::{JsonArguments, TableArguments};
use crate::output::{self, Destinations};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    for h in web1 web2 db1; do ssh $h trimwise status --json - >fleet/$h.json; done\n  \
    ssh db1 trimwise doctor --json - >fleet/db1.doctor.json\n  \
    trimwise fleet fleet/\n  \
    trimwise fleet fleet/ --json - | jq '.file_systems | sort_by(.stale_bytes)[-1]'\n\n\
    A file is called HOST.json or HOST.WORD.json (db1.doctor.json), or is in a folder called HOST. WORD is\n\
    status, doctor, verify, or begins with verify- (db1.verify-sda.json). Which command wrote a file is read from\n\
    its contents.\n\n\
    Exit code 1 if a file cannot be used; the other hosts are shown all the same.")]
pub struct FleetArguments {
    /// Files that `trimwise status`, `doctor` or `verify` wrote with --json, or folders of them; one or more
    #[arg(value_name = "FILE|DIR", required = true)]
    pub places: Vec<PathBuf>,

    /// Show every file system, not only the twenty that have the most stale space
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

pub fn run(arguments: &FleetArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    let fleet = Fleet::read(&arguments.places)?;
    let text = destinations.deliver(&fleet, || table::fleet(&fleet, arguments.all))?;
    output::concluded(text, fleet.failure())
}
