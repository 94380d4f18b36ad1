//! Arguments of `record`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use trimwise::units::Bytes;
use trimwise_study::record::{BUFFER, MAX_SIZE, RecordRequest};

use crate::arguments::{JsonArguments, TableArguments, some_time};

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  \
    trimwise record /home --for 1h --out home.trace\n      \
    what happens below /home in the next hour\n  \
    trimwise record /var/lib/db --out db.trace\n      \
    until Ctrl-C\n  \
    trimwise record /dev/nvme0n1 --for 10min --out disk.trace --max-size 500MiB --json -\n      \
    the requests of a whole disk, and figures for another program to read\n\n\
    It needs root and tracefs. The trace holds addresses, sizes and times; no names, no contents.\n\n\
    SIZE is in bytes, or has a unit: KiB, MiB, GiB, TiB (or K, M, G, T) are powers of 1,024,\n\
    kB, MB, GB, TB powers of 1,000. TIME has a unit: 90s, 10min, 1h30min, 7days.\n\n\
    Exit codes: 0 also if Ctrl-C ends a recording without --for, or --max-size is reached; 130 if\n\
    Ctrl-C comes before the end of --for, 1 if the disk is full. In every case, what was recorded is kept.")]
pub struct RecordArguments {
    /// A mount point, or a block device; frees are recorded if its file system is mounted
    #[arg(value_name = "MOUNT|DEV")]
    pub target: PathBuf,

    /// How long to record [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = some_time, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    /// Write the trace to this new file; while recording it is called FILE.partial
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: PathBuf,

    /// Stop when the compressed trace reaches this size
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size_in(&MAX_SIZE),
          allow_negative_numbers = true)]
    pub max_size: Bytes,

    /// Kernel memory for events, per processor [default: 128 MiB in total, 1 to 16 MiB each]
    #[arg(long, value_name = "SIZE", value_parser = size_in(&BUFFER),
          allow_negative_numbers = true)]
    pub buffer: Option<Bytes>,

    #[command(flatten)]
    pub json: JsonArguments,

    #[command(flatten)]
    pub tables: TableArguments,
}

impl RecordArguments {
    pub fn request(&self) -> RecordRequest {
        RecordRequest {
            target: self.target.clone(),
            duration: self.duration,
            out: self.out.clone(),
            replace: self.json.force,
            max_size: self.max_size,
            buffer: self.buffer,
        }
    }
}

/// Parses a size in a range; the error names the range.
fn size_in(
    range: &RangeInclusive<Bytes>,
) -> impl Fn(&str) -> Result<Bytes, String> + Clone + Send + Sync + 'static {
    let range = range.clone();
    move |text| {
        let bytes: Bytes = text.parse().map_err(|e: trimwise::units::SizeError| e.to_string())?;
        let (least, most) = (range.start(), range.end());
        if range.contains(&bytes) {
            Ok(bytes)
        } else {
            Err(format!("expected a size from {least} to {most}"))
        }
    }
}
