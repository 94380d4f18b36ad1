//! `trimwise sweep`: prints the result of a sweep as text, JSON or HTML.

pub mod arguments;
pub mod report;

use trimwise::compare::summary::SummaryRow;
use trimwise::failure::Failure;
use trimwise_study::caller::Caller;
use trimwise_study::sweep::{self, Case, Summary};

use crate::figures::{change, counted, thousands, time};
use crate::laboratory::Beside;
use crate::output::{self, Destinations};
use crate::table;
use arguments::SweepArguments;

pub fn run(arguments: &SweepArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output)?;
    destinations.expect_outside("out", &arguments.out)?;
    // A single shard says nothing about cases whose cells other shards run.
    let wants_cases = arguments.shard.is_none() || destinations.wants_report() || destinations.wants_result();
    let summary = sweep::run(&arguments.request(wants_cases), caller, &Beside)?;
    let html = || report::html(&summary);
    let text = || text(&summary, arguments.dry_run);
    let text = destinations.deliver_with_report(&summary, html, text)?;
    output::concluded(text, summary.failure())
}

/// Keeps the cases as a table for `--csv` and `--markdown`; the text has only what they say together.
fn keep_cases(summary: &Summary) {
    let header = ["device", "workload", "utilization", "policy", "n", "time", "change", "use"];
    let row = |case: &Case, row: &SummaryRow| {
        let change = match (row.vs_baseline_percent, row.vs_baseline_significant) {
            (None, _) => String::new(),
            (Some(percent), Some(true)) => change(percent / 100.0),
            (Some(percent), _) => format!("~ {}", change(percent / 100.0)),
        };
        let is_chosen = case.policy.as_ref() == Some(&row.policy);
        [
            case.device.clone(),
            case.workload.clone(),
            format!("{} %", case.utilization),
            row.policy.to_string(),
            row.reps.to_string(),
            time(row.median_s),
            change,
            if is_chosen { "yes" } else { "" }.to_owned(),
        ]
    };
    let rows = summary.cases.iter().flat_map(|case| case.rows.iter().map(move |of| row(case, of)));
    table::export::keep("", &header, rows, &[]);
}

fn text(summary: &Summary, is_dry: bool) -> String {
    let count = |cells: u64| thousands(cells as f64);
    let mut text = format!("{}: {}\n  {}\n", summary.grid, counted(summary.cells, "cell"), summary.product);
    if let Some(shard) = &summary.shard {
        text += &format!("shard {shard}: {}\n", counted(summary.shard_cells, "cell"));
    }
    if is_dry {
        return text;
    }
    text += &format!("{} run now, {} finished before", count(summary.run_cells), count(summary.found_cells));
    if summary.broken_cells > 0 {
        text += &format!("; damaged and run again: {}", count(summary.broken_cells));
    }
    text += "\n";
    if summary.missing_cells > 0 {
        text += &format!("{} cells of the grid are missing\n", count(summary.missing_cells));
    }
    const SHOWN: usize = 5;
    for failed in summary.failures.iter().take(SHOWN) {
        text += &format!("cell {} failed: {}\n", failed.cell, table::plain(&failed.error));
    }
    if summary.failures.len() > SHOWN {
        text += &format!("and {} more; column `error` has all of them\n", summary.failures.len() - SHOWN);
    }
    keep_cases(summary);
    if !summary.cases.is_empty() {
        text += &table::folded(&report::verdict(&summary.cases), 0);
        text.extend(report::damaged(&summary.cases).iter().map(|note| table::folded(note, 0)));
    }
    match &summary.parts[..] {
        [] => {}
        [one] => text += &format!("{}/{one}\n", summary.out),
        [first, .., last] => text += &format!("{}/{first} to {last}\n", summary.out),
    }
    text
}
