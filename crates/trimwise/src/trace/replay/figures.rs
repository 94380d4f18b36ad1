//! The figures of a replay, and its timeline.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Pace;
use crate::block::Port;
use crate::compare::result::TimelineSample;
use crate::ssd::SsdStats;
use crate::trace::RequestKind;
use crate::trace::hosted::Hosted;
use crate::trace::survey::Latencies;
use crate::units::{SectorRange, SimDuration, SimTime};
use crate::workload::latency::LatencySummary;

/// Maximum number of samples in a timeline.
const SAMPLES_MAX: usize = 200;

/// Rule for the time at which requests were issued, without the settings of [`Pace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceKind {
    /// At their recorded times.
    Open,
    /// Each request once those had completed that it waited for in the recording.
    Closed,
}

impl fmt::Display for PaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::Closed => "closed",
        })
    }
}

/// Information about freed space in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knows {
    /// Frees, allocations and commits of a file system.
    Frees,
    /// Discards of the host, but no frees.
    Discards,
    /// No information.
    Nothing,
}

/// The figures of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFigures {
    /// Rule for the time at which requests were issued.
    pub pace: PaceKind,
    /// Number of requests replayed, apart from discards.
    pub requests: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
    /// Mean latency of reads, writes and flushes.
    pub latency_mean_ns: u64,
    /// Mean of the recorded latencies of these requests; `None` if the trace has no latencies.
    pub recorded_latency_mean_ns: Option<u64>,
    /// Recorded latencies by kind of request.
    pub recorded_latency: BTreeMap<String, LatencySummary>,
    /// Size of the drive on which it was recorded; `None` if the trace does not say, or if several are replayed at once.
    #[serde(default)]
    pub recorded_drive_bytes: Option<u64>,
    /// Information that drives the policy.
    pub knows: Knows,
    /// Number of discards in the trace.
    pub recorded_discards: u64,
    /// Number of events lost while the trace was recorded.
    pub lost_events: u64,
    /// Number of requests whose addresses were cut at the end of the drive, because they were wrapped or scaled.
    pub cut_requests: u64,
    /// Reason why the trace was not read to its end, if it was cut off.
    pub cut_off: Option<String>,
}

impl ReplayFigures {
    pub(in crate::trace) fn new(pace: Pace) -> Self {
        Self {
            pace: if pace == Pace::Closed { PaceKind::Closed } else { PaceKind::Open },
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            latency_mean_ns: 0,
            recorded_latency_mean_ns: None,
            recorded_latency: BTreeMap::new(),
            recorded_drive_bytes: None,
            knows: Knows::Nothing,
            recorded_discards: 0,
            lost_events: 0,
            cut_requests: 0,
            cut_off: None,
        }
    }

    /// Counts a request that was replayed.
    #[inline]
    pub(in crate::trace) fn count(&mut self, kind: RequestKind, sectors: SectorRange) {
        match kind {
            RequestKind::Read => self.read_bytes += sectors.bytes().0,
            RequestKind::Write => self.written_bytes += sectors.bytes().0,
            RequestKind::Discard | RequestKind::Flush => {}
        }
        self.requests += u64::from(kind != RequestKind::Discard);
    }

    /// Enters the latencies of the drive and those recorded.
    pub(in crate::trace) fn enter(&mut self, latencies: &Latencies, recorded: &Latencies) {
        self.latency_mean_ns = latencies.mean_ns().unwrap_or(0);
        self.recorded_latency_mean_ns = recorded.mean_ns();
        self.recorded_latency = recorded.summaries().map(|(kind, s)| (kind.to_owned(), s)).collect();
    }
}

/// Samples stale units and writes over the time of the replay: every second at first; whenever there are too many
/// samples, every other one is dropped and the step doubles.
pub(super) struct Sampler {
    samples: Vec<TimelineSample>,
    begin: SimTime,
    /// Time of the next sample.
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
