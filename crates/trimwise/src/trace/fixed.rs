//! Binary traces with records of one size, little-endian: libCacheSim's oracleGeneral, and CloudPhysics' vscsi.
//!
//! **oracleGeneral** has 24 bytes a request. The format is described in `libCacheSim/traceReader/customizedReader/oracle/oracleGeneralBin.h`
//! (github.com/1a1a11a/libCacheSim): seconds (`u32`), object (`u64`), its size in bytes (`u32`), number of the next
//! request for it (`i64`). It has no operations, so each request is a read; and times are whole seconds, so replay such
//! a trace closed. In a converted block trace, the object is the number of a sector; in other traces it is a hash, and
//! most lie beyond any drive: `wrap` puts them on one. Objects of no bytes are left out, as libCacheSim does.
//!
//! **vscsi** is what VMware ESX recorded of a virtual disk. The format is described in `vscsi.h` of the same reader:
//! version 1 has records of 32 bytes and version 2 of 40; microseconds, sectors and bytes, and the SCSI command. Commands
//! other than reads and writes are counted and left out. Version 2 has a response time whose unit is not documented, so
//! latencies are unknown.

use super::input::{Input, Names, Parser, Wrong, malformed, nanos, plain, sectors};
use super::rows::scsi;
use super::{Request, RequestKind, TraceError};
use crate::units::SECTOR_BYTES;

struct Fields<'r>(&'r [u8]);

impl Fields<'_> {
    fn at<const N: usize>(&self, at: usize) -> u64 {
        self.0[at..at + N].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

pub(super) trait Layout {
    const MADE_BY: &'static str;
    const DEVICE: &'static [u8];
    fn record_bytes(&self) -> usize;
    /// Returns the time in nanoseconds and the request; `None` for another command than read or write.
    fn parse(&self, record: &[u8]) -> Result<Option<(u64, Request)>, Wrong>;
}

#[derive(Debug)]
pub(super) struct Fixed<'a, L> {
    input: Input<'a>,
    layout: L,
    records: u64,
}

impl<'a, L> Fixed<'a, L> {
    pub fn new(input: Input<'a>, layout: L) -> Self {
        Self { input, layout, records: 0 }
    }
}

impl<L: Layout> Parser for Fixed<'_, L> {
    type Item = (u32, Request);
    const MADE_BY: &'static str = L::MADE_BY;

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError> {
        let size = self.layout.record_bytes();
        loop {
            self.records += 1;
            let number = self.records;
            let place = || format!("record {number}, byte {}", (number - 1) * size as u64);
            if !self.input.expect(size, place)? {
                return Ok(None);
            }
            let parsed = self.layout.parse(&self.input.rest()[..size]);
            self.input.consume(size);
            match parsed.map_err(|wrong| wrong.at(&place()))? {
                None => names.left_out.other += 1,
                Some((_, request)) if request.sectors.sectors == 0 => names.left_out.empty += 1,
                Some((at, request)) => {
                    let device = names.index(L::DEVICE).map_err(|wrong| wrong.at(&place()))?;
                    return Ok(Some((at, (device, request))));
                }
            }
        }
    }

    fn place(&self) -> String {
        format!("record {}, byte {}", self.records, (self.records - 1) * self.layout.record_bytes() as u64)
    }
}

#[derive(Debug)]
pub(super) struct Oracle;

impl Layout for Oracle {
    const MADE_BY: &'static str = "oraclegeneral";
    const DEVICE: &'static [u8] = b"objects";

    fn record_bytes(&self) -> usize {
        24
    }

    fn parse(&self, record: &[u8]) -> Result<Option<(u64, Request)>, Wrong> {
        let fields = Fields(record);
        let (at, object, size) = (fields.at::<4>(0), fields.at::<8>(4), fields.at::<4>(12));
        let range = match size {
            0 => sectors(RequestKind::Read, 0, 0),
            _ => sectors(RequestKind::Read, object, size.div_ceil(SECTOR_BYTES)),
        };
        Ok(Some((at * 1_000_000_000, plain(RequestKind::Read, range?))))
    }
}

/// Distance of the command from the byte with the version, which it precedes in both versions.
const COMMAND_BEFORE: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(super) enum Vscsi {
    One,
    Two,
}

impl Vscsi {
    /// Finds the version from the first two records: each has it in a byte, and the first is a read or write.
    pub fn recognise(head: &[u8]) -> Option<Self> {
        [Self::One, Self::Two].into_iter().find(|version| {
            let (at, number) = version.mark();
            let mut records = head.chunks_exact(version.record_bytes()).take(2);
            let is_transfer = |record: &[u8]| scsi(Fields(record).at::<2>(at - COMMAND_BEFORE)).is_some();
            records.clone().next().is_some_and(is_transfer) && records.all(|record| record[at] == number)
        })
    }

    fn mark(self) -> (usize, u8) {
        match self {
            Self::One => (15, 1),
            Self::Two => (3, 2),
        }
    }
}

impl Layout for Vscsi {
    const MADE_BY: &'static str = "vscsi";
    const DEVICE: &'static [u8] = b"disk";

    fn record_bytes(&self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    fn parse(&self, record: &[u8]) -> Result<Option<(u64, Request)>, Wrong> {
        let fields = Fields(record);
        let (at, number) = self.mark();
        if record[at] != number {
            return Err(Wrong(format!("version {}", record[at]), "the version of the first record, 1 or 2"));
        }
        let command = fields.at::<2>(at - COMMAND_BEFORE);
        let bytes = match self {
            Self::One => fields.at::<4>(4),
            Self::Two => fields.at::<4>(8),
        };
        let Some(kind) = scsi(command) else { return Ok(None) };
        let range = sectors(kind, fields.at::<8>(16), bytes.div_ceil(SECTOR_BYTES))?;
        Ok(Some((nanos(fields.at::<8>(24), 1_000)?, plain(kind, range))))
    }
}

pub(super) fn no_vscsi() -> TraceError {
    malformed(
        "record 1, byte 0",
        "neither version 1 nor version 2",
        "a vscsi trace that begins with a read or write",
    )
}
