//! The figures shown to people and programs, as data.

use serde::Serialize;
use trimwise::compare::figure::{FIGURES, Figure, Kind, View};

#[derive(Debug, Serialize)]
pub struct Figures {
    pub trimwise: &'static str,
    pub figures: Vec<About>,
}

#[derive(Debug, Serialize)]
pub struct About {
    /// Ends in the unit, if the figure has one.
    pub key: &'static str,
    pub meaning: &'static str,
    /// `None` for counts and ratios.
    pub unit: Option<&'static str>,
    /// `None` if neither direction is better.
    pub less_is_better: Option<bool>,
    pub in_summary: bool,
    pub in_summary_ledger: bool,
    /// Whether it is a column of a sweep's data set besides the figures of each run.
    pub is_column: bool,
}

impl Figures {
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
