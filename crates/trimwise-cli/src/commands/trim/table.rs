//! The text of `trim`: the estimate, FITRIM's return value and the device's count, side by side.

use trimwise::units::Bytes;
use trimwise_study::trim::report::{EstimateReport, TrimReport};

use crate::figures::{NONE, grouped};
use crate::table::{bold, folded, laid_out, plain};

pub fn render(report: &TrimReport) -> String {
    let mut text = bold(&plain(&title(report)));
    text += "\n\n";
    text += &laid_out(&["", "extents", "commands", "bytes", ""], &rows(report));
    text.push('\n');
    for line in lines(report) {
        text += &folded(&line, 0);
    }
    text.push('\n');
    for note in &report.notes {
        text += &folded(&plain(note), 0);
    }
    text + &format!("\ntrimwise {}; repeat with:\n  {}\n", report.trimwise, plain(&report.settings.command))
}

fn title(report: &TrimReport) -> String {
    let file_system = &report.file_system;
    let devices: Vec<&str> = report.devices.iter().map(|device| device.name.as_str()).collect();
    let groups = match (file_system.groups, file_system.group_bytes, file_system.groups_name) {
        (Some(groups), Some(bytes), Some(name)) => format!(", {} {name} of {bytes}", grouped(groups)),
        _ => String::new(),
    };
    format!("{}: {} on {}{groups}", file_system.mount_point, file_system.kind, devices.join(", "))
}

fn rows(report: &TrimReport) -> Vec<[String; 5]> {
    let size = |bytes: Bytes| [bytes.to_string(), format!("{} B", grouped(bytes.0))];
    let row = |name: &str, extents: String, commands: String, [short, exact]: [String; 2]| {
        [name.to_string(), extents, commands, short, exact]
    };
    let none = || NONE.to_string();
    let mut rows = Vec::new();
    match &report.estimate {
        EstimateReport::FreeExtents { extents, bytes, commands_max, too_short_extents, too_short_bytes } => {
            let commands = format!("≤ {}", grouped(*commands_max));
            rows.push(row("free, would be sent", grouped(*extents), commands, size(*bytes)));
            if *too_short_extents > 0 {
                rows.push(row(
                    "free, too short",
                    grouped(*too_short_extents),
                    none(),
                    size(*too_short_bytes),
                ));
            }
        }
        EstimateReport::UpperBound { bytes_max } => {
            let bound = size(*bytes_max).map(|text| format!("≤ {text}"));
            rows.push(row("not in use (a bound)", none(), none(), bound));
        }
    }
    if let Some(trim) = &report.trim {
        rows.push(row("FITRIM returned", none(), none(), size(trim.fitrim_answered_bytes)));
        if let Some(counted) = &trim.device_counted {
            rows.push(row("the device counted", none(), grouped(counted.commands), size(counted.bytes)));
        }
        rows.push(match trim.taken_bytes {
            Some(taken) if trim.verdict == "accepted" => {
                row("a virtual disk accepted", none(), none(), size(taken))
            }
            Some(taken) => row("the device took", none(), none(), size(taken)),
            None => row("the device took", none(), none(), [trim.verdict.to_owned(), none()]),
        });
        if let Some(left @ Bytes(1..)) = trim.untrimmed_bytes {
            rows.push(row("not known to be trimmed", none(), none(), size(left)));
        }
    }
    rows
}

fn lines(report: &TrimReport) -> Vec<String> {
    let settings = &report.settings;
    let mut lines = Vec::new();
    match &report.trim {
        None => lines.push("Dry run: nothing was sent.".to_string()),
        Some(trim) => {
            let seconds = trim.duration_ns as f64 / 1e9;
            let how = if trim.ended == "done" { String::new() } else { format!(" ({})", trim.ended) };
            lines.push(format!("{} of {} slices in {seconds:.2} s{how}.", trim.slices_done, trim.slices));
            if let Some(failure) = &trim.failure {
                lines.push(format!("Failed: {failure}."));
            }
            lines.extend(trim.given_back.iter().map(|given| plain(&given.sentence())));
            lines.push(format!("FITRIM's return value: {}.", trim.fitrim_answer_means));
        }
    }
    let range = match settings.length_bytes {
        Some(length) => format!("{} starting at {}", length, Bytes(settings.offset_bytes)),
        None => format!("everything from {} to the end", Bytes(settings.offset_bytes)),
    };
    lines.push(format!("Range: {range}. Shortest extent: {}.", settings.min_extent_effective_bytes));
    lines
}
