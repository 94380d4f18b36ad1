//! Published measurements of what TRIM costs and brings: `profiles/measured/*.toml`.
//!
//! [`summary`] shows which range each class of drives has been measured to have.

use serde::{Deserialize, Serialize};

use super::models::{Model, called};
use super::{Entry, Flash, Link, MapPlace, entries, not_negative, some_text};
use crate::profile::ProfileError;

/// Name and text of the built-in files.
const FILES: [(&str, &str); 2] = [
    ("profiles/measured/trim-cost.toml", include_str!("../../../../profiles/measured/trim-cost.toml")),
    ("profiles/measured/effects.toml", include_str!("../../../../profiles/measured/effects.toml")),
];

/// A figure that somebody published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// As the source names it; `unnamed ...` if it does not.
    pub drive: String,
    pub link: Option<Link>,
    pub flash: Option<Flash>,
    pub map: Option<MapPlace>,
    pub firmware: Option<String>,
    pub what: What,
    /// Size of a range; of a stall: of what was deleted.
    pub range_bytes: Option<u64>,
    /// Ranges in a command.
    pub ranges: Option<u32>,
    pub state: Option<State>,
    pub load: Option<Load>,
    pub full_percent: Option<u8>,
    pub value: f64,
    /// The other end, if the source has a range.
    pub value_high: Option<f64>,
    pub bound: Option<Bound>,
    pub unit: Unit,
    /// How the source puts it, shortened.
    pub said: Option<String>,
    pub source: String,
    /// Of the text.
    pub year: Option<u16>,
    pub read: Read,
    /// How the value was derived, or what is doubtful.
    pub assumes: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    TrimLatency,
    SecureTrimLatency,
    DiscardRate,
    DiscardWhole,
    FstrimTime,
    Stall,
    DirtyOverClean,
    AfterTrimOverClean,
    AfterRestOverClean,
    WriteAmplification,
    TrimWaRatio,
    OpGain,
    SlcBytes,
    SlcWriteBytesPerS,
    AfterSlcWriteBytesPerS,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Full,
    Empty,
    Dirty,
    Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    Idle,
    Busy,
}

/// The true figure is above (`lower`) or below (`upper`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    Lower,
    Upper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "s/GiB")]
    SecondsPerGib,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "ratio")]
    Ratio,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
}

/// How much of the source was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read {
    Whole,
    Part,
}

impl What {
    /// All kinds, in the order of tables.
    pub const ALL: [Self; 15] = [
        Self::TrimLatency,
        Self::SecureTrimLatency,
        Self::DiscardRate,
        Self::DiscardWhole,
        Self::FstrimTime,
        Self::Stall,
        Self::DirtyOverClean,
        Self::AfterTrimOverClean,
        Self::AfterRestOverClean,
        Self::WriteAmplification,
        Self::TrimWaRatio,
        Self::OpGain,
        Self::SlcBytes,
        Self::SlcWriteBytesPerS,
        Self::AfterSlcWriteBytesPerS,
    ];

    /// The only unit of its values.
    pub const fn unit(self) -> Unit {
        match self {
            Self::TrimLatency | Self::SecureTrimLatency | Self::FstrimTime | Self::Stall => Unit::Seconds,
            Self::DiscardWhole => Unit::SecondsPerGib,
            Self::DiscardRate => Unit::PerSecond,
            Self::SlcBytes => Unit::Bytes,
            Self::SlcWriteBytesPerS | Self::AfterSlcWriteBytesPerS => Unit::BytesPerSecond,
            Self::DirtyOverClean
            | Self::AfterTrimOverClean
            | Self::AfterRestOverClean
            | Self::WriteAmplification
            | Self::TrimWaRatio
            | Self::OpGain => Unit::Ratio,
        }
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::TrimLatency => "Time of a TRIM",
            Self::SecureTrimLatency => "Time of a secure TRIM",
            Self::DiscardRate => "TRIMs a second, one after another",
            Self::DiscardWhole => "Discard of the whole drive",
            Self::FstrimTime => "Time of trimming all free space",
            Self::Stall => "Others wait while files are deleted",
            Self::DirtyOverClean => "Write speed of a dirty drive over a clean one's",
            Self::AfterTrimOverClean => "Write speed after TRIM over a clean drive's",
            Self::AfterRestOverClean => "Write speed after rest over a clean drive's",
            Self::WriteAmplification => "Write amplification",
            Self::TrimWaRatio => "Write amplification with TRIM over that without",
            Self::OpGain => "Write speed with more spare flash over that with less",
            Self::SlcBytes => "Size of the SLC cache",
            Self::SlcWriteBytesPerS => "Write speed within the SLC cache",
            Self::AfterSlcWriteBytesPerS => "Write speed once the SLC cache is full",
        }
    }
}

impl Unit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::SecondsPerGib => "s/GiB",
            Self::PerSecond => "1/s",
            Self::Ratio => "ratio",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
        }
    }
}

impl Entry for Measurement {
    const KEY: &'static str = "measurement";
    const NAMED_BY: &'static str = "drive";

    fn check(&self) -> Result<(), String> {
        some_text("drive", &self.drive)?;
        some_text("source", &self.source)?;
        not_negative("value", self.value)?;
        let (unit, expected) = (self.unit.name(), self.what.unit().name());
        if unit != expected {
            return Err(format!(
                "unit = {unit:?} is not accepted; expected {expected:?}, the unit of its what"
            ));
        }
        match self.value_high {
            Some(high) if !(high.is_finite() && high >= self.value) => {
                Err(format!("value_high = {high} is not accepted; expected at least value, {}", self.value))
            }
            _ => Ok(()),
        }?;
        match self.full_percent {
            Some(percent) if percent > 100 => {
                Err(format!("full_percent = {percent} is not accepted; expected 0 to 100"))
            }
            _ => Ok(()),
        }
    }
}

/// A class of drives that a profile can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    NvmeDram,
    /// In the host's memory, or none.
    NvmeNoDram,
    /// The write cache survives a power cut, by the maker's word.
    NvmeEnterprise,
    /// Nothing says where the map lies.
    NvmeUnknown,
    Sata,
    UfsEmmc,
    /// Nothing says what it is, or it is none of these.
    Unknown,
}

impl Class {
    pub const ALL: [Self; 7] = [
        Self::NvmeDram,
        Self::NvmeNoDram,
        Self::NvmeEnterprise,
        Self::NvmeUnknown,
        Self::Sata,
        Self::UfsEmmc,
        Self::Unknown,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::NvmeDram => "NVMe, DRAM",
            Self::NvmeNoDram => "NVMe, HMB",
            Self::NvmeEnterprise => "enterprise",
            Self::NvmeUnknown => "NVMe, map?",
            Self::Sata => "SATA",
            Self::UfsEmmc => "UFS, eMMC",
            Self::Unknown => "unknown",
        }
    }
}

impl Measurement {
    /// True if the source does not name the drive.
    pub fn is_unnamed(&self) -> bool {
        self.drive.starts_with("unnamed")
    }

    /// Returns the class by what the source says of the drive, and by the list of models where it says nothing.
    pub fn class(&self) -> Class {
        let model = called(&self.drive);
        let fact = |of: fn(&Model) -> Option<MapPlace>| model.and_then(of);
        match self.link {
            Some(Link::Ufs | Link::Emmc) => Class::UfsEmmc,
            Some(Link::Sata) => Class::Sata,
            Some(Link::Nvme) if self.flash == Some(Flash::Optane) => Class::Unknown,
            Some(Link::Nvme) if model.is_some_and(|model| model.keeps_writes_at_power_loss == Some(true)) => {
                Class::NvmeEnterprise
            }
            Some(Link::Nvme) => match self.map.or_else(|| fact(|model| model.map)) {
                Some(MapPlace::Dram) => Class::NvmeDram,
                Some(MapPlace::Hmb | MapPlace::None) => Class::NvmeNoDram,
                None => Class::NvmeUnknown,
            },
            Some(Link::Sas | Link::Usb) | None => Class::Unknown,
        }
    }

    pub fn ends(&self) -> [f64; 2] {
        [self.value, self.value_high.unwrap_or(self.value)]
    }
}

/// Parses a file of measurements; `file` is used only in messages.
///
/// # Errors
/// The first entry with an unknown or missing setting, or one that cannot be.
pub fn parse(text: &str, file: &str) -> Result<Vec<Measurement>, ProfileError> {
    entries(text, file)
}

/// Parses the built-in measurements.
pub fn all() -> Vec<Measurement> {
    // A test parses them, so parsing cannot fail in a tested program.
    FILES.iter().flat_map(|(file, text)| parse(text, file).unwrap_or_default()).collect()
}

/// A figure that measurements of different drives share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparable {
    /// A TRIM of one range, from its latency or from the rate of such TRIMs.
    TrimCommand,
    DiscardWhole,
    DirtyOverClean,
    AfterTrimOverClean,
    AfterRestOverClean,
    /// Write speed once the SLC cache is full over that within it.
    AfterSlcOverSlc,
}

impl Comparable {
    pub const ALL: [Self; 6] = [
        Self::TrimCommand,
        Self::DiscardWhole,
        Self::DirtyOverClean,
        Self::AfterTrimOverClean,
        Self::AfterRestOverClean,
        Self::AfterSlcOverSlc,
    ];

    pub const fn unit(self) -> Unit {
        match self {
            Self::TrimCommand => Unit::Seconds,
            Self::DiscardWhole => Unit::SecondsPerGib,
            Self::DirtyOverClean
            | Self::AfterTrimOverClean
            | Self::AfterRestOverClean
            | Self::AfterSlcOverSlc => Unit::Ratio,
        }
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::TrimCommand => "TRIM of one range",
            Self::DiscardWhole => What::DiscardWhole.words(),
            Self::DirtyOverClean => What::DirtyOverClean.words(),
            Self::AfterTrimOverClean => What::AfterTrimOverClean.words(),
            Self::AfterRestOverClean => What::AfterRestOverClean.words(),
            Self::AfterSlcOverSlc => "Write speed after the SLC cache over that within it",
        }
    }

    /// Returns the ends of this figure in a measurement; `None` if it has none. `all` has the other half of a ratio.
    pub fn of(self, one: &Measurement, all: &[Measurement]) -> Option<[f64; 2]> {
        let [low, high] = one.ends();
        let is_single = one.ranges == Some(1);
        match (self, one.what) {
            (Self::TrimCommand, What::TrimLatency) if is_single => Some([low, high]),
            (Self::TrimCommand, What::DiscardRate) if is_single && low > 0.0 => Some([1.0 / high, 1.0 / low]),
            (Self::DiscardWhole, What::DiscardWhole)
            | (Self::DirtyOverClean, What::DirtyOverClean)
            | (Self::AfterTrimOverClean, What::AfterTrimOverClean)
            | (Self::AfterRestOverClean, What::AfterRestOverClean) => Some([low, high]),
            (Self::AfterSlcOverSlc, What::AfterSlcWriteBytesPerS) => {
                let within = all.iter().find(|other| {
                    other.what == What::SlcWriteBytesPerS
                        && (&other.drive, &other.source, other.state) == (&one.drive, &one.source, one.state)
                })?;
                let [slowest, fastest] = within.ends();
                (slowest > 0.0).then(|| [low / fastest, high / slowest])
            }
            _ => None,
        }
    }
}

/// What was measured of a figure in a class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub figure: Comparable,
    pub class: Class,
    pub unit: Unit,
    pub measurements: usize,
    pub drives: usize,
    /// Left out below, since the true figure is only known to be above or below.
    pub bounds: usize,
    /// `None` if nothing was measured.
    pub range: Option<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    pub lowest: f64,
    /// A measurement that is a range counts with its middle.
    pub median: f64,
    pub highest: f64,
}

/// Summarizes each comparable figure in each class.
pub fn summary(all: &[Measurement]) -> Vec<Summary> {
    let classes: Vec<Class> = all.iter().map(Measurement::class).collect();
    let of = |figure: Comparable, class: Class| {
        let in_class = all.iter().zip(&classes).filter(|(_, found)| **found == class);
        let figures = in_class.filter_map(|(one, _)| Some((one, figure.of(one, all)?)));
        let (bounds, figures): (Vec<_>, Vec<_>) = figures.partition(|(one, _)| one.bound.is_some());
        let mut drives: Vec<&str> = figures.iter().map(|(one, _)| one.drive.as_str()).collect();
        drives.sort_unstable();
        drives.dedup();
        let range = range_of(figures.iter().map(|(_, ends)| *ends).collect());
        let (measurements, drives) = (figures.len(), drives.len());
        Summary { figure, class, unit: figure.unit(), measurements, drives, bounds: bounds.len(), range }
    };
    let classes = |figure| Class::ALL.into_iter().map(move |class| of(figure, class));
    Comparable::ALL.into_iter().flat_map(classes).collect()
}

fn range_of(ends: Vec<[f64; 2]>) -> Option<Range> {
    let mut middles: Vec<f64> = ends.iter().map(|[low, high]| f64::midpoint(*low, *high)).collect();
    middles.sort_by(f64::total_cmp);
    let at = |index: usize| middles.get(index).copied();
    Some(Range {
        lowest: ends.iter().map(|[low, _]| *low).min_by(f64::total_cmp)?,
        median: f64::midpoint(at((middles.len() - 1) / 2)?, at(middles.len() / 2)?),
        highest: ends.iter().map(|[_, high]| *high).max_by(f64::total_cmp)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_measurement_is_sound() {
        let count = |(file, text): (&str, &str)| parse(text, file).unwrap_or_else(|e| panic!("{e}")).len();
        assert_eq!(FILES.map(count), [47, 146]);
        assert!(all().iter().all(|one| What::ALL.contains(&one.what)));
    }

    const SOUND: &str = "# a comment\n[[measurement]]\ndrive = \"D\"\nwhat = \"trim_latency\"\nvalue = 0.5\nunit = \"s\"\n\
                         source = \"https://a\"\nyear = 2020\nread = \"whole\"\n";

    #[test]
    fn what_is_missing_wrong_or_without_a_source_is_refused_with_file_line_and_entry() {
        assert_eq!(parse(SOUND, "m.toml").unwrap().len(), 1);
        for (old, new, expected) in [
            ("source = \"https://a\"\n", "", "missing field `source`"),
            ("\"https://a\"", "\"\"", "source = \"\" is not accepted; expected a text"),
            ("unit = \"s\"\n", "", "missing field `unit`"),
            ("value = 0.5\n", "", "missing field `value`"),
            ("value = 0.5", "value = -0.5", "value = -0.5 is not accepted; expected a number of at least 0"),
            ("value = 0.5", "value = inf", "value = inf is not accepted"),
            ("value = 0.5", "value = \"0.5\"", "invalid type: string"),
            (
                "value = 0.5",
                "value = 0.5\nvalue_high = 0.4",
                "value_high = 0.4 is not accepted; expected at least value, 0.5",
            ),
            ("value = 0.5", "value = 0.5\nvalue_high = nan", "value_high = NaN is not accepted"),
            (
                "unit = \"s\"",
                "unit = \"ratio\"",
                "unit = \"ratio\" is not accepted; expected \"s\", the unit of its what",
            ),
            ("unit = \"s\"", "unit = \"ms\"", "unknown variant `ms`"),
            ("what = \"trim_latency\"", "what = \"latency\"", "unknown variant `latency`"),
            ("year = 2020", "year = 2020\nfull_percent = 101", "full_percent = 101 is not accepted"),
            ("year = 2020", "year = 2020\nfimware = \"1\"", "unknown field `fimware`"),
        ] {
            let error = parse(&SOUND.replacen(old, new, 1), "m.toml").unwrap_err().to_string();
            assert!(error.starts_with("m.toml:2: measurement 1 (D): "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        let second = parse(&format!("{SOUND}\n[[measurement]]\ndrive = \"E\"\n"), "m.toml").unwrap_err();
        assert!(second.to_string().starts_with("m.toml:11: measurement 2 (E): missing field"), "{second}");
        for (text, expected) in [("x = 1", "m.toml:1: x is unknown"), ("[[", "m.toml:1: ")] {
            let error = parse(text, "m.toml").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_unit_follows_from_what_was_measured() {
        let of = |what: What| format!("{:?} {}", what, what.unit().name());
        let all: Vec<String> = What::ALL.into_iter().map(of).collect();
        let expected = "TrimLatency s, SecureTrimLatency s, DiscardRate 1/s, DiscardWhole s/GiB, FstrimTime s, Stall s, \
                        DirtyOverClean ratio, AfterTrimOverClean ratio, AfterRestOverClean ratio, WriteAmplification \
                        ratio, TrimWaRatio ratio, OpGain ratio, SlcBytes bytes, SlcWriteBytesPerS bytes/s, \
                        AfterSlcWriteBytesPerS bytes/s";
        assert_eq!(all.join(", "), expected);
    }

    fn one(drive: &str, what: What, value: f64) -> Measurement {
        let sound = parse(SOUND, "m.toml").unwrap().remove(0);
        Measurement { drive: drive.to_owned(), what, value, unit: what.unit(), ranges: Some(1), ..sound }
    }

    #[test]
    fn a_class_follows_from_the_source_and_else_from_the_list_of_models() {
        let of = |drive: &str, link, map, flash| {
            Measurement { link, map, flash, ..one(drive, What::TrimLatency, 1.0) }.class()
        };
        let nvme = Some(Link::Nvme);
        for (found, expected) in [
            (of("X", nvme, Some(MapPlace::Dram), None), Class::NvmeDram),
            (of("X", nvme, Some(MapPlace::Hmb), None), Class::NvmeNoDram),
            (of("X", nvme, Some(MapPlace::None), None), Class::NvmeNoDram),
            (of("X", nvme, None, None), Class::NvmeUnknown),
            (of("X", nvme, None, Some(Flash::Optane)), Class::Unknown),
            (of("Samsung 970 EVO 2TB", nvme, None, None), Class::NvmeDram),
            (of("Samsung 980 1TB", nvme, None, None), Class::NvmeNoDram),
            // What the source says counts more.
            (of("Samsung 980 1TB", nvme, Some(MapPlace::Dram), None), Class::NvmeDram),
            (of("X", Some(Link::Sata), Some(MapPlace::Dram), None), Class::Sata),
            (of("X", Some(Link::Emmc), None, None), Class::UfsEmmc),
            (of("X", Some(Link::Ufs), None, None), Class::UfsEmmc),
            (of("X", Some(Link::Usb), None, None), Class::Unknown),
            (of("X", None, None, None), Class::Unknown),
        ] {
            assert_eq!(found, expected);
        }
    }

    fn of(all: &[Measurement], figure: Comparable) -> Summary {
        *summary(all).iter().find(|s| s.figure == figure && s.class == Class::Unknown).unwrap()
    }

    #[test]
    fn a_summary_has_the_lowest_the_median_and_the_highest_and_leaves_bounds_out() {
        let rate = Measurement { value_high: Some(10.0), ..one("C", What::DiscardRate, 5.0) };
        let all = [
            one("A", What::TrimLatency, 0.5),
            one("A", What::TrimLatency, 0.3),
            one("B", What::TrimLatency, 0.4),
            // 0.1 to 0.2 s each.
            rate,
            Measurement { bound: Some(Bound::Upper), ..one("D", What::TrimLatency, 9.0) },
            // Time of a range in a command of many.
            Measurement { ranges: None, ..one("E", What::TrimLatency, 7.0) },
            one("F", What::SecureTrimLatency, 8.0),
        ];
        let found = of(&all, Comparable::TrimCommand);
        assert_eq!((found.measurements, found.drives, found.bounds), (4, 3, 1));
        let range = found.range.unwrap();
        assert_eq!((range.lowest, range.highest), (0.1, 0.5));
        assert!((range.median - 0.35).abs() < 1e-12, "between 0.3 and 0.4, with 0.15 below: {range:?}");
        let none = of(&all, Comparable::DirtyOverClean);
        assert_eq!((none.measurements, none.bounds, none.range), (0, 0, None));
    }

    #[test]
    fn the_speed_after_the_slc_cache_is_compared_with_that_within_it_from_the_same_source() {
        let after = Measurement { value_high: Some(3.0), ..one("A", What::AfterSlcWriteBytesPerS, 2.0) };
        let within = one("A", What::SlcWriteBytesPerS, 10.0);
        let elsewhere = Measurement { source: "https://b".to_owned(), ..within.clone() };
        let range = |all: &[Measurement]| of(all, Comparable::AfterSlcOverSlc).range;
        assert_eq!(range(&[after.clone(), within]), Some(Range { lowest: 0.2, median: 0.25, highest: 0.3 }));
        assert_eq!(range(&[after, elsewhere]), None);
    }

    #[test]
    fn the_built_in_summary_has_what_the_register_says_of_nvme() {
        let all = all();
        let summary = summary(&all);
        let of = |figure, class| *summary.iter().find(|s| s.figure == figure && s.class == class).unwrap();
        let nvme = of(Comparable::TrimCommand, Class::NvmeUnknown).range.unwrap();
        assert_eq!(nvme.lowest, 0.000_071_63, "fio issue 764");
        let dirty = of(Comparable::DirtyOverClean, Class::NvmeDram);
        assert!(dirty.measurements >= 5 && dirty.range.unwrap().lowest < 0.05, "{dirty:?}");
        assert_eq!(of(Comparable::TrimCommand, Class::UfsEmmc).range, None, "secure TRIM is another command");
    }
}
