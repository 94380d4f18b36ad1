//! Layout of the flash: superblocks, stripes, dies and channels.
//!
//! The FTL sees an array of *superblocks*: erase blocks at the same place of several planes, allocated and erased
//! together. A superblock is filled *stripe* by stripe. A stripe is the amount that one die programs at once: one page
//! in each of the die's planes that belong to the superblock. Successive stripes go to successive dies, and successive
//! dies lie on different channels, so that a sequential write keeps all of them busy.
//!
//! With parity, one stripe after each group holds the exclusive or of the group; the last group of a superblock may be
//! shorter. It has a die, but no slots: the FTL counts and numbers stripes of data alone.
//!
//! A superblock that spans only some of the dies belongs to one of several *lanes*; superblock `s` is in lane `s %
//! lanes`.

use super::address::{Channel, Die, Superblock};
use super::config::{ConfigError, GeometryConfig, SsdConfig, count, refuse, require};
use crate::units::UNIT_BYTES;

#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub channels: u32,
    pub dies: u32,
    pub lanes: u32,
    pub dies_per_superblock: u32,
    /// Lanes that share a die; above 1 only if a superblock is a part of a die.
    lanes_per_die: u32,
    /// Stripes of data that share a parity; 0 without parity.
    parity_group: u32,
    pub stripe_units: u32,
    pub superblock_units: u32,
    pub superblocks: u32,
    pub blocks_per_superblock: u32,
    pub logical_units: u32,
    pub map_units: u32,
}

/// Logical units whose places fit in one unit of the map, 4 bytes each.
pub(super) const MAP_PART_UNITS: u32 = UNIT_BYTES as u32 / 4;

impl GeometryConfig {
    pub(super) fn dies_per_superblock(&self) -> u32 {
        (self.superblock_planes / self.planes_per_die).max(1)
    }

    fn stripe_units(&self) -> u32 {
        self.superblock_planes.min(self.planes_per_die) * (self.page_bytes / UNIT_BYTES as u32)
    }

    /// Returns the units of data in `pages` pages of each block of a superblock.
    pub(super) fn units_in(&self, pages: u32) -> u64 {
        let stripes = u64::from(self.dies_per_superblock()) * u64::from(pages);
        let parity = self.parity_one_in.map_or(0, |n| stripes.div_ceil(n.into()));
        (stripes - parity) * u64::from(self.stripe_units())
    }
}

impl Geometry {
    pub fn new(config: &SsdConfig) -> Result<Self, ConfigError> {
        let g = &config.geometry;
        let dies = g.channels * g.dies_per_channel;
        let planes = u64::from(dies) * u64::from(g.planes_per_die);
        let gang = g.superblock_planes;
        let fits_dies =
            gang != 0 && (gang.is_multiple_of(g.planes_per_die) || g.planes_per_die.is_multiple_of(gang));
        if !fits_dies || !planes.is_multiple_of(u64::from(gang)) {
            return Err(refuse(
                "geometry.superblock_planes",
                gang,
                format!(
                    "a divisor of all {planes} planes that is whole dies of {} planes, or an equal part of one",
                    g.planes_per_die
                ),
            ));
        }
        let lanes = (planes / u64::from(gang)) as u32;
        if let Some(n) = g.parity_one_in {
            count("geometry.parity_one_in", n, 2, g.dies_per_superblock() * g.pages_per_block)?;
        }
        let superblock_units = g.units_in(g.pages_per_block);
        let logical = config.capacity_units();
        require(logical > 0, "capacity_bytes", config.capacity_bytes, "at least one unit of 4096 bytes")?;
        let superblocks = superblocks(config, superblock_units, lanes)?;
        let physical = superblocks * superblock_units;
        let expected = format!("at most the physical space, {} bytes", physical * UNIT_BYTES);
        require(logical <= physical, "capacity_bytes", config.capacity_bytes, expected)?;
        let map_units = config.mapping.map_cache().map_or(0, |_| logical.div_ceil(u64::from(MAP_PART_UNITS)));
        let spare_wanted = Self::spare_superblocks(config);
        if (logical + map_units).div_ceil(superblock_units) + spare_wanted > superblocks {
            let map = if map_units > 0 { ", and for its map" } else { "" };
            return Err(refuse(
                "capacity_bytes",
                config.capacity_bytes,
                format!(
                    "room for {spare_wanted} superblocks of {} bytes in addition (open blocks and the free pool){map}; \
                     the physical space is {} bytes",
                    superblock_units * UNIT_BYTES,
                    physical * UNIT_BYTES
                ),
            ));
        }
        Ok(Self {
            channels: g.channels,
            dies,
            lanes,
            dies_per_superblock: g.dies_per_superblock(),
            lanes_per_die: (g.planes_per_die / gang).max(1),
            parity_group: g.parity_one_in.map_or(0, |n| n - 1),
            stripe_units: g.stripe_units(),
            superblock_units: superblock_units as u32,
            superblocks: superblocks as u32,
            blocks_per_superblock: gang,
            logical_units: logical as u32,
            map_units: map_units as u32,
        })
    }

    /// Returns the superblocks required in addition to those that the data and the map fill: the frontiers, one that
    /// only the collector may take, and one whose invalid units guarantee that there is always something to gain. A map
    /// in the flash has a frontier of its own. An SLC cache may have one superblock more than its share for the length
    /// of a stripe.
    pub fn spare_superblocks(config: &SsdConfig) -> u64 {
        let gc = &config.gc;
        (u64::from(gc.host_frontiers) + 3).max(u64::from(gc.free_superblocks_min) + 2)
            + u64::from(config.mapping.map_cache().is_some())
            + u64::from(config.slc.is_some())
    }

    /// Returns the superblocks that data and map fill when the device is full.
    pub(crate) fn data_superblocks(&self) -> u64 {
        (u64::from(self.logical_units) + u64::from(self.map_units)).div_ceil(u64::from(self.superblock_units))
    }

    #[inline]
    pub fn die(&self, superblock: Superblock, stripe: u32) -> Die {
        let parity = stripe.checked_div(self.parity_group).unwrap_or(0);
        self.die_of_any(superblock, stripe + parity)
    }

    /// Returns the die of the parity that is programmed after a stripe; `None` if its group has more stripes.
    #[inline]
    pub fn parity_after(&self, superblock: Superblock, stripe: u32, is_last: bool) -> Option<Die> {
        let before = stripe.checked_div(self.parity_group)?;
        let completes = is_last || (stripe + 1).is_multiple_of(self.parity_group);
        completes.then(|| self.die_of_any(superblock, stripe + before + 1))
    }

    /// Returns the die of a stripe, counted with those of parity.
    #[inline]
    fn die_of_any(&self, superblock: Superblock, stripe: u32) -> Die {
        let within = stripe % self.dies_per_superblock;
        if self.lanes == 1 {
            return Die(within);
        }
        Die(superblock.0 % self.lanes / self.lanes_per_die * self.dies_per_superblock + within)
    }

    pub fn dies_of(&self, superblock: Superblock) -> impl Iterator<Item = Die> + use<> {
        let first = self.die(superblock, 0).0;
        (first..first + self.dies_per_superblock).map(Die)
    }

    #[inline]
    pub fn channel(&self, die: Die) -> Channel {
        Channel(die.0 % self.channels)
    }

    pub fn physical_units(&self) -> u32 {
        self.superblocks * self.superblock_units
    }
}

fn superblocks(config: &SsdConfig, superblock_units: u64, lanes: u32) -> Result<u64, ConfigError> {
    let logical = config.capacity_units();
    let wanted = config.over_provisioning_percent.map(|percent| {
        // u128: a capacity near 2^64 must give an error and not an overflow.
        let blocks =
            percent.on_top_of(logical).div_ceil(u128::from(superblock_units)).div_ceil(u128::from(lanes));
        u64::try_from(blocks).unwrap_or(u64::MAX)
    });
    let per_lane = match (config.geometry.blocks_per_plane, wanted) {
        (None, None) => {
            return Err(refuse(
                "over_provisioning_percent",
                "nothing",
                "this or geometry.blocks_per_plane, so that the physical space is known",
            ));
        }
        (Some(blocks), Some(wanted)) if u64::from(blocks) != wanted => {
            return Err(refuse(
                "geometry.blocks_per_plane",
                blocks,
                format!(
                    "{wanted}, which over_provisioning_percent asks for, or only one of the two settings"
                ),
            ));
        }
        (Some(blocks), _) => u64::from(blocks),
        (None, Some(wanted)) => wanted,
    };
    let superblocks = per_lane.saturating_mul(u64::from(lanes));
    let fits = superblocks.saturating_mul(superblock_units) < u64::from(u32::MAX);
    let expected = "a device of less than 2^32 - 1 physical units of 4096 bytes";
    require(fits, "capacity_bytes", config.capacity_bytes, expected)?;
    Ok(superblocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four dies of one plane, pages of one unit: a stripe is a unit.
    fn geometry(pages: u32, parity_one_in: Option<u32>) -> Geometry {
        let mut config = SsdConfig { capacity_bytes: 100 * UNIT_BYTES, ..SsdConfig::default() };
        config.over_provisioning_percent = Some(100.into());
        config.geometry = GeometryConfig { parity_one_in, ..GeometryConfig::flat(4, pages, 4096) };
        Geometry::new(&config).unwrap()
    }

    #[test]
    fn parity_follows_each_group_on_the_next_die() {
        let geometry = geometry(2, Some(3));
        // Eight stripes: 0 1 P 2 3 P 4 P.
        assert_eq!(geometry.superblock_units, 5);
        let superblock = Superblock(0);
        let dies: Vec<u32> = (0..5).map(|stripe| geometry.die(superblock, stripe).0).collect();
        assert_eq!(dies, [0, 1, 3, 0, 2]);
        let parity = |stripe| geometry.parity_after(superblock, stripe, stripe == 4).map(|die| die.0);
        assert_eq!([0, 1, 2, 3, 4].map(parity), [None, Some(2), None, Some(1), Some(3)]);
    }

    #[test]
    fn without_parity_every_stripe_holds_data() {
        let geometry = geometry(2, None);
        assert_eq!(geometry.superblock_units, 8);
        assert!((0..8).all(|stripe| geometry.parity_after(Superblock(0), stripe, stripe == 7).is_none()));
    }
}
