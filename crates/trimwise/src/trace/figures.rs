use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::RequestKind;
use super::survey::Latencies;
use crate::units::SectorRange;
use crate::workload::latency::LatencySummary;

/// When requests are issued: a [`Pace`](crate::replay::Pace) without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceKind {
    Open,
    /// Each request once those had completed for which it waited in the recording.
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

/// What a trace knows of freed space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knows {
    Frees,
    Discards,
    Nothing,
}

impl Knows {
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayFigures {
    pub pace: PaceKind,
    /// Number of requests replayed, without discards.
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub latency_mean_ns: u64,
    /// Mean of the recorded latencies of these requests; `None` if the trace has no latencies.
    pub recorded_latency_mean_ns: Option<u64>,
    pub recorded_latency: BTreeMap<String, LatencySummary>,
    /// Size of the drive on which the trace was recorded; `None` if the trace does not say, or if several drives are
    /// replayed at once.
    #[serde(default)]
    pub recorded_drive_bytes: Option<u64>,
    /// The knowledge of free space that drives the policy.
    pub knows: Knows,
    pub recorded_discards: u64,
    /// Bytes written before the replay, apart from the drive's fill, since the trace reads them first.
    #[serde(default)]
    pub written_before_bytes: u64,
    pub lost_events: u64,
    /// Number of requests that were wrapped or scaled, and then cut at the end of the drive.
    pub cut_requests: u64,
    /// Where and why a damaged trace ended early. The figures cover everything before that.
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
