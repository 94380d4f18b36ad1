//! Maps stripes of the logical space to logical blocks.
//!
//! One logical block for each lane makes a group. The stripes of its space are dealt out to the blocks in turn. The
//! blocks after the last whole group follow each other unchanged.

use super::super::geometry::Geometry;
use crate::units::Lpn;

#[derive(Clone, Debug)]
pub(super) struct Interleave {
    lanes: u64,
    stripe_units: u64,
    superblock_units: u64,
    /// End of the last whole group. Units from there on keep their numbers.
    grouped: Lpn,
}

impl Interleave {
    pub fn new(geometry: &Geometry) -> Self {
        let (lanes, superblock_units) = (geometry.lanes.into(), u64::from(geometry.superblock_units));
        let group = lanes * superblock_units;
        Self {
            lanes,
            stripe_units: geometry.stripe_units.into(),
            superblock_units,
            grouped: Lpn(u64::from(geometry.logical_units) / group * group),
        }
    }

    /// Maps a unit to its logical block times the block's size, plus its offset there. The units of one stripe stay
    /// together.
    #[inline]
    pub fn inner(&self, lpn: Lpn) -> Lpn {
        if self.lanes == 1 || lpn >= self.grouped {
            return lpn;
        }
        let group_units = self.lanes * self.superblock_units;
        let (group, within) = (lpn.0 / group_units, lpn.0 % group_units);
        let (stripe, rest) = (within / self.stripe_units, within % self.stripe_units);
        let block = group * self.lanes + stripe % self.lanes;
        Lpn(block * self.superblock_units + stripe / self.lanes * self.stripe_units + rest)
    }
}
