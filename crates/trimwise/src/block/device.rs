//! The narrow block trait.

use thiserror::Error;

use super::BlockQueue;
use crate::units::{SimTime, UnitRange};

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
    /// What a real device answers.
    #[error("{0}")]
    Other(String),
}

/// A block device as a device test sees it: the model in virtual time, or a real one.
///
/// What is not promised: any order between operations that overlap in time; any write or TRIM surviving
/// a power loss before a later [`BlockDevice::flush`] has returned (each survives or not, in any subset);
/// and what a read returns after a TRIM, until the unit is written again.
#[allow(async_fn_in_trait)] // single-threaded by design
pub trait BlockDevice {
    /// The device's size.
    fn size_units(&self) -> u64;
    /// The present.
    fn now(&self) -> SimTime;
    /// Reads a run of units; returns when the data are there.
    async fn read(&self, range: UnitRange) -> Result<(), BlockError>;
    /// Writes a run of units; returns when the device has acknowledged it.
    async fn write(&self, range: UnitRange) -> Result<(), BlockError>;
    /// Tells the device that nobody needs these units; returns when it has acknowledged that.
    async fn trim(&self, ranges: &[UnitRange]) -> Result<(), BlockError>;
    /// Makes all acknowledged writes and TRIMs survive a power loss.
    async fn flush(&self) -> Result<(), BlockError>;
}

impl BlockQueue {
    fn checked(&self, range: UnitRange) -> Result<UnitRange, BlockError> {
        let size_units = self.size_units();
        if range.end().0 > size_units {
            return Err(BlockError::OutOfRange { range, size_units });
        }
        Ok(range)
    }
}

impl BlockDevice for BlockQueue {
    fn size_units(&self) -> u64 {
        self.with_ssd(|ssd| ssd.capacity_units())
    }

    fn now(&self) -> SimTime {
        self.sim().now()
    }

    async fn read(&self, range: UnitRange) -> Result<(), BlockError> {
        BlockQueue::read(self, self.checked(range)?).await;
        Ok(())
    }

    async fn write(&self, range: UnitRange) -> Result<(), BlockError> {
        BlockQueue::write(self, self.checked(range)?).await;
        Ok(())
    }

    async fn trim(&self, ranges: &[UnitRange]) -> Result<(), BlockError> {
        for &range in ranges {
            self.checked(range)?;
        }
        BlockQueue::trim(self, ranges).await;
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        BlockQueue::flush(self).await;
        Ok(())
    }
}
