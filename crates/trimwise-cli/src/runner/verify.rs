//! Verification of TRIM: on a model in virtual time, on a real file or device in real time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::ssd::{Drive, Faults, SsdConfig};
use trimwise_lab::bench::verify::{Torture, Verification, verify};
use trimwise_lab::bench::{Hooks, Settings};
use trimwise_linux::block_on;
use trimwise_linux::raw_device::Target;

use super::RealTarget;
use crate::failure::Failure;

/// Progress callback, called with the thousandths that are done.
pub type OnThousandths = Arc<dyn Fn(u64)>;

/// Verifies a new drive of this kind with these faults.
pub fn in_model(
    name: &str,
    config: &SsdConfig,
    faults: Faults,
    settings: &Settings,
    torture: &Torture,
    stop: &Arc<AtomicBool>,
    on_progress: OnThousandths,
) -> Result<Verification, Failure> {
    let sim = Sim::new();
    // Only a drive that remembers its contents can show that it lost some.
    let config = SsdConfig { track_tags: true, ..config.clone() };
    let drive = Drive::new(&config, faults, settings.seed)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let queue = BlockQueue::new(&sim, drive, QueueConfig::default());
    let device = ModelDevice::new(queue, name).interrupted_by(stop);
    let (settings, torture) = (*settings, *torture);
    let ended = sim.run(async move {
        let hooks = Hooks { on_progress: &|_, thousandths| on_progress(thousandths), stats: None };
        verify(&device, &settings, &torture, hooks).await
    });
    ended.map_err(Failure::run)?.map_err(Failure::usage)
}

/// Verifies a real file or device, which is overwritten if the user agreed. Also returns notes on how it was opened.
pub fn on_real(
    real: &RealTarget,
    settings: &Settings,
    torture: &Torture,
    stop: &Arc<AtomicBool>,
    on_progress: OnThousandths,
) -> Result<(Verification, Vec<String>), Failure> {
    let device = real.open(true, 0, stop)?;
    let hooks = Hooks { on_progress: &|_, thousandths| on_progress(thousandths), stats: None };
    let ended = block_on(verify(&device, settings, torture, hooks));
    let found = ended.map_err(Failure::run)?.map_err(Failure::usage)?;
    let mut notes = device.notes().to_vec();
    notes.push(device.promise().to_string());
    if let Target::File(_) = &real.target {
        notes.push(
            "TRIM of a file punches holes, so the file system is judged together with the drive".to_owned(),
        );
    }
    Ok((found, notes))
}
