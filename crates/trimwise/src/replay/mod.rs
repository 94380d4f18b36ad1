//! Replays a trace on a modelled drive.
//!
//! Requests go to the drive through a [`Port`], which admits them in order up to the drive's queue depth. Each call
//! immediately returns the time of completion, so there are no events, and memory does not depend on the length of the
//! trace. Sixty-four records are read at a time and announced to the drive ([`Ssd::expect`](crate::ssd::Ssd::expect)).
//!
//! **Open**: a request is issued at its recorded time, whatever the drive does. The drive's latency then includes the
//! time in its queue, and a drive that is too slow falls behind without limit. **Closed**: a request is issued once all
//! requests have completed that had completed before its issue in the recording. So the replay waits wherever the
//! recording host waited, and leaves out the time that the host spent on other things. If completions were not
//! recorded, a number of requests is kept in flight instead.
//!
//! **TRIM.** If the trace has frees and commits, they drive the policy, and the discards of the recording host are left
//! out. If it has only discards, each stands for a commit that frees those units: the block-level queue of a host that
//! sees no file system. There `off` drops them, and `commit` passes them on as they were recorded. If it has neither,
//! every policy but `off` is refused, since it would do the same as `off`.
//!
//! **The drive's contents before.** As many units as `utilization` says, from the first on, are written in
//! order, and then as many are overwritten in random order. They count as in use until the trace frees them. So do units
//! that the trace reads before it writes them ([`read_before`]), which are written as well. A trace
//! with a prelude brings the drive's state with it instead: its records up to [`Event::Begun`] are replayed at their
//! recorded times on the new drive, under the policy, and the figures count from there.
//!
//! A FUA write on a drive with a volatile cache is a write and a flush, as Linux does it where the drive has no FUA.

mod aim;
mod before;
mod course;
mod error;
mod hosted;
mod on_device;
mod sampler;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::aim::Aim;
pub use self::aim::{Addresses, DeviceChoice};
pub use self::before::read_before;
use self::course::{Begin, Replay, Replayed};
pub use self::error::ReplayError;
use self::hosted::Hosted;
pub use self::on_device::{DeviceReplay, OnDeviceOptions, PreludeReplay, replay_on};
use crate::block::Port;
use crate::compare::cell::SETTLING;
use crate::compare::gauge::device_figures;
use crate::compare::ledger::CellLedger;
use crate::compare::result::{Cell, CellId, DriveFacts, QUANTILES, Target, WorkloadFigures};
use crate::content::{Content, ContentClass};
use crate::policy::{LinuxVersion, Policy};
use crate::ssd::{Drive, Faults, SsdConfig};
use crate::trace::{Event, PaceKind, Record, ReplayFigures, RequestKind, Source, TraceError};
use crate::units::{Bytes, Lpn, SECTOR_BYTES, SimTime, UNIT_BYTES, UnitRange, Utilization};

const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;
/// Content of all writes; a trace does not have any.
const CONTENT: Content = Content::new(ContentClass::Incompressible, 1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At their recorded times, at this percentage of the recorded speed.
    Open {
        /// Speed in percent: 100 is as recorded, 200 in half the time.
        speed_percent: u32,
    },
    /// Each request once those have completed for which it waited in the recording.
    Closed,
}

impl Pace {
    fn kind(self) -> PaceKind {
        match self {
            Self::Open { .. } => PaceKind::Open,
            Self::Closed => PaceKind::Closed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    pub pace: Pace,
    pub addresses: Addresses,
    pub devices: DeviceChoice,
    /// Number of requests in flight in a closed replay if completions were not recorded.
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

/// Reads a trace up to the beginning of its recording, or to its first record if it has no prelude. So an unreadable
/// trace is rejected before anything is replayed.
///
/// # Errors [`ReplayError::OnlyPrelude`] if there is no recording, [`ReplayError::Nothing`] if there is no record, or
/// the error of reading up to there.
pub fn expect_recording(source: &mut dyn Source) -> Result<(), ReplayError> {
    let has_prelude = source.header().has_prelude;
    loop {
        match source.next() {
            Ok(Some(Record { event, .. })) if !has_prelude || event == Event::Begun => return Ok(()),
            Ok(Some(_)) => {}
            Ok(None) | Err(TraceError::Truncated { .. }) if has_prelude => {
                return Err(ReplayError::OnlyPrelude);
            }
            Ok(None) => return Err(ReplayError::Nothing { of: String::new(), left_out: source.left_out() }),
            Err(error) => return Err(error.into()),
        }
    }
}

/// One run: a device, a policy, a repetition.
#[derive(Clone, Debug)]
pub struct ReplaySpec {
    pub device: String,
    pub ssd: SsdConfig,
    pub faults: Faults,
    pub policy: Policy,
    /// The host's Linux, which decides how the policy `commit` works.
    pub linux: LinuxVersion,
    /// Share of the drive that holds valid data before the replay. Without effect for a trace with a prelude.
    pub utilization: Utilization,
    /// Further units that hold valid data, in order: those that the trace reads first ([`read_before`]).
    pub before: Arc<[UnitRange]>,
    /// Number of the repetition. With the seed it decides which units are overwritten before the replay.
    pub rep: u32,
    pub seed: u64,
    pub options: ReplayOptions,
}

/// Runs one cell on a new drive: prepares it, replays the trace, audits. `on_records` is called now and then with the
/// number of records so far, and ends the run by returning `false`. A damaged trace is replayed up to the damage.
pub fn run_cell(
    spec: &ReplaySpec,
    source: &mut dyn Source,
    on_records: &mut dyn FnMut(u64) -> bool,
) -> Result<Cell, ReplayError> {
    let utilization = if source.header().has_prelude { Utilization::EMPTY } else { spec.utilization };
    let mut drive = PreparedDrive::new(&ReplaySpec { utilization, ..spec.clone() })?;
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
    /// Bytes written for the reads of the trace.
    written_before: Bytes,
}

impl PreparedDrive {
    /// Makes a new drive and fills it as described at the head of this module.
    pub fn new(spec: &ReplaySpec) -> Result<Self, ReplayError> {
        let mut port = Port::new(Drive::new(&spec.ssd, spec.faults, spec.seed)?);
        let seed = spec.seed ^ (u64::from(spec.rep) << 32);
        let (now, written_before) = prepare(&mut port, spec.utilization, &spec.before, seed);
        Ok(Self { port, now, written_before })
    }

    /// Replays a trace after a rest, without auditing the drive. Further calls continue with the drive as it then is.
    pub fn replay(
        &mut self,
        spec: &ReplaySpec,
        source: &mut dyn Source,
        on_records: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Cell, ReplayError> {
        let begin = self.now + SETTLING;
        let port = &mut self.port;
        // Collection during the rest does not belong to the trace.
        port.catch_up(begin);
        let policy = spec.policy.id().clone();
        let hosted = Hosted::new(&spec.policy, spec.linux.discard(), port, begin);
        let mut replay = Replay::new(hosted, &policy, spec.options, begin);
        replay.run(source, on_records)?;
        let replayed = replay.finish(source)?;
        if !replayed.ledger.balances() {
            let what = "freed units are not issued + reused + dropped + pending + in flight";
            return Err(spec.audit_failed(what.to_owned()));
        }
        self.now = replayed.end;
        let ssd = self.port.drive().ssd();
        let Replayed {
            begin: Begin { at, stats, ledger: before }, figures, latencies, ledger, stale, ..
        } = replayed;
        let figures = ReplayFigures { written_before_bytes: self.written_before.0, ..figures };
        let (stats, ledger) = (ssd.stats().since(&stats), ledger.since(&before));
        let (duration, timeline) = (replayed.end.since(at), replayed.timeline);
        let id = CellId { device: spec.device.clone(), policy, target: Target::Model, rep: spec.rep };
        let kinds = RequestKind::ALL.into_iter().filter(|kind| latencies.has(*kind));
        Ok(Cell {
            device_stats: Some(device_figures(&stats, ssd.wear(), stale, timeline)),
            drive: Some(DriveFacts::of(&spec.ssd)),
            discard: Some(spec.linux.discard()),
            ledger: Some(CellLedger::new(ledger, stats.busy_ns.trim, duration)),
            latency: latencies.summaries().map(|(kind, summary)| (kind.into(), summary)).collect(),
            latency_quantiles_ns: kinds
                .map(|kind| (kind.name().into(), latencies.quantiles(kind, &QUANTILES)))
                .collect(),
            ..Cell::new(id, duration, WorkloadFigures::Replay(figures))
        })
    }
}

/// Fills the first units of a new drive in order, and those that a trace reads first. Then overwrites as many at random
/// as were filled. Returns when that is done, and the bytes written for the trace.
fn prepare(port: &mut Port, utilization: Utilization, before: &[UnitRange], seed: u64) -> (SimTime, Bytes) {
    const FILL_UNITS: u64 = 256;
    const AT_ONCE: usize = 32;
    let drive = port.drive_mut();
    let units = drive.ssd().capacity_units() * utilization.percent() / 100;
    let mut now = SimTime::ZERO;
    let rest = before.iter().map(|range| UnitRange::between(range.start.max(Lpn(units)), range.end()));
    let filled = UnitRange::new(Lpn(0), units).pieces(FILL_UNITS);
    let mut written_before = 0;
    for range in
        filled.chain(rest.inspect(|range| written_before += range.units).flat_map(|r| r.pieces(FILL_UNITS)))
    {
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
    (now, Bytes::from_units(written_before))
}
