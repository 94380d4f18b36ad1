//! Which logical block a stripe of the logical space belongs to.
//!
//! As many logical blocks as there are lanes make a group, and the stripes of its space are dealt out to them in turn.
//! The blocks behind the last whole group follow each other as they are.

use super::super::geometry::Geometry;

#[derive(Clone, Debug)]
pub(super) struct Interleave {
    lanes: u32,
    stripe_units: u32,
    superblock_units: u32,
    /// Units of whole groups; those behind stay where they are.
    grouped: u32,
}

impl Interleave {
    pub fn new(geometry: &Geometry) -> Self {
        let group = geometry.lanes.saturating_mul(geometry.superblock_units);
        Self {
            lanes: geometry.lanes,
            stripe_units: geometry.stripe_units,
            superblock_units: geometry.superblock_units,
            grouped: geometry.logical_units / group * group,
        }
    }

    /// The number under which the mapping knows a unit: logical block times its size, plus the offset. The units of
    /// one stripe stay together.
    #[inline]
    pub fn inner(&self, lpn: u32) -> u32 {
        if self.lanes == 1 || lpn >= self.grouped {
            return lpn;
        }
        let group_units = self.lanes * self.superblock_units;
        let (group, within) = (lpn / group_units, lpn % group_units);
        let (stripe, rest) = (within / self.stripe_units, within % self.stripe_units);
        let block = group * self.lanes + stripe % self.lanes;
        block * self.superblock_units + stripe / self.lanes * self.stripe_units + rest
    }
}
