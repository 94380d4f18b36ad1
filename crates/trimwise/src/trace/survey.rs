use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Event, Header, LeftOut, Record, Request, RequestKind, Source, TraceError};
use crate::units::{Bytes, SimDuration, SimTime, UNIT_BYTES, UnitRange};
use crate::workload::latency::{LatencySummary, histogram};

/// Minimum length of a pause that gets a note: the clock was probably set, or the recording stopped.
const GAP: SimDuration = SimDuration::from_secs(3600);
const RECORDS_PER_CALL: u64 = 65_536;
const BATCH_RECORDS: usize = 256;
const PIECE_UNITS: u64 = 32_768;
/// Maximum number of pieces. They take 256 MiB of memory, and cover 8 TiB if all of it is touched.
const PIECES_MAX: usize = 65_536;

impl RequestKind {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }
}

/// Latencies by kind of request, and of all kinds together.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histograms: [Histogram<u32>; 4],
    sum_ns: u128,
    count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { histograms: std::array::from_fn(|_| histogram()), sum_ns: 0, count: 0 }
    }
}

impl Latencies {
    #[inline]
    pub fn record(&mut self, kind: RequestKind, latency: SimDuration) {
        self.histograms[kind as usize].saturating_record(latency.as_nanos().max(1));
        self.sum_ns += u128::from(latency.as_nanos());
        self.count += 1;
    }

    pub fn has(&self, kind: RequestKind) -> bool {
        !self.histograms[kind as usize].is_empty()
    }

    pub fn summaries(&self) -> impl Iterator<Item = (&'static str, LatencySummary)> + '_ {
        RequestKind::ALL
            .into_iter()
            .filter_map(|kind| Some((kind.name(), LatencySummary::of(&self.histograms[kind as usize])?)))
    }

    pub fn quantiles(&self, kind: RequestKind, quantiles: &[f64]) -> Vec<u64> {
        let h = &self.histograms[kind as usize];
        quantiles.iter().map(|&q| h.value_at_quantile(q)).collect()
    }

    /// Returns the mean of all kinds in whole nanoseconds; `None` without any.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count.into()).map(|mean| mean as u64)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindFigures {
    pub count: u64,
    pub bytes: u64,
    pub bytes_min: u64,
    pub bytes_max: u64,
    /// Number of requests that are neither whole units of 4 KiB nor aligned to them.
    pub unaligned: u64,
    pub sync: u64,
}

/// Figures of a trace. The order of the keys is part of the JSON format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceInfo {
    pub header: Header,
    /// Number of records that come before the recording and fill the drive. The other figures leave them out.
    pub prelude_records: u64,
    /// The trace ends within the prelude, so there is no recording.
    pub recording_is_missing: bool,
    pub records: u64,
    /// Requests of each kind that occurs, by name.
    pub requests: BTreeMap<String, KindFigures>,
    /// Requests of each device, in the order of the header.
    pub requests_by_device: Vec<u64>,
    pub latency: BTreeMap<String, LatencySummary>,
    pub unknown_latencies: u64,
    pub span_ns: u64,
    /// Number of pauses of more than an hour, which can be jumps of the clock.
    pub pauses_over_an_hour: u64,
    pub longest_pause_ns: u64,
    /// Bytes of the units that were read, written or discarded at least once.
    pub working_set_bytes: u64,
    /// The working set was too scattered to count, and is larger than that.
    pub working_set_is_a_lower_bound: bool,
    /// Size of the smallest drive that has all addresses.
    pub needed_bytes: u64,
    pub freed: u64,
    pub allocated: u64,
    pub committed: u64,
    pub lost_events: u64,
    /// Requests that are in the trace and not in the figures.
    #[serde(default)]
    pub left_out: LeftOut,
    /// Why the trace was not read to its end; `None` if it was.
    pub ended_early: Option<String>,
}

#[derive(Debug)]
enum Piece {
    All,
    Some(Box<[u64; PIECE_UNITS as usize / 64]>),
}

impl Piece {
    /// Touches units of the piece. Returns how many were not touched before.
    #[inline]
    fn touch(&mut self, units: Range<u64>) -> u64 {
        let Self::Some(bits) = self else { return 0 };
        if units == (0..PIECE_UNITS) {
            let before: u64 = bits.iter().map(|word| u64::from(word.count_ones())).sum();
            *self = Self::All;
            return PIECE_UNITS - before;
        }
        let (first, last) = ((units.start / 64) as usize, ((units.end - 1) / 64) as usize);
        let mut new = 0;
        for (index, word) in bits[first..=last].iter_mut().enumerate() {
            let from = if index == 0 { u64::MAX << (units.start % 64) } else { u64::MAX };
            let to = if first + index == last { u64::MAX >> (63 - (units.end - 1) % 64) } else { u64::MAX };
            new += u64::from((from & to & !*word).count_ones());
            *word |= from & to;
        }
        new
    }
}

#[derive(Debug, Default)]
struct Touched {
    pieces: HashMap<(u32, u64), Piece, foldhash::fast::RandomState>,
    units: u64,
    is_cut: bool,
}

impl Touched {
    /// Brings what these requests will touch into the processor's cache, by loads that do not wait for each other.
    fn expect(&self, batch: &[Record]) {
        let mut seen = 0;
        for record in batch {
            let Event::Request(Request { sectors, .. }) = record.event else { continue };
            let unit = sectors.units().start.0;
            if let Some(Piece::Some(bits)) = self.pieces.get(&(record.device, unit / PIECE_UNITS)) {
                seen ^= bits[(unit % PIECE_UNITS / 64) as usize];
            }
        }
        std::hint::black_box(seen);
    }

    #[inline]
    fn touch(&mut self, device: u32, range: UnitRange) {
        let (mut at, end) = (range.start.0, range.end().0);
        while at < end {
            let piece = at / PIECE_UNITS;
            let until = end.min((piece + 1) * PIECE_UNITS);
            let units = at % PIECE_UNITS..(until - 1) % PIECE_UNITS + 1;
            at = until;
            if let Some(touched) = self.pieces.get_mut(&(device, piece)) {
                self.units += touched.touch(units);
                continue;
            }
            if self.pieces.len() >= PIECES_MAX {
                self.is_cut = true;
                // A range of astronomic length is not worth walking through.
                return;
            }
            let is_whole = units == (0..PIECE_UNITS);
            let mut touched = if is_whole { Piece::All } else { Piece::Some(Box::new([0; _])) };
            self.units += if is_whole { PIECE_UNITS } else { touched.touch(units) };
            self.pieces.insert((device, piece), touched);
        }
    }
}

/// Reads a trace to its end and returns its figures. An error after the header is part of the result, so that a trace
/// that was cut off can be looked at. `on_records` is called now and then with the number of records so far, and ends
/// the survey by returning `false`.
pub fn survey(source: &mut dyn Source, on_records: &mut dyn FnMut(u64) -> bool) -> TraceInfo {
    let mut survey = Survey::default();
    let mut is_interrupted = false;
    let mut batch: Vec<Record> = Vec::with_capacity(BATCH_RECORDS);
    let mut read = 0u64;
    let ended_early = loop {
        match source.next() {
            Ok(Some(Record { at, event: Event::Begun, .. })) => {
                survey.observe(&mut batch);
                survey.begin(Some(at));
            }
            Ok(Some(record)) => {
                batch.push(record);
                if batch.len() == BATCH_RECORDS {
                    survey.observe(&mut batch);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
        read += 1;
        if read.is_multiple_of(RECORDS_PER_CALL) && !on_records(read) {
            is_interrupted = true;
            break Some("interrupted".to_owned());
        }
    };
    survey.observe(&mut batch);
    let header = source.header().clone();
    let is_in_prelude = header.has_prelude && !survey.has_begun;
    if is_in_prelude {
        survey.begin(None);
    }
    let recording_is_missing = is_in_prelude && !is_interrupted;
    let left_out = source.left_out();
    TraceInfo { header, recording_is_missing, ended_early, left_out, ..survey.finish() }
}

#[derive(Debug, Default)]
struct Survey {
    info: TraceInfo,
    kinds: [KindFigures; 4],
    latencies: Latencies,
    touched: Touched,
    has_begun: bool,
    first: Option<SimTime>,
    last: SimTime,
}

impl Survey {
    /// Counts the records so far, and the mark at this time, as the prelude.
    fn begin(&mut self, mark: Option<SimTime>) {
        // A drive must have room for the prelude, too.
        let TraceInfo { prelude_records, records, needed_bytes, .. } = self.info;
        let prelude_records = prelude_records + records + u64::from(mark.is_some());
        let info = TraceInfo { prelude_records, needed_bytes, ..TraceInfo::default() };
        let last = mark.unwrap_or_default();
        *self = Self { info, has_begun: true, first: mark, last, ..Self::default() };
    }

    fn observe(&mut self, batch: &mut Vec<Record>) {
        self.touched.expect(batch);
        batch.iter().for_each(|record| self.count(record));
        for record in batch.drain(..) {
            if let Event::Request(Request { kind, sectors, latency, .. }) = record.event {
                if sectors.sectors > 0 {
                    self.touched.touch(record.device, sectors.units());
                }
                match latency {
                    Some(latency) => self.latencies.record(kind, latency),
                    None => self.info.unknown_latencies += 1,
                }
            }
        }
    }

    #[inline]
    fn count(&mut self, record: &Record) {
        let Record { at, device, event } = *record;
        let info = &mut self.info;
        info.records += 1;
        if self.first.replace(self.first.unwrap_or(at)).is_some() {
            let pause = at.since(self.last);
            info.pauses_over_an_hour += u64::from(pause > GAP);
            info.longest_pause_ns = info.longest_pause_ns.max(pause.as_nanos());
        }
        self.last = at;
        let reach = |info: &mut TraceInfo, end: u64| info.needed_bytes = info.needed_bytes.max(end * 512);
        match event {
            Event::Request(request) => {
                let Request { kind, sectors, sync, .. } = request;
                let figures = &mut self.kinds[kind as usize];
                let bytes = sectors.bytes().0;
                figures.bytes_min = if figures.count == 0 { bytes } else { figures.bytes_min.min(bytes) };
                figures.bytes_max = figures.bytes_max.max(bytes);
                figures.count += 1;
                figures.bytes = figures.bytes.saturating_add(bytes);
                figures.sync += u64::from(sync);
                figures.unaligned += u64::from(!sectors.is_whole());
                if info.requests_by_device.len() <= device as usize {
                    info.requests_by_device.resize(device as usize + 1, 0);
                }
                info.requests_by_device[device as usize] += 1;
                reach(info, sectors.first.0.saturating_add(sectors.sectors));
            }
            Event::Freed(sectors) => {
                info.freed += 1;
                reach(info, sectors.first.0.saturating_add(sectors.sectors));
            }
            Event::Allocated(sectors) => {
                info.allocated += 1;
                reach(info, sectors.first.0.saturating_add(sectors.sectors));
            }
            Event::Committed => info.committed += 1,
            Event::Lost(events) => info.lost_events = info.lost_events.saturating_add(events),
            Event::Begun => {}
        }
    }

    fn finish(self) -> TraceInfo {
        let kinds = RequestKind::ALL.into_iter().zip(self.kinds).filter(|(_, figures)| figures.count > 0);
        TraceInfo {
            requests: kinds.map(|(kind, figures)| (kind.name().to_owned(), figures)).collect(),
            latency: self.latencies.summaries().map(|(kind, summary)| (kind.to_owned(), summary)).collect(),
            span_ns: self.last.since(self.first.unwrap_or_default()).as_nanos(),
            working_set_bytes: Bytes(self.touched.units * UNIT_BYTES).0,
            working_set_is_a_lower_bound: self.touched.is_cut,
            ..self.info
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    pub records: u64,
    pub left_out: LeftOut,
    /// Where and why the original ended early. The copy then has no end mark.
    pub cut_off: Option<String>,
}

#[derive(Debug, Error)]
pub enum ConvertError {
    #[error(transparent)]
    Source(#[from] TraceError),
    #[error("after {records} records: {source}")]
    Output { records: u64, source: std::io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// Copies a trace into trimwise's own format. `on_records` is called as for [`survey`]; if it returns `false`, the copy
/// ends there, without an end mark.
///
/// # Errors Errors of the output, and that of a source of which not one record can be read. The records before an error
/// have been written.
pub fn convert(
    source: &mut dyn Source,
    out: &mut dyn std::io::Write,
    on_records: &mut dyn FnMut(u64) -> bool,
) -> Result<Converted, ConvertError> {
    // A format that names its devices as it goes has now named those of the first records.
    let mut next = source.next();
    let failed = |records: u64| move |source| ConvertError::Output { records, source };
    let mut writer = super::format::Writer::new(out, source.header()).map_err(failed(0))?;
    let mut records = 0;
    let cut_off = loop {
        let record = match next {
            Ok(Some(record)) => record,
            Ok(None) => break None,
            Err(error) if records > 0 => break Some(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        while let Some(device) = source.header().devices.get(writer.devices()) {
            writer.add_device(device).map_err(failed(records))?;
        }
        writer.write(&record).map_err(failed(records))?;
        records += 1;
        if records.is_multiple_of(RECORDS_PER_CALL) && !on_records(records) {
            return Err(ConvertError::Interrupted);
        }
        next = source.next();
    };
    let ended = if cut_off.is_some() { writer.cut_off() } else { writer.finish() };
    ended.map_err(failed(records))?;
    Ok(Converted { records, left_out: source.left_out(), cut_off })
}
