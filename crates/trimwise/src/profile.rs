//! Profiles: one file for each SSD.
//!
//! A profile is a TOML file with a name, a description, every number of an [`SsdConfig`] with its unit in the key, and
//! a table `[sources]` that says where the numbers come from: a reference, a class of devices, `assumed`, or `fitted`.
//! A key of `[sources]` is a setting (`"nand.t_prog_ns"`) or a whole table (`nand`).
//!
//! Drives change with their firmware. A table `[firmware."1.41"]` is a *variant*: its settings, in itself or in tables
//! below it (`[firmware."1.41".gc]`), replace those outside; a `description` says what is different. The name of a
//! variant follows an `@`: `vertex-60gb@1.41`. A table `[faults]` lists the firmware's faults. A table
//! `[ranges."trim.cost_per_command_ns"]` with `low`, `high` and `source` says how far the value may be off ([`ranges`]).
//!
//! A profile comes from a user, so no text may panic the reader, and every error is one line with file, line, setting,
//! value and the accepted values. All variants are checked, whichever is requested. This module checks for errors in a
//! *file* (syntax, unknown and missing settings, types). Settings that no *device* can have are checked only in
//! [`SsdConfig::validate`] and [`Faults::validate`]; this module adds their line.

mod contents;
mod published;
pub mod ranges;
mod reader;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::block::thin::ThinConfig;
use crate::failure::Mistake;
use crate::ssd::{Faults, SsdConfig};
use crate::units::Percent;
use ranges::OwnRange;
use reader::{Found, Reader, Source, Value, entries};

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        /// Name and text of the built-in profiles, in listing order.
        const EMBEDDED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../profiles/", $name, ".toml")))),*];
    };
}

embedded!(
    "sata-small",
    "sata-generic",
    "nvme-generic",
    "sata-60gb-2011",
    "vendor1",
    "vendor2",
    "vendor3",
    "vendor4",
    "vendor5",
    "vendor6",
    "ufs21-64gb",
    "vertex-60gb",
    "page-60gb-2009",
    "sandforce-240gb",
    "sata-240gb-2012",
    "sata-500gb-slc",
    "sata-1tb-qlc",
    "sata-960gb-enterprise",
    "nvme-1tb-slc",
    "nvme-500gb-dramless",
    "nvme-960gb-enterprise",
    "nvme-512gb-qlc",
    "ufs4-256gb",
    "bench-64gib",
    "zero-cost",
);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct ProfileError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; for a missing setting, the line of its table.
    pub line: usize,
    /// The setting that it is about, as `table.key`, if it is about one.
    pub setting: Option<String>,
    /// Setting, value and accepted values.
    pub message: String,
}

impl ProfileError {
    /// Returns it as what is wrong with a request that names the file.
    pub fn mistake(self) -> Mistake {
        Mistake::that(self.message).at(self.file, Some(self.line))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firmware {
    pub version: String,
    pub description: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// A whole number; its unit is in the setting's name.
    Whole(u64),
    /// A percentage with decimals.
    Percent(Percent),
    Flag(bool),
    Word(String),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Percent(percent) => percent.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Dotted name of the setting: `nand.t_prog_ns`.
    pub name: String,
    pub value: SettingValue,
    pub by_firmware: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Short name, as given to `--device`, with the firmware variant: `vertex-60gb@1.41`.
    pub name: String,
    pub description: String,
    /// Version of the variant. `None`: the file's settings outside all variants.
    pub firmware: Option<String>,
    /// The file's variants, in order.
    pub firmware_variants: Vec<Firmware>,
    pub config: SsdConfig,
    pub faults: Faults,
    /// Thin storage on the drive, which no file has but a name ([`ThinConfig::split`]).
    pub thin: Option<ThinConfig>,
    /// The settings in the file, in the order of [`SsdConfig`]; omitted settings are missing.
    pub settings: Vec<Setting>,
    /// Sources of the numbers: by setting (`nand.t_prog_ns`) or by table (`nand`).
    pub sources: BTreeMap<String, String>,
    /// The ranges in the file, by setting; [`Profile::ranges`] has those of its class too.
    pub ranges: BTreeMap<String, OwnRange>,
    /// Models that the profile describes, as drives report them. A `*` at the end stands for any ending.
    pub models: Vec<String>,
}

impl Profile {
    /// Parses a profile without a firmware variant. `file` is used only in messages.
    ///
    /// ```no_run
    /// use trimwise::profile::Profile;
    /// use trimwise::ssd::Ssd;
    ///
    /// let profile = Profile::parse(&std::fs::read_to_string("mine.toml")?, "mine.toml")?;
    /// let ssd = Ssd::new(&profile.config, 1)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first error with its line, in variants too.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        Ok(Self::read_file(text, file)?.base)
    }

    /// Parses one firmware variant of a profile. `file` is used only in messages.
    ///
    /// # Errors
    /// The errors of [`Profile::parse`]; for an unknown variant, the list of known ones.
    pub fn parse_firmware(text: &str, file: &str, version: &str) -> Result<Self, ProfileError> {
        let ProfileFile { base, variants, line } = Self::read_file(text, file)?;
        variants.into_iter().find(|v| v.firmware.as_deref() == Some(version)).ok_or_else(|| {
            let versions: Vec<&str> = base.firmware_variants.iter().map(|v| v.version.as_str()).collect();
            let expected = match versions.join(", ") {
                none if none.is_empty() => "none, this profile has no firmware variants".to_owned(),
                versions => format!("one of {versions}"),
            };
            let message = format!("firmware: {version:?} is not accepted; expected {expected}");
            ProfileError { file: file.to_owned(), line, setting: None, message }
        })
    }

    /// Splits NAME@VERSION. Returns `None` if it is not a variant's name. A version consists of ASCII letters and
    /// digits and `.`, `-`, `_`, `+`.
    pub fn split_firmware(argument: &str) -> Option<(&str, &str)> {
        argument.rsplit_once('@').filter(|(name, version)| !name.is_empty() && is_version(version))
    }

    /// Returns the built-in profile of that name, or one of its variants (`NAME@VERSION`).
    pub fn embedded(name: &str) -> Option<Self> {
        // A test parses all of them, so parsing cannot fail in a tested program.
        if let Some(text) = Self::embedded_text(name) {
            return Self::parse(text, name).ok();
        }
        let (name, version) = Self::split_firmware(name)?;
        Self::parse_firmware(Self::embedded_text(name)?, name, version).ok()
    }

    /// Returns the text of the built-in profile of that name, as a template for a custom one.
    pub fn embedded_text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(n, _)| *n == name).map(|&(_, text)| text)
    }

    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|&(name, _)| name)
    }

    /// Returns the name of this device as its firmware variant `version`.
    pub fn name_with(&self, version: &str) -> String {
        format!("{}@{version}", self.base_name())
    }

    pub fn base_name(&self) -> &str {
        let suffix = |version: &String| self.name.strip_suffix(version.as_str())?.strip_suffix('@');
        self.firmware.as_ref().and_then(suffix).unwrap_or(&self.name)
    }

    /// Returns the source of a setting's value: its own entry of `[sources]`, or that of its table.
    pub fn source(&self, setting: &str) -> Option<&str> {
        let own = self.sources.get(setting);
        let table = || setting.split_once('.').and_then(|(table, _)| self.sources.get(table));
        own.or_else(table).map(String::as_str)
    }

    pub fn fitted(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().filter(|(_, source)| source.starts_with("fitted")).map(|(key, _)| key.as_str())
    }

    /// Returns true if the profile describes drives that report this model.
    pub fn describes(&self, model: &str) -> bool {
        self.models.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => model.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)),
            None => model.eq_ignore_ascii_case(known),
        })
    }

    fn read_file(text: &str, file: &str) -> Result<ProfileFile, ProfileError> {
        let source = Source { text, file, variant: None };
        let document = document(source)?;
        let root = Found { file: Some(&document), variant: None };
        let mut base = Self::read(source, root, u64::MAX)?;
        let variants = variants(source, &document)?;
        let mut read = Vec::new();
        for &(version, at, table) in &variants {
            let source = Source { variant: Some((version, at)), ..source };
            let mut profile = Self::read(source, Found { variant: Some(table), ..root }, u64::MAX)?;
            let says = entries(Some(table)).any(|(key, ..)| key == "description");
            let description = std::mem::replace(&mut profile.description, base.description.clone());
            let version = version.to_owned();
            base.firmware_variants
                .push(Firmware { version: version.clone(), description: says.then_some(description) });
            profile.name = base.name_with(&version);
            profile.firmware = Some(version);
            read.push(profile);
        }
        for profile in &mut read {
            profile.firmware_variants.clone_from(&base.firmware_variants);
        }
        let line = variants.first().map_or(1, |&(_, at, _)| source.line(at));
        Ok(ProfileFile { base, variants: read, line })
    }

    fn read(source: Source, root: Found, substitute: u64) -> Result<Self, ProfileError> {
        let mut reader = Reader::new(source, root, substitute);
        let contents = reader.read()?;
        let mut profile = Self {
            name: contents.name,
            description: contents.description,
            firmware: None,
            firmware_variants: Vec::new(),
            config: contents.config,
            faults: contents.faults,
            thin: None,
            settings: reader.values.drain(..).filter(|s| !s.name.starts_with("ranges.")).collect(),
            sources: contents.sources,
            ranges: contents.ranges,
            models: contents.models,
        };
        profile.config.nand.endurance_is_assumed =
            profile.source("nand.endurance_cycles").is_none_or(|source| source.contains("assumed"));
        let valid = profile.config.validate().and_then(|()| profile.faults.validate(&profile.config.trim));
        match &reader.out_of_range {
            Some(number) if valid.as_ref().err().is_none_or(|error| error.field != number.setting) => {
                if substitute == 0 {
                    Err(number.error.clone())
                } else {
                    Self::read(source, root, 0)
                }
            }
            _ => valid
                .map_err(|error| reader.locate(&error))
                .and_then(|()| reader.check_sources())
                .and_then(|()| reader.check_ranges(&profile))
                .map(|()| profile),
        }
    }
}

struct ProfileFile {
    base: Profile,
    variants: Vec<Profile>,
    /// Line of the first variant, or 1.
    line: usize,
}

fn document(source: Source<'_>) -> Result<Spanned<DeValue<'_>>, ProfileError> {
    let document = DeTable::parse(source.text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let mut message = error.message().lines().collect::<Vec<_>>().join("; ");
        if let ("duplicate key", Some(key)) = (message.as_str(), source.text.get(at.clone())) {
            message = format!("{}: duplicate key; expected it once", key.trim());
        }
        source.refuse(&at, message)
    })?;
    Ok(Spanned::new(document.span(), DeValue::Table(document.into_inner())))
}

/// Returns true if the text can follow an `@` and be shown in a table.
fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
}

fn variants<'t>(
    source: Source,
    document: Value<'t>,
) -> Result<Vec<(&'t str, usize, Value<'t>)>, ProfileError> {
    let mut variants = Vec::new();
    for (version, at, table) in entries(Found { file: Some(document), variant: None }.get("firmware").file) {
        let message = if !is_version(version) {
            let expected = "a version made of letters, digits, '.', '-', '_' and '+'";
            format!("firmware: {version:?} is not accepted; expected {expected}")
        } else if !table.get_ref().is_table() {
            format!("firmware.{version:?} is not a table; expected a table [firmware.{version:?}]")
        } else {
            variants.push((version, at.start, table));
            continue;
        };
        return Err(source.refuse(&at, message));
    }
    // A device has one name, and a firmware has no firmware of its own.
    for (version, _, table) in &variants {
        if let Some((name, at, _)) = entries(Some(table)).find(|(key, ..)| ["name", "firmware"].contains(key))
        {
            let message = format!(
                "firmware {version:?}: {name} cannot be set by a variant; expected a setting of the device, \
                 description or sources"
            );
            return Err(source.refuse(&at, message));
        }
    }
    variants.sort_by_key(|&(_, at, _)| at);
    Ok(variants)
}
