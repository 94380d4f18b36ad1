//! The figures that are shown to people and programs: one entry each.
//!
//! An entry says how a figure is read, how several runs become one, how it is written, and where it is shown. Tables,
//! reports, JSON, data sets and the Python package are made from the entries: a new figure is one entry in [`FIGURES`].

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::days::DaysFigures;
use super::result::{Cell, DeviceFigures, ThinFigures};
use super::summary::PolicySummary;
use crate::numbers::{MINUS, NONE, nanoseconds, percent, significant, thousands, time, units_as_bytes};
use crate::policy::Ledger;
use crate::units::UNIT_BYTES;
use crate::workload::limited::DeletionFigures;

/// A figure of a policy on a device.
#[derive(Debug)]
pub struct Figure {
    /// Key in JSON and in data sets. Its unit, if any, is at the end or before `_mean`, `_max`, `_end`, `_saved`.
    pub key: &'static str,
    pub meaning: &'static str,
    pub kind: Kind,
    /// Some(true) if less is better, Some(false) if more is; `None` if neither.
    pub less_is_better: Option<bool>,
    read: Read,
    shown: &'static [(View, &'static str)],
}

#[derive(Debug)]
enum Read {
    Median(fn(&Cell) -> Option<f64>),
    /// Computed from the medians of other figures, or from a comparison with another policy.
    Policy(fn(&PolicySummary) -> Option<f64>),
}

/// The kind of a figure, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Count,
    /// A number with two digits, such as a write amplification.
    Ratio,
    /// Mapping units, written as bytes.
    Units,
    /// Nanoseconds.
    Nanoseconds,
    /// Seconds. A time of zero is written as no figure.
    SecondsIfAny,
    Rate,
    Percent,
    /// Units saved compared with `off`, written as bytes with their sign.
    UnitsSaved,
    /// Seconds saved compared with `off`, with their sign.
    SecondsSaved,
}

impl Kind {
    /// Writes a figure.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count => thousands(value),
            Self::Ratio => format!("{value:.2}"),
            Self::Units => units_as_bytes(value),
            Self::Nanoseconds => nanoseconds(value),
            Self::SecondsIfAny if value <= 0.0 => NONE.to_owned(),
            Self::SecondsIfAny => time(value),
            Self::Rate => significant(value),
            Self::Percent => percent(value),
            Self::UnitsSaved => signed(value, units_as_bytes),
            Self::SecondsSaved => signed(value, time),
        }
    }

    /// Returns true if values are whole numbers in each run.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Count | Self::Units | Self::Nanoseconds)
    }

    fn is_saving(self) -> bool {
        matches!(self, Self::UnitsSaved | Self::SecondsSaved)
    }
}

fn signed(value: f64, text: fn(f64) -> String) -> String {
    let sign = if value < 0.0 { MINUS } else { "+" };
    if value == 0.0 { text(0.0) } else { format!("{sign}{}", text(value.abs())) }
}

/// A place where figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The table of `compare`.
    Table,
    /// The table of `compare`, if no row has the previous figure there.
    TableElse,
    /// The page of `compare`, besides the columns of the table.
    Page,
    /// The table of the fate of freed space.
    Ledger,
    /// The table of a run over days.
    Days,
    /// The table of thin storage.
    Thin,
    /// The table of what removed files wait for, under a limit on deletions.
    Deletions,
    /// The report of two runs: the figure of each.
    Pair,
    /// The report of two runs: how much larger the second run's figure is.
    PairChange,
    /// The report of a sweep.
    Sweep,
    /// The report of two sweeps: how much larger the second sweep's figure is.
    SweepChange,
    /// The rows of a summary as JSON.
    Summary,
    /// The ledger in a row of a summary.
    SummaryLedger,
    /// A column of a sweep's data set, besides those that a cell has as its own.
    Column,
}

impl View {
    /// Returns the figures shown in this view with their headings, in order.
    pub fn figures(self) -> impl Iterator<Item = (&'static Figure, &'static str)> {
        FIGURES.iter().filter_map(move |figure| Some((*figure, figure.heading(self)?)))
    }

    /// Returns true if a policy has what this view shows.
    pub fn covers(self, p: &PolicySummary) -> bool {
        match self {
            Self::Ledger | Self::SummaryLedger => p.runs.iter().all(|run| run.ledger.is_some()),
            Self::Days => p.runs.iter().all(|run| run.days.is_some()),
            Self::Thin => p.runs.iter().all(|run| thin(run, |_| 0.0).is_some()),
            Self::Deletions => p.runs.iter().all(|run| run.deletions.is_some()),
            _ => true,
        }
    }
}

impl Figure {
    const fn new(
        key: &'static str,
        kind: Kind,
        read: Read,
        shown: &'static [(View, &'static str)],
        meaning: &'static str,
    ) -> Self {
        let mut i = 0;
        while i < shown.len() {
            let is_column = matches!(shown[i].0, View::Column);
            assert!(!is_column || matches!(read, Read::Median(_)), "a row of a data set is one run");
            i += 1;
        }
        Self { key, meaning, kind, less_is_better: None, read, shown }
    }

    const fn less_is_better(self) -> Self {
        Self { less_is_better: Some(true), ..self }
    }

    const fn more_is_better(self) -> Self {
        Self { less_is_better: Some(false), ..self }
    }

    /// Returns the heading in a view; `None` if the figure is not shown there.
    pub fn heading(&self, view: View) -> Option<&'static str> {
        self.shown.iter().find(|(shown, _)| *shown == view).map(|(_, heading)| *heading)
    }

    /// Returns true if each run has the figure of its own, and false if it takes all runs of a policy or several
    /// policies.
    pub fn is_of_each_run(&self) -> bool {
        matches!(self.read, Read::Median(_))
    }

    /// Returns the figure of one run; `None` if the run does not have it, or if it takes several policies.
    pub fn of_cell(&self, cell: &Cell) -> Option<f64> {
        match self.read {
            Read::Median(read) => read(cell),
            Read::Policy(_) => None,
        }
    }

    /// Returns the figure of a policy; `None` if a repetition lacks it.
    pub fn of(&self, p: &PolicySummary) -> Option<f64> {
        match self.read {
            Read::Median(read) => p.known_median_of(read),
            Read::Policy(read) => read(p),
        }
    }

    /// Writes the figure of a policy. A saving is blank for the policy with which it is compared.
    pub fn text(&self, p: &PolicySummary) -> String {
        if self.kind.is_saving() && *p.policy == crate::policy::PolicyId::OFF {
            return String::new();
        }
        self.text_of(self.of(p))
    }

    pub fn text_of(&self, value: Option<f64>) -> String {
        value.map_or(NONE.to_owned(), |value| self.kind.text(value))
    }
}

fn device(cell: &Cell, figure: fn(&DeviceFigures) -> Option<f64>) -> Option<f64> {
    figure(cell.device_stats.as_ref()?)
}

/// Returns a figure of thin storage, in units.
fn thin(cell: &Cell, bytes: fn(&ThinFigures) -> f64) -> Option<f64> {
    let figures = cell.device_stats.as_ref()?.thin.as_ref()?;
    Some(bytes(figures) / UNIT_BYTES as f64)
}

/// Returns a figure of removed files, in units.
fn removed(cell: &Cell, bytes: fn(&DeletionFigures) -> u64) -> Option<f64> {
    Some(bytes(cell.deletions.as_ref()?) as f64 / UNIT_BYTES as f64)
}

fn ledger(cell: &Cell, figure: fn(&Ledger) -> u64) -> Option<f64> {
    cell.ledger.as_ref().map(|ledger| figure(&ledger.units) as f64)
}

/// Returns a figure of the daemon or of sweeps over days; `None` if they did nothing.
fn over_days(p: &PolicySummary, figure: fn(&DaysFigures) -> u64) -> Option<f64> {
    let median = |figure: fn(&DaysFigures) -> u64| {
        p.known_median_of(|cell| cell.days.as_ref().map(|days| figure(days) as f64))
    };
    let sweeps = median(|days| days.sweeps + days.slices)?;
    if sweeps > 0.0 { median(figure) } else { None }
}

use Kind::{Count, Nanoseconds, Percent, Rate, Ratio, SecondsIfAny, SecondsSaved, Units, UnitsSaved};
use Read::{Median, Policy};

pub const WRITE_AMPLIFICATION: Figure = Figure::new(
    "write_amplification",
    Ratio,
    Median(|c| device(c, |d| Some(d.write_amplification))),
    &[
        (View::Table, "WA"),
        (View::Pair, "WA"),
        (View::Sweep, "WA"),
        (View::SweepChange, "WA"),
        (View::Summary, ""),
    ],
    "Units written to flash per unit written by the host.",
)
.less_is_better();

/// All figures, in the order in which views show them.
pub static FIGURES: &[&Figure] = &[
    &Figure::new(
        "transactions_per_s",
        Rate,
        // Over days the rate is given, not found.
        Median(|c| c.workload.postmark().filter(|_| c.days.is_none()).map(|postmark| postmark.transactions_per_s)),
        &[(View::Table, "trans./s"), (View::Summary, "")],
        "PostMark's transactions per second; null for other workloads, and over days.",
    )
    .more_is_better(),
    &Figure::new(
        "trims_done_s",
        SecondsIfAny,
        Median(|c| c.workload.removal_trims().map(|trims| trims.acknowledged_ns as f64 / 1e9)),
        &[(View::TableElse, "TRIMs done")],
        "From the end of the commit until the last TRIM of the removed file was acknowledged.",
    )
    .less_is_better(),
    &Figure::new(
        "write_p99_ns",
        Nanoseconds,
        Median(|c| c.workload.replay().and(c.latency.get("write")).map(|write| write.p99_ns as f64)),
        &[(View::TableElse, "write p99")],
        "The latency that 1 % of a trace's writes exceed.",
    )
    .less_is_better(),
    &WRITE_AMPLIFICATION,
    &Figure::new(
        "erases",
        Count,
        Median(|c| device(c, |d| Some(d.erases as f64))),
        &[(View::Table, "erases"), (View::PairChange, "erases"), (View::Sweep, "erases"), (View::Summary, "")],
        "Blocks of flash erased.",
    )
    .less_is_better(),
    &Figure::new(
        "trim_commands",
        Count,
        Median(|c| device(c, |d| Some(d.trim_commands as f64))),
        &[(View::Table, "TRIMs"), (View::Sweep, "TRIMs"), (View::Summary, "")],
        "TRIM commands that the device received.",
    ),
    &Figure::new(
        "stale_units_mean",
        Units,
        Median(|c| device(c, |d| d.stale_units_mean)),
        &[(View::Days, "stale mean")],
        "Time-weighted mean of the units that are free in the file system and valid in the device.",
    )
    .less_is_better(),
    &Figure::new(
        "stale_units_max",
        Units,
        Median(|c| device(c, |d| d.stale_units_max.map(|units| units as f64))),
        &[(View::Table, "stale max"), (View::Days, "max"), (View::Summary, "")],
        "Maximum number of stale units; null where only those at the end are known.",
    )
    .less_is_better(),
    &Figure::new(
        "stale_units_end",
        Units,
        Median(|c| device(c, |d| d.stale_units_end.map(|units| units as f64))),
        &[(View::TableElse, "stale end"), (View::Days, "at the end"), (View::Summary, "")],
        "Stale units at the end of the workload.",
    )
    .less_is_better(),
    &Figure::new(
        "delayed_units",
        Units,
        Median(|c| removed(c, |removed| removed.delayed_bytes)),
        &[(View::Deletions, "delayed")],
        "Removed files that had to wait.",
    ),
    &Figure::new(
        "deleted_at_once_units",
        Units,
        Median(|c| removed(c, |removed| removed.at_once_bytes)),
        &[(View::Deletions, "at once")],
        "Removed files that went at once, since too much waited.",
    ),
    &Figure::new(
        "waiting_units_max",
        Units,
        Median(|c| removed(c, |removed| removed.waiting_bytes_max)),
        &[(View::Deletions, "waiting: max")],
        "The most that removed files took up while they waited.",
    )
    .less_is_better(),
    &Figure::new(
        "waiting_units_end",
        Units,
        Median(|c| removed(c, |removed| removed.waiting_bytes_end)),
        &[(View::Deletions, "at the end")],
        "What removed files still took up when the workload ended.",
    )
    .less_is_better(),
    &Figure::new(
        "deletion_longest_ns",
        Nanoseconds,
        Median(|c| c.deletions.map(|removed| removed.longest_ns as f64)),
        &[(View::Deletions, "longest")],
        "The longest time from the removal of a file until all of it was gone.",
    )
    .less_is_better(),
    &Figure::new(
        "thin_used_units_end",
        Units,
        Median(|c| thin(c, |thin| thin.used_bytes_end as f64)),
        &[(View::Thin, "used")],
        "What the file system uses at the end.",
    ),
    &Figure::new(
        "thin_held_units_end",
        Units,
        Median(|c| thin(c, |thin| thin.held_bytes_end as f64)),
        &[(View::Thin, "held")],
        "What thin storage holds at the end.",
    )
    .less_is_better(),
    &Figure::new(
        "thin_excess_units_mean",
        Units,
        Median(|c| thin(c, |thin| thin.excess_bytes_mean)),
        &[(View::Thin, "beyond: mean")],
        "Time-weighted mean of what thin storage holds beyond what is used.",
    )
    .less_is_better(),
    &Figure::new(
        "thin_excess_units_max",
        Units,
        Median(|c| thin(c, |thin| thin.excess_bytes_max as f64)),
        &[(View::Thin, "max")],
        "Maximum of what thin storage holds beyond what is used.",
    )
    .less_is_better(),
    &Figure::new(
        "thin_excess_units_end",
        Units,
        Median(|c| thin(c, |thin| thin.excess_bytes_end as f64)),
        &[(View::Thin, "at the end")],
        "What thin storage holds beyond what is used at the end.",
    )
    .less_is_better(),
    &Figure::new(
        "gc_busy_ns",
        Nanoseconds,
        Median(|c| {
            device(c, |d| {
                let busy = |cause| d.busy_ns.get(cause).map(|ns| *ns as f64);
                Some(busy("read_gc")? + busy("program_gc")?)
            })
        }),
        &[
            (View::Page, "GC time"),
            (View::PairChange, "GC time"),
            (View::Sweep, "GC time"),
            (View::SweepChange, "GC time"),
            (View::Summary, ""),
            (View::Column, ""),
        ],
        "Device time that garbage collection took to read and program what it copied, summed over dies.",
    )
    .less_is_better(),
    &Figure::new(
        "sweeps",
        Count,
        Policy(|p| over_days(p, |days| days.sweeps + days.slices)),
        &[(View::Days, "sweeps")],
        "Sweeps of `batch`, or slices of trimwised.",
    ),
    &Figure::new(
        "fitrim_max_ns",
        Nanoseconds,
        Policy(|p| over_days(p, |days| days.fitrim_max_ns)),
        &[(View::Days, "longest")],
        "The longest sweep of `batch`, or slice of trimwised.",
    )
    .less_is_better(),
    &Figure::new(
        "fitrim_units",
        Units,
        Policy(|p| over_days(p, |days| days.fitrim_units)),
        &[(View::Days, "sent")],
        "Units in the commands of sweeps or slices.",
    ),
    &Figure::new(
        "freed_units",
        Units,
        Median(|c| ledger(c, |units| units.freed)),
        &[(View::Ledger, "freed"), (View::SummaryLedger, "")],
        "Units freed during the workload.",
    ),
    &Figure::new(
        "issued_units",
        Units,
        Median(|c| ledger(c, |units| units.issued)),
        &[(View::Ledger, "trimmed"), (View::SummaryLedger, "")],
        "Units issued to the device in TRIM commands, or revealed to it.",
    ),
    &Figure::new(
        "reused_units",
        Units,
        Median(|c| ledger(c, |units| units.reused)),
        &[(View::Ledger, "reused"), (View::SummaryLedger, "")],
        "Units that an allocation took before they were issued.",
    ),
    &Figure::new(
        "dropped_units",
        Units,
        Median(|c| ledger(c, |units| units.dropped)),
        &[(View::Ledger, "dropped"), (View::SummaryLedger, "")],
        "Units that were never trimmed.",
    ),
    &Figure::new(
        "waiting_units",
        Units,
        Policy(|p| {
            let median = |of: fn(&Ledger) -> u64| p.known_median_of(|c| ledger(c, of));
            Some(median(|units| units.pending)? + median(|units| units.in_tokens)?)
        }),
        &[(View::Ledger, "pending")],
        "Units waiting at the end, or in TRIM commands then.",
    ),
    &Figure::new(
        "pending_units",
        Units,
        Median(|c| ledger(c, |units| units.pending)),
        &[(View::SummaryLedger, "")],
        "Units waiting at the end.",
    ),
    &Figure::new(
        "in_flight_units",
        Units,
        Median(|c| ledger(c, |units| units.in_tokens)),
        &[(View::SummaryLedger, "")],
        "Units in TRIM commands at the end.",
    ),
    &Figure::new(
        "trim_busy_ns",
        Nanoseconds,
        Median(|c| c.ledger.as_ref().map(|ledger| ledger.trim_busy_ns as f64)),
        &[(View::SummaryLedger, "")],
        "Device time spent on TRIM.",
    )
    .less_is_better(),
    &Figure::new(
        "trim_busy_percent",
        Percent,
        Median(|c| c.ledger.as_ref().map(|ledger| ledger.trim_busy_percent)),
        &[(View::Ledger, "TRIM time"), (View::SummaryLedger, "")],
        "Share of the elapsed time in which the device was busy with TRIM.",
    )
    .less_is_better(),
    &Figure::new(
        "gc_units_saved",
        UnitsSaved,
        Policy(|p| p.saved.map(|saved| saved.gc_units)),
        &[(View::Ledger, "GC saved"), (View::SummaryLedger, "")],
        "How many units fewer garbage collection copied than under `off`: difference of the medians; null if `off` did \
         not run.",
    )
    .more_is_better(),
    &Figure::new(
        "time_saved_s",
        SecondsSaved,
        Policy(|p| p.saved.map(|saved| saved.time_s)),
        &[(View::Ledger, "time saved"), (View::SummaryLedger, "")],
        "Time saved compared with `off`: difference of the medians; null if `off` did not run.",
    )
    .more_is_better(),
];

/// Values of some figures, by their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Vec<(&'static str, Option<f64>)>);

impl Values {
    /// Returns the figures of a policy in a view.
    pub fn of(view: View, p: &PolicySummary) -> Self {
        Self(view.figures().map(|(figure, _)| (figure.key, figure.of(p))).collect())
    }

    /// Returns the value of a figure; `None` if it is unknown or not among these.
    pub fn get(&self, figure: &Figure) -> Option<f64> {
        self.0.iter().find(|(key, _)| *key == figure.key).and_then(|(_, value)| *value)
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Values {
    /// Reads the known keys, and ignores others.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("figures by their keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
                let mut values = Values::default();
                while let Some(key) = map.next_key::<String>()? {
                    match FIGURES.iter().find(|figure| figure.key == key) {
                        Some(figure) => values.0.push((figure.key, map.next_value()?)),
                        None => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(values)
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::ledger::CellLedger;
    use crate::compare::result::{AppendFigures, RemovalTrims, WorkloadFigures};
    use crate::compare::summary::Summary;
    use crate::compare::verdict::tests::cell;
    use crate::trace::{PaceKind, ReplayFigures};
    use crate::workload::latency::LatencySummary;

    fn named(key: &str) -> &'static Figure {
        FIGURES.iter().find(|figure| figure.key == key).expect(key)
    }

    #[test]
    fn keys_are_unique_and_end_in_their_unit() {
        for (i, figure) in FIGURES.iter().enumerate() {
            assert!(FIGURES[..i].iter().all(|other| other.key != figure.key), "{}", figure.key);
            let unit = match figure.kind {
                Units | UnitsSaved => Some("_units"),
                Nanoseconds => Some("_ns"),
                SecondsIfAny | SecondsSaved => Some("_s"),
                Rate => Some("_per_s"),
                Percent => Some("_percent"),
                Count | Ratio => None,
            };
            let of_several = ["_mean", "_max", "_end", "_saved"];
            let stem = of_several.iter().find_map(|end| figure.key.strip_suffix(end)).unwrap_or(figure.key);
            let ends = |unit: &&str| stem.ends_with(*unit);
            let found = ["_units", "_ns", "_per_s", "_s", "_percent"].into_iter().find(ends);
            assert_eq!(found, unit, "{}", figure.key);
            assert!(figure.meaning.ends_with('.') && !figure.shown.is_empty(), "{}", figure.key);
        }
    }

    /// Each number of the run is another one, so that none can stand in for another.
    #[test]
    fn each_view_shows_its_figures_of_a_run() {
        let mut run = cell("d", "trimwised", 0, 1.0, 1);
        let device = run.device_stats.as_mut().unwrap();
        (device.write_amplification, device.erases, device.trim_commands) = (1.5, 2, 3);
        device.stale_units_mean = Some(4.5);
        (device.stale_units_max, device.stale_units_end, device.gc_units_copied) = (Some(5), Some(6), 7);
        let causes = ["read_gc", "program_gc", "read_host", "program_host", "erase", "trim"];
        let bytes = |units: u64| units * UNIT_BYTES;
        device.thin = Some(ThinFigures {
            chunk_bytes: 40,
            used_bytes_end: bytes(41),
            held_bytes_mean: 46.0,
            held_bytes_max: 47,
            held_bytes_end: bytes(42),
            excess_bytes_mean: 43.5 * UNIT_BYTES as f64,
            excess_bytes_max: bytes(44),
            excess_bytes_end: bytes(45),
        });
        device.busy_ns = causes.into_iter().zip(10..).map(|(cause, ns)| (cause.into(), 1 << ns)).collect();
        let units = Ledger { freed: 21, issued: 22, reused: 23, dropped: 24, pending: 25, in_tokens: 26 };
        let ledger = CellLedger { units, trim_busy_ns: 27, trim_busy_percent: 28.0, ..CellLedger::default() };
        run.ledger = Some(ledger);
        run.days = Some(DaysFigures {
            elapsed_ns: 31,
            operations: 32,
            late_operations: 33,
            late_max_ns: 34,
            sweeps: 35,
            fitrim_max_ns: 36,
            slices: 37,
            maps: 38,
            fitrim_units: 39,
        });
        run.deletions = Some(DeletionFigures {
            delayed_bytes: 101 * UNIT_BYTES,
            at_once_bytes: 102 * UNIT_BYTES,
            waiting_bytes_max: 103 * UNIT_BYTES,
            waiting_bytes_end: 104 * UNIT_BYTES,
            longest_ns: 105,
        });
        let mut off = cell("d", "off", 0, 3.0, 1);
        off.device_stats.as_mut().unwrap().gc_units_copied = 100;
        let cells = [off, run];
        let summary = Summary::of(&cells);
        let p = &summary.devices[0].policies[1];
        let shown = |view: View| -> Vec<String> {
            let value = |figure: &Figure| figure.of(p).map_or(NONE.to_owned(), |value| value.to_string());
            view.figures().map(|(figure, heading)| format!("{heading}: {}", value(figure))).collect()
        };
        for (view, expected) in [
            (View::Table, "trans./s: -, WA: 1.5, erases: 2, TRIMs: 3, stale max: 5"),
            (View::TableElse, "TRIMs done: -, write p99: -, stale end: 6"),
            (View::Page, "GC time: 3072"),
            (
                View::Ledger,
                "freed: 21, trimmed: 22, reused: 23, dropped: 24, pending: 51, TRIM time: 28, GC saved: 93, \
                 time saved: 2",
            ),
            (View::Thin, "used: 41, held: 42, beyond: mean: 43.5, max: 44, at the end: 45"),
            (View::Deletions, "delayed: 101, at once: 102, waiting: max: 103, at the end: 104, longest: 105"),
            (View::Days, "stale mean: 4.5, max: 5, at the end: 6, sweeps: 72, longest: 36, sent: 39"),
            (View::Pair, "WA: 1.5"),
            (View::PairChange, "erases: 2, GC time: 3072"),
            (View::Sweep, "WA: 1.5, erases: 2, TRIMs: 3, GC time: 3072"),
            (View::SweepChange, "WA: 1.5, GC time: 3072"),
        ] {
            assert_eq!(shown(view).join(", "), expected, "{view:?}");
        }
        for (view, expected) in [
            (
                View::Summary,
                r#"{"transactions_per_s":null,"write_amplification":1.5,"erases":2.0,"trim_commands":3.0,"stale_units_max":5.0,"stale_units_end":6.0,"gc_busy_ns":3072.0}"#,
            ),
            (
                View::SummaryLedger,
                r#"{"freed_units":21.0,"issued_units":22.0,"reused_units":23.0,"dropped_units":24.0,"pending_units":25.0,"in_flight_units":26.0,"trim_busy_ns":27.0,"trim_busy_percent":28.0,"gc_units_saved":93.0,"time_saved_s":2.0}"#,
            ),
            (View::Column, r#"{"gc_busy_ns":3072.0}"#),
        ] {
            assert_eq!(serde_json::to_string(&Values::of(view, p)).unwrap(), expected, "{view:?}");
        }
    }

    #[test]
    fn a_figure_of_one_kind_of_workload_is_of_no_other() {
        let figures = |workload: Option<WorkloadFigures>, days: Option<DaysFigures>| {
            let mut run = cell("d", "off", 0, 1.0, 1);
            match (workload, &mut run.workload) {
                (Some(workload), own) => *own = workload,
                (None, WorkloadFigures::Postmark(own)) => own.transactions_per_s = 7.0,
                _ => {}
            }
            let write = LatencySummary { count: 1, p50_ns: 2, p99_ns: 3, p999_ns: 4, max_ns: 5 };
            run.latency.insert("write".into(), write);
            run.days = days;
            [named("transactions_per_s"), named("trims_done_s"), named("write_p99_ns")]
                .map(|figure| figure.of_cell(&run))
        };
        let (append_bytes, file_bytes, pieces, unlink_ns, fsync_ns) = (1, 2, 3, 4, 5);
        let trims = Some(RemovalTrims { commands: 6, acknowledged_ns: 500_000_000 });
        let append = AppendFigures { append_bytes, file_bytes, pieces, unlink_ns, fsync_ns, trims };
        let replay = WorkloadFigures::Replay(ReplayFigures::new(PaceKind::Closed));
        assert_eq!(figures(None, None), [Some(7.0), None, None]);
        assert_eq!(figures(None, Some(DaysFigures::default())), [None; 3], "over days the rate is given");
        assert_eq!(figures(Some(WorkloadFigures::Append(append)), None), [None, Some(0.5), None]);
        assert_eq!(figures(Some(replay), None), [None, None, Some(3.0)]);
    }

    /// Nothing was sent, so nothing was the longest.
    #[test]
    fn no_sweeps_and_no_slices_have_no_figures_over_days() {
        let of = |sweeps, slices| {
            let days =
                DaysFigures { sweeps, slices, fitrim_max_ns: 4, fitrim_units: 5, ..DaysFigures::default() };
            let cells = [Cell { days: Some(days), ..cell("d", "trimwised", 0, 1.0, 1) }];
            let summary = Summary::of(&cells);
            [named("sweeps"), named("fitrim_max_ns"), named("fitrim_units")]
                .map(|figure| figure.of(&summary.devices[0].policies[0]))
        };
        assert_eq!(of(0, 0), [None; 3]);
        assert_eq!(of(2, 0), [Some(2.0), Some(4.0), Some(5.0)]);
        assert_eq!(of(0, 3), [Some(3.0), Some(4.0), Some(5.0)]);
    }

    #[test]
    fn savings_have_a_sign_and_no_trims_take_no_time() {
        assert_eq!(SecondsSaved.text(-0.0123), "\u{2212}12.30 ms");
        assert_eq!(UnitsSaved.text(256.0), "+1 MiB");
        assert_eq!(SecondsSaved.text(0.0), "0 s");
        assert_eq!(SecondsIfAny.text(0.0), NONE);
    }

    #[test]
    fn values_are_read_as_they_are_written_and_other_keys_are_passed_over() {
        let values = Values(vec![("erases", Some(3.0)), ("stale_units_max", None)]);
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(text, r#"{"erases":3.0,"stale_units_max":null}"#);
        assert_eq!(serde_json::from_str::<Values>(&text).unwrap(), values);
        let more: Values = serde_json::from_str(r#"{"device":{"a":[1]},"erases":3.0}"#).unwrap();
        assert_eq!((more.get(named("erases")), more.get(named("gc_busy_ns"))), (Some(3.0), None));
    }
}
