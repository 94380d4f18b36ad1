//! The grammar of policies: terms joined with `+`, arguments after `:`, and errors.

use std::str::FromStr;

use thiserror::Error;

use super::{Issuer, PolicySpec, TIME_UNITS};
use crate::policy::batch::BatchConfig;
use crate::policy::lazy::LazyConfig;
use crate::policy::set::SetConfig;
use crate::units::{Bytes, SimDuration, UNIT_BYTES};

/// A policy that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("policy '{given}', column {column}: {what}; expected {expected}")]
pub struct PolicyError {
    /// The text.
    pub given: String,
    /// Column of the error, in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
    /// What would be accepted.
    pub expected: String,
}

/// A part of the text with its position.
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

/// An error and its position.
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

fn duration(part: Part<'_>, name: &str) -> Result<SimDuration, Wrong> {
    let digits = part.text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = part.text.split_at(digits);
    let unit = TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ns)| *ns);
    // A century is enough for any timer, and can be added to an instant without overflow.
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
        let lacking = if arguments.is_empty() { "its watermarks" } else { "its high watermark" };
        return wrong(term.at + term.text.len(), format!("'{}' lacks {lacking}", term.text), form);
    };
    let mut config =
        SetConfig::new(number(*low, 0, 100, "low watermark")?, number(*high, 0, 100, "high watermark")?);
    if config.low_percent > config.high_percent {
        let what = format!("low watermark {} is above the high watermark, {}", low.text, high.text);
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
            let workers_min = number(*min, 1, WORKERS, "minimum workers")? as u32;
            let workers_max = number(*max, 1, WORKERS, "maximum workers")? as u32;
            if workers_min > workers_max {
                let what = format!("minimum workers {} is above the maximum, {}", min.text, max.text);
                return wrong(min.at, what, format!("at most {}", max.text));
            }
            Ok(LazyConfig { workers_min, workers_max, ..LazyConfig::default() })
        }
        [_, _, more, ..] => {
            wrong(more.at, format!("'{}' is one too many", more.text), "lazy:MIN:MAX, as in lazy:1:8")
        }
        [only] => wrong(
            only.at + only.text.len(),
            format!("'{}' is the minimum; the maximum is missing", only.text),
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
            format!("'{}' needs an interval, and takes at most a smallest extent", term.text),
            "batch:EVERY[:SMALLEST], as in batch:1w or batch:10m:64KiB",
        ),
    }
}

/// The terms parsed so far.
#[derive(Default)]
struct Terms<'a> {
    issuer: Option<(Part<'a>, Issuer)>,
    gate: Option<(Part<'a>, SetConfig)>,
    /// `catchup` and the options of `lazy`, in order.
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
                        let what = if unknown.is_empty() {
                            "a term is missing".to_owned()
                        } else {
                            format!("unknown term '{unknown}'")
                        };
                        return wrong(
                            term.at,
                            what,
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
                        return wrong(term.at, format!("'{}' appears twice", name.text), "each term once");
                    }
                    None => {
                        self.options.push(name);
                        return Ok(());
                    }
                }
            }
        };
        if let Some((earlier, _)) = self.issuer {
            if earlier.text == term.text {
                return wrong(term.at, format!("'{}' appears twice", term.text), "each term once");
            }
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
                Issuer::Batch(_) => Some("trims all free space, regardless of commits"),
                Issuer::Judicious => Some("decides by utilization itself"),
                Issuer::Ideal => Some("costs nothing, so there is nothing to decide"),
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
                    let what = format!("'{name}' has no effect without '{base}'");
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
    fn an_error_names_its_column() {
        for (text, column, word) in [
            ("", 1, "a term is missing"),
            ("lasy", 1, "unknown term 'lasy'"),
            ("set:40:90+lasy", 11, "unknown term 'lasy'"),
            ("lazy+", 6, "a term is missing"),
            ("set", 4, "lacks its watermarks"),
            ("set:40", 7, "lacks its high watermark"),
            ("set:90:40", 5, "low watermark 90 is above the high watermark, 40"),
            ("set:40:101", 8, "high watermark '101'"),
            ("set:-1:90", 5, "low watermark '-1'"),
            ("set:40:90:10", 11, "window '10'"),
            ("set:40:90:0s", 11, "window '0s'"),
            ("set:40:90:10s:0", 15, "change '0'"),
            ("set:40:90:10s:1.25", 15, "change '1.25'"),
            ("set:40:90:10s:1:2", 17, "one too many"),
            ("lazy:0:4", 6, "minimum workers '0'"),
            ("lazy:4:2", 6, "minimum workers 4 is above the maximum, 2"),
            ("lazy:4", 7, "the maximum is missing"),
            ("lazy:1:2:3", 10, "one too many"),
            ("commit+lazy", 8, "contradicts 'commit'"),
            ("off+off", 5, "'off' appears twice"),
            ("lazy+kernel515", 6, "contradicts 'lazy'"),
            ("set:40:90+set:0:100", 11, "a second gate"),
            ("lazy+reuse+reuse", 12, "appears twice"),
            ("reuse", 1, "without 'lazy'"),
            ("commit+reuse", 8, "without 'lazy'"),
            ("lazy+catchup", 6, "without 'set:LOW:HIGH'"),
            ("off+set:40:90", 5, "which never trims"),
            ("set:40:90+judicious", 11, "decides by utilization itself"),
            ("off:1", 5, "takes no ':1'"),
            ("batch", 1, "needs an interval"),
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
}
