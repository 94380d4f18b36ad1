//! The block map: a largely static mapping with log superblocks, as in drives of the Indilinx class.
//!
//! A *logical block* is as many units as a superblock holds. It has one *data block* at most, a superblock in which
//! each unit lies at its own offset, so that the controller needs to know one number for all of them. A page can be
//! programmed only once, and only after the pages before it. So data that cannot be written to their place go to the
//! *log*: a bounded number of superblocks, in which units lie in the order of writing. Free logical blocks do not make
//! the log larger: that distinguishes such a drive from one with a page map.
//!
//! Data come back from the log in *merges* (after FAST: Lee et al., "A log buffer-based flash translation layer using
//! fully-associative sector translation", ACM TECS 6(3), 2007).
//!
//! - A *stream* writes a logical block from its first unit on. If the block holds no data, the stream's superblock is
//!   its data block. Otherwise it is one of the log; when it is full it takes the place of the old data block, and
//!   nothing is copied (*switch merge*). If the stream stops before, the missing units are copied from where they lie
//!   (*partial merge*). `streams` defines a stream.
//! - All other writes go to the random log. When it has reached its limit, its oldest superblock is emptied: each
//!   logical block that has valid units in it is gathered in a fresh superblock (*full merge*, in `merge`). The write
//!   that needs the room waits for all of that: such drives do stall.
//!
//! If a superblock spans only a part of the dies, neighbouring stripes of the logical space belong to different logical
//! blocks, one in each lane, so that a sequential write keeps all dies busy (`interleave`). Units below are units of
//! the space after that.
//!
//! TRIM: unmapped units are no longer copied. When a logical block holds nothing, its superblock is given back; it
//! is erased when it is needed, or before that while the host is idle.

mod audit;
mod interleave;
mod merge;
mod slots;
mod streams;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::address::{Number, Ppn, Slot, Superblock, Table, number};
use super::audit::AuditError;
use super::config::{BlockMappingConfig, SsdConfig};
use super::flash::{Flash, Stripe};
use super::ftl::Reads;
use super::geometry::Geometry;
use super::stats::Wear;
use super::translation::{Ready, Translation};
use crate::content::Content;
use crate::units::{Lpn, SimTime, UnitRange};
use interleave::Interleave;
use slots::{Role, Slots};
use streams::Stream;

number! {
    BlockNumber
}

#[derive(Clone, Copy, Debug)]
struct LogicalBlock {
    data: Superblock,
    /// Units of the block that hold data, in the log or elsewhere.
    mapped: u32,
    logged: u32,
}

impl LogicalBlock {
    const EMPTY: Self = Self { data: Superblock::NONE, mapped: 0, logged: 0 };
}

#[derive(Clone, Debug)]
pub(super) struct BlockMapped {
    flash: Flash,
    interleave: Interleave,
    blocks: Table<BlockNumber, LogicalBlock>,
    slots: Slots,
    /// Slot of a unit in the random log, or [`Ppn::NONE`].
    logged: Table<Lpn, Ppn>,
    /// The random log, oldest first. Only the last superblock can be open.
    log: VecDeque<Superblock>,
    log_stripe: Stripe,
    log_lane: u32,
    /// The unit after the one that the host wrote last.
    continues: Lpn,
    /// Maximum number of superblocks in the random log and in streams onto blocks that already hold data, together.
    log_max: u32,
    /// The oldest superblock of the random log has been chosen as a victim.
    reclaiming: bool,
    streams: Vec<Stream>,
    /// Clock of the streams' uses, to find the least recently used.
    stream_clock: u64,
    mapped: u64,
    /// Number of free superblocks in the log at which idle merging stops.
    idle_target: u32,
}

impl BlockMapped {
    pub fn new(config: &SsdConfig, mapping: &BlockMappingConfig, geometry: Geometry) -> Self {
        let blocks = geometry.logical_units.div_ceil(geometry.superblock_units);
        Self {
            blocks: Table::new(blocks as usize, LogicalBlock::EMPTY),
            slots: Slots::new(&geometry, mapping.log_superblocks, config.track_tags),
            logged: Table::new(geometry.logical_units as usize, Ppn::NONE),
            log: VecDeque::with_capacity(mapping.log_superblocks as usize),
            log_stripe: Stripe::EMPTY,
            continues: Lpn::NONE,
            interleave: Interleave::new(&geometry),
            log_lane: 0,
            log_max: mapping.log_superblocks,
            reclaiming: false,
            streams: vec![Stream::UNUSED; (config.gc.host_frontiers * geometry.lanes) as usize],
            stream_clock: 0,
            mapped: 0,
            idle_target: config.gc.idle_free_superblocks.min(mapping.log_superblocks),
            flash: Flash::new(config, geometry),
        }
    }

    fn units(&self) -> u32 {
        self.flash.geometry.superblock_units
    }

    #[inline]
    fn split(&self, lpn: Lpn) -> (BlockNumber, u32) {
        let lpn = lpn.0 as u32;
        (BlockNumber(lpn / self.units()), lpn % self.units())
    }

    #[inline]
    fn unit(&self, block: BlockNumber, offset: u32) -> Lpn {
        Lpn(u64::from(block.0) * u64::from(self.units()) + u64::from(offset))
    }

    fn slot(&self, lpn: Lpn) -> Option<Ppn> {
        let logged = *self.logged.at(lpn)?;
        if logged != Ppn::NONE {
            return Some(logged);
        }
        let (block, offset) = self.split(lpn);
        let stream = self.stream_onto(block).map(|stream| stream.superblock);
        let data = self.blocks[block].data;
        stream.into_iter().chain((data != Superblock::NONE).then_some(data)).find_map(|superblock| {
            let slot = Slot::new(superblock, offset).ppn(self.units());
            self.slots.is_valid(slot).then_some(slot)
        })
    }

    fn forget(&mut self, lpn: Lpn) -> bool {
        let Some(slot) = self.slot(lpn) else { return false };
        let number = self.split(lpn).0;
        let block = &mut self.blocks[number];
        block.mapped -= 1;
        if self.logged[lpn] != Ppn::NONE {
            self.logged[lpn] = Ppn::NONE;
            block.logged -= 1;
        }
        self.mapped -= 1;
        self.slots.invalidate(slot);
        true
    }

    /// Writes one host unit that is in the controller at `ready`.
    #[inline]
    fn write_unit(&mut self, now: SimTime, ready: SimTime, lpn: Lpn, tag: u32, sequential: bool) {
        let stream = self.stream_for(lpn, sequential, now);
        if stream.is_none() {
            self.prepare_log(now);
        }
        self.forget(lpn);
        self.mapped += 1;
        let block = self.split(lpn).0;
        self.blocks[block].mapped += 1;
        self.flash.stats.nand_units.host += 1;
        match stream {
            Some(index) => self.write_to_stream(index, now, ready, tag),
            None => self.write_to_log(lpn, now, ready, tag),
        }
    }

    fn write_to_log(&mut self, lpn: Lpn, now: SimTime, ready: SimTime, tag: u32) {
        let Some(&superblock) = self.log.back() else { unreachable!("a superblock was prepared") };
        let slot = self.slots.append(superblock, tag);
        self.slots.own(slot, lpn);
        self.logged[lpn] = slot;
        let block = self.split(lpn).0;
        self.blocks[block].logged += 1;
        self.log_stripe.add_host_unit(ready);
        if self.slots.superblock(superblock).next.is_multiple_of(self.flash.geometry.stripe_units) {
            self.program_log(now);
        }
    }

    fn program_log(&mut self, now: SimTime) {
        let Some(&superblock) = self.log.back() else { return };
        let stripe = std::mem::take(&mut self.log_stripe);
        self.program(superblock, stripe, now);
    }

    fn prepare_log(&mut self, now: SimTime) {
        if self.log.back().is_some_and(|&s| self.slots.superblock(s).next < self.units()) {
            return;
        }
        self.prepare_quota(now);
        let superblock = self.take(now, Role::Log, self.log_lane);
        self.log_lane = (self.log_lane + 1) % self.flash.geometry.lanes;
        self.log.push_back(superblock);
    }

    fn pad_log(&mut self, now: SimTime) {
        if self.log_stripe.host_units == 0 {
            return;
        }
        let Some(&superblock) = self.log.back() else { return };
        let next = self.slots.superblock(superblock).next;
        let padding = next.next_multiple_of(self.flash.geometry.stripe_units) - next;
        self.slots.skip(superblock, padding);
        self.slots.fill(superblock, padding);
        self.flash.stats.nand_units.padding += u64::from(padding);
        self.program_log(now);
    }

    /// Reserves the program of the stripe that ends at the superblock's next slot.
    fn program(&mut self, superblock: Superblock, stripe: Stripe, now: SimTime) {
        let next = self.slots.superblock(superblock).next;
        let first = Slot::new(superblock, next - self.flash.geometry.stripe_units);
        let done = self.flash.program(self.flash.place(first), first.ppn(self.units()), now, stripe);
        let block = self.slots.superblock_mut(superblock);
        block.programmed = next;
        if stripe.holds_host {
            block.programmed_at = block.programmed_at.max(done);
        }
    }

    fn take(&mut self, now: SimTime, role: Role, lane: u32) -> Superblock {
        let (superblock, erased) = self.slots.take(role, lane);
        if erased {
            self.flash.erase(superblock, now);
        }
        superblock
    }

    fn lane(&self, block: BlockNumber) -> u32 {
        block.0 % self.flash.geometry.lanes
    }

    /// Returns true if a slot is in a stripe that is still being filled or programmed at `now`.
    fn in_memory(&self, slot: Ppn, now: SimTime) -> bool {
        let Slot { superblock, offset } = slot.slot(self.units());
        let block = self.slots.superblock(superblock);
        if offset >= block.programmed {
            return true;
        }
        let stripe_units = self.flash.geometry.stripe_units;
        block.programmed_at > now
            && self.flash.cache.holds(slot.stripe(stripe_units).first(stripe_units), now)
    }

    /// Gives back the superblocks of a logical block that no longer has a mapped unit.
    fn give_back(&mut self, block: BlockNumber, now: SimTime) {
        if let Some(index) = self.open_stream(block) {
            self.close_stream(index, now);
        }
        let data = std::mem::replace(&mut self.blocks[block].data, Superblock::NONE);
        if data != Superblock::NONE {
            self.slots.give_back(data);
        }
    }
}

impl Translation for BlockMapped {
    fn boxed_clone(&self) -> Box<dyn Translation> {
        Box::new(self.clone())
    }

    fn flash(&self) -> &Flash {
        &self.flash
    }

    fn flash_mut(&mut self) -> &mut Flash {
        &mut self.flash
    }

    fn write(&mut self, now: SimTime, arrived: SimTime, units: UnitRange, content: Content) -> SimTime {
        let tag = content.tag();
        let mut acknowledged = arrived;
        for lpn in units.iter() {
            let (in_cache, ready) = self.flash.admit(acknowledged);
            acknowledged = in_cache;
            let left = UnitRange::between(lpn, units.end()).units;
            let stripe_units = self.flash.geometry.stripe_units;
            let sequential = lpn == self.continues || left >= u64::from(stripe_units);
            self.continues = lpn.offset(1);
            self.write_unit(now, ready, self.interleave.inner(lpn), tag, sequential);
        }
        acknowledged
    }

    fn pad(&mut self, now: SimTime) {
        self.pad_log(now);
        for index in 0..self.streams.len() {
            self.complete_stripe(index, now);
        }
    }

    fn read(&mut self, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready {
        let mut reads = Reads::new(decoded);
        for lpn in units.iter() {
            match self.slot(self.interleave.inner(lpn)) {
                None => {
                    self.flash.stats.host_units_read_unmapped += 1;
                    reads.at_hand(decoded);
                }
                Some(slot) if self.in_memory(slot, now) => {
                    self.flash.stats.host_units_read_cached += 1;
                    reads.at_hand(decoded);
                }
                Some(slot) => reads.slot(&mut self.flash, now, slot, false, decoded),
            }
        }
        reads.finish(&mut self.flash, now)
    }

    fn is_in_memory(&self, lpn: Lpn, now: SimTime) -> bool {
        self.slot(self.interleave.inner(lpn)).is_some_and(|slot| self.in_memory(slot, now))
    }

    fn unmap(&mut self, now: SimTime, ranges: &[UnitRange]) -> u64 {
        let before = self.mapped;
        let stripe_units = u64::from(self.flash.geometry.stripe_units);
        for range in ranges {
            let mut begin = range.start;
            while begin < range.end() {
                // The units of a stripe stay together.
                let end = range.end().min(Lpn((begin.0 / stripe_units + 1) * stripe_units));
                let first = self.interleave.inner(begin);
                let block = self.split(first).0;
                if self.blocks[block].mapped > 0 {
                    for lpn in UnitRange::new(first, UnitRange::between(begin, end).units).iter() {
                        self.forget(lpn);
                    }
                    if self.blocks[block].mapped == 0 {
                        self.give_back(block, now);
                    }
                }
                begin = end;
            }
        }
        before - self.mapped
    }

    fn erase_all(&mut self, now: SimTime) -> SimTime {
        self.blocks.fill(LogicalBlock::EMPTY);
        self.logged.fill(Ppn::NONE);
        self.mapped = 0;
        self.log.clear();
        self.log_stripe = Stripe::EMPTY;
        self.continues = Lpn::NONE;
        self.reclaiming = false;
        self.streams.fill(Stream::UNUSED);
        let erased = self.slots.erase_all();
        let end = erased.iter().map(|&superblock| self.flash.erase(superblock, now)).max();
        self.flash.cache.clear();
        end.unwrap_or(now)
    }

    fn collect_idle(&mut self, from: SimTime, until: SimTime) {
        self.merge_between(from, until);
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.slot(self.interleave.inner(lpn)).is_some()
    }

    fn mapped_units(&self) -> u64 {
        self.mapped
    }

    fn tag(&self, lpn: Lpn) -> Option<u32> {
        self.slots.tags.get(self.slot(self.interleave.inner(lpn))?)
    }

    fn wear(&self) -> Wear {
        Wear::of(self.slots.superblocks().iter().map(|block| block.erases))
    }

    #[cfg(test)]
    fn free_superblocks(&self) -> u32 {
        self.slots.free()
    }

    fn memory_bytes(&self) -> u64 {
        let log = self.logged.memory_bytes() + self.log.capacity() as u64 * 4;
        self.blocks.memory_bytes() + log + self.slots.memory_bytes()
    }

    fn audit(&self) -> Result<(), AuditError> {
        self.audit_accounting()
    }
}
