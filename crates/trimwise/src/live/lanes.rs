//! How many calls of FITRIM at once.
//!
//! FITRIM waits for each discard before it sends the next one (ext4), or goes through one allocation group after another
//! (XFS): the device has one command at a time. Some devices do more in the same time if they have several, others (SATA,
//! whose TRIM is not queued) do not. So it is tried, where somebody waits for the end of a trim: twice as many calls for a
//! few slices, which are kept if they trim clearly more in the same time.

use crate::units::{Bytes, SimDuration};

/// Calls at once at most: a helper has so many threads.
const LANES_MAX: u32 = 8;
/// Slices by which a number of calls is judged.
const TRIAL: u32 = 4;
/// More calls are kept if they trim so many tenths more.
const GAIN_TENTHS: u128 = 2;
/// A number of calls that was no gain is tried again after so many slices: the device may have been busy.
const AGAIN: u32 = 256;

/// The number of calls at once for one file system.
#[derive(Clone, Debug)]
pub struct Lanes {
    kept: u32,
    /// What the kept number does.
    now: Rate,
    /// What twice as many do, while that is tried.
    twice: Option<Rate>,
    until_trial: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    slices: u32,
    bytes: u64,
    took: SimDuration,
}

impl Rate {
    fn add(&mut self, bytes: Bytes, took: SimDuration) {
        if self.slices == TRIAL {
            // The last ones count: extents differ from one part of a file system to another.
            *self = Self::default();
        }
        self.slices += 1;
        self.bytes = self.bytes.saturating_add(bytes.0);
        self.took += took;
    }

    fn is_gain_over(self, other: Self) -> bool {
        let product = |bytes: u64, took: SimDuration| u128::from(bytes) * u128::from(took.as_nanos());
        product(self.bytes, other.took) * 10 >= product(other.bytes, self.took) * (10 + GAIN_TENTHS)
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self { kept: 1, now: Rate::default(), twice: None, until_trial: TRIAL }
    }
}

impl Lanes {
    /// Calls at once for the next slice.
    pub fn next(&self) -> u32 {
        if self.twice.is_some() { self.kept * 2 } else { self.kept }
    }

    /// A slice of so many ranges is done, with the number of calls that [`Lanes::next`] said. With fewer ranges than calls
    /// nothing is learned.
    pub fn done(&mut self, ranges: usize, bytes: Bytes, took: SimDuration) {
        if (ranges as u64) < u64::from(self.kept) * 2 {
            return;
        }
        let Some(twice) = &mut self.twice else {
            self.now.add(bytes, took);
            self.until_trial -= 1;
            if self.until_trial == 0 {
                self.until_trial = AGAIN;
                self.twice = (self.kept < LANES_MAX).then(Rate::default);
            }
            return;
        };
        twice.add(bytes, took);
        if twice.slices < TRIAL {
            return;
        }
        let twice = *twice;
        self.twice = None;
        if twice.is_gain_over(self.now) {
            self.kept *= 2;
            self.now = twice;
            self.until_trial = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are kept on a device that does `gain_percent` more for each doubling up to `most`.
    fn settled(most: u32, gain_percent: u64) -> u32 {
        let mut lanes = Lanes::default();
        for _ in 0..200 {
            let doublings = lanes.next().min(most).ilog2();
            let took = (0..doublings).fold(1_000_000_000, |took, _| took * 100 / (100 + gain_percent));
            lanes.done(64, Bytes::mib(64), SimDuration::from_nanos(took));
        }
        lanes.kept
    }

    #[test]
    fn as_many_are_kept_as_the_device_gains_by() {
        assert_eq!([1, 2, 4, 8, 64].map(|most| settled(most, 80)), [1, 2, 4, 8, 8]);
        assert_eq!((settled(8, 10), settled(8, 30)), (1, 8), "a tenth is no gain");
    }

    #[test]
    fn what_was_no_gain_is_tried_again_much_later_and_few_ranges_tell_nothing() {
        let mut lanes = Lanes::default();
        let mut trials = 0;
        for _ in 0..2 * AGAIN {
            trials += u32::from(lanes.next() == 2);
            lanes.done(2, Bytes::mib(1), SimDuration::from_millis(1));
        }
        assert_eq!((lanes.kept, trials), (1, 2 * TRIAL));
        let mut lanes = Lanes::default();
        (0..100).for_each(|_| lanes.done(1, Bytes::mib(1), SimDuration::from_millis(1)));
        assert_eq!(lanes.next(), 1);
    }
}
