//! Charts as data. `page.js` draws them at the width of the reader's screen or paper; tables show the same values to
//! readers without scripts.
//!
//! Within a page, a name always has the same [`Style`], assigned by [`Styles`]: colour, dashes and marker, so that
//! overlapping lines can be told apart. Causes (host, garbage collection, TRIM...) have colours of their own, chosen by
//! name.

use serde::Serialize;
use trimwise::policy::PolicyId;
use trimwise_study::plot::Axis;

use crate::figures::{NONE, nanoseconds, significant, time};
use crate::table::plot::{Block, with_unit};

/// Number of colours, dashes and markers that `page.js` has.
const COLOURS: usize = 8;
const DASHES: usize = 8;

/// Names with a fixed colour, so that they look the same in every report.
const RESERVED: [&[&str]; 3] = [&["off", "nodiscard", "never"], &["commit", "discard"], &["ideal"]];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Style {
    colour: usize,
    dash: usize,
    marker: usize,
    /// Whether markers are outlines, as for the second of two runs.
    hollow: bool,
}

/// The styles that a page has assigned.
#[derive(Debug, Default)]
pub struct Styles {
    names: Vec<String>,
    parts: Vec<String>,
}

impl Styles {
    /// Returns the style of a name, which stays the same throughout the page.
    pub fn of(&mut self, name: &str) -> Style {
        let (colour, round) = self.place(name);
        Style { colour, dash: (colour + round) % DASHES, marker: colour, hollow: false }
    }

    /// Returns the style of a name in one of the page's runs. The colour stands for the name and, if there are several
    /// runs, the dashes for the run.
    pub fn in_run<T>(&mut self, name: &str, runs: &[(&str, T)], run: usize) -> Style {
        if runs.len() < 2 {
            return self.of(name);
        }
        let (colour, round) = self.place(name);
        Style { colour, dash: (2 * round + run) % DASHES, marker: colour, hollow: run > 0 }
    }

    /// Returns a name's colour, and how often all colours were used up before it.
    fn place(&mut self, name: &str) -> (usize, usize) {
        // A source may add its own word for a policy in brackets: `commit (traditional)`.
        let known = name.split(" (").next().unwrap_or(name);
        if let Some(at) = RESERVED.iter().position(|names| names.contains(&known)) {
            return (at, 0);
        }
        let others = COLOURS - RESERVED.len();
        let at = position(&mut self.names, name);
        (RESERVED.len() + at % others, at / others)
    }

    /// Returns the fill of a bar's part: the cause's own, or one assigned to this name.
    pub fn fill(&mut self, name: &str) -> String {
        let plain = name.replace(['_', ' '], "-");
        if CAUSES.contains(&&*plain) {
            return plain;
        }
        format!("part{}", position(&mut self.parts, name) % PARTS)
    }
}

/// Returns a name, followed by that of its run if there are several.
pub fn label<T>(name: &str, runs: &[(&str, T)], run: usize) -> String {
    match runs {
        [] | [_] => name.to_owned(),
        _ => format!("{name} ({})", runs[run].0),
    }
}

/// Returns the position of a name in the list, to which it is appended if new.
fn position(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

/// Causes with a fill of their own.
const CAUSES: [&str; 15] = [
    "link",
    "controller",
    "write-path",
    "read-host",
    "program-host",
    "read-gc",
    "program-gc",
    "read-map",
    "erase",
    "trim",
    "flush",
    "in-use",
    "stale",
    "invalid",
    "free",
];

/// Number of fills for other parts.
const PARTS: usize = 8;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    #[serde(skip)]
    pub title: String,
    /// How to read the chart.
    #[serde(skip)]
    pub caption: String,
    #[serde(flatten)]
    pub drawing: Drawing,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Drawing {
    /// Lines over a number; panels share their axes.
    Lines { x: Axis, y: Axis, panels: Vec<Panel> },
    /// Horizontal bars from zero.
    Bars { x: Axis, y: Axis, rows: Vec<Bar> },
    /// A point with its interval on each row, and a line to it.
    Dots {
        x: Axis,
        y: Axis,
        /// Where the lines start.
        start: Start,
        rows: Vec<Dot>,
    },
    /// Coloured cells; the first row is at the bottom.
    Heat {
        x: Axis,
        y: Axis,
        /// What the colours show.
        value: Axis,
        panels: Vec<HeatPanel>,
    },
    /// What blocks hold: each is a bar, filled by its parts.
    Blocks { x: Axis, y: Axis, parts: Vec<Part>, panels: Vec<BlocksPanel> },
}

/// Where the lines of a chart start: at the bound, if there is one, so that small differences can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    Zero,
    /// At the value of a policy that none can beat.
    Bound(f64),
}

/// One of several charts with the same axes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// Empty if it is the only panel.
    pub title: String,
    pub series: Vec<Series>,
    /// Areas between the x axis and a line, drawn behind the lines.
    pub areas: Vec<Area>,
    /// Shaded ranges of the x axis.
    pub bands: Vec<Band>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub name: String,
    pub style: Style,
    pub points: Vec<Point>,
}

/// A point: x, y, and the ends of its interval, if any. A y of NaN is a gap, which no line crosses.
pub type Point = (f64, f64, Option<(f64, f64)>);

/// Returns a point at which nothing was measured.
pub fn gap(x: f64) -> Point {
    (x, f64::NAN, None)
}

/// The area between the x axis and a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Area {
    pub name: String,
    pub fill: String,
    pub points: Vec<(f64, f64)>,
}

/// Shaded ranges that share a cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// The cause, such as TRIM.
    pub name: String,
    pub fill: String,
    /// Start, end, opacity from 0 to 1, and a description.
    pub spans: Vec<(f64, f64, f64, String)>,
}

/// A segment of a bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    pub name: String,
    pub fill: String,
    /// Its length.
    pub value: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Shown above the bar.
    pub name: String,
    /// `None` if the bar is made of several parts.
    pub style: Option<Style>,
    pub parts: Vec<Part>,
    /// Text at the end of the bar.
    pub figure: String,
}

impl Bar {
    /// Makes a bar of a single part.
    pub fn new(name: &str, style: Style, value: f64, figure: String) -> Self {
        let parts = vec![Part { name: name.to_owned(), fill: String::new(), value }];
        Self { name: name.to_owned(), style: Some(style), parts, figure }
    }
}

/// A value with its interval, drawn as a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dot {
    /// Shown above the point.
    pub name: String,
    pub style: Style,
    /// The median.
    pub value: f64,
    /// The ends of its interval, if known.
    pub interval: Option<(f64, f64)>,
    /// The individual repetitions.
    pub runs: Vec<f64>,
    /// Text at the end of the row.
    pub figure: String,
    /// No difference from the baseline was found, so that none is drawn.
    pub alike: bool,
}

/// One of several heat maps with the same axes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeatPanel {
    /// Shown above the map.
    pub title: String,
    pub columns: Vec<String>,
    /// The name and cells of each row.
    pub rows: Vec<(String, Vec<Cell>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// In the unit of the map's values.
    Value(f64),
    /// The device could not keep up.
    Saturated,
    /// Nothing was measured here.
    Empty,
}

/// A map of what a drive's blocks hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlocksPanel {
    /// Shown above the map.
    pub title: String,
    /// For each block, the share of each part in thousandths.
    pub blocks: Vec<Vec<u16>>,
}

/// Most rows of a table of values; nobody reads more.
const ROWS_MAX: usize = 60;

impl Chart {
    /// Makes a chart of lines with a single panel.
    pub fn lines(
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        series: Vec<Series>,
        caption: impl Into<String>,
    ) -> Self {
        let panel = Panel { title: String::new(), series, areas: Vec::new(), bands: Vec::new() };
        Self {
            title: title.into(),
            caption: caption.into(),
            drawing: Drawing::Lines { x, y, panels: vec![panel] },
        }
    }

    /// Returns the caption, with the words that say where bars and lines start.
    pub fn whole_caption(&self) -> String {
        let start = match &self.drawing {
            Drawing::Bars { x, .. } if !x.log => "Bars start at zero.".to_owned(),
            Drawing::Dots { x, start: Start::Zero, .. } if !x.log => "Lines start at zero.".to_owned(),
            Drawing::Dots { x, start: Start::Bound(at), .. } if !x.log => format!(
                "Lines start at the bound, not at zero: {} under {}, which no policy can beat.",
                with_unit_of(*at, x),
                PolicyId::IDEAL
            ),
            _ => return self.caption.clone(),
        };
        [&*self.caption, &start].join(" ").trim_start().to_owned()
    }

    /// Returns true if there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match &self.drawing {
            Drawing::Lines { panels, .. } => {
                let is_gap = |point: &Point| point.1.is_nan();
                panels
                    .iter()
                    .all(|p| p.series.iter().all(|s| s.points.iter().all(is_gap)) && p.areas.is_empty())
            }
            Drawing::Bars { rows, .. } => rows.is_empty(),
            Drawing::Dots { rows, .. } => rows.is_empty(),
            Drawing::Heat { panels, .. } => panels.iter().all(|p| p.rows.is_empty()),
            Drawing::Blocks { panels, .. } => panels.iter().all(|p| p.blocks.is_empty()),
        }
    }

    /// Returns the values as a table; `None` if there are too many to read.
    pub fn values(&self) -> Option<Block> {
        let mut header;
        let mut rows: Vec<Vec<String>> = Vec::new();
        match &self.drawing {
            Drawing::Lines { x, y, panels } => {
                header = vec!["".to_owned(), said(x), said(y)];
                for (panel, s) in panels.iter().flat_map(|p| p.series.iter().map(move |s| (p, s))) {
                    for (at, value, interval) in s.points.iter().filter(|point| !point.1.is_nan()) {
                        let name = if panel.title.is_empty() { s.name.clone() } else { panel.title.clone() };
                        let interval = interval
                            .map_or(String::new(), |(l, h)| format!(" ({} to {})", shown(l, y), shown(h, y)));
                        rows.push(vec![name, shown(*at, x), shown(*value, y) + &interval]);
                    }
                }
            }
            Drawing::Bars { x, rows: bars, .. } => {
                let mut parts: Vec<&str> = Vec::new();
                for part in bars.iter().filter(|b| b.parts.len() > 1).flat_map(|b| &b.parts) {
                    if !parts.contains(&&*part.name) {
                        parts.push(&part.name);
                    }
                }
                header = vec!["".to_owned()];
                header.extend(parts.iter().map(|part| with_unit(part, &x.unit)));
                header.push(if parts.is_empty() { said(x) } else { "total".to_owned() });
                for bar in bars {
                    let of = |name: &&str| {
                        let part = bar.parts.iter().find(|part| part.name == **name);
                        part.map_or(NONE.to_owned(), |part| significant(part.value))
                    };
                    let mut row = vec![bar.name.clone()];
                    row.extend(parts.iter().map(of));
                    row.push(bar.figure.clone());
                    rows.push(row);
                }
            }
            Drawing::Dots { x, rows: dots, .. } => {
                header = vec!["".to_owned(), said(x), "from".to_owned(), "to".to_owned()];
                for dot in dots {
                    let end = |end: Option<f64>| end.map_or(NONE.to_owned(), |end| shown(end, x));
                    let (low, high) = (dot.interval.map(|i| i.0), dot.interval.map(|i| i.1));
                    rows.push(vec![dot.name.clone(), shown(dot.value, x), end(low), end(high)]);
                }
            }
            Drawing::Heat { x, y, value, panels } => {
                header = vec!["".to_owned(), said(y), said(x), said(value)];
                for panel in panels {
                    for (row, cells) in &panel.rows {
                        for (column, cell) in panel.columns.iter().zip(cells) {
                            let cell = match *cell {
                                Cell::Value(v) => shown(v, value),
                                Cell::Saturated => "saturated".to_owned(),
                                Cell::Empty => continue,
                            };
                            rows.push(vec![panel.title.clone(), row.clone(), column.clone(), cell]);
                        }
                    }
                }
            }
            Drawing::Blocks { parts, panels, .. } => {
                header = vec!["".to_owned()];
                header.extend(parts.iter().map(|part| with_unit(&part.name, "%")));
                for panel in panels.iter().filter(|panel| !panel.blocks.is_empty()) {
                    let mean = |part: usize| {
                        let sum: u64 = panel.blocks.iter().map(|block| u64::from(block[part])).sum();
                        format!("{:.1}", sum as f64 / panel.blocks.len() as f64 / 10.0)
                    };
                    let mut row = vec![panel.title.clone()];
                    row.extend((0..parts.len()).map(mean));
                    rows.push(row);
                }
            }
        }
        if rows.is_empty() || rows.len() > ROWS_MAX {
            return None;
        }
        Some(Block { title: format!("Values: {}", self.title), header, rows })
    }
}

fn said(axis: &Axis) -> String {
    match &*axis.unit {
        "ns" => axis.label.to_string(),
        unit => with_unit(&axis.label, unit),
    }
}

fn shown(value: f64, axis: &Axis) -> String {
    if axis.unit == "ns" { nanoseconds(value) } else { significant(value) }
}

/// Writes a value with its unit.
fn with_unit_of(value: f64, axis: &Axis) -> String {
    match &*axis.unit {
        "s" => time(value),
        "ns" => nanoseconds(value),
        _ => significant(value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_name_has_one_style_and_no_other_has_it() {
        let mut styles = Styles::default();
        let names: Vec<String> = (0..30).map(|i| format!("policy {i}")).collect();
        let first: Vec<Style> = names.iter().map(|name| styles.of(name)).collect();
        let again: Vec<Style> = names.iter().map(|name| styles.of(name)).collect();
        assert_eq!(first, again);
        let mut lines: HashSet<_> = first.iter().map(|style| (style.colour, style.dash)).collect();
        assert_eq!(lines.len(), names.len(), "two lines look the same");
        for reserved in RESERVED {
            let style = styles.of(reserved[0]);
            assert!(lines.insert((style.colour, style.dash)), "{reserved:?}");
        }
    }

    #[test]
    fn two_runs_of_a_policy_have_its_colour_and_differ_in_their_dashes() {
        let (mut styles, runs) = (Styles::default(), [("A", ()), ("B", ())]);
        let mut lines = HashSet::new();
        for name in ["off", "commit", "ideal", "lazy", "reuse", "batch:1w", "set:40:90", "async", "judicious"]
        {
            let (a, b) = (styles.in_run(name, &runs, 0), styles.in_run(name, &runs, 1));
            assert_eq!(a.colour, b.colour);
            assert!(b.hollow && !a.hollow);
            assert!(lines.insert((a.colour, a.dash)) && lines.insert((b.colour, b.dash)), "{name}");
        }
    }

    #[test]
    fn causes_keep_their_fill_and_other_parts_get_one_each() {
        let mut styles = Styles::default();
        assert_eq!(
            ["program_gc", "program gc", "trim"].map(|name| styles.fill(name)),
            ["program-gc", "program-gc", "trim"]
        );
        assert_ne!(styles.fill("creation"), styles.fill("deletion"));
        assert_eq!(styles.fill("creation"), "part0");
    }

    #[test]
    fn values_are_a_table_unless_they_are_too_many() {
        let mut styles = Styles::default();
        let series = |n: usize, styles: &mut Styles| Series {
            name: "off".to_owned(),
            style: styles.of("off"),
            points: (0..n).map(|i| (i as f64, 1_500.0, Some((1_000.0, 2_000.0)))).collect(),
        };
        let chart = |n, styles: &mut Styles| {
            let y = Axis::log("latency_ns", "latency", "ns");
            Chart::lines("t", Axis::linear("at_s", "time", "s"), y, vec![series(n, styles)], "")
        };
        let block = chart(2, &mut styles).values().unwrap();
        assert_eq!(block.header, ["", "time, s", "latency"]);
        assert_eq!(block.rows[1], ["off", "1.000", "1.5 \u{b5}s (1 \u{b5}s to 2 \u{b5}s)"]);
        assert!(chart(ROWS_MAX + 1, &mut styles).values().is_none());
        assert!(chart(0, &mut styles).is_empty());
    }
}
