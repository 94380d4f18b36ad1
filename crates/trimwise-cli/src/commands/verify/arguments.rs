//! Arguments of `verify`.

use clap::{Args, ValueEnum};
use trimwise::content::ContentClass;
use trimwise::ssd::Faults;
use trimwise::units::Bytes;
use trimwise_lab::bench::Part;

use crate::arguments::{JsonArguments, region, some_bytes, whole, word};

/// Arguments of `verify`.
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
    a real, unused drive; all its data are lost\n\n\
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
    #[arg(long, value_name = "FAULT")]
    pub fault: Option<Plant>,

    /// What to write: zeros, compressible, pseudo-random, incompressible or duplicated. If a drive compresses,
    /// compressible data give its advertised clean speed, and so show best what TRIM restores; HD Tach and ATTO write
    /// such data too. Other drives show no difference [default: compressible]
    #[arg(long, value_name = "CLASS")]
    pub content: Option<ContentClass>,

    /// Random writes of the torture, in percent of the verified size [default: 150]
    #[arg(long, value_name = "PCT", value_parser = whole::<u64>(1, 10_000), allow_negative_numbers = true)]
    pub torture: Option<u64>,

    /// Rest before each measurement, in seconds, so that the drive's own work is finished [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>(0, 86_400), allow_negative_numbers = true)]
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
    pub json: JsonArguments,
}

/// A fault to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// TRIM is acknowledged and ignored
    IgnoresTrim,
    /// TRIM frees the first half of each MiB
    Partial,
    /// TRIM frees the range 96 KiB further on
    WrongRange,
    /// A queued TRIM is carried out 100 writes too late
    Late,
    /// Zeros are promised after TRIM, but reads return old data
    BrokenPromise,
    /// Flushes are acknowledged and ignored; only a power cut shows it
    IgnoresFlush,
}

impl Plant {
    /// Returns `faults` with this one added.
    pub fn on(self, faults: Faults) -> Faults {
        match self {
            Self::IgnoresTrim => Faults { ignores_trim: true, ..faults },
            Self::Partial => Faults { trims_percent: 50, ..faults },
            Self::WrongRange => Faults { trim_shift_units: 24, ..faults },
            Self::Late => Faults { queued_trim_late_writes: 100, ..faults },
            Self::BrokenPromise => Faults { breaks_zeros_promise: true, ..faults },
            Self::IgnoresFlush => Faults { ignores_flush: true, ..faults },
        }
    }

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IgnoresTrim => "ignores-trim",
            Self::Partial => "partial",
            Self::WrongRange => "wrong-range",
            Self::Late => "late",
            Self::BrokenPromise => "broken-promise",
            Self::IgnoresFlush => "ignores-flush",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_shown_as_they_are_written() {
        for plant in Plant::value_variants() {
            assert_eq!(plant.to_possible_value().unwrap().get_name(), plant.name());
            assert!(!plant.on(Faults::default()).is_sound());
        }
    }
}
