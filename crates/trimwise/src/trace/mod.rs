//! Block traces: the requests of a host to a drive, and the frees, allocations and commits of its file system.
//!
//! A trace is a [`Header`] and a stream of [`Record`]s in time order. A trace of any format is read through [`Source`],
//! one record at a time, so memory does not depend on its length. [`open`] detects the format. [`format`](mod@format)
//! is trimwise's own; the other modules read those of others.
//!
//! A trace holds no file names and no contents, only addresses, sizes and times.
//!
//! A trace ends where it is damaged first: cut off, a line or record that is wrong, bytes that cannot be decompressed or
//! read. What comes before is used, and the result says where that was. If not one record comes before, it is an error.

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

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Reads sectors of the drive.
    Read,
    /// Writes sectors of the drive.
    Write,
    /// Declares sectors unneeded: TRIM, UNMAP, Deallocate.
    Discard,
    /// Empties the drive's write cache; it has no sectors.
    Flush,
}

/// One request of a host to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Operation of the request.
    pub kind: RequestKind,
    /// Sectors that the request covers.
    pub sectors: SectorRange,
    /// True if a task waits for the request (`REQ_SYNC`): reads, log writes, direct I/O.
    pub sync: bool,
    /// True if a write is durable when it completes (`REQ_FUA`).
    pub fua: bool,
    /// True if the file system marks the request as metadata (`REQ_META`).
    pub meta: bool,
    /// Time from issue to completion; `None` if the completion was not seen.
    pub latency: Option<SimDuration>,
}

/// Content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was issued to the drive.
    Request(Request),
    /// The file system freed these sectors, in the transaction that is running.
    Freed(SectorRange),
    /// The file system allocated these sectors.
    Allocated(SectorRange),
    /// The running transaction became durable.
    Committed,
    /// Events were lost here; their number.
    Lost(u64),
    /// The recording begins. The records before it prepared the drive; see [`Header::has_prelude`].
    Begun,
}

/// An event with its time since the start of the trace and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time since the start of the trace.
    pub at: SimTime,
    /// Index of the device in [`Header::devices`].
    pub device: u32,
    /// The event itself.
    pub event: Event,
}

/// A device in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDevice {
    /// Name of the device where it was recorded, such as `8,16` or `nvme0n1`.
    pub name: String,
    /// Size of the device; `None` if the format does not say.
    pub capacity_bytes: Option<u64>,
    /// Model that the drive reports.
    pub model: Option<String>,
}

/// A file system in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFileSystem {
    /// Type of the file system: `ext4`, `xfs`, `btrfs`.
    pub kind: String,
    /// Size of the file system.
    pub size_bytes: u64,
    /// Bytes that were free when recording began.
    pub free_bytes: u64,
    /// Mount options of the file system.
    pub options: String,
    /// True if the file system's frees, allocations and commits are in the trace.
    pub is_traced: bool,
}

/// Properties of a trace that are known before its first record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Origin of the trace, such as `trimwise record 0.1.0` or `msr`.
    pub made_by: String,
    /// The devices, in the order of their index.
    pub devices: Vec<TraceDevice>,
    /// The file system whose frees are recorded.
    pub file_system: Option<TraceFileSystem>,
    /// Release of the host's kernel.
    pub kernel: Option<String>,
    /// True if the trace starts with a new drive, and with records before [`Event::Begun`] that fill it. A replay takes
    /// the drive's state from them, and leaves them out of its counts.
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

/// Reasons why a trace cannot be read on.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The text or the bytes do not follow the format.
    #[error("{place}: {what}; expected {expected}")]
    Malformed {
        /// Place in the trace: `line 17`, or `record 812, byte 10240`.
        place: String,
        what: String,
        expected: String,
    },
    /// The trace ends within a record, or without its end mark: all records before were read.
    #[error("{place}: the trace is cut off")]
    Truncated {
        /// Place in the trace: `line 17`, or `record 812, byte 10240`.
        place: String,
    },
    /// The file could not be read.
    #[error("{place}: {source}")]
    Io {
        /// Place in the trace: `line 17`, or `record 812, byte 10240`.
        place: String,
        source: std::io::Error,
    },
}

/// Numbers of requests that are in a trace and cannot be replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Requests of no sectors.
    pub empty: u64,
    /// Requests that are neither read, write, discard nor flush, or of which the trace does not say.
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

/// A trace that is being read.
pub trait Source {
    /// Returns the properties known before the first record. A format that names devices as it goes adds them to the
    /// header when they first appear.
    fn header(&self) -> &Header;

    /// Returns the numbers of requests that were left out so far.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }

    /// Returns the next record, in time order; `None` at the end.
    ///
    /// # Errors
    /// [`TraceError`] if the trace cannot be read on; there are no more records then.
    fn next(&mut self) -> Result<Option<Record>, TraceError>;
}
