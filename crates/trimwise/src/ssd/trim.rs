//! The cost of TRIM.
//!
//! The unmapping, which is the mapping's, is exact and immediate; the cost is time, and falls before the
//! acknowledgement or afterwards in the background. A non-queued TRIM (ATA DATA SET MANAGEMENT) has the device to itself: it starts when all
//! commands accepted before it have completed, and commands after it start when it has.

use super::config::{MappingConfig, SsdConfig, TrimConfig, TrimKind, TrimMap};
use super::geometry::MAP_PART_UNITS;
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

impl SsdConfig {
    /// Returns about how long a TRIM of one range of mapped units takes a drive that does nothing else, from its arrival to
    /// the end of all work for it.
    pub fn trim_alone(&self, units: u64) -> SimDuration {
        let of_map = match &self.mapping {
            MappingConfig::Page { map_cache: Some(_), trim_map } => match trim_map {
                TrimMap::Dropped => 0,
                TrimMap::Changed => self.nand.t_read_ns,
                TrimMap::Written => self.nand.t_read_ns + self.nand.t_prog_ns,
            },
            _ => 0,
        };
        // The map is read while the controller works.
        let of_map = SimDuration(of_map) * units.div_ceil(MAP_PART_UNITS.into());
        let waits = SimDuration(self.trim.latency_per_command_ns + self.trim.journal_ns);
        self.trim.cost(&[UnitRange::new(Lpn(0), units)], units).max(of_map) + waits
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
    fn what_a_trim_takes_is_the_longer_of_its_costs_and_the_parts_of_the_map() {
        let config = |trim_map| {
            let profile = crate::profile::Profile::embedded("nvme-500gb-dramless").unwrap();
            let mut config = profile.config;
            let MappingConfig::Page { trim_map: of_drive, .. } = &mut config.mapping else { panic!() };
            *of_drive = trim_map;
            (config.trim.cost_per_command_ns, config.trim.cost_per_range_ns) = (1_000, 100);
            (config.trim.cost_per_unit_ns, config.trim.cost_per_mapped_unit_ns) = (1, 2);
            (config.trim.latency_per_command_ns, config.trim.journal_ns) = (10_000, 100_000);
            (config.nand.t_read_ns, config.nand.t_prog_ns) = (50_000, 500_000);
            config
        };
        let units = 2 * u64::from(MAP_PART_UNITS);
        let own = 1_000 + 100 + 3 * units;
        for (map, longer) in
            [(TrimMap::Dropped, own), (TrimMap::Changed, 2 * 50_000), (TrimMap::Written, 2 * 550_000)]
        {
            assert_eq!(config(map).trim_alone(units), SimDuration(longer + 110_000), "{map:?}");
        }
    }

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
