//! Arguments of `selftest`.

use clap::Args;

use crate::requests::selftest::{OPS, PART, SelftestRequest};
use trimwise_cli::arguments::{JsonArguments, TableArguments, whole, whole_in};
use trimwise_study::check::JOBS;
use trimwise_study::defaults;

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise selftest\n  \
    trimwise selftest --ops 10000000\n      \
    a thousand devices and ten million commands\n  \
    trimwise selftest --part 17 --seed 3\n      \
    repeat one part, as the report of a violation suggests")]
pub struct SelftestArguments {
    /// Number of commands, in parts of 10,000, each with a device of its own
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = whole_in(&OPS),
          allow_negative_numbers = true, conflicts_with = "part")]
    pub ops: u64,

    /// Seed of everything drawn at random: same seed, same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// Run only the part with this number, counted from 0, to repeat a finding
    #[arg(long, value_name = "N", value_parser = whole_in(&PART), allow_negative_numbers = true)]
    pub part: Option<u64>,

    /// Parts at a time; the result is the same for any number [default: the number of cores]
    #[arg(long, short = 'j', value_name = "N", value_parser = whole_in(&JOBS), allow_negative_numbers = true)]
    pub jobs: Option<u16>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl SelftestArguments {
    pub fn request(&self) -> SelftestRequest {
        SelftestRequest { ops: self.ops, seed: self.seed, part: self.part, jobs: self.jobs }
    }
}
