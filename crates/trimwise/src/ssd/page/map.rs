//! Who is where: the page map.
//!
//! Two tables of 32-bit numbers and a bitmap. `l2p` says where a logical unit lies; `p2l` says which
//! logical unit was written to a slot; the bitmap says whether the slot still counts. Invalidating a slot
//! touches the bitmap and the block's count but never `p2l`: the bitmap is 64 times smaller and stays in
//! the processor's cache, and a victim's entries of `p2l` are read in order anyway.

use super::super::geometry::Geometry;
use super::super::ftl::{Block, NONE};

#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// Behind the logical units of the host come those of the map, if it lies in the flash.
    pub l2p: Vec<u32>,
    pub p2l: Vec<u32>,
    pub bits: Vec<u64>,
    words_per_superblock: u32,
    superblock_units: u32,
    pub blocks: Vec<Block>,
    /// Logical units of the host that hold data.
    pub mapped: u64,
    /// Tags by slot, only for tests.
    tags: Vec<u32>,
}

impl Mapping {
    pub fn new(geometry: &Geometry, track_tags: bool) -> Self {
        let words_per_superblock = geometry.superblock_units.div_ceil(64);
        Self {
            l2p: vec![NONE; (geometry.logical_units + geometry.map_units) as usize],
            p2l: vec![NONE; geometry.physical_units() as usize],
            bits: vec![0; words_per_superblock as usize * geometry.superblocks as usize],
            words_per_superblock,
            superblock_units: geometry.superblock_units,
            blocks: vec![Block::NEW; geometry.superblocks as usize],
            mapped: 0,
            tags: vec![0; if track_tags { geometry.physical_units() as usize } else { 0 }],
        }
    }

    #[inline]
    pub fn split(&self, ppn: u32) -> (u32, u32) {
        (ppn / self.superblock_units, ppn % self.superblock_units)
    }

    #[inline]
    fn word(&self, superblock: u32, offset: u32) -> usize {
        superblock as usize * self.words_per_superblock as usize + (offset / 64) as usize
    }

    #[inline]
    pub fn set(&mut self, superblock: u32, offset: u32, lpn: u32) {
        let ppn = superblock * self.superblock_units + offset;
        let word = self.word(superblock, offset);
        self.l2p[lpn as usize] = ppn;
        self.p2l[ppn as usize] = lpn;
        self.bits[word] |= 1 << (offset % 64);
    }

    /// Clears the slot's bit; the block's count is the caller's.
    #[inline]
    pub fn clear_bit(&mut self, superblock: u32, offset: u32) {
        let word = self.word(superblock, offset);
        self.bits[word] &= !(1 << (offset % 64));
    }

    pub fn is_valid(&self, ppn: u32) -> bool {
        let (superblock, offset) = self.split(ppn);
        self.bits[self.word(superblock, offset)] >> (offset % 64) & 1 == 1
    }

    /// The first valid slot of a superblock at or behind `from`.
    #[inline]
    pub fn next_valid(&self, superblock: u32, from: u32) -> Option<u32> {
        let base = superblock as usize * self.words_per_superblock as usize;
        let mut index = from / 64;
        if index >= self.words_per_superblock {
            return None;
        }
        let mut word = self.bits[base + index as usize] >> (from % 64) << (from % 64);
        while word == 0 {
            index += 1;
            if index >= self.words_per_superblock {
                return None;
            }
            word = self.bits[base + index as usize];
        }
        Some(index * 64 + word.trailing_zeros())
    }

    pub fn set_tag(&mut self, ppn: u32, tag: u32) {
        if let Some(slot) = self.tags.get_mut(ppn as usize) {
            *slot = tag;
        }
    }

    pub fn tag(&self, ppn: u32) -> Option<u32> {
        self.tags.get(ppn as usize).copied()
    }

    #[inline]
    pub fn copy_tag(&mut self, from: u32, to: u32) {
        if !self.tags.is_empty() {
            self.tags[to as usize] = self.tags[from as usize];
        }
    }

    /// Bytes of the tables, tags aside.
    pub fn memory_bytes(&self) -> u64 {
        (self.l2p.capacity() * 4
            + self.p2l.capacity() * 4
            + self.bits.capacity() * 8
            + self.blocks.capacity() * size_of::<Block>()) as u64
    }
}
