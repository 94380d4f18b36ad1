//! FITRIM: trims free space by range, no matter when and how it became free.
//!
//! `fstrim` uses it, a batch policy calls it at intervals, and it is all that a daemon has on a stock kernel. Blocks
//! cannot be allocated while their command runs, as in `ext4_trim_extent`.

use super::alloc::{GROUP_UNITS, group_of};
use super::sabotage::Sabotage;
use super::{Ext4, Inner};
use crate::units::UnitRange;

impl Ext4 {
    /// Trims the free extents of at least `min_units` in `range`, as the ioctl FITRIM does. Returns the units
    /// submitted.
    ///
    /// Skips groups that were trimmed before and have had nothing freed in them since, unless the last call had a
    /// larger `min_units`. An extent that begins before the range is cut; one that ends after it is not. Only blocks
    /// that are allocatable now are trimmed, and they cannot be allocated while their command runs.
    pub async fn trim_free(&self, range: UnitRange, min_units: u64) -> u64 {
        let inner: &Inner = &self.0;
        let total = inner.state.borrow().disk.layout.total_units();
        let end = range.end().0.min(total);
        // `FITRIM` raises `minlen` to the device's granularity.
        let min_units = min_units.max(inner.queue.discard_granularity_units()).max(1);
        let mut submitted = 0;
        let mut at = range.start.0;
        while at < end {
            let group = group_of(at);
            let group_end = ((group + 1) * GROUP_UNITS).min(total);
            let is_whole = at == group * GROUP_UNITS && end >= group_end;
            {
                let state = &mut *inner.state.borrow_mut();
                if state.disk.allocator.is_trimmed(group) && min_units >= state.trimmed_min_units {
                    at = group_end;
                    continue;
                }
                // Mark before the commands: blocks freed while they run clear the mark again.
                if is_whole {
                    state.disk.allocator.mark_trimmed(group);
                }
            }
            while let Some(extent) = self.hold_free(at, end.min(group_end), min_units) {
                at = extent.end().0;
                if self.is_sabotaged(Sabotage::ReuseDuringFitrim) {
                    self.end_hold(extent);
                    inner.queue.trim(&[extent]).await;
                } else {
                    inner.queue.trim(&[extent]).await;
                    self.end_hold(extent);
                }
                submitted += extent.units;
            }
            at = group_end;
        }
        inner.state.borrow_mut().trimmed_min_units = min_units;
        submitted
    }

    /// Takes a free extent of at least `min_units` out of the allocator for the time of a TRIM: the first that begins
    /// between `from` and `to`, or the part after `from` of one that contains it.
    fn hold_free(&self, from: u64, to: u64, min_units: u64) -> Option<UnitRange> {
        if from >= to {
            return None;
        }
        let state = &mut *self.0.state.borrow_mut();
        let held = state.disk.allocator.free_from(from, to).find(|e| e.units >= min_units)?;
        state.hold(held);
        self.0.policy.issued_in_batch(held);
        Some(held)
    }
}
