//! The page map: any unit may lie in any page.
//!
//! Host units fill the *host frontiers*, open superblocks taken in turn, stripe by stripe; copies fill a
//! frontier of their own (or the host's, as a setting). How room is made is in `collect`.
//!
//! Copies wait in the controller's own memory, not in the host's write cache, until their stripe is full; the
//! model takes that memory as safe against power loss.

mod audit;
mod collect;
mod map;
mod unmap;

use std::collections::VecDeque;
use std::ops::Range;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::audit::AuditError;
use super::config::SsdConfig;
use super::flash::Flash;
use super::gc::Victims;
use super::geometry::Geometry;
use super::stats::Wear;
use super::superblock::{NONE, State};
use super::translation::{Ready, Translation};
use crate::content::Content;
use collect::Collector;
use map::Mapping;

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
pub(super) struct PageMapped {
    flash: Flash,
    map: Mapping,
    victims: Victims,
    /// Free superblocks by lane, in the order in which they became free.
    free: Vec<VecDeque<u32>>,
    free_count: u32,
    host: Vec<Frontier>,
    copies: Frontier,
    /// The host frontier that takes the next unit.
    turn: usize,
    collector: Collector,
    shared_frontier: bool,
    /// Slots that were written and then erased, for the audit.
    erased_slots: u64,
}

impl PageMapped {
    pub fn new(config: &SsdConfig, geometry: Geometry, seed: u64) -> Self {
        let mut free = vec![VecDeque::new(); geometry.lanes as usize];
        for superblock in 0..geometry.superblocks {
            free[(superblock % geometry.lanes) as usize].push_back(superblock);
        }
        Self {
            map: Mapping::new(&geometry, config.track_tags),
            victims: Victims::new(config.gc.victim, geometry.superblocks, geometry.superblock_units),
            free,
            free_count: geometry.superblocks,
            host: vec![Frontier::UNUSED; config.gc.host_frontiers as usize],
            copies: Frontier::UNUSED,
            turn: 0,
            collector: Collector::new(config, Xoshiro256PlusPlus::seed_from_u64(seed)),
            shared_frontier: config.gc.shared_frontier,
            erased_slots: 0,
            flash: Flash::new(config, geometry),
        }
    }

    /// Slots that no unit has taken since their erase.
    pub fn free_slots(&self) -> u64 {
        self.map.blocks.iter().map(|b| u64::from(self.flash.geometry.superblock_units - b.written)).sum()
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
    fn write_unit(&mut self, now: u64, ready: u64, lpn: u32, tag: u32) {
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
        self.map.set_tag(superblock * self.flash.geometry.superblock_units + offset, tag);
        let block = &mut self.map.blocks[superblock as usize];
        block.valid += 1;
        block.written += 1;
        self.flash.stats.nand_units.host += 1;
        if full {
            self.program(Stream::Host(turn), now);
            self.turn = (turn + 1) % self.host.len();
            self.pace(now, self.flash.geometry.stripe_units);
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
    fn pad_stripes(&mut self, now: u64) {
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
            if self.turn == i {
                self.turn = (i + 1) % self.host.len();
            }
            self.pace(now, self.flash.geometry.stripe_units);
        }
    }

    /// Whether a slot belongs to a stripe that is still being filled, or to one of the host's whose program
    /// has not ended at `now`: a read then needs no flash.
    #[inline]
    pub fn in_memory(&self, ppn: u32, now: u64) -> bool {
        let (superblock, offset) = self.map.split(ppn);
        let block = &self.map.blocks[superblock as usize];
        let stripe_units = self.flash.geometry.stripe_units;
        let first = offset - offset % stripe_units;
        if block.state == State::Open && block.written < first + stripe_units {
            return true;
        }
        block.programmed_at > now
            && self.flash.cache.holds(superblock * self.flash.geometry.superblock_units + first, now)
    }

    /// Reserves the program of the stripe that ends at `next`; moves the frontier to the next stripe, and
    /// closes its superblock if that was the last.
    pub fn program(&mut self, stream: Stream, now: u64) {
        let stripe_units = self.flash.geometry.stripe_units;
        let frontier = self.frontier(stream);
        let (superblock, end, host_units, ready) =
            (frontier.superblock, frontier.stripe_end, frontier.host_units, frontier.ready);
        frontier.host_units = 0;
        frontier.ready = 0;
        let full = end == self.flash.geometry.superblock_units;
        self.frontier(stream).stripe_end = if full { end } else { end + stripe_units };
        let first = end - stripe_units;
        let at = self.flash.place(superblock, first);
        let done = self.flash.nand.program(at, now, ready.max(now), stripe_units);
        if host_units > 0 {
            self.flash.stats.busy_ns.program_host += self.flash.nand.t_prog_ns();
            let block = &mut self.map.blocks[superblock as usize];
            block.programmed_at = block.programmed_at.max(done);
            self.flash.cache.issued(
                done,
                superblock * self.flash.geometry.superblock_units + first,
                host_units,
            );
        } else {
            self.flash.stats.busy_ns.program_gc += self.flash.nand.t_prog_ns();
        }
        if full {
            let block = &mut self.map.blocks[superblock as usize];
            block.state = State::Closed;
            block.closed_at = self.flash.stats.host_units_written;
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

    /// Makes sure that the host frontier has a stripe to fill.
    fn prepare_host(&mut self, index: usize, now: u64) {
        // In a shared frontier the collector may have opened the superblock meanwhile.
        while self.host[index].superblock == NONE {
            if self.free_count > 1 {
                self.open(Stream::Host(index), index % self.flash.geometry.lanes as usize);
                return;
            }
            self.flash.stats.gc_stalls += 1;
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
        let stripe_end = self.flash.geometry.stripe_units;
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
        self.flash.stats.superblock_erases += 1;
        self.flash.stats.block_erases += u64::from(self.flash.geometry.blocks_per_superblock);
    }

    fn erase_everything(&mut self, now: u64) -> u64 {
        let mut end = now;
        self.map.l2p.fill(NONE);
        self.map.bits.fill(0);
        self.map.mapped = 0;
        for lane in &mut self.free {
            lane.clear();
        }
        for superblock in 0..self.flash.geometry.superblocks {
            let block = &mut self.map.blocks[superblock as usize];
            block.valid = 0;
            if block.written > 0 || block.state != State::Free {
                self.erased(superblock);
                for i in 0..self.flash.geometry.dies_per_superblock {
                    let die = self.flash.geometry.die(superblock, i);
                    end = end.max(self.flash.nand.erase(die, now, &mut self.flash.stats.busy_ns));
                }
            }
            self.free[(superblock % self.flash.geometry.lanes) as usize].push_back(superblock);
        }
        self.free_count = self.flash.geometry.superblocks;
        self.host.fill(Frontier::UNUSED);
        self.copies = Frontier::UNUSED;
        self.collector.clear();
        self.victims.clear();
        self.flash.cache.clear();
        end
    }

    fn slot(&self, lpn: u32) -> Option<u32> {
        let ppn = *self.map.l2p.get(lpn as usize)?;
        (ppn != NONE).then_some(ppn)
    }

    fn read_run(&mut self, run: Option<(u32, u32)>, now: u64, ready: u64) -> Option<u64> {
        let (stripe, units) = run?;
        let (superblock, offset) = self.map.split(stripe * self.flash.geometry.stripe_units);
        let at = self.flash.place(superblock, offset);
        Some(self.flash.nand.read(at, now, ready, units, &mut self.flash.stats.busy_ns))
    }
}

impl Translation for PageMapped {
    fn boxed_clone(&self) -> Box<dyn Translation> {
        Box::new(self.clone())
    }

    fn flash(&self) -> &Flash {
        &self.flash
    }

    fn flash_mut(&mut self) -> &mut Flash {
        &mut self.flash
    }

    fn write(&mut self, now: u64, arrived: u64, units: Range<u32>, content: Content) -> u64 {
        let tag = content.tag();
        let mut acknowledged = arrived;
        for lpn in units {
            let (in_cache, ready) = self.flash.admit(acknowledged);
            acknowledged = in_cache;
            self.write_unit(now, ready, lpn, tag);
        }
        acknowledged
    }

    fn pad(&mut self, now: u64) {
        self.pad_stripes(now);
    }

    fn read(&mut self, now: u64, decoded: u64, units: Range<u32>) -> Ready {
        // Units of one stripe that follow each other are read together.
        let (mut first, mut last) = (u64::MAX, decoded);
        let mut run: Option<(u32, u32)> = None;
        for lpn in units {
            let ppn = self.map.l2p[lpn as usize];
            if ppn == NONE {
                self.flash.stats.host_units_read_unmapped += 1;
                first = first.min(decoded);
                continue;
            }
            if self.in_memory(ppn, now) {
                self.flash.stats.host_units_read_cached += 1;
                first = first.min(decoded);
                continue;
            }
            let stripe = ppn / self.flash.geometry.stripe_units;
            run = match run {
                Some((at, count)) if at == stripe => Some((at, count + 1)),
                other => {
                    let ready = self.read_run(other, now, decoded);
                    first = first.min(ready.unwrap_or(u64::MAX));
                    last = last.max(ready.unwrap_or(0));
                    Some((stripe, 1))
                }
            };
        }
        if let Some(ready) = self.read_run(run, now, decoded) {
            first = first.min(ready);
            last = last.max(ready);
        }
        Ready { first, last }
    }

    fn is_in_memory(&self, lpn: u32, now: u64) -> bool {
        self.slot(lpn).is_some_and(|ppn| self.in_memory(ppn, now))
    }

    fn unmap(&mut self, _now: u64, ranges: &[Range<u32>]) -> u64 {
        self.unmap_ranges(ranges)
    }

    fn erase_all(&mut self, now: u64) -> u64 {
        self.erase_everything(now)
    }

    fn collect_idle(&mut self, from: u64, until: u64) {
        self.collect_between(from, until);
    }

    fn is_mapped(&self, lpn: u32) -> bool {
        self.slot(lpn).is_some()
    }

    fn mapped_units(&self) -> u64 {
        self.map.mapped
    }

    fn tag(&self, lpn: u32) -> Option<u32> {
        self.map.tag(self.slot(lpn)?)
    }

    fn wear(&self) -> Wear {
        Wear::of(self.map.blocks.iter().map(|block| block.erases))
    }

    fn free_superblocks(&self) -> u32 {
        self.free_count
    }

    fn memory_bytes(&self) -> u64 {
        let free: usize = self.free.iter().map(VecDeque::capacity).sum();
        self.map.memory_bytes() + self.victims.memory_bytes() + free as u64 * 4
    }

    fn audit(&self) -> Result<(), AuditError> {
        self.audit_books()
    }
}
