//! The inode table, and the choice of an inode for a new file or directory.
//!
//! ext4 puts a file's inode into its directory's flex group, and spreads the directories of the root over all flex
//! groups (Orlov's allocator). So the inodes of old and new files lie in separate blocks or share them, which decides
//! how many blocks of the table a transaction changes.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use super::alloc::{Allocator, GROUP_UNITS};
use super::host::Placement;
use super::inode::Inode;
use super::layout::{FIRST_INODE, FLEX_GROUPS, INODES_PER_BLOCK, INODES_PER_GROUP, ROOT_INODE};

/// All inodes of a file system. Table blocks that were never used take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct InodeTable {
    blocks: Vec<Vec<Inode>>,
    groups: Vec<Group>,
    /// Kept as a counter, since every page write asks for it.
    in_use: u64,
}

#[derive(Clone, Debug, Default)]
struct Group {
    never_used: u64,
    freed: BTreeSet<u32>,
    directories: u64,
}

impl Group {
    fn free(&self) -> u64 {
        INODES_PER_GROUP - self.never_used + self.freed.len() as u64
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NewInode {
    pub placement: Placement,
    pub is_directory: bool,
    pub parent: u32,
    pub sibling: Option<u32>,
    pub hash: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flex {
    free_inodes: u64,
    free_units: u64,
    directories: u64,
}

impl InodeTable {
    /// Creates the table of a new file system with this many groups. The inodes that mkfs creates are in use.
    pub fn new(groups: u64) -> Self {
        let mut table = Self {
            blocks: vec![Vec::new(); (groups * INODES_PER_GROUP / INODES_PER_BLOCK) as usize],
            groups: vec![Group::default(); groups as usize],
            in_use: 0,
        };
        for _ in 0..FIRST_INODE {
            let inode = table.take_in(0);
            table[inode as usize].in_use = true;
        }
        // The root and lost+found.
        table.groups[0].directories = 2;
        table
    }

    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Iterates over all inodes that were ever used, and some of their neighbours.
    pub fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.blocks.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Inode> {
        self.blocks.iter_mut().flatten()
    }

    pub fn get(&self, inode: u32) -> Option<&Inode> {
        let (block, index) = place_of(inode as usize);
        self.blocks.get(block)?.get(index)
    }

    /// Takes an inode for a file or a directory; `None` if none is free.
    pub fn take(&mut self, new: NewInode, allocator: &Allocator) -> Option<u32> {
        let group = match new.placement {
            Placement::Stream => self.groups.iter().position(|group| group.free() > 0)?,
            Placement::Groups if new.is_directory => self.group_of_directory(new, allocator)?,
            Placement::Groups => self.group_of_file(new, allocator)?,
        };
        self.groups[group].directories += u64::from(new.is_directory);
        Some(self.take_in(group))
    }

    pub(crate) fn give_back(&mut self, inode: u32, is_directory: bool) {
        self[inode as usize].in_use = false;
        self.in_use -= 1;
        let group = &mut self.groups[group_of(inode)];
        group.directories -= u64::from(is_directory);
        group.freed.insert(inode);
    }

    fn take_in(&mut self, group: usize) -> u32 {
        let first = group as u64 * INODES_PER_GROUP;
        self.in_use += 1;
        let of_group = &mut self.groups[group];
        let inode = of_group.freed.pop_first().unwrap_or_else(|| {
            of_group.never_used += 1;
            (first + of_group.never_used - 1) as u32
        });
        let block = &mut self.blocks[place_of(inode as usize).0];
        if block.is_empty() {
            block.resize_with(INODES_PER_BLOCK as usize, Inode::default);
        }
        inode
    }

    fn first_of(&self, flex: usize) -> Option<usize> {
        let first = flex * FLEX_GROUPS as usize;
        let end = self.groups.len().min(first + FLEX_GROUPS as usize);
        (first..end).find(|&group| self.groups[group].free() > 0)
    }

    fn group_of_file(&self, new: NewInode, allocator: &Allocator) -> Option<usize> {
        let near = [Some(new.parent), new.sibling].into_iter().flatten();
        near.map(flex_of).find_map(|flex| self.first_of(flex)).or_else(|| self.spread(new, allocator, false))
    }

    fn group_of_directory(&self, new: NewInode, allocator: &Allocator) -> Option<usize> {
        self.spread(new, allocator, new.parent == ROOT_INODE)
    }

    /// Chooses a flex group by Orlov's rules, for a directory of the root or for any other inode.
    fn spread(&self, new: NewInode, allocator: &Allocator, is_of_root: bool) -> Option<usize> {
        let groups = self.groups.len() as u64;
        let flexes: Vec<Flex> = (0..groups)
            .step_by(FLEX_GROUPS as usize)
            .map(|first| {
                let mut flex = Flex::default();
                for group in first..groups.min(first + FLEX_GROUPS) {
                    let of_group = &self.groups[group as usize];
                    flex.free_inodes += of_group.free();
                    flex.directories += of_group.directories;
                    flex.free_units += allocator.count(group).units;
                }
                flex
            })
            .collect();
        let count = flexes.len() as u64;
        let sum = |of: fn(&Flex) -> u64| flexes.iter().map(of).sum::<u64>();
        let free_inodes = sum(|flex| flex.free_inodes);
        let (average_inodes, average_units) = (free_inodes / count, sum(|flex| flex.free_units) / count);
        let from = |first: u64| (0..count).map(move |i| ((first + i) % count) as usize);
        let flex = if is_of_root {
            let suits = |flex: &usize| {
                let Flex { free_inodes, free_units, .. } = flexes[*flex];
                free_inodes > 0 && free_inodes >= average_inodes && free_units >= average_units
            };
            from(new.hash % count).filter(suits).min_by_key(|&flex| flexes[flex].directories)
        } else {
            let directories_max = sum(|flex| flex.directories) / count + INODES_PER_GROUP * FLEX_GROUPS / 16;
            let inodes_min = average_inodes.saturating_sub(INODES_PER_GROUP * FLEX_GROUPS / 4).max(1);
            let units_min = average_units.saturating_sub(GROUP_UNITS * FLEX_GROUPS / 4);
            from(flex_of(new.sibling.unwrap_or(new.parent)) as u64).find(|&flex| {
                let Flex { free_inodes, free_units, directories } = flexes[flex];
                directories < directories_max && free_inodes >= inodes_min && free_units >= units_min
            })
        };
        flex.and_then(|flex| self.first_of(flex)).or_else(|| {
            let first = group_of(new.parent);
            let around = || (first..self.groups.len()).chain(0..first);
            let with = |least: u64| around().find(|&group| self.groups[group].free() >= least.max(1));
            with(free_inodes / groups).or_else(|| with(1))
        })
    }
}

fn group_of(inode: u32) -> usize {
    (u64::from(inode) / INODES_PER_GROUP) as usize
}

fn flex_of(inode: u32) -> usize {
    group_of(inode) / FLEX_GROUPS as usize
}

fn place_of(inode: usize) -> (usize, usize) {
    (inode / INODES_PER_BLOCK as usize, inode % INODES_PER_BLOCK as usize)
}

impl Index<usize> for InodeTable {
    type Output = Inode;

    fn index(&self, inode: usize) -> &Inode {
        let (block, index) = place_of(inode);
        &self.blocks[block][index]
    }
}

impl IndexMut<usize> for InodeTable {
    fn index_mut(&mut self, inode: usize) -> &mut Inode {
        let (block, index) = place_of(inode);
        &mut self.blocks[block][index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four flex groups, one of which holds the journal, as mke2fs makes them on 8 GiB.
    fn device() -> (InodeTable, Allocator) {
        let mut allocator = Allocator::new(64 * GROUP_UNITS);
        allocator.release(crate::units::UnitRange::new(crate::units::Lpn(0), 64 * GROUP_UNITS));
        allocator.take_exact(crate::units::UnitRange::new(crate::units::Lpn(33 * GROUP_UNITS), 16_384));
        (InodeTable::new(64), allocator)
    }

    fn new(is_directory: bool, parent: u32, hash: u64) -> NewInode {
        NewInode { placement: Placement::Groups, is_directory, parent, sibling: None, hash }
    }

    /// Observed with Linux 6.18 on an empty file system of 8 GiB, except for the hash: directories of the root in the
    /// flex groups 3, 1, 3 and 1, with their files next to them.
    #[test]
    fn directories_of_the_root_are_spread_and_files_stay_with_them() {
        let (mut table, allocator) = device();
        let mut make = |parent, is_directory| table.take(new(is_directory, parent, 3), &allocator).unwrap();
        let expected = [(393_216, 393_217), (131_072, 131_073), (393_218, 393_219), (131_074, 131_075)];
        for (directory, file) in expected {
            let made = make(ROOT_INODE, true);
            assert_eq!((made, make(made, false)), (directory, file));
        }
        assert_eq!(make(ROOT_INODE, false), 12);
        assert_eq!(make(393_216, true), 393_220);
    }

    #[test]
    fn a_removed_directory_no_longer_counts_in_its_flex_group() {
        let (mut table, allocator) = device();
        let make = |table: &mut InodeTable| table.take(new(true, ROOT_INODE, 3), &allocator).unwrap();
        let first = make(&mut table);
        table.give_back(first, true);
        assert_eq!(make(&mut table), first);
    }

    /// The flex group of the directory is full. That of the file made before has inodes left, though no blocks.
    #[test]
    fn a_file_goes_next_to_its_sibling_if_there_is_no_inode_left_next_to_its_directory() {
        const FLEX_UNITS: u64 = FLEX_GROUPS * GROUP_UNITS;
        let mut allocator = Allocator::new(4 * FLEX_UNITS);
        for flex in [0, 1, 3] {
            allocator.release(crate::units::UnitRange::new(crate::units::Lpn(flex * FLEX_UNITS), FLEX_UNITS));
        }
        let mut table = InodeTable::new(4 * FLEX_GROUPS);
        table.groups[..FLEX_GROUPS as usize].iter_mut().for_each(|group| group.never_used = INODES_PER_GROUP);
        let of_flex_2 = (2 * FLEX_GROUPS * INODES_PER_GROUP) as u32;
        let file = NewInode { sibling: Some(of_flex_2 + 7), ..new(false, ROOT_INODE, 0) };
        assert_eq!(table.take(file, &allocator), Some(of_flex_2));
    }

    #[test]
    fn the_lowest_free_inode_comes_next_and_all_can_be_taken() {
        let allocator = Allocator::default();
        let mut table = InodeTable::new(1);
        let mut seen = BTreeSet::new();
        let file = NewInode { placement: Placement::Stream, ..new(false, ROOT_INODE, 0) };
        while let Some(inode) = table.take(file, &allocator) {
            assert!(seen.insert(inode) && inode >= FIRST_INODE);
        }
        assert_eq!((seen.len() as u64, table.in_use()), (INODES_PER_GROUP - 12, INODES_PER_GROUP));
        table.give_back(500, false);
        table.give_back(77, false);
        assert_eq!(table.take(file, &allocator), Some(77));
        assert_eq!(table.in_use(), INODES_PER_GROUP - 1);
    }
}
