//! Reading: gathering the chunks of a command from where they lie.
//!
//! Each die keeps the stripe that it read last in its page registers; a chunk of that stripe needs no new tR, only
//! its transfer. A command that reads on in the order in which the data lie makes the next dies sense as many
//! stripes ahead as it took itself: so data that were written in order are read at the rate of the link, without
//! any memory to read ahead into. A stripe that is neither in a register nor the next one in that order is a
//! *fragment*: the controller has to look it up and to set its die to work, one fragment after the other
//! (`fragment_read_ns`), and the tR comes on top. All that is read passes a pipeline (`read_latency_ns`) in which
//! commands overlap. A page is transferred in whole units of 4 KiB.

use std::ops::Range;

use super::super::config::CompressingConfig;
use super::super::ftl::State;
use super::super::translation::Ready;
use super::Compressing;

/// No stripe.
const NONE: u32 = u32::MAX;

/// What the page registers of a die hold: a stripe, counted over the whole device.
#[derive(Clone, Copy, Debug)]
struct Register {
    stripe: u32,
    /// When it is there.
    ready: u64,
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Gatherer {
    latency_ns: u64,
    fragment_ns: u64,
    registers: Vec<Register>,
    /// When the controller has no more fragments to look up.
    free_at: u64,
    /// The stripe that was read last.
    last: u32,
}

impl Gatherer {
    pub fn new(config: &CompressingConfig, dies: u32) -> Self {
        let empty = Register { stripe: NONE, ready: 0 };
        Self {
            latency_ns: config.read_latency_ns,
            fragment_ns: config.fragment_read_ns,
            registers: vec![empty; dies as usize],
            free_at: 0,
            last: NONE,
        }
    }

    /// The die does something else.
    #[inline]
    pub(crate) fn lose_register(&mut self, die: u32) {
        self.registers[die as usize].stripe = NONE;
    }

    pub fn clear(&mut self) {
        self.registers.fill(Register { stripe: NONE, ready: 0 });
        self.last = NONE;
    }
}

/// What a command has taken from one stripe.
#[derive(Clone, Copy, Debug)]
struct Run {
    stripe: u32,
    granules: u32,
}

impl Compressing {
    /// Reads units for a command that is decoded at `decoded`.
    pub fn gather(&mut self, now: u64, decoded: u64, units: Range<u32>) -> Ready {
        let (mut first, mut last) = (u64::MAX, decoded);
        let mut run: Option<Run> = None;
        let mut in_order = 0;
        for lpn in units {
            let Some((at, granules)) = self.map.chunk(lpn) else {
                self.flash.stats.host_units_read_unmapped += 1;
                first = first.min(decoded);
                continue;
            };
            if self.in_memory(at, granules, now) {
                self.flash.stats.host_units_read_cached += 1;
                first = first.min(decoded);
                continue;
            }
            self.map.unpaced_reads += 1;
            let (mut from, end) = (at, at + granules);
            while from < end {
                let stripe = from / self.stripe_slots;
                let part = end.min((stripe + 1) * self.stripe_slots) - from;
                from += part;
                run = match run {
                    Some(run) if run.stripe == stripe => Some(Run { granules: run.granules + part, ..run }),
                    other => {
                        let next = self.map.gatherer.last.checked_add(1) == Some(stripe);
                        in_order = if next { in_order + 1 } else { 0 };
                        if let Some(ready) = self.take_out(other, now, decoded) {
                            first = first.min(ready);
                            last = last.max(ready);
                        }
                        self.sense(stripe, decoded, next);
                        Some(Run { stripe, granules: part })
                    }
                };
            }
        }
        if let Some(ready) = self.take_out(run, now, decoded) {
            first = first.min(ready);
            last = last.max(ready);
        }
        self.sense_ahead(in_order, decoded);
        // A granule for each unit: what a read costs the recycler does not depend on how well the data compress.
        if self.map.unpaced_reads >= self.stripe_slots {
            let granules = std::mem::take(&mut self.map.unpaced_reads);
            self.pace_beside_reads(now, granules);
        }
        let latency_ns = self.map.gatherer.latency_ns;
        Ready { first: first.saturating_add(latency_ns), last: last + latency_ns }
    }

    /// Makes the die of a stripe sense it, unless it has it.
    fn sense(&mut self, stripe: u32, decoded: u64, is_next: bool) {
        let die = self.die(stripe);
        self.map.gatherer.last = stripe;
        if self.map.gatherer.registers[die as usize].stripe == stripe {
            return;
        }
        let mut ready = decoded;
        if !is_next {
            let fragment_ns = self.map.gatherer.fragment_ns;
            ready = ready.max(self.map.gatherer.free_at) + fragment_ns;
            self.map.gatherer.free_at = ready;
            self.flash.stats.busy_ns.controller += fragment_ns;
        }
        let at = self.flash.place_of_die(die);
        let ready = self.flash.nand.sense(at, ready, &mut self.flash.stats.busy_ns);
        self.map.gatherer.registers[die as usize] = Register { stripe, ready };
    }

    /// Reserves the transfer of what a command takes from a stripe. Returns its end.
    fn take_out(&mut self, run: Option<Run>, now: u64, decoded: u64) -> Option<u64> {
        let Run { stripe, granules } = run?;
        let die = self.die(stripe);
        // What was sensed for an earlier command waits for this one.
        let ready = self.map.gatherer.registers[die as usize].ready.max(decoded);
        let channel = self.flash.geometry.channel(die);
        Some(self.flash.nand.take_out(channel, now, ready, granules.div_ceil(1 << self.unit_shift)))
    }

    /// Makes the dies behind the last stripe sense the `count` stripes that follow it, as far as they are programmed.
    fn sense_ahead(&mut self, count: u32, decoded: u64) {
        let last = self.map.gatherer.last;
        let count = count.min(self.flash.geometry.dies_per_superblock - 1);
        for stripe in (last..).skip(1).take(count as usize) {
            let (superblock, offset) = self.split(stripe.saturating_mul(self.stripe_slots));
            let last_superblock = self.split(last * self.stripe_slots).0;
            if superblock != last_superblock {
                return;
            }
            let block = &self.blocks[superblock as usize];
            let programmed = block.state != State::Open || offset + self.stripe_slots <= block.written;
            if !programmed {
                return;
            }
            let die = self.die(stripe);
            if self.map.gatherer.registers[die as usize].stripe != stripe {
                let at = self.flash.place_of_die(die);
                let ready = self.flash.nand.sense(at, decoded, &mut self.flash.stats.busy_ns);
                self.map.gatherer.registers[die as usize] = Register { stripe, ready };
            }
        }
    }

    fn die(&self, stripe: u32) -> u32 {
        let (superblock, offset) = self.split(stripe * self.stripe_slots);
        self.flash.geometry.die(superblock, offset / self.stripe_slots)
    }
}
