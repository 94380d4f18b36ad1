//! Faults after a cut, described so that they can be acted on.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Broken {
    #[error("the journal's superblock (block {block}) is lost")]
    NoJournal { block: u64 },
    #[error("transaction {tid} has a commit block, but log block {block} (for block {home}) holds {found}")]
    LogBlockMissing { tid: u64, block: u64, home: u64, found: String },
    #[error("block {block}, {kind}, holds {found}")]
    MetadataLost { block: u64, kind: &'static str, found: String },
    #[error("block {block} of directory '{path}' holds {found}")]
    DirectoryLost { path: String, block: u64, found: String },
    #[error("'{path}' refers to inode {inode}, which is not in use")]
    NameWithoutInode { path: String, inode: u32 },
    #[error("page {page} of '{path}' (block {block}) was trimmed after it was written")]
    Trimmed { path: String, page: u64, block: u64 },
    #[error("page {page} of '{path}' (block {block}) holds {found}")]
    NotItsOwn { path: String, page: u64, block: u64, found: String },
    #[error("block {block} belongs to inode {} and to inode {}", .inodes[0], .inodes[1])]
    TwoOwners { block: u64, inodes: [u32; 2] },
    #[error("block {block} of inode {inode} is free in the bitmap")]
    OwnedButFree { block: u64, inode: u32 },
    #[error("'{path}' is missing after its fsync returned")]
    SyncedFileMissing { path: String },
    #[error("'{path}' has {found_bytes} bytes; it had {promised_bytes} when its fsync was called")]
    SyncedFileShort { path: String, promised_bytes: u64, found_bytes: u64 },
    #[error("page {page} of '{path}' has no block after its fsync returned")]
    SyncedPageMissing { path: String, page: u64 },
    #[error("page {page} of '{path}' (block {block}) is older than at its fsync")]
    SyncedPageOld { path: String, page: u64, block: u64 },
    #[error("'{path}' is back after its removal was durable")]
    RemovedFileIsBack { path: String },
    /// The file system cannot be mounted, read or unmounted.
    #[error("what is left cannot be used: {error}")]
    Unusable { error: String },
    #[error("the checker finds: {said}")]
    CheckerFound { said: String },
    #[error("the kernel says: {said}")]
    KernelComplains { said: String },
    /// A write and a TRIM of the same units were in the drive at the same time, so either may come last.
    #[error("units {unit} to {} were written and trimmed at the same time", .unit + .units - 1)]
    WrittenAndTrimmed {
        /// The first of these units of the drive, 4 KiB each.
        unit: u64,
        units: u64,
    },
    #[error("'{path}' cannot be read: {error}")]
    Unreadable { path: String, error: String },
    #[error("'{path}' has {found_bytes} bytes, expected {}", between(*.shortest, *.longest))]
    WrongLength { path: String, found_bytes: u64, shortest: u64, longest: u64 },
    #[error("'{path}' holds {found} at byte {offset_bytes}, expected {expected}")]
    WrongBytes { path: String, offset_bytes: u64, found: String, expected: String },
    #[error("'{path}' exists, though no file had that name")]
    UnexpectedFile { path: String },
}

impl Broken {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoJournal { .. } => "no-journal",
            Self::LogBlockMissing { .. } => "log-block-missing",
            Self::MetadataLost { .. } => "metadata-lost",
            Self::DirectoryLost { .. } => "directory-lost",
            Self::NameWithoutInode { .. } => "name-without-inode",
            Self::Trimmed { .. } => "trimmed",
            Self::NotItsOwn { .. } => "not-its-own",
            Self::TwoOwners { .. } => "two-owners",
            Self::OwnedButFree { .. } => "owned-but-free",
            Self::SyncedFileMissing { .. } => "synced-file-missing",
            Self::SyncedFileShort { .. } => "synced-file-short",
            Self::SyncedPageMissing { .. } => "synced-page-missing",
            Self::SyncedPageOld { .. } => "synced-page-old",
            Self::RemovedFileIsBack { .. } => "removed-file-is-back",
            Self::Unusable { .. } => "unusable",
            Self::CheckerFound { .. } => "checker-found",
            Self::KernelComplains { .. } => "kernel-complains",
            Self::WrittenAndTrimmed { .. } => "written-and-trimmed",
            Self::Unreadable { .. } => "unreadable",
            Self::WrongLength { .. } => "wrong-length",
            Self::WrongBytes { .. } => "wrong-bytes",
            Self::UnexpectedFile { .. } => "unexpected-file",
        }
    }

    /// Returns the block concerned, if there is one.
    pub fn block(&self) -> Option<u64> {
        match self {
            Self::NoJournal { block }
            | Self::LogBlockMissing { block, .. }
            | Self::MetadataLost { block, .. }
            | Self::DirectoryLost { block, .. }
            | Self::Trimmed { block, .. }
            | Self::NotItsOwn { block, .. }
            | Self::TwoOwners { block, .. }
            | Self::OwnedButFree { block, .. }
            | Self::SyncedPageOld { block, .. } => Some(*block),
            _ => None,
        }
    }
}

fn between(shortest: u64, longest: u64) -> String {
    if shortest == longest { shortest.to_string() } else { format!("{shortest} to {longest}") }
}

/// A cut with a fault.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    pub run: u64,
    pub cut: u64,
    /// Number of events before the power cut.
    pub events: usize,
    pub not_durable: usize,
    /// Which of those commands survived.
    pub survived: String,
    pub machine: String,
    /// The first few faults.
    pub broken: Vec<Broken>,
    /// Number of all faults.
    pub broken_count: usize,
    /// The device's commands on the first block concerned.
    pub history: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "run {}, cut {}, after event {}: {} ({} commands were not durable)",
            self.run, self.cut, self.events, self.survived, self.not_durable
        )?;
        writeln!(f, "  on {}", self.machine)?;
        for broken in &self.broken {
            writeln!(f, "  {broken}")?;
        }
        let more = self.broken_count - self.broken.len();
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        for line in &self.history {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}
