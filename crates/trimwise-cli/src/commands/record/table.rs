//! The text of `record`: what the trace contains.

use trimwise::units::Bytes;
use trimwise_linux::record::Count;
use trimwise_study::record::RecordReport;

use crate::figures::{NONE, grouped};
use crate::table::{bold, folded, laid_out, plain};

pub fn render(report: &RecordReport) -> String {
    let header = &report.header;
    let disks: Vec<&str> = header.devices.iter().map(|device| device.name.as_str()).collect();
    let kind = header.file_system.as_ref().map_or(String::new(), |found| format!("{} on ", found.kind));
    let mut text = bold(&plain(&format!("{}: {kind}{}", report.settings.target, disks.join(", "))));
    text += "\n\n";
    let counts = &report.counts;
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut row = |name: &str, number: u64, bytes: Option<u64>| {
        let bytes = bytes.map_or(NONE.to_owned(), |bytes| Bytes(bytes).to_string());
        let rate = format!("{:.1}", number as f64 / report.seconds.max(0.001));
        rows.push([name.to_owned(), grouped(number), bytes, rate]);
    };
    let mut counted = |name: &str, count: Count| row(name, count.requests, Some(count.bytes));
    counted("reads", counts.reads);
    counted("writes", counts.writes);
    counted("discards", counts.discards);
    let is_traced = header.file_system.as_ref().is_some_and(|found| found.is_traced);
    if is_traced || counts.freed.requests + counts.allocated.requests > 0 {
        counted("extents freed", counts.freed);
        counted("extents allocated", counts.allocated);
    }
    row("flushes", counts.flushes, None);
    if is_traced || counts.commits > 0 {
        row("commits", counts.commits, None);
    }
    text += &laid_out(&["", "number", "bytes", "per second"], &rows);
    text.push('\n');
    for line in lines(report) {
        text += &folded(&plain(&line), 0);
    }
    text + &format!("\ntrimwise {}; repeat with:\n  {}\n", report.trimwise, plain(&report.settings.command))
}

fn lines(report: &RecordReport) -> Vec<String> {
    let counts = &report.counts;
    let size = Bytes(report.trace_bytes);
    let mut lines = vec![format!("{}: {size}, {:.1} s.", report.settings.out, report.seconds)];
    if report.ended == "max-size" {
        lines.push(format!("It ended at --max-size {}.", report.settings.max_size_bytes));
    }
    if counts.lost > 0 {
        lines.push(format!(
            "{} events were lost, because they were not read in time; the trace says where. --buffer makes room for \
             more.",
            grouped(counts.lost)
        ));
    }
    if counts.without_latency > 0 {
        lines.push(format!(
            "{} requests have no latency: they had not completed at the end, or within half a minute, or events were \
             lost.",
            grouped(counts.without_latency)
        ));
    }
    lines.extend(report.notes.iter().map(|note| format!("Note: {note}.")));
    lines
}
