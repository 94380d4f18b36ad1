//! Replays a trace on a block device: a model in virtual time, or a real file or device.
//!
//! Paces and addresses are as in [`replay`](super), except that a request which begins or ends within a unit is
//! several operations, and a FUA write is an ordinary one. Discards are sent as recorded, or left out; frees and commits
//! have no meaning here, since no policy is at work. A prelude is replayed like the rest, and left out of the figures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use serde::Serialize;

use super::before::Bits;
use super::{Aim, Pace, ReplayError, ReplayOptions};
use crate::block::{BlockDevice, BlockError, Operation, Piece, pieces, whole_units};
use crate::content::{Content, ContentClass};
use crate::trace::survey::Latencies;
use crate::trace::{Event, Knows, Record, ReplayFigures, Request, RequestKind, Source};
use crate::units::{Bytes, SimDuration, SimTime, UnitRange};
use crate::workload::latency::LatencySummary;

const IN_FLIGHT_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReplay {
    pub duration_ns: u64,
    #[serde(flatten)]
    pub figures: ReplayFigures,
    /// Number of discards that were sent. Discards without whole units are not.
    pub discards_sent: u64,
    /// Bytes read from places that this replay had not written, if the caller did not have them written before.
    pub unwritten_read_bytes: u64,
    /// Counts of the records before the recording. The other figures leave them out.
    pub prelude: Option<PreludeReplay>,
    pub latency: BTreeMap<String, LatencySummary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PreludeReplay {
    pub requests: u64,
    pub discards_sent: u64,
    pub written_bytes: u64,
}

#[derive(Debug)]
struct Waiting {
    kind: RequestKind,
    submitted: SimTime,
    operations: usize,
    is_unknown: bool,
}

struct OnDevice<'d, D> {
    device: &'d D,
    in_flight: HashMap<u64, Waiting>,
    operations: usize,
    unknown: usize,
    known: BinaryHeap<Reverse<(SimTime, u64)>>,
    latencies: Latencies,
    done: SimTime,
}

impl<D: BlockDevice> OnDevice<'_, D> {
    async fn write_before(&mut self, before: &[UnitRange]) -> Result<(), BlockError> {
        const PIECE_UNITS: u64 = 256;
        const AT_ONCE: usize = 32;
        let content = Content::new(ContentClass::Incompressible, 0);
        for piece in before.iter().flat_map(|range| range.pieces(PIECE_UNITS)) {
            while self.operations >= AT_ONCE {
                self.complete_one().await?;
            }
            self.device.submit(Operation::Write(piece.into(), content), 0)?;
            self.operations += 1;
        }
        while self.operations > 0 {
            self.complete_one().await?;
        }
        self.device.submit(Operation::Flush, 0)?;
        self.operations += 1;
        self.complete_one().await
    }
}

impl<D: BlockDevice> OnDevice<'_, D> {
    async fn complete_one(&mut self) -> Result<(), BlockError> {
        let completion = self.device.completion().await?;
        self.operations -= 1;
        self.done = self.done.max(completion.completed);
        if let Some(waiting) = self.in_flight.get_mut(&completion.token) {
            waiting.operations -= 1;
            if waiting.operations == 0 {
                self.latencies.record(waiting.kind, completion.completed.since(waiting.submitted));
                self.unknown -= usize::from(waiting.is_unknown);
                self.in_flight.remove(&completion.token);
            }
        }
        Ok(())
    }

    async fn wait_for(
        &mut self,
        (begin, recorded_begin): (SimTime, SimTime),
        options: ReplayOptions,
        record: &Record,
        is_unknown: bool,
    ) -> Result<(), BlockError> {
        match options.pace {
            Pace::Open { speed_percent } => {
                let since = record.at.since(recorded_begin).as_nanos();
                let at = u128::from(since) * 100 / u128::from(speed_percent.max(1));
                let at = begin + SimDuration(u64::try_from(at).unwrap_or(u64::MAX));
                let now = self.device.now();
                if at > now {
                    self.device.sleep(at.since(now)).await;
                }
            }
            Pace::Closed => {
                while let Some(&Reverse((completed, number))) = self.known.peek()
                    && completed <= record.at
                {
                    if self.in_flight.contains_key(&number) {
                        self.complete_one().await?;
                    } else {
                        self.known.pop();
                    }
                }
                while is_unknown && self.unknown > 0 && self.unknown >= options.queue_depth as usize {
                    self.complete_one().await?;
                }
            }
        }
        while self.operations >= IN_FLIGHT_MAX {
            self.complete_one().await?;
        }
        Ok(())
    }
}

fn operations(request: &Request, content: Content) -> Vec<Operation> {
    let split = |make: &dyn Fn(crate::units::SectorRange) -> Operation| {
        let parts = pieces(request.sectors).map(|piece| match piece {
            Piece::Whole(range) => range.into(),
            Piece::Part(part) => part,
        });
        parts.map(make).collect()
    };
    match request.kind {
        RequestKind::Read => split(&Operation::Read),
        RequestKind::Write => split(&|part| Operation::Write(part, content)),
        RequestKind::Discard => {
            whole_units(request.sectors).map(|range| Operation::Trim(vec![range])).into_iter().collect()
        }
        RequestKind::Flush => vec![Operation::Flush],
    }
}

/// What to do on a device besides the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDeviceOptions {
    /// Send the trace's discards, rather than leave them out.
    pub discards: bool,
    /// Units to write before, because the trace reads them first ([`read_before`](super::read_before)); `None` if they
    /// are not known or not wanted.
    pub before: Option<Vec<UnitRange>>,
}

/// Replays a trace on a device. After an error, the records replayed before it have changed the device.
pub async fn replay_on<D: BlockDevice>(
    device: &D,
    source: &mut dyn Source,
    options: ReplayOptions,
    on_device: &OnDeviceOptions,
) -> Result<DeviceReplay, ReplayError> {
    let OnDeviceOptions { discards, before } = on_device;
    let mut aim = Aim::new(options, Bytes::from_units(device.size_units()));
    let mut figures = ReplayFigures::new(options.pace.kind());
    let mut recorded = Latencies::default();
    let mut is_prelude = source.header().has_prelude;
    let (mut discards_sent, mut prelude) = (0, None);
    let mut begin = device.now();
    let mut recorded_begin = SimTime::ZERO;
    let mut run = OnDevice {
        device,
        in_flight: HashMap::new(),
        operations: 0,
        unknown: 0,
        known: BinaryHeap::new(),
        latencies: Latencies::default(),
        done: begin,
    };
    // Without the earlier contents, reads of them are counted. A prelude has all contents.
    let mut written = before.is_none().then(|| Bits::new(Bytes::from_units(device.size_units())));
    let (mut written_before, mut unwritten_read) = (Bytes(0), Bytes(0));
    if let Some(before) = before.as_ref().filter(|before| !before.is_empty()) {
        written_before = Bytes::from_units(before.iter().map(|range| range.units).sum());
        run.write_before(before).await.map_err(|source| match source {
            BlockError::Interrupted => ReplayError::Interrupted,
            source => ReplayError::Before { source },
        })?;
        (begin, run.done) = (device.now(), device.now());
    }
    loop {
        let record = match source.next() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(error) if aim.records > 0 => {
                figures.cut_off = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error.into()),
        };
        aim.records += 1;
        let number = aim.records;
        let failed = |source| match source {
            BlockError::Interrupted => ReplayError::Interrupted,
            source => ReplayError::Block { record: number, source },
        };
        if !aim.is_chosen(&record, source.header())? {
            continue;
        }
        let request = match record.event {
            Event::Request(request) => request,
            Event::Lost(events) => {
                figures.lost_events = figures.lost_events.saturating_add(events);
                continue;
            }
            Event::Freed(_) | Event::Allocated(_) | Event::Committed => continue,
            Event::Begun => {
                while run.operations > 0 {
                    run.complete_one().await.map_err(failed)?;
                }
                (begin, recorded_begin) = (device.now(), record.at);
                let ReplayFigures { requests, written_bytes, .. } = figures;
                let discards_sent = std::mem::take(&mut discards_sent);
                prelude = Some(PreludeReplay { requests, discards_sent, written_bytes });
                is_prelude = false;
                figures = ReplayFigures::new(options.pace.kind());
                unwritten_read = Bytes(0);
                (recorded, run.latencies, run.done) = (Latencies::default(), Latencies::default(), begin);
                continue;
            }
        };
        let kind = request.kind;
        let (sectors, is_cut) = aim.place(request.sectors, record.device, source.header())?;
        figures.cut_requests += u64::from(is_cut);
        figures.recorded_discards += u64::from(kind == RequestKind::Discard);
        if let Some(written) = &mut written {
            let units = sectors.units();
            match kind {
                RequestKind::Read => {
                    let missing = units.iter().filter(|unit| !written.has(*unit)).count();
                    unwritten_read.0 += Bytes::from_units(missing as u64).0.min(sectors.bytes().0);
                }
                RequestKind::Write | RequestKind::Discard => written.set(units, |_, _| ()),
                RequestKind::Flush => {}
            }
        }
        if kind == RequestKind::Discard && !discards {
            continue;
        }
        let operations = operations(
            &Request { sectors, ..request },
            Content::new(ContentClass::Incompressible, number as u32),
        );
        if operations.is_empty() {
            continue;
        }
        let is_unknown = request.latency.is_none();
        run.wait_for((begin, recorded_begin), options, &record, is_unknown).await.map_err(failed)?;
        let waiting = Waiting { kind, submitted: device.now(), operations: operations.len(), is_unknown };
        run.in_flight.insert(number, waiting);
        run.operations += operations.len();
        run.unknown += usize::from(is_unknown);
        for operation in operations {
            device.submit(operation, number).map_err(failed)?;
        }
        figures.count(kind, sectors);
        discards_sent += u64::from(kind == RequestKind::Discard);
        if let Some(latency) = request.latency {
            recorded.record(kind, latency);
            if options.pace == Pace::Closed {
                run.known.push(Reverse((record.at + latency, number)));
            }
        }
    }
    while run.operations > 0 {
        run.complete_one().await.map_err(|source| match source {
            BlockError::Interrupted => ReplayError::Interrupted,
            source => ReplayError::Block { record: aim.records, source },
        })?;
    }
    if is_prelude {
        return Err(ReplayError::OnlyPrelude);
    }
    if figures.requests + figures.recorded_discards == 0 {
        return Err(aim.nothing(source));
    }
    figures.knows = if figures.recorded_discards > 0 { Knows::Discards } else { Knows::Nothing };
    figures.enter(&run.latencies, &recorded);
    figures.recorded_drive_bytes = aim.recorded_bytes(source.header());
    let latency = run.latencies.summaries().map(|(kind, summary)| (kind.to_owned(), summary)).collect();
    let duration_ns = run.done.since(begin).as_nanos();
    figures.written_before_bytes = written_before.0;
    let unwritten_read_bytes = unwritten_read.0;
    Ok(DeviceReplay { duration_ns, figures, discards_sent, unwritten_read_bytes, prelude, latency })
}
