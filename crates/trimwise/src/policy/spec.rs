//! Policies as they are written: `off`, `set:40:90`, `set:40:90+lazy+reuse`.
//!
//! A policy is a list of terms joined with `+`. One of them says who issues TRIMs and when (`commit` if none
//! does); `set` is a gate before it; the others change how the issuer works. The order is free, and
//! [`PolicySpec`]'s `Display` writes them in one order.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::batch::{Batch, BatchConfig};
use super::judicious::Judicious;
use super::lazy::{Lazy, LazyConfig};
use super::set::{Set, SetConfig};
use super::{Btrfs, Commit, DiscardGeneration, F2fs, Governor, Ideal, Off, Zfs};
use crate::units::{Bytes, SimDuration, UNIT_BYTES};

/// A policy as it is written; builds a fresh governor for each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    gate: Option<SetConfig>,
    issuer: Issuer,
}

/// Who issues TRIMs, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Issuer {
    Off,
    Commit,
    Kernel515,
    Lazy(LazyConfig),
    Batch(BatchConfig),
    Btrfs,
    Zfs,
    F2fs,
    Judicious,
    Ideal,
}

/// The terms there are, with their arguments and what they mean, for help texts.
pub const TERMS: [(&str, &str); 15] = [
    ("off", "never"),
    ("commit", "at every commit, as the host's Linux does with the mount option discard"),
    ("kernel515", "as Linux 5.15 and later: one background worker after the commit"),
    ("set:LOW:HIGH[:WINDOW[:CHANGE]]", "on above HIGH %, off below LOW %, between them on unless use rises"),
    ("catchup", "with set: when it turns on, what was freed while it was off is trimmed too"),
    ("lazy[:MIN:MAX]", "from a queue, by MIN to MAX background workers"),
    ("reuse", "with lazy: allocations take blocks out of the queue"),
    ("merge", "with lazy: neighbouring extents of different commits become one"),
    ("fill", "with lazy: as many extents in a command as the device takes"),
    ("backoff", "with lazy: only while nothing else is in the device"),
    ("batch:EVERY[:SMALLEST]", "all free space at intervals (10m, 1w), as fstrim does"),
    ("btrfs, zfs, f2fs", "as these file systems do it: discard=async, autotrim, background discard"),
    ("judicious", "the default to ship: set, lazy, reuse, merge, fill and back-off, paced by what it costs"),
    ("ideal", "the device knows at once and for free: a bound, never recommended"),
    ("TERM+TERM", "terms together, as in set:40:90+lazy+reuse"),
];

impl PolicySpec {
    /// Never TRIM.
    pub const OFF: Self = Self::plain(Issuer::Off);
    /// TRIM at every commit, as Linux's `discard` option does.
    pub const COMMIT: Self = Self::plain(Issuer::Commit);
    /// The default to ship.
    pub const JUDICIOUS: Self = Self::plain(Issuer::Judicious);
    /// The device knows at once and for free.
    pub const IDEAL: Self = Self::plain(Issuer::Ideal);

    const fn plain(issuer: Issuer) -> Self {
        Self { gate: None, issuer }
    }

    /// One of every kind, for tests that must hold under all of them.
    pub fn examples() -> Vec<Self> {
        const TEXTS: [&str; 15] = [
            "off",
            "commit",
            "kernel515",
            "set:40:90",
            "set:40:90+catchup",
            "lazy",
            "lazy+reuse",
            "lazy:2:4+reuse+merge+fill+backoff",
            "set:40:90+lazy+reuse",
            "batch:10s",
            "btrfs",
            "zfs",
            "f2fs",
            "judicious",
            "ideal",
        ];
        TEXTS.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// Whether a real host could use it; `ideal` is only a bound and never recommended.
    pub fn is_usable(self) -> bool {
        !self.governor().needs().oracle
    }

    /// Whether it gains by commands of several ranges, which stock Linux sends on NVMe only.
    pub fn fills_commands(self) -> bool {
        self.governor().needs().fills_commands
    }

    /// A governor in its initial state.
    pub fn governor(self) -> Box<dyn Governor> {
        let issuer: Box<dyn Governor> = match self.issuer {
            Issuer::Off => Box::new(Off),
            Issuer::Commit => Box::<Commit>::default(),
            Issuer::Kernel515 => Box::new(Commit::of(DiscardGeneration::Worker)),
            Issuer::Lazy(config) => Box::new(Lazy::new(config)),
            Issuer::Batch(config) => Box::new(Batch::new(config)),
            Issuer::Btrfs => Box::<Btrfs>::default(),
            Issuer::Zfs => Box::<Zfs>::default(),
            Issuer::F2fs => Box::<F2fs>::default(),
            Issuer::Judicious => Box::<Judicious>::default(),
            Issuer::Ideal => Box::new(Ideal),
        };
        match self.gate {
            Some(config) => Box::new(Set::new(config, issuer)),
            None => issuer,
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms: Vec<String> = Vec::new();
        if let Some(set) = self.gate {
            let default = SetConfig::new(set.low_percent, set.high_percent);
            let mut term = format!("set:{}:{}", set.low_percent, set.high_percent);
            if (set.window, set.hysteresis_permille) != (default.window, default.hysteresis_permille) {
                term += &format!(":{}", Duration(set.window));
            }
            if set.hysteresis_permille != default.hysteresis_permille {
                term += &format!(":{}.{}", set.hysteresis_permille / 10, set.hysteresis_permille % 10);
            }
            terms.push(term);
            terms.extend(set.catch_up.then(|| "catchup".to_owned()));
        }
        match self.issuer {
            Issuer::Commit if self.gate.is_some() => {}
            Issuer::Lazy(lazy) => {
                let default = LazyConfig::default();
                let workers = (lazy.workers_min, lazy.workers_max);
                terms.push(if workers == (default.workers_min, default.workers_max) {
                    "lazy".to_owned()
                } else {
                    format!("lazy:{}:{}", lazy.workers_min, lazy.workers_max)
                });
                let LazyConfig { reuse, merge, fill, back_off, .. } = lazy;
                for (set, name) in [(reuse, "reuse"), (merge, "merge"), (fill, "fill"), (back_off, "backoff")]
                {
                    terms.extend(set.then(|| name.to_owned()));
                }
            }
            Issuer::Batch(batch) if batch.units_min <= 1 => {
                terms.push(format!("batch:{}", Duration(batch.every)));
            }
            Issuer::Batch(batch) => terms.push(format!(
                "batch:{}:{}KiB",
                Duration(batch.every),
                batch.units_min * UNIT_BYTES / 1024
            )),
            Issuer::Off => terms.push("off".to_owned()),
            Issuer::Commit => terms.push("commit".to_owned()),
            Issuer::Kernel515 => terms.push("kernel515".to_owned()),
            Issuer::Btrfs => terms.push("btrfs".to_owned()),
            Issuer::Zfs => terms.push("zfs".to_owned()),
            Issuer::F2fs => terms.push("f2fs".to_owned()),
            Issuer::Judicious => terms.push("judicious".to_owned()),
            Issuer::Ideal => terms.push("ideal".to_owned()),
        }
        f.pad(&terms.join("+"))
    }
}

/// A policy that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("policy '{given}', column {column}: {what}; expected {expected}")]
pub struct PolicyError {
    /// What was written.
    pub given: String,
    /// Where it stops making sense, from 1, in characters.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
    /// What would be accepted.
    pub expected: String,
}

/// A part of the text with its place.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    text: &'a str,
    /// Bytes before it.
    at: usize,
}

impl<'a> Part<'a> {
    fn split(self, by: char) -> impl Iterator<Item = Part<'a>> {
        self.text.split(by).scan(self.at, move |at, text| {
            let part = Part { text, at: *at };
            *at += text.len() + by.len_utf8();
            Some(part)
        })
    }
}

/// What was wrong, and where.
struct Wrong {
    at: usize,
    what: String,
    expected: String,
}

fn wrong<T>(at: usize, what: impl Into<String>, expected: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { at, what: what.into(), expected: expected.into() })
}

fn number(part: Part<'_>, least: u64, most: u64, name: &str) -> Result<u64, Wrong> {
    let digits = !part.text.is_empty() && part.text.bytes().all(|b| b.is_ascii_digit());
    match part.text.parse() {
        Ok(n) if digits && (least..=most).contains(&n) => Ok(n),
        _ => wrong(
            part.at,
            format!("{name} '{}'", part.text),
            format!("a whole number from {least} to {most}"),
        ),
    }
}

/// A length of time as policies write it.
struct Duration(SimDuration);

/// Units of time, from the longest.
const TIME_UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (name, unit) =
            TIME_UNITS.into_iter().find(|(_, unit)| ns.is_multiple_of(*unit)).unwrap_or(("ms", 1_000_000));
        write!(f, "{}{name}", ns / unit)
    }
}

fn duration(part: Part<'_>, name: &str) -> Result<SimDuration, Wrong> {
    let digits = part.text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = part.text.split_at(digits);
    let unit = TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns);
    // A century is enough for every timer, and leaves room for adding it to an instant.
    const MOST_NS: u64 = 3_153_600_000_000_000_000;
    match (count.parse::<u64>(), unit) {
        (Ok(n), Some(unit)) if n > 0 && n.checked_mul(unit).is_some_and(|ns| ns <= MOST_NS) => {
            Ok(SimDuration::from_nanos(n * unit))
        }
        _ => wrong(
            part.at,
            format!("{name} '{}'", part.text),
            "a whole number above 0 with a unit: 500ms, 30s, 10m, 6h, 1d, 1w",
        ),
    }
}

fn extent_size(part: Part<'_>) -> Result<u64, Wrong> {
    const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let digits = part.text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = part.text.split_at(digits);
    let bytes = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, bytes)| count.parse::<u64>().ok()?.checked_mul(*bytes))
        .filter(|bytes| *bytes > 0 && *bytes <= 1 << 40 && bytes % UNIT_BYTES == 0);
    match bytes {
        Some(bytes) => Ok(Bytes(bytes).units_floor()),
        None => wrong(
            part.at,
            format!("smallest extent '{}'", part.text),
            "a multiple of 4KiB with its unit: 64KiB, 1MiB",
        ),
    }
}

fn set(term: Part<'_>, arguments: &[Part<'_>]) -> Result<SetConfig, Wrong> {
    let form = "set:LOW:HIGH[:WINDOW[:CHANGE]], as in set:40:90";
    let [low, high, rest @ ..] = arguments else {
        return wrong(term.at, format!("'{}' lacks its watermarks", term.text), form);
    };
    let mut config =
        SetConfig::new(number(*low, 0, 100, "low watermark")?, number(*high, 0, 100, "high watermark")?);
    if config.low_percent > config.high_percent {
        let what = format!("low watermark {} above the high one, {}", low.text, high.text);
        return wrong(low.at, what, format!("at most {}", high.text));
    }
    if let [window, ..] = rest {
        config.window = duration(*window, "window")?;
    }
    if let [_, change, ..] = rest {
        let (whole, tenths) = change.text.split_once('.').unwrap_or((change.text, "0"));
        let digit =
            |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        config.hysteresis_permille = match (digit(whole), digit(tenths), tenths.len()) {
            (Some(whole @ 0..=100), Some(tenths), 1) if (1..=1000).contains(&(whole * 10 + tenths)) => {
                whole * 10 + tenths
            }
            _ => {
                let what = format!("change '{}'", change.text);
                return wrong(change.at, what, "percent of the file system from 0.1 to 100");
            }
        };
    }
    match rest.get(2) {
        Some(more) => wrong(more.at, format!("'{}' is one too many", more.text), form),
        None => Ok(config),
    }
}

fn lazy(arguments: &[Part<'_>]) -> Result<LazyConfig, Wrong> {
    const WORKERS: u64 = 1024;
    match arguments {
        [] => Ok(LazyConfig::default()),
        [min, max] => {
            let workers_min = number(*min, 1, WORKERS, "fewest workers")? as u32;
            let workers_max = number(*max, 1, WORKERS, "most workers")? as u32;
            if workers_min > workers_max {
                let what = format!("fewest workers {} above the most, {}", min.text, max.text);
                return wrong(min.at, what, format!("at most {}", max.text));
            }
            Ok(LazyConfig { workers_min, workers_max, ..LazyConfig::default() })
        }
        [first, ..] => wrong(
            first.at,
            format!("'{}' alone or too many", first.text),
            "lazy or lazy:MIN:MAX, as in lazy:1:8",
        ),
    }
}

fn batch(term: Part<'_>, arguments: &[Part<'_>]) -> Result<BatchConfig, Wrong> {
    match arguments {
        [every] => Ok(BatchConfig { every: duration(*every, "interval")?, units_min: 1 }),
        [every, smallest] => {
            Ok(BatchConfig { every: duration(*every, "interval")?, units_min: extent_size(*smallest)? })
        }
        _ => wrong(
            term.at,
            format!("'{}' without its interval, or with too much", term.text),
            "batch:EVERY[:SMALLEST], as in batch:1w or batch:10m:64KiB",
        ),
    }
}

/// What the terms said so far.
#[derive(Default)]
struct Terms<'a> {
    issuer: Option<(Part<'a>, Issuer)>,
    gate: Option<(Part<'a>, SetConfig)>,
    /// `catchup` and what changes `lazy`, in order.
    options: Vec<Part<'a>>,
}

impl<'a> Terms<'a> {
    fn add(&mut self, term: Part<'a>) -> Result<(), Wrong> {
        let mut parts = term.split(':');
        let Some(name) = parts.next() else { return Ok(()) };
        let arguments: Vec<Part<'_>> = parts.collect();
        let issuer = match name.text {
            "set" => {
                if let Some((earlier, _)) = self.gate {
                    return wrong(term.at, format!("a second gate after '{}'", earlier.text), "one set term");
                }
                self.gate = Some((term, set(term, &arguments)?));
                return Ok(());
            }
            "lazy" => Issuer::Lazy(lazy(&arguments)?),
            "batch" => Issuer::Batch(batch(term, &arguments)?),
            plain => {
                let plain = match plain {
                    "off" => Some(Issuer::Off),
                    "commit" => Some(Issuer::Commit),
                    "kernel515" => Some(Issuer::Kernel515),
                    "btrfs" => Some(Issuer::Btrfs),
                    "zfs" => Some(Issuer::Zfs),
                    "f2fs" => Some(Issuer::F2fs),
                    "judicious" => Some(Issuer::Judicious),
                    "ideal" => Some(Issuer::Ideal),
                    "catchup" | "reuse" | "merge" | "fill" | "backoff" => None,
                    unknown => {
                        return wrong(
                            term.at,
                            format!("unknown term '{unknown}'"),
                            "one of off, commit, kernel515, set:LOW:HIGH, catchup, lazy[:MIN:MAX], reuse, merge, fill, \
                             backoff, batch:EVERY, btrfs, zfs, f2fs, judicious, ideal, joined with +",
                        );
                    }
                };
                if let Some(argument) = arguments.first() {
                    let what = format!("'{}' takes no ':{}'", name.text, argument.text);
                    return wrong(argument.at, what, format!("'{}' alone", name.text));
                }
                match plain {
                    Some(issuer) => issuer,
                    None if self.options.iter().any(|earlier| earlier.text == name.text) => {
                        return wrong(term.at, format!("'{}' a second time", name.text), "each term once");
                    }
                    None => {
                        self.options.push(name);
                        return Ok(());
                    }
                }
            }
        };
        if let Some((earlier, _)) = self.issuer {
            let what = format!("'{}' contradicts '{}': both say when to trim", term.text, earlier.text);
            return wrong(term.at, what, "one of them");
        }
        self.issuer = Some((term, issuer));
        Ok(())
    }

    fn finish(self) -> Result<PolicySpec, Wrong> {
        let mut gate = self.gate.map(|(_, config)| config);
        let mut issuer = self.issuer.map_or(Issuer::Commit, |(_, issuer)| issuer);
        if let (Some((term, _)), Some((other, _))) = (self.gate, self.issuer) {
            let reason = match issuer {
                Issuer::Off => Some("never trims"),
                Issuer::Batch(_) => Some("trims all free space, whatever the commits freed"),
                Issuer::Judicious => Some("decides by utilization itself"),
                Issuer::Ideal => Some("costs nothing, so that there is nothing to decide"),
                _ => None,
            };
            if let Some(reason) = reason {
                let later = if other.at > term.at { other } else { term };
                let what = format!("'{}' contradicts '{}', which {reason}", term.text, other.text);
                return wrong(later.at, what, "set with commit, kernel515, lazy, btrfs, zfs or f2fs");
            }
        }
        for option in &self.options {
            match (option.text, &mut issuer, &mut gate) {
                ("catchup", _, Some(set)) => set.catch_up = true,
                ("reuse", Issuer::Lazy(lazy), _) => lazy.reuse = true,
                ("merge", Issuer::Lazy(lazy), _) => lazy.merge = true,
                ("fill", Issuer::Lazy(lazy), _) => lazy.fill = true,
                ("backoff", Issuer::Lazy(lazy), _) => lazy.back_off = true,
                (name, ..) => {
                    let base = if name == "catchup" { "set:LOW:HIGH" } else { "lazy" };
                    let what = format!("'{name}' without '{base}' has nothing to change");
                    return wrong(option.at, what, format!("{base}+{name}"));
                }
            }
        }
        match (self.options.first(), self.issuer, self.gate) {
            (None, None, None) => {
                wrong(0, "nothing says when to trim", "a policy such as off, commit or lazy")
            }
            _ => Ok(PolicySpec { gate, issuer }),
        }
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut terms = Terms::default();
        let parsed = (Part { text, at: 0 }).split('+').try_for_each(|term| terms.add(term));
        parsed.and_then(|()| terms.finish()).map_err(|wrong| PolicyError {
            given: text.to_owned(),
            column: text.get(..wrong.at).map_or(0, |before| before.chars().count()) + 1,
            what: wrong.what,
            expected: wrong.expected,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_as_it_is_read() {
        for text in [
            "off",
            "commit",
            "kernel515",
            "set:0:100",
            "set:40:90",
            "set:40:90:1m",
            "set:40:90:10s:0.5",
            "set:40:90+catchup",
            "lazy",
            "lazy:2:16",
            "lazy+reuse",
            "set:40:90+catchup+lazy+reuse+merge+fill+backoff",
            "set:40:90+btrfs",
            "batch:1w",
            "batch:90s:64KiB",
            "btrfs",
            "zfs",
            "f2fs",
            "judicious",
            "ideal",
        ] {
            let policy: PolicySpec = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        let disordered: PolicySpec = "reuse+lazy:1:8+set:40:90:10s:1.0".parse().unwrap();
        assert_eq!(disordered.to_string(), "set:40:90+lazy+reuse");
        assert_eq!("batch:7d".parse::<PolicySpec>().unwrap().to_string(), "batch:1w");
    }

    #[test]
    fn every_example_is_there() {
        assert_eq!(PolicySpec::examples().len(), 15);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_column() {
        for (text, column, word) in [
            ("", 1, "unknown term ''"),
            ("lasy", 1, "unknown term 'lasy'"),
            ("set:40:90+lasy", 11, "unknown term 'lasy'"),
            ("lazy+", 6, "unknown term ''"),
            ("set", 1, "lacks its watermarks"),
            ("set:40", 1, "lacks its watermarks"),
            ("set:90:40", 5, "low watermark 90 above the high one, 40"),
            ("set:40:101", 8, "high watermark '101'"),
            ("set:-1:90", 5, "low watermark '-1'"),
            ("set:40:90:10", 11, "window '10'"),
            ("set:40:90:0s", 11, "window '0s'"),
            ("set:40:90:10s:0", 15, "change '0'"),
            ("set:40:90:10s:1.25", 15, "change '1.25'"),
            ("set:40:90:10s:1:2", 17, "one too many"),
            ("lazy:0:4", 6, "fewest workers '0'"),
            ("lazy:4:2", 6, "fewest workers 4 above the most, 2"),
            ("lazy:4", 6, "alone or too many"),
            ("commit+lazy", 8, "contradicts 'commit'"),
            ("lazy+kernel515", 6, "contradicts 'lazy'"),
            ("set:40:90+set:0:100", 11, "a second gate"),
            ("lazy+reuse+reuse", 12, "a second time"),
            ("reuse", 1, "without 'lazy'"),
            ("commit+reuse", 8, "without 'lazy'"),
            ("lazy+catchup", 6, "without 'set:LOW:HIGH'"),
            ("off+set:40:90", 5, "which never trims"),
            ("set:40:90+judicious", 11, "decides by utilization itself"),
            ("off:1", 5, "takes no ':1'"),
            ("batch", 1, "without its interval"),
            ("batch:weekly", 7, "interval 'weekly'"),
            ("batch:999999999w", 7, "interval '999999999w'"),
            ("batch:1w:5KiB", 10, "smallest extent '5KiB'"),
            ("größe+off", 1, "unknown term 'größe'"),
            ("lazy+größe+é", 6, "unknown term 'größe'"),
        ] {
            let error = text.parse::<PolicySpec>().expect_err(text);
            assert_eq!(error.column, column, "{error}");
            assert!(error.to_string().contains(word), "{error} lacks '{word}'");
        }
    }

    #[test]
    fn the_bound_is_not_for_real_hosts() {
        assert!(PolicySpec::COMMIT.is_usable());
        assert!(!PolicySpec::IDEAL.is_usable());
    }
}
