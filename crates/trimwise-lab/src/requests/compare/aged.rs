//! Aged drives, shared by all cells of a command that start with the same one.
//!
//! Over days, `off`, fstrim at any interval and the daemon age a drive in the same way: under `nodiscard`. A drive is
//! always aged in a guest of its own, even if only one cell uses it, so a cell's result does not depend on the other
//! cells.

use std::sync::{Mutex, PoisonError};

use trimwise::profile::Profile;
use trimwise_uml::cell::{Aged, KernelCell, KernelCellError};
use trimwise_uml::disk::Disk;
use trimwise_uml::job::{Guest, Step};

/// The order in which the cells of a command run, and the drives that they share.
pub(crate) struct Shared {
    /// Each cell's number with that of its drive; `None` if the cell ages its own.
    pub order: Vec<(usize, Option<usize>)>,
    pub drives: Vec<Drive>,
}

/// A drive with which several cells start: how many have yet to start, and the aged drive once one of them has made it.
pub(crate) struct Drive(Mutex<(usize, Option<Aged>)>);

impl Shared {
    /// Orders cells; `before` has each cell's drive and the steps that age it. At most `jobs` drives are kept at a
    /// time, and no cell waits for a drive that another is ageing while there are other cells to run.
    pub fn of(before: &[(&Profile, Option<Vec<Step>>)], jobs: usize) -> Self {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (cell, of_cell) in before.iter().enumerate() {
            match groups.iter_mut().find(|group| of_cell.1.is_some() && before[group[0]] == *of_cell) {
                Some(group) => group.push(cell),
                None => groups.push(vec![cell]),
            }
        }
        let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
        let numbered: Vec<(usize, &Vec<usize>)> = groups.iter().enumerate().collect();
        let of_turn = |(turn, (drive, group)): (usize, &(usize, &Vec<usize>))| {
            group.get(turn).map(|&cell| (cell, before[cell].1.is_some().then_some(*drive)))
        };
        let of_some = |some: &[(usize, &Vec<usize>)]| -> Vec<_> {
            let turns = (0..longest).flat_map(|turn| some.iter().map(move |group| (turn, group)));
            turns.filter_map(of_turn).collect()
        };
        let order = numbered.chunks(jobs.max(1)).flat_map(of_some).collect();
        let drive = |group: &Vec<usize>| Drive(Mutex::new((group.len(), None)));
        Self { order, drives: groups.iter().map(drive).collect() }
    }
}

impl Drive {
    /// Returns the aged drive for a cell: a copy, or the drive itself for the last cell.
    pub fn disk(&self, cell: &KernelCell, guest: &Guest) -> Result<Disk, KernelCellError> {
        let (left, aged) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match aged.take() {
            Some(found) => found,
            None => cell.age(guest)?,
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            return Ok(found.into_disk());
        }
        aged.insert(found).disk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwise::units::Utilization;

    #[test]
    fn cells_with_the_same_drive_follow_each_other_and_no_more_drives_are_kept_than_jobs() {
        let [a, b] = ["sata-small", "sata-generic"].map(|name| Profile::embedded(name).unwrap());
        let aged = |seed| Some(vec![Step::Age { utilization: Utilization::default(), seed }]);
        // Three repetitions each of two policies that age alike and one that does not.
        let before: Vec<_> =
            [0, 1, 2, 0, 1, 2, 10, 11, 12].into_iter().map(|seed| (&a, aged(seed))).collect();
        let cells = |jobs| -> Vec<usize> {
            Shared::of(&before, jobs).order.into_iter().map(|(cell, _)| cell).collect()
        };
        assert_eq!(cells(1), [0, 3, 1, 4, 2, 5, 6, 7, 8]);
        assert_eq!(cells(2), [0, 1, 3, 4, 2, 6, 5, 7, 8]);
        let drives = |before: &[_]| -> Vec<_> {
            Shared::of(before, 1).order.into_iter().map(|(_, drive)| drive).collect()
        };
        assert_eq!(drives(&before[2..6]), [Some(0), Some(0), Some(1), Some(2)]);
        assert_eq!(drives(&[(&a, None), (&a, None)]), [None, None]);
        assert_eq!(drives(&[(&a, aged(0)), (&b, aged(0))]), [Some(0), Some(1)]);
    }
}
