//! The cost of TRIM.
//!
//! The unmapping, which is the mapping's, is exact and immediate; the cost is time, and falls before the
//! acknowledgement or afterwards in the background. A non-queued TRIM (ATA DATA SET MANAGEMENT) has the device to itself: it starts when all
//! commands accepted before it have completed, and commands after it start when it has.

use super::config::{TrimConfig, TrimKind};
use crate::units::{Lpn, SimDuration, SimTime, UnitRange};

impl TrimConfig {
    /// Returns the time that a command takes, wherever it falls due. `mapped` of its units held data.
    pub(super) fn cost(&self, ranges: &[UnitRange], mapped: u64) -> SimDuration {
        let units = ranges.iter().fold(0u64, |sum, r| sum.saturating_add(r.units));
        SimDuration(self.cost_per_command_ns)
            + SimDuration(self.cost_per_range_ns) * ranges.len() as u64
            + SimDuration(self.cost_per_unit_ns) * units
            + SimDuration(self.cost_per_mapped_unit_ns) * mapped
    }

    /// Returns the time from the arrival of a TRIM of one range of mapped units to the end of all work for it, on a drive
    /// that does nothing else. What a map in the flash takes comes on top.
    pub fn alone(&self, units: u64) -> SimDuration {
        self.cost(&[UnitRange::new(Lpn(0), units)], units)
            + SimDuration(self.latency_per_command_ns)
            + SimDuration(self.journal_ns)
    }

    /// Returns how many ranges these extents take. An extent longer than the maximum range takes several.
    pub(crate) fn ranges(&self, extents: &[UnitRange]) -> u32 {
        let range_max = u64::from(self.max_units_per_range.max(1));
        extents.iter().map(|extent| extent.units.div_ceil(range_max) as u32).sum()
    }

    pub(super) fn granules(&self, range: UnitRange) -> UnitRange {
        let granularity = u64::from(self.granularity_units);
        if granularity == 1 {
            return range;
        }
        let start = range.start.0.div_ceil(granularity) * granularity;
        let end = range.start.0.saturating_add(range.units) / granularity * granularity;
        UnitRange::between(Lpn(start), Lpn(end))
    }

    pub const fn is_supported(&self) -> bool {
        !matches!(self.kind, TrimKind::Unsupported)
    }

    /// Returns true if the command is queued with other commands. If not, it drains the queue.
    pub const fn is_queued(&self) -> bool {
        !matches!(self.kind, TrimKind::AtaNonQueued)
    }
}

/// The map's journal, written before a TRIM is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Journal {
    /// End of the last write that has begun or is waited for.
    ends: SimTime,
}

impl Journal {
    /// Returns when the entry that is made at `now` has been written.
    pub fn written(&mut self, now: SimTime, write: SimDuration) -> SimTime {
        let has_begun = now + write > self.ends;
        if now >= self.ends {
            self.ends = now + write;
        } else if has_begun {
            self.ends += write;
        }
        self.ends.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_wait_when_a_write_of_the_journal_begins_share_it() {
        let mut journal = Journal::default();
        for (now, written, case) in [
            (100, 110, "idle: written at once"),
            (100, 110, "at the same instant: shares it"),
            (101, 120, "it has begun: the next one"),
            (109, 120, "waits for the same one"),
            (110, 120, "which begins now"),
            (111, 130, "the one after that"),
            (130, 140, "idle again"),
            (500, 510, "idle for long"),
        ] {
            assert_eq!(journal.written(SimTime(now), SimDuration(10)), SimTime(written), "{case}");
        }
        assert_eq!(journal.written(SimTime(520), SimDuration::ZERO), SimTime(520), "no journal");
        assert_eq!(Journal::default().written(SimTime(0), SimDuration::ZERO), SimTime(0), "no journal at 0");
    }
}
