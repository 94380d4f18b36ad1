//! Figures of results as conditions and changes see them.

use std::borrow::Cow;

use serde::Serialize;
use trimwise::compare::figure::{FIGURES, Figure, Kind, WRITE_AMPLIFICATION};
use trimwise::compare::result::{Cell, Measure, Quantile};
use trimwise::compare::statistics::Sample;
use trimwise::compare::summary::{PolicySummary, Summary};
use trimwise::numbers::{percent, significant, time};
use trimwise::units::{Bytes, UNIT_BYTES};
use trimwise::workload::latency::Operation;

use super::{Measured, Terms};
use crate::bench::verify::{Measured as Stage, Speeds};

/// Unit of a figure's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    #[serde(rename = "s")]
    Seconds,
    Bytes,
    Percent,
    /// A number without a unit, or with the one in the figure's name.
    Number,
}

impl Unit {
    /// Returns a number in this unit; `None` if `unit` is of another kind.
    pub(super) fn scaled(self, number: f64, unit: &str) -> Option<f64> {
        let factor = match (self, unit) {
            (Self::Seconds, "ns") => 1e-9,
            (Self::Seconds, "us" | "\u{b5}s") => 1e-6,
            (Self::Seconds, "ms") => 1e-3,
            (Self::Seconds, "min") => 60.0,
            (Self::Seconds, "h") => 3600.0,
            (Self::Seconds, "s") | (Self::Percent, "%") | (Self::Number, "") => 1.0,
            (Self::Bytes, "B") => 1.0,
            (Self::Bytes, unit) => {
                format!("1{unit}").parse::<Bytes>().ok().filter(|_| !unit.is_empty())?.0 as f64
            }
            _ => return None,
        };
        Some(number * factor)
    }

    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Seconds => "a time, such as 10 ms or 90 s",
            Self::Bytes => "a size, such as 100 MiB",
            Self::Percent => "a percentage, such as 5 %",
            Self::Number => "a number without a unit",
        }
    }

    /// Writes a value for people.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Seconds => time(value),
            Self::Bytes => Bytes(value as u64).to_string(),
            Self::Percent => percent(value),
            Self::Number => significant(value),
        }
    }
}

/// The figure by which policies are judged.
const TIME: &str = "time";

/// Returns a figure's unit, and its value in terms of that.
fn unit_of(kind: Kind) -> (Unit, f64) {
    match kind {
        Kind::Units | Kind::UnitsSaved => (Unit::Bytes, UNIT_BYTES as f64),
        Kind::Nanoseconds => (Unit::Seconds, 1e-9),
        Kind::SecondsIfAny | Kind::SecondsSaved => (Unit::Seconds, 1.0),
        Kind::Percent => (Unit::Percent, 1.0),
        Kind::Count | Kind::Ratio | Kind::Rate => (Unit::Number, 1.0),
    }
}

fn latencies() -> impl Iterator<Item = (Quantile, Operation)> {
    Operation::ALL.into_iter().flat_map(|operation| Quantile::ALL.map(|quantile| (quantile, operation)))
}

impl Terms {
    /// Returns the terms of `compare`, for these policies.
    pub fn of_compare(policies: Vec<String>) -> Self {
        let (own, several): (Vec<&Figure>, Vec<&Figure>) =
            FIGURES.iter().partition(|figure| figure.is_of_each_run());
        let figures = own.into_iter().map(|figure| (figure.key.into(), unit_of(figure.kind).0));
        let latencies = latencies().map(|(quantile, operation)| {
            (Measure::Latency(quantile, operation).to_string().into(), Unit::Seconds)
        });
        Self {
            kind: "policies",
            subjects: policies,
            figures: std::iter::once((TIME.into(), Unit::Seconds)).chain(figures).chain(latencies).collect(),
            of_several_runs: several.into_iter().map(|figure| figure.key).collect(),
            usual: Some(TIME),
        }
    }

    /// Returns the terms of `verify` on a drive.
    pub fn of_verify() -> Self {
        Self {
            kind: "stages",
            subjects: stages().map(str::to_owned).into(),
            figures: SPEEDS.map(|(name, _)| (name.into(), Unit::Number)).into(),
            of_several_runs: Vec::new(),
            usual: None,
        }
    }
}

/// Returns the figures of the cells of `compare`.
pub fn of_cells(cells: &[Cell]) -> Vec<Measured> {
    let summary = Summary::of(cells);
    let policies = summary.devices.iter().flat_map(|d| d.policies.iter().map(move |p| (d.device, p)));
    policies.flat_map(|(device, p)| of_policy(device, p)).collect()
}

fn of_policy(device: &str, p: &PolicySummary<'_>) -> Vec<Measured> {
    let all = |of: &dyn Fn(&Cell) -> Option<f64>| {
        let values: Option<Vec<f64>> = p.runs.iter().map(|run| of(run)).collect();
        Sample::new(values?, p.time_s.is_exact())
    };
    let of = |figure: Cow<'static, str>, unit, sample, is_tracked| Measured {
        place: device.to_owned(),
        subject: p.policy.to_string(),
        figure,
        unit,
        sample,
        is_tracked,
    };
    let mut measured = vec![of(TIME.into(), Unit::Seconds, p.time_s.clone(), true)];
    for figure in FIGURES.iter().filter(|figure| figure.is_of_each_run()) {
        let (unit, factor) = unit_of(figure.kind);
        let sample = all(&|run| Some(figure.of_cell(run)? * factor));
        let is_tracked = figure.key == WRITE_AMPLIFICATION.key;
        measured.extend(sample.map(|sample| of(figure.key.into(), unit, sample, is_tracked)));
    }
    for (quantile, operation) in latencies() {
        let sample = all(&|run| Some(quantile.of(run.latency.get(operation.name())?) as f64 / 1e9));
        let name = Measure::Latency(quantile, operation).to_string();
        measured.extend(sample.map(|sample| of(name.into(), Unit::Seconds, sample, false)));
    }
    measured
}

/// The name of a figure of a stage, and how it is read.
type Speed = (&'static str, fn(&Stage) -> &[f64]);

/// Figures of a stage of `verify`.
const SPEEDS: [Speed; 2] = [
    ("read_mb_per_s", |measured| &measured.reads_mb_per_s),
    ("write_mb_per_s", |measured| &measured.writes_mb_per_s),
];

fn stages() -> [&'static str; 4] {
    Speeds::default().stages().map(|(stage, _)| stage)
}

/// Returns the speeds of a drive that `verify` measured. A model has no noise.
pub fn of_stages(measured: &[Stage], is_model: bool) -> Vec<Measured> {
    let of = |subject: &str, measured: &Stage, (figure, values): Speed| {
        Some(Measured {
            place: String::new(),
            subject: subject.to_owned(),
            figure: figure.into(),
            unit: Unit::Number,
            sample: Sample::new(values(measured).to_vec(), is_model)?,
            is_tracked: true,
        })
    };
    let measured = stages().into_iter().zip(measured);
    measured
        .flat_map(|(stage, speeds)| SPEEDS.into_iter().filter_map(move |figure| of(stage, speeds, figure)))
        .collect()
}
