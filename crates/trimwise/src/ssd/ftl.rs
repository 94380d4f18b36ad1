//! Where the next unit goes.
//!
//! Host units fill the *host frontiers*, open superblocks taken in turn, stripe by stripe; copies fill a
//! frontier of their own (or the host's, as a setting). How room is made is in `collect`.
//!
//! Copies wait in the controller's own memory, not in the host's write cache, until their stripe is full; the
//! model takes that memory as safe against power loss.

use std::collections::VecDeque;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::cache::WriteCache;
use super::collect::Collector;
use super::config::SsdConfig;
use super::gc::Victims;
use super::geometry::Geometry;
use super::mapping::{Mapping, NONE, State};
use super::stats::SsdStats;
use super::timing::{Nand, Place};

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
    host_units: u32,
    /// When the last of the unprogrammed units is at hand.
    pub ready: u64,
}

impl Frontier {
    const UNUSED: Self = Self { superblock: NONE, next: 0, stripe_end: 0, host_units: 0, ready: 0 };
}

/// Which frontier a unit goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Host(usize),
    Copies,
}

#[derive(Clone, Debug)]
pub(super) struct Ftl {
    pub geometry: Geometry,
    pub map: Mapping,
    pub victims: Victims,
    /// Free superblocks by lane, in the order in which they became free.
    pub free: Vec<VecDeque<u32>>,
    pub free_count: u32,
    host: Vec<Frontier>,
    copies: Frontier,
    /// The host frontier that takes the next unit.
    turn: usize,
    pub nand: Nand,
    pub cache: WriteCache,
    pub stats: SsdStats,
    pub collector: Collector,
    shared_frontier: bool,
    /// Slots that were written and then erased, for the audit.
    erased_slots: u64,
}

impl Ftl {
    pub fn new(config: &SsdConfig, geometry: Geometry, rng: Xoshiro256PlusPlus) -> Self {
        let mut free = vec![VecDeque::new(); geometry.lanes as usize];
        for superblock in 0..geometry.superblocks {
            free[(superblock % geometry.lanes) as usize].push_back(superblock);
        }
        let cache_units =
            if config.cache.bytes == 0 { u64::MAX } else { config.cache.bytes / crate::units::UNIT_BYTES };
        Self {
            map: Mapping::new(&geometry, config.track_tags),
            victims: Victims::new(config.gc.victim, geometry.superblocks, geometry.superblock_units),
            free,
            free_count: geometry.superblocks,
            host: vec![Frontier::UNUSED; config.gc.host_frontiers as usize],
            copies: Frontier::UNUSED,
            turn: 0,
            nand: Nand::new(&config.nand, &geometry),
            cache: WriteCache::new(cache_units),
            stats: SsdStats::default(),
            collector: Collector::new(config, rng),
            shared_frontier: config.gc.shared_frontier,
            erased_slots: 0,
            geometry,
        }
    }

    /// Slots that no unit has taken since their erase.
    pub fn free_slots(&self) -> u64 {
        self.map.blocks.iter().map(|b| u64::from(self.geometry.superblock_units - b.written)).sum()
    }

    /// Slots that were written and then erased.
    pub fn erased_slots(&self) -> u64 {
        self.erased_slots
    }

    /// The superblocks in the free pool, for the audit.
    pub fn free_pool(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.iter().flatten().copied()
    }

    /// The open superblocks and their next slots, for the audit.
    pub fn frontiers(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let copies = (!self.shared_frontier).then_some(&self.copies);
        self.host.iter().chain(copies).filter(|f| f.superblock != NONE).map(|f| (f.superblock, f.next))
    }

    /// Writes one host unit that the controller has at hand at `ready`.
    #[inline]
    pub fn write(&mut self, now: u64, ready: u64, lpn: u32, tag: u32) {
        let turn = self.turn;
        if self.host[turn].next == self.host[turn].stripe_end {
            self.prepare_host(turn, now);
        }
        let old = self.map.l2p[lpn as usize];
        if old == NONE {
            self.map.mapped += 1;
        } else {
            self.invalidate(old);
        }
        let frontier = &mut self.host[turn];
        let (superblock, offset) = (frontier.superblock, frontier.next);
        frontier.next += 1;
        frontier.host_units += 1;
        frontier.ready = frontier.ready.max(ready);
        let full = frontier.next == frontier.stripe_end;
        self.map.set(superblock, offset, lpn);
        self.map.set_tag(superblock * self.geometry.superblock_units + offset, tag);
        let block = &mut self.map.blocks[superblock as usize];
        block.valid += 1;
        block.written += 1;
        self.stats.nand_units.host += 1;
        if full {
            self.program(Stream::Host(turn), now);
            self.turn = (turn + 1) % self.host.len();
            self.pace(now, self.geometry.stripe_units);
        }
    }

    /// The unit at a slot counts no more.
    #[inline]
    pub fn invalidate(&mut self, ppn: u32) {
        let (superblock, offset) = self.map.split(ppn);
        self.map.clear_bit(superblock, offset);
        let block = &mut self.map.blocks[superblock as usize];
        let before = block.valid;
        block.valid = before - 1;
        if block.state == State::Closed {
            self.victims.lost(superblock, before, before - 1);
        }
    }

    /// Programs host stripes that are begun, filling them up with nothing.
    pub fn pad(&mut self, now: u64) {
        for i in 0..self.host.len() {
            if self.host[i].host_units == 0 {
                continue;
            }
            let frontier = &mut self.host[i];
            let padding = frontier.stripe_end - frontier.next;
            frontier.next = frontier.stripe_end;
            self.map.blocks[frontier.superblock as usize].written += padding;
            self.stats.nand_units.padding += u64::from(padding);
            self.program(Stream::Host(i), now);
            if self.turn == i {
                self.turn = (i + 1) % self.host.len();
            }
            self.pace(now, self.geometry.stripe_units);
        }
    }

    /// Whether a slot belongs to a stripe that is still being filled, or to one of the host's whose program
    /// has not ended at `now`: a read then needs no flash.
    #[inline]
    pub fn in_memory(&self, ppn: u32, now: u64) -> bool {
        let (superblock, offset) = self.map.split(ppn);
        let block = &self.map.blocks[superblock as usize];
        let stripe_units = self.geometry.stripe_units;
        let first = offset - offset % stripe_units;
        if block.state == State::Open && block.written < first + stripe_units {
            return true;
        }
        block.programmed_at > now
            && self.cache.holds(superblock * self.geometry.superblock_units + first, now)
    }

    /// Reserves the program of the stripe that ends at `next`; moves the frontier to the next stripe, and
    /// closes its superblock if that was the last.
    pub fn program(&mut self, stream: Stream, now: u64) {
        let stripe_units = self.geometry.stripe_units;
        let frontier = self.frontier(stream);
        let (superblock, end, host_units, ready) =
            (frontier.superblock, frontier.stripe_end, frontier.host_units, frontier.ready);
        frontier.host_units = 0;
        frontier.ready = 0;
        let full = end == self.geometry.superblock_units;
        self.frontier(stream).stripe_end = if full { end } else { end + stripe_units };
        let first = end - stripe_units;
        let at = self.place(superblock, first);
        let done = self.nand.program(at, now, ready.max(now), stripe_units);
        if host_units > 0 {
            self.stats.busy_ns.program_host += self.nand.t_prog_ns();
            let block = &mut self.map.blocks[superblock as usize];
            block.programmed_at = block.programmed_at.max(done);
            self.cache.issued(done, superblock * self.geometry.superblock_units + first, host_units);
        } else {
            self.stats.busy_ns.program_gc += self.nand.t_prog_ns();
        }
        if full {
            let block = &mut self.map.blocks[superblock as usize];
            block.state = State::Closed;
            block.closed_at = self.stats.host_units_written;
            let valid = block.valid;
            self.victims.insert(superblock, valid);
            *self.frontier(stream) = Frontier::UNUSED;
        }
    }

    #[inline]
    pub fn frontier(&mut self, stream: Stream) -> &mut Frontier {
        match stream {
            Stream::Host(i) => &mut self.host[i],
            Stream::Copies if self.shared_frontier => &mut self.host[0],
            Stream::Copies => &mut self.copies,
        }
    }

    #[inline]
    pub fn place(&self, superblock: u32, offset: u32) -> Place {
        let die = self.geometry.die(superblock, offset / self.geometry.stripe_units);
        Place { die, channel: self.geometry.channel(die) }
    }

    /// Makes sure that the host frontier has a stripe to fill.
    fn prepare_host(&mut self, index: usize, now: u64) {
        // In a shared frontier the collector may have opened the superblock meanwhile.
        while self.host[index].superblock == NONE {
            if self.free_count > 1 {
                self.open(Stream::Host(index), index % self.geometry.lanes as usize);
                return;
            }
            self.stats.gc_stalls += 1;
            self.collect_one(now);
        }
    }

    pub fn open(&mut self, stream: Stream, lane: usize) {
        let lanes = self.free.len();
        let Some(superblock) = (0..lanes).find_map(|i| self.free[(lane + i) % lanes].pop_front()) else {
            unreachable!(
                "the last free superblock is kept for the collector, and a victim needs one at most"
            );
        };
        self.free_count -= 1;
        self.map.blocks[superblock as usize].state = State::Open;
        let stripe_end = self.geometry.stripe_units;
        *self.frontier(stream) = Frontier { superblock, stripe_end, ..Frontier::UNUSED };
    }

    pub fn erased(&mut self, superblock: u32) {
        let block = &mut self.map.blocks[superblock as usize];
        debug_assert_eq!(block.valid, 0, "an erase must not destroy data");
        self.erased_slots += u64::from(block.written);
        block.written = 0;
        block.erases += 1;
        block.state = State::Free;
        block.programmed_at = 0;
        self.collector.erases_since_move = self.collector.erases_since_move.saturating_add(1);
        self.stats.superblock_erases += 1;
        self.stats.block_erases += u64::from(self.geometry.blocks_per_superblock);
    }

    /// Erases everything. Returns when the last erase ends.
    pub fn erase_all(&mut self, now: u64) -> u64 {
        let mut end = now;
        self.map.l2p.fill(NONE);
        self.map.bits.fill(0);
        self.map.mapped = 0;
        for lane in &mut self.free {
            lane.clear();
        }
        for superblock in 0..self.geometry.superblocks {
            let block = &mut self.map.blocks[superblock as usize];
            block.valid = 0;
            if block.written > 0 || block.state != State::Free {
                self.erased(superblock);
                for i in 0..self.geometry.dies_per_superblock {
                    let die = self.geometry.die(superblock, i);
                    end = end.max(self.nand.erase(die, now, &mut self.stats.busy_ns));
                }
            }
            self.free[(superblock % self.geometry.lanes) as usize].push_back(superblock);
        }
        self.free_count = self.geometry.superblocks;
        self.host.fill(Frontier::UNUSED);
        self.copies = Frontier::UNUSED;
        self.collector.clear();
        self.victims.clear();
        self.cache.clear();
        end
    }

    /// Bytes held for mapping and collection.
    pub fn memory_bytes(&self) -> u64 {
        let free: usize = self.free.iter().map(VecDeque::capacity).sum();
        self.map.memory_bytes() + self.victims.memory_bytes() + free as u64 * 4
    }
}
