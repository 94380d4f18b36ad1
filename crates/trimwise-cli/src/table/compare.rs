//! The table of `compare`: a block for each device, then the verdict, then how to make it again.

use trimwise::experiment::statistics::too_few_runs;
use trimwise::experiment::summary::{DeviceSummary, Summary};

use super::{aligned, bold, figures_table, finished, folded};
use crate::compare::Comparison;
use crate::figures;

/// The whole text.
pub fn render(comparison: &Comparison) -> String {
    let summary = Summary::of(&comparison.cells);
    let settings = &comparison.settings;
    let mut text = String::new();
    for device in &summary.devices {
        let how_full = settings.utilization_percent.map_or(String::new(), |u| format!(", {u} % full"));
        let title = format!("{}: PostMark {}{how_full}", device.device, settings.workload);
        text += &format!("{}\n\n{}\n", bold(&title), block(device, &settings.baseline));
    }
    for note in notes(&summary) {
        text += &(folded(&note, 0) + "\n");
    }
    let several = comparison.verdict.per_device.len() > 1;
    text += &bold(folded(&comparison.verdict.text, 0).trim_end());
    text.push('\n');
    if several {
        for device in &comparison.verdict.per_device {
            text += &format!("\n{}\n{}", device.device, folded(&device.text, 2));
        }
    }
    text + &format!(
        "\ntrimwise {}, seed {}; again:\n  {}\n",
        comparison.trimwise, comparison.seed, settings.command
    )
}

/// The table of one device.
fn block(device: &DeviceSummary, baseline: &str) -> String {
    let versus = format!("vs {baseline}");
    let several = device.policies.len() > 1;
    let mut header = vec!["policy", "n", "total"];
    if several {
        header.push(&versus);
    }
    header.extend(["trans./s", "WA", "erases", "TRIMs", "stale max"]);
    let mut table = figures_table(&header);
    for p in &device.policies {
        let mut row = vec![p.policy.to_string(), figures::runs(&p.total_s), figures::duration(&p.total_s)];
        if several {
            row.push(figures::difference(p.versus_baseline.as_ref()));
        }
        row.extend(figures::of_policy(p));
        table.add_row(row.iter().enumerate().map(|(i, text)| aligned(i, text)));
    }
    finished(table)
}

/// What the reader should know before he believes the intervals; each thing once.
pub fn notes(summary: &Summary) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let policies = || summary.devices.iter().flat_map(|d| &d.policies);
    let in_model = policies().flat_map(|p| &p.runs).all(|run| run.target == "model");
    if in_model && policies().any(|p| p.runs.len() > 1 && !p.total_s.is_exact()) {
        notes.push(
            "Repetitions differ in the seed of the ageing step and in the phase of the commit timer; no \
             noise is added."
                .to_string(),
        );
    }
    for p in policies() {
        let note = if p.total_s.is_exact() && p.runs.len() > 1 {
            Some("exact: all repetitions were the same to the last bit, so that one says it all.".to_string())
        } else {
            too_few_runs(&p.total_s).map(|n| format!("Few runs: {n}."))
        };
        notes.extend(note.filter(|n| !notes.contains(n)));
    }
    notes
}

#[cfg(test)]
#[path = "compare_tests.rs"]
pub mod tests;
