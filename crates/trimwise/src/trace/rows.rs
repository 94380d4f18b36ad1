//! Traces with one request a line: the published ones, and the text of biosnoop.
//!
//! Most of them have no discards, frees or flushes, so they show how a drive serves requests, and nothing about TRIM.
//!
//! - **MSR Cambridge** (`README.txt` of the SNIA IOTTA traces 387):
//!   `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; times in Windows file time, 100 ns; offset and size
//!   in bytes; `Read` or `Write`.
//! - **SYSTOR '17** (`README.txt` of the SNIA IOTTA traces 4964): `Timestamp,Response,IOType,LUN,Offset,Size`; seconds
//!   with a fraction; `R` or `W`; bytes. A blank type means that no response was seen: such a line is left out.
//! - **Alibaba** (`README.md` of github.com/alibaba/block-traces): `device_id,opcode,offset,length,timestamp`; `R` or
//!   `W`; bytes; microseconds.
//! - **Tencent** (`README` of the SNIA IOTTA traces 28064): `Timestamp,Offset,Size,IOType,VolumeID`; whole
//!   seconds; sectors; 0 reads, 1 writes. Requests of one second have the same time, in the order of the file: replay
//!   such a trace closed.
//! - **SPC** (SPC trace file format 1.0.1; the Financial and WebSearch traces of the UMass repository):
//!   `ASU,LBA,Size,Opcode,Timestamp` and perhaps more; blocks of 512 bytes; bytes; `R` or `W`; seconds with a fraction.
//! - **CloudPhysics as text** (`data` of github.com/1a1a11a/libCacheSim): `version,time,op,size,lbn`; whole seconds; a
//!   SCSI command in hexadecimal; bytes; sectors. Lines with nothing but a sector are reads of it, all at one time.
//! - **MQSim** (`traces/README.md` of github.com/umn-cris/MQSim): time, device, first sector, sectors, type, separated by
//!   spaces; 0 writes, 1 reads. The unit of time is set in MQSim's workload file; this reads nanoseconds, its default.
//!   SSDsim's traces are the same.
//! - **DiskSim's ASCII format** (DiskSim 4.0 Reference Manual, "Input traces"), as for FlashSim: time, device, first block,
//!   blocks, flags, separated by spaces; milliseconds with a fraction; blocks of 512 bytes; the lowest of the flags is set
//!   for a read.
//! - **Event Tracing for Windows** as `xperf -a dumper` prints it, and as in Microsoft's production and enterprise
//!   traces (SNIA IOTTA traces 130 and 158): `DiskRead`, `DiskWrite` and `DiskFlush` with the columns that a header
//!   between `BeginHeader` and `EndHeader` names; microseconds. Other events are no requests.
//! - **biosnoop** of bcc and libbpf-tools, and **iosnoop** of perf-tools: columns as the heading names them, seconds and
//!   milliseconds with a fraction. Without `-s` or `-t`, requests of iosnoop have no times.
//!
//! The lines of the last two are in the order of completion and have the time of that; a request is issued as much
//! earlier as it took. A request of no bytes is left out. Bytes that are no whole sectors count as the sectors that they
//! touch. A first line of words without a digit is a heading, and lines that begin with `#` are comments.

use memchr::memchr_iter;

use super::blktrace::parse_rwbs;
use super::input::{
    Input, Lines, Names, Parser, Wrong, billionths, field, hexadecimal, nanos, number, plain, sectors,
    sectors_of_bytes, shown, words,
};
use super::{Request, RequestKind, TraceError};
use crate::units::{Lba, SECTOR_BYTES, SectorRange, SimDuration};

const READ_OR_WRITE: &str = "R or W";
/// Added to times that count from the beginning of a recording, so that a request may have been issued before it.
const BEGINNING_NS: u64 = 86_400 * 1_000_000_000;

pub(super) enum Line<'l> {
    Request(u64, &'l [u8], Request),
    /// A request whose kind the format leaves open, or is none of ours.
    Other,
    Nothing,
}

pub(super) trait Row: Default {
    const MADE_BY: &'static str;
    const WINDOW: SimDuration = SimDuration::from_secs(1);
    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong>;
    /// Returns true if the tool printed a line before its first event.
    fn is_banner(_: &[u8]) -> bool {
        false
    }
    /// Learns the columns from a first line without a digit.
    fn heading(&mut self, _: &[u8]) {}
}

#[derive(Debug)]
pub(super) struct Rows<'a, F> {
    lines: Lines<'a>,
    is_first: bool,
    format: F,
}

impl<'a, F: Row> Rows<'a, F> {
    pub fn new(input: Input<'a>) -> Self {
        Self { lines: Lines::new(input), is_first: true, format: F::default() }
    }
}

impl<F: Row> Parser for Rows<'_, F> {
    type Item = (u32, Request);
    const MADE_BY: &'static str = F::MADE_BY;
    const WINDOW: SimDuration = F::WINDOW;

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError> {
        loop {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if line.is_empty() || line.starts_with(b"#") || self.is_first && F::is_banner(line) {
                continue;
            }
            if std::mem::take(&mut self.is_first) && !line.iter().any(u8::is_ascii_digit) {
                self.format.heading(line);
                continue;
            }
            let parsed = self.format.parse(line).and_then(|parsed| match parsed {
                Line::Request(at, device, request) => {
                    let is_empty = request.sectors.sectors == 0 && request.kind != RequestKind::Flush;
                    names.left_out.empty += u64::from(is_empty);
                    let device = names.index(device)?;
                    Ok((!is_empty).then_some((at, (device, request))))
                }
                Line::Other => {
                    names.left_out.other += 1;
                    Ok(None)
                }
                Line::Nothing => Ok(None),
            });
            match parsed.map_err(|wrong| wrong.on(line)) {
                Ok(None) => {}
                Ok(item) => return Ok(item),
                Err(wrong) => return Err(wrong.at(&self.lines.place())),
            }
        }
    }

    fn place(&self) -> String {
        self.lines.place()
    }
}

/// Splits a line at its commas. Returns the first columns and the number of all.
#[inline]
fn split<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut columns = [&[][..]; N];
    let (mut count, mut start) = (0, 0);
    for comma in memchr_iter(b',', line).chain([line.len()]) {
        if let Some(column) = columns.get_mut(count) {
            *column = line[start..comma].trim_ascii();
        }
        (count, start) = (count + 1, comma + 1);
    }
    (columns, count)
}

#[inline]
fn exactly<'l, const N: usize>(
    (columns, count): ([&'l [u8]; N], usize),
    expected: &'static str,
) -> Result<[&'l [u8]; N], Wrong> {
    match count {
        _ if count == N => Ok(columns),
        _ if count > N => Err(Wrong(format!("more than {N} columns"), expected)),
        _ => Err(Wrong(format!("{count} columns"), expected)),
    }
}

fn words_of<const N: usize>(line: &[u8]) -> ([&[u8]; N], usize) {
    let mut columns = [&[][..]; N];
    let mut count = 0;
    for word in words(line) {
        if let Some(column) = columns.get_mut(count) {
            *column = word;
        }
        count += 1;
    }
    (columns, count)
}

#[inline]
fn kind(text: &[u8], read: &str, write: &str, expected: &'static str) -> Result<RequestKind, Wrong> {
    match () {
        () if text.eq_ignore_ascii_case(read.as_bytes()) => Ok(RequestKind::Read),
        () if text.eq_ignore_ascii_case(write.as_bytes()) => Ok(RequestKind::Write),
        () => Err(Wrong(format!("type {}", shown(text)), expected)),
    }
}

/// Parses a time in units that are this many nanoseconds long, with a fraction.
fn decimal(text: &[u8], unit_ns: u64, expected: &'static str) -> Result<u64, Wrong> {
    let time = billionths(text).ok_or_else(|| Wrong(shown(text), expected))?;
    Ok(time / (1_000_000_000 / unit_ns))
}

/// Builds a request from its latency and from the time of its end since the beginning of the recording.
fn completed<'l>(ended: u64, latency: u64, device: &'l [u8], request: Request) -> Line<'l> {
    let at = BEGINNING_NS.saturating_add(ended).saturating_sub(latency);
    let latency = Some(SimDuration::from_nanos(latency));
    Line::Request(at, device, Request { latency, ..request })
}

pub(super) fn scsi(command: u64) -> Option<RequestKind> {
    match command {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(RequestKind::Read),
        0x0a | 0x2a | 0x8a | 0xaa => Some(RequestKind::Write),
        _ => None,
    }
}

#[derive(Debug, Default)]
pub(super) struct Msr;

impl Row for Msr {
    const MADE_BY: &'static str = "msr";

    #[inline]
    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        const FILE_TIME_NS: u64 = 100;
        const COLUMNS: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
        let [at, host, disk, kind_text, offset, size, response] = exactly(split(line), COLUMNS)?;
        let _: u32 = field(Some(disk), "a disk number")?;
        let at = field(Some(at), "a time in units of 100 ns")?;
        let kind = kind(kind_text, "Read", "Write", "Read or Write")?;
        let response = field(Some(response), "a response time in units of 100 ns")?;
        let range = sectors_of_bytes(
            kind,
            field(Some(offset), "an offset in bytes")?,
            field(Some(size), "a size in bytes")?,
        )?;
        let latency = Some(SimDuration::from_nanos(nanos(response, FILE_TIME_NS)?));
        // File time counts from 1601. In nanoseconds, today is beyond 2^63, and any time before 2185 fits in 64 bits.
        let start = host.as_ptr() as usize - line.as_ptr() as usize;
        let end = disk.as_ptr() as usize - line.as_ptr() as usize + disk.len();
        let request = Request { latency, ..plain(kind, range) };
        Ok(Line::Request(nanos(at, FILE_TIME_NS)?, &line[start..end], request))
    }
}

#[derive(Debug, Default)]
pub(super) struct Systor;

impl Row for Systor {
    const MADE_BY: &'static str = "systor";

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        let columns = exactly(split(line), "Timestamp,Response,IOType,LUN,Offset,Size")?;
        let [at, response, kind_text, device, offset, size] = columns;
        if kind_text.is_empty() {
            return Ok(Line::Other);
        }
        let at = decimal(at, 1_000_000_000, "a time in seconds")?;
        let kind = kind(kind_text, "R", "W", "R, W or nothing")?;
        let range = sectors_of_bytes(
            kind,
            field(Some(offset), "an offset in bytes")?,
            field(Some(size), "a size in bytes")?,
        )?;
        let latency = match response {
            b"" => None,
            response => Some(decimal(response, 1_000_000_000, "a response time in seconds")?),
        };
        let latency = latency.map(SimDuration::from_nanos);
        Ok(Line::Request(at, device, Request { latency, ..plain(kind, range) }))
    }
}

#[derive(Debug, Default)]
pub(super) struct Alibaba;

impl Row for Alibaba {
    const MADE_BY: &'static str = "alibaba";

    #[inline]
    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        let [device, op, offset, length, at] =
            exactly(split(line), "device_id,opcode,offset,length,timestamp")?;
        let at = field(Some(at), "a time in microseconds")?;
        let kind = kind(op, "R", "W", READ_OR_WRITE)?;
        let range = sectors_of_bytes(
            kind,
            field(Some(offset), "an offset in bytes")?,
            field(Some(length), "a length in bytes")?,
        )?;
        Ok(Line::Request(nanos(at, 1_000)?, device, plain(kind, range)))
    }
}

#[derive(Debug, Default)]
pub(super) struct Tencent;

impl Row for Tencent {
    const MADE_BY: &'static str = "tencent";

    #[inline]
    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        let [at, first, count, op, volume] = exactly(split(line), "Timestamp,Offset,Size,IOType,VolumeID")?;
        let at = field(Some(at), "a time in seconds")?;
        let (first, count) =
            (field(Some(first), "an offset in sectors")?, field(Some(count), "a size in sectors")?);
        let kind = kind(op, "0", "1", "0 for a read or 1 for a write")?;
        let range = sectors(kind, first, count)?;
        Ok(Line::Request(nanos(at, 1_000_000_000)?, volume, plain(kind, range)))
    }
}

#[derive(Debug, Default)]
pub(super) struct Spc;

impl Row for Spc {
    const MADE_BY: &'static str = "spc";

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        let (columns, count) = split(line);
        let [unit, block, size, op, at] = exactly((columns, count.min(5)), "ASU,LBA,Size,Opcode,Timestamp")?;
        let at = decimal(at, 1_000_000_000, "a time in seconds")?;
        let kind = kind(op, "R", "W", READ_OR_WRITE)?;
        let bytes: u64 = field(Some(size), "a size in bytes")?;
        let range = sectors(kind, field(Some(block), "a block")?, bytes.div_ceil(SECTOR_BYTES))?;
        Ok(Line::Request(at, unit, plain(kind, range)))
    }
}

#[derive(Debug, Default)]
pub(super) struct CloudPhysics;

impl Row for CloudPhysics {
    const MADE_BY: &'static str = "cloudphysics";

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        const DEVICE: &[u8] = b"disk";
        let (columns, count) = split(line);
        if count == 1 {
            let range = sectors(RequestKind::Read, field(Some(line), "a sector")?, 1)?;
            return Ok(Line::Request(0, DEVICE, plain(RequestKind::Read, range)));
        }
        let [_, at, op, size, first] =
            exactly((columns, count), "version,time,op,size,lbn, or a sector alone")?;
        let command = hexadecimal(op).ok_or_else(|| Wrong(shown(op), "a SCSI command in hexadecimal"))?;
        let Some(kind) = scsi(command) else { return Ok(Line::Other) };
        let at = nanos(field(Some(at), "a time in seconds")?, 1_000_000_000)?;
        let bytes: u64 = field(Some(size), "a size in bytes")?;
        let range = sectors(kind, field(Some(first), "a sector")?, bytes.div_ceil(SECTOR_BYTES))?;
        Ok(Line::Request(at, DEVICE, plain(kind, range)))
    }
}

#[derive(Debug, Default)]
pub(super) struct DiskSim;

impl Row for DiskSim {
    const MADE_BY: &'static str = "disksim";

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        let [at, device, block, count, flags] =
            exactly(words_of(line), "time, device, block, blocks, flags")?;
        let at = decimal(at, 1_000_000, "a time in milliseconds")?;
        let (block, count) = (field(Some(block), "a block")?, field(Some(count), "a number of blocks")?);
        let flags = hexadecimal(flags).ok_or_else(|| Wrong(shown(flags), "flags in hexadecimal"))?;
        let kind = if flags & 1 == 1 { RequestKind::Read } else { RequestKind::Write };
        Ok(Line::Request(at, device, plain(kind, sectors(kind, block, count)?)))
    }
}

#[derive(Debug, Default)]
pub(super) struct Mqsim;

impl Row for Mqsim {
    const MADE_BY: &'static str = "mqsim";

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        let [at, device, first, count, op] =
            exactly(words_of(line), "time, device, first sector, sectors, type")?;
        let (first, count) = (field(Some(first), "a sector")?, field(Some(count), "a number of sectors")?);
        let kind = kind(op, "1", "0", "0 for a write or 1 for a read")?;
        let range = sectors(kind, first, count)?;
        Ok(Line::Request(field(Some(at), "a time in nanoseconds")?, device, plain(kind, range)))
    }
}

/// Positions of the columns of transfers and of flushes. The newest versions have the processor among them.
#[derive(Debug)]
pub(super) struct Etw {
    transfer: EtwColumns,
    flush: EtwColumns,
    is_in_header: bool,
}

/// Positions of columns; `None` where an event does not have the column.
#[derive(Clone, Copy, Debug)]
struct EtwColumns {
    at: Option<usize>,
    offset: Option<usize>,
    size: Option<usize>,
    elapsed: Option<usize>,
    disk: Option<usize>,
}

impl Default for Etw {
    fn default() -> Self {
        let transfer =
            EtwColumns { at: Some(1), offset: Some(5), size: Some(6), elapsed: Some(7), disk: Some(8) };
        let flush = EtwColumns { offset: None, size: None, elapsed: Some(5), disk: Some(6), ..transfer };
        Self { transfer, flush, is_in_header: false }
    }
}

impl Row for Etw {
    const MADE_BY: &'static str = "etw";
    const WINDOW: SimDuration = SimDuration::from_secs(60);

    fn is_banner(line: &[u8]) -> bool {
        is_banner_of_xperf(line)
    }

    fn heading(&mut self, line: &[u8]) {
        self.is_in_header = line.trim_ascii() == b"BeginHeader";
    }

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        const MICROSECONDS: &str = "a time in microseconds";
        let (columns, count) = split::<16>(line);
        let kind = match columns[0] {
            b"DiskRead" => RequestKind::Read,
            b"DiskWrite" => RequestKind::Write,
            b"DiskFlush" => RequestKind::Flush,
            b"EndHeader" => {
                self.is_in_header = false;
                return Ok(Line::Nothing);
            }
            event if !event.first().is_some_and(u8::is_ascii_alphabetic) => {
                return Err(Wrong(shown(line), "an event, as in DiskRead, TimeStamp, ..."));
            }
            _ => return Ok(Line::Nothing),
        };
        let places = if kind == RequestKind::Flush { &mut self.flush } else { &mut self.transfer };
        if self.is_in_header {
            let find = |name: &[u8]| columns.iter().position(|column| *column == name);
            *places = EtwColumns {
                at: find(b"TimeStamp"),
                offset: find(b"ByteOffset"),
                size: find(b"IOSize"),
                elapsed: find(b"ElapsedTime"),
                disk: find(b"DiskNum"),
            };
            return Ok(Line::Nothing);
        }
        let text = |place: Option<usize>| place.filter(|place| *place < count).map(|place| columns[place]);
        let hex = |place, expected| {
            let text = text(place).ok_or_else(|| Wrong("a field is missing".to_owned(), expected))?;
            hexadecimal(text).ok_or_else(|| Wrong(shown(text), expected))
        };
        let ended = nanos(field(text(places.at), MICROSECONDS)?, 1_000)?;
        let elapsed = nanos(field(text(places.elapsed), MICROSECONDS)?, 1_000)?;
        let _: u32 = field(text(places.disk), "a disk number")?;
        let disk = text(places.disk).unwrap_or_default();
        let range = match kind {
            RequestKind::Flush => SectorRange::new(Lba(0), 0),
            _ => sectors_of_bytes(
                kind,
                hex(places.offset, "an offset in bytes, hexadecimal")?,
                hex(places.size, "a size in bytes, hexadecimal")?,
            )?,
        };
        Ok(completed(ended, elapsed, disk, plain(kind, range)))
    }
}

/// `[File]` and the version of Windows, in front of `BeginHeader`.
pub(super) fn is_banner_of_xperf(line: &[u8]) -> bool {
    line.starts_with(b"[") && line.ends_with(b"]") || line.starts_with(b"OS Version: ")
}

/// `Tracing block device I/O... Hit Ctrl-C to end.`, in newer versions without `device`.
pub(super) fn is_banner_of_biosnoop(line: &[u8]) -> bool {
    line.starts_with(b"Tracing block ")
}

/// Positions of the columns of biosnoop and iosnoop: times from the left, the others from the right, as a program's name
/// between them may have spaces.
#[derive(Debug)]
pub(super) struct Biosnoop {
    started: Option<usize>,
    ended: Option<usize>,
    disk: Option<usize>,
    kind: Option<usize>,
    sector: Option<usize>,
    bytes: Option<usize>,
    latency: Option<usize>,
}

impl Default for Biosnoop {
    fn default() -> Self {
        Self::of(b"TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)")
    }
}

impl Biosnoop {
    fn of(heading: &[u8]) -> Self {
        let columns: Vec<&[u8]> = words(heading).collect();
        let left = |names: &[&[u8]]| columns.iter().position(|column| names.contains(column));
        let right = |names: &[&[u8]]| columns.iter().rev().position(|column| names.contains(column));
        Self {
            started: left(&[b"STARTs"]),
            ended: left(&[b"TIME(s)", b"ENDs"]),
            disk: right(&[b"DISK", b"DEV"]),
            kind: right(&[b"T", b"TYPE"]),
            sector: right(&[b"SECTOR", b"BLOCK"]),
            bytes: right(&[b"BYTES"]),
            latency: right(&[b"LAT(ms)", b"LATms"]),
        }
    }
}

/// Returns true for the heading of biosnoop or of perf-tools' iosnoop, whose times are options.
pub(super) fn is_heading_of_biosnoop(line: &[u8]) -> bool {
    let has = |name: &[u8]| words(line).any(|word| word == name);
    line.starts_with(b"TIME(s)") && has(b"SECTOR") || has(b"COMM") && has(b"BLOCK") && has(b"LATms")
}

impl Row for Biosnoop {
    const MADE_BY: &'static str = "biosnoop";
    const WINDOW: SimDuration = SimDuration::from_secs(60);

    fn is_banner(line: &[u8]) -> bool {
        is_banner_of_biosnoop(line)
    }

    fn heading(&mut self, line: &[u8]) {
        *self = Self::of(line);
    }

    fn parse<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, Wrong> {
        const COLUMNS: &str = "the columns of a heading such as TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)";
        const SECONDS: &str = "a time in seconds";
        // iosnoop's last line.
        if line.starts_with(b"Ending tracing") {
            return Ok(Line::Nothing);
        }
        let right = |place: Option<usize>| {
            let mut last = line.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let place =
                place.ok_or_else(|| Wrong("a column is missing in the heading".to_owned(), COLUMNS))?;
            last.nth(place).ok_or_else(|| Wrong("a line cut short".to_owned(), COLUMNS))
        };
        let latency = decimal(right(self.latency)?, 1_000_000, "a latency in milliseconds")?;
        let (bytes, sector, disk) = (right(self.bytes)?, right(self.sector)?, right(self.disk)?);
        let time = |place: Option<usize>| {
            let text = place.map(|place| words(line).nth(place).unwrap_or_default());
            text.map(|text| decimal(text, 1_000_000_000, SECONDS)).transpose()
        };
        let (started, ended) = (time(self.started)?, time(self.ended)?);
        let Some((_, _, request)) = parse_rwbs(right(self.kind)?) else { return Ok(Line::Other) };
        let bytes: u64 = field(Some(bytes), "a size in bytes")?;
        let range = match request.kind {
            RequestKind::Flush => SectorRange::new(Lba(0), 0),
            // bcc writes a request without sectors as one at the last of all.
            _ if bytes == 0 => SectorRange::new(Lba(0), 0),
            _ if number(sector).is_none() && sector.starts_with(b"-") => return Ok(Line::Other),
            kind => sectors(kind, field(Some(sector), "a sector")?, bytes.div_ceil(SECTOR_BYTES))?,
        };
        let request = Request { sectors: range, ..request };
        Ok(match (started, ended) {
            (None, Some(ended)) => completed(ended, latency, disk, request),
            (started, _) => {
                let latency = Some(SimDuration::from_nanos(latency));
                Line::Request(started.unwrap_or(0), disk, Request { latency, ..request })
            }
        })
    }
}
