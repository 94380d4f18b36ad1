//! A modelled drive as a block device of this host, in real time.
//!
//! An [`EmulatedDrive`] is the front of a modelled drive ([`Port`]), the bytes behind it ([`SparseStore`]) and a clock. It
//! takes the reads, writes, discards and flushes of whoever has the device, moves the bytes, asks the model when a real
//! drive would have answered, and says so; the front that brought the request answers then. There are two fronts:
//!
//! - [`fuse`] serves the drive as one file, and [`attachment`] lays a loop device over it: a block device for this host.
//!   A discard arrives as a hole that is punched into the file. The loop driver sends writes of zeros that may unmap in
//!   the same way, so that on this path what was discarded reads as zeros whatever the drive would do;
//! - [`nbd`] serves it over a socket to QEMU and others. Requests arrive as what they are, and each is answered on its own.
//!
//! [`server`] keeps a front until it is told to end. [`registry`] knows which devices there are, and takes away what a server left behind that was killed.
//!
//! How the bytes agree with the model. The model says which units a TRIM destroys, which for faulty firmware are others
//! than were named, or the same ones later. A sound drive destroys what it was told to before it answers, and a host
//! gives no order to requests that it has under way at the same time; so bytes move outside of the lock on the model, and
//! several threads move them at once. A faulty drive may destroy what somebody else is writing: there the lock is held
//! while bytes move, and their order is the model's.

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

/// Why a request failed.
#[derive(Debug, Error)]
pub enum RequestError {
    /// It does not begin or end at a sector.
    #[error("{length_bytes} bytes at byte {offset_bytes} are no whole sectors of {SECTOR_BYTES} bytes")]
    NoSectors {
        /// Where it begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u64,
    },
    /// The drive refused it.
    #[error(transparent)]
    Refused(#[from] PortError),
    /// The bytes could not be moved: the file system of the backing file is full, say.
    #[error(transparent)]
    Store(#[from] io::Error),
}

impl RequestError {
    /// Linux's number for it, which all fronts speak.
    pub fn errno(&self) -> i32 {
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

/// A drive with its bytes, on a clock that runs.
#[derive(Debug)]
pub struct EmulatedDrive {
    port: Mutex<Port>,
    store: SparseStore,
    clock: Clock,
    limits: PortLimits,
    /// Whether bytes are moved while the port is held; see above.
    bytes_in_order: bool,
    /// Whether it matters to the drive what is written.
    looks_at_content: bool,
}

impl EmulatedDrive {
    /// A new drive over `store`, whose time begins now.
    ///
    /// # Errors
    /// What [`Drive::new`] says.
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

    /// Its size.
    pub fn size(&self) -> Bytes {
        self.store.size()
    }

    /// What may be asked of it.
    pub fn limits(&self) -> PortLimits {
        self.limits
    }

    /// What was asked of it so far.
    pub fn counts(&self) -> PortCounts {
        self.port().counts()
    }

    /// Bytes that its data take, in memory or in the backing file.
    pub fn stored(&self) -> Bytes {
        use std::os::unix::fs::MetadataExt;
        Bytes(self.store.file().metadata().map_or(0, |found| found.blocks() * SECTOR_BYTES))
    }

    /// Lets another drive have the backing file, once nobody asks anything of this one any more.
    pub fn release(&self) {
        self.store.release();
    }

    /// Fills `bytes` with what lies at `offset_bytes`, and answers when the drive would have.
    ///
    /// # Errors
    /// [`RequestError`]; so for all requests.
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, bytes.len() as u64)?;
        let mut port = self.port();
        let due = self.submit(&mut port, &Request::Read(sectors))?;
        let _held = self.bytes_in_order.then_some(port);
        self.store.read(offset_bytes, bytes)?;
        Ok(due)
    }

    /// Puts `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// As [`EmulatedDrive::read`]. If there is no room for the bytes, the drive knows nothing of the request.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, bytes.len() as u64)?;
        let class =
            if self.looks_at_content { content::classify_write(bytes) } else { ContentClass::default() };
        let request = Request::Write(sectors, Content::new(class, 0));
        let held = self.bytes_in_order.then(|| self.port());
        // The bytes first: what they find no room for was never written.
        self.store.write(offset_bytes, bytes)?;
        let mut port = held.unwrap_or_else(|| self.port());
        let due = self.submit(&mut port, &request)?;
        if self.bytes_in_order {
            self.punch_destroyed(&mut port)?;
        }
        Ok(due)
    }

    /// Tells the drive that nobody needs a range. With `as_zeros` it reads as zeros from then on, whatever the drive does.
    ///
    /// # Errors
    /// As [`EmulatedDrive::read`]; and if the drive takes no TRIM.
    pub fn discard(&self, offset_bytes: u64, length: Bytes, as_zeros: bool) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, length.0)?;
        let mut port = self.port();
        let due = self.submit(&mut port, &Request::Discard(vec![sectors]))?;
        self.punch_or_zero(port, as_zeros.then_some((offset_bytes, length)))?;
        Ok(due)
    }

    /// Makes a range read as zeros; it is trimmed if it may be and the drive promises zeros then.
    ///
    /// # Errors
    /// As [`EmulatedDrive::read`].
    pub fn write_zeroes(
        &self,
        offset_bytes: u64,
        length: Bytes,
        may_unmap: bool,
    ) -> Result<Instant, RequestError> {
        let sectors = sectors(offset_bytes, length.0)?;
        let mut port = self.port();
        let trims = port.counts().discards;
        let due = self.submit(&mut port, &Request::WriteZeroes { sectors, may_unmap })?;
        // Faulty firmware does not keep what it promises.
        let is_lost = self.bytes_in_order && port.counts().discards != trims;
        self.punch_or_zero(port, (!is_lost).then_some((offset_bytes, length)))?;
        Ok(due)
    }

    /// Makes all completed writes survive a power loss of the drive. The bytes survive the end of their server as it is:
    /// they lie in the kernel, or in the backing file's page cache.
    ///
    /// # Errors
    /// As [`EmulatedDrive::read`].
    pub fn flush(&self) -> Result<Instant, RequestError> {
        Ok(self.submit(&mut self.port(), &Request::Flush)?)
    }

    /// A thread that panicked in the model has left it between two commands or in one; the device goes on.
    fn port(&self) -> MutexGuard<'_, Port> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a request to the model. The clock is read while the port is held, so that time never decreases there.
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
            // All of it lies within what reads as zeros anyway.
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

/// The sectors of a range of bytes.
fn sectors(offset_bytes: u64, length_bytes: u64) -> Result<SectorRange, RequestError> {
    if !offset_bytes.is_multiple_of(SECTOR_BYTES) || !length_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(RequestError::NoSectors { offset_bytes, length_bytes });
    }
    Ok(SectorRange::new(Lba(offset_bytes / SECTOR_BYTES), length_bytes / SECTOR_BYTES))
}

#[cfg(test)]
mod tests;
