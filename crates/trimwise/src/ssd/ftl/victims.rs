//! The choice of the next superblock to collect.
//!
//! All closed superblocks are kept in [`Lists`], one for each number of valid slots. An overwrite moves a superblock from one list to the next lower in a few
//! memory accesses, and the greedy choice is the head of the lowest list that is not empty. First-in
//! first-out is the same structure with a single list. The other policies look at the closed superblocks
//! themselves.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::address::{Number, Superblock, Table};
use super::super::audit::{AuditError, ensure};
use super::super::config::VictimPolicy;
use super::super::translation::Translation;
use super::lists::Lists;
use super::superblock::Block;

/// Panics if more victims were collected in a row than any choice can need to free a superblock. Then the mapping has
/// lost count of valid units, and would go on for ever.
pub(in crate::ssd) fn must_have_gained(victims: u32, mapping: &dyn Translation) {
    // A victim chosen by its gain gives back a slot at least; one taken in turn or drawn may give nothing.
    const TURNS: u32 = 64;
    let geometry = &mapping.flash().geometry;
    let victims_max = geometry.superblocks.saturating_add(geometry.superblock_units).saturating_mul(TURNS);
    assert!(victims <= victims_max, "{victims} victims and no superblock free: {:?}", mapping.audit());
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Victims {
    policy: VictimPolicy,
    /// Slots in a superblock, and so the index of the highest list.
    top: u32,
    lists: Lists<Superblock>,
    /// Lists below this one are empty.
    lowest: usize,
    /// The closed superblocks in an arbitrary but reproducible order, and each one's index there.
    closed: Vec<Superblock>,
    position: Table<Superblock, u32>,
}

impl Victims {
    pub fn new(policy: VictimPolicy, superblocks: u32, superblock_slots: u32) -> Self {
        let lists = if policy == VictimPolicy::Fifo { 1 } else { superblock_slots as usize + 1 };
        let superblocks = superblocks as usize;
        Self {
            policy,
            top: superblock_slots,
            lists: Lists::new(lists, superblocks),
            lowest: lists,
            closed: Vec::with_capacity(superblocks),
            position: Table::new(superblocks, u32::MAX),
        }
    }

    pub fn closed(&self) -> &[Superblock] {
        &self.closed
    }

    #[inline]
    fn list(&self, valid: u32) -> usize {
        if self.policy == VictimPolicy::Fifo { 0 } else { valid as usize }
    }

    pub fn insert(&mut self, superblock: Superblock, valid: u32) {
        self.position[superblock] = self.closed.len() as u32;
        self.closed.push(superblock);
        self.link(superblock, valid);
    }

    pub fn remove(&mut self, superblock: Superblock, valid: u32) {
        let at = self.position[superblock] as usize;
        self.closed.swap_remove(at);
        if let Some(&moved) = self.closed.get(at) {
            self.position[moved] = at as u32;
        }
        self.lists.remove(self.list(valid), superblock);
    }

    #[inline]
    pub fn lost(&mut self, superblock: Superblock, before: u32, after: u32) {
        if self.policy == VictimPolicy::Fifo {
            return;
        }
        self.lists.remove(before as usize, superblock);
        self.link(superblock, after);
    }

    /// Rebuilds the lists. That is cheaper than moving members one by one when most have changed.
    pub(crate) fn relink(&mut self, blocks: &Table<Superblock, Block>) {
        if self.policy == VictimPolicy::Fifo {
            return;
        }
        self.clear_lists();
        for i in 0..self.closed.len() {
            let superblock = self.closed[i];
            self.link(superblock, blocks[superblock].valid);
        }
    }

    pub fn clear(&mut self) {
        self.clear_lists();
        self.closed.clear();
    }

    fn clear_lists(&mut self) {
        self.lists.clear();
        self.lowest = self.list(self.top) + 1;
    }

    #[inline]
    fn link(&mut self, superblock: Superblock, valid: u32) {
        let list = self.list(valid);
        self.lists.push(list, superblock);
        self.lowest = self.lowest.min(list);
    }

    /// Returns the next victim; `None` if nothing is closed. `clock` is the age counter of [`Block::closed_at`].
    pub fn choose(
        &mut self,
        blocks: &Table<Superblock, Block>,
        clock: u64,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Superblock> {
        if self.closed.is_empty() {
            return None;
        }
        match self.policy {
            VictimPolicy::Greedy | VictimPolicy::Fifo => self.first(),
            VictimPolicy::CostBenefit => self.best_ratio(blocks, clock).or_else(|| self.first()),
            VictimPolicy::DChoices(d) => self.best_of(d, blocks, rng).or_else(|| self.first()),
            VictimPolicy::Random => Some(self.draw(rng)),
        }
    }

    /// Returns the superblock with the fewest valid units, or with first-in first-out the oldest.
    pub fn first(&mut self) -> Option<Superblock> {
        while self.lowest <= self.list(self.top) {
            let superblock = self.lists.first(self.lowest);
            if superblock != Superblock::NONE {
                return Some(superblock);
            }
            self.lowest += 1;
        }
        None
    }

    /// Returns the superblock with the best (1 - u) * age / (1 + u), where u is the share of valid units, compared by
    /// cross-multiplication. `None` if no superblock has anything to gain.
    fn best_ratio(&self, blocks: &Table<Superblock, Block>, clock: u64) -> Option<Superblock> {
        let mut best: Option<(u128, u128, Superblock)> = None;
        for &superblock in &self.closed {
            let block = &blocks[superblock];
            let gain = u128::from(self.top - block.valid) * u128::from(clock - block.closed_at + 1);
            let cost = u128::from(self.top + block.valid);
            let better = match best {
                None => gain > 0,
                Some((best_gain, best_cost, index)) => {
                    let (mine, other) = (gain * best_cost, best_gain * cost);
                    mine > other || (mine == other && superblock < index)
                }
            };
            if better {
                best = Some((gain, cost, superblock));
            }
        }
        best.map(|(_, _, superblock)| superblock)
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Superblock {
        // Multiply and shift; the bias is below 2^-32.
        self.closed[(((rng.next_u64() >> 32) * self.closed.len() as u64) >> 32) as usize]
    }

    /// Returns the best of `d` superblocks drawn at random; `None` if none of them has anything to gain.
    fn best_of(
        &self,
        d: u32,
        blocks: &Table<Superblock, Block>,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Superblock> {
        let mut best: Option<Superblock> = None;
        for _ in 0..d {
            let superblock = self.draw(rng);
            if best.is_none_or(|b| blocks[superblock].valid < blocks[b].valid) {
                best = Some(superblock);
            }
        }
        best.filter(|&b| blocks[b].valid < self.top)
    }

    /// Checks that each candidate is in the list of its count, once.
    pub fn audit(&self, blocks: &Table<Superblock, Block>) -> Result<(), AuditError> {
        let (mut listed, closed) = (0, self.closed.len());
        for list in 0..=self.list(self.top) {
            for superblock in self.lists.audited(list)? {
                listed += 1;
                ensure!(listed <= closed, "the victim lists hold more than the candidates");
                ensure!(list >= self.lowest, "list {list} is not empty, and below the lowest");
                let valid = blocks[superblock].valid;
                ensure!(
                    self.list(valid) == list,
                    "superblock {superblock} has {valid} valid units and is in list {list}"
                );
            }
        }
        ensure!(listed == closed, "{listed} superblocks in the victim lists, {closed} closed");
        Ok(())
    }

    pub fn memory_bytes(&self) -> u64 {
        self.lists.memory_bytes() + self.closed.capacity() as u64 * 4 + self.position.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    const SLOTS: u32 = 16;
    const CLOCK: u64 = 9;

    /// Returns the choice among closed superblocks, given the valid units and the closing time of each.
    fn chosen(policy: VictimPolicy, closed: &[(u32, u64)]) -> Option<u32> {
        let block = |&(valid, closed_at): &(u32, u64)| Block { valid, closed_at, ..Block::NEW };
        let mut blocks = Table::new(closed.len(), Block::NEW);
        blocks.iter_mut().zip(closed).for_each(|(kept, closed)| *kept = block(closed));
        let mut victims = Victims::new(policy, blocks.len() as u32, SLOTS);
        blocks.numbered().for_each(|(superblock, block)| victims.insert(superblock, block.valid));
        let chosen = victims.choose(&blocks, CLOCK, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        chosen.map(|superblock| superblock.0)
    }

    #[test]
    fn cost_benefit_weighs_gain_and_age_against_what_is_read_and_written() {
        let cost_benefit = |closed| chosen(VictimPolicy::CostBenefit, closed);
        // 8 x 10 / 24 = 3.3 and 14 x 5 / 18 = 3.9.
        assert_eq!(cost_benefit(&[(8, 0), (2, 5)]), Some(1));
        // 8 x 10 / 24 = 3.3 and 14 x 4 / 18 = 3.1.
        assert_eq!(cost_benefit(&[(8, 0), (2, 6)]), Some(0));
        assert_eq!(cost_benefit(&[(SLOTS, 0), (SLOTS - 1, CLOCK)]), Some(1), "no gain, however old");
    }

    /// With so many draws, every superblock is drawn.
    #[test]
    fn of_those_drawn_the_one_with_the_fewest_valid_units_is_taken() {
        let closed = [(9, 0), (3, 0), (SLOTS - 1, 0), (7, 0)];
        assert_eq!(chosen(VictimPolicy::DChoices(100), &closed), Some(1));
        assert_eq!(chosen(VictimPolicy::Greedy, &closed), Some(1));
        assert_eq!(chosen(VictimPolicy::Fifo, &closed), Some(0));
    }
}
