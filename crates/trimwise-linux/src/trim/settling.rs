//! When the discards that FITRIM left on their way are done, as far as the device's counts tell.
//!
//! XFS returns before its discards end. All are done once the device has counted as many bytes as are expected and no more
//! come (some kernels send more than they are asked for), or has nothing in flight. Others may keep it busy, and what was
//! expected may be in use again; then some time without a discard must do. That time is no part of what the slice took: it
//! ended with the last discard that was counted, or with FITRIM itself. Else every slice on a device that others use would
//! seem to take as long as the wait.

use std::time::Duration;

use trimwise::units::Bytes;

/// Without a discard for so long, none comes any more.
const ENOUGH_WITHOUT: Duration = Duration::from_secs(2);
/// Looks in a row that find nothing in flight.
const QUIET: u32 = 3;

/// Discards on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    /// The device's count with which all is done, if that is known.
    enough: Option<Bytes>,
    counted: Bytes,
    /// Where the count rose last; times are from FITRIM's return on.
    risen_at: Duration,
    quiet: u32,
}

impl Settling {
    /// FITRIM has returned, the device has counted so many bytes, and with `enough` all is done.
    pub(super) fn new(counted: Bytes, enough: Option<Bytes>) -> Self {
        Self { enough, counted, risen_at: Duration::ZERO, quiet: 0 }
    }

    /// What the device says at a time. Answers whether all is done.
    pub(super) fn see(&mut self, at: Duration, counted: Bytes, in_flight: u64) -> bool {
        let has_risen = counted != self.counted;
        if has_risen {
            (self.counted, self.risen_at, self.quiet) = (counted, at, 0);
        } else {
            self.quiet = if in_flight == 0 { self.quiet + 1 } else { 0 };
        }
        let is_enough = self.enough.is_some_and(|enough| counted >= enough) && !has_risen;
        is_enough || self.quiet >= QUIET || at.saturating_sub(self.risen_at) >= ENOUGH_WITHOUT
    }

    /// How long after FITRIM's return the last discard was counted.
    pub(super) fn risen_at(&self) -> Duration {
        self.risen_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn what_was_expected_is_enough_however_busy_the_device_is() {
        let mut settling = Settling::new(Bytes(100), Some(Bytes(300)));
        assert!(!settling.see(MS(5), Bytes(100), 9) && !settling.see(MS(10), Bytes(200), 9));
        assert!(!settling.see(MS(15), Bytes(300), 9), "more may come");
        assert!(settling.see(MS(20), Bytes(300), 9));
        assert_eq!(settling.risen_at(), MS(15));
        assert!(Settling::new(Bytes(300), Some(Bytes(300))).see(MS(5), Bytes(300), 9));
    }

    #[test]
    fn on_a_busy_device_the_wait_is_no_part_of_what_it_took() {
        let mut settling = Settling::new(Bytes(100), Some(Bytes(300)));
        let mut looks = (1..1000).map(|look| MS(look * 5));
        let ended = looks.find(|&at| settling.see(at, Bytes(if at < MS(30) { 100 } else { 299 }), 7));
        assert_eq!((settling.risen_at(), ended), (MS(30), Some(MS(30) + ENOUGH_WITHOUT)));
        // Nothing came at all: it took what FITRIM took.
        let mut settling = Settling::new(Bytes(100), None);
        let ended = (1..1000).map(|look| MS(look * 5)).find(|&at| settling.see(at, Bytes(100), 7));
        assert_eq!((settling.risen_at(), ended), (Duration::ZERO, Some(ENOUGH_WITHOUT)));
    }

    #[test]
    fn an_idle_device_is_done_and_a_discard_begins_the_looks_anew() {
        let mut settling = Settling::new(Bytes(0), None);
        assert!(!settling.see(MS(5), Bytes(0), 0) && !settling.see(MS(10), Bytes(0), 0));
        assert!(!settling.see(MS(15), Bytes(8), 0), "one more was counted");
        assert!(!settling.see(MS(20), Bytes(8), 0) && !settling.see(MS(25), Bytes(8), 0));
        assert!(settling.see(MS(30), Bytes(8), 0));
        assert_eq!(settling.risen_at(), MS(15));
    }
}
