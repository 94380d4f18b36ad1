//! A bit for each slot that holds live data.

/// The bits, superblock by superblock; each superblock begins with a word of its own.
#[derive(Clone, Debug)]
pub(in crate::ssd) struct Bitmap {
    words: Vec<u64>,
    words_per_superblock: u32,
}

impl Bitmap {
    pub fn new(superblocks: u32, superblock_slots: u32) -> Self {
        let words_per_superblock = superblock_slots.div_ceil(64);
        Self { words: vec![0; words_per_superblock as usize * superblocks as usize], words_per_superblock }
    }

    #[inline]
    fn word(&self, superblock: u32, offset: u32) -> usize {
        superblock as usize * self.words_per_superblock as usize + (offset / 64) as usize
    }

    /// The word that holds a slot's bit.
    #[inline]
    pub fn word_of(&self, superblock: u32, offset: u32) -> u64 {
        self.words[self.word(superblock, offset)]
    }

    #[inline]
    pub fn set(&mut self, superblock: u32, offset: u32) {
        let word = self.word(superblock, offset);
        self.words[word] |= 1 << (offset % 64);
    }

    #[inline]
    pub fn clear(&mut self, superblock: u32, offset: u32) {
        let word = self.word(superblock, offset);
        self.words[word] &= !(1 << (offset % 64));
    }

    #[inline]
    pub fn get(&self, superblock: u32, offset: u32) -> bool {
        self.words[self.word(superblock, offset)] >> (offset % 64) & 1 == 1
    }

    /// Returns the offset of the first set bit of a superblock at or after `from`.
    #[inline]
    pub fn next(&self, superblock: u32, from: u32) -> Option<u32> {
        let base = superblock as usize * self.words_per_superblock as usize;
        let mut index = from / 64;
        if index >= self.words_per_superblock {
            return None;
        }
        let mut word = self.words[base + index as usize] >> (from % 64) << (from % 64);
        while word == 0 {
            index += 1;
            if index >= self.words_per_superblock {
                return None;
            }
            word = self.words[base + index as usize];
        }
        Some(index * 64 + word.trailing_zeros())
    }

    /// The offsets of all set bits of a superblock from `from` on.
    pub fn iter(&self, superblock: u32, from: u32) -> impl Iterator<Item = u32> + '_ {
        let mut from = from;
        std::iter::from_fn(move || {
            let offset = self.next(superblock, from)?;
            from = offset + 1;
            Some(offset)
        })
    }

    pub(crate) fn clear_all(&mut self) {
        self.words.fill(0);
    }

    pub fn memory_bytes(&self) -> u64 {
        self.words.capacity() as u64 * 8
    }
}
