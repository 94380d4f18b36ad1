//! Arguments of `fit`.

use std::path::PathBuf;

use clap::Args;
use trimwise::units::Bytes;

use crate::requests::fit::{FitRequest, SECONDS};
use trimwise_cli::arguments::{JsonArguments, TableArguments, some_bytes, whole, whole_in, word};
use trimwise_study::defaults;

#[derive(Debug, Args)]
#[command(
    mut_arg("force", |arg| arg.help("Replace the files of --out and --json if they exist")),
    after_long_help = "Measures a drive for half a minute and writes a profile of it, for `compare --here PATH \
    --device my.toml`. \
    Each value that a short bench can measure has a 95 % interval; the others come from a built-in profile and are \
    marked so. Tests held back from the fit show how well the profile predicts the drive.\n\n\
    Examples:\n  \
    trimwise fit /home --out my.toml\n      \
    in a new file of 1 GiB below /home, which is removed afterwards\n  \
    trimwise fit dev:/dev/sdz --out my.toml --destroy SERIAL\n      \
    a whole drive; all its data are lost\n  \
    trimwise fit dev:/dev/sda --read-only --out my.toml\n      \
    a drive in use, by reads alone\n  \
    trimwise fit model:vendor1 --from sata-generic\n      \
    treats a built-in profile as a drive: does the fit recover its values?"
)]
pub struct FitArguments {
    /// What to measure: an existing directory (in a new file there), an existing file (empty, or confirmed with
    /// --destroy) or block device, or model:NAME; file:PATH (also a new file) and dev:PATH as with `bench`
    #[arg(value_name = "DEV|FILE", value_parser = word)]
    pub target: String,

    /// Profile (built-in name or TOML file) that supplies what cannot be measured [default: by the drive's model or
    /// class]
    #[arg(long, value_name = "PROFILE", value_parser = word)]
    pub from: Option<String>,

    /// Write the profile to this file
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// About how long to measure, 5 to 3600; models take it in virtual time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole_in(&SECONDS),
          allow_negative_numbers = true)]
    pub seconds: u64,

    /// Only read, from a file that exists or a device that may be in use; what reads cannot measure comes from the base
    /// profile
    #[arg(long, conflicts_with_all = ["destroy", "size"])]
    pub read_only: bool,

    /// Seed of the random places and of the intervals
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// With a new or empty file: its size, at least 64 MiB [default: 1GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// Confirm that what WORD names may be destroyed; without this option the command says which WORD to give
    #[arg(long, value_name = "WORD")]
    pub destroy: Option<String>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl FitArguments {
    pub fn request(&self) -> FitRequest {
        FitRequest {
            target: self.target.clone(),
            from: self.from.clone(),
            out: self.out.clone(),
            seconds: self.seconds,
            read_only: self.read_only,
            seed: self.seed,
            size: self.size,
            destroy: self.destroy.clone(),
        }
    }
}
