//! Frontiers: open superblocks, and the stripe of each that is being filled.
//!
//! The host fills several in turn, stripe by stripe; copies and the map have one each. A stripe is programmed when it
//! is full, or padded; a superblock is closed with its last stripe.

use super::super::ftl::must_have_gained;
use super::super::ftl::{NONE, State};
use super::PageMapped;

/// An open superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frontier {
    /// [`NONE`] before the first use.
    pub superblock: u32,
    /// The next slot.
    pub next: u32,
    /// The next slot at which a stripe ends.
    pub stripe_end: u32,
    /// Host units in the stripe that is not yet programmed.
    pub host_units: u32,
    /// When the last of the unprogrammed units is at hand.
    pub ready: u64,
}

impl Frontier {
    pub const UNUSED: Self = Self { superblock: NONE, next: 0, stripe_end: 0, host_units: 0, ready: 0 };
}

/// Which frontier a unit goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Host(usize),
    Copies,
    /// Parts of a map that lies in the flash.
    Map,
}

impl PageMapped {
    /// Makes sure that the host has a frontier with a stripe to fill. Returns its index.
    pub fn begin_stripe(&mut self, turn: usize, now: u64) -> usize {
        if self.slc.is_some() {
            return self.begin_slc_stripe(now);
        }
        self.prepare_host(turn, now);
        turn
    }

    /// The host has filled a stripe of its frontier `turn`.
    #[inline]
    pub fn end_stripe(&mut self, turn: usize, now: u64) {
        if self.slc.is_some() || self.map_cache.is_some() {
            self.end_stripe_with_options(turn, now);
            return;
        }
        self.turn = (turn + 1) % self.host.len();
        self.pace(now, self.flash.geometry.stripe_units);
    }

    fn end_stripe_with_options(&mut self, turn: usize, now: u64) {
        // What the map has taken is paid for here. What went to the SLC cache is paid for when it is folded.
        let mut units = self.map_cache.as_mut().map_or(0, |cache| cache.take_owed());
        if self.slc.is_none() {
            units += self.flash.geometry.stripe_units;
            self.turn = (turn + 1) % self.host.len();
        } else if !self.end_slc_stripe(turn, now) {
            units += self.flash.geometry.stripe_units;
        }
        if units > 0 {
            self.pace(now, units);
        }
    }

    /// Programs host stripes that are begun, filling them up with nothing.
    pub fn pad_stripes(&mut self, now: u64) {
        for i in 0..self.host.len() {
            if self.host[i].host_units == 0 {
                continue;
            }
            let frontier = &mut self.host[i];
            let padding = frontier.stripe_end - frontier.next;
            frontier.next = frontier.stripe_end;
            self.map.blocks[frontier.superblock as usize].written += padding;
            self.flash.stats.nand_units.padding += u64::from(padding);
            self.program(Stream::Host(i), now);
            // The others are between two stripes.
            debug_assert_eq!(self.turn, i);
            self.end_stripe(i, now);
        }
    }

    /// Reserves the program of the stripe that ends at `next`; moves the frontier to the next stripe, and
    /// closes its superblock if that was the last.
    pub(super) fn program(&mut self, stream: Stream, now: u64) {
        let stripe_units = self.flash.geometry.stripe_units;
        let frontier = self.frontier(stream);
        let (superblock, end, host_units, ready) =
            (frontier.superblock, frontier.stripe_end, frontier.host_units, frontier.ready);
        frontier.host_units = 0;
        frontier.ready = 0;
        let mut at = self.flash.place(superblock, end - stripe_units);
        at.slc = self.slc.is_some() && self.map.blocks[superblock as usize].slc;
        let full = end == if at.slc { self.slc_units() } else { self.flash.geometry.superblock_units };
        self.frontier(stream).stripe_end = if full { end } else { end + stripe_units };
        let first = end - stripe_units;
        let done = self.flash.nand.program(at, now, ready.max(now), stripe_units);
        if host_units > 0 {
            self.flash.stats.busy_ns.program_host += self.flash.nand.t_prog_ns(at);
            let block = &mut self.map.blocks[superblock as usize];
            block.programmed_at = block.programmed_at.max(done);
            self.flash.stats.slc_units_written += if at.slc { u64::from(host_units) } else { 0 };
            self.flash.cache.issued(
                done,
                superblock * self.flash.geometry.superblock_units + first,
                host_units,
            );
        } else {
            self.flash.stats.busy_ns.program_gc += self.flash.nand.t_prog_ns(at);
        }
        if full {
            let block = &mut self.map.blocks[superblock as usize];
            block.state = State::Closed;
            block.closed_at = self.flash.stats.host_units_written;
            let valid = block.valid;
            if at.slc {
                self.close_slc(superblock);
            } else {
                self.victims.insert(superblock, valid);
            }
            *self.frontier(stream) = Frontier::UNUSED;
        }
    }

    #[inline]
    pub(super) fn frontier(&mut self, stream: Stream) -> &mut Frontier {
        match stream {
            Stream::Host(i) => &mut self.host[i],
            Stream::Copies if self.shared_frontier => &mut self.host[0],
            Stream::Copies => &mut self.copies,
            Stream::Map => match &mut self.map_cache {
                Some(cache) => &mut cache.frontier,
                None => &mut self.copies,
            },
        }
    }

    /// Makes sure that a host frontier is open.
    pub fn prepare_host(&mut self, index: usize, now: u64) {
        self.prepare(Stream::Host(index), index % self.flash.geometry.lanes as usize, now);
    }

    /// Makes sure that a frontier is open which must not take the last free superblock, with one of `lane` if there is
    /// one.
    pub(super) fn prepare(&mut self, stream: Stream, lane: usize, now: u64) {
        // In a shared frontier the collector may have opened the superblock meanwhile.
        let mut victims = 0;
        while self.frontier(stream).superblock == NONE {
            if self.free_count > 1 {
                self.open(stream, lane);
                return;
            }
            self.flash.stats.gc_stalls += 1;
            self.collect_one(now);
            victims += 1;
            must_have_gained(victims, self);
        }
    }

    pub(super) fn open(&mut self, stream: Stream, lane: usize) {
        let superblock = self.take_free(lane);
        self.map.blocks[superblock as usize].state = State::Open;
        let stripe_end = self.flash.geometry.stripe_units;
        *self.frontier(stream) = Frontier { superblock, stripe_end, ..Frontier::UNUSED };
    }

    /// Takes a superblock from the free pool, of `lane` if there is one.
    pub fn take_free(&mut self, lane: usize) -> u32 {
        let lanes = self.free.len();
        let Some(superblock) = (0..lanes).find_map(|i| self.free[(lane + i) % lanes].pop_front()) else {
            unreachable!(
                "the last free superblock is kept for the collector, and a victim needs one at most"
            );
        };
        self.free_count -= 1;
        superblock
    }
}
