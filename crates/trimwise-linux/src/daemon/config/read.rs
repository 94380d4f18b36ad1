//! Parses the files: every key, what it accepts, and where it appears.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use trimwise::policy::PolicySpec;
use trimwise::units::{Bytes, SimDuration};

use crate::text::is_unprintable;

use super::{Config, ConfigError, ConfigErrors, Manage, StatusFor, Treatment, seconds};

/// All top-level keys. The first [`OF_MOUNT`] are also valid in the table of a mount.
pub(crate) const KEYS: [&str; 15] = [
    "policy",
    "slice-ms",
    "untrimmed-max",
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
/// How many of them a mount may have.
const OF_MOUNT: usize = 7;

/// The file being read.
struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    errors: &'a mut Vec<ConfigError>,
}

/// Parses the texts of the files; later ones override earlier ones.
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
        let plain = |text: &str| text.replace(is_unprintable, " ");
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
                    self.choice(key, value, &choices, &mut config.manage);
                }
                "status" => {
                    let choices = [("group", StatusFor::Group), ("all", StatusFor::All)];
                    self.choice(key, value, &choices, &mut config.status);
                }
                "group" => {
                    self.text(key, value, "the name of a group, or \"\" for root alone", |text| {
                        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
                        plain.then(|| config.group = (!text.is_empty()).then(|| text.to_owned()))
                    });
                }
                "history-max" => self.size(key, value, 1 << 20..=1 << 40, &mut config.history_max),
                "tracepoints" => self.flag(key, value, &mut config.tracepoints),
                "metrics-listen" => {
                    let expected =
                        "a loopback address and port, such as \"127.0.0.1:9750\", or \"\" for none";
                    self.text(key, value, expected, |text| {
                        let address = (!text.is_empty()).then(|| text.parse::<SocketAddr>());
                        match address {
                            None => config.metrics_listen = None,
                            Some(Ok(address)) if address.ip().is_loopback() => {
                                config.metrics_listen = Some(address)
                            }
                            Some(_) => return None,
                        }
                        Some(())
                    });
                }
                "metrics-file" => self.path(key, value, &mut config.metrics_file),
                "metrics-socket" => self.path(key, value, &mut config.metrics_socket),
                _ => self.unknown(&name.span(), key, &KEYS),
            }
        }
    }

    fn path(&mut self, key: &str, value: &Spanned<DeValue<'_>>, to: &mut Option<PathBuf>) {
        self.text(key, value, "an absolute path, or \"\" for none", |text| {
            let path = (!text.is_empty()).then(|| PathBuf::from(text));
            let good = path.as_ref().is_none_or(|path| path.is_absolute());
            good.then(|| *to = path)
        });
    }

    fn unknown(&mut self, at: &Range<usize>, key: &str, keys: &[&str]) {
        let message = format!("unknown key; expected one of {}", keys.join(", "));
        self.refuse(at, key, message);
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
                    self.unknown(&name.span(), &full, &KEYS[..OF_MOUNT]);
                }
            }
            config.mounts.insert(PathBuf::from(point), treatment);
        }
    }

    fn treatment(&mut self, name: &str, key: &str, value: &Spanned<DeValue<'_>>, treatment: &mut Treatment) {
        let settings = &mut treatment.settings;
        match name {
            "policy" => self.policy(key, value, &mut treatment.policy),
            "slice-ms" => {
                if let Some(n) = self.number(key, value, 1, 10_000) {
                    settings.slice_target = SimDuration::from_millis(n);
                }
            }
            "untrimmed-max" => {
                if let Some(n) = self.number(key, value, 1, 100) {
                    settings.untrimmed_max_permille = n * 10;
                }
            }
            "pressure-max" => {
                if let Some(n) = self.number(key, value, 1, 101) {
                    settings.pressure_max_permille = n * 10;
                }
            }
            "look-every-s" => {
                if let Some(n) = self.number(key, value, 1, 86_400) {
                    settings.look_every = seconds(n);
                }
            }
            // A free extent of ext4 or XFS never exceeds a group, which is 128 MiB on ext4.
            "min-extent" => self.size(key, value, 0..=1 << 30, &mut treatment.min_extent),
            _ => self.flag(key, value, &mut settings.may_toggle),
        }
    }

    fn flag(&mut self, key: &str, value: &Spanned<DeValue<'_>>, into: &mut bool) {
        match value.get_ref().as_bool() {
            Some(flag) => *into = flag,
            None => self.not_accepted(key, value, "true or false"),
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
        match text.parse::<PolicySpec>() {
            Ok(policy) if policy.suits_live_host() => *into = policy,
            Ok(_) => {
                let message = format!("'{text}' cannot run on a live host; expected {expected}");
                self.refuse(&value.span(), key, message);
            }
            Err(error) => self.refuse(&value.span(), key, error.to_string()),
        }
    }

    fn number(&mut self, key: &str, value: &Spanned<DeValue<'_>>, least: u64, most: u64) -> Option<u64> {
        let digits = value.get_ref().as_integer();
        let number = digits.and_then(|digits| u64::from_str_radix(digits.as_str(), digits.radix()).ok());
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Some(number),
            None => {
                self.not_accepted(key, value, &format!("a whole number from {least} to {most}"));
                None
            }
        }
    }

    fn size(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        accepted: RangeInclusive<u64>,
        into: &mut Bytes,
    ) {
        let size = value.get_ref().as_str().and_then(|text| text.parse::<Bytes>().ok());
        match size.filter(|size| accepted.contains(&size.0)) {
            Some(size) => *into = size,
            None => {
                let [least, most] = [accepted.start(), accepted.end()].map(|&bytes| Bytes(bytes));
                let expected = format!("a size as text from {least} to {most}, such as \"16MiB\"");
                self.not_accepted(key, value, &expected);
            }
        }
    }

    fn choice<T: Copy>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        choices: &[(&str, T)],
        into: &mut T,
    ) {
        let found = value.get_ref().as_str().and_then(|text| choices.iter().find(|(name, _)| *name == text));
        match found {
            Some((_, choice)) => *into = *choice,
            None => {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
                self.not_accepted(key, value, &names.join(" or "));
            }
        }
    }

    fn text(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        expected: &str,
        mut take: impl FnMut(&str) -> Option<()>,
    ) {
        if value.get_ref().as_str().and_then(&mut take).is_none() {
            self.not_accepted(key, value, expected);
        }
    }
}
