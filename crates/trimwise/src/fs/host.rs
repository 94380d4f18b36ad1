//! The host around the file system: memory, write-back, processor costs, and which Linux it runs.

use std::str::FromStr;

use thiserror::Error;

use crate::block::QueueConfig;
use crate::policy::Availability;
use crate::units::{Bytes, SimDuration};

/// How a Linux kernel carries out the mount option `discard` on ext4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardGeneration {
    /// Inside the commit, one at a time and waited for: up to 4.12.
    CommitSerial,
    /// Submitted together inside the commit and waited for at its end: 4.13 to 5.14 (commit a015434480dc).
    CommitBatched,
    /// After the commit, from one background worker, one at a time: from 5.15 (commit 55cdd0af2bc5).
    Worker,
}

impl DiscardGeneration {
    /// When blocks freed under `discard` may be allocated again.
    pub fn availability(self) -> Availability {
        match self {
            Self::CommitSerial | Self::CommitBatched => Availability::AfterIssue,
            Self::Worker => Availability::AfterCommit,
        }
    }

    /// The generation of a Linux version.
    pub fn of_linux(major: u32, minor: u32) -> Self {
        match (major, minor) {
            (0..=3, _) | (4, 0..=12) => Self::CommitSerial,
            (4, _) | (5, 0..=14) => Self::CommitBatched,
            _ => Self::Worker,
        }
    }

    /// The kernels meant, for reports.
    pub fn kernels(self) -> &'static str {
        match self {
            Self::CommitSerial => "Linux up to 4.12",
            Self::CommitBatched => "Linux 4.13 to 5.14",
            Self::Worker => "Linux 5.15 and later",
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

/// Processor time of the file system's code paths.
///
/// What is charged is the caller's own time; the kernel's threads are charged nothing (they run on another
/// core). Set all to zero to compare with a guest in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCosts {
    /// Entering and leaving the kernel.
    pub syscall: SimDuration,
    /// Putting one page into the page cache: allocation, delayed-allocation accounting, journal checks.
    pub page_write: SimDuration,
    /// Finding one page in the page cache.
    pub page_read: SimDuration,
    /// Copying 4 KiB between user and kernel, or through a stdio buffer.
    pub copy_page: SimDuration,
    /// Path lookup and opening an existing file, and closing it.
    pub open: SimDuration,
    /// What making a file costs beyond that: inode allocation, directory entry.
    pub create: SimDuration,
    /// Removing a name and its inode.
    pub unlink: SimDuration,
    /// Dropping one page of a removed file.
    pub page_truncate: SimDuration,
}

/// One host's configuration. Every number has its reason beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Memory that the page cache may fill.
    pub memory: Bytes,
    /// Share of the memory that may be dirty before write-back starts (`dirty_background_ratio`, default 10).
    pub dirty_background_percent: u64,
    /// Share of the memory beyond which writers are held (`dirty_ratio`, default 20).
    pub dirty_percent: u64,
    /// Age at which a dirty file is written (`dirty_expire_centisecs`, default 30 s).
    pub dirty_expire: SimDuration,
    /// How often write-back looks for expired files (`dirty_writeback_centisecs`, default 5 s).
    pub writeback_interval: SimDuration,
    /// Largest read-ahead (`read_ahead_kb`, default 128 KiB).
    pub read_ahead: Bytes,
    /// Processor time.
    pub cpu: CpuCosts,
    /// Block layer.
    pub queue: QueueConfig,
    /// How `discard` works in this kernel.
    pub discard: DiscardGeneration,
}

impl HostConfig {
    /// A desktop of today: 8 GiB, Linux 6.
    pub fn modern() -> Self {
        Self {
            memory: Bytes::gib(8),
            dirty_background_percent: 10,
            dirty_percent: 20,
            dirty_expire: SimDuration::from_secs(30),
            writeback_interval: SimDuration::from_secs(5),
            read_ahead: Bytes::kib(128),
            cpu: CpuCosts {
                syscall: SimDuration::from_nanos(250),
                page_write: SimDuration::from_nanos(600),
                page_read: SimDuration::from_nanos(150),
                copy_page: SimDuration::from_nanos(350),
                open: SimDuration::from_nanos(3_000),
                create: SimDuration::from_nanos(12_000),
                unlink: SimDuration::from_nanos(15_000),
                page_truncate: SimDuration::from_nanos(100),
            },
            queue: QueueConfig { max_request: Bytes::kib(1280), ..QueueConfig::default() },
            discard: DiscardGeneration::Worker,
        }
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
            ("6.1-amd64", DiscardGeneration::Worker),
        ] {
            assert_eq!(version.parse(), Ok(generation), "{version}");
        }
        for bad in ["", "6", "six.one", "6.", ".5"] {
            assert!(bad.parse::<DiscardGeneration>().is_err(), "{bad}");
        }
    }
}
