//! Checks which data a TRIM destroys.
//!
//! The region is divided into slots of equal length. Six pieces lie at a place that differs from slot to slot: kept,
//! trimmed, kept, trimmed and rewritten at once, kept, and one that is written while the TRIMs are under way. In
//! addition two whole slots are written and read back: if a wrong TRIM is off by a constant distance, its hole lies in
//! one of them.

use serde::Serialize;
use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, Stored};
use trimwise::units::{Bytes, Lpn, UnitRange};

use super::super::Bench;

const PIECE_UNITS: u64 = 16;
const SLOTS: u64 = 128;
/// Maximum length of a slot. Two slots are read unit by unit.
const SLOT_MOST: Bytes = Bytes::mib(64);
/// Single writes afterwards, for TRIMs that take effect late.
const LATER_WRITES: u64 = 4096;
const TRANSFER_UNITS: u64 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Integrity {
    /// Units that were written and never trimmed.
    pub kept_units: u64,
    /// Units that were never trimmed but no longer hold their data.
    pub kept_lost_units: u64,
    /// Units that were written after their TRIM.
    pub rewritten_units: u64,
    /// Rewritten units that do not hold the new data.
    pub rewritten_lost_units: u64,
    pub trimmed_units: u64,
    /// Trimmed units that read as zeros.
    pub trimmed_zero_units: u64,
    /// Trimmed units that read as the old data.
    pub trimmed_old_units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Kept,
    Trimmed,
    Rewritten,
    Meanwhile,
}

const PIECES: [Piece; 6] =
    [Piece::Kept, Piece::Trimmed, Piece::Kept, Piece::Rewritten, Piece::Kept, Piece::Meanwhile];

struct Plan {
    region: UnitRange,
    slots: u64,
    slot_units: u64,
    piece_units: u64,
}

impl Plan {
    fn new(region: UnitRange, granularity_units: u64) -> Self {
        let slots = SLOTS.max(region.units.div_ceil(SLOT_MOST.units_floor()));
        let slot_units = region.units / slots;
        // Pieces lie on whole granules, and all six fit with space to spare.
        let piece = PIECE_UNITS.next_multiple_of(granularity_units.max(1));
        let piece_units = if piece * 2 * PIECES.len() as u64 <= slot_units { piece } else { PIECE_UNITS };
        Self { region, slots, slot_units, piece_units }
    }

    fn piece(&self, slot: u64, index: usize) -> UnitRange {
        let start = self.region.start.0 + slot * self.slot_units;
        let room = self.slot_units / self.piece_units - PIECES.len() as u64 - 1;
        // A different place in each slot, spread like the multiples of the golden ratio.
        let place = slot.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let offset = (place * room) >> 32;
        let first = start.next_multiple_of(self.piece_units);
        UnitRange::new(Lpn(first + (offset + index as u64) * self.piece_units), self.piece_units)
    }

    /// Returns the slots that are written and read back completely. They are in the middle, so that holes from both
    /// sides fall into them.
    fn whole(&self) -> [u64; 2] {
        [self.slots / 2, self.slots / 2 + 1]
    }
}

impl<D: BlockDevice> Bench<'_, D> {
    pub(super) async fn integrity(&mut self, granularity: Bytes) -> Result<Integrity, BlockError> {
        let plan = Plan::new(self.region, granularity.units_ceil());
        let class = self.recognisable();
        let (old, new) = (Content::new(class, 1), Content::new(class, 2));
        for slot in plan.whole() {
            let start = self.region.start.offset(slot * plan.slot_units);
            self.write_pieces(UnitRange::new(start, plan.slot_units), old).await?;
        }
        for slot in 0..plan.slots {
            let pieces = plan.piece(slot, 0).start;
            let all = UnitRange::new(pieces, plan.piece_units * PIECES.len() as u64);
            self.write_pieces(all, old).await?;
        }
        self.device.perform(Operation::Flush).await?;
        for slot in 0..plan.slots {
            self.trim_and_rewrite(&plan, slot, new).await?;
        }
        for i in 0..LATER_WRITES {
            let piece = plan.piece(i % plan.slots, 5);
            let unit = piece.start.offset(i / plan.slots % plan.piece_units);
            self.write_pieces(UnitRange::new(unit, 1), new).await?;
        }
        self.device.perform(Operation::Flush).await?;
        self.read_back(&plan, old, new).await
    }

    async fn trim_and_rewrite(&mut self, plan: &Plan, slot: u64, new: Content) -> Result<(), BlockError> {
        let of =
            |kind: Piece| (0..PIECES.len()).filter(move |&i| PIECES[i] == kind).map(|i| plan.piece(slot, i));
        let mut in_flight = 0;
        for range in of(Piece::Trimmed).chain(of(Piece::Rewritten)) {
            self.device.submit(Operation::Trim(vec![range]), 0)?;
            self.did.bytes_trimmed += Bytes::from_units(range.units).0;
            in_flight += 1;
        }
        for range in of(Piece::Meanwhile) {
            self.submit_write(range, new)?;
            in_flight += 1;
        }
        for _ in 0..in_flight {
            self.device.completion().await?;
        }
        for range in of(Piece::Rewritten) {
            self.write_pieces(range, new).await?;
        }
        Ok(())
    }

    fn submit_write(&mut self, range: UnitRange, content: Content) -> Result<(), BlockError> {
        self.device.submit(Operation::write(range, content), 0)?;
        self.did.bytes_written += Bytes::from_units(range.units).0;
        Ok(())
    }

    async fn write_pieces(&mut self, range: UnitRange, content: Content) -> Result<(), BlockError> {
        let mut at = range.start.0;
        while at < range.end().0 {
            let units = TRANSFER_UNITS.min(range.end().0 - at);
            self.submit_write(UnitRange::new(Lpn(at), units), content)?;
            self.device.completion().await?;
            at += units;
        }
        Ok(())
    }

    async fn read_back(&mut self, plan: &Plan, old: Content, new: Content) -> Result<Integrity, BlockError> {
        let mut found = Integrity::default();
        for slot in 0..plan.slots {
            for (index, kind) in PIECES.into_iter().enumerate() {
                for lpn in plan.piece(slot, index).iter() {
                    let stored = self.device.stored(lpn).await?;
                    let is = |content: Content| stored == content.stored(lpn);
                    match kind {
                        Piece::Kept => found.kept(is(old)),
                        // The later writes reach only part of this piece.
                        Piece::Meanwhile => found.kept(is(new) || is(old)),
                        Piece::Rewritten => {
                            found.rewritten_units += 1;
                            found.rewritten_lost_units += u64::from(!is(new));
                        }
                        Piece::Trimmed => {
                            found.trimmed_units += 1;
                            found.trimmed_zero_units += u64::from(stored == Stored::Zeros);
                            found.trimmed_old_units += u64::from(is(old));
                        }
                    }
                }
            }
            self.report(slot as f64 / plan.slots as f64);
        }
        for slot in plan.whole() {
            let start = self.region.start.offset(slot * plan.slot_units);
            let pieces = plan.piece(slot, 0).start.0..plan.piece(slot, PIECES.len()).start.0;
            let around = UnitRange::new(start, plan.slot_units).iter();
            for lpn in around.filter(|lpn| !pieces.contains(&lpn.0)) {
                let stored = self.device.stored(lpn).await?;
                found.kept(stored == old.stored(lpn));
            }
        }
        Ok(found)
    }
}

impl Integrity {
    fn kept(&mut self, is_there: bool) {
        self.kept_units += 1;
        self.kept_lost_units += u64::from(!is_there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_inside_their_slots_on_granules_and_do_not_overlap() {
        for (units, granularity) in [(65_536, 1), (262_144, 8), (1 << 24, 1), (70_001, 3)] {
            let region = UnitRange::new(Lpn(7), units);
            let plan = Plan::new(region, granularity);
            let mut last = region.start.0;
            for slot in 0..plan.slots {
                let end = region.start.0 + (slot + 1) * plan.slot_units;
                for index in 0..PIECES.len() {
                    let piece = plan.piece(slot, index);
                    assert!(piece.start.0 >= last && piece.end().0 <= end, "{units}: slot {slot}, {index}");
                    assert!(
                        piece.start.0.is_multiple_of(granularity) && piece.units.is_multiple_of(granularity)
                    );
                    last = piece.end().0;
                }
            }
        }
    }
}
