//! Arguments of `verify`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trimwise::content::ContentClass;
use trimwise::units::Bytes;
use trimwise_study::bench::Part;
use trimwise_study::verify::{Plant, REST_S, TORTURE_PERCENT, VerifyRequest};

use crate::arguments::{JsonArguments, TableArguments, region, some_bytes, whole, whole_in, word};
use crate::gate::GateArguments;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise verify sata-small\n  \
    trimwise verify sandforce-240gb@5.0.2\n      \
    a firmware that is known to treat TRIM wrongly\n  \
    trimwise verify sata-small --fault ignores-trim\n      \
    what it looks like when TRIM is ignored\n  \
    trimwise verify dir:/home\n      \
    does TRIM reach the disk below /home? Nothing is destroyed\n  \
    trimwise verify dev:/dev/sdx --destroy /dev/sdx --json -\n      \
    a real, unused drive; all its data are lost\n  \
    trimwise verify sata-small --fail-if \"write_mb_per_s of trimmed < clean by 10 %\"\n      \
    exit code 1 if writes after TRIM are more than 10 % slower than on a clean drive\n\n\
    Exit code 1 if TRIM is ignored, works only in part, does harm or is not sent; 0 if it works,\n\
    if the drive has no TRIM, and if the result is inconclusive.\n\n\
    What is done, and how it is judged: docs/guide.md")]
pub struct VerifyArguments {
    /// What to verify: an SSD profile (built-in name, see `trimwise devices`, or TOML file; @VERSION after it chooses
    /// one of its firmwares), in the model; file:PATH or dev:PATH, a real file or device, which is overwritten;
    /// dir:PATH, a directory of a mounted file system, where nothing is destroyed
    #[arg(value_name = "TARGET", value_parser = word)]
    pub target: String,

    /// How much to verify: of a profile (scaled down: the same dies, rates and shares of space) [default: 4GiB, or all
    /// of it]; of a new file for file:PATH [default: 1GiB]; of the file for dir:PATH [default: 64MiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// With a profile: plant this fault, to see what it looks like
    #[arg(long, value_name = "FAULT", value_parser = plant())]
    pub fault: Option<Plant>,

    /// What to write: zeros, compressible, pseudo-random, incompressible or duplicated. If a drive compresses,
    /// compressible data give its advertised clean speed, and so show best what TRIM restores; HD Tach and ATTO write
    /// such data too. Other drives show no difference [default: compressible]
    #[arg(long, value_name = "CLASS")]
    pub content: Option<ContentClass>,

    /// Amount of random writes in the torture phase, in percent of the verified size [default: 150]
    #[arg(long, value_name = "PCT", value_parser = whole_in(&TORTURE_PERCENT), allow_negative_numbers = true)]
    pub torture: Option<u64>,

    /// Rest before each measurement, in seconds, for the drive to finish its background work [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = whole_in(&REST_S), allow_negative_numbers = true)]
    pub rest: Option<u64>,

    /// Part of the device to verify, in percent of it [default: all]
    #[arg(long, value_name = "START_PCT:LEN_PCT", value_parser = region)]
    pub region: Option<Part>,

    /// Seed of the random places: same seed, same places, and in the model the same result [default: 1]
    #[arg(long, short = 's', value_name = "N", value_parser = whole::<u64>(0, u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// With file:PATH and dev:PATH: confirm that what WORD names may be destroyed; without this option the command says
    /// which WORD to give
    #[arg(long, value_name = "WORD")]
    pub destroy: Option<String>,

    #[command(flatten)]
    pub gate: GateArguments,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl VerifyArguments {
    pub fn request(&self) -> VerifyRequest {
        VerifyRequest {
            target: self.target.clone(),
            size: self.size,
            fault: self.fault,
            content: self.content,
            torture_percent: self.torture,
            rest_s: self.rest,
            region: self.region,
            seed: self.seed,
            destroy: self.destroy.clone(),
        }
    }
}

/// Returns a parser of faults, whose names the help lists.
pub fn plant() -> impl TypedValueParser<Value = Plant> {
    let names = Plant::ALL.map(|plant| PossibleValue::new(plant.name()).help(plant.about()));
    PossibleValuesParser::new(names).try_map(|name| {
        Plant::ALL.into_iter().find(|plant| plant.name() == name).ok_or("there is no such fault")
    })
}
