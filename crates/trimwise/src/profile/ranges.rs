//! How far from a profile's value the true one may lie.
//!
//! A range is a profile's own (`[ranges]`), or that of the class of its drive (`profiles/ranges.toml`) where the profile
//! says that its value is assumed. Ranges that belong together are a [`Factor`], and move together between their ends.

use serde::{Deserialize, Serialize};

use super::{Profile, ProfileError, SettingValue};
use crate::drives::measured::Class;
use crate::drives::{Entry, entries, some_text};
use crate::ssd::{LinkKind, MappingConfig, SsdConfig, TrimMap, TrimPlace, VictimPolicy};

const FILE: &str = "profiles/ranges.toml";

/// What the settings of a range are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    TrimCost,
    Slc,
    Collector,
}

impl Factor {
    pub const ALL: [Self; 3] = [Self::TrimCost, Self::Slc, Self::Collector];

    pub const fn words(self) -> &'static str {
        match self {
            Self::TrimCost => "what a TRIM takes",
            Self::Slc => "its SLC cache",
            Self::Collector => "how it collects garbage",
        }
    }
}

/// An end of all ranges of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Low,
    High,
}

/// Where a range comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// By other people, on drives of the class.
    Measured,
    /// To a published table.
    Fitted,
    /// The profile's author, for this drive.
    Own,
    Assumed,
}

impl Basis {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Fitted => "fitted",
            Self::Own => "the profile's own",
            Self::Assumed => "assumed",
        }
    }
}

/// A setting that can have a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Uncertain {
    #[serde(rename = "trim.cost_per_command_ns")]
    TrimCommand,
    #[serde(rename = "trim.cost_per_range_ns")]
    TrimRange,
    #[serde(rename = "trim.cost_per_unit_ns")]
    TrimUnit,
    #[serde(rename = "trim.cost_per_mapped_unit_ns")]
    TrimMappedUnit,
    #[serde(rename = "trim.latency_per_command_ns")]
    TrimLatency,
    #[serde(rename = "trim.journal_ns")]
    TrimJournal,
    #[serde(rename = "trim.place")]
    TrimPlace,
    #[serde(rename = "mapping.trim_map")]
    TrimMap,
    #[serde(rename = "slc.dynamic_percent")]
    SlcDynamic,
    #[serde(rename = "gc.victim")]
    Victim,
}

impl Uncertain {
    pub const ALL: [Self; 10] = [
        Self::TrimCommand,
        Self::TrimRange,
        Self::TrimUnit,
        Self::TrimMappedUnit,
        Self::TrimLatency,
        Self::TrimJournal,
        Self::TrimPlace,
        Self::TrimMap,
        Self::SlcDynamic,
        Self::Victim,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::TrimCommand => "trim.cost_per_command_ns",
            Self::TrimRange => "trim.cost_per_range_ns",
            Self::TrimUnit => "trim.cost_per_unit_ns",
            Self::TrimMappedUnit => "trim.cost_per_mapped_unit_ns",
            Self::TrimLatency => "trim.latency_per_command_ns",
            Self::TrimJournal => "trim.journal_ns",
            Self::TrimPlace => "trim.place",
            Self::TrimMap => "mapping.trim_map",
            Self::SlcDynamic => "slc.dynamic_percent",
            Self::Victim => "gc.victim",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }

    pub const fn factor(self) -> Factor {
        match self {
            Self::SlcDynamic => Factor::Slc,
            Self::Victim => Factor::Collector,
            _ => Factor::TrimCost,
        }
    }

    /// Returns the setting's value on a device; `None` if the device has no such part.
    pub fn value(self, config: &SsdConfig) -> Option<SettingValue> {
        let trim = &config.trim;
        Some(SettingValue::Whole(match self {
            Self::TrimCommand => trim.cost_per_command_ns,
            Self::TrimRange => trim.cost_per_range_ns,
            Self::TrimUnit => trim.cost_per_unit_ns,
            Self::TrimMappedUnit => trim.cost_per_mapped_unit_ns,
            Self::TrimLatency => trim.latency_per_command_ns,
            Self::TrimJournal => trim.journal_ns,
            Self::SlcDynamic => config.slc.as_ref()?.dynamic_percent.into(),
            Self::TrimPlace => return word_of(&PLACES, &trim.place),
            Self::TrimMap => {
                config.mapping.map_cache()?;
                let MappingConfig::Page { trim_map, .. } = &config.mapping else { return None };
                return word_of(&MAPS, trim_map);
            }
            Self::Victim => return word_of(&VICTIMS, &config.gc.victim),
        }))
    }

    fn takes(self, value: &SettingValue) -> bool {
        match self {
            // The usual drive has no SLC cache.
            Self::SlcDynamic => matches!(value, SettingValue::Whole(_)),
            _ => self.set(&mut SsdConfig::default(), value).is_some(),
        }
    }

    /// Changes the setting of a device. `None` if it cannot have that value.
    pub(super) fn set(self, config: &mut SsdConfig, value: &SettingValue) -> Option<()> {
        let trim = &mut config.trim;
        match (self, value) {
            (Self::TrimCommand, SettingValue::Whole(ns)) => trim.cost_per_command_ns = *ns,
            (Self::TrimRange, SettingValue::Whole(ns)) => trim.cost_per_range_ns = *ns,
            (Self::TrimUnit, SettingValue::Whole(ns)) => trim.cost_per_unit_ns = *ns,
            (Self::TrimMappedUnit, SettingValue::Whole(ns)) => trim.cost_per_mapped_unit_ns = *ns,
            (Self::TrimLatency, SettingValue::Whole(ns)) => trim.latency_per_command_ns = *ns,
            (Self::TrimJournal, SettingValue::Whole(ns)) => trim.journal_ns = *ns,
            (Self::SlcDynamic, SettingValue::Whole(percent)) => {
                config.slc.as_mut()?.dynamic_percent = u32::try_from(*percent).ok()?;
            }
            (Self::TrimPlace, SettingValue::Word(word)) => trim.place = of_word(&PLACES, word)?,
            (Self::Victim, SettingValue::Word(word)) => config.gc.victim = of_word(&VICTIMS, word)?,
            (Self::TrimMap, SettingValue::Word(word)) => {
                let MappingConfig::Page { trim_map, .. } = &mut config.mapping else { return None };
                *trim_map = of_word(&MAPS, word)?;
            }
            _ => return None,
        }
        Some(())
    }
}

const PLACES: [(&str, TrimPlace); 3] = [
    ("before_ack", TrimPlace::BeforeAck),
    ("own_core", TrimPlace::OwnCore),
    ("background", TrimPlace::Background),
];
const MAPS: [(&str, TrimMap); 3] =
    [("dropped", TrimMap::Dropped), ("changed", TrimMap::Changed), ("written", TrimMap::Written)];
/// Those without a number.
const VICTIMS: [(&str, VictimPolicy); 4] = [
    ("greedy", VictimPolicy::Greedy),
    ("cost_benefit", VictimPolicy::CostBenefit),
    ("fifo", VictimPolicy::Fifo),
    ("random", VictimPolicy::Random),
];

fn word_of<T: PartialEq>(words: &[(&str, T)], of: &T) -> Option<SettingValue> {
    let (word, _) = words.iter().find(|(_, value)| value == of)?;
    Some(SettingValue::Word((*word).to_owned()))
}

fn of_word<T: Copy>(words: &[(&str, T)], word: &str) -> Option<T> {
    words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
}

/// The range of a setting on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub setting: Uncertain,
    pub low: SettingValue,
    /// The profile's.
    pub likely: SettingValue,
    pub high: SettingValue,
    pub basis: Basis,
    pub source: String,
}

/// A range as a profile has it below `[ranges]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OwnRange {
    pub low: u64,
    pub high: u64,
    pub source: String,
}

/// The range of some classes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfClasses {
    classes: Vec<Class>,
    setting: Uncertain,
    /// `None`: the profile's value.
    low: Option<SettingValue>,
    high: SettingValue,
    basis: Basis,
    source: String,
}

impl Entry for OfClasses {
    const KEY: &'static str = "range";
    const NAMED_BY: &'static str = "setting";

    fn check(&self) -> Result<(), String> {
        some_text("source", &self.source)?;
        let ends = [("low", self.low.as_ref()), ("high", Some(&self.high))];
        for (key, end) in ends.into_iter().filter_map(|(key, end)| Some((key, end?))) {
            if !self.setting.takes(end) {
                return Err(format!(
                    "{key} = {end} is not accepted; expected a value of {}",
                    self.setting.name()
                ));
            }
        }
        match (&self.low, &self.high) {
            (Some(SettingValue::Whole(low)), SettingValue::Whole(high)) if low > high => {
                Err(format!("high = {high} is not accepted; expected at least low, {low}"))
            }
            _ => Ok(()),
        }
    }
}

fn of_classes(text: &str) -> Result<Vec<OfClasses>, ProfileError> {
    entries(text, FILE)
}

impl Class {
    /// The class of a modelled drive, by its parts.
    pub fn of(config: &SsdConfig) -> Self {
        // HMB is tens of MiB; a map takes a thousandth of the drive.
        let keeps_little = |bytes: u64| bytes < config.capacity_bytes / 1024 / 4;
        match config.link.kind {
            LinkKind::Sata => Self::Sata,
            LinkKind::Ufs => Self::UfsEmmc,
            LinkKind::Nvme if !config.cache.volatile => Self::NvmeEnterprise,
            LinkKind::Nvme if config.mapping.map_cache().is_some_and(|map| keeps_little(map.bytes)) => {
                Self::NvmeNoDram
            }
            LinkKind::Nvme => Self::NvmeDram,
        }
    }
}

impl Profile {
    /// Returns the ranges of this drive: its own, and those of its class for what the profile assumes. A range that is a
    /// single value is left out.
    pub fn ranges(&self) -> Vec<Range> {
        if !self.config.trim.is_supported() {
            return Vec::new();
        }
        let own = |setting: Uncertain| {
            let range = self.ranges.get(setting.name())?;
            let [low, high] = [range.low, range.high].map(SettingValue::Whole);
            Some((low, high, Basis::Own, range.source.clone()))
        };
        let source = |setting: Uncertain| match setting {
            // That the map lies in the flash does not tell what a TRIM does to it.
            Uncertain::TrimMap => self.sources.get(setting.name()).map(String::as_str),
            _ => self.source(setting.name()),
        };
        let is_known = |factor: Factor| {
            let has_source = |setting: &Uncertain| {
                let is_own = self.ranges.contains_key(setting.name());
                !is_own && source(*setting).is_some_and(|source| !source.contains("assumed"))
            };
            Uncertain::ALL.iter().filter(|setting| setting.factor() == factor).any(has_source)
        };
        let class = Class::of(&self.config);
        let has_assumed = Factor::ALL.iter().any(|factor| !is_known(*factor));
        // A test reads them, so reading cannot fail in a tested program.
        let text = include_str!("../../../../profiles/ranges.toml");
        let classes = if has_assumed { of_classes(text).unwrap_or_default() } else { Vec::new() };
        let of_class = |setting: Uncertain| {
            let is_it = |range: &&OfClasses| range.classes.contains(&class) && range.setting == setting;
            let range = classes.iter().find(is_it)?;
            let low = range.low.clone().or_else(|| setting.value(&self.config))?;
            (!is_known(setting.factor()))
                .then(|| (low, range.high.clone(), range.basis, range.source.clone()))
        };
        let range = |setting: Uncertain| {
            let (low, high, basis, source) = own(setting).or_else(|| of_class(setting))?;
            let likely = setting.value(&self.config)?;
            let (low, high) = match (&low, &likely, &high) {
                (SettingValue::Whole(low), SettingValue::Whole(likely), SettingValue::Whole(high)) => {
                    (SettingValue::Whole(*low.min(likely)), SettingValue::Whole(*high.max(likely)))
                }
                _ => (low, high),
            };
            let range = Range { setting, low, likely, high, basis, source };
            let is_possible = |end| self.at([(&range, end)]).is_some();
            let is_range = range.low != range.likely || range.high != range.likely;
            (is_range && is_possible(End::Low) && is_possible(End::High)).then_some(range)
        };
        Uncertain::ALL.into_iter().filter_map(range).collect()
    }

    /// Returns the profile with the settings of these ranges at an end. `None` if no device can have them all.
    pub fn at<'r>(&self, ranges: impl IntoIterator<Item = (&'r Range, End)>) -> Option<Self> {
        let mut profile = self.clone();
        for (range, end) in ranges {
            let value = match end {
                End::Low => &range.low,
                End::High => &range.high,
            };
            range.setting.set(&mut profile.config, value)?;
        }
        profile.config.validate().ok()?;
        Some(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_range_is_sound_and_of_a_class_that_profiles_have() {
        let ranges =
            of_classes(include_str!("../../../../profiles/ranges.toml")).unwrap_or_else(|e| panic!("{e}"));
        let each =
            || ranges.iter().flat_map(|range| range.classes.iter().map(|class| (*class, range.setting)));
        assert!(each().all(|(class, _)| class != Class::Unknown && class != Class::NvmeUnknown));
        for (i, one) in each().enumerate() {
            assert!(!each().take(i).any(|other| other == one), "{one:?} is there twice");
        }
        for setting in Uncertain::ALL {
            assert_eq!(Uncertain::named(setting.name()), Some(setting));
            let json = serde_json::to_string(&setting).unwrap();
            assert_eq!(json, format!("{:?}", setting.name()), "the name in JSON");
        }
    }

    #[test]
    fn a_range_that_cannot_be_is_refused() {
        let sound = "[[range]]\nclasses = [\"sata\"]\nsetting = \"trim.cost_per_unit_ns\"\nlow = 1\nhigh = 2\n\
                     basis = \"assumed\"\nsource = \"s\"\n";
        assert_eq!(of_classes(sound).unwrap().len(), 1);
        for (old, new, expected) in [
            ("low = 1", "low = 3", "high = 2 is not accepted; expected at least low, 3"),
            ("low = 1", "low = \"x\"", "low = x is not accepted; expected a value of trim.cost_per_unit_ns"),
            ("source = \"s\"", "source = \"\"", "source = \"\" is not accepted"),
            ("trim.cost_per_unit_ns", "trim.kind", "unknown variant `trim.kind`"),
            ("sata", "ide", "unknown variant `ide`"),
        ] {
            let error = of_classes(&sound.replace(old, new)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    fn of(name: &str) -> Profile {
        Profile::embedded(name).unwrap_or_else(|| panic!("no profile {name}"))
    }

    #[test]
    fn a_class_follows_from_the_parts_of_a_drive() {
        for (name, class) in [
            ("sata-generic", Class::Sata),
            ("ufs4-256gb", Class::UfsEmmc),
            ("nvme-1tb-slc", Class::NvmeDram),
            ("sata-960gb-enterprise", Class::Sata),
            ("nvme-generic", Class::NvmeDram),
            ("nvme-512gb-qlc", Class::NvmeDram),
            ("nvme-500gb-dramless", Class::NvmeNoDram),
            ("nvme-960gb-enterprise", Class::NvmeEnterprise),
        ] {
            assert_eq!(Class::of(&of(name).config), class, "{name}");
        }
    }

    /// The ranges of what a TRIM takes on a drive, as text.
    fn shown(profile: &Profile) -> Vec<String> {
        let one = |r: &Range| format!("{} {} {} {}", r.setting.name(), r.low, r.likely, r.high);
        profile.ranges().iter().filter(|r| r.setting.factor() == Factor::TrimCost).map(one).collect()
    }

    #[test]
    fn what_a_profile_assumes_has_the_range_of_its_class_and_what_is_fitted_or_chosen_has_none() {
        assert_eq!(
            shown(&of("sata-generic")),
            ["trim.cost_per_command_ns 100000 300000 10000000", "trim.cost_per_unit_ns 1 20 1000"]
        );
        assert_eq!(
            shown(&of("nvme-generic")),
            [
                "trim.cost_per_command_ns 20000 20000 630000",
                "trim.cost_per_unit_ns 1 1 19",
                "trim.place background background before_ack",
            ]
        );
        assert_eq!(
            shown(&of("nvme-500gb-dramless")),
            [
                "trim.cost_per_command_ns 20000 160000 630000",
                "trim.cost_per_unit_ns 1 4 1000",
                "trim.place own_core own_core before_ack",
                "mapping.trim_map dropped dropped written",
            ]
        );
        for name in ["vendor1", "zero-cost", "ufs21-64gb", "sata-60gb-2011"] {
            assert_eq!(shown(&of(name)), [""; 0], "{name}");
        }
        // A value outside of its class's range is an end of it.
        let mut slow = of("sata-generic");
        slow.config.trim.cost_per_command_ns = 20_000_000;
        assert_eq!(shown(&slow)[0], "trim.cost_per_command_ns 100000 20000000 20000000");
        let mut none = of("sata-generic");
        none.config.trim = crate::ssd::TrimConfig::unsupported();
        assert_eq!(none.ranges(), []);
    }

    #[test]
    fn a_profile_has_ranges_of_its_own() {
        let text = Profile::embedded_text("sata-generic").unwrap();
        let own = |range: &str| {
            Profile::parse(&text.replace("[sources]", &format!("{range}\n[sources]")), "own.toml")
        };
        let range = |setting: &str, low, high| {
            own(&format!("[ranges.\"{setting}\"]\nlow = {low}\nhigh = {high}\nsource = \"measured by me\""))
        };
        let profile = range("trim.cost_per_command_ns", 300_000, 400_000).unwrap();
        let found = profile.ranges();
        assert_eq!(shown(&profile)[0], "trim.cost_per_command_ns 300000 300000 400000");
        assert_eq!((found[0].basis, &*found[0].source), (Basis::Own, "measured by me"));
        assert_eq!(profile.settings, of("sata-generic").settings, "a range is no setting");
        let line = 1 + text.lines().position(|line| line == "[sources]").unwrap();
        for (setting, low, high, expected) in [
            (
                "trim.kind",
                1,
                2,
                "ranges.trim.kind is not accepted; expected one of trim.cost_per_command_ns, ",
            ),
            ("slc.dynamic_percent", 1, 2, "is not accepted; expected one of trim.cost_per_command_ns"),
            ("trim.place", 1, 2, "ranges.trim.place is not accepted; expected one of"),
            (
                "trim.cost_per_unit_ns",
                1,
                9_000_000_000_000_000_000_u64,
                "expected what trim.cost_per_unit_ns itself may be",
            ),
            (
                "trim.cost_per_unit_ns",
                21,
                30,
                "21 to 30 is not accepted; expected a range around the value, 20",
            ),
            (
                "trim.cost_per_unit_ns",
                1,
                19,
                "1 to 19 is not accepted; expected a range around the value, 20",
            ),
        ] {
            let error = range(setting, low, high).unwrap_err().to_string();
            assert!(error.starts_with(&format!("own.toml:{line}: ranges.{setting}")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        let error = own("[ranges.\"trim.cost_per_unit_ns\"]\nlow = 1\nhigh = 30").unwrap_err().to_string();
        assert!(error.contains("source is missing"), "{error}");
    }

    #[test]
    fn a_drive_is_put_at_an_end_of_its_ranges() {
        let profile = of("nvme-generic");
        let ranges = profile.ranges();
        let at = |end| profile.at(ranges.iter().map(|range| (range, end))).unwrap().config.trim;
        let (low, high) = (at(End::Low), at(End::High));
        assert_eq!(
            (low.cost_per_command_ns, low.cost_per_unit_ns, low.place),
            (20_000, 1, TrimPlace::Background)
        );
        assert_eq!(
            (high.cost_per_command_ns, high.cost_per_unit_ns, high.place),
            (630_000, 19, TrimPlace::BeforeAck)
        );
        let impossible = Range { high: SettingValue::Whole(u64::MAX), ..ranges[0].clone() };
        assert_eq!(profile.at([(&impossible, End::High)]), None);
    }
}
