//! The random-number generator of PostMark.
//!
//! PostMark's counts are a function of its seed, so its generator must match bit for bit. It is MT19937 (Matsumoto and
//! Nishimura 1998) with 32-bit outputs, but with the seeding that circulated in 1999: each word of the state takes its
//! halves from the upper halves of two successive values of `x -> 69069 x + 1`. Every library today offers the seeding
//! of 2002, which gives other numbers for the same seed. That is why the generator is written out here.

const STATE_WORDS: usize = 624;
/// Distance between the two words that are combined.
const SHIFT_WORDS: usize = 397;
const UPPER_MASK: u32 = 0x8000_0000;
const LOWER_MASK: u32 = 0x7fff_ffff;
const TWIST: u32 = 0x9908_b0df;

/// MT19937 as PostMark 1.53 seeds it.
#[derive(Clone)]
pub(crate) struct Mt19937 {
    state: [u32; STATE_WORDS],
    next: usize,
}

impl std::fmt::Debug for Mt19937 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mt19937").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Mt19937 {
    pub fn new(seed: u32) -> Self {
        let mut x = seed;
        let mut step = || {
            let value = x;
            x = x.wrapping_mul(69069).wrapping_add(1);
            value
        };
        let state = std::array::from_fn(|_| (step() & 0xffff_0000) | (step() >> 16));
        Self { state, next: STATE_WORDS }
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.next == STATE_WORDS {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Returns a number from 0 to `n` - 1, by remainder as in PostMark, so very slightly uneven.
    ///
    /// With `n` = 0 it returns 0 and draws nothing: files of one fixed size draw no size.
    pub fn below(&mut self, n: u32) -> u32 {
        if n == 0 { 0 } else { self.next_u32() % n }
    }

    fn twist(&mut self) {
        for k in 0..STATE_WORDS {
            let y = (self.state[k] & UPPER_MASK) | (self.state[(k + 1) % STATE_WORDS] & LOWER_MASK);
            let odd = if y & 1 == 1 { TWIST } else { 0 };
            self.state[k] = self.state[(k + SHIFT_WORDS) % STATE_WORDS] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes that Debian's PostMark 1.53-2 writes into every file with seed 42, seen with strace:
    /// each is 32 plus a number below 95.
    #[test]
    fn seed_42_draws_the_bytes_that_postmark_writes() {
        let mut rng = Mt19937::new(42);
        let bytes: Vec<u8> = (0..32).map(|_| 32 + rng.below(95) as u8).collect();
        assert_eq!(std::str::from_utf8(&bytes), Ok("LeZebJ6S5~qPv$C$py}hmKd H58nM4~."));
    }

    /// The subdirectories of the first files with `size 10 20`, `subdirectories 7`, seed 42, seen with strace.
    /// The 40 draws of the source buffer come first, and the size takes a draw after each subdirectory.
    #[test]
    fn later_draws_follow_too() {
        let mut rng = Mt19937::new(42);
        for _ in 0..40 {
            rng.below(95);
        }
        let subdirectories: Vec<u32> = (0..12)
            .map(|_| {
                let k = rng.below(7);
                rng.below(10);
                k
            })
            .collect();
        assert_eq!(subdirectories, [2, 2, 2, 1, 0, 3, 6, 6, 6, 4, 5, 0]);
    }

    #[test]
    fn nothing_is_drawn_below_zero() {
        let mut rng = Mt19937::new(7);
        let mut twin = rng.clone();
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.next_u32(), twin.next_u32());
    }
}
