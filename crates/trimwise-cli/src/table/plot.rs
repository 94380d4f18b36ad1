//! Plots as tables: a row for each place, a column for each series.

pub use trimwise_study::plot::Table as Block;
use trimwise_study::plot::{Place, Plot, PlotKind, Point};

use super::grid::BETWEEN;
use super::{WIDTH_MAX, folded, titled};
use crate::figures::{NONE, significant, thousands};

/// Returns a table as text, under its title with `of` in front.
pub fn text(block: &Block, of: &str) -> String {
    let title = folded(&format!("{of}{}", block.title), 0);
    titled(title.trim_end(), &block.header, &block.rows) + "\n"
}

/// Plots with more places are only drawn, in the report.
const PLACES_MAX: usize = 30;

/// Returns true if a plot makes a useful table; throughput over time, point by point, does not.
pub fn is_tabled(plot: &Plot) -> bool {
    plot.x.key != "time_s" && plot.places().len() <= PLACES_MAX
}

/// Lays out a plot with places as rows and series as columns, as many series per table as fit into the width.
pub fn of_plot(plot: &Plot) -> Vec<Block> {
    let places = plot.places();
    let names: Vec<String> = places.iter().map(|p| place(p)).collect();
    let first = with_unit(&plot.x.label, &plot.x.unit);
    let mut points = plot.series.iter().flat_map(|s| &s.points);
    let counts = plot.y.unit.is_empty() && points.all(|p| p.y.fract() == 0.0);
    let widest =
        |texts: &mut dyn Iterator<Item = &String>| texts.map(|t| t.chars().count()).max().unwrap_or(0);
    let mut columns: Vec<Vec<String>> = plot
        .series
        .iter()
        .map(|s| {
            let figure = |p: &&Place| plot.at(&s.name, p).map_or(NONE.to_string(), |p| point(p, counts));
            let figures = places.iter().map(figure);
            std::iter::once(s.name.clone()).chain(figures).collect()
        })
        .collect();
    if plot.kind == PlotKind::StackedBars {
        let sum = |p: &&Place| {
            significant(plot.series.iter().filter_map(|s| plot.at(&s.name, p)).map(|p| p.y).sum())
        };
        columns.push(std::iter::once("total".to_string()).chain(places.iter().map(sum)).collect());
    }
    let left = widest(&mut names.iter().chain([&first])) + BETWEEN;
    let mut blocks: Vec<Block> = Vec::new();
    let mut used = WIDTH_MAX;
    for column in columns {
        let width = widest(&mut column.iter()) + BETWEEN;
        if blocks.is_empty() || used + width > WIDTH_MAX {
            let title = format!("{}: {}", plot.title, with_unit(&plot.y.label, &plot.y.unit));
            let title = if blocks.is_empty() { title } else { format!("{title} (continued)") };
            blocks.push(Block {
                title,
                header: vec![first.clone()],
                rows: names.iter().map(|n| vec![n.clone()]).collect(),
            });
            used = left;
        }
        used += width;
        if let Some(block) = blocks.last_mut() {
            let mut cells = column.into_iter();
            block.header.extend(cells.next());
            for row in &mut block.rows {
                row.extend(cells.next());
            }
        }
    }
    blocks
}

/// Returns a label with its unit; counts and names have none.
pub fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_string() } else { format!("{label}, {unit}") }
}

/// Formats a place on the x axis.
pub fn place(place: &Place) -> String {
    match place {
        Place::At(x) if x.fract() == 0.0 => thousands(*x),
        Place::At(x) => significant(*x),
        Place::In(name) => name.clone(),
    }
}

/// Formats a point's median with the distance to its farthest repetition, or with both ends of the range. Counts are
/// whole numbers.
fn point(point: &Point, counts: bool) -> String {
    match point.range {
        None if counts => thousands(point.y),
        Some((low, high)) if point.y != 0.0 => {
            let reach = (high - point.y).max(point.y - low) / point.y.abs() * 100.0;
            if reach < 100.0 {
                format!("{} ± {reach:.1} %", significant(point.y))
            } else {
                // Near zero, a percentage of the median is meaningless.
                format!("{} ({} to {})", significant(point.y), significant(low), significant(high))
            }
        }
        _ => significant(point.y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_a_share_of_the_median_or_a_range_where_that_is_near_zero() {
        let shown = |y, range| point(&Point { x: Place::At(1.0), y, range: Some(range) }, false);
        assert_eq!(shown(2.0, (1.9, 2.02)), "2.000 ± 5.0 %");
        assert_eq!(shown(0.008, (-0.32, 0.2)), "0.008 (\u{2212}0.320 to 0.200)");
    }
}
