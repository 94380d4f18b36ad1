//! What TRIM saved, as each run's ledger has it: by comparison with `off`.

use super::result::Cell;
pub use super::result::CellLedger;
use crate::policy::PolicyId;

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
