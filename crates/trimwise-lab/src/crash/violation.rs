//! What can be wrong after a cut, described so that it can be acted on.

use std::fmt;

use serde::Serialize;

/// Something that does not hold after a recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Broken {
    /// The journal's superblock is missing.
    NoJournal {
        /// The block.
        block: u64,
    },
    /// A transaction has its commit block, but not all of its blocks.
    LogBlockMissing {
        /// The transaction.
        tid: u64,
        /// The block.
        block: u64,
        /// Where the block belongs.
        home: u64,
        /// What it holds.
        found: String,
    },
    /// A metadata block does not hold what it should.
    MetadataLost {
        /// The block.
        block: u64,
        /// What it should be.
        kind: &'static str,
        /// What it holds.
        found: String,
    },
    /// A directory's block does not hold that directory.
    DirectoryLost {
        /// The file or directory.
        path: String,
        /// The block.
        block: u64,
        /// What it holds.
        found: String,
    },
    /// A name refers to an inode that is not in use.
    NameWithoutInode {
        /// The file or directory.
        path: String,
        /// The inode.
        inode: u32,
    },
    /// A block of a live file was trimmed after it was written.
    Trimmed {
        /// The file or directory.
        path: String,
        /// The page of the file.
        page: u64,
        /// The block.
        block: u64,
    },
    /// A block of a live file holds something else.
    NotItsOwn {
        /// The file or directory.
        path: String,
        /// The page of the file.
        page: u64,
        /// The block.
        block: u64,
        /// What it holds.
        found: String,
    },
    /// Two inodes have the same block.
    TwoOwners {
        /// The block.
        block: u64,
        /// The inodes.
        inodes: [u32; 2],
    },
    /// An inode's block is free in the bitmap.
    OwnedButFree {
        /// The block.
        block: u64,
        /// The inode.
        inode: u32,
    },
    /// A file whose `fsync` returned is missing.
    SyncedFileMissing {
        /// The file or directory.
        path: String,
    },
    /// A file whose `fsync` returned is shorter than it was.
    SyncedFileShort {
        /// The file or directory.
        path: String,
        /// Bytes at the `fsync`.
        promised_bytes: u64,
        /// Bytes now.
        found_bytes: u64,
    },
    /// A page that existed at the `fsync` has no block.
    SyncedPageMissing {
        /// The file or directory.
        path: String,
        /// The page of the file.
        page: u64,
    },
    /// A page is older than at the `fsync`.
    SyncedPageOld {
        /// The file or directory.
        path: String,
        /// The page of the file.
        page: u64,
        /// The block.
        block: u64,
    },
    /// A file whose removal was durable is there again.
    RemovedFileIsBack {
        /// The file or directory.
        path: String,
    },
    /// What is left cannot be mounted, read or unmounted.
    Unusable {
        /// Why.
        error: String,
    },
    /// The file system's own checker finds faults after the recovery.
    CheckerFound {
        /// The program, and what it said.
        said: String,
    },
    /// The kernel reports faults, or breaks off.
    KernelComplains {
        /// What it said.
        said: String,
    },
    /// A write and a TRIM of the same units were in the drive at the same time, so either may come last.
    WrittenAndTrimmed {
        /// The first of these units of the drive, 4 KiB each.
        unit: u64,
        /// How many.
        units: u64,
    },
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        error: String,
    },
    /// A file has a length that it cannot have.
    WrongLength {
        /// The file.
        path: String,
        /// Its length.
        found_bytes: u64,
        /// The shortest possible.
        shortest: u64,
        /// The longest possible.
        longest: u64,
    },
    /// A file holds what it cannot hold.
    WrongBytes {
        /// The file.
        path: String,
        /// Where.
        offset_bytes: u64,
        /// What is there.
        found: String,
        /// What may be there.
        expected: String,
    },
    /// A file has a name that it cannot have.
    UnexpectedFile {
        /// The file.
        path: String,
    },
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
            Self::NameWithoutInode { .. }
            | Self::SyncedFileMissing { .. }
            | Self::SyncedFileShort { .. }
            | Self::SyncedPageMissing { .. }
            | Self::RemovedFileIsBack { .. }
            | Self::Unusable { .. }
            | Self::CheckerFound { .. }
            | Self::KernelComplains { .. }
            | Self::WrittenAndTrimmed { .. }
            | Self::Unreadable { .. }
            | Self::WrongLength { .. }
            | Self::WrongBytes { .. }
            | Self::UnexpectedFile { .. } => None,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJournal { block } => write!(f, "the journal's superblock (block {block}) is lost"),
            Self::LogBlockMissing { tid, block, home, found } => write!(
                f,
                "transaction {tid} has a commit block, but log block {block} (for block {home}) holds {found}"
            ),
            Self::MetadataLost { block, kind, found } => {
                write!(f, "block {block}, {kind}, holds {found}")
            }
            Self::DirectoryLost { path, block, found } => {
                write!(f, "block {block} of directory '{path}' holds {found}")
            }
            Self::NameWithoutInode { path, inode } => {
                write!(f, "'{path}' refers to inode {inode}, which is not in use")
            }
            Self::Trimmed { path, page, block } => {
                write!(f, "page {page} of '{path}' (block {block}) was trimmed after it was written")
            }
            Self::NotItsOwn { path, page, block, found } => {
                write!(f, "page {page} of '{path}' (block {block}) holds {found}")
            }
            Self::TwoOwners { block, inodes: [a, b] } => {
                write!(f, "block {block} belongs to inode {a} and to inode {b}")
            }
            Self::OwnedButFree { block, inode } => {
                write!(f, "block {block} of inode {inode} is free in the bitmap")
            }
            Self::SyncedFileMissing { path } => write!(f, "'{path}' is missing after its fsync returned"),
            Self::SyncedFileShort { path, promised_bytes, found_bytes } => {
                write!(
                    f,
                    "'{path}' has {found_bytes} bytes; it had {promised_bytes} when its fsync was called"
                )
            }
            Self::SyncedPageMissing { path, page } => {
                write!(f, "page {page} of '{path}' has no block after its fsync returned")
            }
            Self::SyncedPageOld { path, page, block } => {
                write!(f, "page {page} of '{path}' (block {block}) is older than at its fsync")
            }
            Self::RemovedFileIsBack { path } => write!(f, "'{path}' is back after its removal was durable"),
            Self::Unusable { error } => write!(f, "what is left cannot be used: {error}"),
            Self::CheckerFound { said } => write!(f, "the checker finds: {said}"),
            Self::KernelComplains { said } => write!(f, "the kernel says: {said}"),
            Self::WrittenAndTrimmed { unit, units } => {
                write!(f, "units {unit} to {} were written and trimmed at the same time", unit + units - 1)
            }
            Self::Unreadable { path, error } => write!(f, "'{path}' cannot be read: {error}"),
            Self::WrongLength { path, found_bytes, shortest, longest } if shortest == longest => {
                write!(f, "'{path}' has {found_bytes} bytes, expected {shortest}")
            }
            Self::WrongLength { path, found_bytes, shortest, longest } => {
                write!(f, "'{path}' has {found_bytes} bytes, expected {shortest} to {longest}")
            }
            Self::WrongBytes { path, offset_bytes, found, expected } => {
                write!(f, "'{path}' holds at {offset_bytes} {found}, expected {expected}")
            }
            Self::UnexpectedFile { path } => write!(f, "'{path}' exists, though no file had that name"),
        }
    }
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
