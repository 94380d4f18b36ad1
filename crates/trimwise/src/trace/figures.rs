//! The figures of a replayed trace.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::RequestKind;
use super::survey::Latencies;
use crate::units::SectorRange;
use crate::workload::latency::LatencySummary;

/// Rule for the time at which requests were issued, without its settings.
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

impl Knows {
    /// Says which questions such a trace can answer.
    pub fn serves(self) -> &'static str {
        match self {
            Self::Frees => {
                "The trace has what the file system freed and when it committed that, so every policy can be compared; \
                 where files lie stays as it was recorded."
            }
            Self::Discards => {
                "The trace has discards but not what the file system freed; each discard counts as a commit. Space that \
                 the recording host never discarded is unknown."
            }
            Self::Nothing => {
                "The trace has reads and writes only, neither discards nor frees. It serves to compare drives, how full \
                 they are and their spare space, under --policy off: latencies, throughput, write amplification and wear. \
                 It cannot say what TRIM is worth."
            }
        }
    }
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
    /// Number of bytes that were written before, apart from the drive's fill, since the trace reads them first.
    #[serde(default)]
    pub written_before_bytes: u64,
    /// Number of events lost while the trace was recorded.
    pub lost_events: u64,
    /// Number of requests whose addresses were cut at the end of the drive, because they were wrapped or scaled.
    pub cut_requests: u64,
    /// Where and why the trace ended early, if it is damaged; the figures cover what comes before.
    pub cut_off: Option<String>,
}

impl ReplayFigures {
    pub(crate) fn new(pace: PaceKind) -> Self {
        Self {
            pace,
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            latency_mean_ns: 0,
            recorded_latency_mean_ns: None,
            recorded_latency: BTreeMap::new(),
            recorded_drive_bytes: None,
            knows: Knows::Nothing,
            recorded_discards: 0,
            written_before_bytes: 0,
            lost_events: 0,
            cut_requests: 0,
            cut_off: None,
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, kind: RequestKind, sectors: SectorRange) {
        match kind {
            RequestKind::Read => self.read_bytes += sectors.bytes().0,
            RequestKind::Write => self.written_bytes += sectors.bytes().0,
            RequestKind::Discard | RequestKind::Flush => {}
        }
        self.requests += u64::from(kind != RequestKind::Discard);
    }

    pub(crate) fn enter(&mut self, latencies: &Latencies, recorded: &Latencies) {
        self.latency_mean_ns = latencies.mean_ns().unwrap_or(0);
        self.recorded_latency_mean_ns = recorded.mean_ns();
        self.recorded_latency = recorded.summaries().map(|(kind, s)| (kind.to_owned(), s)).collect();
    }
}
