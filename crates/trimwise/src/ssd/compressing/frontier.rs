//! Filling superblocks: chunk behind chunk, a stripe is programmed when it is full.

use super::super::ftl::must_have_gained;
use super::super::ftl::{NONE, State};
use super::Compressing;
use super::store::Owner;

/// An open superblock. Places are granules in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frontier {
    /// [`NONE`] before the first use.
    pub superblock: u32,
    /// The next granule.
    pub next: u32,
    /// Where the stripe ends that is being filled.
    pub stripe_end: u32,
    /// Host units that end in that stripe, and whether a part of one is in it.
    host_units: u32,
    holds_host: bool,
    /// When the last of what it holds is at hand.
    pub ready: u64,
}

impl Frontier {
    pub const UNUSED: Self =
        Self { superblock: NONE, next: 0, stripe_end: 0, host_units: 0, holds_host: false, ready: 0 };
}

/// Which frontier a chunk goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Host(usize),
    Copies,
}

impl Compressing {
    #[inline]
    pub(super) fn frontier(&mut self, stream: Stream) -> &mut Frontier {
        match stream {
            Stream::Host(i) => &mut self.host[i],
            Stream::Copies if self.shared_frontier => &mut self.host[0],
            Stream::Copies => &mut self.copies,
        }
    }

    /// The open superblocks and how far they are filled, for the audit.
    pub(super) fn frontiers(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let copies = (!self.shared_frontier).then_some(&self.copies);
        self.host.iter().chain(copies).filter(|f| f.superblock != NONE).map(|f| (f.superblock, f.next))
    }

    /// The granule that the next host chunk begins at.
    #[inline]
    pub(super) fn next_granule(&self, turn: usize) -> u32 {
        let frontier = &self.host[turn];
        frontier.superblock * self.store.granules_per_superblock() + frontier.next
    }

    /// Makes sure that the host frontier whose turn it is has room for a chunk. Returns which one.
    #[inline]
    pub(super) fn prepare_host(&mut self, now: u64, granules: u32) -> usize {
        let turn = self.turn;
        let frontier = &self.host[turn];
        if frontier.superblock == NONE || frontier.next + granules > self.store.granules_per_superblock() {
            self.make_room_for_host(turn, now, granules);
        }
        turn
    }

    #[cold]
    fn make_room_for_host(&mut self, turn: usize, now: u64, granules: u32) {
        // In a shared frontier the collector may open and fill superblocks meanwhile.
        let mut victims = 0;
        loop {
            if self.host[turn].superblock != NONE {
                if self.host[turn].next + granules <= self.store.granules_per_superblock() {
                    return;
                }
                self.fill_up(Stream::Host(turn), self.store.granules_per_superblock(), now);
            } else if self.free_count > 1 {
                self.open(Stream::Host(turn), turn % self.flash.geometry.lanes as usize);
            } else {
                self.flash.stats.gc_stalls += 1;
                self.collect_one(now);
                victims += 1;
                must_have_gained(victims, self);
            }
        }
    }

    /// Makes sure that the frontier for copies has room for a chunk.
    #[inline]
    pub(super) fn prepare_copies(&mut self, now: u64, granules: u32) {
        let end = self.store.granules_per_superblock();
        loop {
            let frontier = self.frontier(Stream::Copies);
            if frontier.superblock == NONE {
                let lane = self.collector.next_lane(self.free.len());
                self.open(Stream::Copies, lane);
            } else if frontier.next + granules <= end {
                return;
            } else {
                self.fill_up(Stream::Copies, end, now);
            }
        }
    }

    fn open(&mut self, stream: Stream, lane: usize) {
        let lanes = self.free.len();
        let Some(superblock) = (0..lanes).find_map(|i| self.free[(lane + i) % lanes].pop_front()) else {
            unreachable!(
                "the last free superblock is kept for the collector, and a victim needs one at most"
            );
        };
        self.free_count -= 1;
        self.store.blocks[superblock as usize].state = State::Open;
        let stripe_end = self.stripe_granules;
        *self.frontier(stream) = Frontier { superblock, stripe_end, ..Frontier::UNUSED };
    }

    /// Puts a host chunk behind the others of its frontier, where there is room for it.
    #[inline]
    pub(super) fn append_host(&mut self, turn: usize, now: u64, ready: u64, owner: Owner, granules: u32) {
        self.flash.stats.nand_granules.host += u64::from(granules);
        self.unpaced += granules;
        if self.append(Stream::Host(turn), now, ready, owner, granules, true) {
            self.turn = (turn + 1) % self.host.len();
            let granules = std::mem::take(&mut self.unpaced);
            self.pace(now, granules);
        }
    }

    /// Puts a chunk behind the others. Returns whether a stripe became full by it.
    #[inline]
    pub(super) fn append(
        &mut self,
        stream: Stream,
        now: u64,
        ready: u64,
        owner: Owner,
        granules: u32,
        is_host: bool,
    ) -> bool {
        let frontier = self.frontier(stream);
        frontier.next += granules;
        frontier.ready = frontier.ready.max(ready);
        frontier.holds_host |= is_host;
        let (superblock, next) = (frontier.superblock, frontier.next);
        let mut full = false;
        // What does not fit into the stripe goes on in the next one.
        while next > self.frontier(stream).stripe_end {
            full = true;
            self.program(stream, now);
            let frontier = self.frontier(stream);
            (frontier.ready, frontier.holds_host) = (ready, is_host);
        }
        let block = &mut self.store.blocks[superblock as usize];
        block.valid += granules;
        block.written += granules;
        self.store.logs[superblock as usize].push(owner);
        let frontier = self.frontier(stream);
        frontier.host_units += u32::from(is_host);
        if next == frontier.stripe_end {
            full = true;
            self.program(stream, now);
        }
        full
    }

    /// Programs host stripes that are begun, filling them up with nothing.
    pub(super) fn pad_stripes(&mut self, now: u64) {
        for i in 0..self.host.len() {
            if !self.host[i].holds_host {
                continue;
            }
            self.fill_up(Stream::Host(i), self.host[i].stripe_end, now);
            if self.turn == i {
                self.turn = (i + 1) % self.host.len();
            }
            let granules = std::mem::take(&mut self.unpaced);
            self.pace(now, granules);
        }
    }

    /// Fills a frontier up with nothing as far as `end`, where a stripe ends.
    fn fill_up(&mut self, stream: Stream, end: u32, now: u64) {
        let frontier = self.frontier(stream);
        let padding = end - frontier.next;
        frontier.next = end;
        let superblock = frontier.superblock;
        let is_host = frontier.holds_host;
        if padding > 0 {
            self.store.blocks[superblock as usize].written += padding;
            self.store.logs[superblock as usize].push(Owner::padding(padding));
            self.flash.stats.nand_granules.padding += u64::from(padding);
            self.unpaced += if is_host { padding } else { 0 };
        }
        while self.frontier(stream).superblock == superblock && self.frontier(stream).stripe_end <= end {
            self.program(stream, now);
        }
    }

    /// Reserves the program of the stripe that is being filled; moves on to the next, and closes the superblock if
    /// that was its last.
    fn program(&mut self, stream: Stream, now: u64) {
        let stripe_granules = self.stripe_granules;
        let frontier = self.frontier(stream);
        let Frontier { superblock, stripe_end: end, host_units, holds_host, ready, .. } = *frontier;
        frontier.host_units = 0;
        frontier.holds_host = false;
        frontier.ready = 0;
        frontier.stripe_end = end + stripe_granules;
        let stripe_units = self.flash.geometry.stripe_units;
        let at = self.flash.place(superblock, (end - stripe_granules) >> self.unit_shift);
        let done = self.flash.nand.program(at, now, ready.max(now), stripe_units);
        self.gatherer.lose_register(at.die);
        match holds_host {
            true => self.flash.stats.busy_ns.program_host += self.flash.nand.t_prog_ns(at),
            false => self.flash.stats.busy_ns.program_gc += self.flash.nand.t_prog_ns(at),
        }
        if host_units > 0 {
            let block = &mut self.store.blocks[superblock as usize];
            block.programmed_at = block.programmed_at.max(done);
            let first = superblock * self.store.granules_per_superblock() + end - stripe_granules;
            self.flash.cache.issued(done, first, host_units);
        }
        if end == self.store.granules_per_superblock() {
            self.close(stream, superblock);
        }
    }

    fn close(&mut self, stream: Stream, superblock: u32) {
        *self.frontier(stream) = Frontier::UNUSED;
        let block = &mut self.store.blocks[superblock as usize];
        block.state = State::Closed;
        block.closed_at = self.flash.stats.host_units_written;
        self.victims.insert(superblock, block.valid);
        self.store.logs[superblock as usize].shrink_to_fit();
    }
}
