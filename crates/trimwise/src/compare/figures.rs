//! The figures that are a workload's own.

use serde::{Deserialize, Serialize};

use super::watch::Issue;
use crate::workload::own::OwnFigures;
use crate::workload::stage::Done;
use crate::workload::postmark::PostmarkFigures;

/// What a workload's policies are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The duration of the whole run.
    #[default]
    Total,
    /// The fsync after the removal.
    Fsync,
    /// The synchronous write that needs a block.
    Write,
}

impl Measure {
    /// The heading of its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Fsync => "fsync",
            Self::Write => "write",
        }
    }
}

/// The figures of a workload, under its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadFigures {
    /// PostMark.
    Postmark(PostmarkFigures),
    /// The append benchmark: a fragmented file is removed.
    Append(AppendFigures),
    /// A write on a full file system.
    FullWrite(FullWriteFigures),
    /// A named application, or a fio job.
    Program(Done),
    /// A workload of the caller's.
    Own(OwnFigures),
}

/// The figures of the append benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendFigures {
    /// Bytes of an append.
    pub append_bytes: u64,
    /// Length at which the file was complete.
    pub file_bytes: u64,
    /// Appends that it was made of.
    pub pieces: u64,
    /// The removal.
    pub unlink_ns: u64,
    /// The fsync behind it.
    pub fsync_ns: u64,
    /// The TRIMs of the removed file; `None` on a real directory, which does not tell.
    pub trims: Option<RemovalTrims>,
}

/// The figures of a write on a full file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullWriteFigures {
    /// Bytes of an append to the files of which one is removed.
    pub append_bytes: u64,
    /// Length at which such a file was complete.
    pub file_bytes: u64,
    /// The fsync between the removal and the write, if there was one.
    pub fsync_ns: Option<u64>,
    /// The write of one block, and its fsync.
    pub write_ns: u64,
    /// The TRIMs of the removed file; `None` on a real directory, which does not tell.
    pub trims: Option<RemovalTrims>,
}

/// How the TRIMs of a removed file were issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalTrims {
    /// Commands.
    pub commands: u64,
    /// From the end of the commit until the last was acknowledged; 0 if there were none.
    pub acknowledged_ns: u64,
}

impl From<Issue> for RemovalTrims {
    fn from(issue: Issue) -> Self {
        Self { commands: issue.commands, acknowledged_ns: issue.time.as_nanos() }
    }
}
