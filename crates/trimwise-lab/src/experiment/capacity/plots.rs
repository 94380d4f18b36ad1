//! Figures of the speed of random writes by fill level, and of what helps.

use super::history::{
    History, LEVELS, LEVELS_IDLE, LEVELS_OF_PARTITION, LEVELS_WRITE, Measured, REMAINDERS, mean,
};
use super::{DEVICES, FIRMWARES, label};
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

/// The published runs in MB/s, by the previous fill level in hundredths of a percent.
const PUBLISHED: [(u32, [f64; 4]); 2] =
    [(LEVELS_WRITE[0], [196.0, 195.0, 185.0, 200.0]), (LEVELS_WRITE[1], [201.0, 180.0, 187.0, 194.0])];

const SPEED: Axis = Axis::linear("throughput_mb_per_s", "throughput", "MB/s");

fn line(
    name: impl Into<String>,
    measured: &Measured,
    numbers: &[u32],
    of: impl Fn(u32) -> History,
) -> Series {
    let point = |&number: &u32| Point::of_runs(f64::from(number), &measured.each(&of(number), 0));
    Series { name: name.into(), points: numbers.iter().filter_map(point).collect() }
}

fn lines(title: &str, x: Axis, series: Vec<Series>) -> Plot {
    Plot { title: title.to_owned(), kind: PlotKind::Lines, x, y: SPEED, series }
}

fn bars(title: &str, x: Axis, series: Vec<Series>) -> Plot {
    Plot { title: title.to_owned(), kind: PlotKind::Bars, x, y: SPEED, series }
}

/// Returns all figures, the one that answers the readers' question first.
pub fn all(measured: &Measured) -> Vec<Plot> {
    let mut plots = vec![free_space(measured)];
    plots.extend(DEVICES.map(|device| over_provisioning(measured, device)));
    plots.extend(DEVICES.map(|device| pauses(measured, device)));
    plots.extend([firmwares(measured), together(measured), sequential(measured)]);
    plots
}

fn free_space(measured: &Measured) -> Plot {
    let mut series = Vec::new();
    for device in DEVICES {
        let of = |remainder, level, trimmed| History::Overwritten { device, remainder, level, trimmed };
        let name = label(device);
        series.push(line(format!("{name}, free space trimmed"), measured, &LEVELS, |u| of(0, u, true)));
        let stale = LEVELS_OF_PARTITION;
        series.push(line(format!("{name}, no TRIM, everything written once"), measured, &stale, |u| {
            of(0, u, false)
        }));
        let filling = format!("{name}, no TRIM, the rest never written");
        series.push(line(filling, measured, &LEVELS, |u| of(100 - u, 100, false)));
    }
    lines(
        "Random overwrites of 4 KiB, settled, by utilization of the drive",
        Axis::linear("utilization_percent", "utilization", "%"),
        series,
    )
}

fn over_provisioning(measured: &Measured, device: &'static str) -> Plot {
    let series = REMAINDERS.map(|remainder| {
        line(format!("{remainder} % not partitioned"), measured, &LEVELS_OF_PARTITION, |level| {
            History::Overwritten { device, remainder, level, trimmed: false }
        })
    });
    lines(
        &format!("{}: no TRIM, with a remainder that is never written", label(device)),
        Axis::linear("partition_utilization_percent", "utilization of the partition", "%"),
        series.into(),
    )
}

fn pauses(measured: &Measured, device: &'static str) -> Plot {
    let variants = [
        ("no TRIM", false, false),
        ("no TRIM, GC at idle", false, true),
        ("TRIM", true, false),
        ("TRIM, GC at idle", true, true),
    ];
    let series = variants.map(|(name, trimmed, idle)| {
        line(name, measured, &LEVELS_IDLE, |level| History::WithPauses { device, level, trimmed, idle })
    });
    lines(
        &format!("{}: bursts of random writes of 2 s with pauses of 20 s", label(device)),
        Axis::linear("utilization_percent", "utilization", "%"),
        series.into(),
    )
}

fn firmwares(measured: &Measured) -> Plot {
    let what = ["random, first 2 s", "random, settled", "sequential"];
    let series = what.iter().enumerate().map(|(place, name)| {
        let point = |version: &&'static str| {
            Point::of_runs((*version).to_owned(), &measured.each(&History::Firmware(version), place))
        };
        Series { name: (*name).to_owned(), points: FIRMWARES.iter().filter_map(point).collect() }
    });
    bars(
        "vertex-60gb, by firmware: 70 % full, everything written once",
        Axis::linear("firmware", "firmware", ""),
        series.collect(),
    )
}

fn together(measured: &Measured) -> Plot {
    let what = ["read alone", "write alone", "read, both", "write, both"];
    let series = DEVICES.map(|device| {
        let point = |(place, name): (usize, &&str)| {
            Point::of_runs((*name).to_owned(), &measured.each(&History::Together { device }, place))
        };
        Series { name: label(device).to_owned(), points: what.iter().enumerate().filter_map(point).collect() }
    });
    bars(
        "Reading and writing at the same time, sequentially, 1 MiB at a time",
        Axis::linear("load", "load", ""),
        series.into(),
    )
}

/// Draws the source's own figures next to ours.
fn sequential(measured: &Measured) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for device in DEVICES {
        let point = |&level: &u32| {
            let runs = measured.all(&History::TrimmedWrite { device, level });
            Some(Point::new(f64::from(level) / 100.0, mean(&runs)?))
        };
        let points = LEVELS_WRITE.iter().rev().filter_map(point).collect();
        series.push(Series { name: label(device).to_owned(), points });
    }
    let published = PUBLISHED.map(|(level, runs)| Point {
        x: (f64::from(level) / 100.0).into(),
        y: mean(&runs).unwrap_or_default(),
        range: Some((
            runs.iter().copied().fold(f64::INFINITY, f64::min),
            runs.iter().copied().fold(0.0, f64::max),
        )),
    });
    series.push(Series { name: "published".to_owned(), points: published.into_iter().rev().collect() });
    lines(
        "Sequential write of 4.096 GB on a trimmed drive",
        Axis::linear("utilization_percent", "utilization before", "%"),
        series,
    )
}
