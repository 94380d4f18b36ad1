//! Reads a profile's text with serde: the device's own structures define the settings.
//!
//! The deserializer is our own because `toml`'s forgets the place of a value once serde has to buffer it, stops at the
//! first number that is too large, and knows nothing of firmware variants. This one knows each setting's dotted name
//! and place, prefers the variant's values, and notes the values that it reads. Three rules go beyond serde's:
//!
//! - a field named `""` is a part of the same table;
//! - an enum named [`BY_KIND`] is a table; its entry `kind` chooses the variant and its other entries fill it;
//! - a variant with a number, such as `victim = "d_choices"`, takes it from the entry of that name next to it.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::ops::Range;

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    Deserialize as _, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer,
    MapAccess, Unexpected, VariantAccess, Visitor,
};
use toml::Spanned;
use toml::de::DeValue;

use super::contents::Contents;
use super::ranges::Uncertain;
use super::{Profile, ProfileError, Setting, SettingValue};
use crate::ssd::ConfigError;
use crate::units::Percent;

/// The serde name of an enum that is written as a table with a `kind`.
const BY_KIND: &str = "table by kind";
pub(crate) type Value<'t> = &'t Spanned<DeValue<'t>>;

/// A file's value of a setting, and a firmware variant's value that replaces it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Found<'t> {
    pub file: Option<Value<'t>>,
    pub variant: Option<Value<'t>>,
}

impl<'t> Found<'t> {
    pub fn value(self) -> Option<Value<'t>> {
        self.variant.or(self.file)
    }

    pub fn get(self, key: &str) -> Self {
        if key.is_empty() {
            return self;
        }
        let within = |table: Option<Value<'t>>| table?.get_ref().as_table()?.get(key);
        Self { file: within(self.file), variant: within(self.variant) }
    }
}

/// Iterates over the entries of a table, with the places of their keys.
pub(crate) fn entries<'t>(
    table: Option<Value<'t>>,
) -> impl Iterator<Item = (&'t str, Range<usize>, Value<'t>)> {
    let table = table.and_then(|table| table.get_ref().as_table());
    table.into_iter().flatten().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
}

/// Context of messages: the text, its name, and the firmware variant that is being read.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t> {
    pub text: &'t str,
    pub file: &'t str,
    /// The variant's version, and the start of its header.
    pub variant: Option<(&'t str, usize)>,
}

impl Source<'_> {
    pub fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|&&b| b == b'\n').count()
    }

    pub fn refuse(&self, at: &Range<usize>, message: impl Display) -> ProfileError {
        let line = self.line(at.start);
        let message = match self.variant {
            Some((version, _)) => format!("firmware \"{version}\": {message}"),
            None => message.to_string(),
        };
        ProfileError { file: self.file.to_owned(), line, setting: None, message }
    }

    fn wrong(&self, name: &str, value: Value, expected: &str) -> ProfileError {
        // A table or a long array is named, not quoted.
        let found = match value.get_ref() {
            DeValue::Table(_) => "a table",
            DeValue::Array(_) => "an array",
            _ => self.text.get(value.span()).and_then(|found| found.lines().next()).unwrap_or(""),
        };
        let message = format!("{name}: {found} is not accepted; expected {expected}");
        ProfileError { setting: Some(name.to_owned()), ..self.refuse(&value.span(), message) }
    }
}

#[derive(Debug)]
pub(crate) enum Stop {
    Expected(String),
    Missing(String),
    Refused(ProfileError),
}

impl Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Stop {}

impl Error for Stop {
    fn custom<T: Display>(expected: T) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field.to_owned())
    }
}

pub(crate) struct OutOfRange<'t> {
    pub setting: String,
    value: Value<'t>,
    pub error: ProfileError,
}

pub(crate) struct Reader<'t> {
    source: Source<'t>,
    root: Found<'t>,
    pub settings: Vec<String>,
    pub values: Vec<Setting>,
    pub out_of_range: Option<OutOfRange<'t>>,
    /// Substitute for a number that does not fit, cut to the width of its type. The device can then reject it with the
    /// accepted values.
    substitute: u64,
    /// A setting known to be missing. Its type then describes the accepted values.
    missing: Option<String>,
}

impl<'t> Reader<'t> {
    pub fn new(source: Source<'t>, root: Found<'t>, substitute: u64) -> Self {
        let (settings, values) = (Vec::new(), Vec::new());
        Self { source, root, settings, values, out_of_range: None, substitute, missing: None }
    }

    pub fn read(&mut self) -> Result<Contents, ProfileError> {
        let root = Node { name: String::new(), found: self.root, parent: Found::default(), reader: self };
        let stop = match Contents::deserialize(root) {
            Ok(contents) => match contents.missing(&self.root) {
                None => return Ok(contents),
                Some(name) => Stop::Missing(name),
            },
            Err(stop) => stop,
        };
        match stop {
            Stop::Missing(name) if self.missing.is_none() => {
                self.missing = Some(name);
                self.read()
            }
            Stop::Refused(error) => Err(error),
            Stop::Expected(words) | Stop::Missing(words) => Err(self.source.refuse(&(0..0), words)),
        }
    }

    /// Returns the value for which this pass is responsible: a variant's value, if a variant is read, since the file
    /// was checked without it.
    fn own(&self, found: Found<'t>) -> Option<Value<'t>> {
        self.source.variant.map_or(found.file, |_| found.variant)
    }

    /// Rejects a source of something that is not a setting.
    pub fn check_sources(&self) -> Result<(), ProfileError> {
        let unknown = |key: &str| self.settings.iter().all(|setting| setting != key);
        let found = entries(self.own(self.root.get("sources"))).find(|(key, ..)| unknown(key));
        found.map_or(Ok(()), |(name, at, _)| {
            let message = "is not a setting; expected the name of a setting or table of this profile";
            Err(self.source.refuse(&at, format!("sources.{name} {message}")))
        })
    }

    /// Rejects a range of something that can have none, or that its own value is outside of.
    pub fn check_ranges(&self, profile: &Profile) -> Result<(), ProfileError> {
        for (name, at, _) in entries(self.own(self.root.get("ranges"))) {
            let likely = Uncertain::named(name).and_then(|setting| setting.value(&profile.config));
            let (Some(range), Some(SettingValue::Whole(likely))) = (profile.ranges.get(name), likely) else {
                let known: Vec<&str> = Uncertain::ALL
                    .into_iter()
                    .filter(|setting| matches!(setting.value(&profile.config), Some(SettingValue::Whole(_))))
                    .map(Uncertain::name)
                    .collect();
                let message = format!("ranges.{name} is not accepted; expected one of {}", known.join(", "));
                return Err(self.source.refuse(&at, message));
            };
            let is_possible = |value: u64| {
                let mut config = profile.config.clone();
                let is_set =
                    Uncertain::named(name).and_then(|s| s.set(&mut config, &SettingValue::Whole(value)));
                is_set.is_some() && config.validate().is_ok()
            };
            if let Some(end) = [range.low, range.high].into_iter().find(|end| !is_possible(*end)) {
                let message =
                    format!("ranges.{name}: {end} is not accepted; expected what {name} itself may be");
                return Err(self.source.refuse(&at, message));
            }
            if !(range.low..=range.high).contains(&likely) {
                let message = format!(
                    "ranges.{name}: {} to {} is not accepted; expected a range around the value, {likely}",
                    range.low, range.high
                );
                return Err(self.source.refuse(&at, message));
            }
        }
        Ok(())
    }

    /// Adds the line of the setting, or of its table, to a device's error. An error caused by a firmware variant gets
    /// the variant's line, whichever setting the device names.
    pub fn locate(&self, error: &ConfigError) -> ProfileError {
        if let Some(number) = self.out_of_range.as_ref().filter(|number| number.setting == error.field) {
            return self.source.wrong(error.field, number.value, &error.expected);
        }
        let (table, key) = error.field.split_once('.').unwrap_or((error.field, ""));
        let table = self.root.get(table);
        let header = self.source.variant.map_or(0, |(_, start)| start);
        let at = self.own(table.get(key)).or(self.own(table)).map_or(header..header, Spanned::span);
        ProfileError { setting: Some(error.field.to_owned()), ..self.source.refuse(&at, error) }
    }
}

struct Node<'r, 't> {
    reader: &'r mut Reader<'t>,
    name: String,
    found: Found<'t>,
    parent: Found<'t>,
}

impl<'t> Node<'_, 't> {
    fn path(&self, key: &str) -> String {
        format!("{}{}{key}", self.name, if self.name.is_empty() { "" } else { "." })
    }

    fn entry(&mut self, key: &str) -> Node<'_, 't> {
        Node { name: self.path(key), found: self.found.get(key), parent: self.found, reader: self.reader }
    }

    fn setting(&mut self, key: &str) -> Node<'_, 't> {
        if !key.is_empty() {
            self.reader.settings.push(self.path(key));
        }
        self.entry(key)
    }

    fn stop(&self, expected: &str) -> Stop {
        let source = &self.reader.source;
        Stop::Refused(match (self.found.value(), self.parent.value()) {
            (Some(value), _) => source.wrong(&self.name, value, expected),
            (None, table) => source.refuse(
                &table.map_or(0..0, Spanned::span),
                format!("{} is missing; expected {expected}", self.name),
            ),
        })
    }

    fn take<T>(&self, expected: &str, take: impl FnOnce(&'t DeValue<'t>) -> Option<T>) -> Result<T, Stop> {
        self.found.value().and_then(|value| take(value.get_ref())).ok_or_else(|| self.stop(expected))
    }

    fn note(&mut self, value: SettingValue) {
        let (name, by_firmware) = (self.name.clone(), self.found.variant.is_some());
        self.reader.values.push(Setting { name, value, by_firmware });
    }

    fn whole(&mut self, bits: u32) -> Result<u64, Stop> {
        let most = u64::MAX >> (64 - bits);
        let value = self.found.value().ok_or_else(|| self.stop("a whole number"))?;
        let expected = format!("a whole number from 0 to 2^{bits} - 1");
        let digits = self.take(&expected, DeValue::as_integer)?;
        let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        if let Some(number) = number.filter(|&number| number <= most) {
            self.note(SettingValue::Whole(number));
            return Ok(number);
        }
        let error = self.reader.source.wrong(&self.name, value, &expected);
        let setting = self.name.clone();
        self.reader.out_of_range.get_or_insert(OutOfRange { setting, value, error });
        Ok(self.reader.substitute & most)
    }

    /// Visits these entries. If `only` is given, others are rejected. An unknown entry is reported before a missing
    /// one: most often it is the same one, misspelt.
    fn visit<V: Visitor<'t>>(
        mut self,
        names: Vec<&'t str>,
        only: bool,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let found = self.found.value();
        let expected = found.map_or_else(|| format!("a table [{}]", self.name), |_| "a table".to_owned());
        self.take(&expected, DeValue::as_table)?;
        if only {
            names.iter().for_each(|key| drop(self.setting(key)));
        }
        let mut visited = Entries { node: self, names: names.into_iter(), key: "" };
        let result = visitor.visit_map(&mut visited);
        let node = visited.node;
        let settings = &node.reader.settings;
        let own = entries(node.reader.own(node.found));
        let unknown = own.into_iter().find(|(key, ..)| only && !settings.contains(&node.path(key)));
        match (result, unknown) {
            (Ok(_) | Err(Stop::Missing(_)), Some((key, at, _))) => {
                let known = settings.iter().filter_map(|name| name.strip_prefix(&node.path("")));
                let known: Vec<&str> = known.filter(|key| !key.contains('.')).collect();
                let message =
                    format!("{} is not a setting; expected one of {}", node.path(key), known.join(", "));
                Err(Stop::Refused(node.reader.source.refuse(&at, message)))
            }
            (Err(Stop::Missing(key)), None) if !key.contains('.') => Err(Stop::Missing(node.path(&key))),
            (result, _) => result,
        }
    }
}

impl<'t> Deserializer<'t> for Node<'_, 't> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_unit()
    }

    fn deserialize_bool<V: Visitor<'t>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let flag = self.take("true or false", DeValue::as_bool)?;
        self.note(SettingValue::Flag(flag));
        visitor.visit_bool(flag)
    }

    fn deserialize_u32<V: Visitor<'t>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_u64(self.whole(32)?)
    }

    fn deserialize_u64<V: Visitor<'t>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_u64(self.whole(64)?)
    }

    /// Reads a percentage.
    fn deserialize_f64<V: Visitor<'t>>(mut self, visitor: V) -> Result<V::Value, Stop> {
        let expected = (&visitor as &dyn Expected).to_string();
        match self.take(&expected, Some)? {
            DeValue::Integer(digits) => {
                let number = u64::from_str_radix(digits.as_str(), digits.radix());
                let number = number.map_err(|_| self.stop(&expected))?;
                self.note(SettingValue::Whole(number));
                visitor.visit_u64(number)
            }
            DeValue::Float(digits) => {
                let number = digits.as_str().parse().unwrap_or(f64::NAN);
                Percent::of_decimal(number).into_iter().for_each(|p| self.note(SettingValue::Percent(p)));
                visitor.visit_f64(number)
            }
            _ => Err(self.stop(&expected)),
        }
    }

    fn deserialize_string<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Stop> {
        let not_empty = |value: &'t DeValue<'t>| value.as_str().filter(|text| !text.trim().is_empty());
        visitor.visit_str(self.take("a non-empty string in quotes", not_empty)?)
    }

    fn deserialize_option<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Stop> {
        let texts = |value: &'t DeValue<'t>| {
            value.as_array()?.iter().map(|text| text.get_ref().as_str()).collect::<Option<Vec<_>>>()
        };
        let texts = self.take("a list of strings in quotes", texts)?;
        visitor.visit_seq(SeqDeserializer::new(texts.into_iter()))
    }

    fn deserialize_struct<V: Visitor<'t>>(
        self,
        _: &str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.visit(fields.to_vec(), true, visitor)
    }

    fn deserialize_map<V: Visitor<'t>>(self, visitor: V) -> Result<V::Value, Stop> {
        let Found { file, variant } = self.found;
        let keys: BTreeSet<&str> = entries(file).chain(entries(variant)).map(|(key, ..)| key).collect();
        self.visit(keys.into_iter().collect(), false, visitor)
    }

    fn deserialize_enum<V: Visitor<'t>>(
        mut self,
        name: &str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let by_kind = name == BY_KIND;
        let words: Vec<String> = variants.iter().map(|word| format!("\"{word}\"")).collect();
        let word = |node: &mut Node<'_, 't>| {
            let known = |value: &'t DeValue<'t>| value.as_str().filter(|word| variants.contains(word));
            let word = node.take(&words.join(", "), known)?;
            node.note(SettingValue::Word(word.to_owned()));
            Ok(word)
        };
        let word = if by_kind {
            self.take("a table", DeValue::as_table)?;
            word(&mut self.setting("kind"))?
        } else {
            word(&mut self)?
        };
        visitor.visit_enum(Choice { node: self, word, by_kind })
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'t>>
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char str bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

struct Entries<'r, 't> {
    node: Node<'r, 't>,
    names: std::vec::IntoIter<&'t str>,
    key: &'t str,
}

impl<'t> MapAccess<'t> for &mut Entries<'_, 't> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'t>>(&mut self, seed: K) -> Result<Option<K::Value>, Stop> {
        let node = &self.node;
        let missing = |key: &str| node.reader.missing.as_ref().is_some_and(|name| *name == node.path(key));
        let Some(key) = self.names.find(|key| node.found.get(key).value().is_some() || missing(key)) else {
            return Ok(None);
        };
        self.key = key;
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'t>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        seed.deserialize(self.node.entry(self.key)).map_err(|stop| match stop {
            Stop::Expected(words) => self.node.entry(self.key).stop(&words),
            stop => stop,
        })
    }
}

struct Choice<'r, 't> {
    node: Node<'r, 't>,
    word: &'t str,
    by_kind: bool,
}

impl<'t> EnumAccess<'t> for Choice<'_, 't> {
    type Error = Stop;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'t>>(self, seed: V) -> Result<(V::Value, Self), Stop> {
        let word: StrDeserializer<'_, Stop> = self.word.into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl<'t> VariantAccess<'t> for Choice<'_, 't> {
    type Error = Stop;

    fn unit_variant(self) -> Result<(), Stop> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'t>>(self, seed: T) -> Result<T::Value, Stop> {
        if self.by_kind {
            return seed.deserialize(self.node);
        }
        let Node { reader, name, parent, .. } = self.node;
        let table = name.rsplit_once('.').map_or("", |(table, _)| table).to_owned();
        let mut table = Node { reader, name: table, found: parent, parent };
        seed.deserialize(table.setting(self.word))
    }

    fn tuple_variant<V: Visitor<'t>>(self, _: usize, _: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("a setting"))
    }

    fn struct_variant<V: Visitor<'t>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.node.deserialize_struct("", fields, visitor)
    }
}

impl Contents {
    /// Returns the first missing setting among those that only a device without TRIM may omit.
    fn missing(&self, root: &Found) -> Option<String> {
        const ALWAYS: usize = 1;
        const SETTINGS: [&str; 10] = [
            "kind",
            "max_ranges",
            "max_units_per_range",
            "granularity_units",
            "cost_per_command_ns",
            "cost_per_range_ns",
            "cost_per_unit_ns",
            "place",
            "slowdown_percent",
            "read_after",
        ];
        let needed = if self.config.trim.is_supported() { SETTINGS.len() } else { ALWAYS };
        let trim = root.get("trim");
        let missing = SETTINGS[..needed].iter().find(|key| trim.get(key).value().is_none());
        missing.map(|key| format!("trim.{key}"))
    }
}
