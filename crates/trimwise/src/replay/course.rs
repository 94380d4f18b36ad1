//! A replay, record by record: the time of each, and its effects on the drive and the policy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::aim::Aim;
use super::hosted::Hosted;
use super::sampler::Sampler;
use super::{CONTENT, Pace, ReplayError, ReplayOptions, UNIT_SECTORS};
use crate::block::{PortRequest, whole_units};
use crate::compare::gauge::Stale;
use crate::compare::result::TimelineSample;
use crate::policy::{Ledger, PolicyId};
use crate::ssd::SsdStats;
use crate::trace::survey::Latencies;
use crate::trace::{Event, Header, Knows, Record, ReplayFigures, Request, RequestKind, Source};
use crate::units::{Lpn, SimDuration, SimTime};

/// Records that are read and announced at once.
const AHEAD: usize = 64;
/// Maximum number of requests that a closed replay remembers. Beyond it, the first one is waited for.
const REMEMBERED_MAX: usize = 65_536;

pub(super) struct Replayed {
    pub begin: Begin,
    pub end: SimTime,
    pub figures: ReplayFigures,
    pub latencies: Latencies,
    pub ledger: Ledger,
    pub stale: Stale,
    pub timeline: Vec<TimelineSample>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub at: SimTime,
    pub stats: SsdStats,
    pub ledger: Ledger,
}

impl Begin {
    fn now(at: SimTime, hosted: &mut Hosted<'_>) -> Self {
        Self { at, stats: *hosted.port().drive().ssd().stats(), ledger: hosted.ledger() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    Dropped,
    AsRecorded,
    Queued,
}

pub(super) struct Replay<'p> {
    hosted: Hosted<'p>,
    handling: Handling,
    options: ReplayOptions,
    begin: Begin,
    recorded_begin: SimTime,
    is_prelude: bool,
    aim: Aim,
    now: SimTime,
    done: SimTime,
    /// Closed: times of completion as recorded, and times of completion here.
    known: BinaryHeap<Reverse<(SimTime, SimTime)>>,
    /// Closed: times of completion here of requests without a recorded completion.
    unknown: BinaryHeap<Reverse<SimTime>>,
    has_frees: bool,
    figures: ReplayFigures,
    latencies: Latencies,
    recorded: Latencies,
    sampler: Sampler,
}

impl<'p> Replay<'p> {
    pub fn new(mut hosted: Hosted<'p>, policy: &PolicyId, options: ReplayOptions, begin: SimTime) -> Self {
        Self {
            aim: Aim::new(options, hosted.port().size()),
            sampler: Sampler::new(begin, hosted.port()),
            begin: Begin::now(begin, &mut hosted),
            recorded_begin: SimTime::ZERO,
            is_prelude: false,
            hosted,
            handling: match policy {
                off if *off == PolicyId::OFF => Handling::Dropped,
                commit if *commit == PolicyId::COMMIT => Handling::AsRecorded,
                _ => Handling::Queued,
            },
            options,
            now: begin,
            done: begin,
            known: BinaryHeap::new(),
            unknown: BinaryHeap::new(),
            has_frees: false,
            figures: ReplayFigures::new(options.pace.kind()),
            latencies: Latencies::default(),
            recorded: Latencies::default(),
        }
    }

    pub fn run(
        &mut self,
        source: &mut dyn Source,
        on_records: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ReplayError> {
        const BATCHES_PER_CALL: u64 = 1024;
        self.has_frees = source.header().file_system.as_ref().is_some_and(|fs| fs.is_traced);
        self.is_prelude = source.header().has_prelude;
        if self.handling != Handling::Dropped && source.header().never_discards() {
            return Err(ReplayError::NothingToTrim);
        }
        let mut batch: Vec<Record> = Vec::with_capacity(AHEAD);
        let mut batches = 0u64;
        let mut ended = false;
        while !ended {
            batch.clear();
            while batch.len() < AHEAD {
                match source.next() {
                    Ok(Some(record)) => batch.push(record),
                    Ok(None) => ended = true,
                    Err(error) if self.aim.records > 0 || !batch.is_empty() => {
                        self.figures.cut_off = Some(error.to_string());
                        ended = true;
                    }
                    Err(error) => return Err(error.into()),
                }
                if ended {
                    break;
                }
            }
            self.announce(&batch, source.header());
            for record in &batch {
                self.aim.records += 1;
                if self.aim.is_chosen(record, source.header())? {
                    self.play(record, source.header())?;
                }
            }
            batches += 1;
            if batches.is_multiple_of(BATCHES_PER_CALL) && !on_records(self.aim.records) {
                return Err(ReplayError::Interrupted);
            }
        }
        Ok(())
    }

    /// Announces the first units of the next requests to the drive. A wrong guess costs a little time, nothing else.
    #[inline]
    fn announce(&mut self, batch: &[Record], header: &Header) {
        let mut units = [Lpn(0); AHEAD];
        let mut count = 0;
        let known = batch.iter().filter_map(|record| match record.event {
            Event::Request(Request { kind: RequestKind::Read | RequestKind::Write, sectors, .. }) => {
                let (sectors, _) = self.aim.place(sectors, record.device, header).ok()?;
                Some(Lpn(sectors.first.0 / UNIT_SECTORS))
            }
            _ => None,
        });
        for (slot, unit) in units.iter_mut().zip(known) {
            *slot = unit;
            count += 1;
        }
        self.hosted.port().drive().ssd().expect(units[..count].iter().copied());
    }

    #[inline]
    fn time_of(&mut self, record: &Record) -> SimTime {
        let since = record.at.since(self.recorded_begin);
        match self.options.pace {
            Pace::Open { speed_percent: 100 } => self.begin.at + since,
            _ if self.is_prelude => self.begin.at + since,
            Pace::Open { speed_percent } => {
                let at = u128::from(since.as_nanos()) * 100 / u128::from(speed_percent.max(1));
                self.begin.at + SimDuration(u64::try_from(at).unwrap_or(u64::MAX))
            }
            Pace::Closed => {
                let mut at = self.now;
                while let Some(&Reverse((completed, done))) = self.known.peek()
                    && (completed <= record.at || self.known.len() >= REMEMBERED_MAX)
                {
                    at = at.max(done);
                    self.known.pop();
                }
                let is_unknown = matches!(record.event, Event::Request(Request { latency: None, .. }));
                let depth = (self.options.queue_depth as usize).clamp(1, REMEMBERED_MAX);
                while is_unknown && self.unknown.len() >= depth {
                    let Some(Reverse(done)) = self.unknown.pop() else { break };
                    at = at.max(done);
                }
                at
            }
        }
    }

    #[inline]
    fn play(&mut self, record: &Record, header: &Header) -> Result<(), ReplayError> {
        let at = self.time_of(record).max(self.now);
        self.hosted.advance(at);
        self.now = at;
        if at >= self.sampler.next {
            self.sampler.sample(at, &mut self.hosted);
        }
        match record.event {
            Event::Request(request) => {
                let (sectors, is_cut) = self.aim.place(request.sectors, record.device, header)?;
                self.figures.cut_requests += u64::from(is_cut);
                self.request(record, Request { sectors, ..request })?;
            }
            Event::Freed(sectors) => {
                self.has_frees = true;
                let (sectors, _) = self.aim.place(sectors, record.device, header)?;
                if let Some(range) = whole_units(sectors) {
                    self.hosted.free(range);
                }
            }
            Event::Allocated(sectors) => {
                let (sectors, _) = self.aim.place(sectors, record.device, header)?;
                self.hosted.used(sectors.units());
            }
            Event::Committed => {
                self.has_frees = true;
                self.hosted.committed(at);
            }
            Event::Lost(events) => self.figures.lost_events = self.figures.lost_events.saturating_add(events),
            Event::Begun => self.begin_now(record.at),
        }
        Ok(())
    }

    /// Resets the figures, once all submitted requests have completed.
    fn begin_now(&mut self, recorded: SimTime) {
        self.now = self.done.max(self.now);
        self.hosted.advance(self.now);
        self.hosted.port().catch_up(self.now);
        self.begin = Begin::now(self.now, &mut self.hosted);
        (self.recorded_begin, self.is_prelude) = (recorded, false);
        // The batch that begins the recording may also be where the trace is cut off.
        let cut_off = self.figures.cut_off.take();
        self.figures = ReplayFigures { cut_off, ..ReplayFigures::new(self.options.pace.kind()) };
        (self.latencies, self.recorded) = (Latencies::default(), Latencies::default());
        self.known.clear();
        self.unknown.clear();
        self.sampler = Sampler::new(self.now, self.hosted.port());
    }

    fn request(&mut self, record: &Record, request: Request) -> Result<(), ReplayError> {
        let Request { kind, sectors, fua, latency, .. } = request;
        let at = self.now;
        if kind == RequestKind::Discard {
            self.figures.recorded_discards += 1;
            let is_queued = !self.has_frees && self.handling != Handling::AsRecorded;
            if is_queued && let Some(range) = whole_units(sectors) {
                self.hosted.free(range);
                self.hosted.committed(at);
            }
            if self.has_frees || is_queued {
                // Nothing in the trace waits here for the policy.
                return Ok(());
            }
        }
        let submitted = match kind {
            RequestKind::Read => PortRequest::Read(sectors),
            RequestKind::Write => {
                self.hosted.used(sectors.units());
                PortRequest::Write(sectors, CONTENT)
            }
            RequestKind::Discard => {
                if let Some(range) = whole_units(sectors) {
                    self.hosted.passed_on(range);
                }
                PortRequest::Discard(vec![sectors])
            }
            RequestKind::Flush => PortRequest::Flush,
        };
        let record_number = self.aim.records;
        let failed = |source| ReplayError::Port { record: record_number, source };
        let mut done = self.hosted.port().submit(at, &submitted).map_err(failed)?;
        if fua && kind == RequestKind::Write && self.hosted.port().drive().ssd().config().cache.volatile {
            done = done.max(self.hosted.port().submit(at, &PortRequest::Flush).map_err(failed)?);
        }
        self.done = self.done.max(done);
        self.hosted.is_busy_until(at, self.done);
        self.latencies.record(kind, done.since(at));
        self.figures.count(kind, sectors);
        if let Some(latency) = latency {
            self.recorded.record(kind, latency);
        }
        if self.options.pace == Pace::Closed && !self.is_prelude {
            match latency {
                Some(latency) => self.known.push(Reverse((record.at + latency, done))),
                None => self.unknown.push(Reverse(done)),
            }
        }
        Ok(())
    }

    /// Ends the run with the last request, even if the policy still has TRIMs to send.
    pub fn finish(mut self, source: &dyn Source) -> Result<Replayed, ReplayError> {
        if self.is_prelude {
            return Err(ReplayError::OnlyPrelude);
        }
        if self.figures.requests + self.figures.recorded_discards == 0 {
            return Err(self.aim.nothing(source));
        }
        self.figures.knows = match () {
            () if self.has_frees => Knows::Frees,
            () if self.figures.recorded_discards > 0 => Knows::Discards,
            () => Knows::Nothing,
        };
        if self.figures.knows == Knows::Nothing && self.handling != Handling::Dropped {
            return Err(ReplayError::NothingToTrim);
        }
        let end = self.done.max(self.now);
        self.hosted.advance(end);
        let timeline = self.sampler.finish(end, &mut self.hosted);
        let (max, stale_end) = (self.sampler.stale_max, self.hosted.stale_units());
        let is_known =
            self.has_frees || self.handling != Handling::AsRecorded && self.figures.knows == Knows::Discards;
        let stale = match is_known {
            true => Stale { max: Some(max), mean: None, end: Some(stale_end) },
            false => Stale::default(),
        };
        self.figures.enter(&self.latencies, &self.recorded);
        self.figures.recorded_drive_bytes = self.aim.recorded_bytes(source.header());
        Ok(Replayed {
            begin: self.begin,
            end,
            figures: self.figures,
            latencies: self.latencies,
            ledger: self.hosted.ledger(),
            stale,
            timeline,
        })
    }
}
