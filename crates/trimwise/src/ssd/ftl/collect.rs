//! Making room: collection in the foreground, while idle, and for wear levelling.
//!
//! When fewer superblocks than a minimum are free, a victim is chosen and copied piece by piece. For each stripe that
//! the host fills, so many slots are copied that the victim is finished just when the host has used up the space that
//! it gains. The host thus pays a little on each write and not much at once. While the host is idle collection goes on
//! without it, until a larger number is free.
//!
//! The last free superblock belongs to the collector: with it, a victim can always be finished. As the
//! physical space exceeds the logical by the open superblocks and two more (checked in the
//! configuration), some closed superblock always holds something to gain, and collecting on demand comes to an
//! end.
//!
//! Wear levelling is a victim like any other, chosen for its few erases and counted by its own cause.
//!
//! If the placement checks references, trimmed slots count as valid until the collector has read their superblock: the
//! controller cannot tell without reading whether anything else refers to them. Such a victim is read from end to end.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::address::{Number, Slot, Superblock};
use super::super::config::SsdConfig;
use super::{Block, Cursor, Ftl, Piece, Placement, State};
use crate::units::{SimDuration, SimTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ssd) enum Cause {
    Gc,
    WearLevelling,
    Folding,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ssd) enum Urgency {
    /// The host is idle, or flash is free: collect only if there is something to gain.
    Idle,
    Paced,
    Needed,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Victim {
    pub superblock: Superblock,
    pub(super) cursor: Cursor,
    cause: Cause,
    /// Slots to read for every `gain` slots that the host writes.
    work: u64,
    gain: u64,
    /// Copying earned by host writes and not yet done, in slots times `gain`.
    credit: u64,
}

impl Victim {
    pub fn new(superblock: Superblock, cause: Cause, work: u32, gain: u32) -> Self {
        let cursor = Cursor::default();
        Self { superblock, cursor, cause, work: work.into(), gain: gain.into(), credit: 0 }
    }

    /// Returns the number of slots to copy after the host has written `slots` more. `Some(0)` differs from `None`: a
    /// victim without valid slots is erased at once.
    #[inline]
    pub fn due(&mut self, slots: u32) -> Option<u32> {
        if self.gain == 0 {
            return Some(u32::MAX);
        }
        self.credit += u64::from(slots) * self.work;
        let due = self.credit / self.gain;
        self.credit %= self.gain;
        (due > 0 || self.work == 0).then(|| u32::try_from(due).unwrap_or(u32::MAX))
    }
}

/// Slots to read from one stripe of a victim in one operation; they are requested piece by piece.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    stripe: u32,
    slots: u32,
    /// The frontier that waits for the data, if some of the slots are copied.
    target: Option<usize>,
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Collector {
    pub victim: Option<Victim>,
    copy_lane: usize,
    rng: Xoshiro256PlusPlus,
    pub free_min: u32,
    blind: bool,
    wear_threshold: Option<u32>,
    wear_interval: u32,
    /// Idle collection stops when this many superblocks are free; 0 turns it off.
    idle_target: u32,
    pub(super) erases_since_move: u32,
}

impl Collector {
    pub(super) fn new(config: &SsdConfig, seed: u64) -> Self {
        Self {
            victim: None,
            copy_lane: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            free_min: config.gc.free_superblocks_min,
            blind: config.gc.victim.is_blind(),
            wear_threshold: config.wear_levelling.threshold_erases,
            wear_interval: config.wear_levelling.interval_erases,
            idle_target: if config.gc.idle { config.gc.idle_free_superblocks } else { 0 },
            erases_since_move: 0,
        }
    }

    pub(super) fn next_lane(&mut self, lanes: usize) -> usize {
        let lane = self.copy_lane;
        self.copy_lane = (lane + 1) % lanes;
        lane
    }
}

impl<P: Placement> Ftl<P> {
    pub(super) fn collect_one(&mut self, now: SimTime) {
        if self.collector.victim.is_none() {
            self.start_victim(Urgency::Needed);
        }
        self.collect(now, u32::MAX, false);
    }

    /// Does the collector's share after the host has filled `slots`.
    #[inline]
    pub fn pace(&mut self, now: SimTime, slots: u32) {
        if self.collector.victim.is_some() || self.start_paced() {
            self.work_off(now, slots);
        }
    }

    fn start_paced(&mut self) -> bool {
        if self.pool.free() < self.collector.free_min {
            return self.start_victim(Urgency::Paced);
        }
        P::recycle(self)
    }

    /// Copies as much of the current victim as `slots` of the host pay for.
    pub(crate) fn work_off(&mut self, now: SimTime, slots: u32) {
        let Some(due) = self.collector.victim.as_mut().and_then(|victim| victim.due(slots)) else { return };
        self.collect(now, due, false);
        if self.collector.victim.is_none() {
            P::victim_done(self, now);
        }
    }

    /// Returns the number of live slots of a superblock, as far as the placement knows.
    pub fn live(&self, superblock: Superblock) -> u32 {
        let Block { valid, unchecked, .. } = self.blocks[superblock];
        valid - unchecked
    }

    /// Chooses a victim if one is worth it. Returns true if there is a victim now.
    pub(crate) fn start_victim(&mut self, urgency: Urgency) -> bool {
        if urgency != Urgency::Needed && self.start_wear_levelling() {
            return true;
        }
        let clock = self.flash.stats.host_units_written;
        let Some(chosen) = self.victims.choose(&self.blocks, clock, &mut self.collector.rng) else {
            return false;
        };
        let superblock = match urgency {
            Urgency::Needed => P::victim_for_waiting_host(self, chosen),
            Urgency::Idle | Urgency::Paced => chosen,
        };
        let gain_wanted = match urgency {
            Urgency::Idle => true,
            // First-in first-out takes every superblock in turn, or it would never get past one without gain.
            Urgency::Paced => !self.collector.blind,
            Urgency::Needed => false,
        };
        if gain_wanted && self.live(superblock) == self.superblock_slots {
            return false;
        }
        let closed = self.victims.closed().len() as u64 * u64::from(self.flash.geometry.superblock_units);
        let open = self.open_superblocks().filter(|next| !self.blocks[next.superblock].slc);
        let open: u64 = open.map(|next| u64::from(next.offset >> self.unit_shift)).sum();
        self.flash.stats.gc_victims += 1;
        self.flash.stats.usable_units_sum += closed + open;
        self.take_victim(superblock, Cause::Gc);
        true
    }

    fn take_victim(&mut self, superblock: Superblock, cause: Cause) {
        let live = self.live(superblock);
        let block = &mut self.blocks[superblock];
        block.state = State::Victim;
        self.victims.remove(superblock, block.valid);
        let work = if block.unchecked > 0 { block.written } else { live };
        self.collector.victim = Some(Victim::new(superblock, cause, work, self.superblock_slots - live));
    }

    /// Makes the least erased closed superblock the victim, if the wear has spread too far and the last move is long
    /// enough ago.
    fn start_wear_levelling(&mut self) -> bool {
        let Some(threshold) = self.collector.wear_threshold else { return false };
        if self.collector.erases_since_move < self.collector.wear_interval || self.pool.free() < 2 {
            return false;
        }
        self.collector.erases_since_move = 0;
        // Superblocks that are always in SLC mode are erased far more often, and take no part in levelling.
        let levelled = self.blocks.iter().skip(self.pool_from.index());
        let most = levelled.map(|b| b.erases).max().unwrap_or(0);
        let erases = |superblock: Superblock| self.blocks[superblock].erases;
        let least = self.victims.closed().iter().copied().min_by_key(|&s| (erases(s), s));
        let Some(superblock) = least.filter(|&s| most - erases(s) > threshold) else { return false };
        self.take_victim(superblock, Cause::WearLevelling);
        true
    }

    /// Copies up to `budget` slots of the collector's victim, and erases it if none is left.
    fn collect(&mut self, now: SimTime, budget: u32, idle: bool) {
        let Some(victim) = self.collector.victim.take() else { return };
        let (copied, rest) = self.copy_victim(victim, now, budget);
        let counts = self.counts();
        match victim.cause {
            Cause::WearLevelling => counts.wear_levelling += u64::from(copied),
            Cause::Gc | Cause::Folding => counts.gc += u64::from(copied),
        }
        if idle {
            self.flash.stats.gc_units_idle += u64::from(copied >> self.unit_shift);
        }
        self.collector.victim = rest;
    }

    /// Reads up to `budget` slots of a victim and moves the live ones. Returns the number of slots copied and the rest
    /// of the victim. A victim without a rest is erased.
    pub(crate) fn copy_victim(
        &mut self,
        mut victim: Victim,
        now: SimTime,
        budget: u32,
    ) -> (u32, Option<Victim>) {
        let source = victim.superblock;
        let checks = self.blocks[source].unchecked > 0;
        let (mut done, mut copied) = (0, 0);
        let mut reading = Reading::default();
        let mut left = self.map.next_piece(source, victim.cursor);
        // Some placements finish a victim at once when no superblock is free: the host may share the frontier of
        // copies, and would take the room meant for the rest of the victim.
        while let Some(piece) = left
            && (done < budget || (P::NEEDS_FREE_SUPERBLOCK && self.pool.free() == 0))
        {
            victim.cursor = Cursor { piece: victim.cursor.piece + 1, offset: piece.offset + piece.slots };
            if piece.live || checks {
                done += piece.slots;
                self.read_piece(source, &mut reading, &piece, now);
            }
            if piece.live {
                copied += piece.slots;
                self.copy_piece(&victim, &mut reading, &piece, now);
            }
            left = self.map.next_piece(source, victim.cursor);
        }
        self.carry_out(source, &mut reading, now);
        if left.is_some() {
            return (copied, Some(victim));
        }
        // The remaining slots were trimmed, and nothing else refers to them.
        let Block { slc, written, unchecked, .. } = self.blocks[source];
        self.blocks[source].valid -= unchecked;
        self.erase(source, now);
        if !slc || self.map.slc_erased(source, written) {
            self.pool.put(source);
        }
        (copied, None)
    }

    /// Requests slots of a victim, which can span several stripes. Reads what was requested of an earlier stripe.
    #[inline]
    fn read_piece(
        &mut self,
        source: Superblock,
        reading: &mut Reading,
        piece: &Piece<P::Owner>,
        now: SimTime,
    ) {
        let (mut offset, end) = (piece.offset, piece.offset + piece.slots);
        while offset < end {
            let stripe = offset / self.stripe_slots;
            if reading.slots > 0 && reading.stripe != stripe {
                self.carry_out(source, reading, now);
            }
            let part = end.min((stripe + 1) * self.stripe_slots) - offset;
            reading.stripe = stripe;
            reading.slots += part;
            if piece.live {
                reading.target = Some(self.copies);
            }
            offset += part;
        }
    }

    #[inline]
    fn copy_piece(&mut self, victim: &Victim, reading: &mut Reading, piece: &Piece<P::Owner>, now: SimTime) {
        let (source, slots) = (victim.superblock, piece.slots);
        let target = P::copy_target(self, victim.cause, slots, now);
        reading.target = Some(target);
        if self.frontiers[target].fills_stripe(slots) {
            // Slots must be read before they are programmed.
            self.carry_out(source, reading, now);
        }
        let open = &self.frontiers[target];
        let (to, ready) = (open.slot(), open.stripe.ready);
        self.map.moved(piece.owner, Slot::new(source, piece.offset), to);
        self.blocks[source].valid -= slots;
        if self.append(target, now, ready, slots, 0) {
            P::copies_filled(self, victim.cause, target, now);
        }
    }

    fn carry_out(&mut self, source: Superblock, reading: &mut Reading, now: SimTime) {
        let Reading { stripe, slots, target } = std::mem::take(reading);
        if slots == 0 {
            return;
        }
        let at = self.place(Slot::new(source, stripe * self.stripe_slots));
        let units = slots.div_ceil(1 << self.unit_shift);
        let ready = self.flash.nand.read(at, now, now, units, &mut self.flash.stats.busy_ns.read_gc);
        self.map.die_used(at.die);
        if let Some(target) = target {
            let stripe = &mut self.frontiers[target].stripe;
            stripe.ready = stripe.ready.max(ready);
        }
    }

    /// Collects while the host is idle: from `from` on, as long as a step can begin before `until`, and until enough
    /// superblocks are free. One step is a stripe for each die.
    pub(super) fn collect_between(&mut self, from: SimTime, until: SimTime) {
        let budget = self.stripe_slots * self.flash.geometry.dies_per_superblock;
        let mut at = from;
        while at < until {
            if !P::work_while_idle(self, at, budget) {
                if self.collector.idle_target == 0 {
                    return;
                }
                let wanted = self.collector.free_min + P::superblocks_wanted(self);
                let target = self.collector.idle_target.max(wanted);
                if self.collector.victim.is_none()
                    && (self.pool.free() >= target || !self.start_victim(Urgency::Idle))
                {
                    return;
                }
                self.collect(at, budget, true);
                if self.collector.victim.is_none() {
                    P::victim_done(self, at);
                }
            }
            at = self.flash.nand.idle_at().max(at + SimDuration::from_nanos(1));
        }
    }
}
