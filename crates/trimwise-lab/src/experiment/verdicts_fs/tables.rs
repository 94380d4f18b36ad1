//! Tables by workload, drive and degree: what each way of trimming does on each file system.

use trimwise::numbers::{change, significant};

use super::summary::{Shift, duration, off_of};
use super::{DRIVES, Figures, Row, UTILIZATIONS, WORKLOADS};
use crate::plot::Table;

pub fn all(rows: &[Row]) -> Vec<Table> {
    let mut tables = Vec::new();
    for drive in DRIVES {
        for workload in WORKLOADS {
            for percent in UTILIZATIONS {
                let place = (drive, workload.name, percent);
                let is_there = |row: &&Row| (row.drive, row.workload, row.utilization) == place;
                let own: Vec<&Row> = rows.iter().filter(is_there).collect();
                if !own.is_empty() {
                    let title = format!("{} on {drive}, {percent} % full", workload.name);
                    tables.push(table(title, rows, &own));
                }
            }
        }
    }
    tables
}

/// Formats a change, with its range over the repetitions.
fn shift(of: &Shift) -> String {
    let round = |share: f64| format!("{:+.0}", 100.0 * share).replace('-', "\u{2212}");
    match of.least < of.most {
        true => format!("{} ({} to {})", change(of.median), round(of.least), round(of.most)),
        false => change(of.median),
    }
}

fn table(title: String, rows: &[Row], own: &[&Row]) -> Table {
    let lines = own.iter().map(|row| {
        let against = off_of(rows, row).filter(|_| row.way != "off");
        let time = against.and_then(|off| Shift::of(&row.runs, &off.runs, duration));
        let seconds = format!("{} s", significant(row.median(|run| run.duration_ns as f64 / 1e9)));
        let known = |value: f64| if value.is_finite() { significant(value) } else { "-".to_owned() };
        [
            format!("{}, {}", row.file_system, row.way),
            time.map_or(seconds, |time| shift(&time)),
            known(row.median(|run| run.fsync_p99_ns.map_or(f64::NAN, |ns| ns as f64 / 1e6))),
            format!("{:.2}", row.median(Figures::write_amplification)),
            format!("{:.2}", row.median(Figures::flash_per_byte)),
            significant(row.median(|run| run.trims as f64)),
            known(row.median(Figures::over_trim)),
        ]
    });
    Table::new(title, ["", "time", "p99, ms", "WA", "flash", "TRIMs", "over"], lines.collect())
}
