//! A file system's requests to its drive, classified by where they lie: journal, metadata in place, data.
//!
//! The same log is kept of a modelled and of a real ext4. A block is the journal's if the journal's inode owns it. It
//! is metadata if mkfs put it there (superblock, descriptors, bitmaps, inode tables) or if a directory owns it at the
//! end, and data otherwise. Two kinds are wrongly taken for data: blocks of extent trees, which files of more than four
//! extents have, and blocks of a directory that was removed.

use serde::Serialize;
use trimwise::block::Command;
use trimwise::units::{UNIT_BYTES, UnitRange};

/// A command, as the drive receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A read.
    Read(UnitRange),
    /// A write.
    Write(UnitRange),
    /// A range of a discard.
    Discard(UnitRange),
    /// A flush.
    Flush,
}

/// The places that are not data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    journal: Vec<UnitRange>,
    metadata: Vec<UnitRange>,
}

impl Places {
    /// Takes the journal's blocks, and the metadata of mkfs and of directories.
    pub fn new(journal: Vec<UnitRange>, metadata: impl IntoIterator<Item = UnitRange>) -> Self {
        let sorted = |mut ranges: Vec<UnitRange>| {
            ranges.retain(|range| range.units > 0);
            ranges.sort_unstable_by_key(|range| range.start);
            ranges
        };
        Self { journal: sorted(journal), metadata: sorted(metadata.into_iter().collect()) }
    }
}

impl Entry {
    /// Converts a command of the modelled host; a file system requests only whole blocks.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Read(range) => Some(Self::Read(*range)),
            Command::Write(range, _) => Some(Self::Write(*range)),
            // On SATA, Linux sends one run per command, in as many ranges as it takes.
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

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Blocks of 4 KiB written for files.
    pub data_blocks: u64,
    /// Blocks written to the journal, including its superblock.
    pub journal_blocks: u64,
    /// Blocks of metadata written in place.
    pub metadata_blocks: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards, one for each range.
    pub discards: u64,
    /// Bytes in them.
    pub discarded_bytes: u64,
    /// Blocks read.
    pub read_blocks: u64,
}

impl Traffic {
    /// Classifies and counts these commands.
    pub fn of(log: &[Entry], places: &Places) -> Self {
        let mut traffic = Self::default();
        for entry in log {
            match *entry {
                Entry::Read(range) => traffic.read_blocks += range.units,
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
    use trimwise::units::Lpn;

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
        };
        assert_eq!(Traffic::of(&log, &places), expected);
    }
}
