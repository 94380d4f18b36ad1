//! The texts of `kernel list`, `kernel build` and `kernel run`.

use std::path::Path;

use crate::requests::kernel::run::{NO_FILE_SYSTEM, Phase, RunReport};
use crate::requests::kernel::{Kernel, KernelsReport, State};
use trimwise::compare::result::DeviceFigures;
use trimwise::units::Bytes;

use trimwise_cli::figures::{self, NONE, grouped};
use trimwise_cli::table::{folded, laid_out, titled};

const HEADER: [&str; 6] = ["kernel", "state", "uname -r", "source", "size", "built (UTC)"];

/// Renders the list of kernels.
pub fn render(report: &KernelsReport) -> String {
    let rows: Vec<Vec<String>> = report.kernels.iter().map(row).collect();
    let mut text = laid_out(&HEADER, &rows);
    let mut told = Vec::new();
    for kernel in &report.kernels {
        if let (Some(stands_for), false) = (kernel.stands_for, told.contains(&&kernel.version)) {
            if told.is_empty() {
                text.push('\n');
            }
            text += &folded(&format!("{}: {stands_for}.", kernel.version), 0);
            told.push(&kernel.version);
        }
    }
    let absent: Vec<&str> =
        report.kernels.iter().filter(|k| k.state == State::NotBuilt).map(|k| k.version.as_str()).collect();
    text.push('\n');
    if !absent.is_empty() {
        text += &folded(&format!("To build: trimwise kernel build --version {}", absent.join(" ")), 0);
    }
    if report.kernels.iter().any(|kernel| kernel.state == State::Outdated) {
        text += &folded(
            "Outdated: built by another version of trimwise, with another configuration or recipe, or from patches \
             that have changed since; not used.",
            0,
        );
    }
    for kept in report.kept.iter().flatten() {
        let source = kept.source.as_deref().map_or("incomplete".to_owned(), origin);
        let line = format!(
            "Kept for further builds: source and objects of {} ({source}), {}.",
            kept.version,
            Bytes(kept.size_bytes)
        );
        text += &folded(&line, 0);
    }
    let of_images = report.kernels.iter().filter_map(|kernel| kernel.linux.as_deref()?.parent()?.parent());
    let mut folders: Vec<&Path> = of_images.chain([&*report.directory]).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        text += &format!("Folder: {}\n", folder.display());
    }
    text
}

/// Renders the result of a run: the kernel's requests to the drive.
pub fn run(report: &RunReport, wall_s: f64) -> String {
    let counted = |count: u64, bytes: u64| {
        if count == 0 { NONE.to_owned() } else { format!("{} of {}", grouped(count), Bytes(bytes)) }
    };
    let row = |phase: &Phase| {
        let requests = &phase.requests;
        vec![
            phase.phase.to_owned(),
            figures::time(phase.duration_ns as f64 / 1e9),
            counted(requests.reads, requests.read_bytes),
            counted(requests.writes, requests.written_bytes),
            grouped(requests.flushes),
            counted(requests.discards, requests.discarded_bytes),
            amplification(&phase.device_stats),
        ]
    };
    let part = |title: &str, phases: &[Phase]| {
        let header = ["", "virtual time", "reads", "writes", "flushes", "discards", "WA"];
        let rows: Vec<Vec<String>> = phases.iter().map(row).collect();
        format!("\n{}", titled(title, &header, &rows))
    };
    let linux = report.kernel.title();
    let title = match &*report.kernel.file_system {
        NO_FILE_SYSTEM => format!("{}, Linux {linux} without a file system", report.device),
        file_system => format!("{}, {file_system} of Linux {linux}", report.device),
    };
    let mut text = part(&title, &report.phases);
    if let Some(disk) = &report.disk {
        text += &part(&format!("{}: {}", disk.node, disk.device), &disk.phases);
    }
    text.push('\n');
    if let Some(image) = &report.image {
        // The first digits identify the image; the JSON has them all.
        let hash: String = image.sha256.chars().take(16).collect();
        text += &folded(&format!("Image: {}, {}, SHA-256 {hash}...", image.path, Bytes(image.size_bytes)), 0);
    }
    for remark in report.remarks() {
        text += &folded(&remark, 0);
    }
    text += &match report.program.killed_processes {
        0 => String::new(),
        1 => "1 process that the program had left running was killed.\n".to_owned(),
        killed => format!("{killed} processes that the program had left running were killed.\n"),
    };
    format!("{text}{} of this computer's time.\n", figures::time(wall_s))
}

/// Formats the write amplification, which is undefined if nothing was written.
fn amplification(figures: &DeviceFigures) -> String {
    match figures.host_units_written {
        0 => NONE.to_owned(),
        _ => format!("{:.2}", figures.write_amplification),
    }
}

fn row(kernel: &Kernel) -> Vec<String> {
    let state = match kernel.state {
        State::New => "built now",
        State::Built => "built",
        State::Outdated => "outdated",
        State::NotBuilt => "not built",
    };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    vec![
        kernel.version.clone(),
        state.to_owned(),
        // The kernel's name already says what was added; the JSON has the hash of a source that was given.
        or_none(kernel.release.as_deref().map(|release| up_to(release, "+"))),
        or_none(kernel.source.as_deref().map(origin)),
        or_none(kernel.size_bytes.map(|bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))),
        or_none(kernel.built.as_ref().map(|built| built.replace('T', " ").chars().take(16).collect())),
    ]
}

/// Shortens a source to fit its column: a package to its version, a tree to its path.
fn origin(source: &str) -> String {
    match source.strip_prefix("linux-source-").and_then(|package| package.split_once(' ')) {
        Some((_, version)) => format!("Debian's {version}"),
        None => up_to(source, " ("),
    }
}

fn up_to(text: &str, end: &str) -> String {
    text.split(end).next().unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_without_writes_there_is_no_write_amplification() {
        let of = |host_units_written| {
            let write_amplification = 2.4;
            amplification(&DeviceFigures { host_units_written, write_amplification, ..Default::default() })
        };
        assert_eq!([of(0), of(100)], ["-", "2.40"]);
    }
}
