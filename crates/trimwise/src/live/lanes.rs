//! Number of concurrent FITRIM calls.
//!
//! FITRIM waits for each discard before it sends the next (ext4), or goes through one allocation group after another
//! (XFS), so the device has one command at a time. Some devices do more in the same time with several commands; others
//! (SATA, whose TRIM is not queued) do not. So if the user is waiting for the end of a trim, twice as many calls are
//! tried for a few slices, and kept if they trim clearly more in the same time.

use crate::units::{Bytes, SimDuration};

const LANES_MAX: u32 = 4;
const TRIAL: u32 = 4;
/// Gain for which more calls are kept, in tenths.
const GAIN_TENTHS: u128 = 2;
/// Slices until a number of calls without gain is tried again: the device may have been busy.
const AGAIN: u32 = 256;

#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    kept: u32,
    now: Rate,
    /// Rate with twice as many calls, during a trial.
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
            // Only the last slices count: extents differ from one part of a file system to another.
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
    pub fn next(&self) -> u32 {
        if self.twice.is_some() { self.kept * 2 } else { self.kept }
    }

    /// Accounts for a slice done with the number of calls from [`Lanes::next`]. Slices of few extents are ignored.
    pub fn done(&mut self, extents: u64, bytes: Bytes, took: SimDuration) {
        if extents < u64::from(self.kept) * 2 {
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

    /// Number kept on a device that gains `gain_percent` with each doubling up to `most`.
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
    fn calls_double_as_long_as_the_device_gains() {
        assert_eq!([1, 2, 4, 64].map(|most| settled(most, 80)), [1, 2, 4, 4]);
        assert_eq!((settled(8, 10), settled(8, 30)), (1, 4), "a tenth is no gain");
    }

    #[test]
    fn a_number_without_gain_is_retried_much_later_and_few_extents_are_ignored() {
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
