//! A file system's requests to its drive, classified by location: journal, metadata in place, data.
//!
//! The same log is kept of a modelled and of a real ext4. A block belongs to the journal if the journal's inode owns
//! it. It is metadata if mkfs put it there (superblock, descriptors, bitmaps, inode tables) or if a directory owns it
//! at the end; otherwise it is data. Two kinds are mistaken for data: blocks of extent trees, which files of more than
//! four extents have, and blocks of removed directories.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Serialize;
use trimwise::block::{BlockQueue, Command, Stage};
use trimwise::fs::Ext4;
use trimwise::units::{Lpn, UNIT_BYTES, UnitRange};
use trimwise_linux::sparse_store::SparseStore;
use trimwise_uml::disk::{TraceEntry, Traced};
use trimwise_uml::job::{FileExtent, Outcome};

use crate::guests::Ran;
use trimwise::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Read(UnitRange),
    Write(UnitRange),
    Discard(UnitRange),
    Flush,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    journal: Vec<UnitRange>,
    metadata: Vec<UnitRange>,
}

impl Places {
    pub fn new(journal: Vec<UnitRange>, metadata: impl IntoIterator<Item = UnitRange>) -> Self {
        let sorted = |mut ranges: Vec<UnitRange>| {
            ranges.retain(|range| range.units > 0);
            ranges.sort_unstable_by_key(|range| range.start);
            ranges
        };
        Self { journal: sorted(journal), metadata: sorted(metadata.into_iter().collect()) }
    }

    /// Reads the locations in a guest's ext4. `metadata` is the index of the step that listed them, `directories` are
    /// the blocks of directories.
    pub fn in_guest(ran: &Ran, metadata: usize, directories: &[FileExtent]) -> Result<Self, Failure> {
        let metadata = ran.outcome(metadata, |outcome| match outcome {
            Outcome::Metadata(metadata) => Some(metadata),
            _ => None,
        })?;
        let fixed = metadata.iter().filter(|extent| !extent.is_journal);
        let fixed = fixed.map(|extent| units(extent.offset_bytes, extent.length_bytes));
        let directories = directories.iter().map(|extent| units(extent.offset_bytes, extent.length_bytes));
        Ok(Self::new(journal_blocks(&ran.store)?, fixed.chain(directories)))
    }

    pub fn journal_blocks(&self) -> u64 {
        self.journal.iter().map(|range| range.units).sum()
    }
}

fn units(offset_bytes: u64, length_bytes: u64) -> UnitRange {
    UnitRange::new(Lpn(offset_bytes / UNIT_BYTES), length_bytes / UNIT_BYTES)
}

/// Finds the journal. ext4's superblock has a copy of the extents in the journal's inode (`s_jnl_blocks`): a header of
/// 12 bytes and up to four extents of 12 bytes each.
fn journal_blocks(store: &SparseStore) -> Result<Vec<UnitRange>, Failure> {
    const SUPERBLOCK: u64 = 1024;
    const JOURNAL_BLOCKS: u64 = 0x10c;
    const EXTENT_MAGIC: u16 = 0xf30a;
    let mut bytes = [0; 60];
    store.read(SUPERBLOCK + JOURNAL_BLOCKS, &mut bytes).map_err(Failure::run)?;
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (magic, entries, depth) = (u16_at(0), usize::from(u16_at(2)), u16_at(6));
    if magic != EXTENT_MAGIC || entries > 4 || depth != 0 {
        return Err(Failure::run("the journal's extents are not in the guest's superblock"));
    }
    let extent = |at: usize| {
        let (length, high) = (u64::from(u16_at(at + 4)), u64::from(u16_at(at + 6)));
        let low = u64::from(u16_at(at + 8)) | u64::from(u16_at(at + 10)) << 16;
        UnitRange::new(Lpn(high << 32 | low), length)
    };
    Ok((0..entries).map(|i| extent(12 + 12 * i)).collect())
}

impl From<&TraceEntry> for Entry {
    fn from(entry: &TraceEntry) -> Self {
        let range = units(entry.offset_bytes, entry.length_bytes);
        match entry.kind {
            Traced::Read => Self::Read(range),
            // ext4 and jbd2 send this instead of a write full of zeros.
            Traced::Write | Traced::WriteZeroes => Self::Write(range),
            Traced::Discard => Self::Discard(range),
            Traced::Flush => Self::Flush,
        }
    }
}

pub struct Log(Rc<RefCell<Vec<Entry>>>);

impl Log {
    pub fn start(queue: &BlockQueue) -> Self {
        let log: Rc<RefCell<Vec<Entry>>> = Rc::default();
        let tracer = Rc::clone(&log);
        queue.trace(Some(Box::new(move |_, stage, command| {
            if stage == Stage::Dispatched {
                tracer.borrow_mut().extend(Entry::of(command));
            }
        })));
        Self(log)
    }

    pub fn stop(self, fs: &Ext4) -> Traffic {
        fs.queue().trace(None);
        Traffic::of(&self.0.borrow(), &Places::new(vec![fs.journal_blocks()], fs.metadata_blocks()))
    }
}

impl Entry {
    /// Converts a command of the modelled host; a file system's requests cover whole blocks.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Read(range) => Some(Self::Read(*range)),
            Command::Write(range, _) => Some(Self::Write(*range)),
            // On SATA, Linux sends one run per command, in as many ranges as necessary.
            Command::Trim(ranges) => {
                let start = ranges.iter().map(|range| range.start).min().unwrap_or_default();
                let units = ranges.iter().map(|range| range.units).sum();
                Some(Self::Discard(UnitRange::new(start, units)))
            }
            Command::Flush => Some(Self::Flush),
            Command::ReadPart(_) | Command::WritePart(..) => None,
        }
    }
}

/// Returns how many units of `range` lie in `places`, which are sorted and do not overlap.
fn units_in(places: &[UnitRange], range: UnitRange) -> u64 {
    let first = places.partition_point(|place| place.end() <= range.start);
    let touched = places[first..].iter().take_while(|place| place.start < range.end());
    touched.map(|place| place.end().min(range.end()).0 - place.start.max(range.start).0).sum()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    pub data_blocks: u64,
    pub journal_blocks: u64,
    pub metadata_blocks: u64,
    pub flushes: u64,
    pub discards: u64,
    pub discarded_bytes: u64,
    pub read_blocks: u64,
    /// Part of `read_blocks`.
    pub metadata_read_blocks: u64,
}

impl Traffic {
    pub fn in_guest(trace: &[TraceEntry], places: &Places) -> Self {
        Self::of(&trace.iter().map(Entry::from).collect::<Vec<_>>(), places)
    }

    pub fn of(log: &[Entry], places: &Places) -> Self {
        let mut traffic = Self::default();
        for entry in log {
            match *entry {
                Entry::Read(range) => {
                    traffic.read_blocks += range.units;
                    traffic.metadata_read_blocks += units_in(&places.metadata, range);
                }
                Entry::Flush => traffic.flushes += 1,
                Entry::Discard(range) => {
                    traffic.discards += 1;
                    traffic.discarded_bytes += range.units * UNIT_BYTES;
                }
                Entry::Write(range) => {
                    let journal = units_in(&places.journal, range);
                    let metadata = units_in(&places.metadata, range);
                    traffic.journal_blocks += journal;
                    traffic.metadata_blocks += metadata;
                    traffic.data_blocks += range.units - journal - metadata;
                }
            }
        }
        traffic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, units: u64) -> UnitRange {
        UnitRange::new(Lpn(start), units)
    }

    #[test]
    fn a_write_is_told_apart_block_by_block() {
        let places = Places::new(vec![range(100, 10)], [range(20, 4), range(0, 2), range(8, 0)]);
        let log = [
            Entry::Write(range(0, 30)),
            Entry::Write(range(98, 20)),
            Entry::Write(range(105, 5)),
            Entry::Write(range(23, 1)),
            Entry::Flush,
            Entry::Discard(range(98, 20)),
            Entry::Discard(range(5, 1)),
            Entry::Read(range(0, 7)),
        ];
        let expected = Traffic {
            data_blocks: 24 + 10,
            journal_blocks: 15,
            metadata_blocks: 7,
            flushes: 1,
            discards: 2,
            discarded_bytes: 21 * 4096,
            read_blocks: 7,
            metadata_read_blocks: 2,
        };
        assert_eq!(Traffic::of(&log, &places), expected);
    }
}
