//! The grammar of policies: terms joined with `+`, arguments after `:`, and errors.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::term::{Issuer, LiveUse, Term, without_arguments};
use super::{PolicySpec, TERMS, terms_of};
use crate::policy::limit::{self, Limit};
use crate::policy::set::SetConfig;
use crate::spelling::{Accepted, nearest};
use crate::units::{Bytes, SimDuration, UNIT_BYTES};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("policy '{given}', column {column}: {what}; {expected}")]
pub struct PolicyError {
    pub given: String,
    /// Column of the error, in characters, from 1.
    pub column: usize,
    pub what: String,
    pub expected: Accepted,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::policy) struct Part<'a> {
    pub text: &'a str,
    /// Bytes before the part.
    pub at: usize,
}

impl<'a> Part<'a> {
    fn split(self, by: char) -> impl Iterator<Item = Part<'a>> {
        self.text.split(by).scan(self.at, move |at, text| {
            let part = Part { text, at: *at };
            *at += text.len() + by.len_utf8();
            Some(part)
        })
    }

    pub fn name(self) -> &'a str {
        self.text.split(':').next().unwrap_or(self.text)
    }

    pub fn number(self, least: u64, most: u64, name: &str) -> Result<u64, Wrong> {
        let digits = !self.text.is_empty() && self.text.bytes().all(|b| b.is_ascii_digit());
        match self.text.parse() {
            Ok(n) if digits && (least..=most).contains(&n) => Ok(n),
            _ => wrong(
                self.at,
                format!("{name} '{}'", self.text),
                format!("a whole number from {least} to {most}"),
            ),
        }
    }

    /// Parses a whole number above 0 with one of these units, as a number up to `most` of the smallest.
    fn quantity(self, units: &[(&str, u64)], most: u64) -> Option<u64> {
        let digits = self.text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = self.text.split_at(digits);
        let (_, unit) = units.iter().find(|(name, _)| *name == unit)?;
        count.parse::<u64>().ok()?.checked_mul(*unit).filter(|n| (1..=most).contains(n))
    }

    pub fn duration(self, name: &str) -> Result<SimDuration, Wrong> {
        // A century is enough for any timer, and can be added to an instant without overflow.
        const MOST_NS: u64 = 3_153_600_000_000_000_000;
        match self.quantity(&TIME_UNITS, MOST_NS) {
            Some(ns) => Ok(SimDuration::from_nanos(ns)),
            None => wrong(
                self.at,
                format!("{name} '{}'", self.text),
                "a whole number above 0 with a unit: 500ms, 30s, 10m, 6h, 1d, 1w",
            ),
        }
    }

    /// Parses the size of an extent, in units.
    pub(crate) fn extent_units(self) -> Result<u64, Wrong> {
        self.size("smallest extent", "a multiple of 4KiB with its unit: 64KiB, 1MiB").map(Bytes::units_floor)
    }

    /// Parses a size of whole units.
    pub fn size(self, name: &str, expected: &'static str) -> Result<Bytes, Wrong> {
        match self.quantity(&SIZE_UNITS, 1 << 40).filter(|bytes| bytes % UNIT_BYTES == 0) {
            Some(bytes) => Ok(Bytes(bytes)),
            None => wrong(self.at, format!("{name} '{}'", self.text), expected),
        }
    }

    /// Parses bytes a second, with or without `/s`.
    pub fn rate(self, expected: &'static str) -> Result<Bytes, Wrong> {
        let text = self.text.strip_suffix("/s").unwrap_or(self.text);
        match (Part { text, ..self }).quantity(&SIZE_UNITS, 1 << 40) {
            Some(bytes) => Ok(Bytes(bytes)),
            None => wrong(self.at, format!("rate '{}'", self.text), expected),
        }
    }
}

pub(in crate::policy) struct Wrong {
    at: usize,
    what: String,
    expected: Accepted,
}

pub(in crate::policy) fn wrong<T>(
    at: usize,
    what: impl Into<String>,
    expected: impl Into<Accepted>,
) -> Result<T, Wrong> {
    Err(Wrong { at, what: what.into(), expected: expected.into() })
}

fn set(term: Part<'_>, arguments: &[Part<'_>]) -> Result<SetConfig, Wrong> {
    let form = "set:LOW:HIGH[:WINDOW], as in set:40:90 or set:40:90:30s";
    let [low, high, rest @ ..] = arguments else {
        let lacking = if arguments.is_empty() { "its watermarks" } else { "its high watermark" };
        return wrong(term.at + term.text.len(), format!("'{}' lacks {lacking}", term.text), form);
    };
    let mut config =
        SetConfig::new(low.number(0, 100, "low watermark")?, high.number(0, 100, "high watermark")?);
    if config.low_percent > config.high_percent {
        let what = format!("low watermark {} is above the high watermark, {}", low.text, high.text);
        return wrong(low.at, what, format!("at most {}", high.text));
    }
    if let [window, ..] = rest {
        config.window = window.duration("window")?;
    }
    match rest.get(1) {
        Some(more) => wrong(more.at, format!("unexpected '{}'", more.text), form),
        None => Ok(config),
    }
}

#[derive(Default)]
struct Terms<'a> {
    /// Accept only policies that a stock host can follow.
    live: bool,
    /// Words that the caller accepts in place of a first term.
    others: &'static [&'static str],
    issuer: Option<(Part<'a>, Issuer)>,
    gate: Option<(Part<'a>, SetConfig)>,
    limit: Option<(Part<'a>, Limit)>,
    /// `catchup` and the options of `lazy`, in order.
    options: Vec<Part<'a>>,
}

impl<'a> Terms<'a> {
    fn add(&mut self, term: Part<'a>) -> Result<(), Wrong> {
        let mut parts = term.split(':');
        let Some(name) = parts.next() else { return Ok(()) };
        let arguments: Vec<Part<'_>> = parts.collect();
        if let Some(limit) = Limit::parse(term, name.text, &arguments).filter(|_| !self.live) {
            if let Some((earlier, _)) = self.limit {
                let what = format!("'{}' contradicts '{}': both limit deletions", term.text, earlier.text);
                return wrong(term.at, what, "one of them");
            }
            self.limit = Some((term, limit?));
            return Ok(());
        }
        let issuer = match TERMS.iter().find(|term| term.name() == name.text) {
            Some(policy) if self.live && policy.live == LiveUse::Unsuited => {
                let what = format!("'{}' cannot run on a live host", name.text);
                return wrong(term.at, what, format!("one of {}", self.names(true).join(", ")));
            }
            Some(policy) => Issuer::new(policy, (policy.parse)(term, &arguments)?),
            None if name.text == "set" => {
                if let Some((earlier, _)) = self.gate {
                    return wrong(term.at, format!("a second gate after '{}'", earlier.text), "one set term");
                }
                self.gate = Some((term, set(term, &arguments)?));
                return Ok(());
            }
            None => return self.add_option(term, name, &arguments),
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

    fn add_option(&mut self, term: Part<'a>, name: Part<'a>, arguments: &[Part<'_>]) -> Result<(), Wrong> {
        if !is_option(name.text) {
            let what = match name.text {
                "" => "a term is missing".to_owned(),
                unknown => format!("unknown term '{unknown}'"),
            };
            let names = self.names(term.at == 0);
            let all = format!("one of {}", names.join(", "));
            let more = format!("{all} (see `trimwise policies`)");
            let is_meant = nearest(name.text, names.iter().copied()).is_some();
            let all = if is_meant { all } else { more };
            return wrong(term.at, what, Accepted::instead_of(name.text, names, all));
        }
        without_arguments(term, arguments)?;
        if self.options.iter().any(|earlier| earlier.text == name.text) {
            return wrong(term.at, format!("'{}' appears twice", name.text), "each term once");
        }
        self.options.push(name);
        Ok(())
    }

    /// Names of the terms that are accepted first, where options say nothing, or after the terms so far.
    fn names(&self, is_first: bool) -> Vec<&'static str> {
        let accepted = terms_of(|term| !self.live || term.live != LiveUse::Unsuited);
        let names = accepted.into_iter().map(|(form, _)| form.split([':', '[']).next().unwrap_or(form));
        let names = names.filter(|name| match *name {
            "TERM+TERM" => false,
            "set" => is_first || self.gate.is_none(),
            "catchup" => !is_first,
            option if is_option(option) => !is_first && self.issuer.is_some(),
            limit if is_limit(limit) => !is_first && self.limit.is_none() && !self.live,
            _ => is_first || self.issuer.is_none(),
        });
        names.chain(self.others.iter().copied().filter(|_| is_first)).collect()
    }

    fn finish(self) -> Result<PolicySpec, Wrong> {
        let mut gate = self.gate.map(|(_, config)| config);
        let mut issuer = self.issuer.map_or(PolicySpec::COMMIT.issuer, |(_, issuer)| issuer);
        if let (Some((term, _)), Some((other, _))) = (self.gate, self.issuer)
            && let Some(reason) = issuer.term.refuses_gate
        {
            let later = if other.at > term.at { other } else { term };
            let what = format!("'{}' contradicts '{}', which {reason}", term.text, other.text);
            let takes_gate = TERMS
                .iter()
                .filter(|term| term.refuses_gate.is_none() && (!self.live || term.live != LiveUse::Unsuited));
            let takes_gate = takes_gate.map(|term| term.name());
            let expected = format!("set with one of {}", takes_gate.collect::<Vec<_>>().join(", "));
            return wrong(later.at, what, expected);
        }
        for option in &self.options {
            let base = match (option.text, &mut gate) {
                ("catchup", Some(set)) => {
                    set.catch_up = true;
                    continue;
                }
                ("catchup", None) => "set:LOW:HIGH",
                (name, _) if issuer.add(name) => continue,
                (name, _) => base_of(name).unwrap_or_default(),
            };
            let what = format!("'{}' has no effect without '{base}'", option.text);
            return wrong(option.at, what, format!("{base}+{}", option.text));
        }
        let limit = self.limit.map(|(_, limit)| limit);
        match (self.options.first(), self.issuer, self.gate, limit) {
            (None, None, None, Some(limit)) => {
                wrong(0, "nothing says when to trim", format!("commit+{limit}"))
            }
            (None, None, None, None) => {
                wrong(0, "nothing says when to trim", "a policy such as off, commit or lazy")
            }
            _ => Ok(PolicySpec { gate, issuer, limit }),
        }
    }
}

fn is_option(name: &str) -> bool {
    name == "catchup" || base_of(name).is_some()
}

fn is_limit(name: &str) -> bool {
    limit::FORMS.iter().any(|(form, _)| limit::name_of(form) == name)
}

fn base_of(option: &str) -> Option<&'static str> {
    let has_it = |term: &&&Term| term.options.iter().any(|(name, _)| *name == option);
    TERMS.iter().find(has_it).map(|term| term.name())
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        parse(text, Terms::default())
    }
}

impl PolicySpec {
    /// Parses a policy that a stock host can follow. The error names only such policies.
    pub fn parse_live(text: &str) -> Result<Self, PolicyError> {
        parse(text, Terms { live: true, ..Terms::default() })
    }

    /// Parses a policy where the caller has already looked for `others`. Errors name them too.
    pub(in crate::policy) fn parse_or(
        text: &str,
        others: &'static [&'static str],
    ) -> Result<Self, PolicyError> {
        parse(text, Terms { others, ..Terms::default() })
    }
}

impl PolicyError {
    /// Returns the same error for a text that has `before` before the policy.
    pub(in crate::policy) fn behind(self, before: &str) -> Self {
        Self {
            given: format!("{before}{}", self.given),
            column: before.chars().count() + self.column,
            ..self
        }
    }
}

fn parse<'a>(text: &'a str, mut terms: Terms<'a>) -> Result<PolicySpec, PolicyError> {
    let parsed = (Part { text, at: 0 }).split('+').try_for_each(|term| terms.add(term));
    parsed.and_then(|()| terms.finish()).map_err(|wrong| PolicyError {
        given: text.to_owned(),
        column: text.get(..wrong.at).map_or(0, |before| before.chars().count()) + 1,
        what: wrong.what,
        expected: wrong.expected,
    })
}

/// A length of time in the notation of policies.
pub(in crate::policy) struct Duration(pub SimDuration);

const SIZE_UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

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
            ("set:40:90:10s:1.0", 15, "unexpected '1.0'; expected set:LOW:HIGH[:WINDOW]"),
            ("lazy:0:4", 6, "minimum workers '0'"),
            ("lazy:4:2", 6, "minimum workers 4 is above the maximum, 2"),
            ("lazy:4", 7, "the maximum is missing"),
            ("lazy:1:2:3", 10, "unexpected '3'"),
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
            ("off:1", 5, "takes no value, but ':1' follows"),
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

    #[test]
    fn a_term_that_is_almost_written_is_named_with_all_others() {
        let said = |text: &str| text.parse::<PolicySpec>().unwrap_err().to_string();
        assert!(said("set:40:90+lasy").contains("; did you mean `lazy`? Expected one of off, commit, "));
        assert!(said("judicous").contains("did you mean `judicious`?"));
        assert!(said("lazy+reus").contains("did you mean `reuse`?"));
        assert!(said("never").contains("unknown term 'never'; expected one of off, commit, "));
    }

    #[test]
    fn the_error_for_an_unknown_term_fits_three_lines_of_a_terminal() {
        for text in ["nosuch", "judicous", "trimwize", "set:40:90+lasy", "set:40:90+lazy+reuze"] {
            let error = format!("error: {}", text.parse::<crate::policy::Trimmer>().unwrap_err());
            assert!(error.chars().count() <= 3 * 80, "{} characters: {error}", error.chars().count());
            let names = |name: &str| error.contains(&format!(" {name}, "));
            assert_eq!(names("kernel515"), !text.contains("lazy"), "one term says when to trim: {error}");
            assert_eq!(names("merge"), text.contains("lazy"), "an option goes with another term: {error}");
            assert_eq!(names("set"), !text.contains("set"), "{error}");
            assert_eq!(error.contains(", dm-trim, trimwised"), !text.contains('+'), "{error}");
        }
    }

    #[test]
    fn only_what_a_live_host_can_follow_is_accepted_for_one_and_named() {
        for spec in PolicySpec::examples() {
            let text = spec.to_string();
            let live = PolicySpec::parse_live(&text);
            assert_eq!(live.is_ok(), spec.suits_live_host(), "{text}");
        }
        for text in ["never", "idael", "kernel515", "lazy+ideal", "set:40:90+off"] {
            let error = PolicySpec::parse_live(text).unwrap_err();
            let said = error.to_string();
            let (_, accepted) = said.split_once("xpected ").unwrap();
            assert!(accepted.contains("commit") && accepted.contains("lazy"), "{said}");
            for unsuited in TERMS.iter().filter(|term| term.live == LiveUse::Unsuited) {
                let words = accepted.split([',', ' ', '[', ':']);
                assert_eq!(words.filter(|word| *word == unsuited.name()).count(), 0, "{said}");
            }
        }
    }
}
