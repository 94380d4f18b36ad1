//! Profiles: one SSD a file.
//!
//! A profile is a TOML file with a name, a description, every number of an [`SsdConfig`] with its unit in
//! the key, and a table `[sources]` that says where the numbers come from: a reference, a class of devices,
//! `assumed`, or `fitted`. A key of `[sources]` is a setting (`"nand.t_prog_ns"`) or a whole table (`nand`).
//!
//! A profile comes from a user, so that no text may panic the reader, and every refusal is one line that names
//! file, line, setting and value and says what is accepted. Here is checked what a *file* can have wrong
//! (syntax, unknown and missing settings, types); what a *device* cannot be is checked in
//! [`SsdConfig::validate`] alone, and gets its line here.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::ssd::{
    CacheConfig, ConfigError, ControllerConfig, GcConfig, GeometryConfig, LinkConfig, LinkKind, NandConfig,
    ReadAfterTrim, SsdConfig, TrimConfig, TrimKind, TrimPlace, VictimPolicy, WearLevellingConfig,
};

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        /// Name and text of the profiles that are part of the program, in the order in which they are listed.
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
    "bench-64gib",
);

/// Why a profile was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct ProfileError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1; where a setting is missing, the line of the table that it belongs to.
    pub line: usize,
    /// Setting and value, and what is accepted.
    pub message: String,
}

/// One SSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Short name, as given to `--device`.
    pub name: String,
    /// What kind of device this is, in a sentence.
    pub description: String,
    /// The checked numbers.
    pub config: SsdConfig,
    /// Where numbers come from: by setting (`nand.t_prog_ns`) or by table (`nand`).
    pub sources: BTreeMap<String, String>,
}

impl Profile {
    /// Reads a profile. `file` is used in messages only.
    ///
    /// # Errors
    ///
    /// The first thing that is not accepted, with its line.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            let mut message = error.message().lines().collect::<Vec<_>>().join("; ");
            if let ("duplicate key", Some(key)) = (message.as_str(), text.get(at.clone())) {
                message = format!("{}: the same key twice; expected it once", key.trim());
            }
            Reader::new(text, file, Substitute::Most).refuse(&at, message)
        })?;
        let attempt = |substitute| Self::read(&document, Reader::new(text, file, substitute));
        let (out_of_range, complaint) = match attempt(Substitute::Most) {
            Attempt::Done(result) => return *result,
            Attempt::OutOfRange(error, complaint) => (error, complaint),
        };
        // The largest number in its place was accepted, or another setting refused: the smallest may tell.
        let complaint = complaint.or_else(|| match attempt(Substitute::Least) {
            Attempt::OutOfRange(_, complaint) => complaint,
            Attempt::Done(_) => None,
        });
        Err(match complaint {
            Some(expected) => out_of_range.with(&expected),
            None => out_of_range.error,
        })
    }

    fn read(document: &Spanned<DeTable>, mut reader: Reader) -> Attempt {
        let parts = Self::read_parts(document, &mut reader);
        let (name, description, config, sources) = match parts {
            Ok(parts) => parts,
            Err(error) => return Attempt::Done(Box::new(Err(error))),
        };
        if let Some(missing) = reader.missing.take() {
            return Attempt::Done(Box::new(Err(missing)));
        }
        let valid = config.validate();
        if let Some(out_of_range) = reader.out_of_range.take() {
            let complaint = valid.err().filter(|e| e.field == out_of_range.setting).map(|e| e.expected);
            return Attempt::OutOfRange(out_of_range, complaint);
        }
        let result = valid
            .map_err(|error| reader.locate(&error))
            .and_then(|()| read_sources(sources, &mut reader))
            .map(|sources| Self { name, description, config, sources });
        Attempt::Done(Box::new(result))
    }

    fn read_parts<'t, 'i>(
        document: &'t Spanned<DeTable<'i>>,
        reader: &mut Reader,
    ) -> Result<(String, String, SsdConfig, Table<'t, 'i>), ProfileError> {
        let mut root = Table::new(Some(document.get_ref()), "", document.span());
        let name = root.word(reader, "name")?;
        let description = root.string(reader, "description")?;
        let config = read_config(&mut root, reader)?;
        let sources = root.table(reader, "sources")?;
        root.finish(reader)?;
        Ok((name, description, config, sources))
    }

    /// The embedded profile of that name.
    pub fn embedded(name: &str) -> Option<Self> {
        let (name, text) = EMBEDDED.iter().find(|(n, _)| *n == name)?;
        // A test reads them all, so that this cannot fail in a program that passed its tests.
        Self::parse(text, name).ok()
    }

    /// The text of the embedded profile of that name, to start one's own from.
    pub fn embedded_text(name: &str) -> Option<&'static str> {
        EMBEDDED.iter().find(|(n, _)| *n == name).map(|&(_, text)| text)
    }

    /// The names of the embedded profiles.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|&(name, _)| name)
    }

    /// Where a setting's value comes from: its own entry of `[sources]`, or that of its table.
    pub fn source(&self, setting: &str) -> Option<&str> {
        let own = self.sources.get(setting);
        let table = || setting.split_once('.').and_then(|(table, _)| self.sources.get(table));
        own.or_else(table).map(String::as_str)
    }

    /// The settings that were fitted to measurements, instead of taken from a source.
    pub fn fitted(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().filter(|(_, source)| source.starts_with("fitted")).map(|(key, _)| key.as_str())
    }
}

fn read_config(root: &mut Table, r: &mut Reader) -> Result<SsdConfig, ProfileError> {
    let capacity_bytes = root.u64(r, "capacity_bytes")?;
    let over_provisioning_percent = root.optional_u32(r, "over_provisioning_percent")?;

    let mut t = root.table(r, "geometry")?;
    let geometry = GeometryConfig {
        channels: t.u32(r, "channels")?,
        dies_per_channel: t.u32(r, "dies_per_channel")?,
        planes_per_die: t.u32(r, "planes_per_die")?,
        blocks_per_plane: t.optional_u32(r, "blocks_per_plane")?,
        pages_per_block: t.u32(r, "pages_per_block")?,
        page_bytes: t.u32(r, "page_bytes")?,
        superblock_planes: t.u32(r, "superblock_planes")?,
    };
    t.finish(r)?;

    let mut t = root.table(r, "nand")?;
    let nand = NandConfig {
        t_read_ns: t.u64(r, "t_read_ns")?,
        t_prog_ns: t.u64(r, "t_prog_ns")?,
        t_erase_ns: t.u64(r, "t_erase_ns")?,
        bus_bytes_per_s: t.u64(r, "bus_bytes_per_s")?,
        endurance_cycles: t.u32(r, "endurance_cycles")?,
    };
    t.finish(r)?;

    let mut t = root.table(r, "link")?;
    let kinds = [("sata", LinkKind::Sata), ("nvme", LinkKind::Nvme), ("ufs", LinkKind::Ufs)];
    let link = LinkConfig {
        kind: t.one_of(r, "kind", &kinds)?,
        bytes_per_s: t.u64(r, "bytes_per_s")?,
        overhead_per_command_ns: t.u64(r, "overhead_per_command_ns")?,
        queue_depth: t.u32(r, "queue_depth")?,
    };
    t.finish(r)?;

    let mut t = root.table(r, "controller")?;
    let controller = ControllerConfig {
        read_overhead_ns: t.u64(r, "read_overhead_ns")?,
        write_overhead_ns: t.u64(r, "write_overhead_ns")?,
        write_bytes_per_s: t.optional_u64(r, "write_bytes_per_s")?,
        read_ahead_bytes: t.optional_u64(r, "read_ahead_bytes")?.unwrap_or(0),
    };
    t.finish(r)?;

    let mut t = root.table(r, "cache")?;
    let cache = CacheConfig {
        bytes: t.u64(r, "bytes")?,
        volatile: t.bool(r, "volatile")?,
        flush_ns: t.u64(r, "flush_ns")?,
    };
    t.finish(r)?;

    let gc = read_gc(root, r)?;

    let mut t = root.table(r, "wear_levelling")?;
    let wear_levelling = WearLevellingConfig {
        threshold_erases: t.optional_u32(r, "threshold_erases")?,
        interval_erases: t.u32(r, "interval_erases")?,
    };
    t.finish(r)?;

    let trim = read_trim(root, r)?;
    Ok(SsdConfig {
        capacity_bytes,
        over_provisioning_percent,
        geometry,
        nand,
        mapping: crate::ssd::MappingConfig::default(),
        slc: None,
        link,
        controller,
        cache,
        gc,
        wear_levelling,
        trim,
        track_tags: false,
    })
}

fn read_gc(root: &mut Table, r: &mut Reader) -> Result<GcConfig, ProfileError> {
    let mut t = root.table(r, "gc")?;
    let victims = [
        ("greedy", VictimPolicy::Greedy),
        ("cost_benefit", VictimPolicy::CostBenefit),
        ("d_choices", VictimPolicy::DChoices(0)),
        ("fifo", VictimPolicy::Fifo),
    ];
    let mut victim = t.one_of(r, "victim", &victims)?;
    if let VictimPolicy::DChoices(d) = &mut victim {
        *d = t.u32(r, "d_choices")?;
    }
    let gc = GcConfig {
        victim,
        shared_frontier: t.bool(r, "shared_frontier")?,
        host_frontiers: t.u32(r, "host_frontiers")?,
        free_superblocks_min: t.u32(r, "free_superblocks_min")?,
        idle: t.bool(r, "idle")?,
        idle_threshold_ns: t.u64(r, "idle_threshold_ns")?,
        idle_free_superblocks: t.u32(r, "idle_free_superblocks")?,
    };
    t.finish(r)?;
    Ok(gc)
}

fn read_trim(root: &mut Table, r: &mut Reader) -> Result<TrimConfig, ProfileError> {
    let mut t = root.table(r, "trim")?;
    let kinds = [
        ("unsupported", TrimKind::Unsupported),
        ("ata_non_queued", TrimKind::AtaNonQueued),
        ("ata_queued", TrimKind::AtaQueued),
        ("nvme", TrimKind::Nvme),
        ("ufs", TrimKind::Ufs),
    ];
    let places = [("before_ack", TrimPlace::BeforeAck), ("background", TrimPlace::Background)];
    let reads = [
        ("zeros", ReadAfterTrim::Zeros),
        ("old", ReadAfterTrim::Old),
        ("undefined", ReadAfterTrim::Undefined),
    ];
    let trim = TrimConfig {
        kind: t.one_of(r, "kind", &kinds)?,
        max_ranges: t.u32(r, "max_ranges")?,
        max_units_per_range: t.u32(r, "max_units_per_range")?,
        granularity_units: t.u32(r, "granularity_units")?,
        cost_per_command_ns: t.u64(r, "cost_per_command_ns")?,
        cost_per_range_ns: t.u64(r, "cost_per_range_ns")?,
        cost_per_unit_ns: t.u64(r, "cost_per_unit_ns")?,
        cost_per_mapped_unit_ns: t.optional_u64(r, "cost_per_mapped_unit_ns")?.unwrap_or(0),
        latency_per_command_ns: t.optional_u64(r, "latency_per_command_ns")?.unwrap_or(0),
        place: t.one_of(r, "place", &places)?,
        slowdown_percent: t.u32(r, "slowdown_percent")?,
        read_after: t.one_of(r, "read_after", &reads)?,
    };
    t.finish(r)?;
    Ok(trim)
}

fn read_sources(mut t: Table, r: &mut Reader) -> Result<BTreeMap<String, String>, ProfileError> {
    let mut sources = BTreeMap::new();
    let settings = std::mem::take(&mut r.settings);
    for (key, _) in t.table.into_iter().flatten() {
        let name: &str = key.get_ref();
        if !settings.contains(name) {
            let message =
                format!("sources.{name} names no setting; expected a setting or a table of this profile");
            return Err(r.refuse(&key.span(), message));
        }
        sources.insert(name.to_owned(), t.string(r, name)?);
    }
    Ok(sources)
}

/// What came of reading the text once.
enum Attempt {
    Done(Box<Result<Profile, ProfileError>>),
    /// A number is outside of what its type can hold. If the device refused its substitute: what it accepts.
    OutOfRange(OutOfRange, Option<String>),
}

/// What stands in for a number that its type cannot hold, so that the device can say what it accepts.
#[derive(Clone, Copy)]
enum Substitute {
    Least,
    Most,
}

/// A number that its type cannot hold.
struct OutOfRange {
    setting: String,
    found: String,
    error: ProfileError,
}

impl OutOfRange {
    /// The error, saying what this setting accepts.
    fn with(self, expected: &str) -> ProfileError {
        let message = format!("{}: {} is not accepted; expected {expected}", self.setting, self.found);
        ProfileError { message, ..self.error }
    }
}

/// What messages need: the text, its name, and where each setting stands.
struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    lines: BTreeMap<String, Range<usize>>,
    /// The settings that there are, set or not.
    settings: BTreeSet<String>,
    /// The first setting that is missing. What is there and unknown is reported before it: most often that is the
    /// same setting, misspelt.
    missing: Option<ProfileError>,
    /// The first number that its type cannot hold.
    out_of_range: Option<OutOfRange>,
    substitute: Substitute,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, file: &'a str, substitute: Substitute) -> Self {
        Self {
            text,
            file,
            lines: BTreeMap::new(),
            settings: BTreeSet::new(),
            missing: None,
            out_of_range: None,
            substitute,
        }
    }

    fn refuse(&self, at: &Range<usize>, message: impl Into<String>) -> ProfileError {
        let end = at.start.min(self.text.len());
        let line = 1 + self.text.as_bytes()[..end].iter().filter(|&&b| b == b'\n').count();
        ProfileError { file: self.file.to_owned(), line, message: message.into() }
    }

    /// Gives a device's complaint the line of the setting, or of its table.
    fn locate(&self, error: &ConfigError) -> ProfileError {
        let table = error.field.split_once('.').map_or("", |(table, _)| table);
        let at = self.lines.get(error.field).or_else(|| self.lines.get(table)).cloned().unwrap_or(0..0);
        self.refuse(&at, error.to_string())
    }
}

/// A table being read; what is left at the end is unknown.
struct Table<'t, 'i> {
    /// `None` if it is missing.
    table: Option<&'t DeTable<'i>>,
    /// Dotted name with a trailing dot; empty for the root.
    prefix: String,
    span: Range<usize>,
    read: Vec<String>,
}

impl<'t, 'i> Table<'t, 'i> {
    fn new(table: Option<&'t DeTable<'i>>, prefix: &str, span: Range<usize>) -> Self {
        Self { table, prefix: prefix.to_owned(), span, read: Vec::new() }
    }

    fn optional(&mut self, reader: &mut Reader, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.read.push(key.to_owned());
        reader.settings.insert(format!("{}{key}", self.prefix));
        let value = self.table?.get(key)?;
        reader.lines.insert(format!("{}{key}", self.prefix), value.span());
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
        if let Some(number) = number.and_then(|n| N::try_from(n).ok()) {
            return Ok(number);
        }
        let substitute = match reader.substitute {
            Substitute::Least => 0,
            Substitute::Most => u64::MAX >> (64 - bits),
        };
        let error = error();
        if reader.out_of_range.is_none() {
            let found = reader.text.get(value.span()).unwrap_or("this value").to_owned();
            let setting = format!("{}{key}", self.prefix);
            reader.out_of_range = Some(OutOfRange { setting, found, error: error.clone() });
        }
        N::try_from(substitute).map_err(|_| error)
    }

    fn u64(&mut self, reader: &mut Reader, key: &str) -> Result<u64, ProfileError> {
        let value = self.required(reader, key, "a whole number");
        value.map_or(Ok(0), |value| self.whole(reader, key, value))
    }

    fn u32(&mut self, reader: &mut Reader, key: &str) -> Result<u32, ProfileError> {
        let value = self.required(reader, key, "a whole number");
        value.map_or(Ok(0), |value| self.whole(reader, key, value))
    }

    fn optional_u64(&mut self, reader: &mut Reader, key: &str) -> Result<Option<u64>, ProfileError> {
        self.optional(reader, key).map(|value| self.whole(reader, key, value)).transpose()
    }

    fn optional_u32(&mut self, reader: &mut Reader, key: &str) -> Result<Option<u32>, ProfileError> {
        self.optional(reader, key).map(|value| self.whole(reader, key, value)).transpose()
    }

    fn bool(&mut self, reader: &mut Reader, key: &str) -> Result<bool, ProfileError> {
        const EXPECTED: &str = "true or false";
        let Some(value) = self.required(reader, key, EXPECTED) else { return Ok(false) };
        value.get_ref().as_bool().ok_or_else(|| self.wrong(reader, key, value, EXPECTED))
    }

    fn string(&mut self, reader: &mut Reader, key: &str) -> Result<String, ProfileError> {
        const EXPECTED: &str = "a text in quotes that is not empty";
        let Some(value) = self.required(reader, key, EXPECTED) else { return Ok(String::new()) };
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
            _ => Err(self.wrong(reader, key, value, EXPECTED)),
        }
    }

    /// A text for tables and file names: it must not move the cursor of a terminal.
    fn word(&mut self, reader: &mut Reader, key: &str) -> Result<String, ProfileError> {
        let text = self.string(reader, key)?;
        match self.table.and_then(|table| table.get(key)) {
            Some(value) if text.chars().any(char::is_control) => {
                Err(self.wrong(reader, key, value, "a text without control characters"))
            }
            _ => Ok(text),
        }
    }

    fn one_of<T: Copy>(
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
        choice.map(|&(_, choice)| choice).ok_or_else(|| self.wrong(reader, key, value, &expected))
    }

    fn table(&mut self, reader: &mut Reader, key: &str) -> Result<Table<'t, 'i>, ProfileError> {
        let prefix = format!("{}{key}.", self.prefix);
        let Some(value) = self.required(reader, key, &format!("a table [{key}]")) else {
            return Ok(Table::new(None, &prefix, self.span.clone()));
        };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Table::new(Some(table), &prefix, value.span())),
            _ => Err(self.wrong(reader, key, value, "a table")),
        }
    }

    /// Refuses what nobody asked for.
    fn finish(&self, reader: &Reader) -> Result<(), ProfileError> {
        for (key, _) in self.table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if !self.read.iter().any(|read| read == name) {
                let message = format!(
                    "{}{name} is not a setting; expected one of {}",
                    self.prefix,
                    self.read.join(", ")
                );
                return Err(reader.refuse(&key.span(), message));
            }
        }
        Ok(())
    }
}
