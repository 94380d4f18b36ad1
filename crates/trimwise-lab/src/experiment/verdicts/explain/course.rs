//! What one side allocated and freed, commit by commit, and the first difference between two sides.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use trimwise::fs::discard::merged;
use trimwise::units::{Lpn, UnitRange};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub at_ns: u64,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocated(Allocation),
    Freed(UnitRange),
    Closed,
}

/// Blocks for pages of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allocation {
    pub at_ns: u64,
    pub inode: u32,
    pub page: u64,
    #[serde(rename = "goal_block", serialize_with = "block")]
    pub goal: Lpn,
    #[serde(rename = "wanted_blocks")]
    pub wanted: u64,
    /// First block, and number of blocks.
    #[serde(serialize_with = "extent")]
    pub blocks: UnitRange,
    /// How the kernel found them: `kept` for blocks of a preallocation, otherwise what it searched for. Empty in the
    /// model.
    pub how: String,
}

impl Allocation {
    /// Returns true if these are the same blocks for the same pages. The sides may number inodes differently.
    fn is_like(&self, other: &Self) -> bool {
        (self.page, self.wanted, self.blocks) == (other.page, other.wanted, other.blocks)
    }
}

/// A transaction that has freed blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Commit {
    pub at_ns: u64,
    /// Extents before those that touch became one.
    pub freed: u64,
    /// Extents after that, by address.
    #[serde(serialize_with = "extents")]
    pub extents: Vec<UnitRange>,
    pub allocations: u64,
}

impl Commit {
    pub fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| extent.units).sum()
    }
}

/// The commits of one side, since the mount, that free blocks.
#[derive(Debug, Default, Serialize)]
pub struct Course {
    pub commits: Vec<Commit>,
    /// In order, each with the number of these commits before it.
    allocations: Vec<(usize, Allocation)>,
}

/// The first commit that frees other extents.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Number of the commit among those that free blocks, from 1.
    pub commit: u64,
    pub only_kernel: Vec<Freed>,
    pub only_model: Vec<Freed>,
}

/// A freed extent, and the latest allocation of its first block; `None` for blocks of directories and extent trees.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Freed {
    #[serde(serialize_with = "extent")]
    pub blocks: UnitRange,
    pub allocation: Option<Allocation>,
}

fn block<S: Serializer>(block: &Lpn, serializer: S) -> Result<S::Ok, S::Error> {
    block.0.serialize(serializer)
}

fn extent<S: Serializer>(range: &UnitRange, serializer: S) -> Result<S::Ok, S::Error> {
    [range.start.0, range.units].serialize(serializer)
}

fn extents<S: Serializer>(ranges: &[UnitRange], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranges.iter().map(|range| [range.start.0, range.units]))
}

impl Course {
    pub(super) fn of(seen: &[Seen]) -> Self {
        let mut course = Self::default();
        let (mut freed, mut allocations) = (Vec::new(), 0);
        for Seen { at_ns, kind } in seen {
            match kind {
                Kind::Allocated(allocation) => {
                    allocations += 1;
                    course.allocations.push((course.commits.len(), allocation.clone()));
                }
                Kind::Freed(blocks) => freed.push(*blocks),
                Kind::Closed if freed.is_empty() => {}
                Kind::Closed => {
                    let count = freed.len() as u64;
                    let mut extents = merged(freed.drain(..));
                    extents.sort_unstable_by_key(|extent| extent.start);
                    let allocations = std::mem::take(&mut allocations);
                    course.commits.push(Commit { at_ns: *at_ns, freed: count, extents, allocations });
                }
            }
        }
        course
    }

    /// Returns the extents with what allocated them, as of a commit.
    fn explained(&self, commit: usize, extents: impl Iterator<Item = UnitRange>) -> Vec<Freed> {
        let mut latest: BTreeMap<u64, &Allocation> = BTreeMap::new();
        for (_, allocation) in self.allocations.iter().take_while(|(at, _)| *at <= commit) {
            latest.insert(allocation.blocks.start.0, allocation);
        }
        extents
            .map(|blocks| {
                let found = latest.range(..=blocks.start.0).next_back().map(|(_, allocation)| *allocation);
                let allocation = found.filter(|allocation| allocation.blocks.end() > blocks.start).cloned();
                Freed { blocks, allocation }
            })
            .collect()
    }
}

impl Difference {
    pub fn between(kernel: &Course, model: &Course) -> Option<Self> {
        let none = Commit::default();
        let of = |side: &Course, commit| side.commits.get(commit).unwrap_or(&none).extents.clone();
        (0..kernel.commits.len().max(model.commits.len())).find_map(|commit| {
            let (freed, modelled) = (of(kernel, commit), of(model, commit));
            let only = |side: &Course, these: &[UnitRange], those: &[UnitRange]| {
                let others = these.iter().copied().filter(|extent| those.binary_search(extent).is_err());
                side.explained(commit, others)
            };
            (freed != modelled).then(|| Self {
                commit: commit as u64 + 1,
                only_kernel: only(kernel, &freed, &modelled),
                only_model: only(model, &modelled, &freed),
            })
        })
    }
}

/// Returns the first allocations for files that differ, with the number of those before them; `None` if all are alike.
pub(super) fn first_other_allocation(
    kernel: &Course,
    model: &Course,
) -> Option<(u64, Option<Allocation>, Option<Allocation>)> {
    let (kernel, model) = (&kernel.allocations, &model.allocations);
    let alike = kernel.iter().zip(model).take_while(|((_, a), (_, b))| a.is_like(b)).count();
    let of = |side: &[(usize, Allocation)]| side.get(alike).map(|(_, allocation)| allocation.clone());
    let (kernel, model) = (of(kernel), of(model));
    (kernel.is_some() || model.is_some()).then_some((alike as u64, kernel, model))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, units: u64) -> UnitRange {
        UnitRange::new(Lpn(start), units)
    }

    fn allocated(inode: u32, start: u64, units: u64) -> Kind {
        let (goal, how) = (Lpn(start), String::new());
        let blocks = range(start, units);
        Kind::Allocated(Allocation { at_ns: 7, inode, page: 0, goal, wanted: units, blocks, how })
    }

    fn course(kinds: &[Kind]) -> Course {
        let seen: Vec<Seen> = kinds.iter().map(|kind| Seen { at_ns: 7, kind: kind.clone() }).collect();
        Course::of(&seen)
    }

    /// The order in which a transaction frees does not count, nor that two extents touch.
    #[test]
    fn the_first_commit_that_frees_other_extents_is_found_with_what_allocated_them() {
        let kernel = course(&[
            allocated(12, 100, 8),
            allocated(13, 200, 8),
            Kind::Freed(range(104, 4)),
            Kind::Freed(range(100, 4)),
            Kind::Closed,
            Kind::Freed(range(200, 8)),
            Kind::Closed,
        ]);
        let model = course(&[
            allocated(12, 100, 8),
            allocated(13, 300, 8),
            Kind::Freed(range(100, 8)),
            Kind::Closed,
            Kind::Freed(range(300, 8)),
            Kind::Closed,
        ]);
        assert_eq!(
            kernel.commits[0],
            Commit { at_ns: 7, freed: 2, extents: vec![range(100, 8)], allocations: 2 }
        );
        let Difference { commit, only_kernel, only_model } = Difference::between(&kernel, &model).unwrap();
        let of = |freed: &[Freed]| -> Vec<_> {
            freed
                .iter()
                .map(|freed| (freed.blocks, freed.allocation.as_ref().map(|from| from.inode)))
                .collect()
        };
        assert_eq!((commit, of(&only_kernel)), (2, vec![(range(200, 8), Some(13))]));
        assert_eq!(of(&only_model), [(range(300, 8), Some(13))]);
        let (alike, of_kernel, of_model) = first_other_allocation(&kernel, &model).unwrap();
        assert_eq!(
            (alike, of_kernel.unwrap().blocks, of_model.unwrap().blocks),
            (1, range(200, 8), range(300, 8))
        );
    }

    #[test]
    fn a_commit_that_only_one_side_has_differs_if_it_frees_anything() {
        let once = [allocated(12, 100, 8), Kind::Freed(range(100, 8)), Kind::Closed];
        let more = |kind: Kind| course(&[&once[..], &[kind, Kind::Closed]].concat());
        assert!(Difference::between(&course(&once), &more(allocated(13, 9, 1))).is_none());
        let differs = Difference::between(&course(&once), &more(Kind::Freed(range(5, 1)))).unwrap();
        assert_eq!(
            (differs.commit, &*differs.only_model),
            (2, &[Freed { blocks: range(5, 1), allocation: None }][..])
        );
    }
}
