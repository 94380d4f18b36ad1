//! The text of a job file: sections with their options, after includes, variables and overrides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use thiserror::Error;

use super::arithmetic::{Computed, computed};
use super::options::{self, Meaning};
use crate::failure::{Words, set};
use crate::spelling::nearest;
use crate::words;

const INCLUDES_MAX: usize = 16;
const LINES_MAX: usize = 1_000_000;
/// Maximum number of errors in a message. Reading stops after as many.
const SHOWN_MAX: usize = 40;
const ERRORS_MAX: usize = 1_000;
/// Maximum number of sections, more than fio has jobs.
const SECTIONS_MAX: usize = 4096;
const PAGE_BYTES: u64 = 4096;

/// Supplies what a job file names outside itself.
pub trait Surroundings {
    /// Returns the text of a file that a line `include` names.
    ///
    /// # Errors Why it cannot be read.
    fn included(&self, name: &str) -> Result<String, String>;

    /// Returns a variable of the environment, for `${NAME}`.
    fn variable(&self, name: &str) -> Option<String>;
}

/// Supplies no file and no variable.
impl Surroundings for () {
    fn included(&self, _: &str) -> Result<String, String> {
        Err("there are no other files here".to_owned())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// A place in a job file or in a file that it includes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The included file; `None` for the job file itself.
    pub file: Option<String>,
    /// The line, from 1; 0 for an override.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (_, 0) => f.write_str("override"),
            (None, line) => write!(f, "line {line}"),
            (Some(file), line) => write!(f, "{file}, line {line}"),
        }
    }
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{place}: {what}; expected {expected}")]
pub struct FioError {
    pub place: Place,
    pub what: String,
    pub expected: String,
    pub limit: Limit,
}

/// Who cannot follow what an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// fio itself.
    Fio,
    /// The model; fio on a real kernel can.
    Model,
    /// The model, and Debian's fio with nothing but files.
    Debian,
}

/// All errors of a job file, in the order of its lines; at least one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub struct FioErrors(pub Vec<FioError>);

impl FioErrors {
    /// Names each, and the options for a real kernel if it takes what the model does not.
    pub fn words(&self) -> Words {
        let mut words: Words = match &self.0[..] {
            [error] => error.to_string().into(),
            errors => {
                let shown = errors.iter().take(SHOWN_MAX).map(|error| format!("\n  {error}"));
                let more = errors.len().saturating_sub(SHOWN_MAX);
                let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
                format!("{} errors{}{more}", errors.len(), shown.collect::<String>()).into()
            }
        };
        let beyond = self.0.iter().filter(|error| error.limit == Limit::Model).count();
        let runs = match beyond {
            0 => return words,
            _ if self.0.iter().any(|error| error.limit == Limit::Debian) => return words,
            _ if beyond == self.0.len() => "it unchanged",
            _ => "what is beyond the model, once the other errors are fixed",
        };
        words.push(format!("\nA real kernel runs {runs}: "));
        words.push(words![set("target", "kernel:6.12:ext4"), " ", set("workload", "'cmd:fio FILE'")]);
        words
    }
}

impl fmt::Display for FioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().fmt(f)
    }
}

fn printable(text: impl Into<String>) -> String {
    text.into().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub fn wrong(place: &Place, what: impl Into<String>, expected: impl Into<String>) -> FioError {
    let (what, expected) = (printable(what), printable(expected));
    let file = place.file.clone().map(printable);
    FioError { place: Place { file, ..*place }, what, expected, limit: Limit::Fio }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub value: String,
    pub place: Place,
    unset: Vec<String>,
}

/// Marks of the programs that make job files, Jinja above all.
const TEMPLATE: [&str; 2] = ["{%", "{{"];

/// The values of a section's options by name: usually one, but several of `filename`, which add up. Sections share those
/// of `[global]`.
pub type Options = BTreeMap<&'static str, Rc<Vec<Given>>>;

/// A section, including the options of `[global]` before it.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: String,
    pub place: Place,
    pub options: Options,
}

/// A job file, read and put together.
#[derive(Debug, Default)]
pub struct Text {
    pub sections: Vec<Section>,
    pub errors: Vec<FioError>,
    /// Lines of ignored options by reason. The reason ends a sentence that begins with the options.
    ignored: BTreeMap<&'static str, BTreeMap<&'static str, Vec<String>>>,
    notes: Vec<String>,
}

/// Options that replace those of the file in every section: name and value. `section` names one that runs, as
/// `--section` of fio does; without any, all run.
pub type Overrides = [(String, String)];

fn is_section(name: &str) -> bool {
    matches!(name, "section" | "--section")
}

fn can_be_overridden(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

/// Splits what follows `job:` into the file's name and the overrides, as in `a.fio:size=1g:runtime=60`.
pub fn split_overrides(argument: &str) -> (&str, Vec<(String, String)>) {
    let is_override = |part: &str| match part.split_once('=') {
        Some((name, _)) => can_be_overridden(name),
        None => options::find(part).is_some(),
    };
    let mut parts = argument.split(':');
    let mut end = parts.next().unwrap_or_default().len();
    let mut overrides: Vec<(String, String)> = Vec::new();
    for part in parts {
        match overrides.last_mut() {
            _ if is_override(part) => {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                overrides.push((name.to_owned(), value.to_owned()));
            }
            // A value may contain colons.
            Some((_, value)) => *value += &format!(":{part}"),
            None => end += 1 + part.len(),
        }
    }
    (&argument[..end], overrides)
}

struct Reader<'a> {
    surroundings: &'a dyn Surroundings,
    overrides: &'a Overrides,
    text: Text,
    global: Options,
    /// Options belong to `[global]`.
    in_global: bool,
    /// Lines belong to a section that does not run.
    is_skipped: bool,
    /// Names of the sections that were skipped.
    skipped: Vec<String>,
    /// The options of `[global]` when the current section began.
    inherited: Options,
    /// Variables that the file uses.
    variables: BTreeSet<String>,
    lines: usize,
    /// Nothing more is read.
    is_over: bool,
}

impl Given {
    /// Returns true if the value has an unset variable. That is an error of its own.
    pub fn is_unset(&self) -> bool {
        !self.unset.is_empty()
    }
}

impl Text {
    pub fn read(text: &str, overrides: &Overrides, surroundings: &dyn Surroundings) -> Self {
        let is_header = |line: &str| bare(line).starts_with('[');
        let is_fragment = !text.lines().any(is_header);
        let mut reader = Reader {
            surroundings,
            overrides,
            text: Self::default(),
            global: Options::new(),
            in_global: is_fragment,
            is_skipped: false,
            skipped: Vec::new(),
            inherited: Options::new(),
            variables: BTreeSet::new(),
            lines: 0,
            is_over: false,
        };
        reader.lines(text, &None, &mut Vec::new());
        reader.end_section();
        reader.expect_sections();
        let global = std::mem::take(&mut reader.global);
        if reader.text.sections.is_empty() && !global.is_empty() {
            // It is a part of a job file, which others include, or a file of defaults.
            let section = Section { name: "job".to_owned(), place: line_of(1), options: global };
            reader.text.sections.push(section);
            reader
                .text
                .notes
                .push("no section of a job: its options are taken as those of one job".to_owned());
        }
        if !reader.is_over {
            reader.apply_overrides();
        }
        let mut text = reader.text;
        text.refuse_unset();
        if text.sections.is_empty() && text.errors.is_empty() {
            text.errors.push(wrong(&line_of(1), "no job section", "a section such as [job1]"));
        }
        text
    }

    /// Returns a note for each reason why options are ignored.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (why, options) in &self.ignored {
            let options = options.iter().map(|(name, places)| match &places[..] {
                [place] => format!("{name} ({place})"),
                [place, rest @ ..] => format!("{name} ({place} and {} more)", rest.len()),
                [] => (*name).to_owned(),
            });
            notes.push(format!("ignored, as it {why}: {}", options.collect::<Vec<_>>().join(", ")));
        }
        notes.extend(self.notes.iter().cloned());
        notes
    }

    /// Returns the file as one text without variables, includes and overrides. It reads as the same jobs.
    pub fn flat(&self) -> String {
        let mut flat = String::new();
        for section in &self.sections {
            flat += &format!("[{}]\n", section.name);
            for (name, values) in &section.options {
                for given in values.iter() {
                    flat += &format!("{name}={}\n", given.value);
                }
            }
        }
        flat
    }

    fn refuse_unset(&mut self) {
        // Options of `[global]` are in every section.
        let mut uses: BTreeMap<&str, BTreeSet<&Place>> = BTreeMap::new();
        let all = self.sections.iter().flat_map(|section| section.options.values());
        for given in all.flat_map(|all| all.iter()) {
            for variable in &given.unset {
                uses.entry(variable).or_default().insert(&given.place);
            }
        }
        for (variable, places) in uses {
            let Some(place) = places.first() else { continue };
            let more = match places.len() - 1 {
                0 => String::new(),
                more => format!(" (here and on {more} more)"),
            };
            let what = format!("the variable ${{{variable}}}{more} is not set");
            let expected = match can_be_overridden(variable) {
                true => format!("`:{variable}=VALUE` after the file's name, or it in the environment"),
                false => "it in the environment".to_owned(),
            };
            self.errors.push(wrong(place, what, expected));
        }
    }
}

fn line_of(line: usize) -> Place {
    Place { file: None, line }
}

/// Removes the comment from a line. fio ends a line at either character, wherever it is.
fn bare(line: &str) -> &str {
    line.split([';', '#'])
        .next()
        .unwrap_or_default()
        .trim_matches(|c: char| c.is_whitespace() || c.is_control())
}

impl Reader<'_> {
    fn lines(&mut self, text: &str, file: &Option<String>, including: &mut Vec<String>) {
        let text = text.trim_start_matches('\u{feff}');
        for (line, text) in (1..).zip(text.lines()) {
            let place = Place { file: file.clone(), line };
            self.lines += 1;
            if self.lines > LINES_MAX && !self.is_over {
                let what = format!("more than {LINES_MAX} lines with what is included");
                self.text.errors.push(wrong(&place, what, "fewer"));
                self.is_over = true;
            }
            if self.is_over || self.text.errors.len() >= ERRORS_MAX {
                return;
            }
            if text.split([';', '#']).next().is_some_and(|text| text.contains('\0')) {
                self.text.errors.push(wrong(&place, "a NUL character", "text"));
                continue;
            }
            let text = bare(text);
            if text.is_empty() || self.is_skipped && !text.starts_with('[') {
                continue;
            }
            if text.rsplit_once("${").is_some_and(|(_, name)| !name.contains('}')) {
                let what = format!("a variable without an end in '{text}'");
                self.text.errors.push(wrong(&place, what, "${NAME}"));
                continue;
            }
            if TEMPLATE.iter().any(|word| text.contains(word)) {
                // The meaning of its other lines is unknown too.
                let error = wrong(&place, format!("'{text}' is of a template"), "the job file made of it");
                self.text = Text { errors: vec![error], ..Text::default() };
                self.global.clear();
                self.is_over = true;
                return;
            }
            if let Some(header) = text.strip_prefix('[') {
                if file.is_some() {
                    self.text.errors.push(wrong(
                        &place,
                        "a section in an included file",
                        "only options there",
                    ));
                    return;
                }
                self.header(header, &place);
            } else if let Some(name) =
                text.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t', '=']))
            {
                self.include(name[1..].trim(), &place, including);
            } else {
                self.option(text, place);
            }
        }
    }

    fn header(&mut self, header: &str, place: &Place) {
        let Some(name) = header.strip_suffix(']').filter(|name| !name.is_empty()) else {
            self.text.errors.push(wrong(place, format!("'[{header}' is not a section header"), "[NAME]"));
            return;
        };
        self.end_section();
        self.in_global = name.starts_with("global");
        self.is_skipped = !self.in_global && !self.runs(name);
        if self.is_skipped {
            self.skipped.push(name.to_owned());
            return;
        }
        self.inherited = self.global.clone();
        if !self.in_global && self.text.sections.len() >= SECTIONS_MAX {
            let what = format!("more than {SECTIONS_MAX} sections");
            self.text.errors.push(wrong(place, what, "fewer, in several files"));
            self.is_over = true;
        } else if !self.in_global {
            let (name, options) = (name.to_owned(), self.global.clone());
            self.text.sections.push(Section { name, place: place.clone(), options });
        }
    }

    fn runs(&self, section: &str) -> bool {
        let mut wanted = self.sections().peekable();
        wanted.peek().is_none() || wanted.any(|name| name == section)
    }

    /// Returns the names of the sections that are to run.
    fn sections(&self) -> impl Iterator<Item = &str> {
        let given = self.overrides.iter().filter(|(name, _)| is_section(name));
        given.map(|(_, name)| name.as_str())
    }

    /// Reports names of sections that the file does not have.
    fn expect_sections(&mut self) {
        let has = |name: &&str| self.text.sections.iter().any(|section| section.name == **name);
        let missing: Vec<String> = self.sections().filter(|name| !has(name)).map(str::to_owned).collect();
        let own = self.text.sections.iter().map(|section| &section.name).chain(&self.skipped);
        let own: Vec<&str> = own.take(SHOWN_MAX).map(String::as_str).collect();
        let expected = format!("one of {}", own.join(", "));
        let errors = missing.iter().map(|name| {
            wrong(&Place::default(), format!("the file has no section '{name}'"), expected.as_str())
        });
        if !own.is_empty() {
            self.text.errors.extend(errors);
        }
    }

    /// Ends a section. fio reads each section's values with the `kb_base` that it has then, so earlier ones keep
    /// their meaning if it has changed.
    fn end_section(&mut self) {
        let inherited = std::mem::take(&mut self.inherited);
        let options = match self.text.sections.last_mut() {
            Some(section) if !self.in_global => &mut section.options,
            _ => &mut self.global,
        };
        if self.is_skipped || kb_base(&inherited) == kb_base(options) {
            return;
        }
        for (name, before) in inherited.iter().filter(|(name, _)| has_sizes(name)) {
            if let Some(values) = options.get_mut(name).filter(|values| Rc::ptr_eq(values, before)) {
                for given in Rc::make_mut(values) {
                    given.value = with_other_units(&given.value);
                }
            }
        }
    }

    fn include(&mut self, name: &str, place: &Place, including: &mut Vec<String>) {
        let expected = "a file of options, found from the working directory or the job file's";
        let result = match name {
            _ if including.iter().any(|outer| outer == name) => Err("includes itself".to_owned()),
            _ if including.len() >= INCLUDES_MAX => {
                Err(format!("more than {INCLUDES_MAX} files in one another"))
            }
            _ => self.surroundings.included(name),
        };
        match result {
            Err(why) => self.text.errors.push(wrong(place, format!("include {name}: {why}"), expected)),
            Ok(text) => {
                including.push(name.to_owned());
                self.lines(&text, &Some(name.to_owned()), including);
                including.pop();
            }
        }
    }

    fn option(&mut self, text: &str, place: Place) {
        let (written, value) =
            text.split_once('=').map_or((text, ""), |(name, value)| (name.trim(), value.trim()));
        let Some((name, meaning)) = self.known(written, &place) else { return };
        let (value, unset) = self.substituted(value);
        let given = Given { value, place, unset };
        if self.text.sections.is_empty() && !self.in_global {
            let what = format!("'{written}' is outside any section");
            self.text.errors.push(wrong(&given.place, what, "[global] or [NAME] before it"));
            return;
        }
        if let Meaning::Ignored(why) = meaning {
            let place = given.place.to_string();
            self.text.ignored.entry(why).or_default().entry(name).or_default().push(place);
            return;
        }
        let options = match self.text.sections.last_mut() {
            Some(section) if !self.in_global => &mut section.options,
            _ => &mut self.global,
        };
        add(options, name, given, false);
    }

    fn known(&mut self, written: &str, place: &Place) -> Option<(&'static str, Meaning)> {
        let found = options::find(written);
        if found.is_none() {
            let is_close = |name: &&str| name.len().abs_diff(written.len()) <= 2 || name.starts_with(written);
            let listed = "one that `fio --cmdhelp=all` lists".to_owned();
            let variables: Vec<&str> = self.variables.iter().take(SHOWN_MAX).map(String::as_str).collect();
            let (what, expected) = match place.line {
                0 if variables.is_empty() => (", and the file no variables", listed),
                0 => {
                    let own = format!("an option, or one of the file's variables {}", variables.join(", "));
                    (", and the file no such variable", own)
                }
                _ => ("", listed),
            };
            let meant = nearest(written, options::names().filter(is_close));
            let expected = match meant {
                Some(name) if variables.is_empty() || place.line > 0 => format!("`{name}`?"),
                Some(name) => format!("`{name}`, or {expected}"),
                None => expected,
            };
            self.text.errors.push(wrong(place, format!("fio has no option '{written}'{what}"), expected));
        }
        found
    }

    /// Replaces variables and fio's own words.
    fn substituted(&mut self, value: &str) -> (String, Vec<String>) {
        let (mut done, mut rest, mut unset) = (String::new(), value, Vec::new());
        while let Some((before, name, after)) = rest.split_once("${").and_then(|(before, rest)| {
            let (name, after) = rest.split_once('}')?;
            Some((before, name, after))
        }) {
            done += before;
            self.variables.insert(name.to_owned());
            let own =
                self.overrides.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
            match own.or_else(|| self.surroundings.variable(name)) {
                Some(value) => done += &value,
                None => {
                    unset.push(name.to_owned());
                    done += &format!("${{{name}}}");
                }
            }
            rest = after;
        }
        done += rest;
        let words = [("$pagesize", PAGE_BYTES), ("$mb_memory", 1024), ("$ncpus", 1)];
        let mut has_word = false;
        for (word, number) in words {
            if done.contains(word) {
                done = done.replace(word, &number.to_string());
                has_word = true;
            }
        }
        // fio has such a value computed by bc, if there is anything to compute.
        let is_computed = has_word && done.contains(['+', '-', '*', '/']) && !done.contains('\'');
        let number = is_computed.then(|| computed(&format!("({done})"), false, i64::MAX)).flatten();
        match number.filter(|number| !number.has_unit) {
            Some(Computed { value, .. }) => (value.to_string(), unset),
            None => (done, unset),
        }
    }

    fn apply_overrides(&mut self) {
        for (written, value) in self.overrides {
            let place = Place::default();
            if self.variables.contains(written) || is_section(written) {
                continue;
            }
            let Some((name, meaning)) = self.known(written, &place) else { continue };
            if matches!(meaning, Meaning::Ignored(_)) {
                continue;
            }
            let given = Given { value: value.clone(), place, unset: Vec::new() };
            for section in &mut self.text.sections {
                add(&mut section.options, name, given.clone(), true);
            }
        }
    }
}

/// Adds a value of an option. An earlier value with the same meaning is replaced.
fn add(options: &mut Options, name: &'static str, given: Given, replaces: bool) {
    let inverse = |given: Given, of: fn(u64) -> Option<u64>| match given.value.parse().ok().and_then(of) {
        Some(value) => Given { value: value.to_string(), ..given },
        None => given,
    };
    let (name, given) = match name {
        "buffered" if given.value.is_empty() => ("direct", Given { value: "0".to_owned(), ..given }),
        "buffered" => ("direct", inverse(given, |n| Some(u64::from(n == 0)))),
        "rwmixwrite" => ("rwmixread", inverse(given, |n| 100_u64.checked_sub(n))),
        name => (name, given),
    };
    let values = Rc::make_mut(options.entry(name).or_default());
    if replaces || name != "filename" {
        values.clear();
    }
    values.push(given);
}

fn kb_base(options: &Options) -> &str {
    let given = options.get("kb_base").and_then(|all| all.last());
    given.map_or("1024", |given| given.value.as_str())
}

/// Returns true if `kb_base` may change the meaning of an option's value.
fn has_sizes(name: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "buffer_pattern",
        "directory",
        "filename",
        "filename_format",
        "flow_sleep",
        "ioengine",
        "kb_base",
        "ramp_time",
        "runtime",
        "startdelay",
        "thinktime",
        "wait_for",
    ];
    !OTHERS.contains(&name)
}

/// Writes the sizes in a value for the other `kb_base`: `4k` as `4kib`, and `4kib` as `4k`. Those of arithmetic do not
/// depend on it.
fn with_other_units(value: &str) -> String {
    if value.contains('(') {
        return value.to_owned();
    }
    let (mut done, mut rest) = (String::new(), value);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[at..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| at + end);
        let unit_end = rest[end..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |n| end + n);
        let unit = &rest[end..unit_end];
        done += &rest[..end];
        done += &match unit.get(..1) {
            Some(letter) if "kmgtp".contains(&letter.to_ascii_lowercase()) => {
                let is_other = unit[1..].eq_ignore_ascii_case("ib");
                if is_other { letter.to_owned() } else { format!("{letter}ib") }
            }
            _ => unit.to_owned(),
        };
        rest = &rest[unit_end..];
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files(&'static [(&'static str, &'static str)]);

    impl Surroundings for Files {
        fn included(&self, name: &str) -> Result<String, String> {
            let found = self.0.iter().find(|(file, _)| *file == name);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "no such file".to_owned())
        }

        fn variable(&self, name: &str) -> Option<String> {
            (name == "SIZE").then(|| "7m".to_owned())
        }
    }

    fn overrides(text: &str) -> (&str, Vec<(String, String)>) {
        split_overrides(text)
    }

    #[test]
    fn what_follows_the_file_s_name_overrides_it() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(overrides("a.fio"), ("a.fio", vec![]));
        assert_eq!(
            overrides("a:b.fio:size=1g:bssplit=4k/50:8k/50:time_based"),
            ("a:b.fio", vec![pair("size", "1g"), pair("bssplit", "4k/50:8k/50"), pair("time_based", "")])
        );
        let text = Text::read(
            "[a]\nsize=1m\nfilename=x\n[b]\nfilename=y",
            &overrides("f:size=2m:filename=z").1,
            &(),
        );
        assert_eq!(text.flat(), "[a]\nfilename=z\nsize=2m\n[b]\nfilename=z\nsize=2m\n");
        let again = Text::read(&text.flat(), &overrides("f:size=2m:filename=z").1, &());
        assert_eq!(again.flat(), text.flat());
    }

    #[test]
    fn includes_and_variables_are_put_in() {
        let files = Files(&[
            ("common", "bs=8k\ninclude deep\n"),
            ("deep", "size=${SIZE}\n"),
            ("loop", "include loop"),
            ("headed", "[b]\nszie=1m\n[c]\n"),
        ]);
        let text = Text::read("[a]\ninclude common\nrw=read ; x\n", &[], &files);
        assert_eq!(text.flat(), "[a]\nbs=8k\nrw=read\nsize=7m\n");
        for (job, place, what) in [
            ("[a]\ninclude none", "line 2", "include none: no such file"),
            ("[a]\ninclude loop", "loop, line 1", "include loop: includes itself"),
            ("[a]\nsize=${NONE}", "line 2", "the variable ${NONE} is not set"),
            (
                "[global]\nbs=${NONE}\n[a]\nsize=${NONE}\n[b]\n",
                "line 2",
                "the variable ${NONE} (here and on 1 more) is not set",
            ),
            ("[a]\ninclude headed", "headed, line 1", "a section in an included file"),
            ("[a]\nszie=1m", "line 2", "fio has no option 'szie'"),
            ("bs=1m\n[a]", "line 1", "'bs' is outside any section"),
            ("[a]\nsize=${SIZE}${NONE", "line 2", "a variable without an end in 'size=${SIZE}${NONE'"),
        ] {
            let errors = Text::read(job, &[], &files).errors;
            let found = errors.iter().map(|e| (e.place.to_string(), e.what.clone())).collect::<Vec<_>>();
            assert_eq!(found, [(place.to_owned(), what.to_owned())]);
        }
        for (job, argument, expected) in [
            ("[a]\nsize=${NONE}", "f", "`:NONE=VALUE` after the file's name, or it in the environment"),
            ("[a]\nsize=${NO NE}", "f", "it in the environment"),
            ("[a]\nsize=1m", "f:DEV=x", "one that `fio --cmdhelp=all` lists"),
            ("[a]\nsize=${SIZE}\nbs=${SIZE}", "f:DEV=x", "an option, or one of the file's variables SIZE"),
            ("[a]\nDEV=1m", "f", "one that `fio --cmdhelp=all` lists"),
        ] {
            let errors = Text::read(job, &overrides(argument).1, &files).errors;
            assert_eq!(errors.iter().map(|e| e.expected.as_str()).collect::<Vec<_>>(), [expected], "{job}");
        }
        // An override makes the variable unnecessary, or sets it.
        assert!(Text::read("[a]\nsize=${NONE}", &overrides("f:size=1m").1, &files).errors.is_empty());
        assert_eq!(Text::read("[a]\nsize=${N}k", &overrides("f:N=4").1, &files).flat(), "[a]\nsize=4k\n");
        assert_eq!(Text::read("[a]\nbs=2*$pagesize", &[], &files).flat(), "[a]\nbs=8192\n");
    }

    #[test]
    fn only_the_named_sections_run() {
        let file = "[global]\nbs=8k\n[a]\nszie=1m\nbs=${NONE}\n[b]\nsize=1m\n[global2]\nbs=4k\n[c]\n";
        let read = |argument: &str| Text::read(file, &overrides(argument).1, &());
        let text = read("f:section=b:--section=c:rw=read");
        assert_eq!(text.flat(), "[b]\nbs=8k\nrw=read\nsize=1m\n[c]\nbs=4k\nrw=read\n");
        assert_eq!(text.errors, []);
        let errors = read("f:section=c:section=d").errors;
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].to_string(), "override: the file has no section 'd'; expected one of c, a, b");
        assert_eq!(read("f:section=x").errors[0].expected, "one of a, b, c");
    }

    #[test]
    fn fio_s_own_words_may_be_computed_with() {
        for (value, expected) in [
            ("2*$pagesize", "8192"),
            ("$pagesize/4+1", "1025"),
            ("4*$mb_memory*1024*1024", "4294967296"),
            ("$ncpus", "1"),
            // bc knows no units.
            ("128k*$ncpus", "128k*1"),
            // Without such a word nothing is computed.
            ("2*4096", "2*4096"),
        ] {
            let text = Text::read(&format!("[a]\nbs={value}"), &[], &());
            assert_eq!(text.flat(), format!("[a]\nbs={expected}\n"), "{value}");
        }
    }

    #[test]
    fn a_part_without_a_section_is_one_job() {
        let text = Text::read("bs=8k\nsize=1m\n", &[], &());
        assert_eq!((text.flat().as_str(), text.errors.len()), ("[job]\nbs=8k\nsize=1m\n", 0));
        let text = Text::read("[global]\nbs=8k\n", &[], &());
        assert_eq!(text.flat(), "[job]\nbs=8k\n");
    }
}
