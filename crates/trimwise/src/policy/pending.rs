//! What may be trimmed.
//!
//! TRIM destroys data when it is wrong, so there is one gate: an extent enters the set only when the
//! transaction that freed it is durable, an allocation takes its blocks out before it uses them, and the
//! only thing that can be issued is a [`TrimToken`], which is taken out of the set and cannot be copied.
//! Blocks, not commands, are what the ledger counts: extents split and merge.

use rangemap::RangeSet;

use crate::units::{Lpn, UnitRange};

/// Permission to trim one extent, once. Only [`PendingSet`] makes them.
#[derive(Debug)]
#[must_use = "blocks in a token are neither pending nor issued until it is settled"]
pub struct TrimToken {
    range: UnitRange,
}

impl TrimToken {
    /// The extent that may be trimmed.
    pub fn range(&self) -> UnitRange {
        self.range
    }
}

/// Where freed blocks went, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Freed by a durable transaction.
    pub freed: u64,
    /// Issued to the device (or revealed to it).
    pub issued: u64,
    /// Taken by an allocation before they were issued.
    pub reused: u64,
    /// Forgotten.
    pub dropped: u64,
    /// In the set now.
    pub pending: u64,
    /// In tokens: being issued now.
    pub in_tokens: u64,
}

impl Ledger {
    /// Whether every freed block is accounted for.
    pub fn balances(&self) -> bool {
        self.freed == self.issued + self.reused + self.dropped + self.pending + self.in_tokens
    }
}

/// Extents that are durably free and that nobody has allocated or written since.
#[derive(Clone, Debug, Default)]
pub struct PendingSet {
    extents: RangeSet<u64>,
    ledger: Ledger,
}

impl PendingSet {
    /// Adds an extent whose freeing transaction is durable. It must not be in the set already.
    pub fn insert(&mut self, range: UnitRange) {
        if range.units == 0 {
            return;
        }
        debug_assert!(!self.extents.overlaps(&(range.start.0..range.end().0)), "freed twice: {range:?}");
        self.extents.insert(range.start.0..range.end().0);
        self.ledger.freed += range.units;
        self.ledger.pending += range.units;
    }

    /// Takes out whatever of `range` is in the set, because somebody allocates it; answers how much.
    pub fn withdraw(&mut self, range: UnitRange) -> u64 {
        let units = self.remove(range);
        self.ledger.reused += units;
        units
    }

    /// Takes out whatever of `range` is in the set, because a batch TRIM of free space covers it.
    pub fn issued_in_batch(&mut self, range: UnitRange) {
        self.ledger.issued += self.remove(range);
    }

    fn remove(&mut self, range: UnitRange) -> u64 {
        let span = range.start.0..range.end().0;
        let units: u64 = self
            .extents
            .overlapping(&span)
            .map(|held| held.end.min(span.end) - held.start.max(span.start))
            .sum();
        if units > 0 {
            self.extents.remove(span);
            self.ledger.pending -= units;
        }
        units
    }

    /// The first extent in the set.
    pub fn first(&self) -> Option<UnitRange> {
        self.iter().next()
    }

    /// Every extent in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = UnitRange> + '_ {
        self.extents.iter().map(|r| UnitRange::new(Lpn(r.start), r.end - r.start))
    }

    /// Takes out the first extent, or its first `units_max` units, as a token.
    pub fn take(&mut self, units_max: u64) -> Option<TrimToken> {
        let first = self.extents.first()?.clone();
        let end = first.end.min(first.start.saturating_add(units_max.max(1)));
        self.extents.remove(first.start..end);
        let range = UnitRange::new(Lpn(first.start), end - first.start);
        self.ledger.pending -= range.units;
        self.ledger.in_tokens += range.units;
        Some(TrimToken { range })
    }

    /// Notes that a token was issued.
    pub fn settle(&mut self, token: TrimToken) {
        self.ledger.in_tokens -= token.range.units;
        self.ledger.issued += token.range.units;
    }

    /// Forgets everything that is pending; answers the extents, for a host that keeps them unavailable.
    pub fn drop_all(&mut self) -> Vec<UnitRange> {
        self.ledger.dropped += self.ledger.pending;
        self.ledger.pending = 0;
        let extents = std::mem::take(&mut self.extents);
        extents.iter().map(|r| UnitRange::new(Lpn(r.start), r.end - r.start)).collect()
    }

    /// Units in the set.
    pub fn units(&self) -> u64 {
        self.ledger.pending
    }

    /// Where all freed blocks went so far.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, units: u64) -> UnitRange {
        UnitRange::new(Lpn(start), units)
    }

    #[test]
    fn an_allocation_splits_a_pending_extent() {
        let mut set = PendingSet::default();
        set.insert(range(10, 10));
        assert_eq!(set.withdraw(range(13, 2)), 2);
        let first = set.take(u64::MAX).unwrap();
        assert_eq!(first.range(), range(10, 3));
        set.settle(first);
        let second = set.take(2).unwrap();
        assert_eq!(second.range(), range(15, 2));
        set.settle(second);
        let ledger = set.ledger();
        assert_eq!((ledger.issued, ledger.reused, ledger.pending), (5, 2, 3));
        assert!(ledger.balances());
    }

    proptest! {
        /// Against one flag a block: no token ever holds a block that was withdrawn, and nothing is lost.
        #[test]
        fn agrees_with_a_map_of_flags(ops in prop::collection::vec((0u8..4, 0u64..64, 1u64..16), 1..200)) {
            let mut set = PendingSet::default();
            let mut flags = [false; 80];
            for (kind, start, units) in ops {
                let span = start as usize..(start + units) as usize;
                match kind {
                    0 => {
                        if flags[span.clone()].iter().all(|f| !f) {
                            set.insert(range(start, units));
                            flags[span].fill(true);
                        }
                    }
                    1 => {
                        let held = flags[span.clone()].iter().filter(|f| **f).count() as u64;
                        prop_assert_eq!(set.withdraw(range(start, units)), held);
                        flags[span].fill(false);
                    }
                    2 => {
                        if let Some(token) = set.take(units) {
                            for lpn in token.range().iter() {
                                prop_assert!(flags[lpn.0 as usize]);
                                flags[lpn.0 as usize] = false;
                            }
                            set.settle(token);
                        } else {
                            prop_assert!(flags.iter().all(|f| !f));
                        }
                    }
                    _ => {
                        let dropped: u64 = set.drop_all().iter().map(|r| r.units).sum();
                        prop_assert_eq!(dropped, flags.iter().filter(|f| **f).count() as u64);
                        flags.fill(false);
                    }
                }
                prop_assert!(set.ledger().balances());
                prop_assert_eq!(set.units(), flags.iter().filter(|f| **f).count() as u64);
            }
        }
    }
}
