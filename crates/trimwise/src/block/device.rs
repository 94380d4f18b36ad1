//! The narrow block trait: how a device test sees a model in virtual time or a real device.
//!
//! A test submits operations, as many at a time as its queue depth says, and takes their completions one by one. So one
//! loop in one task keeps a queue full, and no host of the trait needs threads or a runtime: the model waits in virtual
//! time, a real device blocks in the call that awaits a completion.

use thiserror::Error;

use crate::content::{Content, Stored};
use crate::units::{Bytes, Lpn, SectorRange, SimDuration, SimTime, UnitRange};

/// Why a block operation failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockError {
    /// The range reaches beyond the end of the device.
    #[error("units {} to {} lie outside a device of {size_units} units", .range.start.0, .range.end().0)]
    OutOfRange {
        /// The range of the operation.
        range: UnitRange,
        /// The device's size.
        size_units: u64,
    },
    /// The operation covers neither whole units nor a part of one.
    #[error("{} sectors from sector {}: expected whole units of 8 sectors, or a part of one unit",
            .0.sectors, .0.first.0)]
    Unaligned(SectorRange),
    /// The device cannot do this.
    #[error("{0}")]
    Unsupported(String),
    /// The user interrupted the test.
    #[error("interrupted")]
    Interrupted,
    /// An error from a real device.
    #[error("{0}")]
    Other(String),
}

/// What a device reports about itself. A test may use it to choose its operations, never as a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name: a profile's name, or a path.
    pub name: String,
    /// Its size, in whole units.
    pub size_units: u64,
    /// The smallest transfer.
    pub sector_bytes: u64,
    /// What it reports about TRIM; `None` if it does not support it.
    pub trim: Option<TrimFacts>,
    /// Whether time is virtual: waiting costs nothing, and every run is the same.
    pub is_model: bool,
}

/// What a device reports about TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimFacts {
    /// Only whole, aligned granules of this size are sure to be freed.
    pub granularity: Bytes,
    /// The longest range of one operation that becomes one command.
    pub max: Bytes,
    /// Whether it promises that trimmed units read as zeros (ATA: RZAT; NVMe: DLFEAT 001b).
    pub promises_zeros: bool,
}

/// An operation for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read sectors: whole units, or a part of one.
    Read(SectorRange),
    /// Write sectors: whole units, or a part of one.
    Write(SectorRange, Content),
    /// Declare these units unneeded.
    Trim(Vec<UnitRange>),
    /// Make all completed writes and TRIMs survive a power loss.
    Flush,
}

impl Operation {
    /// A read of whole units.
    pub fn read(range: UnitRange) -> Self {
        Self::Read(range.into())
    }

    /// A write of whole units.
    pub fn write(range: UnitRange, content: Content) -> Self {
        Self::Write(range.into(), content)
    }
}

/// A completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token that it was submitted with.
    pub token: u64,
    /// When it was submitted.
    pub submitted: SimTime,
    /// When it was done.
    pub completed: SimTime,
}

impl Completion {
    /// How long it took, including its time in the queue.
    pub fn latency(&self) -> SimDuration {
        self.completed.since(self.submitted)
    }
}

/// A block device as a device test sees it: the model in virtual time, or a real one.
///
/// Not promised: any order between operations that overlap in time; that a write or TRIM survives a power loss before a
/// later flush has completed (each survives or not, in any subset); and what a read returns after a TRIM, until the
/// unit is written again.
#[allow(async_fn_in_trait)] // single-threaded by design
pub trait BlockDevice {
    /// What it reports about itself.
    fn facts(&self) -> &DeviceFacts;

    /// The present.
    fn now(&self) -> SimTime;

    /// Lets time pass. Operations in flight continue meanwhile.
    async fn sleep(&self, span: SimDuration);

    /// Submits an operation without waiting for it.
    ///
    /// # Errors
    /// If the device cannot take it; then there will be no completion.
    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError>;

    /// Waits for the next completion, in whatever order they come.
    ///
    /// # Errors
    /// If the operation failed, if no operation is in flight ([`BlockError::Other`]), or if the user interrupts.
    async fn completion(&self) -> Result<Completion, BlockError>;

    /// Reads a unit, outside any measurement, and returns what it holds.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn stored(&self, lpn: Lpn) -> Result<Stored, BlockError> {
        let name = &self.facts().name;
        Err(BlockError::Unsupported(format!("{name} cannot report what unit {} holds", lpn.0)))
    }

    /// Erases the whole device, as ATA SECURITY ERASE UNIT and NVMe Format do, and waits for completion.
    ///
    /// # Errors
    /// [`BlockError::Unsupported`] where only the vendor's tool can do this.
    async fn erase(&self) -> Result<(), BlockError> {
        Err(BlockError::Unsupported(format!("{} cannot be erased as a whole from here", self.facts().name)))
    }

    /// Performs one operation and waits for it; no other may be in flight.
    ///
    /// # Errors
    /// Those of [`BlockDevice::submit`] and [`BlockDevice::completion`].
    async fn perform(&self, operation: Operation) -> Result<SimDuration, BlockError> {
        self.submit(operation, 0)?;
        Ok(self.completion().await?.latency())
    }

    /// Its size.
    fn size_units(&self) -> u64 {
        self.facts().size_units
    }
}

/// Checks an operation against a device of that size.
///
/// # Errors
/// Sectors outside the device, or neither whole units nor a part of one.
pub fn check(operation: &Operation, size_units: u64) -> Result<(), BlockError> {
    let inside = |range: UnitRange| {
        let end = range.start.0.checked_add(range.units);
        match end.is_some_and(|end| end <= size_units) {
            true => Ok(()),
            false => Err(BlockError::OutOfRange { range, size_units }),
        }
    };
    match operation {
        Operation::Read(sectors) | Operation::Write(sectors, _) => {
            let range = sectors.units();
            inside(range)?;
            if !sectors.is_whole() && range.units > 1 {
                return Err(BlockError::Unaligned(*sectors));
            }
            Ok(())
        }
        Operation::Trim(ranges) => ranges.iter().try_for_each(|&range| inside(range)),
        Operation::Flush => Ok(()),
    }
}
