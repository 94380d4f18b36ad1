//! Days of work under each way of trimming, as tables: the cost to the foreground, and the results.

use super::{FILE_SYSTEMS, OfRate, Row, WeekRows};
use trimwise::units::Bytes;
use trimwise::workload::latency::LatencySummary;

use crate::plot::Table;
use trimwise::numbers::{NONE, grouped, significant, time};

/// Returns four tables per file system, and the daemon's slices.
pub fn all(rows: &WeekRows) -> Vec<Table> {
    let of = |fs: &'static str| {
        let runs: Vec<&Row> = rows.runs.iter().filter(|row| row.case.file_system == fs).collect();
        [
            foreground(fs, &runs),
            while_trimming(fs, "writes", &runs, |row| row.rates),
            while_trimming(fs, "reads", &runs, |row| row.read_rates),
            drive(fs, &runs, rows.week.bound_permille),
        ]
    };
    let tables = FILE_SYSTEMS.into_iter().flat_map(of).chain([slices(&rows.runs)]);
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn ns(ns: u64) -> String {
    time(ns as f64 / 1e9)
}

fn p99(latency: Option<LatencySummary>) -> String {
    latency.map_or(NONE.to_owned(), |latency| ns(latency.p99_ns))
}

fn foreground(file_system: &str, runs: &[&Row]) -> Table {
    let row = |row: &&Row| {
        [
            row.case.trimming.name().to_owned(),
            ns(row.write.p50_ns),
            ns(row.write.p99_ns),
            ns(row.write.p999_ns),
            ns(row.write.max_ns),
            ns(row.read.p99_ns),
            ns(row.read.max_ns),
        ]
    };
    Table::new(
        format!("{file_system}: how long a small write took"),
        ["trimming", "p50", "p99", "p99.9", "max", "read p99", "read max"],
        runs.iter().map(row).collect(),
    )
}

/// Tabulates accesses in minutes with trimming, by the kind of hour, if there were any.
fn while_trimming(file_system: &str, what: &str, runs: &[&Row], rates: fn(&Row) -> [OfRate; 2]) -> Table {
    let of_run = |row: &&Row| {
        let trimming = row.case.trimming.name();
        let touched = rates(row).into_iter().filter_map(|of| Some((of, of.trimming?)));
        let rows = touched.map(move |(of, latency)| {
            [
                trimming.to_owned(),
                if of.busy { "busy" } else { "others" }.to_owned(),
                grouped(latency.count),
                ns(latency.p99_ns),
                ns(latency.max_ns),
                p99(of.untouched),
                p99(of.never),
            ]
        });
        rows.collect::<Vec<_>>()
    };
    Table::new(
        format!(
            "{file_system}: {what} while it trims; p99 in untouched hours of that kind, and if never trimmed"
        ),
        ["trimming", "hours", what, "p99", "max", "untouched", "never"],
        runs.iter().flat_map(of_run).collect(),
    )
}

fn slices(runs: &[Row]) -> Table {
    let row = |row: &Row| {
        let slices = row.slices?;
        let fs = row.case.file_system.to_owned();
        Some([fs, grouped(slices.count), ns(slices.longest_ns), grouped(slices.over_count)])
    };
    Table::new(
        "trimwised: its slices, each of which may take at most 100 ms".to_owned(),
        ["file system", "slices", "longest", "longer than that"],
        runs.iter().filter_map(row).collect(),
    )
}

fn drive(file_system: &str, runs: &[&Row], bound_permille: u64) -> Table {
    let bytes = |bytes: u64| Bytes(bytes).to_string();
    let or_none = |value: Option<u64>, text: &dyn Fn(u64) -> String| value.map_or(NONE.to_owned(), text);
    let row = |row: &&Row| {
        [
            row.case.trimming.name().to_owned(),
            significant(row.write_amplification),
            grouped(row.discards.commands),
            bytes(row.discards.bytes),
            ns(row.discard_max_ns),
            or_none(row.under_bound_after_ns, &ns),
            or_none(row.untrimmed_max_bytes, &bytes),
            bytes(row.untrimmed_end_bytes),
        ]
    };
    Table::new(
        format!(
            "{file_system}: what the drive did, and what stayed untrimmed (the bound is {} %)",
            significant(bound_permille as f64 / 10.0)
        ),
        ["trimming", "WA", "discards", "bytes", "longest", "below bound", "then at most", "at the end"],
        runs.iter().map(row).collect(),
    )
}
