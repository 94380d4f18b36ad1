//! The text of `doctor`: each file system with the layers down to its disks, and the findings.

use trimwise::units::Bytes;
use trimwise_linux::doctor::{Aim, Diagnosis, Finding, Purpose};
use trimwise_study::command_text::CommandText;
use trimwise_study::doctor::DoctorReport;

use crate::conclusion;
use crate::table::{bold, dim, folded, plain};

pub fn render(found: &DoctorReport) -> String {
    let report = &found.report;
    let trimmers = if report.trimmers.is_empty() { "none".to_owned() } else { report.trimmers.join(", ") };
    let kernel = if report.kernel.is_empty() { "of unknown version" } else { &report.kernel };
    let mut text = folded(&plain(&format!("Linux {kernel}; trims at intervals: {trimmers}")), 0);
    text += &findings(&report.findings, "remedy");
    for (one, conclusion) in report.file_systems.iter().zip(&found.conclusions) {
        text += &file_system(one);
        // The finding above already has its remedy.
        let is_wrong = one.findings.iter().any(|finding| finding.wrong);
        text += &match &conclusion.head[..] {
            [first, ..] if is_wrong => bold(folded(&plain(first), 0).trim_end()) + "\n",
            _ => conclusion::text(conclusion),
        };
    }
    text.push('\n');
    if !report.not_checked.is_empty() {
        text += &format!("Not checked:\n{}\n", findings(&report.not_checked, "to find out"));
    }
    let all = report.file_systems.iter().flat_map(|one| &one.findings).chain(&report.findings);
    if all.chain(&report.not_checked).next().is_some() {
        text += "`trimwise explain CODE` explains a code in brackets.\n";
    }
    let is_whole = report.not_checked.is_empty();
    // The command then fails, and its error lists what is wrong or was not checked.
    let last = match report.wrong() {
        0 if report.file_systems.is_empty() => "Nothing was checked.".to_owned(),
        0 if is_whole => format!(
            "Nothing wrong was found. Not checked: whether TRIMs reach the disk ({}).",
            where_to_verify(&report.file_systems)
        ),
        0 => "Nothing wrong was found in what was checked.".to_owned(),
        _ => "Problems are marked with !.".to_owned(),
    };
    text + &folded(&last, 0)
}

/// Names a directory that `verify` takes, or says that there is none.
fn where_to_verify(file_systems: &[Diagnosis]) -> String {
    let Some(one) = file_systems.iter().find(|one| one.is_verifiable) else {
        return "`trimwise verify` cannot see that below any of these".to_owned();
    };
    let mut verify = CommandText::new("verify");
    verify.argument(format!("dir:{}", one.mount_point.display()));
    format!("`{}`", verify.into_text())
}

fn file_system(one: &Diagnosis) -> String {
    let passes = match one.passes {
        Some(true) => "TRIM passes",
        Some(false) => "TRIM does not pass",
        None => "unknown whether TRIM passes",
    };
    let title =
        format!("{}: {} on {}, {}", one.mount_point.display(), one.fs_type, one.device, one.today.discard);
    let mut text = format!("\n{}: {passes}\n", bold(&plain(&title)));
    for layer in &one.layers {
        let takes = match layer.discard_max_bytes {
            Some(0) => "does not support TRIM".to_owned(),
            Some(bytes) => format!("TRIM up to {}", Bytes(bytes)),
            None => "unknown whether it supports TRIM".to_owned(),
        };
        let counted = layer.discards.map_or(String::new(), |n| format!(", {n} since boot"));
        let indent = "  ".repeat(layer.depth + 1);
        let layer = plain(&format!("{} ({})", layer.name, layer.what.trim()));
        text += &format!("{indent}{layer}: {takes}{counted}\n");
    }
    // That a drive of its own gains needs no word.
    if one.purposes.iter().any(|purpose| purpose.aim != Aim::Flash) {
        let words = |purpose: &Purpose| match purpose.is_reached {
            Some(true) => purpose.words(),
            Some(false) => format!("{} (no discard arrives)", purpose.words()),
            None => format!("{} (unknown whether one arrives)", purpose.words()),
        };
        let words: Vec<String> = one.purposes.iter().map(words).collect();
        text += &folded(&plain(&format!("  A discard is for: {}.", words.join("; "))), 4);
    }
    text + &findings(&one.findings, "remedy")
}

/// Renders findings; `mend_word` introduces the remedy.
fn findings(findings: &[Finding], mend_word: &str) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = if finding.wrong { "! " } else { "- " };
        let code = finding.code.as_str();
        let told = folded(&plain(&format!("{mark}{}: {}. [{code}]", finding.place, finding.what)), 2);
        let (told, _) = told.trim_end().rsplit_once('[').unwrap_or((&told, ""));
        text += &format!("{told}{}\n", dim(&format!("[{code}]")));
        let mend = finding.mend.as_ref().filter(|mend| !mend.is_empty());
        let remedy = match (finding.nothing_helps, mend) {
            (false, None) => None,
            (false, Some(mend)) => Some(format!("{mend_word}: {mend}.")),
            (true, None) => Some("nothing on this host helps.".to_owned()),
            (true, Some(mend)) => Some(format!("nothing on this host helps; this would: {mend}.")),
        };
        text += &remedy.map_or_else(String::new, |remedy| folded(&plain(&remedy), 6));
        // Not folded, so that they can be copied.
        for (heading, commands) in [("as root:", &finding.commands), ("to undo it:", &finding.undo)] {
            if !commands.is_empty() {
                text += &format!("      {heading}\n");
                commands.iter().for_each(|command| text += &format!("          {}\n", plain(command)));
            }
        }
    }
    text
}
