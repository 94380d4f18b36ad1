//! What one side allocated and freed, commit by commit, and the first difference between two.

use serde::{Serialize, Serializer};
use trimwise::fs::alloc::GROUP_UNITS;
use trimwise::units::{Lpn, UnitRange};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub at_ns: u64,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Allocated {
        inode: u32,
        page: u64,
        #[serde(serialize_with = "block")]
        goal: Lpn,
        wanted: u64,
        #[serde(serialize_with = "extent")]
        blocks: UnitRange,
        how: String,
    },
    Freed {
        #[serde(serialize_with = "extent")]
        blocks: UnitRange,
    },
    /// A preallocation that was not used.
    GivenBack {
        #[serde(serialize_with = "extent")]
        blocks: UnitRange,
    },
    Closed {
        tid: u64,
    },
    Trimmed {
        #[serde(serialize_with = "extent")]
        blocks: UnitRange,
    },
}

fn block<S: Serializer>(block: &Lpn, serializer: S) -> Result<S::Ok, S::Error> {
    block.0.serialize(serializer)
}

/// As `[first block, number of blocks]`.
fn extent<S: Serializer>(range: &UnitRange, serializer: S) -> Result<S::Ok, S::Error> {
    [range.start.0, range.units].serialize(serializer)
}

fn extents<S: Serializer>(ranges: &[UnitRange], serializer: S) -> Result<S::Ok, S::Error> {
    ranges.iter().map(|range| [range.start.0, range.units]).collect::<Vec<_>>().serialize(serializer)
}

#[derive(Debug, Serialize)]
pub struct Course {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub seen: Vec<Seen>,
}

#[derive(Debug, Serialize)]
pub struct Difference {
    pub commit: usize,
    #[serde(serialize_with = "extents")]
    pub only_kernel: Vec<UnitRange>,
    #[serde(serialize_with = "extents")]
    pub only_model: Vec<UnitRange>,
}

impl Course {
    pub fn of(seen: Vec<Seen>, begin_ns: u64, end_ns: u64) -> Self {
        Self { begin_ns, end_ns, seen }
    }

    /// Returns what each commit frees: runs of blocks in order, joined where they touch inside a group.
    pub fn commits(&self) -> Vec<(u64, Vec<UnitRange>)> {
        let (mut commits, mut freed) = (Vec::new(), Vec::new());
        for seen in &self.seen {
            match seen.kind {
                Kind::Freed { blocks } => freed.push(blocks),
                Kind::Closed { .. } => commits.push((seen.at_ns, joined(std::mem::take(&mut freed)))),
                _ => {}
            }
        }
        commits
    }
}

fn joined(mut extents: Vec<UnitRange>) -> Vec<UnitRange> {
    extents.sort_unstable_by_key(|range| range.start);
    extents.dedup_by(|next, kept| {
        let touch = kept.end() == next.start && next.start.0 % GROUP_UNITS != 0;
        kept.units += if touch { next.units } else { 0 };
        touch
    });
    extents
}

impl Difference {
    pub fn between(kernel: &Course, model: &Course) -> Option<Self> {
        let (kernel, model) = (kernel.commits(), model.commits());
        let none = Vec::new();
        (0..kernel.len().max(model.len())).find_map(|commit| {
            let of = |side: &[(u64, Vec<UnitRange>)]| side.get(commit).map_or(none.clone(), |(_, freed)| freed.clone());
            let (kernel, model) = (of(&kernel), of(&model));
            let without = |these: &[UnitRange], those: &[UnitRange]| {
                these.iter().copied().filter(|range| !those.contains(range)).collect::<Vec<_>>()
            };
            (kernel != model).then(|| Self {
                commit,
                only_kernel: without(&kernel, &model),
                only_model: without(&model, &kernel),
            })
        })
    }
}
