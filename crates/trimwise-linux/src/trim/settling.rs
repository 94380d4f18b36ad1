//! When the discards that FITRIM left on their way are done, as far as the device's counts tell.
//!
//! XFS returns before its discards end. All are done once the device has counted as many bytes as are expected and no more
//! come (some kernels send more than they are asked for), or has no write in flight, as which the kernel counts discards.
//! Others may keep it busy, and what was expected may be in use again; then some time without a discard must do, if there
//! was an instant in it without a write in flight. Without one, discards may hang, and nobody knows what became of them.
//! The wait is no part of what the slice took: it ended with the last discard that was counted, or with FITRIM itself. Else
//! every slice on a device that others use would seem to take as long as the wait.

use std::time::Duration;

use trimwise::units::Bytes;

/// Without a discard for so long, none comes any more, if none is in flight.
const ENOUGH_WITHOUT: Duration = Duration::from_secs(2);
/// Looks in a row that find nothing in flight.
const QUIET: u32 = 3;
/// Writes in flight all the time, and no discard among them that ends: they are taken for discards that hang. Far less than
/// the daemon's patience with its helper.
const HANGING: Duration = Duration::from_secs(10);

/// How the wait for discards ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// How long after FITRIM's return the last discard was counted.
    pub took: Duration,
    /// Writes that are still in flight, discards among them as far as anybody can tell; 0 if all discards are done.
    pub in_flight: u64,
}

/// Discards on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    /// The device's count with which all is done, if that is known.
    enough: Option<Bytes>,
    counted: Bytes,
    /// Where the count rose last; times are from FITRIM's return on.
    risen_at: Duration,
    quiet: u32,
    /// Nothing was in flight once since then.
    was_idle: bool,
}

impl Settling {
    /// FITRIM has returned, the device has counted so many bytes, and with `enough` all is done.
    pub(super) fn new(counted: Bytes, enough: Option<Bytes>) -> Self {
        Self { enough, counted, risen_at: Duration::ZERO, quiet: 0, was_idle: false }
    }

    /// What the device says at a time. Returns how it ended, if it has.
    pub(super) fn see(&mut self, at: Duration, counted: Bytes, in_flight: u64) -> Option<Settled> {
        let has_risen = counted != self.counted;
        if has_risen {
            (self.counted, self.risen_at, self.quiet, self.was_idle) = (counted, at, 0, false);
        } else {
            self.quiet = if in_flight == 0 { self.quiet + 1 } else { 0 };
            self.was_idle |= in_flight == 0;
        }
        let without = at.saturating_sub(self.risen_at);
        let is_enough = self.enough.is_some_and(|enough| counted >= enough) && !has_risen;
        // Nobody may wait long who expects nothing.
        let is_over = without >= ENOUGH_WITHOUT && (self.was_idle || self.enough.is_none());
        let is_done = is_enough || self.quiet >= QUIET || is_over;
        (is_done || without >= HANGING)
            .then_some(Settled { took: self.risen_at, in_flight: if is_done { 0 } else { in_flight } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn settled(took: Duration) -> Option<Settled> {
        Some(Settled { took, in_flight: 0 })
    }

    #[test]
    fn what_was_expected_is_enough_however_busy_the_device_is() {
        let mut settling = Settling::new(Bytes(100), Some(Bytes(300)));
        let see = |settling: &mut Settling, at, counted| settling.see(MS(at), Bytes(counted), 9);
        assert_eq!((see(&mut settling, 5, 100), see(&mut settling, 10, 200)), (None, None));
        assert_eq!(see(&mut settling, 15, 300), None, "more may come");
        assert_eq!(see(&mut settling, 20, 300), settled(MS(15)));
        let mut at_once = Settling::new(Bytes(300), Some(Bytes(300)));
        assert_eq!(see(&mut at_once, 5, 300), settled(MS(0)));
    }

    /// Looks each 5 ms; the count rises until 30 ms have passed, and each seventh look finds nothing in flight if `rests`.
    fn ends(mut settling: Settling, rests: bool) -> (Duration, Settled) {
        let mut looks = (1..10_000).map(|look| (MS(look * 5), if rests && look % 7 == 0 { 0 } else { 7 }));
        let counted = |at| Bytes(if at < MS(30) { 100 } else { 299 });
        looks.find_map(|(at, busy)| Some((at, settling.see(at, counted(at), busy)?))).unwrap()
    }

    #[test]
    fn on_a_busy_device_the_wait_is_no_part_of_what_it_took() {
        let (at, ended) = ends(Settling::new(Bytes(100), Some(Bytes(300))), true);
        assert_eq!((at, Some(ended)), (MS(30) + ENOUGH_WITHOUT, settled(MS(30))));
        let (at, ended) = ends(Settling::new(Bytes(100), None), false);
        assert_eq!((at, Some(ended)), (MS(30) + ENOUGH_WITHOUT, settled(MS(30))));
    }

    #[test]
    fn regression_discards_that_hang_are_not_taken_for_done() {
        let (at, ended) = ends(Settling::new(Bytes(100), Some(Bytes(300))), false);
        assert_eq!((at, ended), (MS(30) + HANGING, Settled { took: MS(30), in_flight: 7 }));
    }

    #[test]
    fn an_idle_device_is_done_and_a_discard_begins_the_looks_anew() {
        let mut settling = Settling::new(Bytes(0), None);
        for (at, counted) in [(5, 0), (10, 0), (15, 8), (20, 8), (25, 8)] {
            assert_eq!(settling.see(MS(at), Bytes(counted), 0), None, "{at}");
        }
        assert_eq!(settling.see(MS(30), Bytes(8), 0), settled(MS(15)));
    }
}
