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
//! followed by data of its own length, as `blktrace -o -` and `blkparse -d` write it. The files of single processors that
//! blktrace leaves (`sda.blktrace.0`, ...) are merged by time.
//!
//! The kernel's own text of its block tracepoints, from tracefs, `trace-cmd report` or `perf script`, has the same
//! requests:
//!
//! ```text
//!   fio-1234  [001] d..2.  9904.831159: block_rq_issue: 8,0 WS 4096 () 2048 + 8 [fio]
//! ```
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
use std::io::{self, Write};

use memchr::memmem;

use super::input::{
    Input, Lines, Names, Parser, Sorted, Wrong, billionths, field, malformed, number, sectors,
    sectors_of_bytes, shown, words,
};
use super::{Event, Header, LeftOut, Record, Request, RequestKind, Source, TraceError};
use crate::units::{Lba, SECTOR_BYTES, SectorRange, SimDuration, SimTime};

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

enum Parsed<D> {
    /// Time, device, stage and request, and true if the cache is emptied first.
    Action(u64, D, Stage, Request, bool),
    /// Stage of a request without sectors whose kind is none of ours.
    Empty(Stage),
    Other(Stage),
    Nothing,
}

impl<D> Parsed<D> {
    #[inline]
    fn counted(
        self,
        names: &mut Names,
        index: impl FnOnce(&mut Names, D) -> Result<u32, Wrong>,
    ) -> Result<Option<(u64, Action)>, Wrong> {
        match self {
            Self::Action(at, device, stage, request, preflush) => {
                Ok(Some((at, Action { device: index(names, device)?, stage, request, preflush })))
            }
            // Each request is issued once.
            Self::Empty(Stage::Issued) => {
                names.left_out.empty += 1;
                Ok(None)
            }
            Self::Other(Stage::Issued) => {
                names.left_out.other += 1;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

#[derive(Debug)]
pub(super) struct Matched<P: Parser<Item = Action>> {
    events: Sorted<P>,
    held: VecDeque<Held>,
    first: u64,
    /// Numbers of the oldest and the newest open request of a device, kind and first sector. Requests between them are
    /// chained.
    open: HashMap<(u32, RequestKind, Lba), (u64, u64), foldhash::fast::RandomState>,
    /// For each device: true if its requests begin with D; `None` while that is not known.
    is_issued: Vec<Option<bool>>,
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
    /// This was not a request to the drive: it was requeued, or queued and later issued.
    is_dropped: bool,
    /// Number of the next open request of the same device, kind and first sector.
    next: Option<u64>,
}

impl<P: Parser<Item = Action>> Matched<P> {
    pub fn new(parser: P) -> Self {
        Self {
            events: Sorted::new(parser),
            held: VecDeque::new(),
            first: 0,
            open: HashMap::default(),
            is_issued: Vec::new(),
            now: SimTime::ZERO,
            is_ended: false,
            error: None,
        }
    }

    /// Notes whether a device's requests begin with D, unless that is known.
    fn learn(&mut self, device: u32, is_issued: bool) {
        self.is_issued[device as usize].get_or_insert(is_issued);
    }

    fn take_in(&mut self, at: SimTime, action: Action) {
        let Action { device, stage, request, preflush } = action;
        if self.is_issued.len() <= device as usize {
            self.is_issued.resize(device as usize + 1, None);
        }
        let key = (device, request.kind, request.sectors.first);
        match (stage, self.is_issued[device as usize]) {
            (Stage::Queued, Some(true)) | (Stage::Issued, Some(false)) => {}
            (Stage::Queued, _) => self.begin(at, device, request, preflush),
            (Stage::Issued, known) => {
                if known.is_none() {
                    self.learn(device, true);
                    // Requests queued so far were not yet requests to the drive.
                    for held in self.held.iter_mut().filter(|held| held.device == device) {
                        (held.is_dropped, held.is_open) = (true, false);
                    }
                    self.open.retain(|(open, ..), _| *open != device);
                }
                self.begin(at, device, request, preflush);
            }
            (Stage::Requeued, _) => {
                if let Some(held) = self.end(key) {
                    held.is_dropped = true;
                }
            }
            (Stage::Completed, _) => {
                if let Some(held) = self.end(key) {
                    held.request.latency = Some(at.since(held.at));
                    self.learn(device, false);
                }
            }
        }
    }

    fn begin(&mut self, at: SimTime, device: u32, request: Request, preflush: bool) {
        let held = Held { at, device, request, is_open: true, is_dropped: false, next: None };
        if preflush && request.kind != RequestKind::Flush {
            let flush = Request { kind: RequestKind::Flush, sectors: SectorRange::new(Lba(0), 0), ..request };
            self.held.push_back(Held { request: flush, is_open: false, ..held });
        }
        let number = self.first + self.held.len() as u64;
        let key = (device, request.kind, request.sectors.first);
        let newest = &mut self.open.entry(key).or_insert((number, number)).1;
        let before = std::mem::replace(newest, number);
        self.held.push_back(Held { request, ..held });
        if before != number
            && let Some(before) = self.held.get_mut((before - self.first) as usize)
        {
            before.next = Some(number);
        }
    }

    /// Ends the oldest open request of this device, kind and first sector.
    fn end(&mut self, key: (u32, RequestKind, Lba)) -> Option<&mut Held> {
        let std::collections::hash_map::Entry::Occupied(mut open) = self.open.entry(key) else { return None };
        let oldest = open.get().0;
        let held = self.held.get_mut((oldest - self.first) as usize)?;
        match held.next {
            Some(next) => open.get_mut().0 = next,
            None => drop(open.remove()),
        }
        held.is_open = false;
        Some(held)
    }

    /// Takes out the oldest request, if it no longer waits for its completion.
    #[inline]
    fn release(&mut self) -> Option<Held> {
        let oldest = self.held.front()?;
        let (device, is_open) = (oldest.device, oldest.is_open);
        let may_go = self.is_ended
            || self.held.len() > HELD_MAX
            || self.now.since(oldest.at) > HELD
            || !is_open && (oldest.is_dropped || self.is_issued[device as usize].is_some());
        if !may_go {
            return None;
        }
        if is_open {
            // The oldest of all is also the oldest of its sector.
            let key = (device, oldest.request.kind, oldest.request.sectors.first);
            self.end(key);
            self.learn(device, false);
        }
        let oldest = self.held.pop_front()?;
        self.first += 1;
        Some(oldest)
    }
}

impl<P: Parser<Item = Action>> Source for Matched<P> {
    fn header(&self) -> &Header {
        &self.events.names.header
    }

    fn left_out(&self) -> LeftOut {
        self.events.names.left_out
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
#[inline]
pub(super) fn parse_rwbs(rwbs: &[u8]) -> Option<(RequestKind, bool, Request)> {
    let (preflush, rest) = match rwbs.strip_prefix(b"F") {
        // A flush alone is FN, or FF with newer kernels. An F in front of W is a flush before the write.
        Some(rest) if matches!(rest.first(), Some(b'W' | b'F' | b'N')) => (true, rest),
        _ => (false, rwbs),
    };
    let (kind, flags) = rest.split_first()?;
    let kind = match kind {
        b'R' => RequestKind::Read,
        b'W' => RequestKind::Write,
        b'D' => RequestKind::Discard,
        b'F' | b'N' if preflush => RequestKind::Flush,
        b'F' => RequestKind::Flush,
        _ => return None,
    };
    let request = Request {
        kind,
        sectors: SectorRange::new(Lba(0), 0),
        sync: flags.contains(&b'S') || kind == RequestKind::Read,
        fua: flags.contains(&b'F') && kind == RequestKind::Write,
        meta: flags.contains(&b'M'),
        latency: None,
    };
    Some((kind, preflush, request))
}

/// Puts the sectors into a request. A write of nothing after a flush is the flush.
fn with_sectors(request: Request, preflush: bool, sectors: SectorRange) -> Option<Request> {
    match (request.kind, sectors.sectors) {
        (RequestKind::Flush, _) => Some(request),
        (RequestKind::Write, 0) if preflush => Some(Request { kind: RequestKind::Flush, ..request }),
        (_, 0) => None,
        _ => Some(Request { sectors, ..request }),
    }
}

#[derive(Debug)]
pub(super) struct Text<'a, const KERNEL: bool> {
    lines: Lines<'a>,
    is_ended: bool,
}

impl<'a, const KERNEL: bool> Text<'a, KERNEL> {
    pub fn new(input: Input<'a>) -> Self {
        Self { lines: Lines::new(input), is_ended: false }
    }
}

fn is_device(text: &[u8]) -> bool {
    let is_u32 = |text: &[u8]| number(text).is_some_and(|number| number <= u32::MAX.into());
    let mut parts = text.splitn(2, |byte| *byte == b',');
    parts.next().is_some_and(is_u32) && parts.next().is_some_and(is_u32)
}

/// Returns true if a line is one of blkparse's events, judged by its first fields.
pub(super) fn is_blkparse(line: &[u8]) -> bool {
    let mut words = words(line);
    let mut next = || words.next().unwrap_or_default();
    is_device(next()) && number(next()).is_some() && number(next()).is_some() && seconds(next()).is_ok()
}

fn seconds(text: &[u8]) -> Result<u64, Wrong> {
    let expected = "a time in seconds, with a fraction of up to nine digits";
    let wrong = || Wrong(shown(text), expected);
    let fraction = text.iter().rev().position(|byte| *byte == b'.').ok_or_else(wrong)?;
    if fraction > 9 {
        return Err(wrong());
    }
    billionths(text).ok_or_else(wrong)
}

fn parse_line(line: &[u8]) -> Result<Parsed<&[u8]>, Wrong> {
    const FIELDS: &str = "device, processor, sequence, seconds, process, action, RWBS";
    let mut words = words(line);
    let device = words.next().unwrap_or_default();
    if !is_device(device) {
        return Err(Wrong(shown(device), "a device, as in 8,0, or the summary of blkparse"));
    }
    let _: u32 = field(words.next(), "a processor number")?;
    let _: u64 = field(words.next(), "a sequence number")?;
    let at = seconds(words.next().ok_or_else(|| Wrong("a line cut short".to_owned(), FIELDS))?)?;
    let _: u64 = field(words.next(), "a process ID")?;
    let stage = match words.next() {
        Some(b"Q") => Stage::Queued,
        Some(b"D") => Stage::Issued,
        Some(b"R") => Stage::Requeued,
        Some(b"C") => Stage::Completed,
        Some(_) => return Ok(Parsed::Nothing),
        None => return Err(Wrong("a line cut short".to_owned(), FIELDS)),
    };
    let rwbs = words.next().ok_or_else(|| Wrong("a line cut short".to_owned(), FIELDS))?;
    let Some((kind, preflush, request)) = parse_rwbs(rwbs) else { return Ok(Parsed::Other(stage)) };
    // A request without data has no sectors: `[kworker]`, or `0 [0]` when it completes.
    let first: Option<u64> = words.next().and_then(number);
    let range = match (first, words.next()) {
        (Some(first), Some(b"+")) => sectors(kind, first, field(words.next(), "a number of sectors")?)?,
        _ => SectorRange::new(Lba(0), 0),
    };
    Ok(match with_sectors(request, preflush, range) {
        Some(request) => Parsed::Action(at, device, stage, request, preflush),
        None => Parsed::Empty(stage),
    })
}

const TRACEPOINTS: [(&[u8], Stage); 4] = [
    (b"block_rq_issue: ", Stage::Issued),
    (b"block_rq_complete: ", Stage::Completed),
    (b"block_rq_requeue: ", Stage::Requeued),
    (b"block_bio_queue: ", Stage::Queued),
];

/// Splits a line of the kernel's in front of the name of a block event.
fn block_event(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at =
        memmem::find(line, b" block_").or_else(|| memmem::find(line, b"block:block_").map(|at| at + 5))?;
    Some(line.split_at(at + 1))
}

/// Finds a request in a line of the kernel's: the text in front of it, its stage, and the text after it.
fn tracepoint(line: &[u8]) -> Option<(&[u8], Stage, &[u8])> {
    let (before, event) = block_event(line)?;
    TRACEPOINTS.iter().find_map(|(name, stage)| Some((before, *stage, event.strip_prefix(*name)?)))
}

/// Returns the word with the time of a block event, whatever the event is.
fn time_of(before: &[u8]) -> Option<&[u8]> {
    words(before).filter(|word| *word != b"block:").last().and_then(|at| at.strip_suffix(b":"))
}

/// Beginning of the text of tracefs.
pub(super) const KERNEL_HEADING: &[u8] = b"# tracer: ";

pub(super) fn is_kernel_text(line: &[u8]) -> bool {
    let is_event =
        || block_event(line).and_then(|(before, _)| time_of(before)).is_some_and(|at| seconds(at).is_ok());
    line.starts_with(KERNEL_HEADING) || is_event()
}

fn parse_kernel_line(line: &[u8]) -> Result<Parsed<&[u8]>, Wrong> {
    const FIELDS: &str = "as in 'fio-99 [001] 12.345678: block_rq_issue: 8,0 WS 4096 () 2048 + 8 [fio]'";
    let Some((before, stage, rest)) = tracepoint(line) else { return Ok(Parsed::Nothing) };
    let short = || Wrong("a line cut short".to_owned(), FIELDS);
    let at = seconds(time_of(before).ok_or_else(short)?)?;
    let mut words = words(rest);
    let device = words.next().ok_or_else(short)?;
    if !is_device(device) {
        return Err(Wrong(shown(device), "a device, as in 8,0"));
    }
    let rwbs = words.next().ok_or_else(short)?;
    let Some((kind, preflush, request)) = parse_rwbs(rwbs) else { return Ok(Parsed::Other(stage)) };
    // In front of the sectors there are the bytes and the command of a pass-through request.
    let (mut first, mut count) = (None, None);
    let mut word = words.next();
    while let Some(this) = word {
        word = words.next();
        if word == Some(b"+") {
            (first, count) = (Some(this), words.next());
            break;
        }
    }
    let first: u64 = field(first, "a sector")?;
    let count: u64 = field(count, "a number of sectors")?;
    // The first sector of a flush is all ones.
    let is_flush = count == 0 || kind == RequestKind::Flush;
    let range = if is_flush { SectorRange::new(Lba(0), 0) } else { sectors(kind, first, count)? };
    Ok(match with_sectors(request, preflush, range) {
        Some(request) => Parsed::Action(at, device, stage, request, preflush),
        None => Parsed::Empty(stage),
    })
}

impl<const KERNEL: bool> Parser for Text<'_, KERNEL> {
    type Item = Action;
    const MADE_BY: &'static str = if KERNEL { "tracepoints" } else { "blkparse" };

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Action)>, TraceError> {
        while !self.is_ended {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            let is_comment = line.is_empty() || line.starts_with(b"Input file ");
            if is_comment || !KERNEL && line.starts_with(b"#") {
                continue;
            }
            if !KERNEL && (line.starts_with(b"CPU") || line.starts_with(b"Total (")) {
                self.is_ended = true;
                break;
            }
            let parsed = if KERNEL { parse_kernel_line(line) } else { parse_line(line) };
            let parsed = parsed.and_then(|parsed| parsed.counted(names, |names, device| names.index(device)));
            match parsed.map_err(|wrong| wrong.on(line)) {
                Ok(None) => {}
                Ok(item) => return Ok(item),
                Err(wrong) => return Err(wrong.at(&self.lines.place())),
            }
        }
        Ok(None)
    }

    fn place(&self) -> String {
        self.lines.place()
    }
}

#[derive(Debug)]
pub(super) struct Binary<'a> {
    processors: Vec<Processor<'a>>,
    last: usize,
    device: Option<(u64, u32)>,
    unread: Option<TraceError>,
}

#[derive(Debug)]
struct Processor<'a> {
    /// Name of the file in front of places, if there are several.
    name: String,
    input: Input<'a>,
    records: u64,
    bytes: (u64, u64),
    /// The next item of several processors; `None` before it is read.
    next: Option<Option<(u64, Action)>>,
}

impl<'a> Binary<'a> {
    pub fn new(inputs: Vec<(String, Input<'a>)>, unread: Option<TraceError>) -> Self {
        let several = inputs.len() > 1 || unread.is_some();
        let processor = |(name, input)| {
            let name = if several { format!("{name}: ") } else { String::new() };
            Processor { name, input, records: 0, bytes: (0, 0), next: None }
        };
        Self { processors: inputs.into_iter().map(processor).collect(), last: 0, device: None, unread }
    }
}

impl Processor<'_> {
    fn place(&self) -> String {
        format!("{}record {}, byte {}", self.name, self.records, self.bytes.0)
    }

    fn parse(
        &mut self,
        names: &mut Names,
        known: &mut Option<(u64, u32)>,
    ) -> Result<Option<(u64, Action)>, TraceError> {
        loop {
            self.records += 1;
            self.bytes.0 = self.bytes.1;
            let (name, number, at) = (&self.name, self.records, self.bytes.0);
            let place = || format!("{name}record {number}, byte {at}");
            if !self.input.expect(RECORD_BYTES, place)? {
                return Ok(None);
            }
            let head = &self.input.rest()[..RECORD_BYTES];
            let is_big_endian = head[..4] == MAGIC.to_be_bytes();
            if !is_big_endian && head[..4] != MAGIC.to_le_bytes() {
                let what = format!("the bytes {:02x?}", &head[..4]);
                return Err(malformed(&place(), what, "blktrace's magic number, version 7"));
            }
            let data = Numbers { bytes: head, is_big_endian }.at::<2>(46) as usize;
            self.input.expect(RECORD_BYTES + data, place)?;
            let numbers = Numbers { bytes: &self.input.rest()[..RECORD_BYTES], is_big_endian };
            let parsed = parse_record(&numbers).and_then(|parsed| {
                parsed.counted(names, |names, device| match *known {
                    Some((known, index)) if known == device => Ok(index),
                    _ => {
                        let name = format!("{},{}", device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
                        let index = names.index(name.as_bytes())?;
                        *known = Some((device, index));
                        Ok(index)
                    }
                })
            });
            let item = parsed.map_err(|wrong| wrong.at(&place()))?;
            self.input.consume(RECORD_BYTES + data);
            self.bytes.1 += (RECORD_BYTES + data) as u64;
            if item.is_some() {
                return Ok(item);
            }
        }
    }
}

struct Numbers<'a> {
    bytes: &'a [u8],
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

fn parse_record(numbers: &Numbers) -> Result<Parsed<u64>, Wrong> {
    let action = numbers.at::<4>(28);
    let is = |bit: u64| (action >> 16) & bit != 0;
    // Bit 8 says that a control group follows.
    let stage = match action & 0xff {
        _ if is(category::NOTIFY) => return Ok(Parsed::Nothing),
        code::QUEUED => Stage::Queued,
        code::REQUEUED => Stage::Requeued,
        code::ISSUED => Stage::Issued,
        code::COMPLETED => Stage::Completed,
        _ => return Ok(Parsed::Nothing),
    };
    let bytes = numbers.at::<4>(24);
    if is(category::PC) && !is(category::FS) {
        return Ok(Parsed::Other(stage));
    }
    let preflush = is(category::FLUSH);
    let kind = match () {
        () if is(category::DISCARD) => RequestKind::Discard,
        () if is(category::WRITE) => RequestKind::Write,
        () if bytes == 0 && preflush => RequestKind::Flush,
        () => RequestKind::Read,
    };
    let first = numbers.at::<8>(16);
    let count = sectors_of_bytes(kind, 0, bytes.next_multiple_of(SECTOR_BYTES))?.sectors;
    let range = if count == 0 { SectorRange::new(Lba(0), 0) } else { sectors(kind, first, count)? };
    let request = Request {
        kind,
        sectors: SectorRange::new(Lba(0), 0),
        sync: is(category::SYNC) || kind == RequestKind::Read,
        fua: is(category::FUA) && kind == RequestKind::Write,
        meta: is(category::META),
        latency: None,
    };
    Ok(match with_sectors(request, preflush, range) {
        Some(request) => Parsed::Action(numbers.at::<8>(8), numbers.at::<4>(36), stage, request, preflush),
        None => Parsed::Empty(stage),
    })
}

impl Parser for Binary<'_> {
    type Item = Action;
    const MADE_BY: &'static str = "blktrace";

    fn parse(&mut self, names: &mut Names) -> Result<Option<(u64, Action)>, TraceError> {
        if let ([only], None) = (&mut self.processors[..], &self.unread) {
            return only.parse(names, &mut self.device);
        }
        let mut earliest: Option<(u64, usize)> = None;
        for (index, processor) in self.processors.iter_mut().enumerate() {
            let next = match processor.next {
                Some(next) => next,
                None => {
                    self.last = index;
                    let next = processor.parse(names, &mut self.device)?;
                    *processor.next.insert(next)
                }
            };
            let Some((at, _)) = next else { continue };
            if earliest.is_none_or(|(before, _)| at < before) {
                earliest = Some((at, index));
            }
        }
        let Some((_, index)) = earliest else { return self.unread.take().map_or(Ok(None), Err) };
        self.last = index;
        Ok(self.processors[index].next.take().flatten())
    }

    fn place(&self) -> String {
        self.processors.get(self.last).map(Processor::place).unwrap_or_default()
    }
}

/// Writes blktrace's binary records, little endian, all of one processor, as `blktrace -o -` would in order of time.
///
/// blkparse and btt read them (`blkparse -i - <FILE`, `btt -i FILE`); `blkparse -i NAME` looks for a file whose name
/// ends in `.blktrace.0`. Each request has three records: queued, issued and completed. A trace does not know when a
/// request was queued, so that record has the time of its issue; no process is named. Other events are left out.
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
    pub fn new(out: W) -> Self {
        Self { out, sequence: 0, open: BinaryHeap::new(), requests: 0 }
    }

    /// Writes a request, after the completions before it. Pass records in the order of their time.
    ///
    /// # Errors Errors of the output, and `InvalidInput` for a request of 4 GiB or more, or a device beyond 65,535: the
    /// records have no room for them.
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

    /// Writes the remaining completions, and returns the output.
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
