//! Replaying a trace on a modelled drive.
//!
//! Requests go to the drive through a [`Port`], which admits them in order up to the drive's queue depth; each returns at
//! once when it will complete, so there are no events, and memory does not depend on the length of the trace. Sixty-four
//! records are read at a time and announced to the drive ([`Ssd::expect`](crate::ssd::Ssd::expect)).
//!
//! **Open**: a request is issued at its recorded time, whatever the drive does. The drive's latency then includes the
//! time in its queue, and a drive that is too slow falls behind without limit. **Closed**: a request is issued when the
//! requests that had completed before it was issued, when it was recorded, have completed. So what the recording host
//! waited for is waited for again, and the time that it spent on other things is left out. Where a completion was not
//! recorded, a number of requests is kept in flight instead.
//!
//! **TRIM.** If the trace has frees and commits, they drive the policy, and the discards of the recording host are left
//! out. If it has only discards, each stands for a commit that frees those units: the block-level queue of a host that
//! sees no file system. There `off` drops them, and `commit` passes them on as they were recorded. If it has neither,
//! every policy but `off` is refused, since it would do the same as `off`.
//!
//! **What the drive holds before.** As many units as `utilization_percent` says, from the first on, are written in order,
//! and then as many are overwritten in random order. They count as in use until the trace frees them. A trace with a
//! prelude brings the drive's state with it instead: its records up to [`Event::Begun`] are replayed at their recorded
//! times on the new drive, under the policy, and the figures count from there.
//!
//! A FUA write on a drive with a volatile cache is a write and a flush, as Linux does it where the drive has no FUA.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::hosted::Hosted;
use super::survey::Latencies;
use super::{Event, Header, Record, Request, RequestKind, Source, TraceError};
use crate::block::{BlockError, Port, PortError, PortRequest, whole_units};
use crate::compare::cell::SETTLING;
use crate::compare::gauge::{Stale, device_figures};
use crate::compare::ledger::CellLedger;
use crate::compare::result::{Cell, CellId, DriveFacts, QUANTILES, TimelineSample, WorkloadFigures};
use crate::content::{Content, ContentClass};
use crate::policy::{Ledger, LinuxVersion, Policy};
use crate::ssd::{ConfigError, Drive, Faults, SsdConfig, SsdStats};
use crate::units::{Bytes, Lba, Lpn, SECTOR_BYTES, SectorRange, SimDuration, SimTime, UNIT_BYTES, UnitRange};
use crate::workload::latency::LatencySummary;

/// Records that are read and announced at once.
const AHEAD: usize = 64;
/// Requests that a closed replay remembers at most; beyond, the first one is waited for.
const REMEMBERED_MAX: usize = 65_536;
/// Samples that a timeline keeps at most.
const SAMPLES_MAX: usize = 200;
/// Sectors in a unit.
const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;
/// What is written; a trace does not say.
const CONTENT: Content = Content::new(ContentClass::Incompressible, 1);

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At their recorded times, at this percentage of the recorded speed.
    Open {
        /// 100 is as recorded, 200 in half the time.
        speed_percent: u32,
    },
    /// When those that they waited for have completed.
    Closed,
}

/// What happens to addresses beyond the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// The replay is refused.
    #[default]
    Refuse,
    /// They start again at 0.
    Wrap,
    /// All addresses are scaled from the recorded size to the drive's.
    Scale,
}

/// Which devices of the trace are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The only one; if there are several, the replay is refused.
    #[default]
    Only,
    /// One of several.
    Number(u32),
    /// All, on one drive.
    All,
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// When requests are issued.
    pub pace: Pace,
    /// What happens to addresses beyond the drive.
    pub addresses: Addresses,
    /// Which devices are replayed.
    pub devices: DeviceChoice,
    /// Closed: requests in flight where the trace does not say when they completed.
    pub queue_depth: u32,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            pace: Pace::Closed,
            addresses: Addresses::default(),
            devices: DeviceChoice::default(),
            queue_depth: 32,
        }
    }
}

/// One run: a device, a policy, a repetition.
#[derive(Clone, Debug)]
pub struct ReplaySpec {
    /// Name of the device, for the result.
    pub device: String,
    /// The device.
    pub ssd: SsdConfig,
    /// What its firmware does wrong.
    pub faults: Faults,
    /// The policy.
    pub policy: Policy,
    /// The host's Linux, which says how the policy `commit` works.
    pub linux: LinuxVersion,
    /// How much of the drive holds valid data before; without meaning for a trace with a prelude.
    pub utilization_percent: u64,
    /// The repetition; with the seed it decides what is overwritten before.
    pub rep: u32,
    /// The seed of the whole.
    pub seed: u64,
    /// How the trace is replayed.
    pub options: ReplayOptions,
}

/// Why a trace cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The device's numbers contradict each other.
    #[error(transparent)]
    Device(#[from] ConfigError),
    /// The trace cannot be read on.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// A request beyond the drive.
    #[error(
        "record {record}: {} sectors from sector {} lie beyond a drive of {size}, and need one of {}; expected a larger \
         drive, or addresses that are wrapped or scaled to it",
        .sectors.sectors, .sectors.first.0, Bytes((.sectors.first.0 + .sectors.sectors) * SECTOR_BYTES)
    )]
    Beyond {
        /// Which record, from 1.
        record: u64,
        /// Its sectors.
        sectors: SectorRange,
        /// The drive's size.
        size: Bytes,
    },
    /// Addresses were to be scaled, and the trace does not say how large its device was.
    #[error(
        "the trace does not say how large its device was, so its addresses cannot be scaled; expected wrap"
    )]
    NoSize,
    /// Requests to several devices, and none was chosen.
    #[error(
        "record {record}: a request to {second}, after requests to {first}; expected the number of one of them, or all, \
         to be chosen"
    )]
    SeveralDevices {
        /// Which record, from 1.
        record: u64,
        /// The first device.
        first: String,
        /// Another one.
        second: String,
    },
    /// Nothing that was chosen is in the trace.
    #[error("the trace has no requests{of}")]
    Nothing {
        /// Of which device, if one was chosen.
        of: String,
    },
    /// A policy on a trace without discards and frees.
    #[error(
        "policy {policy}: the trace has neither discards nor frees, so every policy does the same as off on it; expected \
         --policy off"
    )]
    NothingToTrim {
        /// The policy.
        policy: String,
    },
    /// The drive does not take a request.
    #[error("record {record}: {source}")]
    Port {
        /// Which record, from 1.
        record: u64,
        /// Why.
        source: PortError,
    },
    /// A real device failed.
    #[error("record {record}: {source}")]
    Block {
        /// Which record, from 1.
        record: u64,
        /// Why.
        source: BlockError,
    },
    /// A defect in the model: an invariant does not hold after the run.
    #[error("{device}, policy {policy}: the audit after the replay failed: {what}")]
    Audit {
        /// The device.
        device: String,
        /// The policy.
        policy: String,
        /// What does not hold.
        what: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What a trace says about freed space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knows {
    /// Frees, allocations and commits of a file system.
    Frees,
    /// Discards.
    Discards,
    /// Neither.
    Nothing,
}

/// The figures of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFigures {
    /// `open` or `closed`.
    pub pace: String,
    /// Requests replayed, apart from discards.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Mean latency of reads, writes and flushes.
    pub latency_mean_ns: u64,
    /// The same where it was recorded; `None` if the trace has no latencies.
    pub recorded_latency_mean_ns: Option<u64>,
    /// Recorded latencies by kind of request.
    pub recorded_latency: BTreeMap<String, LatencySummary>,
    /// What drives the policy.
    pub knows: Knows,
    /// Discards in the trace.
    pub recorded_discards: u64,
    /// Events lost while the trace was recorded.
    pub lost_events: u64,
    /// Requests whose addresses were cut at the end of the drive, because they were wrapped or scaled.
    pub cut_requests: u64,
    /// Why the trace was not read to its end, if it was cut off.
    pub cut_off: Option<String>,
}

impl ReplayFigures {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            pace: if pace == Pace::Closed { "closed" } else { "open" }.to_owned(),
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            latency_mean_ns: 0,
            recorded_latency_mean_ns: None,
            recorded_latency: BTreeMap::new(),
            knows: Knows::Nothing,
            recorded_discards: 0,
            lost_events: 0,
            cut_requests: 0,
            cut_off: None,
        }
    }

    /// Counts a request that was replayed.
    #[inline]
    pub(super) fn count(&mut self, kind: RequestKind, sectors: SectorRange) {
        match kind {
            RequestKind::Read => self.read_bytes += sectors.bytes().0,
            RequestKind::Write => self.written_bytes += sectors.bytes().0,
            RequestKind::Discard | RequestKind::Flush => {}
        }
        self.requests += u64::from(kind != RequestKind::Discard);
    }

    /// Enters the latencies of the drive and those recorded.
    pub(super) fn enter(&mut self, latencies: &Latencies, recorded: &Latencies) {
        self.latency_mean_ns = latencies.mean_ns().unwrap_or(0);
        self.recorded_latency_mean_ns = recorded.mean_ns();
        self.recorded_latency = recorded.summaries().map(|(kind, s)| (kind.to_owned(), s)).collect();
    }
}

/// Runs one cell on a new drive: prepares it, replays the trace, audits. `on_records` is called now and then with the
/// number of records so far, and ends the run by returning `false`.
///
/// # Errors
///
/// [`ReplayError`]. A trace that was cut off is replayed up to there.
pub fn run_cell(
    spec: &ReplaySpec,
    source: &mut dyn Source,
    on_records: &mut dyn FnMut(u64) -> bool,
) -> Result<Cell, ReplayError> {
    let utilization_percent = if source.header().has_prelude { 0 } else { spec.utilization_percent };
    let mut drive = PreparedDrive::new(&ReplaySpec { utilization_percent, ..spec.clone() })?;
    let cell = drive.replay(spec, source, on_records)?;
    drive.port.drive().ssd().audit().map_err(|e| spec.audit_failed(e.to_string()))?;
    Ok(cell)
}

impl ReplaySpec {
    fn audit_failed(&self, what: String) -> ReplayError {
        ReplayError::Audit { device: self.device.clone(), policy: self.policy.to_string(), what }
    }
}

/// A drive that holds data and has rested, ready for a replay.
#[derive(Clone, Debug)]
pub struct PreparedDrive {
    port: Port,
    now: SimTime,
}

impl PreparedDrive {
    /// Makes a new drive and fills it as the head of this module says.
    ///
    /// # Errors
    ///
    /// If the device's numbers contradict each other.
    pub fn new(spec: &ReplaySpec) -> Result<Self, ReplayError> {
        let mut port = Port::new(Drive::new(&spec.ssd, spec.faults, spec.seed)?);
        let seed = spec.seed ^ (u64::from(spec.rep) << 32);
        let now = prepare(&mut port, spec.utilization_percent, seed);
        Ok(Self { port, now })
    }

    /// Replays a trace after a rest, without auditing the drive. It may be called again: the drive stays as it is then.
    ///
    /// # Errors
    ///
    /// As [`run_cell`].
    pub fn replay(
        &mut self,
        spec: &ReplaySpec,
        source: &mut dyn Source,
        on_records: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Cell, ReplayError> {
        let begin = self.now + SETTLING;
        let port = &mut self.port;
        // What the drive collects while it rests is not the trace's.
        port.catch_up(begin);
        let policy = spec.policy.to_string();
        let hosted = Hosted::new(spec.policy.governor(), spec.linux.discard(), port, begin);
        let mut replay = Replay::new(hosted, &policy, spec.options, begin);
        replay.run(source, on_records)?;
        let replayed = replay.finish(source.header())?;
        if !replayed.ledger.balances() {
            let what = "freed units are not issued + reused + dropped + pending + in flight";
            return Err(spec.audit_failed(what.to_owned()));
        }
        self.now = replayed.end;
        let ssd = self.port.drive().ssd();
        let Replayed {
            begin: Begin { at, stats, ledger: before }, figures, latencies, ledger, stale, ..
        } = replayed;
        let (stats, ledger) = (ssd.stats().since(&stats), ledger.since(&before));
        let (duration, timeline) = (replayed.end.since(at), replayed.timeline);
        let id = CellId { device: spec.device.clone(), policy, target: "model".to_owned(), rep: spec.rep };
        let kinds = RequestKind::ALL.into_iter().filter(|kind| latencies.has(*kind));
        Ok(Cell {
            device_stats: Some(device_figures(&stats, ssd.wear(), stale, timeline)),
            drive: Some(DriveFacts::of(&spec.ssd)),
            ledger: Some(CellLedger::new(ledger, stats.busy_ns.trim, duration)),
            latency: latencies.summaries().map(|(kind, summary)| (kind.into(), summary)).collect(),
            latency_quantiles_ns: kinds
                .map(|kind| (kind.name().into(), latencies.quantiles(kind, &QUANTILES)))
                .collect(),
            ..Cell::new(id, duration, WorkloadFigures::Replay(figures))
        })
    }
}

/// Fills the first units of a new drive in order, then overwrites as many at random. Returns when that is done.
fn prepare(port: &mut Port, utilization_percent: u64, seed: u64) -> SimTime {
    const FILL_UNITS: u64 = 256;
    const AT_ONCE: usize = 32;
    let drive = port.drive_mut();
    let units = drive.ssd().capacity_units() * utilization_percent.min(100) / 100;
    let mut now = SimTime::ZERO;
    for start in (0..units).step_by(FILL_UNITS as usize) {
        let range = UnitRange::new(Lpn(start), FILL_UNITS.min(units - start));
        now = drive.write(now, range, CONTENT);
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..units / AT_ONCE as u64 {
        let places: [Lpn; AT_ONCE] = std::array::from_fn(|_| Lpn(((rng.next_u64() >> 32) * units) >> 32));
        drive.ssd().expect(places);
        let at = now;
        for place in places {
            now = now.max(drive.write(at, UnitRange::new(place, 1), CONTENT));
        }
    }
    now
}

/// What a replay leaves behind.
struct Replayed {
    begin: Begin,
    end: SimTime,
    figures: ReplayFigures,
    latencies: Latencies,
    ledger: Ledger,
    stale: Stale,
    timeline: Vec<TimelineSample>,
}

/// Where the figures begin.
#[derive(Clone, Copy, Debug)]
struct Begin {
    at: SimTime,
    stats: SsdStats,
    ledger: Ledger,
}

impl Begin {
    fn now(at: SimTime, hosted: &mut Hosted<'_>) -> Self {
        Self { at, stats: *hosted.port().drive().ssd().stats(), ledger: hosted.ledger() }
    }
}

/// What happens to the discards of a trace that has no frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    Dropped,
    AsRecorded,
    Queued,
}

/// Which requests of a trace go to a drive, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    devices: DeviceChoice,
    addresses: Addresses,
    size_sectors: u64,
    device: Option<u32>,
    /// Records so far, for messages.
    pub records: u64,
}

impl Aim {
    pub fn new(options: ReplayOptions, size: Bytes) -> Self {
        let ReplayOptions { devices, addresses, .. } = options;
        Self { devices, addresses, size_sectors: size.0 / SECTOR_BYTES, device: None, records: 0 }
    }

    #[inline]
    pub fn is_chosen(&mut self, record: &Record, header: &Header) -> Result<bool, ReplayError> {
        match (self.devices, self.device) {
            // They are of no single device.
            _ if matches!(record.event, Event::Committed | Event::Lost(_) | Event::Begun) => Ok(true),
            (DeviceChoice::All, _) => Ok(true),
            (DeviceChoice::Number(number), _) => Ok(record.device == number),
            (DeviceChoice::Only, Some(device)) if device == record.device => Ok(true),
            (DeviceChoice::Only, None) => {
                self.device = Some(record.device);
                Ok(true)
            }
            (DeviceChoice::Only, Some(device)) => Err(ReplayError::SeveralDevices {
                record: self.records,
                first: header.device_name(device),
                second: header.device_name(record.device),
            }),
        }
    }

    /// Where sectors lie on this drive, and whether some of them had to be cut off.
    #[inline]
    pub fn place(
        &self,
        sectors: SectorRange,
        device: u32,
        header: &Header,
    ) -> Result<(SectorRange, bool), ReplayError> {
        let (first, size) = (sectors.first.0, self.size_sectors);
        let fits = first.checked_add(sectors.sectors).is_some_and(|end| end <= size);
        let first = match self.addresses {
            Addresses::Refuse | Addresses::Wrap if fits => return Ok((sectors, false)),
            Addresses::Refuse => {
                let size = Bytes(size * SECTOR_BYTES);
                return Err(ReplayError::Beyond { record: self.records, sectors, size });
            }
            Addresses::Wrap => first % size,
            Addresses::Scale => {
                let device = header.devices.get(device as usize);
                let recorded = device.and_then(|device| device.capacity_bytes).ok_or(ReplayError::NoSize)?;
                let (units, of) =
                    (u128::from(size / UNIT_SECTORS), u128::from(recorded.div_ceil(UNIT_BYTES).max(1)));
                let unit = u128::from(first / UNIT_SECTORS) * units / of;
                unit.min(units - 1) as u64 * UNIT_SECTORS + first % UNIT_SECTORS
            }
        };
        let count = sectors.sectors.min(size - first);
        Ok((SectorRange::new(Lba(first), count), count < sectors.sectors))
    }

    /// The error of a trace without requests.
    pub fn nothing(&self, header: &Header) -> ReplayError {
        let of = match self.devices {
            DeviceChoice::Number(number) => format!(" to {}", header.device_name(number)),
            _ => String::new(),
        };
        ReplayError::Nothing { of }
    }
}

/// A replay that is running.
struct Replay<'p> {
    hosted: Hosted<'p>,
    policy: String,
    handling: Handling,
    options: ReplayOptions,
    begin: Begin,
    /// The time of the trace at `begin`.
    recorded_begin: SimTime,
    is_prelude: bool,
    aim: Aim,
    now: SimTime,
    done: SimTime,
    /// Closed: when requests completed as recorded, and when they do here.
    known: BinaryHeap<Reverse<(SimTime, SimTime)>>,
    /// Closed: when requests complete here whose completion was not recorded.
    unknown: BinaryHeap<Reverse<SimTime>>,
    has_frees: bool,
    figures: ReplayFigures,
    latencies: Latencies,
    recorded: Latencies,
    sampler: Sampler,
}

impl<'p> Replay<'p> {
    fn new(mut hosted: Hosted<'p>, policy: &str, options: ReplayOptions, begin: SimTime) -> Self {
        Self {
            aim: Aim::new(options, hosted.port().size()),
            sampler: Sampler::new(begin, hosted.port()),
            begin: Begin::now(begin, &mut hosted),
            recorded_begin: SimTime::ZERO,
            is_prelude: false,
            hosted,
            policy: policy.to_owned(),
            handling: match policy {
                "off" => Handling::Dropped,
                "commit" => Handling::AsRecorded,
                _ => Handling::Queued,
            },
            options,
            now: begin,
            done: begin,
            known: BinaryHeap::new(),
            unknown: BinaryHeap::new(),
            has_frees: false,
            figures: ReplayFigures::new(options.pace),
            latencies: Latencies::default(),
            recorded: Latencies::default(),
        }
    }

    fn run(
        &mut self,
        source: &mut dyn Source,
        on_records: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), ReplayError> {
        const BATCHES_PER_CALL: u64 = 1024;
        self.has_frees = source.header().file_system.as_ref().is_some_and(|fs| fs.is_traced);
        self.is_prelude = source.header().has_prelude;
        if self.handling != Handling::Dropped && source.header().never_discards() {
            return Err(ReplayError::NothingToTrim { policy: self.policy.clone() });
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
                    Err(error @ TraceError::Truncated { .. }) => {
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

    /// Tells the drive where the next requests begin. A wrong guess costs a little time, nothing else.
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

    /// When a record happens here.
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

    /// Forgets the figures so far, once all that was submitted has completed.
    fn begin_now(&mut self, recorded: SimTime) {
        self.now = self.done.max(self.now);
        self.hosted.advance(self.now);
        self.hosted.port().catch_up(self.now);
        self.begin = Begin::now(self.now, &mut self.hosted);
        (self.recorded_begin, self.is_prelude) = (recorded, false);
        self.figures = ReplayFigures::new(self.options.pace);
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
                // Nothing in the trace waits here for what the policy now does.
                return Ok(());
            }
        }
        let submitted = match kind {
            RequestKind::Read => PortRequest::Read(sectors),
            RequestKind::Write => {
                self.hosted.used(sectors.units());
                PortRequest::Write(sectors, CONTENT)
            }
            RequestKind::Discard => PortRequest::Discard(vec![sectors]),
            RequestKind::Flush => PortRequest::Flush,
        };
        let record_number = self.aim.records;
        let failed = |source| ReplayError::Port { record: record_number, source };
        let mut done = self.hosted.port().submit(at, &submitted).map_err(failed)?;
        if fua && kind == RequestKind::Write && self.hosted.port().drive().ssd().config().cache.volatile {
            done = done.max(self.hosted.port().submit(at, &PortRequest::Flush).map_err(failed)?);
        }
        self.done = self.done.max(done);
        self.hosted.is_busy_until(self.done);
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

    /// The run ends with the last request, whatever the policy still has to do.
    fn finish(mut self, header: &Header) -> Result<Replayed, ReplayError> {
        if self.figures.requests + self.figures.recorded_discards == 0 {
            return Err(self.aim.nothing(header));
        }
        self.figures.knows = match () {
            () if self.has_frees => Knows::Frees,
            () if self.figures.recorded_discards > 0 => Knows::Discards,
            () => Knows::Nothing,
        };
        if self.figures.knows == Knows::Nothing && self.handling != Handling::Dropped {
            return Err(ReplayError::NothingToTrim { policy: self.policy });
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

/// Samples stale units and writes over the time of the replay: every second at first; whenever there are too many
/// samples, every other one is dropped and the step doubles.
struct Sampler {
    samples: Vec<TimelineSample>,
    begin: SimTime,
    next: SimTime,
    step: SimDuration,
    before: SsdStats,
    stale_max: u64,
}

impl Sampler {
    fn new(begin: SimTime, port: &Port) -> Self {
        let before = *port.drive().ssd().stats();
        Self {
            samples: Vec::new(),
            begin,
            next: begin,
            step: SimDuration::from_secs(1),
            before,
            stale_max: 0,
        }
    }

    fn sample(&mut self, now: SimTime, hosted: &mut Hosted) {
        let stats = hosted.port().drive().ssd().stats().since(&self.before);
        let stale_units = hosted.stale_units();
        self.stale_max = self.stale_max.max(stale_units);
        self.samples.push(TimelineSample {
            at_ns: now.since(self.begin).as_nanos(),
            stale_units,
            host_units_written: stats.host_units_written,
            nand_units_written: stats.nand_units.total(),
        });
        if self.samples.len() >= SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step = self.step * 2;
        }
        self.next = now + self.step;
    }

    fn finish(&mut self, now: SimTime, hosted: &mut Hosted) -> Vec<TimelineSample> {
        self.sample(now, hosted);
        std::mem::take(&mut self.samples)
    }
}

#[cfg(test)]
mod tests;
