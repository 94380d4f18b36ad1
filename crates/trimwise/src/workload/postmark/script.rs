//! The exact sequence of PostMark's operations.
//!
//! What PostMark does depends on its configuration and seed alone: neither on time nor on what the file system
//! answers. So the sequence is made here by a plain state machine that touches no file. Whoever does the
//! operations ([`run`](super::run())) takes one step after the other, and what a run will need on a disk is
//! known beforehand, exactly, by going through the steps without doing them
//! ([`footprint`](super::footprint::footprint)).
//!
//! The order of the draws is the heart of it. At the start 2 x `size high` draws fill a buffer of printable
//! characters, from whose first byte every file's data are taken. A creation draws its location (if there are
//! several), its subdirectory (if there are several) and its size (if low and high differ). Picking a file
//! for reading, appending or deleting draws slots of a table until a slot in use comes up.

use super::config::PostmarkConfig;
use super::rng::Mt19937;

/// The three timed phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The pool of files is made.
    Create,
    /// Transactions: read or append, then create or delete.
    Transactions,
    /// What is left is deleted.
    Delete,
}

impl Phase {
    /// What is being done, as progress and errors name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "creating files",
            Self::Transactions => "performing transactions",
            Self::Delete => "deleting files",
        }
    }
}

/// Names one file: its path is made from it by [`Layout`](super::layout::Layout).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRef {
    /// The file's own name: files are numbered from 1 in the order of their creation.
    pub number: u32,
    /// Index into the configuration's locations; 0 if there are none.
    pub location: u32,
    /// Which `sK`, if there are subdirectories.
    pub subdirectory: u32,
}

/// One operation, or the end of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make `file` and write `bytes` to it.
    Create {
        /// The new file.
        file: FileRef,
        /// Its size.
        bytes: u32,
    },
    /// Read the whole of `file`.
    Read {
        /// The file.
        file: FileRef,
        /// Its size.
        bytes: u32,
    },
    /// Write `bytes` more at the end of `file`.
    Append {
        /// The file.
        file: FileRef,
        /// How much longer it becomes.
        bytes: u32,
        /// How long it was.
        size_before: u32,
    },
    /// Delete `file`.
    Delete {
        /// The file.
        file: FileRef,
        /// Its size.
        bytes: u32,
    },
    /// The phase ends here: take the time.
    EndOf(Phase),
}

/// What was done, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Files created in all.
    pub created: u64,
    /// Files created by transactions.
    pub created_mixed: u64,
    /// Files read.
    pub read: u64,
    /// Files appended to; a file that had its full size already is not counted.
    pub appended: u64,
    /// Files deleted in all.
    pub deleted: u64,
    /// Files deleted by transactions.
    pub deleted_mixed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read as PostMark counts them: in a C `float`, rounded at each addition.
    pub bytes_read_f32: f32,
    /// Bytes written as PostMark counts them.
    pub bytes_written_f32: f32,
}

/// A place in PostMark's table of files; empty while `bytes` is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    file: FileRef,
    bytes: u32,
}

/// Where the script stands.
#[derive(Clone, Copy, Debug)]
enum At {
    /// This many files of the pool are made.
    Create(u32),
    /// The first half (read or append) of this transaction is next.
    FirstHalf(u32),
    /// The second half (create or delete) of this transaction is next.
    SecondHalf(u32),
    /// This slot is the next to be looked at for deletion.
    Delete(usize),
    Finished,
}

/// The sequence of operations of one run.
#[derive(Debug)]
pub struct Script<'a> {
    config: &'a PostmarkConfig,
    rng: Mt19937,
    /// The used part of the table; the rest, up to [`Script::table_slots`], is empty.
    slots: Vec<Slot>,
    /// The slot that is tried first for the next file.
    next_slot: u32,
    /// No slot below this one is empty, so that a search need not begin at 0.
    full_below: usize,
    counts: Counts,
    out_of_files: bool,
    at: At,
}

impl<'a> Script<'a> {
    /// The script of `config`, and the first `size_high` bytes of the buffer of random characters that all
    /// data come from. PostMark's is twice as large, but nothing beyond the first half is ever written.
    pub fn new(config: &'a PostmarkConfig) -> (Self, Vec<u8>) {
        let mut rng = Mt19937::new(config.seed);
        let source = (0..config.size_high).map(|_| 32 + rng.below(95) as u8).collect();
        (Self::begin(config, rng, config.size_high), source)
    }

    /// The script alone.
    pub fn without_data(config: &'a PostmarkConfig) -> Self {
        Self::begin(config, Mt19937::new(config.seed), 2 * u64::from(config.size_high))
    }

    fn begin(config: &'a PostmarkConfig, mut rng: Mt19937, data_draws: impl Into<u64>) -> Self {
        for _ in 0..data_draws.into() {
            rng.next_u32();
        }
        Self {
            config,
            rng,
            slots: Vec::new(),
            next_slot: 0,
            full_below: 0,
            counts: Counts::default(),
            out_of_files: false,
            at: At::Create(0),
        }
    }

    /// What the steps taken so far amount to.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether the transactions ended early, because every file was deleted.
    pub fn out_of_files(&self) -> bool {
        self.out_of_files
    }

    /// How far the present phase is: what is done, of how many (files, transactions).
    pub fn progress(&self) -> (u64, u64) {
        match self.at {
            At::Create(done) => (done.into(), self.config.number.into()),
            At::FirstHalf(done) | At::SecondHalf(done) => (done.into(), self.config.transactions.into()),
            At::Delete(_) | At::Finished => {
                let alone = self.counts.deleted - self.counts.deleted_mixed;
                (alone, alone + self.counts.created - self.counts.deleted)
            }
        }
    }

    /// The phase that the next step belongs to.
    pub fn phase(&self) -> Phase {
        match self.at {
            At::Create(_) => Phase::Create,
            At::FirstHalf(_) | At::SecondHalf(_) => Phase::Transactions,
            At::Delete(_) | At::Finished => Phase::Delete,
        }
    }

    /// The files that exist after the steps taken so far.
    pub fn live_files(&self) -> impl Iterator<Item = FileRef> {
        self.slots.iter().filter(|slot| slot.bytes > 0).map(|slot| slot.file)
    }

    fn table_slots(&self) -> u32 {
        self.config.number.saturating_mul(2)
    }

    fn create(&mut self) -> Option<Step> {
        let slot = self.empty_slot()?;
        self.next_slot = slot + 1;
        let location = if self.config.locations.len() > 1 { self.draw_location() } else { 0 };
        let subdirectory =
            if self.config.subdirectories > 1 { self.rng.below(self.config.subdirectories) } else { 0 };
        let spread = self.config.size_high.saturating_sub(self.config.size_low);
        let bytes = self.config.size_low.saturating_add(self.rng.below(spread));
        self.counts.created += 1;
        self.wrote(bytes);
        let file = FileRef { number: self.counts.created as u32, location, subdirectory };
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Slot::default());
        }
        self.slots[slot] = Slot { file, bytes };
        Some(Step::Create { file, bytes })
    }

    /// The next slot if it is empty, else the first empty one; none if the table is full.
    fn empty_slot(&mut self) -> Option<u32> {
        let is_empty = |slot: usize| self.slots.get(slot).is_none_or(|s| s.bytes == 0);
        if self.next_slot < self.table_slots() && is_empty(self.next_slot as usize) {
            return Some(self.next_slot);
        }
        let first = (self.full_below..self.table_slots() as usize).find(|&slot| is_empty(slot));
        self.full_below = first.unwrap_or(self.slots.len());
        first.map(|slot| slot as u32)
    }

    fn draw_location(&mut self) -> u32 {
        let total = self.config.locations.iter().fold(0u32, |sum, l| sum.saturating_add(l.weight));
        let mut drawn = self.rng.below(total);
        for (index, location) in self.config.locations.iter().enumerate() {
            if drawn < location.weight {
                return index as u32;
            }
            drawn -= location.weight;
        }
        0
    }

    /// A slot in use; only called while there is one.
    fn draw_used_slot(&mut self) -> usize {
        let table_slots = self.table_slots();
        loop {
            let slot = self.rng.below(table_slots) as usize;
            if self.slots.get(slot).is_some_and(|s| s.bytes > 0) {
                return slot;
            }
        }
    }

    fn read_or_append(&mut self, bias: u8) -> Option<Step> {
        let reads = self.rng.below(10) < u32::from(bias);
        let index = self.draw_used_slot();
        let Slot { file, bytes } = self.slots[index];
        if reads {
            self.counts.read += 1;
            self.counts.bytes_read += u64::from(bytes);
            self.counts.bytes_read_f32 += bytes as f32;
            return Some(Step::Read { file, bytes });
        }
        if bytes >= self.config.size_high {
            return None;
        }
        let added = self.rng.below(self.config.size_high - bytes) + 1;
        self.slots[index].bytes += added;
        self.counts.appended += 1;
        self.wrote(added);
        Some(Step::Append { file, bytes: added, size_before: bytes })
    }

    fn wrote(&mut self, bytes: u32) {
        self.counts.bytes_written += u64::from(bytes);
        self.counts.bytes_written_f32 += bytes as f32;
    }

    fn delete(&mut self, slot: usize) -> Step {
        let Slot { file, bytes } = self.slots[slot];
        self.slots[slot].bytes = 0;
        self.full_below = self.full_below.min(slot);
        self.counts.deleted += 1;
        Step::Delete { file, bytes }
    }

    fn create_or_delete(&mut self, bias: u8) -> Option<Step> {
        if self.rng.below(10) < u32::from(bias) {
            let step = self.create()?;
            self.counts.created_mixed += 1;
            Some(step)
        } else {
            self.counts.deleted_mixed += 1;
            let slot = self.draw_used_slot();
            Some(self.delete(slot))
        }
    }
}

impl Iterator for Script<'_> {
    type Item = Step;

    /// The next step. Half transactions that do nothing (a bias of -1, a file that is full) are passed over.
    fn next(&mut self) -> Option<Step> {
        loop {
            match self.at {
                At::Create(made) if made < self.config.number => {
                    self.at = At::Create(made + 1);
                    if let Some(step) = self.create() {
                        return Some(step);
                    }
                }
                At::Create(_) => {
                    self.at = At::FirstHalf(0);
                    return Some(Step::EndOf(Phase::Create));
                }
                At::FirstHalf(done) => {
                    let is_done = done >= self.config.transactions;
                    if is_done || self.counts.created == self.counts.deleted {
                        self.out_of_files = !is_done;
                        self.at = At::Delete(0);
                        return Some(Step::EndOf(Phase::Transactions));
                    }
                    self.at = At::SecondHalf(done);
                    if let Some(step) = self.config.bias_read.and_then(|bias| self.read_or_append(bias)) {
                        return Some(step);
                    }
                }
                At::SecondHalf(done) => {
                    self.at = At::FirstHalf(done + 1);
                    if let Some(step) = self.config.bias_create.and_then(|bias| self.create_or_delete(bias)) {
                        return Some(step);
                    }
                }
                At::Delete(slot) if slot < self.slots.len() => {
                    self.at = At::Delete(slot + 1);
                    if self.slots[slot].bytes > 0 {
                        return Some(self.delete(slot));
                    }
                }
                At::Delete(_) => {
                    self.at = At::Finished;
                    return Some(Step::EndOf(Phase::Delete));
                }
                At::Finished => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(config: &PostmarkConfig) -> (Counts, bool) {
        let mut script = Script::without_data(config);
        while script.next().is_some() {}
        (*script.counts(), script.out_of_files())
    }

    /// The configuration of a published comparison of SSDs with and without discard (50,000 files of 1,000 to
    /// 200,000 bytes); PostMark prints these counts and the drifted total.
    #[test]
    fn the_large_published_set_has_postmarks_counts() {
        let config = PostmarkConfig {
            number: 50_000,
            transactions: 50_000,
            size_low: 1000,
            size_high: 200_000,
            ..PostmarkConfig::default()
        };
        let (c, out_of_files) = counts(&config);
        assert!(!out_of_files);
        assert_eq!((c.created - c.created_mixed, c.created_mixed), (50_000, 24_761));
        assert_eq!((c.read, c.appended), (24_974, 25_025));
        assert_eq!((c.deleted_mixed, c.deleted - c.deleted_mixed), (25_239, 49_522));
        assert_eq!((c.bytes_written, c.bytes_read), (8_615_456_523, 2_753_016_550));
        assert_eq!(c.bytes_written_f32, 8_615_364_608.0);
    }

    #[test]
    fn deleting_everything_ends_the_transactions() {
        let config = PostmarkConfig { number: 5, bias_create: Some(0), ..PostmarkConfig::default() };
        let (c, out_of_files) = counts(&config);
        assert!(out_of_files);
        assert_eq!((c.created, c.deleted, c.deleted_mixed), (5, 5, 5));
    }

    #[test]
    fn a_full_table_makes_creations_vanish() {
        let config = PostmarkConfig { number: 5, bias_create: Some(10), ..PostmarkConfig::default() };
        let (c, out_of_files) = counts(&config);
        assert!(!out_of_files);
        assert_eq!((c.created, c.created_mixed, c.deleted), (10, 5, 10));
    }

    #[test]
    fn the_script_and_its_twin_without_data_agree() {
        let config = PostmarkConfig { number: 20, transactions: 50, ..PostmarkConfig::default() };
        let (script, source) = Script::new(&config);
        assert_eq!(source.len(), config.size_high as usize);
        assert!(source.iter().all(|byte| (32..127).contains(byte)));
        assert!(script.eq(Script::without_data(&config)));
    }
}
