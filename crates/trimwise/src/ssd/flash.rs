//! What lies below every mapping: the write cache, the way from it to the flash, the dies, and the counts.

use super::cache::WriteCache;
use super::config::SsdConfig;
use super::geometry::Geometry;
use super::stats::SsdStats;
use super::timing::{Nand, Place, unit_ns};
use crate::units::UNIT_BYTES;

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
    pub fn slow_down(&mut self, percent: u32) {
        self.path_unit_ns = match percent {
            0 => self.mover_unit_ns,
            _ => self.mover_unit_ns.max(self.link_unit_ns) * u64::from(100 + percent) / 100,
        };
    }

    /// Takes one host unit that is there at `arrived` into the cache. Returns when it is in it, and when it is at hand
    /// for a program.
    #[inline]
    pub fn admit(&mut self, arrived: u64) -> (u64, u64) {
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

    /// The die and the channel of a slot.
    #[inline]
    pub fn place(&self, superblock: u32, offset: u32) -> Place {
        self.place_of_die(self.geometry.die(superblock, offset / self.geometry.stripe_units))
    }

    /// A die and its channel, outside of SLC mode.
    #[inline]
    pub fn place_of_die(&self, die: u32) -> Place {
        Place { die, channel: self.geometry.channel(die), slc: false }
    }
}
