//! Figures of experiments as SVG text: lines over a number, bars of categories.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use trimwise_lab::failure::Failure;
use trimwise_lab::plot::{Axis, Place, Plot, PlotKind, Point, Series};

use super::charts::{self, Bar, DrawResult};
use super::{Entry, Figure};
use crate::figures::significant;
use crate::table::plot::{place, with_unit};

/// Draws a figure, with its legend.
pub fn figure(plot: &Plot) -> Result<Figure, Failure> {
    let legend = plot
        .series
        .iter()
        .enumerate()
        .map(|(i, series)| Entry { name: series.name.clone(), colour: charts::css(colour(plot.kind, i)) });
    let along = |axis: &Axis| {
        format!("{}{}", with_unit(axis.label, axis.unit), if axis.log { " (logarithmic)" } else { "" })
    };
    let caption = format!("{} over {}", along(&plot.y), along(&plot.x));
    Ok(Figure::new(&plot.title, legend.collect(), svg(plot)?, caption))
}

/// The colour of a series: parts of bars have different colours from whole bars.
pub fn colour(kind: PlotKind, index: usize) -> RGBColor {
    match kind {
        PlotKind::Lines | PlotKind::Bars => charts::policy(index),
        PlotKind::StackedBars => charts::part(index),
    }
}

/// Draws a figure.
pub fn svg(plot: &Plot) -> Result<String, Failure> {
    match plot.kind {
        PlotKind::Lines => lines(plot),
        PlotKind::Bars => bars(plot),
        PlotKind::StackedBars => stacked(plot),
    }
}

fn stacked(plot: &Plot) -> Result<String, Failure> {
    let bars: Vec<Bar> = plot
        .places()
        .into_iter()
        .map(|at| {
            let parts: Vec<(f64, RGBColor)> = plot
                .series
                .iter()
                .enumerate()
                .filter_map(|(i, s)| Some((plot.at(&s.name, at)?.y, colour(plot.kind, i))))
                .collect();
            let figure = valued(parts.iter().map(|p| p.0).sum(), plot);
            Bar { name: place(at), parts, figure }
        })
        .collect();
    charts::bars(&bars)
}

/// Draws the bars of a category one below the other; the first carries its name.
fn bars(plot: &Plot) -> Result<String, Failure> {
    let mut bars = Vec::new();
    for at in plot.places() {
        let mut name = place(at);
        for (i, series) in plot.series.iter().enumerate() {
            if let Some(point) = plot.at(&series.name, at) {
                bars.push(Bar {
                    name: std::mem::take(&mut name),
                    parts: vec![(point.y, colour(plot.kind, i))],
                    figure: valued(point.y, plot),
                });
            }
        }
    }
    charts::bars(&bars)
}

fn valued(value: f64, plot: &Plot) -> String {
    format!("{} {}", significant(value), plot.y.unit).trim_end().to_string()
}

fn lines(plot: &Plot) -> Result<String, Failure> {
    // A logarithmic axis has no place for zero.
    let x = |p: &Point| match p.x {
        Place::At(x) if !plot.x.log || x > 0.0 => Some(x),
        _ => None,
    };
    let shown = |v: f64| (!plot.y.log || v > 0.0).then_some(v);
    let points = |s: &Series| -> Vec<(f64, f64)> {
        s.points.iter().filter_map(|p| Some((x(p)?, shown(p.y)?))).collect()
    };
    let ranges = |s: &Series| -> Vec<(f64, f64, f64)> {
        let range = |p: &Point| {
            let (low, high) = p.range?;
            Some((x(p)?, shown(low)?, shown(high)?))
        };
        s.points.iter().filter_map(range).collect()
    };
    let drawn: Vec<Drawn> = plot
        .series
        .iter()
        .enumerate()
        .map(|(i, s)| Drawn { colour: colour(plot.kind, i), points: points(s), ranges: ranges(s) })
        .collect();
    let xs = || drawn.iter().flat_map(|d| d.points.iter().map(|p| p.0));
    let ys = || {
        let of = |d: &'_ Drawn| -> Vec<f64> {
            d.points.iter().map(|p| p.1).chain(d.ranges.iter().flat_map(|r| [r.1, r.2])).collect()
        };
        drawn.iter().flat_map(of)
    };
    let Some(((left, right), (low, high))) = bounds(xs()).zip(bounds(ys())) else {
        return charts::drawn(40, |_| Ok(()));
    };
    let wider = |factor: f64| (low / factor)..(high * factor);
    charts::drawn(340, |root| match (plot.x.log, plot.y.log) {
        (false, false) => on(root, plot, &drawn, linear(left, right), 0.0f64.min(low)..upper(high)),
        (false, true) => on(root, plot, &drawn, linear(left, right), wider(1.25).log_scale()),
        (true, false) => {
            on(root, plot, &drawn, logarithmic(left, right).log_scale(), 0.0f64.min(low)..upper(high))
        }
        (true, true) => on(root, plot, &drawn, logarithmic(left, right).log_scale(), wider(1.25).log_scale()),
    })
}

/// What to draw of a series.
struct Drawn {
    colour: RGBColor,
    points: Vec<(f64, f64)>,
    /// Place, least and most of the repetitions.
    ranges: Vec<(f64, f64, f64)>,
}

/// Minimum and maximum; `None` if there are no values or one is not a number.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values {
        if !value.is_finite() {
            return None;
        }
        (low, high) = (low.min(value), high.max(value));
    }
    (low <= high).then_some((low, high))
}

fn linear(left: f64, right: f64) -> std::ops::Range<f64> {
    let margin = if right > left { (right - left) * 0.02 } else { 1.0 };
    left - margin..right + margin
}

fn logarithmic(left: f64, right: f64) -> std::ops::Range<f64> {
    left / 1.15..right * 1.15
}

fn upper(high: f64) -> f64 {
    if high > 0.0 { high * 1.08 } else { 1.0 }
}

fn on<X, Y>(root: &DrawingArea<SVGBackend<'_>, Shift>, plot: &Plot, drawn: &[Drawn], x: X, y: Y) -> DrawResult
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(28)
        .y_label_area_size(84)
        .build_cartesian_2d(x, y)?;
    let labelled =
        |value: f64, unit: &str| format!("{} {unit}", place(&Place::At(value))).trim_end().to_string();
    charts::styled(&mut chart.configure_mesh())
        .x_labels(10)
        .y_labels(6)
        .x_label_formatter(&|x| labelled(*x, plot.x.unit))
        .y_label_formatter(&|y| labelled(*y, plot.y.unit))
        .draw()?;
    for (i, series) in drawn.iter().enumerate() {
        let colour = series.colour;
        let style = colour.stroke_width(charts::stroke(i, drawn.len()));
        chart.draw_series(LineSeries::new(series.points.iter().copied(), style))?;
        chart.draw_series(series.points.iter().map(|&p| Circle::new(p, 3, colour.filled())))?;
        let whisker = |&(x, low, high): &(f64, f64, f64)| {
            PathElement::new(vec![(x, low), (x, high)], colour.stroke_width(1))
        };
        chart.draw_series(series.ranges.iter().map(whisker))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use trimwise_lab::plot::Axis;

    use super::*;

    fn plot(kind: PlotKind, log: bool, points: Vec<Point>) -> Plot {
        let axis = |key| Axis { key, label: key, unit: "s", log };
        Plot {
            title: "<t>".into(),
            kind,
            x: axis("x"),
            y: axis("y"),
            series: vec![Series { name: "a".into(), points }],
        }
    }

    #[test]
    fn figures_of_nothing_of_one_point_and_of_what_has_no_place_are_drawn() {
        for kind in [PlotKind::Lines, PlotKind::Bars, PlotKind::StackedBars] {
            for log in [false, true] {
                for points in [
                    vec![],
                    vec![Point::new(1.0, 1.0)],
                    vec![Point::new(0.0, 0.0), Point::new(2.0, 5.0)],
                    vec![Point::new(1.0, f64::NAN)],
                    vec![Point::new("name".to_string(), 3.0)],
                ] {
                    let svg = svg(&plot(kind, log, points.clone())).unwrap();
                    assert!(svg.starts_with("<svg"), "{kind:?} {log} {points:?}");
                }
            }
        }
    }

    #[test]
    fn the_spread_of_repetitions_is_a_whisker() {
        let with = |range| {
            let points = vec![Point { x: Place::At(1.0), y: 2.0, range }, Point::new(2.0, 3.0)];
            svg(&plot(PlotKind::Lines, false, points)).unwrap().matches("<polyline").count()
        };
        assert_eq!(with(Some((1.0, 3.0))), with(None) + 1);
    }

    #[test]
    fn a_bar_of_each_series_stands_in_each_category() {
        let mut two = plot(PlotKind::Bars, false, vec![Point::new("off".to_string(), 2.0)]);
        two.series.push(Series { name: "b".into(), points: vec![Point::new("off".to_string(), 4.0)] });
        let svg = svg(&two).unwrap();
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("2.000 s") && svg.contains("4.000 s"), "{svg}");
    }
}
