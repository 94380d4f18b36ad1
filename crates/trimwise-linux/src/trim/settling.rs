//! Detects from the device's counts when the discards that FITRIM left in flight are done.
//!
//! XFS returns before its discards end. They are done once the device has counted the expected bytes and the count
//! stops rising (some kernels send more than asked for), or once it has no writes in flight, among which the kernel
//! counts discards. Other users may keep the device busy, and expected blocks may have been reused. Then a period
//! without a discard suffices, if at some instant in it no write was in flight. Without such an instant, discards may
//! be hanging, and their fate is unknown. The wait is not part of the slice's duration, which ends with the last
//! discard counted, or with FITRIM itself. Otherwise every slice on a device that others use would seem to take as long
//! as the wait.

use std::time::Duration;

use trimwise::units::Bytes;

/// Time without a discard, and with none in flight, after which no more are expected.
const ENOUGH_WITHOUT: Duration = Duration::from_secs(2);
/// Consecutive samples with nothing in flight.
const QUIET: u32 = 3;
/// Period with writes always in flight and no discard completing after which the writes count as hanging discards. It
/// is far shorter than the time that the daemon waits for its helper.
const HANGING: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Time from FITRIM's return to the last discard counted.
    pub took: Duration,
    /// Writes still in flight, possibly including discards; 0 if all discards are done.
    pub in_flight: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    /// The device's count at which all discards are done, if known.
    enough: Option<Bytes>,
    counted: Bytes,
    /// Time since FITRIM's return at which the count last rose.
    risen_at: Duration,
    quiet: u32,
    /// True if nothing was in flight at some instant since then.
    was_idle: bool,
}

impl Settling {
    /// Starts at FITRIM's return, when the device has counted `counted` bytes. All is done at `enough`.
    pub(super) fn new(counted: Bytes, enough: Option<Bytes>) -> Self {
        Self { enough, counted, risen_at: Duration::ZERO, quiet: 0, was_idle: false }
    }

    /// Takes a sample of the device. Returns how the wait ended, once it has.
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
        let is_over = without >= ENOUGH_WITHOUT && self.was_idle;
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
    fn the_expected_count_ends_the_wait_even_on_a_busy_device() {
        let mut settling = Settling::new(Bytes(100), Some(Bytes(300)));
        let see = |settling: &mut Settling, at, counted| settling.see(MS(at), Bytes(counted), 9);
        assert_eq!((see(&mut settling, 5, 100), see(&mut settling, 10, 200)), (None, None));
        assert_eq!(see(&mut settling, 15, 300), None, "more may come");
        assert_eq!(see(&mut settling, 20, 300), settled(MS(15)));
        let mut at_once = Settling::new(Bytes(300), Some(Bytes(300)));
        assert_eq!(see(&mut at_once, 5, 300), settled(MS(0)));
    }

    /// Samples a device every 5 ms. The count rises until 30 ms have passed. Every seventh sample finds nothing in
    /// flight if `rests`.
    fn ends(mut settling: Settling, rests: bool) -> (Duration, Settled) {
        let mut looks = (1..10_000).map(|look| (MS(look * 5), if rests && look % 7 == 0 { 0 } else { 7 }));
        let counted = |at| Bytes(if at < MS(30) { 100 } else { 299 });
        looks.find_map(|(at, busy)| Some((at, settling.see(at, counted(at), busy)?))).unwrap()
    }

    #[test]
    fn on_a_busy_device_the_wait_is_not_part_of_the_duration() {
        let (at, ended) = ends(Settling::new(Bytes(100), Some(Bytes(300))), true);
        assert_eq!((at, Some(ended)), (MS(30) + ENOUGH_WITHOUT, settled(MS(30))));
        let (at, ended) = ends(Settling::new(Bytes(100), None), true);
        assert_eq!((at, Some(ended)), (MS(30) + ENOUGH_WITHOUT, settled(MS(30))));
    }

    #[test]
    fn regression_discards_that_hang_are_not_taken_for_done() {
        for enough in [Some(Bytes(300)), None] {
            let (at, ended) = ends(Settling::new(Bytes(100), enough), false);
            assert_eq!((at, ended), (MS(30) + HANGING, Settled { took: MS(30), in_flight: 7 }), "{enough:?}");
        }
    }

    #[test]
    fn an_idle_instant_before_the_last_discard_says_nothing_of_those_after_it() {
        let mut settling = Settling::new(Bytes(0), Some(Bytes(300)));
        for (at, counted, in_flight) in [(5, 0, 0), (10, 100, 7), (2_500, 100, 7), (9_995, 100, 7)] {
            assert_eq!(settling.see(MS(at), Bytes(counted), in_flight), None, "{at} ms");
        }
        let hangs = Settled { took: MS(10), in_flight: 7 };
        assert_eq!(settling.see(MS(10) + HANGING, Bytes(100), 7), Some(hangs));
    }

    #[test]
    fn an_idle_device_is_done_and_a_discard_restarts_the_looks() {
        let mut settling = Settling::new(Bytes(0), None);
        for (at, counted) in [(5, 0), (10, 0), (15, 8), (20, 8), (25, 8)] {
            assert_eq!(settling.see(MS(at), Bytes(counted), 0), None, "{at}");
        }
        assert_eq!(settling.see(MS(30), Bytes(8), 0), settled(MS(15)));
    }
}
