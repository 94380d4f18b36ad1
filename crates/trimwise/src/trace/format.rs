//! trimwise's own trace format: a line of text, a header in JSON, then records of a few bytes each.
//!
//! ```text
//! trimwise trace 1\n
//! {"made_by":"trimwise record 0.1.0","devices":[...],...}\n
//! record record ... end
//! ```
//!
//! A record begins with a tag byte. Its low four bits are the kind: 0 read, 1 write, 2 discard, 3 flush, 4 freed, 5
//! allocated, 6 committed, 7 lost, 8 begun, 9 a device, 15 the end of the trace. Bits 4 to 6 of a request are sync, FUA
//! and metadata; bit 7 says that the device differs from that of the previous record. Then follow numbers as LEB128:
//!
//! 1. nanoseconds since the previous record;
//! 2. with bit 7, the device's index;
//! 3. with sectors, the distance of the first one from the end of the last range of the same device, zigzag-coded, and
//!    their number;
//! 4. of a request, its latency in nanoseconds plus one, 0 if unknown; of lost events, their number.
//!
//! A device that is not in the header comes before its first record: a tag, the length of its JSON, and the JSON.
//! Converted traces whose format names devices as it goes have such records if there are several devices.
//!
//! Writers of files compress the whole stream (zstd); this module sees the plain bytes. A trace without its end mark
//! was cut off; reading it returns that as an error.

use std::io::{Read, Write};

use super::input::{DEVICES_MAX, Input, SPAN_MAX, failed, malformed, sectors};
use super::{Event, Header, Record, Request, RequestKind, Source, TraceDevice, TraceError};
use crate::units::{Lba, SectorRange, SimDuration, SimTime};

pub const MAGIC: &str = "trimwise trace 1\n";
pub(super) const MAGIC_ANY: &str = "trimwise trace ";
/// Maximum length of a header: far more than a thousand devices need.
const HEADER_BYTES_MAX: usize = 1 << 20;
const DEVICE_BYTES_MAX: usize = 1 << 16;
const FREED: u8 = 4;
const ALLOCATED: u8 = 5;
const COMMITTED: u8 = 6;
const LOST: u8 = 7;
const BEGUN: u8 = 8;
const DEVICE: u8 = 9;
/// The end mark. A trace without it was cut off.
pub const END: u8 = 15;
const SYNC: u8 = 1 << 4;
const FUA: u8 = 1 << 5;
const META: u8 = 1 << 6;
const OTHER_DEVICE: u8 = 1 << 7;

/// State of the previous record, on which the coding of the next one depends.
#[derive(Debug, Default)]
struct Previous {
    at: SimTime,
    device: u32,
    ends: Vec<u64>,
}

impl Previous {
    fn new(devices: usize) -> Self {
        Self { ends: vec![0; devices], ..Self::default() }
    }
}

#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    previous: Previous,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(mut out: W, header: &Header) -> std::io::Result<Self> {
        out.write_all(MAGIC.as_bytes())?;
        serde_json::to_writer(&mut out, header)?;
        out.write_all(b"\n")?;
        Ok(Self { out, previous: Previous::new(header.devices.len()), buffer: Vec::with_capacity(64) })
    }

    pub fn devices(&self) -> usize {
        self.previous.ends.len()
    }

    pub fn add_device(&mut self, device: &TraceDevice) -> std::io::Result<()> {
        let json = serde_json::to_vec(device)?;
        self.buffer.clear();
        self.buffer.push(DEVICE);
        put(&mut self.buffer, json.len() as u64);
        self.buffer.extend(json);
        self.previous.ends.push(0);
        self.out.write_all(&self.buffer)
    }

    /// Writes one record. A time before that of the last record is replaced by the latter.
    ///
    /// # Panics If neither the header nor [`add_device`](Self::add_device) has the record's device.
    pub fn write(&mut self, record: &Record) -> std::io::Result<()> {
        let Record { at, device, event } = *record;
        let (tag, sectors, last) = match event {
            Event::Request(request) => {
                let Request { kind, sectors, sync, fua, meta, latency } = request;
                let flags = [(sync, SYNC), (fua, FUA), (meta, META)];
                let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum::<u8>();
                let latency = latency.map_or(0, |latency| latency.as_nanos().saturating_add(1));
                let sectors = (kind != RequestKind::Flush).then_some(sectors);
                (kind as u8 | flags, sectors, Some(latency))
            }
            Event::Freed(sectors) => (FREED, Some(sectors), None),
            Event::Allocated(sectors) => (ALLOCATED, Some(sectors), None),
            Event::Committed => (COMMITTED, None, None),
            Event::Lost(events) => (LOST, None, Some(events)),
            Event::Begun => (BEGUN, None, None),
        };
        let previous = &mut self.previous;
        self.buffer.clear();
        let other_device = if device == previous.device { 0 } else { OTHER_DEVICE };
        self.buffer.push(tag | other_device);
        put(&mut self.buffer, at.since(previous.at).as_nanos());
        if other_device != 0 {
            put(&mut self.buffer, device.into());
        }
        if let Some(SectorRange { first, sectors }) = sectors {
            let end = &mut previous.ends[device as usize];
            put(&mut self.buffer, zigzag(first.0.wrapping_sub(*end) as i64));
            put(&mut self.buffer, sectors);
            *end = first.0.wrapping_add(sectors);
        }
        if let Some(number) = last {
            put(&mut self.buffer, number);
        }
        previous.at = previous.at.max(at);
        previous.device = device;
        self.out.write_all(&self.buffer)
    }

    /// Writes the end mark and returns the output.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.out.write_all(&[END])?;
        self.cut_off()
    }

    /// Returns the output without an end mark, so that the trace counts as cut off.
    pub(crate) fn cut_off(mut self) -> std::io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn put(buffer: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        buffer.push(number as u8 | 0x80);
        number >>= 7;
    }
    buffer.push(number as u8);
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[derive(Debug)]
pub struct Reader<'a> {
    input: Input<'a>,
    header: Header,
    previous: Previous,
    records: u64,
    is_ended: bool,
}

enum Stop {
    Short,
    /// They are wrong: what was found, and what would be accepted.
    Wrong(String, String),
}

enum Item {
    Record(Record),
    Device(TraceDevice),
    End,
}

struct Numbers<'b> {
    rest: &'b [u8],
}

impl Numbers<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Stop> {
        let (byte, rest) = self.rest.split_first().ok_or(Stop::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn next(&mut self) -> Result<u64, Stop> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        let what = "a number above 2^64 - 1".to_owned();
        Err(Stop::Wrong(what, "a LEB128 number of at most 64 bits".to_owned()))
    }
}

impl Previous {
    /// Takes a record from the front of bytes. Returns it with its length.
    #[inline]
    fn parse(&mut self, bytes: &[u8]) -> Result<(Item, usize), Stop> {
        let mut numbers = Numbers { rest: bytes };
        let tag = numbers.byte()?;
        if tag == END {
            return Ok((Item::End, 1));
        }
        if tag == DEVICE {
            return self.parse_device(numbers.rest).map(|(item, used)| (item, used + 1));
        }
        let at = self.at + SimDuration::from_nanos(numbers.next()?);
        if at > SimTime::ZERO + SPAN_MAX {
            let what = format!("a time {:.0} s from the beginning", at.since(SimTime::ZERO).as_secs_f64());
            return Err(Stop::Wrong(what, "times within ten years".to_owned()));
        }
        let device = if tag & OTHER_DEVICE == 0 { self.device.into() } else { numbers.next()? };
        let Some(end) = usize::try_from(device).ok().and_then(|device| self.ends.get_mut(device)) else {
            return Err(Stop::Wrong(
                format!("device {device}"),
                format!("one of the {} that the header names", self.ends.len()),
            ));
        };
        let device = device as u32;
        let request = match tag & 0xf {
            0 => Some(RequestKind::Read),
            1 => Some(RequestKind::Write),
            2 => Some(RequestKind::Discard),
            3 => Some(RequestKind::Flush),
            _ => None,
        };
        let mut range = SectorRange::new(Lba(0), 0);
        let has_sectors = matches!(tag & 0xf, 0..=2 | FREED | ALLOCATED);
        if has_sectors {
            let first = end.wrapping_add_signed(unzigzag(numbers.next()?));
            range = sectors(request.unwrap_or(RequestKind::Discard), first, numbers.next()?)
                .map_err(|wrong| Stop::Wrong(wrong.0, wrong.1.to_owned()))?;
        }
        let event = match (request, tag & 0xf) {
            (Some(kind), _) => {
                let latency = numbers.next()?.checked_sub(1).map(SimDuration::from_nanos);
                let is = |flag| tag & flag != 0;
                let (sync, fua, meta) = (is(SYNC), is(FUA), is(META));
                Event::Request(Request { kind, sectors: range, sync, fua, meta, latency })
            }
            (None, FREED) => Event::Freed(range),
            (None, ALLOCATED) => Event::Allocated(range),
            (None, COMMITTED) => Event::Committed,
            (None, LOST) => Event::Lost(numbers.next()?),
            (None, BEGUN) => Event::Begun,
            (None, other) => {
                return Err(Stop::Wrong(format!("kind {other}"), "a kind from 0 to 9, or 15".to_owned()));
            }
        };
        // Only now is the record known to be whole.
        if has_sectors {
            *end = range.first.0 + range.sectors;
        }
        (self.at, self.device) = (at, device);
        Ok((Item::Record(Record { at, device, event }), bytes.len() - numbers.rest.len()))
    }

    #[cold]
    fn parse_device(&mut self, bytes: &[u8]) -> Result<(Item, usize), Stop> {
        let mut numbers = Numbers { rest: bytes };
        let length = numbers.next()? as usize;
        if length > DEVICE_BYTES_MAX || self.ends.len() >= DEVICES_MAX {
            let what = format!("{length} bytes of a device behind {} devices", self.ends.len());
            return Err(Stop::Wrong(what, "at most 65,536 bytes, and as many devices".to_owned()));
        }
        let json = numbers.rest.get(..length).ok_or(Stop::Short)?;
        let device = serde_json::from_slice(json)
            .map_err(|e| Stop::Wrong(format!("a device: {e}"), "a device as JSON".to_owned()))?;
        self.ends.push(0);
        Ok((Item::Device(device), bytes.len() - numbers.rest.len() + length))
    }
}

impl<'a> Reader<'a> {
    /// Starts to read a trace: parses the header.
    ///
    /// # Errors
    /// [`TraceError`] if this is not a trace of this version.
    pub fn new(input: impl Read + 'a) -> Result<Self, TraceError> {
        Self::of(Input::new(Box::new(input)))
    }

    pub(super) fn of(mut input: Input<'a>) -> Result<Self, TraceError> {
        while input.rest().len() < MAGIC.len() && input.more().map_err(|e| failed(e, "line 1".to_owned()))? {}
        let first = input.rest()[..input.rest().len().min(MAGIC.len())].to_vec();
        input.consume(first.len());
        if first != MAGIC.as_bytes() {
            let what = if first.is_empty() {
                "the file is empty".to_owned()
            } else if first.starts_with(MAGIC_ANY.as_bytes()) {
                let version = String::from_utf8_lossy(&first[MAGIC_ANY.len()..]);
                format!("a trace of version {}", version.trim_end())
            } else {
                "not a trimwise trace".to_owned()
            };
            return Err(malformed("line 1", what, &format!("'{}'", MAGIC.trim_end())));
        }
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let rest = input.rest();
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            line.extend_from_slice(&rest[..end]);
            input.consume(end);
            let is_too_long = line.len() > HEADER_BYTES_MAX;
            let is_whole = line.last() == Some(&b'\n');
            let has_more = is_whole || input.more().map_err(|source| failed(source, "line 2".to_owned()))?;
            if is_too_long || !has_more {
                return Err(TraceError::Truncated { place: "line 2".to_owned() });
            }
        }
        let header: Header = serde_json::from_slice(&line)
            .map_err(|e| malformed("line 2", format!("the header: {e}"), "the header as JSON"))?;
        let previous = Previous::new(header.devices.len());
        Ok(Self { input, header, previous, records: 0, is_ended: false })
    }

    fn place(&self) -> String {
        format!("record {}", self.records + 1)
    }

    #[inline]
    fn record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            match self.previous.parse(self.input.rest()) {
                Ok((item, used)) => {
                    self.input.consume(used);
                    match item {
                        Item::Record(record) => {
                            self.records += 1;
                            return Ok(Some(record));
                        }
                        Item::Device(device) => self.header.devices.push(device),
                        Item::End => {
                            self.is_ended = true;
                            return Ok(None);
                        }
                    }
                }
                Err(Stop::Short) => match self.input.more() {
                    Ok(true) => {}
                    Ok(false) => return Err(TraceError::Truncated { place: self.place() }),
                    Err(source) => return Err(failed(source, self.place())),
                },
                Err(Stop::Wrong(what, expected)) => return Err(malformed(&self.place(), what, &expected)),
            }
        }
    }
}

impl Source for Reader<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Record>, TraceError> {
        if self.is_ended {
            return Ok(None);
        }
        let record = self.record();
        self.is_ended |= record.is_err();
        record
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::TraceDevice;

    fn header(devices: usize) -> Header {
        Header {
            made_by: "test".to_owned(),
            devices: vec![TraceDevice::default(); devices],
            ..Header::default()
        }
    }

    fn written(header: &Header, records: &[Record]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), header).unwrap();
        for record in records {
            writer.write(record).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, (usize, TraceError)> {
        let mut reader = Reader::new(bytes).map_err(|e| (0, e))?;
        let mut records = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => return Ok(records),
                Err(error) => return Err((records.len(), error)),
            }
        }
    }

    fn range() -> impl Strategy<Value = SectorRange> {
        (0..1u64 << 50, 1..1u64 << 20).prop_map(|(first, sectors)| SectorRange::new(Lba(first), sectors))
    }

    fn event() -> impl Strategy<Value = Event> {
        let kinds = [RequestKind::Read, RequestKind::Write, RequestKind::Discard, RequestKind::Flush];
        let request = (0..4usize, range(), any::<[bool; 3]>(), proptest::option::of(0..1u64 << 40));
        let request = request.prop_map(move |(kind, sectors, [sync, fua, meta], latency)| {
            let kind = kinds[kind];
            let sectors = if kind == RequestKind::Flush { SectorRange::new(Lba(0), 0) } else { sectors };
            let latency = latency.map(SimDuration::from_nanos);
            Event::Request(Request { kind, sectors, sync, fua, meta, latency })
        });
        prop_oneof![
            8 => request,
            1 => range().prop_map(Event::Freed),
            1 => range().prop_map(Event::Allocated),
            1 => Just(Event::Committed),
            1 => Just(Event::Begun),
            1 => any::<u64>().prop_map(Event::Lost),
        ]
    }

    fn records() -> impl Strategy<Value = Vec<Record>> {
        let one = (0..1u64 << 40, 0..3u32, event());
        proptest::collection::vec(one, 0..50).prop_map(|mut all| {
            let mut at = SimTime::ZERO;
            all.drain(..)
                .map(|(gap, device, event)| {
                    at += SimDuration::from_nanos(gap);
                    Record { at, device, event }
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(records in records()) {
            prop_assert_eq!(read(&written(&header(3), &records)).unwrap(), records);
        }

        #[test]
        fn a_trace_cut_off_anywhere_gives_what_comes_before(records in records(), cut in any::<prop::sample::Index>()) {
            let whole = written(&header(3), &records);
            let cut = cut.index(whole.len());
            let (count, error) = read(&whole[..cut]).unwrap_err();
            prop_assert!(count <= records.len());
            if cut >= written(&header(3), &[]).len() {
                prop_assert!(matches!(error, TraceError::Truncated { .. }), "{error}");
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(read(&bytes));
            let mut whole = written(&header(3), &[]);
            whole.pop();
            whole.extend(bytes);
            drop(read(&whole));
        }
    }

    #[test]
    fn another_version_and_other_files_are_named() {
        for (bytes, expected) in [
            (&b""[..], "the file is empty"),
            (b"trimwise trace 2\n{}\n", "a trace of version 2"),
            (b"\x7fELF............", "not a trimwise trace"),
            (b"trimwise trace 1\n{\n", "line 2: the header"),
        ] {
            let (_, error) = read(bytes).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let mut whole = written(&header(1), &[]);
        whole.pop();
        whole.extend([OTHER_DEVICE, 0, 1]);
        let (_, error) = read(&whole).unwrap_err();
        assert_eq!(error.to_string(), "record 1: device 1; expected one of the 1 that the header names");
    }
}
