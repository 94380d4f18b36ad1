//! Summary of the rows: the changes that a way of trimming makes against `off`, and the figures of the claims.

use trimwise::compare::statistics::median;

use super::{Figures, Row};
use crate::experiment::claims::Figures as Named;

/// A figure of a run; `None` where it was not measured.
type Measure = fn(&Figures) -> Option<f64>;

/// A way of trimming against `off` in the same repetition: the median change, and the range over the repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Shift {
    /// Compares the repetitions pair by pair; `None` where a figure was not measured.
    pub fn of(runs: &[Figures], off: &[Figures], of: impl Fn(&Figures) -> Option<f64>) -> Option<Self> {
        let change = |(run, off): (&Figures, &Figures)| Some(of(run)? / of(off)? - 1.0);
        let changes = runs.iter().zip(off).map(change).collect::<Option<Vec<f64>>>()?;
        Some(Self {
            median: median(&changes)?,
            least: changes.iter().copied().fold(f64::INFINITY, f64::min),
            most: changes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

pub fn duration(figures: &Figures) -> Option<f64> {
    Some(figures.duration_ns as f64)
}

pub fn fsync(figures: &Figures) -> Option<f64> {
    figures.fsync_p99_ns.map(|ns| ns as f64)
}

pub fn flash(figures: &Figures) -> Option<f64> {
    Some(figures.flash_per_byte())
}

impl Row {
    pub fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(&self.runs.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }
}

/// Returns the row of `off` in the same cell.
pub fn off_of<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    let cell = |row: &Row| (row.file_system, row.drive, row.utilization, row.workload);
    rows.iter().find(|off| off.way == "off" && cell(off) == cell(row))
}

/// Names the figures of the claims, cell by cell. `time.FS.WAY` and `time.FS.WAY.WORKLOAD` are the changes of time,
/// with `.least` and `.most` for the ends of their intervals; `fsync` (p99) and `flash` (flash bytes per byte of the
/// work) are named in the same way. `over.FS.WAY` and `over.FS.WAY.WORKLOAD` are trimmed bytes per byte that the drive
/// held as data, `sent` per byte that the work wrote, and `flash.FS.WAY.bytes` flash bytes per byte that the work
/// wrote.
pub fn figures(rows: &[Row]) -> Named {
    let mut named = Named::default();
    for row in rows {
        let names = [
            format!("{}.{}", row.file_system, row.way),
            format!("{}.{}.{}", row.file_system, row.way, row.workload),
        ];
        for name in &names {
            let over = row.median(Figures::over_trim);
            named.push(format!("over.{name}"), Some(over).filter(|over| over.is_finite()));
            named.push(format!("sent.{name}"), [row.median(Figures::sent)]);
            named.push(format!("flash.{name}.bytes"), [row.median(Figures::flash_per_byte)]);
        }
        let Some(off) = off_of(rows, row).filter(|_| row.way != "off") else { continue };
        let measures: [(&str, Measure); 3] = [("time", duration), ("fsync", fsync), ("flash", flash)];
        for (measure, of) in measures {
            let Some(shift) = Shift::of(&row.runs, &off.runs, of) else { continue };
            for name in &names {
                named.push(format!("{measure}.{name}"), [shift.median]);
                named.push(format!("{measure}.{name}.least"), [shift.least]);
                named.push(format!("{measure}.{name}.most"), [shift.most]);
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise::units::Utilization;

    fn row(way: &'static str, runs: &[(u64, Option<u64>)], released_bytes: u64) -> Row {
        let run = |&(duration_ns, fsync_p99_ns)| Figures {
            duration_ns,
            fsync_p99_ns,
            written_bytes: 10,
            flash_bytes: 20,
            trimmed_bytes: 300,
            released_bytes,
            ..Figures::default()
        };
        Row {
            file_system: "xfs",
            drive: "sata-small",
            utilization: Utilization::default(),
            workload: "mail",
            way,
            runs: runs.iter().map(run).collect(),
        }
    }

    #[test]
    fn a_change_is_that_of_each_repetition_against_its_own_off() {
        let off = row("off", &[(100, None), (200, None), (400, None)], 0);
        let on = row("discard", &[(110, Some(1)), (180, Some(1)), (400, Some(1))], 100);
        let shift = Shift::of(&on.runs, &off.runs, duration).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(shift.least, -0.1) && near(shift.median, 0.0) && near(shift.most, 0.1), "{shift:?}");
        assert_eq!(Shift::of(&on.runs, &off.runs, fsync), None, "off made nothing durable");
        let text = format!("{:?}", figures(&[off, on]));
        for name in ["\"over.xfs.discard.mail\": [3.0]", "\"time.xfs.discard\": [0.0]"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(!text.contains("over.xfs.off") && !text.contains("time.xfs.off"), "{text}");
    }
}
