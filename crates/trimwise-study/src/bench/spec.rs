//! The syntax of tests: `fill`, `randwrite:32:60`, `hdtach:reads`, `trim:50:25`.
//!
//! A test is a name and fields separated by `:`, in a fixed order; fields left out at the end have their defaults.
//! `Display` writes a test without trailing defaults.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use trimwise::failure::Mistake;
use trimwise::spelling::Accepted;
use trimwise::units::{Bytes, Percent, UNIT_BYTES};

use super::reviewers::{Sequence, Trimmed};
use super::share::Part;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    Reads,
    Writes,
    /// Read, then write.
    Both,
}

/// A century fits easily.
pub type Seconds = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Fill(Percent),
    /// Timed sequential reading or writing, as with dd.
    Sequential {
        direction: Direction,
        /// `None` for the default, or for the rest of the region if that is less.
        size: Option<Bytes>,
        /// Start of the transfers, as a share of the region.
        start: Percent,
    },
    Random {
        read_percent: u8,
        depth: u32,
        /// `None` for the default, which is limited in amount too.
        seconds: Option<Seconds>,
    },
    /// A sequential reader, a sequential writer, and both at the same time.
    ReadWrite(Option<Seconds>),
    /// Sequential passes over the zones of the address space, as HD Tach shows them.
    HdTach {
        passes: Passes,
        /// The whole of each zone instead of a sample.
        full: bool,
    },
    /// Transfer sizes from 0.5 KiB to 8 MiB, as ATTO shows them.
    Atto,
    /// Long random writes of 4 KiB all over the region.
    Torture(Option<Seconds>),
    Erase,
    /// TRIM of a part of the region.
    Trim(Part),
    /// Latency of TRIM, by the size of its range.
    TrimLatency,
    /// Throughput over time after a TRIM.
    Settling {
        /// `None` for several shares, one after another.
        range: Option<Percent>,
        seconds: Option<Seconds>,
    },
    Steady(Option<Seconds>),
    /// An idle device.
    Rest(Seconds),
    /// Dirty against clean writes.
    Reviewers(Sequence),
}

/// The tests with their fields and meanings, for help texts.
pub const TESTS: [(&str, &str); 17] = [
    ("fill[:LEVEL_PCT]", "write sequentially up to a level; without one, everything"),
    (
        "seqwrite[:SIZE[:START_PCT]]",
        "time a sequential write, 1 MiB at a time, as dd does; 4.096 GB, or less on a smaller device",
    ),
    ("seqread[:SIZE[:START_PCT]]", "the same, reading"),
    ("randwrite[:QD[:SECONDS]]", "write 4 KiB at random places, QD at a time (32), for this long (30 s)"),
    ("randread[:QD[:SECONDS]]", "the same, reading"),
    ("mixed[:READ_PCT[:QD[:SECONDS]]]", "the same, with READ_PCT % reads (70), the rest writes"),
    ("readwrite[:SECONDS]", "a sequential reader alone, a writer alone, both together (10 s each)"),
    ("hdtach[:reads|writes|both][:full]", "sequential passes by zones, as HD Tach shows them: reads first"),
    ("atto", "transfer sizes from 0.5 KiB to 8 MiB, writes and reads, as ATTO shows them"),
    ("torture[:SECONDS]", "write 4 KiB at random all over the device, 32 at a time (20 minutes)"),
    ("erase", "erase the whole device"),
    ("trim[:START_PCT:LEN_PCT]", "TRIM all of it, or a part"),
    ("trimlatency", "how long TRIM takes by the size of its range, on an idle device and under load"),
    (
        "settling[:RANGE_PCT[:SECONDS]]",
        "throughput over time after a TRIM, with and without writes before it",
    ),
    (
        "steady[:ROUND_SECONDS]",
        "write twice the capacity, then rounds until the write rate is steady (SNIA PTS)",
    ),
    ("rest[:TIME]", "leave the device idle (30m); a real one really rests"),
    (
        "reviewers[:FILL_PCT[:TORTURE[:REST[:TRIM]]]]",
        "sequential writes, clean and dirty: fill (100 %), random 4 KiB writes (30m), write, TRIM, write, rest (30m), \
         write, erase, write; TRIM is all, free (what the fill left; the default below 100 %) or none",
    ),
];

pub const DEPTH: u32 = 32;
pub(crate) const READ_PERCENT: u8 = 70;
const DEPTH_MAX: u64 = 65_536;
const SECONDS_MAX: u64 = 7 * 86_400;
const REST: Seconds = 30 * 60;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("test '{given}', column {column}: {what}; {expected}")]
pub struct TestError {
    pub given: String,
    /// Position of the error, from 1, in characters.
    pub column: usize,
    pub what: String,
    pub expected: Accepted,
}

impl TestError {
    /// Returns what is wrong with the request.
    pub fn mistake(self) -> Mistake {
        let Self { given, column, what, expected } = self;
        Mistake::that(format!("test '{given}', column {column}: {what}")).expected(expected)
    }
}

impl Test {
    pub(crate) fn needs_trim(self) -> bool {
        match self {
            Self::Trim(_) | Self::TrimLatency | Self::Settling { .. } => true,
            Self::Reviewers(sequence) => {
                matches!(sequence.trimmed, Some(Trimmed::All | Trimmed::Free))
            }
            _ => false,
        }
    }

    /// Returns how long the test leaves the device idle, if it was told to.
    pub fn rest(self) -> Seconds {
        match self {
            Self::Rest(seconds) | Self::Reviewers(Sequence { rest: seconds, .. }) => seconds,
            _ => 0,
        }
    }

    /// Returns the kinds of transfers that have figures of their own; empty if there is one, or they are known only
    /// after the run.
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Random { read_percent: 1..=99, .. } => &["read", "write"],
            _ => &[],
        }
    }

    pub fn depth(self) -> u32 {
        match self {
            Self::Random { depth, .. } => depth,
            _ => DEPTH,
        }
    }

    pub fn is_destructive(self) -> bool {
        match self {
            Self::Sequential { direction, .. } => direction == Direction::Write,
            Self::Random { read_percent, .. } => read_percent < 100,
            Self::HdTach { passes, .. } => passes != Passes::Reads,
            Self::Rest(_) => false,
            _ => true,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |f: &mut fmt::Formatter<'_>, seconds: &Option<Seconds>| match seconds {
            Some(seconds) => write!(f, ":{seconds}"),
            None => Ok(()),
        };
        match self {
            Self::Fill(Percent::ALL) => f.write_str("fill"),
            Self::Fill(level) => write!(f, "fill:{level}"),
            Self::Sequential { direction, size, start } => {
                f.write_str(if *direction == Direction::Read { "seqread" } else { "seqwrite" })?;
                match (size, *start) {
                    (None, Percent::ZERO) => Ok(()),
                    (None, start) => write!(f, "::{start}"),
                    (Some(size), Percent::ZERO) => write!(f, ":{}", size.0),
                    (Some(size), start) => write!(f, ":{}:{start}", size.0),
                }
            }
            Self::Random { read_percent, depth, seconds: time } => {
                let is_default = *depth == DEPTH && time.is_none();
                match *read_percent {
                    0 => f.write_str("randwrite")?,
                    100 => f.write_str("randread")?,
                    READ_PERCENT if is_default => f.write_str("mixed")?,
                    read => write!(f, "mixed:{read}")?,
                }
                if is_default {
                    return Ok(());
                }
                write!(f, ":{depth}")?;
                seconds(f, time)
            }
            Self::ReadWrite(time) => f.write_str("readwrite").and_then(|()| seconds(f, time)),
            Self::HdTach { passes, full } => {
                f.write_str("hdtach")?;
                f.write_str(match passes {
                    Passes::Reads => ":reads",
                    Passes::Writes => ":writes",
                    Passes::Both => "",
                })?;
                f.write_str(if *full { ":full" } else { "" })
            }
            Self::Atto => f.write_str("atto"),
            Self::Torture(time) => f.write_str("torture").and_then(|()| seconds(f, time)),
            Self::Erase => f.write_str("erase"),
            Self::Trim(Part::ALL) => f.write_str("trim"),
            Self::Trim(part) => write!(f, "trim:{part}"),
            Self::TrimLatency => f.write_str("trimlatency"),
            Self::Settling { range, seconds: time } => {
                f.write_str("settling")?;
                match (range, time) {
                    (None, None) => Ok(()),
                    (None, Some(time)) => write!(f, "::{time}"),
                    (Some(range), time) => write!(f, ":{range}").and_then(|()| seconds(f, time)),
                }
            }
            Self::Steady(time) => f.write_str("steady").and_then(|()| seconds(f, time)),
            Self::Rest(REST) => f.write_str("rest"),
            Self::Rest(time) => write!(f, "rest:{}", span(*time)),
            Self::Reviewers(Sequence { fill, torture, rest, trimmed }) => {
                let fields = [
                    (*fill != Percent::ALL).then(|| fill.to_string()),
                    torture.map(span),
                    (*rest != REST).then(|| span(*rest)),
                    trimmed.map(|trimmed| trimmed.to_string()),
                ];
                let last = fields.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                f.write_str("reviewers")?;
                fields[..last].iter().try_for_each(|field| write!(f, ":{}", field.as_deref().unwrap_or("")))
            }
        }
    }
}

const SPANS: [(&str, Seconds); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// Formats a time in the largest unit that it is a multiple of.
pub fn span(seconds: Seconds) -> String {
    let whole = SPANS.iter().find(|(_, unit)| seconds.is_multiple_of(*unit));
    whole.map_or_else(String::new, |(name, unit)| format!("{}{name}", seconds / unit))
}

struct Fields<'a> {
    given: &'a str,
    /// Remaining fields, each with its position in bytes.
    left: std::vec::IntoIter<(usize, &'a str)>,
}

impl<'a> Fields<'a> {
    fn of(given: &'a str) -> (&'a str, Self) {
        let mut fields = given.split(':').scan(0, |at, text| {
            let field = (*at, text);
            *at += text.len() + 1;
            Some(field)
        });
        let name = fields.next().map_or("", |(_, name)| name);
        (name, Self { given, left: fields.collect::<Vec<_>>().into_iter() })
    }

    fn wrong(&self, at: usize, what: String, expected: impl Into<Accepted>) -> TestError {
        let column = self.given.get(..at).map_or(0, |before| before.chars().count()) + 1;
        TestError { given: self.given.to_owned(), column, what, expected: expected.into() }
    }

    fn next<T>(
        &mut self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, TestError> {
        match self.left.next() {
            None => Ok(None),
            Some((at, text)) => match read(text) {
                Some(value) => Ok(Some(value)),
                None => Err(self.wrong(at, format!("'{text}'"), expected)),
            },
        }
    }

    /// Returns the next field; an empty one stands for the default if more follow.
    fn next_or_default<T>(
        &mut self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, TestError> {
        if self.left.as_slice().first().is_some_and(|(_, text)| text.is_empty()) && self.left.len() > 1 {
            self.left.next();
            return Ok(None);
        }
        self.next(expected, read)
    }

    fn seconds(&mut self) -> Result<Option<Seconds>, TestError> {
        let expected = format!("whole seconds from 1 to {SECONDS_MAX}");
        self.next(&expected, |text| number(text, 1, SECONDS_MAX).map(|s| s as Seconds))
    }

    /// Reads a time with its unit; a number alone counts seconds.
    fn span(&mut self) -> Result<Option<Seconds>, TestError> {
        self.next_or_default("a time from 1s to 7d, such as 30m or 90s", |text| {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
            let unit = match &text[digits.len()..] {
                "" => 1,
                unit => SPANS.iter().find(|(name, _)| *name == unit)?.1,
            };
            let seconds = number(digits, 1, SECONDS_MAX)?.checked_mul(unit.into())?;
            (seconds <= SECONDS_MAX).then_some(seconds as Seconds)
        })
    }

    fn depth(&mut self) -> Result<Option<u32>, TestError> {
        let expected = format!("a queue depth from 1 to {DEPTH_MAX}");
        self.next(&expected, |text| number(text, 1, DEPTH_MAX).map(|d| d as u32))
    }

    fn end(mut self, test: Test, form: &str) -> Result<Test, TestError> {
        match self.left.next() {
            None => Ok(test),
            Some((at, text)) => Err(self.wrong(at, format!("unexpected ':{text}'"), form)),
        }
    }
}

fn number(text: &str, least: u64, most: u64) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && (least..=most).contains(n))
}

fn share(text: &str) -> Option<Percent> {
    text.parse().ok().filter(|&p| p > Percent::ZERO && p <= Percent::ALL)
}

fn form(name: &str) -> &'static str {
    let own = |form: &str| form.split(['[', ':']).next() == Some(name);
    TESTS.iter().map(|(form, _)| *form).find(|form| own(form)).unwrap_or("a test")
}

impl FromStr for Test {
    type Err = TestError;

    fn from_str(given: &str) -> Result<Self, TestError> {
        const LEVEL: &str = "percent above 0 and up to 100, with at most two decimals";
        let (name, mut fields) = Fields::of(given);
        let test = match name {
            "fill" => Self::Fill(fields.next(LEVEL, share)?.unwrap_or(Percent::ALL)),
            "seqwrite" | "seqread" => {
                let size = fields
                    .next_or_default("a size of whole units of 4 KiB, such as 4GiB", |text| {
                        text.parse::<Bytes>().ok().filter(|b| b.0 > 0 && b.0.is_multiple_of(UNIT_BYTES))
                    })?;
                let start = fields
                    .next("percent from 0 to below 100, with at most two decimals", |text| {
                        text.parse().ok().filter(|&p| p < Percent::ALL)
                    })?;
                let direction = if name == "seqread" { Direction::Read } else { Direction::Write };
                Self::Sequential { direction, size, start: start.unwrap_or(Percent::ZERO) }
            }
            "randwrite" | "randread" | "mixed" => {
                let read_percent = match name {
                    "randwrite" => 0,
                    "randread" => 100,
                    _ => fields
                        .next("percent of reads, from 1 to 99", |text| number(text, 1, 99))?
                        .map_or(READ_PERCENT, |percent| percent as u8),
                };
                let depth = fields.depth()?.unwrap_or(DEPTH);
                Self::Random { read_percent, depth, seconds: fields.seconds()? }
            }
            "readwrite" => Self::ReadWrite(fields.seconds()?),
            "hdtach" => {
                let mut passes = None;
                let mut full = false;
                while let Some(word) = fields.next("reads, writes or both, then full", |text| {
                    let pass = match text {
                        "reads" => Some(Passes::Reads),
                        "writes" => Some(Passes::Writes),
                        "both" => Some(Passes::Both),
                        "full" if !full => None,
                        _ => return None,
                    };
                    // Each pass at most once, and `full` last.
                    (!full && (pass.is_none() || passes.is_none())).then_some(pass)
                })? {
                    match word {
                        Some(pass) => passes = Some(pass),
                        None => full = true,
                    }
                }
                Self::HdTach { passes: passes.unwrap_or(Passes::Both), full }
            }
            "atto" => Self::Atto,
            "torture" => Self::Torture(fields.seconds()?),
            "erase" => Self::Erase,
            "trim" => {
                let part = given.get("trim:".len()..).unwrap_or_default();
                if given == "trim" {
                    Self::Trim(Part::ALL)
                } else {
                    let part = part.parse::<Part>().map_err(|_| {
                        let expected = "START_PCT:LEN_PCT, such as 50:25, together at most 100";
                        fields.wrong("trim:".len(), format!("'{part}'"), expected)
                    })?;
                    return Ok(Self::Trim(part));
                }
            }
            "trimlatency" => Self::TrimLatency,
            "settling" => {
                let range = fields.next_or_default(LEVEL, share)?;
                Self::Settling { range, seconds: fields.seconds()? }
            }
            "steady" => Self::Steady(fields.seconds()?),
            "rest" => Self::Rest(fields.span()?.unwrap_or(REST)),
            "reviewers" => {
                let fill = fields.next_or_default(LEVEL, share)?.unwrap_or(Percent::ALL);
                let (torture, rest) = (fields.span()?, fields.span()?.unwrap_or(REST));
                let words =
                    if fill < Percent::ALL { "all, free or none" } else { "all or none: nothing is free" };
                let trimmed = fields.next(words, |text| {
                    text.parse().ok().filter(|&t| t != Trimmed::Free || fill < Percent::ALL)
                })?;
                Self::Reviewers(Sequence { fill, torture, rest, trimmed })
            }
            other => {
                let names: Vec<&str> =
                    TESTS.iter().filter_map(|(form, _)| form.split(['[', ':']).next()).collect();
                let what = format!("unknown test '{other}'");
                return Err(fields.wrong(0, what, Accepted::one_of(other, &names)));
            }
        };
        fields.end(test, form(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_written_again() {
        for (text, canonical) in [
            ("fill", "fill"),
            ("fill:100", "fill"),
            ("fill:87.3", "fill:87.3"),
            ("fill:0.05", "fill:0.05"),
            ("seqwrite", "seqwrite"),
            ("seqwrite:4096000000:62.9", "seqwrite:4096000000:62.9"),
            ("seqwrite:1GiB:0", "seqwrite:1073741824"),
            ("seqread::50", "seqread::50"),
            ("randwrite", "randwrite"),
            ("randwrite:32", "randwrite"),
            ("randwrite:1:5", "randwrite:1:5"),
            ("randread:32:5", "randread:32:5"),
            ("mixed", "mixed"),
            ("mixed:70", "mixed"),
            ("mixed:30", "mixed:30"),
            ("mixed:70:8", "mixed:70:8"),
            ("mixed:1:8:9", "mixed:1:8:9"),
            ("readwrite:3", "readwrite:3"),
            ("hdtach", "hdtach"),
            ("hdtach:both", "hdtach"),
            ("hdtach:reads", "hdtach:reads"),
            ("hdtach:full", "hdtach:full"),
            ("hdtach:writes:full", "hdtach:writes:full"),
            ("atto", "atto"),
            ("torture", "torture"),
            ("torture:1200", "torture:1200"),
            ("erase", "erase"),
            ("trim", "trim"),
            ("trim:0:100", "trim"),
            ("trim:87.3:12.7", "trim:87.3:12.7"),
            ("trimlatency", "trimlatency"),
            ("settling", "settling"),
            ("settling:12.5", "settling:12.5"),
            ("settling::9", "settling::9"),
            ("settling:100:9", "settling:100:9"),
            ("steady", "steady"),
            ("steady:60", "steady:60"),
            ("rest:30m", "rest"),
            ("rest:1800", "rest"),
            ("rest:90", "rest:90s"),
            ("rest:120m", "rest:2h"),
            ("rest:7d", "rest:7d"),
            ("reviewers", "reviewers"),
            ("reviewers:100:30m:30m", "reviewers::30m"),
            ("reviewers:80", "reviewers:80"),
            ("reviewers:80:20m:45m:none", "reviewers:80:20m:45m:none"),
            ("reviewers::::all", "reviewers::::all"),
            ("reviewers:99.5:::free", "reviewers:99.5:::free"),
        ] {
            let test: Test = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(test.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(test), "{canonical}");
        }
    }

    #[test]
    fn every_test_of_the_list_is_read_without_its_fields() {
        for (form, _) in TESTS {
            let name = form.split('[').next().unwrap();
            assert_eq!(name.parse::<Test>().unwrap().to_string(), name);
            assert_eq!(super::form(name), form);
        }
    }

    #[test]
    fn what_does_not_parse_is_named_with_its_place_and_what_would_be_accepted() {
        for (text, column, what, expected) in [
            ("", 1, "unknown test ''", "one of fill, seqwrite"),
            ("fil", 1, "unknown test 'fil'", "did you mean `fill`? Expected one of fill, "),
            ("größe", 1, "unknown test 'größe'", "trimlatency, settling, steady"),
            ("fill:", 6, "''", "up to 100"),
            ("fill:0", 6, "'0'", "above 0"),
            ("fill:101", 6, "'101'", "up to 100"),
            ("fill:5.", 6, "'5.'", "two decimals"),
            ("fill:5.123", 6, "'5.123'", "two decimals"),
            ("fill:+5", 6, "'+5'", "two decimals"),
            ("fill:5:6", 8, "unexpected ':6'", "fill[:LEVEL_PCT]"),
            ("seqwrite:1000", 10, "'1000'", "units of 4 KiB"),
            ("seqwrite::", 11, "''", "below 100"),
            ("seqwrite:", 10, "''", "units of 4 KiB"),
            ("seqread:1MiB:100", 14, "'100'", "below 100"),
            ("randwrite:0", 11, "'0'", "queue depth from 1"),
            ("randwrite:32:0", 14, "'0'", "seconds from 1"),
            ("randwrite:32:1:2", 16, "':2'", "randwrite[:QD[:SECONDS]]"),
            ("mixed:0", 7, "'0'", "from 1 to 99"),
            ("mixed:100", 7, "'100'", "from 1 to 99"),
            ("hdtach:reads:writes", 14, "'writes'", "then full"),
            ("hdtach:full:reads", 13, "'reads'", "then full"),
            ("hdtach:größe:full", 8, "'größe'", "reads, writes or both"),
            ("atto:1", 6, "unexpected ':1'", "atto"),
            ("erase:now", 7, "':now'", "erase"),
            ("trim:", 6, "''", "START_PCT:LEN_PCT"),
            ("trim:50", 6, "'50'", "START_PCT:LEN_PCT"),
            ("trim:50:60", 6, "'50:60'", "at most 100"),
            ("trim:50:0", 6, "'50:0'", "at most 100"),
            ("trim:5:6:7", 6, "'5:6:7'", "at most 100"),
            ("settling:0", 10, "'0'", "above 0"),
            ("settling:", 10, "''", "above 0"),
            ("torture:1m", 9, "'1m'", "whole seconds"),
            ("rest:0", 6, "'0'", "a time from 1s to 7d"),
            ("rest:365000d", 6, "'365000d'", "a time from 1s to 7d"),
            ("rest:8d", 6, "'8d'", "a time from 1s to 7d"),
            ("rest:30min", 6, "'30min'", "such as 30m"),
            ("rest:m", 6, "'m'", "such as 30m"),
            ("rest:größe", 6, "'größe'", "such as 30m"),
            ("reviewers:120", 11, "'120'", "up to 100"),
            ("reviewers:80:0", 14, "'0'", "a time from 1s"),
            ("reviewers:80:1m:1m:some", 20, "'some'", "all, free or none"),
            ("reviewers::1m:1m:free", 18, "'free'", "all or none: nothing is free"),
            ("reviewers:80:1m:1m:all:1", 24, "unexpected ':1'", "reviewers[:FILL_PCT"),
            ("steady:604801", 8, "'604801'", "to 604800"),
        ] {
            let error = text.parse::<Test>().unwrap_err();
            assert_eq!((error.given.as_str(), error.column), (text, column), "{error}");
            assert!(error.what.contains(what) && error.expected.to_string().contains(expected), "{error}");
        }
    }
}
