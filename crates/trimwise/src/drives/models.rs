//! Facts about drives by the model that they report: `profiles/models.toml`.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::wildcard::matches;
use super::{Entry, Flash, Link, MapPlace, entries, not_negative, some_text};
use crate::profile::ProfileError;

/// How messages name the list.
pub const FILE: &str = "profiles/models.toml";

const TEXT: &str = include_str!("../../../../profiles/models.toml");

/// A family of drives. A fact is `None` if no source states it, which is never "no".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Patterns for the model as drives report it; `*` stands for any text.
    pub names: Vec<String>,
    pub maker: String,
    pub family: String,
    pub link: Link,
    pub flash: Option<Flash>,
    pub map: Option<MapPlace>,
    pub slc: Option<SlcKind>,
    /// SLC cache of an empty drive for each TB of capacity.
    pub slc_gb_per_tb: Option<f64>,
    /// Flash beyond the capacity, in percent of the capacity.
    pub spare_percent: Option<f64>,
    /// True if the maker says that the write cache survives a power cut.
    pub keeps_writes_at_power_loss: Option<bool>,
    pub trim_quirk: Option<TrimQuirk>,
    pub year: Option<u16>,
    pub sources: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlcKind {
    None,
    Static,
    /// Of free space.
    Dynamic,
    /// Both.
    Hybrid,
}

impl SlcKind {
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "no SLC cache",
            Self::Static => "a static SLC cache",
            Self::Dynamic => "a dynamic SLC cache",
            Self::Hybrid => "a static and a dynamic SLC cache",
        }
    }
}

/// What Linux works around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrimQuirk {
    NoQueuedTrim,
    NoQueuedTrimByFirmware,
    NoWriteZeroes,
    DeallocateZeroes,
    EmmcTrimBroken,
    SecureTrimBroken,
    SlowSecureTrim,
}

impl TrimQuirk {
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoQueuedTrim => "Linux sends it no queued TRIM",
            Self::NoQueuedTrimByFirmware => "Linux sends some of its firmwares no queued TRIM",
            Self::NoWriteZeroes => "Linux sends it no WRITE ZEROES (TRIM it does)",
            Self::DeallocateZeroes => "what is trimmed reads as zeros",
            Self::EmmcTrimBroken => "Linux sends it no TRIM",
            Self::SecureTrimBroken => "Linux sends it no secure TRIM",
            Self::SlowSecureTrim => "a secure TRIM takes 2 s, whatever its size",
        }
    }
}

impl Entry for Model {
    const KEY: &'static str = "model";
    const NAMED_BY: &'static str = "family";

    fn check(&self) -> Result<(), String> {
        for (key, texts) in [("names", &self.names), ("sources", &self.sources)] {
            if texts.is_empty() {
                return Err(format!("{key} = [] is not accepted; expected at least one"));
            }
            texts.iter().try_for_each(|text| some_text(key, text))?;
        }
        some_text("maker", &self.maker)?;
        some_text("family", &self.family)?;
        let numbers = [("slc_gb_per_tb", self.slc_gb_per_tb), ("spare_percent", self.spare_percent)];
        numbers.into_iter().try_for_each(|(key, number)| number.map_or(Ok(()), |n| not_negative(key, n)))
    }
}

impl Model {
    /// Returns the flash and the SLC cache in words, as far as they are known: `QLC with a dynamic SLC cache`.
    pub fn flash_words(&self) -> Option<String> {
        let slc = self.slc.map(SlcKind::words);
        match (self.flash, slc) {
            (Some(flash), Some(slc)) => Some(format!("{} with {slc}", flash.name())),
            (Some(flash), None) => Some(flash.name().to_owned()),
            (None, slc) => slc.map(str::to_owned),
        }
    }
}

/// Parses a list of models; `file` is used only in messages.
///
/// # Errors
/// The first entry with an unknown or missing setting, or one that cannot be.
pub fn parse(text: &str, file: &str) -> Result<Vec<Model>, ProfileError> {
    entries(text, file)
}

/// Returns the built-in list.
pub fn all() -> &'static [Model] {
    static ALL: OnceLock<Vec<Model>> = OnceLock::new();
    // A test parses it, so parsing cannot fail in a tested program.
    ALL.get_or_init(|| parse(TEXT, FILE).unwrap_or_default())
}

/// Returns the family of a drive that reports this model. Of several patterns that match, the one with the most letters
/// decides.
pub fn known(model: &str) -> Option<&'static Model> {
    find(all(), model)
}

fn find<'m>(models: &'m [Model], model: &str) -> Option<&'m Model> {
    let model = plain(model);
    let patterns = models.iter().flat_map(|entry| entry.names.iter().map(move |name| (plain(name), entry)));
    let letters = |pattern: &str| pattern.bytes().filter(|byte| *byte != b'*').count();
    // The first of several maxima.
    let matching = patterns.filter(|(pattern, _)| matches(pattern, &model));
    matching.rev().max_by_key(|(pattern, _)| letters(pattern)).map(|(_, entry)| entry)
}

/// Returns the family that a text about a drive means, by the model or as it is sold: `Samsung 970 EVO Plus 1TB`.
pub fn called(drive: &str) -> Option<&'static Model> {
    known(drive).or_else(|| {
        let drive = plain(drive) + " ";
        let sold = |entry: &Model| plain(&format!("{} {}", entry.maker, entry.family)) + " ";
        let entries = all().iter().rev().filter(|entry| drive.starts_with(&sold(entry)));
        entries.max_by_key(|entry| entry.family.len())
    })
}

/// Returns a name without what programs change in it: udev writes spaces as underscores and joins several, and people
/// write small letters.
fn plain(name: &str) -> String {
    let words = name.split(|c: char| c == '_' || c.is_whitespace()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(model: &str) -> Option<&'static str> {
        known(model).map(|entry| entry.family.as_str())
    }

    #[test]
    fn the_built_in_list_is_sound_and_each_of_its_names_finds_its_own_entry() {
        let list = parse(TEXT, FILE).unwrap();
        assert_eq!(list.len(), 306);
        assert_eq!(list.iter().map(|entry| entry.names.len()).sum::<usize>(), 494);
        for entry in &list {
            for name in &entry.names {
                let reported = name.replace('*', "1");
                assert_eq!(known(&reported), Some(entry), "{name}");
            }
        }
    }

    #[test]
    fn drives_are_known_by_the_model_that_they_report() {
        for (model, expected) in [
            ("Samsung SSD 970 EVO 500GB", Some("970 EVO")),
            ("Samsung SSD 970 EVO Plus 500GB", Some("970 EVO Plus")),
            ("CT1000P1SSD8", Some("P1")),
            ("KBG30ZMS256G NVMe TOSHIBA 256GB", Some("BG3")),
            // udev's underscores, and its single space for two.
            ("Crucial CT512MX100SSD1", Some("MX100")),
            ("KINGSTON SA400S37240G", Some("A400")),
            ("samsung ssd 860 qvo 1tb", Some("860 QVO")),
            ("Samsung SSD 970", None),
            ("ST2000DM008-2FR102", None),
            ("", None),
        ] {
            assert_eq!(family(model), expected, "{model}");
        }
    }

    #[test]
    fn of_two_patterns_that_match_the_one_with_more_letters_decides() {
        let model = |names: [&str; 2]| Model { names: names.map(str::to_owned).to_vec(), ..all()[0].clone() };
        let (evo, plus) = (model(["Samsung SSD 970*", "X*"]), model(["Samsung SSD 970 EVO Plus*", "X"]));
        for list in [[evo.clone(), plus.clone()], [plus.clone(), evo.clone()]] {
            assert_eq!(find(&list, "Samsung SSD 970 EVO Plus 1TB"), Some(&plus));
            assert_eq!(find(&list, "Samsung SSD 970 EVO 1TB"), Some(&evo));
            assert_eq!(find(&list, "X"), Some(&list[0]), "the first of two alike");
        }
    }

    #[test]
    fn a_drive_is_known_as_it_is_sold() {
        for (sold, expected) in [
            ("Samsung 970 EVO Plus 1TB", Some("970 EVO Plus")),
            ("Samsung 970 EVO 2TB", Some("970 EVO")),
            ("Intel SSDPE2KX040T8 (P4510 4TB)", Some("DC P4510")),
            ("Samsung 9", None),
            ("unnamed NVMe drive (fio issue 396)", None),
        ] {
            assert_eq!(called(sold).map(|entry| entry.family.as_str()), expected, "{sold}");
        }
    }

    #[test]
    fn an_entry_that_cannot_be_is_refused_with_file_line_and_name() {
        let sound = "[[model]]\nnames = [\"X*\"]\nmaker = \"M\"\nfamily = \"F\"\nlink = \"sata\"\nsources = [\"s\"]\n";
        assert_eq!(parse(sound, "m.toml").unwrap().len(), 1);
        for (old, new, expected) in [
            ("sources = [\"s\"]", "", "m.toml:1: model 1 (F): missing field `sources`"),
            ("[\"s\"]", "[]", "m.toml:1: model 1 (F): sources = [] is not accepted; expected at least one"),
            ("[\"s\"]", "[\" \"]", "sources = \" \" is not accepted"),
            ("[\"X*\"]", "[]", "names = [] is not accepted"),
            ("\"sata\"", "\"scsi\"", "unknown variant `scsi`"),
            ("\"sata\"", "\"sata\"\nflsh = \"tlc\"", "unknown field `flsh`"),
            ("\"sata\"", "\"sata\"\nspare_percent = -7", "spare_percent = -7 is not accepted"),
            ("\"sata\"", "\"sata\"\nslc_gb_per_tb = nan", "slc_gb_per_tb = NaN is not accepted"),
            ("\"sata\"", "\"sata\"\nmaker = \"M\"", "duplicate key"),
            ("[[model]]", "[[modle]]", "m.toml:1: modle is unknown; expected [[model]]"),
        ] {
            let error = parse(&sound.replacen(old, new, 1), "m.toml").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
