//! Shared parts of the importers: bytes in blocks, lines, numbers, names of devices, and the order of records.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, ErrorKind, Read};

use memchr::memchr;

use super::{Event, Header, LeftOut, Record, Request, RequestKind, Source, TraceDevice, TraceError};
use crate::units::{Bytes, Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime};

/// Bytes read at once: more than any record. blktrace's are the longest, of 64 KiB and a head.
const BLOCK_BYTES: usize = 1 << 17;
/// Maximum length of a line, in bytes. A line of blkparse has a tenth of that.
const LINE_BYTES_MAX: usize = 4096;
/// Maximum number of devices in a trace. More are a sign of the wrong format.
pub(super) const DEVICES_MAX: usize = 65_536;
/// Maximum number of records whose order is restored: many times the requests that a host has in flight at once.
const WINDOW_RECORDS: usize = 65_536;
/// Exclusive upper bound of the bytes of a drive: Linux counts them with a sign, and no drive comes near.
const DRIVE_BYTES_MAX: u64 = 1 << 63;
/// Maximum size of a read or write: Linux counts the bytes of a request in 32 bits. Discards and frees may be larger.
const REQUEST_MAX: Bytes = Bytes::gib(4);
/// Maximum time between the first record and any other. No published trace is longer than some months; a policy's timer
/// would run for hours to pass centuries.
pub(super) const SPAN_MAX: SimDuration = SimDuration::from_secs(10 * 365 * 86_400);

pub(super) fn malformed(place: &str, what: impl Into<String>, expected: &str) -> TraceError {
    TraceError::Malformed { place: place.to_owned(), what: what.into(), expected: expected.to_owned() }
}

/// The bytes of a trace, read in blocks, so that a line or a record is a slice of memory.
pub(super) struct Input<'a> {
    from: Box<dyn Read + 'a>,
    block: Vec<u8>,
    start: usize,
    end: usize,
}

impl std::fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("start", &self.start).field("end", &self.end).finish_non_exhaustive()
    }
}

impl<'a> Input<'a> {
    pub fn new(from: Box<dyn Read + 'a>) -> Self {
        Self { from, block: vec![0; BLOCK_BYTES], start: 0, end: 0 }
    }

    #[inline]
    pub fn rest(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }

    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Reads more bytes behind the rest, which must be shorter than a block. Returns false at the end.
    pub fn more(&mut self) -> io::Result<bool> {
        if self.end == self.block.len() {
            self.block.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match self.from.read(&mut self.block[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    self.end += read;
                    return Ok(true);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until the rest has at least this many bytes. Returns false if the input ends before its first byte. An end
    /// after that is an error.
    pub fn expect(&mut self, bytes: usize, place: impl Fn() -> String) -> Result<bool, TraceError> {
        while self.rest().len() < bytes {
            match self.more() {
                Ok(true) => {}
                Ok(false) if self.rest().is_empty() => return Ok(false),
                Ok(false) => return Err(TraceError::Truncated { place: place() }),
                Err(error) => return Err(failed(error, place())),
            }
        }
        Ok(true)
    }
}

pub(super) fn failed(source: io::Error, place: String) -> TraceError {
    match source.kind() {
        // A compressed file that was cut off.
        ErrorKind::UnexpectedEof => TraceError::Truncated { place },
        _ => TraceError::Io { place, source },
    }
}

#[derive(Debug)]
pub(super) struct Lines<'a> {
    input: Input<'a>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub fn new(input: Input<'a>) -> Self {
        Self { input, number: 0 }
    }

    pub fn place(&self) -> String {
        format!("line {}", self.number)
    }

    /// Returns the next line without its end and trailing space.
    pub fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.number += 1;
        let mut searched = 0;
        let (length, end) = loop {
            let rest = self.input.rest();
            let within = rest.len().min(LINE_BYTES_MAX);
            if let Some(more) = memchr(b'\n', &rest[searched..within]) {
                break (searched + more, searched + more + 1);
            }
            searched = within;
            if within == LINE_BYTES_MAX {
                let what = format!("more than {LINE_BYTES_MAX} bytes");
                return Err(malformed(&self.place(), what, "a line of text"));
            }
            match self.input.more() {
                Ok(true) => {}
                Ok(false) if searched == 0 => return Ok(None),
                Ok(false) => break (searched, searched),
                Err(error) => return Err(failed(error, self.place())),
            }
        };
        self.input.consume(end);
        let line = &self.input.block[self.input.start - end..][..length];
        Ok(Some(line.trim_ascii_end()))
    }
}

/// A field that could not be read: its description, and the expected form.
pub(super) struct Wrong(pub String, pub &'static str);

impl Wrong {
    pub fn at(self, place: &str) -> TraceError {
        malformed(place, self.0, self.1)
    }

    /// Returns the error for this line. It says so if the line is no text at all.
    pub fn on(self, line: &[u8]) -> Self {
        match std::str::from_utf8(line) {
            Ok(_) => self,
            Err(_) => Self("invalid UTF-8".to_owned(), "a line of text"),
        }
    }
}

pub(super) fn shown(text: &[u8]) -> String {
    format!("'{}'", String::from_utf8_lossy(text))
}

pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[inline]
pub(super) fn number(text: &[u8]) -> Option<u64> {
    /// Any number with this many digits fits in 64 bits.
    const SAFE: usize = 19;
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let mut number = 0u64;
    let mut wrong = digits.is_empty();
    let (safe, more) = digits.split_at(digits.len().min(SAFE));
    for byte in safe {
        let digit = byte.wrapping_sub(b'0');
        wrong |= digit > 9;
        number = number.wrapping_mul(10).wrapping_add(digit.into());
    }
    for byte in more {
        let digit = byte.wrapping_sub(b'0');
        wrong |= digit > 9;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!wrong).then_some(number)
}

/// Parses a number in hexadecimal digits, with or without `0x`.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let all_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| all_digits)?;
    u64::from_str_radix(text, 16).ok()
}

/// Parses a decimal fraction as billionths. Digits after the ninth are dropped.
pub(super) fn billionths(text: &[u8]) -> Option<u64> {
    let dot = memchr(b'.', text).unwrap_or(text.len());
    let fraction = text.get(dot + 1..).unwrap_or_default();
    let mut parts = 0;
    for place in 0..9 {
        let digit = fraction.get(place).map_or(0, |byte| byte.wrapping_sub(b'0'));
        parts = parts * 10 + u64::from(digit);
    }
    let is_number = fraction.iter().all(u8::is_ascii_digit) && dot + 1 != text.len();
    number(&text[..dot])?.checked_mul(1_000_000_000)?.checked_add(parts).filter(|_| is_number)
}

#[inline]
pub(super) fn field<T: TryFrom<u64>>(text: Option<&[u8]>, expected: &'static str) -> Result<T, Wrong> {
    let text = text.ok_or_else(|| Wrong("a field is missing".to_owned(), expected))?;
    let parsed = number(text).and_then(|number| number.try_into().ok());
    parsed.ok_or_else(|| match text.first() {
        Some(b'-' | b'+' | b'0'..=b'9') => {
            Wrong(format!("{} is no whole number below 2^{}", shown(text), 8 * size_of::<T>()), expected)
        }
        _ => Wrong(shown(text), expected),
    })
}

/// Returns the nanoseconds of a time that is a multiple of `unit_ns`.
#[inline]
pub(super) fn nanos(count: u64, unit_ns: u64) -> Result<u64, Wrong> {
    let expected = "a time that fits into 64 bits of nanoseconds";
    count.checked_mul(unit_ns).ok_or_else(|| Wrong(format!("time {count}"), expected))
}

/// Returns the sectors that hold these bytes. A read or write covers every sector that it touches; a discard only those
/// that lie in it as a whole.
#[inline]
pub(super) fn sectors_of_bytes(kind: RequestKind, offset: u64, length: u64) -> Result<SectorRange, Wrong> {
    let end = offset.checked_add(length).filter(|end| *end < DRIVE_BYTES_MAX);
    let Some(end) = end else {
        return Err(Wrong(format!("{length} bytes from byte {offset}"), "bytes below 2^63"));
    };
    let (first, end) = match kind {
        RequestKind::Discard => (offset.div_ceil(SECTOR_BYTES), end / SECTOR_BYTES),
        _ => (offset / SECTOR_BYTES, end.div_ceil(SECTOR_BYTES)),
    };
    possible(kind, SectorRange::new(Lba(first), end.saturating_sub(first)), length)
}

#[inline]
pub(super) fn sectors(kind: RequestKind, first: u64, count: u64) -> Result<SectorRange, Wrong> {
    match first.checked_add(count).is_some_and(|end| end < DRIVE_BYTES_MAX / SECTOR_BYTES) {
        true => possible(kind, SectorRange::new(Lba(first), count), count * SECTOR_BYTES),
        false => Err(Wrong(format!("{count} sectors from sector {first}"), "sectors below 2^54")),
    }
}

/// Rejects reads and writes that no host can request.
#[inline]
fn possible(kind: RequestKind, range: SectorRange, bytes: u64) -> Result<SectorRange, Wrong> {
    let is_transfer = matches!(kind, RequestKind::Read | RequestKind::Write);
    if is_transfer && bytes > REQUEST_MAX.0 {
        let what = format!("a {} of {bytes} bytes", kind.name());
        return Err(Wrong(what, "at most 4294967296 (4 GiB) in a read or write"));
    }
    Ok(range)
}

pub(super) fn plain(kind: RequestKind, sectors: SectorRange) -> Request {
    Request { kind, sectors, sync: kind == RequestKind::Read, fua: false, meta: false, latency: None }
}

/// What a reader learns about the trace as a whole.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub header: Header,
    pub left_out: LeftOut,
    indices: HashMap<Vec<u8>, u32, foldhash::fast::RandomState>,
    /// The device of the previous line.
    last: Option<(Vec<u8>, u32)>,
}

impl Names {
    /// Returns the index of a device. A new one is added to the header.
    #[inline]
    pub fn index(&mut self, name: &[u8]) -> Result<u32, Wrong> {
        match &self.last {
            Some((last, index)) if last == name => Ok(*index),
            _ => self.other_index(name),
        }
    }

    fn other_index(&mut self, name: &[u8]) -> Result<u32, Wrong> {
        let index = match self.indices.get(name) {
            Some(index) => *index,
            None => {
                let index = self.header.devices.len();
                if index == DEVICES_MAX {
                    let what = format!("one device too many, {}", shown(name));
                    return Err(Wrong(what, "at most 65,536 devices"));
                }
                let text = String::from_utf8_lossy(name).into_owned();
                self.header.devices.push(TraceDevice { name: text, ..TraceDevice::default() });
                self.indices.insert(name.to_owned(), index as u32);
                index as u32
            }
        };
        let last = self.last.get_or_insert_default();
        last.0.clear();
        last.0.extend_from_slice(name);
        last.1 = index;
        Ok(index)
    }
}

/// Reads one format, in the order of the file.
pub(super) trait Parser {
    type Item;
    /// Origin of such traces, for the header.
    const MADE_BY: &'static str;
    /// Time within which the order of records is restored. Requests are normally issued and completed within a second;
    /// where the lines are in the order of completion, one that took longer must still find its place.
    const WINDOW: SimDuration = SimDuration::from_secs(1);
    /// Returns the next item with its time in nanoseconds, counted from anywhere; `None` at the end.
    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Self::Item)>, TraceError>;
    fn place(&self) -> String;
}

/// An item with a time, ordered so that a heap yields the earliest first, and of equal times the lowest number.
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

/// Yields items in time order, from the first one on. An item that comes too late is an error.
#[derive(Debug)]
pub(super) struct Sorted<P: Parser> {
    parser: P,
    pub names: Names,
    /// Items in their order, and those that came before an earlier one.
    ordered: VecDeque<Waiting<P::Item>>,
    late: BinaryHeap<Waiting<P::Item>>,
    count: u64,
    newest: u64,
    passed: Option<u64>,
    origin: Option<u64>,
    first: u64,
    is_ended: bool,
    error: Option<TraceError>,
}

impl<P: Parser> Sorted<P> {
    pub fn new(parser: P) -> Self {
        let header = Header { made_by: P::MADE_BY.to_owned(), ..Header::default() };
        Self {
            parser,
            names: Names { header, ..Names::default() },
            ordered: VecDeque::new(),
            late: BinaryHeap::new(),
            count: 0,
            newest: 0,
            passed: None,
            origin: None,
            first: 0,
            is_ended: false,
            error: None,
        }
    }

    /// Returns the next item. Items read before an error are returned before it.
    #[inline]
    pub fn next(&mut self) -> Result<Option<(SimTime, P::Item)>, TraceError> {
        loop {
            let late = self.late.peek();
            let oldest = match (self.ordered.front(), late) {
                (Some(first), Some(late)) => Some(if late > first { late } else { first }),
                (first, late) => first.or(late),
            };
            let is_due = oldest.is_some_and(|oldest| {
                self.is_ended
                    || self.ordered.len() + self.late.len() >= WINDOW_RECORDS
                    || self.newest - oldest.at > P::WINDOW.as_nanos()
            });
            if is_due {
                let is_late =
                    late.is_some() && late.map(|late| late.number) == oldest.map(|oldest| oldest.number);
                let due = if is_late { self.late.pop() } else { self.ordered.pop_front() };
                if let Some(Waiting { at, item, .. }) = due {
                    if self.passed.replace(at).is_none() {
                        self.first = at;
                    }
                    return Ok(Some((SimTime(at - self.first), item)));
                }
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

    #[inline]
    fn insert(&mut self, at: u64, item: P::Item) {
        let origin = *self.origin.get_or_insert(at);
        if self.passed.is_some_and(|passed| at < passed) || at.abs_diff(origin) > SPAN_MAX.as_nanos() {
            return self.refuse(at, origin);
        }
        self.count += 1;
        let waiting = Waiting { at, number: self.count, item };
        if at >= self.newest {
            self.newest = at;
            self.ordered.push_back(waiting);
        } else {
            self.late.push(waiting);
        }
    }

    /// Ends the trace at an item with an impossible time.
    fn refuse(&mut self, at: u64, origin: u64) {
        let seconds = |nanos: u64| SimDuration::from_nanos(nanos).as_secs_f64();
        let (what, expected) = match self.passed {
            Some(passed) if at < passed => {
                let within = if P::WINDOW == SimDuration::from_secs(1) { "one second" } else { "one minute" };
                (
                    format!("a time {:.9} s before that of a record already passed on", seconds(passed - at)),
                    format!("times in order, within {within} or 65,536 records"),
                )
            }
            _ => (
                format!("a time {:.0} s from that of the first record", seconds(at.abs_diff(origin))),
                "times within ten years".to_owned(),
            ),
        };
        self.fail(malformed(&self.parser.place(), what, &expected));
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

    fn left_out(&self) -> LeftOut {
        self.0.names.left_out
    }

    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        let next = self.0.next()?;
        Ok(next.map(|(at, (device, request))| Record { at, device, event: Event::Request(request) }))
    }
}
