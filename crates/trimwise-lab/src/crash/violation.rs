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
}

impl Broken {
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
            | Self::RemovedFileIsBack { .. } => None,
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
