//! The report of two runs side by side.

use minijinja::Value;
use serde::Serialize;
use trimwise::failure::Failure;

use super::chart::Chart;
use super::{Figure, rendered, with_code};
use crate::table::plot::Block;

/// Names of the two runs, which charts add to the names of policies.
pub const NAMES: [&str; 2] = ["A", "B"];

/// One of the two runs.
#[derive(Serialize)]
pub struct Run {
    pub file: String,
    /// A line that says what ran.
    pub what: String,
    /// The run's own verdict or finding.
    pub verdict: Value,
    /// The command that repeats the run.
    pub command: String,
}

/// The page's data, as the template reads them.
#[derive(Serialize)]
pub struct Page {
    title: String,
    verdict: Value,
    runs: [Run; 2],
    names: [&'static str; 2],
    differences: Option<Block>,
    sections: Vec<Section>,
    notes: Vec<String>,
}

/// A part of the page about one device, experiment or test that both runs have.
#[derive(Serialize)]
pub struct Section {
    title: String,
    blocks: Vec<Block>,
    figures: Vec<Figure>,
}

impl Section {
    pub fn of(title: String, blocks: Vec<Block>, charts: &[Chart]) -> Result<Self, Failure> {
        let figures = charts.iter().map(Figure::of).collect::<Result<_, _>>()?;
        Ok(Self { title, blocks, figures })
    }
}

/// Names and values of settings, in order.
pub type Settings = Vec<(&'static str, String)>;

impl Page {
    /// Renders the page, with a table of the settings that differ.
    pub fn html(
        verdict: &str,
        runs: [Run; 2],
        settings: [Settings; 2],
        sections: Vec<Section>,
        notes: Vec<String>,
    ) -> Result<String, Failure> {
        let runs = runs.map(|run| Run { file: file_name(&run.file), ..run });
        let page = Self {
            title: format!("{} and {}", runs[0].file, runs[1].file),
            verdict: with_code(verdict),
            runs,
            names: NAMES,
            differences: differences(&settings),
            sections,
            notes,
        };
        rendered(include_str!("pair.html"), &page)
    }
}

/// Drops the directory, which says nothing about a run.
fn file_name(path: &str) -> String {
    let name = std::path::Path::new(path).file_name();
    name.map_or(path.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns a table of the settings that differ; `None` if all are the same.
fn differences([a, b]: &[Settings; 2]) -> Option<Block> {
    let of = |settings: &Settings, name: &str| {
        settings.iter().find(|(known, _)| *known == name).map_or("-".to_owned(), |(_, value)| value.clone())
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in a.iter().chain(b) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let rows: Vec<[String; 3]> = names
        .into_iter()
        .map(|name| [name.to_owned(), of(a, name), of(b, name)])
        .filter(|[_, a, b]| a != b)
        .collect();
    (!rows.is_empty()).then(|| Block::new("Settings that differ", ["", "A", "B"], rows))
}

/// Formats the relative change from `a` to `b`, such as `+3.1 %`.
pub fn change(a: Option<f64>, b: Option<f64>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a != 0.0 => crate::figures::change(b / a - 1.0),
        _ => crate::figures::NONE.to_owned(),
    }
}
