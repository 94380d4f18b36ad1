//! The narrow block trait: what a device test sees of a model in virtual time or of a real device.
//!
//! A test hands operations over, as many at a time as its queue depth says, and takes their completions one by
//! one. One loop in one task thus keeps a queue full, and no host of the trait needs threads or a runtime: the
//! model waits in virtual time, a real device blocks in the call that awaits a completion.

use thiserror::Error;

use crate::content::{Content, Stored};
use crate::units::{Bytes, Lpn, SectorRange, SimDuration, SimTime, UnitRange};

/// Why a block operation failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BlockError {
    /// The range reaches beyond the end of the device.
    #[error("units {} to {} lie outside a device of {size_units} units", .range.start.0, .range.end().0)]
    OutOfRange {
        /// What was asked for.
        range: UnitRange,
        /// The device's size.
        size_units: u64,
    },
    /// Neither whole units nor a part of one.
    #[error("{} sectors from sector {}: expected whole units of 8 sectors, or a part of one unit",
            .0.sectors, .0.first.0)]
    Unaligned(SectorRange),
    /// The device cannot do this.
    #[error("{0}")]
    Unsupported(String),
    /// The user wants no more of it.
    #[error("interrupted")]
    Interrupted,
    /// What a real device answers.
    #[error("{0}")]
    Other(String),
}

/// What a device says of itself. A test may go by it to know what it can ask for, never to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// What it is called: a profile's name, a path.
    pub name: String,
    /// Its size, in whole units.
    pub size_units: u64,
    /// The smallest transfer.
    pub sector_bytes: u64,
    /// What it says of TRIM; `None`: it takes none.
    pub trim: Option<TrimFacts>,
    /// Whether time is virtual: waiting costs nothing, and every run is the same.
    pub is_model: bool,
}

/// What a device says of TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimFacts {
    /// Only whole, aligned granules of this size are promised to be freed.
    pub granularity: Bytes,
    /// The longest range of one operation that becomes one command.
    pub max: Bytes,
    /// Whether it promises that trimmed units read as zeros (ATA: RZAT; NVMe: DLFEAT 001b).
    pub promises_zeros: bool,
}

/// Something that a device is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read sectors: whole units, or a part of one.
    Read(SectorRange),
    /// Write sectors: whole units, or a part of one.
    Write(SectorRange, Content),
    /// Say that nobody needs these units.
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

/// An operation that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What it was submitted under.
    pub token: u64,
    /// When it was submitted.
    pub submitted: SimTime,
    /// When it was done.
    pub completed: SimTime,
}

impl Completion {
    /// How long it took, its wait in the queue included.
    pub fn latency(&self) -> SimDuration {
        self.completed.since(self.submitted)
    }
}

/// A block device as a device test sees it: the model in virtual time, or a real one.
///
/// What is not promised: any order between operations that overlap in time; any write or TRIM surviving
/// a power loss before a later flush has completed (each survives or not, in any subset); and what a read
/// returns after a TRIM, until the unit is written again.
#[allow(async_fn_in_trait)] // single-threaded by design
pub trait BlockDevice {
    /// What it says of itself.
    fn facts(&self) -> &DeviceFacts;

    /// The present.
    fn now(&self) -> SimTime;

    /// Lets time go by. Operations on their way go on meanwhile.
    async fn sleep(&self, span: SimDuration);

    /// Hands an operation over and does not wait for it.
    ///
    /// # Errors
    /// If the device cannot take it; then there will be no completion.
    fn submit(&self, operation: Operation, token: u64) -> Result<(), BlockError>;

    /// Waits for the next completion, in whatever order they come.
    ///
    /// # Errors
    /// If the operation failed, if nothing is on its way ([`BlockError::Other`]), or if the user has had enough.
    async fn completion(&self) -> Result<Completion, BlockError>;

    /// What a unit holds: a read of it that is not part of any measurement.
    ///
    /// # Errors
    /// If it cannot be read.
    async fn stored(&self, lpn: Lpn) -> Result<Stored, BlockError>;

    /// Erases the whole device, as ATA SECURITY ERASE UNIT and NVMe Format do, and waits for it.
    ///
    /// # Errors
    /// [`BlockError::Unsupported`] where this is left to the vendor's tool.
    async fn erase(&self) -> Result<(), BlockError>;

    /// Does one thing and waits for it; nothing else may be on its way.
    ///
    /// # Errors
    /// What [`BlockDevice::submit`] and [`BlockDevice::completion`] say.
    async fn perform(&self, operation: Operation) -> Result<SimDuration, BlockError> {
        self.submit(operation, 0)?;
        Ok(self.completion().await?.latency())
    }

    /// Its size.
    fn size_units(&self) -> u64 {
        self.facts().size_units
    }
}

/// Whether a device of that size takes the operation.
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
