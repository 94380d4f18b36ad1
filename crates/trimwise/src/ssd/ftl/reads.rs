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
    pub(crate) fn at_hand(&mut self, at: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::SsdConfig;
    use crate::ssd::geometry::Geometry;

    /// The place of the second unit has yet to be looked up.
    #[test]
    fn units_read_together_are_read_when_the_places_of_all_are_known() {
        const KNOWN: u64 = 1_000_000_000;
        let config = SsdConfig::default();
        let geometry = Geometry::new(&config).unwrap();
        assert!(geometry.stripe_units > 1);
        let read_at = |known: [u64; 2]| {
            let mut flash = Flash::new(&config, geometry.clone());
            let mut reads = Reads::new(0);
            (0..).zip(known).for_each(|(slot, known)| reads.slot(&mut flash, 0, slot, false, known));
            reads.finish(&mut flash, 0).last
        };
        assert_eq!(read_at([0, KNOWN]), KNOWN + read_at([0, 0]));
        assert_eq!(read_at([KNOWN, 0]), KNOWN + read_at([0, 0]));
    }
}
