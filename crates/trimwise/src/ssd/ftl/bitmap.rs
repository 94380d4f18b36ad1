//! A bit for each slot that holds live data.

use super::super::address::{Number, Slot, Superblock};

/// The bits, superblock by superblock. Each superblock begins a new word.
#[derive(Clone, Debug)]
pub(in crate::ssd) struct Bitmap {
    words: Vec<u64>,
    words_per_superblock: usize,
}

impl Bitmap {
    pub fn new(superblocks: u32, superblock_slots: u32) -> Self {
        let words_per_superblock = superblock_slots.div_ceil(64) as usize;
        Self { words: vec![0; words_per_superblock * superblocks as usize], words_per_superblock }
    }

    #[inline]
    fn index(&self, slot: Slot) -> usize {
        slot.superblock.index() * self.words_per_superblock + (slot.offset / 64) as usize
    }

    #[inline]
    pub fn word_of(&self, slot: Slot) -> u64 {
        self.words[self.index(slot)]
    }

    #[inline]
    pub fn set(&mut self, slot: Slot) {
        let word = self.index(slot);
        self.words[word] |= 1 << (slot.offset % 64);
    }

    #[inline]
    pub fn clear(&mut self, slot: Slot) {
        let word = self.index(slot);
        self.words[word] &= !(1 << (slot.offset % 64));
    }

    #[inline]
    pub fn get(&self, slot: Slot) -> bool {
        self.word_of(slot) >> (slot.offset % 64) & 1 == 1
    }

    #[inline]
    pub fn next(&self, superblock: Superblock, from: u32) -> Option<u32> {
        let base = superblock.index() * self.words_per_superblock;
        let words = &self.words[base..base + self.words_per_superblock];
        let mut index = (from / 64) as usize;
        let mut word = words.get(index)? >> (from % 64) << (from % 64);
        while word == 0 {
            index += 1;
            word = *words.get(index)?;
        }
        Some(index as u32 * 64 + word.trailing_zeros())
    }

    pub fn iter(&self, superblock: Superblock, from: u32) -> impl Iterator<Item = u32> + '_ {
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
