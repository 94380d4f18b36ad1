//! The report of `advise`: the advice, the cost of other choices, and the response surface as a heat map.

use minijinja::Value;
use serde::Serialize;
use trimwise::advise::Gated;
use trimwise_lab::failure::Failure;
use trimwise_study::advise::Advice;
use trimwise_study::conclusion::steps::Steps;

use super::text;
use crate::report::{rendered, with_code};

/// Excess at which the colour of the heat map is full, in percent.
const FULL_PERCENT: f64 = 30.0;

#[derive(Serialize)]
struct Page {
    title: String,
    /// The lines of the conclusion.
    head: Vec<Value>,
    text: Value,
    why: Value,
    notes: Vec<Value>,
    cost_header: [String; 6],
    costs: Vec<Vec<String>>,
    cost_caption: String,
    chosen: Option<String>,
    steps: Steps,
    surfaces: Vec<Surface>,
    other_header: [&'static str; text::OTHERS.len()],
    others: Vec<Vec<String>>,
    counts: Value,
    settings: Vec<(&'static str, String)>,
    command: String,
}

#[derive(Serialize)]
struct Surface {
    title: String,
    header: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    low: String,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    text: String,
    /// From 0 (the best) to 1; `None` if it did not run.
    shade: Option<String>,
}

/// Renders the whole file.
pub fn html(advice: &Advice) -> Result<String, Failure> {
    let (cost_header, costs) = match &advice.comparison {
        Some(comparison) => text::cost_rows(advice, comparison),
        None => Default::default(),
    };
    let why = advice.comparison.as_ref().filter(|_| advice.is_decided());
    let page = Page {
        title: text::title(advice),
        head: advice.conclusion.head.iter().map(|line| with_code(line)).collect(),
        text: with_code(why.map_or("", |comparison| &comparison.verdict.text)),
        why: with_code(why.map_or("", |comparison| &comparison.verdict.why)),
        notes: text::notes(advice).iter().map(|note| with_code(note)).collect(),
        cost_header,
        costs,
        cost_caption: text::cost_caption(advice),
        chosen: advice.conclusion.policy.as_ref().map(ToString::to_string),
        steps: advice.conclusion.steps.clone(),
        surfaces: Gated::ALL
            .into_iter()
            .map(|gated| surface(advice, gated))
            .filter(|s| !s.rows.is_empty())
            .collect(),
        other_header: text::OTHERS,
        others: text::other_rows(&advice.search),
        counts: with_code(&text::counts(&advice.search)),
        settings: settings(advice),
        command: advice.settings.command.clone(),
    };
    rendered(include_str!("report.html"), &page)
}

fn surface(advice: &Advice, gated: Gated) -> Surface {
    let (header, rows) = text::watermarks(&advice.search, gated);
    let cell = |cell: text::SurfaceCell| Cell {
        text: cell.text,
        shade: cell.excess_percent.map(|percent| format!("{:.2}", (percent / FULL_PERCENT).clamp(0.0, 1.0))),
    };
    let rows = rows.into_iter().map(|(low, cells)| Row { low, cells: cells.into_iter().map(cell).collect() });
    Surface { title: text::surface_title(&advice.search, gated), header, rows: rows.collect() }
}

fn settings(advice: &Advice) -> Vec<(&'static str, String)> {
    let settings = &advice.settings;
    let mut shown = vec![("workload", settings.workload.clone())];
    if let Some(percent) = settings.utilization_percent {
        shown.push(("utilization before the run", format!("{percent} %")));
    }
    if let (Some(days), Some(day)) = (settings.days, &settings.day) {
        shown.push(("days", format!("{days}, {day}")));
    }
    if let Some(linux) = &settings.linux {
        shown.push(("modelled host", format!("Linux {} ({})", linux.version, linux.stands_for)));
    }
    shown.extend([
        ("judged by", settings.judge.clone()),
        ("repetitions", settings.reps.to_string()),
        ("seed", advice.seed.to_string()),
        ("version", format!("trimwise {}", advice.trimwise)),
    ]);
    shown
}
