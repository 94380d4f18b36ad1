//! The exact sequence of PostMark's operations.
//!
//! PostMark's operations depend on its configuration and seed alone, not on time or on results of the file system. So
//! the sequence is produced here by a pure state machine that touches no file. [`run`](super::run()) executes one step
//! after the other. Stepping through without executing shows a run's exact needs beforehand
//! ([`footprint`](super::footprint::footprint)).
//!
//! The order of the random draws must match exactly. At the start 2 x `size high` draws fill a buffer of printable
//! characters; every file's data start at its first byte. A creation draws its location (if there are several), its
//! subdirectory (if there are several) and its size (if low and high differ). Picking a file to read, append to or
//! delete draws slots of a table until a slot in use comes up.

use super::config::PostmarkConfig;
use super::rng::Mt19937;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Create,
    Transactions,
    Delete,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "creating files",
            Self::Transactions => "performing transactions",
            Self::Delete => "deleting files",
        }
    }
}

/// Identifies one file; [`Layout`](super::layout::Layout) builds its path from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRef {
    /// The file's own name: files are numbered from 1 in the order of their creation.
    pub number: u32,
    /// Index into the configuration's locations; 0 if there are none.
    pub location: u32,
    /// Number of its `sK`, if there are subdirectories.
    pub subdirectory: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Create {
        file: FileRef,
        bytes: u32,
    },
    Read {
        file: FileRef,
        bytes: u32,
    },
    /// Write `bytes` more at the end of `file`.
    Append {
        file: FileRef,
        bytes: u32,
        /// Size before the append, in bytes.
        size_before: u32,
    },
    Delete {
        file: FileRef,
        bytes: u32,
    },
    /// The phase ends here: take the time.
    EndOf(Phase),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub created: u64,
    pub created_mixed: u64,
    pub read: u64,
    /// Files appended to. A file that had its full size already does not count.
    pub appended: u64,
    pub deleted: u64,
    pub deleted_mixed: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Bytes read as PostMark counts them: in a C `float`, rounded at each addition.
    pub bytes_read_f32: f32,
    /// Bytes written as PostMark counts them.
    pub bytes_written_f32: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    file: FileRef,
    bytes: u32,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// The pool is being created; this many of its files exist.
    Create(u32),
    /// The first half (read or append) of this transaction is next.
    FirstHalf(u32),
    /// The second half (create or delete) of this transaction is next.
    SecondHalf(u32),
    /// The remaining files are being deleted; this slot is the next to check.
    Delete(usize),
    Finished,
}

#[derive(Debug)]
pub struct Script<'a> {
    config: &'a PostmarkConfig,
    rng: Mt19937,
    /// The used part of the table; the rest, up to [`Script::table_slots`], is empty.
    slots: Vec<Slot>,
    /// The slot to try first for the next file.
    next_slot: u32,
    /// No slot below this one is empty, so a search can start here.
    full_below: usize,
    counts: Counts,
    out_of_files: bool,
    at: At,
}

impl<'a> Script<'a> {
    /// Creates the script of `config`. Also returns the first `size_high` bytes of the buffer of random characters that
    /// all data come from. PostMark's buffer is twice as large, but nothing beyond the first half is ever written.
    pub fn new(config: &'a PostmarkConfig) -> (Self, Vec<u8>) {
        let mut rng = Mt19937::new(config.seed);
        let source = (0..config.size_high).map(|_| 32 + rng.below(95) as u8).collect();
        (Self::begin(config, rng, config.size_high), source)
    }

    pub(crate) fn without_data(config: &'a PostmarkConfig) -> Self {
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

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns true if the transactions ended early, because every file was deleted.
    pub(crate) fn out_of_files(&self) -> bool {
        self.out_of_files
    }

    /// Returns the number of files or transactions of the current phase that are done, and their total.
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

    pub fn phase(&self) -> Phase {
        match self.at {
            At::Create(_) => Phase::Create,
            At::FirstHalf(_) | At::SecondHalf(_) => Phase::Transactions,
            At::Delete(_) | At::Finished => Phase::Delete,
        }
    }

    pub(crate) fn live_files(&self) -> impl Iterator<Item = FileRef> {
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

    /// Returns the next slot if it is empty, otherwise the first empty one; `None` if the table is full.
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

    /// Returns the next step. Half transactions that do nothing (a bias of -1, a full-sized file) are skipped.
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
    use crate::workload::postmark::config::Location;

    fn counts(config: &PostmarkConfig) -> (Counts, bool) {
        let mut script = Script::without_data(config);
        while script.next().is_some() {}
        (*script.counts(), script.out_of_files())
    }

    /// The configuration of a published comparison of SSDs with and without discard (50,000 files of 1,000 to 200,000
    /// bytes); PostMark prints these counts and the rounded total.
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
    fn a_full_table_drops_creations() {
        let config = PostmarkConfig { number: 5, bias_create: Some(10), ..PostmarkConfig::default() };
        let (c, out_of_files) = counts(&config);
        assert!(!out_of_files);
        assert_eq!((c.created, c.created_mixed, c.deleted), (10, 5, 10));
    }

    /// Checks the slot of each new file against the rule in its simplest form.
    #[test]
    fn new_files_take_postmarks_slots() {
        let config = PostmarkConfig {
            number: 20,
            transactions: 2000,
            size_low: 10,
            size_high: 10,
            bias_read: None,
            bias_create: Some(6),
            ..PostmarkConfig::default()
        };
        let mut script = Script::without_data(&config);
        let (mut used, mut next, mut searches) = ([0; 40], 0, 0);
        while let Some(step) = script.next() {
            match step {
                Step::Create { file, .. } => {
                    let slot = if next < 40 && used[next] == 0 {
                        next
                    } else {
                        searches += 1;
                        used.iter().position(|&number| number == 0).unwrap()
                    };
                    used[slot] = file.number;
                    next = slot + 1;
                    assert_eq!(script.slots[slot].file, file);
                }
                Step::Delete { file, .. } => {
                    let slot = used.iter().position(|&number| number == file.number).unwrap();
                    used[slot] = 0;
                }
                _ => {}
            }
        }
        assert!(searches > 100, "only {searches} searches");
    }

    /// The locations of the first files, seen with strace on Debian's PostMark 1.53-2.
    #[test]
    fn locations_are_drawn_by_weight() {
        let location = |path: &str, weight| Location { path: path.to_owned(), weight };
        let config = PostmarkConfig {
            number: 30,
            size_low: 10,
            size_high: 10,
            locations: vec![location("a", 3), location("b", 1), location("c", 5)],
            ..PostmarkConfig::default()
        };
        let chosen = Script::without_data(&config).map_while(|step| match step {
            Step::Create { file, .. } => Some(config.locations[file.location as usize].path.as_str()),
            _ => None,
        });
        assert_eq!(chosen.collect::<String>(), "cbcccaaccaccccbccaccccacaccbac");
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
