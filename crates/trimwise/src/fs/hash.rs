//! A hash for tables that are only looked up, never iterated: names and metadata blocks.
//!
//! The standard one defends against keys that an attacker chooses, and takes longer than the look-up itself.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type WordMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// Multiplies word by word, and at the end mixes the high bits into the low ones, which choose the place in the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WordHasher(u64);

impl WordHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for WordHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(8);
        let rest = words.remainder();
        for word in words {
            self.add(u64::from_le_bytes(word.try_into().expect("chunks of eight bytes")));
        }
        self.add(rest.iter().fold(rest.len() as u64, |word, &byte| word << 8 | u64::from(byte)));
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    #[inline]
    fn finish(&self) -> u64 {
        (self.0 ^ self.0 >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.0 >> 29
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher as _, BuildHasherDefault};

    use super::WordHasher;

    /// The share of places that is used, with as many places as keys. A random function uses 63 %.
    fn places_used<K: std::hash::Hash>(keys: impl ExactSizeIterator<Item = K>) -> f64 {
        let (hash, count) = (BuildHasherDefault::<WordHasher>::default(), keys.len());
        let low_bits: HashSet<u64> = keys.map(|key| hash.hash_one(key) % count as u64).collect();
        low_bits.len() as f64 / count as f64
    }

    #[test]
    fn names_and_block_numbers_that_resemble_each_other_spread_over_a_table() {
        const KEYS: usize = 1 << 14;
        let names = places_used((0..KEYS).map(|i| format!("s3/{i}")));
        let blocks = places_used((0..KEYS).map(|i| i as u64 * 32_768));
        for used in [names, blocks] {
            assert!(used > 0.60, "{used}");
        }
    }
}
