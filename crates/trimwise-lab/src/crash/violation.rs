//! What can be wrong after a cut, described so that it can be acted on.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// Something that does not hold after a recovery.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the messages say what is wrong and where")]
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
    /// What is left cannot be mounted, read or unmounted.
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
    /// Returns its name in JSON.
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

/// A cut after which something does not hold.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// Number of the run.
    pub run: u64,
    /// Number of the cut in the run.
    pub cut: u64,
    /// Number of events before the power cut.
    pub events: usize,
    /// Commands that were not durable then.
    pub not_durable: usize,
    /// Which of them survived.
    pub survived: String,
    /// The machine of the run.
    pub machine: String,
    /// What does not hold (the first few).
    pub broken: Vec<Broken>,
    /// Number of things that do not hold.
    pub broken_count: usize,
    /// What the device was told about the first block concerned.
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
