//! The texts of `crashtest`.

use crate::requests::crashtest::on_kernel::KernelCrashTests;
use crate::requests::crashtest::soak::SoakTests;
use crate::requests::crashtest::{CrashTests, PolicyReport};

use trimwise_cli::figures::{NONE, counted, grouped};
use trimwise_cli::table::{bold, folded, laid_out};

/// Renders the results in the model, a row for each policy.
pub fn render(tests: &CrashTests) -> String {
    const HEADER: [&str; 7] =
        ["policy", "cuts", "violations", "first at cut", "files checked", "not durable", "TRIMs"];
    let row = |policy: &PolicyReport| {
        let report = &policy.report;
        [
            policy.policy.clone(),
            grouped(report.cuts),
            grouped(report.violations),
            report.first_violation.map_or_else(|| NONE.to_string(), grouped),
            grouped(report.files_checked),
            grouped(report.not_durable),
            grouped(report.trims),
        ]
    };
    let rows: Vec<_> = tests.policies.iter().map(row).collect();
    let mut text = format!("{}\n", laid_out(&HEADER, &rows));
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
    text += &verdict(cuts, violations, "the file system");
    text += &folded(
        "Not durable: writes and TRIMs that the device had yet to make durable, over all cuts; any subset of \
         them survives. Files checked: those whose fsync had returned.",
        0,
    );
    text + &format!("\ntrimwise {}, seed {}; repeat with:\n  {}\n", tests.trimwise, tests.seed, tests.command)
}

fn verdict(cuts: u64, violations: u64, what: &str) -> String {
    let verdict = match violations {
        0 => format!("{}, no violation.", counted(cuts, "power cut")),
        1 => format!("{}, 1 of them breaks {what}.", counted(cuts, "power cut")),
        _ => format!("{}, {} of them break {what}.", counted(cuts, "power cut"), grouped(violations)),
    };
    format!("{}\n", bold(&verdict))
}

/// Text for when no run was completed: a table of zeros would look like a result.
fn nothing_ran(interrupted: bool) -> String {
    let why = if interrupted { "Interrupted before the first run was complete" } else { "No run was made" };
    format!("{why}: nothing was tested.\n")
}

pub fn of_kernel(tests: &KernelCrashTests) -> String {
    const HEADER: [&str; 6] = ["target", "cuts", "violations", "files checked", "not durable", "TRIMs"];
    let report = &tests.report;
    if report.runs == 0 {
        return nothing_ran(tests.interrupted);
    }
    let row = [
        tests.target.clone(),
        grouped(report.cuts),
        grouped(report.violations),
        grouped(report.files_checked),
        grouped(report.not_durable),
        grouped(report.trims),
    ];
    let mut text = format!("{}\n", laid_out(&HEADER, &[row]));
    let kinds: Vec<String> =
        report.kinds.iter().map(|(kind, cuts)| format!("{kind} {}", grouped(*cuts))).collect();
    if !kinds.is_empty() {
        text += &folded(&format!("Cuts after which this did not hold: {}.", kinds.join(", ")), 0);
        text += "\n\n";
    }
    for (violation, again) in report.details.iter().zip(&tests.again) {
        text += &format!("{violation}repeat with:\n  {again}\n\n");
    }
    text += &verdict(report.cuts, report.violations, "it");
    if tests.interrupted {
        text += "Interrupted: only completed runs are shown.\n";
    }
    text += &folded(
        &format!(
            "Linux {}, drive {} with {}. Each cut was mounted, read and checked with the file system's own checker.",
            tests.kernel.release,
            tests.device,
            trimwise::units::Bytes(tests.capacity_bytes)
        ),
        0,
    );
    text + &format!("\ntrimwise {}, seed {}; repeat with:\n  {}\n", tests.trimwise, tests.seed, tests.command)
}

pub fn of_soak(tests: &SoakTests) -> String {
    const HEADER: [&str; 8] =
        ["target", "runs", "operations", "failed", "no space", "requests", "discards", "violations"];
    let report = &tests.report;
    if report.runs == 0 {
        return nothing_ran(tests.interrupted);
    }
    let counts = [
        report.runs,
        report.operations,
        report.failed,
        report.no_space,
        report.requests,
        report.discards,
        report.violations,
    ];
    let [runs, operations, failed, no_space, requests, discards, violations] = counts.map(grouped);
    let row = [tests.target.clone(), runs, operations, failed, no_space, requests, discards, violations];
    let mut text = format!("{}\n", laid_out(&HEADER, &[row]));
    for (violation, again) in report.details.iter().zip(&tests.again) {
        text += &format!("run {}: {}\n", violation.run, violation.machine);
        for broken in &violation.broken {
            text += &format!("  {broken}\n");
        }
        for line in &violation.history {
            text += &format!("    {line}\n");
        }
        text += &format!("repeat with:\n  {again}\n\n");
    }
    if tests.interrupted {
        text += "Interrupted: only completed runs are shown.\n";
    }
    if !tests.remounts.is_empty() {
        let (done, refused) = (counted(report.remounts, "remount"), grouped(report.remounts_refused));
        let options: Vec<&str> = report.refused_options.iter().map(String::as_str).collect();
        let which = if options.is_empty() { String::new() } else { format!(", to {}", options.join("; ")) };
        text += &folded(&format!("{done} took effect; the kernel refused {refused}{which}."), 0);
    }
    text += &folded(
        "Failed: operations that the kernel refused, mostly because the file did not exist; no space: those among them \
         that found the drive full.",
        0,
    );
    text + &format!("\nLinux {}, trimwise {}, seed {}\n", tests.kernel.release, tests.trimwise, tests.seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_plural_and_nothing_is_no_result() {
        assert!(verdict(1, 0, "it").contains("1 power cut, no violation."));
        assert!(verdict(1, 1, "it").contains("1 power cut, 1 of them breaks it."));
        assert!(verdict(1_000, 2, "it").contains("1,000 power cuts, 2 of them break it."));
        assert_eq!(nothing_ran(true), "Interrupted before the first run was complete: nothing was tested.\n");
    }
}
