//! `trimwise bench TARGET --map`: latency at each rate of reads, writes and TRIMs.

use crate::bench::map::{Map, MapLoad, MapPoint};
use crate::plot::Axis;
use crate::requests::bench::map;
use serde::Serialize;
use trimwise::failure::Failure;
use trimwise::units::Bytes;
use trimwise::workload::latency::LatencySummary;
use trimwise_study::caller::Caller;

use super::arguments::BenchArguments;
use trimwise_cli::figures::{NONE, nanoseconds, significant};
use trimwise_cli::output::{self, Destinations};
use trimwise_cli::report::chart::{Cell, Chart, Drawing, HeatPanel, label};
use trimwise_cli::report::pair::{NAMES, Page as PairPage, Run, Section};
use trimwise_cli::report::{Figure, rendered, with_code};
use trimwise_cli::table::plot::Block;
use trimwise_cli::table::{bold, folded, laid_out};

pub use crate::requests::bench::map::MapReport;

pub fn run(arguments: &BenchArguments, caller: &dyn Caller) -> Result<String, Failure> {
    let destinations = Destinations::check(&arguments.output())?;
    let report = map::run(&arguments.map_request(), caller)?;
    let text = destinations.deliver_with_report(&report, || html(&report), || text(&report))?;
    output::concluded(text, report.failure())
}

/// A latency that a map shows: its name, its kind of load, and its quantile.
type Shown = (&'static str, fn(&MapPoint) -> &MapLoad, fn(&LatencySummary) -> u64);

const SHOWN: [Shown; 4] = [
    ("Reads, p50", |p| &p.reads, |l| l.p50_ns),
    ("Reads, p99", |p| &p.reads, |l| l.p99_ns),
    ("Writes, p50", |p| &p.writes, |l| l.p50_ns),
    ("Writes, p99", |p| &p.writes, |l| l.p99_ns),
];

fn per_s(load: &MapLoad) -> String {
    if load.offered_per_s == 0.0 { "0".to_owned() } else { significant(load.offered_per_s) }
}

/// Formats the rate of TRIMs, as in `TRIMs at 1,200/s, 4.9 MB/s`.
fn trims(load: &MapLoad) -> String {
    if load.offered_per_s == 0.0 {
        return "no TRIMs".to_owned();
    }
    format!("TRIMs at {}/s, {} MB/s", per_s(load), significant(load.offered_bytes_per_s / 1e6))
}

/// Groups the points by TRIM rate and, within that, by write rate.
fn panels(map: &Map) -> Vec<Vec<&[MapPoint]>> {
    let same = |of: fn(&MapPoint) -> &MapLoad| {
        move |a: &MapPoint, b: &MapPoint| of(a).offered_per_s == of(b).offered_per_s
    };
    map.points
        .chunk_by(same(|p| &p.trims))
        .map(|panel| panel.chunk_by(same(|p| &p.writes)).collect())
        .collect()
}

fn latency(point: &MapPoint, (_, load, quantile): Shown) -> Cell {
    match load(point).latency {
        _ if !point.kept_up => Cell::Saturated,
        Some(latency) => Cell::Value(quantile(&latency) as f64),
        None => Cell::Empty,
    }
}

fn heading(report: &MapReport) -> String {
    let device = &report.device;
    let kind = if device.is_model { "in the model" } else { "a real device or file" };
    format!("{}, {}, {kind}", device.name, Bytes(device.size_bytes))
}

fn said(map: &Map) -> String {
    let most = |what: &str, bytes: u64, per_s: f64| {
        format!(
            "{what} of {} at most {}/s ({} MB/s)",
            Bytes(bytes),
            significant(per_s),
            significant(per_s * bytes as f64 / 1e6)
        )
    };
    let trims = match map.trim_most_per_s {
        Some(per_s) => format!("; {}", most("TRIMs", map.trim_bytes, per_s)),
        None => "; no TRIM".to_owned(),
    };
    format!(
        "Alone: {}; {}{trims}. Offered: shares of these, open loop, {} a point. Latency is from the time at which a \
         request was due.",
        most("reads", map.read_bytes, map.read_most_per_s),
        most("writes", map.write_bytes, map.write_most_per_s),
        nanoseconds(map.point_ns as f64)
    )
}

fn partial(map: &Map) -> Option<String> {
    let why = map.broken.as_ref()?;
    Some(format!("Partial: {why} after {} points.", map.points.len()))
}

fn text(report: &MapReport) -> String {
    let map = &report.map;
    let mut text = format!("{}\n{}\n", bold(&heading(report)), folded(&said(map), 0));
    for shown in SHOWN.into_iter().filter(|(name, ..)| name.ends_with("p99")) {
        for panel in panels(map) {
            let Some(first) = panel.first().and_then(|row| row.first()) else { continue };
            let mut header = vec!["writes/s \\ reads/s".to_owned()];
            header.extend(panel[0].iter().map(|p| per_s(&p.reads)));
            let row = |points: &&[MapPoint]| {
                let mut row = vec![points.first().map_or(String::new(), |p| per_s(&p.writes))];
                row.extend(points.iter().map(|point| match latency(point, shown) {
                    Cell::Value(ns) => nanoseconds(ns),
                    Cell::Saturated => "sat.".to_owned(),
                    Cell::Empty => NONE.to_owned(),
                }));
                row.resize(header.len(), String::new());
                row
            };
            let rows: Vec<Vec<String>> = panel.iter().map(row).collect();
            text += &format!("{}, {}\n", shown.0, trims(&first.trims));
            text += &laid_out(&header, &rows);
            text.push('\n');
        }
    }
    text += &folded("sat.: saturated; the drive fell behind the offered rate.", 0);
    report.notes.iter().for_each(|note| text += &folded(&format!("{note}."), 0));
    if let Some(partial) = partial(map) {
        text += &format!("\n{}\n", bold(folded(&partial, 0).trim_end()));
    }
    text + &format!("\ntrimwise {}; repeat with:\n  {}\n", report.trimwise, report.command)
}

/// Returns, for each TRIM rate, how many points the drive keeps up with, and how many there are.
fn kept(map: &Map) -> Vec<(String, usize, usize)> {
    let of = |panel: Vec<&[MapPoint]>| {
        let points = panel.concat();
        let kept = points.iter().filter(|point| point.kept_up).count();
        points.first().map(|first| (trims(&first.trims), kept, points.len()))
    };
    panels(map).into_iter().filter_map(of).collect()
}

fn kept_in_words(map: &Map) -> String {
    let rates = kept(map).into_iter().map(|(trims, kept, of)| format!("{kept} of {of} with {trims}"));
    format!("Points that the drive keeps up with: {}.", rates.collect::<Vec<_>>().join("; "))
}

/// Makes the charts of several maps with their names, grouped by TRIM rate.
fn charts(runs: &[(&str, &Map)]) -> Vec<Chart> {
    let panels: Vec<_> = runs.iter().map(|(_, map)| panels(map)).collect();
    let rates = panels.iter().map(Vec::len).max().unwrap_or(0);
    let panel = |run: usize, rate: usize, shown: Shown| {
        let panel = panels[run].get(rate)?;
        let first = panel.first()?.first()?;
        let rows = panel.iter().map(|row| {
            let name = row.first().map_or(String::new(), |p| per_s(&p.writes));
            (name, row.iter().map(|point| latency(point, shown)).collect())
        });
        Some(HeatPanel {
            title: label(&trims(&first.trims), runs, run),
            columns: panel[0].iter().map(|p| per_s(&p.reads)).collect(),
            rows: rows.collect(),
        })
    };
    let chart = |shown: Shown| {
        Chart {
        title: shown.0.to_owned(),
        caption: "Both rates are offered; a cell is empty where no such request was made. Colours are logarithmic, the same in all \
                  panels of a figure."
            .to_owned(),
        drawing: Drawing::Heat {
            x: Axis::linear("reads_per_s", "reads", "1/s"),
            y: Axis::linear("writes_per_s", "writes", "1/s"),
            value: Axis::log("latency_ns", "latency", "ns"),
            panels: (0..rates)
                .flat_map(|rate| (0..runs.len()).filter_map(move |run| panel(run, rate, shown)))
                .collect(),
        },
    }
    };
    SHOWN.into_iter().map(chart).collect()
}

pub fn pair(reports: [(&str, &MapReport); 2]) -> Result<String, Failure> {
    let [a, b] = reports.map(|(_, report)| kept(&report.map));
    let rows = (0..a.len().max(b.len())).map(|rate| {
        let cells = [&a, &b].map(|run| match run.get(rate) {
            Some((trims, kept, of)) => [trims.clone(), format!("{kept} of {of}")],
            None => [NONE.to_owned(), NONE.to_owned()],
        });
        let [[trims_a, kept_a], [trims_b, kept_b]] = cells;
        [trims_a, kept_a, trims_b, kept_b]
    });
    let header = ["TRIMs of A", "A keeps up with", "TRIMs of B", "B keeps up with"];
    let blocks = vec![Block::new("Points that are not saturated", header, rows.collect())];
    let sum = |run: &[(String, usize, usize)]| {
        let (kept, of) = run.iter().fold((0, 0), |(kept, all), (_, of, points)| (kept + of, all + points));
        format!("{kept} of {of}")
    };
    let verdict = format!(
        "A keeps up with {} points, B with {}; each drive is offered shares of its own highest rates.",
        sum(&a),
        sum(&b)
    );
    let runs = reports.map(|(file, report)| Run {
        file: file.to_owned(),
        what: format!("{}, trimwise {}", heading(report), report.trimwise),
        verdict: with_code(
            &[Some(said(&report.map)), partial(&report.map)].map(Option::unwrap_or_default).join(" "),
        ),
        command: report.command.clone(),
    });
    let settings = reports.map(|(_, report)| {
        let version = report.trimwise.to_string();
        vec![("target", report.target.clone()), ("version", version), ("command", report.command.clone())]
    });
    let maps = [(NAMES[0], &reports[0].1.map), (NAMES[1], &reports[1].1.map)];
    let sections = vec![Section::of("Latency over the offered rates".to_owned(), blocks, &charts(&maps))?];
    PairPage::html(&verdict, runs, settings, sections, Vec::new())
}

#[derive(Serialize)]
struct Page<'a> {
    title: &'a str,
    heading: String,
    said: String,
    kept: String,
    partial: Option<String>,
    notes: &'a [String],
    maps: Vec<Figure>,
    version: &'a str,
    command: &'a str,
}

pub fn html(report: &MapReport) -> Result<String, Failure> {
    let page = Page {
        title: &report.device.name,
        heading: heading(report),
        said: said(&report.map),
        kept: kept_in_words(&report.map),
        partial: partial(&report.map),
        notes: &report.notes,
        maps: charts(&[("", &report.map)]).iter().map(Figure::of).collect::<Result<_, Failure>>()?,
        version: &report.trimwise,
        command: &report.command,
    };
    rendered(include_str!("map.html"), &page)
}

#[cfg(test)]
mod tests {
    use crate::bench::Device;

    use super::*;

    fn load(offered_per_s: f64, latency_ns: Option<u64>) -> MapLoad {
        let latency =
            |ns| LatencySummary { count: 9, p50_ns: ns, p99_ns: 3 * ns, p999_ns: 4 * ns, max_ns: 5 * ns };
        MapLoad {
            offered_per_s,
            offered_bytes_per_s: offered_per_s * 4096.0,
            achieved_per_s: offered_per_s,
            achieved_bytes_per_s: offered_per_s * 4096.0,
            latency: latency_ns.map(latency),
        }
    }

    fn report(broken: Option<&str>) -> MapReport {
        let mut points = Vec::new();
        for trims in [0.0, 50.0] {
            for writes in [0.0, 200.0] {
                for reads in [0.0, 1_000.0, 2_000.0] {
                    let kept_up = trims == 0.0 || writes == 0.0 || reads < 2_000.0;
                    let of = |rate: f64| {
                        (kept_up && rate > 0.0).then_some((80_000.0 + rate * 10.0 + trims * 1e4) as u64)
                    };
                    points.push(MapPoint {
                        reads: load(reads, of(reads)),
                        writes: load(writes, of(writes)),
                        trims: load(trims, of(trims)),
                        kept_up,
                    });
                }
            }
        }
        points.truncate(if broken.is_some() { 8 } else { points.len() });
        MapReport {
            trimwise: "0.0.0".into(),
            target: "drive".to_owned(),
            device: Device {
                name: "drive".to_owned(),
                size_bytes: 8 << 30,
                sector_bytes: 512,
                trim: true,
                is_model: true,
            },
            notes: vec![],
            partial: broken.is_some(),
            map: Map {
                read_bytes: 4096,
                write_bytes: 131_072,
                trim_bytes: 1 << 20,
                read_most_per_s: 2_105.0,
                write_most_per_s: 250.0,
                trim_most_per_s: Some(100.0),
                point_ns: 1_000_000_000,
                points,
                broken: broken.map(str::to_owned),
                interrupted: broken.is_some(),
            },
            command: "trimwise bench drive --map".to_owned(),
        }
    }

    #[test]
    fn the_tables_show_latency_by_rates_and_mark_saturation() {
        insta::assert_snapshot!(text(&report(None)));
    }

    #[test]
    fn two_maps_stand_side_by_side_and_a_panel_of_one_alone_is_there_too() {
        let (a, b) = (report(None), report(Some("interrupted")));
        let page = pair([("a.json", &a), ("b.json", &b)]).unwrap();
        assert_eq!(
            page.matches("\"title\":\"TRIMs at 50.00/s, 0.205 MB/s (A)\"").count(),
            SHOWN.len(),
            "{page}"
        );
        assert!(page.contains("A keeps up with 11 of 12 points, B with 8 of 8"), "{page}");
        assert!(page.contains("Partial: interrupted after 8 points."));
    }

    #[test]
    fn a_partial_map_is_shown_and_says_so() {
        let text = text(&report(Some("interrupted")));
        assert!(text.contains("Partial: interrupted after 8 points."), "{text}");
        assert!(html(&report(Some("interrupted"))).unwrap().contains("Partial: interrupted"));
    }

    #[test]
    fn the_page_has_a_panel_for_each_trim_rate_and_no_number_where_it_is_saturated() {
        let page = html(&report(None)).unwrap();
        if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_MAP") {
            std::fs::write(path, &page).unwrap();
        }
        assert_eq!(page.matches("<figure class=\"chart\">").count(), SHOWN.len());
        assert_eq!(page.matches("\"title\":\"TRIMs at 50.00/s").count(), SHOWN.len(), "{page}");
        assert!(page.contains("\"saturated\"") && page.contains(">saturated</td>"), "{page}");
    }
}
