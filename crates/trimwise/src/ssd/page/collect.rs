//! Making room: collection in the foreground, while idle, and for wear levelling.
//!
//! When fewer superblocks than a minimum are free, a victim is chosen and copied piece by piece: for each
//! stripe that the host fills, as many units are copied as bring the victim to its end just when the host has
//! used up what the victim gains. The host thus pays a little on each write and not much at once. While the
//! host is idle the same goes on without it, until a larger number is free.
//!
//! The last free superblock belongs to the collector: with it, a victim can always be finished. As the
//! physical space exceeds the logical by the open superblocks and two more (checked in the
//! configuration), some closed superblock always holds something to gain, and collecting on demand comes to an
//! end.
//!
//! Wear levelling is a victim like any other, chosen for its few erases and counted by its own cause.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::config::{SsdConfig, VictimPolicy};
use super::super::ftl::{Block, NONE, State};
use super::{PageMapped, Stream};

/// Why units are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Gc,
    WearLevelling,
    /// Out of the SLC cache.
    Folding,
}

/// How much a victim is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgency {
    /// The host is idle: only for a gain.
    Idle,
    /// The free pool is low.
    Paced,
    /// The host waits for a free superblock.
    Needed,
}

/// A superblock being collected, or folded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub superblock: u32,
    /// Slots before this one have been looked at.
    cursor: u32,
    cause: Cause,
    /// Units to copy for `gain` units that the host writes.
    copies: u64,
    gain: u64,
    /// Earned by host writes and not yet used, in units times `gain`.
    credit: u64,
}

impl Victim {
    pub fn new(superblock: u32, cause: Cause, copies: u32, gain: u32) -> Self {
        Self { superblock, cursor: 0, cause, copies: copies.into(), gain: gain.into(), credit: 0 }
    }

    /// How many units are to be copied now that the host has written `units` more. 0 is not nothing: a victim without
    /// valid units is erased at once.
    #[inline]
    pub fn due(&mut self, units: u32) -> Option<u32> {
        if self.gain == 0 {
            return Some(u32::MAX);
        }
        self.credit += u64::from(units) * self.copies;
        let due = self.credit / self.gain;
        self.credit %= self.gain;
        (due > 0 || self.copies == 0).then(|| u32::try_from(due).unwrap_or(u32::MAX))
    }
}

/// What the collector knows from one call to the next.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    victim: Option<Victim>,
    /// The lane that the next superblock for copies comes from.
    copy_lane: usize,
    rng: Xoshiro256PlusPlus,
    pub free_min: u32,
    fifo: bool,
    wear_threshold: Option<u32>,
    wear_interval: u32,
    /// Idle collection stops at so many free superblocks; 0 if there is none.
    idle_target: u32,
    /// Erases since the last wear-levelling move.
    pub erases_since_move: u32,
}

impl Collector {
    pub fn new(config: &SsdConfig, rng: Xoshiro256PlusPlus) -> Self {
        Self {
            victim: None,
            copy_lane: 0,
            rng,
            free_min: config.gc.free_superblocks_min,
            fifo: config.gc.victim == VictimPolicy::Fifo,
            wear_threshold: config.wear_levelling.threshold_erases,
            wear_interval: config.wear_levelling.interval_erases,
            idle_target: if config.gc.idle { config.gc.idle_free_superblocks } else { 0 },
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
}

impl PageMapped {
    /// Finishes the victim at hand, or chooses one and collects it whole.
    pub fn collect_one(&mut self, now: u64) {
        if self.collector.victim.is_none() {
            self.start_victim(Urgency::Needed);
        }
        self.copy(now, u32::MAX, false);
    }

    /// Called when the host has filled `units` slots: does its share of the collecting.
    #[inline]
    pub fn pace(&mut self, now: u64, units: u32) {
        if self.collector.victim.is_none()
            && (self.free_count >= self.collector.free_min || !self.start_victim(Urgency::Paced))
        {
            return;
        }
        let Some(victim) = &mut self.collector.victim else { return };
        if let Some(due) = victim.due(units) {
            self.copy(now, due, false);
            if self.map_cache.is_some() && self.collector.victim.is_none() {
                self.write_moved_parts(now);
            }
        }
    }

    /// Chooses a victim, if there is one worth it. Returns whether there is a victim now.
    fn start_victim(&mut self, urgency: Urgency) -> bool {
        if urgency != Urgency::Needed && self.start_wear_levelling() {
            return true;
        }
        let clock = self.flash.stats.host_units_written;
        let Some(superblock) = self.victims.choose(&self.map.blocks, clock, &mut self.collector.rng) else {
            return false;
        };
        let valid = self.map.blocks[superblock as usize].valid;
        let gain_wanted = match urgency {
            Urgency::Idle => true,
            // First-in first-out takes what comes, or it would never get past a block without gain.
            Urgency::Paced => !self.collector.fifo,
            Urgency::Needed => false,
        };
        if gain_wanted && valid == self.flash.geometry.superblock_units {
            return false;
        }
        self.flash.stats.gc_victims += 1;
        let closed = self.victims.closed().len() as u64 * u64::from(self.flash.geometry.superblock_units);
        let normal = |&(superblock, _): &(u32, u32)| !self.map.blocks[superblock as usize].slc;
        let open: u64 = self.frontiers().filter(normal).map(|(_, next)| u64::from(next)).sum();
        self.flash.stats.usable_units_sum += closed + open;
        self.take_victim(superblock, Cause::Gc);
        true
    }

    fn take_victim(&mut self, superblock: u32, cause: Cause) {
        let block = &mut self.map.blocks[superblock as usize];
        block.state = State::Victim;
        let valid = block.valid;
        self.victims.remove(superblock, valid);
        let gain = self.flash.geometry.superblock_units - valid;
        self.collector.victim = Some(Victim::new(superblock, cause, valid, gain));
    }

    /// Makes the least erased closed superblock the victim, if the wear has spread too far and the last move
    /// is long enough ago.
    fn start_wear_levelling(&mut self) -> bool {
        let Some(threshold) = self.collector.wear_threshold else { return false };
        if self.collector.erases_since_move < self.collector.wear_interval || self.free_count < 2 {
            return false;
        }
        self.collector.erases_since_move = 0;
        // What is always in SLC mode is erased far more often, and takes part in nothing.
        let leveled = &self.map.blocks[self.static_superblocks() as usize..];
        let most = leveled.iter().map(|b| b.erases).max().unwrap_or(0);
        let blocks = &self.map.blocks;
        let least = self.victims.closed().iter().copied().min_by_key(|&s| (blocks[s as usize].erases, s));
        let Some(superblock) = least else { return false };
        if most - blocks[superblock as usize].erases <= threshold {
            return false;
        }
        self.take_victim(superblock, Cause::WearLevelling);
        true
    }

    /// Copies up to `budget` units of the collector's victim, and erases it if none is left.
    fn copy(&mut self, now: u64, budget: u32, idle: bool) {
        let Some(victim) = self.collector.victim.take() else { return };
        let (copied, rest) = self.copy_victim::<false>(victim, now, budget);
        let stats = &mut self.flash.stats;
        match victim.cause {
            Cause::WearLevelling => stats.nand_units.wear_levelling += u64::from(copied),
            Cause::Gc | Cause::Folding => stats.nand_units.gc += u64::from(copied),
        }
        if idle {
            stats.gc_units_idle += u64::from(copied);
        }
        self.collector.victim = rest;
    }

    /// Copies up to `budget` units of a victim, to the frontier of copies or (`FOLD`) to those of the host. Erases it if
    /// none is left, and otherwise returns what is left of it; before that, how many units were copied.
    pub(super) fn copy_victim<const FOLD: bool>(
        &mut self,
        mut victim: Victim,
        now: u64,
        budget: u32,
    ) -> (u32, Option<Victim>) {
        let stripe_units = self.flash.geometry.stripe_units;
        let source = victim.superblock;
        let mut copied = 0;
        // Units of one stripe are read together.
        let mut stripe = NONE;
        let mut in_stripe = 0;
        let mut stream = Stream::Copies;
        let mut next = self.map.next_valid(source, victim.cursor);
        while let Some(offset) = next
            && copied < budget
        {
            if offset / stripe_units != stripe {
                self.read_copies::<FOLD>(source, stripe, in_stripe, now, stream);
                stripe = offset / stripe_units;
                in_stripe = 0;
            }
            in_stripe += 1;
            stream = self.copy_unit::<FOLD>(source, offset, now, stripe, &mut in_stripe);
            copied += 1;
            victim.cursor = offset + 1;
            next = self.map.next_valid(source, victim.cursor);
        }
        self.read_copies::<FOLD>(source, stripe, in_stripe, now, stream);
        if next.is_some() {
            return (copied, Some(victim));
        }
        self.erase(source, now);
        (copied, None)
    }

    /// Moves one unit; `in_stripe` units of the source stripe have not been read yet, this one among them. Returns where
    /// to.
    #[inline]
    fn copy_unit<const FOLD: bool>(
        &mut self,
        source: u32,
        offset: u32,
        now: u64,
        stripe: u32,
        in_stripe: &mut u32,
    ) -> Stream {
        let stream = if FOLD {
            self.fold_stream(now)
        } else {
            self.prepare_copies();
            Stream::Copies
        };
        let frontier = self.frontier(stream);
        let (target, slot) = (frontier.superblock, frontier.next);
        frontier.next += 1;
        let full = frontier.next == frontier.stripe_end;
        let units = self.flash.geometry.superblock_units;
        let lpn = self.map.p2l[(source * units + offset) as usize];
        self.map.clear_bit(source, offset);
        self.map.set(target, slot, lpn);
        self.map.copy_tag(source * units + offset, target * units + slot);
        self.map.blocks[source as usize].valid -= 1;
        let block = &mut self.map.blocks[target as usize];
        block.valid += 1;
        block.written += 1;
        if let Some(cache) = &mut self.map_cache
            && lpn < self.flash.geometry.logical_units
        {
            cache.copied(lpn);
        }
        if full {
            self.read_copies::<FOLD>(source, stripe, *in_stripe, now, stream);
            *in_stripe = 0;
            self.program(stream, now);
            if FOLD && let Stream::Host(index) = stream {
                self.end_fold_stripe(index, now);
            }
        }
        stream
    }

    #[inline]
    fn prepare_copies(&mut self) {
        if self.frontier(Stream::Copies).superblock == NONE {
            let lane = self.collector.copy_lane;
            self.collector.copy_lane = (lane + 1) % self.free.len();
            self.open(Stream::Copies, lane);
        }
    }

    /// Reserves the read of `units` units of a victim's stripe. They are at hand for the frontier of `stream` then.
    #[inline]
    fn read_copies<const FOLD: bool>(
        &mut self,
        superblock: u32,
        stripe: u32,
        units: u32,
        now: u64,
        stream: Stream,
    ) {
        if units == 0 {
            return;
        }
        let mut at = self.flash.place(superblock, stripe * self.flash.geometry.stripe_units);
        at.slc = FOLD;
        let ready = self.flash.nand.read_for_copy(at, now, units, &mut self.flash.stats.busy_ns);
        let frontier = self.frontier(stream);
        frontier.ready = frontier.ready.max(ready);
    }

    fn erase(&mut self, superblock: u32, now: u64) {
        for i in 0..self.flash.geometry.dies_per_superblock {
            let die = self.flash.geometry.die(superblock, i);
            self.flash.nand.erase(die, now, &mut self.flash.stats.busy_ns);
        }
        let Block { slc, written, .. } = self.map.blocks[superblock as usize];
        self.erased(superblock);
        if slc && !self.slc.as_mut().is_some_and(|slc| slc.release(superblock, written)) {
            return;
        }
        self.free[(superblock % self.flash.geometry.lanes) as usize].push_back(superblock);
        self.free_count += 1;
    }

    /// Collects while the host is idle, from `from` on and as long as it can begin before `until`, until enough
    /// superblocks are free. A piece is a stripe for each die.
    pub fn collect_between(&mut self, from: u64, until: u64) {
        let piece = self.flash.geometry.stripe_units * self.flash.geometry.dies_per_superblock;
        let mut at = from;
        while at < until {
            // First what makes the next burst quick.
            if self.fold_while_idle(at, piece) {
                at = self.flash.nand.idle_at().max(at + 1);
                continue;
            }
            if self.collector.idle_target == 0 {
                return;
            }
            let target = self.collector.idle_target.max(self.collector.free_min + self.wanted_by_slc());
            if self.collector.victim.is_none()
                && (self.free_count >= target || !self.start_victim(Urgency::Idle))
            {
                return;
            }
            self.copy(at, piece, true);
            if self.map_cache.is_some() && self.collector.victim.is_none() {
                self.write_moved_parts(at);
            }
            at = self.flash.nand.idle_at().max(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PageMapped;
    use crate::content::Content;
    use crate::ssd::SsdConfig;
    use crate::ssd::geometry::Geometry;
    use crate::ssd::ftl::NONE;
    use crate::ssd::translation::Translation;
    use crate::units::Bytes;

    /// A mapping that forgets a unit without making its slot invalid has nothing to gain anywhere in the end.
    #[test]
    #[should_panic(expected = "victims and no superblock free: Err(")]
    fn collection_that_gains_nothing_fails_and_names_what_does_not_add_up() {
        let mut config = SsdConfig {
            capacity_bytes: Bytes::mib(16).0,
            over_provisioning_percent: Some(50),
            ..SsdConfig::default()
        };
        config.geometry.pages_per_block = 8;
        let geometry = Geometry::new(&config).unwrap();
        let units = geometry.physical_units();
        let mut mapped = PageMapped::new(&config, geometry, 1);
        for _ in 0..units {
            mapped.write(0, 0, 0..1, Content::default());
            mapped.map.l2p[0] = NONE;
        }
    }
}
