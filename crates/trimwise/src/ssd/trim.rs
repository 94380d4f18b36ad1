//! TRIM: what it unmaps and what it costs.
//!
//! The unmapping is exact and immediate; the cost is time, and falls before the acknowledgement or afterwards
//! in the background. A non-queued TRIM (ATA DATA SET MANAGEMENT) has the device to itself: it starts when all
//! commands accepted before it have completed, and commands after it start when it has.

use super::config::{TrimConfig, TrimKind};
use super::ftl::Ftl;
use super::mapping::{NONE, State};
use crate::units::{Lpn, UnitRange};

/// From this many units on, the lists of victims are made anew at the end instead of kept up to date.
const BULK_UNITS: usize = 65_536;

impl TrimConfig {
    /// Time that a command asks for, wherever it falls, nanoseconds.
    pub(super) fn cost_ns(&self, ranges: &[UnitRange]) -> u64 {
        let units = ranges.iter().fold(0u64, |sum, r| sum.saturating_add(r.units));
        self.cost_per_command_ns
            .saturating_add(self.cost_per_range_ns.saturating_mul(ranges.len() as u64))
            .saturating_add(self.cost_per_unit_ns.saturating_mul(units))
    }

    /// The whole, aligned granules inside a range.
    pub(super) fn granules(&self, range: UnitRange) -> UnitRange {
        let granularity = u64::from(self.granularity_units);
        if granularity == 1 {
            return range;
        }
        let start = range.start.0.div_ceil(granularity) * granularity;
        let end = range.start.0.saturating_add(range.units) / granularity * granularity;
        UnitRange::new(Lpn(start), end.saturating_sub(start))
    }

    /// Whether the device takes TRIM at all.
    pub const fn is_supported(&self) -> bool {
        !matches!(self.kind, TrimKind::Unsupported)
    }

    /// Whether the command has a queue slot beside other commands; if not, it drains the queue.
    pub const fn is_queued(&self) -> bool {
        !matches!(self.kind, TrimKind::AtaNonQueued)
    }
}

impl Ftl {
    /// Unmaps the ranges of a command. Returns how many units held data.
    pub fn unmap(&mut self, ranges: impl Iterator<Item = UnitRange> + Clone) -> u64 {
        let before = self.map.mapped;
        let units: usize = ranges.clone().map(|range| self.map.clamp(range).len()).sum();
        if units >= BULK_UNITS {
            ranges.for_each(|range| self.unmap_in_bulk(range));
            self.victims.relink(&self.map.blocks);
        } else {
            for range in ranges {
                for i in self.map.clamp(range) {
                    let ppn = std::mem::replace(&mut self.map.l2p[i], NONE);
                    if ppn != NONE {
                        self.map.mapped -= 1;
                        self.invalidate(ppn);
                    }
                }
            }
        }
        before - self.map.mapped
    }

    /// Leaves the lists of victims as they are.
    fn unmap_in_bulk(&mut self, range: UnitRange) {
        let indices = self.map.clamp(range);
        if indices.len() == self.map.l2p.len() {
            self.unmap_all();
            return;
        }
        for i in indices {
            let ppn = std::mem::replace(&mut self.map.l2p[i], NONE);
            if ppn != NONE {
                let (superblock, offset) = self.map.split(ppn);
                self.map.clear_bit(superblock, offset);
                self.map.blocks[superblock as usize].valid -= 1;
                self.map.mapped -= 1;
            }
        }
    }

    /// The whole device at once: three fills.
    fn unmap_all(&mut self) {
        self.map.mapped = 0;
        self.map.l2p.fill(NONE);
        self.map.bits.fill(0);
        for block in &mut self.map.blocks {
            debug_assert!(block.state != State::Free || block.valid == 0);
            block.valid = 0;
        }
    }
}
