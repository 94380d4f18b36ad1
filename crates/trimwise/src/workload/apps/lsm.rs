//! A log-structured merge tree, as in RocksDB: a write-ahead log, memtables, levelled compaction, whole tables removed.
//!
//! A client puts and gets records, half of each (YCSB workload A; keys are uniform here and Zipfian there). A put
//! appends to the log, which is made durable once for several puts (group commit). A full memtable becomes a table of
//! level 0, and its log is removed. Compaction merges level 0 into level 1 when it has enough tables, and a table of
//! any other level that is too large into the overlapping ones below it; then the inputs are removed. Each change of the
//! set of tables is a durable record in the manifest. The client waits while too many memtables or tables of level 0
//! are waiting. Tables have ranges of keys, but no keys: of a record merged into a range that holds a share of all keys
//! already, that share replaces an older version.
//!
//! Not modelled: compression, bloom filters, block cache, sub-compactions, `level_compaction_dynamic_level_bytes`.

use std::sync::Mutex;

use super::parameters::{Parameter, parameters};
use super::{Place, Workload};
use crate::files::{FileError, Files, OpenMode};
use crate::units::Bytes;
use crate::workload::lock;

const ROCKS: &str =
    "RocksDB's default is 64 MiB (options.h); an eighth here, to reach the lower levels sooner";

pub const ABOUT: &str = "A log-structured merge tree as in RocksDB: write-ahead log, memtables, levelled compaction; \
                         tables are removed whole.";

parameters! {
    pub struct Parameters {
        operations: count(600_000, 1, 1_000_000_000, "gets and puts", "assumed").scaled(),
        reads: percent(50, "share of gets", "YCSB workload A"),
        value: size(
            Bytes::kib(1),
            Bytes(1),
            Bytes::mib(1),
            "bytes of a record",
            "YCSB: 10 fields of 100 bytes",
        ),
        keys: count(200_000, 1_000, 1_000_000_000, "distinct keys", "assumed").scaled(),
        group: count(
            32,
            1,
            1_000_000,
            "puts that one fdatasync of the log makes durable",
            "assumed; RocksDB itself syncs the log only if asked to",
        ),
        memtable: size(Bytes::mib(8), Bytes::kib(64), Bytes::gib(4), "size of a memtable", ROCKS).shrinks(),
        table: size(Bytes::mib(8), Bytes::kib(64), Bytes::gib(4), "size of a table", ROCKS).shrinks(),
        trigger: count(
            4,
            1,
            1_000,
            "tables of level 0 that start a compaction",
            "RocksDB: level0_file_num_compaction_trigger",
        ),
        base: size(
            Bytes::mib(32),
            Bytes::kib(64),
            Bytes::gib(64),
            "size of level 1; each further level is ten times as large",
            "RocksDB's default is 256 MiB and a multiplier of 10; an eighth here",
        ).shrinks(),
        threads: count(
            2,
            1,
            2,
            "2: flushes and compactions in the background; 1: by the client itself",
            "RocksDB: max_background_jobs is 2; here one job at a time",
        ),
    }
}

/// Size of a level over that of the level above (RocksDB: `max_bytes_for_level_multiplier`).
const MULTIPLIER: u64 = 10;
/// Number of memtables at a time, one of them being written (RocksDB: `max_write_buffer_number`).
const MEMTABLES_MAX: u64 = 2;
/// Number of tables of level 0 at which puts stop (RocksDB: `level0_stop_writes_trigger`).
const STOP: usize = 36;
/// Key, sequence number and lengths of a record in log and tables.
const OVERHEAD: u64 = 32;
/// Bytes that a get reads: a block and its trailer are about this (RocksDB: `block_size`).
const BLOCK: u64 = 4096;
/// Bytes that compaction reads at a time, and that tables are written in (`compaction_readahead_size`: 2 MiB).
const PIECE: u64 = 1 << 20;
const EDIT: u64 = 256;
const KEYS: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
struct Table {
    number: u64,
    bytes: u64,
    keys: (u64, u64),
}

impl Table {
    fn overlaps(&self, keys: (u64, u64)) -> bool {
        self.keys.0 < keys.1 && keys.0 < self.keys.1
    }
}

#[derive(Debug, Default)]
struct Tree {
    /// Tables by level; those of level 0 overlap, the others are in order.
    levels: Vec<Vec<Table>>,
    last_number: u64,
    /// Logs of full memtables that wait to be flushed, oldest first.
    full: Vec<u64>,
    /// Key at which the last compaction of each level ended.
    cursors: Vec<u64>,
    has_ended: bool,
}

impl Tree {
    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn level(&mut self, level: usize) -> &mut Vec<Table> {
        while self.levels.len() <= level {
            self.levels.push(Vec::new());
            self.cursors.push(0);
        }
        &mut self.levels[level]
    }
}

/// Inputs of a compaction, and the level of its output.
struct Merge {
    inputs: Vec<Table>,
    level: usize,
    upper_bytes: u64,
    lower_bytes: u64,
    keys: (u64, u64),
}

impl Workload for Parameters {
    fn operations(&self) -> u64 {
        self.operations
    }

    fn tasks(&self) -> u32 {
        self.threads as u32
    }

    /// Returns the space for all keys in the last level, a tenth of that above, and everything once more while it
    /// is merged.
    fn needed(&self) -> Bytes {
        let data = self.keys * (self.value.0 + OVERHEAD);
        let buffers = self.memtable.0 * (MEMTABLES_MAX + STOP as u64 / 4);
        Bytes(data / 10 * 13 + 2 * self.base.0 + buffers)
    }
}

pub async fn run<F: Files>(at: &Place<'_, F, Parameters>) -> Result<(), FileError> {
    // One shared state for each copy.
    let trees: &Mutex<Vec<Tree>> = at.stage.shared();
    {
        let trees = &mut *lock(trees);
        while trees.len() <= at.copy as usize {
            trees.push(Tree::default());
        }
    }
    let lsm = Lsm { at, p: at.parameters, trees };
    if at.task == 1 { lsm.background().await } else { lsm.client().await }
}

struct Lsm<'a, F: Files> {
    at: &'a Place<'a, F, Parameters>,
    p: &'a Parameters,
    trees: &'a Mutex<Vec<Tree>>,
}

impl<F: Files> Lsm<'_, F> {
    fn tree<T>(&self, look: impl FnOnce(&mut Tree) -> T) -> T {
        look(&mut lock(self.trees)[self.at.copy as usize])
    }

    fn log(&self, number: u64) -> String {
        self.at.path(&format!("{number:06}.log"))
    }

    fn table(&self, number: u64) -> String {
        self.at.path(&format!("{number:06}.sst"))
    }

    async fn client(&self) -> Result<(), FileError> {
        let stage = self.at.stage;
        let record = self.p.value.0 + OVERHEAD;
        let (memtable, group, reads) = (self.p.memtable.0, self.p.group, self.p.reads);
        let has_background = self.p.threads > 1;
        let (mut in_memtable, mut unsynced) = (0, 0);
        let mut number = self.tree(Tree::new_number);
        let mut log = stage.create(&self.log(number), 0).await?;
        for _ in 0..self.p.operations {
            stage.operation().await;
            if stage.happens(reads) {
                self.look_up().await?;
                continue;
            }
            stage.write(&mut log, record).await?;
            in_memtable += record;
            unsynced += 1;
            if unsynced == group {
                stage.fdatasync(&mut log).await?;
                unsynced = 0;
            }
            if in_memtable < memtable {
                continue;
            }
            in_memtable = 0;
            stage.close(log).await?;
            self.tree(|tree| tree.full.push(number));
            if has_background {
                let may_go_on = || {
                    self.tree(|tree| (tree.full.len() as u64) < MEMTABLES_MAX && tree.level(0).len() < STOP)
                };
                stage.wait_until(may_go_on).await?;
            } else {
                while self.one_job().await? {}
            }
            number = self.tree(Tree::new_number);
            log = stage.create(&self.log(number), 0).await?;
        }
        stage.fdatasync(&mut log).await?;
        self.tree(|tree| tree.has_ended = true);
        stage.close(log).await
    }

    /// Reads a block of one table: the newest that may have the key.
    async fn look_up(&self) -> Result<(), FileError> {
        let stage = self.at.stage;
        let (key, place) = (stage.below(KEYS), stage.below(KEYS));
        let table = self.tree(|tree| {
            let has_key = |table: &&Table| table.overlaps((key, key + 1));
            let newest = tree.levels.iter().find_map(|level| level.iter().rev().find(has_key));
            newest.copied()
        });
        let Some(table) = table else { return Ok(()) }; // still in a memtable
        let mut file = match stage.open(&self.table(table.number), OpenMode::Read).await {
            // The table was compacted in the meantime; RocksDB would have it open.
            Err(FileError::NotFound { .. }) => return Ok(()),
            file => file?,
        };
        let offset = ((table.bytes / BLOCK * place) >> 32) * BLOCK;
        stage.pread(&mut file, offset, BLOCK).await?;
        stage.close(file).await
    }

    async fn background(&self) -> Result<(), FileError> {
        loop {
            if self.one_job().await? {
                continue;
            }
            if self.tree(|tree| tree.has_ended && tree.full.is_empty()) {
                return Ok(());
            }
            let has_work = || self.tree(|tree| tree.has_ended || !tree.full.is_empty());
            self.at.stage.wait_until(has_work).await?;
        }
    }

    async fn one_job(&self) -> Result<bool, FileError> {
        self.at.stage.check()?;
        if let Some(log) = self.tree(|tree| tree.full.first().copied()) {
            self.flush(log).await?;
            return Ok(true);
        }
        let Some(merge) = self.next_merge() else { return Ok(false) };
        self.compact(merge).await?;
        Ok(true)
    }

    async fn flush(&self, log: u64) -> Result<(), FileError> {
        let number = self.tree(Tree::new_number);
        let bytes = self.p.memtable.0;
        self.write_table(number, bytes).await?;
        self.record_edit().await?;
        self.tree(|tree| {
            tree.full.remove(0);
            tree.level(0).push(Table { number, bytes, keys: (0, KEYS) });
        });
        self.at.stage.unlink(&self.log(log)).await
    }

    async fn write_table(&self, number: u64, bytes: u64) -> Result<(), FileError> {
        let stage = self.at.stage;
        let mut file = stage.create(&self.table(number), bytes).await?;
        stage.fsync(&mut file).await?;
        stage.close(file).await
    }

    async fn record_edit(&self) -> Result<(), FileError> {
        let stage = self.at.stage;
        let manifest = self.at.path("MANIFEST");
        let mut file = match stage.open(&manifest, OpenMode::Append).await {
            Err(FileError::NotFound { .. }) => stage.create(&manifest, 0).await?,
            file => file?,
        };
        stage.write(&mut file, EDIT).await?;
        stage.fsync(&mut file).await?;
        stage.close(file).await
    }

    /// Chooses the level to merge: level 0 if it has enough tables, else the first level that is too large.
    fn next_merge(&self) -> Option<Merge> {
        let (trigger, base) = (self.p.trigger as usize, self.p.base.0);
        self.tree(|tree| {
            let upper = if tree.level(0).len() >= trigger {
                (0, tree.level(0).clone(), (0, KEYS))
            } else {
                let mut limit = base;
                let size = |level: &[Table]| level.iter().map(|t| t.bytes).sum::<u64>();
                let too_large = (1..tree.levels.len()).find(|&level| {
                    let is_too_large = size(&tree.levels[level]) > limit;
                    limit = limit.saturating_mul(MULTIPLIER);
                    is_too_large
                })?;
                let (tables, cursor) = (&tree.levels[too_large], tree.cursors[too_large]);
                let next = tables.iter().find(|t| t.keys.0 >= cursor).or(tables.first())?;
                (too_large, vec![*next], next.keys)
            };
            let (from, mut inputs, keys) = upper;
            tree.cursors[from] = keys.1;
            let upper_bytes = inputs.iter().map(|t| t.bytes).sum();
            let lower = tree.level(from + 1).iter().filter(|t| t.overlaps(keys)).copied();
            let lower: Vec<Table> = lower.collect();
            let lower_bytes = lower.iter().map(|t| t.bytes).sum();
            let first = lower.first().map_or(keys.0, |t| t.keys.0.min(keys.0));
            let last = lower.last().map_or(keys.1, |t| t.keys.1.max(keys.1));
            inputs.extend(lower);
            Some(Merge { inputs, level: from + 1, upper_bytes, lower_bytes, keys: (first, last) })
        })
    }

    async fn compact(&self, merge: Merge) -> Result<(), FileError> {
        let stage = self.at.stage;
        for table in &merge.inputs {
            stage.read_whole(&self.table(table.number), PIECE).await?;
        }
        // If the range already holds a share of all keys, that share of the records from above replaces older versions.
        let all = u128::from(self.p.keys * (self.p.value.0 + OVERHEAD));
        let span = u128::from(merge.keys.1 - merge.keys.0);
        let in_range = u64::try_from(all * span / u128::from(KEYS)).unwrap_or(u64::MAX).max(1);
        let unique = |below: u64, above: u64| {
            let missing = in_range.saturating_sub(below);
            below + (u128::from(above) * u128::from(missing) / u128::from(in_range)) as u64
        };
        let bytes = unique(merge.lower_bytes.min(in_range), merge.upper_bytes.min(in_range)).max(1);
        let count = bytes.div_ceil(self.p.table.0);
        let (from, to) = merge.keys;
        let border = |i: u64| from + (u128::from(to - from) * u128::from(i) / u128::from(count)) as u64;
        let mut outputs = Vec::new();
        for i in 0..count {
            let number = self.tree(Tree::new_number);
            let table = Table { number, bytes: bytes / count, keys: (border(i), border(i + 1)) };
            self.write_table(number, table.bytes).await?;
            outputs.push(table);
        }
        self.record_edit().await?;
        self.tree(|tree| {
            let is_input = |table: &Table| merge.inputs.iter().any(|t| t.number == table.number);
            for level in [merge.level - 1, merge.level] {
                tree.level(level).retain(|table| !is_input(table));
            }
            let level = tree.level(merge.level);
            level.extend(outputs);
            level.sort_unstable_by_key(|table| table.keys);
        });
        for table in &merge.inputs {
            stage.unlink(&self.table(table.number)).await?;
        }
        Ok(())
    }
}
