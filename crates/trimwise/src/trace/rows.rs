//! Published traces with one request a line: MSR Cambridge, Alibaba, Tencent, and MQSim's ASCII format.
//!
//! None of them has discards, frees or flushes, so they show how a drive serves requests, and nothing about TRIM.
//!
//! - **MSR Cambridge** (`README.txt` of the SNIA IOTTA traces 387):
//!   `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; times in Windows file time, 100 ns; offset and size
//!   in bytes; `Read` or `Write`.
//! - **Alibaba** (`README.md` of github.com/alibaba/block-traces): `device_id,opcode,offset,length,timestamp`; `R` or
//!   `W`; bytes; microseconds.
//! - **Tencent** (`README` of the SNIA IOTTA traces 28064): `Timestamp,Offset,Size,IOType,VolumeID`; whole
//!   seconds; sectors; 0 reads, 1 writes. Requests of one second have the same time, in the order of the file: replay
//!   such a trace closed.
//! - **MQSim** (`traces/README.md` of github.com/umn-cris/MQSim): time, device, first sector, sectors, type, separated by
//!   spaces; 0 writes, 1 reads. The unit of time is set in MQSim's workload file; this reads nanoseconds, its default.
//!
//! A request of no bytes is left out. Bytes that are no whole sectors count as the sectors that they touch.

use std::io::BufRead;

use super::input::{Lines, Names, Parser, Wrong, field, nanos, plain, sectors, sectors_of_bytes};
use super::{Request, RequestKind, TraceError};
use crate::units::SimDuration;

/// Parses a line of a format: time in nanoseconds, device, request.
pub(super) trait Row {
    const MADE_BY: &'static str;
    /// A first line with the names of the columns begins so, in lower case; empty if there is never one.
    const HEADING: &'static str;
    fn parse(line: &str) -> Result<(u64, &str, Request), Wrong>;
}

#[derive(Debug)]
pub(super) struct Rows<R, F> {
    lines: Lines<R>,
    is_first: bool,
    format: std::marker::PhantomData<F>,
}

impl<R: BufRead, F> Rows<R, F> {
    pub fn new(input: R) -> Self {
        Self { lines: Lines::new(input), is_first: true, format: std::marker::PhantomData }
    }
}

impl<R: BufRead, F: Row> Parser for Rows<R, F> {
    type Item = (u32, Request);
    const MADE_BY: &'static str = F::MADE_BY;

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError> {
        loop {
            let is_first = std::mem::replace(&mut self.is_first, false);
            let Some(line) = self.lines.next()? else { return Ok(None) };
            let is_heading = || !F::HEADING.is_empty() && line.to_lowercase().starts_with(F::HEADING);
            if line.is_empty() || is_first && is_heading() {
                continue;
            }
            let parsed =
                F::parse(line).and_then(|(at, device, request)| Ok((at, (names.index(device)?, request))));
            let (at, item) = parsed.map_err(|wrong| wrong.at(&self.lines.place()))?;
            if item.1.sectors.sectors > 0 {
                return Ok(Some((at, item)));
            }
        }
    }

    fn place(&self) -> String {
        self.lines.place()
    }
}

fn columns<'a, const N: usize>(
    mut parts: impl Iterator<Item = &'a str>,
    expected: &'static str,
) -> Result<[&'a str; N], Wrong> {
    let mut columns = [""; N];
    for (i, column) in columns.iter_mut().enumerate() {
        *column = parts.next().ok_or_else(|| Wrong(format!("{i} columns"), expected))?.trim();
    }
    match parts.next() {
        None => Ok(columns),
        Some(_) => Err(Wrong(format!("more than {N} columns"), expected)),
    }
}

fn kind(text: &str, read: &str, write: &str, expected: &'static str) -> Result<RequestKind, Wrong> {
    match () {
        () if text.eq_ignore_ascii_case(read) => Ok(RequestKind::Read),
        () if text.eq_ignore_ascii_case(write) => Ok(RequestKind::Write),
        () => Err(Wrong(format!("type '{text}'"), expected)),
    }
}

#[derive(Debug)]
pub(super) struct Msr;

impl Row for Msr {
    const MADE_BY: &'static str = "msr";
    const HEADING: &'static str = "timestamp,hostname";

    fn parse(line: &str) -> Result<(u64, &str, Request), Wrong> {
        const FILE_TIME_NS: u64 = 100;
        const COLUMNS: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
        let [at, host, disk, kind_text, offset, size, response] = columns(line.split(','), COLUMNS)?;
        let _: u32 = field(Some(disk), "a disk number")?;
        let at: u64 = field(Some(at), "a time in units of 100 ns")?;
        let kind = kind(kind_text, "Read", "Write", "Read or Write")?;
        let response: u64 = field(Some(response), "a response time in units of 100 ns")?;
        let range = sectors_of_bytes(
            kind,
            field(Some(offset), "an offset in bytes")?,
            field(Some(size), "a size in bytes")?,
        )?;
        let latency = Some(SimDuration::from_nanos(nanos(response, FILE_TIME_NS)?));
        // File time counts from 1601: in nanoseconds, today is beyond 2^63, and what is before 2185 fits into 64 bits.
        let start = host.as_ptr() as usize - line.as_ptr() as usize;
        let end = disk.as_ptr() as usize - line.as_ptr() as usize + disk.len();
        Ok((nanos(at, FILE_TIME_NS)?, &line[start..end], Request { latency, ..plain(kind, range) }))
    }
}

#[derive(Debug)]
pub(super) struct Alibaba;

impl Row for Alibaba {
    const MADE_BY: &'static str = "alibaba";
    const HEADING: &'static str = "device_id,";

    fn parse(line: &str) -> Result<(u64, &str, Request), Wrong> {
        let [device, op, offset, length, at] =
            columns(line.split(','), "device_id,opcode,offset,length,timestamp")?;
        let at: u64 = field(Some(at), "a time in microseconds")?;
        let kind = kind(op, "R", "W", "R or W")?;
        let range = sectors_of_bytes(
            kind,
            field(Some(offset), "an offset in bytes")?,
            field(Some(length), "a length in bytes")?,
        )?;
        Ok((nanos(at, 1_000)?, device, plain(kind, range)))
    }
}

#[derive(Debug)]
pub(super) struct Tencent;

impl Row for Tencent {
    const MADE_BY: &'static str = "tencent";
    const HEADING: &'static str = "timestamp,offset";

    fn parse(line: &str) -> Result<(u64, &str, Request), Wrong> {
        let [at, first, count, op, volume] =
            columns(line.split(','), "Timestamp,Offset,Size,IOType,VolumeID")?;
        let at: u64 = field(Some(at), "a time in seconds")?;
        let range =
            sectors(field(Some(first), "an offset in sectors")?, field(Some(count), "a size in sectors")?)?;
        let kind = kind(op, "0", "1", "0 for a read or 1 for a write")?;
        Ok((nanos(at, 1_000_000_000)?, volume, plain(kind, range)))
    }
}

#[derive(Debug)]
pub(super) struct Mqsim;

impl Row for Mqsim {
    const MADE_BY: &'static str = "mqsim";
    const HEADING: &'static str = "";

    fn parse(line: &str) -> Result<(u64, &str, Request), Wrong> {
        let [at, device, first, count, op] =
            columns(line.split_whitespace(), "time, device, first sector, sectors, type")?;
        let range = sectors(field(Some(first), "a sector")?, field(Some(count), "a number of sectors")?)?;
        let kind = kind(op, "1", "0", "0 for a write or 1 for a read")?;
        Ok((field(Some(at), "a time in nanoseconds")?, device, plain(kind, range)))
    }
}
