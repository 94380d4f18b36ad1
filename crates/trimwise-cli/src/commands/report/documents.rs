//! Saved JSON documents: finds out which command wrote one, and reads it.

use std::any::Any;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use trimwise::failure::{Failure, Mistake};
use trimwise_linux::files::read_input;

use crate::output::SCHEMA;
use trimwise_study::advise::Advice;
use trimwise_study::compare::Comparison;
use trimwise_study::sweep::Summary;

/// Largest document accepted. A comparison of a thousand runs is 40 MB.
const BYTES_MAX: u64 = 1 << 30;

/// A document that a report can show.
pub enum Document {
    Compare(Box<Comparison>),
    Sweep(Box<Summary>),
    Advise(Box<Advice>),
    /// A document of one of the laboratory's commands.
    Laboratory(Box<dyn OfLaboratory>),
}

/// Kinds of documents that the laboratory's commands write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One experiment or a list of them.
    Reproduce,
    Bench,
    Map,
    Tournament,
}

impl Kind {
    pub const fn command(self) -> &'static str {
        match self {
            Self::Reproduce => "reproduce",
            Self::Bench => "bench",
            Self::Map => "bench --map",
            Self::Tournament => "tournament",
        }
    }
}

/// A document of the laboratory, as far as reports are concerned.
pub trait OfLaboratory: Any {
    /// Returns the command that wrote it.
    fn command(&self) -> &'static str;

    /// Returns its report as HTML.
    fn html(&self) -> Result<String, Failure>;

    /// Returns a report of this document and another one; `files` are their names. `None` if they come from different
    /// commands, or the command has no report of two documents.
    fn pair(&self, files: [&str; 2], other: &dyn Any) -> Option<Result<String, Failure>>;
}

/// Reads a document of the laboratory, given its kind, its text, and its file for messages.
pub type ReadOfLaboratory = dyn Fn(Kind, &str, &str) -> Result<Box<dyn OfLaboratory>, Failure>;

const EXPECTED: &str = "what compare, advise, reproduce, bench, sweep or tournament wrote with --json";

fn refused(file: &str, why: &str) -> Failure {
    Mistake::that(why).expected(EXPECTED).at(file, None).fail()
}

impl Document {
    pub fn read(path: &Path, of_laboratory: &ReadOfLaboratory) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let bytes = read_input(path, BYTES_MAX);
        let bytes = bytes.map_err(|e| Mistake::that(e.to_string()).at(&*file, None).fail())?;
        let text = String::from_utf8(bytes).map_err(|_| refused(&file, "is not UTF-8 text"))?;
        Self::parse(&text, &file, of_laboratory)
    }

    /// Parses a document. `file` is for messages.
    pub fn parse(text: &str, file: &str, of_laboratory: &ReadOfLaboratory) -> Result<Self, Failure> {
        let refused = |what: String| refused(file, &what);
        // Some editors start a file with a byte order mark.
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
                let why = format!("schema: {number}, which trimwise {} does not read", trimwise::VERSION);
                return Err(Mistake::that(why).expected(SCHEMA.to_string()).at(file, None).fail());
            }
            None => return Err(refused("has no key `schema`".to_owned())),
        }
        if is_experiment {
            return of_laboratory(Kind::Reproduce, text, file).map(Self::Laboratory);
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
            return of_laboratory(Kind::Map, text, file).map(Self::Laboratory);
        }
        if has("tests") && has("device") {
            return of_laboratory(Kind::Bench, text, file).map(Self::Laboratory);
        }
        if has("grid") && has("product") {
            return typed(text, file).map(|summary| Self::Sweep(Box::new(summary)));
        }
        if has("standings") && has("cases") {
            return of_laboratory(Kind::Tournament, text, file).map(Self::Laboratory);
        }
        Err(refused("was written by another trimwise command".to_owned()))
    }

    /// Returns the command that wrote the document.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Compare(_) => "compare",
            Self::Sweep(_) => "sweep",
            Self::Advise(_) => "advise",
            Self::Laboratory(document) => document.command(),
        }
    }
}

/// Parses a document of a known type; the error names line and column.
pub fn typed<T: DeserializeOwned>(text: &str, file: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|e| refused(file, &e.to_string()))
}
