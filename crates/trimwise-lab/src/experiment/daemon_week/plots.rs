//! Untrimmed space over the days, a figure for each file system.

use trimwise::workload::week::Week;

use super::{FILE_SYSTEMS, Row};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// Returns a figure for each file system that ran.
pub fn all(rows: &[Row]) -> Vec<Plot> {
    let of = |&fs: &&str| Plot {
        title: format!("{fs}: free space that the drive still holds"),
        kind: PlotKind::Lines,
        x: Axis::linear("time_h", "time", "h"),
        y: Axis::linear("untrimmed_mib", "untrimmed", "MiB"),
        series: rows.iter().filter(|row| row.case.file_system == fs).map(series).collect(),
    };
    FILE_SYSTEMS.iter().map(of).filter(|plot| !plot.series.is_empty()).collect()
}

fn series(row: &Row) -> Series {
    let point = |(look, bytes): (usize, &u64)| {
        let hours = Week::look(look as u64).as_nanos() as f64 / 3.6e12;
        Point::new(hours, *bytes as f64 / f64::from(1 << 20))
    };
    Series {
        name: row.case.trimming.name().to_owned(),
        points: row.untrimmed_bytes.iter().enumerate().map(point).collect(),
    }
}
