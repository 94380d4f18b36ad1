//! What TRIM costs the foreground: latency at each rate of reads, writes and TRIMs.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::bench::Device;
use crate::bench::map::{self, Map, MapPlan};
use serde::{Deserialize, Serialize};
use trimwise::block::{BlockDevice, BlockError, BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::failure::{Failure, Mistake, argument};
use trimwise::ssd::Drive;
use trimwise::units::{Bytes, SimDuration};
use trimwise_linux::block_on;

use super::OnDevice;
use trimwise_study::caller::{Caller, OnInterrupt, Progress};
use trimwise_study::check::within;
use trimwise_study::real_target::RealTarget;

/// Minimum size of the region, each half of which must hold many TRIMs.
const REGION_MIN: Bytes = Bytes::mib(64);
/// Operations that a real device's ring holds.
const QUEUE_DEPTH: u32 = 1024;

/// Seconds that a point may last.
pub const POINT_S: RangeInclusive<u64> = 1..=3600;

/// A request for a map of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapRequest {
    /// The device and its data.
    #[serde(flatten)]
    pub on: OnDevice,
    /// How long each point lasts, in seconds; `None` means one.
    pub point_s: Option<u64>,
}

/// The result; the order of the keys is part of the format.
#[derive(Debug, Serialize, Deserialize)]
pub struct MapReport {
    pub trimwise: Cow<'static, str>,
    /// The target as given.
    pub target: String,
    pub device: Device,
    /// What to know about the device.
    pub notes: Vec<String>,
    pub partial: bool,
    pub map: Map,
    pub command: String,
}

impl MapReport {
    /// Returns why points are missing; `None` if the map is complete.
    pub fn failure(&self) -> Option<Failure> {
        let why = self.map.broken.as_ref()?;
        Some(match self.map.interrupted {
            true => Failure::Interrupted,
            false => Failure::run(format!("{}: {why}", self.device.name)),
        })
    }
}

type Measured = (Map, Device, Vec<String>);

pub fn run(request: &MapRequest, caller: &dyn Caller) -> Result<MapReport, Failure> {
    within("point_s", request.point_s, &POINT_S)?;
    let real = request.on.real()?;
    let progress = caller.progress(1, "maps");
    let stop = caller.stop(OnInterrupt::StopAndShow)?;
    let measured = match real {
        None => in_model(request, &stop, &progress),
        Some(real) => on_real(request, &real, &stop, &progress, caller),
    };
    progress.finish();
    let (map, device, notes) = measured?;
    Ok(MapReport {
        trimwise: trimwise::VERSION.into(),
        target: request.on.target.clone(),
        device,
        notes,
        partial: map.broken.is_some(),
        map,
        command: request.on.command(|command| {
            command.argument("--map");
            if let Some(seconds) = request.point_s {
                command.option("--point", seconds);
            }
        }),
    })
}

fn plan(request: &MapRequest, device: &impl BlockDevice) -> Result<MapPlan, Failure> {
    let region = map::region(request.on.settings().region(device.facts()));
    let bytes = Bytes::from_units(region.units);
    if bytes < REGION_MIN {
        let of = Mistake::of(argument("target"), &device.facts().name);
        return Err(of
            .because(format!("{bytes} for a map"))
            .expected(format!("at least {REGION_MIN}"))
            .fail());
    }
    let point = SimDuration::from_secs(request.point_s.unwrap_or(1));
    Ok(MapPlan { region, point, content: request.on.content, seed: request.on.seed })
}

fn failed(error: BlockError) -> Failure {
    match error {
        BlockError::Interrupted => Failure::Interrupted,
        BlockError::Unsupported(why) => Mistake::that(why).fail(),
        other => Failure::run(other),
    }
}

fn in_model(
    request: &MapRequest,
    stop: &Arc<AtomicBool>,
    progress: &Arc<dyn Progress>,
) -> Result<Measured, Failure> {
    let profile = request.on.profile()?;
    let drive = Drive::new(&profile.config, profile.faults, request.on.seed)
        .map_err(|e| Mistake::of(argument("target"), &profile.name).because(e.to_string()).fail())?;
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
    let device = Rc::new(ModelDevice::new(queue, &profile.name).interrupted_by(stop));
    let plan = plan(request, &*device)?;
    let facts = Device::from(device.facts());
    let progress = Arc::clone(progress);
    let on_progress = move |done: usize, all: usize| progress.update(0, done as u64, all as u64);
    let ended = sim.run(async move { map::map(&*device, plan, &on_progress).await });
    Ok((ended.map_err(Failure::run)?.map_err(failed)?, facts, Vec::new()))
}

fn on_real(
    request: &MapRequest,
    real: &RealTarget,
    stop: &Arc<AtomicBool>,
    progress: &Arc<dyn Progress>,
    caller: &dyn Caller,
) -> Result<Measured, Failure> {
    let device = real.open(true, QUEUE_DEPTH, stop)?;
    let plan = plan(request, &device)?;
    let takes_trim = device.facts().trim.is_some();
    caller.note(&format!(
        "{} points: at least {}, plus the time to rewrite what each trimmed; Ctrl-C keeps finished points",
        map::points(takes_trim),
        trimwise::numbers::time(map::estimate(&plan, takes_trim).as_secs_f64())
    ));
    let on_progress = |done: usize, all: usize| progress.update(0, done as u64, all as u64);
    let map = block_on(map::map(&device, plan, &on_progress)).map_err(Failure::run)?.map_err(failed)?;
    Ok((map, Device::from(device.facts()), device.notes().to_vec()))
}
