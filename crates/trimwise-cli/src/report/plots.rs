//! Plots of experiments and device tests as charts: lines over numbers, bars over categories.

use trimwise_study::plot::{Axis, Place, Plot, PlotKind, Point};

use super::chart::{self, Bar, Chart, Drawing, Part, Series, Styles, gap, label};
use crate::figures::significant;
use crate::table::plot::place;

pub fn of(plot: &Plot, styles: &mut Styles) -> Chart {
    of_runs(&[("", plot)], styles)
}

/// Makes one chart of the same plot in several runs, whose names are added to those of the series.
pub fn of_runs(runs: &[(&str, &Plot)], styles: &mut Styles) -> Chart {
    let is_far = runs.iter().any(|(_, plot)| is_far_from_bound(plot));
    let far: Vec<Plot> = runs.iter().filter(|_| is_far).map(|(_, plot)| times_the_bound(plot)).collect();
    let runs: Vec<(&str, &Plot)> =
        runs.iter().enumerate().map(|(run, (name, plot))| (*name, far.get(run).unwrap_or(plot))).collect();
    let runs = &runs[..];
    let Some((_, first)) = runs.first() else { return Chart::lines("", NOTHING, NOTHING, Vec::new(), "") };
    let caption = match first.kind {
        _ if !first.series.iter().flat_map(|s| &s.points).any(|p| p.range.is_some()) => "",
        PlotKind::Lines if first.x.key == "time_s" => {
            "Points are means of neighbouring intervals; the thin lines reach from the minimum to the maximum."
        }
        PlotKind::Lines => {
            "Points are medians of the repetitions; the thin lines reach from the minimum to the maximum."
        }
        PlotKind::Bars | PlotKind::StackedBars => "Medians of the repetitions.",
    };
    let (x, y) = (first.x.clone(), first.y.clone());
    let drawing = match first.kind {
        PlotKind::Lines => {
            let mut series = Vec::new();
            for (run, (_, plot)) in runs.iter().enumerate() {
                for s in &plot.series {
                    series.push(Series {
                        name: label(&s.name, runs, run),
                        style: styles.in_run(&s.name, runs, run),
                        points: points(s, plot),
                    });
                }
            }
            return Chart::lines(&first.title, x, y, series, caption);
        }
        PlotKind::Bars => {
            let mut rows = Vec::new();
            for place in first.places() {
                for name in first.series.iter().map(|s| &s.name) {
                    for (run, (_, plot)) in runs.iter().enumerate() {
                        let Some(point) = plot.at(name, place) else { continue };
                        let label = label(&in_place(place, name, first.series.len()), runs, run);
                        // These series are not policies, so a policy's colour would mislead.
                        let parts =
                            vec![Part { name: name.clone(), fill: styles.fill(name), value: point.y }];
                        rows.push(Bar { name: label, style: None, parts, figure: valued(point.y, plot) });
                    }
                }
            }
            Drawing::Bars { x: y, y: x, rows }
        }
        PlotKind::StackedBars => {
            let mut rows = Vec::new();
            for at in first.places() {
                for (run, (_, plot)) in runs.iter().enumerate() {
                    let parts: Vec<Part> = plot
                        .series
                        .iter()
                        .filter_map(|s| {
                            let value = plot.at(&s.name, at)?.y;
                            Some(Part { name: s.name.clone(), fill: styles.fill(&s.name), value })
                        })
                        .collect();
                    let figure = valued(parts.iter().map(|p| p.value).sum(), plot);
                    let name = label(&place(at), runs, run);
                    rows.push(Bar { name, style: None, parts, figure });
                }
            }
            Drawing::Bars { x: y, y: x, rows }
        }
    };
    Chart { title: first.title.clone(), caption: caption.to_owned(), drawing }
}

const NOTHING: Axis = Axis::linear("", "", "");

/// Distance to the bound, in percent, above which a plot shows multiples of the bound on a logarithmic axis.
const FAR_PERCENT: f64 = 1000.0;

fn is_far_from_bound(plot: &Plot) -> bool {
    let mut points = plot.series.iter().flat_map(|s| &s.points);
    plot.kind == PlotKind::Lines && plot.y.key == "vs_ideal_percent" && points.any(|p| p.y > FAR_PERCENT)
}

/// Converts distances to the bound into multiples of its time, which have a logarithm even where the distance is zero.
fn times_the_bound(plot: &Plot) -> Plot {
    let times = |percent: f64| 1.0 + percent / 100.0;
    let mut plot = plot.clone();
    plot.y = Axis::log("times_ideal", "times as long as under ideal", "");
    for point in plot.series.iter_mut().flat_map(|s| &mut s.points) {
        point.y = times(point.y);
        point.range = point.range.map(|(low, high)| (times(low), times(high)));
    }
    plot
}

/// Returns the points of a series, with a gap where it has no value but its neighbours and the other series do.
fn points(series: &trimwise_study::plot::Series, plot: &Plot) -> Vec<chart::Point> {
    let mut points: Vec<chart::Point> = series.points.iter().filter_map(|point| at(point, plot)).collect();
    let places = plot.places();
    // A series with x values of its own, such as times, lacks those of the others everywhere.
    if plot.x.key != "time_s" && 2 * series.points.len() > places.len() {
        let is_missing = |place: &&Place| !series.points.iter().any(|point| point.x == **place);
        points.extend(places.into_iter().filter(is_missing).filter_map(|place| match place {
            Place::At(x) => Some(gap(*x)),
            Place::In(_) => None,
        }));
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    points
}

/// Names a bar after its place, and its series if there are several.
fn in_place(at: &Place, series: &str, count: usize) -> String {
    if count > 1 { format!("{}: {series}", place(at)) } else { place(at) }
}

/// Returns a point on the axes, or a gap if its value cannot be drawn there, such as zero on a logarithmic axis.
fn at(point: &Point, plot: &Plot) -> Option<chart::Point> {
    let on = |value: f64, log: bool| (value.is_finite() && (!log || value > 0.0)).then_some(value);
    let Place::At(x) = point.x else { return None };
    let shown = |v: f64| on(v, plot.y.log);
    let range = point.range.and_then(|(low, high)| Some((shown(low)?, shown(high)?)));
    let x = on(x, plot.x.log)?;
    Some(shown(point.y).map_or_else(|| gap(x), |y| (x, y, range)))
}

fn valued(value: f64, plot: &Plot) -> String {
    format!("{} {}", significant(value), plot.y.unit).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use trimwise_study::plot::Axis;

    use super::*;

    fn plot(kind: PlotKind, log: bool, points: Vec<Point>) -> Plot {
        let axis = |key| Axis { log, ..Axis::linear(key, key, "s") };
        Plot {
            title: "<t>".into(),
            kind,
            x: axis("x"),
            y: axis("y"),
            series: vec![trimwise_study::plot::Series { name: "a".into(), points }],
        }
    }

    fn drawn(plot: &Plot) -> Chart {
        of(plot, &mut Styles::default())
    }

    #[test]
    fn figures_of_nothing_of_one_point_and_of_what_has_no_place_are_charts() {
        for kind in [PlotKind::Lines, PlotKind::Bars, PlotKind::StackedBars] {
            for log in [false, true] {
                for points in [
                    vec![],
                    vec![Point::new(0.0, 0.0), Point::new(2.0, 5.0)],
                    vec![Point::new(1.0, f64::NAN)],
                    vec![Point::new("name".to_string(), 3.0)],
                ] {
                    let chart = drawn(&plot(kind, log, points.clone()));
                    let Drawing::Lines { panels, .. } = &chart.drawing else { continue };
                    let shown = panels[0].series[0].points.iter().filter(|point| !point.1.is_nan());
                    let expected = if points.len() == 2 { 2 - usize::from(log) } else { 0 };
                    assert_eq!(shown.count(), expected, "{log} {points:?}");
                }
            }
        }
    }

    #[test]
    fn a_place_that_a_series_lacks_is_a_gap_in_its_line() {
        let points = |at: &[f64]| at.iter().map(|x| Point::new(*x, x + 1.0)).collect::<Vec<_>>();
        let mut two = plot(PlotKind::Lines, false, points(&[1.0, 2.0, 3.0, 4.0]));
        two.series.push(trimwise_study::plot::Series { name: "b".into(), points: points(&[1.0, 2.0, 4.0]) });
        two.series
            .push(trimwise_study::plot::Series { name: "published".into(), points: points(&[1.0, 4.0]) });
        let chart = drawn(&two);
        let Drawing::Lines { panels, .. } = &chart.drawing else { panic!("not lines") };
        let gaps = |series: usize| {
            let points = panels[0].series[series].points.iter();
            points.filter(|point| point.1.is_nan()).map(|point| point.0).collect::<Vec<_>>()
        };
        assert_eq!([gaps(0), gaps(1), gaps(2)], [vec![], vec![3.0], vec![]]);
        let data = serde_json::to_string(&chart).unwrap();
        assert!(data.contains("[2.0,3.0,null],[3.0,null,null],[4.0,5.0,null]"), "{data}");
        assert!(chart.values().unwrap().rows.iter().flatten().all(|cell| !cell.contains("NaN")));
    }

    #[test]
    fn a_far_distance_to_the_bound_is_drawn_as_multiples_on_a_logarithmic_axis() {
        let near = Plot {
            y: Axis::linear("vs_ideal_percent", "longer than under ideal", "%"),
            ..plot(PlotKind::Lines, false, vec![Point::new(1.0, 0.0), Point::new(2.0, 900.0)])
        };
        let mut far = near.clone();
        far.series[0].points.push(Point::new(3.0, 99_900.0));
        let of = |plot: &Plot| match drawn(plot).drawing {
            Drawing::Lines { y, panels, .. } => {
                (y.log, panels[0].series[0].points.iter().map(|point| point.1).collect::<Vec<_>>())
            }
            _ => panic!("not lines"),
        };
        assert_eq!(of(&near), (false, vec![0.0, 900.0]));
        assert_eq!(of(&far), (true, vec![1.0, 10.0, 1000.0]));
    }

    #[test]
    fn the_spread_of_repetitions_is_the_interval_of_the_point_and_said_in_the_caption() {
        let point = Point { x: Place::At(1.0), y: 2.0, range: Some((1.0, 3.0)) };
        let chart = drawn(&plot(PlotKind::Lines, false, vec![point, Point::new(2.0, 3.0)]));
        let Drawing::Lines { panels, .. } = &chart.drawing else { panic!("not lines") };
        assert_eq!(panels[0].series[0].points, [(1.0, 2.0, Some((1.0, 3.0))), (2.0, 3.0, None)]);
        assert!(chart.caption.contains("from the minimum to the maximum"));
    }

    #[test]
    fn a_bar_of_each_series_stands_in_each_category_and_names_both() {
        let mut two = plot(PlotKind::Bars, false, vec![Point::new("off".to_string(), 2.0)]);
        let points = vec![Point::new("off".to_string(), 4.0)];
        two.series.push(trimwise_study::plot::Series { name: "b".into(), points });
        let Drawing::Bars { rows, .. } = drawn(&two).drawing else { panic!("not bars") };
        let shown: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.name, &*row.figure)).collect();
        assert_eq!(shown, [("off: a", "2.000 s"), ("off: b", "4.000 s")]);
        assert!(rows.iter().all(|row| row.style.is_none()), "no colour of a policy");
        assert_ne!(rows[0].parts[0].fill, rows[1].parts[0].fill);
    }

    #[test]
    fn two_runs_are_lines_of_the_same_colour_that_say_whose_they_are() {
        let one = plot(PlotKind::Lines, false, vec![Point::new(1.0, 2.0)]);
        let chart = of_runs(&[("A", &one), ("B", &one)], &mut Styles::default());
        let Drawing::Lines { panels, .. } = &chart.drawing else { panic!("not lines") };
        let names: Vec<&str> = panels[0].series.iter().map(|s| &*s.name).collect();
        assert_eq!(names, ["a (A)", "a (B)"]);
        assert_ne!(panels[0].series[0].style, panels[0].series[1].style);
    }
}
