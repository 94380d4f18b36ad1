//! Shrinks a drive, for tests of behaviour that need a drive full of data.

use super::{ConfigError, GcConfig, Geometry, MappingConfig, SsdConfig};
use crate::units::UNIT_BYTES;

/// Minimum number of superblocks of a shrunk drive. With fewer, the over-provisioning leaves nothing for the collector.
const SUPERBLOCKS: u64 = 256;

impl SsdConfig {
    /// Returns this drive with a capacity of at most `capacity_bytes`: the same dies, rates and shares of space, with
    /// fewer pages in a block and fewer blocks. Settings that count blocks or pages shrink with them: the time of an
    /// erase (with the pages of a block), logs, SLC cache, thresholds of free superblocks, caches for the map and for
    /// writes.
    ///
    /// # Errors
    /// If no drive of that size can resemble this one.
    pub fn shrunk(&self, capacity_bytes: u64) -> Result<Self, ConfigError> {
        self.with_superblocks(capacity_bytes, SUPERBLOCKS)
    }

    /// Returns this drive with a capacity of at most `capacity_bytes` and as many superblocks as before, as far as a
    /// block can have fewer pages. All shares of the drive stay: spare space, free superblocks, SLC cache. So a load that
    /// knows no files meets the same drive, while files meet superblocks that become free sooner.
    ///
    /// # Errors
    /// If no drive of that size can resemble this one.
    pub fn in_proportion(&self, capacity_bytes: u64) -> Result<Self, ConfigError> {
        let superblock_bytes = u64::from(self.geometry()?.superblock_units) * UNIT_BYTES;
        self.with_superblocks(capacity_bytes, (self.capacity_bytes / superblock_bytes).max(1))
    }

    /// Shrinks blocks as long as `superblocks` hold the capacity, and then their number.
    fn with_superblocks(&self, capacity_bytes: u64, superblocks: u64) -> Result<Self, ConfigError> {
        if capacity_bytes >= self.capacity_bytes {
            return Ok(self.clone());
        }
        let old = self.geometry()?;
        let mut config = self.clone();
        config.capacity_bytes = capacity_bytes / UNIT_BYTES * UNIT_BYTES;
        let geometry = &mut config.geometry;
        let row_bytes = u64::from(geometry.superblock_planes) * u64::from(geometry.page_bytes);
        let pages = (capacity_bytes / superblocks / row_bytes).max(4);
        let pages = pages.min(u64::from(geometry.pages_per_block)) as u32;
        let scaled = |value: u64, new: u64, old: u64| {
            (u128::from(value) * u128::from(new) / u128::from(old.max(1))) as u64
        };
        config.nand.t_erase_ns =
            scaled(config.nand.t_erase_ns, pages.into(), geometry.pages_per_block.into()).max(1);
        geometry.pages_per_block = pages;
        let stripes = geometry.dies_per_superblock() * pages;
        geometry.parity_one_in = geometry.parity_one_in.map(|n| n.min(stripes)).filter(|&n| n > 1);
        // The same share of physical space.
        let superblock_bytes = geometry.units_in(pages) * UNIT_BYTES;
        let physical = u128::from(old.physical_units()) * u128::from(UNIT_BYTES);
        let wanted = physical * u128::from(config.capacity_bytes) / u128::from(self.capacity_bytes);
        let lanes = u64::from(old.lanes);
        let superblocks = (wanted as u64).div_ceil(superblock_bytes).next_multiple_of(lanes);
        config.over_provisioning_percent = None;
        config.geometry.blocks_per_plane = Some((superblocks / lanes) as u32);
        let superblocks_before = u64::from(old.superblocks);
        let fewer = |count: u32, least: u32| {
            (scaled(count.into(), superblocks, superblocks_before) as u32).max(least.min(count))
        };
        config.gc.free_superblocks_min = fewer(self.gc.free_superblocks_min, 3);
        config.gc.idle_free_superblocks =
            fewer(self.gc.idle_free_superblocks, 6).max(config.gc.free_superblocks_min);
        let smaller = |bytes: u64| scaled(bytes, capacity_bytes, self.capacity_bytes);
        match &mut config.mapping {
            MappingConfig::Page { map_cache: Some(cache), .. } => {
                cache.bytes = smaller(cache.bytes).max(u64::from(self.geometry.page_bytes));
            }
            MappingConfig::Block(block) => block.log_superblocks = fewer(block.log_superblocks, 1),
            MappingConfig::Page { map_cache: None, .. } | MappingConfig::Compressing(_) => {}
        }
        if let Some(slc) = &mut config.slc {
            slc.static_superblocks = fewer(slc.static_superblocks, 1);
            slc.dynamic_superblocks_max = slc.dynamic_superblocks_max.map(|most| fewer(most, 1));
        }
        // The collector's own superblocks do not shrink. Of the others, all but one may be cache.
        let geometry = Geometry::new(&config)?;
        let taken = geometry.data_superblocks() + Geometry::spare_superblocks(&config) + 1;
        let left = u64::from(geometry.superblocks).saturating_sub(taken);
        if let Some(slc) = &mut config.slc {
            slc.static_superblocks = slc.static_superblocks.min(left as u32);
        }
        if config.cache.bytes != 0 {
            let stripes =
                2 * u64::from(config.geometry()?.stripe_units) * u64::from(config.gc.host_frontiers);
            config.cache.bytes = smaller(config.cache.bytes).max(stripes * UNIT_BYTES).min(self.cache.bytes);
        }
        config.validate()?;
        Ok(config)
    }

    /// Returns the smallest capacity in bytes to which this drive can shrink without smaller superblocks. Smaller
    /// superblocks hold fewer files, so more of them become free whole, and the collector copies less.
    pub fn intact_bytes(&self) -> u64 {
        let g = &self.geometry;
        SUPERBLOCKS * u64::from(g.superblock_planes) * u64::from(g.page_bytes) * u64::from(g.pages_per_block)
    }

    /// Shrinks the drive as [`SsdConfig::shrunk`] does, for work that shrinks with the capacity. The reserve that the
    /// collector keeps above its minimum shrinks too; otherwise a small workload would never use up the free
    /// superblocks.
    ///
    /// # Errors If no drive of that size can resemble this one.
    pub fn scaled(&self, capacity_bytes: u64) -> Result<Self, ConfigError> {
        let mut config = self.shrunk(capacity_bytes)?;
        let pool = |gc: &GcConfig| gc.idle_free_superblocks.saturating_sub(gc.free_superblocks_min);
        let share =
            f64::from(config.geometry()?.superblock_units) / f64::from(self.geometry()?.superblock_units);
        let kept = f64::from(pool(&self.gc)) * capacity_bytes as f64 / self.capacity_bytes as f64 / share;
        let kept = (kept.round() as u32).min(pool(&config.gc));
        config.gc.idle_free_superblocks = config.gc.free_superblocks_min + kept;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::Profile;
    use crate::units::Bytes;

    #[test]
    fn every_profile_has_a_small_sister_with_the_same_share_of_spare_space() {
        for name in Profile::embedded_names() {
            let whole = Profile::embedded(name).unwrap().config;
            for capacity in [Bytes::gib(1), Bytes::gib(8)] {
                let small = whole.shrunk(capacity.0).unwrap_or_else(|e| panic!("{name} at {capacity}: {e}"));
                assert!(small.capacity_bytes <= capacity.0.max(1), "{name}");
                let spare = |c: &super::SsdConfig| {
                    let g = c.geometry().unwrap();
                    f64::from(g.physical_units()) / f64::from(g.logical_units)
                };
                let (before, after) = (spare(&whole), spare(&small));
                assert!((after - before).abs() < 0.02, "{name} at {capacity}: {before} and {after}");
            }
        }
    }

    #[test]
    fn a_scaled_drive_keeps_its_share_free_when_idle() {
        let [whole, small] = {
            let whole = Profile::embedded("sata-generic").unwrap().config;
            [whole.clone(), whole.scaled(whole.capacity_bytes / 4).unwrap()]
        };
        let pool = |c: &super::SsdConfig| c.gc.idle_free_superblocks - c.gc.free_superblocks_min;
        assert_eq!((pool(&whole), pool(&small)), (3, 1));
        assert_eq!(small.geometry.pages_per_block, whole.geometry.pages_per_block);
        for name in Profile::embedded_names() {
            let whole = Profile::embedded(name).unwrap().config;
            for parts in [2, 4, 8, 16] {
                let small = whole.scaled(whole.capacity_bytes / parts);
                assert!(small.is_ok(), "{name} at 1/{parts}: {small:?}");
            }
        }
    }

    #[test]
    fn in_proportion_every_share_of_a_drive_stays() {
        let whole = Profile::embedded("nvme-500gb-dramless").unwrap().config;
        let small = whole.in_proportion(whole.capacity_bytes / 16).unwrap();
        assert_eq!(small.geometry.pages_per_block, whole.geometry.pages_per_block / 16);
        let counts = |c: &super::SsdConfig| {
            let slc = c.slc.as_ref().unwrap();
            (c.gc.free_superblocks_min, c.gc.idle_free_superblocks, slc.static_superblocks)
        };
        let superblocks = |c: &super::SsdConfig| c.geometry().unwrap().superblocks;
        assert_eq!((counts(&small), superblocks(&small)), (counts(&whole), superblocks(&whole)));
        let cache = |c: &super::SsdConfig| c.mapping.map_cache().unwrap().bytes;
        assert_eq!(cache(&small), cache(&whole) / 16);
        for name in Profile::embedded_names() {
            let whole = Profile::embedded(name).unwrap().config;
            for parts in [2, 3, 16, 64] {
                let small = whole.in_proportion(whole.capacity_bytes / parts);
                assert!(small.is_ok(), "{name} at 1/{parts}: {small:?}");
            }
        }
    }

    #[test]
    fn a_drive_is_never_made_larger() {
        let config = Profile::embedded("sata-small").unwrap().config;
        assert_eq!(config.shrunk(Bytes::gib(100).0), Ok(config));
    }
}
