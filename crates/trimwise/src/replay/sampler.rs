//! The timeline of a replay.

use super::hosted::Hosted;
use crate::block::Port;
use crate::compare::result::TimelineSample;
use crate::ssd::SsdStats;
use crate::units::{SimDuration, SimTime};

const SAMPLES_MAX: usize = 200;

/// Samples stale units and writes over the time of the replay, every second at first. Whenever there are too many
/// samples, every other one is dropped and the step doubles.
pub(super) struct Sampler {
    samples: Vec<TimelineSample>,
    begin: SimTime,
    pub next: SimTime,
    step: SimDuration,
    before: SsdStats,
    pub stale_max: u64,
}

impl Sampler {
    pub fn new(begin: SimTime, port: &Port) -> Self {
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

    pub fn sample(&mut self, now: SimTime, hosted: &mut Hosted) {
        let stats = hosted.port().drive().ssd().stats().since(&self.before);
        let stale_units = hosted.stale_units();
        self.stale_max = self.stale_max.max(stale_units);
        self.samples.push(TimelineSample {
            at_ns: now.since(self.begin).as_nanos(),
            stale_units,
            host_units_written: stats.host_units_written,
            nand_units_written: stats.nand_units.total(),
            gc_units_copied: Some(stats.nand_units.gc),
            trim_busy_ns: Some(stats.busy_ns.trim),
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

    pub fn finish(&mut self, now: SimTime, hosted: &mut Hosted) -> Vec<TimelineSample> {
        self.sample(now, hosted);
        std::mem::take(&mut self.samples)
    }
}
