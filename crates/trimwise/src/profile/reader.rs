//! Reading a profile's text: where each setting stands, and what a refusal says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ProfileError, Setting, SettingValue};
use crate::ssd::ConfigError;

/// What stands in for a number that its type cannot hold, so that the device can say what it accepts.
#[derive(Clone, Copy)]
pub(crate) enum Substitute {
    Least,
    Most,
}

/// A number that its type cannot hold.
pub struct OutOfRange {
    pub setting: String,
    found: String,
    at: Range<usize>,
    pub error: ProfileError,
}

impl OutOfRange {
    /// The error, saying what this setting accepts.
    pub fn with(&self, reader: &Reader, expected: &str) -> ProfileError {
        let message = format!("{}: {} is not accepted; expected {expected}", self.setting, self.found);
        reader.refuse(&self.at, message)
    }
}

/// Where a setting stands.
struct Place {
    at: Range<usize>,
    /// Whether the firmware variant that is being read has set it.
    by_variant: bool,
}

/// A firmware variant that is being read.
pub(crate) struct Variant<'t, 'i> {
    pub version: &'t str,
    /// What it sets instead.
    pub table: &'t DeTable<'i>,
    /// Its header.
    pub at: Range<usize>,
}

/// What messages need: the text, its name, and where each setting stands.
pub struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    /// Version and header of the firmware variant that is being read.
    variant: Option<(&'a str, Range<usize>)>,
    places: BTreeMap<String, Place>,
    /// The settings that there are, set or not.
    pub settings: BTreeSet<String>,
    /// The numbers, flags and words that were read.
    pub values: Vec<Setting>,
    /// The first setting that is missing. What is there and unknown is reported before it: most often that is the
    /// same setting, misspelt.
    pub missing: Option<ProfileError>,
    /// The first number that its type cannot hold.
    pub out_of_range: Option<OutOfRange>,
    substitute: Substitute,
}

impl<'a> Reader<'a> {
    pub fn new(
        text: &'a str,
        file: &'a str,
        variant: Option<&Variant<'a, '_>>,
        substitute: Substitute,
    ) -> Self {
        Self {
            text,
            file,
            variant: variant.map(|v| (v.version, v.at.clone())),
            places: BTreeMap::new(),
            settings: BTreeSet::new(),
            values: Vec::new(),
            missing: None,
            out_of_range: None,
            substitute,
        }
    }

    /// The line where this begins, from 1.
    pub fn line(&self, at: &Range<usize>) -> usize {
        let end = at.start.min(self.text.len());
        1 + self.text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count()
    }

    pub fn refuse(&self, at: &Range<usize>, message: impl Display) -> ProfileError {
        let line = self.line(at);
        let message = match self.variant {
            Some((version, _)) => format!("firmware \"{version}\": {message}"),
            None => message.to_string(),
        };
        ProfileError { file: self.file.to_owned(), line, message }
    }

    /// Gives a device's complaint the line of the setting, or of its table. What a firmware variant breaks is its own
    /// fault, so that its line is given, whatever the device complains about.
    pub fn locate(&self, error: &ConfigError) -> ProfileError {
        let table = error.field.split_once('.').map_or("", |(table, _)| table);
        let named = |name| self.places.get(name).filter(|p| p.by_variant || self.variant.is_none());
        let header = || self.variant.as_ref().map(|(_, at)| at.clone());
        let place = named(error.field).or_else(|| named(table));
        let at = place.map(|place| place.at.clone()).or_else(header).unwrap_or(0..0);
        self.refuse(&at, error)
    }
}

/// A table being read; what is left at the end is unknown.
pub struct Table<'t, 'i> {
    /// `None` if it is missing.
    table: Option<&'t DeTable<'i>>,
    /// What the firmware variant that is being read sets instead.
    variant: Option<&'t DeTable<'i>>,
    /// Dotted name with a trailing dot; empty for the root.
    prefix: String,
    span: Range<usize>,
    read: Vec<String>,
}

impl<'t, 'i> Table<'t, 'i> {
    /// The whole file, as a variant has it.
    pub fn root(document: &'t Spanned<DeTable<'i>>, variant: Option<&Variant<'t, 'i>>) -> Self {
        Self {
            table: Some(document.get_ref()),
            variant: variant.map(|v| v.table),
            prefix: String::new(),
            span: variant.map_or_else(|| document.span(), |v| v.at.clone()),
            read: Vec::new(),
        }
    }

    fn get(&self, key: &str) -> Option<(&'t Spanned<DeValue<'i>>, bool)> {
        let own = self.variant.and_then(|table| table.get(key)).map(|value| (value, true));
        own.or_else(|| self.table?.get(key).map(|value| (value, false)))
    }

    /// Remembers what a setting is set to.
    fn note(&self, reader: &mut Reader, key: &str, value: SettingValue) {
        let name = format!("{}{key}", self.prefix);
        let by_firmware = reader.places.get(&name).is_some_and(|place| place.by_variant);
        reader.values.push(Setting { name, value, by_firmware });
    }

    fn optional(&mut self, reader: &mut Reader, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        if !self.read.iter().any(|read| read == key) {
            self.read.push(key.to_owned());
        }
        let name = format!("{}{key}", self.prefix);
        reader.settings.insert(name.clone());
        let (value, by_variant) = self.get(key)?;
        reader.places.insert(name, Place { at: value.span(), by_variant });
        Some(value)
    }

    /// The value, or a note that it is missing.
    fn required(
        &mut self,
        reader: &mut Reader,
        key: &str,
        expected: &str,
    ) -> Option<&'t Spanned<DeValue<'i>>> {
        let value = self.optional(reader, key);
        if value.is_none() && reader.missing.is_none() {
            let message = format!("{}{key} is missing; expected {expected}", self.prefix);
            reader.missing = Some(reader.refuse(&self.span, message));
        }
        value
    }

    fn wrong(&self, reader: &Reader, key: &str, value: &Spanned<DeValue>, expected: &str) -> ProfileError {
        let found = reader.text.get(value.span()).unwrap_or("this value");
        // A table or a long array is named, not quoted.
        let found = match value.get_ref() {
            DeValue::Table(_) => "a table",
            DeValue::Array(_) => "an array",
            _ => found.lines().next().unwrap_or(""),
        };
        reader.refuse(
            &value.span(),
            format!("{}{key}: {found} is not accepted; expected {expected}", self.prefix),
        )
    }

    /// A whole number; one that the type cannot hold is noted, and a substitute given.
    fn whole<N: TryFrom<u64>>(
        &self,
        reader: &mut Reader,
        key: &str,
        value: &Spanned<DeValue>,
    ) -> Result<N, ProfileError> {
        let bits = 8 * size_of::<N>() as u32;
        let expected = format!("a whole number from 0 to 2^{bits} - 1");
        let error = || self.wrong(reader, key, value, &expected);
        let integer = value.get_ref().as_integer().ok_or_else(error)?;
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        if let Some((value, number)) = number.and_then(|n| Some((n, N::try_from(n).ok()?))) {
            self.note(reader, key, SettingValue::Whole(value));
            return Ok(number);
        }
        let substitute = match reader.substitute {
            Substitute::Least => 0,
            Substitute::Most => u64::MAX >> (64 - bits),
        };
        let error = error();
        if reader.out_of_range.is_none() {
            let at = value.span();
            let found = reader.text.get(at.clone()).unwrap_or("this value").to_owned();
            let setting = format!("{}{key}", self.prefix);
            reader.out_of_range = Some(OutOfRange { setting, found, at, error: error.clone() });
        }
        N::try_from(substitute).map_err(|_| error)
    }

    pub fn u64(&mut self, reader: &mut Reader, key: &str) -> Result<u64, ProfileError> {
        let value = self.required(reader, key, "a whole number");
        value.map_or(Ok(0), |value| self.whole(reader, key, value))
    }

    pub fn u32(&mut self, reader: &mut Reader, key: &str) -> Result<u32, ProfileError> {
        let value = self.required(reader, key, "a whole number");
        value.map_or(Ok(0), |value| self.whole(reader, key, value))
    }

    pub(crate) fn optional_u64(
        &mut self,
        reader: &mut Reader,
        key: &str,
    ) -> Result<Option<u64>, ProfileError> {
        self.optional(reader, key).map(|value| self.whole(reader, key, value)).transpose()
    }

    pub(crate) fn optional_u32(
        &mut self,
        reader: &mut Reader,
        key: &str,
    ) -> Result<Option<u32>, ProfileError> {
        self.optional(reader, key).map(|value| self.whole(reader, key, value)).transpose()
    }

    /// A number that has this default where it may lack.
    pub(crate) fn u64_or(
        &mut self,
        r: &mut Reader,
        key: &str,
        or: u64,
        may_lack: bool,
    ) -> Result<u64, ProfileError> {
        if may_lack { Ok(self.optional_u64(r, key)?.unwrap_or(or)) } else { self.u64(r, key) }
    }

    /// A number that has this default where it may lack.
    pub(crate) fn u32_or(
        &mut self,
        r: &mut Reader,
        key: &str,
        or: u32,
        may_lack: bool,
    ) -> Result<u32, ProfileError> {
        if may_lack { Ok(self.optional_u32(r, key)?.unwrap_or(or)) } else { self.u32(r, key) }
    }

    pub fn bool(&mut self, reader: &mut Reader, key: &str) -> Result<bool, ProfileError> {
        self.required(reader, key, "true or false");
        Ok(self.optional_bool(reader, key)?.unwrap_or(false))
    }

    pub(crate) fn optional_bool(
        &mut self,
        reader: &mut Reader,
        key: &str,
    ) -> Result<Option<bool>, ProfileError> {
        let Some(value) = self.optional(reader, key) else { return Ok(None) };
        let expected = || self.wrong(reader, key, value, "true or false");
        let flag = value.get_ref().as_bool().ok_or_else(expected)?;
        self.note(reader, key, SettingValue::Flag(flag));
        Ok(Some(flag))
    }

    pub fn string(&mut self, reader: &mut Reader, key: &str) -> Result<String, ProfileError> {
        const EXPECTED: &str = "a text in quotes that is not empty";
        let Some(value) = self.required(reader, key, EXPECTED) else { return Ok(String::new()) };
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
            _ => Err(self.wrong(reader, key, value, EXPECTED)),
        }
    }

    /// A text for tables and file names: it must not move the cursor of a terminal.
    pub fn word(&mut self, reader: &mut Reader, key: &str) -> Result<String, ProfileError> {
        let text = self.string(reader, key)?;
        match self.get(key) {
            Some((value, _)) if text.chars().any(char::is_control) => {
                Err(self.wrong(reader, key, value, "a text without control characters"))
            }
            _ => Ok(text),
        }
    }

    pub(crate) fn one_of<T: Copy>(
        &mut self,
        reader: &mut Reader,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<T, ProfileError> {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let expected = names.join(", ");
        let Some(value) = self.required(reader, key, &expected) else { return Ok(choices[0].1) };
        let found = value.get_ref().as_str();
        let choice = choices.iter().find(|(name, _)| Some(*name) == found);
        let &(name, choice) = choice.ok_or_else(|| self.wrong(reader, key, value, &expected))?;
        self.note(reader, key, SettingValue::Word(name.to_owned()));
        Ok(choice)
    }

    /// One of the choices, with this default where it may lack.
    pub(crate) fn one_of_or<T: Copy>(
        &mut self,
        reader: &mut Reader,
        key: &str,
        choices: &[(&str, T)],
        or: T,
        may_lack: bool,
    ) -> Result<T, ProfileError> {
        if may_lack && self.get(key).is_none() {
            self.optional(reader, key);
            return Ok(or);
        }
        self.one_of(reader, key, choices)
    }

    pub fn table(&mut self, reader: &mut Reader, key: &str) -> Result<Self, ProfileError> {
        if let Some(table) = self.optional_table(reader, key)? {
            return Ok(table);
        }
        self.required(reader, key, &format!("a table [{key}]"));
        let prefix = format!("{}{key}.", self.prefix);
        Ok(Self { table: None, variant: None, prefix, span: self.span.clone(), read: Vec::new() })
    }

    /// A table that may be left out. A variant's has its settings beside those of the file.
    pub(crate) fn optional_table(
        &mut self,
        reader: &mut Reader,
        key: &str,
    ) -> Result<Option<Self>, ProfileError> {
        let Some(value) = self.optional(reader, key) else { return Ok(None) };
        let as_table = |value: &'t Spanned<DeValue<'i>>| match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.wrong(reader, key, value, "a table")),
        };
        let table = self.table.and_then(|table| table.get(key)).map(as_table).transpose()?;
        let variant = self.variant.and_then(|table| table.get(key)).map(as_table).transpose()?;
        let prefix = format!("{}{key}.", self.prefix);
        Ok(Some(Self { table, variant, prefix, span: value.span(), read: Vec::new() }))
    }

    /// The keys that this reading answers for, where they stand: all of the file, or those that a variant adds. What
    /// the file sets in vain under a variant was checked with the file.
    pub(crate) fn own_keys(
        &self,
        reader: &Reader,
    ) -> impl Iterator<Item = (&'t str, Range<usize>)> + use<'t, 'i> {
        let own = if reader.variant.is_some() { self.variant } else { self.table };
        own.into_iter().flatten().map(|(key, _)| (key.get_ref().as_ref(), key.span()))
    }

    /// All keys, in order.
    pub fn keys(&self) -> BTreeSet<&'t str> {
        self.table.into_iter().chain(self.variant).flatten().map(|(key, _)| key.get_ref().as_ref()).collect()
    }

    /// Refuses what nobody asked for.
    pub fn finish(&self, reader: &Reader) -> Result<(), ProfileError> {
        let known = |name: &str| self.read.iter().any(|read| read == name);
        match self.own_keys(reader).find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, at)) => {
                let known = self.read.join(", ");
                Err(reader
                    .refuse(&at, format!("{}{name} is not a setting; expected one of {known}", self.prefix)))
            }
        }
    }
}
