//! The report of `advise`: the advice, the cost of other choices, and the response surface as a heat map.

use minijinja::Value;
use serde::Serialize;
use trimwise::advise::Gated;
use trimwise_lab::failure::Failure;
use trimwise_study::advise::Advice;

use super::text;
use crate::commands::compare::report::Step;
use crate::commands::compare::table;
use crate::report::{rendered, with_code};

/// Excess at which the colour of the heat map is full, in percent.
const FULL_PERCENT: f64 = 30.0;

#[derive(Serialize)]
struct Page {
    title: String,
    verdict: Value,
    why: Value,
    notes: Vec<Value>,
    cost_header: [String; 6],
    costs: Vec<Vec<String>>,
    cost_caption: String,
    chosen: Option<String>,
    steps_heading: Value,
    steps: Vec<Step>,
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
    let why = advice.comparison.as_ref().filter(|_| advice.matters == Some(true));
    let page = Page {
        title: text::title(advice),
        verdict: with_code(&advice.text),
        why: with_code(why.map_or("", |comparison| &comparison.verdict.why)),
        notes: text::notes(advice).iter().map(|note| with_code(note)).collect(),
        cost_header,
        costs,
        cost_caption: text::cost_caption(advice),
        chosen: advice.policy.as_ref().map(ToString::to_string),
        steps_heading: with_code(
            &advice.policy.as_ref().map_or(String::new(), |p| table::steps_heading(p, &advice.apply)),
        ),
        steps: advice.apply.iter().map(Step::of).collect(),
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
