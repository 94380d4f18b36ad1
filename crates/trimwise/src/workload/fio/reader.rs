//! Reads the options of one section, each with the values that fio gives it.

use super::Size;
use super::options::{self, Meaning};
use super::text::{FioError, Given, Limit, Place, Section, wrong};
use super::values::{self, for_each};
use crate::units::SimDuration;

/// Numbers for which fio calls a function with each value of a list, so that the last one counts; otherwise the first.
const LAST_COUNTS: [&str; 8] = [
    "buffer_compress_percentage",
    "dedupe_percentage",
    "io_size",
    "offset",
    "offset_increment",
    "rwmixread",
    "size",
    "zoneskip",
];

/// Parses the value of a list that counts for a number. fio skips what is no number behind one, such as a comment.
fn counted<T>(name: &str, text: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let pieces = values::pieces(text);
    let (first, more) = pieces.split_first()?;
    let first = parse(first)?;
    let last =
        if LAST_COUNTS.contains(&name) { more.iter().rev().find_map(|piece| parse(piece)) } else { None };
    Some(last.unwrap_or(first))
}

/// Reads the options of a section. Errors are noted, and the option's default is used instead.
pub struct Reader<'a> {
    pub section: &'a Section,
    errors: &'a mut Vec<FioError>,
    pub kb_base: u64,
}

impl<'a> Reader<'a> {
    pub fn new(section: &'a Section, errors: &'a mut Vec<FioError>) -> Self {
        let mut reader = Self { section, errors, kb_base: 1024 };
        reader.kb_base = reader.word("kb_base", &[("1024", 1024), ("1000", 1000)]).unwrap_or(1024);
        reader
    }

    pub fn given(&self, name: &str) -> Option<&'a Given> {
        debug_assert!(options::find(name).is_some(), "{name}");
        self.section.options.get(name).and_then(|all| all.last()).filter(|given| !given.is_unset())
    }

    pub fn place(&self, names: &[&str]) -> Place {
        let place = names.iter().find_map(|name| self.given(name)).map(|given| given.place.clone());
        place.unwrap_or_else(|| self.section.place.clone())
    }

    pub fn wrong(&mut self, names: &[&str], what: impl Into<String>, expected: impl Into<String>) {
        let error = wrong(&self.place(names), what, expected);
        self.errors.push(error);
    }

    /// Notes that the model cannot follow an option that fio accepts; `debian_runs` says whether Debian's fio can, on
    /// files alone.
    pub fn beyond(
        &mut self,
        names: &[&str],
        what: impl Into<String>,
        expected: impl Into<String>,
        debian_runs: bool,
    ) {
        let limit = if debian_runs { Limit::Model } else { Limit::Debian };
        let error = wrong(&self.place(names), what, expected);
        self.errors.push(FioError { limit, ..error });
    }

    pub fn value<T>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let given = self.given(name)?;
        let parsed = parse(&given.value);
        if parsed.is_none() {
            let value = &given.value;
            let has_digit = value.starts_with(|c: char| c.is_ascii_digit());
            let alone = "; fio would take the first number alone";
            let (alone, hint) = match () {
                () if has_digit && value.contains('$') => (alone, "; a variable is ${NAME}".to_owned()),
                () if has_digit && value.contains(['*', '+', '^']) => (alone, format!("; or ({value})")),
                () => ("", String::new()),
            };
            self.wrong(
                &[name],
                format!("'{value}' is not a value of {name}{alone}"),
                expected.to_owned() + &hint,
            );
        }
        parsed
    }

    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).filter(|word| !word.is_empty()).collect();
        let find = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        self.value(name, &format!("one of {}", all.join(", ")), find)
    }

    /// Reads a flag, which is set if it is given without a value.
    pub fn flag(&mut self, name: &str, default: bool) -> bool {
        let parse = |value: &str| match value {
            "" => Some(true),
            value => value.split([' ', '\t', '/']).next()?.parse::<u64>().ok().map(|n| n > 0),
        };
        self.value(name, "0 or 1", parse).unwrap_or(default)
    }

    pub fn number(&mut self, name: &str, default: u64, min: u64, max: u64) -> u64 {
        let kb_base = self.kb_base;
        let parse = |text: &str| {
            counted(name, text, |piece| values::number(piece, kb_base)).filter(|n| (min..=max).contains(n))
        };
        self.value(name, &format!("a number from {min} to {max}"), parse).unwrap_or(default)
    }

    pub fn size(&mut self, name: &str) -> Option<Size> {
        let kb_base = self.kb_base;
        let expected = "a size in bytes, with k, m or g for powers of 1,024, or a share such as 50%";
        self.value(name, expected, |text| match counted(name, text, |piece| values::size(piece, kb_base))? {
            // As in fio, whose files end where they end.
            Size::Percent(percent) if name == "size" => Some(Size::Percent(percent.min(100))),
            Size::Percent(101..) => None,
            size => Some(size),
        })
    }

    pub fn file_size(&mut self) -> Option<(u64, u64)> {
        let kb_base = self.kb_base;
        self.value("filesize", "a size, or a range such as 4k-1m", |text| values::file_size(text, kb_base))
    }

    /// Reads one value for all directions, or one for each; `None` for one that the option leaves out.
    pub fn directions<T: Clone>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> [Option<T>; 3] {
        let expected =
            format!("{expected}, or one for reads, one for writes and one for TRIMs, separated by commas");
        let is_split_at_commas = matches!(name, "bsrange" | "bssplit");
        let all = |text: &str| {
            let parts = if is_split_at_commas { values::at_commas(text) } else { values::pieces(text) };
            // fio drops what follows the third, but for `bssplit`.
            let kept = if name == "bssplit" { parts.len() } else { parts.len().min(3) };
            for_each(&parts[..kept], &parse)
        };
        self.value(name, &expected, all).unwrap_or([None, None, None])
    }

    pub fn time(&mut self, name: &str, unit_ns: u64) -> SimDuration {
        let expected = "a time such as 30, 30s, 5m or 500ms";
        // For a range, take the shorter time.
        self.value(name, expected, |text| counted(name, text, |piece| values::time(piece, unit_ns)))
            .unwrap_or_default()
    }

    /// Refuses the options that are beyond the model.
    pub fn refuse_others(&mut self) {
        for (&name, values) in &self.section.options {
            let Some((_, Meaning::Only(harmless, why))) = options::find(name) else { continue };
            let Some(given) = values.last().filter(|given| !harmless.contains(&given.value.as_str())) else {
                continue;
            };
            let expected = match harmless {
                [] => format!("no {name}"),
                [first, ..] => format!("{name}={first}"),
            };
            let what = format!("{name}={}: {why}", given.value);
            self.beyond(&[name], what, expected, !options::NEWER_THAN_DEBIAN.contains(&name));
        }
    }
}
