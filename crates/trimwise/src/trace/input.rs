//! Shared parts of the importers: lines, numbers, names of devices, and the order of records.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::io::{BufRead, ErrorKind, Read as _};
use std::str::FromStr;

use super::{Event, Header, Record, Request, RequestKind, Source, TraceDevice, TraceError};
use crate::units::{Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime};

/// Maximum length of a line, in bytes: a blkparse line is a tenth of it.
const LINE_BYTES_MAX: u64 = 4096;
/// Maximum number of devices in a trace; more are a sign of the wrong format.
const DEVICES_MAX: usize = 65_536;
/// Maximum number of records whose order is restored: many times the requests that a host has in flight at once.
const WINDOW_RECORDS: usize = 65_536;
/// Time within which the order of records is restored: longer than a request normally takes.
const WINDOW: SimDuration = SimDuration::from_secs(1);
/// Exclusive upper bound of sectors, so that their bytes fit into 64 bits.
const SECTORS_MAX: u64 = u64::MAX / SECTOR_BYTES;

/// Creates the error for input that does not follow the format.
pub(super) fn malformed(place: &str, what: impl Into<String>, expected: &str) -> TraceError {
    TraceError::Malformed { place: place.to_owned(), what: what.into(), expected: expected.to_owned() }
}

/// Reads lines of limited length and counts them.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    pub fn place(&self) -> String {
        format!("line {}", self.number)
    }

    pub fn next(&mut self) -> Result<Option<&str>, TraceError> {
        self.line.clear();
        self.number += 1;
        let place = self.place();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        match read {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            // A compressed file that was cut off.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Err(TraceError::Truncated { place }),
            Err(source) => return Err(TraceError::Io { place, source }),
        }
        if self.line.last() != Some(&b'\n') && self.line.len() as u64 == LINE_BYTES_MAX {
            return Err(malformed(&place, format!("more than {LINE_BYTES_MAX} bytes"), "a line of text"));
        }
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some(text.trim_end())),
            Err(_) => Err(malformed(&place, "invalid UTF-8", "a line of text")),
        }
    }
}

/// A field that could not be read: its description, and the expected form.
pub(super) struct Wrong(pub String, pub &'static str);

impl Wrong {
    pub fn at(self, place: &str) -> TraceError {
        malformed(place, self.0, self.1)
    }
}

pub(super) fn field<T: FromStr>(text: Option<&str>, expected: &'static str) -> Result<T, Wrong> {
    let text = text.ok_or_else(|| Wrong("a field is missing".to_owned(), expected))?.trim();
    text.parse().map_err(|_| Wrong(format!("'{text}'"), expected))
}

/// Returns the nanoseconds of a time that is a multiple of `unit_ns`.
pub(super) fn nanos(count: u64, unit_ns: u64) -> Result<u64, Wrong> {
    let expected = "a time that fits into 64 bits of nanoseconds";
    count.checked_mul(unit_ns).ok_or_else(|| Wrong(format!("time {count}"), expected))
}

/// Returns the sectors that hold these bytes. A read or write covers every sector that it touches; a discard only those
/// that lie in it as a whole.
pub(super) fn sectors_of_bytes(kind: RequestKind, offset: u64, length: u64) -> Result<SectorRange, Wrong> {
    let Some(end) = offset.checked_add(length) else {
        return Err(Wrong(format!("{length} bytes from byte {offset}"), "bytes below 2^64"));
    };
    let (first, end) = match kind {
        RequestKind::Discard => (offset.div_ceil(SECTOR_BYTES), end / SECTOR_BYTES),
        _ => (offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES)),
    };
    Ok(SectorRange::new(Lba(first), end.saturating_sub(first)))
}

pub(super) fn sectors(first: u64, count: u64) -> Result<SectorRange, Wrong> {
    match first.checked_add(count).is_some_and(|end| end <= SECTORS_MAX) {
        true => Ok(SectorRange::new(Lba(first), count)),
        false => Err(Wrong(format!("{count} sectors from sector {first}"), "sectors below 2^55")),
    }
}

pub(super) fn plain(kind: RequestKind, sectors: SectorRange) -> Request {
    Request { kind, sectors, sync: kind == RequestKind::Read, fua: false, meta: false, latency: None }
}

#[derive(Debug)]
pub(super) struct Names {
    pub header: Header,
    indices: HashMap<String, u32>,
}

impl Names {
    /// Returns the index of a device. A new one is added to the header.
    pub fn index(&mut self, name: &str) -> Result<u32, Wrong> {
        if let Some(index) = self.indices.get(name) {
            return Ok(*index);
        }
        let index = self.header.devices.len();
        if index == DEVICES_MAX {
            return Err(Wrong(format!("one device too many, '{name}'"), "at most 65,536 devices"));
        }
        self.header.devices.push(TraceDevice { name: name.to_owned(), ..TraceDevice::default() });
        self.indices.insert(name.to_owned(), index as u32);
        Ok(index as u32)
    }
}

/// Reads one format, in the order of the file.
pub(super) trait Parser {
    type Item;
    /// Origin of such traces, for the header.
    const MADE_BY: &'static str;
    /// Returns the next item with its time in nanoseconds, counted from anywhere; `None` at the end.
    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError>;
    fn place(&self) -> String;
}

/// An item with a time; ordered so that a heap yields the earliest first, and of equal times the lowest number.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub at: u64,
    pub number: u64,
    pub item: T,
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Waiting<T> {}

/// Yields items in time order, from the first one on; an item that comes too late is an error.
#[derive(Debug)]
pub(super) struct Sorted<P: Parser> {
    parser: P,
    pub names: Names,
    waiting: BinaryHeap<Waiting<P::Item>>,
    count: u64,
    newest: u64,
    passed: Option<u64>,
    first: u64,
    is_ended: bool,
    error: Option<TraceError>,
}

impl<P: Parser> Sorted<P> {
    pub fn new(parser: P) -> Self {
        let header = Header { made_by: P::MADE_BY.to_owned(), ..Header::default() };
        Self {
            parser,
            names: Names { header, indices: HashMap::new() },
            waiting: BinaryHeap::new(),
            count: 0,
            newest: 0,
            passed: None,
            first: 0,
            is_ended: false,
            error: None,
        }
    }

    /// Returns the next item. Items read before an error are returned before it.
    pub fn next(&mut self) -> Result<Option<(SimTime, P::Item)>, TraceError> {
        loop {
            let is_due = self.waiting.peek().is_some_and(|oldest| {
                self.is_ended
                    || self.waiting.len() >= WINDOW_RECORDS
                    || self.newest - oldest.at > WINDOW.as_nanos()
            });
            if is_due && let Some(Waiting { at, item, .. }) = self.waiting.pop() {
                if self.passed.is_none() {
                    self.first = at;
                }
                self.passed = Some(at);
                return Ok(Some((SimTime(at - self.first), item)));
            }
            if self.is_ended {
                return self.error.take().map_or(Ok(None), Err);
            }
            match self.parser.parse(&mut self.names) {
                Ok(Some((at, item))) => self.insert(at, item),
                Ok(None) => self.is_ended = true,
                Err(error) => self.fail(error),
            }
        }
    }

    fn insert(&mut self, at: u64, item: P::Item) {
        if let Some(passed) = self.passed
            && at < passed
        {
            let back = SimDuration::from_nanos(passed - at).as_secs_f64();
            let what = format!("a time {back:.6} s before that of a record already passed on");
            let expected = "times in order, within one second or 65,536 records";
            return self.fail(malformed(&self.parser.place(), what, expected));
        }
        self.newest = self.newest.max(at);
        self.count += 1;
        self.waiting.push(Waiting { at, number: self.count, item });
    }

    fn fail(&mut self, error: TraceError) {
        self.error = Some(error);
        self.is_ended = true;
    }
}

/// A trace in a format with a line or a record for each request.
#[derive(Debug)]
pub(super) struct Imported<P: Parser<Item = (u32, Request)>>(Sorted<P>);

impl<P: Parser<Item = (u32, Request)>> Imported<P> {
    pub fn new(parser: P) -> Self {
        Self(Sorted::new(parser))
    }
}

impl<P: Parser<Item = (u32, Request)>> Source for Imported<P> {
    fn header(&self) -> &Header {
        &self.0.names.header
    }

    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        let next = self.0.next()?;
        Ok(next.map(|(at, (device, request))| Record { at, device, event: Event::Request(request) }))
    }
}
