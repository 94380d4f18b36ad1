//! Merges: empty the log.
//!
//! Units are gathered stripe by stripe. Stripes without a valid unit are not programmed; their slots are lost until the
//! next erase if a later stripe is programmed, since pages of a block are programmed in order. All reads of a merge are
//! reserved when it begins: the controller reads ahead of its programs.

use super::super::address::{Number, Ppn, Slot, Superblock};
use super::super::flash::Stripe;
use super::super::ftl::{Reads, must_have_gained};
use super::slots::Role;
use super::{BlockMapped, BlockNumber};
use crate::units::{Lpn, SimDuration, SimTime};

impl BlockMapped {
    pub(crate) fn log_in_use(&self) -> u32 {
        self.log.len() as u32 + self.streams_of_log()
    }

    pub(crate) fn prepare_quota(&mut self, now: SimTime) {
        while self.log_in_use() >= self.log_max {
            self.flash.stats.gc_stalls += 1;
            if self.log.is_empty() {
                let Some(oldest) = self.oldest_stream_of_log() else { return };
                self.close_stream(oldest, now);
            } else {
                let mut merges = 0;
                while self.merge_oldest(now) {
                    merges += 1;
                    must_have_gained(merges, self);
                }
            }
        }
    }

    /// Merges one logical block that has units in the oldest superblock of the random log, or gives that superblock
    /// back if there is none. Returns true if there may be more.
    fn merge_oldest(&mut self, now: SimTime) -> bool {
        let Some(&oldest) = self.log.front() else { return false };
        if !self.reclaiming {
            self.reclaiming = true;
            let held = self.flash.geometry.superblocks - self.slots.free();
            self.flash.stats.gc_victims += 1;
            self.flash.stats.usable_units_sum += u64::from(held) * u64::from(self.units());
        }
        if let Some(offset) = self.slots.valid.next(oldest, 0) {
            let lpn = self.slots.owner(Slot::new(oldest, offset));
            self.merge(self.split(lpn).0, now);
            return true;
        }
        if self.log.len() == 1 {
            // The superblock may be open, and what was overwritten in it may still wait for its program.
            self.pad_log(now);
        }
        self.log.pop_front();
        self.slots.give_back(oldest);
        self.reclaiming = false;
        false
    }

    fn merge(&mut self, block: BlockNumber, now: SimTime) {
        if let Some(stream) = self.open_stream(block) {
            self.close_stream(stream, now);
            if self.blocks[block].logged == 0 {
                return;
            }
        }
        let target = self.take(now, Role::Data, self.lane(block));
        self.gather_rest(target, block, now);
        self.settle(target, block);
    }

    /// Copies the units of a logical block that come after those that `target` already holds.
    pub(crate) fn gather_rest(&mut self, target: Superblock, block: BlockNumber, now: SimTime) {
        while self.slots.superblock(target).next < self.units() {
            self.gather_stripe(target, block, Stripe::EMPTY, now);
        }
        // Nothing was programmed after the last unit, so the block can be continued there.
        let target = self.slots.superblock_mut(target);
        target.next = target.programmed;
    }

    /// Copies the units of the stripe in which `target` has its next slot. Programs the stripe if it holds anything.
    pub(crate) fn gather_stripe(
        &mut self,
        target: Superblock,
        block: BlockNumber,
        before: Stripe,
        now: SimTime,
    ) {
        let stripe_units = self.flash.geometry.stripe_units;
        let begin = self.slots.superblock(target).next;
        let end = (begin / stripe_units + 1) * stripe_units;
        let former = self.blocks[block].data;
        let mut reads = Reads::for_copies(before.ready);
        let mut copied = 0;
        for offset in begin..end {
            match self.source(self.unit(block, offset), former, offset) {
                Some(source) => {
                    let at = source.slot(self.units());
                    if at.offset < self.slots.superblock(at.superblock).programmed {
                        reads.slot(&mut self.flash, now, source, false, now);
                    }
                    let tag = self.slots.tags.get(source).unwrap_or(0);
                    self.slots.invalidate(source);
                    self.slots.append(target, tag);
                    copied += 1;
                }
                None => self.slots.skip(target, 1),
            }
        }
        let ready = reads.finish(&mut self.flash, now).last;
        if copied == 0 && before.host_units == 0 {
            return;
        }
        let padding = end - begin - copied;
        self.slots.fill(target, padding);
        self.flash.stats.nand_units.gc += u64::from(copied);
        self.flash.stats.nand_units.padding += u64::from(padding);
        self.program(target, Stripe { ready, ..before }, now);
    }

    /// Returns the slot from which to copy a unit, if it holds data. The slot is in the former data block, or in the
    /// random log, from which the unit is then removed.
    #[inline]
    fn source(&mut self, lpn: Lpn, former: Superblock, offset: u32) -> Option<Ppn> {
        let logged = *self.logged.at(lpn)?;
        if logged != Ppn::NONE {
            let block = self.split(lpn).0;
            self.blocks[block].logged -= 1;
            self.logged[lpn] = Ppn::NONE;
            return Some(logged);
        }
        if former == Superblock::NONE {
            return None;
        }
        let slot = Slot::new(former, offset).ppn(self.units());
        self.slots.is_valid(slot).then_some(slot)
    }

    /// Merges while the host is idle: from `from` on, as long as a merge can begin before `until`, and until enough of
    /// the log is free. Then erases the superblocks that were given back.
    pub(crate) fn merge_between(&mut self, from: SimTime, until: SimTime) {
        let mut at = from;
        while at < until {
            if self.log_max - self.log_in_use() < self.idle_target && !self.log.is_empty() {
                let copied = self.flash.stats.nand_units.gc;
                self.merge_oldest(at);
                self.flash.stats.gc_units_idle += self.flash.stats.nand_units.gc - copied;
            } else if let Some(superblock) = self.slots.erase_given_back() {
                self.flash.erase(superblock, at);
            } else {
                return;
            }
            at = self.flash.nand.idle_at().max(at + SimDuration::from_nanos(1));
        }
    }
}
