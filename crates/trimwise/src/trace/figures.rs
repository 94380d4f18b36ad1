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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Lba, SimDuration};

    #[test]
    fn a_replay_counts_all_but_discards_and_the_bytes_of_reads_and_writes() {
        let mut figures = ReplayFigures::new(PaceKind::Closed);
        assert_eq!(format!("{:>7}|{:<5}|", figures.pace, PaceKind::Open), " closed|open |");
        for (kind, sectors) in [
            (RequestKind::Read, 8),
            (RequestKind::Read, 3),
            (RequestKind::Write, 16),
            (RequestKind::Write, 1),
            (RequestKind::Discard, 64),
            (RequestKind::Flush, 0),
        ] {
            figures.count(kind, SectorRange::new(Lba(0), sectors));
        }
        assert_eq!((figures.requests, figures.read_bytes, figures.written_bytes), (5, 11 * 512, 17 * 512));
    }

    #[test]
    fn latencies_are_those_of_their_kind_and_the_mean_that_of_all() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.mean_ns(), None);
        for (kind, ns) in [(RequestKind::Read, 100), (RequestKind::Read, 200), (RequestKind::Write, 600)] {
            latencies.record(kind, SimDuration(ns));
        }
        assert_eq!(latencies.mean_ns(), Some(300));
        assert_eq!(RequestKind::ALL.map(|kind| latencies.has(kind)), [true, true, false, false]);
        assert_eq!(latencies.quantiles(RequestKind::Read, &[0.5, 1.0]), [100, 200]);
        let mut figures = ReplayFigures::new(PaceKind::Open);
        figures.enter(&latencies, &Latencies::default());
        assert_eq!((figures.latency_mean_ns, figures.recorded_latency_mean_ns), (300, None));
    }
}
