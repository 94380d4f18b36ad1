//! Reading: gathering the chunks of a command from where they lie.
//!
//! Each die keeps the stripe that it read last in its page registers; a chunk of that stripe needs no new tR, only its
//! transfer. A command that continues to read in the order of the data makes the next dies sense as many stripes ahead
//! as it took itself. So data that were written in order are read at the rate of the link, without any memory to read
//! ahead into. A stripe that is neither in a register nor the next one in that order is a *fragment*: the controller
//! must look it up and start its die, one fragment after the other (`fragment_read_ns`), and the tR comes on top. All
//! data pass a pipeline (`read_latency_ns`) in which commands overlap. A page is transferred in whole units of 4 KiB.

use super::super::address::{Die, Number, Ppn, Slot, StripeNumber, Table};
use super::super::config::CompressingConfig;
use super::super::ftl::State;
use super::super::translation::Ready;
use super::Compressing;
use crate::units::{SimDuration, SimTime, UnitRange};

#[derive(Clone, Copy, Debug)]
struct Register {
    stripe: StripeNumber,
    ready: SimTime,
}

impl Register {
    const EMPTY: Self = Self { stripe: StripeNumber::NONE, ready: SimTime::ZERO };
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Gatherer {
    latency: SimDuration,
    fragment: SimDuration,
    registers: Table<Die, Register>,
    /// When the controller has looked up all fragments so far.
    free_at: SimTime,
    last: StripeNumber,
}

impl Gatherer {
    pub fn new(config: &CompressingConfig, dies: u32) -> Self {
        Self {
            latency: SimDuration(config.read_latency_ns),
            fragment: SimDuration(config.fragment_read_ns),
            registers: Table::new(dies as usize, Register::EMPTY),
            free_at: SimTime::ZERO,
            last: StripeNumber::NONE,
        }
    }

    /// Notes that the die does something else, which overwrites its page registers.
    #[inline]
    pub(crate) fn lose_register(&mut self, die: Die) {
        self.registers[die].stripe = StripeNumber::NONE;
    }

    pub fn clear(&mut self) {
        self.registers.fill(Register::EMPTY);
        self.last = StripeNumber::NONE;
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    stripe: StripeNumber,
    granules: u32,
}

impl Compressing {
    pub fn gather(&mut self, now: SimTime, decoded: SimTime, units: UnitRange) -> Ready {
        let (mut first, mut last) = (SimTime::MAX, decoded);
        let mut run: Option<Run> = None;
        let mut in_order = 0;
        for lpn in units.iter() {
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
            let (mut from, end) = (at.0, at.0 + granules);
            while from < end {
                let stripe = Ppn(from).stripe(self.stripe_slots);
                let part = end.min(stripe.next().first(self.stripe_slots).0) - from;
                from += part;
                run = match run {
                    Some(run) if run.stripe == stripe => Some(Run { granules: run.granules + part, ..run }),
                    other => {
                        let next = self.map.gatherer.last.next() == stripe;
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
        // Each unit counts as one granule, so the recycler's share does not depend on how well the data compress.
        if self.map.unpaced_reads >= self.stripe_slots {
            let granules = std::mem::take(&mut self.map.unpaced_reads);
            self.pace_with_reads(now, granules);
        }
        let latency = self.map.gatherer.latency;
        Ready { first: first + latency, last: last + latency }
    }

    /// Senses a stripe, unless the page registers of its die hold it already.
    fn sense(&mut self, stripe: StripeNumber, decoded: SimTime, is_next: bool) {
        let die = self.die(stripe);
        self.map.gatherer.last = stripe;
        if self.map.gatherer.registers[die].stripe == stripe {
            return;
        }
        let mut ready = decoded;
        if !is_next {
            let fragment = self.map.gatherer.fragment;
            ready = ready.max(self.map.gatherer.free_at) + fragment;
            self.map.gatherer.free_at = ready;
            self.flash.stats.busy_ns.controller += fragment.0;
        }
        self.fill_register(die, stripe, ready);
    }

    fn fill_register(&mut self, die: Die, stripe: StripeNumber, ready: SimTime) {
        let at = self.flash.place_of_die(die);
        let ready = self.flash.nand.sense(at, ready, &mut self.flash.stats.busy_ns.read);
        self.map.gatherer.registers[die] = Register { stripe, ready };
    }

    fn take_out(&mut self, run: Option<Run>, now: SimTime, decoded: SimTime) -> Option<SimTime> {
        let Run { stripe, granules } = run?;
        let die = self.die(stripe);
        // Stripes sensed for an earlier command wait for this one.
        let ready = self.map.gatherer.registers[die].ready.max(decoded);
        let channel = self.flash.geometry.channel(die);
        Some(self.flash.nand.transfer(channel, now, ready, granules.div_ceil(1 << self.unit_shift)))
    }

    /// Senses the next `count` stripes after the last one, as far as they are programmed.
    fn sense_ahead(&mut self, count: u32, decoded: SimTime) {
        let last = self.map.gatherer.last;
        let count = count.min(self.flash.geometry.dies_per_superblock - 1);
        let mut stripe = last;
        for _ in 0..count {
            stripe = stripe.next();
            let Slot { superblock, offset } = self.first_slot(stripe);
            if superblock != self.first_slot(last).superblock {
                return;
            }
            let block = &self.blocks[superblock];
            let programmed = block.state != State::Open || offset + self.stripe_slots <= block.written;
            if !programmed {
                return;
            }
            let die = self.die(stripe);
            if self.map.gatherer.registers[die].stripe != stripe {
                self.fill_register(die, stripe, decoded);
            }
        }
    }

    fn first_slot(&self, stripe: StripeNumber) -> Slot {
        stripe.first(self.stripe_slots).slot(self.superblock_slots)
    }

    fn die(&self, stripe: StripeNumber) -> Die {
        let Slot { superblock, offset } = self.first_slot(stripe);
        self.flash.geometry.die(superblock, offset / self.stripe_slots)
    }
}
