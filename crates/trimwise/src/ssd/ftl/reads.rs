//! What a read command waits for. Units of one stripe that follow each other are read together.

use super::super::flash::Flash;
use super::super::timing::Place;
use super::super::translation::Ready;

/// The flash reads of one command.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Reads {
    ready: Ready,
    run: Option<Run>,
}

/// Units of one stripe that are not read yet.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of the stripe in the whole device.
    stripe: u32,
    at: Place,
    units: u32,
    /// When the places of all of them are known.
    known: u64,
}

impl Reads {
    /// A command that is decoded at `decoded`.
    pub fn new(decoded: u64) -> Self {
        Self { ready: Ready { first: u64::MAX, last: decoded }, run: None }
    }

    /// Adds a unit that needs no flash.
    pub fn at_hand(&mut self, at: u64) {
        self.ready.first = self.ready.first.min(at);
    }

    /// Waits for something else until `at`.
    pub fn wait(&mut self, at: u64) {
        self.ready.last = self.ready.last.max(at);
    }

    /// Adds the unit at a slot, in SLC mode or not, whose place is known at `known`.
    #[inline]
    pub fn slot(&mut self, flash: &mut Flash, now: u64, slot: u32, slc: bool, known: u64) {
        let stripe = slot / flash.geometry.stripe_units;
        match &mut self.run {
            Some(run) if run.stripe == stripe => {
                run.units += 1;
                run.known = run.known.max(known);
            }
            _ => {
                self.carry_out(flash, now);
                let units = flash.geometry.superblock_units;
                let at = Place { slc, ..flash.place(slot / units, slot % units) };
                self.run = Some(Run { stripe, at, units: 1, known });
            }
        }
    }

    fn carry_out(&mut self, flash: &mut Flash, now: u64) {
        let Some(run) = self.run.take() else { return };
        let at = flash.nand.read(run.at, now, run.known, run.units, &mut flash.stats.busy_ns);
        self.at_hand(at);
        self.wait(at);
    }

    /// Reads what is left. Returns when the first and the last unit are in the controller.
    pub fn finish(mut self, flash: &mut Flash, now: u64) -> Ready {
        self.carry_out(flash, now);
        self.ready
    }
}
