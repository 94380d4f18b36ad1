//! What lies below every mapping: the write cache, the way from it to the flash, the dies, and the counts.

use super::cache::WriteCache;
use super::config::SsdConfig;
use super::geometry::Geometry;
use super::stats::SsdStats;
use super::timing::{Nand, Place, unit_ns};
use crate::units::UNIT_BYTES;

/// What waits to be programmed as one stripe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stripe {
    /// Host units that leave the write cache with it: those that end in it.
    pub host_units: u32,
    /// Whether it holds any host data.
    pub holds_host: bool,
    /// When the last of it is at hand.
    pub ready: u64,
}

impl Stripe {
    /// Adds a host unit that is at hand at `ready`.
    #[inline]
    pub(crate) fn add_host_unit(&mut self, ready: u64) {
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
    /// When the path from the write cache to the flash is free, and its time for a unit (0: no limit).
    mover_free_at: u64,
    mover_unit_ns: u64,
    /// The time that it takes now.
    path_unit_ns: u64,
    link_unit_ns: u64,
    pub stats: SsdStats,
}

impl Flash {
    pub fn new(config: &SsdConfig, geometry: Geometry) -> Self {
        // Without a cache a write is acknowledged when it is programmed, and there is always room for it.
        let cache_units = if config.cache.bytes == 0 { u64::MAX } else { config.cache.bytes / UNIT_BYTES };
        let mover_unit_ns = config.controller.write_bytes_per_s.map_or(0, unit_ns);
        Self {
            nand: Nand::new(config, &geometry),
            cache: WriteCache::new(cache_units),
            mover_free_at: 0,
            mover_unit_ns,
            path_unit_ns: mover_unit_ns,
            link_unit_ns: unit_ns(config.link.bytes_per_s),
            stats: SsdStats::default(),
            geometry,
        }
    }

    /// From now on the path to the flash takes so many percent longer, and at least as long as the link: work in the
    /// background shares it. 0: it has the path to itself.
    #[inline]
    pub(crate) fn slow_down(&mut self, percent: u32) {
        self.path_unit_ns = match percent {
            0 => self.mover_unit_ns,
            _ => self.mover_unit_ns.max(self.link_unit_ns) * u64::from(100 + percent) / 100,
        };
    }

    /// Takes one host unit that is there at `arrived` into the cache. Returns when it is in it, and when it is at hand
    /// for a program.
    #[inline]
    pub(crate) fn admit(&mut self, arrived: u64) -> (u64, u64) {
        let in_cache = self.cache.admit(arrived);
        (in_cache, self.along_the_path(in_cache))
    }

    /// Moves one host unit along the same path that needs no place in cache or flash. Returns when it has been taken.
    #[inline]
    pub fn pass(&mut self, arrived: u64) -> u64 {
        self.along_the_path(arrived);
        arrived
    }

    #[inline]
    fn along_the_path(&mut self, from: u64) -> u64 {
        if self.path_unit_ns == 0 {
            return from;
        }
        self.mover_free_at = self.mover_free_at.max(from) + self.path_unit_ns;
        self.stats.busy_ns.write_path += self.path_unit_ns;
        self.mover_free_at
    }

    /// Reserves the program of a stripe and counts its time. `first` is the number of its
    /// first slot in the whole device. Returns when the stripe is programmed.
    pub fn program(&mut self, at: Place, first: u32, now: u64, stripe: Stripe) -> u64 {
        let Stripe { host_units, holds_host, ready } = stripe;
        let done = self.nand.program(at, now, ready.max(now), self.geometry.stripe_units);
        let t_prog_ns = self.nand.t_prog_ns(at);
        match holds_host {
            true => self.stats.busy_ns.program_host += t_prog_ns,
            false => self.stats.busy_ns.program_gc += t_prog_ns,
        }
        if host_units > 0 {
            self.cache.issued(done, first, host_units);
        }
        done
    }

    /// Erases a superblock. Returns when the last of its dies has erased its part.
    pub fn erase(&mut self, superblock: u32, now: u64) -> u64 {
        let mut end = now;
        for i in 0..self.geometry.dies_per_superblock {
            let die = self.geometry.die(superblock, i);
            end = end.max(self.nand.erase(die, now, &mut self.stats.busy_ns));
        }
        self.stats.superblock_erases += 1;
        self.stats.block_erases += u64::from(self.geometry.blocks_per_superblock);
        end
    }

    /// The die and the channel of a slot.
    #[inline]
    pub fn place(&self, superblock: u32, offset: u32) -> Place {
        self.place_of_die(self.geometry.die(superblock, offset / self.geometry.stripe_units))
    }

    /// A die and its channel, outside of SLC mode.
    #[inline]
    pub(crate) fn place_of_die(&self, die: u32) -> Place {
        Place { die, channel: self.geometry.channel(die), slc: false }
    }
}
