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

    /// Whether the command has a queue slot beside other commands; if not, it drains the queue.
    pub const fn is_queued(&self) -> bool {
        !matches!(self.kind, TrimKind::AtaNonQueued)
    }
}

impl Ftl {
    /// Unmaps a range. Returns how many units held data.
    pub fn unmap(&mut self, range: UnitRange) -> u64 {
        let indices = self.map.clamp(range);
        if indices.len() == self.map.l2p.len() {
            return self.unmap_all();
        }
        let bulk = indices.len() >= BULK_UNITS;
        let before = self.map.mapped;
        for i in indices {
            let ppn = self.map.l2p[i];
            if ppn == NONE {
                continue;
            }
            self.map.l2p[i] = NONE;
            self.map.mapped -= 1;
            if bulk {
                let (superblock, offset) = self.map.split(ppn);
                self.map.clear_bit(superblock, offset);
                self.map.blocks[superblock as usize].valid -= 1;
            } else {
                self.invalidate(ppn);
            }
        }
        if bulk {
            self.victims.relink(&self.map.blocks);
        }
        before - self.map.mapped
    }

    /// The whole device at once: three fills.
    fn unmap_all(&mut self) -> u64 {
        let count = std::mem::take(&mut self.map.mapped);
        self.map.l2p.fill(NONE);
        self.map.bits.fill(0);
        for block in &mut self.map.blocks {
            debug_assert!(block.state != State::Free || block.valid == 0);
            block.valid = 0;
        }
        self.victims.relink(&self.map.blocks);
        count
    }
}
