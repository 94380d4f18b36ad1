//! Random file operations; every byte can be attributed to the operation that wrote it.
//!
//! This is the workload of power cuts on real kernels. Several tasks create, write, truncate, punch, rename, sync and
//! remove files, each task its own, in directories that they share. The runner logs the operations ([`Logged`]); after
//! a cut, the log gives the possible contents of each file, and the bytes name the operations that wrote them
//! ([`bytes`]).

pub mod bytes;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::units::UNIT_BYTES;
use bytes::Run;

/// Operations of a task have numbers below this; see [`operation_id`].
const OPERATIONS_PER_TASK: u32 = 1 << 24;

/// Returns the number by which bytes name the operation that wrote them; never 0. `index` counts a task's operations.
pub fn operation_id(task: u32, index: u32) -> u32 {
    task * OPERATIONS_PER_TASK + index + 1
}

/// One operation. Paths are relative to the root of the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Create {
        path: String,
        /// Empty an existing file (O_TRUNC).
        truncates: bool,
    },
    Write {
        path: String,
        /// Offset in bytes; `None` for the end of the file. The log has the resulting offset.
        offset_bytes: Option<u64>,
        length_bytes: u64,
        /// Write past the page cache (O_DIRECT). Place and length are then whole pages.
        direct: bool,
    },
    Read {
        path: String,
    },
    Truncate {
        path: String,
        length_bytes: u64,
    },
    /// Makes a part of a file a hole, without changing its length.
    Punch {
        path: String,
        offset_bytes: u64,
        length_bytes: u64,
    },
    /// Calls fsync(2) or fdatasync(2).
    Fsync {
        path: String,
        data_only: bool,
    },
    /// Calls syncfs(2).
    Sync,
    /// Renames a file; one with the new name is replaced.
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Trim,
    Remount {
        options: String,
    },
    Sleep {
        ms: u64,
    },
}

impl Operation {
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Self::Create { path, .. }
            | Self::Write { path, .. }
            | Self::Read { path }
            | Self::Truncate { path, .. }
            | Self::Punch { path, .. }
            | Self::Fsync { path, .. }
            | Self::Unlink { path }
            | Self::Mkdir { path }
            | Self::Rmdir { path } => (Some(path), None),
            Self::Rename { from, to } => (Some(from), Some(to)),
            Self::Sync | Self::Trim | Self::Remount { .. } | Self::Sleep { .. } => (None, None),
        };
        [first, second].into_iter().flatten().map(String::as_str)
    }
}

/// An operation that was carried out. The two marks are points of the log of the drive: entries before the first
/// happened before the operation, entries after the second after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Logged {
    /// Number of the operation: [`operation_id`].
    pub id: u32,
    pub operation: Operation,
    pub begin: usize,
    pub end: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<Run>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub seed: u64,
    pub tasks: u32,
    pub operations: u32,
    pub files: u64,
    /// Number of directories besides the root.
    pub directories: u64,
    pub write_bytes_max: u64,
    pub file_bytes_max: u64,
    /// Percentage of the free space that a file occupies which is never touched.
    pub ballast_percent: u64,
    /// Mount options for remounts during the workload; if empty, they stay.
    pub remounts: Vec<String>,
}

impl Plan {
    /// Draws the parameters of a workload. All are small, so that blocks are soon freed and reused.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let rng = &mut rng;
        Self {
            seed,
            tasks: 1 + below(rng, 4) as u32,
            operations: 0,
            files: [3, 6, 12][below(rng, 3) as usize],
            directories: 1 + below(rng, 4),
            write_bytes_max: [20_000, 80_000, 200_000][below(rng, 3) as usize],
            file_bytes_max: [100_000, 400_000][below(rng, 2) as usize],
            ballast_percent: [0, 60, 85, 92][below(rng, 4) as usize],
            remounts: Vec::new(),
        }
    }

    pub fn task(&self, task: u32) -> Draw<'_> {
        let seed = self.seed ^ u64::from(task + 1) << 32;
        Draw { plan: self, task, rng: Xoshiro256PlusPlus::seed_from_u64(seed), queued: Vec::new() }
    }

    /// Returns the directories that exist from the beginning.
    pub fn first_directories(&self) -> impl Iterator<Item = String> {
        (1..=self.directories).map(|directory| format!("d{directory}"))
    }
}

#[derive(Debug)]
pub struct Draw<'a> {
    plan: &'a Plan,
    task: u32,
    rng: Xoshiro256PlusPlus,
    /// The next operations, the last one first.
    queued: Vec<Operation>,
}

impl Iterator for Draw<'_> {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        if self.queued.is_empty() {
            self.queued = self.some();
            self.queued.reverse();
        }
        self.queued.pop()
    }
}

impl Draw<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.rng, limit)
    }

    fn path(&mut self) -> String {
        let file = self.below(self.plan.files);
        let name = format!("t{}f{file}", self.task);
        match self.below(self.plan.directories + 2) {
            0 => name,
            // This directory comes and goes.
            1 => format!("d1/s{}/{name}", self.below(3)),
            directory => format!("d{}/{name}", directory - 1),
        }
    }

    fn write(&mut self, path: &str) -> Operation {
        // Small writes often end in the page in which the file ended.
        let max = [self.plan.write_bytes_max, 30_000, 1_000, 40][self.below(4) as usize];
        let length_bytes = 1 + self.below(max.min(self.plan.write_bytes_max));
        let room = self.plan.file_bytes_max.saturating_sub(length_bytes);
        let offset_bytes = match self.below(4) {
            0 => None,
            1 => Some(self.below(room + 1) / UNIT_BYTES * UNIT_BYTES),
            _ => Some(self.below(room.min(60_000) + 1)),
        };
        let path = path.to_owned();
        if self.below(6) > 0 {
            return Operation::Write { path, offset_bytes, length_bytes, direct: false };
        }
        let pages = |bytes: u64| bytes / UNIT_BYTES * UNIT_BYTES;
        let offset_bytes = Some(pages(offset_bytes.unwrap_or(0)));
        let length_bytes = length_bytes.next_multiple_of(UNIT_BYTES);
        Operation::Write { path, offset_bytes, length_bytes, direct: true }
    }

    fn create(&mut self, path: &str, truncates: bool) -> Operation {
        Operation::Create { path: path.to_owned(), truncates }
    }

    fn fsync(&mut self, path: &str) -> Operation {
        Operation::Fsync { path: path.to_owned(), data_only: self.below(3) == 0 }
    }

    fn some(&mut self) -> Vec<Operation> {
        let path = self.path();
        match self.below(100) {
            0..8 => vec![self.create(&path, true), self.write(&path)],
            8..30 => vec![self.create(&path, false), self.write(&path)],
            30..46 => vec![self.create(&path, false), self.write(&path), self.fsync(&path)],
            // Editors replace a file by a new version like this.
            46..54 => {
                let new = self.path();
                let written = [self.create(&new, true), self.write(&new), self.fsync(&new)];
                written.into_iter().chain([Operation::Rename { from: new, to: path }]).collect()
            }
            54..58 => vec![Operation::Rename { from: path, to: self.path() }],
            58..62 => {
                let to = self.path();
                vec![Operation::Rename { from: path, to: to.clone() }, self.fsync(&to)]
            }
            62..72 => vec![Operation::Unlink { path }],
            72..78 => {
                let length_bytes = self.below(self.plan.file_bytes_max.min(120_000));
                vec![Operation::Truncate { path, length_bytes }]
            }
            78..83 => {
                let (offset_bytes, length_bytes) = (self.below(80_000), 1 + self.below(60_000));
                vec![Operation::Punch { path, offset_bytes, length_bytes }]
            }
            83..85 => vec![self.fsync(&path)],
            85..87 => vec![Operation::Sync],
            87..90 => vec![Operation::Read { path }],
            90..92 => vec![Operation::Mkdir { path: format!("d1/s{}", self.below(3)) }],
            92 => vec![Operation::Rmdir { path: format!("d1/s{}", self.below(3)) }],
            93 if !self.plan.remounts.is_empty() => {
                let chosen = self.below(self.plan.remounts.len() as u64) as usize;
                vec![Operation::Remount { options: self.plan.remounts[chosen].clone() }]
            }
            93..95 => vec![Operation::Trim],
            // The longest sleeps exceed any commit interval, and the age at which pages are written back.
            _ => {
                let ms = [2, 20, 200, 3_000, 12_000, 40_000][self.below(6) as usize];
                vec![Operation::Sleep { ms: 1 + self.below(ms) }]
            }
        }
    }
}

fn below(rng: &mut impl Rng, limit: u64) -> u64 {
    if limit == 0 { 0 } else { rng.next_u64() % limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_operations_and_each_task_its_own_files() {
        let plan = Plan { operations: 400, ..Plan::draw(3) };
        let of = |task| plan.task(task).take(400).collect::<Vec<_>>();
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
        for (task, operation) in (0..3).flat_map(|task| of(task).into_iter().map(move |o| (task, o))) {
            let (Operation::Write { path, .. } | Operation::Rename { to: path, .. }) = operation else {
                continue;
            };
            assert!(path.rsplit('/').next().unwrap().starts_with(&format!("t{task}f")), "{path}");
        }
    }

    #[test]
    fn direct_writes_are_whole_pages() {
        let plan = Plan::draw(4);
        let mut direct = 0;
        for operation in plan.task(0).take(2_000) {
            if let Operation::Write { offset_bytes, length_bytes, direct: true, .. } = operation {
                assert!(offset_bytes.unwrap().is_multiple_of(UNIT_BYTES));
                assert!(length_bytes.is_multiple_of(UNIT_BYTES));
                direct += 1;
            }
        }
        assert!(direct > 50, "{direct}");
    }
}
