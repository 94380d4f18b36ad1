//! Charts as SVG text for the report.
//!
//! Text and axes are drawn in `currentColor`, so that they follow the page's light or dark style; the colours of series
//! are legible on both.

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use trimwise_lab::failure::Failure;

use crate::figures::nanoseconds;

/// Colours of policies by position; the first, usually the baseline, is grey.
const POLICIES: [RGBColor; 8] = [
    RGBColor(0x8a, 0x90, 0x9c),
    RGBColor(0x2f, 0x7f, 0xd1),
    RGBColor(0x2f, 0xa3, 0x6b),
    RGBColor(0xd9, 0x82, 0x2b),
    RGBColor(0xb6, 0x5f, 0xc2),
    RGBColor(0xc9, 0x4f, 0x4f),
    RGBColor(0x3f, 0xa7, 0xb0),
    RGBColor(0xa0, 0x8a, 0x2c),
];

/// Colours of the parts of a bar (phases, causes): different from the policies', so that the two are not confused.
const PARTS: [RGBColor; 10] = [
    RGBColor(0x5b, 0x7d, 0xb1),
    RGBColor(0xe0, 0xa4, 0x3a),
    RGBColor(0xc4, 0x60, 0x5a),
    RGBColor(0x6f, 0xb3, 0xa2),
    RGBColor(0x9a, 0x7b, 0xb8),
    RGBColor(0xa3, 0xb5, 0x4c),
    RGBColor(0xd9, 0x8f, 0xa8),
    RGBColor(0x8c, 0x73, 0x5a),
    RGBColor(0x7f, 0xa8, 0xd8),
    RGBColor(0x77, 0x77, 0x77),
];

const WIDTH: u32 = 860;
const LABELS: i32 = 150; // room for the names of bars
const BAR: i32 = 26;
const GAP: i32 = 12;
const FONT: &str = "system-ui, sans-serif";
const GRID: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// A colour as CSS writes it.
pub fn css(colour: RGBColor) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

/// The colour of the policy at `index`.
pub fn policy(index: usize) -> RGBColor {
    POLICIES[index % POLICIES.len()]
}

/// The colour of a bar's part at `index`.
pub fn part(index: usize) -> RGBColor {
    PARTS[index % PARTS.len()]
}

/// One bar: its name, its parts from left to right, and the figure at its end.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name, at the left.
    pub name: String,
    /// Its parts.
    pub parts: Vec<(f64, RGBColor)>,
    /// The figure at its end.
    pub figure: String,
}

/// Horizontal bars from zero, all on one scale.
pub fn bars(bars: &[Bar]) -> Result<String, Failure> {
    let height = (bars.len() as i32 * (BAR + GAP) + GAP).max(GAP) as u32;
    let longest = bars.iter().map(|b| b.parts.iter().map(|p| p.0).sum::<f64>()).fold(0.0, f64::max);
    let room = f64::from(WIDTH as i32 - LABELS - 110);
    let x = |value: f64| LABELS + if longest > 0.0 { (value / longest * room).round() as i32 } else { 0 };
    drawn(height, |root| {
        for (i, bar) in bars.iter().enumerate() {
            let top = GAP + i as i32 * (BAR + GAP);
            let middle = top + BAR / 2 - 6;
            root.draw(&Text::new(shortened(&bar.name, 20), (0, middle), (FONT, 16)))?;
            let mut sum = 0.0;
            for &(value, colour) in &bar.parts {
                let from = x(sum);
                sum += value;
                if x(sum) > from {
                    root.draw(&Rectangle::new([(from, top), (x(sum), top + BAR)], colour.filled()))?;
                }
            }
            root.draw(&Text::new(bar.figure.clone(), (x(sum) + 8, middle), (FONT, 16)))?;
        }
        Ok(())
    })
}

/// A line with its colour.
pub type Line = (RGBColor, Vec<(f64, f64)>);

/// Latency from left (fast) to right on a logarithmic axis; upwards the share of operations that took no longer.
/// Quantiles are evenly spaced, so that the slow tail is as visible as the middle.
///
/// `lines` hold (nanoseconds, index of the quantile).
pub fn quantiles(lines: &[Line], quantile_names: &[String]) -> Result<String, Failure> {
    let points = || lines.iter().flat_map(|l| &l.1).map(|p| p.0.max(1.0));
    let low = points().fold(f64::INFINITY, f64::min);
    let high = points().fold(1.0, f64::max);
    if !low.is_finite() {
        return Ok(String::new());
    }
    let top = quantile_names.len().saturating_sub(1) as f64;
    drawn(300, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(28)
            .y_label_area_size(64)
            .build_cartesian_2d((low * 0.8..high * 1.25).log_scale(), 0.0..top)?;
        let name = |y: &f64| quantile_names.get(y.round() as usize).cloned().unwrap_or_default();
        styled(&mut chart.configure_mesh())
            .x_labels(8)
            .y_labels(quantile_names.len())
            .x_label_formatter(&|x| nanoseconds(*x))
            .y_label_formatter(&name)
            .draw()?;
        for (i, (colour, points)) in lines.iter().enumerate() {
            let style = colour.stroke_width(stroke(i, lines.len()));
            chart.draw_series(LineSeries::new(points.iter().map(|p| (p.0.max(1.0), p.1)), style))?;
            chart.draw_series(points.iter().map(|p| Circle::new((p.0.max(1.0), p.1), 3, colour.filled())))?;
        }
        Ok(())
    })
}

/// A value over time: `lines` hold (seconds, value).
pub fn over_time(lines: &[Line], time_unit: &str, unit: &str) -> Result<String, Failure> {
    let max = |axis: fn(&(f64, f64)) -> f64| lines.iter().flat_map(|l| &l.1).map(axis).fold(0.0, f64::max);
    let (end, top) = (max(|p| p.0), max(|p| p.1));
    let (end, top) = (if end > 0.0 { end } else { 1.0 }, if top > 0.0 { top * 1.08 } else { 1.0 });
    drawn(280, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(28)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        styled(&mut chart.configure_mesh())
            .x_labels(8)
            .y_labels(5)
            .x_label_formatter(&|x| format!("{x} {time_unit}"))
            .y_label_formatter(&|y| format!("{} {unit}", (y * 1000.0).round() / 1000.0))
            .draw()?;
        for (i, (colour, points)) in lines.iter().enumerate() {
            let style = colour.stroke_width(stroke(i, lines.len()));
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        }
        Ok(())
    })
}

/// A cell of a heat map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// Nanoseconds.
    Value(f64),
    /// Beyond what the device can do.
    Saturated,
    /// Nothing was measured there.
    Empty,
}

/// A heat map: rows from bottom to top, each with its name.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Name and cells of each row.
    pub rows: Vec<(String, Vec<Cell>)>,
}

/// Heat maps of latencies, two side by side, on one logarithmic scale of colours.
pub fn heat(panels: &[Panel]) -> Result<String, Failure> {
    const LEFT: i32 = 62;
    const TOP: i32 = 26;
    const CELL: i32 = 26;
    const BELOW: i32 = 34;
    let cells = || panels.iter().flat_map(|p| &p.rows).flat_map(|(_, cells)| cells);
    let logs =
        || cells().filter_map(|cell| if let Cell::Value(ns) = cell { Some(ns.max(1.0).ln()) } else { None });
    let (low, high) = logs().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let colour = |ns: f64| {
        let share = if high > low { (ns.max(1.0).ln() - low) / (high - low) } else { 0.0 };
        // From pale yellow to red: dark text is legible on all of it.
        let mix = |from: f64, to: f64| (from + (to - from) * share).round() as u8;
        RGBColor(mix(255.0, 232.0), mix(247.0, 92.0), mix(200.0, 70.0))
    };
    const INK: RGBColor = RGBColor(0x11, 0x11, 0x11); // not black, which would follow the page's style
    let rows = panels.iter().map(|p| p.rows.len()).max().unwrap_or(0) as i32;
    let height = TOP + rows * CELL + BELOW;
    let half = WIDTH as i32 / 2;
    drawn((height * panels.len().div_ceil(2) as i32).max(1) as u32, |root| {
        for (i, panel) in panels.iter().enumerate() {
            let (left, top) = (i as i32 % 2 * half, i as i32 / 2 * height);
            root.draw(&Text::new(panel.title.clone(), (left + LEFT, top + 4), (FONT, 15)))?;
            let width = (half - LEFT - 12) / panel.columns.len().max(1) as i32;
            for (j, (name, cells)) in panel.rows.iter().rev().enumerate() {
                let y = top + TOP + (rows - panel.rows.len() as i32 + j as i32) * CELL;
                root.draw(&Text::new(name.clone(), (left + 2, y + 7), (FONT, 13)))?;
                for (k, cell) in cells.iter().enumerate() {
                    let x = left + LEFT + k as i32 * width;
                    let (fill, text) = match *cell {
                        Cell::Value(ns) => (colour(ns), nanoseconds(ns)),
                        Cell::Saturated => (RGBColor(0xb8, 0xbc, 0xc2), "×".to_owned()),
                        Cell::Empty => continue,
                    };
                    root.draw(&Rectangle::new([(x, y), (x + width - 2, y + CELL - 2)], fill.filled()))?;
                    root.draw(&Text::new(text, (x + 3, y + 7), (FONT, 12).into_font().color(&INK)))?;
                }
            }
            for (k, name) in panel.columns.iter().enumerate() {
                let at = (left + LEFT + k as i32 * width + 2, top + TOP + rows * CELL + 4);
                root.draw(&Text::new(name.clone(), at, (FONT, 13)))?;
            }
        }
        Ok(())
    })
}

/// Earlier lines are wider, so that where lines coincide each still shows behind the one drawn over it.
pub fn stroke(index: usize, lines: usize) -> u32 {
    2 + 3 * (lines - 1 - index).min(3) as u32
}

/// Styles all axes.
pub fn styled<'m, 'a, 'b, X, Y, DB>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB>
where
    X: Ranged,
    Y: Ranged,
    DB: DrawingBackend,
{
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(GRID.mix(0.25))
        .axis_style(GRID.mix(0.6))
        .label_style((FONT, 15))
}

/// Result of a drawing function.
pub type DrawResult = Result<(), Box<dyn std::error::Error>>;

/// Draws on an empty canvas of the report's width and returns the SVG element.
pub fn drawn(
    height: u32,
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> DrawResult,
) -> Result<String, Failure> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root).map_err(|e| Failure::run(format!("cannot draw a chart: {e}")))?;
        root.present().map_err(|e| Failure::run(format!("cannot draw a chart: {e}")))?;
    }
    Ok(svg.replace("\"#000000\"", "\"currentColor\""))
}

fn shortened(name: &str, chars_max: usize) -> String {
    if name.chars().count() <= chars_max {
        return name.to_string();
    }
    name.chars().take(chars_max - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_of_nothing_are_empty_not_a_panic() {
        assert!(bars(&[]).unwrap().starts_with("<svg"));
        assert_eq!(quantiles(&[], &[]).unwrap(), "");
        assert!(over_time(&[(RED, vec![])], "s", "GiB").unwrap().starts_with("<svg"));
    }

    #[test]
    fn bars_are_on_one_scale_and_their_names_escaped() {
        let bar =
            |name: &str, value| Bar { name: name.into(), parts: vec![(value, RED)], figure: String::new() };
        let svg = bars(&[bar("<b>&", 1.0), bar("half", 0.5), bar("none", 0.0)]).unwrap();
        assert!(svg.contains("width=\"600\"") && svg.contains("width=\"300\""), "{svg}");
        assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("currentColor"));
    }

    #[test]
    fn one_point_and_equal_values_can_be_drawn() {
        let names: Vec<String> = ["0 %", "100 %"].map(String::from).to_vec();
        assert!(quantiles(&[(BLUE, vec![(0.0, 0.0), (0.0, 1.0)])], &names).unwrap().contains("<circle"));
        assert!(over_time(&[(BLUE, vec![(0.0, 0.0)])], "s", "GiB").is_ok());
    }
}
