//! Frontiers: open superblocks, and the stripe of each that is being filled.
//!
//! A stripe is programmed when it is full, or padded. A superblock is closed with its last stripe. Data that do not fit
//! into a stripe continue in the next one, but never in another superblock.

use super::super::address::{Number, Slot, Superblock};
use super::super::flash::Stripe;
use super::{Ftl, Place, Placement, State, must_have_gained};
use crate::units::SimTime;

/// An open superblock. Places are offsets of slots in it.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Frontier {
    pub superblock: Superblock,
    pub next: u32,
    stripe_end: u32,
    end: u32,
    pub stripe: Stripe,
}

impl Frontier {
    pub(crate) const UNUSED: Self =
        Self { superblock: Superblock::NONE, next: 0, stripe_end: 0, end: 0, stripe: Stripe::EMPTY };

    #[inline]
    pub fn slot(&self) -> Slot {
        Slot::new(self.superblock, self.next)
    }

    #[inline]
    pub fn is_open(&self) -> bool {
        self.superblock != Superblock::NONE
    }

    #[inline]
    pub fn has_room(&self, slots: u32) -> bool {
        self.next + slots <= self.end
    }

    #[inline]
    pub(crate) fn stripe_end(&self) -> u32 {
        self.stripe_end
    }

    #[inline]
    pub(crate) fn stripe_room(&self) -> u32 {
        self.stripe_end - self.next
    }

    #[inline]
    pub(crate) fn fills_stripe(&self, slots: u32) -> bool {
        self.next + slots >= self.stripe_end
    }
}

impl<P: Placement> Ftl<P> {
    pub(crate) fn open_superblocks(&self) -> impl Iterator<Item = Slot> + '_ {
        self.frontiers.iter().filter(|f| f.is_open()).map(Frontier::slot)
    }

    pub(crate) fn next_turn(&self, frontier: usize) -> usize {
        (frontier + 1) % self.hosts
    }

    #[inline]
    pub(crate) fn prepare_host(&mut self, frontier: usize, slots: u32, now: SimTime) {
        if !self.frontiers[frontier].has_room(slots) {
            self.make_room(frontier, frontier % self.pool.lanes(), slots, now);
        }
    }

    /// Makes room in a frontier, by opening a superblock (of `lane` if possible) or by collecting. The last free
    /// superblock is left to the collector.
    #[cold]
    pub fn make_room(&mut self, frontier: usize, lane: usize, slots: u32, now: SimTime) {
        // Meanwhile the collector may open and fill superblocks of a shared frontier.
        let mut victims = 0;
        while !self.frontiers[frontier].has_room(slots) {
            if self.frontiers[frontier].is_open() {
                self.fill_up(frontier, self.frontiers[frontier].end, now);
            } else if self.pool.free() > 1 {
                self.open(frontier, lane);
            } else {
                self.flash.stats.gc_stalls += 1;
                self.collect_one(now);
                victims += 1;
                must_have_gained(victims, self);
            }
        }
    }

    /// Makes room in the frontier of copies. Returns its index.
    #[inline]
    pub(crate) fn prepare_copies(&mut self, slots: u32, now: SimTime) -> usize {
        let copies = self.copies;
        while !self.frontiers[copies].has_room(slots) {
            if self.frontiers[copies].is_open() {
                self.fill_up(copies, self.frontiers[copies].end, now);
            } else {
                let lane = self.collector.next_lane(self.pool.lanes());
                self.open(copies, lane);
            }
        }
        copies
    }

    pub fn open(&mut self, frontier: usize, lane: usize) {
        let superblock = self.take_free(lane);
        self.open_superblock(frontier, superblock, self.superblock_slots);
    }

    pub(crate) fn open_superblock(&mut self, frontier: usize, superblock: Superblock, slots: u32) {
        self.blocks[superblock].state = State::Open;
        let (stripe_end, end) = (self.stripe_slots, slots);
        self.frontiers[frontier] = Frontier { superblock, stripe_end, end, ..Frontier::UNUSED };
    }

    /// Takes a superblock from the free pool, of `lane` if possible.
    pub(crate) fn take_free(&mut self, lane: usize) -> Superblock {
        let Some(superblock) = self.pool.take(lane) else {
            unreachable!(
                "the last free superblock is kept for the collector, and a victim needs one at most"
            );
        };
        superblock
    }

    /// Fills slots of a host frontier that has room for them, with `units` that are available at `ready` and end in the
    /// same stripe.
    #[inline]
    pub(crate) fn append_host(
        &mut self,
        frontier: usize,
        now: SimTime,
        ready: SimTime,
        slots: u32,
        units: u32,
    ) {
        self.counts().host += u64::from(slots);
        if self.append(frontier, now, ready, slots, units) {
            P::stripe_filled(self, frontier, now);
        }
    }

    /// Fills slots of a frontier that has room for them, with copies or with `host_units` that end in the same stripe.
    /// Returns true if a stripe became full.
    #[inline]
    pub fn append(
        &mut self,
        frontier: usize,
        now: SimTime,
        ready: SimTime,
        slots: u32,
        host_units: u32,
    ) -> bool {
        let open = &mut self.frontiers[frontier];
        open.next += slots;
        open.stripe.ready = open.stripe.ready.max(ready);
        open.stripe.holds_host |= host_units > 0;
        let block = &mut self.blocks[open.superblock];
        block.valid += slots;
        block.written += slots;
        if open.next < open.stripe_end {
            open.stripe.host_units += host_units;
            return false;
        }
        self.complete(frontier, now, ready, host_units);
        true
    }

    /// Programs the stripes that end at or before the frontier's next slot. A unit leaves the write cache with the
    /// stripe in which it ends.
    fn complete(&mut self, frontier: usize, now: SimTime, ready: SimTime, host_units: u32) {
        let next = self.frontiers[frontier].next;
        while next > self.frontiers[frontier].stripe_end {
            self.program(frontier, now);
            self.frontiers[frontier].stripe = Stripe { host_units: 0, holds_host: host_units > 0, ready };
        }
        self.frontiers[frontier].stripe.host_units += host_units;
        if next == self.frontiers[frontier].stripe_end {
            self.program(frontier, now);
        }
    }

    pub(super) fn pad_stripes(&mut self, now: SimTime) {
        for i in 0..self.frontiers.len() {
            if self.frontiers[i].stripe.holds_host {
                self.fill_up(i, self.frontiers[i].stripe_end, now);
                P::stripe_filled(self, i, now);
            }
        }
    }

    pub(crate) fn fill_up(&mut self, frontier: usize, end: u32, now: SimTime) {
        let open = &mut self.frontiers[frontier];
        let (superblock, padding, is_host) = (open.superblock, end - open.next, open.stripe.holds_host);
        open.next = end;
        if padding > 0 {
            self.blocks[superblock].written += padding;
            self.counts().padding += u64::from(padding);
            self.map.padded(superblock, padding, is_host);
        }
        while self.frontiers[frontier].superblock == superblock && self.frontiers[frontier].stripe_end <= end
        {
            self.program(frontier, now);
        }
    }

    /// Reserves the program of the stripe that is being filled. Moves on to the next stripe, or closes the superblock
    /// after its last.
    fn program(&mut self, frontier: usize, now: SimTime) {
        let open = &mut self.frontiers[frontier];
        let Frontier { superblock, stripe_end, end, .. } = *open;
        let stripe = std::mem::take(&mut open.stripe);
        open.stripe_end += self.stripe_slots;
        let first = stripe_end - self.stripe_slots;
        let first = Slot::new(superblock, first);
        let at = self.place(first);
        let done = self.flash.program(at, first.ppn(self.superblock_slots), now, stripe);
        self.map.die_used(at.die);
        let stripe_number = first.offset / self.stripe_slots;
        let is_last = stripe_end == end;
        if let Some(die) = self.flash.geometry.parity_after(superblock, stripe_number, is_last) {
            let at = Place { slc: at.slc, ..self.flash.place_of_die(die) };
            self.flash.program_parity(at, now, stripe.ready);
            self.map.die_used(die);
            self.counts().parity += u64::from(self.stripe_slots);
        }
        if stripe.host_units > 0 {
            let block = &mut self.blocks[superblock];
            block.programmed_at = block.programmed_at.max(done);
            self.flash.stats.slc_units_written += if at.slc { u64::from(stripe.host_units) } else { 0 };
        }
        if is_last {
            self.close(frontier);
        }
    }

    pub fn close(&mut self, frontier: usize) {
        let Frontier { superblock, .. } = std::mem::replace(&mut self.frontiers[frontier], Frontier::UNUSED);
        let block = &mut self.blocks[superblock];
        block.closed_at = self.flash.stats.host_units_written;
        if block.slc {
            block.state = State::Slc;
        } else {
            block.state = State::Closed;
            self.victims.insert(superblock, block.valid);
        }
        self.map.closed(superblock, block.slc);
    }
}
