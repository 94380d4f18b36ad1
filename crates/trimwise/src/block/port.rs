//! The front of a drive for hosts with their own scheduling: a real kernel in virtual time, or a block device emulated
//! in real time.
//!
//! A [`super::BlockQueue`] models Linux's block layer with a drive behind it. A real kernel brings its own block layer
//! and needs only the drive as seen through its cable: commands are admitted in order, up to the link's queue depth at
//! once; those that the interface cannot queue wait until the drive is empty and run alone. Since a drive returns at
//! once when a command will complete, admission needs no events: the port keeps the completion times of the commands it
//! has admitted.
//!
//! Hosts use sectors of 512 bytes, and a request may begin or end within a unit; what a part of a unit costs is up to
//! the drive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::admission::{Admission, Kind};
use super::discard;
use crate::content::{Content, ContentClass};
use crate::ssd::{Drive, TrimKind, counters};
use crate::units::{Bytes, Lba, Lpn, SECTOR_BYTES, SectorRange, SimTime, UNIT_BYTES, UnitRange};

const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read(SectorRange),
    Write(SectorRange, Content),
    /// Declare these sectors unneeded. Units named only in part stay as they are.
    Discard(Vec<SectorRange>),
    WriteZeroes {
        sectors: SectorRange,
        /// The sectors may be trimmed, if the drive then promises zeros.
        may_unmap: bool,
    },
    /// Make all completed writes survive a power loss.
    Flush,
}

impl Request {
    fn kind(&self) -> Kind {
        match self {
            Self::Read(_) | Self::Write(..) | Self::WriteZeroes { .. } => Kind::Transfer,
            Self::Discard(_) => Kind::Trim,
            Self::Flush => Kind::Flush,
        }
    }
}

/// Why a request was refused. The host gets an I/O error.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PortError {
    #[error(
        "{} sectors from sector {} lie outside a drive of {size_sectors} sectors",
        .sectors.sectors, .sectors.first.0
    )]
    OutOfRange { sectors: SectorRange, size_sectors: u64 },
    #[error("the drive does not support TRIM")]
    NoTrim,
}

/// Limits of a host's requests. Linux has them under `/sys/block/DEV/queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLimits {
    /// Longest discard, all of its ranges together; 0 if the drive does not support TRIM.
    pub discard_max_sectors: u32,
    pub discard_max_ranges: u32,
    /// Only whole, aligned granules of this size are freed.
    pub discard_granularity_sectors: u32,
    /// Requests in the drive at once.
    pub queue_depth: u32,
    /// A completed write may be lost in a power failure until a flush.
    pub volatile_cache: bool,
}

counters! {
    PortCounts {
        reads: u64,
        read_bytes: u64,
        /// Write requests, including those of zeros.
        writes: u64,
        written_bytes: u64,
        flushes: u64,
        /// Discard requests, one command each, including writes of zeros that became one.
        discards: u64,
        discard_ranges: u64,
        discarded_bytes: u64,
    }
}

#[derive(Clone, Debug)]
pub struct Port {
    drive: Drive,
    admission: Admission,
    in_drive: BinaryHeap<Reverse<SimTime>>,
    /// When the last request was admitted. The next is admitted no earlier.
    admitted: SimTime,
    exclusive_until: SimTime,
    busy_until: SimTime,
    counts: PortCounts,
}

impl Port {
    pub fn new(drive: impl Into<Drive>) -> Self {
        let mut drive = drive.into();
        drive.watch_destroyed();
        Self {
            admission: Admission::of(drive.ssd().config()),
            drive,
            in_drive: BinaryHeap::new(),
            admitted: SimTime::ZERO,
            exclusive_until: SimTime::ZERO,
            busy_until: SimTime::ZERO,
            counts: PortCounts::default(),
        }
    }

    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    pub(crate) fn drive_mut(&mut self) -> &mut Drive {
        &mut self.drive
    }

    pub(crate) fn admission(&self) -> Admission {
        self.admission
    }

    pub fn size(&self) -> Bytes {
        Bytes::from_units(self.drive.ssd().capacity_units())
    }

    /// Runs, and counts, the drive's background work up to `now`.
    pub fn catch_up(&mut self, now: SimTime) {
        // Requests admitted beyond its queue depth may have taken the drive further already.
        if now >= self.admitted {
            self.drive.ssd_mut().catch_up(now);
            self.admitted = now;
        }
    }

    pub fn counts(&self) -> PortCounts {
        self.counts
    }

    /// Returns the limits of a host's requests as Linux's drivers set them for the drive's link. libata and sd offer
    /// one range per discard, which may fill a whole command; NVMe merges ranges (`max_discard_segments`).
    pub fn limits(&self) -> PortLimits {
        let config = self.drive.ssd().config();
        let trim = &config.trim;
        let per_range = u64::from(trim.max_units_per_range).saturating_mul(UNIT_SECTORS);
        let merges = trim.kind == TrimKind::Nvme;
        let sectors = match () {
            () if !trim.is_supported() => 0,
            () if merges => per_range,
            () => per_range.saturating_mul(trim.max_ranges.max(1).into()),
        };
        // Linux counts the sectors and the bytes of a request in 32 bits. Stay below 4 GiB and on whole units.
        let most = u64::from(u32::MAX) / SECTOR_BYTES / UNIT_SECTORS * UNIT_SECTORS;
        PortLimits {
            discard_max_sectors: sectors.min(most) as u32,
            discard_max_ranges: if merges { trim.max_ranges.max(1) } else { 1 },
            discard_granularity_sectors: trim.granularity_units.max(1) * UNIT_SECTORS as u32,
            queue_depth: self.admission.depth(),
            volatile_cache: config.cache.volatile,
        }
    }

    /// Returns the units that have lost their data to TRIMs since the last call; see [`Drive::take_destroyed`].
    pub fn take_destroyed(&mut self) -> Vec<UnitRange> {
        self.drive.take_destroyed()
    }

    /// Submits a request at `now`, which must not decrease. Returns when it will complete. A refused request changes
    /// nothing.
    pub fn submit(&mut self, now: SimTime, request: &Request) -> Result<SimTime, PortError> {
        self.check(request)?;
        let exclusive = self.admission.runs_alone(request.kind());
        let at = self.admit(now, exclusive);
        let done = self.perform(at, request);
        self.in_drive.push(Reverse(done));
        self.busy_until = self.busy_until.max(done);
        if exclusive {
            self.exclusive_until = done;
        }
        Ok(done)
    }

    fn admit(&mut self, now: SimTime, exclusive: bool) -> SimTime {
        let mut at = now.max(self.admitted).max(self.exclusive_until);
        if exclusive {
            at = at.max(self.busy_until);
        }
        while let Some(&Reverse(first)) = self.in_drive.peek()
            && (first <= at || !self.admission.has_room(self.in_drive.len()))
        {
            at = at.max(first);
            self.in_drive.pop();
        }
        self.admitted = at;
        at
    }

    fn perform(&mut self, at: SimTime, request: &Request) -> SimTime {
        match request {
            Request::Read(sectors) => {
                self.counts.reads += 1;
                self.counts.read_bytes += sectors.bytes().0;
                let mut done = at;
                for piece in pieces(*sectors) {
                    done = done.max(match piece {
                        Piece::Whole(range) => self.drive.read(at, range),
                        Piece::Part(part) => self.drive.read_part(at, part),
                    });
                }
                done
            }
            Request::Write(sectors, content) => self.write(at, *sectors, *content),
            Request::Discard(ranges) => self.trim(at, ranges),
            Request::WriteZeroes { sectors, may_unmap } => {
                let trim = &self.drive.ssd().config().trim;
                if *may_unmap
                    && trim.is_supported()
                    && self.drive.promises_zeros()
                    && trim.granularity_units <= 1
                    && sectors.is_whole()
                {
                    self.trim(at, &[*sectors])
                } else {
                    self.write(at, *sectors, Content::new(ContentClass::Zeros, 0))
                }
            }
            Request::Flush => {
                self.counts.flushes += 1;
                self.drive.flush(at)
            }
        }
    }

    fn write(&mut self, at: SimTime, sectors: SectorRange, content: Content) -> SimTime {
        self.counts.writes += 1;
        self.counts.written_bytes += sectors.bytes().0;
        let mut done = at;
        for piece in pieces(sectors) {
            done = done.max(match piece {
                Piece::Whole(range) => self.drive.write(at, range, content),
                Piece::Part(part) => self.drive.write_part(at, part, content),
            });
        }
        done
    }

    fn trim(&mut self, at: SimTime, ranges: &[SectorRange]) -> SimTime {
        self.counts.discards += 1;
        self.counts.discard_ranges += ranges.len() as u64;
        self.counts.discarded_bytes += ranges.iter().map(|range| range.bytes().0).sum::<u64>();
        let units: Vec<UnitRange> = ranges.iter().filter_map(|range| whole_units(*range)).collect();
        let commands = discard::filled_commands(&self.drive.ssd().config().trim, &units);
        commands.iter().fold(at, |at, command| self.drive.trim(at, command))
    }

    fn check(&self, request: &Request) -> Result<(), PortError> {
        let size_sectors = self.size().0 / SECTOR_BYTES;
        let inside = |sectors: SectorRange| match sectors.first.0.checked_add(sectors.sectors) {
            Some(end) if end <= size_sectors => Ok(()),
            _ => Err(PortError::OutOfRange { sectors, size_sectors }),
        };
        match request {
            Request::Read(sectors) | Request::Write(sectors, _) | Request::WriteZeroes { sectors, .. } => {
                inside(*sectors)
            }
            Request::Discard(_) if !self.drive.ssd().config().trim.is_supported() => Err(PortError::NoTrim),
            Request::Discard(ranges) => ranges.iter().try_for_each(|&range| inside(range)),
            Request::Flush => Ok(()),
        }
    }
}

pub(crate) enum Piece {
    Whole(UnitRange),
    Part(SectorRange),
}

/// Splits a run of sectors as a drive needs it: the end of a unit, whole units, the beginning of a unit.
pub(crate) fn pieces(sectors: SectorRange) -> impl Iterator<Item = Piece> {
    let (start, end) = (sectors.first.0, sectors.first.0 + sectors.sectors);
    let first_whole = start.next_multiple_of(UNIT_SECTORS).min(end);
    let last_whole = (end / UNIT_SECTORS * UNIT_SECTORS).max(first_whole);
    let part = |from: u64, to: u64| (from < to).then(|| Piece::Part(SectorRange::new(Lba(from), to - from)));
    let units = (last_whole - first_whole) / UNIT_SECTORS;
    let whole = (units > 0).then(|| Piece::Whole(UnitRange::new(Lpn(first_whole / UNIT_SECTORS), units)));
    [part(start, first_whole), whole, part(last_whole, end)].into_iter().flatten()
}

pub(crate) fn whole_units(sectors: SectorRange) -> Option<UnitRange> {
    let start = sectors.first.0.div_ceil(UNIT_SECTORS);
    let end = (sectors.first.0 + sectors.sectors) / UNIT_SECTORS;
    (start < end).then(|| UnitRange::new(Lpn(start), end - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::{ReadAfterTrim, Ssd, SsdConfig, TrimConfig};

    fn sectors(first: u64, count: u64) -> SectorRange {
        SectorRange::new(Lba(first), count)
    }

    fn write(first: u64, count: u64) -> Request {
        Request::Write(sectors(first, count), Content::default())
    }

    fn port(change: impl FnOnce(&mut SsdConfig)) -> Port {
        let mut config = SsdConfig { capacity_bytes: 1 << 30, ..SsdConfig::default() };
        change(&mut config);
        Port::new(Ssd::new(&config, 1).unwrap())
    }

    #[test]
    fn a_run_of_sectors_is_cut_at_units() {
        let cut = |first, count| -> Vec<(bool, u64, u64)> {
            pieces(sectors(first, count))
                .map(|piece| match piece {
                    Piece::Whole(range) => (true, range.start.0 * 8, range.units * 8),
                    Piece::Part(part) => (false, part.first.0, part.sectors),
                })
                .collect()
        };
        assert_eq!(cut(8, 16), [(true, 8, 16)]);
        assert_eq!(cut(9, 2), [(false, 9, 2)]);
        assert_eq!(cut(7, 2), [(false, 7, 1), (false, 8, 1)]);
        assert_eq!(cut(7, 18), [(false, 7, 1), (true, 8, 16), (false, 24, 1)]);
        assert_eq!(cut(3, 0), []);
    }

    #[test]
    fn a_request_beyond_the_depth_waits_for_the_first_to_complete() {
        let mut deep = port(|config| config.link.queue_depth = 4);
        let mut flat = port(|config| config.link.queue_depth = 1);
        let ends = |port: &mut Port| -> Vec<SimTime> {
            (0..8)
                .map(|i| port.submit(SimTime::ZERO, &Request::Read(sectors(i * 4096, 8))).unwrap())
                .collect()
        };
        let mut first = Port::new(deep.drive().clone());
        let one = first.submit(SimTime::ZERO, &Request::Read(sectors(0, 8))).unwrap();
        assert!(one > SimTime::ZERO);
        let flat_ends = ends(&mut flat);
        assert_eq!(flat_ends[7].0, one.0 * 8, "one at a time");
        assert!(ends(&mut deep)[7] < flat_ends[7], "four at a time overlap");
    }

    #[test]
    fn a_command_that_cannot_be_queued_runs_alone() {
        let mut ata = port(|config| config.trim.kind = TrimKind::AtaNonQueued);
        let written = ata.submit(SimTime::ZERO, &write(0, 1024)).unwrap();
        let trimmed = ata.submit(SimTime::ZERO, &Request::Discard(vec![sectors(0, 1024)])).unwrap();
        let read = ata.submit(SimTime::ZERO, &Request::Read(sectors(8192, 8))).unwrap();
        assert!(written < trimmed && trimmed < read);
    }

    #[test]
    fn units_that_a_discard_destroys_are_reported_once() {
        let mut port = port(|_| ());
        port.submit(SimTime::ZERO, &write(0, 64)).unwrap();
        let ranges = vec![sectors(4, 28), sectors(40, 7)];
        port.submit(SimTime(1), &Request::Discard(ranges)).unwrap();
        assert_eq!(port.take_destroyed(), [UnitRange::new(Lpn(1), 3)], "whole units only");
        assert_eq!(port.take_destroyed(), []);
        let counts = port.counts();
        assert_eq!((counts.discards, counts.discard_ranges, counts.discarded_bytes), (1, 2, 35 * 512));
        port.drive().ssd().audit().unwrap();
    }

    #[test]
    fn requests_that_no_drive_can_serve_are_refused() {
        let mut port = port(|_| ());
        let size_sectors = port.size().0 / SECTOR_BYTES;
        for first in [size_sectors, u64::MAX] {
            let error = port.submit(SimTime::ZERO, &write(first, 1)).unwrap_err();
            assert_eq!(error, PortError::OutOfRange { sectors: sectors(first, 1), size_sectors });
        }
        assert_eq!(port.counts(), PortCounts::default());
        let without =
            SsdConfig { trim: TrimConfig::unsupported(), capacity_bytes: 1 << 30, ..SsdConfig::default() };
        let mut without = Port::new(Ssd::new(&without, 1).unwrap());
        assert_eq!(without.limits().discard_max_sectors, 0);
        assert_eq!(without.submit(SimTime::ZERO, &Request::Discard(vec![])), Err(PortError::NoTrim));
    }

    #[test]
    fn limits_are_those_that_linux_sets_for_the_link() {
        let most = (u64::from(u32::MAX) / 4_096 * 8) as u32;
        for (kind, units, ranges, granularity, sectors, segments) in [
            (TrimKind::AtaNonQueued, 8_191, 64, 1, 8_191 * 8 * 64, 1),
            (TrimKind::AtaQueued, 65_535, 512, 1, most, 1),
            (TrimKind::Nvme, 100, 256, 4, 100 * 8, 256),
            (TrimKind::Unsupported, 100, 1, 1, 0, 1),
        ] {
            let limits = port(|config| {
                config.link.queue_depth = 7;
                let trim = &mut config.trim;
                (trim.kind, trim.max_units_per_range) = (kind, units);
                (trim.max_ranges, trim.granularity_units) = (ranges, granularity);
            })
            .limits();
            let expected = PortLimits {
                discard_max_sectors: sectors,
                discard_max_ranges: segments,
                discard_granularity_sectors: granularity * 8,
                queue_depth: 7,
                volatile_cache: true,
            };
            assert_eq!(limits, expected, "{kind:?}, {ranges} ranges of {units} units");
        }
    }

    #[test]
    fn zeros_become_a_trim_only_where_the_drive_then_reads_as_zeros_and_frees_all_of_them() {
        let trims = |may_unmap, count, change: fn(&mut TrimConfig)| {
            let mut port = port(|config| {
                config.trim = TrimConfig { read_after: ReadAfterTrim::Zeros, ..config.trim.clone() };
                change(&mut config.trim);
            });
            let request = Request::WriteZeroes { sectors: sectors(8, count), may_unmap };
            let done = port.submit(SimTime::ZERO, &request).unwrap();
            assert!(done > SimTime::ZERO, "it takes time");
            let counts = port.counts();
            assert_eq!((counts.discarded_bytes + counts.written_bytes, counts.reads), (count * 512, 0));
            (counts.discards, counts.writes)
        };
        assert_eq!(trims(true, 16, |_| ()), (1, 0), "as asked");
        assert_eq!(trims(false, 16, |_| ()), (0, 1), "they must be allocated");
        assert_eq!(trims(true, 15, |_| ()), (0, 1), "a part of a unit");
        assert_eq!(trims(true, 16, |trim| trim.kind = TrimKind::Unsupported), (0, 1), "no TRIM");
        assert_eq!(trims(true, 16, |trim| trim.read_after = ReadAfterTrim::Old), (0, 1), "no promise");
        assert_eq!(trims(true, 16, |trim| trim.granularity_units = 2), (0, 1), "larger granules");
    }

    #[test]
    fn every_request_is_counted_with_its_bytes() {
        let mut port = port(|_| ());
        for (sectors_each, request) in [
            (0, Request::Flush),
            (16, write(8, 16)),
            (5, write(8, 5)),
            (24, Request::Read(sectors(8, 24))),
            (3, Request::Read(sectors(8, 3))),
            (8, Request::Discard(vec![sectors(8, 8)])),
            (24, Request::Discard(vec![sectors(16, 16), sectors(40, 8)])),
            (0, Request::Flush),
        ] {
            let before = port.counts();
            port.submit(SimTime::ZERO, &request).unwrap();
            let bytes =
                |counts: PortCounts| counts.read_bytes + counts.written_bytes + counts.discarded_bytes;
            assert_eq!(bytes(port.counts()) - bytes(before), sectors_each * 512, "{request:?}");
        }
        let expected = PortCounts {
            reads: 2,
            read_bytes: 27 * 512,
            writes: 2,
            written_bytes: 21 * 512,
            flushes: 2,
            discards: 2,
            discard_ranges: 3,
            discarded_bytes: 32 * 512,
        };
        assert_eq!(port.counts(), expected);
    }
}
