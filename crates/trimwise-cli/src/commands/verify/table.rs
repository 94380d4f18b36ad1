//! The text of `verify`.

use trimwise::units::Bytes;
use trimwise_study::bench::verify::{Judgement, Verdict};
use trimwise_study::verify::VerifyReport;
use trimwise_study::verify::directory::{DirectoryReport, Units};

use crate::figures::{NONE, counted, grouped, significant};
use crate::table::{bold, folded, laid_out};

/// Renders the result for a drive.
pub fn render(report: &VerifyReport) -> String {
    let found = &report.found;
    let device = &found.device;
    let kind = if device.is_model { "in the model" } else { "a real device or file" };
    let mut text = format!("{}\n", bold(&format!("{}, {}, {kind}", device.name, Bytes(device.size_bytes))));
    text += &folded(&said(report), 0);
    text.push('\n');
    if found.evidence.takes_trim {
        let rows: Vec<Vec<String>> = found
            .evidence
            .speeds
            .stages()
            .into_iter()
            .map(|(stage, speed)| {
                let of = |figure: Option<f64>| figure.map_or_else(|| NONE.to_owned(), significant);
                let (read, write) = (speed.map(|s| s.read_mb_per_s), speed.map(|s| s.write_mb_per_s));
                vec![stage.to_owned(), of(read), of(write)]
            })
            .collect();
        text += &laid_out(&["stage", "MB/s read", "MB/s written"], &rows);
        text.push('\n');
    }
    if let Some(judgement) = &found.judgement {
        text += &format!("{}\n", bold(folded(&sentence(judgement), 0).trim_end()));
        let faults = judgement.faults.iter().map(|fault| format!("Fault: {}.", fault.text()));
        let reasons = judgement.reasons.iter().map(|reason| format!("{}.", capitalised(reason)));
        faults.chain(reasons).for_each(|line| text += &item(&line));
    }
    report.notes.iter().for_each(|note| text += &item(&format!("{note}.")));
    if let Some(broken) = &found.broken {
        let partial = format!(
            "Partial, and no verdict: {} ended with: {}. By then {} were written and {} trimmed.",
            broken.test,
            broken.why,
            Bytes(broken.did.bytes_written),
            Bytes(broken.did.bytes_trimmed)
        );
        text += &format!("\n{}\n", bold(folded(&partial, 0).trim_end()));
    }
    text + &format!("\ntrimwise {}; repeat with:\n  {}\n", report.trimwise, report.settings.command)
}

fn said(report: &VerifyReport) -> String {
    let settings = &report.settings;
    let mut text = format!("Data: {}; seed {}", report.found.content, report.found.seed);
    text += &format!(
        "; torture: random writes of {} % of the verified size; rests of {} s",
        settings.torture_percent, settings.rest_s
    );
    if settings.region_length_percent < 100.0 {
        text += &format!(
            "; verified: {} % of the device, starting at {} %",
            settings.region_length_percent, settings.region_start_percent
        );
    }
    if let Some(fault) = settings.fault {
        text += &format!("; planted: {fault}");
    }
    text + "."
}

fn sentence(judgement: &Judgement) -> String {
    let verdict = match judgement.verdict {
        Verdict::RestoresFully => {
            "Restores fully: the drive carries out every TRIM, and its clean speed returns."
        }
        Verdict::RestoresInPart => "Restores in part: TRIM does only part of its work.",
        Verdict::Ignored => "Ignored: TRIM changes nothing.",
        // Faults are sorted, the worst first.
        Verdict::Harmful => {
            return format!("Harmful: {}.", judgement.faults.first().map_or("TRIM does harm", |f| f.text()));
        }
        Verdict::Unsupported => "Not supported: the drive has no TRIM.",
        Verdict::Undetermined => "Cannot tell: nothing shows whether TRIM works.",
    };
    verdict.to_owned()
}

/// Renders the result for a mounted file system.
pub fn render_directory(report: &DirectoryReport) -> String {
    let DirectoryReport { mount_point, file_system, device, .. } = report;
    let mut text = format!("{}\n", bold(&format!("{mount_point}, {file_system} on {device}")));
    text += &folded(
        &format!(
            "A file of {} in {} was written, found on the disk and removed, and its blocks were trimmed \
             ({}, which returned {}).",
            Bytes(report.file_bytes),
            counted(report.file_extents as u64, "extent"),
            counted(report.trims.into(), "FITRIM"),
            Bytes(report.trim_answered_bytes)
        ),
        0,
    );
    text.push('\n');
    let row = |when: &str, units: &Units| {
        let Units { old_data_units, zero_units, other_units, unreadable_units } = *units;
        let figures = [old_data_units, zero_units, other_units, unreadable_units].map(grouped);
        std::iter::once(when.to_owned()).chain(figures).collect::<Vec<String>>()
    };
    let rows = [row("after its removal", &report.after_delete), row("after the trim", &report.after_trim)];
    text += &laid_out(&["its blocks of 4 KiB hold", "its data", "zeros", "other data", "unreadable"], &rows);
    text.push('\n');
    let verdict = format!("{}.", capitalised(&report.sentence));
    text += &format!("{}\n", bold(folded(&verdict, 0).trim_end()));
    for disk in &report.disks {
        let counts = match (disk.discards, disk.discarded_bytes) {
            (Some(discards), Some(bytes)) => {
                format!("{} of {} counted meanwhile", counted(discards, "discard"), Bytes(bytes))
            }
            _ => "the kernel counts no discards".to_owned(),
        };
        text += &item(&format!("{}: {}; {counts}.", disk.name, disk.promise));
    }
    report.notes.iter().for_each(|note| text += &item(&format!("{note}.")));
    if let Some(failed) = &report.failed {
        let partial = format!("Partial: the trim failed: {failed}.");
        text += &format!("\n{}\n", bold(folded(&partial, 0).trim_end()));
    }
    text + &format!("\ntrimwise {}; repeat with:\n  {}\n", report.trimwise, report.settings.command)
}

fn item(line: &str) -> String {
    folded(line, 2).replacen("  ", "- ", 1)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use trimwise_linux::block_device::DiscardCounts;
    use trimwise_linux::mounted_verify::{Block, Disk, Found, Report};
    use trimwise_linux::raw_device::Promise;
    use trimwise_study::bench::Did;
    use trimwise_study::bench::verify::{Evidence, Fault, Speed, Speeds, Verification};

    use super::*;
    use crate::commands::verify::arguments::VerifyArguments;
    use crate::commands::{Command, CommandLine};

    fn arguments(line: &str) -> VerifyArguments {
        use clap::Parser as _;
        let words = ["trimwise", "verify"].into_iter().chain(line.split_whitespace());
        match CommandLine::try_parse_from(words).unwrap().command {
            Command::Verify(arguments) => arguments,
            _ => panic!("not verify"),
        }
    }

    fn fits(text: &str) {
        for line in text.lines().filter(|line| !line.starts_with("  trimwise")) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn stages_are_rows_and_the_verdict_has_its_reasons() {
        let speed = |read_mb_per_s, write_mb_per_s| Some(Speed { read_mb_per_s, write_mb_per_s });
        let found = Verification {
            device: trimwise_study::bench::Device {
                name: "sata-small".to_owned(),
                size_bytes: 4 << 30,
                sector_bytes: 512,
                trim: true,
                is_model: true,
            },
            content: "compressible",
            seed: 1,
            did: Did::default(),
            evidence: Evidence {
                takes_trim: true,
                speeds: Speeds {
                    clean: speed(507.4, 94.6),
                    tortured: speed(165.3, 13.99),
                    trimmed: speed(303.0, 60.5),
                    trimmed_again: None,
                },
                ..Evidence::default()
            },
            judgement: Some(Judgement {
                verdict: Verdict::Harmful,
                faults: vec![Fault::WrongRange, Fault::TrimsInPart],
                reasons: vec![
                    "random writes: 95 MB/s clean, 14 tortured".to_owned(),
                    "100 of 2,048 units that were never trimmed are lost, which is more than a line of a hundred columns"
                        .to_owned(),
                ],
            }),
            broken: None,
        };
        let notes = vec!["The drive was made small".to_owned()];
        let arguments = arguments("sata-small --fault wrong-range --region 50:50 --content incompressible");
        let text = render(&arguments.request().report(found, notes));
        fits(&text);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn blocks_of_a_mounted_file_system_are_counted_before_and_after() {
        let block = |unit| Block {
            unit,
            disk: 0,
            offset: unit * 4096,
            is_whole: true,
            after_delete: Found::OldData,
            after_trim: if unit < 1000 { Found::Zeros } else { Found::Other },
        };
        let counted = DiscardCounts { commands: 3, merged: 0, bytes: Bytes::mib(5) };
        let found = Report {
            mount_point: "/home".to_owned(),
            fs_type: "ext4".to_owned(),
            device: "sda2".to_owned(),
            file_units: 1024,
            extents: 2,
            disks: vec![Disk {
                name: "sda".to_owned(),
                promise: Promise::Nothing { why: "ATA: no RZAT".to_owned() },
                counted: Some(counted),
            }],
            blocks: (0..1024).map(block).collect(),
            pieces: Vec::new(),
            answered: Bytes::mib(6),
            trims: 1,
            stops: Vec::new(),
            failed: None,
            notes: vec!["reading md0, not the disks below it: raid1".to_owned()],
        };
        let text = render_directory(&DirectoryReport::new(
            &arguments("dir:/home --size 4MiB").request(),
            &found,
            false,
        ));
        fits(&text);
        insta::assert_snapshot!(text);
    }
}
