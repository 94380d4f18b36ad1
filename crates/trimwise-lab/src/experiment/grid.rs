//! Measurements over a grid and figures drawn from them, in the model and on a real kernel.

use super::claims::Figures;
use crate::plot::{Axis, Place, Plot, PlotKind, Point, Series};
use trimwise::compare::statistics::median;

/// Measurements in each cell of a grid: for each series, such as a policy, at each place of the x axis, such as a
/// utilization.
#[derive(Clone, Debug)]
pub struct Grid<T> {
    series: Vec<String>,
    places: Vec<Place>,
    /// By series, then place, then repetition.
    runs: Vec<Vec<Vec<T>>>,
}

/// A figure of an experiment's runs.
pub(super) struct Shown<T> {
    pub title: &'static str,
    pub y: Axis,
    pub of: fn(&T) -> f64,
}

impl<T> Grid<T> {
    /// Takes the repetitions of each cell from `runs`, which receives the indices of series and place.
    pub fn new(
        series: impl IntoIterator<Item = impl Into<String>>,
        places: impl IntoIterator<Item = impl Into<Place>>,
        runs: impl Fn(usize, usize) -> Vec<T>,
    ) -> Self {
        let series: Vec<String> = series.into_iter().map(Into::into).collect();
        let places: Vec<Place> = places.into_iter().map(Into::into).collect();
        let of_series = |s| (0..places.len()).map(|place| runs(s, place)).collect();
        let runs = (0..series.len()).map(of_series).collect();
        Self { series, places, runs }
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn reps(&self) -> u32 {
        self.runs.iter().flatten().next().map_or(0, |reps| reps.len() as u32)
    }

    /// Returns the median of a figure in a cell; `None` if that was not run.
    pub(super) fn median(&self, series: &str, place: &Place, of: impl Fn(&T) -> f64) -> Option<f64> {
        let series = self.series.iter().position(|name| name == series)?;
        let place = self.places.iter().position(|known| known == place)?;
        median(&self.runs[series][place].iter().map(of).collect::<Vec<_>>())
    }

    /// Returns the medians of the places of a series that were run, in order.
    pub(super) fn line(&self, series: &str, of: impl Fn(&T) -> f64) -> impl Iterator<Item = f64> {
        self.places.iter().filter_map(move |place| self.median(series, place, &of))
    }

    /// Returns the lines named after their series, and each cell's median as `SERIES.PLACE`.
    pub(super) fn named(&self, of: impl Fn(&T) -> f64) -> Figures {
        let mut figures = Figures::default();
        self.name(&mut figures, "", &of);
        for series in &self.series {
            for place in &self.places {
                figures.set(format!("{series}.{place}"), self.median(series, place, &of));
            }
        }
        figures
    }

    pub(super) fn name(&self, figures: &mut Figures, prefix: &str, of: impl Fn(&T) -> f64) {
        for series in &self.series {
            figures.set(format!("{prefix}{series}"), self.line(series, &of));
        }
    }

    /// Returns the grid with only these series.
    pub(super) fn only(&self, keeps: impl Fn(&str) -> bool) -> Self
    where
        T: Clone,
    {
        let kept = self.series.iter().zip(&self.runs).filter(|(series, _)| keeps(series));
        let (series, runs) = kept.map(|(series, runs)| (series.clone(), runs.clone())).unzip();
        Self { series, runs, places: self.places.clone() }
    }

    /// Draws a figure. Series have no point where nothing was measured, or where the axis cannot show it.
    pub(super) fn plot(&self, kind: PlotKind, x: &Axis, Shown { title, y, of }: &Shown<T>) -> Plot {
        let point = |(place, runs): (&Place, &Vec<T>)| {
            let point = Point::of_runs(place.clone(), &runs.iter().map(of).collect::<Vec<_>>())?;
            (point.y.is_finite() && (!y.log || point.y > 0.0)).then_some(point)
        };
        let series = self.series.iter().zip(&self.runs).map(|(name, runs)| Series {
            name: name.clone(),
            points: self.places.iter().zip(runs).filter_map(point).collect(),
        });
        Plot { title: (*title).to_owned(), kind, x: x.clone(), y: y.clone(), series: series.collect() }
    }
}

/// Draws the kernel and its model in one figure, and the model's error in another.
pub(super) fn both<T>(sides: &[Grid<T>; 2], kind: PlotKind, x: &Axis, shown: &Shown<T>) -> [Plot; 2] {
    let [mut all, model] = sides.each_ref().map(|side| side.plot(kind, x, shown));
    let y = Axis::linear("model_over_kernel", "ratio", "");
    let title = format!("{}: model over kernel", shown.title);
    let mut ratio = Plot { title, y, series: Vec::new(), ..all.clone() };
    let kernel = std::mem::take(&mut all.series);
    for (kernel, model) in kernel.into_iter().zip(model.series) {
        let off_by = |model: &Point| {
            let kernel = kernel.points.iter().find(|point| point.x == model.x)?;
            let point = Point::new(model.x.clone(), model.y / kernel.y);
            point.y.is_finite().then_some(point)
        };
        ratio.series.push(Series {
            name: kernel.name.clone(),
            points: model.points.iter().filter_map(off_by).collect(),
        });
        for (side, Series { name, points }) in [("kernel", kernel), ("model", model)] {
            all.series.push(Series { name: format!("{name}, {side}"), points });
        }
    }
    [all.without_empty(), ratio.without_empty()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(ys: [&[f64]; 2]) -> Grid<f64> {
        Grid::new(["off", "lazy"], [10.0, 20.0], |series, place| {
            ys[series].get(place).copied().into_iter().collect()
        })
    }

    fn ys(plot: &Plot) -> Vec<(&str, Vec<f64>)> {
        plot.series.iter().map(|s| (s.name.as_str(), s.points.iter().map(|p| p.y).collect())).collect()
    }

    #[test]
    fn medians_are_named_after_their_series_as_far_as_it_was_run() {
        let (mut figures, grid) = (Figures::default(), grid([&[1.0, 2.0], &[3.0]]));
        grid.name(&mut figures, "model.", |y| 2.0 * y);
        assert_eq!(format!("{figures:?}"), r#"Figures({"model.lazy": [6.0], "model.off": [2.0, 4.0]})"#);
        let named = format!("{:?}", grid.named(|y| *y));
        assert!(named.contains(r#""lazy.10": [3.0]"#) && !named.contains("lazy.20"), "{named}");
        assert_eq!(grid.median("lazy", &20.0.into(), |y| *y), None);
        assert_eq!((grid.median("commit", &10.0.into(), |y| *y), grid.reps()), (None, 1));
    }

    #[test]
    fn a_figure_has_both_sides_and_their_ratio() {
        let sides = [grid([&[2.0, 0.0], &[0.0, 0.0]]), grid([&[3.0, 0.0], &[0.0, 0.0]])];
        let (x, y) = (Axis::linear("x", "x", ""), Axis::log("y", "y", "s"));
        let plots = both(&sides, PlotKind::Lines, &x, &Shown { title: "t", y, of: |y| *y });
        assert_eq!(ys(&plots[0]), [("off, kernel", vec![2.0]), ("off, model", vec![3.0])]);
        assert_eq!((ys(&plots[1]), &*plots[1].title), (vec![("off", vec![1.5])], "t: model over kernel"));
        let shown = Shown { title: "t", y: Axis::linear("y", "y", "s"), of: |y: &f64| *y };
        assert_eq!(
            ys(&sides[0].plot(PlotKind::Bars, &x, &shown)),
            [("off", vec![2.0, 0.0]), ("lazy", vec![0.0, 0.0])]
        );
        assert_eq!(ys(&both(&sides, PlotKind::Bars, &x, &shown)[1]), [("off", vec![1.5])]);
    }
}
