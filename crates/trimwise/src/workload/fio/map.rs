//! The blocks of a file that a random job has visited (fio's random map).

/// A set of blocks that finds the next one that is not in it.
#[derive(Clone, Debug)]
pub struct Map {
    blocks: u64,
    words: Vec<u64>,
    /// One bit for each word: set if all blocks of the word are in the set.
    full: Vec<u64>,
}

impl Map {
    pub fn new(blocks: u64) -> Self {
        let words = blocks.div_ceil(64) as usize;
        let mut map = Self { blocks, words: vec![0; words], full: vec![0; words.div_ceil(64)] };
        map.clear();
        map
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
        self.full.fill(0);
        if !self.blocks.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last = u64::MAX << (self.blocks % 64); // there are no such blocks
        }
    }

    pub fn has(&self, block: u64) -> bool {
        self.words.get((block / 64) as usize).is_none_or(|word| word >> (block % 64) & 1 != 0)
    }

    /// Adds up to `count` blocks from `block` on, until one is in the set already. Returns the number added.
    pub fn add(&mut self, block: u64, count: u64) -> u64 {
        let mut added = 0;
        while added < count && !self.has(block + added) {
            let at = block + added;
            let word = (at / 64) as usize;
            self.words[word] |= 1 << (at % 64);
            if self.words[word] == u64::MAX {
                self.full[word / 64] |= 1 << (word % 64);
            }
            added += 1;
        }
        added
    }

    /// Returns the next block after `block` that is not in the set. Begins again after the last.
    pub fn next_free(&self, block: u64) -> Option<u64> {
        let next = if block + 1 >= self.blocks { 0 } else { block + 1 };
        self.first_free(next).or_else(|| self.first_free(0))
    }

    fn first_free(&self, from: u64) -> Option<u64> {
        let free_in = |word: usize, from: u64| {
            let free = !self.words[word] & u64::MAX << from;
            (free != 0).then(|| word as u64 * 64 + u64::from(free.trailing_zeros()))
        };
        let first = (from / 64) as usize;
        if first >= self.words.len() {
            return None;
        }
        if let Some(block) = free_in(first, from % 64) {
            return Some(block);
        }
        let mut word = first + 1;
        while word < self.words.len() {
            let open = !self.full[word / 64] & u64::MAX << (word % 64);
            if open != 0 {
                word = word / 64 * 64 + open.trailing_zeros() as usize;
                return self.words.get(word).and_then(|_| free_in(word, 0));
            }
            word = (word / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            blocks in 1_u64..10_000,
            steps in prop::collection::vec((0_u64..10_000, 1_u64..200), 1..300),
        ) {
            let (mut map, mut set) = (Map::new(blocks), BTreeSet::new());
            for (block, count) in steps {
                let block = block % blocks;
                let expected = (block..blocks.min(block + count)).take_while(|b| !set.contains(b)).count() as u64;
                prop_assert_eq!(map.add(block, count), expected);
                set.extend(block..block + expected);
                prop_assert!((0..blocks + 70).step_by(7).all(|b| map.has(b) == (b >= blocks || set.contains(&b))));
                let next = (block + 1..blocks).chain(0..=block).find(|b| !set.contains(b));
                prop_assert_eq!(map.next_free(block), next);
            }
        }
    }
}
