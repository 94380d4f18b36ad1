//! Which superblock is collected next.
//!
//! All closed superblocks are kept in lists threaded through two arrays of 32-bit links, one list for each
//! number of valid units. An overwrite moves a superblock from one list to the next lower in a few
//! memory accesses, and the greedy choice is the head of the lowest list that is not empty. First-in
//! first-out is the same structure with a single list. The other policies look at the closed superblocks
//! themselves.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::config::VictimPolicy;
use super::super::translation::Translation;
use super::superblock::{Block, NONE};

/// Panics if more victims were collected, one after the other, than any choice needs until a superblock is free: then
/// the mapping has lost count of what is valid, and would go on for ever.
pub(in crate::ssd) fn must_have_gained(victims: u32, mapping: &dyn Translation) {
    // Chosen by their gain, each gives back a slot at least; taken in turn or drawn, some give nothing.
    const TURNS: u32 = 64;
    let geometry = &mapping.flash().geometry;
    let victims_max = geometry.superblocks.saturating_add(geometry.superblock_units).saturating_mul(TURNS);
    assert!(victims <= victims_max, "{victims} victims and no superblock free: {:?}", mapping.audit());
}

#[derive(Clone, Debug)]
pub(in crate::ssd) struct Victims {
    policy: VictimPolicy,
    /// Units in a superblock: the highest list.
    top: u32,
    head: Vec<u32>,
    tail: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
    /// No list below this one has a member.
    lowest: u32,
    /// The closed superblocks in no particular but a reproducible order, and where each one is.
    closed: Vec<u32>,
    position: Vec<u32>,
}

impl Victims {
    pub fn new(policy: VictimPolicy, superblocks: u32, superblock_units: u32) -> Self {
        let lists = if policy == VictimPolicy::Fifo { 1 } else { superblock_units as usize + 1 };
        Self {
            policy,
            top: superblock_units,
            head: vec![NONE; lists],
            tail: vec![NONE; lists],
            next: vec![NONE; superblocks as usize],
            prev: vec![NONE; superblocks as usize],
            lowest: lists as u32,
            closed: Vec::with_capacity(superblocks as usize),
            position: vec![NONE; superblocks as usize],
        }
    }

    pub fn closed(&self) -> &[u32] {
        &self.closed
    }

    #[inline]
    fn list(&self, valid: u32) -> u32 {
        if self.policy == VictimPolicy::Fifo { 0 } else { valid }
    }

    pub fn insert(&mut self, superblock: u32, valid: u32) {
        self.position[superblock as usize] = self.closed.len() as u32;
        self.closed.push(superblock);
        self.link(superblock, self.list(valid));
    }

    pub fn remove(&mut self, superblock: u32, valid: u32) {
        let at = self.position[superblock as usize] as usize;
        self.closed.swap_remove(at);
        if let Some(&moved) = self.closed.get(at) {
            self.position[moved as usize] = at as u32;
        }
        self.position[superblock as usize] = NONE;
        self.unlink(superblock, self.list(valid));
    }

    /// A closed superblock has lost valid units.
    #[inline]
    pub fn lost(&mut self, superblock: u32, before: u32, after: u32) {
        if self.policy == VictimPolicy::Fifo {
            return;
        }
        self.unlink(superblock, before);
        self.link(superblock, after);
    }

    /// Forgets the lists and makes them again: cheaper than moving one by one when most have changed.
    pub(crate) fn relink(&mut self, blocks: &[Block]) {
        if self.policy == VictimPolicy::Fifo {
            return;
        }
        self.head.fill(NONE);
        self.tail.fill(NONE);
        self.lowest = self.head.len() as u32;
        for i in 0..self.closed.len() {
            let superblock = self.closed[i];
            self.link(superblock, blocks[superblock as usize].valid);
        }
    }

    /// Nothing is closed any more.
    pub fn clear(&mut self) {
        self.head.fill(NONE);
        self.tail.fill(NONE);
        self.lowest = self.head.len() as u32;
        self.closed.clear();
        self.position.fill(NONE);
    }

    #[inline]
    fn link(&mut self, superblock: u32, list: u32) {
        let last = self.tail[list as usize];
        self.prev[superblock as usize] = last;
        self.next[superblock as usize] = NONE;
        if last == NONE {
            self.head[list as usize] = superblock;
        } else {
            self.next[last as usize] = superblock;
        }
        self.tail[list as usize] = superblock;
        self.lowest = self.lowest.min(list);
    }

    #[inline]
    fn unlink(&mut self, superblock: u32, list: u32) {
        let (prev, next) = (self.prev[superblock as usize], self.next[superblock as usize]);
        if prev == NONE {
            self.head[list as usize] = next;
        } else {
            self.next[prev as usize] = next;
        }
        if next == NONE {
            self.tail[list as usize] = prev;
        } else {
            self.prev[next as usize] = prev;
        }
    }

    /// The next victim; `None` if nothing is closed. `clock` is the age counter of [`Block::closed_at`].
    pub fn choose(&mut self, blocks: &[Block], clock: u64, rng: &mut Xoshiro256PlusPlus) -> Option<u32> {
        if self.closed.is_empty() {
            return None;
        }
        match self.policy {
            VictimPolicy::Greedy | VictimPolicy::Fifo => self.first(),
            VictimPolicy::CostBenefit => self.best_ratio(blocks, clock).or_else(|| self.first()),
            VictimPolicy::DChoices(d) => self.best_of(d, blocks, rng).or_else(|| self.first()),
        }
    }

    /// The one with the fewest valid units; with first-in first-out, the oldest.
    pub fn first(&mut self) -> Option<u32> {
        while (self.lowest as usize) < self.head.len() {
            let superblock = self.head[self.lowest as usize];
            if superblock != NONE {
                return Some(superblock);
            }
            self.lowest += 1;
        }
        None
    }

    /// (1 - u) * age / (1 + u), with u the share of valid units, compared by cross-multiplication. `None` if
    /// there is nothing to gain anywhere.
    fn best_ratio(&self, blocks: &[Block], clock: u64) -> Option<u32> {
        let mut best: Option<(u128, u128, u32)> = None;
        for &superblock in &self.closed {
            let block = &blocks[superblock as usize];
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

    /// `None` if none of those drawn has anything to gain.
    fn best_of(&self, d: u32, blocks: &[Block], rng: &mut Xoshiro256PlusPlus) -> Option<u32> {
        let mut best: Option<u32> = None;
        for _ in 0..d {
            // Multiply and shift; the bias is below 2^-32.
            let drawn = (((rng.next_u64() >> 32) * self.closed.len() as u64) >> 32) as usize;
            let superblock = self.closed[drawn];
            if best.is_none_or(|b| blocks[superblock as usize].valid < blocks[b as usize].valid) {
                best = Some(superblock);
            }
        }
        best.filter(|&b| blocks[b as usize].valid < self.top)
    }

    /// Whether each candidate is in the list of its count, once.
    pub fn audit(&self, blocks: &[Block]) -> Result<(), String> {
        let mut listed = 0;
        for (list, &head) in self.head.iter().enumerate() {
            let mut superblock = head;
            while superblock != NONE {
                listed += 1;
                if listed > self.closed.len() {
                    return Err("the victim lists hold more than the candidates".into());
                }
                if (list as u32) < self.lowest {
                    return Err(format!("list {list} is not empty, and below the lowest"));
                }
                let valid = blocks[superblock as usize].valid;
                if self.list(valid) != list as u32 {
                    return Err(format!(
                        "superblock {superblock} has {valid} valid units and is in list {list}"
                    ));
                }
                superblock = self.next[superblock as usize];
            }
        }
        if listed != self.closed.len() {
            return Err(format!("{listed} superblocks in the victim lists, {} closed", self.closed.len()));
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> u64 {
        let entries = self.head.capacity()
            + self.tail.capacity()
            + self.next.capacity()
            + self.prev.capacity()
            + self.closed.capacity()
            + self.position.capacity();
        entries as u64 * 4
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    const SLOTS: u32 = 16;
    const CLOCK: u64 = 9;

    /// The choice among closed superblocks of these valid units, each closed at a time.
    fn chosen(policy: VictimPolicy, closed: &[(u32, u64)]) -> Option<u32> {
        let block = |&(valid, closed_at): &(u32, u64)| Block { valid, closed_at, ..Block::NEW };
        let blocks: Vec<Block> = closed.iter().map(block).collect();
        let mut victims = Victims::new(policy, blocks.len() as u32, SLOTS);
        (0..).zip(&blocks).for_each(|(superblock, block)| victims.insert(superblock, block.valid));
        victims.choose(&blocks, CLOCK, &mut Xoshiro256PlusPlus::seed_from_u64(1))
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

    /// So many draws meet every superblock.
    #[test]
    fn of_those_drawn_the_one_with_the_fewest_valid_units_is_taken() {
        let closed = [(9, 0), (3, 0), (SLOTS - 1, 0), (7, 0)];
        assert_eq!(chosen(VictimPolicy::DChoices(100), &closed), Some(1));
        assert_eq!(chosen(VictimPolicy::Greedy, &closed), Some(1));
        assert_eq!(chosen(VictimPolicy::Fifo, &closed), Some(0));
    }
}
