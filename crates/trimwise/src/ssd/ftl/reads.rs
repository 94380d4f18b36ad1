//! Times of a read command, or of a stripe of copies. Consecutive units of one stripe are read together.

use super::super::address::{Ppn, StripeNumber};
use super::super::flash::Flash;
use super::super::timing::Place;
use super::super::translation::Ready;
use crate::units::SimTime;

/// The flash reads of one command, or of one stripe of copies.
#[derive(Clone, Copy, Debug)]
pub(in crate::ssd) struct Reads {
    ready: Ready,
    run: Option<Run>,
    are_copies: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    stripe: StripeNumber,
    at: Place,
    units: u32,
    /// When the places of all slots are known.
    known: SimTime,
}

impl Reads {
    pub fn new(decoded: SimTime) -> Self {
        Self { ready: Ready { first: SimTime::MAX, last: decoded }, run: None, are_copies: false }
    }

    /// Starts copies that join data which are in the controller at `ready`.
    pub fn for_copies(ready: SimTime) -> Self {
        Self { are_copies: true, ..Self::new(ready) }
    }

    pub(crate) fn at_hand(&mut self, at: SimTime) {
        self.ready.first = self.ready.first.min(at);
    }

    pub fn wait(&mut self, at: SimTime) {
        self.ready.last = self.ready.last.max(at);
    }

    /// Adds the unit at a slot whose place is known at `known`.
    #[inline]
    pub fn slot(&mut self, flash: &mut Flash, now: SimTime, slot: Ppn, slc: bool, known: SimTime) {
        let stripe = slot.stripe(flash.geometry.stripe_units);
        match &mut self.run {
            Some(run) if run.stripe == stripe => {
                run.units += 1;
                run.known = run.known.max(known);
            }
            _ => {
                self.carry_out(flash, now);
                let at = Place { slc, ..flash.place(slot.slot(flash.geometry.superblock_units)) };
                self.run = Some(Run { stripe, at, units: 1, known });
            }
        }
    }

    fn carry_out(&mut self, flash: &mut Flash, now: SimTime) {
        let Some(run) = self.run.take() else { return };
        let busy = &mut flash.stats.busy_ns;
        let busy_ns = if self.are_copies { &mut busy.read_gc } else { &mut busy.read };
        let at = flash.nand.read(run.at, now, run.known, run.units, busy_ns);
        self.at_hand(at);
        self.wait(at);
    }

    /// Reads the remaining units. Returns when the first and the last unit are in the controller.
    pub fn finish(mut self, flash: &mut Flash, now: SimTime) -> Ready {
        self.carry_out(flash, now);
        self.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::SsdConfig;
    use crate::ssd::geometry::Geometry;
    use crate::units::SimDuration;

    #[test]
    fn units_read_together_are_read_when_the_places_of_all_are_known() {
        const KNOWN: SimDuration = SimDuration::from_secs(1);
        let config = SsdConfig::default();
        let geometry = Geometry::new(&config).unwrap();
        assert!(geometry.stripe_units > 1);
        let read_at = |known: [SimTime; 2]| {
            let mut flash = Flash::new(&config, geometry.clone());
            let mut reads = Reads::new(SimTime::ZERO);
            (0..)
                .zip(known)
                .for_each(|(slot, known)| reads.slot(&mut flash, SimTime::ZERO, Ppn(slot), false, known));
            reads.finish(&mut flash, SimTime::ZERO).last
        };
        let (early, late) = (SimTime::ZERO, SimTime::ZERO + KNOWN);
        assert_eq!(read_at([early, late]), read_at([early; 2]) + KNOWN);
        assert_eq!(read_at([late, early]), read_at([early; 2]) + KNOWN);
    }
}
