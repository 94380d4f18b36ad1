//! Profiles: one file for each SSD.
//!
//! A profile is a TOML file with a name, a description, every number of an [`SsdConfig`] with its unit in the key, and
//! a table `[sources]` that says where the numbers come from: a reference, a class of devices, `assumed`, or `fitted`.
//! A key of `[sources]` is a setting (`"nand.t_prog_ns"`) or a whole table (`nand`).
//!
//! Drives change with their firmware. A table `[firmware."1.41"]` is a *variant*: its settings, in itself or in tables
//! below it (`[firmware."1.41".gc]`), replace those outside; a `description` says what is different. A variant is named
//! after an `@`: `vertex-60gb@1.41`. A table `[faults]` lists the firmware's faults.
//!
//! A profile comes from a user, so no text may panic the reader, and every error is one line with file, line, setting,
//! value and what is accepted. All variants are checked, whichever is requested. This module checks what can be wrong
//! in a *file* (syntax, unknown and missing settings, types). What no *device* can be is checked only in
//! [`SsdConfig::validate`] and [`Faults::validate`], and gets its line here.

mod reader;
mod settings;

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::ssd::{Faults, SsdConfig};
use reader::{OutOfRange, Reader, Substitute, Table, Variant};

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
    "nvme-500gb-dramless",
    "nvme-960gb-enterprise",
    "nvme-512gb-qlc",
    "ufs4-256gb",
    "bench-64gib",
    "zero-cost",
);

/// Why a profile was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct ProfileError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; for a missing setting, the line of its table.
    pub line: usize,
    /// Setting and value, and what is accepted.
    pub message: String,
}

/// A firmware that a profile has settings for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firmware {
    /// Its version, as written after the `@`.
    pub version: String,
    /// What differs with it.
    pub description: Option<String>,
}

/// A value in a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// A whole number; its unit is in the setting's name.
    Whole(u64),
    /// Yes or no.
    Flag(bool),
    /// One of several words.
    Word(String),
}

/// A setting in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Dotted name: `nand.t_prog_ns`.
    pub name: String,
    /// Its value.
    pub value: SettingValue,
    /// Whether the firmware variant sets it.
    pub by_firmware: bool,
}

/// One SSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Short name, as given to `--device`, with the firmware variant: `vertex-60gb@1.41`.
    pub name: String,
    /// What kind of device this is, in a sentence.
    pub description: String,
    /// The variant. `None`: the file's settings outside all variants.
    pub firmware: Option<String>,
    /// The file's variants, in order.
    pub firmware_variants: Vec<Firmware>,
    /// The checked numbers.
    pub config: SsdConfig,
    /// Faults of the firmware.
    pub faults: Faults,
    /// The settings in the file, in the order of [`SsdConfig`]; omitted settings are missing.
    pub settings: Vec<Setting>,
    /// Where numbers come from: by setting (`nand.t_prog_ns`) or by table (`nand`).
    pub sources: BTreeMap<String, String>,
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
    ///
    /// The first error with its line, in variants too.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        Ok(Self::read_file(text, file)?.base)
    }

    /// Parses one firmware variant of a profile. `file` is used only in messages.
    ///
    /// # Errors
    ///
    /// Those of [`Profile::parse`]; an unknown variant, with the list of known ones.
    pub fn parse_firmware(text: &str, file: &str, version: &str) -> Result<Self, ProfileError> {
        let ProfileFile { base, variants, line } = Self::read_file(text, file)?;
        variants.into_iter().find(|v| v.firmware.as_deref() == Some(version)).ok_or_else(|| {
            let versions: Vec<&str> = base.firmware_variants.iter().map(|v| v.version.as_str()).collect();
            let expected = match versions.join(", ") {
                none if none.is_empty() => "none, this profile has no firmware variants".to_owned(),
                versions => format!("one of {versions}"),
            };
            let message = format!("firmware: {version:?} is not accepted; expected {expected}");
            ProfileError { file: file.to_owned(), line, message }
        })
    }

    /// Splits NAME@VERSION. `None` if it is not a variant's name: a version consists of ASCII letters and digits and
    /// `.`, `-`, `_`, `+`.
    pub fn split_firmware(argument: &str) -> Option<(&str, &str)> {
        argument.rsplit_once('@').filter(|(name, version)| !name.is_empty() && is_version(version))
    }

    /// The built-in profile of that name, or one of its variants (`NAME@VERSION`).
    pub fn embedded(name: &str) -> Option<Self> {
        // A test parses all of them, so parsing cannot fail in a tested program.
        if let Some(text) = Self::embedded_text(name) {
            return Self::parse(text, name).ok();
        }
        let (name, version) = Self::split_firmware(name)?;
        Self::parse_firmware(Self::embedded_text(name)?, name, version).ok()
    }

    /// The text of the built-in profile of that name, as a template for a custom one.
    pub fn embedded_text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(n, _)| *n == name).map(|&(_, text)| text)
    }

    /// The names of the built-in profiles, without variants.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|&(name, _)| name)
    }

    /// The name of this device as its firmware variant `version`.
    pub fn name_with(&self, version: &str) -> String {
        format!("{}@{version}", self.base_name())
    }

    /// The name without the variant.
    pub fn base_name(&self) -> &str {
        let suffix = |version: &String| self.name.strip_suffix(version.as_str())?.strip_suffix('@');
        self.firmware.as_ref().and_then(suffix).unwrap_or(&self.name)
    }

    /// Where a setting's value comes from: its own entry of `[sources]`, or that of its table.
    pub fn source(&self, setting: &str) -> Option<&str> {
        let own = self.sources.get(setting);
        let table = || setting.split_once('.').and_then(|(table, _)| self.sources.get(table));
        own.or_else(table).map(String::as_str)
    }

    /// The settings that were fitted to measurements instead of taken from a source.
    pub fn fitted(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().filter(|(_, source)| source.starts_with("fitted")).map(|(key, _)| key.as_str())
    }

    fn read_file(text: &str, file: &str) -> Result<ProfileFile, ProfileError> {
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            let mut message = error.message().lines().collect::<Vec<_>>().join("; ");
            if let ("duplicate key", Some(key)) = (message.as_str(), text.get(at.clone())) {
                message = format!("{}: duplicate key; expected it once", key.trim());
            }
            Reader::new(text, file, None, Substitute::Most).refuse(&at, message)
        })?;
        let mut base = Self::read(&document, text, file, None)?;
        let variants = variants(&document, &Reader::new(text, file, None, Substitute::Most))?;
        let line =
            variants.first().map_or(1, |v| Reader::new(text, file, None, Substitute::Most).line(&v.at));
        let mut read = Vec::new();
        for variant in &variants {
            let mut profile = Self::read(&document, text, file, Some(variant))?;
            let says = variant.table.contains_key("description");
            let description = std::mem::replace(&mut profile.description, base.description.clone());
            let version = variant.version.to_owned();
            base.firmware_variants
                .push(Firmware { version: version.clone(), description: says.then_some(description) });
            profile.name = base.name_with(&version);
            profile.firmware = Some(version);
            read.push(profile);
        }
        for profile in &mut read {
            profile.firmware_variants.clone_from(&base.firmware_variants);
        }
        Ok(ProfileFile { base, variants: read, line })
    }

    /// Reads the file, with the settings of a variant if given.
    fn read(
        document: &Spanned<DeTable>,
        text: &str,
        file: &str,
        variant: Option<&Variant>,
    ) -> Result<Self, ProfileError> {
        let reader = |substitute| Reader::new(text, file, variant, substitute);
        let attempt = |substitute| Self::attempt(document, variant, reader(substitute));
        let (out_of_range, complaint) = match attempt(Substitute::Most) {
            Attempt::Done(result) => return *result,
            Attempt::OutOfRange(error, complaint) => (error, complaint),
        };
        // The largest substitute was accepted, or another setting refused: try the smallest.
        let complaint = complaint.or_else(|| match attempt(Substitute::Least) {
            Attempt::OutOfRange(_, complaint) => complaint,
            Attempt::Done(_) => None,
        });
        Err(match complaint {
            Some(expected) => out_of_range.with(&reader(Substitute::Most), &expected),
            None => out_of_range.error,
        })
    }

    fn attempt<'t>(
        document: &'t Spanned<DeTable>,
        variant: Option<&Variant<'t, '_>>,
        mut reader: Reader,
    ) -> Attempt {
        let (mut profile, sources) = match Self::read_parts(document, variant, &mut reader) {
            Ok(parts) => parts,
            Err(error) => return Attempt::Done(Box::new(Err(error))),
        };
        if let Some(missing) = reader.missing.take() {
            return Attempt::Done(Box::new(Err(missing)));
        }
        let valid = profile.config.validate().and_then(|()| profile.faults.validate(&profile.config.trim));
        if let Some(out_of_range) = reader.out_of_range.take() {
            let complaint = valid.err().filter(|e| e.field == out_of_range.setting).map(|e| e.expected);
            return Attempt::OutOfRange(out_of_range, complaint);
        }
        let result = valid
            .map_err(|error| reader.locate(&error))
            .and_then(|()| settings::read_sources(sources, &mut reader))
            .map(|sources| {
                profile.sources = sources;
                profile
            });
        Attempt::Done(Box::new(result))
    }

    /// Reads everything but the sources, which may name only existing settings.
    fn read_parts<'t, 'i>(
        document: &'t Spanned<DeTable<'i>>,
        variant: Option<&Variant<'t, 'i>>,
        reader: &mut Reader,
    ) -> Result<(Self, Table<'t, 'i>), ProfileError> {
        let mut root = Table::root(document, variant);
        let name = root.word(reader, "name")?;
        let description = root.string(reader, "description")?;
        let config = settings::read_config(&mut root, reader)?;
        let faults = settings::read_faults(&mut root, reader)?;
        let sources = root.table(reader, "sources")?;
        root.optional_table(reader, "firmware")?;
        root.finish(reader)?;
        let profile = Self {
            name,
            description,
            firmware: None,
            firmware_variants: Vec::new(),
            config,
            faults,
            settings: std::mem::take(&mut reader.values),
            sources: BTreeMap::new(),
        };
        Ok((profile, sources))
    }
}

/// The contents of a file.
struct ProfileFile {
    base: Profile,
    variants: Vec<Profile>,
    /// Line of the first variant, or 1.
    line: usize,
}

/// Result of reading the text once.
enum Attempt {
    Done(Box<Result<Profile, ProfileError>>),
    /// A number is out of the range of its type. If the device refused its substitute: what it accepts.
    OutOfRange(OutOfRange, Option<String>),
}

/// Whether this can follow an `@` and be shown in a table.
fn is_version(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
}

/// The firmware variants, in the order of the file.
fn variants<'t, 'i>(
    document: &'t Spanned<DeTable<'i>>,
    reader: &Reader,
) -> Result<Vec<Variant<'t, 'i>>, ProfileError> {
    let Some(DeValue::Table(table)) = document.get_ref().get("firmware").map(Spanned::get_ref) else {
        return Ok(Vec::new());
    };
    let mut variants = Vec::new();
    for (key, value) in table {
        let version: &str = key.get_ref();
        let at = key.span();
        if !is_version(version) {
            let expected = "a version of letters, digits, '.', '-', '_' and '+'";
            return Err(
                reader.refuse(&at, format!("firmware: {version:?} is not accepted; expected {expected}"))
            );
        }
        let DeValue::Table(table) = value.get_ref() else {
            let message =
                format!("firmware.{version:?} is not a table; expected a table [firmware.{version:?}]");
            return Err(reader.refuse(&at, message));
        };
        // A device has one name, and a firmware has no firmware of its own.
        for (key, _) in table {
            if ["name", "firmware"].contains(&key.get_ref().as_ref()) {
                let name: &str = key.get_ref();
                let message = format!(
                    "firmware {version:?}: {name} cannot be set by a variant; expected a setting of the device, \
                     description or sources"
                );
                return Err(reader.refuse(&key.span(), message));
            }
        }
        variants.push(Variant { version, table, at });
    }
    variants.sort_by_key(|variant| variant.at.start);
    Ok(variants)
}
