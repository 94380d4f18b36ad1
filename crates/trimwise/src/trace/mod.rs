//! Block traces: the requests of a host to a drive, and the frees, allocations and commits of its file system.
//!
//! A trace is a [`Header`] and a stream of [`Record`]s in time order. A trace of any format is read through [`Source`],
//! one record at a time, so memory does not depend on its length. [`open`] detects the format. [`format`](mod@format)
//! is trimwise's own; the other modules read those of others.
//!
//! A trace holds no file names and no contents, only addresses, sizes and times.
//!
//! A damaged trace ends where the damage begins: cut off, a line or record that is wrong, bytes that cannot be
//! decompressed or read. The part before that is used, and the result says where it ends. If not one record comes
//! before, it is an error.

pub mod blktrace;
mod figures;
mod fio;
mod fixed;
pub mod format;
pub(crate) mod input;
mod open;
mod rows;
pub(crate) mod survey;
#[cfg(test)]
mod tests;

pub use figures::{Knows, PaceKind, ReplayFigures};
pub use open::{Format, Part, open, open_parts};
pub use survey::{ConvertError, Converted, KindFigures, TraceInfo, convert, survey};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::{SectorRange, SimDuration, SimTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    Read,
    Write,
    /// Declares sectors unneeded: TRIM, UNMAP, Deallocate.
    Discard,
    /// Empties the drive's write cache. It has no sectors.
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: RequestKind,
    pub sectors: SectorRange,
    /// A task waits for the request (`REQ_SYNC`): reads, log writes, direct I/O.
    pub sync: bool,
    /// A write that is durable when it completes (`REQ_FUA`).
    pub fua: bool,
    /// The file system marks the request as metadata (`REQ_META`).
    pub meta: bool,
    /// Time from issue to completion; `None` if the completion was not seen.
    pub latency: Option<SimDuration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Request(Request),
    /// The file system freed these sectors in the running transaction.
    Freed(SectorRange),
    Allocated(SectorRange),
    Committed,
    /// This many events were lost here.
    Lost(u64),
    /// The recording begins. The records before it prepared the drive; see [`Header::has_prelude`].
    Begun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: SimTime,
    /// Index of the device in [`Header::devices`].
    pub device: u32,
    pub event: Event,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDevice {
    /// Name of the device where it was recorded, such as `8,16` or `nvme0n1`.
    pub name: String,
    /// Size of the device; `None` if the format does not say.
    pub capacity_bytes: Option<u64>,
    pub model: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFileSystem {
    pub kind: String,
    pub size_bytes: u64,
    /// Bytes that were free when recording began.
    pub free_bytes: u64,
    pub options: String,
    /// The trace has the file system's frees, allocations and commits.
    pub is_traced: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Origin of the trace, such as `trimwise record 0.1.0` or `msr`.
    pub made_by: String,
    pub devices: Vec<TraceDevice>,
    pub file_system: Option<TraceFileSystem>,
    pub kernel: Option<String>,
    /// The trace starts with a new drive, and with records before [`Event::Begun`] that fill it. A replay takes the
    /// drive's state from them, and leaves them out of its counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_prelude: bool,
}

impl Header {
    /// Returns true if the format has neither discards nor frees.
    pub fn never_discards(&self) -> bool {
        const NEVER: [&str; 10] = [
            "msr",
            "systor",
            "alibaba",
            "tencent",
            "spc",
            "cloudphysics",
            "vscsi",
            "mqsim",
            "etw",
            "oraclegeneral",
        ];
        NEVER.contains(&self.made_by.as_str())
    }

    pub(crate) fn device_name(&self, device: u32) -> String {
        match self.devices.get(device as usize) {
            Some(found) if !found.name.is_empty() => format!("device {device} ({})", found.name),
            _ => format!("device {device}"),
        }
    }
}

#[derive(Debug, Error)]
pub enum TraceError {
    #[error("{place}: {what}; expected {expected}")]
    Malformed {
        /// Place in the trace: `line 17`, or `record 812, byte 10240`.
        place: String,
        what: String,
        expected: String,
    },
    /// The trace ends within a record, or without its end mark. All records before were read.
    #[error("{place}: the trace is cut off")]
    Truncated { place: String },
    #[error("{place}: {source}")]
    Io { place: String, source: std::io::Error },
}

/// Numbers of requests in a trace that cannot be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub empty: u64,
    /// Requests that are neither read, write, discard nor flush, or whose kind the trace does not tell.
    pub other: u64,
}

impl LeftOut {
    /// Describes the requests of a trace that has no others.
    pub(crate) fn of_all(self) -> String {
        match self {
            Self { empty: 0, other: 0 } => String::new(),
            Self { empty, other } => {
                format!(
                    " that can be replayed: {empty} are of no sectors, and {other} of other or unknown kinds"
                )
            }
        }
    }
}

pub trait Source {
    /// Returns the properties known before the first record. A format that names devices as it goes adds them to the
    /// header when they first appear.
    fn header(&self) -> &Header;

    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }

    /// Returns the next record, in time order; `None` at the end. After an error there are no more records.
    fn next(&mut self) -> Result<Option<Record>, TraceError>;
}
