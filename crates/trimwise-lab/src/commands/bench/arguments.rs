//! Arguments of `bench`.

use std::path::PathBuf;
use std::str::FromStr;

use crate::bench::{Part, Scale, TESTS};
use clap::Args;
use trimwise::content::ContentClass;
use trimwise::units::Bytes;

use crate::requests::bench::map::{MapRequest, POINT_S};
use crate::requests::bench::{BenchRequest, OnDevice};
use trimwise_cli::arguments::{OutputArguments, TableArguments, region, some_bytes, whole, whole_in, word};
use trimwise_cli::gate::GateArguments;
use trimwise_study::defaults;

#[derive(Debug, Args)]
#[command(after_long_help = bench_help(), mut_arg("fail_if", |arg| arg.conflicts_with("map")),
          mut_arg("baseline", |arg| arg.conflicts_with("map")))]
pub struct BenchArguments {
    /// What to test: an SSD profile (built-in name, see `trimwise devices`, or TOML file), in the model; or file:PATH
    /// or dev:PATH, a real file or device
    #[arg(value_name = "TARGET", value_parser = word)]
    pub target: String,

    /// Tests, run in this order on the same device; see below
    #[arg(value_name = "TEST", required_unless_present = "map", conflicts_with = "map", num_args = 1..)]
    pub tests: Vec<String>,

    /// What TRIM costs the foreground: instead of tests, a map of read and write latency over offered rates of reads,
    /// writes and TRIMs, open loop
    #[arg(long)]
    pub map: bool,

    /// How long each point of --map lasts; there are 144 points, or 36 without TRIM [default: 1]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true,
          value_parser = whole_in(&POINT_S))]
    pub point: Option<u64>,

    /// What to write: zeros, compressible, pseudo-random, incompressible or duplicated
    #[arg(long, value_name = "CLASS", default_value_t = ContentClass::Incompressible)]
    pub content: ContentClass,

    /// Part of the device to test, in percent of it; only erase goes beyond [default: all]
    #[arg(long, value_name = "START_PCT:LEN_PCT", value_parser = region)]
    pub region: Option<Part>,

    /// Model a part of the drive that stands for the whole, such as 1/16: capacity, caches and the times and amounts of
    /// tests shrink together, rates and ratios stay [default: 1]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = Scale::from_str)]
    pub scale: Option<Scale>,

    /// Seed of the random places: same seed, same places, and in the model the same result
    #[arg(long, short = 's', value_name = "N", default_value_t = defaults::SEED, value_parser = whole::<u64>(0, u64::MAX),
          allow_negative_numbers = true)]
    pub seed: u64,

    /// With file:PATH, if the file does not exist or is empty: the size to make it; a file created here is removed at
    /// the end [default: 1GiB]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = some_bytes)]
    pub size: Option<Bytes>,

    /// With file:PATH and dev:PATH, for tests that write: confirm that what WORD names may be destroyed; without this
    /// option the command says which WORD to give
    #[arg(long, value_name = "WORD")]
    pub destroy: Option<String>,

    #[command(flatten)]
    pub gate: GateArguments,

    /// Write the results as JSON to a new file; `-`, or no FILE, prints them instead of the table
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    #[command(flatten)]
    pub tables: TableArguments,

    /// Write an HTML report to DIR/index.html (one file, nothing else needed)
    #[arg(long, short = 'r', value_name = "DIR")]
    pub report: Option<PathBuf>,

    /// Replace existing files of the results
    #[arg(long, short = 'f')]
    pub force: bool,
}

impl BenchArguments {
    pub fn output(&self) -> OutputArguments {
        OutputArguments {
            jobs: None,
            json: self.json.clone(),
            tables: self.tables.clone(),
            report: self.report.clone(),
            force: self.force,
        }
    }

    pub fn request(&self) -> BenchRequest {
        BenchRequest { on: self.on_device(), tests: self.tests.clone() }
    }

    /// Returns the request of `--map`.
    pub fn map_request(&self) -> MapRequest {
        MapRequest { on: self.on_device(), point_s: self.point }
    }

    fn on_device(&self) -> OnDevice {
        OnDevice {
            target: self.target.clone(),
            content: self.content,
            seed: self.seed,
            region: self.region,
            scale: self.scale,
            size: self.size,
            destroy: self.destroy.clone(),
        }
    }
}

/// Help text below the options of `bench`: the tests, and examples.
fn bench_help() -> String {
    let mut help = String::from("Tests:\n");
    for (test, meaning) in TESTS {
        help += &format!("  {test}\n      {meaning}\n");
    }
    help + "\nExamples:\n  \
        trimwise bench sata-small seqwrite randwrite\n  \
        trimwise bench sata-small erase fill torture:60 hdtach:reads trim hdtach:reads\n      \
        a drive fresh, full, worn down, and after TRIM\n  \
        trimwise bench nvme-512gb-qlc --scale 1/16 reviewers:80\n      \
        dirty against clean writes as reviewers measure them, on a sixteenth of the drive\n  \
        trimwise bench my-ssd.toml fill:87.3 trim:87.3:12.7 seqwrite:1GiB:87.3 --json -\n  \
        trimwise bench vendor2 --map --report map/\n      \
        what TRIM costs reads and writes at each load\n  \
        trimwise bench sata-small fill randwrite --fail-if \"p99.9 of randwrite > 20 ms\"\n      \
        exit code 1 if one write in a thousand takes longer than 20 ms\n\n\
        What each test does, and how to read its figures: docs/guide.md"
}
