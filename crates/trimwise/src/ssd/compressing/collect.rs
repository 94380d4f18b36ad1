//! Making room, as the page map does it (`page/collect.rs`), but for what is said here.
//!
//! A chunk moves whole. A superblock in which something was trimmed and not yet checked is read from end to end,
//! since the controller cannot tell without reading whether what it holds is shared; what turns out to be dead is
//! dropped. Until then it counts as valid: a drive full of trimmed data has nothing to gain as far as it knows, and
//! the collector takes such superblocks last.
//!
//! This class also recycles while there is free flash: whenever some superblock has become so stale that moving the
//! rest is cheap (`recycles_from_stale_percent`). It keeps step with what the host reads and writes. What it moves
//! lies between what the host writes at that time, and a die that programs a copy is not there for a read.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::config::{CompressingConfig, SsdConfig, VictimPolicy};
use super::super::ftl::State;
use super::Compressing;
use super::frontier::Stream;
use super::store::Owner;

/// Why chunks are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Gc,
    WearLevelling,
}

/// How much a victim is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// The host is idle, or there is free flash: only for a gain.
    Idle,
    /// The free pool is low.
    Paced,
    /// The host waits for a free superblock.
    Needed,
}

/// A superblock being collected.
#[derive(Clone, Copy, Debug)]
struct Victim {
    superblock: u32,
    /// Which piece of its log is next, and where that lies in it.
    piece: usize,
    offset: u32,
    cause: Cause,
    /// Granules to read for `gain` granules that the host writes.
    work: u64,
    gain: u64,
    /// Earned by host writes and not yet used, in granules times `gain`.
    credit: u64,
}

/// What has been asked of one stripe of a victim and is not yet read.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    stripe: u32,
    granules: u32,
    /// Whether some of it is to be copied.
    copies: bool,
}

/// What the collector knows from one call to the next.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    victim: Option<Victim>,
    /// The lane that the next superblock for copies comes from.
    copy_lane: usize,
    rng: Xoshiro256PlusPlus,
    pub free_min: u32,
    recycles_from_stale_percent: Option<u32>,
    fifo: bool,
    wear_threshold: Option<u32>,
    wear_interval: u32,
    /// Idle collection stops at so many free superblocks.
    idle_target: u32,
    erases_since_move: u32,
}

impl Collector {
    pub fn new(config: &SsdConfig, mapping: &CompressingConfig, rng: Xoshiro256PlusPlus) -> Self {
        Self {
            victim: None,
            copy_lane: 0,
            rng,
            free_min: config.gc.free_superblocks_min,
            recycles_from_stale_percent: mapping.recycles_from_stale_percent,
            fifo: config.gc.victim == VictimPolicy::Fifo,
            wear_threshold: config.wear_levelling.threshold_erases,
            wear_interval: config.wear_levelling.interval_erases,
            idle_target: config.gc.idle_free_superblocks,
            erases_since_move: 0,
        }
    }

    /// The superblock being collected.
    pub fn victim_superblock(&self) -> Option<u32> {
        self.victim.map(|victim| victim.superblock)
    }

    /// Forgets the victim: the device was erased.
    pub fn clear(&mut self) {
        self.victim = None;
    }

    pub fn erased(&mut self) {
        self.erases_since_move = self.erases_since_move.saturating_add(1);
    }

    /// The lane for the next superblock of copies.
    pub fn next_lane(&mut self, lanes: usize) -> usize {
        let lane = self.copy_lane;
        self.copy_lane = (lane + 1) % lanes;
        lane
    }
}

impl Compressing {
    /// Finishes the victim at hand, or chooses one and collects it whole.
    pub fn collect_one(&mut self, now: u64) {
        if self.collector.victim.is_none() {
            self.start_victim(Urgency::Needed);
        }
        self.copy(now, u32::MAX, false);
    }

    /// Called when the host has filled so many granules: does its share of the collecting.
    pub fn pace(&mut self, now: u64, granules: u32) {
        if self.collector.victim.is_none() && !self.start_paced() {
            return;
        }
        self.work_off(now, granules);
    }

    /// Does the share of `granules` of the victim at hand.
    fn work_off(&mut self, now: u64, granules: u32) {
        let Some(victim) = &mut self.collector.victim else { return };
        if victim.gain == 0 {
            self.copy(now, u32::MAX, false);
            return;
        }
        victim.credit += u64::from(granules) * victim.work;
        let due = victim.credit / victim.gain;
        victim.credit %= victim.gain;
        // A victim with nothing to read is erased at once.
        if due > 0 || victim.work == 0 {
            self.copy(now, u32::try_from(due).unwrap_or(u32::MAX), false);
        }
    }

    /// Called when the host has read so many units, each of which counts as one granule: one that recycles goes on
    /// beside reads.
    pub fn pace_beside_reads(&mut self, now: u64, granules: u32) {
        if self.collector.recycles_from_stale_percent.is_none() {
            return;
        }
        // Reads take no flash: where there is little, only writes need more.
        if self.collector.victim.is_some() || self.start_recycling() {
            self.work_off(now, granules);
            self.count_units();
        }
    }

    /// Chooses a victim if flash is short, or if one is stale enough to be recycled anyway.
    fn start_paced(&mut self) -> bool {
        if self.free_count < self.collector.free_min {
            return self.start_victim(Urgency::Paced);
        }
        self.start_recycling()
    }

    /// Chooses a victim if one is stale enough to be recycled.
    fn start_recycling(&mut self) -> bool {
        let Some(percent) = self.collector.recycles_from_stale_percent else { return false };
        let Some(first) = self.victims.first() else { return false };
        let all = u64::from(self.store.granules_per_superblock());
        let stale = all - u64::from(self.store.blocks[first as usize].valid);
        stale * 100 >= all * u64::from(percent) && self.start_victim(Urgency::Idle)
    }

    /// Granules of a superblock that units refer to.
    fn live(&self, superblock: u32) -> u32 {
        self.store.blocks[superblock as usize].valid - self.store.unchecked[superblock as usize]
    }

    /// Chooses a victim, if there is one worth it. Returns whether there is a victim now.
    fn start_victim(&mut self, urgency: Urgency) -> bool {
        if urgency != Urgency::Needed && self.start_wear_levelling() {
            return true;
        }
        let clock = self.flash.stats.host_units_written;
        let Some(chosen) = self.victims.choose(&self.store.blocks, clock, &mut self.collector.rng) else {
            return false;
        };
        let superblock = match urgency {
            Urgency::Needed => self.with_more_to_gain(chosen),
            Urgency::Idle | Urgency::Paced => chosen,
        };
        let gain_wanted = match urgency {
            Urgency::Idle => true,
            // First-in first-out takes what comes, or it would never get past a superblock without gain.
            Urgency::Paced => !self.collector.fifo,
            Urgency::Needed => false,
        };
        if gain_wanted && self.live(superblock) == self.store.granules_per_superblock() {
            return false;
        }
        self.flash.stats.gc_victims += 1;
        let closed = self.victims.closed().len() as u64 * u64::from(self.flash.geometry.superblock_units);
        let open: u64 = self.frontiers().map(|(_, next)| u64::from(next >> self.unit_shift)).sum();
        self.flash.stats.usable_units_sum += closed + open;
        self.take_victim(superblock, Cause::Gc);
        true
    }

    /// A victim for a host that waits. What is yet to be checked counts as valid in the choice, so that a superblock
    /// with next to nothing to gain may be chosen again and again while others only need to be looked at: then the one
    /// that is nearest to empty is taken, so that there is an end.
    ///
    /// Next to nothing is also what is lost again when the rest has moved: no chunk lies across the end of a
    /// superblock, and up to a chunk less a granule is left there, once at most for each victim. A configuration has
    /// room for two whole chunks in each superblock that holds data, so the emptiest gains more than that.
    fn with_more_to_gain(&self, chosen: u32) -> u32 {
        const LITTLE: u32 = 16;
        let all = self.store.granules_per_superblock();
        if all - self.live(chosen) >= (all / LITTLE).max(self.store.granules_max()) {
            return chosen;
        }
        let closed = self.victims.closed().iter().copied();
        closed.min_by_key(|&superblock| (self.live(superblock), superblock)).unwrap_or(chosen)
    }

    fn take_victim(&mut self, superblock: u32, cause: Cause) {
        let live = u64::from(self.live(superblock));
        let to_check = self.store.unchecked[superblock as usize] > 0;
        let block = &mut self.store.blocks[superblock as usize];
        block.state = State::Victim;
        let (valid, written) = (block.valid, u64::from(block.written));
        self.victims.remove(superblock, valid);
        let work = if to_check { written } else { live };
        let gain = u64::from(self.store.granules_per_superblock()) - live;
        self.collector.victim =
            Some(Victim { superblock, piece: 0, offset: 0, cause, work, gain, credit: 0 });
    }

    /// Makes the least erased closed superblock the victim, if the wear has spread too far and the last move
    /// is long enough ago.
    fn start_wear_levelling(&mut self) -> bool {
        let Some(threshold) = self.collector.wear_threshold else { return false };
        if self.collector.erases_since_move < self.collector.wear_interval || self.free_count < 2 {
            return false;
        }
        self.collector.erases_since_move = 0;
        let blocks = &self.store.blocks;
        let most = blocks.iter().map(|b| b.erases).max().unwrap_or(0);
        let least = self.victims.closed().iter().copied().min_by_key(|&s| (blocks[s as usize].erases, s));
        let Some(superblock) = least else { return false };
        if most - blocks[superblock as usize].erases <= threshold {
            return false;
        }
        self.take_victim(superblock, Cause::WearLevelling);
        true
    }

    /// Reads up to `budget` granules of the victim, moves what counts, and erases it if none is left.
    fn copy(&mut self, now: u64, budget: u32, idle: bool) {
        let Some(mut victim) = self.collector.victim.take() else { return };
        let source = victim.superblock;
        let base = source * self.store.granules_per_superblock();
        let checks = self.store.unchecked[source as usize] > 0;
        let (mut done, mut copied) = (0, 0);
        let mut reading = Reading::default();
        // Once the copies have taken the last free superblock the victim is finished at once: the host may share their
        // frontier, and would take the room that is meant for the rest.
        while (done < budget || self.free_count == 0)
            && let Some(&owner) = self.store.logs[source as usize].get(victim.piece)
        {
            let (offset, granules) = (victim.offset, self.store.length(owner));
            victim.piece += 1;
            victim.offset += granules;
            let live = self.store.is_live(owner, base + offset);
            if live || checks {
                done += granules;
                self.read_piece(source, &mut reading, (offset, granules), live, now);
            }
            if live {
                copied += granules;
                self.copy_chunk(source, &mut reading, (owner, base + offset, granules), now);
            }
        }
        self.carry_out(source, &mut reading, now);
        let stats = &mut self.flash.stats;
        match victim.cause {
            Cause::Gc => stats.nand_granules.gc += u64::from(copied),
            Cause::WearLevelling => stats.nand_granules.wear_levelling += u64::from(copied),
        }
        if idle {
            stats.gc_units_idle += u64::from(copied >> self.unit_shift);
        }
        if victim.piece < self.store.logs[source as usize].len() {
            self.collector.victim = Some(victim);
            return;
        }
        // What is left of it was trimmed, and nobody else refers to it.
        let block = &mut self.store.blocks[source as usize];
        block.valid -= self.store.unchecked[source as usize];
        self.erase_superblock(source, now);
        self.free[(source % self.flash.geometry.lanes) as usize].push_back(source);
        self.free_count += 1;
    }

    /// Asks for a piece of the victim, which may lie in several stripes. What was asked of another stripe is read.
    fn read_piece(&mut self, source: u32, reading: &mut Reading, piece: (u32, u32), copies: bool, now: u64) {
        let (mut offset, end) = (piece.0, piece.0 + piece.1);
        while offset < end {
            let stripe = offset / self.stripe_granules;
            let granules = end.min((stripe + 1) * self.stripe_granules) - offset;
            if reading.granules > 0 && reading.stripe != stripe {
                self.carry_out(source, reading, now);
            }
            *reading =
                Reading { stripe, granules: reading.granules + granules, copies: reading.copies || copies };
            offset += granules;
        }
    }

    /// Moves a chunk to the frontier for copies.
    fn copy_chunk(&mut self, source: u32, reading: &mut Reading, chunk: (Owner, u32, u32), now: u64) {
        let (owner, from, granules) = chunk;
        self.prepare_copies(now, granules);
        let frontier = self.frontier(Stream::Copies);
        if frontier.next + granules >= frontier.stripe_end {
            // What is programmed must have been read.
            self.carry_out(source, reading, now);
        }
        let per_superblock = self.store.granules_per_superblock();
        let frontier = self.frontier(Stream::Copies);
        let (to, ready) = (frontier.superblock * per_superblock + frontier.next, frontier.ready);
        self.store.move_to(owner, from, to);
        self.store.blocks[source as usize].valid -= granules;
        self.append(Stream::Copies, now, ready, owner, granules, false);
    }

    /// Reserves the read of what was asked for.
    fn carry_out(&mut self, source: u32, reading: &mut Reading, now: u64) {
        let Reading { stripe, granules, copies } = std::mem::take(reading);
        if granules == 0 {
            return;
        }
        let at = self.flash.place(source, (stripe * self.stripe_granules) >> self.unit_shift);
        let units = granules.div_ceil(1 << self.unit_shift);
        let ready = self.flash.nand.read_for_copy(at, now, units, &mut self.flash.stats.busy_ns);
        self.gatherer.lose_register(at.die);
        if copies {
            let frontier = self.frontier(Stream::Copies);
            frontier.ready = frontier.ready.max(ready);
        }
    }

    /// Collects while the host is idle, from `from` on and as long as it can begin before `until`, until enough
    /// superblocks are free. A piece is a stripe for each die.
    pub fn collect_between(&mut self, from: u64, until: u64) {
        let target = self.collector.idle_target;
        let piece = self.stripe_granules * self.flash.geometry.dies_per_superblock;
        let mut at = from;
        while at < until {
            if self.collector.victim.is_none()
                && (self.free_count >= target || !self.start_victim(Urgency::Idle))
            {
                return;
            }
            self.copy(at, piece, true);
            at = self.flash.nand.idle_at().max(at + 1);
        }
    }
}
