//! Linux's blktrace: the text of blkparse in its default format, and the binary records themselves.
//!
//! The format is described in `blkparse(1)` and `blkparse_fmt.c`, and in `blktrace_api.h` (git.kernel.dk/blktrace, and
//! fio's copy). A line is
//!
//! ```text
//!   8,0    1       42     0.000123456  1234  D  WS 2048 + 8 [fio]
//! ```
//!
//! device, processor, sequence, seconds, process, action, operation and flags of the request (RWBS), sectors, and the
//! program, or the error of a completion. The binary form is a stream of 48-byte records in either byte order, each
//! followed by data of its own length, as `blktrace -o -` and `blkparse -d` write it; merge files of single processors
//! with `blkparse -d` first.
//!
//! A request begins when it is issued to the driver (D) and ends when the driver completes it (C). If a device has no
//! D, such as md, device mapper and zram, it begins when it is queued (Q). A completion is searched among the last
//! 65,536 requests and the last minute; a request without one has no latency. A request that is requeued (R) is issued
//! again later. Other actions do not concern the requests to a drive. Commands of other kinds than read, write, discard
//! and flush (zones, pass-through) are left out. The summary that blkparse prints at the end ends the trace.
//!
//! [`Writer`] writes any trace as such records.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, BufRead, Read as _, Write};

use super::input::{Lines, Names, Parser, Sorted, Wrong, field, malformed, sectors, sectors_of_bytes};
use super::oracle::record;
use super::{Event, Header, Record, Request, RequestKind, Source, TraceError};
use crate::units::{Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime};

/// Bits of a device number below its major number.
const MINOR_BITS: u32 = 20;
/// Major number of devices in a written trace: virtio's, as most kernels assign it.
const MAJOR: u32 = 254;
/// First 32 bits of a binary record: the magic number and the version.
pub(super) const MAGIC: u32 = 0x6561_7407;
const RECORD_BYTES: usize = 48;
const HELD_MAX: usize = 65_536;
/// Maximum time for which a request is held.
const HELD: SimDuration = SimDuration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    Issued,
    Requeued,
    Completed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    device: u32,
    stage: Stage,
    request: Request,
    preflush: bool,
}

/// Time, device, stage, request, and true if the cache is emptied before it; `None` for an event without a request.
type Parsed<D> = Result<Option<(u64, D, Stage, Request, bool)>, Wrong>;

#[derive(Debug)]
pub(super) struct Matched<P: Parser<Item = Action>> {
    events: Sorted<P>,
    held: VecDeque<Held>,
    first: u64,
    open: HashMap<(u32, RequestKind, Lba), VecDeque<u64>>,
    /// For each device: true if its requests begin with D.
    is_issued: HashMap<u32, bool>,
    now: SimTime,
    is_ended: bool,
    error: Option<TraceError>,
}

#[derive(Debug)]
struct Held {
    at: SimTime,
    device: u32,
    request: Request,
    is_open: bool,
    /// True if this was not a request to the drive: it was requeued, or queued and later issued.
    is_dropped: bool,
}

impl<P: Parser<Item = Action>> Matched<P> {
    pub fn new(parser: P) -> Self {
        Self {
            events: Sorted::new(parser),
            held: VecDeque::new(),
            first: 0,
            open: HashMap::new(),
            is_issued: HashMap::new(),
            now: SimTime::ZERO,
            is_ended: false,
            error: None,
        }
    }

    fn take_in(&mut self, at: SimTime, action: Action) {
        let Action { device, stage, request, preflush } = action;
        let key = (device, request.kind, request.sectors.first);
        match stage {
            Stage::Queued if self.is_issued.get(&device) == Some(&true) => {}
            Stage::Issued if self.is_issued.get(&device) == Some(&false) => {}
            Stage::Queued => self.begin(at, device, request, preflush),
            Stage::Issued => {
                if self.is_issued.insert(device, true).is_none() {
                    // What was queued so far was not yet what the drive was asked for.
                    for held in self.held.iter_mut().filter(|held| held.device == device) {
                        (held.is_dropped, held.is_open) = (true, false);
                    }
                    self.open.retain(|(open, ..), _| *open != device);
                }
                self.begin(at, device, request, preflush);
            }
            Stage::Requeued => {
                if let Some(held) = self.end(key) {
                    held.is_dropped = true;
                }
            }
            Stage::Completed => {
                if let Some(held) = self.end(key) {
                    held.request.latency = Some(at.since(held.at));
                    self.is_issued.entry(device).or_insert(false);
                }
            }
        }
    }

    fn begin(&mut self, at: SimTime, device: u32, request: Request, preflush: bool) {
        if preflush && request.kind != RequestKind::Flush {
            let flush = Request { kind: RequestKind::Flush, sectors: SectorRange::new(Lba(0), 0), ..request };
            self.held.push_back(Held { at, device, request: flush, is_open: false, is_dropped: false });
        }
        let number = self.first + self.held.len() as u64;
        self.open.entry((device, request.kind, request.sectors.first)).or_default().push_back(number);
        self.held.push_back(Held { at, device, request, is_open: true, is_dropped: false });
    }

    /// Finds the oldest open request of these first sector and kind, and ends it.
    fn end(&mut self, key: (u32, RequestKind, Lba)) -> Option<&mut Held> {
        let numbers = self.open.get_mut(&key)?;
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.open.remove(&key);
        }
        let held = self.held.get_mut((number? - self.first) as usize)?;
        held.is_open = false;
        Some(held)
    }

    /// Takes out the oldest request, if its completion is no longer awaited.
    fn release(&mut self) -> Option<Held> {
        let oldest = self.held.front()?;
        let (device, is_open) = (oldest.device, oldest.is_open);
        let may_go = self.is_ended
            || self.held.len() > HELD_MAX
            || self.now.since(oldest.at) > HELD
            || !is_open && (oldest.is_dropped || self.is_issued.contains_key(&device));
        if !may_go {
            return None;
        }
        let oldest = self.held.pop_front()?;
        if is_open {
            let key = (device, oldest.request.kind, oldest.request.sectors.first);
            if let Some(numbers) = self.open.get_mut(&key) {
                numbers.retain(|number| *number != self.first);
                if numbers.is_empty() {
                    self.open.remove(&key);
                }
            }
            self.is_issued.entry(device).or_insert(false);
        }
        self.first += 1;
        Some(oldest)
    }
}

impl<P: Parser<Item = Action>> Source for Matched<P> {
    fn header(&self) -> &Header {
        &self.events.names.header
    }

    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(Held { at, device, request, is_dropped, .. }) = self.release() {
                if is_dropped {
                    continue;
                }
                return Ok(Some(Record { at, device, event: Event::Request(request) }));
            }
            if self.is_ended {
                return self.error.take().map_or(Ok(None), Err);
            }
            match self.events.next() {
                Ok(Some((at, action))) => {
                    self.now = at;
                    self.take_in(at, action);
                }
                Ok(None) => self.is_ended = true,
                Err(error) => (self.is_ended, self.error) = (true, Some(error)),
            }
        }
    }
}

/// Parses the letters of a request: its kind and flags; `None` for other commands.
fn parse_rwbs(rwbs: &str) -> Option<(RequestKind, bool, Request)> {
    let (preflush, rest) = match rwbs.strip_prefix('F') {
        // A flush alone is FN, or FF with newer kernels; an F in front of W is a flush before the write.
        Some(rest) if rest.starts_with(['W', 'F', 'N']) => (true, rest),
        _ => (false, rwbs),
    };
    let mut letters = rest.chars();
    let kind = match letters.next()? {
        'R' => RequestKind::Read,
        'W' => RequestKind::Write,
        'D' => RequestKind::Discard,
        'F' | 'N' if preflush => RequestKind::Flush,
        'F' => RequestKind::Flush,
        _ => return None,
    };
    let flags: String = letters.collect();
    let request = Request {
        kind,
        sectors: SectorRange::new(Lba(0), 0),
        sync: flags.contains('S') || kind == RequestKind::Read,
        fua: flags.contains('F') && kind == RequestKind::Write,
        meta: flags.contains('M'),
        latency: None,
    };
    Some((kind, preflush, request))
}

/// Puts the sectors into a request; a write of nothing after a flush is the flush.
fn with_sectors(request: Request, preflush: bool, sectors: SectorRange) -> Option<Request> {
    match (request.kind, sectors.sectors) {
        (RequestKind::Flush, _) => Some(request),
        (RequestKind::Write, 0) if preflush => Some(Request { kind: RequestKind::Flush, ..request }),
        (_, 0) => None,
        _ => Some(Request { sectors, ..request }),
    }
}

#[derive(Debug)]
pub(super) struct Blkparse<R> {
    lines: Lines<R>,
    is_ended: bool,
}

impl<R: BufRead> Blkparse<R> {
    pub fn new(input: R) -> Self {
        Self { lines: Lines::new(input), is_ended: false }
    }
}

/// Returns true if a line is one of blkparse's events, judged by its first fields.
pub(super) fn is_blkparse(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_number = |text: Option<&str>| text.is_some_and(|text| text.parse::<u64>().is_ok());
    let is_device = words
        .next()
        .and_then(|text| text.split_once(','))
        .is_some_and(|(major, minor)| is_number(Some(major)) && is_number(Some(minor)));
    is_device
        && is_number(words.next())
        && is_number(words.next())
        && words.next().is_some_and(|at| seconds(at).is_ok())
}

fn seconds(text: &str) -> Result<u64, Wrong> {
    let expected = "a time in seconds, with a fraction of up to nine digits";
    let wrong = || Wrong(format!("'{text}'"), expected);
    let (whole, fraction) = text.split_once('.').ok_or_else(wrong)?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let fraction: u64 = fraction.parse().map_err(|_| wrong())?;
    whole.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(fraction * scale)).ok_or_else(wrong)
}

fn parse_line(line: &str) -> Parsed<&str> {
    const FIELDS: &str = "device, processor, sequence, seconds, process, action, RWBS";
    let mut words = line.split_whitespace();
    let device = words.next().unwrap_or_default();
    if !device.split_once(',').is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok()) {
        return Err(Wrong(format!("'{device}'"), "a device, as in 8,0, or the summary of blkparse"));
    }
    let _: u32 = field(words.next(), "a processor number")?;
    let _: u64 = field(words.next(), "a sequence number")?;
    let at = seconds(words.next().ok_or_else(|| Wrong("a line cut short".to_owned(), FIELDS))?)?;
    let _: u64 = field(words.next(), "a process ID")?;
    let stage = match words.next() {
        Some("Q") => Stage::Queued,
        Some("D") => Stage::Issued,
        Some("R") => Stage::Requeued,
        Some("C") => Stage::Completed,
        Some(_) => return Ok(None),
        None => return Err(Wrong("a line cut short".to_owned(), FIELDS)),
    };
    let rwbs = words.next().ok_or_else(|| Wrong("a line cut short".to_owned(), FIELDS))?;
    let Some((_, preflush, request)) = parse_rwbs(rwbs) else { return Ok(None) };
    // A request without data has no sectors: `[kworker]`, or `0 [0]` when it completes.
    let first: Option<u64> = words.next().and_then(|text| text.parse().ok());
    let range = match (first, words.next()) {
        (Some(first), Some("+")) => sectors(first, field(words.next(), "a number of sectors")?)?,
        _ => SectorRange::new(Lba(0), 0),
    };
    Ok(with_sectors(request, preflush, range).map(|request| (at, device, stage, request, preflush)))
}

impl<R: BufRead> Parser for Blkparse<R> {
    type Item = Action;
    const MADE_BY: &'static str = "blkparse";

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Action)>, TraceError> {
        while !self.is_ended {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if line.is_empty() || line.starts_with("Input file ") {
                continue;
            }
            if line.starts_with("CPU") || line.starts_with("Total (") {
                self.is_ended = true;
                break;
            }
            let parsed = parse_line(line).and_then(|parsed| {
                let Some((at, device, stage, request, preflush)) = parsed else { return Ok(None) };
                Ok(Some((at, Action { device: names.index(device)?, stage, request, preflush })))
            });
            if let Some(item) = parsed.map_err(|wrong| wrong.at(&self.lines.place()))? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    fn place(&self) -> String {
        self.lines.place()
    }
}

#[derive(Debug)]
pub(super) struct Binary<R> {
    input: R,
    records: u64,
    bytes: (u64, u64),
}

impl<R: BufRead> Binary<R> {
    pub fn new(input: R) -> Self {
        Self { input, records: 0, bytes: (0, 0) }
    }
}

struct Numbers<'a> {
    bytes: &'a [u8; RECORD_BYTES],
    is_big_endian: bool,
}

impl Numbers<'_> {
    fn at<const N: usize>(&self, at: usize) -> u64 {
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let bytes = &self.bytes[at..at + N];
        if self.is_big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    }
}

mod category {
    pub const READ: u64 = 1 << 0;
    pub const WRITE: u64 = 1 << 1;
    pub const FLUSH: u64 = 1 << 2;
    pub const SYNC: u64 = 1 << 3;
    pub const QUEUE: u64 = 1 << 4;
    pub const ISSUE: u64 = 1 << 6;
    pub const COMPLETE: u64 = 1 << 7;
    pub const FS: u64 = 1 << 8;
    pub const PC: u64 = 1 << 9;
    pub const NOTIFY: u64 = 1 << 10;
    pub const META: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const FUA: u64 = 1 << 15;
}

mod code {
    pub const QUEUED: u64 = 1;
    pub const REQUEUED: u64 = 6;
    pub const ISSUED: u64 = 7;
    pub const COMPLETED: u64 = 8;
}

fn parse_record(numbers: &Numbers) -> Parsed<u64> {
    let action = numbers.at::<4>(28);
    let is = |bit: u64| (action >> 16) & bit != 0;
    // Bit 8 says that a control group follows.
    let stage = match action & 0xff {
        _ if is(category::NOTIFY) => return Ok(None),
        code::QUEUED => Stage::Queued,
        code::REQUEUED => Stage::Requeued,
        code::ISSUED => Stage::Issued,
        code::COMPLETED => Stage::Completed,
        _ => return Ok(None),
    };
    let bytes = numbers.at::<4>(24);
    if is(category::PC) && !is(category::FS) {
        return Ok(None);
    }
    let preflush = is(category::FLUSH);
    let kind = match () {
        () if is(category::DISCARD) => RequestKind::Discard,
        () if is(category::WRITE) => RequestKind::Write,
        () if bytes == 0 && preflush => RequestKind::Flush,
        () => RequestKind::Read,
    };
    let first = numbers.at::<8>(16);
    let count = sectors_of_bytes(RequestKind::Read, 0, bytes)?.sectors;
    let range = if count == 0 { SectorRange::new(Lba(0), 0) } else { sectors(first, count)? };
    let request = Request {
        kind,
        sectors: SectorRange::new(Lba(0), 0),
        sync: is(category::SYNC) || kind == RequestKind::Read,
        fua: is(category::FUA) && kind == RequestKind::Write,
        meta: is(category::META),
        latency: None,
    };
    let request = with_sectors(request, preflush, range);
    Ok(request.map(|request| (numbers.at::<8>(8), numbers.at::<4>(36), stage, request, preflush)))
}

impl<R: BufRead> Parser for Binary<R> {
    type Item = Action;
    const MADE_BY: &'static str = "blktrace";

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Action)>, TraceError> {
        loop {
            self.records += 1;
            self.bytes.0 = self.bytes.1;
            let (number, at) = (self.records, self.bytes.0);
            let Some(bytes) = record::<RECORD_BYTES>(&mut self.input, || place(number, at))? else {
                return Ok(None);
            };
            let is_big_endian = bytes[..4] == MAGIC.to_be_bytes();
            if !is_big_endian && bytes[..4] != MAGIC.to_le_bytes() {
                let what = format!("the bytes {:02x?}", &bytes[..4]);
                return Err(malformed(&self.place(), what, "blktrace's magic number, version 7"));
            }
            let numbers = Numbers { bytes: &bytes, is_big_endian };
            let data = numbers.at::<2>(46);
            let skipped = std::io::copy(&mut (&mut self.input).take(data), &mut std::io::sink());
            match skipped {
                Ok(skipped) if skipped == data => {}
                Ok(_) => return Err(TraceError::Truncated { place: self.place() }),
                Err(source) => return Err(TraceError::Io { place: self.place(), source }),
            }
            let parsed = parse_record(&numbers).and_then(|parsed| {
                let Some((at, device, stage, request, preflush)) = parsed else { return Ok(None) };
                let name = format!("{},{}", device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
                Ok(Some((at, Action { device: names.index(&name)?, stage, request, preflush })))
            });
            let item = parsed.map_err(|wrong| wrong.at(&self.place()))?;
            self.bytes.1 += RECORD_BYTES as u64 + data;
            if item.is_some() {
                return Ok(item);
            }
        }
    }

    fn place(&self) -> String {
        place(self.records, self.bytes.0)
    }
}

fn place(record: u64, byte: u64) -> String {
    format!("record {record}, byte {byte}")
}

/// Writes blktrace's binary records, little endian, all of one processor, as `blktrace -o -` would in order of time.
///
/// blkparse and btt read them (`blkparse -i - <FILE`, `btt -i FILE`); `blkparse -i NAME` looks for a file whose name
/// ends in `.blktrace.0`. Each request has three records: queued, issued and completed. A trace does not know the time
/// at which a request was queued, so the record of it has the time of its issue; no process is named. Other events are
/// left out.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    sequence: u32,
    /// Requests in flight, by the time of their completion and then by their number.
    open: BinaryHeap<Reverse<(SimTime, u64, Row)>>,
    requests: u64,
}

/// The fields that the three records of a request share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    first: Lba,
    bytes: u32,
    device: u32,
    categories: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace; the format has no header.
    pub fn new(out: W) -> Self {
        Self { out, sequence: 0, open: BinaryHeap::new(), requests: 0 }
    }

    /// Writes a request, after the completions before it. Pass records in the order of their time.
    ///
    /// # Errors
    /// Errors of the output, and `InvalidInput` for a request of 4 GiB or more, or a device beyond 65,535: the records
    /// have no room for them.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let Event::Request(request) = record.event else { return Ok(()) };
        let too_large = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let sectors = request.sectors.sectors;
        let bytes = sectors.checked_mul(SECTOR_BYTES).and_then(|bytes| u32::try_from(bytes).ok());
        let Some(bytes) = bytes else {
            return Err(too_large(format!(
                "a request of {sectors} sectors; expected less than 4 GiB for blktrace"
            )));
        };
        if record.device > 0xffff {
            return Err(too_large(format!("device {}; expected at most 65535 for blktrace", record.device)));
        }
        self.complete_until(record.at)?;
        let flags =
            [(request.sync, category::SYNC), (request.meta, category::META), (request.fua, category::FUA)];
        let kind = match request.kind {
            RequestKind::Read => category::READ,
            RequestKind::Write => category::WRITE,
            RequestKind::Discard => category::WRITE | category::DISCARD,
            RequestKind::Flush => category::READ | category::FLUSH,
        };
        let categories =
            flags.iter().filter(|(is_set, _)| *is_set).fold(kind | category::FS, |all, (_, bit)| all | bit);
        // blktrace's device numbers are those of disks, which have 16 minor numbers each.
        let device = MAJOR << MINOR_BITS | record.device << 4;
        let row = Row { first: request.sectors.first, bytes, device, categories };
        self.put(record.at, row, code::QUEUED, category::QUEUE)?;
        self.put(record.at, row, code::ISSUED, category::ISSUE)?;
        if let Some(latency) = request.latency {
            self.open.push(Reverse((record.at + latency, self.requests, row)));
        }
        self.requests += 1;
        Ok(())
    }

    /// Writes the completions that are left, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.complete_until(SimTime(u64::MAX))?;
        Ok(self.out)
    }

    fn complete_until(&mut self, now: SimTime) -> io::Result<()> {
        while let Some(&Reverse((at, _, row))) = self.open.peek().filter(|Reverse((at, ..))| *at <= now) {
            self.open.pop();
            self.put(at, row, code::COMPLETED, category::COMPLETE)?;
        }
        Ok(())
    }

    fn put(&mut self, at: SimTime, row: Row, code: u64, stage: u64) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let action = ((row.categories | stage) << 16 | code) as u32;
        self.out.write_all(&MAGIC.to_le_bytes())?;
        self.out.write_all(&self.sequence.to_le_bytes())?;
        self.out.write_all(&at.0.to_le_bytes())?;
        self.out.write_all(&row.first.0.to_le_bytes())?;
        self.out.write_all(&row.bytes.to_le_bytes())?;
        self.out.write_all(&action.to_le_bytes())?;
        self.out.write_all(&0u32.to_le_bytes())?; // process
        self.out.write_all(&row.device.to_le_bytes())?;
        self.out.write_all(&0u32.to_le_bytes())?; // processor
        self.out.write_all(&[0; 4]) // no error, no data
    }
}
