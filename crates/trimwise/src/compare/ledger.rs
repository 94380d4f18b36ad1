//! The ledger of a policy: the fate of freed units, what TRIM cost the device, and what it saved.

use serde::{Deserialize, Serialize};

use super::result::Cell;
use crate::policy::{Ledger, PolicyId};
use crate::units::SimDuration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellLedger {
    /// The fate of units freed during the workload. Pending and in-flight units are those at its end, whenever they were
    /// freed.
    #[serde(flatten)]
    pub units: Ledger,
    pub trim_busy_ns: u64,
    /// Share of the elapsed time in which the device was busy with TRIM. A device that cannot do anything else in that
    /// time loses this share.
    pub trim_busy_percent: f64,
    /// Units that garbage collection copied in the same repetition without TRIM, minus those copied here. `None` if `off`
    /// did not run.
    pub gc_units_saved: Option<i64>,
    /// Duration of the same repetition without TRIM, minus the duration here; for a timed operation, its duration.
    /// `None` if `off` did not run.
    pub time_saved_ns: Option<i64>,
}

impl CellLedger {
    /// Creates a ledger that has not been compared with another run, over an elapsed time of `passed`.
    pub fn new(units: Ledger, trim_busy_ns: u64, passed: SimDuration) -> Self {
        let passed = passed.as_nanos();
        let trim_busy_percent = if passed == 0 { 0.0 } else { trim_busy_ns as f64 / passed as f64 * 100.0 };
        Self { units, trim_busy_ns, trim_busy_percent, gc_units_saved: None, time_saved_ns: None }
    }
}

/// Enters the savings over `off` into each ledger. The run of `off` is that of the same device and repetition, which
/// had the same seed and began at the same phase of the commit timer.
pub fn compare_with_off(cells: &mut [Cell]) {
    let copied = |c: &Cell| c.device_stats.as_ref().map(|d| d.gc_units_copied);
    let without: Vec<_> = cells
        .iter()
        .filter(|c| c.policy == PolicyId::OFF)
        .map(|c| (c.device.clone(), c.rep, copied(c), c.measured_ns()))
        .collect();
    for cell in cells {
        let same = |(device, rep, ..): &&(String, u32, _, _)| *device == cell.device && *rep == cell.rep;
        let Some((_, _, copied_by_off, taken_by_off)) = without.iter().find(same) else { continue };
        let (copied, taken) = (copied(cell), cell.measured_ns());
        let Some(ledger) = &mut cell.ledger else { continue };
        ledger.gc_units_saved = copied_by_off.zip(copied).map(|(off, here)| less(off, here));
        ledger.time_saved_ns = Some(less(*taken_by_off, taken));
    }
}

fn less(from: u64, here: u64) -> i64 {
    let signed = |n| i64::try_from(n).unwrap_or(i64::MAX);
    signed(from) - signed(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::verdict::tests::cell;

    #[test]
    fn a_run_is_compared_with_the_same_repetition_on_the_same_device() {
        let mut cells = [
            cell("a", "off", 0, 10.0, 0),
            cell("a", "off", 1, 20.0, 0),
            cell("b", "off", 0, 40.0, 0),
            cell("a", "lazy", 1, 15.0, 0),
            cell("b", "lazy", 0, 45.0, 0),
            cell("b", "lazy", 1, 30.0, 0),
        ];
        cells.iter_mut().for_each(|cell| cell.ledger = Some(CellLedger::default()));
        cells[2].device_stats.as_mut().unwrap().gc_units_copied = 7;
        compare_with_off(&mut cells);
        let saved = |cell: &Cell| {
            cell.ledger.and_then(|ledger| Some((ledger.time_saved_ns?, ledger.gc_units_saved?)))
        };
        let saved: Vec<_> = cells[3..].iter().map(saved).collect();
        assert_eq!(saved, [Some((5_000_000_000, 0)), Some((-5_000_000_000, 7)), None]);
    }
}
