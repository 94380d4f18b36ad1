//! The device: an SSD in virtual time.
//!
//! [`Ssd`] takes the commands of a host (write, read, TRIM, flush, erase) with the instant at which each is submitted,
//! and immediately returns the instant at which it completes. There is no event heap here: a command reserves time on
//! the resources that it passes (link, controller, channel, die), in order of arrival. Instants of successive calls
//! must not decrease.
//!
//! The parts: `config` has the numbers, `geometry` the layout, `translation` the interface of every mapping, `page` the
//! page map, `block` the block map with its log, `ftl` the core that mappings share, `flash` and `timing` the layer
//! below a mapping, `cache` the write cache, `trim` the cost of TRIM, `stats` the counts.
//!
//! Data are not stored. In tests, [`SsdConfig::track_tags`] keeps one number for each slot, which garbage collection
//! copies as it would the data, so that [`Ssd::tag`] returns the expected result of a read.
//!
//! A range that leaves the device is a mistake of the caller: it is asserted in debug builds and cut off at the end of
//! the device otherwise. A block layer that must return an error calls [`Ssd::check`] first.

mod address;
mod ahead;
mod audit;
mod block;
mod cache;
mod compressing;
mod config;
mod drive;
mod faults;
mod flash;
mod ftl;
mod geometry;
mod page;
mod stats;
mod timing;
mod translation;
mod trim;

#[cfg(test)]
mod tests;

pub use audit::AuditError;
pub use config::{
    BlockMappingConfig, CacheConfig, CompressingConfig, ConfigError, ControllerConfig, GcConfig,
    GeometryConfig, LinkConfig, LinkKind, MapCacheConfig, MappingConfig, NandConfig, ReadAfterTrim,
    SlcConfig, SsdConfig, TrimConfig, TrimKind, TrimMap, TrimPlace, VictimPolicy, WearLevellingConfig,
};
pub use drive::Drive;
pub use faults::Faults;
pub(crate) use stats::counters;
pub use stats::{
    BusyTime, MapCacheStats, NandUnits, SsdStats, SuperblockState, SuperblockUse, TrimStats, Wear,
};

use crate::content::Content;
use crate::units::{Lpn, SECTOR_BYTES, SectorRange, SimDuration, SimTime, UNIT_BYTES, UnitRange};
use address::{Number, Table};
use ahead::ReadAhead;
use block::BlockMapped;
use compressing::Compressing;
use page::PageMapped;
use timing::{Calendar, unit_time};
use translation::{EXPECTED_AT_ONCE, Ready, Translation};
use trim::Journal;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("units {start}..+{units} are outside the device of {capacity} units")]
    Outside { start: u64, units: u64, capacity: u64 },
    #[error("{ranges} ranges in one TRIM; the device takes {max}")]
    TooManyRanges { ranges: usize, max: u32 },
    /// A range longer than the command can express.
    #[error("a TRIM range of {units} units; the device takes {max}")]
    RangeTooLong { units: u64, max: u32 },
}

const SECTORS_PER_UNIT: u64 = UNIT_BYTES / SECTOR_BYTES;

/// A modelled SSD.
///
/// ```
/// use trimwise::ssd::{Ssd, SsdConfig};
/// use trimwise::units::{Lpn, SimTime, UnitRange};
///
/// let mut ssd = Ssd::new(&SsdConfig::default(), 1)?;
/// let range = UnitRange::new(Lpn(0), 256);
/// let written = ssd.write(SimTime::ZERO, range);
/// let trimmed = ssd.trim(written, &[range]);
/// assert!(trimmed > written && ssd.mapped_units() == 0);
/// # Ok::<(), trimwise::ssd::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ssd {
    config: SsdConfig,
    mapping: Box<dyn Translation>,
    end: Lpn,
    /// Towards the device; on a half-duplex link in both directions.
    link_in: Calendar,
    /// Towards the host; unused on a half-duplex link.
    link_out: Calendar,
    half_duplex: bool,
    link_unit: SimDuration,
    controller_free_at: SimTime,
    now: SimTime,
    all_done_at: SimTime,
    /// Until when an exclusive TRIM or an erase has the device to itself.
    exclusive_until: SimTime,
    /// Until when background TRIM work slows the host down.
    trim_backlog_until: SimTime,
    /// When the core that works off TRIMs is free, if it does nothing else.
    trim_core_free_at: SimTime,
    trim_journal: Journal,
    ahead: Option<ReadAhead>,
    /// The unit that was last written in part.
    part_begun: Option<Lpn>,
    trimmed_tags: Table<Lpn, Option<u32>>,
}

impl Ssd {
    /// Creates an erased device. Victim policies that draw at random use `seed`.
    ///
    /// # Errors The errors of [`SsdConfig::validate`].
    pub fn new(config: &SsdConfig, seed: u64) -> Result<Self, ConfigError> {
        let geometry = config.geometry()?;
        let tags = if config.track_tags { geometry.logical_units as usize } else { 0 };
        Ok(Self {
            end: Lpn(geometry.logical_units.into()),
            mapping: match &config.mapping {
                MappingConfig::Page { .. } => Box::new(PageMapped::new(config, geometry, seed)),
                MappingConfig::Block(block) => Box::new(BlockMapped::new(config, block, geometry)),
                MappingConfig::Compressing(mapping) => {
                    Box::new(Compressing::new(config, mapping, geometry, seed))
                }
            },
            link_in: Calendar::default(),
            link_out: Calendar::default(),
            half_duplex: config.link.kind == LinkKind::Sata,
            link_unit: unit_time(config.link.bytes_per_s),
            controller_free_at: SimTime::ZERO,
            now: SimTime::ZERO,
            all_done_at: SimTime::ZERO,
            exclusive_until: SimTime::ZERO,
            trim_backlog_until: SimTime::ZERO,
            trim_core_free_at: SimTime::ZERO,
            trim_journal: Journal::default(),
            ahead: ReadAhead::new(config.controller.read_ahead_bytes / UNIT_BYTES),
            part_begun: None,
            trimmed_tags: Table::new(tags, None),
            config: config.clone(),
        })
    }

    pub fn capacity_units(&self) -> u64 {
        self.end.0
    }

    /// Returns the number of units that the flash holds: logical space and over-provisioning.
    pub fn physical_units(&self) -> u64 {
        u64::from(self.mapping.flash().geometry.physical_units())
    }

    pub fn superblock_units(&self) -> u64 {
        u64::from(self.mapping.flash().geometry.superblock_units)
    }

    pub fn config(&self) -> &SsdConfig {
        &self.config
    }

    pub fn check(&self, range: UnitRange) -> Result<(), AddressError> {
        let capacity = self.capacity_units();
        let inside = range.start.0.checked_add(range.units).is_some_and(|end| end <= capacity);
        if inside {
            return Ok(());
        }
        Err(AddressError::Outside { start: range.start.0, units: range.units, capacity })
    }

    /// Checks that the device accepts a TRIM command of this shape.
    pub fn check_trim(&self, ranges: &[UnitRange]) -> Result<(), AddressError> {
        let trim = &self.config.trim;
        if ranges.len() > trim.max_ranges as usize {
            return Err(AddressError::TooManyRanges { ranges: ranges.len(), max: trim.max_ranges });
        }
        for &range in ranges {
            if range.units > u64::from(trim.max_units_per_range) {
                return Err(AddressError::RangeTooLong { units: range.units, max: trim.max_units_per_range });
            }
            self.check(range)?;
        }
        Ok(())
    }

    /// Writes a range. Returns when it is acknowledged: when it is in the write cache, or without a cache when it is
    /// programmed.
    pub fn write(&mut self, now: SimTime, range: UnitRange) -> SimTime {
        self.write_content(now, range, Content::default())
    }

    /// Writes data of a kind, as [`Ssd::write`] does. From now on, reads of these units must return it.
    pub fn write_content(&mut self, now: SimTime, range: UnitRange, content: Content) -> SimTime {
        debug_assert_eq!(self.check(range), Ok(()));
        let start = self.begin(now);
        let units = self.clamp(range);
        let decoded = self.controller(start, self.config.controller.write_overhead_ns);
        let arrived = self.transfer(decoded, self.link_unit * units.units, true);
        self.take(start, arrived, units, content)
    }

    /// Takes the data of a write command, which arrive at `arrived`. Returns when it is acknowledged.
    #[inline]
    fn take(&mut self, start: SimTime, arrived: SimTime, units: UnitRange, content: Content) -> SimTime {
        let stats = &mut self.mapping.flash_mut().stats;
        stats.write_commands += 1;
        stats.host_units_written += units.units;
        if !self.trimmed_tags.is_empty() {
            units.iter().for_each(|lpn| self.trimmed_tags[lpn] = None);
        }
        if let Some(stream) = &mut self.ahead {
            stream.changed(units);
        }
        if self.config.trim.slowdown_percent > 0 {
            let percent = if self.is_working_off(start) { self.config.trim.slowdown_percent } else { 0 };
            self.mapping.flash_mut().slow_down(percent);
        }
        let mut acknowledged = self.mapping.write(start, arrived, units, content);
        if self.config.cache.bytes == 0 {
            self.mapping.pad(start);
            let cache = &mut self.mapping.flash_mut().cache;
            acknowledged = acknowledged.max(cache.drained_at());
            cache.settle(start);
        }
        self.complete(acknowledged)
    }

    pub fn read(&mut self, now: SimTime, range: UnitRange) -> SimTime {
        debug_assert_eq!(self.check(range), Ok(()));
        let start = self.begin(now);
        let units = self.clamp(range);
        self.fetch(start, units, self.link_unit * units.units)
    }

    /// Carries out a read whose data take `on_link` on the link. Returns when the host has them.
    #[inline]
    fn fetch(&mut self, start: SimTime, units: UnitRange, on_link: SimDuration) -> SimTime {
        let decoded = self.controller(start, self.config.controller.read_overhead_ns);
        let stats = &mut self.mapping.flash_mut().stats;
        stats.read_commands += 1;
        stats.host_units_read += units.units;
        let ready = match self.ahead.is_some() {
            true => self.read_ahead(start, decoded, units),
            false => self.mapping.read(start, decoded, units),
        };
        // Data stream out from the first page on, but the last unit cannot leave before it is there.
        let streamed = self.transfer(ready.first.min(ready.last), on_link, false);
        let tail = on_link.min(self.link_unit);
        let mut end = streamed.max(ready.last + tail);
        if self.is_working_off(start) {
            end += end.since(start) * u64::from(self.config.trim.slowdown_percent) / 100;
        }
        self.complete(end)
    }

    fn read_ahead(&mut self, start: SimTime, decoded: SimTime, units: UnitRange) -> Ready {
        let Some(stream) = &mut self.ahead else { return self.mapping.read(start, decoded, units) };
        let plan = stream.plan(units, self.end);
        let mut ready = Ready { first: decoded.max(plan.ready), last: decoded.max(plan.ready) };
        let missing = UnitRange::between(plan.missing_from, units.end());
        if missing.units > 0 {
            let missing = self.mapping.read(start, decoded, missing);
            if plan.missing_from == units.start {
                ready.first = missing.first;
            }
            ready.last = ready.last.max(missing.last);
        }
        if plan.ahead.units > 0 {
            let fetched = self.mapping.read(start, decoded, plan.ahead);
            stream.fetched(plan.ahead.end(), fetched.last);
        }
        ready
    }

    /// Reads a part of one unit: as long as a whole unit in the flash, shorter on the link.
    pub fn read_part(&mut self, now: SimTime, part: SectorRange) -> SimTime {
        let start = self.begin(now);
        let units = self.clamp(part.units());
        self.fetch(start, units, self.link_unit * part.sectors / SECTORS_PER_UNIT)
    }

    /// Writes a part of one unit. Further parts of the same unit join it while it waits in the cache; otherwise the
    /// rest of the unit is read first, and all of it written.
    pub fn write_part(&mut self, now: SimTime, part: SectorRange, content: Content) -> SimTime {
        let start = self.begin(now);
        let units = self.clamp(part.units());
        let decoded = self.controller(start, self.config.controller.write_overhead_ns);
        let on_link = self.link_unit * part.sectors / SECTORS_PER_UNIT;
        let mut arrived = self.transfer(decoded, on_link, true);
        let lpn = units.start;
        let cached = self.mapping.is_in_memory(lpn, start);
        if cached && self.part_begun == Some(lpn) {
            self.mapping.flash_mut().stats.write_commands += 1;
            return self.complete(arrived);
        }
        self.part_begun = Some(lpn);
        if !cached && self.mapping.is_mapped(lpn) {
            arrived = arrived.max(self.mapping.read(start, decoded, units).last);
        }
        self.take(start, arrived, units, content)
    }

    /// Carries out one TRIM command. Returns when it is acknowledged.
    ///
    /// The caller must respect `trim.max_ranges` and `trim.max_units_per_range` ([`Ssd::check_trim`]).
    pub fn trim(&mut self, now: SimTime, ranges: &[UnitRange]) -> SimTime {
        self.trim_freeing(now, ranges, ranges)
    }

    /// Carries out a TRIM command at the cost of `ranges`, but frees `freed`.
    fn trim_freeing(&mut self, now: SimTime, ranges: &[UnitRange], freed: &[UnitRange]) -> SimTime {
        debug_assert_eq!(self.check_trim(ranges), Ok(()));
        debug_assert!(self.config.trim.is_supported(), "a device without TRIM is sent none");
        let mut start = self.begin(now);
        let exclusive = !self.config.trim.is_queued();
        if exclusive {
            start = start.max(self.all_done_at);
        }
        let invalidated = self.free(start, freed);
        let cost = self.config.trim.cost(ranges, invalidated);
        let stats = &mut self.mapping.flash_mut().stats;
        stats.trim.commands += 1;
        stats.trim.ranges += ranges.len() as u64;
        stats.trim.units_requested += ranges.iter().map(|range| range.units).sum::<u64>();
        stats.trim.units_invalidated += invalidated;
        stats.busy_ns.trim += cost.0;
        let received = self.transfer(start, SimDuration::ZERO, true);
        let core = match self.config.trim.place {
            TrimPlace::BeforeAck => Some(&mut self.controller_free_at),
            TrimPlace::OwnCore => Some(&mut self.trim_core_free_at),
            TrimPlace::Background => None,
        };
        let worked = match core {
            Some(free_at) => {
                let end = received.max(*free_at) + cost;
                *free_at = end;
                // Meanwhile the part of the map that lies in the flash is read.
                end.max(self.mapping.unmapped_at())
            }
            None => {
                self.trim_backlog_until = self.trim_backlog_until.max(received) + cost;
                received
            }
        };
        let logged = self.trim_journal.written(worked, SimDuration(self.config.trim.journal_ns));
        let end = logged + SimDuration(self.config.trim.latency_per_command_ns);
        if exclusive {
            self.exclusive_until = end;
        }
        self.all_done_at = self.all_done_at.max(end);
        end
    }

    /// Frees the whole granules of ranges. Returns the number of units that held data.
    fn free(&mut self, now: SimTime, ranges: &[UnitRange]) -> u64 {
        let granules: Vec<UnitRange> =
            ranges.iter().map(|&range| self.clamp(self.config.trim.granules(range))).collect();
        for &range in &granules {
            self.keep_trimmed_tags(range);
            if let Some(stream) = &mut self.ahead {
                stream.changed(range);
            }
        }
        self.mapping.unmap(now, &granules)
    }

    fn free_late(&mut self, ranges: &[UnitRange]) {
        let invalidated = self.free(self.now, ranges);
        self.mapping.flash_mut().stats.trim.units_invalidated += invalidated;
    }

    pub fn flush(&mut self, now: SimTime) -> SimTime {
        let start = self.begin(now);
        let stats = &mut self.mapping.flash_mut().stats;
        stats.flush_commands += 1;
        stats.busy_ns.flush += self.config.cache.flush_ns;
        let received = self.transfer(start, SimDuration::ZERO, true);
        let mut drained = received;
        if self.config.cache.volatile {
            self.mapping.pad(start);
            drained = drained.max(self.mapping.flash().cache.drained_at());
        }
        let end = drained + SimDuration(self.config.cache.flush_ns);
        self.all_done_at = self.all_done_at.max(end);
        end
    }

    /// Erases the device, as ATA SECURITY ERASE UNIT and NVMe Format do. Returns when it is done.
    pub fn secure_erase(&mut self, now: SimTime) -> SimTime {
        let start = self.begin(now).max(self.all_done_at);
        let received = self.transfer(start, SimDuration::ZERO, true);
        let end = self.mapping.erase_all(received);
        self.ahead.iter_mut().for_each(ReadAhead::forget);
        self.trimmed_tags.fill(None);
        self.trim_backlog_until = SimTime::ZERO;
        self.exclusive_until = end;
        self.all_done_at = end;
        end
    }

    /// Tells the device that the file system holds nothing in a range, as the policy `ideal` assumes. It takes no
    /// command and no time, and does not count as TRIM.
    pub fn inform_free(&mut self, range: UnitRange) {
        debug_assert_eq!(self.check(range), Ok(()));
        let units = self.clamp(range);
        self.keep_trimmed_tags(units);
        let unmapped = self.mapping.forget(self.now, units);
        self.mapping.flash_mut().stats.units_informed_free += unmapped;
    }

    /// Returns true if the device holds data for a unit, as far as it knows; false outside the device.
    pub fn is_mapped(&self, lpn: Lpn) -> bool {
        lpn < self.end && self.mapping.is_mapped(lpn)
    }

    pub fn mapped_units(&self) -> u64 {
        self.mapping.mapped_units()
    }

    /// Returns what a read of a unit must return: the tag of the last write, or for trimmed units the result of
    /// `trim.read_after` (`None` stands for zeros). Always `None` unless `track_tags` is set.
    pub fn tag(&self, lpn: Lpn) -> Option<u32> {
        match self.is_mapped(lpn) {
            true => self.mapping.tag(lpn),
            false => self.trimmed_tags.at(lpn).copied().flatten(),
        }
    }

    pub fn superblocks(&self) -> Vec<SuperblockState> {
        self.mapping.superblocks()
    }

    /// Returns the index in [`Ssd::superblocks`] of the superblock that holds a unit's data; `None` if the unit is
    /// unmapped, or its data are not in a superblock.
    pub fn superblock_of(&self, lpn: Lpn) -> Option<u32> {
        if lpn < self.end { self.mapping.superblock_of(lpn) } else { None }
    }

    pub fn stats(&self) -> &SsdStats {
        &self.mapping.flash().stats
    }

    pub fn wear(&self) -> Wear {
        self.mapping.wear()
    }

    #[cfg(test)]
    pub(crate) fn free_superblocks(&self) -> u32 {
        self.mapping.free_superblocks()
    }

    /// Returns the memory that the model takes for this device: maps, bitmap, block data and lists, without tags.
    pub fn memory_bytes(&self) -> u64 {
        self.mapping.memory_bytes()
    }

    /// Checks that no slot is lost or counted twice: valid + invalid + free slots are all slots, the two directions of
    /// the map agree, and the slots written by cause equal those erased plus those that blocks hold.
    ///
    /// It looks at every slot: for tests and for the end of a run.
    pub fn audit(&self) -> Result<(), AuditError> {
        self.mapping.audit()
    }

    #[inline]
    fn clamp(&self, range: UnitRange) -> UnitRange {
        let end = range.start.0.saturating_add(range.units).min(self.end.0);
        UnitRange::between(Lpn(range.start.0.min(end)), Lpn(end))
    }

    /// Remembers the contents of a range before it is trimmed, if a read may still return them.
    fn keep_trimmed_tags(&mut self, units: UnitRange) {
        if self.trimmed_tags.is_empty() || self.config.trim.read_after == ReadAfterTrim::Zeros {
            return;
        }
        for lpn in units.iter() {
            // Undefined: every other unit reads as zeros, so that no host comes to rely on either result.
            let zeros = self.config.trim.read_after == ReadAfterTrim::Undefined && lpn.0 % 2 == 0;
            if self.mapping.is_mapped(lpn) {
                self.trimmed_tags[lpn] = if zeros { None } else { self.mapping.tag(lpn) };
            }
        }
    }

    /// Does the collection that idle time up to `now` allows. Otherwise it is done, and counted, at the next command.
    pub fn catch_up(&mut self, now: SimTime) {
        self.begin(now);
    }

    /// Announces the first units of the next commands. This changes no result: the model fetches its table entries for
    /// all of them at once, so the processor waits for its memory once and not for each command. Worth it for a dozen
    /// or more units that lie apart on a large device.
    #[inline]
    pub fn expect(&self, units: impl IntoIterator<Item = Lpn>) {
        let mut known = units.into_iter().filter(|&lpn| lpn < self.end).peekable();
        while known.peek().is_some() {
            let mut batch = [Lpn::NONE; EXPECTED_AT_ONCE];
            let mut count = 0;
            for (slot, lpn) in batch.iter_mut().zip(&mut known) {
                *slot = lpn;
                count += 1;
            }
            self.mapping.expect(&batch[..count]);
        }
    }

    /// Uses up the idle time before a command submitted at `now`. Returns when the command starts.
    #[inline]
    fn begin(&mut self, now: SimTime) -> SimTime {
        debug_assert!(now >= self.now, "commands come in the order of time");
        self.now = self.now.max(now);
        if self.config.gc.idle || self.config.slc.as_ref().is_some_and(|slc| slc.fold_when_idle) {
            let idle_from = self.all_done_at + SimDuration(self.config.gc.idle_threshold_ns);
            if idle_from < self.now {
                self.mapping.collect_idle(idle_from, self.now);
            }
        }
        self.now.max(self.exclusive_until)
    }

    #[inline]
    fn controller(&mut self, start: SimTime, overhead_ns: u64) -> SimTime {
        self.controller_free_at = self.controller_free_at.max(start) + SimDuration(overhead_ns);
        self.mapping.flash_mut().stats.busy_ns.controller += overhead_ns;
        self.controller_free_at
    }

    /// Reserves a command's time on the host link. Its data take `data`.
    #[inline]
    fn transfer(&mut self, ready: SimTime, data: SimDuration, inwards: bool) -> SimTime {
        let duration = SimDuration(self.config.link.overhead_per_command_ns) + data;
        self.mapping.flash_mut().stats.busy_ns.link += duration.0;
        let link = if inwards || self.half_duplex { &mut self.link_in } else { &mut self.link_out };
        link.reserve(self.now, ready, duration)
    }

    /// Returns when the TRIMs so far are done, including background work.
    pub(crate) fn worked_off_at(&self) -> SimTime {
        self.trim_backlog_until
    }

    #[inline]
    fn is_working_off(&self, now: SimTime) -> bool {
        now < self.trim_backlog_until
    }

    #[inline]
    fn complete(&mut self, end: SimTime) -> SimTime {
        self.all_done_at = self.all_done_at.max(end);
        end
    }
}
