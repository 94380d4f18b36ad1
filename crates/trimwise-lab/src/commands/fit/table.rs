//! The text of `fit`.

use trimwise::profile::SettingValue;
use trimwise::units::Bytes;

use crate::requests::fit::FitReport;
use trimwise_cli::figures::{NONE, grouped, significant};
use trimwise_cli::table::{bold, folded, laid_out};
use trimwise_study::command_text::CommandText;

pub fn render(report: &FitReport) -> String {
    let measured = &report.measured;
    let heading = format!(
        "{}, {}; the rest is from {} ({})",
        measured.device,
        Bytes(measured.size_bytes),
        report.base,
        match report.base_chosen_by {
            "given" => "as --from says",
            "model" => "which names its model",
            "guess" => "a guess, since nothing shows what drive is below",
            _ => "chosen by its class",
        }
    );
    let mut text = bold(folded(&heading, 0).trim_end()) + "\n\n";
    let rows: Vec<Vec<String>> = report
        .fitted
        .iter()
        .map(|f| {
            let interval = f.low.zip(f.high).map(|(low, high)| format!("{}-{}", grouped(low), grouped(high)));
            vec![
                f.setting.to_owned(),
                f.base.as_ref().map_or(NONE.to_owned(), shown),
                shown(&f.value),
                interval.unwrap_or_else(|| NONE.to_owned()),
                f.samples.to_string(),
            ]
        })
        .collect();
    text += &laid_out(&["setting", "base", "fitted", "95 % interval", "n"], &rows);
    let rows: Vec<Vec<String>> = report
        .held_back
        .iter()
        .map(|p| {
            vec![
                p.test.to_owned(),
                significant(p.measured_per_s),
                significant(p.predicted_per_s),
                format!("{:+.1} %", p.error_percent),
                format!("{:+.0} %", p.base_error_percent),
            ]
        })
        .collect();
    text += "\n";
    let header = ["held back (nothing is fitted to these)", "per s", "predicted", "error", "error of base"];
    text += &laid_out(&header, &rows);
    text += "\n";
    for warning in &report.warnings {
        text += &(bold(folded(&format!("Warning: {warning}."), 0).trim_end()) + "\n");
    }
    if let Some(times) = report.read_beside_trims {
        let blocks = format!(
            "During back-to-back TRIMs of 1 MiB, a read takes {} times as long as alone.",
            significant(times)
        );
        text += &folded(&blocks, 0);
    }
    text += &folded(
        "Over-provisioning, garbage collection and endurance come from the base profile; a short bench cannot \
                 measure them.",
        0,
    );
    report.notes.iter().for_each(|note| text += &folded(&format!("Note: {note}."), 0));
    text += &match (&report.out, &report.recommended) {
        (out, Some(device)) => {
            let known = report.directory.as_ref();
            let mut command = CommandText::new("compare");
            command.option("--here", known.map_or("PATH".into(), |directory| directory.to_string_lossy()));
            command.option("--device", device);
            let path = if known.is_some() { "" } else { "PATH is a directory on the drive. " };
            let why = format!(
                "{path}--here scales the drive down: on a whole one a short run never collects garbage, so TRIM could only \
                 cost time."
            );
            let written = out.as_ref().map(|out| format!("Profile: {}", out.display()));
            let head = match (report.predicts_worse_than_base, written) {
                (false, written) => format!("{}; use it with:", written.unwrap_or_default()),
                (true, written) => {
                    let written =
                        written.map_or(String::new(), |written| format!(" {written}, for comparison only."));
                    format!(
                        "Keep {}, which predicts this drive better than the fit.{written} Use it with:",
                        report.base
                    )
                }
            };
            format!("\n{}  {}\n{}", folded(&head, 0), command.into_text(), folded(&why, 0))
        }
        (_, None) => "\n--out FILE writes the profile\n".to_owned(),
    };
    text + &format!("\ntrimwise {}; repeat with:\n  {}\n", report.trimwise, report.command)
}

fn shown(value: &SettingValue) -> String {
    match value {
        SettingValue::Whole(value) => grouped(*value),
        SettingValue::Percent(value) => value.to_string(),
        SettingValue::Flag(value) => value.to_string(),
        SettingValue::Word(word) => word.clone(),
    }
}
