//! Discarded bytes over time, a figure for each file system and layout.

use super::observe::{Deletion, Layout};
use super::{DeletionRun, Measured, file_systems};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// Returns all figures, by file system. Without discards there is no figure.
pub fn all(measured: &Measured) -> Vec<Plot> {
    let of = |fs: &'static str| Layout::ALL.map(|layout| timeline(measured, fs, layout));
    file_systems().into_iter().flat_map(of).filter(|plot| !plot.series.is_empty()).collect()
}

fn timeline(measured: &Measured, file_system: &str, layout: Layout) -> Plot {
    let runs = measured.deletions.iter().filter(|run| run.mount.file_system == file_system);
    let series = |run: &DeletionRun| {
        let deletion = run.deletions.iter().find(|deletion| deletion.layout == layout)?;
        let points = curve(deletion);
        let name = format!("{} {}", run.kernel, run.mount.options);
        (!points.is_empty()).then_some(Series { name, points })
    };
    Plot {
        title: format!("{file_system}: discarded after the removal of a file ({})", layout.name()),
        kind: PlotKind::Lines,
        x: Axis::log("time_s", "time since the unlink", "s"),
        y: Axis::linear("discarded_mib", "discarded so far", "MiB"),
        series: runs.filter_map(series).collect(),
    }
}

fn curve(deletion: &Deletion) -> Vec<Point> {
    let point = |(at_ns, bytes): (u64, u64)| {
        Point::new((at_ns as f64 / 1e9).max(1e-9), bytes as f64 / f64::from(1 << 20))
    };
    // Start with the arrival of the first command, so that a single one is a line too.
    let first = deletion.first_ns.map(|at_ns| (at_ns, 0));
    first.into_iter().chain(deletion.curve.iter().map(|p| (p.at_ns, p.bytes))).map(point).collect()
}
