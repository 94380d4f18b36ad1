//! Unmapping: few units one by one, many in bulk, all of them at once.

use std::ops::Range;

use super::super::ftl::{NONE, State};
use super::PageMapped;

/// From this many units on, the lists of victims are made anew at the end instead of kept up to date.
const BULK_UNITS: usize = 65_536;

impl PageMapped {
    /// Unmaps the ranges of a command. Returns how many units held data.
    pub fn unmap_ranges(&mut self, ranges: &[Range<u32>]) -> u64 {
        let before = self.map.mapped;
        let units: usize = ranges.iter().map(|range| range.len()).sum();
        if units >= BULK_UNITS {
            ranges.iter().for_each(|range| self.unmap_in_bulk(range));
            self.victims.relink(&self.map.blocks);
        } else {
            for range in ranges {
                for i in range.clone() {
                    let ppn = std::mem::replace(&mut self.map.l2p[i as usize], NONE);
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
    fn unmap_in_bulk(&mut self, range: &Range<u32>) {
        if range.len() == self.flash.geometry.logical_units as usize {
            self.unmap_all();
            return;
        }
        for i in range.clone() {
            let ppn = std::mem::replace(&mut self.map.l2p[i as usize], NONE);
            if ppn != NONE {
                let (superblock, offset) = self.map.split(ppn);
                self.map.clear_bit(superblock, offset);
                self.map.blocks[superblock as usize].valid -= 1;
                self.map.mapped -= 1;
            }
        }
    }

    /// The whole device at once, with the map if it lies in the flash: three fills.
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
