//! The figures that are told to people and programs, as data.

use serde::Serialize;
use trimwise::compare::figure::{FIGURES, Figure, Kind, View};

/// All figures; the order of the keys is part of the format.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The version of trimwise.
    pub trimwise: &'static str,
    /// Each figure.
    pub figures: Vec<About>,
}

/// What a figure is.
#[derive(Debug, Serialize)]
pub struct About {
    /// Its key, with the unit, if it has one, at the end.
    pub key: &'static str,
    /// What it means, in a sentence.
    pub meaning: &'static str,
    /// Its unit; `None` of a number of things and of a ratio.
    pub unit: Option<&'static str>,
    /// Whether less of it is better; `None` if neither is.
    pub less_is_better: Option<bool>,
    /// Whether a row of a summary has it.
    pub in_summary: bool,
    /// Whether the ledger in a row of a summary has it.
    pub in_summary_ledger: bool,
    /// Whether it is a column of a sweep's data set, besides the figures that each run has as its own.
    pub is_column: bool,
}

impl Figures {
    /// Lists them.
    pub fn all() -> Self {
        let about = |figure: &&Figure| {
            let is_in = |view| figure.heading(view).is_some();
            About {
                key: figure.key,
                meaning: figure.meaning,
                unit: unit(figure.kind),
                less_is_better: figure.less_is_better,
                in_summary: is_in(View::Summary),
                in_summary_ledger: is_in(View::SummaryLedger),
                is_column: is_in(View::Column),
            }
        };
        Self { trimwise: trimwise::VERSION, figures: FIGURES.iter().map(about).collect() }
    }
}

const fn unit(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Count | Kind::Ratio => None,
        Kind::Units | Kind::UnitsSaved => Some("4 KiB"),
        Kind::Nanoseconds => Some("ns"),
        Kind::SecondsIfAny | Kind::SecondsSaved => Some("s"),
        Kind::Rate => Some("1/s"),
        Kind::Percent => Some("%"),
    }
}
