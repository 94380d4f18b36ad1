//! Arguments that several commands share, and how their values are parsed.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use trimwise::units::Bytes;
use trimwise_study::bench::Part;

use trimwise_study::check::{GUEST_S, JOBS};
use trimwise_study::defaults;

#[derive(Clone, Debug, Default, Args)]
pub struct JsonArguments {
    /// Write the result as JSON to a new file; `-`, or no FILE, prints it instead of the text
    #[arg(long, short = 'J', value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Replace the file of the result if it exists
    #[arg(long, short = 'f')]
    pub force: bool,
}

/// Other forms of the tables; of these and --json, one at most.
#[derive(Clone, Debug, Default, Args)]
pub struct TableArguments {
    /// Write the tables as CSV to a new file; `-`, or no FILE, prints them instead of the text
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-", conflicts_with = "json")]
    pub csv: Option<PathBuf>,

    /// Write the tables as Markdown to a new file; `-`, or no FILE, prints them instead of the text
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-",
          conflicts_with_all = ["json", "csv"])]
    pub markdown: Option<PathBuf>,
}

impl TableArguments {
    pub const fn are_wanted(&self) -> bool {
        self.csv.is_some() || self.markdown.is_some()
    }
}

#[derive(Clone, Debug, Default, Args)]
pub struct OutputArguments {
    /// Runs at a time; the result is the same for any number [default: the number of cores, or fewer if memory is
    /// short]
    #[arg(long, short = 'j', value_name = "N", value_parser = whole_in(&JOBS), allow_negative_numbers = true)]
    pub jobs: Option<u16>,

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

/// Limits on a guest, in real time rather than its virtual time.
#[derive(Clone, Copy, Debug, Args)]
pub struct GuestLimits {
    /// End a kernel that is silent for this many seconds, because it computes or hangs [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = whole_in(&GUEST_S), allow_negative_numbers = true)]
    pub max_silence: Option<u64>,

    /// End a kernel's run after this many seconds of this computer's time [default: 3600]
    #[arg(long, value_name = "SECONDS", value_parser = whole_in(&GUEST_S), allow_negative_numbers = true)]
    pub max_wall: Option<u64>,
}

impl GuestLimits {
    pub const fn request(&self) -> trimwise_study::guest_limits::GuestLimits {
        trimwise_study::guest_limits::GuestLimits {
            max_silence_s: self.max_silence,
            max_wall_s: self.max_wall,
        }
    }

    pub const fn are_given(&self) -> bool {
        self.request().are_given()
    }
}

/// Help text of `--policy`, with the default.
pub fn policy_help() -> String {
    let default = defaults::POLICIES.join(" ");
    format!(
        "TRIM policy: terms joined with `+`, see below; one or more [default: {default}]. On a kernel, what its \
         file system does: off, commit, async (btrfs), batch:EVERY [default: all but batch]. discard is commit, nodiscard \
         is off, fstrim is batch:1w. dm-trim[:POLICY] is discard over a target like kernel/dm-trim"
    )
}

pub fn region(text: &str) -> Result<Part, String> {
    text.parse()
}

/// Parses a whole number in a range; the error names the range.
pub fn whole<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|n| (least..=most).contains(n));
        number
            .and_then(|n| T::try_from(n).ok())
            .ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

/// Parses a whole number in the range of a request's field; the error names the range.
pub fn whole_in<T: TryFrom<u64> + Copy + Into<u64>>(
    range: &RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    whole((*range.start()).into(), (*range.end()).into())
}

/// Rejects an empty value, such as an unset variable in a script.
pub fn word(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a non-empty value".to_string()) } else { Ok(text.to_string()) }
}

/// Parses a size above 0.
pub fn some_bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|e: trimwise::units::SizeError| e.to_string())?;
    if bytes.0 == 0 { Err("expected a size above 0".to_string()) } else { Ok(bytes) }
}

/// Parses a time above 0.
pub fn some_time(text: &str) -> Result<Duration, String> {
    let expected = "expected a time above 0, such as 90s, 10min, 1h30min or 7days";
    let time = humantime::parse_duration(text).map_err(|_| expected.to_owned())?;
    if time.is_zero() { Err(expected.to_owned()) } else { Ok(time) }
}
