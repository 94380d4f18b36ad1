//! Saved documents: which command wrote one, and what is in it.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use trimwise::failure::Failure;
use trimwise_lab::experiment::result::ExperimentResult;
use trimwise_linux::files::read_input;

use crate::commands::bench::BenchReport;
use crate::commands::bench::map::MapReport;
use crate::output::SCHEMA;
use trimwise_study::advise::Advice;
use trimwise_study::compare::Comparison;
use trimwise_study::sweep::Summary;
use trimwise_study::tournament::Tournament;

/// The largest document: a comparison of a thousand runs is 40 MB.
const BYTES_MAX: u64 = 1 << 30;

/// What is shown.
pub enum Document {
    Compare(Box<Comparison>),
    Reproduce(Vec<ExperimentResult>),
    Bench(Box<BenchReport>),
    Map(Box<MapReport>),
    Sweep(Box<Summary>),
    Advise(Box<Advice>),
    Tournament(Box<Tournament>),
}

const EXPECTED: &str =
    "expected what compare, advise, reproduce, bench, sweep or tournament wrote with --json";

impl Document {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let bytes = read_input(path, BYTES_MAX).map_err(|e| Failure::usage(format!("{file}: {e}")))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::usage(format!("{file}: is not UTF-8 text; {EXPECTED}")))?;
        Self::parse(&text, &file)
    }

    /// Reads a text; `file` is for messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, Failure> {
        let refused = |what: String| Failure::usage(format!("{file}: {what}; {EXPECTED}"));
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let value: Value = serde_json::from_str(text).map_err(|e| refused(format!("is not JSON: {e}")))?;
        let first = if value.is_array() { value.get(0).unwrap_or(&Value::Null) } else { &value };
        let has = |key: &str| first.get(key).is_some();
        let is_experiment = has("experiment") && has("claims");
        if value.is_array() && !is_experiment {
            return Err(refused("is a list, but not of experiments".to_owned()));
        }
        if !has("trimwise") {
            return Err(refused("was not written by trimwise: it has no key `trimwise`".to_owned()));
        }
        match first.get("schema") {
            Some(number) if *number == SCHEMA => {}
            Some(number) => {
                return Err(Failure::usage(format!(
                    "{file}: schema: {number}, which trimwise {} does not read; expected {SCHEMA}",
                    trimwise::VERSION
                )));
            }
            None => return Err(refused("has no key `schema`".to_owned())),
        }
        if is_experiment {
            return if value.is_array() {
                typed(text, file).map(Self::Reproduce)
            } else {
                typed(text, file).map(|one| Self::Reproduce(vec![one]))
            };
        }
        if has("cells") && has("verdict") {
            let comparison: Comparison = typed(text, file)?;
            return if comparison.cells.is_empty() {
                Err(refused("cells: is empty".to_owned()))
            } else {
                comparison.restored().map(|c| Self::Compare(Box::new(c))).map_err(&refused)
            };
        }
        if has("search") && has("costs") {
            let advice: Advice = typed(text, file)?;
            return advice.restored().map(|advice| Self::Advise(Box::new(advice))).map_err(&refused);
        }
        if has("map") && has("device") {
            return typed(text, file).map(|map| Self::Map(Box::new(map)));
        }
        if has("tests") && has("device") {
            return typed(text, file).map(|report| Self::Bench(Box::new(report)));
        }
        if has("grid") && has("product") {
            return typed(text, file).map(|summary| Self::Sweep(Box::new(summary)));
        }
        if has("standings") && has("cases") {
            return typed(text, file).map(|tournament| Self::Tournament(Box::new(tournament)));
        }
        Err(refused("was written by another command of trimwise".to_owned()))
    }

    /// The command that wrote it.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Compare(_) => "compare",
            Self::Reproduce(_) => "reproduce",
            Self::Bench(_) => "bench",
            Self::Map(_) => "bench --map",
            Self::Sweep(_) => "sweep",
            Self::Advise(_) => "advise",
            Self::Tournament(_) => "tournament",
        }
    }
}

/// Reads it as what it is; the message names line and column.
fn typed<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|e| Failure::usage(format!("{file}: {e}; {EXPECTED}")))
}
