//! A modelled drive as a block device of this host, in real time.
//!
//! An [`EmulatedDrive`] combines the front of a modelled drive ([`Port`]), the bytes behind it ([`SparseStore`]) and a
//! clock. It takes reads, writes, discards and flushes, moves the bytes, asks the model for the time at which a real
//! drive would have completed the command, and returns that time; the front that brought the request then replies.
//! There are two fronts:
//!
//! - [`fuse`] serves the drive as one file, and [`attachment`] lays a loop device over it: a block device for this
//!   host. A discard arrives as a hole punched into the file. The loop driver sends writes of zeros that may unmap in
//!   the same way, so on this path discarded ranges read as zeros, whatever the drive would do;
//! - [`nbd`] serves it over a socket to QEMU and others. Requests arrive unchanged, and each gets its own reply.
//!
//! [`server`] keeps a front until it is told to end. [`registry`] lists the devices of this host, and cleans up after
//! servers that were killed.
//!
//! The bytes must agree with the model, which says which units a TRIM destroys. With faulty firmware, these can be
//! different units than those named, or the same ones later. A sound drive destroys the named units before it completes
//! the TRIM, and the host does not order requests that are under way at the same time. So bytes move outside of the
//! lock on the model, and several threads move them at once. A faulty drive can destroy what another request is
//! writing, so there the lock is held while bytes move, and their order is the model's.

pub mod attachment;
mod clock;
pub mod fuse;
pub mod nbd;
pub mod registry;
pub mod server;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use thiserror::Error;
use trimwise::block::{Port, PortCounts, PortError, PortLimits, PortRequest as Request};
use trimwise::content::{self, Content, ContentClass};
use trimwise::ssd::{ConfigError, Drive, Faults, SsdConfig};
use trimwise::units::{Bytes, Lba, SECTOR_BYTES, SectorRange};

pub use clock::{Clock, Completions, TimeScale};

use trimwise_linux::sparse_store::SparseStore;

#[derive(Debug, Error)]
pub enum RequestError {
    #[error("{length_bytes} bytes at byte {offset_bytes} are not whole sectors of {SECTOR_BYTES} bytes")]
    NoSectors { offset_bytes: u64, length_bytes: u64 },
    #[error(transparent)]
    Refused(#[from] PortError),
    /// Such as a full file system of the backing file.
    #[error(transparent)]
    Store(#[from] io::Error),
}

impl RequestError {
    pub(crate) fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match self {
            Self::NoSectors { .. } | Self::Refused(PortError::OutOfRange { .. }) => {
                Errno::INVAL.raw_os_error()
            }
            Self::Refused(PortError::NoTrim) => Errno::OPNOTSUPP.raw_os_error(),
            Self::Store(error) => error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        }
    }
}

/// A modelled drive with its bytes and a running clock.
#[derive(Debug)]
pub struct EmulatedDrive {
    port: Mutex<Port>,
    store: SparseStore,
    clock: Clock,
    limits: PortLimits,
    /// True if bytes are moved while the port is locked; see the head of this file.
    bytes_in_order: bool,
    /// True if the drive's behaviour depends on the data written.
    looks_at_content: bool,
}

impl EmulatedDrive {
    /// Creates a drive over `store`. Its time begins now.
    ///
    ///
    /// # Panics
    /// If the store has another size than the drive.
    pub fn new(
        config: &SsdConfig,
        faults: Faults,
        seed: u64,
        store: SparseStore,
        scale: TimeScale,
    ) -> Result<Self, ConfigError> {
        let port = Port::new(Drive::new(config, faults, seed)?);
        assert_eq!(port.size(), store.size(), "a store as large as the drive");
        Ok(Self {
            limits: port.limits(),
            port: Mutex::new(port),
            store,
            clock: Clock::new(scale),
            bytes_in_order: !faults.is_sound(),
            looks_at_content: config.looks_at_content(),
        })
    }

    pub fn size(&self) -> Bytes {
        self.store.size()
    }

    pub fn limits(&self) -> PortLimits {
        self.limits
    }

    pub fn counts(&self) -> PortCounts {
        self.port().counts()
    }

    /// Returns the size of the stored data, in memory or in the backing file.
    pub fn stored(&self) -> Bytes {
        use std::os::unix::fs::MetadataExt;
        Bytes(self.store.file().metadata().map_or(0, |found| found.blocks() * SECTOR_BYTES))
    }

    /// Releases the backing file for another drive, after the last request to this one.
    pub fn release(&self) {
        self.store.release();
    }

    /// Fills `bytes` with the data at `offset_bytes`, and returns when the drive would have answered.
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, bytes.len() as u64)?;
        let mut port = self.port();
        let due = self.submit(&mut port, &Request::Read(sectors))?;
        let _held = self.bytes_in_order.then_some(port);
        self.store.read(offset_bytes, bytes)?;
        Ok(due)
    }

    /// Writes `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// If [`EmulatedDrive::read`] would fail for this range, or there is no space for the bytes. Without space, the
    /// request does not reach the drive.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, bytes.len() as u64)?;
        let class =
            if self.looks_at_content { content::classify_write(bytes) } else { ContentClass::default() };
        let request = Request::Write(sectors, Content::new(class, 0));
        let held = self.bytes_in_order.then(|| self.port());
        // Store the bytes first: if there is no space for them, they were never written.
        self.store.write(offset_bytes, bytes)?;
        let mut port = held.unwrap_or_else(|| self.port());
        let due = self.submit(&mut port, &request)?;
        if self.bytes_in_order {
            self.punch_destroyed(&mut port)?;
        }
        Ok(due)
    }

    /// Tells the drive that a range is no longer needed. With `as_zeros` the range reads as zeros from then on,
    /// whatever the drive does.
    ///
    /// # Errors
    /// If [`EmulatedDrive::read`] would fail for this range, or the drive does not support TRIM.
    pub fn discard(&self, offset_bytes: u64, length: Bytes, as_zeros: bool) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, length.0)?;
        let mut port = self.port();
        let due = self.submit(&mut port, &Request::Discard(vec![sectors]))?;
        self.punch_or_zero(port, as_zeros.then_some((offset_bytes, length)))?;
        Ok(due)
    }

    /// Makes a range read as zeros. It is trimmed if that is allowed and the drive then promises zeros.
    pub(crate) fn write_zeroes(
        &self,
        offset_bytes: u64,
        length: Bytes,
        may_unmap: bool,
    ) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, length.0)?;
        let mut port = self.port();
        let trims = port.counts().discards;
        let due = self.submit(&mut port, &Request::WriteZeroes { sectors, may_unmap })?;
        // Faulty firmware does not keep its promises.
        let is_lost = self.bytes_in_order && port.counts().discards != trims;
        self.punch_or_zero(port, (!is_lost).then_some((offset_bytes, length)))?;
        Ok(due)
    }

    /// Makes all completed writes survive a power loss of the drive. The bytes survive the end of their server anyway:
    /// they are in the kernel or in the backing file's page cache.
    pub fn flush(&self) -> Result<Instant, RequestError> {
        Ok(self.submit(&mut self.port(), &Request::Flush)?)
    }

    /// Locks the port. If a thread panicked in the model, it may have left a command unfinished; the device continues.
    fn port(&self) -> MutexGuard<'_, Port> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request to the model. The clock is read while the port is locked, so that its time never decreases.
    fn submit(&self, port: &mut Port, request: &Request) -> Result<Instant, PortError> {
        let done = port.submit(self.clock.now(), request)?;
        Ok(self.clock.instant(done))
    }

    fn punch_or_zero(
        &self,
        mut port: MutexGuard<'_, Port>,
        zeros: Option<(u64, Bytes)>,
    ) -> Result<(), RequestError> {
        if self.bytes_in_order {
            self.punch_destroyed(&mut port)?;
        } else {
            let destroyed = port.take_destroyed();
            drop(port);
            // The whole range already reads as zeros.
            if zeros.is_none() {
                destroyed.into_iter().try_for_each(|range| self.store.punch_units(range))?;
            }
        }
        if let Some((offset_bytes, length)) = zeros {
            self.store.punch(offset_bytes, length)?;
        }
        Ok(())
    }

    fn punch_destroyed(&self, port: &mut Port) -> io::Result<()> {
        port.take_destroyed().into_iter().try_for_each(|range| self.store.punch_units(range))
    }
}

fn sectors(offset_bytes: u64, length_bytes: u64) -> Result<SectorRange, RequestError> {
    if !offset_bytes.is_multiple_of(SECTOR_BYTES) || !length_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(RequestError::NoSectors { offset_bytes, length_bytes });
    }
    Ok(SectorRange::new(Lba(offset_bytes / SECTOR_BYTES), length_bytes / SECTOR_BYTES))
}

#[cfg(test)]
mod tests;
