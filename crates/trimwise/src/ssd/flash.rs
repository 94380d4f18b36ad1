//! The layer below every mapping: the write cache, the path from it to the flash, the dies, and the counts.

use super::address::{Die, Ppn, Slot, Superblock};
use super::audit::{AuditError, ensure};
use super::cache::WriteCache;
use super::config::SsdConfig;
use super::geometry::Geometry;
use super::stats::SsdStats;
use super::timing::{Nand, Place, unit_time};
use crate::units::{SimDuration, SimTime, UNIT_BYTES};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stripe {
    /// Host units that end in this stripe, and so leave the write cache with it.
    pub host_units: u32,
    pub holds_host: bool,
    pub ready: SimTime,
}

impl Stripe {
    pub(super) const EMPTY: Self = Self { host_units: 0, holds_host: false, ready: SimTime::ZERO };

    #[inline]
    pub(crate) fn add_host_unit(&mut self, ready: SimTime) {
        self.host_units += 1;
        self.holds_host = true;
        self.ready = self.ready.max(ready);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Flash {
    pub geometry: Geometry,
    pub nand: Nand,
    pub cache: WriteCache,
    /// When the path from the write cache to the flash is free, and how long it takes for a unit (0: no limit).
    mover_free_at: SimTime,
    mover_unit: SimDuration,
    /// Time that a unit takes on the path at present.
    path_unit: SimDuration,
    link_unit: SimDuration,
    pub stats: SsdStats,
}

impl Flash {
    pub fn new(config: &SsdConfig, geometry: Geometry) -> Self {
        // Without a cache a write is acknowledged when it is programmed, so there is always room for it.
        let cache_units = if config.cache.bytes == 0 { u64::MAX } else { config.cache.bytes / UNIT_BYTES };
        let mover_unit = config.controller.write_bytes_per_s.map_or(SimDuration::ZERO, unit_time);
        Self {
            nand: Nand::new(config, &geometry),
            cache: WriteCache::new(cache_units),
            mover_free_at: SimTime::ZERO,
            mover_unit,
            path_unit: mover_unit,
            link_unit: unit_time(config.link.bytes_per_s),
            stats: SsdStats::default(),
            geometry,
        }
    }

    /// Slows the path to the flash down by this percentage, and makes it no faster than the link, since background work
    /// shares it. With 0 the foreground has the path to itself.
    #[inline]
    pub(crate) fn slow_down(&mut self, percent: u32) {
        self.path_unit = match percent {
            0 => self.mover_unit,
            _ => self.mover_unit.max(self.link_unit) * u64::from(100 + percent) / 100,
        };
    }

    /// Takes one host unit that arrives at `arrived` into the cache. Returns when it is in the cache, and when it can
    /// be programmed.
    #[inline]
    pub(crate) fn admit(&mut self, arrived: SimTime) -> (SimTime, SimTime) {
        let in_cache = self.cache.admit(arrived);
        (in_cache, self.along_the_path(in_cache))
    }

    /// Moves one host unit along the path without giving it room in cache or flash. Returns when it has been taken.
    #[inline]
    pub fn pass(&mut self, arrived: SimTime) -> SimTime {
        self.along_the_path(arrived);
        arrived
    }

    #[inline]
    fn along_the_path(&mut self, from: SimTime) -> SimTime {
        if self.path_unit == SimDuration::ZERO {
            return from;
        }
        self.mover_free_at = self.mover_free_at.max(from) + self.path_unit;
        self.stats.busy_ns.write_path += self.path_unit.0;
        self.mover_free_at
    }

    /// Reserves the program of the stripe whose first slot is `first`. Returns the end of the program.
    pub fn program(&mut self, at: Place, first: Ppn, now: SimTime, stripe: Stripe) -> SimTime {
        let Stripe { host_units, holds_host, ready } = stripe;
        let busy = &mut self.stats.busy_ns;
        let busy_ns = if holds_host { &mut busy.program_host } else { &mut busy.program_gc };
        let done = self.nand.program(at, now, ready.max(now), self.geometry.stripe_units, busy_ns);
        if host_units > 0 {
            self.cache.issued(done, first, host_units);
        }
        done
    }

    pub fn program_parity(&mut self, at: Place, now: SimTime, ready: SimTime) {
        let busy_ns = &mut self.stats.busy_ns.program_gc;
        self.nand.program(at, now, ready.max(now), self.geometry.stripe_units, busy_ns);
    }

    /// Erases a superblock. Returns when the last of its dies has erased its part.
    pub fn erase(&mut self, superblock: Superblock, now: SimTime) -> SimTime {
        let mut end = now;
        for die in self.geometry.dies_of(superblock) {
            end = end.max(self.nand.erase(die, now, &mut self.stats.busy_ns.erase));
        }
        self.stats.superblock_erases += 1;
        self.stats.block_erases += u64::from(self.geometry.blocks_per_superblock);
        end
    }

    #[inline]
    pub fn place(&self, slot: Slot) -> Place {
        self.place_of_die(self.geometry.die(slot.superblock, slot.offset / self.geometry.stripe_units))
    }

    #[inline]
    pub(crate) fn place_of_die(&self, die: Die) -> Place {
        Place { die, channel: self.geometry.channel(die), slc: false }
    }

    pub fn audit_counts(&self, by_cause: u64, held: u64, erased: u64, erases: u64) -> Result<(), AuditError> {
        ensure!(
            by_cause == held + erased,
            "{by_cause} slots written by cause; superblocks hold {held}, and {erased} were erased"
        );
        let counted = self.stats.superblock_erases;
        ensure!(erases == counted, "{erases} erases of superblocks, {counted} counted");
        Ok(())
    }

    pub fn audit_host_units(&self) -> Result<(), AuditError> {
        let (written, placed) = (self.stats.host_units_written, self.stats.nand_units.host);
        ensure!(placed == written, "{written} host units written, {placed} placed");
        Ok(())
    }
}
