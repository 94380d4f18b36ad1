//! What Linux itself does with ext4's mount option `discard`: four generations.

use std::str::FromStr;

use thiserror::Error;

use super::Availability;

/// How a Linux kernel carries out the mount option `discard` on ext4, by version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardGeneration {
    /// Inside the commit, one at a time and waited for: up to 4.12.
    CommitSerial,
    /// Submitted together inside the commit and waited for at its end: 4.13 to 5.14 (commit a015434480dc).
    CommitBatched,
    /// After the commit, from one background worker, one at a time: 5.15 (commit 55cdd0af2bc5).
    Worker,
    /// The same, and each runs on through the free space behind its extent, to the end of the block group: from 6.1
    /// (`ext4_try_to_trim_range` as of commit 45e4ab320c9b, which is in 6.6 and in 6.1.56).
    WorkerRunningOn,
}

impl DiscardGeneration {
    /// When blocks freed under `discard` may be allocated again.
    pub fn availability(self) -> Availability {
        match self {
            Self::CommitSerial | Self::CommitBatched => Availability::AfterIssue,
            Self::Worker | Self::WorkerRunningOn => Availability::AfterCommit,
        }
    }

    /// The generation of a Linux version.
    pub fn of_linux(major: u32, minor: u32) -> Self {
        match (major, minor) {
            (0..=3, _) | (4, 0..=12) => Self::CommitSerial,
            (4, _) | (5, 0..=14) => Self::CommitBatched,
            (5, _) | (6, 0) => Self::Worker,
            _ => Self::WorkerRunningOn,
        }
    }

    /// The kernels meant, for reports.
    pub fn kernels(self) -> &'static str {
        match self {
            Self::CommitSerial => "Linux up to 4.12",
            Self::CommitBatched => "Linux 4.13 to 5.14",
            Self::Worker => "Linux 5.15 to 6.0",
            Self::WorkerRunningOn => "Linux 6.1 and later",
        }
    }
}

/// A Linux version that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("'{given}' is not accepted; expected a Linux version such as 2.6, 4.12 or 6.1")]
pub struct LinuxVersionError {
    /// What was written.
    pub given: String,
}

impl FromStr for DiscardGeneration {
    type Err = LinuxVersionError;

    /// Reads a Linux version: `4.12`, or `6.1.5` as `uname -r` has it.
    fn from_str(text: &str) -> Result<Self, LinuxVersionError> {
        let error = || LinuxVersionError { given: text.to_owned() };
        let (major, rest) = text.split_once('.').ok_or_else(error)?;
        let minor = rest.split(['.', '-']).next().unwrap_or(rest);
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| error());
        Ok(Self::of_linux(number(major)?, number(minor)?))
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
            assert_eq!(version.parse(), Ok(generation), "{version}");
        }
        for bad in ["", "6", "six.one", "6.", ".5"] {
            assert!(bad.parse::<DiscardGeneration>().is_err(), "{bad}");
        }
    }
}
