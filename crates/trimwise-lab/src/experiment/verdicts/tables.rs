//! The truth table by drive: what each policy changes in the model and on the kernel, and the model's errors.

use super::Row;
use super::summary::{Shift, changes, measures};

use crate::plot::Table;
use trimwise::numbers::change;

pub fn all(rows: &[Row]) -> Vec<Table> {
    let mut kinds: Vec<(&str, &str)> = rows.iter().map(|row| (row.linux, row.drive)).collect();
    kinds.dedup();
    kinds.iter().flat_map(|&(linux, drive)| of_drive(rows, linux, drive)).collect()
}

/// Formats the medians' change, and the range over the repetitions if there are any.
fn shift(of: &Shift) -> String {
    if of.least < of.most {
        format!("{} ({} to {})", change(of.median), change(of.least), change(of.most))
    } else {
        change(of.median)
    }
}

fn of_drive(rows: &[Row], linux: &str, drive: &str) -> [Table; 2] {
    let is_of = |row: &&Row| row.linux == linux && row.drive == drive;
    let name = |row: &Row| format!("{} {} %, {}", row.workload, row.utilization, row.policy);
    let verdict = |a: bool| if a { "" } else { "contradicts" }.to_owned();
    let changed = changes(rows).into_iter().filter(|change| is_of(&change.row));
    let changed = changed.map(|of| [name(of.row), shift(&of.kernel), shift(&of.model), verdict(of.agrees())]);
    let title = format!("Linux {linux}, {drive}");
    let off_by = rows.iter().filter(is_of).map(|row| {
        let mut cells = vec![name(row)];
        for measure in measures() {
            let error = measure.error(row);
            let text = if error.is_finite() { change(error) } else { "none there".to_owned() };
            cells.push(if error.abs() <= measure.limit { text } else { format!("{text}\u{a0}!") });
        }
        cells
    });
    let names = measures().map(|measure| measure.name.to_owned());
    let header = std::iter::once(String::new()).chain(names).collect();
    [
        Table::new(
            format!("{title}: change of duration against off"),
            ["", "real ext4", "model", ""],
            changed.collect(),
        ),
        Table {
            title: format!("{title}: the model is off by (!: beyond its limit)"),
            header,
            rows: off_by.collect(),
        },
    ]
}
