//! Summary of the rows: medians, the changes that policies make, and how often kernel and model agree.

use trimwise::compare::statistics::median;

use super::{Row, Side};
use crate::experiment::claims::Figures;

/// A change of duration smaller than this counts as none.
pub(crate) const CHANGE_MIN: f64 = 0.03;
/// Changes of kernel and model that differ by at most this are near each other.
pub(crate) const NEAR: f64 = 0.05;

/// A figure of both sides, and the model's permitted error.
pub struct Measure {
    pub id: &'static str,
    pub name: &'static str,
    pub of: fn(&Side) -> f64,
    pub limit: f64,
}

pub fn measures() -> [Measure; 7] {
    let measure = |id, name, of, limit| Measure { id, name, of, limit };
    [
        measure("duration", "duration", |side| side.duration_ns as f64, 0.15),
        measure("data", "data blocks", |side| side.traffic.data_blocks as f64, 0.02),
        measure("journal", "journal blocks", |side| side.traffic.journal_blocks as f64, 0.15),
        measure("wa", "WA", |side| side.write_amplification, 0.10),
        measure("erases", "erases", |side| side.erases as f64, 0.15),
        measure("discards", "discards", |side| side.traffic.discards as f64, 0.15),
        measure("discarded", "discarded bytes", |side| side.traffic.discarded_bytes as f64, 0.15),
    ]
}

impl Measure {
    pub fn median(&self, sides: &[Side]) -> f64 {
        median(&sides.iter().map(self.of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }

    /// Returns the model's relative error; zero if both are zero.
    pub fn error(&self, row: &Row) -> f64 {
        match (self.median(&row.kernel), self.median(&row.model)) {
            (kernel, model) if kernel == model => 0.0,
            (kernel, model) => model / kernel - 1.0,
        }
    }
}

/// Relative change of duration by a policy against `off`, on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    pub median: f64,
    /// Smallest change of a repetition; each is compared with the same repetition of `off`.
    pub least: f64,
    pub most: f64,
}

impl Shift {
    fn of(sides: &[Side], off: &[Side]) -> Self {
        let [duration, ..] = measures();
        let pairs =
            || sides.iter().zip(off).map(|(side, off)| (duration.of)(side) / (duration.of)(off) - 1.0);
        Self {
            median: duration.median(sides) / duration.median(off) - 1.0,
            least: pairs().fold(f64::INFINITY, f64::min),
            most: pairs().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Returns -1, 0 or 1: shorter, neither, or longer. A change counts if it exceeds 3 % and no repetition contradicts
    /// it.
    fn sign(&self) -> i8 {
        match self.median {
            median if median > CHANGE_MIN && self.least > 0.0 => 1,
            median if median < -CHANGE_MIN && self.most < 0.0 => -1,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change<'a> {
    pub row: &'a Row,
    pub kernel: Shift,
    pub model: Shift,
}

impl Change<'_> {
    /// Returns true if both sides say the same about the policy: worse, better, or neither. If one is just above the
    /// limit and the other just below, they agree if they are near.
    pub fn agrees(&self) -> bool {
        let (kernel, model) = (self.kernel.sign(), self.model.sign());
        kernel == model || (kernel * model == 0 && self.is_near())
    }

    pub(crate) fn is_near(&self) -> bool {
        (self.kernel.median - self.model.median).abs() <= NEAR
    }

    /// Returns true if following the model costs more than 3 % on the kernel.
    pub(crate) fn misleads(&self) -> bool {
        self.kernel.sign() * self.model.sign() < 0
    }
}

/// Returns the changes by the policies, for all rows that have an `off`.
pub fn changes(rows: &[Row]) -> Vec<Change<'_>> {
    let off_of = |row: &Row| {
        rows.iter().find(|off| {
            off.policy == "off"
                && (off.linux, off.drive, off.workload, off.utilization)
                    == (row.linux, row.drive, row.workload, row.utilization)
        })
    };
    let of_row = |row| {
        let off = off_of(row).filter(|_| row.policy != "off")?;
        let (kernel, model) = (Shift::of(&row.kernel, &off.kernel), Shift::of(&row.model, &off.model));
        Some(Change { row, kernel, model })
    };
    rows.iter().filter_map(of_row).collect()
}

fn share(count: usize, of: usize) -> impl Iterator<Item = f64> {
    (of > 0).then(|| count as f64 / of as f64).into_iter()
}

/// Returns the figures of the claims: the share of cells within a figure's limit, and the share of changes that agree.
pub fn figures(rows: &[Row]) -> Figures {
    let mut figures = Figures::default();
    for measure in measures() {
        // Cells in which both sides have none say nothing about the model.
        let counted: Vec<&Row> = rows
            .iter()
            .filter(|row| measure.median(&row.kernel) > 0.0 || measure.median(&row.model) > 0.0)
            .collect();
        let within = counted.iter().filter(|row| measure.error(row).abs() <= measure.limit).count();
        figures.set(format!("within.{}", measure.id), share(within, counted.len()));
    }
    let changes = changes(rows);
    let agree = changes.iter().filter(|change| change.agrees()).count();
    let near = changes.iter().filter(|change| change.is_near()).count();
    let misleading = changes.iter().filter(|change| change.misleads()).count();
    for (name, count) in [("agree", agree), ("near", near), ("misleading", misleading)] {
        figures.set(name, share(count, changes.len()));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::super::Traffic;
    use super::*;
    use trimwise::units::Utilization;

    fn row(policy: &'static str, kernel: &[u64], model: &[u64]) -> Row {
        let side = |&duration_ns: &u64| Side {
            duration_ns,
            traffic: Traffic { data_blocks: 100, ..Traffic::default() },
            write_amplification: 1.0,
            ..Side::default()
        };
        Row {
            linux: "6.12",
            drive: "sata-small",
            utilization: Utilization::default(),
            workload: "mid",
            policy,
            kernel: kernel.iter().map(side).collect(),
            model: model.iter().map(side).collect(),
        }
    }

    #[test]
    fn changes_are_of_medians_against_off_of_the_same_cell() {
        let rows = [row("off", &[100, 90, 300], &[200, 210]), row("commit", &[120, 99, 330], &[150, 178])];
        let changes = changes(&rows);
        assert_eq!(changes.len(), 1);
        let Shift { median, least, most } = changes[0].kernel;
        assert!((median - 0.2).abs() < 1e-9 && (least - 0.1).abs() < 1e-9 && (most - 0.2).abs() < 1e-9);
        assert!((changes[0].model.median + 0.2).abs() < 1e-9);
        assert!(!changes[0].agrees() && changes[0].misleads() && !changes[0].is_near());
    }

    #[test]
    fn a_change_that_a_repetition_contradicts_is_none() {
        let rows = [row("off", &[100, 100, 100], &[100]), row("commit", &[120, 120, 99], &[90])];
        let change = changes(&rows)[0];
        assert!(!change.misleads() && !change.agrees());
        let rows = [row("off", &[100, 100, 100], &[100]), row("commit", &[120, 120, 99], &[100])];
        assert!(changes(&rows)[0].agrees());
    }

    #[test]
    fn a_change_within_three_percent_is_none() {
        let says = |kernel: u64, model: u64| {
            let rows = [row("off", &[1000], &[1000]), row("commit", &[kernel], &[model])];
            let change = changes(&rows)[0];
            (change.agrees(), change.is_near(), change.misleads())
        };
        assert_eq!(says(1020, 980), (true, true, false));
        assert_eq!(says(1040, 1020), (true, true, false));
        assert_eq!(says(1100, 1020), (false, false, false));
        assert_eq!(says(1100, 1300), (true, false, false));
        assert_eq!(says(960, 1040), (false, false, true));
    }

    #[test]
    fn what_neither_side_has_is_not_counted() {
        let figures = figures(&[row("off", &[100], &[110]), row("commit", &[100], &[200])]);
        let text = format!("{figures:?}");
        assert!(text.contains("\"within.duration\": [0.5]"), "{text}");
        assert!(!text.contains("within.discards"), "{text}");
    }
}
