//! What device tests found, as text.

use trimwise::bench::{Findings, Measured, TestResult};
use trimwise::units::Bytes;

use super::{bold, folded, laid_out};
use crate::bench::BenchReport;
use crate::figures::{NONE, nanoseconds, significant};

/// The headings of the table of transfers.
pub const HEADER: [&str; 10] =
    ["test", "transfers", "MB/s", "least", "most", "IOPS", "p50", "p99.9", "written", "WA"];

/// The whole text.
pub fn render(report: &BenchReport) -> String {
    let device = &report.results.device;
    let kind = if device.is_model { "modelled" } else { "real" };
    let mut text = format!("{}\n", bold(&format!("{} ({kind}, {})", device.name, Bytes(device.size_bytes))));
    text += &format!("content {}, seed {}\n\n", report.settings.content, report.settings.seed);
    let rows: Vec<Vec<String>> = report.results.tests.iter().flat_map(rows).collect();
    if !rows.is_empty() {
        text += &laid_out(&HEADER, &rows);
        text.push('\n');
    }
    for test in &report.results.tests {
        for note in &test.notes {
            text += &folded(&format!("{}: {note}", test.test), 0);
        }
    }
    text
}

/// A row for each kind of transfers of a test; what holds for the whole test stands in the first.
pub fn rows(test: &TestResult) -> Vec<Vec<String>> {
    let or_none = |figure: Option<f64>| figure.map_or(NONE.to_string(), significant);
    let row = |(i, measured): (usize, &Measured)| {
        let first = i == 0;
        let of_test = |text: String| if first { text } else { String::new() };
        let latency = |of: fn(&trimwise::workload::latency::LatencySummary) -> u64| match &measured.latency {
            Some(latency) => nanoseconds(of(latency) as f64),
            None => nanoseconds(measured.elapsed_ns as f64),
        };
        let amplification = test.device.as_ref().and_then(|d| d.write_amplification);
        vec![
            of_test(test.test.clone()),
            measured.what.clone(),
            or_none(measured.throughput_mb_per_s),
            or_none(measured.throughput_min_mb_per_s),
            or_none(measured.throughput_max_mb_per_s),
            or_none(measured.iops),
            latency(|l| l.p50_ns),
            latency(|l| l.p999_ns),
            of_test(Bytes(test.did.bytes_written).to_string()),
            of_test(amplification.map_or(NONE.to_string(), |wa| format!("{wa:.2}"))),
        ]
    };
    let _ = Findings::None;
    test.measured.iter().enumerate().map(row).collect()
}
