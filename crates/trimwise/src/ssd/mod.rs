//! The device: an SSD with a page-mapped FTL, in virtual time.
//!
//! [`Ssd`] takes the commands of a host (write, read, TRIM, flush, erase) with the instant at which each is
//! handed over, and answers at once with the instant at which it completes. There is no event heap here: a
//! command reserves time on the resources that it passes (link, controller, channel, die), in order of
//! arrival. Instants of successive calls must not decrease.
//!
//! What lies behind: `config` the numbers, `geometry` the layout, `mapping` the page map, `ftl` the write
//! frontiers, `collect` the copying, `gc` the choice of victims, `trim` the unmapping, `cache` the write cache,
//! `timing` the reservations, `stats` the counts.
//!
//! Data are not stored. In tests, [`SsdConfig::track_tags`] keeps one number for each slot, which garbage
//! collection copies as it would the data, so that [`Ssd::tag`] says what a read must return.
//!
//! A range that leaves the device is a mistake of the caller: it is asserted in debug builds and cut off at
//! the end of the device otherwise. [`Ssd::check`] is there for a block layer that must answer an error.

mod audit;
mod cache;
mod collect;
mod config;
mod faults;
mod ftl;
mod gc;
mod geometry;
mod mapping;
mod stats;
mod timing;
mod trim;

#[cfg(test)]
mod tests;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

pub use audit::AuditError;
pub use config::{
    BlockMappingConfig, CacheConfig, CompressingConfig, ConfigError, ControllerConfig, GcConfig,
    GeometryConfig, LinkConfig, LinkKind, MapCacheConfig, MappingConfig, NandConfig, ReadAfterTrim,
    SlcConfig, SsdConfig, TrimConfig, TrimKind, TrimPlace, VictimPolicy, WearLevellingConfig,
};
pub use faults::Faults;
pub use stats::{BusyTime, NandUnits, SsdStats, TrimStats, Wear};

use crate::content::Content;
use crate::units::{Lpn, SectorRange, SimTime, UnitRange};
use ftl::Ftl;
use mapping::NONE;
use timing::{Calendar, unit_ns};

/// A range, or a TRIM, that the device does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The range leaves the device.
    #[error("units {start}..+{units} are outside the device of {capacity} units")]
    Outside {
        /// First unit of the range.
        start: u64,
        /// Units in the range.
        units: u64,
        /// Units of the device.
        capacity: u64,
    },
    /// More ranges than a command takes.
    #[error("{ranges} ranges in one TRIM; the device takes {max}")]
    TooManyRanges {
        /// Ranges in the command.
        ranges: usize,
        /// `trim.max_ranges`.
        max: u32,
    },
    /// A range longer than the command can say.
    #[error("a TRIM range of {units} units; the device takes {max}")]
    RangeTooLong {
        /// Units in the range.
        units: u64,
        /// `trim.max_units_per_range`.
        max: u32,
    },
}

/// One device.
#[derive(Clone, Debug)]
pub struct Ssd {
    config: SsdConfig,
    ftl: Ftl,
    /// Towards the device, and on a half-duplex link also back.
    link_in: Calendar,
    /// Towards the host; unused on a half-duplex link.
    link_out: Calendar,
    half_duplex: bool,
    link_unit_ns: u64,
    /// When the controller is free for the next command.
    controller_free_at: u64,
    /// When the path from the write cache to the flash is free, and its time for a unit (0: no limit).
    mover_free_at: u64,
    mover_unit_ns: u64,
    /// The latest instant handed over.
    now: u64,
    /// When the last of all commands so far completes.
    all_done_at: u64,
    /// Until when an exclusive TRIM or an erase has the device to itself.
    exclusive_until: u64,
    /// Until when background TRIM work slows the host down.
    trim_backlog_until: u64,
    /// What reads of trimmed units return if not zeros; for tests.
    trimmed_tags: Vec<Option<u32>>,
}

impl Ssd {
    /// A new, erased device. `seed` is used by the victim policies that draw at random.
    ///
    /// # Errors
    ///
    /// What [`SsdConfig::validate`] says.
    pub fn new(config: &SsdConfig, seed: u64) -> Result<Self, ConfigError> {
        let geometry = config.geometry()?;
        let tags = if config.track_tags { geometry.logical_units as usize } else { 0 };
        Ok(Self {
            ftl: Ftl::new(config, geometry, Xoshiro256PlusPlus::seed_from_u64(seed)),
            link_in: Calendar::default(),
            link_out: Calendar::default(),
            half_duplex: config.link.kind == LinkKind::Sata,
            link_unit_ns: unit_ns(config.link.bytes_per_s),
            controller_free_at: 0,
            mover_free_at: 0,
            mover_unit_ns: config.controller.write_bytes_per_s.map_or(0, unit_ns),
            now: 0,
            all_done_at: 0,
            exclusive_until: 0,
            trim_backlog_until: 0,
            trimmed_tags: vec![None; tags],
            config: config.clone(),
        })
    }

    /// Units that the host sees.
    pub fn capacity_units(&self) -> u64 {
        u64::from(self.ftl.geometry.logical_units)
    }

    /// Units that the flash holds: logical space and over-provisioning.
    pub fn physical_units(&self) -> u64 {
        u64::from(self.ftl.geometry.physical_units())
    }

    /// Units that are allocated and erased together.
    pub fn superblock_units(&self) -> u64 {
        u64::from(self.ftl.geometry.superblock_units)
    }

    /// What the device was made from.
    pub fn config(&self) -> &SsdConfig {
        &self.config
    }

    /// Whether TRIM is a queued command. If not, a caller that keeps a queue must drain it first.
    pub fn trim_is_queued(&self) -> bool {
        self.config.trim.is_queued()
    }

    /// Whether a range lies on the device.
    ///
    /// # Errors
    ///
    /// [`AddressError::Outside`].
    pub fn check(&self, range: UnitRange) -> Result<(), AddressError> {
        let capacity = self.capacity_units();
        let inside = range.start.0.checked_add(range.units).is_some_and(|end| end <= capacity);
        if inside {
            return Ok(());
        }
        Err(AddressError::Outside { start: range.start.0, units: range.units, capacity })
    }

    /// Whether a TRIM command has a shape that the device takes.
    ///
    /// # Errors
    ///
    /// A range outside, too many ranges, or one too long.
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

    /// Writes a range. Returns when it is acknowledged: when it is in the write cache, or without one when it
    /// is programmed.
    pub fn write(&mut self, now: SimTime, range: UnitRange) -> SimTime {
        self.write_content(now, range, Content::default())
    }

    /// [`Ssd::write`] of data of a kind, which reads of these units must return from now on.
    pub fn write_content(&mut self, now: SimTime, range: UnitRange, content: Content) -> SimTime {
        let tag = content.tag();
        debug_assert_eq!(self.check(range), Ok(()));
        let start = self.begin(now);
        let indices = self.ftl.map.clamp(range);
        let units = indices.len() as u64;
        let decoded = self.controller(start, self.config.controller.write_overhead_ns);
        let arrived = self.transfer(decoded, units, true);
        let mut acknowledged = arrived;
        self.ftl.stats.write_commands += 1;
        self.ftl.stats.host_units_written += units;
        if !self.trimmed_tags.is_empty() {
            self.trimmed_tags[indices.clone()].fill(None);
        }
        for lpn in indices {
            let in_cache = self.ftl.cache.admit(acknowledged);
            acknowledged = in_cache;
            let mut ready = in_cache;
            if self.mover_unit_ns != 0 {
                self.mover_free_at = self.mover_free_at.max(in_cache) + self.mover_unit_ns;
                ready = self.mover_free_at;
                self.ftl.stats.busy_ns.write_path += self.mover_unit_ns;
            }
            self.ftl.write(start, ready, lpn as u32, tag);
        }
        if self.config.cache.bytes == 0 {
            self.ftl.pad(start);
            acknowledged = acknowledged.max(self.ftl.cache.drained_at());
            self.ftl.cache.settle(start);
        }
        self.complete(start, acknowledged)
    }

    /// Reads a range. Returns when the host has the data.
    pub fn read(&mut self, now: SimTime, range: UnitRange) -> SimTime {
        debug_assert_eq!(self.check(range), Ok(()));
        let start = self.begin(now);
        let indices = self.ftl.map.clamp(range);
        let units = indices.len() as u64;
        let decoded = self.controller(start, self.config.controller.read_overhead_ns);
        self.ftl.stats.read_commands += 1;
        self.ftl.stats.host_units_read += units;
        // Units of one stripe that follow each other are read together.
        let (mut first_ready, mut last_ready) = (u64::MAX, decoded);
        let mut run: Option<(u32, u32)> = None;
        for lpn in indices {
            let ppn = self.ftl.map.l2p[lpn];
            if ppn == NONE {
                self.ftl.stats.host_units_read_unmapped += 1;
                first_ready = first_ready.min(decoded);
                continue;
            }
            if self.ftl.in_memory(ppn, start) {
                self.ftl.stats.host_units_read_cached += 1;
                first_ready = first_ready.min(decoded);
                continue;
            }
            let stripe = ppn / self.ftl.geometry.stripe_units;
            run = match run {
                Some((at, count)) if at == stripe => Some((at, count + 1)),
                other => {
                    let ready = self.read_run(other, start, decoded);
                    first_ready = first_ready.min(ready.unwrap_or(u64::MAX));
                    last_ready = last_ready.max(ready.unwrap_or(0));
                    Some((stripe, 1))
                }
            };
        }
        if let Some(ready) = self.read_run(run, start, decoded) {
            first_ready = first_ready.min(ready);
            last_ready = last_ready.max(ready);
        }
        // The data stream out from the first page on; the last unit cannot leave before it is there.
        let streamed = self.transfer(first_ready.min(last_ready), units, false);
        let tail = if units == 0 { 0 } else { self.link_unit_ns };
        self.complete(start, streamed.max(last_ready + tail))
    }

    fn read_run(&mut self, run: Option<(u32, u32)>, now: u64, ready: u64) -> Option<u64> {
        let (stripe, units) = run?;
        let (superblock, offset) = self.ftl.map.split(stripe * self.ftl.geometry.stripe_units);
        let at = self.ftl.place(superblock, offset);
        Some(self.ftl.nand.read(at, now, ready, units, &mut self.ftl.stats.busy_ns))
    }

    /// Reads a part of one unit: as long as a unit in the flash, shorter on the link.
    pub fn read_part(&mut self, now: SimTime, part: SectorRange) -> SimTime {
        self.read(now, part.units())
    }

    /// Writes a part of one unit.
    pub fn write_part(&mut self, now: SimTime, part: SectorRange, content: Content) -> SimTime {
        self.write_content(now, part.units(), content)
    }

    /// One TRIM command. Returns when it is acknowledged.
    ///
    /// The caller keeps to `trim.max_ranges` and `trim.max_units_per_range` ([`Ssd::check_trim`]).
    pub fn trim(&mut self, now: SimTime, ranges: &[UnitRange]) -> SimTime {
        debug_assert_eq!(self.check_trim(ranges), Ok(()));
        let mut start = self.begin(now);
        let exclusive = !self.trim_is_queued();
        if exclusive {
            start = start.max(self.all_done_at);
        }
        let cost = self.config.trim.cost_ns(ranges);
        self.ftl.stats.trim.commands += 1;
        self.ftl.stats.trim.ranges += ranges.len() as u64;
        self.ftl.stats.busy_ns.trim += cost;
        self.ftl.stats.trim.units_requested += ranges.iter().map(|range| range.units).sum::<u64>();
        for &range in ranges {
            self.keep_trimmed_tags(self.config.trim.granules(range));
        }
        let granules = ranges.iter().map(|&range| self.config.trim.granules(range));
        self.ftl.stats.trim.units_invalidated += self.ftl.unmap(granules);
        let received = self.transfer(start, 0, true);
        let accepted = match self.config.trim.place {
            TrimPlace::BeforeAck => {
                let end = received.max(self.controller_free_at).saturating_add(cost);
                self.controller_free_at = end;
                end
            }
            TrimPlace::Background => {
                self.trim_backlog_until = self.trim_backlog_until.max(received).saturating_add(cost);
                received
            }
        };
        let end = accepted.saturating_add(self.config.trim.latency_per_command_ns);
        if exclusive {
            self.exclusive_until = end;
        }
        self.all_done_at = self.all_done_at.max(end);
        SimTime(end)
    }

    /// Makes everything acknowledged so far durable. Returns when it is.
    pub fn flush(&mut self, now: SimTime) -> SimTime {
        let start = self.begin(now);
        self.ftl.stats.flush_commands += 1;
        self.ftl.stats.busy_ns.flush += self.config.cache.flush_ns;
        let received = self.transfer(start, 0, true);
        let mut drained = received;
        if self.config.cache.volatile {
            self.ftl.pad(start);
            drained = drained.max(self.ftl.cache.drained_at());
        }
        let end = drained + self.config.cache.flush_ns;
        self.all_done_at = self.all_done_at.max(end);
        SimTime(end)
    }

    /// Erases the device, as ATA SECURITY ERASE UNIT and NVMe Format do. Returns when it is done.
    pub fn secure_erase(&mut self, now: SimTime) -> SimTime {
        let start = self.begin(now).max(self.all_done_at);
        let received = self.transfer(start, 0, true);
        let end = self.ftl.erase_all(received);
        self.trimmed_tags.fill(None);
        self.trim_backlog_until = 0;
        self.exclusive_until = end;
        self.all_done_at = end;
        SimTime(end)
    }

    /// Tells the device that the file system holds nothing in a range: what the policy `ideal` assumes. No
    /// command, no time, and not counted as TRIM.
    pub fn inform_free(&mut self, range: UnitRange) {
        debug_assert_eq!(self.check(range), Ok(()));
        self.keep_trimmed_tags(range);
        self.ftl.stats.units_informed_free += self.ftl.unmap(std::iter::once(range));
    }

    /// Whether the device holds data for a unit, as far as it knows. Outside the device: no.
    pub fn is_mapped(&self, lpn: Lpn) -> bool {
        self.slot(lpn).is_some()
    }

    /// Units for which the device holds data.
    pub fn mapped_units(&self) -> u64 {
        self.ftl.map.mapped
    }

    /// What a read of a unit returns: the tag of the last write, or what `trim.read_after` says of trimmed
    /// units (`None` stands for zeros). Always `None` unless `track_tags` is set.
    pub fn tag(&self, lpn: Lpn) -> Option<u32> {
        match self.slot(lpn) {
            Some(ppn) => self.ftl.map.tag(ppn),
            None => self.trimmed_tags.get(usize::try_from(lpn.0).ok()?).copied().flatten(),
        }
    }

    /// What was counted so far.
    pub fn stats(&self) -> &SsdStats {
        &self.ftl.stats
    }

    /// How worn the flash is now.
    pub fn wear(&self) -> Wear {
        let erases = self.ftl.map.blocks.iter().map(|b| b.erases);
        let total: u64 = erases.clone().map(u64::from).sum();
        Wear {
            min: erases.clone().min().unwrap_or(0),
            mean: total as f64 / self.ftl.map.blocks.len() as f64,
            max: erases.max().unwrap_or(0),
        }
    }

    /// Superblocks in the free pool now.
    pub fn free_superblocks(&self) -> u32 {
        self.ftl.free_count
    }

    /// Bytes that the model holds for this device: maps, bitmap, block data and lists; tags aside.
    pub fn memory_bytes(&self) -> u64 {
        self.ftl.memory_bytes()
    }

    fn slot(&self, lpn: Lpn) -> Option<u32> {
        let ppn = *self.ftl.map.l2p.get(usize::try_from(lpn.0).ok()?)?;
        (ppn != NONE).then_some(ppn)
    }

    /// Remembers what was in a range before it is trimmed, if a read may still return it.
    fn keep_trimmed_tags(&mut self, range: UnitRange) {
        if self.trimmed_tags.is_empty() || self.config.trim.read_after == ReadAfterTrim::Zeros {
            return;
        }
        for lpn in self.ftl.map.clamp(range) {
            // Undefined: every other unit reads as zeros, so that nobody comes to rely on either.
            let zeros = self.config.trim.read_after == ReadAfterTrim::Undefined && lpn % 2 == 0;
            if let Some(ppn) = self.slot(Lpn(lpn as u64)) {
                self.trimmed_tags[lpn] = if zeros { None } else { self.ftl.map.tag(ppn) };
            }
        }
    }

    /// Does the collection that idle time up to `now` allows. Without this call it is done, and counted, when the
    /// next command comes.
    pub fn catch_up(&mut self, now: SimTime) {
        self.begin(now);
    }

    /// The instant at which a command that is handed over at `now` starts; idle time before it is used up.
    #[inline]
    fn begin(&mut self, now: SimTime) -> u64 {
        debug_assert!(now.0 >= self.now, "commands come in the order of time");
        self.now = self.now.max(now.0);
        if self.config.gc.idle {
            let idle_from = self.all_done_at.saturating_add(self.config.gc.idle_threshold_ns);
            if idle_from < self.now {
                self.ftl.collect_idle(idle_from, self.now, self.config.gc.idle_free_superblocks);
            }
        }
        self.now.max(self.exclusive_until)
    }

    /// Passes the controller, which takes one command at a time.
    #[inline]
    fn controller(&mut self, start: u64, overhead_ns: u64) -> u64 {
        self.controller_free_at = self.controller_free_at.max(start) + overhead_ns;
        self.ftl.stats.busy_ns.controller += overhead_ns;
        self.controller_free_at
    }

    /// A command's time on the host link.
    #[inline]
    fn transfer(&mut self, ready: u64, units: u64, inwards: bool) -> u64 {
        let duration = self.config.link.overhead_per_command_ns + units * self.link_unit_ns;
        self.ftl.stats.busy_ns.link += duration;
        let link = if inwards || self.half_duplex { &mut self.link_in } else { &mut self.link_out };
        link.reserve(self.now, ready, duration)
    }

    /// Ends a read or a write; slower while background TRIM work is left.
    #[inline]
    fn complete(&mut self, start: u64, end: u64) -> SimTime {
        let mut end = end;
        if start < self.trim_backlog_until {
            end += (end - start) * u64::from(self.config.trim.slowdown_percent) / 100;
        }
        self.all_done_at = self.all_done_at.max(end);
        SimTime(end)
    }
}
