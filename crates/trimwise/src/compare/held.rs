//! What a volume of thin storage holds while a workload runs, next to what the file system uses.

use std::cell::RefCell;
use std::rc::Rc;

use super::result::ThinFigures;
use crate::fs::{COMMIT_INTERVAL, Ext4};
use crate::units::{SimDuration, SimTime, UNIT_BYTES};

/// Samples after which the interval between them doubles, up to that of commits.
const SAMPLES: u32 = 1 << 14;
const STEP: SimDuration = SimDuration::from_nanos(100_000_000);

/// Compares what is held with what is used at intervals, from the start of a workload.
pub(super) struct HeldGauge {
    fs: Ext4,
    seen: Rc<RefCell<Seen>>,
}

struct Seen {
    running: bool,
    since: SimTime,
    last: SimTime,
    excess: u64,
    max: u64,
    /// Byte-nanoseconds of excess.
    integral: u128,
}

impl HeldGauge {
    /// Returns `None` if the device is no thin storage.
    pub fn start(fs: &Ext4) -> Option<Self> {
        let sim = fs.queue().sim().clone();
        fs.queue().with_thin(|volume, now| volume.restart(now))?;
        let now = sim.now();
        let seen = Seen { running: true, since: now, last: now, excess: 0, max: 0, integral: 0 };
        let gauge = Self { fs: fs.clone(), seen: Rc::new(RefCell::new(seen)) };
        let (fs, seen) = (fs.clone(), Rc::clone(&gauge.seen));
        sim.clone().spawn(async move {
            let (mut step, mut samples) = (STEP, 0);
            while seen.borrow().running {
                seen.borrow_mut().sample(&fs);
                sim.sleep(step).await;
                samples += 1;
                if samples % SAMPLES == 0 {
                    step = (step * 2).min(COMMIT_INTERVAL);
                }
            }
        });
        Some(gauge)
    }

    pub fn finish(&self) -> Option<ThinFigures> {
        let mut seen = self.seen.borrow_mut();
        seen.sample(&self.fs);
        seen.running = false;
        let span = seen.last.since(seen.since).as_nanos();
        let mean = if span == 0 { seen.excess as f64 } else { seen.integral as f64 / span as f64 };
        self.fs.queue().with_thin(|volume, now| {
            let held = volume.held(now);
            ThinFigures {
                chunk_bytes: volume.config().chunk.0,
                used_bytes_end: used_bytes(&self.fs),
                held_bytes_mean: held.mean_bytes,
                held_bytes_max: held.max.0,
                held_bytes_end: held.now.0,
                excess_bytes_mean: mean,
                excess_bytes_max: seen.max,
                excess_bytes_end: seen.excess,
            }
        })
    }
}

impl Seen {
    fn sample(&mut self, fs: &Ext4) {
        let Some((held, now)) = fs.queue().with_thin(|volume, now| (volume.held(now).now.0, now)) else {
            return;
        };
        self.integral += u128::from(self.excess) * u128::from(now.since(self.last).as_nanos());
        self.last = now;
        self.excess = held.saturating_sub(used_bytes(fs));
        self.max = self.max.max(self.excess);
    }
}

fn used_bytes(fs: &Ext4) -> u64 {
    fs.written_units() * UNIT_BYTES
}
