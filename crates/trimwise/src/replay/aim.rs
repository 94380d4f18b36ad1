//! Selects the requests of a trace that go to a drive, and maps their addresses.

use super::{ReplayError, ReplayOptions, UNIT_SECTORS};
use crate::trace::{Event, Header, Record, Source};
use crate::units::{Bytes, Lba, SECTOR_BYTES, SectorRange, UNIT_BYTES};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    #[default]
    Refuse,
    /// Addresses beyond the end start again at 0.
    Wrap,
    /// All addresses are scaled from the recorded size to the drive's.
    Scale,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The trace has only one; otherwise the replay is refused.
    #[default]
    Only,
    Number(u32),
    /// All devices, on one drive.
    All,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    devices: DeviceChoice,
    addresses: Addresses,
    size_sectors: u64,
    device: Option<u32>,
    pub records: u64,
}

impl Aim {
    pub fn new(options: ReplayOptions, size: Bytes) -> Self {
        let ReplayOptions { devices, addresses, .. } = options;
        Self { devices, addresses, size_sectors: size.0 / SECTOR_BYTES, device: None, records: 0 }
    }

    #[inline]
    pub fn is_chosen(&mut self, record: &Record, header: &Header) -> Result<bool, ReplayError> {
        match (self.devices, self.device) {
            // These events belong to no single device.
            _ if matches!(record.event, Event::Committed | Event::Lost(_) | Event::Begun) => Ok(true),
            (DeviceChoice::All, _) => Ok(true),
            (DeviceChoice::Number(number), _) => Ok(record.device == number),
            (DeviceChoice::Only, Some(device)) if device == record.device => Ok(true),
            (DeviceChoice::Only, None) => {
                self.device = Some(record.device);
                Ok(true)
            }
            (DeviceChoice::Only, Some(device)) => Err(ReplayError::SeveralDevices {
                record: self.records,
                first: header.device_name(device),
                second: header.device_name(record.device),
            }),
        }
    }

    /// Returns the sectors on this drive, and true if some of them had to be cut off.
    #[inline]
    pub fn place(
        &self,
        sectors: SectorRange,
        device: u32,
        header: &Header,
    ) -> Result<(SectorRange, bool), ReplayError> {
        let (first, size) = (sectors.first.0, self.size_sectors);
        let fits = first.checked_add(sectors.sectors).is_some_and(|end| end <= size);
        let first = match self.addresses {
            Addresses::Refuse | Addresses::Wrap if fits => return Ok((sectors, false)),
            Addresses::Refuse => {
                let size = Bytes(size * SECTOR_BYTES);
                return Err(ReplayError::Beyond { record: self.records, sectors, size });
            }
            Addresses::Wrap => first % size,
            Addresses::Scale => {
                let device = header.devices.get(device as usize);
                let recorded = device.and_then(|device| device.capacity_bytes).ok_or(ReplayError::NoSize)?;
                let (units, of) =
                    (u128::from(size / UNIT_SECTORS), u128::from(recorded.div_ceil(UNIT_BYTES).max(1)));
                let unit = u128::from(first / UNIT_SECTORS) * units / of;
                unit.min(units - 1) as u64 * UNIT_SECTORS + first % UNIT_SECTORS
            }
        };
        let count = sectors.sectors.min(size - first);
        Ok((SectorRange::new(Lba(first), count), count < sectors.sectors))
    }

    /// Returns the recorded size of the chosen device; `None` if no device was chosen, or the trace does not say.
    pub fn recorded_bytes(&self, header: &Header) -> Option<u64> {
        let device = match self.devices {
            DeviceChoice::Only => self.device?,
            DeviceChoice::Number(number) => number,
            DeviceChoice::All => return None,
        };
        header.devices.get(device as usize)?.capacity_bytes
    }

    pub fn nothing(&self, source: &dyn Source) -> ReplayError {
        let of = match self.devices {
            DeviceChoice::Number(number) => format!(" to {}", source.header().device_name(number)),
            _ => String::new(),
        };
        ReplayError::Nothing { of, left_out: source.left_out() }
    }
}
