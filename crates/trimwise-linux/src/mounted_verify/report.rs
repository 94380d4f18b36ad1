//! The result of the test, and its verdict.

use std::fmt;

use trimwise::units::Bytes;

use super::pieces::{Pieces, ignored_up_to};
use crate::block_device::DiscardCounts;
use crate::code::Code;
use crate::raw_device::Promise;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    OldData,
    Zeros,
    /// The block was reused.
    Other,
    Unreadable,
}

/// A unit of 4 KiB of the file, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub unit: u64,
    /// Index into [`Report::disks`].
    pub disk: usize,
    pub offset: u64,
    /// True if the unit is inside a whole granule of the file's blocks; others need not be trimmed.
    pub is_whole: bool,
    /// Before FITRIM.
    pub after_delete: Found,
    pub after_trim: Found,
}

/// A disk that was read.
#[derive(Clone, Debug)]
pub struct Disk {
    pub name: String,
    pub promise: Promise,
    /// Discards that the kernel counted on the disk, from any source, from before the file was removed to the end;
    /// `None` if it does not count them.
    pub counted: Option<DiscardCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub old_data: u64,
    pub zeros: u64,
    pub other: u64,
    pub unreadable: u64,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub mount_point: String,
    pub fs_type: String,
    pub device: String,
    pub file_units: u64,
    pub extents: usize,
    pub disks: Vec<Disk>,
    /// The blocks that held the file's data, in file order.
    pub blocks: Vec<Block>,
    /// What became of smaller pieces, ascending; empty if they were not tested.
    pub pieces: Vec<Pieces>,
    /// The sum of FITRIM's return values.
    pub answered: Bytes,
    /// Repeated while old data remained.
    pub trims: u32,
    /// Kernel names of the devices at which TRIM stops, according to the doctor.
    pub stops: Vec<String>,
    /// Error that ended the trim early; the report is then partial.
    pub failed: Option<String>,
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Zeros in place of old data, from a device that promises zeros.
    Arrives,
    /// Zeros in place of old data, from a device that does not promise zeros.
    Consistent,
    /// A layer below is known not to pass TRIM on to at least one of the drives, whatever was read.
    Stops,
    /// Zeros in some places and old data in others, though zeros are promised.
    InPart,
    /// Old data, though zeros are promised and the kernel sent discards for all of them.
    Ignored,
    /// Old data, though zeros are promised, and the kernel did not count discards for all of them.
    NotSent,
    /// Old data, from a device that does not promise zeros.
    Unproven,
    Failed,
    /// Too few blocks are left to judge: reused, unreadable, or smaller than a granule.
    Unknown,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrives => "arrives",
            Self::Consistent => "consistent",
            Self::Stops => "stops",
            Self::InPart => "in_part",
            Self::Ignored => "ignored",
            Self::NotSent => "not_sent",
            Self::Unproven => "unproven",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the code of what is wrong or unknown.
    pub const fn code(self) -> Option<Code> {
        match self {
            Self::Arrives | Self::Consistent => None,
            Self::Stops => Some(Code::VerifyStops),
            Self::InPart => Some(Code::VerifyInPart),
            Self::Ignored => Some(Code::VerifyIgnored),
            Self::NotSent => Some(Code::VerifyNotSent),
            Self::Unproven => Some(Code::VerifyUnproven),
            Self::Failed => Some(Code::VerifyFailed),
            Self::Unknown => Some(Code::VerifyUndetermined),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrives => {
                "TRIM arrives: the file's data are gone from the disk, which promises zeros after TRIM"
            }
            Self::Consistent => {
                "consistent with TRIM, but not proof: the places read as zeros, which the disk does not promise"
            }
            Self::Stops => {
                "TRIM does not reach every drive: a layer below passes none on; `trimwise doctor` says why, and what helps"
            }
            Self::InPart => {
                "TRIM arrives in part: some places still hold the file's data, though the disk promises zeros"
            }
            Self::Ignored => {
                "TRIM is ignored: the kernel sent it, the disk promises zeros, and the file's data are still there"
            }
            Self::NotSent => {
                "TRIM did not reach the disk: it promises zeros, the file's data are still there, and the kernel did \
                 not count discards for all of them"
            }
            Self::Unproven => {
                "nothing is proven: the file's data are still there, which a disk that promises nothing may return \
                 even after TRIM; the only evidence is what the kernel counted as sent"
            }
            Self::Failed => "no verdict: the trim did not finish",
            Self::Unknown => "no verdict: too few of the file's blocks are left to judge",
        })
    }
}

impl Report {
    /// Counts the blocks before FITRIM, which shows the effect of the mount's own discards (`discard`).
    pub fn after_delete(&self) -> Counts {
        counts(self.blocks.iter().map(|block| block.after_delete))
    }

    pub fn after_trim(&self) -> Counts {
        counts(self.blocks.iter().map(|block| block.after_trim))
    }

    pub fn promises_zeros(&self) -> bool {
        self.disks.iter().all(|disk| disk.promise.is_zeros())
    }

    /// `None` if the kernel does not count them.
    pub fn counted(&self) -> Option<DiscardCounts> {
        let each = self.disks.iter().map(|disk| disk.counted);
        each.reduce(|sum, one| sum.zip(one).map(|(sum, one)| sum.plus(one))).flatten()
    }

    /// Returns the code of what is wrong or unknown, or worth knowing.
    pub fn code(&self) -> Option<Code> {
        self.verdict().code().or(ignored_up_to(&self.pieces).map(|_| Code::VerifySmallIgnored))
    }

    /// Says what freed pieces came to, if the device ignores small ones.
    pub fn of_pieces(&self) -> Option<String> {
        let ignored = ignored_up_to(&self.pieces)?;
        let larger = self.pieces.iter().find(|one| one.bytes > ignored && one.gone > 0);
        let larger = larger.map_or_else(String::new, |one| {
            format!(", of {} it freed {} %", one.bytes, one.gone * 100 / one.judged.max(1))
        });
        Some(format!(
            "of freed pieces of up to {ignored} the device freed nothing{larger}, though it acknowledged them: space of small \
             files comes back only together with its neighbours. `fstrim --minimum {} {}` leaves such pieces out, which saves \
             their commands [{}]",
            ignored.0,
            self.mount_point,
            Code::VerifySmallIgnored
        ))
    }

    /// Derives the verdict from the blocks that were read and the discards that were counted.
    pub fn verdict(&self) -> Verdict {
        let judged = counts(self.blocks.iter().filter(|block| block.is_whole).map(|block| block.after_trim));
        let (old, zeros) = (judged.old_data, judged.zeros);
        if self.failed.is_some() {
            return Verdict::Failed;
        }
        if (old + zeros) * 2 <= self.file_units {
            return Verdict::Unknown;
        }
        match (old, zeros, self.promises_zeros()) {
            // A layer above the drives may return zeros for what it did not pass on.
            _ if !self.stops.is_empty() => Verdict::Stops,
            (0, _, true) => Verdict::Arrives,
            (0, _, false) => Verdict::Consistent,
            (_, 0, true) => {
                let was_sent = self.counted().is_some_and(|counted| counted.bytes >= Bytes::from_units(old));
                if was_sent { Verdict::Ignored } else { Verdict::NotSent }
            }
            (_, _, true) => Verdict::InPart,
            (_, _, false) => Verdict::Unproven,
        }
    }
}

fn counts(found: impl Iterator<Item = Found>) -> Counts {
    let mut counts = Counts::default();
    for one in found {
        match one {
            Found::OldData => counts.old_data += 1,
            Found::Zeros => counts.zeros += 1,
            Found::Other => counts.other += 1,
            Found::Unreadable => counts.unreadable += 1,
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(found: &[(Found, u64)], promises: bool, sent_units: Option<u64>) -> Report {
        let promise = match promises {
            true => Promise::Zeros { by: "test".to_owned() },
            false => Promise::Nothing { why: "test".to_owned() },
        };
        let counted =
            sent_units.map(|units| DiscardCounts { commands: 1, merged: 0, bytes: Bytes::from_units(units) });
        let all = found.iter().flat_map(|&(found, count)| (0..count).map(move |_| found));
        let blocks = all.enumerate().map(|(unit, after_trim)| Block {
            unit: unit as u64,
            disk: 0,
            offset: unit as u64 * 4096,
            is_whole: true,
            after_delete: Found::OldData,
            after_trim,
        });
        Report {
            mount_point: "/mnt".to_owned(),
            fs_type: "ext4".to_owned(),
            device: "sda1".to_owned(),
            file_units: 100,
            extents: 1,
            disks: vec![Disk { name: "sda".to_owned(), promise, counted }],
            blocks: blocks.collect(),
            pieces: Vec::new(),
            answered: Bytes(0),
            trims: 1,
            stops: Vec::new(),
            failed: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn each_verdict_has_its_code() {
        for (verdict, code) in [
            (Verdict::Arrives, None),
            (Verdict::Consistent, None),
            (Verdict::Stops, Some("verify.trim.stops")),
            (Verdict::InPart, Some("verify.trim.in-part")),
            (Verdict::Ignored, Some("verify.trim.ignored")),
            (Verdict::NotSent, Some("verify.trim.not-sent")),
            (Verdict::Unproven, Some("verify.trim.unproven")),
            (Verdict::Failed, Some("verify.trim.failed")),
            (Verdict::Unknown, Some("verify.trim.undetermined")),
        ] {
            assert_eq!(verdict.code().map(Code::as_str), code, "{verdict:?}");
        }
    }

    #[test]
    fn small_pieces_that_are_ignored_are_told_beside_a_good_verdict() {
        let pieces = [(16, 64, 0), (256, 256, 0), (1024, 768, 0), (4096, 2048, 1536)];
        let pieces = pieces.map(|(kib, judged, gone)| Pieces { bytes: Bytes::kib(kib), judged, gone });
        let found = Report { pieces: pieces.to_vec(), ..report(&[(Found::Zeros, 100)], true, Some(100)) };
        assert_eq!(
            (found.verdict(), found.code().map(Code::as_str)),
            (Verdict::Arrives, Some("verify.trim.small-ignored"))
        );
        let said = found.of_pieces().unwrap();
        for words in [
            "pieces of up to 1 MiB the device freed nothing, of 4 MiB it freed 75 %",
            "`fstrim --minimum 1048576 /mnt`",
        ] {
            assert!(said.contains(words), "{said}");
        }
        let sound = Report { pieces: pieces[3..].to_vec(), ..found };
        assert_eq!((sound.code(), sound.of_pieces()), (None, None));
    }

    #[test]
    fn zeros_are_proof_only_if_promised() {
        let zeros = [(Found::Zeros, 100)];
        assert_eq!(report(&zeros, true, Some(100)).verdict(), Verdict::Arrives);
        assert_eq!(report(&zeros, false, Some(100)).verdict(), Verdict::Consistent);
    }

    #[test]
    fn old_data_are_a_fault_only_if_zeros_are_promised_and_the_counts_say_where() {
        let old = [(Found::OldData, 100)];
        assert_eq!(report(&old, true, Some(100)).verdict(), Verdict::Ignored);
        assert_eq!(report(&old, true, Some(10)).verdict(), Verdict::NotSent);
        assert_eq!(report(&old, true, None).verdict(), Verdict::NotSent);
        assert_eq!(report(&old, false, Some(100)).verdict(), Verdict::Unproven);
        assert_eq!(
            report(&[(Found::OldData, 1), (Found::Zeros, 99)], true, Some(100)).verdict(),
            Verdict::InPart
        );
    }

    #[test]
    fn reused_and_unreadable_blocks_are_not_judged() {
        let some = [(Found::Zeros, 51), (Found::Other, 30), (Found::Unreadable, 19)];
        let found = report(&some, true, Some(100));
        assert_eq!(found.verdict(), Verdict::Arrives);
        let counts = Counts { old_data: 0, zeros: 51, other: 30, unreadable: 19 };
        assert_eq!((found.after_trim(), found.after_delete().old_data), (counts, 100));
        assert_eq!(
            report(&[(Found::Zeros, 50), (Found::Other, 50)], true, Some(1)).verdict(),
            Verdict::Unknown
        );
        let mut ends = report(&[(Found::Zeros, 60), (Found::OldData, 40)], true, Some(100));
        ends.blocks.iter_mut().skip(60).for_each(|block| block.is_whole = false);
        assert_eq!(ends.verdict(), Verdict::Arrives, "parts of granules need not be trimmed");
        let stopped = Report { stops: vec!["dm-3".to_owned()], ..found.clone() };
        assert_eq!(stopped.verdict(), Verdict::Stops);
        let failed = Report { failed: Some("gone".to_owned()), ..found };
        assert_eq!(failed.verdict(), Verdict::Failed);
    }
}
