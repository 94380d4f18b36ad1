use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Availability;

/// How a Linux kernel carries out the mount option `discard` on ext4, by version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiscardGeneration {
    /// Inside the commit, one at a time and waited for: up to 4.12.
    CommitSerial,
    /// Submitted together inside the commit and waited for at its end: 4.13 to 5.14 (commit a015434480dc).
    CommitBatched,
    /// After the commit, from one background worker, one at a time: 5.15 (commit 55cdd0af2bc5).
    Worker,
    /// As `Worker`, but each discard runs on through the free space after its extent, to the end of the block group
    /// (`ext4_try_to_trim_range` since commit 68da4c44b994): 6.8 and later, and stable kernels from 5.15.149, 6.1.77,
    /// 6.6.16 and 6.7.4 on. A version here has no third number, so 6.1 and whatever follows count as these.
    WorkerRunningOn,
}

impl DiscardGeneration {
    /// Returns when blocks freed under `discard` may be allocated again.
    pub fn availability(self) -> Availability {
        match self {
            Self::CommitSerial | Self::CommitBatched => Availability::AfterIssue,
            Self::Worker | Self::WorkerRunningOn => Availability::AfterCommit,
        }
    }

    pub(super) fn since(self) -> &'static str {
        match self {
            Self::CommitSerial => "2.6",
            Self::CommitBatched => "4.13",
            Self::Worker => "5.15",
            Self::WorkerRunningOn => "6.1",
        }
    }

    /// Returns its kernel versions, for reports.
    pub fn kernels(self) -> &'static str {
        match self {
            Self::CommitSerial => "Linux up to 4.12",
            Self::CommitBatched => "Linux 4.13 to 5.14",
            Self::Worker => "Linux 5.15 to 6.0",
            Self::WorkerRunningOn => "Linux 6.1 and later",
        }
    }
}

/// The system that follows a policy by itself, if that is not the ext4 of a recent Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// A file system of its own, by name.
    FileSystem(&'static str),
    /// ext4 with the mount option `discard`, on these versions of Linux only.
    Linux(DiscardGeneration),
}

/// A version of Linux, which selects the mechanisms of the modelled host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinuxVersion {
    major: u32,
    minor: u32,
}

/// The last minor version of each major one; the newest has none yet.
const LAST_MINORS: [(u32, u32); 6] = [(2, 6), (3, 19), (4, 20), (5, 19), (6, 19), (7, u32::MAX)];

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "'{given}' is not a known Linux version; expected 2.6, 3.0 to 3.19, 4.0 to 4.20, 5.0 to 5.19, 6.0 to 6.19 or \
     7.0 and later"
)]
pub struct LinuxVersionError {
    pub given: String,
}

impl LinuxVersion {
    /// The long-term release that distributions use today.
    pub const TODAY: Self = Self { major: 6, minor: 12 };

    /// Returns how this version carries out `discard`.
    pub fn discard(self) -> DiscardGeneration {
        match (self.major, self.minor) {
            (0..=3, _) | (4, 0..=12) => DiscardGeneration::CommitSerial,
            (4, _) | (5, 0..=14) => DiscardGeneration::CommitBatched,
            (5, _) | (6, 0) => DiscardGeneration::Worker,
            _ => DiscardGeneration::WorkerRunningOn,
        }
    }

    /// Returns true if ext4 withholds some blocks from files: since 3.10 (27dd43854227).
    pub(crate) fn keeps_blocks(self) -> bool {
        (self.major, self.minor) >= (3, 10)
    }

    /// Returns true if new blocks of ext4 count as unwritten until their data are written: since 5.6 (244adf6426ee).
    pub fn converts_unwritten(self) -> bool {
        (self.major, self.minor) >= (5, 6)
    }

    /// Returns the number of largest transactions that fit in a journal of ext4: three instead of four since 6.11
    /// (`jbd2_journal_get_max_txn_bufs`: 6.1 has four, 6.12 has three; the exact version is assumed).
    pub(crate) fn transactions_in_journal(self) -> u64 {
        if (self.major, self.minor) >= (6, 11) { 3 } else { 4 }
    }

    /// Returns true if each processor's lists of free pages tune their length: since 6.7 (90b41691b988).
    pub(crate) fn lists_free_pages(self) -> bool {
        (self.major, self.minor) >= (6, 7)
    }

    /// Returns true if ext4 searches for a shorter window before it searches all groups: since 6.5 (`CR_BEST_AVAIL_LEN`; 6.1
    /// has none and 6.12 has it, the exact version is assumed).
    pub(crate) fn shortens_windows(self) -> bool {
        (self.major, self.minor) >= (6, 5)
    }

    /// Returns true if writers are paced and files written in batches: since 3.2 (143dfe8611a6).
    pub(crate) fn paces_writers(self) -> bool {
        (self.major, self.minor) >= (3, 2)
    }

    /// Returns true if the block layer throttles write-back in favour of reads: since 4.10 (e34cbd307477).
    pub(crate) fn throttles_writeback(self) -> bool {
        (self.major, self.minor) >= (4, 10)
    }
}

impl FromStr for LinuxVersion {
    type Err = LinuxVersionError;

    /// Parses a Linux version: `4.12`, or `6.1.5-1-amd64` as `uname -r` prints it.
    fn from_str(text: &str) -> Result<Self, LinuxVersionError> {
        let error = || LinuxVersionError { given: text.to_owned() };
        let (major, rest) = text.split_once('.').ok_or_else(error)?;
        let minor = rest.split(['.', '-']).next().unwrap_or(rest);
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| error());
        let (major, minor) = (number(major)?, number(minor)?);
        let is_known = LAST_MINORS.iter().any(|&(known, last)| known == major && minor <= last);
        let is_2_6 = major != 2 || minor == 6;
        if is_known && is_2_6 { Ok(Self { major, minor }) } else { Err(error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_version_names_its_generation() {
        for (version, generation) in [
            ("2.6.35", DiscardGeneration::CommitSerial),
            ("4.12", DiscardGeneration::CommitSerial),
            ("4.13", DiscardGeneration::CommitBatched),
            ("5.14.0-rc1", DiscardGeneration::CommitBatched),
            ("5.15", DiscardGeneration::Worker),
            ("6.0", DiscardGeneration::Worker),
            ("6.1-amd64", DiscardGeneration::WorkerRunningOn),
        ] {
            assert_eq!(version.parse().map(LinuxVersion::discard), Ok(generation), "{version}");
        }
        for bad in ["", "6", "six.one", "6.", ".5", "1.0", "2.4", "3.20", "5.99"] {
            let error = bad.parse::<LinuxVersion>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("4.0 to 4.20"), "{error}");
        }
    }

    #[test]
    fn mechanisms_come_with_the_version_that_brought_them() {
        let of = |version: &str| version.parse::<LinuxVersion>().unwrap();
        assert!(!of("3.1").paces_writers() && of("3.2").paces_writers() && of("7.3").paces_writers());
        assert!(!of("4.9").throttles_writeback() && of("4.10").throttles_writeback());
        assert!(!of("3.19").throttles_writeback());
        assert!(!of("6.4").shortens_windows() && of("6.5").shortens_windows());
    }
}
