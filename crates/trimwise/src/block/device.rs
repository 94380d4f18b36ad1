//! The narrow block trait: a device test sees a model in virtual time, or a real device.
//!
//! A test submits operations, as many at a time as its queue depth says, and takes their completions one by one. So one
//! loop in one task keeps a queue full, and no host of the trait needs threads or a runtime: the model waits in virtual
//! time, a real device blocks in the call that awaits a completion.

use thiserror::Error;

use crate::content::{Content, Stored};
use crate::units::{Bytes, Lpn, SectorRange, SimDuration, SimTime, UnitRange};

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockError {
    #[error("units {} to {} lie outside a device of {size_units} units", .range.start.0, .range.end().0)]
    OutOfRange { range: UnitRange, size_units: u64 },
    #[error("{} sectors from sector {}: expected whole units of 8 sectors, or a part of one unit",
            .0.sectors, .0.first.0)]
    Unaligned(SectorRange),
    #[error("{0}")]
    Unsupported(String),
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Other(String),
}

/// Facts that a device reports about itself. A test may choose its operations by them, but they are never a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    pub name: String,
    pub size_units: u64,
    /// The smallest transfer.
    pub sector_bytes: u64,
    pub trim: Option<TrimFacts>,
    /// Time is virtual: waiting costs nothing, and every run is the same.
    pub is_model: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimFacts {
    /// Only whole, aligned granules of this size are sure to be freed.
    pub granularity: Bytes,
    /// The longest range of one operation that becomes one command.
    pub max: Bytes,
    /// The device promises that trimmed units read as zeros (ATA: RZAT; NVMe: DLFEAT 001b).
    pub promises_zeros: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Whole units, or a part of one.
    Read(SectorRange),
    /// Whole units, or a part of one.
    Write(SectorRange, Content),
    Trim(Vec<UnitRange>),
    /// Make all completed writes and TRIMs survive a power loss.
    Flush,
}

impl Operation {
    pub fn read(range: UnitRange) -> Self {
        Self::Read(range.into())
    }

    pub fn write(range: UnitRange, content: Content) -> Self {
        Self::Write(range.into(), content)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub token: u64,
    pub submitted: SimTime,
    pub completed: SimTime,
}

impl Completion {
    /// The time in the queue included.
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
    fn facts(&self) -> &DeviceFacts;

    fn now(&self) -> SimTime;

    /// Lets time pass. Operations in flight continue meanwhile.
    async fn sleep(&self, span: SimDuration);

    /// Submits an operation without waiting for it.
    ///
    /// # Errors If the device cannot take it; then there will be no completion.
    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError>;

    /// Waits for the next completion. They come in any order.
    ///
    /// # Errors If the operation failed, if no operation is in flight ([`BlockError::Other`]), or if the user
    /// interrupts.
    async fn completion(&self) -> Result<Completion, BlockError>;

    /// Reads a unit outside any measurement, and returns its content.
    async fn stored(&self, lpn: Lpn) -> Result<Stored, BlockError> {
        let name = &self.facts().name;
        Err(BlockError::Unsupported(format!("{name} cannot report what unit {} holds", lpn.0)))
    }

    /// Erases the whole device, as ATA SECURITY ERASE UNIT and NVMe Format do, and waits for the end.
    ///
    /// # Errors [`BlockError::Unsupported`] where only the vendor's tool can do this.
    async fn erase(&self) -> Result<(), BlockError> {
        Err(BlockError::Unsupported(format!("{} cannot be erased as a whole from here", self.facts().name)))
    }

    /// Performs one operation and waits for it. No other operation may be in flight.
    async fn perform(&self, operation: Operation) -> Result<SimDuration, BlockError> {
        self.submit(operation, 0)?;
        Ok(self.completion().await?.latency())
    }

    fn size_units(&self) -> u64 {
        self.facts().size_units
    }
}

/// Checks an operation against a device of that size.
///
/// # Errors If sectors lie outside the device, or are neither whole units nor a part of one.
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
