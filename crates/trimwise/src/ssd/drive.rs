//! A drive as it is sold: the device, with the faults of its firmware in TRIM and flush.
//!
//! The wrapper changes which units a TRIM command frees, and when. It never changes the cost of the command, nor
//! anything inside the device. A sound drive passes everything on.

use std::collections::VecDeque;

use super::faults::Faults;
use super::{ConfigError, ReadAfterTrim, Ssd, SsdConfig};
use crate::content::Content;
use crate::units::{Lpn, SectorRange, SimTime, UnitRange};

#[derive(Clone, Debug)]
pub struct Drive {
    ssd: Ssd,
    faults: Faults,
    promises_zeros: bool,
    /// TRIMs that were acknowledged but not yet carried out, with the number of the write command after which they will
    /// be.
    late: VecDeque<(u64, Vec<UnitRange>)>,
    writes: u64,
    /// Units that lost their data since tracking began; `None` if it is off.
    destroyed: Option<Vec<UnitRange>>,
}

impl From<Ssd> for Drive {
    fn from(ssd: Ssd) -> Self {
        let promises_zeros = ssd.config().trim.read_after == ReadAfterTrim::Zeros;
        Self {
            ssd,
            faults: Faults::default(),
            promises_zeros,
            late: VecDeque::new(),
            writes: 0,
            destroyed: None,
        }
    }
}

impl Drive {
    pub fn new(config: &SsdConfig, faults: Faults, seed: u64) -> Result<Self, ConfigError> {
        faults.validate(&config.trim)?;
        let mut inner = config.clone();
        if faults.breaks_zeros_promise {
            inner.trim.read_after = ReadAfterTrim::Old;
        }
        let promises_zeros = config.trim.read_after == ReadAfterTrim::Zeros;
        Ok(Self { faults, promises_zeros, ..Self::from(Ssd::new(&inner, seed)?) })
    }

    /// Replaces the firmware by one with these faults. The contents stay.
    pub fn with_faults(mut self, faults: Faults) -> Result<Self, ConfigError> {
        faults.validate(&self.ssd.config().trim)?;
        self.faults = faults;
        Ok(self)
    }

    pub fn ssd(&self) -> &Ssd {
        &self.ssd
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn ssd_mut(&mut self) -> &mut Ssd {
        &mut self.ssd
    }

    /// Returns true if the drive claims that trimmed units read as zeros (ATA: RZAT; NVMe: DLFEAT), rightly or not.
    pub(crate) fn promises_zeros(&self) -> bool {
        self.promises_zeros
    }

    #[inline]
    pub fn write(&mut self, now: SimTime, range: UnitRange, content: Content) -> SimTime {
        let done = self.ssd.write_content(now, range, content);
        self.carry_out_late_trims();
        done
    }

    pub(crate) fn write_part(&mut self, now: SimTime, part: SectorRange, content: Content) -> SimTime {
        let done = self.ssd.write_part(now, part, content);
        self.carry_out_late_trims();
        done
    }

    #[inline]
    pub fn read(&mut self, now: SimTime, range: UnitRange) -> SimTime {
        self.ssd.read(now, range)
    }

    pub(crate) fn read_part(&mut self, now: SimTime, part: SectorRange) -> SimTime {
        self.ssd.read_part(now, part)
    }

    pub fn flush(&mut self, now: SimTime) -> SimTime {
        if self.faults.ignores_flush {
            return now;
        }
        self.ssd.flush(now)
    }

    pub fn trim(&mut self, now: SimTime, ranges: &[UnitRange]) -> SimTime {
        if self.faults.is_sound() {
            self.note_destroyed(ranges);
            return self.ssd.trim(now, ranges);
        }
        let freed = self.really_freed(ranges);
        if self.faults.queued_trim_late_writes == 0 {
            self.note_destroyed(&freed);
            return self.ssd.trim_freeing(now, ranges, &freed);
        }
        let due = self.writes + u64::from(self.faults.queued_trim_late_writes);
        self.late.push_back((due, freed));
        self.ssd.trim_freeing(now, ranges, &[])
    }

    pub(crate) fn secure_erase(&mut self, now: SimTime) -> SimTime {
        self.late.clear();
        self.ssd.secure_erase(now)
    }

    /// Records the units that lose their data from now on, for a host that keeps the bytes.
    pub(crate) fn watch_destroyed(&mut self) {
        self.destroyed.get_or_insert_default();
    }

    /// Returns the units that have lost their data to TRIMs since the last call, in that order. Always empty without
    /// [`Drive::watch_destroyed`], and if reads of trimmed units return the old data.
    pub(crate) fn take_destroyed(&mut self) -> Vec<UnitRange> {
        self.destroyed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note_destroyed(&mut self, freed: &[UnitRange]) {
        let trim = &self.ssd.config().trim;
        if let Some(destroyed) = &mut self.destroyed
            && trim.read_after != ReadAfterTrim::Old
        {
            let granules = freed.iter().map(|&range| trim.granules(range));
            destroyed.extend(granules.filter(|granules| granules.units > 0));
        }
    }

    /// Returns the units that the firmware frees when it is told to free `ranges`.
    fn really_freed(&self, ranges: &[UnitRange]) -> Vec<UnitRange> {
        if self.faults.ignores_trim {
            return Vec::new();
        }
        let shift = u64::from(self.faults.trim_shift_units);
        let capacity = self.ssd.capacity_units();
        let shifted = ranges.iter().map(|range| {
            let (start, end) = (range.start.0 + shift, (range.end().0 + shift).min(capacity));
            (start, end.max(start))
        });
        if self.faults.trims_percent == 100 {
            return shifted.map(|(start, end)| UnitRange::new(Lpn(start), end - start)).collect();
        }
        let reached = Faults::GROUP_UNITS * u64::from(self.faults.trims_percent) / 100;
        shifted.flat_map(|(start, end)| first_of_groups(start, end, reached)).collect()
    }

    #[inline]
    fn carry_out_late_trims(&mut self) {
        self.writes += 1;
        while let Some((due, _)) = self.late.front()
            && *due <= self.writes
        {
            let ranges = self.late.pop_front().map(|(_, ranges)| ranges).unwrap_or_default();
            self.note_destroyed(&ranges);
            self.ssd.free_late(&ranges);
        }
    }
}

/// Returns the parts of `start..end` that lie in the first `reached` units of each group.
fn first_of_groups(start: u64, end: u64, reached: u64) -> impl Iterator<Item = UnitRange> {
    let group = Faults::GROUP_UNITS;
    (start / group..end.div_ceil(group)).filter_map(move |i| {
        let (from, to) = ((i * group).max(start), (i * group + reached).min(end));
        (from < to).then(|| UnitRange::new(Lpn(from), to - from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::TrimKind;

    const DEVICE: u64 = 4096;

    /// Returns a drive whose first 4,096 units hold data.
    fn full(faults: Faults) -> (Drive, SimTime) {
        let mut config = SsdConfig { capacity_bytes: 1 << 30, track_tags: true, ..SsdConfig::default() };
        config.trim.kind = TrimKind::AtaQueued;
        let mut drive = Drive::new(&config, faults, 1).unwrap();
        let done = drive.write(SimTime::ZERO, UnitRange::new(Lpn(0), DEVICE), Content::default());
        (drive, done)
    }

    fn units(start: u64, count: u64) -> UnitRange {
        UnitRange::new(Lpn(start), count)
    }

    fn unmapped(drive: &Drive) -> Vec<u64> {
        (0..DEVICE).filter(|&lpn| !drive.ssd().is_mapped(Lpn(lpn))).collect()
    }

    #[test]
    fn each_fault_frees_what_it_says() {
        let freed = |faults: Faults| {
            let (mut drive, now) = full(faults);
            drive.trim(now, &[units(200, 400)]);
            drive.ssd().audit().unwrap();
            unmapped(&drive)
        };
        let sound = Faults::default();
        assert_eq!(freed(sound), (200..600).collect::<Vec<_>>());
        assert!(freed(Faults { ignores_trim: true, ..sound }).is_empty());
        let shifted = freed(Faults { trim_shift_units: 50, ..sound });
        assert_eq!(shifted, (250..650).collect::<Vec<_>>());
        let half = freed(Faults { trims_percent: 50, ..sound });
        assert_eq!(half, (256..384).chain(512..600).collect::<Vec<_>>(), "the first 128 of each 256");
    }

    #[test]
    fn a_late_trim_destroys_what_was_written_meanwhile() {
        let (mut drive, now) = full(Faults { queued_trim_late_writes: 2, ..Faults::default() });
        let now = drive.trim(now, &[units(10, 5)]);
        let now = drive.write(now, units(12, 1), Content::default());
        assert!(unmapped(&drive).is_empty());
        drive.write(now, units(100, 1), Content::default());
        assert_eq!(unmapped(&drive), [10, 11, 12, 13, 14], "12 was written after its TRIM");
    }

    #[test]
    fn a_broken_promise_is_still_made() {
        let (mut drive, now) = full(Faults { breaks_zeros_promise: true, ..Faults::default() });
        drive.trim(now, &[units(0, 8)]);
        assert!(drive.promises_zeros());
        assert!(!drive.ssd().is_mapped(Lpn(3)));
        assert_eq!(drive.ssd().tag(Lpn(3)), Some(Content::default().tag()), "what was there before");
    }

    #[test]
    fn a_faulty_trim_takes_as_long_as_a_right_one() {
        let time = |faults| {
            let (mut drive, now) = full(faults);
            drive.trim(now, &[units(200, 400)])
        };
        let sound = time(Faults::default());
        assert_eq!(time(Faults { ignores_trim: true, ..Faults::default() }), sound);
        assert_eq!(time(Faults { trim_shift_units: 1, ..Faults::default() }), sound);
    }
}
