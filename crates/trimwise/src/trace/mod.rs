//! Block traces: what a host asked of a drive, and what its file system freed, allocated and committed meanwhile.
//!
//! A trace is a [`Header`] and a stream of [`Record`]s in the order of their time. Whatever its format, it is read
//! through [`Source`], one record at a time, so memory does not depend on its length. [`open`] finds out the format.
//! [`format`](mod@format) is trimwise's own; the other modules read those of others.
//!
//! A trace holds no file names and no contents, only addresses, sizes and times.

pub mod blktrace;
mod fio;
pub mod format;
mod hosted;
mod input;
mod on_device;
mod open;
mod oracle;
pub mod replay;
mod rows;
mod survey;
#[cfg(test)]
mod tests;

pub use on_device::{DeviceReplay, PreludeReplay, replay_on};
pub use open::{Format, open};
pub use survey::{Converted, KindFigures, TraceInfo, convert, survey};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::{SectorRange, SimDuration, SimTime};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Reads sectors.
    Read,
    /// Writes sectors.
    Write,
    /// Declares sectors unneeded: TRIM, UNMAP, Deallocate.
    Discard,
    /// Empties the drive's write cache; it has no sectors.
    Flush,
}

/// One request of a host to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub kind: RequestKind,
    /// Its sectors.
    pub sectors: SectorRange,
    /// Whether a task waits for it (`REQ_SYNC`): reads, log writes, direct I/O.
    pub sync: bool,
    /// Whether a write is durable when it completes (`REQ_FUA`).
    pub fua: bool,
    /// Whether the file system marks it as metadata (`REQ_META`).
    pub meta: bool,
    /// Time from issue to completion; `None` if the completion was not seen.
    pub latency: Option<SimDuration>,
}

/// What happened.
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
    /// This many events were lost here.
    Lost(u64),
    /// The recording begins. The records before it made the drive what it was then; see [`Header::has_prelude`].
    Begun,
}

/// An event with its time since the start of the trace and the device that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When.
    pub at: SimTime,
    /// Index into [`Header::devices`].
    pub device: u32,
    /// What.
    pub event: Event,
}

/// A device in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceDevice {
    /// Its name where it was recorded, such as `8,16` or `nvme0n1`.
    pub name: String,
    /// Its size; `None` if the format does not say.
    pub capacity_bytes: Option<u64>,
    /// Its model, as the drive says.
    pub model: Option<String>,
}

/// A file system in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFileSystem {
    /// `ext4`, `xfs`, `btrfs`.
    pub kind: String,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes that were free when recording began.
    pub free_bytes: u64,
    /// Its mount options.
    pub options: String,
    /// Whether its frees, allocations and commits are in the trace.
    pub is_traced: bool,
}

/// What is known of a trace before its first record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What made it, such as `trimwise record 0.1.0` or `msr`.
    pub made_by: String,
    /// The devices, in the order of their index.
    pub devices: Vec<TraceDevice>,
    /// The file system whose frees are recorded.
    pub file_system: Option<TraceFileSystem>,
    /// The host's kernel.
    pub kernel: Option<String>,
    /// Whether the trace starts with a new drive, and with records before [`Event::Begun`] that fill it. A replay takes
    /// the drive's state from them, and counts nothing of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_prelude: bool,
}

impl Header {
    /// Whether its format has neither discards nor frees.
    pub(crate) fn never_discards(&self) -> bool {
        ["msr", "alibaba", "tencent", "mqsim", "oraclegeneral"].contains(&self.made_by.as_str())
    }

    /// The name of a device, for messages.
    pub(crate) fn device_name(&self, device: u32) -> String {
        match self.devices.get(device as usize) {
            Some(found) if !found.name.is_empty() => format!("device {device} ({})", found.name),
            _ => format!("device {device}"),
        }
    }
}

/// Why a trace cannot be read on.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The text or the bytes do not follow the format.
    #[error("{place}: {what}; expected {expected}")]
    Malformed {
        /// `line 17`, or `record 812, byte 10240`.
        place: String,
        /// What is there.
        what: String,
        /// What would be accepted.
        expected: String,
    },
    /// The trace ends within a record, or without its end mark: all records before were read.
    #[error("{place}: the trace is cut off")]
    Truncated {
        /// As above.
        place: String,
    },
    /// The file could not be read.
    #[error("{place}: {source}")]
    Io {
        /// As above.
        place: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A trace that is being read.
pub trait Source {
    /// What is known before the first record. A format that names devices as it goes adds them to the header when they
    /// first appear.
    fn header(&self) -> &Header;

    /// The next record, in the order of time; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`TraceError`]; after one, there are no more records.
    fn next(&mut self) -> Result<Option<Record>, TraceError>;
}
