//! Rows of `postmark-vendors` in the source's layout: without and with discard, ours next to the published figures.

use serde::{Deserialize, Serialize};
use trimwise::compare::statistics::median;

use crate::plot::Table;
use trimwise::numbers::change;

/// One metric of one device, with and without discard, next to the published values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VendorRow {
    pub device: String,
    pub postmark_buffering: bool,
    pub metric: String,
    pub nodiscard: f64,
    pub discard: f64,
    pub published_nodiscard: f64,
    pub published_discard: f64,
    /// True if the profile's parameters were fitted to this row; otherwise the row is a check.
    pub fitted: bool,
}

impl VendorRow {
    /// Returns the model's relative error without and with discard; 0.1 is 10 % too much.
    fn errors(&self) -> [f64; 2] {
        let error = |measured: f64, published: f64| {
            if published == 0.0 { 0.0 } else { measured / published - 1.0 }
        };
        [error(self.nodiscard, self.published_nodiscard), error(self.discard, self.published_discard)]
    }

    fn cells(&self) -> [String; 9] {
        let [without, with] = self.errors();
        [
            format!("{}{}", metric(&self.metric), if self.fitted { " *" } else { "" }),
            figure(self.nodiscard),
            figure(self.published_nodiscard),
            tight(change(without)),
            figure(self.discard),
            figure(self.published_discard),
            tight(change(with)),
            difference(self.nodiscard, self.discard),
            difference(self.published_nodiscard, self.published_discard),
        ]
    }
}

/// Returns a table for each device and each kind of buffering, metrics downwards as in the source.
pub fn tables(rows: &[VendorRow]) -> Vec<Table> {
    const HEADER: [&str; 9] =
        ["Type", "NODISCARD", "published", "error", "DISCARD", "published", "error", "DIFF", "published"];
    rows.chunk_by(|a, b| a.device == b.device && a.postmark_buffering == b.postmark_buffering)
        .filter_map(|of_one| {
            let first = of_one.first()?;
            let buffering = if first.postmark_buffering { "enabled" } else { "disabled" };
            let title = format!("{} device, buffering {buffering}", first.device);
            Some(Table::new(title, HEADER, of_one.iter().map(VendorRow::cells).collect()))
        })
        .collect()
}

/// Summarises the errors of fitted figures, and of the others.
pub fn errors(rows: &[VendorRow]) -> Vec<String> {
    let line = |fitted: bool| {
        let of_rows = rows.iter().filter(|row| row.fitted == fitted).flat_map(VendorRow::errors);
        let mut errors: Vec<f64> = of_rows.map(f64::abs).collect();
        errors.sort_by(f64::total_cmp);
        let (worst, median) = (*errors.last()? * 100.0, median(&errors)? * 100.0);
        Some(format!("median {median:.1} %, worst {worst:.1} % of {} figures", errors.len()))
    };
    let fitted = line(true).map(|l| format!("* the profile was fitted to these: error {l}."));
    let checked = line(false).map(|l| format!("Not fitted, so a check of the model: error {l}."));
    [fitted, checked].into_iter().flatten().collect()
}

/// The source's metric names; the longest are shortened so that a row fits.
fn metric(name: &str) -> String {
    name.replace("_mixed_with_transaction/s", "_mixed/s")
        .replace("Duration_of_transactions", "Transactions_duration")
        .replace("Duration_of_deletion", "Deletion_duration")
}

/// Formats a number with two decimals as in the source, or without if they would make bytes per second too wide.
fn figure(f: f64) -> String {
    if f.abs() >= 99_999.5 { format!("{f:.0}") } else { format!("{f:.2}") }
}

fn difference(without: f64, with: f64) -> String {
    if without == 0.0 { "-".to_string() } else { tight(change(with / without - 1.0)) }
}

/// Removes the blank before the percent sign, as in the source.
fn tight(percent: String) -> String {
    percent.replace(" %", "%")
}
