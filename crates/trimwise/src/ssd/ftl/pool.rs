use std::collections::VecDeque;

use super::super::address::{Number, Superblock};

/// Unused superblocks: a queue for each lane, in the order in which they became unused.
#[derive(Clone, Debug)]
pub(in crate::ssd) struct Pool {
    lanes: Vec<VecDeque<Superblock>>,
    free: u32,
}

impl Pool {
    pub fn new(lanes: u32) -> Self {
        Self { lanes: vec![VecDeque::new(); lanes as usize], free: 0 }
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    pub(crate) fn free_in(&self, lane: usize) -> usize {
        self.lanes[lane].len()
    }

    pub fn lane(&self, superblock: Superblock) -> usize {
        superblock.index() % self.lanes.len()
    }

    /// Iterates over all lanes, beginning with the wanted one, in search order.
    pub(crate) fn lanes_from(&self, lane: usize) -> impl Iterator<Item = usize> + use<> {
        let lanes = self.lanes.len();
        (0..lanes).map(move |i| (lane + i) % lanes)
    }

    pub fn put(&mut self, superblock: Superblock) {
        let lane = self.lane(superblock);
        self.lanes[lane].push_back(superblock);
        self.free += 1;
    }

    pub(crate) fn take_from(&mut self, lane: usize) -> Option<Superblock> {
        let superblock = self.lanes[lane].pop_front()?;
        self.free -= 1;
        Some(superblock)
    }

    pub fn take(&mut self, lane: usize) -> Option<Superblock> {
        self.lanes_from(lane).find_map(|lane| self.take_from(lane))
    }

    pub fn clear(&mut self) {
        self.lanes.iter_mut().for_each(VecDeque::clear);
        self.free = 0;
    }

    pub fn iter(&self) -> impl Iterator<Item = Superblock> + '_ {
        self.lanes.iter().flatten().copied()
    }

    pub fn memory_bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.capacity() as u64 * 4).sum()
    }
}

impl Extend<Superblock> for Pool {
    fn extend<T: IntoIterator<Item = Superblock>>(&mut self, superblocks: T) {
        superblocks.into_iter().for_each(|superblock| self.put(superblock));
    }
}
