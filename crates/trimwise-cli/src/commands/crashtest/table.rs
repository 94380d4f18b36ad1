//! Results of power cuts, policy by policy.

use crate::commands::crashtest::CrashTests;
use crate::figures::grouped;
use crate::table::{aligned, bold, figures_table, finished, folded};

/// Renders the whole text.
pub fn render(tests: &CrashTests) -> String {
    let mut table = figures_table(&[
        "policy",
        "cuts",
        "violations",
        "first at cut",
        "files checked",
        "not durable",
        "TRIMs",
    ]);
    for policy in &tests.policies {
        let report = &policy.report;
        let first = report.first_violation.map_or_else(|| "-".to_string(), grouped);
        let row = [
            policy.policy.clone(),
            grouped(report.cuts),
            grouped(report.violations),
            first,
            grouped(report.files_checked),
            grouped(report.not_durable),
            grouped(report.trims),
        ];
        table.add_row(row.iter().enumerate().map(|(i, cell)| aligned(i, cell)));
    }
    let mut text = format!("{}\n", finished(table));
    for policy in tests.policies.iter().filter(|p| p.report.violations > 0) {
        text += &bold(&format!("{}: the first violations", policy.policy));
        text.push('\n');
        for violation in &policy.report.details {
            text += &violation.to_string();
        }
        if let Some(again) = &policy.again {
            text += &format!("repeat with:\n  {again}\n");
        }
        text.push('\n');
    }
    let violations: u64 = tests.policies.iter().map(|p| p.report.violations).sum();
    let cuts: u64 = tests.policies.iter().map(|p| p.report.cuts).sum();
    let verdict = match violations {
        0 => format!("{} power cuts, no violation.", grouped(cuts)),
        _ => format!("{} power cuts, {} of them break the file system.", grouped(cuts), grouped(violations)),
    };
    text += &bold(&verdict);
    text += "\n";
    text += &folded(
        "Not durable: writes and TRIMs that the device had yet to make durable, over all cuts; any subset of \
         them survives. Files checked: those whose fsync had returned.",
        0,
    );
    text + &format!("\ntrimwise {}, seed {}; repeat with:\n  {}\n", tests.trimwise, tests.seed, tests.command)
}
