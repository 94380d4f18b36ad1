use thiserror::Error;

use crate::block::{BlockError, PortError};
use crate::ssd::ConfigError;
use crate::trace::{LeftOut, TraceError};
use crate::units::{Bytes, SECTOR_BYTES, SectorRange};

#[derive(Debug, Error)]
pub enum ReplayError {
    #[error(transparent)]
    Device(#[from] ConfigError),
    #[error("{0}")]
    Trace(#[from] TraceError),
    #[error(
        "record {record}: {} sectors from sector {} lie beyond a drive of {size}, and need one of {} bytes; expected a larger \
         drive, or :wrap or :scale after the trace's name, which map addresses onto it",
        .sectors.sectors, .sectors.first.0, (.sectors.first.0 + .sectors.sectors) * SECTOR_BYTES
    )]
    Beyond { record: u64, sectors: SectorRange, size: Bytes },
    /// Addresses were to be scaled, but the trace does not say how large its device was.
    #[error(
        "the trace does not say how large its device was, so its addresses cannot be scaled; expected :wrap"
    )]
    NoSize,
    #[error(
        "record {record}: a request to {second}, after requests to {first}; expected one of them, :device=N behind \
         the trace's name (`trimwise trace info` shows the numbers), or :device=all, which puts them on one drive"
    )]
    SeveralDevices { record: u64, first: String, second: String },
    /// The trace has no records of the chosen device.
    #[error("the trace has no requests{of}{}", .left_out.of_all())]
    Nothing {
        /// The chosen device as part of a sentence; empty if none was chosen.
        of: String,
        left_out: LeftOut,
    },
    #[error(
        "the recording is missing: the trace ends within its prelude, the requests that filled the drive beforehand; \
         expected a whole trace"
    )]
    OnlyPrelude,
    #[error(
        "the trace has neither discards nor frees, so every policy does the same as off on it; expected `trimwise compare \
         --policy off`, or a trace with frees (`trimwise record`) or discards (blktrace of a host that sends them)"
    )]
    NothingToTrim,
    #[error("record {record}: {source}")]
    Port { record: u64, source: PortError },
    /// A device failed while data were written that the trace reads first.
    #[error("before the first record, while writing what the trace reads first: {source}")]
    Before { source: BlockError },
    #[error("record {record}: {source}")]
    Block { record: u64, source: BlockError },
    /// A defect in the model: an invariant does not hold after the run.
    #[error("{device}, policy {policy}: the audit after the replay failed: {what}")]
    Audit { device: String, policy: String, what: String },
    #[error("interrupted")]
    Interrupted,
}
