//! Streams: logical blocks that are written in order, at their own offsets.
//!
//! The next unit of an open stream goes to that stream. A stream is opened at the first unit of a logical block, or at
//! the end of its data block, if the write looks sequential: the unit follows the one that the host wrote before it, or
//! its command covers at least a stripe. Single units that happen to be the first of a block open nothing: each would
//! end an older stream, and that costs a merge.
//!
//! `gc.host_frontiers` limits the number of open streams in each lane; the least recently used one makes room.

use super::super::address::{Number, Superblock};
use super::super::flash::Stripe;
use super::slots::Role;
use super::{BlockMapped, BlockNumber};
use crate::units::{Lpn, SimTime};

#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Superblock of the stream; [`Superblock::NONE`] between two logical blocks.
    pub superblock: Superblock,
    pub block: BlockNumber,
    continues: Lpn,
    stripe: Stripe,
    used: u64,
}

impl Stream {
    pub(crate) const UNUSED: Self = Self {
        superblock: Superblock::NONE,
        block: BlockNumber::NONE,
        continues: Lpn::NONE,
        stripe: Stripe::EMPTY,
        used: 0,
    };

    #[inline]
    pub fn is_open(&self) -> bool {
        self.superblock != Superblock::NONE
    }
}

impl BlockMapped {
    pub(crate) fn open_stream(&self, block: BlockNumber) -> Option<usize> {
        self.streams.iter().position(|s| s.is_open() && s.block == block)
    }

    #[inline]
    pub(super) fn stream_onto(&self, block: BlockNumber) -> Option<&Stream> {
        self.streams.iter().find(|s| s.block == block && s.is_open() && self.is_of_log(s))
    }

    /// Returns true if an open stream's superblock counts as part of the log, because it is not yet its block's data
    /// block.
    fn is_of_log(&self, stream: &Stream) -> bool {
        self.slots.superblock(stream.superblock).role == Role::Stream
    }

    pub(crate) fn streams_of_log(&self) -> u32 {
        self.streams.iter().filter(|s| s.is_open() && self.is_of_log(s)).count() as u32
    }

    pub(crate) fn oldest_stream_of_log(&self) -> Option<usize> {
        let of_log = |i: &usize| self.streams[*i].is_open() && self.is_of_log(&self.streams[*i]);
        (0..self.streams.len()).filter(of_log).min_by_key(|&i| self.streams[i].used)
    }

    /// Returns the stream for a unit, opening one if necessary; `None` if the unit goes to the random log.
    #[inline]
    pub fn stream_for(&mut self, lpn: Lpn, sequential: bool, now: SimTime) -> Option<usize> {
        let open = self.streams.iter().position(|s| s.continues == lpn && s.is_open());
        if open.is_some() || !sequential { open } else { self.open(lpn, now) }
    }

    /// Opens a stream for a unit of a write that looks sequential, if a stream may begin there.
    fn open(&mut self, lpn: Lpn, now: SimTime) -> Option<usize> {
        let (block, offset) = self.split(lpn);
        let other = self.open_stream(block);
        let data = self.blocks[block].data;
        let continues_data =
            other.is_none() && data != Superblock::NONE && self.slots.superblock(data).next == offset;
        if offset != 0 && !continues_data {
            return None;
        }
        if let Some(other) = other {
            self.close_stream(other, now);
        }
        let in_use = |i: usize| (self.streams[i].is_open(), self.streams[i].used);
        let index = other.or_else(|| (0..self.streams.len()).min_by_key(|&i| in_use(i)))?;
        self.close_stream(index, now);
        let data = self.blocks[block].data;
        let superblock = if continues_data {
            data
        } else if data == Superblock::NONE {
            let taken = self.take(now, Role::Data, self.lane(block));
            self.blocks[block].data = taken;
            taken
        } else {
            self.prepare_quota(now);
            self.take(now, Role::Stream, self.lane(block))
        };
        self.streams[index] = Stream { superblock, block, continues: lpn, ..Stream::UNUSED };
        Some(index)
    }

    #[inline]
    pub(crate) fn write_to_stream(&mut self, index: usize, now: SimTime, ready: SimTime, tag: u32) {
        self.stream_clock += 1;
        let stream = &mut self.streams[index];
        stream.used = self.stream_clock;
        stream.continues = stream.continues.offset(1);
        stream.stripe.add_host_unit(ready);
        let superblock = stream.superblock;
        self.slots.append(superblock, tag);
        if self.slots.superblock(superblock).next.is_multiple_of(self.flash.geometry.stripe_units) {
            let stripe = std::mem::take(&mut self.streams[index].stripe);
            self.program(superblock, stripe, now);
            self.end_if_full(index);
        }
    }

    /// Completes and programs the stripe that a stream has begun. Missing units are copied from elsewhere, or padded.
    pub fn complete_stripe(&mut self, index: usize, now: SimTime) {
        let Stream { superblock, block, stripe, .. } = self.streams[index];
        if superblock == Superblock::NONE || stripe.host_units == 0 {
            return;
        }
        self.streams[index].stripe = Stripe::EMPTY;
        self.gather_stripe(superblock, block, stripe, now);
        let next = self.slots.superblock(superblock).next;
        self.streams[index].continues = self.unit(block, next);
        self.end_if_full(index);
    }

    /// Ends a stream that has filled its superblock. That becomes the data block; the former one has no valid units
    /// left (switch merge).
    fn end_if_full(&mut self, index: usize) {
        let Stream { superblock, block, .. } = self.streams[index];
        if self.slots.superblock(superblock).next < self.units() {
            return;
        }
        self.streams[index].superblock = Superblock::NONE;
        self.settle(superblock, block);
    }

    /// Makes a superblock its logical block's data block, in place of the former one.
    pub fn settle(&mut self, superblock: Superblock, block: BlockNumber) {
        self.slots.superblock_mut(superblock).role = Role::Data;
        let former = std::mem::replace(&mut self.blocks[block].data, superblock);
        if former != Superblock::NONE && former != superblock {
            self.slots.give_back(former);
        }
    }

    /// Ends a stream where it is. If its logical block has another data block, the missing units are copied from there
    /// (partial merge).
    pub(crate) fn close_stream(&mut self, index: usize, now: SimTime) {
        self.complete_stripe(index, now);
        let stream = self.streams[index];
        if !stream.is_open() {
            return;
        }
        self.streams[index].superblock = Superblock::NONE;
        if self.is_of_log(&stream) {
            self.gather_rest(stream.superblock, stream.block, now);
            self.settle(stream.superblock, stream.block);
        }
    }
}
