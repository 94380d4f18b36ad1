//! Replays a trace on a real file or device.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use trimwise::block::BlockDevice as _;
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::replay::{DeviceReplay, OnDeviceOptions, replay_on};
use trimwise::units::{Bytes, UnitRange};
use trimwise_linux::block_on;
use trimwise_linux::trace_file::is_rereadable;

use crate::caller::{Caller, OnInterrupt};
use crate::real_target::RealTarget;
use crate::trace_file::TraceFile;

/// Operations that the ring holds before the kernel must take some.
const QUEUE_DEPTH: u32 = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayRequest {
    /// `[FORMAT:]FILE[:OPTION...]`.
    pub trace: String,
    /// `file:PATH` or `dev:PATH`. Data that the trace writes or discards there is destroyed.
    pub target: String,
    #[serde(default)]
    pub no_discards: bool,
    /// Whether to skip writing the data that the trace reads before it writes it.
    #[serde(default)]
    pub no_fill: bool,
    pub size: Option<Bytes>,
    /// The name of the target, to allow overwriting it. The failure of a request without it has the name.
    pub destroy: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Replay {
    pub trimwise: &'static str,
    pub trace: String,
    pub target: String,
    pub discards: bool,
    #[serde(flatten)]
    pub replay: DeviceReplay,
    /// Caveats about the target.
    #[serde(skip)]
    pub notes: Vec<String>,
}

pub fn run(request: &ReplayRequest, caller: &dyn Caller) -> Result<Replay, Failure> {
    let ReplayRequest { trace, target, no_discards, no_fill, size, destroy } = request;
    let real = RealTarget::parse(target, *size, destroy.as_ref())?.ok_or_else(|| {
        let expected = "file:PATH or dev:PATH, or `trimwise compare --workload trace:FILE` for a model";
        Mistake::of(argument("target"), target).because("not a real target").expected(expected).fail()
    })?;
    let file = TraceFile::parse_workload(trace)?;
    file.expect_recording()?;
    let stop = caller.stop(OnInterrupt::StopAfterRun)?;
    let mut source = file.open_until(&stop)?;
    let device = real.open(true, QUEUE_DEPTH, &stop)?;
    let discards = !no_discards && device.facts().trim.is_some();
    let before = if *no_fill || !is_rereadable(file.path()) || source.header().has_prelude {
        None
    } else {
        let size = Bytes::from_units(device.size_units());
        let before = file.read_before(size, &mut |_| !stop.load(Ordering::Relaxed))?.to_vec();
        let units = before.iter().map(|range: &UnitRange| range.units).sum();
        if units > 0 {
            caller.note(&format!(
                "Writing {} that the trace reads before it writes it.",
                Bytes::from_units(units)
            ));
        }
        Some(before)
    };
    let options = OnDeviceOptions { discards, before };
    let replayed = block_on(replay_on(&device, &mut *source, file.options, &options));
    let replayed = replayed.map_err(Failure::run)?;
    // A pipe that is no longer waited for looks like a damaged one.
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    let replay = replayed.map_err(|error| file.failed(&error))?;
    Ok(Replay {
        trimwise: trimwise::VERSION,
        trace: trace.clone(),
        target: target.clone(),
        discards,
        replay,
        notes: device.notes().to_vec(),
    })
}
