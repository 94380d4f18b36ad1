//! The report of `advise`: the advice, the cost of other choices, and the response surface as a heat map.

use minijinja::Value;
use serde::Serialize;
use trimwise::advise::Gated;
use trimwise::compare::summary::Summary;
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise_study::advise::Advice;
use trimwise_study::compare::Comparison;
use trimwise_study::conclusion::steps::Steps;

use super::text;
use crate::commands::compare::report::{PARTIAL, UNCHECKED, mark};
use crate::commands::compare::table;
use crate::report::{rendered, with_code};
use crate::table::plot::Block;

/// Excess, in percent, at which the heat map reaches full colour.
const FULL_PERCENT: f64 = 30.0;

#[derive(Serialize)]
struct Page {
    title: String,
    head: Vec<Value>,
    /// Whether the figures were checked on a real kernel.
    mark: String,
    /// What `--here` found, and the profile that stands in for the drive.
    here: Vec<String>,
    text: Value,
    why: Value,
    notes: Vec<Value>,
    cost_header: [String; 6],
    costs: Vec<Vec<String>>,
    cost_caption: String,
    chosen: Option<String>,
    steps: Steps,
    surfaces: Vec<Surface>,
    /// The compared policies, in the model and on the real kernel; `None` without a check.
    checked: Option<Block>,
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
    /// Opacity from 0 (the best) to 1; `None` if this cell did not run.
    shade: Option<String>,
}

pub fn html(advice: &Advice) -> Result<String, Failure> {
    let (cost_header, costs) = match &advice.comparison {
        Some(comparison) => text::cost_rows(advice, comparison),
        None => Default::default(),
    };
    let why = advice.comparison.as_ref().filter(|_| advice.is_decided());
    let comparison = advice.comparison.as_ref();
    let here = comparison.and_then(|comparison| comparison.here.as_ref());
    let page = Page {
        title: text::title(advice),
        head: advice.conclusion.head.iter().map(|line| with_code(line)).collect(),
        mark: format!(
            "{}{}",
            if advice.partial { PARTIAL } else { "" },
            comparison.map_or(UNCHECKED.to_owned(), mark)
        ),
        here: here.map_or_else(Vec::new, |here| here.lines().map(str::to_owned).collect()),
        text: with_code(why.map_or("", |comparison| &comparison.verdict.text)),
        checked: comparison.and_then(checked),
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

fn checked(comparison: &Comparison) -> Option<Block> {
    let kernel = comparison.check.as_ref()?.kernel.as_ref()?;
    let summary = Summary::of(&comparison.cells);
    let (header, rows) = table::columns(summary.devices.first()?, comparison, summary.measure, &table::TABLE);
    let title = format!("Checked on the {} of Linux {}", kernel.file_system, kernel.title());
    Some(Block { title, header, rows })
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
    if let Some(percent) = settings.utilization {
        shown.push(("utilization before the run", format!("{percent} %")));
    }
    if let (Some(days), Some(day)) = (settings.days, &settings.day) {
        shown.push(("days", format!("{days}, {day}")));
    }
    if let Some(linux) = &settings.linux {
        shown.push(("modelled host", format!("Linux {} ({})", linux.version, linux.stands_for)));
    }
    if let Some(memory) = settings.host_memory_bytes {
        shown.push(("memory of the modelled host", Bytes(memory).to_string()));
    }
    shown.extend([
        ("judged by", settings.judge.clone()),
        ("repetitions", settings.reps.to_string()),
        ("seed", advice.seed.to_string()),
        ("version", format!("trimwise {}", advice.trimwise)),
    ]);
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trimwise_study::compare::here::Here;

    use super::*;
    use crate::commands::advise::tests::{advice, gated};

    #[test]
    fn the_page_says_what_stands_in_for_the_drive_what_is_missing_and_what_was_not_checked() {
        let here = json!({
            "mount": "/", "device": "/dev/sda1", "drive": "sda", "model": "X", "size_bytes": 1, "discard_max_bytes": 1,
            "matched_by": "class", "profile": "sata-generic", "scale": 0.1, "kernel": "6.12", "memory_bytes": 1,
            "file_system": "ext4", "utilization_percent": 63, "policy": "nodiscard",
            "lines": ["The root is on sda.", "sata-generic stands in for it, guessed, at a tenth of its size."],
        });
        let mut advice = advice(gated);
        let comparison = advice.comparison.as_mut().unwrap();
        comparison.here = Some(serde_json::from_value::<Here>(here).unwrap());
        advice.partial = true;
        let page = html(&advice).unwrap();
        for said in ["The root is on sda.", "guessed, at a tenth", PARTIAL.trim(), UNCHECKED] {
            assert!(page.contains(said), "{said}: {page}");
        }
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_ADVISE") {
            std::fs::write(path, &page).unwrap();
        }
    }
}
