//! The SLC cache: superblocks that are written with one bit a cell, and folded later.
//!
//! Host units go to superblocks in SLC mode as long as there is one: of the static part, which is used for nothing
//! else, or of the dynamic part, which is borrowed from the free pool. A superblock in SLC mode holds `1 /
//! bits_per_cell` of its pages. When there is none, host units go to normal superblocks, at the speed of those cells.
//! Firmware that cannot do that (`direct = false`) folds a superblock first, while the host waits.
//! *Folding* copies the live data of an SLC superblock, oldest first, to the host's frontiers, as if the host wrote
//! them there, and erases the superblock. It takes place while the host is idle, or, when more than a share of the
//! cache is in use, along with the host: for each stripe that the host writes, so much is copied that the victim is
//! finished when the host has written the capacity of an SLC superblock.
//!
//! # Why collecting still comes to an end
//!
//! Let `S` be the units of a superblock, `L` the logical units (those of the map included), `V` of them mapped, `D` the
//! superblocks without the static part, `X` those borrowed, and `f` the frontiers in normal mode, that of copies
//! included. The configuration sees to `D >= L / S + f + 3` (`Geometry::spare_superblocks`; the third is
//! this cache's). When the host needs room, at most one superblock is free, and at least `D - X - f - 1` are closed in
//! normal mode. [`PageMapped::shrink_slc`] runs before each stripe, so that `X * S <= L - V + S` always: the share is
//! kept when the stripe begins, and a stripe maps at most `S` units. The closed superblocks thus have at least
//! `L + 2 S - X * S >= V + S` slots for at most `V` valid units, so there is something to gain.
//!
//! If nothing is written directly, folding while the host waits comes to an end too: no superblock in SLC mode is open or
//! free then, so all of them are full or being folded, and there is at least one, of the static part. Each round empties
//! one, and none is opened meanwhile; at the latest the one of the static part is free for the host. What is borrowed
//! afterwards is within the share, as always.
//!
//! Where the dynamic part gives way, it is folded when fewer superblocks are free than the collector keeps, before the
//! collector takes a victim of its own. This only lowers `X`, and if nothing of it is left, the collector goes on.
//!
//! Folding needs room like the host, and by the same rule: it never takes the last free superblock, and collects until
//! there is another. It only takes from the frontiers of the host, so that a victim of the collector finds its own
//! frontier as it left it.

use std::collections::VecDeque;
use std::ops::Range;

use super::super::address::{Number, Superblock};
use super::super::audit::{AuditError, ensure};
use super::super::config::SsdConfig;
use super::super::ftl::{Cause, State, Victim};
use super::PageMapped;
use crate::units::SimTime;

#[derive(Clone, Debug)]
pub(super) struct SlcCache {
    units: u32,
    pub(super) static_end: Superblock,
    pub(super) static_free: VecDeque<Superblock>,
    dynamic_percent: u64,
    dynamic_max: u64,
    dynamic: u32,
    written: u64,
    full: VecDeque<Superblock>,
    victim: Option<Victim>,
    fold_when_idle: bool,
    threshold_percent: u64,
    direct: bool,
    gives_way: bool,
    /// The dynamic part has given way since the host was last idle.
    gave_way: bool,
    frontiers: usize,
    turn: usize,
    fold_turn: usize,
}

impl SlcCache {
    pub fn new(config: &SsdConfig) -> Option<Self> {
        let slc = config.slc.as_ref()?;
        Some(Self {
            units: config.geometry.units_in(config.geometry.pages_per_block / slc.bits_per_cell) as u32,
            static_end: Superblock(slc.static_superblocks),
            static_free: (0..slc.static_superblocks).map(Superblock).collect(),
            dynamic_percent: u64::from(slc.dynamic_percent),
            dynamic_max: slc.dynamic_superblocks_max.map_or(u64::MAX, u64::from),
            dynamic: 0,
            written: 0,
            full: VecDeque::new(),
            victim: None,
            fold_when_idle: slc.fold_when_idle,
            threshold_percent: u64::from(slc.fold_threshold_percent),
            direct: slc.direct,
            gives_way: slc.gives_way,
            gave_way: false,
            frontiers: config.gc.host_frontiers as usize,
            turn: 0,
            fold_turn: 0,
        })
    }

    /// Returns the index of the host frontier that is never open. Between two stripes it is the host's.
    pub fn rest(&self) -> usize {
        2 * self.frontiers
    }

    pub(crate) fn is_static(&self, superblock: Superblock) -> bool {
        superblock < self.static_end
    }

    /// Handles the erase of an SLC superblock of which `written` slots had been taken. Returns true if it goes back to
    /// the free pool.
    pub fn release(&mut self, superblock: Superblock, written: u32) -> bool {
        self.written -= u64::from(written);
        if self.is_static(superblock) {
            self.static_free.push_back(superblock);
            return false;
        }
        self.dynamic -= 1;
        true
    }

    fn fast_frontiers(&self) -> Range<usize> {
        self.frontiers..2 * self.frontiers
    }

    pub fn filled(&mut self, superblock: Superblock) {
        self.full.push_back(superblock);
    }

    /// Returns the superblock being folded, or [`Superblock::NONE`].
    pub(crate) fn folded_superblock(&self) -> Superblock {
        self.victim.map_or(Superblock::NONE, |victim| victim.superblock)
    }

    pub fn clear(&mut self) {
        (self.written, self.dynamic) = (0, 0);
        self.static_free = (0..self.static_end.0).map(Superblock).collect();
        self.full.clear();
        self.victim = None;
        self.gave_way = false;
        (self.turn, self.fold_turn) = (0, 0);
    }
}

impl PageMapped {
    fn unmapped_units(&self) -> u64 {
        u64::from(self.flash.geometry.logical_units) - self.map.mapped
    }

    /// Returns the number of superblocks that the dynamic part may have at the moment.
    fn dynamic_share(&self, slc: &SlcCache) -> u32 {
        let free = self.unmapped_units() / u64::from(self.superblock_slots);
        (free * slc.dynamic_percent / 100).min(slc.dynamic_max) as u32
    }

    /// Returns the number of superblocks that idle collection should free for the dynamic part.
    pub(crate) fn wanted_by_slc(&self) -> u32 {
        self.map.slc.as_ref().map_or(0, |slc| self.dynamic_share(slc).saturating_sub(slc.dynamic))
    }

    /// Chooses the frontier of the host's next stripe, and makes sure that it is open. Returns its index.
    pub(crate) fn begin_slc_stripe(&mut self, now: SimTime) -> usize {
        self.shrink_slc(now);
        let Some(slc) = &mut self.map.slc else { return self.turn };
        let turn = slc.turn;
        slc.turn = (turn + 1) % slc.frontiers;
        let waits = !slc.direct;
        let mut fast = self.slc_frontier(turn);
        while fast.is_none() && waits && self.start_folding(false) {
            self.fold(now, u32::MAX, false);
            fast = self.slc_frontier(turn);
        }
        self.turn = fast.unwrap_or_else(|| {
            self.prepare_host(turn, 1, now);
            turn
        });
        self.turn
    }

    /// Returns an open SLC frontier: that of this turn if possible. `None` if the cache is full.
    fn slc_frontier(&mut self, turn: usize) -> Option<usize> {
        let slc = self.map.slc.as_ref()?;
        let units = slc.units;
        let index = slc.frontiers + turn;
        if self.frontiers[index].is_open() {
            return Some(index);
        }
        let is_free = !slc.gave_way && self.pool.free() > self.collector.free_min;
        let may_borrow = slc.dynamic < self.dynamic_share(slc) && is_free;
        let slc = self.map.slc.as_mut()?;
        let superblock = match slc.static_free.pop_front() {
            Some(superblock) => superblock,
            None if may_borrow => {
                slc.dynamic += 1;
                self.take_free(turn % self.pool.lanes())
            }
            None => return slc.fast_frontiers().find(|&i| self.frontiers[i].is_open()),
        };
        self.blocks[superblock].slc = true;
        self.open_superblock(index, superblock, units);
        Some(index)
    }

    /// Notes that the host has filled a stripe of frontier `turn`. Returns true if that was one in SLC mode.
    pub(crate) fn end_slc_stripe(&mut self, turn: usize, now: SimTime) -> bool {
        let Some(slc) = &mut self.map.slc else { return false };
        self.turn = slc.rest();
        let units = self.stripe_slots;
        let in_slc = turn >= slc.frontiers;
        if in_slc {
            slc.written += u64::from(units);
        }
        self.pace_folding(now, units);
        in_slc
    }

    /// Gives superblocks of the dynamic part back until the free space has room for the rest. The collector's guarantee
    /// depends on this.
    fn shrink_slc(&mut self, now: SimTime) {
        let units = u64::from(self.superblock_slots);
        while let Some(slc) = &self.map.slc
            && u64::from(slc.dynamic) * units > self.unmapped_units()
        {
            if !self.start_folding(true) {
                self.close_a_borrowed_frontier();
                continue;
            }
            self.fold(now, u32::MAX, false);
        }
    }

    /// Closes an open superblock of the dynamic part early. Its empty slots are lost until it is erased.
    fn close_a_borrowed_frontier(&mut self) {
        let Some(slc) = &self.map.slc else { return };
        let borrowed =
            |&i: &usize| self.frontiers[i].is_open() && !slc.is_static(self.frontiers[i].superblock);
        let Some(frontier) = slc.fast_frontiers().find(borrowed) else {
            unreachable!("a superblock of the dynamic part is a victim, full or open");
        };
        debug_assert!(!self.frontiers[frontier].stripe.holds_host, "between two stripes of the host");
        self.close(frontier);
    }

    fn must_fold(&self, slc: &SlcCache) -> bool {
        let superblocks = u64::from(slc.static_end.0) + u64::from(self.dynamic_share(slc));
        slc.written * 100 > superblocks * u64::from(slc.units) * slc.threshold_percent
    }

    /// Chooses a superblock to fold, unless there is one. Superblocks without valid units go first, as they cost
    /// nothing, then the oldest. If the dynamic part must shrink, only its superblocks are candidates. Returns true if
    /// there is one to fold.
    fn start_folding(&mut self, must_shrink: bool) -> bool {
        let Some(slc) = &mut self.map.slc else { return false };
        if slc.victim.is_some() {
            return true;
        }
        let blocks = &self.blocks;
        let wanted = |superblock: Superblock| !(must_shrink && slc.is_static(superblock));
        let dead = slc.full.iter().position(|&s| wanted(s) && blocks[s].valid == 0);
        let Some(at) = dead.or_else(|| slc.full.iter().position(|&s| wanted(s))) else { return false };
        let Some(superblock) = slc.full.remove(at) else { return false };
        let block = &mut self.blocks[superblock];
        block.state = State::Victim;
        slc.victim = Some(Victim::new(superblock, Cause::Folding, block.valid, slc.units));
        true
    }

    /// Folds as much as `units` units of the host pay for.
    fn pace_folding(&mut self, now: SimTime, units: u32) {
        let Some(slc) = &self.map.slc else { return };
        if !self.must_fold(slc) {
            return;
        }
        // Superblocks borrowed beyond the share go first.
        let must_shrink = slc.dynamic > self.dynamic_share(slc);
        if self.start_folding(must_shrink) || self.start_folding(false) {
            self.fold_what_is_due(now, units);
        }
    }

    fn fold_what_is_due(&mut self, now: SimTime, units: u32) {
        let Some(victim) = self.map.slc.as_mut().and_then(|slc| slc.victim.as_mut()) else { return };
        if let Some(due) = victim.due(units) {
            self.fold(now, due, false);
        }
    }

    /// Folds the dynamic part as much as `units` units of the host pay for, if free superblocks run short. It costs less
    /// than collecting: a superblock in SLC mode holds a part of what it gives back. Returns false if there is none.
    pub(crate) fn give_way(&mut self, now: SimTime, units: u32) -> bool {
        let is_short = self.pool.free() < self.collector.free_min && self.collector.victim.is_none();
        if !is_short || !self.map.slc.as_ref().is_some_and(|slc| slc.gives_way) || !self.start_folding(true) {
            return false;
        }
        let Some(slc) = self.map.slc.as_mut().filter(|slc| !slc.is_static(slc.folded_superblock())) else {
            return false;
        };
        slc.gave_way = true;
        self.fold_what_is_due(now, units);
        true
    }

    /// Copies up to `budget` units of the superblock being folded, and erases it if none is left.
    fn fold(&mut self, now: SimTime, budget: u32, idle: bool) {
        let Some(victim) = self.map.slc.as_mut().and_then(|slc| slc.victim.take()) else { return };
        let (copied, rest) = self.copy_victim(victim, now, budget);
        let stats = &mut self.flash.stats;
        stats.nand_units.folding += u64::from(copied);
        stats.folded_units_idle += if idle { u64::from(copied) } else { 0 };
        if let Some(slc) = &mut self.map.slc {
            slc.victim = rest;
        }
        if rest.is_none() && self.map.cache.is_some() {
            self.write_moved_parts(now);
        }
    }

    /// Folds a piece while the host is idle. Returns true if there was anything to fold.
    pub(crate) fn fold_while_idle(&mut self, now: SimTime, piece: u32) -> bool {
        let folds_when_idle = self.map.slc.as_mut().is_some_and(|slc| {
            slc.gave_way = false;
            slc.fold_when_idle
        });
        let folds = folds_when_idle && self.start_folding(false);
        if folds {
            self.fold(now, piece, true);
        }
        folds
    }

    pub(crate) fn fold_target(&mut self, now: SimTime) -> usize {
        let index = self.map.slc.as_ref().map_or(0, |slc| slc.fold_turn);
        self.prepare_host(index, 1, now);
        index
    }

    /// Notes that folding has filled a stripe of the host's frontier `index`.
    pub(crate) fn end_fold_stripe(&mut self, index: usize, now: SimTime) {
        let Some(slc) = &mut self.map.slc else { return };
        slc.fold_turn = (index + 1) % slc.frontiers;
        // The host may have begun that stripe.
        if self.turn == index {
            self.turn = slc.rest();
        }
        self.pace(now, self.stripe_slots);
    }

    pub(crate) fn audit_slc(&self) -> Result<(), AuditError> {
        let Some(slc) = &self.map.slc else {
            let stray = self.blocks.iter().position(|block| block.slc);
            ensure!(stray.is_none(), "superblock {stray:?} is in SLC mode, and there is no SLC cache");
            return Ok(());
        };
        let (mut written, mut dynamic, mut full) = (0, 0, 0);
        for (i, block) in self.blocks.numbered() {
            let is_static = slc.is_static(i);
            ensure!(
                block.slc || !is_static || block.state == State::Free,
                "superblock {i} of the static part is in normal mode"
            );
            full += usize::from(block.state == State::Slc);
            if !block.slc {
                continue;
            }
            ensure!(
                block.written <= slc.units,
                "superblock {i} has taken {} units in SLC mode, which holds {}",
                block.written,
                slc.units
            );
            ensure!(
                matches!(block.state, State::Open | State::Slc | State::Victim),
                "superblock {i} is in SLC mode and {:?}",
                block.state
            );
            written += u64::from(block.written);
            dynamic += u32::from(!is_static);
        }
        // The stripe that the host is filling counts once it is full.
        let begun: u64 =
            slc.fast_frontiers().map(|i| u64::from(self.frontiers[i].next % self.stripe_slots)).sum();
        ensure!(
            written == slc.written + begun,
            "SLC superblocks hold {written} units, {begun} of begun stripes; {} counted",
            slc.written
        );
        ensure!(dynamic == slc.dynamic, "{dynamic} superblocks are borrowed, {} counted", slc.dynamic);
        ensure!(full == slc.full.len(), "{full} superblocks wait to be folded, {} listed", slc.full.len());
        let units = u64::from(self.superblock_slots);
        ensure!(
            u64::from(dynamic) * units <= self.unmapped_units() + units,
            "{dynamic} superblocks are borrowed, and {} units are free",
            self.unmapped_units()
        );
        for &superblock in &slc.static_free {
            let block = &self.blocks[superblock];
            ensure!(block.state == State::Free, "superblock {superblock} is in the static pool and not free");
        }
        Ok(())
    }
}
