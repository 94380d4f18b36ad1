//! Parses the files. Defines every key, the values that it accepts, and where it may appear.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use trimwise::failure::cut;
use trimwise::policy::PolicySpec;
use trimwise::spelling::Accepted;
use trimwise::units::{Bytes, SimDuration};

use crate::text::is_unprintable;

use super::{Config, ConfigError, ConfigErrors, Manage, Purpose, StatusFor, Treatment, seconds};

/// The first [`OF_MOUNT`] are also valid in the table of a mount.
pub(crate) const KEYS: [&str; 18] = [
    "policy",
    "slice-ms",
    "untrimmed-max",
    "purpose",
    "held-max",
    "held-for-max-s",
    "pressure-max",
    "min-extent",
    "look-every-s",
    "toggle",
    "manage",
    "group",
    "status",
    "history-max",
    "tracepoints",
    "metrics-listen",
    "metrics-socket",
    "metrics-file",
];
const OF_MOUNT: usize = 10;

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    errors: &'a mut Vec<ConfigError>,
}

pub fn parse(texts: &[(PathBuf, String)]) -> Result<Config, ConfigErrors> {
    let mut config = Config::default();
    let mut errors = Vec::new();
    let mut mounts = Vec::new();
    for (file, text) in texts {
        let mut reader = Reader { file, text, errors: &mut errors };
        match DeTable::parse(text) {
            Ok(table) => {
                reader.root(table.get_ref(), &mut config);
                mounts.push((file, text, table));
            }
            Err(error) => reader.refuse(&error.span().unwrap_or(0..0), "", error.message()),
        }
    }
    // After the rest: a mount inherits the top-level settings of all files.
    for (file, text, table) in &mounts {
        let mut reader = Reader { file, text, errors: &mut errors };
        let tables = table.get_ref().iter().filter(|(key, _)| key.get_ref() == "mount");
        tables.for_each(|(key, value)| reader.mounts(&key.span(), value.get_ref(), &mut config));
    }
    for (file, text, table) in &mounts {
        Reader { file, text, errors: &mut errors }.without_effect(table.get_ref(), &config);
    }
    // Tables come sorted by key; report errors in line order.
    let of = |error: &ConfigError| texts.iter().position(|(file, _)| *file == error.file);
    errors.sort_by_key(|error| (of(error), error.line));
    if errors.is_empty() { Ok(config) } else { Err(ConfigErrors(errors)) }
}

impl Reader<'_> {
    fn refuse(&mut self, at: &Range<usize>, key: &str, message: impl Into<String>) {
        let end = at.start.min(self.text.len());
        let line = 1 + self.text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count();
        // One line per error, whatever the file contains.
        let plain = |text: &str| cut(text).replace(is_unprintable, " ");
        let message: String = message.into();
        let (key, message) = (plain(key), plain(&message));
        self.errors.push(ConfigError { file: self.file.to_owned(), line, key, message });
    }

    fn root(&mut self, table: &DeTable<'_>, config: &mut Config) {
        for (name, value) in table {
            let key = name.get_ref().as_ref();
            match key {
                "mount" => {}
                key if KEYS[..OF_MOUNT].contains(&key) => {
                    self.treatment(key, key, value, &mut config.default)
                }
                "manage" => {
                    let choices = [("all", Manage::All), ("listed", Manage::Listed)];
                    self.choice(key, value, &choices, |manage| config.manage = manage);
                }
                "status" => {
                    let choices = [("group", StatusFor::Group), ("all", StatusFor::All)];
                    self.choice(key, value, &choices, |status| config.status = status);
                }
                "group" => {
                    let expected = "the name of a group, or \"\" for root alone";
                    self.take(key, value, expected, group, |group| config.group = group);
                }
                "history-max" => self.size(key, value, 1 << 20..=1 << 40, |size| config.history_max = size),
                "tracepoints" => self.flag(key, value, |flag| config.tracepoints = flag),
                "metrics-listen" => {
                    let expected =
                        "a loopback address and port, such as \"127.0.0.1:9750\", or \"\" for none";
                    self.take(key, value, expected, loopback, |address| config.metrics_listen = address);
                }
                "metrics-file" => self.take(key, value, PATH, path, |path| config.metrics_file = path),
                "metrics-socket" => self.take(key, value, PATH, path, |path| config.metrics_socket = path),
                _ => {
                    let all = [&KEYS[..], &["mount"]].concat();
                    self.refuse(&name.span(), key, format!("unknown key; {}", Accepted::one_of(key, &all)));
                }
            }
        }
    }

    fn mounts(&mut self, at: &Range<usize>, value: &DeValue<'_>, config: &mut Config) {
        let Some(tables) = value.as_table() else {
            return self.refuse(at, "mount", "expected tables such as [mount.\"/home\"]");
        };
        for (name, table) in tables {
            let (point, key) = (name.get_ref().as_ref(), format!("mount.\"{}\"", name.get_ref()));
            let normal = point.starts_with('/')
                && !point.contains("//")
                && (point == "/" || !point.ends_with('/'))
                && !point.split('/').any(|part| part == "." || part == "..");
            if !normal {
                let expected =
                    "expected an absolute path without `.`, `..`, double slashes or a trailing slash";
                self.refuse(&name.span(), &key, expected);
            }
            let Some(entries) = table.get_ref().as_table() else {
                self.refuse(&name.span(), &key, "expected a table");
                continue;
            };
            let mut treatment = config.mounts.get(Path::new(point)).copied().unwrap_or(config.default);
            for (name, value) in entries {
                let (entry, full) = (name.get_ref().as_ref(), format!("{key}.{}", name.get_ref()));
                if KEYS[..OF_MOUNT].contains(&entry) {
                    self.treatment(entry, &full, value, &mut treatment);
                } else {
                    let accepted = Accepted::one_of(entry, &KEYS[..OF_MOUNT]);
                    self.refuse(&name.span(), &full, format!("unknown key of a mount; {accepted}"));
                }
            }
            config.mounts.insert(PathBuf::from(point), treatment);
        }
    }

    /// Refuses settings for space where nothing is trimmed for space. Called when all files are read.
    fn without_effect(&mut self, table: &DeTable<'_>, config: &Config) {
        let of_mounts = table.get("mount").and_then(|mounts| mounts.get_ref().as_table());
        let of_mounts = of_mounts.into_iter().flatten().filter_map(|(point, table)| {
            let point = point.get_ref().as_ref();
            let treatment = config.mounts.get(Path::new(point))?;
            Some((format!("mount.\"{point}\"."), table.get_ref().as_table()?, vec![treatment]))
        });
        // Mounts inherit what is set for all.
        let all = [&config.default].into_iter().chain(config.mounts.values()).collect();
        for (prefix, table, treatments) in [(String::new(), table, all)].into_iter().chain(of_mounts) {
            let is_flash = treatments.iter().all(|one| one.purpose == Purpose::Flash);
            let is_space = |one: &&&Treatment| one.purpose == Purpose::Space;
            let is_off = !treatments.iter().filter(is_space).any(|one| one.policy.needs_trim());
            for (name, value) in table {
                let key = name.get_ref().as_ref();
                let why = match key {
                    "held-max" | "held-for-max-s" if is_flash => {
                        "has no effect with purpose \"flash\"; expected purpose \"space\" or \"auto\", or none of it"
                    }
                    "purpose" if is_off && value.get_ref().as_str() == Some("space") => {
                        "\"space\" has no effect with policy 'off'; expected another policy, or purpose \"auto\""
                    }
                    _ => continue,
                };
                self.refuse(&name.span(), &format!("{prefix}{key}"), why);
            }
        }
    }

    fn treatment(&mut self, name: &str, key: &str, value: &Spanned<DeValue<'_>>, treatment: &mut Treatment) {
        let settings = &mut treatment.settings;
        match name {
            "policy" => self.policy(key, value, &mut treatment.policy),
            "slice-ms" => self.number(key, value, 1..=10_000, |n| {
                settings.slice_target = SimDuration::from_millis(n);
            }),
            "untrimmed-max" => self.number(key, value, 1..=100, |n| settings.untrimmed_max_permille = n * 10),
            "purpose" => {
                let choices = [("auto", Purpose::Auto), ("flash", Purpose::Flash), ("space", Purpose::Space)];
                self.choice(key, value, &choices, |purpose| treatment.purpose = purpose);
            }
            "held-max" => {
                self.number(key, value, 1..=100, |n| treatment.lent.held_max_permille = n * 10);
            }
            "held-for-max-s" => {
                self.number(key, value, 600..=31_536_000, |n| treatment.lent.held_for_max = seconds(n));
            }
            "pressure-max" => self.number(key, value, 1..=101, |n| settings.pressure_max_permille = n * 10),
            "look-every-s" => self.number(key, value, 1..=86_400, |n| settings.look_every = seconds(n)),
            // A free extent of ext4 or XFS never exceeds a group, which is 128 MiB on ext4.
            "min-extent" => self.size(key, value, 0..=1 << 30, |size| treatment.min_extent = size),
            _ => self.flag(key, value, |flag| settings.may_toggle = flag),
        }
    }

    fn not_accepted(&mut self, key: &str, value: &Spanned<DeValue<'_>>, expected: &str) {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("'{}'", text.chars().take(100).collect::<String>()),
            _ => self.text.get(value.span()).unwrap_or_default().chars().take(100).collect(),
        };
        self.refuse(&value.span(), key, format!("{found} is not accepted; expected {expected}"));
    }

    fn policy(&mut self, key: &str, value: &Spanned<DeValue<'_>>, into: &mut PolicySpec) {
        let expected = "a policy such as \"judicious\", \"set:40:90\", \"batch:1w\", \"lazy\" or \"off\"";
        let Some(text) = value.get_ref().as_str() else { return self.not_accepted(key, value, expected) };
        match PolicySpec::parse_live(text) {
            Ok(policy) => *into = policy,
            Err(error) => self.refuse(&value.span(), key, error.to_string()),
        }
    }

    /// Parses `value` and passes the result to `set`, or records an error that says what was expected.
    fn take<T>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        expected: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
        set: impl FnOnce(T),
    ) {
        match parse(value.get_ref()) {
            Some(parsed) => set(parsed),
            None => self.not_accepted(key, value, expected),
        }
    }

    fn flag(&mut self, key: &str, value: &Spanned<DeValue<'_>>, set: impl FnOnce(bool)) {
        self.take(key, value, "true or false", |value| value.as_bool(), set);
    }

    fn number(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        accepted: RangeInclusive<u64>,
        set: impl FnOnce(u64),
    ) {
        let expected = format!("a whole number from {} to {}", accepted.start(), accepted.end());
        let parse = |value: &DeValue<'_>| {
            let digits = value.as_integer()?;
            u64::from_str_radix(digits.as_str(), digits.radix()).ok().filter(|n| accepted.contains(n))
        };
        self.take(key, value, &expected, parse, set);
    }

    fn size(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        accepted: RangeInclusive<u64>,
        set: impl FnOnce(Bytes),
    ) {
        let [least, most] = [accepted.start(), accepted.end()].map(|&bytes| Bytes(bytes));
        let expected = format!("a size as text from {least} to {most}, such as \"16MiB\"");
        let parse = |value: &DeValue<'_>| value.as_str()?.parse::<Bytes>().ok();
        self.take(key, value, &expected, |value| parse(value).filter(|size| accepted.contains(&size.0)), set);
    }

    fn choice<T: Copy>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        choices: &[(&str, T)],
        set: impl FnOnce(T),
    ) {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let parse = |value: &DeValue<'_>| {
            let found = value.as_str()?;
            choices.iter().find(|(name, _)| *name == found).map(|(_, choice)| *choice)
        };
        self.take(key, value, &names.join(" or "), parse, set);
    }
}

fn group(value: &DeValue<'_>) -> Option<Option<String>> {
    let text = value.as_str()?;
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    is_plain.then(|| (!text.is_empty()).then(|| text.to_owned()))
}

fn loopback(value: &DeValue<'_>) -> Option<Option<SocketAddr>> {
    match value.as_str()? {
        "" => Some(None),
        text => text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback()).map(Some),
    }
}

const PATH: &str = "an absolute path, or \"\" for none";

fn path(value: &DeValue<'_>) -> Option<Option<PathBuf>> {
    match value.as_str()? {
        "" => Some(None),
        text => Some(PathBuf::from(text)).filter(|path| path.is_absolute()).map(Some),
    }
}
