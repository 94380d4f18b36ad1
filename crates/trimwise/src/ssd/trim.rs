//! The cost of TRIM.
//!
//! The unmapping, which is the mapping's, is exact and immediate; the cost is time, and falls before the
//! acknowledgement or afterwards in the background. A non-queued TRIM (ATA DATA SET MANAGEMENT) has the device to itself: it starts when all
//! commands accepted before it have completed, and commands after it start when it has.

use super::config::{TrimConfig, TrimKind};
use crate::units::{Lpn, SimDuration, UnitRange};

impl TrimConfig {
    /// Returns the time that a command takes, wherever it falls due. `mapped` of its units held data.
    pub(super) fn cost(&self, ranges: &[UnitRange], mapped: u64) -> SimDuration {
        let units = ranges.iter().fold(0u64, |sum, r| sum.saturating_add(r.units));
        SimDuration(self.cost_per_command_ns)
            + SimDuration(self.cost_per_range_ns) * ranges.len() as u64
            + SimDuration(self.cost_per_unit_ns) * units
            + SimDuration(self.cost_per_mapped_unit_ns) * mapped
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
