//! libCacheSim's oracleGeneral format: 24 bytes a request, little-endian.
//!
//! The format is described in `libCacheSim/traceReader/customizedReader/oracle/oracleGeneralBin.h`
//! (github.com/1a1a11a/libCacheSim): seconds (`u32`), object (`u64`), its size in bytes (`u32`), number of the next
//! request for it (`i64`). It has no operations, so each request is a read; and times are whole seconds, so replay such
//! a trace closed. In a converted block trace, the object is the number of a sector; in other traces it is a hash, and
//! most lie beyond any drive: `wrap` puts them on one. Objects of no bytes are left out, as libCacheSim does.

use std::io::{BufRead, ErrorKind};

use super::input::{Names, Parser, plain, sectors};
use super::{Request, RequestKind, TraceError};
use crate::units::Bytes;

const RECORD_BYTES: usize = 24;

#[derive(Debug)]
pub(super) struct Oracle<R> {
    input: R,
    records: u64,
}

impl<R: BufRead> Oracle<R> {
    pub fn new(input: R) -> Self {
        Self { input, records: 0 }
    }
}

impl<R: BufRead> Parser for Oracle<R> {
    type Item = (u32, Request);
    const MADE_BY: &'static str = "oraclegeneral";

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError> {
        loop {
            self.records += 1;
            let at = self.records;
            let Some(bytes) = record::<RECORD_BYTES>(&mut self.input, || place(at))? else {
                return Ok(None);
            };
            let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
            let object = u64::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
            let size = Bytes(u32_at(12).into());
            if size.0 == 0 {
                continue;
            }
            let range = sectors(object, size.0.div_ceil(512)).map_err(|mut wrong| {
                wrong.1 = "a sector number below 2^55";
                wrong.at(&self.place())
            })?;
            let device = names.index("objects").map_err(|wrong| wrong.at(&self.place()))?;
            let at = u64::from(u32_at(0)) * 1_000_000_000;
            return Ok(Some((at, (device, plain(RequestKind::Read, range)))));
        }
    }

    fn place(&self) -> String {
        place(self.records)
    }
}

fn place(record: u64) -> String {
    format!("record {record}, byte {}", (record - 1) * RECORD_BYTES as u64)
}

/// Reads a record of fixed size; `None` at the end of the input.
pub(super) fn record<const N: usize>(
    input: &mut impl BufRead,
    place: impl Fn() -> String,
) -> Result<Option<[u8; N]>, TraceError> {
    let mut bytes = [0; N];
    let mut have = 0;
    while have < N {
        match input.read(&mut bytes[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(TraceError::Truncated { place: place() }),
            Ok(more) => have += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                return Err(TraceError::Truncated { place: place() });
            }
            Err(source) => return Err(TraceError::Io { place: place(), source }),
        }
    }
    Ok(Some(bytes))
}
