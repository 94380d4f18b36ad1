//! A plot of a repeated experiment: series of points over an axis.
//!
//! It holds the data for a table, a program or a chart, but nothing about their appearance.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trimwise::compare::statistics;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Key for programs, with the unit: `execution_time_s`.
    pub key: Cow<'static, str>,
    pub label: Cow<'static, str>,
    /// Empty for counts and names.
    pub unit: Cow<'static, str>,
    /// A logarithmic axis cannot show zero or negative values.
    pub log: bool,
}

impl Axis {
    pub const fn linear(key: &'static str, label: &'static str, unit: &'static str) -> Self {
        Self::of(key, label, unit, false)
    }

    pub const fn log(key: &'static str, label: &'static str, unit: &'static str) -> Self {
        Self::of(key, label, unit, true)
    }

    const fn of(key: &'static str, label: &'static str, unit: &'static str, log: bool) -> Self {
        Self { key: Cow::Borrowed(key), label: Cow::Borrowed(label), unit: Cow::Borrowed(unit), log }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotKind {
    /// Lines over a number; both axes may be logarithmic.
    Lines,
    /// A bar from zero for each series of each category.
    Bars,
    /// One bar for each category. Its parts are the series, which add up.
    StackedBars,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    At(f64),
    In(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "{at}"),
            Self::In(name) => f.write_str(name),
        }
    }
}

impl From<f64> for Place {
    fn from(at: f64) -> Self {
        Self::At(at)
    }
}

impl From<String> for Place {
    fn from(name: String) -> Self {
        Self::In(name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub x: Place,
    /// Median of the repetitions, in the y axis's unit.
    pub y: f64,
    /// Minimum and maximum of the repetitions, if they differ.
    pub range: Option<(f64, f64)>,
}

impl Point {
    pub fn new(x: impl Into<Place>, y: f64) -> Self {
        Self { x: x.into(), y, range: None }
    }

    /// Makes a point from repeated runs; `None` if there are none.
    pub fn of_runs(x: impl Into<Place>, runs: &[f64]) -> Option<Self> {
        let y = statistics::median(runs)?;
        let low = runs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { x: x.into(), y, range: (low < high).then_some((low, high)) })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    /// In the order of the x axis.
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    pub title: String,
    pub kind: PlotKind,
    /// Settings or categories.
    pub x: Axis,
    pub y: Axis,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

impl Plot {
    /// Returns each place on the x axis once, in the order of the first series that has it.
    pub fn places(&self) -> Vec<&Place> {
        let mut places: Vec<&Place> = Vec::new();
        for point in self.series.iter().flat_map(|s| &s.points) {
            if !places.contains(&&point.x) {
                places.push(&point.x);
            }
        }
        if self.kind == PlotKind::Lines {
            places.sort_by(|a, b| match (a, b) {
                (Place::At(a), Place::At(b)) => a.total_cmp(b),
                _ => std::cmp::Ordering::Equal,
            });
        }
        places
    }

    pub fn at(&self, series: &str, place: &Place) -> Option<&Point> {
        self.series.iter().find(|s| s.name == series)?.points.iter().find(|p| p.x == *place)
    }

    /// Plots `figure` of each point and of one series' point at the same place, such as the difference from a bound or
    /// a baseline. That series is left out. Returns `None` if it does not exist.
    pub fn against(
        &self,
        series: &str,
        title: &str,
        y: Axis,
        figure: impl Fn(f64, f64) -> f64,
    ) -> Option<Self> {
        let reference = self.series.iter().find(|s| s.name == series)?;
        let at = |point: &Point| {
            let of = reference.points.iter().find(|p| p.x == point.x)?;
            Some(Point::new(point.x.clone(), figure(point.y, of.y)))
        };
        let others = self
            .series
            .iter()
            .filter(|s| s.name != series)
            .map(|s| Series { name: s.name.clone(), points: s.points.iter().filter_map(at).collect() });
        Some(Self {
            title: title.to_owned(),
            kind: self.kind,
            x: self.x.clone(),
            y,
            series: others.collect(),
        })
    }

    pub fn without_empty(mut self) -> Self {
        self.series.retain(|series| !series.points.is_empty());
        self
    }

    /// Plots `figure` of each point and of its series' point at one place, which is left out.
    pub fn against_place(
        &self,
        place: &Place,
        title: &str,
        y: Axis,
        figure: impl Fn(f64, f64) -> f64,
    ) -> Self {
        let compared = |series: &Series| {
            let reference = series.points.iter().find(|point| point.x == *place);
            let others = series.points.iter().filter(|point| point.x != *place);
            let points = others.filter_map(|of| Some(Point::new(of.x.clone(), figure(of.y, reference?.y))));
            Series { name: series.name.clone(), points: points.collect() }
        };
        let series = self.series.iter().map(compared).collect();
        Self { title: title.to_owned(), kind: self.kind, x: self.x.clone(), y, series }
    }

    /// Plots how much longer each policy takes than `ideal`, in percent, if this plot shows times.
    pub fn distance_to_ideal(&self) -> Option<Self> {
        let y = Axis::linear("vs_ideal_percent", "longer than under ideal", "%");
        self.against("ideal", "Distance to the bound", y, |time, bound| (time / bound - 1.0) * 100.0)
    }
}

impl Serialize for Plot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Keyed<'a> {
            name: &'a str,
            points: Vec<BTreeMap<String, Place>>,
        }
        let keyed = |point: &Point| {
            let mut keyed = BTreeMap::from([
                (self.x.key.to_string(), point.x.clone()),
                (self.y.key.to_string(), Place::At(point.y)),
            ]);
            if let Some((least, most)) = point.range {
                keyed.insert(format!("{}_min", self.y.key), Place::At(least));
                keyed.insert(format!("{}_max", self.y.key), Place::At(most));
            }
            keyed
        };
        let series: Vec<Keyed> = self
            .series
            .iter()
            .map(|s| Keyed { name: &s.name, points: s.points.iter().map(keyed).collect() })
            .collect();
        let mut fields = serializer.serialize_struct("Plot", 5)?;
        fields.serialize_field("title", &self.title)?;
        fields.serialize_field("kind", &self.kind)?;
        fields.serialize_field("x", &self.x)?;
        fields.serialize_field("y", &self.y)?;
        fields.serialize_field("series", &series)?;
        fields.end()
    }
}

/// JSON has null for a value that is not a number.
impl<'de> Deserialize<'de> for Plot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Read {
            title: String,
            kind: PlotKind,
            x: Axis,
            y: Axis,
            series: Vec<Keyed>,
        }
        #[derive(Deserialize)]
        struct Keyed {
            name: String,
            points: Vec<BTreeMap<String, Option<Place>>>,
        }
        let Read { title, kind, x, y, series } = Read::deserialize(deserializer)?;
        let point = |keyed: &BTreeMap<String, Option<Place>>| {
            let number = |key: &str| match keyed.get(key) {
                Some(Some(Place::At(value))) => Some(*value),
                _ => None,
            };
            let at = keyed.get(&*x.key).cloned().flatten();
            let at = at.ok_or_else(|| D::Error::custom(format!("{title}: a point without `{}`", x.key)))?;
            let range = number(&format!("{}_min", y.key)).zip(number(&format!("{}_max", y.key)));
            Ok(Point { x: at, y: number(&y.key).unwrap_or(f64::NAN), range })
        };
        let series = series.into_iter().map(|s| {
            Ok(Series { name: s.name, points: s.points.iter().map(point).collect::<Result<_, _>>()? })
        });
        let series = series.collect::<Result<_, _>>()?;
        Ok(Self { title, kind, x, y, series })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(title: impl Into<String>, header: [&str; N], rows: Vec<[String; N]>) -> Self {
        let rows = rows.into_iter().map(Vec::from).collect();
        Self { title: title.into(), header: header.map(str::to_owned).to_vec(), rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_of_the_same_place_and_not_of_the_bound_itself() {
        let series = |name: &str, ys: &[f64]| Series {
            name: name.to_owned(),
            points: ys.iter().enumerate().map(|(x, &y)| Point::new(x as f64, y)).collect(),
        };
        let plot = Plot {
            title: "time".to_owned(),
            kind: PlotKind::Lines,
            x: Axis::linear("at", "at", ""),
            y: Axis::linear("time_s", "time", "s"),
            series: vec![series("off", &[3.0, 4.0, 5.0]), series("ideal", &[2.0, 4.0])],
        };
        let distance = plot.distance_to_ideal().unwrap();
        assert_eq!(distance.series, [series("off", &[50.0, 0.0])]);
        assert_eq!(plot.against("lazy", "", Axis::linear("x", "x", ""), |a, b| a - b), None);
    }

    #[test]
    fn points_carry_their_units_in_their_keys() {
        let plot = Plot {
            title: "fsync".to_owned(),
            kind: PlotKind::Lines,
            x: Axis::log("append_bytes", "append size", "B"),
            y: Axis::log("fsync_ms", "fsync latency", "ms"),
            series: vec![Series {
                name: "lazy".to_owned(),
                points: [Point::of_runs(64.0, &[2.0, 1.0, 4.0]), Point::of_runs(128.0, &[3.0; 2])]
                    .into_iter()
                    .flatten()
                    .collect(),
            }],
        };
        let json = serde_json::to_value(&plot).unwrap();
        assert_eq!(json["kind"], "lines");
        assert_eq!(json["y"]["log"], true);
        assert_eq!(
            json["series"][0]["points"],
            serde_json::json!([
                {"append_bytes": 64.0, "fsync_ms": 2.0, "fsync_ms_min": 1.0, "fsync_ms_max": 4.0},
                {"append_bytes": 128.0, "fsync_ms": 3.0},
            ])
        );
        assert_eq!(serde_json::from_value::<Plot>(json.clone()).unwrap(), plot, "it is read back");
        let mut without = json;
        without["series"][0]["points"][1] = serde_json::json!({"fsync_ms": 3.0});
        let refused = serde_json::from_value::<Plot>(without).unwrap_err().to_string();
        assert!(refused.contains("fsync: a point without `append_bytes`"), "{refused}");
    }

    #[test]
    fn lines_are_in_the_order_of_their_numbers_and_bars_as_given() {
        let series = |name: &str, xs: &[f64]| Series {
            name: name.to_owned(),
            points: xs.iter().map(|&x| Point::new(x, x)).collect(),
        };
        let mut plot = Plot {
            title: String::new(),
            kind: PlotKind::Lines,
            x: Axis::linear("x", "x", ""),
            y: Axis::linear("y", "y", ""),
            series: vec![series("a", &[3.0, 1.0]), series("b", &[2.0, 1.0])],
        };
        assert_eq!(plot.places(), [&Place::At(1.0), &Place::At(2.0), &Place::At(3.0)]);
        plot.kind = PlotKind::Bars;
        assert_eq!(plot.places(), [&Place::At(3.0), &Place::At(1.0), &Place::At(2.0)]);
        assert_eq!(plot.at("b", &Place::At(3.0)), None);
        assert!(Point::of_runs(1.0, &[]).is_none());
    }
}
