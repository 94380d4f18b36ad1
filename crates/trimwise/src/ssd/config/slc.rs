//! The SLC cache: flash that is written with one bit a cell, because that is quick, and folded later.

use serde::Deserialize;

use super::{ConfigError, SsdConfig, count, require, span};
use crate::ssd::geometry::Geometry;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SlcConfig {
    /// Superblocks that are always in SLC mode. They hold `1 / bits_per_cell` of their normal capacity, and are not
    /// part of the space for data.
    pub static_superblocks: u32,
    /// Percentage of the free space that can serve in SLC mode as long as it is free. Free space is what the host sees
    /// minus the data on the device: it shrinks as the drive is written, and grows only by TRIM.
    pub dynamic_percent: u32,
    /// Largest number of superblocks of the dynamic part. `None`: only the free space limits it.
    pub dynamic_superblocks_max: Option<u32>,
    /// Bits that a cell holds outside of SLC mode: 3 for TLC, 4 for QLC.
    pub bits_per_cell: u32,
    /// Page register to array in SLC mode (tPROG), nanoseconds.
    pub t_prog_ns: u64,
    /// Array to page register in SLC mode (tR), nanoseconds.
    pub t_read_ns: u64,
    /// Fold the cache (copy its data to normal flash) while the host is idle.
    pub fold_when_idle: bool,
    /// Percentage of the cache in use above which folding begins even if the host is not idle; it then keeps pace with
    /// the host. At 100, folding waits for idle time as long as the cache does not shrink.
    pub fold_threshold_percent: u32,
    /// Host units go straight to normal superblocks while the cache is full. If false, each goes through the cache, and
    /// the host waits until a superblock is folded.
    #[serde(default = "yes")]
    pub direct: bool,
    /// When free superblocks run short, the dynamic part is folded and given back before anything is collected, and
    /// nothing is borrowed again until the host is idle. If false, it shrinks only as the drive fills.
    #[serde(default)]
    pub gives_way: bool,
}

const fn yes() -> bool {
    true
}

impl SsdConfig {
    pub(super) fn validate_slc(&self, geometry: &Geometry) -> Result<(), ConfigError> {
        let Some(slc) = &self.slc else { return Ok(()) };
        let kind = self.mapping.kind();
        require(kind == "page", "mapping.kind", kind, "\"page\" where there is a table [slc]")?;
        count("slc.bits_per_cell", slc.bits_per_cell, 2, 8)?;
        let pages = self.geometry.pages_per_block;
        let expected = format!("at most the {pages} pages of a block");
        require(slc.bits_per_cell <= pages, "slc.bits_per_cell", slc.bits_per_cell, expected)?;
        let units = self.geometry.units_in(pages / slc.bits_per_cell);
        let expected = "fewer, so that a superblock in SLC mode has room for data next to its parity";
        require(units > 0, "slc.bits_per_cell", slc.bits_per_cell, expected)?;
        let taken = geometry.data_superblocks() + Geometry::spare_superblocks(self);
        let most = u64::from(geometry.superblocks).saturating_sub(taken);
        count("slc.static_superblocks", slc.static_superblocks, 0, u32::try_from(most).unwrap_or(u32::MAX))?;
        count("slc.dynamic_percent", slc.dynamic_percent, 0, 100)?;
        let is_any = slc.static_superblocks > 0 || slc.dynamic_percent > 0;
        require(is_any, "slc.dynamic_percent", 0, "more than 0 where slc.static_superblocks is 0")?;
        let most = slc.dynamic_superblocks_max.unwrap_or(1);
        count("slc.dynamic_superblocks_max", most, 1, 1 << 24)?;
        let has_room = slc.direct || slc.static_superblocks > 0;
        require(has_room, "slc.direct", slc.direct, "true where slc.static_superblocks is 0")?;
        span("slc.t_prog_ns", slc.t_prog_ns, 1)?;
        span("slc.t_read_ns", slc.t_read_ns, 1)?;
        count("slc.fold_threshold_percent", slc.fold_threshold_percent, 0, 100)
    }
}
